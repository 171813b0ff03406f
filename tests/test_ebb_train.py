#!/usr/bin/python3
"""`ebb-train`: the same bits under every policy and budget, checkpoints, and bad input.

Networks are real, images are small. A network is trained for two iterations under each policy.
Still smaller images would take longer: for planes of 2 by 2, some processors have no fast kernels.
EBB_TEST_WHOLE=1 tries all policies on the large networks, and the deepest network. That takes four
minutes.
"""
import gzip
import json
import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("EBB_BIN_DIR") or os.path.join(SOURCE, "build/dev/bin")
TRAIN = os.path.join(BIN, "ebb-train")
FASHION = "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"

# Each network about as small as it can be, and the smallest share of its peak that is tried.
# Parameters, which are large beside small images, do not shrink. So the largest layer bounds the
# share.
NETS = {
    "cnn": ("--batch 8", 80),
    "alexnet": ("--batch 2 --size 64 --classes 10", 90),
    "vgg-16": ("--batch 2 --size 96 --classes 10", 60),
    "googlenet": ("--batch 2 --size 96 --classes 10", 40),
    "resnet-18": ("--batch 2 --size 96 --classes 10", 40),
    "resnet-50": ("--batch 2 --size 96 --classes 10", 40),
    "resnet-137": ("--batch 1 --size 96 --classes 10", 40),
    "wrn-28-10": ("--batch 1 --size 16", 40),
    "densenet-121": ("--batch 2 --size 96 --classes 10", 60),
    "gpt-2": ("--batch 2 --size 32 --classes 100", 60),
}
# These take most of the time. Their layers are those of smaller networks, so that only Ebb's own
# policy tries them. The last four have no kind of layer, and no use of one, of their own.
LARGE = {"alexnet", "vgg-16", "resnet-50", "resnet-137", "wrn-28-10", "densenet-121"}
HALF = {"googlenet": 0, "resnet-18": 1}  # each of them tries every second policy, from there on
LARGEST = {"vgg-16", "resnet-50", "resnet-137", "wrn-28-10"}
WHOLE = bool(os.environ.get("EBB_TEST_WHOLE"))
POLICIES = ["static", "layrub:intra", "layrub:inter", "layrub:hybrid", "vdnn:all", "vdnn:conv"]


def run(*words, check=True):
    """The finished process of ebb-train with these words. A word may contain several, divided by
    blanks."""
    command = [TRAIN] + [part for word in words for part in word.split()]
    environment = dict(os.environ, OMP_NUM_THREADS="2")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300,
                          env=environment)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(command)}: {done.returncode}: {done.stderr}")
    return done


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def figures(self, *words):
        done = run(*words, f"--quiet --store {self.folder} --summary-json -")
        self.assertEqual(done.stderr, "")
        return json.loads(done.stdout)

    def refused(self, code, says, *words):
        """ebb-train ends with this code, and stderr has this text. It prints nothing else."""
        done = run(*words, check=False)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertIn(says, done.stderr)
        self.assertTrue(done.stderr.startswith("ebb-train: "), done.stderr)
        return done.stderr


class SameBits(Case):
    @staticmethod
    def policies(net):
        if WHOLE:
            return POLICIES
        if net in HALF:
            return POLICIES[HALF[net]::2]
        return [] if net in LARGE else POLICIES

    def check_net(self, net):
        options, least = NETS[net]
        words = (net, options, "--iterations 2")
        base = self.figures(*words)
        self.assertEqual(len(set(base["losses"])), 2, "losses do not change")
        self.assertNotIn(None, base["losses"])
        self.assertEqual(base["moved_out_bytes"], 0)
        for policy in self.policies(net):
            other = self.figures(*words, f"--policy {policy}")
            self.assertEqual(other["losses"], base["losses"], policy)
            moves = policy in POLICIES[2:] and not (net == "gpt-2" and policy == "vdnn:conv")
            self.assertEqual(other["moved_out_bytes"] > 0, moves, policy)
        other = self.figures(*words, f"--budget {least}%")
        self.assertEqual(other["losses"], base["losses"], f"{least} %")
        self.assertLessEqual(other["peak_resident_bytes"], other["budget_bytes"])
        self.assertLess(other["budget_bytes"], base["live_peak_bytes"])
        self.assertGreater(other["moved_out_bytes"], 0)
        self.assertLess(base["live_peak_bytes"], base["static_peak_bytes"])


for name in NETS if WHOLE else NETS.keys() - LARGEST:
    def check(self, net=name):
        self.check_net(net)
    setattr(SameBits, f"test_{name.replace('-', '_')}", check)


class Plans(Case):
    def test_a_plan_is_in_force_from_the_first_iteration(self):
        figures = self.figures("resnet-18 --batch 2 --size 96 --iterations 3 --budget 50%")
        self.assertEqual(figures["planned_iterations"], 3)

    def test_a_trace_is_recorded(self):
        self.figures("resnet-18 --batch 2 --size 96 --iterations 3 --record",
                     self.path("run.ebbt"))
        ebb = os.path.join(BIN, "ebb")
        if os.path.exists(ebb):
            done = subprocess.run([ebb, "info", self.path("run.ebbt")], capture_output=True,
                                  text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("iteration", done.stdout)


class Deep(Case):
    def check_depth(self, depth, budget):
        """Small images. Large ones: bench/layrub.py --deepest."""
        figures = self.figures(f"resnet-{depth} --batch 1 --size 96 --classes 10 --iterations 2",
                               f"--budget {budget}")
        self.assertEqual(figures["planned_iterations"], 2)
        self.assertLessEqual(figures["peak_resident_bytes"], budget)
        self.assertGreater(figures["static_peak_bytes"], 2 * budget)
        self.assertEqual(len(set(figures["losses"])), 2)

    def test_resnet_within_a_budget(self):
        """The deepest network takes a minute."""
        for depth, budget in ((305, 550 << 20), (1517, 3 << 30)) if WHOLE else ((152, 300 << 20),):
            with self.subTest(depth):
                self.check_depth(depth, budget)


class Fashion(Case):
    def test_it_learns(self):
        """A twelfth of an epoch suffices for far more than a guess. Four epochs give 91 %."""
        figures = self.figures("cnn --data fashion --batch 64 --rate 0.05 --iterations 75",
                               "--budget 80%")
        self.assertGreater(figures["test_accuracy"], 0.6)


class Checkpoints(Case):
    def check_resume(self, words, budget=""):
        whole = self.figures(words, "--iterations 6", f"--checkpoint {self.path('whole')}")
        self.figures(words, "--iterations 2", f"--checkpoint {self.path('part')}")
        resumed = self.figures(words, "--iterations 6", f"--resume {self.path('part')}", budget,
                               f"--checkpoint {self.path('resumed')}")
        self.assertEqual(resumed["first_iteration"], 2)
        self.assertEqual(resumed["losses"], whole["losses"][2:])
        with open(self.path("whole"), "rb") as one, open(self.path("resumed"), "rb") as other:
            self.assertEqual(one.read(), other.read())
        return whole, resumed

    def test_resume(self):
        self.check_resume("resnet-18 --batch 2 --size 96 --classes 10", "--budget 60%")

    def test_resume_with_dropout(self):
        self.check_resume("googlenet --batch 2 --size 96 --classes 10 --halve-rate-every 2")

    def test_resume_with_adam(self):
        self.check_resume("gpt-2 --batch 2 --size 16 --classes 50", "--policy layrub:hybrid")

    if WHOLE:  # else test_resume and test_it_learns have a half of it each
        def test_resume_with_fashion(self):
            """The accuracy is the same under every policy. Each run tests 10,000 images."""
            words = "cnn --data fashion --batch 64"
            whole, resumed = self.check_resume(words, "--policy layrub:hybrid")
            self.assertGreater(whole["test_accuracy"], 0)
            self.assertEqual(resumed["test_accuracy"], whole["test_accuracy"])

    def test_checkpoint_every(self):
        words = "cnn --batch 4 --iterations 5"
        self.figures(words, f"--checkpoint-every 2 --checkpoint {self.path('a')}")
        self.assertEqual(os.listdir(self.folder), ["a"])
        resumed = self.figures(words, f"--resume {self.path('a')}")
        self.assertEqual(resumed["losses"], [])

    def test_bad_files(self):
        good, bad = self.path("good"), self.path("bad")
        words = "cnn --batch 4 --iterations 2 --quiet"
        run(words, f"--checkpoint {good}")
        with open(good, "rb") as file:
            content = file.read()
        damaged = bytearray(content)
        damaged[len(content) // 2] ^= 1
        for content_of_bad, says in ((content[:-9], "truncated"), (content[:20], "ends too early"),
                                     (bytes(damaged), "damaged"), (b"x" * 500, "not a checkpoint"),
                                     (gzip.compress(content), "not a checkpoint")):
            with open(bad, "wb") as file:
                file.write(content_of_bad)
            self.refused(1, says, words, f"--resume {bad}")
        self.refused(1, "cannot be opened", words, f"--resume {self.path('missing')}")
        self.refused(2, "is of the network cnn, not resnet-18",
                     f"resnet-18 --batch 4 --size 32 --quiet --resume {good}")
        self.refused(2, "with batch 4, not 5", f"cnn --batch 5 --quiet --resume {good}")
        self.refused(2, "with seed 1, not 9", words, f"--seed 9 --resume {good}")
        self.refused(1, "cannot be written", words, f"--checkpoint {self.folder}/no/such")


class Input(Case):
    def test_options(self):
        for words, says in {
                "": "no network is named", "cnn resnet-18": "one network is enough",
                "cnn --batch 0": "'0' is not a whole number from 1",
                "cnn --batch -1": "'-1' is not a whole number", "cnn --batch": "--batch",
                "cnn --batch 1e3": "'1e3' is not a whole number",
                "cnn --frobnicate": "--frobnicate", "cnn --policy lru": "'lru' is not ebb, static",
                "cnn --data cats": "'cats' is not fashion", "cnn --rate -1": "'-1' is not a number",
                "cnn --rate nan": "'nan' is not a number", "cnn --budget 0": "'0' is not a size",
                "cnn --budget 40x": "'40x' is not a size", "cnn --budget -5%": "'-5%' is not a size",
                "cnn --budget 1G --policy static": "policy static has none",
                "cnn --epochs 2": "synthetic data have none",
                "gpt --data fashion": "no use for images",
                "cnn --data fashion --size 32": "a size and classes of its own",
                "cnn --data fashion --epochs 1 --iterations 1": "--iterations",
                "cnn --data fashion --batch 60001": "exceeds the 60000 training images",
                "cnn --checkpoint-every 3": "needs --checkpoint",
                "alexnet --size 32": "exceeds the image",
        }.items():
            with self.subTest(words):
                self.refused(2, says, words)

    def test_names(self):
        for net in ("resnet", "resnet-51", "resnet-x", "vgg-17", "gpt-0", "gpt-97", "CNN"):
            self.assertIn("densenet-121", self.refused(2, "there is no such network", net))

    def test_small_budget(self):
        """Below what one layer uses, the error has the layer and a budget that is enough for it."""
        says = self.refused(3, "uses at once", "cnn --batch 64 --budget 100K")
        self.assertIn("smallest feasible budget", says)

    def test_help_and_version(self):
        self.assertIn("usage: ebb-train NET", run("--help").stdout)
        self.assertRegex(run("--version").stdout, r"^ebb-train \d")

    def test_progress(self):
        done = run(f"cnn --batch 4 --iterations 2 --store {self.folder}")
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 2)
        self.assertRegex(lines[1], r"^2/2  loss \d+\.\d+  [\d.]+ images/s  .* resident$")
        self.assertIn("2 iterations", done.stdout)


if __name__ == "__main__":
    if not os.path.exists(TRAIN):
        print("skipped: needs trainer, ebb-train is not built")
        sys.exit(77)
    if not os.path.exists(FASHION):
        print("skipped: needs dataset-fashion-mnist")
        sys.exit(77)
    unittest.main()
