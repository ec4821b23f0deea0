"""What a check is, and what checks use to look at the guest. A check raises Failed, or passes."""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import time
from typing import Callable

SHARE = pathlib.Path("/run/share")


class Failed(Exception):
    """The check's claim does not hold; the text says what was seen."""


class Skipped(Exception):
    """The check cannot run here; the text says why. A skip is not a pass."""


@dataclasses.dataclass(frozen=True)
class Check:
    name: str
    needs: tuple[str, ...]
    seconds: int
    guests: int  # 2: the second guest may be on meanwhile; with 1 it is off
    run: Callable[[], str | None]


CHECKS: list[Check] = []


def check(name: str, needs: tuple[str, ...] = (), seconds: int = 60, guests: int = 1):
    """Registers a check. Order of registration is order of running; `needs` names earlier ones."""
    def register(run):
        CHECKS.append(Check(name, needs, seconds, guests, run))
        return run
    return register


def require(condition, message: str) -> None:
    if not condition:
        raise Failed(message)


def eventually(what: str, condition, seconds: float, every: float = 0.2):
    """The first true value of condition(), or a failure that names what did not come."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise Failed(f"not within {seconds:g} s: {what}")
        time.sleep(every)


def always(what: str, condition, seconds: float, every: float = 0.2) -> None:
    """condition() holds at each look for so long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        require(condition(), f"did not stay true: {what}")
        time.sleep(every)


def run(*command: str, ok: bool = True, timeout: float = 120, told: str | None = None) -> subprocess.CompletedProcess:
    """`told` is its standard input: the place for what no failure shall repeat."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, input=told)
    if ok and done.returncode != 0:
        raise Failed(f"{' '.join(command)}: exit {done.returncode}: "
                     f"{(done.stdout + done.stderr).strip()[-600:]}")
    return done


def output(*command: str, **options) -> str:
    return run(*command, **options).stdout.strip()


def read(path) -> str:
    return pathlib.Path(path).read_text().strip()


def write(path, value) -> None:
    with open(path, "w") as file:
        file.write(str(value))


def pstate_journal() -> list[dict]:
    """What the host's throttle has seen so far, oldest first."""
    path = SHARE / "pstates.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


ARM_PORT = 0xE8


def arm(cpus) -> None:
    """The rig's own register: the processors whose lower frequency is really slower."""
    with open("/dev/port", "wb", buffering=0) as port:
        port.seek(ARM_PORT)
        port.write(bytes([sum(1 << cpu for cpu in cpus)]))


@contextlib.contextmanager
def physical_frequency(cpus=tuple(range(os.cpu_count()))):
    """Within, the frequencies of these processors are physical; any other is as fast as the host can."""
    arm(cpus)
    try:
        yield
    finally:
        arm(())
