"""What flashd manages in the guest: a unit, a container in a scope of systemd, a container whose
cgroup the runtime made itself, and the two processors."""

import os
import pathlib
import subprocess
import time

from checks import eventually, output, read, run, write
from flashd import CGROUPS, CPUFREQ, configure, knob_files

HERE = pathlib.Path(__file__).resolve().parent
LOADS = pathlib.Path("/run/loads")
PYTHON = "/usr/bin/python3"
WORK = f"{PYTHON} -B {HERE}/work.py"
WEB_SERVER = ("/usr/bin/flash-workload serve --segment text-json --work 10 --memory-mib 20 "
              "--app web --statsd /run/flashd/statsd/statsd.sock")
WEB_CLIENTS = "/usr/bin/flash-workload load --rate 10 --seconds 100000"

# As the docker and containerd runtimes name them.
SCOPE_ID = "5c0be" + "0123456789a" * 5 + "0123"
DIRECT_ID = "d1ec7" + "fedcba98765" * 5 + "4321"
# In a slice where nobody asked for the cpu controller: cpu.max is not there until systemd is asked.
WEB = "/app.slice/web.service"
SCOPE = f"/system.slice/docker-{SCOPE_ID}.scope"
DIRECT = f"/docker/{DIRECT_ID}"
CGROUP_TARGETS = [WEB, SCOPE, DIRECT]
POLICIES = [0, 1]

_children: list[subprocess.Popen] = []


def set_load(name: str, *values) -> None:
    LOADS.mkdir(exist_ok=True)
    path = LOADS / name
    path.with_suffix(".tmp").write_text(" ".join(map(str, values)) + "\n")
    os.replace(path.with_suffix(".tmp"), path)


def start_unit(name: str, command: str, extra: str = "") -> None:
    pathlib.Path(f"/run/systemd/system/{name}.service").write_text(
        f"[Unit]\nDescription={name} of the VM checks\n[Service]\nExecStart={command}\n{extra}\n")
    output("systemctl", "daemon-reload")
    output("systemctl", "start", name)


def start_services() -> None:
    set_load("scope", 0.2, 30)
    set_load("direct", 0.2, 30)
    start_unit("web", WEB_SERVER, "Slice=app.slice\nMemoryAccounting=yes")
    start_unit("web-clients", WEB_CLIENTS, "Restart=always")
    # With Delegate=yes, as runc makes its scopes.
    _spawn(["systemd-run", "--scope", "--quiet", f"--unit=docker-{SCOPE_ID}.scope",
            "-p", "Delegate=yes", *WORK.split(), "burn", f"{LOADS}/scope"])
    make_direct()
    eventually("the scope's cgroup", lambda: (CGROUPS / SCOPE[1:] / "cpu.max").exists(), 20)


def make_direct() -> None:
    """A container as a runtime with the cgroupfs driver makes it: systemd knows nothing of it."""
    directory = CGROUPS / DIRECT[1:]
    directory.mkdir(parents=True, exist_ok=True)
    for parent in (CGROUPS, directory.parent):
        write(parent / "cgroup.subtree_control", "+cpu +memory +io +pids")
    child = _spawn([*WORK.split(), "burn", f"{LOADS}/direct"])
    write(directory / "cgroup.procs", child.pid)


def remove_direct() -> None:
    directory = CGROUPS / DIRECT[1:]
    write(directory / "cgroup.kill", 1)
    eventually("the container's processes are gone",
               lambda: not read(directory / "cgroup.procs"), 10, 0.05)
    directory.rmdir()


def _spawn(command: list[str]) -> subprocess.Popen:
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    _children.append(child)
    return child


def set_governors() -> None:
    """Two policies with different settings, so that a restore must tell them apart."""
    write(CPUFREQ / "policy0/scaling_governor", "performance")
    write(CPUFREQ / "policy1/scaling_governor", "userspace")
    write(CPUFREQ / "policy1/scaling_setspeed", 1800000)
    time.sleep(0.2)


def knobs() -> dict[str, str]:
    return knob_files(CGROUP_TARGETS, POLICIES)


def limits_rule(select: dict, application: str, **changes) -> dict:
    return {
        "task": "resource-limits", "select": select, "application": application,
        "cpu": {"min_cores": 0.05, "max_cores": 2, "target_utilization": 0.7,
                "down_stabilization_s": 2},
        "memory": {"min_mib": 16, "max_mib": 512},
        "guards": {"flap_budget": 30},
        "lease": {"on_foreign_write": "yield", "hold_s": 600},
    } | changes


def settings(mode: str, **changes) -> dict:
    """The configuration of the checks: quick ticks, one rule per target."""
    return {
        "period_s": 0.5, "overhead": {"budget_pct": 0, "window_s": 5}, "mode": mode, "episode_steps": 10,
        "rules": {
            "web": limits_rule({"unit": "web.service"}, "web"),
            "scope": limits_rule({"container": SCOPE_ID[:12] + "*"}, "scope"),
            "direct": limits_rule({"container": DIRECT_ID[:12] + "*"}, "direct"),
            "cpus": {"task": "cpu-frequency", "select": {"cpus": "0-1"},
                     "frequency": {"target_utilization": 0.8}},
        },
    } | changes


def restart_in(mode: str, **changes) -> None:
    """flashd, fresh, with the checks' configuration."""
    configure(settings(mode, **changes))
    run("systemctl", "reset-failed", "flashd.service", ok=False)
    output("systemctl", "restart", "flashd")


def stop() -> None:
    output("systemctl", "stop", "flashd")
