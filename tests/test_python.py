#!/usr/bin/python3
"""`import ebb`: reads what the command writes, and tells of a living run. Python of Debian alone."""
import json
import os
import random
import subprocess
import sys
import unittest

import launching
import trace_file
from launching import EBB, MIB, PYTHON, SOURCE

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(SOURCE, "python"))
import ebb  # noqa: E402  pylint: disable=wrong-import-position

PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import ebb
heard = []
for i in range(12):
    heard.append(ebb.mark())
    heard.append(ebb.mark(phase="forward"))
    blocks = []
    for layer in range(1, 6):
        heard.append(ebb.mark(layer=layer))
        blocks.append(bytearray(2 << 20))
    heard.append(ebb.mark(phase="backward"))
    while blocks: blocks.pop()
print(json.dumps({"heard": all(heard), "any": any(heard), "stats": ebb.stats()}))
"""


class Module(unittest.TestCase):
    def setUp(self):
        self.folder = os.path.join(launching.work, self.id().split(".")[-1])
        os.mkdir(self.folder)
        self.program = self.write("program.py", PROGRAM)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def run_program(self, *before):
        done = subprocess.run([*before, PYTHON, self.program, os.path.join(SOURCE, "python")],
                              stdout=subprocess.PIPE, check=True, timeout=60)
        return json.loads(done.stdout)

    def test_without_ebb(self):
        told = self.run_program("env", "-u", "EBB_RUN")
        self.assertEqual((False, False, None), (told["heard"], told["any"], told["stats"]))
        # The run has ended, or the variable is nonsense.
        for value in ("", "2:1", "2:5:1:999999999:0:x", "a:b:c:d:e:f"):
            self.assertIsNone(self.run_program("env", f"EBB_RUN={value}")["stats"])
        with self.assertRaises(ValueError):
            ebb.mark(phase="sideways")
        with self.assertRaises(ValueError):
            ebb.mark(layer=-1)

    def test_marks_and_figures_under_ebb(self):
        trace, summary = self.path("run.ebbt"), self.path("run.json")
        told = self.run_program(EBB, "run", "--no-cache", "--budget", "64M", "--store",
                                self.folder, "--record", trace, "--summary-json", summary, "--")
        self.assertTrue(told["heard"])
        stats = told["stats"]
        self.assertEqual((64 * MIB, True, 1, "ebb"), (stats["budget_bytes"], stats["in_force"],
                                                     stats["processes"], stats["policy"]))
        self.assertIn("program.py", stats["command"])
        self.assertGreaterEqual(stats["peak_resident_bytes"], 10 * MIB)
        found = ebb.read(trace)
        self.assertTrue(found.complete)
        self.assertIn("program.py", found.command)
        marks = [(event.mark, event.size_bytes) for event in found.events if event.kind == "mark"]
        self.assertEqual(12, sum(mark == "iteration" for mark, _ in marks))
        self.assertEqual(12, marks.count(("layer", 5)))
        self.assertEqual(12, marks.count(("phase", 2)))
        # The command counts the same events and blocks.
        told = json.loads(subprocess.run([EBB, "info", "--json", trace], check=True, timeout=60,
                                         stdout=subprocess.PIPE).stdout)
        self.assertEqual(told["events"], len(found.events))
        self.assertEqual(told["blocks"], len({e.block for e in found.events if e.block}))
        self.assertEqual("ebb.run/2", ebb.read(summary)["schema"])

    def test_a_trace_with_known_events(self):
        path = self.path("known.ebbt")
        trace_file.write(path, [(5, trace_file.ALLOC, 1, 1 << 20), (7, trace_file.ALLOC, 2**63, 9),
                                (7, trace_file.ACCESS, 1, 1 << 20, trace_file.WRITE),
                                (10**15, trace_file.MARK, trace_file.LAYER, 3),
                                (10**15 + 1, trace_file.FREE, 1, 1 << 20)])
        found = ebb.read(path)
        self.assertEqual(("net", 1, 4096, True),
                         (found.command, found.process_id, found.page_bytes, found.complete))
        self.assertEqual(
            [(5, "alloc", 1, 1 << 20, None, None), (7, "alloc", 2**63, 9, None, None),
             (7, "access", 1, 1 << 20, "write", None), (10**15, "mark", 0, 3, None, "layer"),
             (10**15 + 1, "free", 1, 1 << 20, None, None)], [event[:6] for event in found.events])

    def test_the_corpus(self):
        folder = os.path.join(SOURCE, "tests/corpus/trace")
        read = 0
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            told = subprocess.run([EBB, "info", "--json", path], stdout=subprocess.PIPE, text=True,
                                  stderr=subprocess.PIPE, check=False, timeout=60)
            try:
                events = ebb.read(path).events
            except ebb.Error:
                self.assertNotEqual(0, told.returncode, name)
                continue
            if told.returncode == 0:
                self.assertEqual(json.loads(told.stdout)["events"], len(events), name)
                read += 1
        self.assertGreater(read, 0)

    def test_damage(self):
        """A changed or cut file gives the same events, their first ones, or an error."""
        path = self.path("whole.ebbt")
        trace_file.write(path, [(i, trace_file.ALLOC, i, 4096 + i) for i in range(1, 40)])
        events = ebb.read(path).events
        with open(path, "rb") as file:
            data = file.read()
        chance = random.Random(1)
        damaged = [data[:cut] for cut in range(len(data))]
        for at in range(len(data)):
            changed = bytearray(data)
            changed[at] ^= 1 << chance.randrange(8)
            damaged.append(bytes(changed))
        errors = 0
        for text in damaged:
            with open(path, "wb") as file:
                file.write(text)
            try:
                found = ebb.read(path)
                self.assertEqual(events[:len(found.events)], found.events)
                self.assertFalse(found.complete and len(found.events) < len(events))
            except ebb.Error:
                errors += 1
        self.assertGreater(errors, 50)

    def test_bad_files(self):
        for name, text, why in (("empty", "", "neither"), ("text", "hello", "neither"),
                                ("json", "{}", "no schema"), ("broken", "{", "no JSON")):
            with self.assertRaisesRegex(ebb.Error, why):
                ebb.read(self.write(name, text))
        with self.assertRaises(OSError):
            ebb.read(self.path("none"))


if __name__ == "__main__":
    launching.main()
