#!/usr/bin/python3
"""Long work shows one line on a terminal's stderr, erased at the end; elsewhere nothing.

Ctrl-C keeps the best that was found so far.
"""
import json
import os
import pty
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from test_plan_cli import EBB
from test_tune import irregular

CLEAR = "\r\x1b[K"


def buffers():
    """A circle on which no packing is known to be the lowest."""
    chance, rows = random.Random(1), []
    for i in range(100):
        first = chance.randrange(400)
        rows.append((i, first, first + chance.randrange(20, 320), chance.randrange(1, 30)))
    return "id,lower,upper,size\n" + "".join("%d,%d,%d,%d\n" % row for row in rows)


class Progress(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        for name, text in (("net.csv", irregular(layers=300, step_ns=30_000)), ("buffers.csv", buffers())):
            with open(cls.path(name), "w", encoding="utf-8") as file:
                file.write(text)
        cls.endless = ["--time-limit", "50", "--tune", "plan_steps_a_second=1000000000000"]
        cls.plan = ["plan", cls.path("net.csv"), "--budget", "30%", "--machine", "pcie3",
                    *cls.endless]
        cls.pack = ["pack", cls.path("buffers.csv"), "--time-limit", "50",
                    "--period", "420"]
        cls.compare = ["compare", cls.path("net.csv"), "--budgets", "40%,30%", "--policies",
                       "fifo,ebb", "--machine", "pcie3", *cls.endless]

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder.name, name)

    def watched(self, command, terminal="xterm", interrupt_at=None):
        """Runs with a terminal as stderr. Ctrl-C comes when `interrupt_at` was shown."""
        master, slave = pty.openpty()
        env = {**os.environ, "TERM": terminal}
        process = subprocess.Popen([EBB, *command], stdout=subprocess.PIPE, stderr=slave, env=env,
                                   text=True)
        os.close(slave)
        shown, sent, began = b"", False, time.monotonic()
        while time.monotonic() - began < 60:
            if select.select([master], [], [], 0.1)[0]:
                try:
                    shown += os.read(master, 65536)
                except OSError:
                    break
            if interrupt_at and interrupt_at in shown.decode() and not sent:
                sent = True
                process.send_signal(signal.SIGINT)
        os.close(master)
        out = process.communicate(timeout=30)[0]
        return process.returncode, out, shown.decode(), time.monotonic() - began

    def check_line(self, shown, command):
        lines = shown.split("\r")
        self.assertTrue(shown.startswith(f"\rebb: {command}: "), shown)
        for line in lines[1:-1]:
            if line != "\n":
                self.assertRegex(line, rf"\A(?:ebb: {command}: \d+ s: .+)?\x1b\[K\Z")
                self.assertLessEqual(len(line), 80 + len("\x1b[K"))
        self.assertIn(CLEAR, shown)

    def test_plan_keeps_the_best(self):
        out_path = self.path("plan.json")
        code, out, shown, seconds = self.watched([*self.plan, "-o", out_path],
                                                 interrupt_at="planning with ebb")
        self.assertEqual(-signal.SIGINT, code)
        self.assertLess(seconds, 20)
        self.check_line(shown, "plan")
        self.assertTrue(shown.endswith(CLEAR), repr(shown))
        self.assertIn("\ninterrupted the best plan so far", out)
        self.assertRegex(out, r"(?m)^peak +[\d.]+ MiB")
        # It is a whole plan, which others read.
        told = subprocess.run([EBB, "simulate", self.path("net.csv"), out_path, "--json"],
                              stdout=subprocess.PIPE, check=True, timeout=30)
        self.assertTrue(json.loads(told.stdout)["feasible"])

    def test_pack_keeps_the_best(self):
        code, out, shown, seconds = self.watched(self.pack, interrupt_at="packing with ebb")
        self.assertEqual(-signal.SIGINT, code)
        self.assertLess(seconds, 20)
        self.check_line(shown, "pack")
        self.assertRegex(out, r"(?m)^height +\d+ bytes")
        self.assertIn("\ninterrupted the best packing so far", out)

    def test_compare_shows_what_is_done(self):
        code, out, shown, _ = self.watched(self.compare, interrupt_at="ebb (Ctrl-C")
        self.assertEqual(-signal.SIGINT, code)
        self.check_line(shown.split("ebb: compare: interrupted")[0], "compare")
        self.assertIn("interrupted: only the first 1 plans are shown", shown)
        self.assertIn("fifo", out)
        self.assertNotRegex(out, r"(?m) ebb +\d")

    def test_nothing_elsewhere(self):
        """A file, a dumb terminal, and work that is done at once show nothing."""
        with open(self.path("stderr"), "w+", encoding="utf-8") as file:
            process = subprocess.Popen([EBB, *self.plan], stdout=subprocess.PIPE, stderr=file)
            time.sleep(1.5)
            process.send_signal(signal.SIGINT)
            out = process.communicate(timeout=30)[0]
            file.seek(0)
            self.assertEqual("", file.read())
            self.assertIn(b"interrupted", out)
        quick = ["info", self.path("net.csv")]
        self.assertEqual("", self.watched(quick)[2])
        short = ["pack", self.path("buffers.csv"), "--time-limit", "1.2", "--period", "420"]
        self.assertEqual("", self.watched(short, terminal="dumb")[2])

    def test_errors_erase_the_line(self):
        big = self.path("big.csv")
        with open(big, "w", encoding="utf-8") as file:
            file.write(irregular() * 100 + "Nonsense\n")
        code, out, shown, _ = self.watched(["plan", big, "--budget", "30%"])
        self.assertEqual((1, ""), (code, out))
        self.assertRegex(shown, r"(?:\A|\x1b\[K)ebb: plan: .*\r\n")


if __name__ == "__main__":
    if os.environ.get("EBB_LAB") == "OFF":
        print("skipped: needs lab, to read the traces")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], "-v"])
