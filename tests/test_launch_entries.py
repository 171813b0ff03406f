#!/usr/bin/python3
"""Each function of the preloaded library does what the C library's function does.

It does so for any size, in threads that are cancelled or interrupted, around forks, at the end of a
program, and with few descriptors. Each program runs without Ebb first. Under Ebb it must do the
same on every device.
"""
import os
import subprocess
import unittest

from launching import MIB, Launch, compile_c, main

# Features that EBB_REFUSE refuses, to select each device. See test_launch_fallbacks.py.
REFUSED = ("", "kernel", "move", "kernel,move", "uffd")
HANG = 50  # seconds; on an idle machine none of these programs takes one


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

    def test_cancelled_at_once(self):
        self.entries("cancel-at-once")

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
        self.entries("leave-bare")

    def test_threads_on_blocks(self):
        self.entries("stacks")

    def test_clones_on_blocks(self):
        self.entries("clones")

    def test_contexts_on_blocks(self):
        self.entries("contexts")

    def test_signals_on_blocks(self):
        self.entries("alternate")

    def test_stacks_that_nobody_is_told_of(self):
        # Without userfaultfd, the fault itself needs space on the stack.
        self.entries("raw-stacks", refused=[name for name in REFUSED if name != "uffd"])

    def test_exit_while_others_allocate(self):
        self.entries("exit")

    def test_fork_handlers_of_a_linked_library_allocate(self):
        library = compile_c("libatfork.so", of="atfork",
                            options=["-DLIBRARY", "-shared", "-fPIC"])
        self.both(compile_c("atfork", options=[library]))

    def limited(self, limits, *arguments, **kwargs):
        self.both(compile_c("limits"), *arguments, **kwargs,
                  before=["bash", "-c", f'{limits}; exec "$@"', "bash"])

    def test_few_descriptors(self):
        """If the limit cannot be raised, Ebb's descriptors have the highest numbers."""
        self.limited("ulimit -n 512", "descriptors", "500")
        self.limited("ulimit -n 20", "descriptors", "10", refused=["", "uffd"])

    def test_descriptors_as_without(self):
        """If it can be raised, the program has as many descriptors as without Ebb."""
        self.limited("ulimit -Sn 1024", "descriptors", refused=["", "uffd"])
        self.limited("ulimit -Sn 512", "changed", refused=["", "uffd"])

    def test_no_descriptors(self):
        self.both(compile_c("limits"), "none", quiet=False)

    def test_descriptors_closed_by_number(self):
        self.both(compile_c("numbered"), budget_mib=6)

    def test_short_files(self):
        self.limited("ulimit -f 10", "files", quiet=False)
        self.limited("ulimit -f 3000", "files", quiet=False)


if __name__ == "__main__":
    main()
