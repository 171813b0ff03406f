#!/usr/bin/python3
"""--tune of the commands that plan: valid and invalid settings, and their effects.

A plan is the same under every load, since a search ends by its effort and not by the clock.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import launching
from launching import EBB, compile_c
from test_plan_cli import training

# A clock that runs ten times as fast.
CLOCK = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *out)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, out);
    long long ns = (out->tv_sec * 1000000000ll + out->tv_nsec) * 10;
    out->tv_sec = ns / 1000000000, out->tv_nsec = ns % 1000000000;
    return failed;
}
"""


MIB = 1 << 20
NO_BOUND = ("--tune", "bound_steps=10000")  # it takes most of the time
COMMANDS = ("run", "plan", "compare", "simulate", "pack")


def irregular(layers=60, step_ns=100_000, iterations=3):
    """A trace in SINGA's form. Longer search gives better plans, so the result depends on the
    effort."""
    lines, now = [], 1_000_000_000

    def size_of(layer):
        return (2 + layer * layer * 7 % 11) * MIB + layer * 4096

    def event(kind, index, size):
        nonlocal now
        now += step_ns + step_ns * (index * index % 7) // 4
        lines.append(f"{kind} {hex(0x10000000 + index * 0x4000000)} {size} {now}")

    for _ in range(iterations):
        for layer in range(layers):
            event("Malloc", layer, size_of(layer))
            event("Mutable", layer, size_of(layer))
            if layer > 2:
                again = layer - 1 - layer * 5 % 3
                event("Read", again, size_of(again))
        for layer in reversed(range(layers)):
            event("Malloc", layers + 1, 3 * MIB + layer * 4096)
            event("Mutable", layers + 1, 3 * MIB + layer * 4096)
            event("Read", layer, size_of(layer))
            event("Free", layers + 1, 3 * MIB + layer * 4096)
            event("Free", layer, size_of(layer))
    return "\n".join(lines) + "\n"


def run(*arguments, **kwargs):
    done = subprocess.run([EBB, *arguments], capture_output=True, text=True, check=False, **kwargs)
    return done.returncode, done.stdout, done.stderr


class Tune(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.trace = os.path.join(cls.folder.name, "trace.txt")
        with open(cls.trace, "w", encoding="ascii") as file:
            file.write(training(layers=30, step_ns=30_000))
        cls.hard = os.path.join(cls.folder.name, "hard.txt")
        with open(cls.hard, "w", encoding="ascii") as file:
            file.write(irregular())

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def plan(self, *options, trace=None, budget="50%", **kwargs):
        """The plan file without its duration, and the printed figures."""
        path = os.path.join(self.folder.name, "plan.json")
        code, out, err = run("plan", trace or self.trace, "--budget", budget, "--machine", "pcie3", "--json",
                             "-f", "-o", path, *options, **kwargs)
        self.assertEqual((0, ""), (code, err), out)
        with open(path, encoding="utf-8") as file:
            plan = json.load(file)
        figures = json.loads(out)
        del plan["plan_ns"]
        return plan, figures

    def test_refused(self):
        for value, pattern in (
                ("plan_step=1000000", r"'plan_step' is no row of the table; closest: plan_steps, "),
                ("plan_steps", r"'plan_steps' wants a value: plan_steps=\d+"),
                ("plan_steps=many", r"plan_steps: 'many' is not a number of steps"),
                ("plan_steps=1", r"plan_steps: 1 is not within 10000 and 1000000000000 steps"),
                ("margin_most_ns=1e99s", r"margin_most_ns: '?1e99s'? is not [^\n]*"),
                ("", r"'' is no row of the table; closest: [^\n]*")):
            for command in COMMANDS:
                with self.subTest(command=command, value=value):
                    code, out, err = run(command, "--tune", value)
                    self.assertEqual((125 if command == "run" else 2, ""), (code, out))
                    self.assertRegex(err, rf"\Aebb: {command}: --tune: {pattern}[^\n]*\n\Z")

    def test_too_many(self):
        names = re.findall(r"^(\w+_ns) = (\d+)", run("run", "--tune", "help")[1], re.M)
        options = [f"--tune={name}={int(value) + 1}" for name, value in names]
        code, _, err = run("run", *options, "--", "true")
        self.assertEqual(125, code)
        self.assertRegex(err, r"\Aebb: run: --tune: too many rows differ: [^\n]*\n\Z")

    def test_help(self):
        for command in COMMANDS:
            code, out, err = run(command, "--tune", "help")
            self.assertEqual((0, ""), (code, err))
        rows = re.findall(r"^(\w+) = (\S+) ([^\n(]+) \((\S+) to (\S+); acts on (plans|runs)\)\n    \S",
                          out, re.M)
        with open(os.path.join(os.path.dirname(__file__), "..", "src", "base", "tuning.def"),
                  encoding="utf-8") as file:
            table = re.findall(r"^EBB_TUNING\(\w+, (\w+),", file.read(), re.M)
        self.assertEqual(table, [row[0] for row in rows])

    def test_changes_a_plan(self):
        plan, figures = self.plan()
        self.assertEqual({}, plan["tuning"]["changed"])
        other, changed = self.plan("--tune", "plan_smallest_block_bytes=5M", "--tune",
                                   "margin_divisor=40")
        self.assertNotEqual(plan["absences"], other["absences"])
        self.assertEqual({"plan_smallest_block_bytes": 5 << 20, "margin_divisor": 40},
                         changed["tuning"]["changed"])
        self.assertEqual(figures["tuning"]["table"], changed["tuning"]["table"])
        self.assertTrue(all(absence["bytes"] >= 5 << 20 for absence in other["absences"]))
        # An option of the command line overrides --tune.
        self.assertEqual(plan["absences"], self.plan("--tune", "plan_smallest_block_bytes=5M",
                                                     "--smallest-block", "256K")[0]["absences"])

    def test_box_of_time_is_told(self):
        self.assertFalse(self.plan(*NO_BOUND)[1]["timed_out"])
        self.assertTrue(self.plan("--tune", "plan_box_ns=1ms", *NO_BOUND)[1]["timed_out"])
        self.assertTrue(self.plan("--time-limit", "0.02", "--tune",
                                  "plan_steps_a_second=1000000000000")[1]["timed_out"])
        code, out, _ = run("plan", self.trace, "--budget", "50%", "--machine", "pcie3", "--tune",
                           "plan_box_ns=1ms")
        self.assertEqual(0, code)
        self.assertIn("the search ended by the time, not by its effort", out)

    def test_effort(self):
        """More effort takes longer, and the plan is not worse."""
        _, little = self.plan("--tune", "plan_steps=1000000", *NO_BOUND)
        _, much = self.plan("--tune", "plan_steps=100000000", *NO_BOUND)
        self.assertLess(little["plan_ns"] * 3, much["plan_ns"])
        self.assertLessEqual(much["iteration_ns"], little["iteration_ns"])

    def test_same_under_load(self):
        def plan(*options, **kwargs):
            return self.plan("--tune", "plan_box_ns=3600s", "--tune", "plan_steps=20000000",
                             *NO_BOUND, *options,
                             trace=self.hard, budget="40%", **kwargs)
        expected, figures = plan()
        little = plan("--tune", "plan_steps=1000000")[0]
        self.assertNotEqual(expected["absences"], little["absences"], "a search that finds all at once")
        busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"])
                for _ in os.sched_getaffinity(0)]
        try:
            idle = plan(preexec_fn=lambda: os.sched_setscheduler(0, os.SCHED_IDLE,
                                                                 os.sched_param(0)))
        finally:
            for loop in busy:
                loop.kill()
                loop.wait()
        self.assertEqual(expected, idle[0])
        clock = compile_c("fast_clock", CLOCK, options=["-shared", "-fPIC"])
        fast = plan(env={**os.environ, "LD_PRELOAD": clock})
        self.assertEqual(expected, fast[0])
        self.assertGreater(fast[1]["plan_ns"], 2 * figures["plan_ns"], "the clock was not ours")


if __name__ == "__main__":
    if os.environ.get("EBB_LAB") == "OFF":
        print("skipped: needs lab, to read the traces")
        sys.exit(77)
    launching.main()
