"""The packages go, and take along what they brought."""

import json
import pathlib

import flashd
import learner_checks
import sync_checks
import world
from checks import check, eventually, output, require, run
from safety_checks import limited


@check("remove.learner-leaves-flashd-alone", needs=("learner.connects",), seconds=120)
def learner_remove():
    """Removed: flashd goes on without. Purged: nothing of it is left."""
    world.restart_in("recommend")
    brought = [path for path in map(pathlib.Path, output("dpkg", "-L", "flash-learner").splitlines())
               if path.is_file()]
    with learner_checks.no_tick_is_missed():
        run("apt-get", "remove", "-y", "flash-learner", timeout=60)
        eventually("flashd says absent", lambda: learner_checks.word().startswith("absent"), 10)
        require(learner_checks.STATE.exists(), "remove took the trajectories: that is purge's work")
        run("apt-get", "purge", "-y", "flash-learner", timeout=60)
    unit = flashd.show("LoadState", unit=learner_checks.UNIT)["LoadState"]
    require(unit == "not-found", f"systemd still knows {learner_checks.UNIT}: {unit}")
    require(any("flash-learner" in path.name for path in brought), f"what did it bring? {brought}")
    for path in (learner_checks.STATE, *brought):
        require(not path.exists(), f"{path} is still there")
    require(pathlib.Path("/var/lib/flashd").exists() and flashd.CONFIG.exists(), "it took what is flashd's")


@check("remove.sync-leaves-flashd-alone", needs=("sync.connects",), seconds=120)
def sync_purge():
    world.restart_in("recommend")
    sync_checks.connected()
    brought = [path for path in map(pathlib.Path, output("dpkg", "-L", "flash-sync").splitlines()) if path.is_file()]
    require(any("flash-sync" in path.name for path in brought), f"what did it bring? {brought}")
    with learner_checks.no_tick_is_missed():
        run("apt-get", "purge", "-y", "flash-sync", timeout=60)
        eventually("flashd says absent", lambda: sync_checks.word().startswith("absent"), 20)
    require(flashd.show("LoadState", unit=sync_checks.UNIT)["LoadState"] == "not-found", f"systemd still knows {sync_checks.UNIT}")
    for path in (sync_checks.TEXTFILE.parent, *brought):
        require(not path.exists(), f"{path} is still there")
    return json.dumps(sorted(path.name for path in brought))


@check("remove.restores", needs=("world.services-run",), seconds=120)
def remove_restores():
    world.stop()
    originals = world.knobs()
    world.restart_in("control")
    eventually("limits on all targets", limited, 30)
    run("apt-get", "remove", "-y", "flashd", timeout=110)
    flashd.require_restored(originals, world.knobs())
    require(flashd.CONFIG.exists(), "remove took the configuration: that is purge's work")


@check("purge.leaves-nothing", needs=("remove.restores",), seconds=60)
def purge_leaves_nothing():
    flashd.configure(None)
    run("apt-get", "purge", "-y", "flashd", timeout=60)
    for path in ("/etc/flashd", "/var/lib/flashd", "/run/flashd", "/usr/sbin/flashd",
                 "/usr/bin/flashctl"):
        require(not pathlib.Path(path).exists(), f"{path} is still there")
