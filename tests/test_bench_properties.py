#!/usr/bin/python3
"""Tests the arithmetic of bench/properties.py on artificial figures."""
import os
import sys
import tempfile
import unittest

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(SOURCE, "bench"))
sys.dont_write_bytecode = True

import properties  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20


def row(share, policy="ebb", machine="pcie3", at=5):
    return {"machine": machine, "policy": policy, "at_percent": at, "share": share}


class Cost(unittest.TestCase):
    def test_a_linear_cost_is_found(self):
        points = [(size, 50000 + 0.25 * size) for size in (MIB, 3 * MIB, 9 * MIB)]
        cost = properties.cost_of(points)
        self.assertAlmostEqual(50000, cost["fixed_ns"], 3)
        self.assertAlmostEqual(0.25, cost["ns_per_byte"], 9)
        self.assertAlmostEqual(0, cost["error_worst"], 6)

    def test_errors_are_shares(self):
        self.assertEqual([0.5, 0.25], properties.errors_of([(10, 100), (20, 200)], 50, 10))

    def test_what_is_not_linear_has_an_error(self):
        cost = properties.cost_of([(MIB, 1e6), (2 * MIB, 4e6), (4 * MIB, 16e6)])
        self.assertGreater(cost["error_worst"], 0.1)

    def test_transfers_are_timed(self):
        sizes, properties.SIZES = properties.SIZES, (65536, 131072)
        self.addCleanup(setattr, properties, "SIZES", sizes)
        with tempfile.TemporaryDirectory() as folder:
            costs = properties.measure_costs(folder, 3)
            self.assertEqual([], os.listdir(folder))
        for way in ("out", "in"):
            self.assertEqual([65536, 131072], [size for size, _ in costs[way]["points"]])
            self.assertTrue(all(ns > 0 for _, ns in costs[way]["points"]))


class Savings(unittest.TestCase):
    def test_median_and_count(self):
        made = properties.savings_of([row(0.5), row(0.7), row(None), row(0.3, "lru")])
        self.assertEqual([("ebb", 3, 1), ("lru", 1, 1)], [
            (found["policy"], found["traces"], found["as_published"]) for found in made])
        self.assertAlmostEqual(0.3, made[0]["median"])
        self.assertAlmostEqual(0.7, made[1]["median"])


if __name__ == "__main__":
    unittest.main()
