#!/usr/bin/python3
"""Tests the arithmetic of bench/validate.py on artificial runs."""
import json
import os
import sys
import unittest

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(SOURCE, "bench"))
sys.dont_write_bytecode = True

import report  # noqa: E402  pylint: disable=wrong-import-position
import validate  # noqa: E402  pylint: disable=wrong-import-position

KEY = {"python": "debian", "model": "lstm", "budget": "b60%", "policy": "ebb"}
RESULT = {"exit_code": 0, "seconds": [2, 1, 1], "stderr": ""}
SUMMARY = {"iteration_ns": {"median": 10**9}, "learnt_iteration_ns": 11 * 10**8,
           "predicted_iteration_ns": 10**9}
PLAN = {"feasible": True, "iteration_ns": 85 * 10**7, "overhead_ns": 5 * 10**7}


def row(policy="ebb", run=1.0, plan=1.0, trace=1.0):
    return validate.row_of({**KEY, "policy": policy}, RESULT,
                           {**SUMMARY, "learnt_iteration_ns": int(run * 10**9),
                            "predicted_iteration_ns": int(plan * 10**9)},
                           {"feasible": True, "iteration_ns": int(trace * 10**9)})


class Row(unittest.TestCase):
    def test_errors(self):
        made = validate.row_of(KEY, RESULT, SUMMARY, PLAN)
        self.assertAlmostEqual(0.1, made["run_error"])
        self.assertAlmostEqual(-0.1, made["trace_error"])
        self.assertIsNone(made["why_nothing"])

    def test_what_was_learnt_from_planned_iterations_is_no_prediction(self):
        made = validate.row_of(KEY, RESULT, {**SUMMARY, "learnt_iteration_ns": 0}, PLAN)
        self.assertIsNone(made["run_error"])

    def test_runs_without_a_measurement(self):
        for result, summary, why in (
                ({**RESULT, "exit_code": validate.TOO_LONG}, SUMMARY, "took too long"),
                ({**RESULT, "exit_code": 3}, SUMMARY, "exit code 3"),
                (RESULT, {**SUMMARY, "iteration_ns": {"median": 0}}, "no planned iteration"),
                (RESULT, {}, "no planned iteration"),
                (RESULT, {**SUMMARY, "budget_bytes": 5, "predicted_peak_bytes": 6},
                 "infeasible budget")):
            made = validate.row_of(KEY, result, summary, PLAN)
            self.assertEqual((why, None, None, None), (
                made["why_nothing"], made["measured_ns"], made["run_error"], made["trace_error"]))

    def test_an_infeasible_plan_predicts_nothing(self):
        made = validate.row_of(KEY, RESULT, SUMMARY, {**PLAN, "feasible": False})
        self.assertIsNone(made["trace_error"])
        self.assertIsNotNone(made["run_error"])

    def test_budgets(self):
        self.assertEqual(("60%", "600", "1000"), tuple(
            validate.budget_of(text, 1000) for text in ("60%", "b60%", "b100%")))


class Summary(unittest.TestCase):
    def test_median_and_worst_without_sign(self):
        rows = [row(run=1.01), row(run=0.8), row(run=1.05), row("lru", run=1.3)]
        made = validate.summary_of(rows, "run")
        self.assertEqual(["ebb", "lru"], list(made))
        self.assertEqual(3, made["ebb"]["runs"])
        self.assertAlmostEqual(0.05, made["ebb"]["median"])
        self.assertAlmostEqual(0.2, made["ebb"]["worst"])
        self.assertAlmostEqual(0, validate.summary_of(rows, "trace")["ebb"]["worst"])

    def test_limits(self):
        def good(*rows, least=1):
            return validate.is_good(validate.summary_of(rows, "run"), least)
        self.assertTrue(good(row(run=1.06)))
        self.assertFalse(good(row(run=1.08)))
        self.assertFalse(good(row(), row(), row(run=0.84)))
        self.assertTrue(good(row("lru", run=1.11)))
        self.assertFalse(good(row("lru"), row("lru"), row("lru", run=1.26)))
        self.assertFalse(good(row(), least=2))
        self.assertTrue(good(row(), row("lru"), least=2))


class Report(unittest.TestCase):
    def test_tables(self):
        rows = [row(run=1.01), row("lru", run=0.75, plan=1.1, trace=1.2),
                validate.row_of(KEY, {**RESULT, "exit_code": 1}, {}, {})]
        machine = {"cpu": "A", "cores": 2, "memory_bytes": 1 << 30, "kernel": "6.18",
                   "file_system": "ext4", "transparent_hugepages": "madvise", "load_before": 0}
        made = report.section(json.dumps({
            "schema": "ebb.bench-validate/1", "command": "bench/validate.py -o x/y.json",
            "date": "2026-11-26", "machine": machine, "rows": rows,
            "summary": {source: validate.summary_of(rows, source) for source in validate.SOURCES}}))
        self.assertIn("    bench/validate.py -o y.json\n", made)
        self.assertIn("| lru | run | 1 | 25.0 % | 25.0 % |\n", made)
        self.assertIn("| debian | lstm | b60% | lru | 1.00 | 0.75 (-25.0 %) | 1.10 (+10.0 %) | "
                      "1.20 (+20.0 %) |\n", made)
        self.assertIn("| debian | lstm | b60% | ebb | - | - (-) | - (-) | - (-) |\n", made)


if __name__ == "__main__":
    unittest.main()
