"""The package arrives, the service runs, the bus answers."""

import json

import flashd
import world
from checks import SHARE, check, eventually, output, read, require, run, write


def version() -> str:
    return output("dpkg-query", "-W", "-f", "${Version}", "flashd")


def apt_install(folder: str, *packages: str, timeout: float) -> None:
    """From files, in a guest without network; their libraries are in the image."""
    debs = []
    for package in packages:
        found = sorted((SHARE / folder).glob(f"{package}_*.deb"))
        require(found, f"no {package}_*.deb was given")
        debs += found
    run("apt-get", "install", "-y", "--no-install-recommends", *map(str, debs), timeout=timeout)


def install(package: str, timeout: float) -> str:
    apt_install("packages", package, timeout=timeout)
    status = output("dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", package)
    require(status.startswith("installed "), status)
    return status


def exposure_of(unit: str, most: float) -> str:
    """As systemd-analyze security counts."""
    report = run("systemd-analyze", "security", "--no-pager", f"--threshold={round(10 * most)}", unit, ok=False)
    last = report.stdout.strip().splitlines()[-1]
    require(report.returncode == 0, last)
    return last


@check("package.installs", seconds=120)
def installs():
    apt_install("packages", "flashd", "flashd-tools", timeout=110)
    require(output("dpkg-query", "-W", "-f", "${db:Status-Status}", "flashd") == "installed",
            "dpkg does not say installed")
    return version()


@check("world.services-run", needs=("rig.acpi-cpufreq", "rig.cgroup-v2", "package.installs"),
       seconds=60)
def services_run():
    world.start_services()
    world.set_governors()
    for cgroup in world.CGROUP_TARGETS:
        require(flashd.cpu_limit(cgroup) == float("inf"), f"{cgroup} has a CPU limit already")


@check("service.starts", needs=("world.services-run",), seconds=60)
def starts():
    flashd.configure(world.settings("recommend"))
    output("systemctl", "stop", "flashd")
    output("systemctl", "start", "flashd")
    state = flashd.show("ActiveState", "Type", "WatchdogUSec", "NRestarts")
    require(state["ActiveState"] == "active", f"{state}")
    require(state["Type"] == "notify", f"{state}")
    require(state["WatchdogUSec"] not in ("0", "infinity"), f"{state}")
    flashd.next_ticks(2)
    return str(state)


@check("service.exposure-at-most-1.8", needs=("package.installs",), seconds=60)
def exposure():
    """Of the daemon, and of the unit that puts back after it."""
    return "; ".join(exposure_of(unit, 1.8) for unit in ("flashd.service", "flashd-restore.service"))


@check("service.enabled-at-boot", needs=("package.installs",))
def enabled():
    require(output("systemctl", "is-enabled", "flashd") == "enabled", "not enabled")


@check("config.check-finds-errors", needs=("package.installs",))
def config_check():
    good = run("flashd", "--check-config", ok=False)
    require(good.returncode == 0, f"the shipped configuration: {good.stderr}")
    extra = flashd.DROP_IN.with_name("99-bad.json")
    try:
        extra.write_text('{"rules": {"web": {"task": "resource-limits", "slect": {}}}}\n')
        bad = run("flashd", "--check-config", ok=False)
    finally:
        extra.unlink()
    message = bad.stdout + bad.stderr
    require(bad.returncode != 0, "a misspelt key was accepted")
    require("99-bad.json" in message and "slect" in message, f"the message does not help: {message}")
    return message.strip().splitlines()[-1]


@check("bus.introspection-carries-documentation", needs=("service.starts",))
def introspection():
    xml = output("busctl", "call", flashd.NAME, flashd.ROOT, "org.freedesktop.DBus.Introspectable",
                 "Introspect")
    for word in ("org.flashd.Manager1", "ListAgents", "Disable", "Degraded", "DocString"):
        require(word in xml, f"no {word} in the introspection data")


@check("bus.object-manager", needs=("service.starts",))
def object_manager():
    reply = flashd.call("GetManagedObjects", interface="org.freedesktop.DBus.ObjectManager")
    paths = [path for path, interfaces in reply[0].items() if flashd.AGENT in interfaces]
    require(len(paths) >= 4, f"agents in GetManagedObjects: {paths}")


@check("agents.appear-on-the-bus", needs=("service.starts",), seconds=60)
def agents_on_the_bus():
    """One per target, with a stage, and after a few steps a reward."""
    def complete():
        rows = flashd.agents()
        return rows if len(rows) >= 4 else None
    rows = eventually("four agents", complete, 20)
    for cgroup in world.CGROUP_TARGETS:
        agent = flashd.agent_of(cgroup)
        require(agent["Task"] == "resource-limits", f"{cgroup}: task {agent['Task']}")
        require(agent["Stage"] in ("initialized", "offline", "online", "serving"),
                f"{cgroup}: stage {agent['Stage']}")
        require(agent["StageSince"] > 0, f"{cgroup}: no StageSince")
        require(agent["Controller"] in ("fallback", "none"), f"{agent['Controller']}")
        eventually(f"rewards of {cgroup}", lambda: len(flashd.call(
            "GetRewards", "u", 5, path=agent["path"], interface=flashd.AGENT)[0]) >= 2, 20)
    require(any(row["task"] == "cpu-frequency" for row in rows), f"no frequency agent: {rows}")
    return json.dumps([[row["name"], row["stage"], row["reward"]] for row in rows])


@check("perf.works-where-the-kernel-allows-it", needs=("agents.appear-on-the-bus",), seconds=60)
def perf_where_allowed():
    """Debian's perf_event_paranoid of 3 is a named degraded state; at 2 the service's capability is enough."""
    paranoid = "/proc/sys/kernel/perf_event_paranoid"
    before = read(paranoid)

    def degraded() -> str:
        return "; ".join(f"{part}: {why}" for part, why in flashd.properties()["Degraded"])
    if int(before) > 2:
        require("perf_event_paranoid" in degraded(), f"the reason is not named: {degraded()}")
    write(paranoid, 2)
    try:
        output("systemctl", "restart", "flashd")
        path = eventually("the agent", lambda: flashd.agent_of(world.DIRECT)["path"], 20)
        flashd.next_ticks(4)
        seen = flashd.decisions(path)[-1]["observation"]
        for name in ("perf.task_clock", "perf.context_switches"):
            require(seen.get(name, {}).get("validity") == "good", f"no {name}: {seen}")
        require("no hardware PMU" in degraded(), f"the missing PMU is not named: {degraded()}")
    finally:
        write(paranoid, before)
        output("systemctl", "restart", "flashd")
    eventually("the agents again", lambda: len(flashd.agents()) >= 4, 20)


@check("ebpf.counts-as-a-service", needs=("agents.appear-on-the-bus",), seconds=60)
def ebpf_counts():
    """The same object file as on every host, loaded with what the unit allows, agrees with cpu.stat.

    The two are not read at the same moment: a tick may be off by what runs in between (milliseconds, more on a busy host),
    and the next one makes up for it. So a tick has room, and their sum has little.
    """
    sources = {(row["signal"], row["source"]): row
               for row in json.loads(output("flashctl", "doctor", "--json"))["sources"]}
    for name in ("perf.task_clock", "perf.context_switches"):
        require(sources.get((name, "ebpf"), {}).get("targets", 0) > 0, f"{name} is not from eBPF: {sources}")
    require(("perf.instructions", "ebpf+pmu") not in sources, f"this guest has no PMU: {sources}")
    path = flashd.agent_of(world.DIRECT)["path"]
    flashd.next_ticks(12)
    worst, off, used = 0.0, 0.0, 0.0
    for decision in flashd.decisions(path, 10):
        seen = decision["observation"]
        clock, usage = (seen.get(name, {}) for name in ("perf.task_clock", "cpu.usage"))
        require(clock.get("validity") == usage.get("validity") == "good", f"not measured: {seen}")
        worst = max(worst, abs(clock["value"] - usage["value"]))
        off += clock["value"] - usage["value"]
        used += usage["value"]
    told = f"of {used / 10:.3f} cores: {off / 10:+.4f} beside cpu.stat in the mean of ten ticks, {worst:.4f} in one at most"
    require(worst <= 0.06 and abs(off) <= 0.06 + 0.02 * used, told)
    return told


@check("agents.container-is-known", needs=("agents.appear-on-the-bus",))
def container_is_known():
    for cgroup, identity in ((world.SCOPE, world.SCOPE_ID), (world.DIRECT, world.DIRECT_ID)):
        runtime, seen, _, _ = flashd.agent_of(cgroup)["Container"]
        require(runtime == "docker", f"{cgroup}: runtime {runtime!r}")
        require(identity.startswith(seen) and len(seen) >= 12, f"{cgroup}: id {seen!r}")
    require(flashd.agent_of(world.WEB)["Unit"] == "web.service", "the unit is not named")


@check("agents.appear-in-flashctl", needs=("agents.appear-on-the-bus",), seconds=60)
def agents_in_flashctl():
    rows = flashd.flashctl("agents")
    rows = rows["agents"] if isinstance(rows, dict) else rows
    require(len(rows) >= 4, f"{rows}")
    for row in rows:
        for key in ("task", "target", "stage", "reward", "controller"):
            require(key in row, f"no {key} in {row}")
    flashd.flashctl("status")
    text = output("flashctl", "why", "web")
    require(len(text.split()) > 8, f"flashctl why explains little: {text}")
    return text.splitlines()[0]


@check("agents.come-and-go", needs=("agents.appear-on-the-bus",), seconds=60)
def come_and_go():
    """A container of the same name is a new target; the old one's agent goes."""
    old = flashd.agent_of(world.DIRECT)
    world.remove_direct()
    eventually("the agent is gone", lambda: not any(
        row["path"] == old["path"] and flashd.agent(row["path"])["Cgroup"] == world.DIRECT
        for row in flashd.agents()), 10, 0.1)
    world.make_direct()

    def reborn():
        found = [row for row in flashd.agents()
                 if flashd.agent(row["path"])["Cgroup"] == world.DIRECT]
        return found and flashd.agent(found[0]["path"])
    agent = eventually("an agent of the new cgroup", reborn, 10, 0.1)
    require(agent["StageSince"] > old["StageSince"], "it is the old agent")
