#!/usr/bin/python3
"""A wait that takes suspiciously long is reported once. The report changes nothing else."""
import os
import re
import signal
import time

import launching
from launching import CYCLE_ARGS, Launch, compile_c, cycle, main

BLOCK = r"block \d+ \([\d.]+ [KM]iB\)"
WAITS = rf"ebb: process \d+: it has waited \d\.\d s for {BLOCK}, which [^\n]*--store\n"
READS = rf"ebb: process \d+: {BLOCK} has been read from the store for \d\.\d s: [^\n]*--store\n"
WRITES = rf"ebb: process \d+: {BLOCK} has been written to the store for \d\.\d s: [^\n]*--store\n"


LIMITS = ["--tune", "fault_limit_ns=800ms", "--tune", "transfer_limit_ns=2s"]


class Alarm(Launch):
    def setUp(self):
        super().setUp()
        self.env["LD_PRELOAD"] = launching.faulty_disk()
        self.expected = self.plain(cycle(), *CYCLE_ARGS).stdout

    def expect(self, fault, pattern):
        self.env["FAULTY_DISK"] = fault
        result = self.run_ebb(cycle(), *CYCLE_ARGS, options=["--budget", "26M", *LIMITS])
        self.assertEqual((0, self.expected), (result.returncode, result.stdout), result.stderr)
        self.assertRegex(result.stderr.decode(), rf"\A{pattern}\Z")
        return result.stderr.decode()

    def test_read_that_hangs(self):
        text = self.expect("hang_read=2,hang_ms=3500", WAITS + READS)
        self.assertIn("which is being fetched from the store: the store does not answer", text)
        waits, read = (re.search(r"block \d+", line)[0] for line in text.splitlines())
        self.assertEqual(waits, read)

    def test_write_that_hangs(self):
        self.expect("hang_write=3,hang_ms=3500", rf"({WAITS})?{WRITES}")

    def test_fault_that_nobody_knows_of(self):
        """A thread waits for the kernel, but the runtime knows of no open fault. The alarm says
        so."""
        program = compile_c("unanswered", """
            #include <fcntl.h>
            #include <linux/userfaultfd.h>
            #include <pthread.h>
            #include <stdlib.h>
            #include <string.h>
            #include <sys/ioctl.h>
            #include <sys/mman.h>
            #include <sys/syscall.h>
            #include <unistd.h>
            static volatile char *page;
            static void *touch(void *unused) { (void)unused; page[0] = 1; return NULL; }
            int main(void)
            {
                memset(malloc(1 << 20), 1, 1 << 20);
                int faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
                struct uffdio_api api = {.api = UFFD_API};
                if (faults < 0 || ioctl(faults, UFFDIO_API, &api) != 0)
                    return 77;
                page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                struct uffdio_register all = {.range = {(unsigned long)page, 4096},
                                              .mode = UFFDIO_REGISTER_MODE_MISSING};
                if (ioctl(faults, UFFDIO_REGISTER, &all) != 0)
                    return 77;
                pthread_t thread;
                pthread_create(&thread, NULL, touch, NULL);
                usleep(2500000);
                struct uffdio_zeropage zero = {.range = {(unsigned long)page, 4096}};
                ioctl(faults, UFFDIO_ZEROPAGE, &zero);
                pthread_join(thread, NULL);
                return page[0] == 1 ? 0 : 1;
            }
            """)
        result = self.run_ebb(program, options=LIMITS)
        if result.returncode == 77:
            self.skipTest("skipped: needs userfaultfd")
        self.assertEqual(0, result.returncode, result.stderr)
        self.assertRegex(result.stderr, rb"\Aebb: process \d+: thread \d+ has slept \d\.\d s in a page "
                                        rb"fault that its runtime does not know of: [^\n]*\n\Z")

    def test_stopped_program_is_none(self):
        """A wait does not count while the parent was stopped, since nothing could proceed."""
        self.env["FAULTY_DISK"] = "hang_read=2,hang_ms=4000"
        self.env["FAULTY_DISK_HANGS"] = sign = os.path.join(self.folder, "hangs")
        parent = self.start(cycle(), *CYCLE_ARGS, options=["--budget", "26M", *LIMITS])
        self.expect_hang(parent, sign)
        with open(f"/proc/{parent.pid}/task/{parent.pid}/children", encoding="ascii") as file:
            program = int(file.read().split()[0])
        os.kill(program, signal.SIGSTOP)
        time.sleep(4)
        os.kill(program, signal.SIGCONT)
        out, err = parent.communicate(timeout=launching.TIMEOUT)
        self.assertEqual((0, self.expected, b""), (parent.returncode, out, err))

    def expect_hang(self, parent, sign):
        end = time.monotonic() + launching.TIMEOUT
        while not os.path.exists(sign):
            self.assertTrue(parent.poll() is None and time.monotonic() < end, "it never came to that")
            time.sleep(0.01)


if __name__ == "__main__":
    main()
