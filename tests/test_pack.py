#!/usr/bin/python3
"""`ebb pack`: exit codes, JSON, the CSV that it writes, and its exact errors."""
import csv
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
EBB = os.path.join(os.environ.get("EBB_BIN_DIR") or os.path.join(SOURCE, "build/release/bin"), "ebb")
DATA = os.environ.get("EBB_DATA") or os.path.join(SOURCE, "..", "shared", "data")

SLOWNESS = 8 if os.environ.get("EBB_SANITIZE") else 1

HEADER = "id,lower,upper,size\n"
STAIRS = HEADER + "a,0,4,4\nb,2,7,4\nc,5,9,4\nd,8,11,6\n"  # load 10
ARCS = HEADER + "a,0,5,4\nb,4,9,4\nc,8,13,4\n"  # on a circle of 12: load 8, height 12


def pack(text, *arguments):
    """Exit code, stdout, stderr, and the files written. The problem is in x.csv."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "x.csv"), "w", encoding="utf-8") as file:
            file.write(text)
        done = subprocess.run([EBB, "pack", "x.csv", *arguments], cwd=folder, text=True,
                              capture_output=True, timeout=60 * SLOWNESS, check=False)
        written = {}
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                written[name] = file.read()
    return done.returncode, done.stdout, done.stderr, written


class Answers(unittest.TestCase):
    def test_json(self):
        code, out, err, _ = pack(STAIRS, "--json")
        found = json.loads(out)
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(list(found)[0], "schema")
        self.assertTrue(0 < found.pop("solve_ns") < 5 * SLOWNESS * 10**9)
        self.assertEqual(found, {
            "schema": "ebb.pack/1", "pool": "ebb", "buffers": 4, "iterations": 0, "load_bytes": 10,
            "height_bytes": 10, "lower_bound_bytes": 10, "optimal": True, "feasible": True,
            "infeasible": False})

    def test_capacity(self):
        self.assertEqual(pack(STAIRS, "--capacity", "10")[0], 0)
        code, out, _, _ = pack(STAIRS, "--capacity", "9", "--json")
        self.assertEqual(code, 3)
        self.assertTrue(json.loads(out)["infeasible"])
        # The problem needs more than the load, and this is proved.
        code, out, _, _ = pack(ARCS, "--period", "12", "--capacity", "11", "--json")
        self.assertEqual((code, json.loads(out)["load_bytes"]), (3, 8))
        # With a pool that proves nothing, the answer is that the effort was not enough.
        code, out, _, _ = pack(ARCS, "--period", "12", "--capacity", "11", "--pool", "bestfit",
                               "--json")
        found = json.loads(out)
        self.assertEqual((code, found["feasible"], found["infeasible"]), (4, False, False))

    def test_out(self):
        code, _, _, written = pack(STAIRS, "-o", "out.csv")
        rows = list(csv.DictReader(io.StringIO(written["out.csv"])))
        self.assertEqual((code, [row["id"] for row in rows]), (0, ["a", "b", "c", "d"]))
        spans = [[int(row[key]) for key in ("lower", "upper", "size", "offset")] for row in rows]
        for lower, upper, size, offset in spans:
            self.assertLessEqual(offset + size, 10)
            for other in spans:
                if other != [lower, upper, size, offset] and other[0] < upper and lower < other[1]:
                    self.assertTrue(offset + size <= other[3] or other[3] + other[2] <= offset)
        # The written file can be packed again.
        self.assertEqual(pack(written["out.csv"])[0], 0)

    def test_text(self):
        _, out, _, _ = pack(STAIRS)
        self.assertIn("height    10 bytes (10 B): no packing is lower\n", out)

    def test_every_pool(self):
        for pool in ("ebb", "portfolio", "exact", "smartpool", "bestfit", "firstfit"):
            code, out, _, _ = pack(STAIRS, "--pool", pool, "--json")
            found = json.loads(out)
            self.assertEqual((code, found["pool"], found["load_bytes"]), (0, pool, 10))
            # Sorted by size, d is placed first, at the bottom. The optimum has a there.
            height = 12 if pool in ("smartpool", "bestfit", "firstfit") else 10
            self.assertEqual(found["height_bytes"], height, pool)


class Planted(unittest.TestCase):
    """Rectangles that are cut without waste. A search in the order of offsets alone fails."""

    def test_optimum_is_near(self):
        for buffers, seed in ((250, 13), (300, 12), (300, 14)):
            cut = subprocess.run([os.path.join(SOURCE, "bench/planted.py"), "--buffers",
                                  str(buffers), "--seed", str(seed), "--even", "2"],
                                 capture_output=True, text=True, timeout=60, check=True)
            found = json.loads(pack(cut.stdout, "--json", "--time-limit",
                                    str(5 * SLOWNESS))[1])
            self.assertLessEqual(found["height_bytes"], 1.05 * (1 << 20), (buffers, seed))


def program(mib=8, step_ns=1_000_000):
    """A trace in SINGA's form. An output is kept during another's life, then read."""
    lines, now = [], 1_000_000_000
    for _ in range(3):
        for kind, block, size in (
                ("Malloc", 1, mib << 20), ("Mutable", 1, mib << 20), ("Malloc", 2, 4 << 20),
                ("Mutable", 2, 4 << 20), ("Free", 2, 4 << 20), ("Malloc", 3, 6 << 20),
                ("Mutable", 3, 6 << 20), ("Free", 3, 6 << 20), ("Malloc", 4, 1 << 20),
                ("Free", 4, 1 << 20), ("Read", 1, mib << 20), ("Free", 1, mib << 20)):
            now += step_ns
            lines.append(f"{kind} {hex(0x10000000 + block * 0x1000000)} {size} {now}")
    return "\n".join(lines) + "\n"


class Planned(unittest.TestCase):
    """With a plan, a block is one buffer for each of its residencies."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        for name, text in (("trace", program()), ("other", program(mib=7)),
                           ("slower", program(step_ns=1_100_000)), ("x.csv", STAIRS)):
            with open(os.path.join(cls.folder.name, name), "w", encoding="utf-8") as file:
                file.write(text)
        lane = {"bytes_per_second": 10e9, "fixed_ns": 1000}
        with open(os.path.join(cls.folder.name, "machine.json"), "w", encoding="utf-8") as file:
            json.dump({"schema": "ebb.machine/1", "out": lane, "in": lane, "duplex": True}, file)
        cls.run_ebb("plan", "trace", "--zero-stall", "--machine", "machine.json", "-o", "plan.json")

    @classmethod
    def run_ebb(cls, *arguments):
        done = subprocess.run([EBB, *arguments], cwd=cls.folder.name, text=True,
                              capture_output=True, timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_addresses(self):
        code, out, err = self.run_ebb("pack", "trace", "--plan", "plan.json", "--json", "-o", "out.csv")
        self.assertEqual((code, err), (0, ""))
        found = json.loads(out)
        with open(os.path.join(self.folder.name, "plan.json"), encoding="utf-8") as file:
            plan = json.load(file)
        # The output is absent while the second and third block live. The load is 9 MiB during its
        # fetch.
        self.assertEqual(len(plan["absences"]), 1)
        self.assertEqual(found["plan_peak_bytes"], plan["peak_bytes"])
        self.assertEqual(found["load_bytes"], plan["peak_bytes"])
        self.assertLess(plan["peak_bytes"], 14 << 20)
        self.assertEqual((found["buffers"], found["height_bytes"]), (5, plan["peak_bytes"]))
        with open(os.path.join(self.folder.name, "out.csv"), encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        away = str(plan["absences"][0]["serial"])
        ids = [row["id"] for row in rows]
        self.assertEqual(len(set(ids)), 5)
        first, second = rows[ids.index(away)], rows[ids.index(away + ".1")]
        self.assertLess(int(first["upper"]), int(second["lower"]))
        self.assertLess(int(second["upper"]), 15)  # 12 events and 2 copies on the circle
        # The written file is a normal packing problem with the same height.
        with open(os.path.join(self.folder.name, "out.csv"), encoding="utf-8") as file:
            again = json.loads(pack(file.read(), "--period", "14", "--json")[1])
        self.assertEqual(again["height_bytes"], found["height_bytes"])
        # The text mentions the plan. Without the plan, the whole load counts.
        self.assertIn("bytes at its peak: the height is 1.000000 times",
                      self.run_ebb("pack", "trace", "--plan", "plan.json")[1])
        self.assertEqual(json.loads(self.run_ebb("pack", "trace", "--json")[1])["load_bytes"],
                         14 << 20)

    def test_plans_of_other_traces(self):
        for trace in ("other", "slower"):
            code, _, said = self.run_ebb("simulate", trace, "plan.json")
            self.assertEqual(code, 1)
            self.assertEqual(self.run_ebb("pack", trace, "--plan", "plan.json"),
                             (1, "", said.replace("ebb: simulate: ", "ebb: pack: ")))

    def test_plans_that_are_none(self):
        with open(os.path.join(self.folder.name, "plan.json"), encoding="utf-8") as file:
            plan = json.load(file)
        absence = plan["absences"][0]
        for key, value, said in (("out_start_ns", 0, "plan: absence 0: "),
                                 ("in_end_ns", absence["in_end_ns"] + 1_500_000, "is back late"),
                                 ("from_tick", absence["to_tick"], "plan: absence 0: ")):
            with open(os.path.join(self.folder.name, "bad.json"), "w", encoding="utf-8") as file:
                json.dump(dict(plan, absences=[dict(absence, **{key: value})]), file)
            code, out, err = self.run_ebb("pack", "trace", "--plan", "bad.json")
            self.assertEqual((code, out), (1, ""), key)
            self.assertIn(said, err)

    def test_not_for_lists(self):
        self.assertEqual(self.run_ebb("pack", "x.csv", "--plan", "plan.json")[2].splitlines()[0],
                         "ebb: pack: --plan: is for traces, not for a CSV file")


class Errors(unittest.TestCase):
    def expect(self, text, code, message, *arguments):
        found, out, err, _ = pack(text, *arguments)
        self.assertEqual((found, out, err.splitlines()[0]), (code, "", message))
        self.assertEqual(len(err.splitlines()), 2)  # the error and a remedy

    def test_input(self):
        self.expect("", 1, "ebb: pack: x.csv: is empty, no packing problem")
        self.expect(HEADER + "a,0,1,-1\n", 1, "ebb: pack: x.csv: line 2: size '-1' is negative")
        self.expect(HEADER + "a,0,2,1\nb,0,1,NaN\n", 1,
                    "ebb: pack: x.csv: line 3: size 'NaN' is not a whole number")
        self.expect(HEADER + "a,0,2,1\na,1,3,1\n", 1,
                    "ebb: pack: x.csv: line 3: id 'a' again, with a lifetime that overlaps that of "
                    "line 2")
        self.expect("what is this\n", 1,
                    "ebb: pack: x.csv: not an Ebb trace, nor one that Ebb imports")

    def test_capacity_below_a_buffer(self):
        self.expect(STAIRS, 3, "ebb: pack: x.csv: line 5: buffer 'd' of 6 B is larger than the "
                    "capacity of 5 B", "--capacity", "5")

    def test_usage(self):
        for arguments, said in (
                (["--pool", "oracle"], "no pool is called 'oracle'"),
                (["--capacity", "-1"], "--capacity: '-1' is not a size"),
                (["--capacity", "0"], "--capacity: nothing fits into 0 bytes"),
                (["--time-limit", "x"], "--time-limit: 'x' is no number of seconds"),
                (["--time-limit", "nan"], "--time-limit: 'nan' is no number of seconds"),
                (["--period", "0"], "--period: '0' is not a whole number above 0"),
                (["--what"], "unknown option '--what'"),
                (["--zero-stall"], "unknown option '--zero-stall'"),  # an option of `ebb plan` only
                (["-o"], "-o needs a value"),
                (["y.csv"], "one FILE at a time")):
            code, out, err, _ = pack(STAIRS, *arguments)
            self.assertEqual((code, out, err), (2, "", f"ebb: pack: {said}\n"
                                                "ebb: see 'ebb pack --help'\n"), arguments)

    def test_unwritable(self):
        code, _, err, _ = pack(STAIRS, "-o", "no/such/folder.csv")
        self.assertEqual((code, err.splitlines()[0]),
                         (1, "ebb: pack: no/such/folder.csv: cannot be written: No such file or directory"))


@unittest.skipUnless(os.path.isdir(DATA), "skipped: needs EBB_DATA")
class Data(unittest.TestCase):
    """Published results, and only those public instances that take a moment."""

    def ratio(self, name, pool):
        done = subprocess.run([EBB, "pack", os.path.join(DATA, name), "--pool", pool, "--json"],
                              capture_output=True, text=True, timeout=60, check=False)
        found = json.loads(done.stdout)
        return found["height_bytes"] / found["load_bytes"]

    def test_smartpool(self):
        self.assertAlmostEqual(self.ratio("singa/memInfo_alex_20itr_100size.text", "smartpool"),
                               1.0017, delta=0.00005)
        self.assertAlmostEqual(self.ratio("singa/memInfo_vgg_20itr_100size.text", "smartpool"),
                               1.0515, delta=0.00005)

    def test_minimalloc_capacities(self):
        for letter in "ABCDEF":
            done = subprocess.run([EBB, "pack", os.path.join(DATA, "minimalloc",
                                                             f"{letter}.1048576.csv"),
                                   "--capacity", "1048576", "--time-limit", "60"],
                                  capture_output=True, text=True, timeout=60 * SLOWNESS, check=False)
            self.assertEqual(done.returncode, 0, letter)

    def test_planned_vgg(self):
        trace = os.path.join(DATA, "singa", "vec_block_fresh_vgg.csv")
        with tempfile.TemporaryDirectory() as folder:
            plan = os.path.join(folder, "plan.json")
            subprocess.run([EBB, "plan", trace, "--zero-stall", "--machine", "autoswap-paper", "-o",
                            plan, "--tune", "bound_steps=10000"], capture_output=True, timeout=60,
                           check=True)
            done = subprocess.run([EBB, "pack", trace, "--plan", plan, "--json", "--tune",
                                   "pack_steps=10000000"], timeout=60, capture_output=True,
                                  text=True, check=True)
        found = json.loads(done.stdout)
        self.assertEqual(found["load_bytes"], found["plan_peak_bytes"])
        self.assertLessEqual(found["plan_peak_bytes"], 264 << 20)
        self.assertLessEqual(found["height_bytes"], 1.3 * found["plan_peak_bytes"])

    def test_load_is_reached(self):
        for name in ("singa/memInfo_alex_20itr_100size.text", "dsa/resnet50.csv", "dsa/G_1.csv"):
            self.assertEqual(self.ratio(name, "ebb"), 1, name)


if __name__ == "__main__":
    if os.environ.get("EBB_LAB") == "OFF":
        print("skipped: needs lab")
        sys.exit(77)
    if not os.path.isdir(DATA):
        print("skipped: needs EBB_DATA")
    sys.exit(not unittest.main(exit=False).result.wasSuccessful())
