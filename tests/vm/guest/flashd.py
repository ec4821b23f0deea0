"""flashd as an operator sees it: the bus, flashctl, the configuration; and the knobs it writes."""

import json
import pathlib
import time

from checks import Failed, eventually, output, read, require, run, write

NAME = "org.flashd"
MANAGER = "org.flashd.Manager1"
AGENT = "org.flashd.Agent1"
ROOT = "/org/flashd"
CONFIG = pathlib.Path("/etc/flashd/flashd.json")
DROP_IN = pathlib.Path("/etc/flashd/flashd.json.d/50-vm.json")
CGROUPS = pathlib.Path("/sys/fs/cgroup")
CPUFREQ = pathlib.Path("/sys/devices/system/cpu/cpufreq")

CPU_MAX = "cpu.max"
MEMORY_HIGH = "memory.high"


# The bus.

def call(method: str, signature: str = "", *arguments, path=ROOT, interface=MANAGER,
         timeout: float = 30) -> list:
    words = ["busctl", "--json=short", f"--timeout={timeout:g}", "call", NAME, path, interface, method]
    if signature:
        words += [signature, *map(str, arguments)]
    text = output(*words, timeout=timeout + 10)
    return json.loads(text)["data"] if text else []


def properties(path: str = ROOT, interface: str = MANAGER) -> dict:
    reply = call("GetAll", "s", interface, path=path, interface="org.freedesktop.DBus.Properties")
    return {name: variant["data"] for name, variant in reply[0].items()}


def agents() -> list[dict]:
    keys = ("path", "name", "task", "target", "stage", "reward", "controller")
    return [dict(zip(keys, row)) for row in call("ListAgents")[0]]


def agent(path: str) -> dict:
    """All properties of one agent; Knobs as a dictionary by knob name."""
    seen = properties(path, AGENT)
    keys = ("name", "current", "original", "writable", "lease", "reason", "writes")
    seen["Knobs"] = {row[0]: dict(zip(keys, map(_finite, row))) for row in seen["Knobs"]}
    return seen


def _finite(value):
    """busctl writes an infinite number, which JSON has not, as null."""
    return float("inf") if value is None else value


def agent_of(cgroup: str) -> dict:
    """The agent of a cgroup; fails while there is none."""
    path = call("GetAgentByCgroup", "s", cgroup)[0]
    return agent(path) | {"path": path}


def find_agent(task: str) -> dict | None:
    for row in agents():
        if row["task"] == task:
            return agent(row["path"]) | {"path": row["path"]}
    return None


def decisions(path: str, n: int = 1) -> list[dict]:
    return [json.loads(text) for text in call("Why", "u", n, path=path, interface=AGENT)[0]]


def flashctl(*words: str, ok: bool = True):
    done = run("flashctl", "--json", *words, ok=ok)
    return json.loads(done.stdout) if done.stdout.strip() else None


# The daemon as a unit.

def show(*names: str, unit: str = "flashd.service") -> dict[str, str]:
    text = output("systemctl", "show", unit, *[f"--property={name}" for name in names])
    return dict(line.split("=", 1) for line in text.splitlines())


def main_pid() -> int:
    return int(show("MainPID")["MainPID"])


def wait_inactive(seconds: float = 30) -> str:
    return eventually("flashd.service has ended", lambda: next(
        (state for state in [show("ActiveState")["ActiveState"]] if state in ("inactive", "failed")),
        None), seconds, 0.1)


def configure(settings: dict | None) -> None:
    """The drop-in of the checks: replaced, or removed with None. Takes effect at start or reload."""
    if settings is None:
        DROP_IN.unlink(missing_ok=True)
        return
    DROP_IN.parent.mkdir(parents=True, exist_ok=True)
    DROP_IN.write_text(json.dumps(settings, indent=1) + "\n")


def reload() -> None:
    output("systemctl", "reload", "flashd")


def set_mode(mode: str, target: str = "") -> None:
    call("SetMode", "ss", target, mode)


def next_ticks(n: int = 2) -> None:
    """Returns when n more whole ticks have passed."""
    begun = properties()["Ticks"]
    eventually(f"{n} more ticks", lambda: properties()["Ticks"] >= begun + n, 30, 0.05)


# The knobs, from the kernel's side.

# A file that is not there because nobody enabled the controller limits nothing.
NO_LIMIT = {CPU_MAX: "max 100000", MEMORY_HIGH: "max"}


def limit_file(cgroup: str, name: str) -> str:
    directory = CGROUPS / cgroup.lstrip("/")
    require(directory.exists(), f"no cgroup {cgroup}")
    file = directory / name
    return read(file) if file.exists() else NO_LIMIT[name]


def cpu_limit(cgroup: str) -> float:
    """Cores; inf without a limit."""
    quota, period = limit_file(cgroup, CPU_MAX).split()
    return float("inf") if quota == "max" else int(quota) / int(period)


def memory_limit(cgroup: str) -> float:
    text = limit_file(cgroup, MEMORY_HIGH)
    return float("inf") if text == "max" else float(text)


def knob_files(cgroups: list[str], policies: list[int]) -> dict[str, str]:
    """Every file that flashd may write for these, and what it says now."""
    seen = {f"{cgroup}/{name}": limit_file(cgroup, name) for cgroup in cgroups
            for name in (CPU_MAX, MEMORY_HIGH)}
    names = ("scaling_governor", "scaling_min_freq", "scaling_max_freq", "scaling_setspeed")
    for n in policies:
        seen |= {f"cpufreq/policy{n}/{name}": read(CPUFREQ / f"policy{n}" / name) for name in names}
    return seen


def differences(before: dict[str, str], after: dict[str, str]) -> str:
    return "; ".join(f"{name}: {before.get(name)} -> {after.get(name)}"
                     for name in sorted(before | after) if before.get(name) != after.get(name))


def require_restored(originals: dict[str, str], now: dict[str, str]) -> None:
    changed = differences(originals, now)
    require(not changed, f"not as before: {changed}")


def settle(value, seconds: float, every: float = 0.3):
    """value() once it was the same twice in a row for a second."""
    deadline = time.monotonic() + seconds
    last, since = value(), time.monotonic()
    while time.monotonic() < deadline:
        time.sleep(every)
        now = value()
        if now != last:
            last, since = now, time.monotonic()
        elif time.monotonic() - since >= 1:
            return now
    raise Failed(f"did not settle within {seconds:g} s; last {last}")
