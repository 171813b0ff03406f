#!/usr/bin/python3
"""Trainings of a GPU, recorded on one, are repeated on the CUDA engine within less memory. The
replay (bench/cuda_replay.c) fails if the device would use what is not mapped."""
import os
import re
import subprocess
import unittest

SOURCE = os.environ.get("EBB_SOURCE_DIR", ".")
REPLAY = os.path.join(os.environ.get("EBB_BIN_DIR", "build/dev/bin"), "..", "bench",
                      "bench_cuda_replay")
TRACES = os.path.join(SOURCE, "docs", "results")
RESNET, GPT = "gpu-resnet50-h200.ebbt", "gpu-gpt-h200.ebbt"
PLANNED = [(RESNET, 75), (GPT, 75), (RESNET, 40), (GPT, 40), (GPT, 60), (RESNET, 60)]


@unittest.skipUnless(os.path.exists(REPLAY), "the benchmarks are not built")
class Replay(unittest.TestCase):
    def replay(self, trace, share, strays=0):
        """The figures of each iteration. So many of 1000 kernels name a block too many."""
        done = subprocess.run(
            [REPLAY, os.path.join(TRACES, trace), "--share", str(share), "--iterations", "9",
             "--slower", "2", "--strays", str(strays)], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), (trace, share))
        lines = [line for line in done.stdout.splitlines() if re.match(r"\d+: ", line)]
        self.assertEqual(len(lines), 9)
        return [[float(word) for word in re.findall(r"[\d.]+", line)] for line in lines]

    def test_planned(self):
        for trace, share in PLANNED if os.environ.get("EBB_TEST_WHOLE") else PLANNED[::2]:
            with self.subTest(trace=trace, share=share):
                last = self.replay(trace, share, strays=20)[-1]
                self.assertEqual(last[-1], 0, "departures")
                self.assertGreater(last[3], 0, "moved out")

    def test_all_of_it(self):
        """At the peak next to nothing is mapped anew, once there is a plan."""
        iterations = self.replay(RESNET, 100)
        self.assertLess(iterations[-1][5], 60, "pages mapped")


if __name__ == "__main__":
    unittest.main()
