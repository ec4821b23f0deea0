"""flashd for a guest of another architecture: a sysroot, the build of preset arm64, its installed tree."""

import pathlib
import shutil
import subprocess

import image

# What the rooms of preset arm64 include and link; their dependencies come along.
SYSROOT_PACKAGES = ("libbpf-dev", "libcgroup-dev", "libcpupower-dev", "libgcrypt20-dev", "libsystemd-dev",
                    "nlohmann-json3-dev")
TRIPLET = "aarch64-linux-gnu"


def install(root: pathlib.Path, cache: pathlib.Path, share: pathlib.Path, say=print) -> None:
    """Puts flashd's tree as it will lie in the guest's root into share/install, the checks' load beside it."""
    with open(cache / "cross.log", "w") as log:
        sysroot(root / "build/arm64-sysroot", log, say)
        say(f"building preset arm64 (log: {log.name})", flush=True)
        image.run([str(root / "scripts/build"), "arm64"], log)
        image.run(["env", f"DESTDIR={share / 'install'}", "cmake", "--install", str(root / "build/arm64"), "--strip"],
                  log)
        image.run([f"{TRIPLET}-gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-o", str(share / "pmu_load"),
                   str(share / "guest/pmu_load.c")], log)


def sysroot(directory: pathlib.Path, log, say=print) -> None:
    """Headers and libraries of the guest's Debian, made again when the list above has changed."""
    recipe = " ".join(SYSROOT_PACKAGES)
    stamp = directory / "packages"
    if stamp.exists() and stamp.read_text() == recipe:
        return
    say("building the sysroot for arm64", flush=True)
    shutil.rmtree(directory, ignore_errors=True)
    image.run(image.extraction("arm64", SYSROOT_PACKAGES, directory), log)
    stamp.write_text(recipe)
