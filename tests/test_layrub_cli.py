#!/usr/bin/python3
"""`ebb plan`, `ebb compare`, `ebb simulate` and `ebb pack` with policies that go by layers, on a
trace that marks them and on one that does not."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

from names import LAB_POLICIES, OWN_POLICIES
from trace_file import (ACCESS, ALLOC, BACKWARD, FORWARD, FREE, LAYER, MARK, PHASE, READ, TRACE_ON,
                        UPDATE, WRITE, write)

EBB = os.path.join(os.environ.get("EBB_BIN_DIR", "build/dev/bin"), "ebb")
MIB = 1 << 20
LAYRUB = ["layrub:inter", "layrub:intra", "layrub:hybrid"]
LAYERS = 6


def training(marked, iterations=4, step_ns=200_000):
    """Each layer has a weight of 1 MiB, an output of 8 MiB and scratch of 2 MiB."""
    events, now, serial = [], 0, LAYERS

    def put(kind, block, size, access=0):
        nonlocal now
        now += step_ns
        events.append((now, kind, block, size, access))

    def mark(kind, value):
        if marked:
            put(MARK, kind, value)

    def begin(mib):
        nonlocal serial
        serial += 1
        put(ALLOC, serial, mib * MIB)
        return serial

    def scratch():
        put(FREE, begin(2), 2 * MIB)

    put(MARK, TRACE_ON, 0)
    for weight in range(1, LAYERS + 1):
        put(ALLOC, weight, MIB)
    for _ in range(iterations):
        outputs, gradient = {}, None
        mark(PHASE, FORWARD)
        for layer in range(1, LAYERS + 1):
            mark(LAYER, layer)
            outputs[layer] = begin(8)
            put(ACCESS, layer, MIB, READ)
            if layer > 1:
                put(ACCESS, outputs[layer - 1], 8 * MIB, READ)
            put(ACCESS, outputs[layer], 8 * MIB, WRITE)
            scratch()
        mark(PHASE, BACKWARD)
        for layer in range(LAYERS, 0, -1):
            mark(LAYER, layer)
            made = begin(8)
            put(ACCESS, layer, MIB, READ)
            put(ACCESS, outputs[layer], 8 * MIB, READ)
            if gradient:
                put(ACCESS, gradient, 8 * MIB, READ)
            put(ACCESS, made, 8 * MIB, WRITE)
            scratch()
            put(FREE, outputs[layer], 8 * MIB)
            if gradient:
                put(FREE, gradient, 8 * MIB)
            gradient = made
        mark(PHASE, UPDATE)
        mark(LAYER, 0)
        for weight in range(1, LAYERS + 1):
            put(ACCESS, weight, MIB, WRITE)
        put(FREE, gradient, 8 * MIB)
    return events


class Layrub(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        for name in ("marked", "plain"):
            path = os.path.join(cls.folder.name, f"{name}.ebbt")
            write(path, training(name == "marked"))
            setattr(cls, name, path)

    def run_ebb(self, *arguments, code=0):
        done = subprocess.run([EBB, *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def json(self, *arguments, code=0):
        return json.loads(self.run_ebb(*arguments, "--json", code=code).stdout)

    def plan(self, policy, *arguments, code=0):
        return self.json("plan", self.marked, "--machine", "pcie3", "--policy", policy, *arguments,
                         code=code)

    def test_figures(self):
        """Weights are 6 MiB. At the peak there are 6 outputs, 1 or 2 gradients, and scratch."""
        load = self.plan("none", "--budget", "1G")["peak_bytes"]
        peaks = {policy: self.plan(policy, "--budget", "1G")["peak_bytes"] // MIB
                 for policy in ["static", *LAYRUB]}
        self.assertEqual(load // MIB, 6 + 6 * 8 + 8 + 2)
        self.assertEqual(peaks["static"], 6 + 6 * 8 + 6 * 8 + 12 * 2)
        # In layer 6 the gradient lies in output 6. Then output 5 has that of layer 5.
        self.assertEqual(peaks["layrub:intra"], 6 + 6 * 8 + 2)
        # Outputs 1 to 4 are on the host, and one is being fetched.
        self.assertLess(peaks["layrub:inter"], load // MIB)
        self.assertLess(peaks["layrub:hybrid"], peaks["layrub:inter"])

    def test_budgets(self):
        """A policy moves the same whatever the budget, and says what it needs."""
        for policy in LAYRUB:
            found = self.plan(policy, "--budget", "1G")
            tight = self.plan(policy, "--budget", "10%", code=3)
            self.assertFalse(tight["feasible"])
            for key in ("moved_out_bytes", "stall_ns", "peak_bytes", "smallest_feasible_bytes"):
                self.assertEqual(found[key], tight[key], (policy, key))
            self.assertEqual(found["smallest_feasible_bytes"], found["peak_bytes"])
            self.assertEqual(found["moved_out_bytes"] > 0, policy != "layrub:intra")
            # The bound is on plans in which each block has memory of its own.
            self.assertEqual(found["lower_bound_bytes"] is None, policy != "layrub:inter")
        least = self.plan("layrub:intra", "--zero-stall")
        self.assertEqual(least["budget_bytes"], least["peak_bytes"])

    def test_plan_files(self):
        path = os.path.join(self.folder.name, "plan.json")
        for policy in ["static", *LAYRUB]:
            made = self.plan(policy, "--budget", "1G", "-fo", path)
            seen = self.json("simulate", self.marked, path)
            for key in ("peak_bytes", "stall_ns", "iteration_ns", "moved_out_bytes",
                        "moved_in_bytes", "feasible"):
                self.assertEqual(seen[key], made[key], (policy, key))
            with open(path, encoding="utf-8") as file:
                written = json.load(file)
            self.assertEqual(written["keeps_all"], policy == "static")
            self.assertEqual(len(written["shares"]) > 0, policy in LAYRUB[1:])
            self.assertEqual(len(written["barriers"]) > 0, policy in (LAYRUB[0], LAYRUB[2]))
            code = 0 if policy == "layrub:inter" else 1
            done = self.run_ebb("pack", self.marked, "--plan", path, code=code)
            self.assertEqual("says itself which blocks share memory" in done.stderr, code == 1)
        for key, value, said in (
                ("barriers", [5, 4], "member barriers must have ticks of the trace, ascending"),
                ("barriers", [1 << 40], "member barriers must have ticks of the trace, ascending"),
                ("barriers", 7, "member barriers must be an array"),
                ("shares", [{"block": 1}], "shares: member host must be a whole number"),
                ("shares", [{}] * 1000, "member shares has more than"),
                ("keeps_all", 1, "member keeps_all must be true or false"),
                ("keeps_all", True, "its rules are not for the model")):
            with open(path, "w", encoding="utf-8") as file:
                json.dump({**written, key: value}, file)
            # Rules that are well-formed but not for the model are a wrong argument.
            code = 2 if "for the model" in said else 1
            self.assertIn(said, self.run_ebb("simulate", self.marked, path, code=code).stderr)

    def test_compare(self):
        arguments = ("--machine", "pcie3", "--budgets", "100%")
        rows = self.json("compare", self.marked, self.plain, *arguments)["rows"]
        for trace, left_out in ((self.marked, []), (self.plain, LAYRUB)):
            self.assertEqual([row["policy"] for row in rows if row["trace"] == trace],
                             [policy for policy in OWN_POLICIES + LAB_POLICIES
                              if policy not in left_out])
        for row in rows:
            self.assertEqual(row["feasible"], row["policy"] != "static", row["policy"])

    def test_without_marks(self):
        for command in (["plan", self.plain, "--budget", "1G", "--policy", "layrub:inter"],
                        ["plan", self.plain, "--zero-stall", "--policy", "layrub:inter"],
                        ["compare", self.plain, "--policies", "ebb,layrub:inter"]):
            done = self.run_ebb(*command, "--machine", "pcie3", code=1)
            self.assertEqual(done.stdout, "")
            self.assertIn(f"ebb: {command[0]}: layrub:inter: the trace has no layer marks\n",
                          done.stderr)


if __name__ == "__main__":
    if os.environ.get("EBB_LAB") == "OFF":
        print("skipped: needs lab")
        sys.exit(77)
    sys.exit(unittest.main())
