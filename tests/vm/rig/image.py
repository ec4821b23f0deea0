"""The guest image: a Debian 12 root file system, its kernel and its initrd, cached by content.

The cache key is a hash of everything that decides what is inside: these files, the package list and
the files laid over the root. Checks are not in the image; they arrive through the 9p share.

A root of another architecture is only extracted, since its programs would run translated (its initrd alone
takes 13 minutes): unpacked.py does what they would have done.
"""

import dataclasses
import fcntl
import hashlib
import lzma
import os
import pathlib
import shutil
import subprocess
import time

import unpacked
from architecture import Architecture

HERE = pathlib.Path(__file__).resolve().parent
RECIPE = HERE.parent / "image"
SUITE = "bookworm"
DISK_SIZE = "4G"
# Drivers that a virtual machine of ours never sees; without them the image is half as large.
UNUSED_MODULES = ("drivers/gpu", "drivers/net", "drivers/media", "drivers/staging", "sound")
# Of those the driver of the network between two guests, and what it needs. amd64 alone.
USED_MODULES = ("drivers/net/virtio_net.ko", "drivers/net/net_failover.ko")
# What nobody reads in the guest: with libtorch's 300 packages it is a third of the files.
UNREAD = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*",
          "/usr/share/lintian/*", "/usr/share/icons/*", "/usr/share/fonts/*")
MASKED_UNITS = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "systemd-pstore.service",
    "getty@tty1.service",
)
TESTER_UID = 1000
MERGED_USR = "/usr/share/mmdebstrap/hooks/merged-usr/setup00.sh"


@dataclasses.dataclass(frozen=True)
class Image:
    disk: pathlib.Path
    kernel: pathlib.Path
    initrd: pathlib.Path


def packages(arch: Architecture) -> list[str]:
    lines = (RECIPE / arch.name / "packages.txt").read_text().splitlines()
    return [line for line in (raw.split("#")[0].strip() for raw in lines) if line]


def key(arch: Architecture) -> str:
    digest = hashlib.sha256()
    recipe = [path for part in ("files", arch.name) for path in (RECIPE / part).rglob("*") if path.is_file()]
    sources = [HERE / name for name in ("architecture.py", "image.py", "unpacked.py")]
    for path in sources + sorted(recipe):
        digest.update(str(path.relative_to(HERE.parent)).encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def ensure(cache: pathlib.Path, arch: Architecture, rebuild: bool = False, say=print) -> Image:
    """The image of today's recipe, built if the cache has none. Older ones are removed."""
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "image.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        directory = cache / f"image-{key(arch)}"
        if rebuild and directory.exists():
            shutil.rmtree(directory)
        if not directory.exists():
            for old in cache.glob("image-*"):
                shutil.rmtree(old)
            began = time.monotonic()
            say(f"building the guest image (log: {cache / 'image.log'})")
            unfinished = cache / "unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            with open(cache / "image.log", "w") as log:
                _build(unfinished, arch, log)
            unfinished.rename(directory)
            say(f"guest image built in {time.monotonic() - began:.0f} s")
        return Image(directory / "root.img", directory / "vmlinuz", directory / "initrd")


def _build(directory: pathlib.Path, arch: Architecture, log) -> None:
    root = directory / "root"
    boot = root / "boot"
    if arch.cross:
        run(extraction(arch.name, packages(arch), root), log)
        unpacked.configure(root, UNUSED_MODULES, lambda command: run(command, log))
        shutil.copyfile(next(boot.glob("vmlinuz-*")), directory / "vmlinuz")
        (directory / "initrd").write_bytes(
            unpacked.initrd(root, arch.initrd_modules, RECIPE / arch.name / "init"))
    else:
        run(_mmdebstrap(root, arch), log)
        (directory / "vmlinuz").write_bytes(_elf(next(boot.glob("vmlinuz-*")).read_bytes()))
        shutil.copyfile(next(boot.glob("initrd.img-*")), directory / "initrd")
    _furnish(root, arch)
    # mke2fs fills the file system itself: no loop device, no mount.
    run(["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", str(root),
         str(directory / "root.img"), DISK_SIZE], log)
    shutil.rmtree(root)


def _elf(kernel: bytes) -> bytes:
    """The ELF inside a bzImage: QEMU enters it directly (PVH), and its own unpacking, slow under
    translation, falls away. A kernel packed in another way boots as it is."""
    start = kernel.find(b"\xfd7zXZ\0")
    if start < 0:
        return kernel
    elf = lzma.LZMADecompressor().decompress(kernel[start:])
    return elf if elf.startswith(b"\x7fELF") else kernel


def extraction(architecture: str, names, root: pathlib.Path) -> list[str]:
    """The command that unpacks packages, and what they depend on, of any architecture; nothing of them is run."""
    return ["mmdebstrap", "--variant=extract", f"--architectures={architecture}", "--format=directory",
            *_apt_options(), f"--setup-hook={MERGED_USR}", "--include=" + ",".join(names), SUITE, str(root)]


def _apt_options() -> list[str]:
    settings = [*_apt_settings_of_host(), 'APT::Install-Recommends "false"']
    return [f"--aptopt={line}" for line in settings]


def _mmdebstrap(root: pathlib.Path, arch: Architecture) -> list[str]:
    options = _apt_options()
    options += [f"--dpkgopt=path-exclude=/lib/modules/*/kernel/{d}/*" for d in UNUSED_MODULES]
    options += [f"--dpkgopt=path-include=/lib/modules/*/kernel/{file}" for file in USED_MODULES]
    options += [f"--dpkgopt=path-exclude={pattern}" for pattern in UNREAD]
    modules = "\\n".join(arch.initrd_modules)
    initramfs = (
        'mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/usr/share/initramfs-tools/modules.d"; '
        'printf "MODULES=list\\nCOMPRESS=gzip\\n" > "$1/etc/initramfs-tools/conf.d/rig"; '
        f'printf "{modules}\\n" > "$1/usr/share/initramfs-tools/modules.d/rig"'
    )
    return [
        "mmdebstrap", "--variant=minbase", "--format=directory", *options,
        f"--setup-hook={initramfs}",
        f"--customize-hook=chroot \"$1\" useradd -m -u {TESTER_UID} -s /bin/bash tester",
        "--include=" + ",".join(packages(arch)), SUITE, str(root),
    ]


def _apt_settings_of_host() -> list[str]:
    """How this host reaches its mirror holds for the guest's packages too."""
    names = ["Acquire::Check-Valid-Until", "Acquire::Check-Date",
             "Acquire::http::Proxy", "Acquire::https::Proxy"]
    dump = subprocess.run(["apt-config", "dump", "--format", '%F "%v";%n', *names],
                          capture_output=True, text=True, check=True).stdout
    return [line for line in dump.splitlines() if '""' not in line]


def _furnish(root: pathlib.Path, arch: Architecture) -> None:
    for files in (RECIPE / "files", RECIPE / arch.name / "files"):
        shutil.copytree(files, root, dirs_exist_ok=True)
    (root / "etc/hostname").write_text("flashd-guest\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost flashd-guest\n")
    # A fixed id and fresh stamps: otherwise the first boot, which is every boot of a snapshot,
    # enables all presets and rebuilds the caches of systemd.
    (root / "etc/machine-id").write_text("f1a5" * 8 + "\n")
    wants = root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(exist_ok=True)
    (wants / "flashd-vm-checks.service").symlink_to(
        "/etc/systemd/system/flashd-vm-checks.service")
    gettys = root / "etc/systemd/system/getty.target.wants"
    gettys.mkdir(exist_ok=True)
    (gettys / f"serial-getty@{arch.shell}.service").symlink_to(
        "/lib/systemd/system/serial-getty@.service")
    for unit in MASKED_UNITS:
        link = root / "etc/systemd/system" / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    (root / "etc/default/locale").write_text("LANG=C.UTF-8\n")
    for stamp in ("etc/.updated", "var/.updated"):
        (root / stamp).touch()
        later = time.time() + 3600
        os.utime(root / stamp, (later, later))


def run(command: list[str], log) -> None:
    log.write("+ " + " ".join(command) + "\n")
    log.flush()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed ({done.returncode}); see {log.name}")
