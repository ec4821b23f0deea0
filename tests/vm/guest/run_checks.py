"""Runs the checks in order, tells the share how far it is, then powers off.

Order of files is order of checks. Reads run.json in the share:
  {"only": [GLOB, ...] or null, "keep": bool}
Adds to progress.jsonl there: first the names of all checks that will run, then two lines for each,
  {"selected": [NAME, ...]}
  {"begun": NAME, "seconds": AT_MOST}
  {"name": NAME, "status": "pass", "fail" or "skip", "seconds": TOOK, "detail": TEXT}
In the second guest it runs no list: it does what the checks in the first one ask, see second_guest.py.
"""

import fnmatch
import importlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
import traceback

import checks
import second_guest

MODULES = {
    "x86_64": ("rig_checks", "throttle_checks", "package_checks", "capture_checks", "control_checks", "request_checks",
               "safety_checks", "physical_checks", "learner_checks", "learning_physical_checks", "sync_checks",
               "cluster_checks", "fault_checks", "remove_checks"),
    "aarch64": ("pmu_checks",),
}


class TooSlow(Exception):
    pass


def _alarm(*_):
    raise TooSlow()


def outcome(check: checks.Check) -> tuple[str, str]:
    signal.signal(signal.SIGALRM, _alarm)
    signal.alarm(check.seconds)
    try:
        if check.guests == 1:
            second_guest.power_off()
        return "pass", check.run() or ""
    except checks.Skipped as why:
        return "skip", str(why)
    except checks.Failed as why:
        return "fail", str(why)
    except TooSlow:
        return "fail", f"took longer than {check.seconds} s: " + traceback.format_exc(limit=-3)
    except Exception:  # A check that breaks is a check that fails.
        return "fail", traceback.format_exc(limit=-4)
    finally:
        signal.alarm(0)


def selected(only: list[str] | None) -> list[checks.Check]:
    """The checks that match, and those they need."""
    by_name = {check.name: check for check in checks.CHECKS}
    wanted = {name for name in by_name if only is None or any(fnmatch.fnmatch(name, glob) for glob in only)}
    todo = list(wanted)
    while todo:
        for need in by_name[todo.pop()].needs:
            if need not in wanted:
                wanted.add(need)
                todo.append(need)
    return [check for check in checks.CHECKS if check.name in wanted]


def leave_symbols() -> None:
    """Where the kernel's functions are: the rig names the places of processors that hang."""
    with open("/proc/kallsyms") as symbols, open(checks.SHARE / "kallsyms", "w") as to:
        to.writelines(line for line in symbols if line[17] in "tTwW")


def main() -> None:
    leave_symbols()
    task = json.loads((checks.SHARE / "run.json").read_text())
    for module in MODULES[platform.machine()]:
        importlib.import_module(module)
    todo = selected(task["only"])
    passed = set()
    with open(checks.SHARE / "progress.jsonl", "a", buffering=1) as progress:
        def tell(**line) -> None:
            progress.write(json.dumps(line) + "\n")
        tell(selected=[check.name for check in todo])
        for check in todo:
            tell(begun=check.name, seconds=check.seconds)
            began = time.monotonic()
            missing = [need for need in check.needs if need not in passed]
            if missing:
                status, detail = "fail", "not run, needs " + ", ".join(missing)
            else:
                status, detail = outcome(check)
            if status == "pass":
                passed.add(check.name)
            tell(name=check.name, status=status, seconds=round(time.monotonic() - began, 2), detail=detail)
            print(status, check.name, detail.splitlines()[-1] if detail else "", flush=True)
    end(task["keep"])


def end(keep: bool) -> None:
    with open(checks.SHARE / "journal.txt", "w") as journal:
        subprocess.run(["journalctl", "-b", "-o", "short-monotonic", "--no-pager"], stdout=journal)
    (checks.SHARE / "done").touch()
    if not keep:
        os.sync()
        subprocess.run(["systemctl", "poweroff", "--force", "--force"])


if __name__ == "__main__":
    if second_guest.SECOND in checks.read("/proc/cmdline").split():
        second_guest.serve()
    try:
        main()
    except BaseException:
        (checks.SHARE / "broken").write_text(traceback.format_exc())
        traceback.print_exc()
        end(keep=False)
        sys.exit(1)
