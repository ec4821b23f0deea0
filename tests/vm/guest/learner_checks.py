"""flash-learner as a package and a service: unprivileged, connected, and never missed by flashd's ticks."""

import contextlib
import json
import os
import pathlib
import pwd
import signal
import sqlite3
import time

import flashd
import package_checks
import world
from checks import SHARE, always, check, eventually, output, read, require, run

UNIT = "flash-learner.service"
SOCKET = "/run/flashd/learner.sock"
USER = "_flashd"
# Under TCG ld.so alone takes 10 s for the 287 libraries of libtorch, more while the host is busy.
START_S = 180


def learner_pid() -> int:
    return int(flashd.show("MainPID", unit=UNIT)["MainPID"])


def word() -> str:
    """Manager's property Learner: "absent", "connected: ..."."""
    return flashd.properties()["Learner"]


def connected(what: str = "the learner is connected") -> str:
    return eventually(what, lambda: next((w for w in [word()] if w.startswith("connected")), None), START_S, 0.5)


@contextlib.contextmanager
def no_tick_is_missed():
    """Within, flashd goes on: as many ticks as periods (with one of slack per five seconds), the same process."""
    period = flashd.properties()["PeriodUSec"] / 1e6
    pid, begun, at = flashd.main_pid(), flashd.properties()["Ticks"], time.monotonic()
    yield
    seconds = time.monotonic() - at
    ticks = flashd.properties()["Ticks"] - begun
    require(flashd.main_pid() == pid, "flashd is another process")
    require(ticks >= seconds / period - 1 - seconds / 5, f"{ticks} ticks of {period} s in {seconds:.1f} s")


@check("learner.installs", needs=("package.installs",), seconds=200)
def installs():
    return package_checks.install("flash-learner", timeout=190)


@check("learner.connects", needs=("learner.installs", "world.services-run"), seconds=200)
def connects():
    world.restart_in("recommend")
    for unit in ("flashd.service", UNIT):
        eventually(f"{unit} is active", lambda: flashd.show("ActiveState", unit=unit)["ActiveState"] == "active",
                   START_S)
        require(output("systemctl", "is-enabled", unit) == "enabled", f"{unit} is not enabled")
    said = connected()
    require("openblas" in said.lower(), f"it does not compute with OpenBLAS: {said}")
    return said


@check("learner.stages-and-rewards-by-busctl", needs=("learner.connects",), seconds=90)
def stages_and_rewards():
    eventually("four agents", lambda: len(flashd.agents()) >= 4, 20)
    rows = []
    for row in flashd.agents():
        seen = flashd.agent(row["path"])
        require(seen["Stage"] in ("initialized", "offline", "online", "serving"), f"stage {seen['Stage']}")
        require(seen["StageSince"] > 0, f"{row['name']}: no StageSince")
        rewards = eventually(f"rewards of {row['name']}", lambda: flashd.call(
            "GetRewards", "u", 5, path=row["path"], interface=flashd.AGENT)[0], 20)
        rows.append([row["name"], seen["Stage"], rewards[-1]])
    return json.dumps(rows)


@check("learner.exposure-at-most-2", needs=("learner.connects",))
def exposure():
    return package_checks.exposure_of(UNIT, 2)


@check("learner.has-no-privileges", needs=("learner.connects",))
def no_privileges():
    """User, capabilities, network, priority and memory as the kernel sees them, not as the unit says."""
    pid = learner_pid()
    status = dict(line.split(":\t", 1) for line in read(f"/proc/{pid}/status").splitlines() if ":\t" in line)
    uid = pwd.getpwnam(USER).pw_uid
    require(uid != 0, f"{USER} is root")
    require(status["Uid"].split() == [str(uid)] * 4, f"uid {status['Uid']}")
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        require(int(status[name], 16) == 0, f"{name} {status[name]}")
    require(status["NoNewPrivs"] == "1" and status["Seccomp"] == "2", "no NoNewPrivs, or no seccomp filter")
    interfaces = [line.split(":")[0].strip() for line in read(f"/proc/{pid}/net/dev").splitlines()[2:]]
    require(interfaces == ["lo"], f"interfaces {interfaces}")
    for thread in os.listdir(f"/proc/{pid}/task"):
        policy = os.sched_getscheduler(int(thread))
        nice = os.getpriority(os.PRIO_PROCESS, int(thread))
        require(policy == os.SCHED_IDLE or nice == 19, f"thread {thread}: policy {policy}, nice {nice}")
    cgroup = flashd.CGROUPS / read(f"/proc/{pid}/cgroup").split(":")[2].lstrip("/")
    limit = read(cgroup / "memory.max")
    require(limit != "max", "no memory limit")
    return (f"uid {uid}, no capability, only lo, {len(os.listdir(f'/proc/{pid}/task'))} threads, "
            f"{status['VmRSS'].strip()} of at most {int(limit) >> 20} MiB")


CONNECT = f"import socket; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect('{SOCKET}')"


@check("learner.socket-is-closed-to-others", needs=("learner.connects",))
def socket_is_closed():
    tried = run("runuser", "-u", "tester", "--", "python3", "-c", CONNECT, ok=False)
    require(tried.returncode != 0 and "PermissionError" in tried.stderr, f"it may connect: {tried.stderr}")
    require(word().startswith("connected"), f"the learner lost its place: {word()}")


@check("learner.killed-comes-back", needs=("learner.connects",), seconds=200)
def killed():
    """kill -9: systemd starts it again, it connects again, and no tick is missed meanwhile."""
    victim, restarts = learner_pid(), int(flashd.show("NRestarts", unit=UNIT)["NRestarts"])
    with no_tick_is_missed():
        began = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        eventually("flashd saw it go", lambda: not word().startswith("connected"), 10)
        connected("the learner is back")
        took = time.monotonic() - began
    require(learner_pid() not in (0, victim), "it is the old process")
    require(int(flashd.show("NRestarts", unit=UNIT)["NRestarts"]) == restarts + 1, "systemd did not restart it")
    return f"connected again after {took:.1f} s"


@check("learner.frozen-costs-no-tick", needs=("learner.connects",), seconds=100)
def frozen():
    pid = learner_pid()
    with no_tick_is_missed():
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(10)
        finally:
            os.kill(pid, signal.SIGCONT)
    connected("the learner is connected, or again")


@check("learner.stopped-flashd-goes-on", needs=("learner.connects",), seconds=200)
def stopped():
    with no_tick_is_missed():
        output("systemctl", "stop", UNIT)
        eventually("flashd says absent", lambda: word().startswith("absent"), 10)
        always("absent, and an agent decides", lambda: word().startswith("absent") and flashd.agents(), 3, 0.5)
    output("systemctl", "start", UNIT, timeout=START_S)
    return connected("the learner is connected again")


@check("learner.finds-a-restarted-flashd", needs=("learner.connects",), seconds=200)
def flashd_restarts():
    output("systemctl", "restart", "flashd")
    return connected("the learner is connected to the new flashd")


STATE = pathlib.Path("/var/lib/flash-learner")
# What the learner says where it does not go on from what was there.
LOST = ("not used", "moved aside", "cannot learn", "another layout")


def stored_steps() -> int:
    with contextlib.closing(sqlite3.connect(f"file:{STATE}/trajectories.sqlite?mode=ro", uri=True)) as store:
        return store.execute("SELECT count(*) FROM steps").fetchone()[0]


@check("upgrade.learner-goes-on", needs=("learner.connects",), seconds=500)
def upgrade_goes_on():
    """What the versions before have stored is learned from after the upgrade, and nothing is refused."""
    world.restart_in("control")
    connected()
    eventually("steps in the store", lambda: stored_steps() >= 200, 120, 1)
    before, was, since = stored_steps(), output("dpkg-query", "-W", "-f", "${Version}", "flash-learner"), time.time()
    package_checks.apt_install("next", "flashd", "flash-learner", timeout=190)
    now = output("dpkg-query", "-W", "-f", "${Version}", "flash-learner")
    require(now != was, f"still {was}")
    connected("the learner is connected after the upgrade")
    eventually("more steps in the store", lambda: stored_steps() >= before + 40, 60, 1)

    def journal() -> list[str]:
        return output("journalctl", "-u", UNIT, "--since", f"@{int(since)}", "-o", "cat").splitlines()

    eventually("an agent goes on with steps of the store", lambda: any(
        "transitions of the store" in line and "with 0 transitions" not in line for line in journal()), 60, 1)
    lost = [line for line in journal() if any(word in line for word in LOST)]
    require(not lost, f"{lost[:3]}")
    world.restart_in("recommend")  # as the checks after it expect
    connected("the learner is connected again")
    return f"{was} -> {now}, {before} steps kept"
