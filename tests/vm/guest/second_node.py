"""What the second guest does when a check in the first one asks (second_guest.py): a node with one service."""

import pathlib

import flashd
import network
import package_checks
import sync_checks
import world
from checks import eventually, output


def join_network() -> str:
    uptime = float(pathlib.Path("/proc/uptime").read_text().split()[0])
    return f"{network.join(network.SECOND)}, {uptime:.0f} s after its kernel began"


def install() -> str:
    package_checks.apt_install("packages", "flashd", "flashd-tools", "flash-sync", timeout=220)
    return package_checks.version()


def enrol(token: str) -> str:
    return output("flash-sync", "enroll", "-", told=token)


def manage_a_service() -> None:
    world.set_load("worker", 0.1, 10)
    world.start_unit("worker", f"{world.WORK} burn {world.LOADS}/worker", "Slice=app.slice\nMemoryAccounting=yes")
    rules = {"worker": world.limits_rule({"unit": "worker.service"}, "worker")}
    flashd.configure(world.settings("recommend", rules=rules))
    # flash-sync is a part of it: both start anew.
    output("systemctl", "restart", "flashd")
    sync_checks.connected()
    eventually("an agent", targets, 30)


def targets() -> list[str]:
    """Of this node's own agents."""
    return [row["target"] for row in flashd.agents()]


def flashctl(*words: str):
    return flashd.flashctl(*words)
