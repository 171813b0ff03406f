#!/usr/bin/python3
"""`ebb pack` from outside: exit codes, JSON, the CSV that it writes, its errors word for word."""
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

HEADER = "id,lower,upper,size\n"
STAIRS = HEADER + "a,0,4,4\nb,2,7,4\nc,5,9,4\nd,8,11,6\n"  # load 10
ARCS = HEADER + "a,0,5,4\nb,4,9,4\nc,8,13,4\n"  # on a circle of 12: load 8, height 12


def pack(text, *arguments):
    """Exit code, stdout, stderr; the file is called x.csv there."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "x.csv"), "w", encoding="utf-8") as file:
            file.write(text)
        done = subprocess.run([EBB, "pack", "x.csv", *arguments], cwd=folder, text=True,
                              capture_output=True, timeout=60, check=False)
        written = {name: open(os.path.join(folder, name), encoding="utf-8").read()
                   for name in os.listdir(folder) if name != "x.csv"}
    return done.returncode, done.stdout, done.stderr, written


class Answers(unittest.TestCase):
    def test_json(self):
        code, out, err, _ = pack(STAIRS, "--json")
        found = json.loads(out)
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(list(found)[0], "schema")
        self.assertGreaterEqual(found.pop("solve_ns"), 0)
        self.assertEqual(found, {
            "schema": "ebb.pack/1", "pool": "ebb", "buffers": 4, "iterations": 0, "load_bytes": 10,
            "height_bytes": 10, "lower_bound_bytes": 10, "optimal": True, "feasible": True,
            "infeasible": False})

    def test_capacity(self):
        self.assertEqual(pack(STAIRS, "--capacity", "10")[0], 0)
        code, out, _, _ = pack(STAIRS, "--capacity", "9", "--json")
        self.assertEqual(code, 3)
        self.assertTrue(json.loads(out)["infeasible"])
        # More than the load is needed, and that is proved, too.
        code, out, _, _ = pack(ARCS, "--period", "12", "--capacity", "11", "--json")
        self.assertEqual((code, json.loads(out)["load_bytes"]), (3, 8))
        # A pool that proves nothing ran out of means.
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
        # What was written can be packed again.
        self.assertEqual(pack(written["out.csv"])[0], 0)

    def test_text(self):
        _, out, _, _ = pack(STAIRS)
        self.assertIn("height    10 bytes (10 B): no packing is lower\n", out)

    def test_every_pool(self):
        for pool in ("ebb", "portfolio", "exact", "smartpool", "bestfit", "firstfit"):
            code, out, _, _ = pack(STAIRS, "--pool", pool, "--json")
            self.assertEqual((code, json.loads(out)["pool"]), (0, pool))


class Planted(unittest.TestCase):
    """Cut rectangles, in which no room may be wasted: search in the order of offsets alone fails."""

    def test_optimum_is_near(self):
        for buffers, seed in ((250, 13), (300, 12), (300, 14)):
            cut = subprocess.run([os.path.join(SOURCE, "bench/planted.py"), "--buffers",
                                  str(buffers), "--seed", str(seed), "--even", "2"],
                                 capture_output=True, text=True, timeout=60, check=True)
            found = json.loads(pack(cut.stdout, "--json")[1])
            self.assertLessEqual(found["height_bytes"], 1.05 * (1 << 20), (buffers, seed))


class Errors(unittest.TestCase):
    def expect(self, text, code, message, *arguments):
        found, out, err, _ = pack(text, *arguments)
        self.assertEqual((found, out, err.splitlines()[0]), (code, "", message))
        self.assertEqual(len(err.splitlines()), 2)  # and a remedy

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
        for arguments in (["--pool", "oracle"], ["--capacity", "-1"], ["--capacity", "0"],
                          ["--time-limit", "x"], ["--time-limit", "nan"], ["--period", "0"],
                          ["--what"], ["-o"], ["y.csv"]):
            code, out, err, _ = pack(STAIRS, *arguments)
            self.assertEqual((code, out), (2, ""), arguments)
            self.assertTrue(err.startswith("ebb: pack: "))

    def test_unwritable(self):
        code, _, err, _ = pack(STAIRS, "-o", "no/such/folder.csv")
        self.assertEqual((code, err.splitlines()[0]),
                         (1, "ebb: pack: no/such/folder.csv: cannot be written"))


@unittest.skipUnless(os.path.isdir(DATA), "skipped: needs EBB_DATA")
class Data(unittest.TestCase):
    """What was published, and the public instances that take a moment only."""

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
                                  capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual(done.returncode, 0, letter)

    def test_load_is_reached(self):
        for name in ("singa/memInfo_alex_20itr_100size.text", "dsa/resnet50.csv", "dsa/G_1.csv"):
            self.assertEqual(self.ratio(name, "ebb"), 1, name)


if __name__ == "__main__":
    if not os.path.isdir(DATA):
        print("skipped: needs EBB_DATA")
    sys.exit(not unittest.main(exit=False).result.wasSuccessful())
