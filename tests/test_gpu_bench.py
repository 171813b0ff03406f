#!/usr/bin/python3
"""What bench/gpu runs on a card, as far as it can be tested without one:

- The kernels in PTX compute what the kernels of the programs in C compute.
- bench/gpu/check.py runs its programs on the fake driver under Ebb. Without Ebb, or with an Ebb that
  does something else, it finds that.
- Steps that hang or crash lose only themselves. The table has all ten points.
"""
import importlib.util
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.abspath(os.environ.get("EBB_BIN_DIR") or os.path.join(SOURCE, "build", "dev", "bin"))
FAKE = os.path.join(os.path.dirname(BIN), "tests", "fakecuda")
GPU = os.path.join(SOURCE, "bench", "gpu")
RESULTS = os.path.join(SOURCE, "docs", "results")
sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), GPU]
sys.dont_write_bytecode = True

import check  # noqa: E402  pylint: disable=wrong-import-position
import ptx  # noqa: E402  pylint: disable=wrong-import-position
import run  # noqa: E402  pylint: disable=wrong-import-position
import table  # noqa: E402  pylint: disable=wrong-import-position

SOME = "" if os.environ.get("EBB_TEST_WHOLE") else (
    "^(training|.*other processes|graphs)$|memory")
MASK = (1 << 32) - 1
COUNT = 23  # words: no multiple of the threads


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def words(values):
    return struct.pack(f"<{len(values)}I", *values)


class Kernels(unittest.TestCase):
    """Each formula stands here a third time, beside the C function and the PTX."""

    def setUp(self):
        with open(os.path.join(SOURCE, "tests/fakecuda/programs/kernels.ptx"),
                  encoding="utf-8") as file:
            self.module = ptx.Module(file.read())
        self.chance = random.Random(7)

    def some(self, address):
        values = [ptx.rounded(self.chance.uniform(-3, 3)) for _ in range(COUNT)]
        self.module.put(address, floats(values))
        return values

    def expect(self, address, data):
        self.assertEqual(bytes(self.module.memory[address]), data)

    def test_words(self):
        self.module.put(0x1000, bytes(4 * COUNT))
        self.module.launch("words_fill", 0x1000, COUNT, MASK - 3)
        x = [(MASK - 3 + i) & MASK for i in range(COUNT)]
        self.expect(0x1000, words(x))
        y = [self.chance.randrange(1 << 32) for _ in range(COUNT)]
        self.module.put(0x2000, words(y))
        self.module.launch("words_mix", 0x1000, 0x2000, COUNT, 77)
        x = [(a * 31 + (b ^ 77)) & MASK for a, b in zip(x, y)]
        self.expect(0x1000, words(x))
        self.module.launch("words_mix", 0x1000, 0x1000, COUNT, 5)
        self.expect(0x1000, words([(a * 31 + (a ^ 5)) & MASK for a in x]))

    def test_training(self):
        r = ptx.rounded
        w, x, gy = self.some(0x1000), self.some(0x2000), self.some(0x3000)
        for at in (0x4000, 0x5000, 0x6000):
            self.module.put(at, bytes(4 * COUNT))
        self.module.launch("forward", 0x1000, 0x2000, 0x4000, 4 * COUNT)
        self.expect(0x4000, floats([r(r(a * b) + r(r(0.25 * b) * b)) for a, b in zip(w, x)]))
        self.module.launch("backward", 0x1000, 0x2000, 0x3000, 0x5000, 0x6000, 4 * COUNT)
        self.expect(0x5000, floats([r(g * b) for g, b in zip(gy, x)]))
        self.expect(0x6000, floats([r(g * r(a + r(0.5 * b))) for a, b, g in zip(w, x, gy)]))
        rate = r(0.01)
        w = [r(a - r(rate * g)) for a, g in zip(w, gy)]
        self.module.launch("sgd", 0x1000, 0x3000, 4 * COUNT, rate)
        self.expect(0x1000, floats(w))

    def test_table(self):
        r, rate = ptx.rounded, ptx.rounded(0.3)
        pairs = [(0x1000 * i, 0x1000 * i + 0x800) for i in (1, 2, 3)]
        values = [(self.some(w), self.some(g)) for w, g in pairs]
        self.module.put(0x9000, struct.pack("<6Q", *[at for pair in pairs for at in pair]))
        self.module.launch("sgd_table", 0x9000, 2, 4 * COUNT, rate)
        for (w, _), (a, g) in list(zip(pairs, values))[:2]:
            self.expect(w, floats([r(x - r(rate * y)) for x, y in zip(a, g)]))
        self.expect(pairs[2][0], floats(values[2][0]))

    def test_hidden(self):
        x = self.some(0x1000)
        self.module.put(0x2000, bytes(8))
        self.module.launch("hide", 0x1000, 0x2000)
        self.expect(self.module.globals["cell"], struct.pack("<Q", 0x2000))
        self.module.launch("scale_hidden", 4 * COUNT)
        self.expect(0x1000, floats([ptx.rounded(0.875 * a) for a in x]))
        self.module.put(0x1000, bytes(400))
        self.module.launch("count_slowly", threads=1, blocks=1)
        self.expect(0x1000, words([4] * 100))
        self.module.launch("use", 0x1000)
        self.expect(0x1000, words([5] + [4] * 99))

    def test_exchange(self):
        """Two chunks. What it would wait for is there already."""
        count, number = 300, 7
        g, inbox = ([self.chance.randrange(1 << 32) for _ in range(n)] for n in (count, 512))
        self.module.put(0x10000, words(g))
        self.module.put(0x20000, bytes(2048))
        self.module.put(0x30000, words(inbox))
        for at, sent in ((0x40000, number), (0x50000, number + 2)):
            self.module.put(at, words([number] + 15 * [0] + [sent] + 15 * [0] + [number] + 15 * [0]))
        self.module.launch("exchange", 0x10000, 0x20000, 0x30000, 0x40000, 0x50000, count, number)
        there = inbox[256:] + inbox[:44]  # chunk 7 is in slot 1, chunk 8 in slot 0
        self.expect(0x10000, words([(a + b) & MASK for a, b in zip(g, there)]))
        self.expect(0x20000, words(g[256:] + 212 * [0] + g[:256]))
        flags = words([number + 2] + 15 * [0] + [number] + 15 * [0] + [number + 2] + 15 * [0])
        self.expect(0x40000, flags)

    def test_all_kernels_of_the_programs(self):
        """Those of the benchmark of launches have no place on a card."""
        names = set()
        folder = os.path.join(SOURCE, "tests/fakecuda/programs")
        for name in os.listdir(folder):
            if name.endswith((".c", ".h")) and name != "cuda_launches.c":
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    names |= set(ptx.re.findall(r'\{"(\w+)", \w+, \d, (?:\w+|NULL)', file.read()))
        self.assertEqual(names, set(self.module.kernels))


def lines_of(folder, name):
    return table.read([os.path.join(folder, name)])


@unittest.skipUnless(os.path.exists(os.path.join(BIN, "libebb_cuda.so")), "x86-64 only")
class Check(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def check(self, folder, *options):
        done = subprocess.run(
            [sys.executable, os.path.join(GPU, "check.py"), self.folder, "--bin", folder, "--fake",
             FAKE, "--seconds", "250", "--jobs", "2", *options],
            capture_output=True, text=True, timeout=300, check=False)
        return done, lines_of(self.folder, "tests.jsonl")

    def test_all_pass_on_the_fake(self):
        """Some of the cases, or all with EBB_TEST_WHOLE=1. Their programs run in test_cuda_whole."""
        done, lines = self.check(BIN, "--only", SOME)
        self.assertEqual((0, ""), (done.returncode, done.stderr), done.stdout)
        self.assertEqual({"passed"}, {line["result"] for line in lines}, done.stdout)
        found = {line["case"] for line in lines}
        self.assertEqual({case.name for case in check.cases()
                          if case.only != "card" and re.search(SOME, case.name)}, found)
        for backing in check.ALL:
            self.assertGreater(sum(line["moved_out_bytes"] for line in lines
                                   if line["backing"] == backing), 100 << 20, backing)

    def other_ebb(self, script):
        path = os.path.join(self.folder, "ebb")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + script)
        os.chmod(path, 0o755)

    def test_what_is_wrong_is_found(self):
        program = 'while [ "$1" != -- ]; do shift; done; shift; '
        summary = ('for word; do [ "$last" = --summary-json ] && file=$word; last=$word; done\n'
                   'echo \'{"moved_out_bytes": MOVED, "devices": [{"peak_resident_bytes": 1, '
                   '"over_bytes": OVER}]}\' >"$file"\n')
        for script, why in (
                (program + 'exec "$@"', "no summary"),
                (summary.replace("MOVED", "0").replace("OVER", "0") + program + 'exec "$@"',
                 "no block has moved"),
                (summary.replace("MOVED", "1").replace("OVER", "9") + program + 'exec "$@"',
                 "9 bytes over the budget"),
                (summary.replace("MOVED", "1").replace("OVER", "0") + "echo else", "output 'else"),
                (summary.replace("MOVED", "1").replace("OVER", "0") + "exit 9", "exit code 9")):
            self.other_ebb(script)
            done, lines = self.check(self.folder, "--only", "^training, threads$")
            self.assertEqual(1, done.returncode, script)
            failed = [line for line in lines if line["result"] == "failed"]
            self.assertEqual(3, len(failed), lines)
            for line in failed:
                self.assertIn(why, line["why"])
            os.unlink(os.path.join(self.folder, "tests.jsonl"))

    def test_a_program_that_fails_without_ebb(self):
        os.environ["FAKECUDA_FAULTS"] = "alloc:2"
        self.addCleanup(os.environ.pop, "FAKECUDA_FAULTS")
        done, lines = self.check(BIN, "--only", "^training$")
        self.assertEqual(1, done.returncode)
        self.assertEqual(["failed without Ebb"], [line["result"] for line in lines])


class Steps(unittest.TestCase):
    def test_a_hang_and_a_crash(self):
        noted = []
        with tempfile.TemporaryFile("w") as log:
            for code, good, why in (("print('{\"a\": 1}'); print('text')", (0,), None),
                                    ("import os; os.abort()", (0,), "status -6"),
                                    ("raise SystemExit(77)", (0,), "it cannot run here"),
                                    ("raise SystemExit(1)", (0, 1), None)):
                step = run.Step("name", [sys.executable, "-c", code], 30,
                                lambda **members: noted.append(members), good)
                self.assertEqual(why, step.run(log), code)
            self.assertEqual([{"m": "name", "a": 1}], noted)
            began = time.time()
            step = run.Step("name", ["sh", "-c", "sleep 50 & sleep 50"], 1, print)
            self.assertEqual("killed after 1 s", step.run(log))
            self.assertLess(time.time() - began, 20)

    @unittest.skipUnless(os.path.exists(os.path.join(BIN, "libebb_cuda.so")), "x86-64 only")
    def test_parts(self):
        """On the fake driver, tests run. The micro part crashes, and that loses nothing else."""
        with tempfile.TemporaryDirectory() as folder:
            for name, target in (("ebb", os.path.join(BIN, "ebb")),):
                os.symlink(target, os.path.join(folder, name))
            with open(os.path.join(folder, "micro"), "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\n[ \"$1\" = --list ] && echo fork || kill -9 $$\n")
            os.chmod(file.name, 0o755)
            environment = dict(os.environ, LD_LIBRARY_PATH=FAKE)
            done = subprocess.run(
                [sys.executable, os.path.join(GPU, "run.py"), os.path.join(folder, "results"),
                 "tests", "micro", "--bin", folder, "--fake", FAKE, "--only", "^fork$", "--seconds",
                 "60"], env=environment, capture_output=True, text=True, timeout=100, check=False)
            self.assertEqual((0, ""), (done.returncode, done.stderr), done.stdout)
            self.assertIn("tests: 7 passed, 0 failed", done.stdout)
            self.assertIn("micro: status -9", done.stdout)
            with open(os.path.join(folder, "results", "table.md"), encoding="utf-8") as file:
                text = file.read()
        self.assertIn("gpu: Fake CUDA device", text)
        self.assertIn("| fork | 1 of 1 | 2 of 2 | 2 of 2 | 2 of 2 |", text)
        self.assertIn("micro: status -9", text)
        self.assertIn("| 8. Launches seen |  | not measured", text)


class Table(unittest.TestCase):
    def points(self, *names):
        lines = table.Lines(table.read([os.path.join(RESULTS, name) for name in names]))
        return {number: rows for number, _, rows in table.points(lines)}

    def test_stored_results(self):
        """Those of a card have all ten points."""
        found = self.points("gpu-micro-h200.jsonl", "gpu-trainings-h100.jsonl")
        self.assertEqual(list(range(1, 11)), list(found))
        for number, rows in found.items():
            self.assertGreater(len(rows), 0, number)
            for what, figure in rows[:1]:
                self.assertNotIn("not measured", figure, (number, what))
        self.assertIn(("gpt fp32 managed 100 profile iterations 6",
                       "CUPTI 735, the library before the driver 735: equal"), found[8])
        self.assertIn(("flags 0", "287 of 288 are pointers of dlsym. Others: cuStreamGetCtx"),
                      found[7])
        self.assertIn(("prefetch, 32 MiB", "in 42.9, out 17.9 GB/s"), found[1])
        self.assertTrue(any(what == "gpt, 75 %" and figure.startswith("vmm-trusting 1.03, losses "
                                                                      "same")
                            for what, figure in found[10]), found[10])

    def test_nothing_and_errors(self):
        lines = table.Lines([{"m": "faults", "error": "killed after 8 s"},
                             {"m": "profile", "profile_error": "not measured: no CUPTI"}])
        found = {number: rows for number, _, rows in table.points(lines)}
        self.assertEqual([("", "not measured: faults: killed after 8 s")], found[3])
        self.assertEqual([("", "not measured: its part did not run")], found[5])
        self.assertEqual([("profile", "not measured: no CUPTI")], found[8])

    def test_launches_that_differ(self):
        lines = table.Lines([{"m": "profile", "calls": {"cuLaunchKernel": 7}, "kernels": 7,
                              "ebb": 6}])
        self.assertEqual([("profile", "CUPTI 7, the library before the driver 6: DIFFER")],
                         list(table.launches_seen(lines)))

    def test_losses(self):
        def case(name, *losses):
            training = table.Training(name)
            for loss in losses:
                training.take({"ms": 1.0, "loss": loss})
            return training
        results = {"gpt fp32 plain": case("gpt fp32 plain", "0x1", "0x2"),
                   "gpt fp32 ddp": case("gpt fp32 ddp", "0x3")}
        self.assertEqual("same", table.same(case("gpt fp32 managed 50", "0x1"), results))
        self.assertEqual("DIFFER", table.same(case("gpt fp32 managed 50", "0x1", "0x3"), results))
        self.assertEqual("same", table.same(case("gpt fp32 ddp managed 50", "0x3"), results))
        self.assertEqual("-", table.same(case("gpt fp32 managed 50"), results))


@unittest.skipUnless(importlib.util.find_spec("torch"), "needs torch")
class Trainings(unittest.TestCase):
    def test_trial(self):
        """Tiny models on the CPU. What cannot run is skipped, with a line that says why."""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, os.path.join(GPU, "trainings.py"), folder, "--bin", BIN, "--trial",
                 "--train", "3", "--seconds", "120", "--only",
                 "^resnet50 fp32 (plain|offload|zero3|vmm-trusting (75|zero3))$"],
                capture_output=True, text=True, timeout=300, check=False)
            self.assertEqual(0, done.returncode, done.stderr)
            results = table.trainings(lines_of(folder, "run.jsonl"))
        for name in ("resnet50 fp32 plain", "resnet50 fp32 offload",
                     "resnet50 fp32 vmm-trusting 75"):
            self.assertTrue(results[name].has_ended(), done.stdout)
            self.assertEqual("same", table.same(results[name], results), name)
        if not importlib.util.find_spec("deepspeed"):
            self.assertEqual("DeepSpeed is not installed", results["resnet50 fp32 zero3"].skipped)
            self.assertEqual("what it is compared with has failed",
                             results["resnet50 fp32 vmm-trusting zero3"].skipped)


if __name__ == "__main__":
    if not os.path.exists(os.path.join(FAKE, "libfakecuda.so")):
        print("skipped: no fake driver was built")
        sys.exit(77)
    for missing in [] if importlib.util.find_spec("torch") else ["torch"]:
        print(f"skipped: needs {missing}")
    unittest.main()
