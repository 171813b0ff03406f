#!/usr/bin/python3
"""A training that forks loader workers: what they read is exact, and a fork costs next to nothing. All
is judged by counters, which no load of the machine changes."""
import json
import os
import re

from devices import DEVICES, sample
from launching import MIB, Launch, compile_c, main

BUDGET = 50 * MIB
SMALL_MIB = 32  # objects that no step uses
SLABS = SMALL_MIB * MIB >> 16
SHARED = 48 * MIB  # weights and activations of tests/programs/workers.c at its peak
PAGES = SHARED >> 12


class Workers(Launch):
    def workers(self, *args, small=SMALL_MIB, device="uffd-move", options=()):
        """Runs the program. Returns the summary, and the page faults of each step."""
        summary = os.path.join(self.folder, "summary.json")
        env = dict(self.env, EBB_REFUSE=DEVICES[device], WORKERS_TIME="1")
        result = self.run_ebb(
            compile_c("workers"), *map(str, (*args, small)), env=env,
            options=["--budget", str(BUDGET), "--summary-json", summary, "--quiet",
                     "--tune", "slab_look_ns=20000000", *options])
        self.assertEqual((0, b"right\n"), (result.returncode, result.stdout), result.stderr)
        lines = result.stderr.decode().splitlines()
        faults = [re.fullmatch(r"step \d+ [0-9.]+ s (\d+) faults", line) for line in lines]
        self.assertTrue(all(faults), result.stderr)
        with open(summary, encoding="utf-8") as file:
            figures = json.load(file)
        os.unlink(summary)
        return figures, [int(match[1]) for match in faults]

    def test_a_fork_fetches_nothing_and_the_plan_stays(self):
        """Five forks of two workers. Each would fetch SLABS slabs; at the end the program reads all."""
        figures, _ = self.workers(40, 8, 2, "idle")
        self.assertGreaterEqual(figures["slab_peak_bytes"], SLABS << 16)
        self.assertLess(figures["demand_faults"], 3.5 * SLABS)
        self.assertEqual(0, figures["mismatches"])
        self.assertGreaterEqual(
            figures["planned_iterations"],
            figures["iterations"] - figures["planned_from_iteration"] - 1)
        # A fork may have copied all that is resident before the next one finds less to copy. What
        # moved while the kernel's figures were read may count twice.
        self.assertLess(figures["over_budget_bytes"], 2 * SHARED)

    def test_forks_in_a_row_copy_once(self):
        """While accesses are observed, the parent copies what it shares, once for eight workers."""
        figures, faults = self.workers(3, 1, 8, "idle",
                                       options=["--tune", "fork_observe_ns=2000000000"])
        self.assertLess(max(faults), 4 * PAGES)
        self.assertLess(figures["over_budget_bytes"], 2 * SHARED)

    def test_a_fork_in_each_step_hides_no_use(self):
        """Each step forks and then reads what it evicted before: the plan knows that it is read."""
        figures, _ = self.workers(
            30, 1, 2, "idle", small=8, options=["--tune", "slab_look_ns=10000000000"])
        self.assertGreater(figures["planned_iterations"], 20)
        self.assertGreater(figures["moved_in_bytes"], 20 * MIB)
        self.assertLess(figures["demand_faults_planned_median"], 3)

    def test_workers_that_read_or_write_everything(self):
        for device, refused in DEVICES.items():
            for mode in ("read", "write"):
                if refused not in sample(mode):
                    continue
                with self.subTest(device=device, mode=mode):
                    self.workers(6, 3, 2, mode, device=device)

    def test_programs_that_are_started(self):
        """Workers that call exec at once: in each step, within the budget."""
        figures, _ = self.workers(12, 1, 3, "exec")
        self.assertLess(figures["demand_faults"], 3.5 * SLABS)
        self.assertEqual(0, figures["mismatches"])


if __name__ == "__main__":
    main()
