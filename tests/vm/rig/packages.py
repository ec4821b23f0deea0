"""The packages under test, and a next version of them to upgrade to."""

import pathlib
import shutil
import subprocess
import tempfile

NEXT_SUFFIX = "+next"
# What the packages are made from; an edit elsewhere does not make them old.
SOURCES = ("CMakeLists.txt", "actuators", "agents", "bench", "cli", "cmake", "collectors", "coordinator", "core",
           "daemon", "docs", "host", "http", "lab", "learner", "link", "meta", "models", "packaging", "policy", "sync",
           "systemd")


def collect(root: pathlib.Path, given: pathlib.Path | None, upgrade: pathlib.Path | None, share: pathlib.Path,
            say=print) -> None:
    """Puts the .debs into share/packages, and what they are upgraded to into share/next.

    Without `given` they are those of build/packages, which scripts/package makes if there are none
    or if a source is newer. The next ones are those of `upgrade`, else the same, in either case with a higher
    version, which need not wait for a release.
    """
    source = given or root / "build/packages"
    if given is None and _old(root, source):
        say("build/packages is not up to date: running scripts/package --no-lintian", flush=True)
        subprocess.run([str(root / "scripts/package"), "--no-lintian"], check=True,
                       stdout=subprocess.DEVNULL)
    for name in ("packages", "next"):
        (share / name).mkdir()
    for deb in _shipped(source):
        shutil.copy(deb, share / "packages")
    for deb in _shipped(upgrade or source):
        _repack(deb, share / "next")


def _shipped(folder: pathlib.Path) -> list[pathlib.Path]:
    return [deb for deb in sorted(folder.glob("*.deb")) if "-dbgsym" not in deb.name]


def _old(root: pathlib.Path, packages: pathlib.Path) -> bool:
    made = [deb.stat().st_mtime for deb in packages.glob("*.deb")]
    files = (file for name in SOURCES for file in [root / name, *(root / name).rglob("*")])
    return not made or max(file.stat().st_mtime for file in files if file.is_file()) > min(made)


def _repack(deb: pathlib.Path, directory: pathlib.Path) -> None:
    """The same package as if released later: only the versions differ."""
    with tempfile.TemporaryDirectory(prefix="flashd-test-deb-") as scratch:
        tree = pathlib.Path(scratch) / "tree"
        subprocess.run(["dpkg-deb", "-R", str(deb), str(tree)], check=True)
        control = tree / "DEBIAN/control"
        version = next(line.split()[1] for line in control.read_text().splitlines() if line.startswith("Version:"))
        # Ours that want each other in one version want the next one too.
        text = control.read_text().replace(f"(= {version})", f"(= {version}{NEXT_SUFFIX})")
        lines = [line + NEXT_SUFFIX if line.startswith("Version:") else line for line in text.splitlines()]
        control.write_text("\n".join(lines) + "\n")
        subprocess.run(["dpkg-deb", "-Znone", "--root-owner-group", "-b", str(tree), str(directory)],
                       check=True, stdout=subprocess.DEVNULL)
