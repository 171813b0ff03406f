#!/usr/bin/python3
"""Planned addresses in a real run: they are used, the placement is dense, and the budget holds.

They are given up if the program departs from the plan.
"""
import json
import os
import shutil

from launching import EBB, MIB, Launch, compile_c, cycle, main

# If nothing moves, an iteration takes a few ms. So many iterations give the parent time to plan.
LONG = ["--iterations", "150"]
ARGS = ["--iterations", "30", "--layers", "12", "--block", "4M", "--persistent", "8M"]


# From its 100th iteration on, this program holds 8 MiB more in small blocks.
GROWING = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void)
{
    char *weights = calloc(8, 1 << 20), *layers[12];
    for (int i = 0; i < 200; i++) {
        for (int k = 0; k < 12; k++) {
            size_t bytes = ((size_t)3 << 20) + (size_t)k * 65536;
            layers[k] = malloc(bytes);
            memset(layers[k], i + k, bytes);
            usleep(1000);
        }
        for (int k = 12; k-- > 0; free(layers[k]))
            if (layers[k][1 << 20] != (char)(i + k))
                return 1;
        for (int k = 0; i == 100 && k < 8192; k++)
            weights[k] = *(char *)memset(malloc(1024), k, 1024);
        memset(weights, i, 8 << 20);
    }
    puts("as it should be");
}
"""


class StaticPlacement(Launch):
    def figures(self, *extra, options):
        path = os.path.join(self.folder, "summary.json")
        plain = self.plain(cycle(), *ARGS, *extra)
        self.assertEqual(0, plain.returncode, plain.stderr)
        result = self.run_ebb(cycle(), *ARGS, *extra, options=[*options, "--summary-json", path])
        self.assertEqual((0, plain.stdout), (result.returncode, result.stdout), result.stderr)
        return self.within_budget(path, "--fork" in extra)

    def within_budget(self, path, forks=False):
        """Pages that parent or child write after a fork exist twice. This is counted and
        reported."""
        with open(path, encoding="utf-8") as file:
            figures = json.load(file)
        os.unlink(path)
        exceeded = figures["peak_resident_bytes"] > figures["budget_bytes"]
        self.assertEqual(exceeded, figures["budget_exceeded"])
        self.assertTrue(forks or not exceeded)
        return figures

    def check_placement(self, figures, units=1):
        """Units are counted as a whole. In a small program, the last ones matter."""
        self.assertGreater(figures["planned_iterations"], 5)
        self.assertGreater(figures["placement_blocks"], 12 * figures["planned_iterations"])
        self.assertGreaterEqual(figures["placement_peak_bytes"], figures["placement_load_bytes"])
        self.assertLessEqual(figures["placement_peak_bytes"],
                             figures["placement_load_bytes"] * 1.02 + 2 * units * MIB)

    def test_addresses_alone(self):
        figures = self.figures(*LONG, options=["--policy", "none", "--budget", "60M"])
        self.check_placement(figures)
        # When a new plan takes over, some blocks occupy its addresses.
        self.assertLessEqual(20 * figures["placement_misses"], figures["placement_blocks"], figures)
        self.assertEqual(0, figures["moved_out_bytes"])
        self.assertEqual(0, figures["demand_faults"])
        self.assertGreater(figures["placement_load_bytes"], 20 * MIB)

    def test_addresses_alone_in_what_the_program_took(self):
        self.check_placement(self.figures(*LONG, options=["--policy", "none", "--budget", "100%"]))

    def test_beside_absences(self):
        figures = self.figures("--iterations", "80", options=["--budget", "34M"])
        self.check_placement(figures, units=2)  # the plan follows the pace, beside other tests
        self.assertGreater(figures["moved_out_bytes"], 0)

    def test_with_what_was_not_planned(self):
        """Every fifth iteration differs, the program forks, and blocks grow."""
        figures = self.figures("--odd", "7", "--fork", "--realloc", options=["--budget", "40M"])
        self.assertGreater(figures["placement_blocks"], 0)
        self.assertGreater(figures["mismatches"], 0)

    def test_with_less_room_than_was_planned_for(self):
        path = os.path.join(self.folder, "summary.json")
        for run in range(2):
            result = self.run_command([EBB, "run", "--store", self.store, "--budget", "36M",
                                       "--summary-json", path, "--",
                                       compile_c("growing", GROWING)])
            self.assertEqual((0, b"as it should be\n"), (result.returncode, result.stdout))
            figures = self.within_budget(path)
            self.assertGreater(figures["planned_iterations"], 60)
            if run == 0:
                self.assertGreater(figures["replans"], 0)
                self.assertLess(figures["placement_misses"], figures["placement_blocks"])
            else:  # the size of small blocks is known from the start
                self.assertEqual("used", figures["plan_cache"])
        shutil.rmtree(os.path.join(self.cache, "ebb"))

    def test_with_threads(self):
        self.figures("--threads", "3", options=["--budget", "120M"])


if __name__ == "__main__":
    main()
