#!/usr/bin/python3
"""Trainings that do more than repeat one iteration, each in less memory than it needs.

Each must have the same results as without Ebb, to the last digit.
"""
import json
import os

from launching import MIB, PYTHON, SOURCE, TIMEOUT, Launch, main

LIFE = os.path.join(SOURCE, "tests", "programs", "torch_life.py")

# For each manner: its budget in MiB, and the number of processes with blocks. A budget is about 60 %
# of the peak. Much less would not hold what one step of the optimizer touches.
MANNERS = {
    "epochs": (60, 1),
    "accumulation": (60, 1),
    "buckets": (50, 1),
    "processes": (140, 6),  # the spawned one, its tracker, and three commands
    "threads": (104, 1),
    "exceptions": (60, 1),
    "interrupt": (60, 1),
}
# Iterations are long and regular: a plan must come into force.
PLANNED_MANNERS = {
    "workers": (60, 7),  # two workers in each of three epochs
    "checkpoint": (64, 1),
    "execute": (60, 2),  # both programs are trainings
}


class Trained(Launch):
    manners = {}
    lines = None  # results without Ebb, by manner

    def setUp(self):
        super().setUp()
        self.env["OMP_NUM_THREADS"] = "1"
        if self.lines is None:
            done = self.run_command([PYTHON, LIFE, *self.manners], timeout=4 * TIMEOUT)
            self.assertEqual(0, done.returncode, done.stderr)
            lines = {line.split()[0].decode(): line for line in done.stdout.splitlines()}
            self.assertEqual(set(self.manners), set(lines))
            type(self).lines = lines

    def train(self, manner):
        budget_mib, processes = self.manners[manner]
        budget_bytes = budget_mib * MIB
        summary = os.path.join(self.folder, "summary.json")
        result = self.run_ebb(PYTHON, LIFE, manner, timeout=4 * TIMEOUT, options=[
            "-q", "--budget", f"{budget_mib}M", "--summary-json", summary])
        self.assertEqual(0, result.returncode, result.stderr)
        self.assertEqual([self.lines[manner]], result.stdout.splitlines())
        self.assert_quiet(result)  # -q allows that no plan fits
        with open(summary, encoding="utf-8") as file:
            figures = json.load(file)
        os.unlink(summary)
        self.assertGreater(figures["moved_out_bytes"], 0)
        self.assertGreater(figures["moved_in_bytes"], 0)
        self.assertEqual(processes, figures["processes"])
        if manner != "processes":  # its peak is that of one process
            self.assertGreater(figures["unmanaged_peak_bytes"], 1.2 * budget_bytes)
        if self.paced:
            self.assertGreater(figures["planned_iterations"], 0)
        peak = figures["peak_resident_bytes"]
        if manner == "workers":  # pages copied by a worker exist twice, which is reported
            self.assertEqual(peak > budget_bytes, figures["budget_exceeded"])
            self.assertLessEqual(peak, 2 * budget_bytes)
        else:
            self.assertLessEqual(peak, budget_bytes)
            self.assertFalse(figures["budget_exceeded"])


class Torch(Trained):
    manners = MANNERS


class PlannedTorch(Trained):
    paced = True
    manners = PLANNED_MANNERS


def add_manners():
    for case in (Torch, PlannedTorch):
        for manner in case.manners:
            def test(self, manner=manner):
                self.train(manner)
            setattr(case, f"test_{manner}", test)


add_manners()


if __name__ == "__main__":
    main()
