"""Services that the checks let flashd manage, beside flash-workload. Each reads its load from a file at every round.

  work.py burn LOAD_FILE      LOAD_FILE holds "CORES MIB": a duty cycle and resident memory
  work.py encode LOAD_FILE    closed loop: frames as fast as the CPU computes them; LOAD_FILE holds
                              rounds of computation per frame (class Pace); writes frames per second to
                              LOAD_FILE.rate each half second, counts frames by StatsD, 25 times a second
  work.py lie PORT            serves one connection after the other on loopback: answers each request after
                              50 ms, and tells StatsD that it took 1 ms
"""

import collections
import os
import pathlib
import socket
import statistics
import sys
import time

STATSD = "/run/flashd/statsd/statsd.sock"


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


class Pace:
    """How much a chunk of computing is worth, in rounds: the median time of the last ones, which is what one takes while the
    processor runs, in units of NOMINAL_S for CHUNK rounds.

    So work is worth the time that the processor was given. A host that translates slower for some seconds (its other
    thread is busy, its clock is lower) changes nothing; one that gives the processor less time does, and that is what a
    lower frequency is here."""
    CHUNK = 100  # rounds: some 0.2 ms, where 1 GHz gives 4 ms in each 20 ms
    NOMINAL_S = 0.0002
    LAST = 400  # chunks

    def __init__(self):
        self._times = collections.deque(maxlen=self.LAST)
        self._worth, self._fresh = 0.0, 0

    def chunk(self) -> float:
        began = time.perf_counter()
        compute(self.CHUNK)
        self._times.append(time.perf_counter() - began)
        self._fresh -= 1
        if self._fresh < 0:
            self._worth = self.CHUNK * statistics.median(self._times) / self.NOMINAL_S
            self._fresh = min(len(self._times), 100)
        return self._worth


def encode(path: str) -> None:
    statsd = Statsd()
    pace = Pace()
    done = 0.0  # rounds of the frame
    frames, since = 0, time.monotonic()
    uncounted, counted = 0, since
    rounds = int((load(path) or [2000])[0])
    while True:
        done += pace.chunk()
        while done >= rounds:
            done -= rounds
            frames += 1
            uncounted += 1
        now = time.monotonic()
        # As StatsD clients do, several at once: a datagram wakes the daemon, and takes from 1 GHz three times what it
        # takes from 3 GHz. But not at a pace that a tick notices: of datagrams 0.1 s apart, 0.24 s get two or three.
        if uncounted and now - counted >= 0.04:
            statsd.send(f"encoder.requests:{uncounted}|c|#app:encoder")
            uncounted, counted = 0, now
        if now - since >= 0.5:
            pathlib.Path(path + ".tmp").write_text(f"{frames / (now - since):.3f}\n")
            os.replace(path + ".tmp", path + ".rate")
            frames, since = 0, now
            rounds = int((load(path) or [rounds])[0])


def lie(port: str) -> None:
    statsd = Statsd()
    with socket.create_server(("127.0.0.1", int(port))) as listener:
        while True:
            connection, _ = listener.accept()
            with connection:
                while connection.recv(4096):
                    time.sleep(0.05)
                    statsd.send("request_latency:1|ms|#app:liar")
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


if __name__ == "__main__":
    {"burn": burn, "encode": encode, "lie": lie}[sys.argv[1]](*sys.argv[2:])
