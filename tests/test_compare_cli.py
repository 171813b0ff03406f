#!/usr/bin/python3
"""`ebb compare` and `ebb simulate`: keys, figures that agree with `ebb plan`, exit codes,
errors."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

from names import ALLOCATORS, LAB_POLICIES, OWN_POLICIES

EBB = os.path.join(os.environ.get("EBB_BIN_DIR", "build/dev/bin"), "ebb")
MIB = 1 << 20
POLICIES = OWN_POLICIES + LAB_POLICIES
WITHOUT_LAYERS = [policy for policy in POLICIES if not policy.startswith("layrub:")]
BUDGETS = ["40%", "50%", "60%", "70%", "80%", "90%"]
TEXT_COLUMNS = ("policy           budget           bytes        peak      stall  slowdown       moved   "
                "planned")
ROW = {"trace", "policy", "budget_bytes", "peak_bytes", "stall_ns", "iteration_ns", "slowdown",
       "moved_bytes", "plan_ns"}


def run(*arguments):
    done = subprocess.run([EBB, *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def program(layers=6, iterations=4, with_accesses=True):
    """A network with a weight. Forward writes the activations, backward reads them."""
    lines, now = [], 0

    def emit(op, block, mib, step=200_000):
        nonlocal now
        now += step
        if with_accesses or op in ("Malloc", "Free"):
            lines.append(f"{op} {block:#x} {mib * MIB} {now}")

    for _ in range(iterations):
        for layer in range(1, layers + 1):
            emit("Read", 0x1000, 3)
            emit("Malloc", layer, 4 + layer)
            emit("Mutable", layer, 4 + layer)
        for layer in range(layers, 0, -1):
            emit("Read", layer, 4 + layer)
            emit("Free", layer, 4 + layer)
        emit("Mutable", 0x1000, 3)
    return "\n".join(lines) + "\n"


class Compare(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.trace = self.path("trace.csv", program())

    def path(self, name, text=None):
        path = os.path.join(self.folder.name, name)
        if text is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return path

    def json(self, *arguments, code=0):
        done, out, err = run(*arguments, "--json")
        self.assertEqual((done, err), (code, ""))
        return json.loads(out)

    def test_rows_agree_with_plan(self):
        found = self.json("compare", self.trace, "--machine", "pcie3", "--budgets",
                          "60%,40MiB,zero-stall", "--policies", "ebb,fifo,lru")
        self.assertEqual(found["schema"], "ebb.compare/1")
        self.assertEqual([(row["budget"], row["policy"]) for row in found["rows"]],
                         [(budget, policy) for budget in ("60%", "40MiB", "zero-stall")
                          for policy in ("ebb", "fifo", "lru")])
        for row in found["rows"]:
            self.assertLessEqual(ROW, set(row))
            wanted = (["--zero-stall"] if row["budget"] == "zero-stall"
                      else ["--budget", row["budget"]])
            plan = self.json("plan", self.trace, "--machine", "pcie3", "--policy", row["policy"],
                             *wanted, code=0 if row["feasible"] else 3)
            if row["policy"] == "ebb" and row["stall_ns"] > 0:  # its time limit is real time
                self.assertAlmostEqual(row["iteration_ns"], plan["iteration_ns"],
                                       delta=plan["iteration_ns"] / 50)
                continue
            for key in ("budget_bytes", "peak_bytes", "stall_ns", "iteration_ns", "feasible"):
                self.assertEqual(row[key], plan[key], key)
            self.assertEqual(row["moved_bytes"], plan["moved_out_bytes"] + plan["moved_in_bytes"])
            if row["budget"] == "zero-stall":
                self.assertEqual((row["stall_ns"], row["slowdown"]), (0, 1.0))

    def test_budgets_for_slowdowns(self):
        asked = ("compare", self.trace, "--machine", "pcie3", "--policies", "ebb,lru",
                 "--at-slowdown", "0,5,20")
        found = self.json(*asked)
        self.assertEqual(found["schema"], "ebb.budget-at/1")
        self.assertEqual([(row["policy"], row["at_percent"]) for row in found["rows"]],
                         [(policy, at) for policy in ("ebb", "lru") for at in (0, 5, 20)])
        for row in found["rows"]:
            plan = self.json("plan", self.trace, "--machine", "pcie3", "--policy", row["policy"],
                             "--budget", str(row["budget_bytes"]))
            self.assertLessEqual(plan["iteration_ns"] / (plan["iteration_ns"] - plan["stall_ns"]),
                                 1.0001 + row["at_percent"] / 100)
            self.assertAlmostEqual(row["share"], row["budget_bytes"] / row["peak_bytes"], 4)
        budgets = [row["budget_bytes"] for row in found["rows"]]
        self.assertLess(budgets[0], budgets[3])
        slower = self.json(*asked, "--scale-time", "0.05")
        self.assertGreater(slower["rows"][1]["budget_bytes"], budgets[1])
        code, out, err = run(*asked)
        self.assertEqual((code, err), (0, ""))
        self.assertEqual([line.split()[0] for line in out.splitlines()],
                         [self.trace, "policy", "ebb", "lru"])

    def test_scaled_times(self):
        plan = self.path("plan.json")
        options = ("--machine", "pcie3", "--scale-time", "0.5")
        made = self.json("plan", self.trace, *options, "--budget", "70%", "-o", plan)
        whole = self.json("plan", self.trace, "--machine", "pcie3", "--budget", "100%")
        self.assertAlmostEqual(made["iteration_ns"] - made["stall_ns"], whole["iteration_ns"] / 2,
                               delta=1)
        seen = self.json("simulate", self.trace, plan, *options[2:])
        self.assertEqual(seen["iteration_ns"], made["iteration_ns"])
        code, _, err = run("simulate", self.trace, plan)
        self.assertEqual(code, 1)
        self.assertIn("the plan was made for another trace", err)

    def test_footprints(self):
        load = (3 + sum(4 + layer for layer in range(1, 7))) * MIB
        found = self.json("compare", self.trace, "--machine", "pcie3", "--policies", "none")
        held = {row["allocator"]: row for row in found["footprints"]}
        self.assertEqual(set(held), {*ALLOCATORS, "ebb"})
        for row in held.values():
            self.assertEqual((row["trace"], row["load_bytes"]), (self.trace, load))
            self.assertGreaterEqual(row["held_bytes"], load)
            self.assertAlmostEqual(row["ratio"], row["held_bytes"] / load, 4)
        self.assertEqual({name for name in held if held[name]["scope"] == "iteration"}, {"ebb"})
        self.assertEqual(held["ebb"]["held_bytes"], load)
        self.assertEqual(held["cnmem"]["held_bytes"], 256 * MIB)
        # Three segments of 20 MiB hold 3 + 5 + 6, 7 + 8, and 9 + 10. The last MiB is not split off.
        self.assertEqual(held["torch"]["held_bytes"], 3 * 20 * MIB)

    def test_without_accesses(self):
        trace = self.path("pool.csv", program(with_accesses=False))
        found = self.json("compare", trace, self.trace, "--machine", "pcie3", "--budgets", "80%",
                          "--policies", "ebb")
        self.assertEqual([row["trace"] for row in found["rows"]], [self.trace])
        self.assertEqual({row["trace"] for row in found["footprints"]}, {trace, self.trace})
        code, out, err = run("compare", trace, self.trace, "--machine", "pcie3")
        self.assertEqual((code, err), (0, ""))
        # The text has a table of plans for each budget, with a row for each policy, if the trace
        # has accesses. It has a table of allocators for each trace.
        tables = [table.split("\n") for table in out.strip("\n").split("\n\n")]
        self.assertEqual(tables[0][:2], [self.trace, TEXT_COLUMNS])
        rows = [tuple(line.split()[:2]) for table in [tables[0][2:], *tables[1:6]]
                for line in table]
        self.assertEqual(rows, [(policy, budget) for budget in BUDGETS
                                for policy in WITHOUT_LAYERS])
        self.assertEqual([(table[0], [line.split()[0] for line in table[1:]])
                          for table in tables[6:]],
                         [(path, ["allocator", *ALLOCATORS, "ebb"])
                          for path in (trace, self.trace)])

    def test_simulate_confirms_plans(self):
        plan = self.path("plan.json")
        for policy in ("ebb", "appobmem", "autoswap:vote", "fifo", "lru", "none"):
            made = self.json("plan", self.trace, "--machine", "pcie3", "--policy", policy,
                             "--budget", "100%" if policy == "none" else "70%", "-o", plan)
            seen = self.json("simulate", self.trace, plan)
            self.assertEqual(seen["schema"], "ebb.simulate/1")
            self.assertEqual(seen["machine"], "pcie3")
            for key in ("peak_bytes", "stall_ns", "iteration_ns", "moved_out_bytes",
                        "moved_in_bytes", "feasible", "budget_bytes"):
                self.assertEqual(seen[key], made[key], (policy, key))
        self.json("plan", self.trace, "--machine", "pcie5", "--budget", "70%", "-o", plan)
        fast, slow = (self.json("simulate", self.trace, plan, "--machine", machine)
                      for machine in ("pcie5", "nvme"))
        self.assertLess(fast["stall_ns"], slow["stall_ns"])
        tight = self.json("simulate", self.trace, plan, "--budget", "1M", code=3)
        self.assertFalse(tight["feasible"])
        # As in `ebb plan`, a percentage refers to the peak without a plan.
        half = self.json("simulate", self.trace, plan, "--budget", "50%", code=3)
        whole = self.json("plan", self.trace, "--machine", "pcie5", "--budget", "100%")
        self.assertEqual(half["budget_bytes"], whole["budget_bytes"] // 2)
        code, out, err = run("simulate", self.trace, plan)
        self.assertEqual((code, err), (0, ""))
        self.assertEqual([line.split()[0] for line in out.splitlines()],
                         ["plan", "budget", "peak", "stall", "iteration", "moved"])
        self.assertEqual([line.count("predicted") for line in out.splitlines()],
                         [0, 0, 1, 1, 0, 0])

    def test_errors(self):
        plan = self.path("plan.json")
        self.json("plan", self.trace, "--machine", "pcie3", "--budget", "70%", "-o", plan)
        other = self.path("other.csv", program(layers=5))
        for arguments, code, text in (
                (["simulate", other, plan], 1, f"{plan}: the plan was made for another trace"),
                (["simulate", self.trace, self.trace], 1, f"{self.trace}: line 1: "),
                (["simulate", self.trace, self.path("gone")], 1, "cannot be opened"),
                (["simulate", self.trace], 2, "give FILE and PLAN"),
                (["simulate", self.trace, plan, "--budget", "x"], 2, "x: not a size nor a percentage"),
                (["simulate", self.trace, plan, "--machine", "x"], 2, "x: "),
                (["compare"], 2, "no FILE given"),
                (["compare", self.trace, "--policies", "ebb,what"], 2, "'what'"),
                (["compare", self.trace, "--budgets", "60%,"], 2, "'' is no budget"),
                (["compare", self.trace, "--budgets", "nan"], 2, "'nan' is no budget"),
                (["compare", self.trace, "--at-slowdown", "5,x"], 2, "'5,x' is no list of percentages"),
                (["compare", self.trace, "--at-slowdown", "5", "--policies", "what"], 2, "'what'"),
                (["compare", self.trace, "--what"], 2, "--what"),
                (["compare", self.path("gone"), "--machine", "pcie3"], 1, "cannot be opened")):
            done, out, err = run(*arguments)
            self.assertEqual((done, out), (code, ""), arguments)
            self.assertTrue(err.startswith(f"ebb: {arguments[0]}: "), err)
            self.assertIn(text, err)
        with open(plan, encoding="utf-8") as file:
            damaged = json.load(file)
        damaged["absences"][0]["bytes"] += 1
        bad = self.path("bad.json", json.dumps(damaged))
        code, _, err = run("simulate", self.trace, bad)
        self.assertEqual(code, 1)
        self.assertIn("absence 0: its block has another size in the trace", err)


if __name__ == "__main__":
    if os.environ.get("EBB_LAB") == "OFF":
        print("skipped: needs lab")
        sys.exit(77)
    sys.exit(unittest.main())
