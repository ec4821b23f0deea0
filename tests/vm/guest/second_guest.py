"""The second guest, as checks in the first one use it: its power, and what shall be done there.

The exchange is the folder `second` of the share, which both guests have. The rig reads `wanted` and writes `state`
(rig/second.py); a function of second_node.py is called by question-N.json, and answer-N.json is what it returned or why
it failed.
"""

import itertools
import json
import pathlib
import subprocess
import time
import traceback

from checks import SHARE, Failed, eventually, read, require

SECOND = "flashd.guest=second"  # on its kernel's command line
FOLDER = SHARE / "second"

_numbers = itertools.count(1)
_on = False


# In the first guest.

def power_on() -> None:
    global _on
    _on = True
    _switch("on")


def power_off() -> None:
    """Pulls the plug; nothing to do if it is out."""
    global _on
    if _on:
        _switch("off")
        _on = False


def ask(function: str, *arguments, seconds: float = 60):
    """What that function of second_node.py returns there. Its failure is one here."""
    n = next(_numbers)
    _put(FOLDER / f"question-{n}.json", {"function": function, "arguments": arguments})
    answer = FOLDER / f"answer-{n}.json"

    def there() -> bool:
        _require_on()
        return answer.exists()
    eventually(f"the second guest answers to {function}", there, seconds)
    told = json.loads(answer.read_text())
    if "failed" in told:
        raise Failed(f"second guest: {told['failed']}")
    return told["returned"]


def _switch(word: str) -> None:
    before = read(FOLDER / "state")
    (FOLDER / "wanted").write_text(word)
    eventually(f"the second guest is {word}", lambda: before == word or read(FOLDER / "state") != before, 30)
    if word == "on":
        _require_on()


def _require_on() -> None:
    state = read(FOLDER / "state")
    require(state == "on", f"the second guest is not on: {state}")


def _put(path: pathlib.Path, value) -> None:
    fresh = path.with_suffix(".fresh")
    fresh.write_text(json.dumps(value))
    fresh.rename(path)


# In the second guest.

def serve() -> None:
    """Answers questions until the plug is pulled."""
    import second_node
    with open(FOLDER / "journal.txt", "w") as journal:
        subprocess.Popen(["journalctl", "-b", "-f", "-n", "all", "-o", "short-monotonic"], stdout=journal)
    for n in itertools.count(1):
        question = FOLDER / f"question-{n}.json"
        while not question.exists():
            time.sleep(0.1)
        if not (FOLDER / f"answer-{n}.json").exists():
            _put(FOLDER / f"answer-{n}.json", _answer(second_node, **json.loads(question.read_text())))


def _answer(module, function: str, arguments: list) -> dict:
    try:
        return {"returned": getattr(module, function)(*arguments)}
    except Failed as why:
        return {"failed": str(why)}
    except Exception:
        return {"failed": traceback.format_exc(limit=-4)}
