"""What the machine does to a running flashd: a processor goes and comes back, the clock jumps."""

import json
import pathlib
import time

import flashd
import world
from checks import check, eventually, output, read, require, run, write

CPU1 = pathlib.Path("/sys/devices/system/cpu/cpu1/online")
STAGES = ("initialized", "offline", "online", "serving")
COUNTED = ("perf.task_clock", "perf.context_switches")


def _counts(cgroup: str) -> bool:
    """The last decision of the cgroup's agent rests on good counts, which agree with cpu.stat."""
    seen = flashd.decisions(flashd.agent_of(cgroup)["path"])[-1]["observation"]
    if any(seen.get(name, {}).get("validity") != "good" for name in (*COUNTED, "cpu.usage")):
        return False
    return abs(seen["perf.task_clock"]["value"] - seen["cpu.usage"]["value"]) <= 0.05


def _controls() -> bool:
    return all(flashd.cpu_limit(cgroup) != float("inf") for cgroup in world.CGROUP_TARGETS)


def _policy1(knobs: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in knobs.items() if "policy1" in name}


@check("faults.cpu-offline-and-back", needs=("ebpf.counts-as-a-service",), seconds=200)
def cpu_offline():
    """flashd goes on with the processors that are left, counts on all of them, and restores what was before.

    A processor's setting does not outlive its absence (userspace: whatever speed the hardware comes back with), so
    flashd must have written it before, to know what it was.
    """
    world.stop()
    world.set_governors()
    originals = world.knobs()
    world.restart_in("control")
    pid = flashd.main_pid()
    try:
        eventually("limits on all targets", _controls, 30)
        eventually("a frequency on the processor that will go", lambda: flashd.differences(_policy1(originals),
                                                                                   _policy1(world.knobs())), 60)
        eventually("counts before", lambda: _counts(world.SCOPE), 20)
        write(CPU1, 0)
        require(read(CPU1) == "0", "the processor did not go")
        flashd.next_ticks(6)
        eventually("counts of one processor", lambda: _counts(world.SCOPE), 20)
        alone = flashd.find_agent("cpu-frequency")
        require(alone, "the frequency agent is gone with one of its two processors")
        write(CPU1, 1)
        flashd.next_ticks(6)
        eventually("counts of both processors", lambda: _counts(world.SCOPE) and _counts(world.DIRECT), 20)
        eventually("one frequency on both processors", lambda: len({read(flashd.CPUFREQ / f"{policy}/scaling_setspeed")
                                                                    for policy in ("policy0", "policy1")}) == 1, 30)
    finally:
        write(CPU1, 1)
    require(flashd.main_pid() == pid, "flashd was restarted")
    world.stop()
    flashd.require_restored(originals, world.knobs())
    return f"alone: {alone['Controller']}, {json.dumps(alone['Knobs'])[:200]}"


@check("faults.clock-jump", needs=("ebpf.counts-as-a-service",), seconds=120)
def clock_jump():
    """An hour forth and a day back: ticks go on at their pace, counts stay rates, no agent loses its stage."""
    world.restart_in("control")
    pid = flashd.main_pid()
    eventually("limits on all targets", _controls, 30)
    stages = {row["name"]: row["stage"] for row in flashd.agents()}
    paces = []
    try:
        for jump in ("+3600", "-86400"):
            output("date", "--set", f"@{int(time.time()) + int(jump)}")
            begun, at = flashd.properties()["Ticks"], time.monotonic()
            flashd.next_ticks(8)
            paces.append((flashd.properties()["Ticks"] - begun) / (time.monotonic() - at))
            eventually(f"counts after {jump} s", lambda: _counts(world.SCOPE), 20)
            why = output("flashctl", "why", "web")
            require(len(why.split()) > 8, f"flashctl why after {jump} s: {why}")
    finally:
        run("date", "--set", f"@{int(time.time()) + 86400 - 3600}", ok=False)
    require(flashd.main_pid() == pid, "flashd was restarted")
    require(all(1.2 <= pace <= 2.8 for pace in paces), f"2 ticks per second were asked for: {paces}")
    now = {row["name"]: row["stage"] for row in flashd.agents()}
    require(now.keys() == stages.keys() and all(STAGES.index(now[name]) >= STAGES.index(stages[name]) for name in now),
            f"stages {stages}, then {now}")
    return f"{', '.join(f'{pace:.2f}' for pace in paces)} ticks per second"
