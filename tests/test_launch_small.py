#!/usr/bin/python3
"""Unused small objects are evicted, and are right when they are used again."""
import json
import os

from launching import MIB, Launch, cycle, main

# A peak of 60 MiB in blocks, and as much in small objects.
ARGUMENTS = ["--iterations", "24", "--layers", "12", "--block", "5M", "--persistent", "8M",
             "--work", "2", "--small", "60M"]
SHORT = ["--iterations", "12"]  # without a plan


class Small(Launch):
    def run_cycle(self, budget, *options, more=()):
        path = os.path.join(self.folder, "summary.json")
        plain = self.plain(cycle(), *ARGUMENTS, *more).stdout
        result = self.run_ebb(cycle(), *ARGUMENTS, *more,
                              options=["--budget", budget, "--summary-json", path, *options])
        self.assertEqual((0, plain), (result.returncode, result.stdout), result.stderr)
        with open(path, encoding="utf-8") as file:
            summary = json.load(file)
        return summary

    def assert_kept(self, summary):
        self.assertGreater(summary["slab_peak_bytes"], 50 * MIB)  # the rest, libc has
        self.assertFalse(summary["budget_exceeded"])
        self.assertLessEqual(summary["peak_resident_bytes"], summary["budget_bytes"])

    def test_what_is_not_used_makes_way(self):
        """All blocks fit after the objects are evicted, so nothing else is evicted. A later run,
        whose plan comes before the objects are known to be unused, is no worse."""
        # In the usual half second a fast machine has too many iterations.
        options = ["--budget", "78M", "--tune", "slab_look_ns=100000000"]
        for summary in self.run_twice(cycle(), *ARGUMENTS, options=options, times=3):
            self.assert_kept(summary)
            self.assertLess(summary["slab_used_bytes"], 8 * MIB)
            self.assertGreater(summary["planned_iterations"], 8)
            self.assertEqual(0, summary["mismatches"])
            self.assertLess(summary["moved_out_bytes"], 10 * 60 * MIB)
            self.assertEqual(0, summary["smallest_feasible_bytes"])  # no plan lacked memory

    def test_a_share(self):
        summary = self.run_cycle("50%", "--verify")
        self.assert_kept(summary)
        self.assertLess(summary["slab_used_bytes"], 8 * MIB)

    def test_children_have_all_of_them(self):
        """Each child holds the objects that it reads, in addition to the parent's."""
        summary = self.run_cycle("90M", more=["--fork", *SHORT])
        self.assertGreater(summary["moved_in_bytes"], 60 * MIB)

    def test_threads(self):
        self.assert_kept(self.run_cycle("130M", more=["--threads", "3", *SHORT]))


if __name__ == "__main__":
    main()
