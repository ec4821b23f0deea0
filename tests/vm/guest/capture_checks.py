"""scripts/capture-host on cgroup v2 with systemd and cpufreq: what it took makes flashd decide as on a host."""

import json
import pathlib
import shutil
import subprocess

import world
from checks import SHARE, check, require

CAPTURED = pathlib.Path("/tmp/captured")


@check("golden.captured-guest-replays", needs=("world.services-run",))
def captured_guest_replays():
    shutil.rmtree(CAPTURED, ignore_errors=True)
    subprocess.run([SHARE / "capture-host", CAPTURED, *world.CGROUP_TARGETS], check=True)
    (CAPTURED / "flashd.json").write_text(json.dumps(world.settings("control"), indent=2) + "\n")
    once = ["flashd", "--once", "--json", "--bus", "none", "--root", str(CAPTURED),
            "--config", str(CAPTURED / "flashd.json")]
    first, second = (subprocess.run(once, capture_output=True, check=True).stdout for _ in range(2))
    require(first == second, "two replays of the same host differ")
    agents = {agent["target"]["name"]: agent for agent in json.loads(first)["agents"]}
    require("web.service" in agents, f"no web.service among {sorted(agents)}")
    require(agents["web.service"]["target"]["owner"] == "systemd", "systemd does not own web.service")
    require(agents["cpus 0-1"]["current"]["cpu-frequency"] > 0, "no frequency of cpus 0-1")
    # For whoever wants it as a golden host.
    subprocess.run(["tar", "-C", CAPTURED.parent, "-cf", SHARE / "captured.tar", CAPTURED.name], check=True)
    return ", ".join(sorted(agents))
