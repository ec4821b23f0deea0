"""The rig proves itself: a real systemd, cgroup v2, a real cpufreq driver, real speed."""

import os
import statistics
import time

from checks import (arm, check, eventually, output, physical_frequency, pstate_journal, read,
                    require, run, write)

CPUFREQ = "/sys/devices/system/cpu/cpufreq"
FREQUENCIES_KHZ = [3000000, 2600000, 2200000, 1800000, 1400000, 1000000]


def set_speed(khz: int) -> None:
    for cpu in range(os.cpu_count()):
        write(f"{CPUFREQ}/policy{cpu}/scaling_setspeed", khz)


def rounds_per_second(seconds: float) -> float:
    """How fast this CPU computes, by the wall clock."""
    began = time.monotonic()
    rounds = 0
    while time.monotonic() - began < seconds:
        for _ in range(2000):
            rounds += 1
    return rounds / (time.monotonic() - began)


@check("rig.systemd-is-pid-1", seconds=90)
def systemd_is_pid_1():
    require(read("/proc/1/comm") == "systemd", f"PID 1 is {read('/proc/1/comm')}")
    state = run("systemctl", "is-system-running", "--wait", ok=False).stdout.strip()
    failed = output("systemctl", "list-units", "--failed", "--plain", "--no-legend")
    require(state == "running", f"the system is {state}: {failed}")
    return f"booted in {float(read('/proc/uptime').split()[0]):.1f} s"


@check("rig.cgroup-v2")
def cgroup_v2():
    require(output("stat", "-fc", "%T", "/sys/fs/cgroup") == "cgroup2fs", "no unified hierarchy")
    controllers = read("/sys/fs/cgroup/cgroup.controllers").split()
    for name in ("cpu", "memory", "io", "pids"):
        require(name in controllers, f"no controller {name} in {controllers}")


@check("rig.system-bus")
def system_bus():
    output("busctl", "--system", "status", "org.freedesktop.systemd1")
    output("busctl", "--system", "call", "org.freedesktop.DBus", "/org/freedesktop/DBus",
           "org.freedesktop.DBus", "StartServiceByName", "su", "org.freedesktop.PolicyKit1", "0")


@check("rig.acpi-cpufreq")
def acpi_cpufreq():
    for cpu in range(os.cpu_count()):
        policy = f"{CPUFREQ}/policy{cpu}"
        driver = read(f"{policy}/scaling_driver")
        require(driver == "acpi-cpufreq", f"driver {driver}")
        limits = (int(read(f"{policy}/cpuinfo_min_freq")), int(read(f"{policy}/cpuinfo_max_freq")))
        require(limits == (1000000, 3000000), f"limits {limits}")
        governors = read(f"{policy}/scaling_available_governors").split()
        require("userspace" in governors, f"governors {governors}")


@check("rig.p-states-reach-the-host", needs=("rig.acpi-cpufreq",))
def p_states_reach_the_host():
    for cpu in range(os.cpu_count()):
        write(f"{CPUFREQ}/policy{cpu}/scaling_governor", "userspace")
    for khz in FREQUENCIES_KHZ[::-1]:
        set_speed(khz)
        for cpu in range(os.cpu_count()):
            eventually(
                f"P-state {khz} kHz of CPU {cpu} on the host",
                lambda: any(e.get("vcpu") == cpu and e["mhz"] == khz // 1000
                            for e in pstate_journal()[-8:]), 5, 0.02)


@check("rig.speed-follows-frequency", needs=("rig.p-states-reach-the-host",), seconds=150)
def speed_follows_frequency():
    """One busy CPU, all six frequencies: linear through the origin within 12 %.

    Each is compared with the highest within half a second, and the median of eight comparisons counts, or where that is
    not enough of sixteen or twenty-four: a host whose processors become slower or are taken away for a while does so to
    both.
    """
    top, *lower = FREQUENCIES_KHZ
    compared = {khz: [] for khz in lower}
    os.sched_setaffinity(0, {1})

    def speed_at(khz: int) -> float:
        set_speed(khz)
        time.sleep(0.05)
        return rounds_per_second(0.25)

    try:
        with physical_frequency():
            for _ in range(3):
                for khz in lower:
                    compared[khz] += [speed_at(khz) / speed_at(top) for _ in range(8)]
                speeds = {top: 1.0} | {khz: statistics.median(seen) for khz, seen in compared.items()}
                slope = sum(k * v for k, v in speeds.items()) / sum(k * k for k in speeds)
                off = {khz: abs(v / (slope * khz) - 1) for khz, v in speeds.items()}
                if max(off.values()) <= 0.12:
                    break
    finally:
        os.sched_setaffinity(0, range(os.cpu_count()))
        set_speed(top)
    seen = ", ".join(f"{khz / 1e6:.1f} GHz {speed:.3f}" for khz, speed in speeds.items())
    require(max(off.values()) <= 0.12, f"{max(off.values()):.0%} off the line: {seen} of the highest")
    return f"{max(off.values()):.1%} off the line at most: {seen} of the highest"


@check("rig.speed-is-free-when-unarmed", needs=("rig.speed-follows-frequency",))
def speed_is_free_when_unarmed():
    arm(())
    set_speed(FREQUENCIES_KHZ[-1])
    slow = rounds_per_second(0.5)
    set_speed(FREQUENCIES_KHZ[0])
    fast = rounds_per_second(0.5)
    require(slow > 0.6 * fast, f"{slow:.0f} rounds/s at 1 GHz, {fast:.0f} at 3 GHz")
