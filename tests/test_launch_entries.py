#!/usr/bin/python3
"""Every entry of the preloaded library does what the C library's own does: with any size, in threads that
are cancelled or interrupted, around forks, at the end of a program, and with few descriptors.

Each program runs without Ebb first; under Ebb it must do the same, on every device.
"""
import os
import subprocess
import unittest

from launching import MIB, Launch, compile_c, main

# What EBB_REFUSE takes away, and so which device is left; see test_launch_fallbacks.py.
REFUSED = ("", "kernel", "move", "kernel,move", "uffd")
HANG = 20  # seconds: none of these programs takes one


class Entries(Launch):
    def both(self, *program, budget_mib=4, refused=REFUSED, code=0, before=(), quiet=True):
        """`program` ends with `code` and the same output without Ebb and on every device."""
        plain = self.run_command([*before, *program], timeout=HANG)
        self.assertEqual(code, plain.returncode, plain.stderr)
        for features in refused:
            with self.subTest(refused=features):
                try:
                    result = self.run_command(
                        [*before, *self.options("--budget", f"{budget_mib}M", "-q"), "--",
                         *program], env={**self.env, "EBB_REFUSE": features}, timeout=HANG)
                except subprocess.TimeoutExpired:
                    self.fail("hangs")
                self.assertEqual((plain.returncode, plain.stdout),
                                 (result.returncode, result.stdout), result.stderr)
                if quiet:
                    self.assertEqual(plain.stderr, result.stderr)

    def test_sizes_and_alignments(self):
        self.both(compile_c("sizes", options=["-fno-builtin", "-ldl", "-w"]), budget_mib=64)


if __name__ == "__main__":
    main()
