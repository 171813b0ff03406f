#!/usr/bin/python3
"""The library in front of the CUDA driver, its engine, the fake driver and the programs on it, with
AddressSanitizer and UBSan. Builds them in a folder beside the build, then runs tests with that.

EBB_CUDA_SEEDS is the number of schedules for each program and backing (default 1), as in
test_cuda_whole.py. With it, or with EBB_TEST_WHOLE=1, all programs run, else some. The rest of the
engine's tests are in `make asan`.
"""
import os
import subprocess
import sys
import unittest

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("EBB_BIN_DIR") or os.path.join(SOURCE, "build", "dev", "bin")
BUILD = os.path.join(os.path.dirname(os.path.abspath(BIN)), "sanitized")
PROGRAMS = os.path.join(BUILD, "tests", "fakecuda")
WHOLE = os.environ.get("EBB_TEST_WHOLE") or os.environ.get("EBB_CUDA_SEEDS")
# What these leave out are the same calls in another order, or in larger blocks.
SOME = [f"Schedules.test_{name}" for name in (
    "within_a_budget", "torture", "ranks", "fork", "graphs", "faults", "devices", "shared_blocks",
    "a_divided_device")] + ["Whole"]
LIBRARY = os.path.join(BUILD, "bin", "libebb_cuda_alone.so")


def run(*command, **variables):
    return subprocess.run(command, env={**os.environ, **variables}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)


class Sanitized(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for command in (["cmake", "-S", SOURCE, "-B", BUILD, "-G", "Ninja",
                         "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-g1",
                         "-DEBB_SANITIZE=address,undefined"],
                        ["cmake", "--build", BUILD, "--target", "cuda_programs"]):
            done = run(*command)
            if done.returncode:
                raise AssertionError(done.stdout[-4000:])

    def passes(self, script, *tests):
        done = run("/usr/bin/python3", os.path.join(SOURCE, "tests", script), *tests,
                   EBB_SOURCE_DIR=SOURCE, EBB_BIN_DIR=os.path.join(BUILD, "bin"),
                   EBB_SANITIZE="address,undefined", EBB_CUDA_JOBS="2", FAKECUDA_SEEDS="1",
                   EBB_CUDA_SEEDS=os.environ.get("EBB_CUDA_SEEDS", "1"))
        self.assertEqual(0, done.returncode, done.stdout[-4000:])

    def test_all_are_instrumented(self):
        for file in (LIBRARY, os.path.join(PROGRAMS, "libfakecuda.so"),
                     os.path.join(PROGRAMS, "cuda_train")):
            symbols = run("nm", "-D", file).stdout
            self.assertIn("__asan_report_store", symbols, file)
            self.assertIn("__ubsan_handle", symbols, file)

    def test_errors_are_seen(self):
        """A program that writes behind its memory, with the preloaded library."""
        for preload in "", LIBRARY:
            done = run(os.path.join(PROGRAMS, "cuda_oom"), "--overrun", LD_LIBRARY_PATH=PROGRAMS,
                       LD_PRELOAD=preload)
            self.assertEqual(1, done.returncode, done.stdout)
            self.assertIn("heap-buffer-overflow", done.stdout)

    def test_schedules(self):
        self.passes("test_cuda_whole.py", *([] if WHOLE else SOME))

    def test_the_fake_driver(self):
        self.passes("test_fakecuda.py")


if __name__ == "__main__":
    if not os.path.exists(os.path.join(BIN, "libebb_cuda_alone.so")):
        print("skipped: the library is built on x86-64 only")
        sys.exit(77)
    unittest.main()
