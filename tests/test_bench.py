#!/usr/bin/python3
"""Tests the arithmetic of bench/host.py, lost.py, planners.py and report.py on artificial runs."""
import argparse
import contextlib
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
BENCH = os.path.join(SOURCE, "bench")
sys.path.insert(0, BENCH)
sys.dont_write_bytecode = True

import host  # noqa: E402  pylint: disable=wrong-import-position
import lost  # noqa: E402  pylint: disable=wrong-import-position
import planners  # noqa: E402  pylint: disable=wrong-import-position
import screen  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20
MACHINE = {"cpu": "A|B 3000", "cores": 2, "memory_bytes": 24 << 30, "kernel": "6.18.1",
           "transparent_hugepages": "madvise", "swap_bytes": 0, "file_system": "ext2/ext3",
           "load_before": 0.25}
BEGINNING = {"command": "bench/x.py --pairs 3", "date": "2026-11-24 20:00 UTC", "machine": MACHINE}
LOG = {"peak_bytes": 2000 * MIB, "threshold_peak_bytes": 1000 * MIB, "threshold_bytes": 512 << 10}
SUMMARY = {"planned_from_iteration": 2, "planned_iterations": 3, "iteration_ns": {"median": 3 * 10**9},
           "peak_resident_bytes": 600 * MIB, "unmanaged_bytes": 40 * MIB,
           "predicted_iteration_ns": 2 * 10**9, "moved_out_bytes": 70 * MIB, "device": "uffd-move",
           "demand_faults_planned_median": 4}


def run_a(seconds=(9, 2, 2, 2, 4), elapsed_s=20.0, losses=tuple("abcde")):
    return {"exit_code": 0, "seconds": list(seconds), "losses": list(losses),
            "elapsed_s": elapsed_s, "peak_rss_bytes": 1500 * MIB}


def run_b(elapsed_s=25.0, losses=tuple("abcde"), exit_code=0, **changes):
    return {"exit_code": exit_code, "seconds": [9, 5, 3, 3.5, 3], "losses": list(losses),
            "elapsed_s": elapsed_s, "peak_rss_bytes": 900 * MIB, "summary": {**SUMMARY, **changes}}


class Compare(unittest.TestCase):
    def test_planned_iterations_stand_beside_the_same_ones(self):
        pair = host.compare(run_a(), run_b())
        self.assertEqual((2, 2), (pair["planned_from_iteration"], pair["a_s"]))
        self.assertEqual((3, 3, 1.5), (pair["b_s"], pair["b_printed_s"], pair["ratio"]))
        self.assertTrue(pair["losses_equal"])

    def test_whole_commands(self):
        self.assertEqual(1.25, host.compare(run_a(), run_b())["whole_ratio"])
        self.assertEqual(2, host.compare(run_a(), run_b(elapsed_s=40.0))["whole_ratio"])
        self.assertIsNone(host.compare(run_a(), run_b(exit_code=1))["whole_ratio"])

    def test_without_the_clock_of_ebb_the_program_s_counts(self):
        pair = host.compare(run_a(seconds=(9, 2, 2, 2, 2)), run_b(iteration_ns=None))
        self.assertEqual((3, 1.5), (pair["b_s"], pair["ratio"]))

    def test_without_a_script_the_first_three_are_left_out(self):
        pair = host.compare(run_a(), run_b(planned_from_iteration=None))
        self.assertEqual((3, 3), (pair["planned_from_iteration"], pair["a_s"]))

    def test_loops_before_the_training_are_no_iterations_of_it(self):
        """Three iterations, from the 40th on, are planned. They are the last three of five."""
        pair = host.compare(run_a(), run_b(planned_from_iteration=40))
        self.assertEqual(2, pair["planned_from_iteration"])

    def test_never_planned(self):
        pair = host.compare(run_a(), run_b(planned_from_iteration=None, iteration_ns=None))
        self.assertIsNone(pair["ratio"])

    def test_losses(self):
        for losses, code in (("abcdX", 0), ("abcd", 0), ("abcde", 1)):
            pair = host.compare(run_a(), run_b(losses=losses, exit_code=code))
            self.assertFalse(pair["losses_equal"], (losses, code))
        self.assertFalse(host.compare(run_a(losses=""), run_b(losses=""))["losses_equal"])


def pairs_of(*elapsed):
    """A takes 20 s each time."""
    a = run_a()
    return [(a, b, host.compare(a, b)) for b in (run_b(elapsed_s=s) for s in elapsed)]


class Rows(unittest.TestCase):
    def row(self, done):
        return host.row_of(("60%", "60%", 600 * MIB), done, LOG, {"iteration_ns": 5 * 10**9})

    def test_medians_and_spreads(self):
        row = self.row(pairs_of(30.0, 20.0, 22.0))
        self.assertEqual((1.1, [1.0, 1.5]), (row["whole_ratio"], row["whole_spread"]))
        self.assertEqual((20.0, 22.0), (row["a_whole_s"], row["b_whole_s"]))
        self.assertEqual((1.5, [1.5, 1.5]), (row["ratio"], row["ratio_spread"]))
        self.assertEqual((0.6, 0.98, 5), (row["share"], row["heap_share"], row["fifo_s"]))
        self.assertEqual((2, 4, 70 * MIB), (row["plan_s"], row["demand_faults_planned_median"],
                                            row["moved_out_bytes"]))

    def test_one_pair_that_differs(self):
        a, b = run_a(), run_b(losses="abcdX")
        row = self.row([*pairs_of(30.0), (a, b, host.compare(a, b))])
        self.assertFalse(row["losses_equal"])

    def test_table(self):
        report = made_up_host()
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            host.print_table(report)
        text = out.getvalue()
        self.assertRegex(text, r"(?m)^60% .* 1\.500 \(1\.50-1\.50\) +1\.100 \(1\.00-1\.50\) .* equal$")
        self.assertRegex(text, r"(?m)^60% +10 +20\.0 +30\.0 +1\.500 \(1\.50-1\.50\)  equal$")
        self.assertRegex(text, r"(?m)^60% +100 +20\.0 +21\.0 +1\.050 \(1\.00-1\.10\)  equal$")

    def test_budgets(self):
        for text, expected in (("60%", ("60%", 600)), ("b60%", ("600", 600)), ("b50%@lru", ("500@lru", 500)),
                               ("2K", ("2K", 2048)), ("1.5KiB", ("1.5KiB", 1536))):
            self.assertEqual(expected, host.budget_bytes(text, 1000), text)
        with self.assertRaises(SystemExit):
            host.budget_bytes("much", 1000)


class Programs(unittest.TestCase):
    def test_iterations(self):
        self.assertEqual(["p", "--iterations", "20", "--x"],
                         host.with_iterations(["p", "--iterations", "9", "--x"], 20))
        self.assertEqual(["p", "--iterations=20"], host.with_iterations(["p", "--iterations=9"], 20))
        with self.assertRaises(SystemExit):
            host.with_iterations(["p", "--iterations"], 20)

    def test_reference_blas(self):
        folder = "/usr/lib/x86_64-linux-gnu/"
        slow, fast = folder + "blas/libblas.so.3.11.0", folder + "openblas-pthread/libblas.so.3"
        torch = host.DEBIAN_PACKAGES + "torch/__init__.py"
        self.assertEqual(slow, host.reference_blas(torch, [slow]))
        self.assertIsNone(host.reference_blas(torch, [fast]))
        self.assertIsNone(host.reference_blas(torch, []))
        self.assertIsNone(host.reference_blas("/venv/lib/torch/__init__.py", [slow]))

    def test_refusal(self):
        """The BLAS that the program's Python reports."""
        with tempfile.TemporaryDirectory() as folder:
            python = os.path.join(folder, "python3")
            for blas, refused in (("blas", True), ("openblas-pthread", False)):
                with open(python, "w", encoding="utf-8") as file:
                    file.write(f"#!/bin/sh\necho {host.DEBIAN_PACKAGES}torch/__init__.py\n"
                               f"echo /usr/lib/{blas}/libblas.so.3\n")
                os.chmod(python, 0o755)
                ended = None
                try:
                    host.refuse_reference_blas([python, "train.py"], dict(os.environ))
                except SystemExit as end:
                    ended = str(end.code)
                if refused:
                    self.assertIn("/usr/lib/blas/libblas.so.3", ended)
                    self.assertNotIn("\n", ended)
                else:
                    self.assertIsNone(ended)
        host.refuse_reference_blas(["/bin/false"], dict(os.environ))


S = 10**9


def steps_of(seconds, system=(), loss="00"):
    """A log of bench/first/life.py with steps of these durations, from the time 100 s on."""
    at, kernel = 100.0, 0.0
    steps = [{"step": 0, "t_ns": int(at * S), "loss": [], "cpu_s": 0, "system_s": kernel}]
    for i, much in enumerate(seconds):
        at += much
        kernel += system[i] if i < len(system) else 0
        steps.append({"step": i + 1, "t_ns": int(at * S), "loss": [loss], "cpu_s": 0,
                      "system_s": kernel})
    return steps


def mark(at, name, ring=0):
    return {"ring": ring, "t_ns": int(at * S), "mark": name, "value": 0}


def sample(at, stall_s=0, ring=0, live=1000):
    return {"ring": ring, "t_ns": int(at * S), "stall_ns": int(stall_s * S), "demand_faults": 0,
            "moved_out_bytes": 0, "moved_in_bytes": 0, "mismatches": 0, "reactive_evictions": 0,
            "peak_live_bytes": live}


class Lost(unittest.TestCase):
    def test_lost_iterations(self):
        a, b = [5, 2, 2, 2, 2], [9, 4, 2, 2, 1]
        self.assertEqual(2.5, lost.lost(a, b, 5))
        self.assertEqual(3, lost.lost(a, b, 2))
        self.assertIsNone(lost.lost(a, b, 6))
        self.assertIsNone(lost.lost(a, b, 0))

    def test_late_ratio(self):
        a = [9] * 9 + [2] * 11 + [100]
        b = [50] * 9 + [3] * 8 + [9] * 3 + [1]
        self.assertEqual(1.5, lost.late_ratio(a, b))
        self.assertIsNone(lost.late_ratio(a[:13], b[:13]))
        self.assertEqual(1.5, lost.late_ratio(a[:14], b[:14]))

    def test_seconds_and_losses(self):
        steps = steps_of([1.5, 0.25])
        self.assertEqual([1.5, 0.25], lost.seconds(steps))
        self.assertEqual([["00"], ["00"]], lost.losses(steps))


class Watched(unittest.TestCase):
    def test_counters_between_samples(self):
        watched = lost.Watched([sample(10, 1), sample(12, 5), sample(13, 6)])
        for at, expected in ((9, 0), (10, 1), (11, 3), (12, 5), (12.5, 5.5), (13, 6), (99, 6)):
            self.assertAlmostEqual(expected * S, watched.counter("stall_ns", int(at * S)), msg=at)
        self.assertEqual(0, lost.Watched().counter("stall_ns", S))

    def test_time_between_marks(self):
        watched = lost.Watched([sample(1), mark(10, "plan_on"), mark(11, "plan_on"),
                                mark(14, "plan_off"), mark(15, "plan_off"), mark(20, "plan_on"),
                                mark(12, "observe_on")])
        for first, last, expected in ((0, 30, 14), (11, 12, 1), (13, 21, 2), (14, 20, 0),
                                      (25, 26, 1)):
            self.assertEqual(expected, watched.time_in("plan", first * S, last * S), (first, last))
        self.assertEqual(8, watched.time_in("observe", 0, 20 * S))

    def test_the_largest_process_is_the_program(self):
        watched = lost.Watched([
            {"ring": 0, "t_ns": S, "began": True}, sample(1, ring=0, live=10),
            {"ring": 1, "t_ns": 2 * S, "began": True}, sample(3, 7, ring=1, live=20),
            mark(4, "plan_on", ring=0), mark(5, "plan_on", ring=1)])
        self.assertEqual((1, [(5 * S, "plan_on")], [S]),
                         (watched.main, watched.marks, watched.others))

    def test_a_file_that_ends_in_the_middle(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "watched.jsonl")
            with open(path, "w", encoding="utf-8") as file:
                file.write(json.dumps(sample(1)) + "\n" + '{"ring": 0, "t_')
            self.assertEqual(1, len(lost.Watched.read(path).samples))
            self.assertIsNone(lost.Watched.read(path + ".not").main)


class Causes(unittest.TestCase):
    def step(self, **changes):
        return {"seconds": 3.0, "system_s": 0.1, "observed_s": 0, "planned_s": 0, "began": 0,
                "seen": True, "stall_ns": 0, **changes}

    def test_each_rule(self):
        """A step of 3 s has lost 2 s. Without Ebb it spends 0.1 s in the kernel."""
        planned = {"planned_s": 3.0}
        for number, first, changes, expected in (
                (1, None, {}, {"unknown": 2}),
                (1, None, {"seen": False, "began": 1, "observed_s": 3}, {"unknown": 2}),
                (9, 2, {"began": 1, **planned}, {"fork": 2}),
                (1, None, {"observed_s": 0.1}, {"observe": 2}),
                (3, None, {"stall_ns": S // 2, "observed_s": 3}, {"evict": 0.5, "observe": 1.5}),
                (3, 4, {"stall_ns": 9 * S, "observed_s": 3}, {"evict": 2}),
                (2, 9, {"system_s": 0.6}, {"pages": 0.5, "unknown": 1.5}),
                (4, None, {"stall_ns": S, "observed_s": 3}, {"late": 2}),
                (4, 5, {"planned_s": 1}, {"late": 2}),
                (5, 5, {"planned_s": 2}, {"change": 2}),
                (3, 3, {"planned_s": 2, "stall_ns": S}, {"change": 2}),
                (5, 5, {"stall_ns": S, "system_s": 0.35, **planned},
                 {"wait": 1, "pages": 0.25, "unknown": 0.75}),
                (6, 5, {"observed_s": 1, **planned}, {"observe": 2})):
            found = lost.causes_of(number, first, 2, self.step(**changes), 0.1)
            self.assertEqual(expected, {k: round(v, 9) for k, v in found.items() if v},
                             (number, first, changes))

    def test_what_was_faster_is_unknown(self):
        for number, planned, changes in ((5, 2, {"planned_s": 3.0}), (5, None, {}), (5, 2, {}),
                                         (1, None, {"observed_s": 3}), (5, 2, {"began": 1})):
            step = self.step(stall_ns=S, system_s=5, **changes)
            found = lost.causes_of(number, planned, -0.5, step, 0.1)
            self.assertEqual({"unknown": -0.5}, found, (number, planned, changes))

    def test_a_run(self):
        """The first two steps are observed. A plan is in force for a moment of the second step, and
        from the fourth on. Step 5 waits, and step 6 has a fork."""
        a_run = {"steps": steps_of([2] * 7, [0.1] * 7), "elapsed_s": 20, "exit_code": 0}
        b = [6, 4, 2, 4, 3, 8, 1]  # they end at 106 110 112 116 119 127 128
        b_run = {"steps": steps_of(b, [0.1, 0.3, *[0.1] * 5]), "elapsed_s": 40, "exit_code": 0,
                 "watched": lost.Watched([
                     sample(99), mark(100, "observe_on"), sample(101, 0), sample(103, 1),
                     mark(107, "plan_on"), mark(108, "plan_off"), mark(109, "observe_off"),
                     mark(113, "plan_on"), sample(116, 1), sample(119, 1.5),
                     {"ring": 1, "t_ns": 120 * S, "began": True}])}
        pair = lost.compare(a_run, b_run)
        self.assertEqual((4, True, 2, 7), (pair["planned_step"], pair["losses_equal"],
                                           pair["whole_ratio"], pair["steps"]))
        expected = {"evict": 0.5, "observe": 1.5 + 0.9, "pages": 0.1, "change": 1, "wait": 0.25,
                    "unknown": 0.25 - 0.5, "fork": 3, "late": 0}
        for cause in lost.CAUSES:
            self.assertAlmostEqual(expected[cause], pair["causes"][cause], 6, cause)
        self.assertAlmostEqual(sum(pair["causes"].values()), pair["lost_all"])
        self.assertEqual({"5": 4.5}, pair["lost"])
        self.assertEqual({"5": [10, 19]}, pair["first_s"])

    def test_losses_bit_for_bit(self):
        def runs(loss, count=5, code=0):
            b = {"steps": steps_of([1] * count, loss=loss), "elapsed_s": 1, "exit_code": code,
                 "watched": lost.Watched()}
            return lost.compare({"steps": steps_of([1] * 5), "elapsed_s": 1, "exit_code": 0}, b)
        self.assertTrue(runs("00")["losses_equal"])
        for differs in (runs("01"), runs("00", count=4), runs("00", code=1)):
            self.assertFalse(differs["losses_equal"])

    def test_row(self):
        pairs = [made_up_pair(total) for total in (5.0, 1.0, 3.0)]
        row = lost.row_of(pairs)
        self.assertEqual((3.0, 3.0, 1.1), (row["lost"]["20"], row["causes"]["late"],
                                           row["late_ratio"]))
        self.assertEqual(4, row["planned_step"])
        pairs[0]["planned_step"] = pairs[1]["planned_step"] = None
        self.assertIsNone(lost.row_of(pairs)["planned_step"])


def made_up_pair(total):
    return {"losses_equal": True, "steps": 20, "median_s": 2.0, "lost": {"5": total, "20": total},
            "first_s": {"5": [10, 10 + 2 * total], "20": [40, 40 + 2 * total]},
            "late_ratio": 1.1, "planned_step": 4, "whole_ratio": 1.2,
            "causes": {**dict.fromkeys(lost.CAUSES, 0.0), "late": total}}


def made_up_first():
    rows = [{"name": name, "count": {"threshold_peak_bytes": 400 * MIB}, "kept": name != "gan",
             "budget_bytes": 240 * MIB, "allocator": "glibc", "moved_out_bytes": 90 * MIB,
             "moved_in_bytes": 80 * MIB, "demand_faults": 7, "load": [0.5, 1.5],
             "pairs": [made_up_pair(total)], **lost.row_of([made_up_pair(total)])}
            for name, total in (("unet", 3.0), ("gan", 1.5))]
    return {"schema": "ebb.bench-first/1", **BEGINNING, "budget": "60%", "of": "blocks",
            "steps": 20, "second_run": None, "lanes": {"out_bytes_per_s": 5e9, "in_bytes_per_s": 4e9,
                                          "both_bytes_per_s": 2e9},
            "rows": [*rows, {"name": "bert", "error": "skipped: needs --venv"}]}


def made_up_host():
    done = pairs_of(30.0, 20.0, 22.0)
    return {"schema": "ebb.bench-host/1", **BEGINNING, "program": "python train.py --model resnet50",
            "malloc_log": LOG, "allocator": "glibc",
            "lanes": {"out_bytes_per_s": 5e9, "in_bytes_per_s": 4e9, "both_bytes_per_s": 2e9},
            "allocators": {"glibc": run_a(), "jemalloc": run_a(seconds=(9, 3, 3))},
            "device": "uffd-move", "a_rss_bytes": 1500 * MIB, "a_s": 2.0,
            "rows": [host.row_of(("60%", "60%", 600 * MIB), done, LOG, {})],
            "whole": [host.whole_row(10, "60%", pairs_of(30.0)),
                      host.whole_row(100, "60%", pairs_of(20.0, 22.0))]}


FRAMEWORKS = {"schema": "ebb.bench-frameworks/1", **BEGINNING, "budget": "60%", "rows": [
    {"name": "jax", "same": True, "repeats": True, "kept": True, "allocator": "jemalloc",
     "ratios": [1.2, 1.0, 1.1], "peak_resident_bytes": 60 * MIB, "budget_bytes": 61 * MIB,
     "planned_iterations": 12, "iterations": 16, "demand_faults_planned_median": 3, "mismatches": 1},
    {"name": "keras", "same": False, "repeats": True, "kept": False, "allocator": "glibc",
     "ratios": [2.0], "peak_resident_bytes": 62 * MIB, "budget_bytes": 61 * MIB,
     "planned_iterations": 0, "iterations": 16, "demand_faults_planned_median": None,
     "mismatches": 0},
    {"name": "trainer", "error": "exit code 1:\nno such module"}]}

DARKNET = {"schema": "ebb.bench-darknet/1", **BEGINNING, "rows": [
    {"budget": "60%", "ratios": [1.3, 1.1, 1.2], "whole_ratio": 1.4, "weights_equal": True,
     "summary": {"peak_resident_bytes": 254 * MIB, "budget_bytes": 254 * MIB,
                 "planned_iterations": 5, "demand_faults_planned_median": 4}}]}

MALLOC = {"schema": "ebb.bench-malloc-pairs/1", **BEGINNING,
          "alone": [{"small_ns": n, "slab_ns": 7, "large_ns": 1400} for n in (8, 7, 9)],
          "under": [{"small_ns": n, "slab_ns": 13, "large_ns": 1900} for n in (12, 11, 13)]}


ABLATE = {"schema": "ebb.bench-ablate/1", **BEGINNING, "rows": [
    {"name": "margin_divisor", "unit": "divisor", "value": 50.0, "acts": "plan", "cases": [
        {"case": "cycle, 60%", "value": "25", "figure": "iteration_ns", "ratio": 1.0, "same": True},
        {"case": "torch, 60%", "value": "25", "figure": "iteration_ns", "ratio": 1.02, "same": False},
        {"case": "torch, 60%", "value": "100", "figure": "iteration_ns", "ratio": 1, "same": False}]},
    {"name": "drain_ns", "unit": "ns", "value": 1e7, "acts": "run", "cases": [
        {"case": "cycle", "value": "5000000", "figure": "iteration_ns", "ratio": 0.9, "same": False,
         "least": 0.88, "most": 0.93, "noise": 0.01},
        {"case": "cycle", "value": "20000000", "figure": "iteration_ns", "ratio": 1.2, "same": True,
         "least": 0.8, "most": 1.3, "noise": 0.3}]}]}


SCREEN = {"schema": "ebb.bench-screen/1", **BEGINNING, "z": 4.0, "programs": ["cycle"],
          "rows": {"drain_ns": {"value": 1e7, "unit": "ns"}, "reap_ns": {"value": 1e8, "unit": "ns"}},
          "limits": {"cycle, whole": 0.03}, "runs": [{"why_nothing": None}, {"why_nothing": "x"}],
          "effects": [{"name": "drain_ns", "value": "20000000", "program": "cycle",
                       "figure": "whole", "change": -0.08, "limit": 0.03}]}


class Report(unittest.TestCase):
    def report(self, *samples, code=0, document=None):
        """The output of bench/report.py for these reports, each a dictionary or text. With a
        document, returns its new text."""
        with tempfile.TemporaryDirectory() as folder:
            paths, options = [], []
            if document is not None:
                written = os.path.join(folder, "document.md")
                with open(written, "w", encoding="utf-8") as file:
                    file.write(document)
                options = ["--write", written]
            for i, sample in enumerate(samples):
                paths.append(os.path.join(folder, f"{i}.json"))
                with open(paths[-1], "w", encoding="utf-8") as file:
                    file.write(sample if isinstance(sample, str) else json.dumps(sample))
            done = subprocess.run([sys.executable, os.path.join(BENCH, "report.py"), *options, *paths],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(code, done.returncode, done.stderr)
            if document is not None:
                self.assertEqual("", done.stdout)
                with open(written, encoding="utf-8") as file:
                    after = file.read()
                if code:
                    self.assertEqual(document, after)
                else:
                    return after
        if code:
            self.assertEqual("", done.stdout)
            self.assertRegex(done.stderr, r"\Areport\.py: [^\n]*\n\Z")
        return done.stderr if code else done.stdout

    def test_host(self):
        text = self.report(made_up_host())
        self.assertIn(" are medians of 3 pairs (least-most).\n", text)
        self.assertIn("## resnet50 with and without Ebb, `uffd-move`\n\n    bench/x.py --pairs 3\n\n"
                      "2026-11-24 20:00 UTC. A|B 3000, 2 cores, 24.0 GiB, Linux 6.18.1. Store on", text)
        self.assertIn("- Without Ebb: under glibc, the fastest. Seconds an iteration: glibc 2.00, jemalloc "
                      "3.00.\n", text)
        self.assertIn("| 60% | 1.50 (1.50-1.50) | 1.10 (1.00-1.50) | 3.00, 2.00 | 600/600 "
                      "| 900 | 70 | 4 | equal |\n", text)
        self.assertIn("| whole command, budget | 10 iterations | 100 iterations |\n"
                      "| --- | --- | --- |\n"
                      "| 60% | 1.50 (1.50-1.50) | 1.05 (1.00-1.10) |\n", text)

    def test_host_beside_the_kernel(self):
        sample = made_up_host()
        sample["rows"][0].update(
            swap_limit_bytes=800 * MIB, cgroup={"limit_bytes": 700 * MIB, "verdict": "completed"},
            swap=[{"swap": "zram", "allocator": "glibc", "s": None, "verdict": "ended with 137"}])
        text = self.report(sample)
        self.assertIn("| 60% | Ebb in a cgroup | 700 | - | completed |\n"
                      "| 60% | zram swap, glibc | 800 | - | ended with 137 |\n", text)

    def test_frameworks(self):
        text = self.report(FRAMEWORKS)
        self.assertIn("| jax | equal | 1.10 (1.00-1.20) of jemalloc | 60 / 61 | 12 / 16 | 3 | 1 |\n"
                      "| keras | DIFFER | 2.00 (2.00-2.00) of glibc | 62 / 61 EXCEEDED | 0 / 16 | - "
                      "| 0 |\n| trainer | failed: exit code 1: no such module | - |", text)

    def test_darknet(self):
        self.assertIn("| 60% | 3 | 1.20 (1.10-1.30) | 1.40 | 254 / 254 | 5 | 4 | equal |\n",
                      self.report(DARKNET))

    def test_first(self):
        text = self.report(made_up_first())
        self.assertIn("| unet | 1 | 400 / 240 | 2.00 | 3.0 | 3.0 | 4 | 1.10 | 1.20 | 90, 80 | 7 "
                      "| 1.5 | equal |\n", text)
        self.assertIn("240 EXCEEDED", text)
        self.assertIn("| program | pairs | peak / budget, MiB | step, s | lost in 5 | in 20 |", text)
        self.assertIn("| unet | 0.0 | 0.0 | 3.0 | 0.0 | 0.0 | 0.0 | 0.0 | 0.0 | 3.0 |\n", text)
        self.assertIn("| bert | skipped: needs --venv |", text)
        self.assertNotIn("profile", text)

    def test_first_with_a_profile(self):
        sample = {**made_up_first(), "second_run": "steps"}
        for row in sample["rows"][:2]:
            row["plan_cache"] = "used"
        text = self.report(sample)
        self.assertIn("With the profile of a run before (`steps`).", text.replace("\n", " "))
        self.assertIn("| 1.5 | equal; profile used |\n", text)

    def test_malloc_pairs(self):
        text = self.report(MALLOC)
        self.assertIn("the median of 3 runs each", text)
        self.assertIn("| 64 B, left to the next allocator | 8.0 (7.0-9.0) | 12.0 (11.0-13.0) |\n",
                      text)

    def test_ablate(self):
        text = self.report(ABLATE)
        self.assertIn("| `margin_divisor` | 50 divisor | 25: iteration +2.00 % in torch, 60%; 1 of 2 "
                      "change | 100: another plan, as good, in 1 of 1 |\n", text)
        self.assertIn("| `drain_ns` | 10000000 ns | 5000000: iteration -10.00 % (-12.0 to -7.0) in "
                      "cycle; 1 of 1 change | 20000000: none |\n", text)

    def test_screen(self):
        text = self.report(SCREEN)
        self.assertIn("| `drain_ns` | 10000000 ns | 20000000 | cycle | whole command | -8.0 % | 3.0 % "
                      "|\n", text)
        self.assertIn("2 runs, 1 of them failed; 2 rows", text)
        self.assertIn("\n`reap_ns`.\n", text)

    def test_several_files_in_their_order(self):
        text = self.report(MALLOC, made_up_host(), DARKNET)
        at = [text.index(title) for title in ("## What an allocation", "## resnet50", "## Darknet")]
        self.assertEqual(sorted(at), at)
        for line in text.splitlines():
            self.assertTrue(len(line) <= 100 or line.startswith("|"), line)

    def test_lines_and_rows_are_short(self):
        for line in self.report(made_up_host(), MALLOC, DARKNET, FRAMEWORKS).splitlines():
            if "failed: " not in line:
                self.assertLessEqual(len(line), 100, line)

    def test_written_into_a_document(self):
        document = ("# Title\n<!-- report: 0 -->\nold\n<!-- end -->\nbetween\n"
                    "<!-- report: other -->\nstays\n<!-- end -->\n"
                    "<!-- report: 1 -->\n<!-- end -->\nlast\n")
        text = self.report(MALLOC, DARKNET, document=document)
        self.assertTrue(text.startswith("# Title\n<!-- report: 0 -->\n## What an allocation costs\n"))
        self.assertNotIn("old", text)
        self.assertIn("<!-- end -->\nbetween\n<!-- report: other -->\nstays\n<!-- end -->\n"
                      "<!-- report: 1 -->\n## Darknet", text)
        self.assertTrue(text.endswith("\n<!-- end -->\nlast\n"))
        self.assertEqual(text, self.report(MALLOC, DARKNET, document=text))

    def test_no_section_or_two(self):
        one = "<!-- report: 0 -->\n<!-- end -->\n"
        self.assertIn("has 0 sections", self.report(MALLOC, DARKNET, document=one, code=1))
        self.assertIn("has 2 sections", self.report(MALLOC, document=one + one, code=1))
        self.assertIn("has no date", self.report({**MALLOC, "date": ""}, document=one, code=1))

    def test_the_folder_of_the_results_is_left_out(self):
        text = self.report({**MALLOC, "command": "bench/x.py -o /somewhere/out.json --pairs 3"})
        self.assertIn("    bench/x.py -o out.json --pairs 3\n", text)

    def test_long_commands_stay_commands(self):
        words = [f"--option-{i}" for i in range(20)] + ["two words"]
        command = " ".join(words[:-1]) + " 'two words'"
        text = self.report({**MALLOC, "command": "echo " + command})
        lines = [line for line in text.splitlines() if line.startswith("    ")]
        self.assertGreater(len(lines), 2)
        self.assertLessEqual(max(map(len, lines)), 100)
        said = subprocess.run(["sh", "-c", "printf '%s\\n' \\\n" + "\n".join(lines)], check=True,
                              capture_output=True, text=True).stdout.splitlines()
        self.assertEqual(["echo", *words], said)

    def test_what_nobody_could_repeat_is_refused(self):
        for key in BEGINNING:
            without = {k: v for k, v in MALLOC.items() if k != key}
            self.assertIn(f"has no {key}", self.report(without, code=1))
        self.assertIn("is no JSON", self.report("{", code=1))
        self.assertIn("is none of", self.report({"schema": "ebb.run/2"}, code=1))
        self.assertIn("is none of", self.report([1], code=1))
        self.assertIn("lacks what", self.report({**DARKNET, "rows": [{}]}, code=1))


def planned_row(policy, budget, iteration_ns, peak_mib, feasible=True, stall_ns=0):
    return {"policy": policy, "budget": budget, "feasible": feasible, "stall_ns": stall_ns,
            "iteration_ns": iteration_ns, "peak_bytes": peak_mib * MIB,
            "lower_bound_bytes": 100 * MIB, "gap": 0.5}


class Screen(unittest.TestCase):
    """bench/screen.py: how changes are dealt to runs, and planted effects among noise."""
    OPTIONS = [(f"row_{row}", value) for row in range(90) for value in ("50000", "2e+05")]

    def test_deal(self):
        runs = screen.deal(self.OPTIONS, random.Random(3))
        self.assertEqual([], runs[0])
        self.assertEqual(sorted(self.OPTIONS), sorted(sum(runs, [])))
        for run in runs:
            self.assertEqual(len(run), len({name for name, _ in run}))
            self.assertLessEqual(len(" ".join(f"{name}={float(value):.0f}" for name, value in run)),
                                 screen.ROOM)

    def made(self, effects, noise=0.03, rounds=14):
        """Runs of one program. Rounds drift, and one run in fifty is disturbed."""
        generator, runs = random.Random(5), []
        for number in range(rounds):
            for group in screen.deal(self.OPTIONS, generator):
                factor = 2 if generator.random() < 0.02 else 1 + generator.gauss(0, noise)
                for option in group:
                    factor *= effects.get(option, 1)
                figure = int(1e9 * factor * (1 + 0.05 * number))
                runs.append({"round": number, "program": "p", "options": group, "why_nothing": None,
                             "figures": {"iteration": figure, "whole": 10 * figure}})
        report = {"programs": ["p"], "runs": runs}
        screen.analyse_all(report, self.OPTIONS)
        return {(effect["name"], effect["value"], effect["figure"]): effect["change"]
                for effect in report["effects"]}, report["limits"]

    def test_planted_effects(self):
        found, limits = self.made({("row_7", "50000"): 1.4, ("row_8", "2e+05"): 0.85})
        self.assertEqual({(name, value, figure) for figure in screen.FIGURES for name, value in
                          (("row_7", "50000"), ("row_8", "2e+05"))}, set(found))
        self.assertAlmostEqual(0.4, found["row_7", "50000", "whole"], delta=0.08)
        self.assertAlmostEqual(-0.15, found["row_8", "2e+05", "iteration"], delta=0.05)
        self.assertTrue(all(0 < limit < 0.1 for limit in limits.values()), limits)

    def test_no_effects(self):
        self.assertEqual({}, self.made({})[0])

    def test_runs_that_failed_are_no_figures(self):
        report = {"programs": ["p"], "runs": [
            {"round": 0, "program": "p", "options": [], "figures": None, "why_nothing": "x"}]}
        screen.analyse_all(report, self.OPTIONS)
        self.assertEqual(([], {}), (report["effects"], report["limits"]))


class Planners(unittest.TestCase):
    """bench/planners.py: the best of a column, and sections of a document."""
    ROWS = [planned_row("ebb", "zero-stall", 100, 110), planned_row("x:a", "zero-stall", 100, 130),
            planned_row("x:b", "zero-stall", 100, 120),
            planned_row("x:c", "zero-stall", 100, 90, stall_ns=1),  # it stalls at any budget
            planned_row("ebb", "60%", 2 * 10**6, 60), planned_row("x:a", "60%", 10**6, 50, False),
            planned_row("x:b", "60%", 3 * 10**6, 50), planned_row("y", "60%", 10**6, 50, False)]

    def made(self, columns, **more):
        args = argparse.Namespace(columns=columns, budgets=["60%"])
        return planners.sections(args, {**BEGINNING, "build": "0.1.0 abc+", "planned": [
            {"trace": "t", "rows": self.ROWS}], **more})

    def test_columns(self):
        made = self.made(["ebb", "x", "x:a", "y", "z"])
        self.assertEqual(set(made), {"planners/zero-stall", "planners/budgets"})
        text = made["planners/zero-stall"]
        self.assertTrue(text.startswith("2026-11-24, build 0.1.0 abc+, A|B 3000, 2 cores.\n\n"))
        self.assertIn("| trace | bound | ebb | x | x:a | y | ebb / bound |\n", text)
        self.assertIn("| t | 100.0 | **110.0** | 120.0 | 130.0 | - | 1.100 |\n", text)
        self.assertIn("`ebb` is lowest in 1 of 1 rows.", text)
        self.assertIn("| t | 60% | **2.0** | 3.0 | - | - | 1.500 |\n", made["planners/budgets"])

    def test_it_may_lose(self):
        self.ROWS.append(planned_row("w", "60%", 10**6, 50))
        self.addCleanup(self.ROWS.pop)
        text = self.made(["ebb", "w"])["planners/budgets"]
        self.assertIn("| t | 60% | 2.0 | **1.0** | 1.500 |\n", text)
        self.assertIn("in 0 of 1 rows.", text)

    def test_the_document_has_every_section(self):
        with open(os.path.join(os.path.dirname(BENCH), "docs", "planners.md"),
                  encoding="utf-8") as file:
            document = file.read()
        for name in planners.TITLES:
            self.assertIn(f"<!-- report: planners/{name} -->\n", document)


if __name__ == "__main__":
    unittest.main()
