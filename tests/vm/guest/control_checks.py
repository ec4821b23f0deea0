"""Knobs follow decisions in control mode and nothing else does."""

import time

import flashd
import world
from checks import always, check, eventually, output, pstate_journal, read, require, run, write

CPU, MEMORY, FREQUENCY = "cpu-limit", "memory-limit", "cpu-frequency"
ORIGINALS: dict[str, str] = {}


def current(cgroup: str, knob: str) -> float:
    return flashd.agent_of(cgroup)["Knobs"][knob]["current"]


def same(a: float, b: float) -> bool:
    return a == b or abs(a - b) <= 0.02 * max(abs(a), abs(b))


def follows(cgroup: str, knob: str, from_kernel) -> float:
    """The bus and the kernel agree on a finite value; a few looks, since ticks go on."""
    def agree():
        first = from_kernel(cgroup)
        told = current(cgroup, knob)
        second = from_kernel(cgroup)
        return first if told != float("inf") and (same(first, told) or same(second, told)) else None
    return eventually(f"{knob} of {cgroup} is limited and the bus says the same", agree, 20)


def frequency_target() -> dict:
    return flashd.find_agent("cpu-frequency")


@check("recommend.writes-nothing", needs=("agents.come-and-go",), seconds=60)
def recommend_writes_nothing():
    flashd.configure(world.settings("recommend"))
    flashd.reload()
    ORIGINALS.update(world.knobs())
    seen_by_host = len(pstate_journal())
    begun = {row["path"]: flashd.decisions(row["path"])[-1]["seq"] for row in flashd.agents()}
    world.set_load("scope", 0.8, 80)
    flashd.next_ticks(10)
    world.set_load("scope", 0.2, 30)
    flashd.require_restored(ORIGINALS, world.knobs())
    require(len(pstate_journal()) == seen_by_host, "a P-state was written")
    for path, seq in begun.items():
        agent = flashd.agent(path)
        require(flashd.decisions(path)[-1]["seq"] > seq, f"{path} decided nothing")
        require(agent["Mode"] == "recommend", f"{path} is in {agent['Mode']}")
        require(all(knob["writes"] == 0 for knob in agent["Knobs"].values()), f"{path} wrote")


@check("observe.decides-nothing", needs=("recommend.writes-nothing",))
def observe_decides_nothing():
    flashd.set_mode("observe")
    flashd.next_ticks(3)
    agent = flashd.agent_of(world.WEB)
    require(agent["Mode"] == "observe" and agent["Controller"] == "none", f"{agent}")
    flashd.require_restored(ORIGINALS, world.knobs())


@check("control.cpu-max-follows", needs=("recommend.writes-nothing",), seconds=120)
def cpu_max_follows():
    """Limited soon after SetMode; more when the load rises; less when it falls."""
    flashd.set_mode("control")
    for cgroup in world.CGROUP_TARGETS:
        follows(cgroup, CPU, flashd.cpu_limit)
    eventually("a limit below 0.7 cores for 0.2 cores of load",
               lambda: flashd.cpu_limit(world.SCOPE) < 0.7, 30)
    low = flashd.cpu_limit(world.SCOPE)
    world.set_load("scope", 0.8, 30)
    eventually("a limit of 0.85 cores and more for 0.8 cores of load",
               lambda: flashd.cpu_limit(world.SCOPE) >= 0.85, 40)
    high = flashd.cpu_limit(world.SCOPE)
    world.set_load("scope", 0.2, 30)
    eventually("a lower limit after the load fell",
               lambda: flashd.cpu_limit(world.SCOPE) < 0.75 * high, 40)
    return f"{low:.2f} -> {high:.2f} -> {flashd.cpu_limit(world.SCOPE):.2f} cores"


@check("control.memory-high-follows", needs=("control.cpu-max-follows",), seconds=90)
def memory_high_follows():
    for cgroup in world.CGROUP_TARGETS:
        follows(cgroup, MEMORY, flashd.memory_limit)
    before = flashd.memory_limit(world.DIRECT)
    world.set_load("direct", 0.2, 120)
    eventually("memory.high above 120 MiB after the container grew",
               lambda: flashd.memory_limit(world.DIRECT) > 120 << 20, 40)
    after = flashd.memory_limit(world.DIRECT)
    world.set_load("direct", 0.2, 30)
    return f"{before / 2**20:.0f} -> {after / 2**20:.0f} MiB"


@check("control.frequency-follows", needs=("control.cpu-max-follows",), seconds=90)
def frequency_follows():
    """Idle processors are taken down, and what the agent says is what the host saw."""
    def written():
        agent = frequency_target()
        return agent["Knobs"][FREQUENCY] if agent["Knobs"][FREQUENCY]["writes"] else None
    knob = eventually("a frequency write", written, 30)
    settled = flashd.settle(
        lambda: [read(flashd.CPUFREQ / f"policy{n}/scaling_cur_freq") for n in world.POLICIES], 40)
    last = {}
    for entry in pstate_journal():
        if "vcpu" in entry:
            last[entry["vcpu"]] = entry["mhz"]
    for n, khz in enumerate(settled):
        require(last.get(n) == int(khz) // 1000, f"policy{n} says {khz}, the host saw {last}")
    return f"{knob['current']:.0f} kHz, now {settled}"


@check("control.scope-through-systemd", needs=("control.cpu-max-follows",), seconds=60)
def scope_through_systemd():
    """systemd knows the limit that we set on its scope and unit, so a daemon-reload keeps it."""
    flashd.call("Hold", "sts", "", 0, "limits must stand still for a moment")
    try:
        flashd.next_ticks(1)
        for cgroup in (world.SCOPE, world.WEB):
            limit = flashd.cpu_limit(cgroup)
            quota = flashd.show("CPUQuotaPerSecUSec", unit=cgroup.split("/")[-1])
            require(quota["CPUQuotaPerSecUSec"] != "infinity", f"systemd knows no quota: {cgroup}")
            output("systemctl", "daemon-reload")
            require(flashd.cpu_limit(cgroup) == limit, f"daemon-reload undid {cgroup}")
    finally:
        flashd.call("Release", "s", "")


@check("control.rewards-and-why", needs=("control.cpu-max-follows",))
def rewards_and_why():
    agent = flashd.agent_of(world.SCOPE)
    decision = flashd.decisions(agent["path"], 3)[-1]
    require(decision["controller"] == "fallback", f"{decision['controller']}")
    rewards = flashd.call("GetRewards", "u", 10, path=agent["path"], interface=flashd.AGENT)[0]
    require(all(-2 <= reward <= 2 for reward in rewards) and rewards, f"{rewards}")
    lines = output("journalctl", "-u", "flashd", "-o", "json", "--no-pager", "-n", "400")
    require("FLASH" in lines.upper() and "KNOB" in lines.upper(),
            "no decision with its fields in the journal")
    return f"mean {agent['RewardMean']:.3f}, deviation {agent['RewardStdDev']:.3f}"


@check("control.verify-finds-nothing", needs=("control.cpu-max-follows",))
def verify_finds_nothing():
    differences = flashd.call("Verify")[0]
    require(differences == [], f"{differences}")


@check("hold.stops-writes", needs=("control.cpu-max-follows",), seconds=60)
def hold_stops_writes():
    path = flashd.agent_of(world.SCOPE)["path"]
    flashd.call("Hold", "sts", path, 0, "checked by hand")
    try:
        flashd.next_ticks(1)
        agent = flashd.agent(path)
        require(agent["Held"] and agent["HoldReason"] == "checked by hand", f"{agent}")
        limit = flashd.cpu_limit(world.SCOPE)
        world.set_load("scope", 0.8, 30)
        flashd.next_ticks(8)
        require(flashd.cpu_limit(world.SCOPE) == limit, "written in spite of the hold")
    finally:
        world.set_load("scope", 0.2, 30)
        flashd.call("Release", "s", path)
    flashd.next_ticks(1)
    require(not flashd.agent(path)["Held"], "still held")


@check("reload.swaps-whole-or-keeps", needs=("control.cpu-max-follows",), seconds=60)
def reload_swaps_or_keeps():
    before = flashd.main_pid()
    changed = world.settings("control")
    changed["rules"]["scope"]["cpu"]["min_cores"] = 0.9
    flashd.configure(changed)
    flashd.reload()
    eventually("the new lower bound holds", lambda: flashd.cpu_limit(world.SCOPE) >= 0.89, 20)
    flashd.DROP_IN.write_text('{"period_s": "fast"}\n')
    refused = run("busctl", "call", flashd.NAME, flashd.ROOT, flashd.MANAGER, "Reload", ok=False)
    require(refused.returncode != 0, "a wrong configuration was accepted")
    require("50-vm.json" in refused.stderr and "period_s" in refused.stderr,
            f"the message does not help: {refused.stderr}")
    flashd.next_ticks(3)
    require(flashd.cpu_limit(world.SCOPE) >= 0.89, "the old configuration did not stay")
    flashd.configure(world.settings("control"))
    flashd.reload()
    require(flashd.main_pid() == before, "the daemon was restarted")
    return refused.stderr.strip()


@check("recommend.restores-when-control-ends", needs=("control.cpu-max-follows",), seconds=60)
def back_to_recommend():
    """Leaving control hands the knobs back, or keeps them still; it never goes on writing."""
    flashd.set_mode("recommend")
    flashd.next_ticks(2)
    before = world.knobs()
    world.set_load("scope", 0.8, 30)
    flashd.next_ticks(8)
    world.set_load("scope", 0.2, 30)
    flashd.require_restored(before, world.knobs())


@check("disable.restores-and-proves", needs=("control.cpu-max-follows",), seconds=60)
def disable_restores():
    flashd.set_mode("control")
    eventually("limits again", lambda: flashd.cpu_limit(world.DIRECT) != float("inf"), 30)
    complete, items = flashd.call("Disable", "s", "kill switch of the checks")
    flashd.require_restored(ORIGINALS, world.knobs())
    require(complete, f"not complete: {items}")
    flashd.next_ticks(4)
    flashd.require_restored(ORIGINALS, world.knobs())
    flashd.call("Enable")
    eventually("limits after Enable", lambda: flashd.cpu_limit(world.DIRECT) != float("inf"), 30)
    return f"{len(items)} knobs"


@check("operator.change-wins", needs=("disable.restores-and-proves",), seconds=60)
def operator_wins():
    """A hand-made limit stays, through systemd and by writing the file."""
    world.restart_in("control")
    for cgroup in (world.WEB, world.DIRECT):
        eventually("a limit", lambda: flashd.cpu_limit(cgroup) != float("inf"), 30)
    output("systemctl", "set-property", "--runtime", "web.service", "CPUQuota=77%")
    write(flashd.CGROUPS / world.DIRECT[1:] / "cpu.max", "66000 100000")
    flashd.next_ticks(3)
    always("cpu.max of the operator", lambda: abs(flashd.cpu_limit(world.WEB) - 0.77) < 0.001
           and abs(flashd.cpu_limit(world.DIRECT) - 0.66) < 0.001, 5)
    for cgroup in (world.WEB, world.DIRECT):
        lease = flashd.agent_of(cgroup)["Knobs"][CPU]
        require(lease["lease"] == "yielded", f"{cgroup}: {lease}")
    world.stop()
    # The operator's value is the new baseline: it is what a restore leaves.
    require(abs(flashd.cpu_limit(world.WEB) - 0.77) < 0.001, "stop undid the operator's quota")
    require(abs(flashd.cpu_limit(world.DIRECT) - 0.66) < 0.001, "stop undid the operator's cpu.max")
    output("systemctl", "set-property", "--runtime", "web.service", "CPUQuota=")
    write(flashd.CGROUPS / world.DIRECT[1:] / "cpu.max", "max 100000")


@check("rewriter.makes-us-yield-without-flapping", needs=("operator.change-wins",), seconds=60)
def rewriter():
    """Something writes its own cpu.max every 50 ms: a few writes of ours, then none."""
    world.restart_in("control")
    eventually("a limit", lambda: flashd.cpu_limit(world.DIRECT) != float("inf"), 30)
    path = flashd.CGROUPS / world.DIRECT[1:] / "cpu.max"
    foreign = 0
    seen = set()
    began = time.monotonic()
    writes_at = {}
    while time.monotonic() - began < 12:
        value = read(path)
        if value != "90000 100000":
            foreign += 1
            seen.add(value)
            write(path, "90000 100000")
        second = int(time.monotonic() - began)
        if second in (4, 11) and second not in writes_at:
            writes_at[second] = flashd.agent_of(world.DIRECT)["Knobs"][CPU]["writes"]
        time.sleep(0.05)
    knob = flashd.agent_of(world.DIRECT)["Knobs"][CPU]
    require(foreign <= 3, f"we wrote over the rewriter {foreign} times: {seen}")
    require(writes_at[4] == writes_at[11] == knob["writes"], f"still writing: {writes_at}, {knob}")
    require(knob["lease"] in ("yielded", "contended"), f"{knob}")
    require(knob["reason"], "no reason is shown")
    write(path, "max 100000")
    world.stop()
    return f"{foreign} writes of ours seen, then {knob['lease']}: {knob['reason']}"
