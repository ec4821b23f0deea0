"""What a guest's checks tell while they run (guest/run_checks.py), and what comes of it over several tries."""

import dataclasses
import json
import pathlib
import time
from typing import Callable


@dataclasses.dataclass(frozen=True)
class Patience:
    """A guest that says nothing for longer hangs."""
    boot: float = 400  # seconds until the first check begins
    grace: float = 90  # beyond what a check may take, and after the last one


def follow(running: Callable[[], bool], attend: Callable[[], None], share: pathlib.Path, deadline: float,
           patience: Patience):
    """Collects and shows results as they come, until the guest says it is done, is late, or the deadline is there.

    Returns the names of the checks that were to run, the results that came, and what was wrong with the guest itself, if
    anything was. Calls attend() all the time."""
    path = share / "progress.jsonl"
    selected, results, read = [], [], 0
    doing, late = "its boot", time.monotonic() + patience.boot
    while True:
        attend()
        # Looked at before reading, so that the last lines are never missed.
        ended = (share / "done").exists() or not running()
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        for line in map(json.loads, lines[read:]):
            if "selected" in line:
                selected = line["selected"]
            elif "begun" in line:
                doing, late = line["begun"], time.monotonic() + line["seconds"] + patience.grace
            else:
                results.append(line)
                doing, late = "its end", time.monotonic() + patience.grace
                print(shown(line), flush=True)
        read = len(lines)
        if (share / "broken").exists():
            return selected, results, "the check runner broke: " + (share / "broken").read_text()
        if ended:
            return selected, results, None if (share / "done").exists() else f"it ended before its checks, during {doing}"
        if time.monotonic() > late:
            return selected, results, f"it hangs: nothing more came from it during {doing}"
        if time.monotonic() > deadline:
            return selected, results, f"time is up, during {doing}"
        time.sleep(0.1)


def take(outcomes: dict[str, dict], selected: list[str], results: list[dict], trouble: str | None, attempt: int) -> None:
    """Adds a try's results to the outcomes by name. A check that was to run and did not has failed.

    The last try counts; what an earlier one said of a check that did not pass stays with it. In a further try, checks that had
    passed run only because others need them: they have passed."""
    ran = {result["name"] for result in results}
    absent = [{"name": name, "status": "fail", "seconds": 0, "detail": f"not run: {trouble}"}
              for name in selected if name not in ran]
    for result in results + absent:
        before = outcomes.get(result["name"])
        if before is None:
            outcomes[result["name"]] = result
        elif before["status"] != "pass":
            earlier = [*before.get("earlier", []), before["detail"]]
            outcomes[result["name"]] = {**result, "try": attempt, "earlier": earlier}


def shown(result: dict) -> str:
    detail = f"  {result['detail']}" if result["detail"] else ""
    return f"{result['status']:4} {result['name']} ({result['seconds']:.1f} s){detail}"


def last_lines(path: pathlib.Path) -> str:
    text = path.read_text(errors="replace") if path.exists() else ""
    return "\n".join("  | " + line for line in text.splitlines()[-120:])
