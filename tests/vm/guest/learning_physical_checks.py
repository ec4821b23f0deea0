"""The frequency agent learns on a frequency that is real: how near does it come to the best fixed one, beside MIAD?

One compute-bound service with a constant load, one rule, one reward (policy/reward.h, default), read over
D-Bus in all three cases: each P-state by hand while flashd only observes; MIAD in charge; the learned policy in charge.
IPS is missing in this guest, so the reward is SLO preservation and the price of power.
"""

import dataclasses
import math
import sqlite3
import statistics
import time

import flashd
import learner_checks
from checks import SHARE, check, eventually, output, require, write
from physical_checks import CPU, POLICY, encoder_alone, rate
from rig_checks import FREQUENCIES_KHZ

PERIOD_S = 0.24  # twelve periods of the throttle: a tick that cuts one would see 12 or 13 of them
EPISODE_STEPS = 20
WORK = 1500  # rounds per frame: some 65 frames per tick at 2.2 GHz, so that counting them is no noise
TICKS_FIXED = 24  # per P-state
TICKS = 240  # MIAD and learned: with 120 the standard error of their difference was as large as the difference
SETTLE = 4  # ticks after a change by hand: what was in force during a tick must be one frequency
LEARNING_AT_LEAST_S = 130  # a lucky episode is enough to serve, not to be judged
LEARNING_S = 180  # from initialized until the learned policy is judged, at most
# The objective as a share of the rate at this frequency: it keeps it with 4 % to spare, less than MIAD's slack
# threshold of 5 %; the next lower one, 1.8 GHz, misses it by 15 %.
ENOUGH_KHZ = 2200000
OBJECTIVE = 0.96
# One level more in up to half of the steps while MIAD is in charge, for as long as an effect needs to show.
EXPLORATION = {"fallback_share": 0.5, "online_share": 0.1, "hold_steps": 2}
# Learning for a life of three minutes. SmartOverclock's table, since an update of networks takes 40 to 160 ms under
# TCG (0.2 ms on a host): too few in this time. The table's takes 0.05 ms.
LEARNER = {"frequency_algorithm": "tabular-q", "learning_starts": 60, "offline_updates": 100, "publish_interval_s": 4}


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
        "period_s": PERIOD_S, "overhead": {"budget_pct": 0}, "mode": mode,
        "episode_steps": EPISODE_STEPS, "learner": LEARNER,
        "rules": {
            "web": None, "scope": None, "direct": None,
            "cpus": {"task": "cpu-frequency", "select": {"cpus": str(CPU)},
                     "application": "encoder",
                     "slo": {"throughput_rps": slo, "statsd": {"senders": ["/app.slice/encoder.service"]}},
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
    write(POLICY / "scaling_setspeed", ENOUGH_KHZ)
    time.sleep(1)
    seen = []
    for _ in range(20):
        time.sleep(0.5)
        seen.append(rate())
    return round(OBJECTIVE * statistics.median(seen), 2)


def learn(path: str) -> dict:
    """The agent, once its policy serves after so long as learning takes, or after LEARNING_S."""
    began = time.monotonic()
    while True:
        agent = flashd.agent(path)
        took = time.monotonic() - began
        if took >= LEARNING_S or (took >= LEARNING_AT_LEAST_S and agent["Stage"] == "serving"):
            return agent
        time.sleep(2)


def keep_trajectories() -> None:
    """What the learner learned from, for whoever wants to know why: trajectories.sqlite on the share."""
    with (sqlite3.connect("/var/lib/flash-learner/trajectories.sqlite") as store,
          sqlite3.connect(SHARE / "trajectories.sqlite") as copy):
        store.backup(copy)


def story(agent: dict) -> str:
    """Stages in order with the seconds from the first one; what the next one waits for, and what the learner does."""
    first = agent["Stages"][0][1]
    stages = ", ".join(f"{stage} at {(since - first) / 1e6:.0f} s" for stage, since, _ in agent["Stages"])
    waits = f"; waits for: {agent['WaitingFor']}" if agent["WaitingFor"] else ""
    refused = f"; refused: {agent['LastRefusal']}" if agent["LastRefusal"] else ""
    return f"{stages} ({agent['Model'] or 'no policy'}; {agent['Learning']}{waits}{refused})"


@check("learning.not-further-from-the-best-fixed-frequency-than-miad", seconds=480,
       needs=("learner.connects", "rig.speed-follows-frequency"))
def not_further_than_miad():
    # Processor 0, where the learner computes, is not slowed down: TCG is slow enough.
    with encoder_alone(WORK, physical_cpus=(CPU,)):
        slo = objective()
        # While MIAD is judged it does not explore, and no policy may take the seat.
        judged = {"exploration": {"fallback_share": 0}, "profile": {"t_online": 10, "t_serving": 10}}
        path = start(settings(slo, "observe", **judged))
        best, fixed = best_fixed(path)
        write(POLICY / "scaling_setspeed", FREQUENCIES_KHZ[0])
        flashd.configure(settings(slo, "control", **judged))
        flashd.reload()
        miad = observe(path, TICKS, 12)
        require(miad.share("fallback") == 1, "MIAD was not in charge all the time")

        # AWARE's thresholds for this profile, in rewards seen: online from about what the exploring fallback earns,
        # serving from what MIAD does not reach.
        top = fixed[best].mean
        path = start(settings(slo, "control", exploration=EXPLORATION, profile={
            "t_online": round(miad.mean - 0.05, 3), "t_serving": round(miad.mean + 0.25 * (top - miad.mean), 3),
            "window_episodes": 3}))
        agent = learn(path)
        learned = observe(path, TICKS, 0)
        keep_trajectories()

        # The best fixed frequency once more: a host that has become slower meanwhile counts for all three.
        flashd.configure(settings(slo, "observe", **judged))
        flashd.reload()
        write(POLICY / "scaling_setspeed", best)
        fixed[best].decisions += observe(path, TICKS_FIXED).decisions

    lead = learned.mean - miad.mean
    chance = 2 * math.hypot(miad.error, learned.error)
    said = (f"learned less MIAD {lead:+.4f}, two standard errors {chance:.4f}; SLO {slo} frames/s; best fixed {best / 1e6} GHz {fixed[best]}; MIAD {miad} at {miad.ghz():.2f} GHz; "
            f"learned {learned} at {learned.ghz():.2f} GHz, in charge of {100 * learned.share('learned'):.0f} %; "
            f"{story(agent)}; fixed: " + ", ".join(f"{khz / 1e6} GHz {p}" for khz, p in fixed.items()))
    stages = [stage for stage, _, _ in agent["Stages"]]
    require(stages[:3] == ["initialized", "offline", "online"], f"stages {stages}; {said}")
    require(learned.share("learned") >= 0.8, f"the learned policy is not in charge: "
            f"{learned.decisions[-1]['controller_reason']}; {said}")
    # On an uneven host the best fixed frequency misses the objective in a third of its steps. What three minutes teach a table
    # is then to go up and down as MIAD does, and the two differ by chance.
    require(lead >= -chance, f"MIAD is nearer to the best fixed frequency; {said}")
    return said
