#!/usr/bin/python3
"""Forks that call no handlers, pages that the kernel keeps after a call, and pages copied by forks.

All on every device.
"""
import json
import os

from devices import REFUSED, sample
from launching import MIB, Launch, compile_c, main


class Lent(Launch):
    def forks(self, mode, refuse=""):
        """The words that the program prints before `right`."""
        env = dict(self.env, EBB_REFUSE=refuse)
        result = self.run_ebb(compile_c("forks"), mode, options=("--budget", "2560K", "--quiet"),
                              env=env)
        self.assertEqual((0, b""), (result.returncode, result.stderr), (mode, refuse))
        words = result.stdout.decode().split()
        self.assertEqual("right", words.pop())
        return words

    def copies(self, *args, refuse=""):
        summary = os.path.join(self.folder, "summary.json")
        result = self.run_ebb(compile_c("forks"), *args,
                              options=("--budget", "5M", "--quiet", "--summary-json", summary),
                              env=dict(self.env, EBB_REFUSE=refuse))
        self.assertEqual((0, b"right\n", b""), (result.returncode, result.stdout, result.stderr))
        with open(summary, encoding="utf-8") as file:
            figures = json.load(file)
        os.unlink(summary)
        return figures["budget_exceeded"], figures["peak_resident_bytes"]

    def test_what_children_copy_is_counted(self):
        """The parent has 3 MiB, and each of three children has as much."""
        exceeded, peak = self.copies("copies", "3")
        self.assertTrue(exceeded)
        self.assertGreater(peak, 12 * MIB * 0.95)
        self.assertLess(peak, 12 * MIB * 1.05)

    def test_what_a_child_has_copied_that_has_ended_is_counted(self):
        exceeded, peak = self.copies("copies-at-once", "1")
        self.assertTrue(exceeded)
        self.assertGreater(peak, 6 * MIB * 0.95)
        self.assertLess(peak, 6 * MIB * 1.05)

    def test_what_children_read_is_shared(self):
        """This holds if the parent can observe its blocks without copying shared pages."""
        exceeded, peak = self.copies("readers", "3", refuse="move")
        self.assertFalse(exceeded)
        self.assertLess(peak, 4 * MIB)

    def test_without_handlers(self):
        """_Fork(), clone() and the system calls."""
        for device in sample("without-handlers"):
            with self.subTest(refuse=device):
                self.forks("without-handlers", refuse=device)

    def test_pages_lent_to_a_pipe(self):
        for device in sample("lent"):
            with self.subTest(refuse=device):
                self.forks("lent", refuse=device)

    def test_pages_lent_to_a_socket(self):
        """Pages queued by MSG_ZEROCOPY are sent over 127.0.0.1 when the receiver reads."""
        if self.run_command([compile_c("forks"), "sent"]).returncode == 77:
            self.skipTest("skipped: needs MSG_ZEROCOPY")
        for device in sample("sent"):
            with self.subTest(refuse=device):
                self.forks("sent", refuse=device)

    def test_what_writes_between_calls_is_refused(self):
        """io_uring and aio are refused if a device cannot see the pages that they use. One line
        says so."""
        plain = self.run_command([compile_c("forks"), "asynchronous"]).stdout.decode().split()
        self.assertEqual(plain[:-1], self.forks("asynchronous"))
        for device in REFUSED[1:]:
            env = dict(self.env, EBB_REFUSE=device)
            result = self.run_ebb(compile_c("forks"), "asynchronous", options=["--budget", "4M"],
                                  env=env)
            self.assertEqual(b"no-ring\nno-aio\nright\n", result.stdout, result.stderr)
            self.assertEqual(1, result.stderr.count(b"ENOSYS"), result.stderr)


if __name__ == "__main__":
    main()
