#!/usr/bin/python3
"""The library in front of the CUDA driver with its engine, without a parent. Programs of the driver
API compute what they compute without it, within a budget, with evictions at random.

The programs are those of tests/fakecuda/programs. The fake driver counts more bytes on the device
than the budget as an error, and so each access to memory that is not there. EBB_CUDA_SEEDS is the
number of schedules for each program (default 6).
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("EBB_BIN_DIR") or os.path.join(SOURCE, "build", "dev", "bin")
FAKE = os.path.join(os.path.dirname(BIN), "tests", "fakecuda")
LIBRARY = os.path.join(BIN, "libebb_cuda_alone.so")
SEEDS = int(os.environ.get("EBB_CUDA_SEEDS", "6"))
MIB = 1 << 20
TRAININGS = [[], ["--streams=4", "--async-alloc"], ["--graphs"], ["--hidden"],
             ["--bytes=3000000", "--layers=6"]]


def run(command, **variables):
    env = {"PATH": os.environ["PATH"], **{name: str(value) for name, value in variables.items()}}
    return subprocess.run([os.path.join(FAKE, command[0]), *command[1:]], env=env, timeout=120,
                          capture_output=True, text=True, check=False)


def through(command, **variables):
    return run(command, LD_PRELOAD=LIBRARY, EBB_CUDA_DRIVER=os.path.join(FAKE, "libfakecuda.so"),
               **variables)


class Whole(unittest.TestCase):
    def same(self, command, seeds=SEEDS, **variables):
        plain = run(command, LD_LIBRARY_PATH=FAKE)
        self.assertEqual(0, plain.returncode, plain.stderr)
        for seed in range(1, seeds + 1):
            done = through(command, FAKECUDA_SEED=seed, EBB_ALONE_CHAOS=7 * seed, **variables)
            self.assertEqual((plain.stdout, 0, ""), (done.stdout, done.returncode, done.stderr),
                             f"{command}, seed {seed}")

    def test_without_a_budget(self):
        for options in TRAININGS:
            self.same(["cuda_train", *options])

    def test_within_a_budget(self):
        for options in TRAININGS:
            self.same(["cuda_train", *options], EBB_ALONE_BUDGET=24 * MIB,
                      FAKECUDA_BUDGET=24 * MIB)

    def test_nothing_moves(self):
        self.same(["cuda_train"], EBB_ALONE_NATIVE=1)

    def test_torture(self):
        self.same(["cuda_torture"], EBB_ALONE_BUDGET=24 * MIB)

    def test_ranks(self):
        """Processes that pass gradients on through host memory, as NCCL does when told so."""
        self.same(["cuda_ranks"])

    def test_fork(self):
        self.same(["cuda_fork"])

    def test_threads(self):
        """Three trainings at a time, each on a stream of its own."""
        self.same(["cuda_train", "--threads=3"])
        self.same(["cuda_train", "--threads=3"], EBB_ALONE_BUDGET=24 * MIB,
                  FAKECUDA_BUDGET=24 * MIB)
        # Two backward passes at a time fill the budget. A third thread allocates all the same.
        self.same(["cuda_train", "--threads=3", "--bytes=4000000", "--layers=3", "--iterations=2"],
                  EBB_ALONE_BUDGET=24 * MIB, FAKECUDA_BUDGET=24 * MIB)

    def test_bytes_on_the_device(self):
        """The training needs 43 MiB. It gets 24, and never has more on the device."""
        command, budget = ["cuda_train", "--bytes=3000000", "--layers=6"], 24 * MIB
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report")
            run(command, LD_LIBRARY_PATH=FAKE, FAKECUDA_REPORT=path)
            with open(path, encoding="utf-8") as file:
                self.assertGreater(json.load(file)["devices"][0]["most_bytes"], 40 * MIB)
            through(command, EBB_ALONE_BUDGET=budget, FAKECUDA_REPORT=path)
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
        self.assertLessEqual(report["devices"][0]["most_bytes"], budget)
        self.assertGreater(report["prefetched_to_host_bytes"], 0)
        self.assertEqual((0, 0, 0), (report["violations"], report["faults"],
                                     report["remote_accesses"]))

    def test_a_device_that_cannot(self):
        """One line, and the program runs as without the library."""
        plain = run(["cuda_train"], LD_LIBRARY_PATH=FAKE)
        done = through(["cuda_train"], FAKECUDA_NO_CONCURRENT=1)
        self.assertEqual((plain.stdout, 0), (done.stdout, done.returncode))
        self.assertEqual(1, done.stderr.count("\n"), done.stderr)
        self.assertTrue(re.match(r"ebb: GPU 0: .*the budget is NOT enforced", done.stderr),
                        done.stderr)

    def test_an_older_driver(self):
        plain = run(["cuda_train"], LD_LIBRARY_PATH=FAKE)
        done = through(["cuda_train"], FAKECUDA_DRIVER=12020)
        self.assertEqual((plain.stdout, 0), (done.stdout, done.returncode))
        self.assertEqual("ebb: the CUDA driver is version 12.2, 12.4 is needed: the budget is NOT "
                         "enforced\n", done.stderr)

    def test_a_divided_device(self):
        """MIG: one device, with the memory of its instance."""
        self.same(["cuda_train"], FAKECUDA_MIG=1)


if __name__ == "__main__":
    if not os.path.exists(LIBRARY):
        print("skipped: the library is built on x86-64 only")
        sys.exit(77)
    unittest.main()
