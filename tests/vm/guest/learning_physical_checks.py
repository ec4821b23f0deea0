"""The frequency agent learns on a frequency that is real: is it nearer to the best fixed one than MIAD?

One compute-bound service with a constant load, one rule, one reward (policy/reward.h, default), read over
D-Bus in all three cases: each P-state by hand while flashd only observes; MIAD in charge; the learned policy in charge.
IPS is missing in this guest, so the reward is SLO preservation and the price of power.
"""

import dataclasses
import math
import time

import flashd
from checks import check, eventually, output, require, write
from physical_checks import CPU, POLICY, encoder_alone, mean_rate
from rig_checks import FREQUENCIES_KHZ

PERIOD_S = 0.25
EPISODE_STEPS = 20
WORK = 1500  # rounds per frame: some 65 frames per tick at 2.2 GHz, so that counting them is no noise
TICKS_FIXED = 24  # per P-state
TICKS = 120  # MIAD and learned
SETTLE = 4  # ticks after a change by hand: what was in force during a tick must be one frequency
LEARNING_S = 150  # from initialized until the learned policy is judged, at most
# Of the rate at 3 GHz. 2.2 GHz keeps it with 4 % to spare, less than MIAD's slack threshold of 5 %; 1.8 GHz
# misses it by 15 %.
OBJECTIVE = 0.705


@dataclasses.dataclass
class Phase:
    """Consecutive decisions of one agent, and the rewards in them that flashd trusts."""
    decisions: list[dict]

    @property
    def rewards(self) -> list[float]:
        return [d["reward"]["value"] for d in self.decisions if d["reward"] and d["reward"]["trusted"]]

    @property
    def mean(self) -> float:
        return sum(self.rewards) / len(self.rewards)

    @property
    def error(self) -> float:
        """Standard error of the mean, from means of half a second's worth: neighbours depend on each other."""
        batch = 4
        means = [sum(part) / batch for part in
                 (self.rewards[i:i + batch] for i in range(0, len(self.rewards) - batch + 1, batch))]
        centre = sum(means) / len(means)
        return math.sqrt(sum((m - centre) ** 2 for m in means) / (len(means) - 1) / len(means))

    def share(self, controller: str) -> float:
        return sum(d["controller"] == controller for d in self.decisions) / len(self.decisions)

    def ghz(self) -> float:
        return sum(d["current"]["cpu-frequency"] for d in self.decisions) / len(self.decisions) / 1e6

    def __str__(self) -> str:
        return f"{self.mean:.4f} +- {self.error:.4f} ({len(self.rewards)} of {len(self.decisions)} ticks)"


def observe(path: str, ticks: int, settle: int = SETTLE) -> Phase:
    """The next `ticks` decisions after `settle` more. flashd keeps 32 in full: they are fetched in time."""
    begun = flashd.decisions(path)[-1]["seq"] + settle
    seen: dict[int, dict] = {}
    time.sleep(settle * PERIOD_S)
    while len(seen) < ticks:
        time.sleep(min(20, ticks - len(seen)) * PERIOD_S)
        for decision in flashd.decisions(path, 32):
            if begun < decision["seq"] <= begun + ticks:
                seen[decision["seq"]] = decision
        lost = seen and max(seen) - begun - len(seen)
        require(not lost, f"{lost} decisions went by unseen")
    phase = Phase([seen[seq] for seq in sorted(seen)])
    require(len(phase.rewards) >= 0.8 * ticks, f"flashd trusts only {len(phase.rewards)} of {ticks} rewards: "
            f"{phase.decisions[-1]}")
    return phase


def settings(slo: float, mode: str, **rule) -> dict:
    return {
        "period_s": PERIOD_S, "mode": mode, "episode_steps": EPISODE_STEPS,
        "rules": {
            "web": None, "scope": None, "direct": None,
            "cpus": {"task": "cpu-frequency", "select": {"cpus": str(CPU)},
                     "application": "encoder", "slo": {"throughput_rps": slo},
                     "guards": {"flap_budget": 60}} | rule,
        },
    }


def start(configuration: dict) -> str:
    """flashd, fresh; the path of its agent."""
    flashd.configure(configuration)
    output("systemctl", "restart", "flashd")
    return eventually("the frequency agent", lambda: flashd.find_agent("cpu-frequency"), 20)["path"]


def best_fixed(path: str) -> tuple[int, dict[int, Phase]]:
    phases = {}
    for khz in FREQUENCIES_KHZ:
        write(POLICY / "scaling_setspeed", khz)
        phases[khz] = observe(path, TICKS_FIXED)
        inside = {d["current"]["cpu-frequency"] for d in phases[khz].decisions}
        require(inside == {khz}, f"{khz} kHz by hand, flashd saw {inside}")
    return max(phases, key=lambda khz: phases[khz].mean), phases


def objective() -> float:
    write(POLICY / "scaling_setspeed", FREQUENCIES_KHZ[0])
    time.sleep(1)
    return round(OBJECTIVE * mean_rate(4), 2)


@check("learning.rewards-of-fixed-frequencies-and-miad", seconds=200,
       needs=("world.services-run", "rig.speed-follows-frequency"))
def fixed_and_miad():
    with encoder_alone(WORK, physical_cpus=(CPU,)):
        slo = objective()
        best, fixed = best_fixed(start(settings(slo, "observe")))
        write(POLICY / "scaling_setspeed", FREQUENCIES_KHZ[0])
        miad = observe(start(settings(slo, "control")), TICKS, 12)
        return (f"SLO {slo} frames/s; " + ", ".join(f"{k / 1e6} GHz {p}" for k, p in fixed.items()) +
                f"; best {best}; MIAD {miad} at {miad.ghz():.2f} GHz")
