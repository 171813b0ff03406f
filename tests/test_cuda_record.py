#!/usr/bin/python3
"""A CUDA program on the fake driver is recorded and run; its trace goes through the commands."""
import json
import os
import subprocess
import tempfile
import unittest

BIN = os.path.abspath(os.environ.get("EBB_BIN_DIR", "build/dev/bin"))
WHOLE = bool(os.environ.get("EBB_TEST_WHOLE"))
EBB = os.path.join(BIN, "ebb")
FAKE = os.path.join(os.path.dirname(BIN), "tests", "fakecuda")
MIB = 1 << 20
# Each page of a block is computed, but not each byte.
TRAIN = [os.path.join(FAKE, "cuda_train"), "--no-serial", "--layers=8", f"--bytes={4 * MIB}",
         "--iterations=10", "--every=16"]
SLOW = [TRAIN[0], "--no-serial", "--layers=8", f"--bytes={2 * MIB}", "--iterations=12",
        "--every=16"]


def on_fake(*arguments):
    environment = dict(os.environ, EBB_CUDA_DRIVER=os.path.join(FAKE, "libcuda.so.1"),
                       LD_LIBRARY_PATH=FAKE)
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=120,
                          check=False)


@unittest.skipUnless(os.path.exists(TRAIN[0]) and
                     os.path.exists(os.path.join(BIN, "libebb_cuda.so")), "no fake driver")
class Device(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.alone = on_fake(*TRAIN)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def command(self, *arguments):
        done = subprocess.run([EBB, *arguments], capture_output=True, text=True, timeout=120,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_recorded(self):
        trace = self.path("cuda.ebbt")
        recorded = on_fake(EBB, "record", "--device", "cuda", "-o", trace, "--", *TRAIN)
        self.assertEqual((recorded.returncode, recorded.stdout), (0, self.alone.stdout),
                         recorded.stderr)
        info = json.loads(self.command("info", trace, "--json"))
        self.assertGreater(info["events"], 1000)
        self.assertGreaterEqual(info["peak_bytes"], 8 * 2 * 4 * MIB)  # weights and outputs
        plan = json.loads(self.command("plan", trace, "--budget", "100%", "--machine", "h200",
                                       "--json"))
        self.assertIn("absences", plan)
        if os.environ.get("EBB_LAB") != "OFF":
            self.command("compare", trace, "--budgets", "70%", "--machine", "h200", "--policies",
                         "ebb,fifo")
        self.command("report", trace, "-o", self.path("report.html"))
        self.assertGreater(os.path.getsize(self.path("report.html")), 10000)

    def test_marks(self):
        """Iterations begin where the program says so."""
        trace = self.path("marks.ebbt")
        recorded = on_fake(EBB, "record", "--device", "cuda", "-o", trace, "--", *TRAIN, "--marks")
        self.assertEqual(recorded.returncode, 0, recorded.stderr)
        self.assertEqual(json.loads(self.command("info", trace, "--json"))["iterations"], 10)

    def test_run(self):
        summary = self.path("summary.json")
        ran = on_fake(EBB, "run", "--device", "cuda", "--budget", "1G", "--no-cache",
                      "--summary=always", "--summary-json", summary, "--", *TRAIN)
        self.assertEqual((ran.returncode, ran.stdout), (0, self.alone.stdout), ran.stderr)
        with open(summary, encoding="utf-8") as file:
            figures = json.load(file)
        self.assertEqual(figures["device"], "cuda")
        self.assertEqual(len(figures["devices"]), 1)
        device = figures["devices"][0]
        self.assertEqual(device["budget_bytes"], 1 << 30)
        self.assertLessEqual(device["peak_resident_bytes"], 1 << 30)
        self.assertGreater(device["peak_resident_bytes"], 8 * 2 * 4 * MIB)
        self.assertIn("ebb: device cuda: Fake CUDA device", ran.stderr)

    def slow(self, budget, backing, *options):
        """A run on a device that takes its time. Its figures."""
        summary = self.path("slow")
        ran = on_fake("env", "FAKECUDA_FAST=1", "FAKECUDA_KERNEL_US=4000", "FAKECUDA_MOVE_US=8000",
                      EBB, "run", "--device", "cuda", "--budget", budget, *options,
                      "--cuda-backing", backing, "--summary-json", summary, "--", *SLOW)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        with open(summary, encoding="utf-8") as file:
            return ran.stdout, json.load(file)

    def test_stalls_are_no_work(self):
        """Moves take far longer than kernels. The plan knows what an iteration takes without."""
        _, free = self.slow("1G", "managed", "--no-cache")
        usual = free["predicted_iteration_ns"]
        self.assertGreater(usual, 24 * 4_000_000)  # kernels
        for backing in ("managed", "vmm-trusting"):
            _, short = self.slow("32M", backing, "--no-cache")
            measured, iterations = short["iteration_ns"]["median"], short["iterations"]
            self.assertGreater(measured, 1.5 * usual, backing)
            work = measured - short["stall_ns"] / iterations
            for without in (short["predicted_iteration_ns"], work):  # beside other tests
                self.assertLess(without - usual, 0.7 * (measured - usual), backing)
            self.assertGreater(short["predicted_iteration_ns"], 0.5 * usual, backing)

    def test_second_run(self):
        """It has a plan from its first iterations on, of the same backing, and computes the same."""
        os.environ["XDG_CACHE_HOME"] = self.path("cache")
        self.addCleanup(os.environ.pop, "XDG_CACHE_HOME")
        alone = on_fake(*SLOW)
        for backing in ("managed", "vmm-trusting") if WHOLE else ("vmm-trusting",):
            for use in ("none", "used"):
                printed, figures = self.slow("32M", backing)
                self.assertEqual((alone.stdout, use), (printed, figures["plan_cache"]), backing)
                self.assertGreater(figures["moved_out_bytes"], 0, backing)
                self.assertLessEqual(figures["peak_resident_bytes"], 32 * MIB, backing)
                if use == "used":
                    self.assertLessEqual(figures["planned_from_iteration"], 2, backing)

    def test_backings(self):
        """Less than the program needs: the same results, within the budget."""
        report = self.path("report")
        os.environ["FAKECUDA_REPORT"] = report
        self.addCleanup(os.environ.pop, "FAKECUDA_REPORT")
        for backing in ("managed", "vmm-host", "vmm-trusting"):
            summary = self.path(backing)
            ran = on_fake(EBB, "run", "--device", "cuda", "--budget", "60M", "--no-cache",
                          "--cuda-backing", backing, "--summary-json", summary, "--", *TRAIN)
            self.assertEqual((ran.returncode, ran.stdout), (0, self.alone.stdout), ran.stderr)
            with open(summary, encoding="utf-8") as file:
                figures = json.load(file)
            self.assertGreater(figures["moved_out_bytes"], 0, backing)
            self.assertLessEqual(figures["peak_resident_bytes"], 60 * MIB, backing)
            with open(report, encoding="utf-8") as file:
                self.assertEqual(json.load(file)["maps"] > 0, backing != "managed", backing)


if __name__ == "__main__":
    unittest.main()
