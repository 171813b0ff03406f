#!/usr/bin/python3
"""The fake CUDA driver: programs pass on it under many schedules, and planted errors are found.

FAKECUDA_SEEDS is the number of schedules for each program (default 6). A failing case names its
seed, so that it can be run again by hand.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("EBB_BIN_DIR") or os.path.join(SOURCE, "build/dev/bin")
FAKE = os.path.join(os.path.dirname(BIN), "tests/fakecuda")
SEEDS = int(os.environ.get("FAKECUDA_SEEDS", "6"))
VIOLATED, DIFFERS, FAILED = 86, 1, 3  # exit codes: of the fake, of programs


class Run:
    """One run of a program on the fake alone."""

    def __init__(self, *command, timeout=60, **settings):
        with tempfile.TemporaryDirectory() as folder:
            report = os.path.join(folder, "report.json")
            environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": FAKE,
                           "FAKECUDA_REPORT": report}
            for name, value in settings.items():
                environment[f"FAKECUDA_{name.upper()}"] = str(value)
            done = subprocess.run([os.path.join(FAKE, command[0]), *command[1:]], timeout=timeout,
                                  env=environment, capture_output=True, text=True, check=False)
            self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
            self.report = {}
            if os.path.exists(report):
                with open(report, encoding="utf-8") as file:
                    self.report = json.load(file)


class Case(unittest.TestCase):
    def passes(self, *command, **settings):
        run = Run(*command, **settings)
        self.assertEqual(run.code, 0, f"{command} {settings}\n{run.err}")
        self.assertEqual(run.report["violations"], 0)
        return run

    def finds(self, kind, *command, **settings):
        """The fake itself says that the program is wrong."""
        run = Run(*command, **settings)
        self.assertEqual(run.code, VIOLATED, f"{command} {settings}\n{run.err}")
        self.assertIn(kind, run.report["kinds"], run.err)
        return run


class Programs(Case):
    def schedules(self, *command, **settings):
        for seed in range(1, SEEDS + 1):
            with self.subTest(seed=seed):
                self.passes(*command, seed=seed, races=seed % 2, **settings)

    def test_train(self):
        self.schedules("cuda_train", "--streams=3")

    def test_train_async(self):
        self.schedules("cuda_train", "--streams=3", "--async-alloc", "--hidden")

    def test_train_graphs(self):
        self.schedules("cuda_train", "--streams=2", "--graphs")

    def test_train_threads(self):
        self.schedules("cuda_train", "--threads=3", "--streams=2", "--bytes=20000")

    def test_train_managed_in_little_memory(self):
        run = self.passes("cuda_train", "--managed", "--streams=2", memory="600K")
        self.assertGreater(run.report["evicted_bytes"], 0)
        self.assertLessEqual(run.report["devices"][0]["most_bytes"], 600 << 10)
        self.schedules("cuda_train", "--managed", "--streams=2", memory="600K")

    def test_torture(self):
        for seed in range(1, SEEDS + 1):
            with self.subTest(seed=seed):
                self.passes("cuda_torture", f"--seed={seed}", seed=seed, races=seed % 2)
                self.passes("cuda_torture", f"--seed={seed}", "--managed", seed=seed,
                            memory="128K", page="4K")

    def test_graphs(self):
        self.schedules("cuda_graphs")

    def test_ranks(self):
        self.schedules("cuda_ranks", "--ranks=3")
        self.schedules("cuda_ranks", "--ranks=4", "--devices=2", devices=2)

    def test_processes(self):
        """Two of them, by memory that both have registered."""
        self.schedules("cuda_exchange", devices=2)
        for seed in range(1, SEEDS + 1):  # no race check: it does not know the flags of a proxy
            self.passes("cuda_exchange", "--copies", seed=seed, devices=2)
        codes = {Run("cuda_exchange", "--drop-wait", seed=seed).code for seed in range(1, 9)}
        self.assertIn(DIFFERS, codes)

    def test_fork_ipc_flip_oom(self):
        self.schedules("cuda_fork")
        self.passes("cuda_ipc")
        self.schedules("cuda_flip")
        run = self.passes("cuda_oom", memory="40M")
        self.assertEqual(run.out, "40 allocations\n")

    def test_memory(self):
        self.schedules("cuda_memory", "--steps=40")
        self.assertEqual(Run("cuda_memory", "--steps=40", "--leak").code, DIFFERS)

    def test_managed(self):
        run = self.passes("cuda_managed")
        self.assertGreater(run.report["prefetched_to_host_bytes"], 0)
        self.assertGreater(run.report["remote_accesses"], 0)
        self.schedules("cuda_managed", memory="500K")

    def test_late_copies_and_lazy_device(self):
        self.schedules("cuda_torture", faults="copy-late:3%", lazy_us=2000)

    def test_fast(self):
        self.passes("cuda_train", "--streams=3", "--hidden", "--graphs", fast=1)
        self.passes("cuda_torture", fast=1)
        self.passes("cuda_ranks", "--ranks=3", fast=1)
        self.assertRegex(self.passes("cuda_launches", "--launches=1000", fast=1).out, "ns")


class Planted(Case):
    def test_missing_wait(self):
        self.finds("race", "cuda_train", "--streams=3", "--drop-wait", races=1)
        self.finds("race", "cuda_torture", "--drop=7", races=1)
        codes = {Run("cuda_torture", "--drop=2", seed=seed).code for seed in range(1, 9)}
        self.assertIn(DIFFERS, codes)  # without the race check, the bytes tell

    def test_use_after_free(self):
        run = self.finds("illegal-address", "cuda_train", "--free-early")
        self.assertIn("now released", run.err)
        self.assertIn("CUDA_ERROR_ILLEGAL_ADDRESS", run.report["errors"])
        self.finds("illegal-address", "cuda_train", "--free-early", "--async-alloc")

    def test_unmapped_and_closed(self):
        self.finds("illegal-address", "cuda_flip", "--unmapped")
        self.finds("illegal-address", "cuda_flip", "--no-access")
        for seed in range(1, 6):
            self.assertNotEqual(Run("cuda_flip", "--flip-early", seed=seed).code, 0)

    def test_host_access(self):
        run = Run("cuda_flip", "--touch")
        self.assertEqual(run.code, -11, run.err)
        self.assertIn("host touches device memory", run.err)

    def test_budget(self):
        most = self.passes("cuda_train").report["devices"][0]["most_bytes"]
        self.passes("cuda_train", budget=most)
        self.finds("budget", "cuda_train", budget=most - 1)
        self.finds("budget", "cuda_train", "--managed", budget=300000)

    def test_capture(self):
        run = Run("cuda_graphs", "--alloc-in-capture")
        self.assertEqual(run.code, FAILED)
        self.assertIn("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", run.report["errors"])

    def test_discard(self):
        self.assertEqual(Run("cuda_managed", "--discard-live").code, DIFFERS)
        self.finds("race", "cuda_managed", "--discard-race", races=1)

    def test_value_that_nobody_waits_for(self):
        self.passes("cuda_managed", races=1)
        self.finds("race", "cuda_managed", "--drop-value", races=1)

    def test_peer_without_access(self):
        self.finds("illegal-address", "cuda_ranks", "--devices=2", "--no-peer", devices=2)


class Faults(Case):
    def test_errors(self):
        for fault, name in (("alloc:5", "OUT_OF_MEMORY"), ("launch:9", "LAUNCH_OUT_OF_RESOURCES"),
                            ("stream:2", "OUT_OF_MEMORY"), ("event:1", "OUT_OF_MEMORY")):
            run = Run("cuda_train", "--streams=1", faults=fault)
            self.assertEqual(run.code, FAILED, fault)
            self.assertIn(f"CUDA_ERROR_{name}", run.report["errors"], fault)
        for fault in ("managed:3", "prefetch:2", "host:1"):
            self.assertEqual(Run("cuda_managed", faults=fault).code, FAILED, fault)
        for fault in ("create:2", "map:2"):
            self.assertEqual(Run("cuda_flip", faults=fault).code, FAILED, fault)
        self.assertEqual(Run("cuda_train", faults="no-such:1").code, -6)

    def test_kernel_that_never_ends(self):
        with self.assertRaises(subprocess.TimeoutExpired):
            Run("cuda_train", faults="stall:3", timeout=3)

    def test_pinned_memory_is_full(self):
        self.assertEqual(Run("cuda_torture", pinned="20000").code, FAILED)
        self.passes("cuda_torture", pinned="60000")

    def test_no_device(self):
        run = Run("cuda_train", no_device=1)
        self.assertEqual(run.code, FAILED)
        self.assertEqual(run.report["errors"], {"CUDA_ERROR_NO_DEVICE": 1})

    def test_no_concurrent_access(self):
        run = Run("cuda_managed", no_concurrent=1)
        self.assertEqual(run.code, FAILED)
        self.assertIn("CUDA_ERROR_INVALID_DEVICE", run.report["errors"])

    def test_older_driver(self):
        run = Run("cuda_flip", driver=12000)
        self.assertEqual(run.code, FAILED)
        self.assertIn("CUDA_ERROR_NOT_SUPPORTED", run.report["errors"])


RESOLVE = r"""
import ctypes, os, sys
cuda = ctypes.CDLL(os.environ["FAKE"])
def get(name, version, flags=0):
    to, status = ctypes.c_void_p(), ctypes.c_int(-1)
    code = cuda.cuGetProcAddress_v2(name.encode(), ctypes.byref(to), version,
                                    ctypes.c_uint64(flags), ctypes.byref(status))
    return code, to.value, status.value
def at(name):
    return ctypes.cast(getattr(cuda, name), ctypes.c_void_p).value
assert get("cuMemAlloc", 3020) == (0, at("cuMemAlloc_v2"), 0)
assert get("cuMemAlloc", 2000) == (0, at("cuMemAlloc"), 0)
assert get("cuMemAlloc", 1000) == (0, None, 2)
assert get("cuNoSuch", 13000) == (0, None, 1)
assert get("", 0) == (0, None, 1)
assert get("cuMemAlloc", 99000)[0] == 1
assert get("cuMemcpyHtoD", 13000, 2) == (0, at("cuMemcpyHtoD_v2_ptds"), 0)
assert get("cuStreamWaitValue32", 11070, 2) == (0, at("cuStreamWaitValue32_v2_ptsz"), 0)
assert get("cuStreamWaitValue32", 11060, 2) == (0, at("cuStreamWaitValue32_ptsz"), 0)
assert get("cuCtxGetDevice", 13000, 2) == (0, at("cuCtxGetDevice_v2"), 0)
newer = os.environ.get("FAKECUDA_NEWER") == "1"
assert (get("cuLaunchKernel", 13000)[1] == at("cuLaunchKernel")) != newer
assert get("cuLaunchKernel", 12000)[1] == at("cuLaunchKernel")
table = [ctypes.c_void_p(), ctypes.c_void_p()]
for one in table:
    assert cuda.cuGetExportTable(ctypes.byref(one), ctypes.create_string_buffer(16)) == 0
assert table[0].value == table[1].value
names = [line[14:-2] for line in open(sys.argv[1]) if line.startswith("EBB_CUDA_NAME(")]
assert len(names) == 637 and all(hasattr(cuda, name) for name in names)
assert cuda.cuTexRefCreate(None) == 801
"""


class Resolution(unittest.TestCase):
    def test_names(self):
        names = os.path.join(SOURCE, "shim/cuda/names.def")
        for newer in "01":
            done = subprocess.run(
                [sys.executable, "-c", RESOLVE, names], capture_output=True, text=True, timeout=60,
                check=False, env={"FAKE": f"{FAKE}/libfakecuda.so", "FAKECUDA_NEWER": newer})
            self.assertEqual(done.returncode, 0, done.stderr)


class Scripts(unittest.TestCase):
    def test_a_driver_without_a_device(self):
        """bench/gpu/run.sh says so where the driver is installed, and builds nothing."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "ldconfig")  # the driver is installed for the whole system
            with open(path, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\necho libcuda.so.1\n")
            os.chmod(path, 0o755)
            done = subprocess.run(
                [os.path.join(SOURCE, "bench/gpu/run.sh"), os.path.join(folder, "results")],
                env={"PATH": f"{folder}:{os.environ['PATH']}", "LD_LIBRARY_PATH": FAKE,
                     "FAKECUDA_NO_DEVICE": "1"},
                timeout=60, capture_output=True, text=True, check=False)
            self.assertEqual((77, "no GPU\n", ""), (done.returncode, done.stdout, done.stderr))
            self.assertFalse(os.path.exists(os.path.join(folder, "results")))


if __name__ == "__main__":
    if not os.path.exists(os.path.join(FAKE, "libfakecuda.so")):
        print("skipped: no fake driver was built")
        sys.exit(77)
    unittest.main()
