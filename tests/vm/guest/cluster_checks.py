"""flash-coordinator as a package and its services: one command sets it up, one line lets this node in and out."""

import json
import pathlib

import flashd
import package_checks
import world
from checks import check, eventually, output, require, run
from sync_checks import UNIT as SYNC_UNIT, connected

UNITS = ("flash-coordinator-nats.service", "flash-coordinator.service")
NODE = "guest"
RENEWAL = ("flash-coordinator-renew.service", "flash-coordinator-renew.timer")
KEYS = pathlib.Path("/etc/flash-coordinator")


def fleet() -> dict:
    shown = run("flash-coordinator", "--json", "fleet", ok=False)
    return json.loads(shown.stdout) if shown.returncode == 0 else {"nodes": []}


def node() -> dict | None:
    return next((n for n in fleet()["nodes"] if n["node"] == NODE), None)


def shown_agents() -> set[str]:
    seen = node()
    return {agent["agent"].split(":", 1)[1] for agent in seen["agents"]} if seen else set()


def states() -> dict[str, str]:
    return {unit: flashd.show("ActiveState", unit=unit)["ActiveState"] for unit in UNITS}


@check("cluster.installs", needs=("sync.connects",), seconds=180)
def installs():
    status = package_checks.install("flash-coordinator", timeout=170)
    require("active" not in states().values(), f"something runs before it is set up: {states()}")
    return status


@check("cluster.one-command-sets-up", needs=("cluster.installs",), seconds=120)
def sets_up():
    said = output("flash-coordinator", "setup", "--server", "localhost")
    eventually("both services are active", lambda: set(states().values()) == {"active"}, 60)
    before = {path.name: path.read_bytes() for path in KEYS.iterdir() if path.is_file()}
    output("flash-coordinator", "setup", "--server", "localhost")
    after = {path.name: path.read_bytes() for path in KEYS.iterdir() if path.is_file()}
    require(before == after, f"a second setup changed {[n for n in after if after[n] != before.get(n)]}")
    return said.splitlines()[-1]


@check("cluster.exposure-at-most-2", needs=("cluster.one-command-sets-up",))
def exposure():
    return "; ".join(package_checks.exposure_of(unit, 2) for unit in (*UNITS, RENEWAL[0]))


@check("cluster.a-lost-certificate-is-made-anew", needs=("cluster.one-command-sets-up",), seconds=120)
def renews():
    require(flashd.show("ActiveState", unit=RENEWAL[1])["ActiveState"] == "active", "the timer does not run")
    certificate = KEYS / "server.pem"
    before = certificate.read_bytes()
    certificate.unlink()
    output("systemctl", "start", RENEWAL[0])
    require(certificate.read_bytes() != before, "the certificate is the old one")
    eventually("both services are active", lambda: set(states().values()) == {"active"}, 60)
    return output("journalctl", "-b", "-u", RENEWAL[0], "-o", "cat", "--grep", "server.pem").splitlines()[-1]


@check("cluster.an-enrolled-node-shows-its-agents", needs=("cluster.one-command-sets-up",), seconds=180)
def enrols():
    token = output("flash-coordinator", "enroll", NODE)
    said = output("flash-sync", "enroll", token)
    again = run("flash-sync", "enroll", token, ok=False)
    require(again.returncode != 0, "a token let somebody in twice")
    output("systemctl", "restart", SYNC_UNIT)
    world.restart_in("recommend")
    connected()
    names = {row["path"] for row in flashd.agents()}
    eventually("as many agents in the fleet as on the bus",
               lambda: len(shown_agents()) >= 4 and len(shown_agents()) == len(flashd.agents()), 120, 1)
    require(node()["state"] == "alive", f"the node is {node()['state']}")
    return f"{said}; {sorted(shown_agents())} of {len(names)}; {again.stderr.strip()}"


@check("cluster.a-killed-server-loses-nothing", needs=("cluster.an-enrolled-node-shows-its-agents",), seconds=180)
def restarted():
    records = fleet()["records"]
    output("systemctl", "kill", "--signal=KILL", UNITS[0])
    eventually("more records after the server was killed", lambda: fleet()["records"] > records + 4, 120, 1)
    shown = fleet()
    return f"{shown['records']} records, {shown['duplicates']} came more than once"


@check("cluster.a-revoked-node-is-cut-off", needs=("cluster.an-enrolled-node-shows-its-agents",), seconds=180)
def revoked():
    output("flash-coordinator", "revoke", NODE)
    eventually("its heartbeats end", lambda: node()["state"] != "alive", 90, 1)
    connected("flashd still has flash-sync")
    return node()["state"]


@check("cluster.purge-leaves-nothing", needs=("cluster.installs",), seconds=120)
def purge():
    run("apt-get", "purge", "-y", "flash-coordinator", timeout=100)
    for unit in (*UNITS, *RENEWAL):
        require(flashd.show("LoadState", unit=unit)["LoadState"] == "not-found", f"systemd still knows {unit}")
    for path in (KEYS, pathlib.Path("/var/lib/flash-coordinator"), pathlib.Path("/var/lib/flash-coordinator-nats")):
        require(not path.exists(), f"{path} is still there")
    connected("flashd still has flash-sync")
