#!/usr/bin/python3
"""A training that is run again, and what its summary says: tests/programs/steps.c."""
import json
import os
import shutil
import signal

from launching import EBB, MIB, PYTHON, Launch, compile_c, cycle, main

NO_STEPS = """
import time
block = bytearray(80 << 20)
time.sleep(1.5)
print(len(block))
"""


class Steps(Launch):
    def run_again(self, *program, budget="60%", code=0, more=()):
        """One more run with the cache of this test; its summary, and what it said."""
        path = os.path.join(self.folder, "summary.json")
        done = self.run_command([EBB, "run", "--budget", budget, "--store", self.store,
                                 "--summary-json", path, *more, "--", *program])
        self.assertEqual(code, done.returncode, done.stderr)
        if code == 0:
            self.assertEqual(self.plain(*program).stdout, done.stdout)
        with open(path, encoding="utf-8") as file:
            return json.load(file), done.stderr

    def tearDown(self):
        shutil.rmtree(os.path.join(self.cache, "ebb"), ignore_errors=True)  # nothing is learnt in some
        super().tearDown()

    def test_what_stays_takes_no_place(self):
        """What the first step makes for good has sizes of later blocks, which are placed."""
        program = [compile_c("steps"), "kept", "36"]
        self.run_again(*program)
        for _ in range(2):
            summary, _ = self.run_again(*program)
            self.assertEqual("used", summary["plan_cache"])
            self.assertLess(10 * summary["placement_misses"], summary["placement_blocks"])

    def test_after_an_early_end(self):
        """The peak of a run that was killed is not that of the next."""
        steps = compile_c("steps")
        early, _ = self.run_again(steps, "large", "40", "14", code=-signal.SIGKILL)
        self.assertLess(early["budget_bytes"], 50 * MIB)
        summary, _ = self.run_again(steps, "large", "40")
        self.assertGreater(summary["unmanaged_peak_bytes"], 150 * MIB)
        self.assertGreater(summary["budget_bytes"], 0.55 * summary["unmanaged_peak_bytes"])

    def test_a_budget_that_grows_is_not_told_too_early(self):
        """The largest operation fits into a share of the peak, but not of the peak so far."""
        summary, said = self.run_again(cycle(), "--iterations", "12", "--layers", "16", "--block",
                                       "4M", "--work", "3")
        self.assertNotIn(b"one operation needs more", said)
        self.assertFalse(summary["budget_exceeded"])

    def test_a_program_that_forks(self):
        """The summary is about the process that trains, not about a child that has its blocks."""
        summary, _ = self.run_again(cycle(), "--iterations", "20", "--layers", "12", "--block",
                                    "4M", "--work", "2", "--fork", budget="70%")
        self.assertEqual(20, summary["iterations"])
        self.assertGreater(summary["planned_iterations"], 0)

    def test_a_child_that_trains(self):
        """Its parent has the data, and more of it than the child adds."""
        summary, _ = self.run_again(compile_c("steps"), "child", "36", budget="200M")
        self.assertGreater(summary["iterations"], 30)
        self.assertGreater(summary["unmanaged_peak_bytes"], 160 * MIB)

    def test_what_does_not_fit_is_told(self):
        """Before the end, if the run is short or its policy makes no plan."""
        for count, more in ("10", []), ("24", ["--policy", "lru"]):
            program = [cycle(), "--iterations", count, "--layers", "12", "--block", "8M",
                       "--persistent", "8M", "--work", "3"]
            summary, said = self.run_again(*program, budget="12%", more=["--no-cache", *more])
            self.assertTrue(summary["budget_exceeded"])
            self.assertGreater(summary["smallest_feasible_bytes"], summary["budget_bytes"])
            self.assertEqual(1, said.count(b"one operation needs more"), said)

    def test_a_budget_that_grew_is_not_exceeded(self):
        """A share of a peak that was not the whole one was exceeded, but not the share of it."""
        summary, _ = self.run_again(compile_c("phases"), "30", "10")
        self.assertLess(summary["peak_resident_bytes"], summary["budget_bytes"])
        self.assertFalse(summary["budget_exceeded"])

    def test_a_store_of_one_after_the_other(self):
        """What three processes have in the store in turn is no more than its limit."""
        one = f"{cycle()} --iterations 6 --layers 12 --block 4M --persistent 8M"
        summary, _ = self.run_again("sh", "-c", f"{one} && {one} && {one}", budget="24M",
                                    more=["--store-limit", "45M"])
        self.assertGreater(summary["store_peak_bytes"], 0)
        self.assertLessEqual(summary["store_peak_bytes"], 45 * MIB)

    def test_a_budget_that_does_not_come(self):
        """Without an iteration there is no peak to take a share of. That is said."""
        program = [PYTHON, "-c", NO_STEPS]
        soon = ["--tune", "budget_open_ns=300000000"]
        summary, said = self.run_again(*program, more=soon)
        self.assertIsNone(summary["budget_bytes"])
        self.assertEqual(1, said.count(b"no budget is in force until then"), said)
        _, said = self.run_again(*program, more=soon, budget="4G")
        self.assertNotIn(b"no budget is in force", said)

    def test_since_when_there_was_a_budget(self):
        """The busiest process comes after the one whose peak is known."""
        first = f"{cycle()} --iterations 20 --layers 8 --block 2M --persistent 8M --work 3"
        script = f"{first} && {compile_c('steps')} kept 20"
        for _ in range(2):
            summary, _ = self.run_again("sh", "-c", script)
            self.assertIsNotNone(summary["budget_bytes"])
            self.assertIsNotNone(summary["budget_from_iteration"])


if __name__ == "__main__":
    main()
