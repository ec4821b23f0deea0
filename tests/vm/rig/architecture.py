"""The processors that a guest can have, and what the host needs for each."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Architecture:
    name: str               # Debian's
    purpose: str            # of scripts/install-deps
    tools: tuple[str, ...]  # what that installs: a look tells whether it did
    cross: bool             # not this host's: the root is extracted, flashd is cross-built and comes without dpkg
    throttled: bool         # the frequency of its processors is physical
    real_time: bool         # a second of its clock is one of the host's
    shell: str              # the terminal of --keep
    initrd_modules: tuple[str, ...] = ("virtio_pci", "virtio_blk", "ext4")


AMD64 = Architecture(
    name="amd64", purpose="vm", cross=False, throttled=True, real_time=True, shell="ttyS1",
    tools=("qemu-system-x86_64", "mmdebstrap", "iasl", "mke2fs", "dpkg-deb"))
ARM64 = Architecture(
    name="arm64", purpose="arm64", cross=True, throttled=False, real_time=False, shell="hvc0",
    tools=("qemu-system-aarch64", "mmdebstrap", "depmod", "systemd-sysusers", "mke2fs", "aarch64-linux-gnu-g++"))

BY_NAME = {each.name: each for each in (AMD64, ARM64)}
