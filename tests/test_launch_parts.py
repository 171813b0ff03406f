#!/usr/bin/python3
"""A program that keeps all its tensors in one block has the same bytes, within the budget, by a
plan."""
import json
import os

from launching import MIB, Launch, compile_c, main


class OneBlock(Launch):
    def run_arena(self, budget, *arguments):
        program = [compile_c("arena"), "--bytes", "128M", *arguments]
        plain = self.plain(*program).stdout
        path = os.path.join(self.folder, "summary.json")
        result = self.run_ebb(*program, options=["--budget", budget, "--summary-json", path])
        self.assertEqual((0, plain), (result.returncode, result.stdout), result.stderr)
        with open(path, encoding="utf-8") as file:
            summary = json.load(file)
        self.assertFalse(summary["budget_exceeded"])
        return summary

    def test_allocated_in_each_iteration(self):
        for budget in ("60%", "80M"):
            summary = self.run_arena(budget, "--ranges", "16", "--iterations", "10", "--wait", "5")
            self.assertGreaterEqual(summary["planned_iterations"], 3)
            self.assertGreater(summary["moved_in_bytes"], 0)
            self.assertEqual(0, summary["mismatches"])
            self.assertLessEqual(summary["peak_resident_bytes"], summary["budget_bytes"])
            # Without a plan, each of about thirty absent units would be a fault.
            self.assertLess(summary["demand_faults_planned_median"], 15)

    def test_allocated_once(self):
        """Accesses are the clock, since the program calls malloc only at the start."""
        summary = self.run_arena("60%", "--ranges", "16", "--iterations", "12", "--wait", "5",
                                 "--once")
        self.assertGreaterEqual(summary["planned_iterations"], 3)
        self.assertGreater(summary["moved_in_bytes"], 0)
        self.assertLessEqual(summary["peak_resident_bytes"], summary["budget_bytes"])

    def test_allocated_once_with_a_profile(self):
        """The plan follows accesses: it is sent once the block is there, in the first iteration."""
        first, second = self.run_twice(
            compile_c("arena"), "--bytes", "128M", "--ranges", "16", "--iterations", "12", "--wait",
            "5", "--once", options=["--budget", "60%"])
        self.assertEqual(("none", "used"), (first["plan_cache"], second["plan_cache"]))
        self.assertGreater(first["planned_from_iteration"], 0)
        self.assertLessEqual(second["planned_from_iteration"], 1)

    def test_half_of_the_block_is_too_little_for_no_range(self):
        summary = self.run_arena("40M", "--ranges", "40", "--iterations", "6")
        self.assertLessEqual(summary["peak_resident_bytes"], 40 * MIB)


if __name__ == "__main__":
    main()
