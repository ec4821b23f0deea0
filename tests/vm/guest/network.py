"""The network between the two guests: addresses for documentation (RFC 5737), set by hand, and a name for the first."""

import pathlib

from checks import output, require

FIRST, SECOND = "192.0.2.1", "192.0.2.2"
HUB = "hub.example"  # the first, as both call it
HOSTS = pathlib.Path("/etc/hosts")


def join(address: str) -> str:
    """This guest has that address from now on."""
    cards = [path.name for path in pathlib.Path("/sys/class/net").iterdir() if (path / "device").exists()]
    require(len(cards) == 1, f"network cards: {cards}")
    output("ip", "address", "replace", f"{address}/24", "dev", cards[0])
    output("ip", "link", "set", cards[0], "up")
    line = f"{FIRST} {HUB}\n"
    if line not in HOSTS.read_text():
        HOSTS.write_text(HOSTS.read_text() + line)
    return f"{address} on {cards[0]}"


def peers(port: int) -> set[str]:
    """Addresses of those who are connected to a port of this guest."""
    lines = output("ss", "-Htn", "state", "established", "sport", "=", f":{port}").splitlines()
    return {line.split()[3].rsplit(":", 1)[0].strip("[]").removeprefix("::ffff:") for line in lines}
