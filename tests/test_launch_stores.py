#!/usr/bin/python3
"""Several directories or memory as store. The bytes must be right."""
import json
import os
import unittest

from launching import CYCLE_ARGS, EBB, MIB, Launch, cycle, main

BUDGET = 29 * MIB


class Stores(Launch):
    def run_cycle(self, *options, args=()):
        """With a budget of BUDGET, or that of `options`."""
        program = [cycle(), *CYCLE_ARGS, *args]
        plain = self.plain(*program)
        summary = os.path.join(self.folder, "summary.json")
        result = self.run_command([EBB, "run", "--no-cache", "--budget", str(BUDGET),
                                   "--summary-json", summary, *options, "--", *program])
        self.assertEqual((0, plain.stdout, b""),
                         (result.returncode, result.stdout, result.stderr))
        with open(summary, encoding="utf-8") as file:
            figures = json.load(file)
        os.unlink(summary)
        self.assertGreater(figures["moved_out_bytes"], 0)
        self.assertFalse(figures["budget_exceeded"])
        self.assertLessEqual(figures["peak_resident_bytes"], figures["budget_bytes"])
        self.assertEqual(0, figures["store_error"])
        return figures

    def test_several_directories(self):
        folders = [os.path.join(self.store, name) for name in "abc"]
        for folder in folders:
            os.mkdir(folder)
        options = [word for folder in folders for word in ("--store", folder)]
        self.run_cycle(*options, "--verify", args=["--io"])

    def test_memory(self):
        self.run_cycle("--store", "memory", args=["--realloc"])

    @unittest.skipUnless(os.path.exists("/sys/devices/system/node/node0"), "skipped: needs NUMA")
    def test_memory_of_a_node(self):
        self.run_cycle("--store", "memory:0")

    def test_memory_and_disk(self):
        self.run_cycle("--store", "memory", "--store", self.store)

    def test_children_read_their_parents_store(self):
        for places in (["memory"], ["memory", self.store]):
            options = [word for place in places for word in ("--store", place)]
            program = [cycle(), *CYCLE_ARGS, "--fork", "--iterations", "6"]
            plain = self.plain(*program)
            result = self.run_command([EBB, "run", "--no-cache", "--budget", "40M", *options, "--",
                                       *program])
            self.assertEqual((0, plain.stdout), (result.returncode, result.stdout), result.stderr)

    def test_zeros_are_left_out(self):
        """In blocks, in parts of large ones, on several disks, and in blocks that a child reads."""
        for options, args in (([], ["--realloc"]), (["--verify"], ["--io"]),
                              (["--store", "memory", "--store", self.store], []),
                              (["--budget", "400M"], ["--layers", "6", "--block", "90M", "--iterations", "4"])):
            figures = self.run_cycle("--compress", "on", *options, args=["--zeros", *args])
            self.assertGreater(figures["compressed_saved_bytes"], figures["moved_out_bytes"] / 5)
            self.assertLess(figures["compressed_saved_bytes"], figures["moved_out_bytes"])
        program = [cycle(), *CYCLE_ARGS, "--fork", "--iterations", "6", "--zeros"]
        plain = self.plain(*program)
        result = self.run_command([EBB, "run", "--no-cache", "--budget", "40M", "--compress", "on",
                                   "--", *program])
        self.assertEqual((0, plain.stdout), (result.returncode, result.stdout), result.stderr)

    def test_nothing_is_left_out(self):
        """If compression is off, or if there are no zeros."""
        off = self.run_cycle("--compress", "off", args=["--zeros"])
        self.assertEqual(0, off["compressed_saved_bytes"])
        dense = self.run_cycle("--compress", "on")
        # A block may leave while the program still fills it. The rest of it is zero then.
        self.assertLess(dense["compressed_saved_bytes"], dense["moved_out_bytes"] / 20)
        result = self.run_command([EBB, "run", "--compress", "some", "--", "true"])
        self.assertEqual(125, result.returncode)

    def test_bad_places(self):
        started = os.path.join(self.folder, "started")
        gone = os.path.join(self.folder, "gone")
        for places in ([self.store, gone], ["memory", gone], ["memory:"], ["memory:x"],
                       ["memory:999"], [self.store] * 9):
            options = [word for place in places for word in ("--store", place)]
            result = self.run_command([EBB, "run", *options, "--", "touch", started])
            self.assertEqual(125, result.returncode, places)
            self.assertTrue(result.stderr.startswith(b"ebb: run: "), result.stderr)
            self.assertFalse(os.path.exists(started))

    def test_a_folder_named_memory(self):
        """A path with a slash means the folder."""
        folder = os.path.join(self.store, "memory")
        os.mkdir(folder)
        result = self.run_command([EBB, "run", "--store", "./memory", "--", "true"],
                                  cwd=self.store)
        self.assertEqual((0, b""), (result.returncode, result.stderr))


if __name__ == "__main__":
    main()
