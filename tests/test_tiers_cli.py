#!/usr/bin/python3
"""`ebb compare --tiers`: what it prints, and what it refuses."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("EBB_BIN_DIR") or os.path.join(SOURCE, "build/dev/bin")
EBB = os.path.join(BIN, "ebb")
MACHINE = {"schema": "ebb.machine/1", "name": "mine",
           "tiers": [{"read": "100GB/s", "write": "100GB/s", "price_per_gib": 8},
                     {"read": "10GB/s", "write": "5GB/s", "price_per_gib": 2}],
           "out": {"bytes_per_second": "5GB/s"}, "in": {"bytes_per_second": "10GB/s"}}
POLICIES = "deeptm,sentinel,ebb,first-touch,hardware-cache"


def ebb(*arguments):
    return subprocess.run([EBB, *arguments], capture_output=True, text=True, check=False,
                          timeout=300)


class Tiers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.trace = os.path.join(cls.folder.name, "run.ebbt")
        subprocess.run([os.path.join(BIN, "ebb-train"), "cnn", "--batch", "16", "--iterations",
                        "5", "--quiet", "--record", cls.trace], check=True, timeout=300)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def compare(self, *more):
        return ebb("compare", self.trace, "--scale-time", "0.02", *more)

    def rows(self, *more):
        done = self.compare("--json", *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = json.loads(done.stdout)
        self.assertEqual(list(answer)[0], "schema")
        self.assertEqual(answer["schema"], "ebb.compare-tiers/1")
        return answer["rows"]

    def machine(self, **changes):
        path = os.path.join(self.folder.name, "machine.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**MACHINE, **changes}, file)
        return path

    def test_rows(self):
        rows = self.rows("--tiers", "1:1,20%", "--machine", "optane,cxl", "--policies", POLICIES)
        self.assertEqual(len(rows), 2 * 2 * 5)
        for row in rows:
            self.assertTrue(row["made"], row)
            self.assertGreaterEqual(row["iteration_ns"], row["fast_ns"] - 1)
            self.assertLessEqual(row["fast_peak_bytes"], row["budget_bytes"])
        half = [row for row in rows if row["share"] == "1:1"]
        self.assertEqual(half[0]["budget_bytes"], half[0]["peak_bytes"] // 2)

    def test_all_fast_costs_nothing(self):
        for row in self.rows("--tiers", "100%", "--policies", "first-touch,sentinel"):
            self.assertAlmostEqual(row["slowdown"], 1, places=6)

    def test_text_and_plot(self):
        plot = os.path.join(self.folder.name, "plot.svg")
        done = self.compare("--tiers", "1:4", "--policies", "first-touch", "--plot", plot)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("first-touch", done.stdout)
        with open(plot, encoding="utf-8") as file:
            self.assertTrue(file.read().rstrip().endswith("</svg>"))
        again = self.compare("--tiers", "1:4", "--policies", "first-touch", "--plot", plot)
        self.assertNotEqual(again.returncode, 0)

    def test_cost(self):
        row, = self.rows("--tiers", "1:1", "--cost", "20", "--policies", "sentinel")
        self.assertLessEqual(row["slowdown"], 1.2)
        self.assertLessEqual(row["price"], row["all_fast_price"] * 1.5)

    def test_a_machine_of_ones_own(self):
        row, = self.rows("--tiers", "1:4", "--policies", "first-touch", "--machine",
                         self.machine())
        self.assertEqual(row["machine"], "mine")

    def test_bad_machines(self):
        first, second = MACHINE["tiers"]
        for tiers, says in (([first], "array of 2 tiers"),
                            ([first, {**second, "read": 0}], "above 0"),
                            ([first, {**second, "price_per_gib": -1}], "from 0"),
                            ([first, {**second, "write": "5 furlongs"}], "unknown unit")):
            done = self.compare("--tiers", "1:4", "--machine", self.machine(tiers=tiers))
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(says, done.stderr)
            self.assertEqual(done.stdout, "")

    def test_bad_usage(self):
        for more in (["--tiers", "0:4"], ["--tiers", "many"], ["--tiers", "1:4:5"],
                     ["--tiers", "200%"], ["--tiers", "1:4", "--policies", "none"],
                     ["--tiers", "1:4", "--cost", "-3"], ["--tiers"]):
            self.assertEqual(self.compare(*more).returncode, 2, more)
        self.assertNotEqual(self.compare("--tiers", "1:4", "--machine", "nvme").returncode, 0)
        self.assertEqual(ebb("compare", "--tiers", "1:4").returncode, 2)


if __name__ == "__main__":
    if os.environ.get("EBB_LAB") == "OFF" or not os.path.exists(os.path.join(BIN, "ebb-train")):
        print("skipped: needs lab, and ebb-train")
        sys.exit(77)
    unittest.main()
