#!/usr/bin/python3
"""`ebb-train --tiers`: trainings that are carried out on fast memory and a slow tier in place.

Under every policy the losses are those of a training in one memory. In each step that is sampled,
each tier holds what the plan says, as the kernel counts it.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

from devices import WHOLE

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("EBB_BIN_DIR") or os.path.join(SOURCE, "build/dev/bin")
TRAIN = os.path.join(BIN, "ebb-train")
HAS_LAB = os.environ.get("EBB_LAB") != "OFF"
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "memory"
WHOLE = bool(os.environ.get("EBB_TEST_WHOLE"))  # else cnn alone tries all policies
ITERATIONS = 5
POLICIES = ["deeptm", "deeptm:-asynchronous", "autotm:static", "sentinel", "first-touch", "ebb"]
NETS = {
    "cnn": "cnn --batch 8",
    "resnet-18": "resnet-18 --batch 2 --size 64 --classes 10",
    "gpt-2": "gpt-2 --batch 2 --size 16 --classes 50",
}
# A slow tier for which copies are worth their time even for small networks.
MACHINE = {"schema": "ebb.machine/1", "name": "test",
           "tiers": [{"read": "100GB/s", "write": "100GB/s"},
                     {"read": "500MB/s", "write": "200MB/s"}],
           "out": {"bytes_per_second": "2GB/s"}, "in": {"bytes_per_second": "2GB/s"}}


def train(*words):
    """The finished process of ebb-train with these words. A word may contain several."""
    command = [TRAIN] + [part for word in words for part in word.split()]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300,
                          env=dict(os.environ, OMP_NUM_THREADS="2"))


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.machine = self.path("machine.json")
        with open(self.machine, "w", encoding="utf-8") as file:
            json.dump(MACHINE, file)

    def path(self, name):
        return os.path.join(self.folder, name)

    def figures(self, *words):
        done = train(*words, "--quiet --summary-json -")
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return json.loads(done.stdout)

    def tiered(self, *words, share="1:4", policy="deeptm", store=MEMORY):
        return self.figures(*words, f"--tiers {share} --policy {policy} --store {store}",
                            f"--machine {self.machine}")

    def refused(self, code, says, *words):
        done = train("cnn --batch 4 --quiet", *words)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertIn(says, done.stderr)
        self.assertTrue(done.stderr.startswith("ebb-train: "), done.stderr)


@unittest.skipUnless(HAS_LAB, "skipped: needs lab")
class Carried(Case):
    def check_residency(self, figures, share):
        tiers = figures["tiers"]
        self.assertEqual(tiers["planned_iterations"], ITERATIONS - 2)
        self.assertGreater(tiers["sampled_operations"], 0)
        self.assertEqual(tiers["off_operations"], 0)
        self.assertAlmostEqual(tiers["budget_bytes"] / tiers["peak_bytes"], share, places=4)
        self.assertLessEqual(tiers["fast_bytes"], tiers["budget_bytes"])
        self.assertLessEqual(tiers["fast_bytes"], tiers["planned_fast_bytes"])
        self.assertEqual(tiers["slow_bytes"], tiers["planned_slow_bytes"])

    def check_net(self, net, shares=(("1:1", 1 / 2), ("1:4", 1 / 5)), policies=tuple(POLICIES)):
        words = f"{NETS[net]} --iterations {ITERATIONS}"
        losses = self.figures(words)["losses"]
        self.assertEqual(len(set(losses)), ITERATIONS, "losses do not change")
        copied = set()
        for policy in policies:
            for share, fraction in shares:
                with self.subTest(policy=policy, share=share):
                    figures = self.tiered(words, share=share, policy=policy)
                    self.assertEqual(figures["losses"], losses)
                    self.check_residency(figures, fraction)
                    if figures["tiers"]["copies"]:
                        copied.add(policy)
                    if policy in ("deeptm:-asynchronous", "autotm:static", "first-touch"):
                        self.assertEqual(figures["tiers"]["same_operations"],
                                         figures["tiers"]["sampled_operations"])
        self.assertLessEqual({"deeptm", "deeptm:-asynchronous"}, copied)
        self.assertTrue(copied.isdisjoint({"autotm:static", "first-touch"}), copied)

    def test_cnn(self):
        self.check_net("cnn")

    def test_resnet_18(self):
        self.check_net("resnet-18", (("1:4", 1 / 5),),
                       tuple(POLICIES) if WHOLE else ("deeptm", "deeptm:-asynchronous"))

    def test_gpt_2(self):
        """With Adam, whose states outnumber the weights."""
        self.check_net("gpt-2", (("1:4", 1 / 5),), ("deeptm", "deeptm:-asynchronous"))

    def test_places(self):
        words = f"{NETS['cnn']} --iterations {ITERATIONS}"
        losses = self.figures(words)["losses"]
        for store in (self.folder, "memory", "memory:0"):
            figures = self.tiered(words, store=store)
            self.assertEqual(figures["losses"], losses, store)
            self.assertEqual(figures["tiers"]["off_operations"], 0, store)
        self.assertEqual(os.listdir(self.folder), ["machine.json"])

    def test_resume(self):
        words = f"{NETS['resnet-18' if WHOLE else 'cnn']} --iterations"
        whole = self.figures(words, f"9 --checkpoint {self.path('whole')}")
        self.tiered(words, f"4 --checkpoint {self.path('part')}")
        resumed = self.tiered(words, f"9 --resume {self.path('part')}",
                              f"--checkpoint {self.path('resumed')}", share="30%")
        self.assertEqual(resumed["losses"], whole["losses"][4:])
        with open(self.path("whole"), "rb") as one, open(self.path("resumed"), "rb") as other:
            self.assertEqual(one.read(), other.read())

    def test_throttle(self):
        """A slow tier whose copies and uses take what the machine says: so does the iteration."""
        figures = self.tiered(NETS["cnn"], "--iterations 6 --throttle 3", policy="sentinel")
        tiers = figures["tiers"]
        self.assertEqual(tiers["off_operations"], 0)
        self.assertGreaterEqual(tiers["iteration_ns"], 0.98 * tiers["predicted_iteration_ns"])
        self.assertGreaterEqual(tiers["copy_ns"], 0.98 * tiers["predicted_copy_ns"])

    def test_text(self):
        done = train(f"{NETS['cnn']} --iterations 4 --tiers 1:1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("policy deeptm", done.stdout)
        self.assertRegex(done.stdout, r"as planned in (\d+) of \1 steps")
        self.assertIn("on optane", done.stdout)


@unittest.skipUnless(HAS_LAB, "skipped: needs lab")
class BadInput(Case):
    def test_slow_tier(self):
        self.refused(1, "/no/such: no file for the slow tier", "--tiers 1:4 --store /no/such")
        self.refused(1, "no file for the slow tier", f"--tiers 1:4 --store {self.machine}")
        self.refused(1, "memory:1000", "--tiers 1:4 --store memory:1000")
        self.refused(1, "memory:-2", "--tiers 1:4 --store memory:-2")

    def test_policies_and_machines(self):
        self.refused(2, "no policy for two tiers", "--tiers 1:4 --policy layrub:hybrid")
        self.refused(2, "no plan that can be carried out", "--tiers 1:4 --policy hardware-cache")
        self.refused(2, "no machine with tiers", "--tiers 1:4 --machine nvme")
        with open(self.machine, "w", encoding="utf-8") as file:
            json.dump({**MACHINE, "tiers": MACHINE["tiers"][:1]}, file)
        self.refused(1, "array of 2 tiers", f"--tiers 1:4 --machine {self.machine}")

    def test_a_full_slow_tier(self):
        """A store to a page that a full file system cannot give would be a signal."""
        place = self.path("small")
        os.mkdir(place)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", place], check=False,
                          stderr=subprocess.DEVNULL).returncode:
            self.skipTest("skipped: needs root, to mount a small file system")
        self.addCleanup(subprocess.run, ["umount", place], check=True)
        self.refused(1, "No space left", f"--tiers 1:4 --store {place}")


class Usage(Case):
    def test_options(self):
        for words, says in {
                "--tiers many": "'many' is not fast to slow", "--tiers 0:4": "'0:4' is not",
                "--tiers 1:4:5": "'1:4:5' is not", "--tiers 1:": "'1:' is not",
                "--tiers 200%": "'200%' is not", "--tiers 1:nan": "'1:nan' is not",
                "--tiers 1:4 --budget 1G": "cannot be given with --tiers",
                "--tiers 1:4 --record x": "cannot be given with --tiers",
                "--tiers 1:4 --iterations 2": "plans after 2", "--throttle 2": "needs --tiers",
                "--tiers 1:4 --throttle 0": "'0' is not a number above 0"}.items():
            with self.subTest(words):
                self.refused(2, says, words)

    if not HAS_LAB:
        def test_without_the_laboratory(self):
            self.refused(2, "has no laboratory", "--tiers 1:4")


if __name__ == "__main__":
    if not os.path.exists(TRAIN):
        print("skipped: needs trainer, ebb-train is not built")
        sys.exit(77)
    unittest.main()
