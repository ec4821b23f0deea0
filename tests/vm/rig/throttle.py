"""Makes a lower frequency really slower: a CFS quota on each vCPU's thread.

Run as a process of its own by machine.py. Reads one JSON object from standard input:
  {"name": GROUP, "qemu": PID, "vcpus": [TID, ...], "pstates": [SOCKET, ...], "arm": SOCKET,
   "share": 0.6, "journal": FILE}
prints "ready", and works until standard input closes; then every thread is unthrottled and the
group is removed. Needs root. It touches only the group it makes, and only QEMU's own threads.

While unarmed (the state at boot) a vCPU is not limited. Armed, a vCPU at the highest frequency gets
`share` of a core and lower ones proportionally less, so that the guest's speed is linear in the
frequency as long as the host can give VCPUS x share cores.
"""

import json
import os
import pathlib
import selectors
import socket
import sys
import time

import pstates

# Long enough that the kernel's floor of 1 ms per period is far away at 1 GHz (4 ms), short enough
# that a control tick of 100 ms sees an average over five periods.
PERIOD_US = 20000
# Other work on the host must not look like a lower frequency.
WEIGHT_ARMED = 100000
WEIGHT_UNARMED = 4096


def quota_us(share: float, mhz: int) -> int:
    return round(PERIOD_US * share * mhz / pstates.MAX_MHZ)


class GroupV1:
    """cgroup v1, controller cpu: a group for QEMU, inside it one for each vCPU's thread."""

    def __init__(self, mount: pathlib.Path, name: str, qemu: int, vcpus: list[int]):
        self._home = mount / _own_path("cpu").lstrip("/")
        self._group = self._home / name
        self._qemu = qemu
        self._vcpus = [self._group / f"vcpu{n}" for n in range(len(vcpus))]
        self._group.mkdir()
        _write(self._group / "cgroup.procs", qemu)
        for directory, tid in zip(self._vcpus, vcpus):
            directory.mkdir()
            _write(directory / "cpu.cfs_period_us", PERIOD_US)
            _write(directory / "tasks", tid)

    def limit(self, vcpu: int, quota: int | None) -> None:
        _write(self._vcpus[vcpu] / "cpu.cfs_quota_us", -1 if quota is None else quota)

    def weight(self, shares: int) -> None:
        _write(self._group / "cpu.shares", shares)

    def remove(self) -> None:
        if os.path.exists(f"/proc/{self._qemu}"):
            _try(lambda: _write(self._home / "cgroup.procs", self._qemu))
        for directory in (*self._vcpus, self._group):
            _rmdir(directory)


class GroupV2:
    """cgroup v2: the same with threaded groups, since a domain group takes whole processes only."""

    def __init__(self, mount: pathlib.Path, name: str, qemu: int, vcpus: list[int]):
        self._home = mount / _own_path("").lstrip("/")
        # Beside the root's children: a group below ours could not have a controller while this
        # process is in ours (no internal processes).
        self._group = mount / name
        self._qemu = qemu
        self._vcpus = [self._group / f"vcpu{n}" for n in range(len(vcpus))]
        _try(lambda: _write(mount / "cgroup.subtree_control", "+cpu"))
        self._group.mkdir()
        _write(self._group / "cgroup.procs", qemu)
        for directory in self._vcpus:
            directory.mkdir()
            _write(directory / "cgroup.type", "threaded")
        _write(self._group / "cgroup.subtree_control", "+cpu")
        for directory, tid in zip(self._vcpus, vcpus):
            _write(directory / "cgroup.threads", tid)

    def limit(self, vcpu: int, quota: int | None) -> None:
        _write(self._vcpus[vcpu] / "cpu.max", f"{'max' if quota is None else quota} {PERIOD_US}")

    def weight(self, shares: int) -> None:
        _write(self._group / "cpu.weight", max(1, min(10000, shares * 100 // 1024)))

    def remove(self) -> None:
        if os.path.exists(f"/proc/{self._qemu}"):
            _try(lambda: _write(self._home / "cgroup.procs", self._qemu))
        for directory in (*self._vcpus, self._group):
            _rmdir(directory)


def make_group(name: str, qemu: int, vcpus: list[int]):
    """The group on whichever hierarchy of this host has the cpu controller."""
    with open("/proc/self/mountinfo") as mounts:
        for line in mounts:
            left, right = line.split(" - ")
            kind, _, options = right.split()[:3]
            mount = pathlib.Path(left.split()[4])
            if kind == "cgroup" and "cpu" in options.split(","):
                return GroupV1(mount, name, qemu, vcpus)
            if kind == "cgroup2" and "cpu" in (mount / "cgroup.controllers").read_text().split():
                return GroupV2(mount, name, qemu, vcpus)
    raise RuntimeError("no cgroup hierarchy of this host has the cpu controller")


def _own_path(controller: str) -> str:
    with open("/proc/self/cgroup") as groups:
        for line in groups:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if controller in controllers.split(","):
                return path
    return "/"


def _write(path: pathlib.Path, value) -> None:
    with open(path, "w") as file:
        file.write(str(value))


def _try(action) -> None:
    try:
        action()
    except OSError:
        pass


def _rmdir(directory: pathlib.Path) -> None:
    # A dying thread leaves its group a moment after its process is gone.
    for _ in range(100):
        try:
            directory.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.02)
    print(f"could not remove {directory}", file=sys.stderr)


class Throttle:
    def __init__(self, group, vcpus: list[int], share: float, journal):
        self._group = group
        self._threads = vcpus
        self._host_cpus = sorted(os.sched_getaffinity(0))
        self._share = share
        self._journal = journal
        self._armed = [False] * len(vcpus)
        self._mhz = [pstates.MAX_MHZ] * len(vcpus)

    def p_state(self, vcpu: int, value: int) -> None:
        if value < len(pstates.FREQUENCIES_MHZ):
            self._mhz[vcpu] = pstates.FREQUENCIES_MHZ[value]
            self._apply(vcpu)
        self._note(vcpu=vcpu, value=value, mhz=self._mhz[vcpu])

    def arm(self, mask: int) -> None:
        self._armed = [bool(mask >> vcpu & 1) for vcpu in range(len(self._mhz))]
        self._group.weight(WEIGHT_ARMED if any(self._armed) else WEIGHT_UNARMED)
        for vcpu, tid in enumerate(self._threads):
            # Two vCPUs that the host's scheduler puts on one of its processors look like a lower frequency too.
            own = {self._host_cpus[vcpu % len(self._host_cpus)]} if any(self._armed) else self._host_cpus
            _try(lambda: os.sched_setaffinity(tid, own))
        for vcpu in range(len(self._mhz)):
            self._apply(vcpu)
        self._note(armed=self._armed)

    def _apply(self, vcpu: int) -> None:
        quota = quota_us(self._share, self._mhz[vcpu]) if self._armed[vcpu] else None
        self._group.limit(vcpu, quota)

    def _note(self, **what) -> None:
        self._journal.write(json.dumps({"t": round(time.time(), 4), **what}) + "\n")
        self._journal.flush()


def main() -> None:
    task = json.loads(sys.stdin.readline())
    group = make_group(task["name"], task["qemu"], task["vcpus"])
    try:
        _try(lambda: os.setpriority(os.PRIO_PROCESS, 0, -15))
        throttle = Throttle(group, task["vcpus"], task["share"], open(task["journal"], "a"))
        events = selectors.DefaultSelector()
        events.register(sys.stdin, selectors.EVENT_READ, None)
        for vcpu, path in enumerate(task["pstates"]):
            events.register(_connect(path), selectors.EVENT_READ,
                            lambda value, vcpu=vcpu: throttle.p_state(vcpu, value))
        events.register(_connect(task["arm"]), selectors.EVENT_READ,
                        throttle.arm)
        throttle.arm(0)
        print("ready", flush=True)
        while True:
            for ready, _ in events.select():
                if ready.data is None:
                    return
                received = ready.fileobj.recv(4096)
                if not received:  # QEMU is gone.
                    events.unregister(ready.fileobj)
                for value in received:
                    ready.data(value)
    finally:
        group.remove()


def _connect(path: str) -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.connect(path)
    return link


if __name__ == "__main__":
    main()
