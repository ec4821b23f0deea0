"""The services that the checks let flashd manage. Each reads its load from a file at every round.

  work.py web LOAD_FILE PORT       HTTP server; each request computes; reports its latency by StatsD
  work.py clients LOAD_FILE PORT   open-loop load for it: LOAD_FILE holds requests per second
  work.py burn LOAD_FILE           LOAD_FILE holds "CORES MIB": a duty cycle and resident memory
  work.py encode LOAD_FILE         closed loop: frames as fast as the CPU computes them; LOAD_FILE
                                   holds rounds of computation per frame; writes frames per second
                                   to LOAD_FILE.rate each half second, counts frames by StatsD
"""

import http.server
import os
import pathlib
import socket
import sys
import threading
import time
import urllib.request

STATSD = "/run/flashd/statsd.sock"


def compute(rounds: int) -> int:
    value = 1
    for _ in range(rounds):
        value = value * 1103515245 + 12345 & 0x7FFFFFFF
    return value


class Statsd:
    """Sends lines, and does without a daemon: a service does not fail because nobody listens."""

    def __init__(self):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def send(self, line: str) -> None:
        try:
            self._socket.sendto(line.encode(), STATSD)
        except OSError:
            pass


def load(path: str) -> list[float]:
    try:
        return [float(word) for word in pathlib.Path(path).read_text().split()]
    except (OSError, ValueError):
        return []


def web(_: str, port: str) -> None:
    statsd = Statsd()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            began = time.monotonic()
            body = f"{compute(4000)}\n".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            milliseconds = (time.monotonic() - began) * 1000
            statsd.send(f"request:{milliseconds:.3f}|ms|#application:web")

        def log_message(self, *_):
            pass

    http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()


def clients(path: str, port: str) -> None:
    def one():
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).read()
        except OSError:
            pass

    due = time.monotonic()
    while True:
        rate = (load(path) or [1])[0]
        due += 1 / max(rate, 0.1)
        time.sleep(max(0, due - time.monotonic()))
        if threading.active_count() < 50:
            threading.Thread(target=one, daemon=True).start()


def burn(path: str) -> None:
    held = bytearray()
    while True:
        cores, mib = (load(path) + [0.1, 10])[:2] if load(path) else (0.1, 10)
        wanted = int(mib) << 20
        if len(held) != wanted:
            held = bytearray(wanted)
            for page in range(0, wanted, 4096):
                held[page] = 1
        began = time.monotonic()
        while time.monotonic() - began < 0.05 * min(cores, 1):
            compute(200)
        time.sleep(max(0.0, 0.05 - (time.monotonic() - began)))


def encode(path: str) -> None:
    statsd = Statsd()
    frames, since = 0, time.monotonic()
    rounds = int((load(path) or [2000])[0])
    while True:
        compute(rounds)
        frames += 1
        now = time.monotonic()
        statsd.send("frame:1|c|#application:encoder")
        if now - since >= 0.5:
            pathlib.Path(path + ".tmp").write_text(f"{frames / (now - since):.3f}\n")
            os.replace(path + ".tmp", path + ".rate")
            frames, since = 0, now
            rounds = int((load(path) or [rounds])[0])


if __name__ == "__main__":
    {"web": web, "clients": clients, "burn": burn, "encode": encode}[sys.argv[1]](*sys.argv[2:])
