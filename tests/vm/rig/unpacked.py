"""A root file system whose packages were only extracted: what their scripts would have made, and an initrd.

Nothing of the root is run: it is of another architecture.
"""

import io
import pathlib
import shutil

# What of base-passwd's a package would have copied to /etc.
ACCOUNTS = ("passwd", "group")


def configure(root: pathlib.Path, unused_modules, run) -> None:
    """`run` executes a command of the host."""
    for name in ACCOUNTS:
        shutil.copyfile(root / f"usr/share/base-passwd/{name}.master", root / "etc" / name)
    run(["systemd-sysusers", f"--root={root}"])
    kernel = _modules(root)
    for folder in unused_modules:
        shutil.rmtree(kernel / "kernel" / folder)
    run(["depmod", "--basedir", str(root), kernel.name])


def initrd(root: pathlib.Path, modules, init: pathlib.Path) -> bytes:
    """busybox, `init`, and the modules with those they need, which `init` finds in their order in /modules."""
    archive = Archive()
    for folder in ("bin", "dev", "root"):
        archive.folder(folder)
    archive.file("init", init.read_bytes(), 0o755)
    archive.file("bin/busybox", (root / "bin/busybox").read_bytes(), 0o755)
    order = _in_order(_modules(root), modules)
    for path in order:
        archive.file(path.name, path.read_bytes())
    archive.file("modules", "".join(path.name + "\n" for path in order).encode())
    return archive.end()


def _modules(root: pathlib.Path) -> pathlib.Path:
    return next((root / "usr/lib/modules").iterdir())


def _in_order(kernel: pathlib.Path, names) -> list[pathlib.Path]:
    """Files of these modules, each after those it needs."""
    needs = {}
    for line in (kernel / "modules.dep").read_text().splitlines():
        path, _, rest = line.partition(":")
        needs[path] = rest.split()
    order = []

    def add(path: str) -> None:
        for need in reversed(needs[path]):
            add(need)
        if kernel / path not in order:
            order.append(kernel / path)

    # ext4 asks for its checksum by name, which modules.dep does not know.
    for name in ("crc32c_generic", *names):
        add(next(path for path in needs if path.endswith(f"/{name}.ko")))
    return order


class Archive:
    """cpio's format "newc", as the kernel reads it (Documentation/driver-api/early-userspace/buffer-format.rst)."""

    def __init__(self):
        self._out = io.BytesIO()
        self._entries = 0

    def folder(self, name: str) -> None:
        self._put(name, 0o40755, b"")

    def file(self, name: str, content: bytes, mode: int = 0o644) -> None:
        self._put(name, 0o100000 | mode, content)

    def end(self) -> bytes:
        self._put("TRAILER!!!", 0, b"")
        return self._out.getvalue()

    def _put(self, name: str, mode: int, content: bytes) -> None:
        self._entries += 1
        fields = (self._entries, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        self._out.write(b"070701" + b"".join(b"%08X" % field for field in fields))
        self._out.write(name.encode() + b"\0")
        self._pad()
        self._out.write(content)
        self._pad()

    def _pad(self) -> None:
        self._out.write(b"\0" * (-self._out.tell() % 4))
