#!/usr/bin/env python3
"""rig/progress.py without a guest: a share that a test fills."""

import json
import pathlib
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "rig"))

import progress  # noqa: E402


def result(name: str, status: str = "pass", detail: str = "") -> dict:
    return {"name": name, "status": status, "seconds": 1.0, "detail": detail}


class Follow(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="flashd-test-progress-")
        self.addCleanup(folder.cleanup)
        self.share = pathlib.Path(folder.name)
        self.attended = 0
        self.running = True

    def tell(self, *lines: dict) -> None:
        with open(self.share / "progress.jsonl", "a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    def follow(self, seconds: float = 5, boot: float = 5, grace: float = 5):
        def attend():
            self.attended += 1
        return progress.follow(lambda: self.running, attend, self.share, time.monotonic() + seconds,
                               progress.Patience(boot, grace))

    def test_all_is_told_and_done(self):
        self.tell({"selected": ["a", "b"]}, {"begun": "a", "seconds": 1}, result("a"), {"begun": "b", "seconds": 1},
                  result("b", "fail", "why"))
        (self.share / "done").touch()
        self.assertEqual(self.follow(), (["a", "b"], [result("a"), result("b", "fail", "why")], None))
        self.assertEqual(self.attended, 1)

    def test_a_line_that_is_not_whole_is_left_for_later(self):
        self.tell({"selected": ["a"]}, result("a"))
        with open(self.share / "progress.jsonl", "a") as file:
            file.write('{"name": "b", "sta')
        (self.share / "done").touch()
        self.assertEqual(self.follow()[1], [result("a")])

    def test_hangs_during_its_boot(self):
        self.assertEqual(self.follow(boot=0.2), ([], [], "it hangs: nothing more came from it during its boot"))

    def test_hangs_during_a_check_beyond_what_that_may_take(self):
        self.tell({"selected": ["a", "b"]}, result("a"), {"begun": "b", "seconds": 0.4})
        began = time.monotonic()
        self.assertEqual(self.follow(grace=0.2),
                         (["a", "b"], [result("a")], "it hangs: nothing more came from it during b"))
        self.assertGreater(time.monotonic() - began, 0.55)

    def test_hangs_after_its_last_check(self):
        self.tell({"selected": ["a"]}, {"begun": "a", "seconds": 100}, result("a"))
        self.assertEqual(self.follow(grace=0.2)[2], "it hangs: nothing more came from it during its end")

    def test_time_is_up_during_a_check(self):
        self.tell({"selected": ["a"]}, {"begun": "a", "seconds": 100})
        self.assertEqual(self.follow(seconds=0.2)[2], "time is up, during a")

    def test_ends_before_its_checks(self):
        self.tell({"selected": ["a"]}, {"begun": "a", "seconds": 100})
        self.running = False
        self.assertEqual(self.follow()[2], "it ended before its checks, during a")

    def test_the_runner_breaks(self):
        (self.share / "broken").write_text("Traceback")
        (self.share / "done").touch()
        self.assertEqual(self.follow()[2], "the check runner broke: Traceback")


class Take(unittest.TestCase):
    def test_what_was_not_reached_has_failed(self):
        outcomes = {}
        progress.take(outcomes, ["a", "b"], [result("a")], "it hangs", 1)
        self.assertEqual(outcomes["a"], result("a"))
        self.assertEqual(outcomes["b"], {"name": "b", "status": "fail", "seconds": 0, "detail": "not run: it hangs"})

    def test_a_second_try_counts_and_the_first_is_not_forgotten(self):
        outcomes = {}
        progress.take(outcomes, ["a"], [result("a", "fail", "first")], None, 1)
        progress.take(outcomes, ["a"], [result("a", "pass", "well")], None, 2)
        self.assertEqual(outcomes["a"], {**result("a", "pass", "well"), "try": 2, "earlier": ["first"]})

    def test_twice_failed_is_failed(self):
        outcomes = {}
        for attempt in (1, 2, 3):
            progress.take(outcomes, ["a"], [result("a", "fail", f"try {attempt}")], None, attempt)
        self.assertEqual(outcomes["a"], {**result("a", "fail", "try 3"), "try": 3, "earlier": ["try 1", "try 2"]})

    def test_what_had_passed_stays_passed(self):
        outcomes = {}
        progress.take(outcomes, ["a"], [result("a")], None, 1)
        progress.take(outcomes, ["a"], [result("a", "fail", "only needed")], None, 2)
        self.assertEqual(outcomes["a"], result("a"))


if __name__ == "__main__":
    unittest.main()
