"""The package goes, and takes along what it brought."""

import pathlib

import flashd
import world
from checks import check, eventually, require, run
from safety_checks import limited


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
