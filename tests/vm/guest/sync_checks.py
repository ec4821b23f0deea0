"""flash-sync as a package and a service: the only part with network, with no other right; what it reads and serves."""

import pathlib
import pwd
import re
import socket
import urllib.request

import flashd
import package_checks
import world
from checks import SHARE, check, eventually, output, read, require, run
from learner_checks import no_tick_is_missed
from request_checks import sources

UNIT = "flash-sync.service"
USER = "_flash-sync"
SOCKET = "/run/flashd/sync.sock"
ADDRESS = ("127.0.0.1", 9942)
TEXTFILE = pathlib.Path("/run/flash-sync/flashd.prom")
# web.service of world.py, which serves a page of its own.
WEB_PAGE = {"url": "http://127.0.0.1:8080/metrics", "latency": 'http_request_duration_seconds{app="web"}'}


def word() -> str:
    """Manager's property Sync: "absent", "connected: ..."."""
    return flashd.properties()["Sync"]


def connected(what: str = "flash-sync is connected") -> str:
    return eventually(what, lambda: next((w for w in [word()] if w.startswith("connected")), None), 60)


def pid() -> int:
    return int(flashd.show("MainPID", unit=UNIT)["MainPID"])


def page() -> str:
    """What Prometheus would get."""
    with urllib.request.urlopen("http://%s:%d/metrics" % ADDRESS, timeout=10) as answer:
        require(answer.status == 200, f"HTTP status {answer.status}")
        return answer.read().decode()


def value(name: str, **labels: str) -> float | None:
    """The first sample of that name that has these labels."""
    for line in page().splitlines():
        if re.match(re.escape(name) + r"[{ ]", line) and all(f'{k}="{v}"' in line for k, v in labels.items()):
            return float(line.rsplit(" ", 1)[1])
    return None


def troubles() -> list[str]:
    return [why for part, why in flashd.properties()["Degraded"] if part == "prometheus"]


def restart_with_page() -> None:
    """flashd reads web's latency from its metrics page alone."""
    settings = world.settings("recommend")
    settings["rules"]["web"]["slo"] = {"latency_p99_ms": 500, "source": "prometheus", "prometheus": WEB_PAGE}
    flashd.configure(settings)
    output("systemctl", "restart", "flashd")
    connected()


@check("sync.installs", needs=("package.installs",), seconds=120)
def installs():
    return package_checks.install("flash-sync", timeout=110)


@check("sync.connects", needs=("sync.installs", "world.services-run"), seconds=100)
def connects():
    world.restart_in("recommend")
    eventually(f"{UNIT} is active", lambda: flashd.show("ActiveState", unit=UNIT)["ActiveState"] == "active", 60)
    require(output("systemctl", "is-enabled", UNIT) == "enabled", f"{UNIT} is not enabled")
    require(flashd.show("Type", "WatchdogUSec", unit=UNIT)["WatchdogUSec"] not in ("0", "infinity"), "no watchdog")
    return connected()


@check("sync.exposure-at-most-2", needs=("sync.connects",))
def exposure():
    return package_checks.exposure_of(UNIT, 2)


@check("sync.has-no-privileges", needs=("sync.connects",))
def no_privileges():
    """User, capabilities, filter and what it may open, as the kernel sees them, not as the unit says."""
    status = dict(line.split(":\t", 1) for line in read(f"/proc/{pid()}/status").splitlines() if ":\t" in line)
    uid = pwd.getpwnam(USER).pw_uid
    require(uid != 0, f"{USER} is root")
    require(status["Uid"].split() == [str(uid)] * 4, f"uid {status['Uid']}")
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        require(int(status[name], 16) == 0, f"{name} {status[name]}")
    require(status["NoNewPrivs"] == "1" and status["Seccomp"] == "2", "no NoNewPrivs, or no seccomp filter")
    require(pwd.getpwnam(USER).pw_uid != pwd.getpwnam("_flashd").pw_uid, "the learner's user has the network too")
    return f"uid {uid}, no capability, {status['VmRSS'].strip()}"


@check("sync.socket-is-closed-to-others", needs=("sync.connects",))
def socket_is_closed():
    connect = f"import socket; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect('{SOCKET}')"
    tried = run("runuser", "-u", "tester", "--", "python3", "-c", connect, ok=False)
    require(tried.returncode != 0 and "PermissionError" in tried.stderr, f"it may connect: {tried.stderr}")
    require(word().startswith("connected"), f"flash-sync lost its place: {word()}")


@check("sync.serves-flashd's-metrics", needs=("sync.connects",), seconds=90)
def serves():
    """As Prometheus and as node_exporter would read them; to this host alone."""
    ticks = eventually("flashd_ticks_total is above 0", lambda: value("flashd_ticks_total"), 40)
    eventually("it grows", lambda: value("flashd_ticks_total") > ticks, 40)
    require(value("flashd_mode", mode="recommend") == 1, "the mode is not told")
    require(value("flash_sync_connected") == 1, "it does not say that it is connected")
    names = {row["name"] for row in flashd.agents()}
    shown = set(re.findall(r'^flashd_agent_info\{.*?agent="([^"]+)"', page(), re.M))
    require(names and names == shown, f"agents {names}, on the page {shown}")
    listens = [line.split()[3] for line in output("ss", "-Hltn").splitlines() if line.split()[3].endswith(":9942")]
    require(listens == ["127.0.0.1:9942"], f"it listens on {listens}")
    require(TEXTFILE.stat().st_mode & 0o777 == 0o644, "node_exporter could not read the textfile")
    require(re.search(r"^flashd_ticks_total [1-9]", read(TEXTFILE), re.M), "the textfile has no flashd_ticks_total")
    return f"{len(page())} bytes, {len(shown)} agents"


@check("sync.a-page-becomes-a-latency", needs=("sync.connects",), seconds=120)
def becomes_a_latency():
    """web.service shows its histogram on /metrics; flashd's rule wants it as the source of the objective."""
    restart_with_page()

    def measured():
        decisions = flashd.decisions(flashd.agent_of(world.WEB)["path"])
        seen = decisions[-1]["observation"] if decisions else {}
        good = seen.get("requests.rate", {}).get("validity") == "good" and seen.get("latency.p99", {}).get("value")
        return seen if good else None
    seen = eventually("a latency of web.service", measured, 60)
    p50, p99 = (seen[f"latency.{p}"]["value"] for p in ("p50", "p99"))
    rate = seen["requests.rate"]["value"]
    require(0 < p50 <= p99, f"p50 {p50} ms, p99 {p99} ms")
    require(1 <= rate <= 40, f"{rate} requests per second, 10 are sent")
    rows = sources("latency.p50", "prometheus")
    require([row["targets"] for row in rows] == [1], f"doctor does not tell: {rows}")
    eventually("the source is on the page",
               lambda: value("flashd_signal_targets", signal="latency.p50", source="prometheus") == 1, 30)
    require(not troubles(), f"degraded: {troubles()}")
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, {rate:.1f} requests/s"


@check("sync.a-page-that-is-gone-is-named", needs=("sync.a-page-becomes-a-latency",), seconds=120)
def gone_page():
    restart_with_page()
    output("systemctl", "stop", "web-clients", "web")
    try:
        said = eventually("the page is named", lambda: [why for why in troubles() if "rule web" in why], 60)
        require("unreachable" in said[0], said[0])
    finally:
        output("systemctl", "start", "web", "web-clients")
    eventually("the page answers again", lambda: not troubles(), 60)
    return said[0]


@check("sync.stopped-flashd-goes-on", needs=("sync.a-page-becomes-a-latency",), seconds=120)
def stopped():
    restart_with_page()
    with no_tick_is_missed():
        output("systemctl", "stop", UNIT)
        eventually("flashd says absent", lambda: word().startswith("absent"), 20)
        said = eventually("its pages are not read", troubles, 20)
    require("flash-sync" in said[0], f"it does not say why: {said}")
    require(not TEXTFILE.exists(), "the textfile outlives flash-sync")
    with socket.socket() as probe:
        require(probe.connect_ex(ADDRESS) != 0, "somebody still serves the port")
    output("systemctl", "start", UNIT)
    connected("flash-sync is connected again")
    eventually("no trouble any more", lambda: not troubles(), 60)
    return said[0]
