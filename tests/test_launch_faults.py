#!/usr/bin/python3
"""Failures below a program: of the disk, its space or speed, of other processes, or of the clock.

The program has the same results as without Ebb. If the only copy of its bytes is lost, it ends by
SIGBUS, and the loss is reported. It never sees a wrong byte.
"""
import json
import os
import signal
import subprocess
import threading
import time

import launching
from launching import CYCLE_ARGS, MIB, PYTHON, Launch, compile_c, cycle, main

EIO, ENOSPC = 5, 28
BUDGET = 26 * MIB


class Faults(Launch):
    def setUp(self):
        super().setUp()
        self.env["LD_PRELOAD"] = launching.faulty_disk()
        self.expected = self.plain(cycle(), *CYCLE_ARGS).stdout
        self.assertTrue(self.expected.startswith(b"checksum "))

    def run_cycle(self, fault, *options, program=None, code=0, **kwargs):
        summary = os.path.join(self.folder, "summary.json")
        self.env["FAULTY_DISK"] = fault
        result = self.run_ebb(*(program or [cycle(), *CYCLE_ARGS]), options=[
            "--budget", str(BUDGET), "--summary-json", summary, *options], **kwargs)
        self.assertEqual(code, result.returncode, result.stderr)
        with open(summary, encoding="utf-8") as file:
            figures = json.load(file)
        os.unlink(summary)
        return result, figures

    def expect_same(self, fault, *options, **kwargs):
        result, figures = self.run_cycle(fault, *options, **kwargs)
        self.assertEqual(self.expected, result.stdout)
        self.assertGreater(figures["moved_out_bytes"], 0)
        return result, figures

    def expect_within(self, fault, *options):
        result, figures = self.expect_same(fault, *options)
        self.assert_quiet(result)
        self.assertLessEqual(figures["peak_resident_bytes"], BUDGET)
        self.assertFalse(figures["budget_exceeded"])
        return figures

    def test_no_fault(self):
        self.assertEqual(0, self.expect_within("")["store_error"])

    def test_pages_that_migrate(self):
        """The system migrates pages in memory (compaction) while Ebb moves them in the address
        space."""
        compact = "/proc/sys/vm/compact_memory"
        if not os.access(compact, os.W_OK):
            self.skipTest("skipped: needs memory compaction")
        done = threading.Event()

        def migrate():
            while not done.wait(0.02):
                with open(compact, "w", encoding="utf-8") as file:
                    file.write("1")

        mover = threading.Thread(target=migrate)
        mover.start()
        try:
            for _ in range(4):
                self.expect_within("")
        finally:
            done.set()
            mover.join()

    def test_writes_that_fail(self):
        """Evicted blocks can be fetched, resident ones stay. The failure is reported once."""
        for error, word in ((EIO, b"cannot be written"), (ENOSPC, b"full")):
            result, figures = self.expect_same(f"write_error={error},good_writes=6")
            self.assertRegex(result.stderr, rb"\Aebb: [^\n]*" + word + rb"[^\n]*\n\Z")
            self.assertEqual(error, figures["store_error"])
            self.assertTrue(figures["budget_exceeded"])

    def test_writes_that_fail_for_a_while(self):
        """The store is tried again and used. Failure and recovery are reported."""
        program = [cycle(), *CYCLE_ARGS, "--work", "10"]
        for error, word in ((EIO, b"cannot be written"), (ENOSPC, b"full")):
            result, figures = self.expect_same(
                f"write_error={error},good_writes=6,bad_writes=1", program=program)
            self.assertRegex(result.stderr, rb"\Aebb: [^\n]*" + word +
                             rb"[^\n]*\nebb: [^\n]*can be written again[^\n]*\n\Z")
            self.assertEqual(error, figures["store_error"])
            self.assertGreater(figures["moved_out_bytes"], BUDGET)

    @launching.needs_mounts()
    def test_file_system_without_room(self):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=14m", "none", self.store], check=True)
        try:
            result, figures = self.expect_same("")
        finally:
            subprocess.run(["umount", self.store], check=True)
        self.assertIn(b"the store is full", result.stderr)
        self.assertEqual(ENOSPC, figures["store_error"])

    def test_reads_that_fail(self):
        result, figures = self.run_cycle(f"read_error={EIO},good_reads=9", code=-signal.SIGBUS)
        self.assertEqual(b"", result.stdout)
        self.assertRegex(result.stderr, rb"\Aebb: [^\n]*block \d+ \(\d+ bytes\)[^\n]*"
                                        rb"Input/output error[^\n]*lost\n\Z")
        self.assertEqual(EIO, figures["store_error"])

    def test_wrong_bytes_are_seen(self):
        """The program detects wrong bytes by itself. With --verify, Ebb detects them before."""
        result, _ = self.run_cycle("flip=5", code=1)
        self.assertIn(b"wrong", result.stderr)
        result, _ = self.run_cycle("flip=5", "--verify", code=-signal.SIGBUS)
        self.assertEqual(b"", result.stdout)
        self.assertRegex(result.stderr, rb"block \d+ [^\n]*not what was written")
        self.expect_within("", "--verify")

    def test_short_transfers(self):
        self.expect_within("short=1")

    def test_slow_disk(self):
        self.expect_within("delay_us=4000")

    def test_slow_disk_has_less_to_carry(self):
        arguments = [*CYCLE_ARGS, "--zeros"]
        self.expected = self.plain(cycle(), *arguments).stdout
        for most_ns_per_byte, compressed in ((1, True), (1000, False)):
            _, figures = self.expect_same("delay_us=20000,probe=1", "--tune",
                                          f"compress_from_ns_per_byte={most_ns_per_byte}",
                                          program=[cycle(), *arguments])
            self.assertEqual(compressed, figures["compressed_saved_bytes"] > 0)

    def test_no_files_without_a_name(self):
        """Files get names that cannot be guessed or taken, and are unlinked at once."""
        names = os.path.join(self.folder, "names")
        self.env["FAULTY_DISK_NAMES"] = names
        self.expect_same("no_tmpfile=1")
        with open(names, encoding="utf-8") as file:
            made = [line.split(" ", 1) for line in file.read().splitlines() if self.store in line]
        os.unlink(names)
        self.assertGreaterEqual(len(made), 2)  # by the tool, then by the program
        self.assertEqual(len(made), len({name for _, name in made}))
        for flags, name in made:
            self.assertRegex(name, r"/\.ebb-[0-9a-f]{32}\Z")
            for flag in (os.O_EXCL, os.O_NOFOLLOW):
                self.assertTrue(int(flags) & flag)

    def test_lost_bytes_end_any_program(self):
        """It ends a program that blocks or ignores the signal, even if nobody reads the message."""
        program = compile_c("stubborn", """
            #include <signal.h>
            #include <stdio.h>
            #include <string.h>
            #include <stdlib.h>
            int main(void)
            {
                sigset_t all;
                sigfillset(&all);
                signal(SIGBUS, SIG_IGN);
                sigprocmask(SIG_BLOCK, &all, NULL);
                char *blocks[16];
                for (int i = 0; i < 16; i++)
                    memset(blocks[i] = malloc(4 << 20), i + 1, 4 << 20);
                for (int i = 0; i < 16; i++)
                    if (blocks[i][12345] != i + 1)
                        return 1;
                return 0;
            }
            """)
        fault = f"read_error={EIO},good_reads=0"
        result, figures = self.run_cycle(fault, program=[program], code=-signal.SIGBUS, timeout=20)
        self.assertIn(b"is lost", result.stderr)
        self.assertEqual(EIO, figures["store_error"])
        read, write = os.pipe()
        os.close(read)
        self.env["FAULTY_DISK"] = fault
        result = self.run_ebb(program, options=["--budget", str(BUDGET)], stderr=write, timeout=20)
        os.close(write)
        self.assertEqual(-signal.SIGBUS, result.returncode)

    def test_clock_that_jumps(self):
        figures = self.expect_within("clock=1")
        self.assertLess(figures["elapsed_ns"], launching.TIMEOUT * 10**9)
        self.assertLess(figures["iteration_ns"]["max"], launching.TIMEOUT * 10**9)

    def test_fork_while_moving(self):
        """The disk is slow, so transfers are under way at each fork."""
        arguments = [*CYCLE_ARGS, "--threads", "2", "--fork", "--iterations", "6"]
        self.expected = self.plain(cycle(), *arguments).stdout
        self.expect_same("delay_us=2000", "--budget", "40M", program=[cycle(), *arguments])

    def test_killed_child(self):
        """The memory of a killed child is free for the others at once."""
        big = " ".join([cycle(), *CYCLE_ARGS, "--work", "1000"])
        small = " ".join([cycle(), *CYCLE_ARGS])
        result, figures = self.expect_same("", program=[
            "sh", "-c", f"{big} & sleep 0.7; kill -KILL $!; wait; {small}"])
        self.assert_quiet(result)
        self.assertLessEqual(figures["peak_resident_bytes"], BUDGET)
        self.assertGreaterEqual(figures["processes"], 3)  # the shell and both

    def test_killed_parent_costs_nothing(self):
        """After the parent's end, nobody polls for its messages."""
        script = ("import time\n"
                  "kept = bytearray(8 << 20)\n"
                  "print('ready', flush=True)\n"
                  "time.sleep(0.6)\n"
                  "before = time.process_time()\n"
                  "time.sleep(1)\n"
                  "open('used', 'w').write(str(time.process_time() - before))\n")
        process = self.start(PYTHON, "-c", script, cwd=self.folder)
        self.expect_line(process, b"ready")
        process.kill()
        process.wait()
        self.assertEqual([], self.wait_for_none(launching.TIMEOUT))
        path = os.path.join(self.folder, "used")
        with open(path, encoding="utf-8") as file:
            self.assertLess(float(file.read()), 0.05)
        os.unlink(path)

    def test_killed_parent(self):
        """The program continues within its budget, on a slow disk, too."""
        self.env["FAULTY_DISK"] = "delay_us=1000"
        path = os.path.join(self.folder, "out")
        with open(path, "wb") as out:
            process = self.start(cycle(), *CYCLE_ARGS, "--work", "8",
                                 options=["--budget", str(BUDGET)], stdout=out)
            time.sleep(0.8)
            self.assertIsNone(process.poll(), "ended too early to be killed")
            process.kill()
            process.wait()
        self.assertEqual([], self.wait_for_none(launching.TIMEOUT))
        with open(path, "rb") as file:
            self.assertEqual(self.expected, file.read())
        os.unlink(path)


if __name__ == "__main__":
    main()
