#!/usr/bin/python3
"""`ebb run` sets variables of the program's environment for its framework.

It sets only those that the user has not set, and lists them in the summary. With --no-env it sets
none.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("EBB_BIN_DIR") or os.path.join(SOURCE, "build", "dev", "bin")
EBB = os.path.join(BIN, "ebb")
SETTINGS = {"TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1"}
# The block is large enough to be managed, so that there is a summary.
PRINTS = ("import json, os, sys; b = bytearray(1 << 20); "
          "json.dump(dict(os.environ), sys.stdout)")


class Environment(unittest.TestCase):
    def run_ebb(self, *options, **variables):
        """The program's environment, the summary, and its text."""
        env = {name: value for name, value in os.environ.items() if name not in SETTINGS}
        env.update(variables)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "summary.json")
            done = subprocess.run(
                [EBB, "run", "--no-cache", "--budget", "1G", "--summary=always", "--summary-json",
                 path, *options, "--", sys.executable, "-c", PRINTS], env=env, timeout=60,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=True)
            with open(path, encoding="utf-8") as file:
                return json.loads(done.stdout), json.load(file), done.stderr

    def test_set(self):
        seen, summary, text = self.run_ebb()
        for name, value in SETTINGS.items():
            self.assertEqual(value, seen[name])
            self.assertIn(f"{name}={value}", text)
        self.assertEqual(SETTINGS, summary["environment"])
        self.assertLessEqual(len(text.splitlines()), 8)

    def test_no_env(self):
        seen, summary, text = self.run_ebb("--no-env")
        for name in SETTINGS:
            self.assertNotIn(name, seen)
            self.assertNotIn(name, text)
        self.assertEqual({}, summary["environment"])

    def test_the_user_comes_first(self):
        for value in ("0", "", "perhaps"):
            seen, summary, text = self.run_ebb(TF_ONEDNN_USE_SYSTEM_ALLOCATOR=value)
            self.assertEqual(value, seen["TF_ONEDNN_USE_SYSTEM_ALLOCATOR"])
            self.assertNotIn("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", summary["environment"])
            self.assertNotIn("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", text)


if __name__ == "__main__":
    if not os.access(EBB, os.X_OK):
        print(f"skipped: needs ebb, {EBB} is not built")
        sys.exit(77)
    unittest.main()
