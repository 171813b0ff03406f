#!/usr/bin/python3
"""A program changes the mappings of its own blocks, on every device.

The effect must be the same as without Ebb. The program is tests/programs/mappings.c. Each call is
tried on three devices, and on all with EBB_TEST_WHOLE=1.
"""
from devices import REFUSED, WHOLE, sample
from launching import PYTHON, Launch, compile_c, main

TESTS = ("advice", "inline-advice", "dontneed", "protect", "numbered", "lock", "lock-all",
         "policy", "fork", "map-over", "move-out", "small")
FIRST = "lock-all-first"  # in a process of its own
# Locking all fetches all, a page at a time. One device stands for the others.
SLOW, SLOW_DEVICES = "lock-all", REFUSED if WHOLE else ("uffd",)


class Mappings(Launch):
    def expect(self, refused, *program, budget):
        result = self.run_command([*self.options("--budget", budget), "--", *program],
                                  env={**self.env, "EBB_REFUSE": refused}, cwd=self.tmp)
        self.assertEqual(0, result.returncode, (refused, result.stdout, result.stderr))
        return result

    def test_every_call_on_every_device(self):
        program = compile_c("mappings")
        for refused in REFUSED:
            names = [name for name in TESTS if refused in sample(name)
                     and (name != SLOW or refused in SLOW_DEVICES)]
            with self.subTest(refused):
                result = self.expect(refused, program, *names, budget="8M")
                self.assertEqual(len(names), result.stdout.count(b": good\n"), result.stdout)

    def test_all_is_locked_before_the_first_block(self):
        program = compile_c("mappings")
        for refused in sample(FIRST):
            with self.subTest(refused):
                result = self.expect(refused, program, FIRST, budget="8M")
                self.assertIn(f"{FIRST}: good\n".encode(), result.stdout)

    def test_calls_that_no_library_sees(self):
        """Not on the device that uses mprotect() itself: there the kernel would make zeros
        readable."""
        program = compile_c("mappings")
        for refused in REFUSED[:-1]:
            with self.subTest(refused):
                self.expect(refused, program, "inline-protect", budget="8M")

    def test_nothing_comes_to_lie_in_a_hole_of_a_block(self):
        """If the system placed another mapping in the hole, it would be taken for a block."""
        program = compile_c("mappings")
        for refused in REFUSED:
            with self.subTest(refused):
                self.expect(refused, program, "unmapped", budget="8M")

    def test_protected_in_the_middle_of_a_planned_block(self):
        program = compile_c("mappings")
        for refused in sample("repeated"):
            with self.subTest(refused):
                self.expect(refused, program, "repeated", budget="28M")

    def test_threads_sleep_on_locks_in_blocks(self):
        """The kernel reads a lock's page when a thread sleeps on it. On some devices it cannot wait
        for pages."""
        program = compile_c("locks")
        for refused in sample("locks"):
            with self.subTest(refused):
                self.expect(refused, program, budget="256K")

    def test_one_page_of_a_large_block(self):
        program = compile_c("mappings")
        for refused in sample("large"):
            with self.subTest(refused):
                self.expect(refused, program, "large", budget="40M")

    def test_numpy_advises_huge_pages(self):
        script = ("import numpy as np\n"
                  "a = [np.full(4 << 20, i, np.uint8) for i in range(20)]\n"
                  "assert all((x == i).all() for i, x in enumerate(a))\n")
        for refused in sample("numpy"):
            with self.subTest(refused):
                self.expect(refused, PYTHON, "-c", script, budget="40M")

    def test_core_dump_leaves_the_arena_out(self):
        """Checks the flag of each mapping in the arena. A dump of 1 TiB would take many seconds."""
        program = compile_c("dumped", """
            #include <stdio.h>
            #include <stdlib.h>
            #include <string.h>
            int main(void)
            {
                char line[512], *block[12];
                unsigned long first = 0, last = 0, mapped = 0, left_out = 0;
                for (int i = 0; i < 12; i++)
                    memset(block[i] = malloc(2 << 20), 1, 2 << 20);
                unsigned long from = (unsigned long)block[0];
                unsigned long to = (unsigned long)block[11] + (2 << 20);
                FILE *smaps = fopen("/proc/self/smaps", "r");
                while (fgets(line, sizeof line, smaps)) {
                    unsigned long low, high;
                    if (sscanf(line, "%lx-%lx ", &low, &high) == 2) {
                        first = low;
                        last = high;
                        continue;
                    }
                    int concerns = first < to && last > from;
                    if (concerns && strncmp(line, "VmFlags:", 8) == 0) {
                        mapped++;
                        left_out += strstr(line, " dd") != NULL;
                    }
                }
                printf("%d\\n", mapped > 0 && mapped == left_out);
                return 0;
            }""")
        for refused in REFUSED:
            with self.subTest(refused):
                self.assertEqual(b"1\n", self.expect(refused, program, budget="8M").stdout)


if __name__ == "__main__":
    main()
