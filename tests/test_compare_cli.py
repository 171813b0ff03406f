#!/usr/bin/python3
"""`ebb compare` and `ebb simulate`: keys, figures that agree with `ebb plan`, exit codes, errors.

The texts of `ebb compare` are in tests/golden/. After a change that is meant:

    EBB_BIN_DIR=build/dev/bin tests/test_compare_cli.py --bless

writes them anew. Look at the difference. Planning times are masked, since they are real time.
"""
import csv
import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from xml.etree import ElementTree

from names import ALLOCATORS, LAB_POLICIES, OWN_POLICIES

EBB = os.path.join(os.environ.get("EBB_BIN_DIR", "build/dev/bin"), "ebb")
MIB = 1 << 20
POLICIES = OWN_POLICIES + LAB_POLICIES
WITHOUT_LAYERS = [policy for policy in POLICIES if not policy.startswith("layrub:")]
BUDGETS = ["40%", "50%", "60%", "70%", "80%", "90%"]
COLUMNS = 100  # of any text
GOLDEN = os.path.join(os.environ.get("EBB_SOURCE_DIR") or
                      os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "golden")
BLESS = "--bless" in sys.argv
POOLS = ["ebb", "smartpool"]  # in the footprints
ROW = {"trace", "policy", "budget_bytes", "peak_bytes", "stall_ns", "iteration_ns", "slowdown",
       "moved_bytes", "plan_ns", "machine", "seed", "plan", "lower_bound_bytes",
       "lower_bound_stall_ns", "gap", "moved_out_bytes", "moved_in_bytes", "absences",
       "unmanaged_peak_bytes", "timed_out"}
# name of the golden file: arguments; net.csv and deep.csv are in the folder
TEXTS = {
    "compare": ["net.csv", "--machine", "pcie3", "--budgets", "70%,50%,zero-stall", "--policies",
                "ebb,fifo,lru,none,vdnn:all"],
    "compare-many": ["net.csv", "deep.csv", "--machine", "pcie3,nvme", "--budgets",
                     "80%,60%,zero-stall", "--policies", "fifo,autoswap:doa,lru", "--pools",
                     "bestfit,smartpool"],
    "compare-help": ["--help"],
}


# A search that ends early. Rows and plans get the same effort.
LITTLE = ("--tune", "plan_steps=1000000", "--tune", "zero_stall_steps=10000000")


def run(*arguments, **more):
    done = subprocess.run([EBB, *arguments], capture_output=True, text=True, check=False, **more)
    return done.returncode, done.stdout, done.stderr


def catches(pid, number):
    """True if the process has a handler for the signal."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        caught = re.search(r"^SigCgt:\s+(\w+)", file.read(), re.M).group(1)
    return int(caught, 16) >> (number - 1) & 1


def heed_interrupts():
    """In a child. What a shell starts in the background ignores them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def masked(text):
    """The text without what depends on the machine: planning times, the last column."""
    return re.sub(r"(?m)^(\S+ .* \d+) +\d+\.\d{3}$", r"\1        s", text)


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


class Case(unittest.TestCase):
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



class Compare(Case):
    def test_rows_agree_with_plan(self):
        found = self.json("compare", self.trace, "--machine", "pcie3", "--budgets",
                          "60%,40MiB,zero-stall", "--policies", "ebb,fifo,lru", *LITTLE)
        self.assertEqual(found["schema"], "ebb.compare/1")
        self.assertEqual([(row["budget"], row["policy"]) for row in found["rows"]],
                         [(budget, policy) for budget in ("60%", "40MiB", "zero-stall")
                          for policy in ("ebb", "fifo", "lru")])
        for row in found["rows"]:
            self.assertLessEqual(ROW, set(row))
            wanted = (["--zero-stall"] if row["budget"] == "zero-stall"
                      else ["--budget", row["budget"]])
            plan = self.json("plan", self.trace, "--machine", "pcie3", "--policy", row["policy"],
                             *wanted, *LITTLE, code=0 if row["feasible"] else 3)
            if row["policy"] == "ebb" and row["stall_ns"] > 0:  # its time limit is real time
                self.assertAlmostEqual(row["iteration_ns"], plan["iteration_ns"],
                                       delta=plan["iteration_ns"] / 50)
                continue
            for key in ("budget_bytes", "peak_bytes", "stall_ns", "iteration_ns", "feasible"):
                self.assertEqual(row[key], plan[key], key)
            for key in ("lower_bound_bytes", "lower_bound_stall_ns", "absences", "gap",
                        "moved_out_bytes", "moved_in_bytes", "smallest_feasible_bytes"):
                if row["feasible"]:  # ebb plan has no bound on what is not possible
                    self.assertAlmostEqual(row[key], plan[key], 4, key)
            self.assertEqual(row["moved_bytes"], plan["moved_out_bytes"] + plan["moved_in_bytes"])
            if row["budget"] == "zero-stall":
                self.assertEqual((row["stall_ns"], row["slowdown"]), (0, 1.0))

    def test_budgets_for_slowdowns(self):
        asked = ("compare", self.trace, "--machine", "pcie3", "--policies", "ebb,lru",
                 "--at-slowdown", "0,5,20", *LITTLE)
        found = self.json(*asked)
        self.assertEqual(found["schema"], "ebb.budget-at/1")
        self.assertEqual([(row["policy"], row["at_percent"]) for row in found["rows"]],
                         [(policy, at) for policy in ("ebb", "lru") for at in (0, 5, 20)])
        for row in found["rows"]:
            plan = self.json("plan", self.trace, "--machine", "pcie3", "--policy", row["policy"],
                             "--budget", str(row["budget_bytes"]), *LITTLE)
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
        self.assertEqual(set(held), {*ALLOCATORS, *POOLS})
        for row in held.values():
            self.assertEqual((row["trace"], row["load_bytes"]), (self.trace, load))
            self.assertGreaterEqual(row["held_bytes"], load)
            self.assertAlmostEqual(row["ratio"], row["held_bytes"] / load, 4)
        self.assertEqual({name for name in held if held[name]["scope"] == "iteration"}, set(POOLS))
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
        self.assertEqual(tables[0][0], self.trace)
        rows = [(line.split()[0], table[0].split()[1].rstrip(":")) for table in tables[1:7]
                for line in table[3:]]
        self.assertEqual(rows, [(policy, budget) for budget in BUDGETS
                                for policy in WITHOUT_LAYERS])
        self.assertEqual([(table[0], [line.split()[0] for line in table[1:]])
                          for table in tables[8:]],
                         [(path, ["allocator", *ALLOCATORS, *POOLS])
                          for path in (trace, self.trace)])

    def test_simulate_confirms_plans(self):
        plan = self.path("plan.json")
        for policy in ("ebb", "appobmem", "autoswap:vote", "fifo", "lru", "none"):
            made = self.json("plan", self.trace, "--machine", "pcie3", "--policy", policy,
                             "--budget", "100%" if policy == "none" else "70%", "-fo", plan)
            seen = self.json("simulate", self.trace, plan)
            self.assertEqual(seen["schema"], "ebb.simulate/1")
            self.assertEqual(seen["machine"], "pcie3")
            for key in ("peak_bytes", "stall_ns", "iteration_ns", "moved_out_bytes",
                        "moved_in_bytes", "feasible", "budget_bytes"):
                self.assertEqual(seen[key], made[key], (policy, key))
        self.json("plan", self.trace, "--machine", "pcie5", "--budget", "70%", "-fo", plan)
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
                (["compare", self.trace, "--at-slowdown", "5", "--csv", "rows.csv"], 2,
                 "--at-slowdown has no --csv"),
                (["compare", self.trace, "--at-slowdown", "5", "--plot", "p.svg"], 2,
                 "--at-slowdown has no --plot"),
                (["compare", self.trace, "--what"], 2, "--what"),
                (["compare", self.trace, "--machine", "pcie3,what"], 2, "what: "),
                (["compare", self.trace, "--machine", "pcie3,pcie3"], 2, "another machine is called"),
                (["compare", self.trace, "--pools", "ebb,what"], 2, "no pool is called 'what'"),
                (["compare", self.trace, "--seeds", "0"], 2, "is not a whole number above 0"),
                (["compare", self.trace, "--seeds", "1001"], 2, "--seeds: at most 1000"),
                (["compare", self.trace, "--time-limit", "x"], 2, "is no number of seconds"),
                (["compare", self.trace, "--csv", "x", "--plot", "x"], 2, "name the same file"),
                (["compare", self.trace, "--csv", self.path("gone/x"), "--machine", "pcie3"], 1,
                 "x: cannot be written: No such file or directory"),
                (["compare", self.path("once.csv", program(iterations=1)), "--machine", "pcie3"], 1,
                 "once.csv: holds no repeating iteration"),
                (["compare", other, "--plan", plan, "--machine", "pcie3"], 1,
                 f"{plan}: the plan was made for another trace"),
                (["compare", self.trace, "--plan", self.trace, "--machine", "pcie3"], 1,
                 f"{self.trace}: line 1: "),
                (["compare", self.trace, "--plan", self.path("gone"), "--machine", "pcie3"], 1,
                 "cannot be opened"),
                (["compare", self.path("gone"), "--machine", "pcie3"], 1, "cannot be opened")):
            done, out, err = run(*arguments)
            self.assertEqual((done, out), (code, ""), arguments)
            self.assertTrue(err.startswith(f"ebb: {arguments[0]}: "), err)
            self.assertIn(text, err)
        with open(plan, encoding="utf-8") as file:
            damaged = json.load(file)
        damaged["absences"][0]["bytes"] += 1
        bad = self.path("bad.json", json.dumps(damaged))
        for command in (["simulate", self.trace, bad],
                        ["compare", self.trace, "--machine", "pcie3", "--plan", bad]):
            code, out, err = run(*command)
            self.assertEqual((code, out), (1, ""))
            self.assertIn("absence 0: its block has another size in the trace", err)



class Harness(Case):
    """What researchers need beyond a table: own plans, seeds, several traces, files."""

    def setUp(self):
        super().setUp()
        self.net = self.path("net.csv", program())
        self.deep = self.path("deep.csv", program(layers=9))

    def compare(self, *arguments, code=0):
        return self.json("compare", *arguments, "--machine", "pcie3", code=code)

    def test_texts(self):
        for name, arguments in TEXTS.items():
            code, out, err = run("compare", *arguments, cwd=self.folder.name)
            self.assertEqual((code, err), (0, ""))
            for line in out.splitlines():
                self.assertLessEqual(len(line), COLUMNS, line)
                self.assertEqual(line, line.rstrip())
            path = os.path.join(GOLDEN, f"{name}.txt")
            if BLESS:
                os.makedirs(GOLDEN, exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(masked(out))
            with open(path, encoding="utf-8") as file:
                self.assertEqual(masked(out), file.read(), f"{name}: --bless if it is meant")

    def test_wide_text(self):
        """Long names and large figures do not make lines longer."""
        plan = self.path("a-plan-with-a-name-that-is-much-too-long-for-a-column.json")
        self.json("plan", self.net, "--machine", "nvme", "--budget", "50%", "-o", plan)
        code, out, err = run("compare", self.net, self.deep, "--machine", "nvme", "--plan", plan,
                             "--budgets", "50%,123456789012B,60%,70%,80%,90%,95%,99%,100%,zero-stall",
                             "--policies", "ebb,static,lru", "--pools", "bestfit", "--seeds", "2",
                             "--time-limit", "0.02",
                             cwd=self.folder.name)
        self.assertEqual((code, err), (0, ""))
        paths = (self.net, self.deep)
        self.assertEqual([line for line in out.splitlines()
                          if len(line) > COLUMNS and line not in paths], [])

    def test_own_plan(self):
        plan, other = self.path("mine.json"), self.path("other.json")
        made = self.json("plan", self.net, "--machine", "pcie3", "--policy", "fifo", "--budget",
                         "60%", "-o", plan)
        found = self.compare(self.net, "--plan", plan, "--policies", "fifo,lru")
        self.assertEqual([(row["policy"], row["plan"], row["budget"]) for row in found["rows"]],
                         [("fifo", None, "60%"), ("lru", None, "60%"), ("mine.json", plan, "60%")])
        mine, fifo = found["rows"][2], found["rows"][0]
        for key in ROW - {"policy", "plan", "plan_ns"}:
            self.assertEqual(mine[key], fifo[key], key)
        self.assertEqual(mine["iteration_ns"], made["iteration_ns"])
        # Its claims are not believed, and it is simulated on any machine.
        with open(plan, encoding="utf-8") as file:
            boast = json.load(file)
        boast["plan_ns"], boast["gap"] = 1, 0
        self.path("mine.json", json.dumps(boast))
        slow = self.json("compare", self.net, "--plan", plan, "--machine", "nvme", "--policies",
                         "none")["rows"][-1]
        seen = self.json("simulate", self.net, plan, "--machine", "nvme",
                         code=0 if slow["feasible"] else 3)
        self.assertGreater(slow["stall_ns"], mine["stall_ns"])
        for key in ("peak_bytes", "stall_ns", "iteration_ns", "moved_out_bytes", "feasible"):
            self.assertEqual(slow[key], seen[key], key)
        # It is a row of its trace alone. At another budget it has a table of its own.
        self.json("plan", self.deep, "--machine", "pcie3", "--budget", "70%", "-o", other)
        found = self.compare(self.net, self.deep, "--plan", plan, "--plan", other, "--budgets",
                             "80%", "--policies", "fifo")
        self.assertEqual([(row["trace"], row["policy"], row["budget"]) for row in found["rows"]],
                         [(self.net, "fifo", "80%"), (self.net, "mine.json", "60.00%"),
                          (self.deep, "fifo", "80%"), (self.deep, "other.json", "70.00%")])
        self.assertEqual([point["policy"] for point in found["points"]], ["fifo"])

    def test_invalid_plan(self):
        """A plan that cannot be carried out is refused by the checker."""
        plan = self.path("mine.json")
        self.json("plan", self.net, "--machine", "pcie3", "--budget", "60%", "-o", plan)
        with open(plan, encoding="utf-8") as file:
            made = json.load(file)
        made["peak_bytes"] -= 1
        self.path("mine.json", json.dumps(made))
        code, out, err = run("compare", self.net, "--machine", "pcie3", "--plan", plan)
        self.assertEqual((code, out), (1, ""))
        self.assertRegex(err, rf"\Aebb: compare: {re.escape(plan)}: [^\n]+\n\Z")

    def test_seeds(self):
        found = self.compare(self.net, "--budgets", "45%,zero-stall", "--seeds", "3", "--policies",
                             "ebb,autoswap:bo,fifo", *LITTLE)
        seeds = {}
        for row in found["rows"]:
            seeds.setdefault((row["budget"], row["policy"]), []).append(row["seed"])
        self.assertEqual(seeds["45%", "autoswap:bo"], [0, 1, 2])
        self.assertEqual(seeds["45%", "fifo"], [0])  # it leaves nothing to chance
        self.assertEqual(seeds["zero-stall", "ebb"], [0, 1, 2])
        for point in found["points"]:
            if point["works"]:
                self.assertLessEqual(point["slowdown_least"], point["slowdown"])
                self.assertLessEqual(point["slowdown"], point["slowdown_most"])
        # The first seed is the usual plan.
        plan = self.json("plan", self.net, "--machine", "pcie3", "--zero-stall", *LITTLE)
        first = next(row for row in found["rows"] if row["budget"] == "zero-stall")
        self.assertEqual(first["peak_bytes"], plan["peak_bytes"])

    def test_means_and_front(self):
        found = self.compare(self.net, self.deep, "--budgets", "80%,60%,zero-stall", "--policies",
                             "fifo,autoswap:doa,lru,none")
        rows = {(row["trace"], row["policy"], row["budget"]): row for row in found["rows"]}
        for point in found["points"]:
            both = [rows[trace, point["policy"], point["budget"]]
                    for trace in (self.net, self.deep)]
            works = all(row["feasible"] for row in both)
            if point["budget"] == "zero-stall":
                works = works and all(row["stall_ns"] == 0 for row in both)
            self.assertEqual((point["works"], point["traces"]), (works, 2))
            if not works:
                self.assertIsNone(point["slowdown"])
                continue
            self.assertAlmostEqual(point["slowdown"],
                                   (both[0]["slowdown"] * both[1]["slowdown"]) ** 0.5, 4)
            memory = [row["budget_bytes"] / row["unmanaged_peak_bytes"] for row in both]
            self.assertAlmostEqual(point["memory"], (memory[0] * memory[1]) ** 0.5, 4)
        working = [point for point in found["points"] if point["works"]]
        for point in working:
            beaten = [other for other in working
                      if other["memory"] <= point["memory"]
                      and other["slowdown"] <= point["slowdown"]
                      and (other["memory"], other["slowdown"])
                      != (point["memory"], point["slowdown"])]
            self.assertEqual(point["front"], not beaten)

    def test_pools(self):
        found = self.compare(self.net, "--budgets", "70%", "--policies", "fifo,lru,none", "--pools",
                             "bestfit,smartpool")
        self.assertEqual([(row["policy"], row["pool"]) for row in found["pools"]],
                         [(policy, pool) for policy in ("fifo", "lru")
                          for pool in ("bestfit", "smartpool")])  # none is not within 70 %
        plan = self.path("plan.json")
        for row in found["pools"]:
            self.assertGreaterEqual(row["height_bytes"], row["peak_bytes"])
            self.json("plan", self.net, "--machine", "pcie3", "--policy", row["policy"], "--budget",
                      "70%", "-fo", plan)
            if row["policy"] != "lru":  # its file has no absences
                packed = self.json("pack", self.net, "--plan", plan, "--pool", row["pool"])
                self.assertEqual(packed["height_bytes"], row["height_bytes"])

    def test_csv(self):
        out = self.path("rows, all.csv")
        plan = self.path('my "own", plan.json')
        self.json("plan", self.net, "--machine", "pcie3", "--budget", "60%", "-o", plan)
        found = self.compare(self.net, "--budgets", "60%,40%,zero-stall", "--policies",
                             "fifo,static,lru", "--plan", plan, "--csv", out, "--pools", "bestfit")
        with open(out, encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
        self.assertEqual(len(lines), len(found["rows"]))
        heights = {(row["policy"], row["budget"]): row["height_bytes"] for row in found["pools"]}
        for line, row in zip(lines, found["rows"]):
            for key, value in line.items():
                if key in ("works", "bestfit_height_bytes"):
                    continue
                wanted = row[key]
                if isinstance(wanted, float):
                    self.assertAlmostEqual(float(value), wanted, 4, key)
                else:
                    wanted = int(wanted) if isinstance(wanted, bool) else wanted
                    self.assertEqual(value, "" if wanted is None else str(wanted), key)
            height = heights.get((row["policy"], row["budget"]), "")
            self.assertEqual(line["bestfit_height_bytes"], str(height))

    def test_plot(self):
        out = self.path("plot.svg")
        trace = self.path("a&b<c.csv", program(layers=7))
        self.compare(trace, self.deep, "--budgets", "80%,60%,40%", "--policies",
                     "ebb,fifo,autoswap:doa,autoswap:aoa,lru,none", "--plot", out)
        root = ElementTree.parse(out).getroot()
        self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
        texts = ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]
        for wanted in ("geometric means of 2 traces on pcie3", "a&b<c.csv on pcie3",
                       "deep.csv on pcie3", "slow-down of an iteration", "ebb", "autoswap:aoa"):
            self.assertIn(wanted, texts)
        self.assertNotIn("none", texts)  # it is within no budget
        width, height = float(root.get("width")), float(root.get("height"))
        for mark in root.iter("{http://www.w3.org/2000/svg}path"):
            x, y = map(float, re.match(r"M([\d.-]+) ([\d.-]+)", mark.get("d") or "M0 0").groups())
            self.assertTrue(0 <= x <= width and 0 <= y <= height)
        nothing = self.path("nothing.svg")
        self.compare(self.net, "--budgets", "1%", "--policies", "ebb", "--plot", nothing)
        self.assertIn("no plan is within its budget", ElementTree.tostring(
            ElementTree.parse(nothing).getroot(), encoding="unicode"))

    def test_files_are_whole(self):
        """A file that exists is kept. What cannot be written is not left in part."""
        asked = ["compare", self.net, "--machine", "pcie3", "--budgets", "80%", "--policies", "fifo"]
        for option in ("--csv", "--plot"):
            out = self.path("out", "old")
            code, _, err = run(*asked, option, out)
            self.assertEqual((code, err), (1, f"ebb: compare: {out}: exists\n"
                                              "ebb: give another name, or -f to replace it\n"))
            before = sorted(os.listdir(self.folder.name))

            def small():
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
            code, shown, err = run(*asked, option, out, "-f", preexec_fn=small)
            self.assertEqual((code, shown), (1, ""))
            self.assertTrue(err.startswith(f"ebb: compare: {out}: cannot be written: "), err)
            with open(out, encoding="utf-8") as file:
                self.assertEqual(file.read(), "old")
            self.assertEqual(sorted(os.listdir(self.folder.name)), before)
            code, _, err = run(*asked, option, out, "--force")
            self.assertEqual((code, err), (0, ""))
            with open(out, encoding="utf-8") as file:
                self.assertNotEqual(file.read(), "old")
            code, _, err = run(*asked, option, "/dev/full")
            self.assertEqual(code, 1)
            self.assertIn("/dev/full: cannot be written: No space left on device", err)
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([EBB, *asked], stdout=full, stderr=subprocess.PIPE, text=True,
                                  check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard output: cannot be written", done.stderr)
        code, out, err = run(*asked, "--csv", "/dev/stdout")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(next(csv.reader(io.StringIO(out)))[:2], ["trace", "machine"])

    def test_interrupt(self):
        """Ctrl-C shows what is done, and the command ends as interrupted."""
        out = self.path("part.csv")
        with subprocess.Popen([EBB, "compare", self.net, "--machine", "pcie3", "--budgets",
                               ",".join(["45%", "zero-stall"] * 500), "--csv", out, "--json"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              preexec_fn=heed_interrupts) as child:
            while not catches(child.pid, signal.SIGINT):
                time.sleep(0.02)
            time.sleep(0.5)
            child.send_signal(signal.SIGINT)
            shown, err = child.communicate(timeout=60)
        self.assertEqual(child.returncode, -signal.SIGINT)
        found = json.loads(shown)
        self.assertTrue(found["interrupted"])
        self.assertRegex(err, r"\Aebb: compare: interrupted: only the first \d+ plans are shown\n\Z")
        with open(out, encoding="utf-8") as file:
            self.assertEqual(len(list(csv.DictReader(file))), len(found["rows"]))
        self.assertEqual(sorted(os.listdir(self.folder.name)),
                         ["deep.csv", "net.csv", "part.csv", "trace.csv"])


if __name__ == "__main__":
    if os.environ.get("EBB_LAB") == "OFF":
        print("skipped: needs lab")
        sys.exit(77)
    sys.exit(unittest.main(argv=[word for word in sys.argv if word != "--bless"]))
