"""Nothing is left behind, and nobody changes anything without leave."""

import os
import pathlib
import random
import subprocess
import time

import flashd
import world
from checks import SHARE, check, eventually, output, require, run
from package_checks import version

NO_RESTART = pathlib.Path("/run/systemd/system/flashd.service.d/no-restart.conf")


def limited() -> bool:
    """Every cgroup target has a limit and the processors' agent has written."""
    if any(flashd.cpu_limit(cgroup) == float("inf") for cgroup in world.CGROUP_TARGETS):
        return False
    return True


def restarts(on: bool) -> None:
    NO_RESTART.parent.mkdir(exist_ok=True)
    if on:
        NO_RESTART.unlink(missing_ok=True)
    else:
        NO_RESTART.write_text("[Service]\nRestart=no\n")
    output("systemctl", "daemon-reload")


@check("stop.restores", needs=("world.services-run",), seconds=90)
def stop_restores():
    world.stop()
    world.set_governors()
    originals = world.knobs()
    world.restart_in("control")
    eventually("limits on all targets", limited, 30)
    eventually("a changed frequency", lambda: flashd.differences(
        {k: v for k, v in originals.items() if "cpufreq" in k},
        {k: v for k, v in world.knobs().items() if "cpufreq" in k}), 30)
    changed = flashd.differences(originals, world.knobs())
    world.stop()
    flashd.require_restored(originals, world.knobs())
    quota = flashd.show("CPUQuotaPerSecUSec", unit="web.service")
    require(quota["CPUQuotaPerSecUSec"] == "infinity", f"systemd still knows a quota: {quota}")
    return f"{changed.count(' -> ')} values were changed"


@check("kill-9.restores", needs=("stop.restores",), seconds=90)
def kill_restores():
    originals = world.knobs()
    restarts(False)
    try:
        world.restart_in("control")
        eventually("limits on all targets", limited, 30)
        output("systemctl", "kill", "--signal=KILL", "--kill-who=main", "flashd")
        flashd.wait_inactive()
        flashd.require_restored(originals, world.knobs())
    finally:
        restarts(True)


@check("kill-9.comes-back", needs=("kill-9.restores",), seconds=90)
def kill_comes_back():
    originals = world.knobs()
    world.restart_in("control")
    eventually("limits on all targets", limited, 30)
    before = flashd.main_pid()
    output("systemctl", "kill", "--signal=KILL", "--kill-who=main", "flashd")
    eventually("a new daemon", lambda: flashd.main_pid() not in (0, before), 30)
    eventually("limits again", lambda: flashd.show("ActiveState")["ActiveState"] == "active"
               and limited(), 30)
    world.stop()
    flashd.require_restored(originals, world.knobs())


@check("crash.20-rounds", needs=("kill-9.restores",), seconds=240)
def crash_rounds():
    """kill -9 at a random moment of a running control loop: all knobs are as before, each time."""
    chance = random.Random(20)
    originals = world.knobs()
    restarts(False)
    wrote = 0
    try:
        for number in range(20):
            world.set_load("scope", round(chance.uniform(0.1, 0.9), 2), chance.choice((20, 60)))
            world.restart_in("control", period_s=0.1)
            time.sleep(chance.uniform(0, 1.5))
            wrote += bool(flashd.differences(originals, world.knobs()))
            output("systemctl", "kill", "--signal=KILL", "--kill-who=main", "flashd")
            flashd.wait_inactive()
            left = flashd.differences(originals, world.knobs())
            require(not left, f"round {number}: {left}")
    finally:
        world.set_load("scope", 0.2, 30)
        restarts(True)
    require(wrote >= 5, f"only {wrote} of 20 rounds had changed a knob: the check proves little")
    return f"{wrote} of 20 rounds had changed knobs when killed"


@check("boot.restorer-puts-back", needs=("stop.restores",), seconds=90)
def boot_restorer():
    """What a flashd that died without its ExecStopPost left is put back by the unit of the boot."""
    originals = world.knobs()
    NO_RESTART.parent.mkdir(exist_ok=True)
    NO_RESTART.write_text("[Service]\nRestart=no\nExecStopPost=\n")
    output("systemctl", "daemon-reload")
    try:
        world.restart_in("control")
        eventually("limits on all targets", limited, 30)
        output("systemctl", "kill", "--signal=KILL", "--kill-who=main", "flashd")
        flashd.wait_inactive()
        require(limited(), "nothing was left behind: the check proves nothing")
    finally:
        restarts(True)
    require(output("systemctl", "is-enabled", "flashd-restore") == "enabled", "not enabled")
    output("systemctl", "start", "flashd-restore")
    flashd.require_restored(originals, world.knobs())


# Makes a cgroup below its own, as a rootless container engine does, and is busy in it.
GIVEN = "/system.slice/given.service/leaf"
GIVEN_SCRIPT = """#!/bin/sh
set -e
own=/sys/fs/cgroup/system.slice/given.service
mkdir $own/leaf
echo $$ > $own/leaf/cgroup.procs
echo "+cpu +memory" > $own/cgroup.subtree_control
while :; do :; done
"""
NOBODY = 65534


def _cannot_be_written() -> bool:
    return any(f"cannot be written: belongs to uid {NOBODY}" in reason
               for _, reason in flashd.properties()["Degraded"])


def _give(directory: pathlib.Path, uid: int) -> None:
    for name in (flashd.CPU_MAX, flashd.MEMORY_HIGH):
        os.chown(directory / name, uid, uid)


@check("kill-9.restores-what-was-given-away", needs=("kill-9.restores",), seconds=150)
def kill_restores_given_away():
    """A cgroup of another user, in a unit with Delegate= and User=: what cannot be written is said when it is found;
    what was given to him while flashd controlled it is put back by the unit's restorer, which has the capability."""
    script = pathlib.Path("/run/given.sh")
    script.write_text(GIVEN_SCRIPT)
    script.chmod(0o755)
    directory = flashd.CGROUPS / GIVEN[1:]
    restarts(False)
    try:
        world.start_unit("given", f"/bin/sh {script}", "User=nobody\nDelegate=yes")
        eventually("its cgroup", lambda: (directory / flashd.CPU_MAX).exists(), 20)
        require((directory / flashd.CPU_MAX).stat().st_uid == NOBODY, "its files are not its user's")
        originals = flashd.knob_files([GIVEN], [])
        world.restart_in("control", rules={"given": world.limits_rule({"cgroup": GIVEN}, "given")})
        eventually("flashd says that it cannot be written", _cannot_be_written, 30)
        flashd.next_ticks(6)
        flashd.require_restored(originals, flashd.knob_files([GIVEN], []))
        # Root's: flashd takes it. Then his again, while flashd cannot see it.
        _give(directory, 0)
        eventually("a limit", lambda: flashd.cpu_limit(GIVEN) != float("inf"), 40)
        output("systemctl", "kill", "--signal=STOP", "--kill-who=main", "flashd")
        _give(directory, NOBODY)
        require(flashd.cpu_limit(GIVEN) != float("inf"), "nothing was left behind: the check proves nothing")
        output("systemctl", "kill", "--signal=KILL", "--kill-who=main", "flashd")
        flashd.wait_inactive()
        flashd.require_restored(originals, flashd.knob_files([GIVEN], []))
    finally:
        restarts(True)
        world.stop()
        run("systemctl", "stop", "given", ok=False)


@check("restore.is-idempotent", needs=("stop.restores",))
def restore_is_idempotent():
    originals = world.knobs()
    for _ in range(2):
        done = run("flashd", "--restore", ok=False)
        require(done.returncode == 0, f"exit {done.returncode}: {done.stdout}{done.stderr}")
    flashd.require_restored(originals, world.knobs())


@check("upgrade.keeps", needs=("stop.restores",), seconds=150)
def upgrade_keeps():
    """No knob moves back while the package is replaced; the next stop restores the true originals."""
    originals = world.knobs()
    world.restart_in("control")
    eventually("limits on all targets", limited, 30)
    was = version()
    deb = sorted((SHARE / "next").glob("flashd_*.deb"))[0]
    seen = pathlib.Path("/run/upgrade.watch")
    with open(seen, "w") as file:
        watcher = subprocess.Popen([world.PYTHON, "-c", WATCH, *_watched(originals)], stdout=file)
        try:
            run("apt-get", "install", "-y", "--no-install-recommends", str(deb), timeout=120)
        finally:
            watcher.kill()
            watcher.wait()
    given_back = [line for line in seen.read_text().splitlines() if line in _given_back(originals)]
    require(not given_back, f"given back during the upgrade: {given_back[:3]}")
    require(version() != was, "not upgraded")
    require(flashd.show("ActiveState")["ActiveState"] == "active", "not running after the upgrade")
    eventually("agents after the upgrade", lambda: len(flashd.agents()) >= 4, 20)
    require(limited(), "the limits are gone")
    world.stop()
    flashd.require_restored(originals, world.knobs())
    return f"{was} -> {version()}"


# Prints each new value of the files that are its arguments.
WATCH = """
import sys, time
last = {}
while True:
    for name in sys.argv[1:]:
        value = open(name).read().strip()
        if last.get(name) != value:
            last[name] = value
            print(name, "=", value, flush=True)
    time.sleep(0.02)
"""


def _path(name: str) -> str:
    """Of a name of world.knobs()."""
    return str(flashd.CPUFREQ.parent / name) if name.startswith("cpufreq") else f"{flashd.CGROUPS}{name}"


def _watched(originals: dict[str, str]) -> list[str]:
    """Limits, and the governor that we change; the rest moves with the decisions too."""
    wanted = ("cpu.max", "memory.high", "policy0/scaling_governor")
    return [_path(name) for name in originals if name.endswith(wanted)]


def _given_back(originals: dict[str, str]) -> set[str]:
    return {f"{_path(name)} = {value}" for name, value in originals.items()}


CHANGING = (
    ("SetMode", "ss", "", "control"),
    ("Hold", "sts", "", "60", "not allowed"),
    ("Release", "s", ""),
    ("Disable", "s", "not allowed"),
    ("Enable", ""),
    ("Reload", ""),
)


def _as_tester(*words: str):
    return run("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", *words, ok=False)


@check("unprivileged.may-read", needs=("world.services-run",), seconds=60)
def may_read():
    world.restart_in("recommend")
    eventually("agents", lambda: len(flashd.agents()) >= 4, 20)
    done = _as_tester("flashctl", "--json", "agents")
    require(done.returncode == 0, f"{done.stderr}")
    done = _as_tester("busctl", "call", flashd.NAME, flashd.ROOT, flashd.MANAGER, "Verify")
    require(done.returncode == 0, f"{done.stderr}")


def _denied(method: str, *arguments: str):
    def denied():
        before = flashd.properties()
        words = [word for i, word in enumerate(arguments) if i or word]
        done = _as_tester("busctl", "call", flashd.NAME, flashd.ROOT, flashd.MANAGER, method, *words)
        require(done.returncode != 0, "it was allowed")
        message = done.stderr.lower()
        require(any(word in message for word in ("denied", "authoris", "authoriz", "authentication")),
                f"failed for another reason: {done.stderr}")
        after = flashd.properties()
        for name in ("Mode", "Disabled"):
            require(before[name] == after[name], f"{name} changed")
        return done.stderr.strip()
    return denied


for _method in CHANGING:
    check(f"unprivileged.denied-{_method[0]}", needs=("unprivileged.may-read",), seconds=30)(
        _denied(*_method))


@check("polkit.group-flashd-may-hold-not-disable", needs=("unprivileged.may-read",), seconds=60)
def group_may_hold():
    output("usermod", "-a", "-G", "flashd", "tester")
    try:
        target = flashd.agent_of(world.SCOPE)["path"]
        held = _as_tester("flashctl", "hold", target, "--reason", "by a member of the group")
        require(held.returncode == 0, f"a member may not hold: {held.stderr}")
        require(flashd.agent(target)["HoldReason"] == "by a member of the group", "no hold")
        released = _as_tester("flashctl", "release", target)
        require(released.returncode == 0, f"a member may not release: {released.stderr}")
        _denied("Disable", "s", "not allowed")()
    finally:
        output("gpasswd", "-d", "tester", "flashd")


@check("root.changes-are-logged", needs=("unprivileged.may-read",))
def changes_are_logged():
    flashd.call("Hold", "sts", "", 1, "reason-to-find-in-the-log")
    flashd.call("Release", "s", "")
    eventually("the change in the journal", lambda: "reason-to-find-in-the-log" in output(
        "journalctl", "-u", "flashd", "--no-pager", "-n", "100"), 10)
