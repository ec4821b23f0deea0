"""Latency and rate of a TCP server from the kernel, and a service that lies about them."""

import json
import socket
import threading

import flashd
import world
from checks import check, eventually, output, require, run

PORT = 8099
LIAR = "/system.slice/liar.service"


class Client(threading.Thread):
    """Asks without a pause over one connection, until it is closed."""

    def __init__(self):
        super().__init__(daemon=True)
        self._ended = threading.Event()

    def run(self):
        while not self._ended.is_set():
            try:
                with socket.create_connection(("127.0.0.1", PORT), timeout=5) as connection:
                    while not self._ended.is_set():
                        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
                        if not connection.recv(4096):
                            break
            except OSError:
                self._ended.wait(0.2)

    def close(self):
        self._ended.set()
        self.join(10)


def sources(signal: str, source: str) -> list[dict]:
    rows = json.loads(output("flashctl", "doctor", "--json"))["sources"]
    return [row for row in rows if row["signal"] == signal and row["source"] == source]


def restart_with(source: str) -> None:
    settings = world.settings("recommend")
    settings["rules"]["liar"] = world.limits_rule(
        {"unit": "liar.service"}, "liar", slo={"latency_p99_ms": 20, "source": source})
    flashd.configure(settings)
    output("systemctl", "restart", "flashd")


@check("requests.kernel-measures-as-a-service", needs=("agents.appear-on-the-bus",), seconds=120)
def measures():
    """The same object file as on every host, loaded and attached with what the unit allows."""
    world.start_unit("liar", f"{world.WORK} lie {PORT}")
    client = Client()
    client.start()
    try:
        restart_with("kernel")

        def measured():
            decisions = flashd.decisions(flashd.agent_of(LIAR)["path"])
            seen = decisions[-1]["observation"] if decisions else {}
            # A first tick has latencies of what came since the probe was attached, but no rate: no interval.
            good = all(seen.get(s, {}).get("validity") == "good" for s in ("latency.p50", "requests.rate"))
            return seen if good else None
        seen = eventually("a latency and a rate of liar.service", measured, 30)
        p50, rate = seen["latency.p50"]["value"], seen["requests.rate"]["value"]
        require(45 <= p50 <= 150, f"p50 is {p50} ms, the service sleeps 50 ms")
        require(5 <= rate <= 21, f"{rate} requests per second, each takes 50 ms")
        rows = sources("latency.p50", "kernel")
        require([row["targets"] for row in rows] == [1], f"doctor does not tell: {rows}")

        def costs():
            cost = json.loads(output("flashctl", "status", "--json"))["overhead_pct"]
            return cost if min(cost.values()) > 0 else None
        cost = eventually("a cost of the process and of both probes", costs, 30)
    finally:
        client.close()
    parts = ", ".join(f"{part} {pct:.2g}" for part, pct in cost.items())
    return f"p50 {p50:.1f} ms, {rate:.1f} requests/s; percent of one core: {parts}"


@check("requests.a-service-that-lies-is-named", needs=("requests.kernel-measures-as-a-service",), seconds=120)
def lies():
    client = Client()
    client.start()
    try:
        restart_with("auto")

        def named():
            reasons = [why for part, why in flashd.properties()["Degraded"] if part == "slo"]
            return reasons[0] if reasons else None
        reason = eventually("the lie is degraded", named, 40)
        require("liar" in reason and "statsd says" in reason, reason)
        rows = sources("latency.p50", "kernel")
        require(any("the kernel contradicts it" in row["reason"] for row in rows), f"doctor does not tell: {rows}")
        flashd.next_ticks(8)
        found = run("journalctl", "-b", "-o", "json", "--no-pager", "FLASHD_PART=slo", f"_PID={flashd.main_pid()}",
                    ok=True)
        lines = [json.loads(line) for line in found.stdout.splitlines()]
        told = [line for line in lines if not line["MESSAGE"].startswith("over:")]
        require(len(told) == 1, f"said {len(told)} times, not once: {[line['MESSAGE'] for line in lines]}")
        require("liar" in told[0]["FLASHD_TARGET"], f"FLASHD_TARGET is {told[0]['FLASHD_TARGET']}")
    finally:
        client.close()
        output("systemctl", "stop", "liar")
        flashd.configure(world.settings("recommend"))
        output("systemctl", "restart", "flashd")
    eventually("the agents again", lambda: len(flashd.agents()) >= 4, 20)
    return reason
