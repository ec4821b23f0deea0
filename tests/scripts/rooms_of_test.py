#!/usr/bin/env python3
"""Which rooms scripts/rooms_of names for changed files."""
import pathlib
import subprocess
import sys

ROOMS_OF = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts/rooms_of"


def rooms(*names):
    done = subprocess.run([ROOMS_OF], input="\n".join(names), capture_output=True, text=True, check=True)
    return dict(line.split() for line in done.stdout.splitlines())


def check(what, condition):
    if not condition:
        sys.exit(f"rooms_of_test: {what}")


policy = rooms("policy/guard.cc")
check("a file's own room", policy["policy"] == "touched")
check("who includes it is above", policy["daemon"] == "above" and policy["lab/sim"] == "above")
check("who includes those, too", policy["lab/pretrain"] == "above")
check("who does not is left out", not {"core", "host", "collectors", "learner", "coordinator"} & set(policy))
check("a test is its room's", rooms("tests/policy/guard_test.cc") == policy)
check("a room of the laboratory", rooms("lab/report/svg.cc")["lab/report"] == "touched")
check("its test", rooms("tests/lab/report/report_test.cc")["lab/report"] == "touched")
check("nothing of the product is above the laboratory",
      set(rooms("lab/workloads/trace.cc")) == {"lab/workloads", "lab/sim", "lab/pretrain", "lab/experiments", "fuzz"})
check("the core is under all", {"daemon", "learner", "lab/report", "cli"} - {"cli"} <= set(rooms("core/result.h")))
check("what all are built with touches all", {"cli", "core", "scripts"} <= set(rooms("cmake/flash_test.cmake")))
check("support of tests touches all", "cli" in rooms("tests/support/own_cgroup.h"))
check("documents are read by tests of scripts", rooms("docs/man/flashd.8") == {"scripts": "touched"})
check("whoever writes files is under the test of upgrades", "upgrade" in rooms("sync/outbox.cc"))
check("its files", rooms("tests/upgrade/v0.1.0/store.db") == {"upgrade": "touched"})
check("a picture of nothing", rooms("README.md") == {})
check("no change, no room", rooms() == {})
