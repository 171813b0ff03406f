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

    def entries(self, *arguments, **kwargs):
        self.both(compile_c("entries"), *arguments, **kwargs)

    def test_cancelled_while_allocating(self):
        self.entries("cancel")

    def test_cancelled_in_a_call_that_has_a_block(self):
        self.entries("cancel-calls")

    def test_handler_uses_the_heap(self):
        self.entries("handler")

    def test_handler_jumps_out_of_an_access(self):
        self.entries("jump")

    def test_mask_cancellation_and_errno_are_kept(self):
        self.entries("keeps")

    def test_main_leaves_by_pthread_exit(self):
        self.entries("leave-main")
        self.entries("leave-child")

    def test_exit_while_others_allocate(self):
        self.entries("exit")

    def test_fork_handlers_of_a_linked_library_allocate(self):
        library = compile_c("libatfork.so", of="atfork",
                            options=["-DLIBRARY", "-shared", "-fPIC"])
        self.both(compile_c("atfork", options=[library]))


if __name__ == "__main__":
    main()
