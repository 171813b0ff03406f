#!/usr/bin/python3
"""`ebb report` and `ebb advise` as people and scripts use them: forms, exit codes, bad input.

It runs on a small trace made here. tests/test_report_browser.py looks at the page itself.
"""
import csv
import io
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import unittest

from test_compare_cli import LITTLE
from test_plan_cli import EBB, MIB, training

COLUMNS = 100
FIGURES = """peak_bytes budget_bytes unlimited_bytes iteration_ns unlimited_ns stall_ns
    moved_out_bytes moved_in_bytes""".split()
RUN_KEYS = """name command predicted measured lower_bound_bytes needs frontier lost next""".split()
NEEDS = ["no_loss", "loss_5", "loss_20", "least"]
SUMMARY = {"schema": "ebb.run/2", "peak_resident_bytes": 19 * MIB, "budget_bytes": 20 * MIB,
           "unmanaged_peak_bytes": 60 * MIB, "iteration_ns": {"median": 35_000_000, "min": 1,
                                                              "max": 2},
           "stall_ns": 5_000_000, "moved_out_bytes": 7 * MIB, "moved_in_bytes": 6 * MIB,
           "predicted_peak_bytes": 19 * MIB, "predicted_iteration_ns": 33_000_000,
           "predicted_stall_ns_per_iteration": 1_000_000, "out_bps": 10**9,
           "measured_out_bps": 9 * 10**8,
           "lost": [{"ns": 90_000_000, "observed": 2_000_000, "evicted wrongly": 0, "late": 1,
                     "switched": 0},
                    {"ns": 80_000_000, "observed": 0, "evicted wrongly": 30_000_000, "late": 0,
                     "switched": 4_000_000}]}
PLAIN = {"PATH": os.environ.get("PATH", "")}  # no TERM and no character set


def no_space():
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


class Reported(unittest.TestCase):
    said = {}  # by command: what it printed, if that is all that it does

    @classmethod
    def setUpClass(cls):
        cls.said.clear()
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.trace = cls.write("secret-name.csv", training(layers=3))
        cls.larger = cls.write("larger.csv", training(layers=4))
        lane = {"bytes_per_second": 20e9, "fixed_ns": 1000}
        cls.machine = cls.write("fast.json", json.dumps(
            {"schema": "ebb.machine/1", "name": "quick", "out": lane, "in": lane, "duplex": True}))
        cls.summary = cls.write("run.json", json.dumps(SUMMARY))

    @classmethod
    def write(cls, name, text):
        path = os.path.join(cls.folder.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def run_ebb(self, *arguments, command="report", env=None, **more):
        """A command that only prints runs once for all tests of a class."""
        key = (command, *arguments, *sorted((env or {}).items()))
        if more or "-o" in arguments:
            return self.run_now(*arguments, command=command, env=env, **more)
        if key not in self.said:
            self.said[key] = self.run_now(*arguments, command=command, env=env)
        return self.said[key]

    def run_now(self, *arguments, code=0, command="report", env=None, **more):
        done = subprocess.run([EBB, command, *arguments, "--machine", self.machine, *LITTLE],
                              capture_output=True, text=True, check=False, env=env or PLAIN,
                              encoding="utf-8", **more)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def refused(self, *arguments, code, says, **more):
        """One line says what is wrong, at most one what to do; nothing is written."""
        before = set(os.listdir(self.folder.name))
        out, err = self.run_ebb(*arguments, code=code, **more)
        self.assertIn(says, err)
        self.assertLessEqual(len(err.splitlines()), 2, err)
        self.assertTrue(all(line.startswith("ebb: ") for line in err.splitlines()), err)
        self.assertEqual(out, "")
        self.assertEqual(set(os.listdir(self.folder.name)), before)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()


class Forms(Reported):
    def test_text(self):
        out, err = self.run_ebb(self.trace, "--text")
        self.assertEqual(err, "")
        lines = out.splitlines()
        self.assertEqual([line for line in lines if len(line) > COLUMNS], [])
        self.assertTrue(out.isascii(), "without a character set the text is ASCII")
        self.assertEqual(lines[0], "secret-name.csv")
        self.assertIn("without a budget: ", out)
        self.assertRegex(out, r"(?m)^predicted +no loss +at \+5 % +at \+20 % +at least +slowdown$")
        self.assertRegex(out, r"(?m)^quick +(\d+\.\d\d MiB +){4}\d+\.\d\dx$")
        self.assertRegex(out, r"(?m)^next: ebb run --budget [\d.]+M -- CMD$")
        self.assertRegex(out, r"(?m)^load {9}[ .:=+*#@-]{80}$")
        self.assertRegex(out, r"(?m)^iteration +\d+\.\d ms$")

    def test_sparkline_needs_a_character_set(self):
        blocks = re.compile("[▁-█]{20}")
        utf8 = {**PLAIN, "LANG": "C.UTF-8", "TERM": "xterm"}
        self.assertRegex(self.run_ebb(self.trace, "--text", env=utf8)[0], blocks)
        for change in ({"TERM": "dumb"}, {"LC_ALL": "C"}):
            out = self.run_ebb(self.trace, "--text", env={**utf8, **change})[0]
            self.assertTrue(out.isascii())
        out = self.run_ebb(self.trace, "--text", env={**utf8, "NO_COLOR": "1"})[0]
        self.assertNotIn("\x1b", out)

    def test_lost_time_of_a_summary(self):
        """The trace was recorded without a budget, so it has none. What is no list is none."""
        for files in ([self.trace, self.summary], [self.summary]):
            found = json.loads(self.run_ebb(*files, "--json")[0])["runs"][0]["lost"]
            self.assertEqual(found, SUMMARY["lost"])
            text = self.run_ebb(*files, "--text")[0]
            self.assertRegex(text, r"(?m)^ +2 +80\.0 ms +0 ns +30\.0 ms +0 ns +4\.0 ms$")
        one = SUMMARY["lost"][0]
        for bad in (7, "x", {}, [7], [{}], [{**one, "late": -1}], [{**one, "ns": 1.5}], [one] * 21):
            path = self.write("bad.json", json.dumps({**SUMMARY, "lost": bad}))
            found = json.loads(self.run_ebb(path, "--json")[0])["runs"][0]["lost"]
            self.assertEqual(found, [])

    def test_json(self):
        found = json.loads(self.run_ebb(self.trace, self.summary, "--json")[0])
        self.assertEqual(list(found), ["schema", "runs", "change_percent"])
        self.assertEqual(found["schema"], "ebb.report/1")
        (run,) = found["runs"]
        self.assertEqual(set(RUN_KEYS) - set(run), set())
        for kind in ("predicted", "measured"):
            self.assertEqual(list(run[kind]), FIGURES)
        self.assertEqual(run["measured"]["peak_bytes"], 19 * MIB)
        self.assertIsNone(run["measured"]["unlimited_ns"])
        budgets = [run["needs"][0][need]["budget_bytes"] for need in NEEDS]
        self.assertEqual(budgets, sorted(budgets, reverse=True))
        self.assertEqual({need["machine"] for need in run["needs"]},
                         {"quick", "nvme", "optane", "cxl", "pcie3", "pcie4", "pcie5"})
        self.assertIn("ebb", {point["policy"] for point in run["frontier"]})

    def test_the_plan_is_for_the_budget(self):
        found = json.loads(self.run_ebb(self.trace, "--json", "--budget", "70%")[0])["runs"][0]
        figures = found["predicted"]
        self.assertAlmostEqual(figures["budget_bytes"] / figures["unlimited_bytes"], 0.7, 3)
        self.assertLessEqual(figures["peak_bytes"], figures["budget_bytes"])

    def test_csv(self):
        rows = list(csv.DictReader(io.StringIO(self.run_ebb(self.trace, "--csv")[0])))
        figures = json.loads(self.run_ebb(self.trace, "--json")[0])["runs"][0]["predicted"]
        self.assertEqual(max(int(row["load_bytes"]) for row in rows), figures["unlimited_bytes"])
        self.assertLessEqual(max(int(row["resident_bytes"]) for row in rows),
                             figures["budget_bytes"])
        times = [int(row["time_ns"]) for row in rows]
        self.assertEqual(times, sorted(times))
        self.assertEqual(times[0], 0)
        for row in rows:
            kinds = sum(int(row[k + "_bytes"]) for k in ("persistent", "kept", "short_lived"))
            self.assertEqual(kinds, int(row["resident_bytes"]))

    def test_chrome_trace(self):
        events = json.loads(self.run_ebb(self.trace, "--chrome-trace")[0])["traceEvents"]
        self.assertEqual({event["ph"] for event in events}, {"M", "X", "C"})
        lanes = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
        self.assertEqual(lanes, {"compute", "out", "in"})
        self.assertTrue(all(event["dur"] > 0 for event in events if event["ph"] == "X"))

    def test_page(self):
        self.run_ebb(self.trace, self.summary, "-o", self.path("page.html"))
        page = self.read("page.html")
        self.assertIn("default-src 'none'", page)
        self.assertIn("MIT-licen", page)
        self.assertIn("<noscript>", page)
        self.assertNotIn("sourceMappingURL=", page)
        self.assertIsNone(re.search(r"<(?:link|img|iframe)|\ssrc=|@import|url\((?!data:)", page))
        self.assertIn("Predicted, and what happened", page)
        data = json.loads(re.search(r"id='data'>(.*?)</script>", page, re.S).group(1))
        (run,) = data["runs"]
        self.assertEqual(len(run["levels"][0]), 11)
        self.assertEqual(len({len(column) for column in run["levels"][0]}), 1)
        self.assertEqual(len(run["map"]["rectangles"]), 5 * run["map"]["count"])
        self.assertTrue(all(len(row[9]) == 48 for row in run["blocks"]))

    def test_a_hostile_name_stays_text(self):
        name = "<script>alert(1)<script>&'\".csv"
        trace = self.write(name, training(layers=2))
        self.run_ebb(trace, "-o", self.path("hostile.html"))
        page = self.read("hostile.html")
        self.assertNotIn("<script>alert", page)
        self.assertIn("&lt;script&gt;alert(1)", page)

    def test_a_name_that_is_not_text(self):
        name = os.fsencode(self.folder.name) + b"/\xff\xfe.csv"
        with open(name, "w", encoding="utf-8") as file:
            file.write(training(layers=2))
        found = json.loads(self.run_ebb(name, "--json")[0])["runs"][0]
        self.assertIsNone(found["name"])
        self.run_ebb(name, "-o", self.path("odd.html"))
        self.assertIn("<h1>??.csv</h1>", self.read("odd.html"))

    def test_redacted(self):
        self.run_ebb(self.trace, "--redact", "-o", self.path("redacted.html"))
        for text in (self.read("redacted.html"),
                     self.run_ebb(self.trace, "--redact", "--text")[0],
                     self.run_ebb(self.trace, "--redact", "--json")[0]):
            self.assertNotIn("secret-name", text)
            self.assertNotIn(self.folder.name, text)

    def test_advise(self):
        out, _ = self.run_ebb(self.trace, command="advise")
        self.assertRegex(out, r"(?m)^next: ebb run --budget [\d.]+M -- CMD$")
        self.assertEqual([line for line in out.splitlines() if len(line) > COLUMNS], [])
        found = json.loads(self.run_ebb(self.trace, "--json", command="advise")[0])
        self.assertEqual(list(found), ["schema", "needs", "next"])
        self.assertEqual(found["schema"], "ebb.advise/1")
        self.assertEqual(set(NEEDS) - set(found["needs"][0]), set())


class Differences(Reported):
    def test_two_runs(self):
        found = json.loads(self.run_ebb(self.trace, self.larger, "--json")[0])
        self.assertEqual(len(found["runs"]), 2)
        self.assertGreater(found["change_percent"]["unlimited"], 5)
        out = self.run_ebb(self.trace, self.larger, "--text")[0]
        self.assertRegex(out, r"(?m)^peak without a budget +[\d.]+ MiB +[\d.]+ MiB +\+[\d.]+ %$")
        self.run_ebb(self.trace, self.larger, "-o", self.path("two.html"))
        self.assertEqual(self.read("two.html").count("<article class='run'"), 2)

    def test_fail_if(self):
        out, err = self.run_ebb(self.trace, self.larger, "--text", "--fail-if", "unlimited>+2%",
                                code=5)
        self.assertIn("unlimited>+2%", err)
        self.assertIn("difference", out)
        self.run_ebb(self.trace, self.larger, "--text", "--fail-if", "unlimited>+900%")
        self.run_ebb(self.trace, self.trace, "--text", "--fail-if", "peak>+2%,time>+2%")
        self.run_ebb(self.summary, "--text", "--fail-if", "peak>18MiB", code=5)
        for bad in ("peak", "peak>", "size>1G", "peak>+x%", "stall>3"):
            _, err = self.run_ebb(self.summary, "--text", "--fail-if", bad, code=2)
            self.assertIn("--fail-if", err)


class Refused(Reported):
    def test_no_trace(self):
        damaged = self.write("damaged.ebbt", "\x89EBBT nothing more")
        empty = self.write("empty.ebbt", "")
        short = self.write("once.csv", training(iterations=1))
        page = self.path("none.html")
        self.refused(damaged, "-o", page, code=1, says="damaged.ebbt")
        self.refused(empty, "-o", page, code=1, says="empty.ebbt")
        self.refused(short, "-o", page, code=1, says="no repeating iteration")
        self.refused(self.path("missing"), "-o", page, code=1, says="missing")
        self.refused(self.write("bad.json", "{\"schema\": 1}"), "-o", page, code=1,
                     says="is no summary")
        self.refused(self.write("cut.json", "{"), "-o", page, code=1, says="line 1")
        self.refused(damaged, "--text", code=1, says="damaged.ebbt")
        self.refused(empty, code=1, says="empty.ebbt", command="advise")

    def test_one_damaged_of_two(self):
        damaged = self.write("second.ebbt", "\x89EBBT nothing more")
        self.refused(self.trace, damaged, "-o", self.path("none.html"), code=1, says="second.ebbt")

    def test_existing_output(self):
        page = self.write("there.html", "mine")
        self.refused(self.trace, "-o", page, code=1, says="exists")
        self.assertEqual(self.read("there.html"), "mine")
        self.run_ebb(self.trace, "-f", "-o", page)
        self.assertIn("<!doctype html>", self.read("there.html"))

    def test_full_disk(self):
        page = self.path("full.html")
        self.refused(self.trace, "-o", page, code=1, says="full.html", preexec_fn=no_space)
        kept = self.write("kept.html", "mine")
        self.refused(self.trace, "-f", "-o", kept, code=1, says="kept.html", preexec_fn=no_space)
        self.assertEqual(self.read("kept.html"), "mine")
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([EBB, "report", self.trace, "--text", "--machine", self.machine],
                                  stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard output", done.stderr)

    def test_no_such_folder(self):
        self.refused(self.trace, "-o", self.path("no/such/page.html"), code=1, says="No such file")

    def test_usage(self):
        self.refused(code=2, says="no FILE given")
        self.refused(self.trace, code=2, says="-o PAGE.html")
        self.refused(self.trace, "--text", "--json", code=2, says="give one of")
        self.refused(self.trace, "--text", "--budget", "much", code=2, says="not a size")
        self.refused(self.trace, self.larger, "--csv", code=2, says="one trace")
        self.refused(code=2, says="no TRACE given", command="advise")

    def test_budget_too_small(self):
        self.refused(self.trace, "-o", self.path("none.html"), "--budget", "1M", code=3,
                     says="smallest feasible budget")


if __name__ == "__main__":
    if os.environ.get("EBB_LAB") == "OFF":
        print("skipped: needs lab, to read the traces")
        sys.exit(77)
    sys.exit(0 if unittest.main(exit=False).result.wasSuccessful() else 1)
