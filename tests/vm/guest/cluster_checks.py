"""flash-coordinator as a package and its services: one command sets it up, one line lets a node in and out; this one and
another guest, over the network between them."""

import json
import pathlib
import time
import urllib.request

import flashd
import network
import package_checks
import second_guest
import world
from checks import check, eventually, output, require, run
from sync_checks import UNIT as SYNC_UNIT, connected

UNITS = ("flash-coordinator-nats.service", "flash-coordinator.service")
NODE = "guest"
RENEWAL = ("flash-coordinator-renew.service", "flash-coordinator-renew.timer")
SECOND_NODE = "second"
API = "http://127.0.0.1:9943/api/v1"
KEYS = pathlib.Path("/etc/flash-coordinator")


def fleet() -> dict:
    shown = run("flash-coordinator", "--json", "fleet", ok=False)
    return json.loads(shown.stdout) if shown.returncode == 0 else {"nodes": []}


def node(name: str = NODE) -> dict | None:
    return next((n for n in fleet()["nodes"] if n["node"] == name), None)


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
    """From here on the guest has an address, and the server a name of it."""
    network.join(network.FIRST)
    said = output("flash-coordinator", "setup", "--server", network.HUB)
    eventually("both services are active", lambda: set(states().values()) == {"active"}, 60)
    before = {path.name: path.read_bytes() for path in KEYS.iterdir() if path.is_file()}
    output("flash-coordinator", "setup", "--server", network.HUB)
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
    said = output("flash-sync", "enroll", "-", told=token)
    again = run("flash-sync", "enroll", "-", told=token, ok=False)
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


def api(path: str) -> list[dict]:
    """Rows of the coordinator's JSON API (docs/COORDINATOR_HTTP.md)."""
    with urllib.request.urlopen(f"{API}/{path}", timeout=10) as answer:
        page = json.loads(answer.read())
    require(len(page["rows"]) == page["total"], f"{path}: a page of {len(page['rows'])} of {page['total']}")
    return page["rows"]


def liveness() -> dict[str, str]:
    return {row["node"]: row["state"] for row in api("nodes?limit=500")}


@check("cluster.a-second-guest-boots", needs=("cluster.one-command-sets-up",), seconds=300, guests=2)
def second_boots():
    second_guest.power_on()
    return second_guest.ask("join_network", seconds=240)


@check("cluster.a-second-guest-installs", needs=("cluster.a-second-guest-boots",), seconds=240, guests=2)
def second_installs():
    return second_guest.ask("install", seconds=230)


@check("cluster.a-token-lets-the-second-guest-in", seconds=300, guests=2,
       needs=("cluster.a-second-guest-installs", "cluster.an-enrolled-node-shows-its-agents"))
def second_enrols():
    """Over TLS and the network, with what it got on one line; the coordinator sees it live and with its agents."""
    said = second_guest.ask("enrol", output("flash-coordinator", "enroll", SECOND_NODE), seconds=60)
    second_guest.ask("manage_a_service", seconds=160)
    eventually("both nodes are alive", lambda: liveness() == {NODE: "alive", SECOND_NODE: "alive"}, 60, 1)
    peers = network.peers(4222)
    require(network.SECOND in peers, f"the server's clients are {peers}")
    return said


def agents_of_both() -> list[tuple[str, str]]:
    """Node and target, as each guest's own bus has them."""
    here = [(NODE, row["target"]) for row in flashd.agents()]
    there = [(SECOND_NODE, target) for target in second_guest.ask("targets")]
    require(here and there, f"agents {here}, {there}")
    return sorted(here + there)


def shows_both(shown) -> str:
    """shown() has rows of exactly these agents, soon."""
    deadline = time.monotonic() + 90
    while True:
        has = sorted((row["node"], row["target"]) for row in shown())
        wanted = agents_of_both()
        if has == wanted:
            return json.dumps(has)
        require(time.monotonic() < deadline, f"on the buses {wanted}, shown {has}")
        time.sleep(1)


@check("cluster.the-coordinator-has-both-guests'-agents", needs=("cluster.a-token-lets-the-second-guest-in",),
       seconds=120, guests=2)
def coordinator_has_both():
    return shows_both(lambda: api("agents?limit=500"))


@check("cluster.each-guest-sees-the-other's-agents", needs=("cluster.the-coordinator-has-both-guests'-agents",),
       seconds=240, guests=2)
def both_see_both():
    shown = ""
    for ask in (flashd.flashctl, lambda *words: second_guest.ask("flashctl", *words)):
        shown = shows_both(lambda: ask("cluster", "agents"))
        counts = {row["node"]: row["agents"] for row in ask("cluster", "nodes")}
        nodes = [name for name, _ in json.loads(shown)]
        require(counts == {name: nodes.count(name) for name in (NODE, SECOND_NODE)}, f"agents of each node: {counts}")
    return shown


@check("cluster.a-node-without-power-is-suspect", needs=("cluster.a-token-lets-the-second-guest-in",),
       seconds=120, guests=2)
def second_dies():
    require(liveness()[SECOND_NODE] == "alive", f"before: {liveness()}")
    second_guest.power_off()
    began = time.monotonic()
    eventually("its heartbeats are missed", lambda: liveness()[SECOND_NODE] != "alive", 90, 1)
    seconds = time.monotonic() - began
    states = liveness()
    require(states[NODE] == "alive", f"the other one too: {states}")
    return f"{states[SECOND_NODE]} after {seconds:.0f} s"


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
