"""A QEMU guest: boots, is throttled by its P-states if it has any, ends. Owns its process and its sockets."""

import bisect
import ctypes
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import image
import pstates
from architecture import Architecture

HERE = pathlib.Path(__file__).resolve().parent
PR_SET_PDEATHSIG = 1
# Emulated, a one-shot timer of a processor is lost now and then, and the processor sleeps for good ("rcu_preempt kthread timer
# wakeup didn't happen"). A tick that comes by itself is not: it has the processor look at its timers 250 times a second.
KERNEL_OPTIONS = "root=/dev/vda rw quiet nohz=off highres=off panic=-1 systemd.show_status=false sysrq_always_enabled"


class Machine:
    """Use as a context manager: at exit the guest, the throttle and its cgroup are gone.

    A guest that gets another one as `first` is a second one beside it: smaller, without P-states, with a network between
    the two and nobody else. It must end before the first."""

    def __init__(self, arch: Architecture, guest: image.Image, share: pathlib.Path, console: pathlib.Path,
                 vcpu_share: float = 0, first: "Machine | None" = None):
        self._arch = arch
        self._first = first
        self._throttled = arch.throttled and first is None
        self._guest = guest
        self._share = share
        self._console = console
        self._vcpu_share = vcpu_share
        # UNIX socket paths are short; a build folder may be deep.
        self._sockets = pathlib.Path(tempfile.mkdtemp(prefix="flashd-test-vm-"))
        self._qemu = None
        self._throttle = None
        self._qmp = None

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def shell_socket(self) -> pathlib.Path:
        return self._sockets / "shell"

    def running(self) -> bool:
        return self._qemu is not None and self._qemu.poll() is None

    def condition(self) -> str:
        """What a guest that hangs is doing, for a reader: each thread of QEMU over a second, where the processors are at
        its ends; and asks the guest's kernel to tell its console what its processors and its waiting tasks do."""
        before, before_at = self._threads(), time.monotonic()
        places = [self._processors()]
        time.sleep(1)
        after, seconds = self._threads(), time.monotonic() - before_at
        places.append(self._processors())
        lines = [f"thread {name}: {state}, {(ticks - before.get(tid, (0, 0, ticks))[2]) / seconds:.0f} % of a core"
                 for tid, (name, state, ticks) in sorted(after.items())]
        if self._arch.name == "amd64":
            for key in "lw":
                self._ask("send-key", keys=[{"type": "qcode", "data": code} for code in ("alt", "sysrq", key)])
                time.sleep(3)
        return "\n".join(lines + places)

    def _threads(self) -> dict[int, tuple[str, str, int]]:
        """Name, state and ticks of a hundredth of a second of each."""
        threads = {}
        for task in pathlib.Path(f"/proc/{self._qemu.pid}/task").iterdir():
            try:
                name, rest = (task / "stat").read_text().split("(", 1)[1].rsplit(") ", 1)
            except FileNotFoundError:
                continue
            fields = rest.split()
            threads[int(task.name)] = name, fields[0], int(fields[11]) + int(fields[12])
        return threads

    def _processors(self) -> str:
        registers = self._ask("human-monitor-command", **{"command-line": "info registers -a"})
        functions = _Symbols(self._share / "kallsyms")
        shown = []
        for block in registers.split("CPU#")[1:]:
            for register in ("RIP=", "PC="):
                if register in block:
                    place = block.split(register)[1].split()[0]
                    halted = "HLT=1" in block
                    shown.append(f"processor {block.split()[0]} at {functions.name(place)}{', halted' if halted else ''}")
        return "\n".join(shown) if shown else registers.strip()

    def _ask(self, command: str, **arguments) -> str:
        """What QEMU answers, or why it does not: its threads may be what hangs."""
        try:
            return str(self._qmp(command, **arguments))
        except (OSError, RuntimeError, ValueError) as error:
            return f"QEMU does not answer {command}: {error}"

    def stop(self) -> None:
        # The throttle first: its group can go only when no thread of QEMU is in it.
        if self._throttle is not None:
            self._throttle.stdin.close()
            try:
                self._throttle.wait(10)
            except subprocess.TimeoutExpired:
                self._throttle.kill()
                self._throttle.wait()
            self._throttle = None
        if self._qemu is not None:
            self._qemu.kill()
            self._qemu.wait()
            self._qemu = None
        shutil.rmtree(self._sockets, ignore_errors=True)

    def _start(self) -> None:
        with open(self._console.with_suffix(".qemu"), "w") as log:
            self._qemu = subprocess.Popen(self._command(), stdin=subprocess.DEVNULL, stdout=log,
                                          stderr=subprocess.STDOUT, preexec_fn=_die_with_parent)
        self._qmp = self._connect()
        if self._throttled:
            self._start_throttle()
        self._qmp("cont")

    def _start_throttle(self) -> None:
        vcpus = [cpu["thread-id"] for cpu in self._qmp("query-cpus-fast")]
        self._throttle = subprocess.Popen([sys.executable, "-B", str(HERE / "throttle.py")],
                                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        task = {
            "name": f"flashd-test-vm-{self._qemu.pid}",
            "qemu": self._qemu.pid,
            "vcpus": vcpus,
            "pstates": [str(self._sockets / f"pstate{n}") for n in range(pstates.VCPUS)],
            "arm": str(self._sockets / "arm"),
            "share": self._vcpu_share,
            "journal": str(self._share / "pstates.jsonl"),
        }
        self._throttle.stdin.write(json.dumps(task) + "\n")
        self._throttle.stdin.flush()
        if self._throttle.stdout.readline().strip() != "ready":
            raise RuntimeError("the throttle did not start")

    def _command(self) -> list[str]:
        part = {"amd64": self._amd64, "arm64": self._arm64}[self._arch.name]
        return part() + [
            "-S", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-nic", "none",
            "-kernel", str(self._guest.kernel), "-initrd", str(self._guest.initrd),
            "-drive", f"file={self._guest.disk},if=virtio,format=raw,snapshot=on",
            "-virtfs", f"local,path={self._share},mount_tag=share,security_model=none",
            "-device", "virtio-rng-pci",
            "-chardev", f"file,id=console,path={self._console}", "-serial", "chardev:console",
            "-chardev", f"socket,id=shell,path={self.shell_socket},server=on,wait=off",
            *self._shell_line(),
            "-qmp", f"unix:{self._sockets / 'qmp'},server=on,wait=off",
        ]

    def _shell_line(self) -> list[str]:
        if self._arch.shell.startswith("hvc"):
            return ["-device", "virtio-serial-pci", "-device", "virtconsole,chardev=shell"]
        return ["-serial", "chardev:shell"]

    def _amd64(self) -> list[str]:
        common = [
            "qemu-system-x86_64", "-machine", "pc",
            # acpi-cpufreq refuses AuthenticAMD here (K8 check); a nested KVM may hang: TCG only.
            # TCG computes AVX2's fused multiply-add in software: a matrix product of OpenBLAS takes 22 ms with it
            # and 0.9 ms with the SSE kernels.
            "-accel", "tcg,thread=multi,tb-size=512",
            "-cpu", "max,family=6,model=85,vendor=GenuineIntel,avx=off,avx2=off,fma=off,f16c=off",
            *self._network(),
        ]
        options = f"{KERNEL_OPTIONS} console=ttyS0 mitigations=off"
        if self._first:
            return common + ["-smp", "1", "-m", "1G", "-append", f"{options} flashd.guest=second"]
        return common + ["-smp", str(pstates.VCPUS), "-m", "2G", "-append", options, *self._pstates()]

    def _pstates(self) -> list[str]:
        def port(name: str, number: int) -> list[str]:
            path = self._sockets / name
            return ["-chardev", f"socket,id={name},path={path},server=on,wait=off",
                    "-device", f"isa-debugcon,chardev={name},iobase=0x{number:x}"]

        devices = ["-acpitable", f"file={pstates.compile_ssdt(self._sockets)}", *port("arm", pstates.ARM_PORT)]
        for cpu, number in enumerate(pstates.PSTATE_PORTS):
            devices += port(f"pstate{cpu}", number)
        return devices

    def _network(self) -> list[str]:
        """A card whose other end is the other guest's, over a UNIX socket; nothing of the host's network is in it. The first
        guest listens all the time, so the second may come and go."""
        wire = (self._first or self)._sockets / "wire"
        server, number = ("off", 2) if self._first else ("on", 1)
        return ["-netdev", f"stream,id=wire,server={server},addr.type=unix,addr.path={wire}",
                "-device", f"virtio-net-pci,netdev=wire,mac=52:54:00:00:02:{number:02x},romfile="]

    def _arm64(self) -> list[str]:
        return [
            "qemu-system-aarch64", "-machine", "virt,gic-version=3",
            # The PMU counts instructions only with -icount, and with more than one processor it counts those of
            # all. A guest's nanosecond is an instruction, whatever the host does; idle time is skipped.
            "-accel", "tcg,thread=single,tb-size=512", "-icount", "shift=0,sleep=off",
            "-cpu", "max,pauth-impdef=on", "-smp", "1", "-m", "1G",
            "-append", f"{KERNEL_OPTIONS} console=ttyAMA0",
        ]

    def _connect(self):
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        deadline = time.monotonic() + 20
        while True:
            try:
                link.connect(str(self._sockets / "qmp"))
                break
            except OSError:
                if not self.running() or time.monotonic() > deadline:
                    log = self._console.with_suffix(".qemu").read_text()
                    raise RuntimeError(f"QEMU did not start: {log}") from None
                time.sleep(0.05)
        link.settimeout(20)
        lines = link.makefile("rw")
        lines.readline()  # the greeting

        def call(command: str, **arguments):
            lines.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
            lines.flush()
            while True:
                reply = json.loads(lines.readline())
                if "error" in reply:
                    raise RuntimeError(f"QMP {command}: {reply['error']}")
                if "return" in reply:
                    return reply["return"]

        call("qmp_capabilities")
        return call


class _Symbols:
    """Names of the guest's kernel functions, from what its check runner wrote of /proc/kallsyms."""

    def __init__(self, path: pathlib.Path):
        lines = path.read_text().split("\n") if path.exists() else []
        table = sorted((int(fields[0], 16), fields[2]) for fields in map(str.split, lines) if len(fields) >= 3)
        self._addresses = [address for address, _ in table]
        self._names = [name for _, name in table]

    def name(self, place: str) -> str:
        at = int(place, 16)
        i = bisect.bisect_right(self._addresses, at) - 1
        return f"{self._names[i]}+{at - self._addresses[i]:#x}" if i >= 0 and at - self._addresses[i] < 1 << 20 else place


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setpgrp()  # an interrupt of the terminal is for vm-test, which then stops the guest
