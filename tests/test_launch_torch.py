#!/usr/bin/python3
"""What trainings do beside repeating one iteration, each within a budget that it does not fit into,
each with the results that it has without Ebb, to the last digit."""
import json
import os

from launching import MIB, PYTHON, SOURCE, TIMEOUT, Launch, main

LIFE = os.path.join(SOURCE, "tests", "programs", "torch_life.py")

# Budgets in MiB: about 80 % of what the manner's blocks take at their peak; what one step of the
# optimizer touches together would not fit into much less.
BUDGETS = {
    "epochs": 60,
    "accumulation": 60,
    "buckets": 50,
    "workers": 60,
    "processes": 140,
    "threads": 104,
    "checkpoint": 64,
    "exceptions": 60,
    "interrupt": 60,
    "execute": 60,
}


class Torch(Launch):
    plain = None

    def setUp(self):
        super().setUp()
        self.env["OMP_NUM_THREADS"] = "1"
        if Torch.plain is None:
            done = self.run_command([PYTHON, LIFE, *BUDGETS], timeout=4 * TIMEOUT)
            self.assertEqual(0, done.returncode, done.stderr)
            Torch.plain = {line.split()[0].decode(): line for line in done.stdout.splitlines()}
            self.assertEqual(set(BUDGETS), set(Torch.plain))

    def train(self, *manners, budget_mib):
        summary = os.path.join(self.folder, "summary.json")
        result = self.run_ebb(PYTHON, LIFE, *manners, timeout=4 * TIMEOUT, options=[
            "-q", "--budget", f"{budget_mib}M", "--summary-json", summary])
        self.assertEqual(0, result.returncode, result.stderr)
        self.assertEqual([self.plain[manner] for manner in manners], result.stdout.splitlines())
        self.assert_quiet(result)  # -q: where no plan fits and it goes on without, that is in order
        with open(summary, encoding="utf-8") as file:
            figures = json.load(file)
        os.unlink(summary)
        self.assertGreater(figures["moved_out_bytes"], 0)
        within = figures["peak_resident_bytes"] <= budget_mib * MIB
        if manners == ("workers",):  # what forked workers copy may exceed the budget, and is said
            self.assertEqual(within, not figures["budget_exceeded"])
        elif manners != ("buckets",):  # whose backward pass is one operation that needs most of it
            self.assertTrue(within)
            self.assertFalse(figures["budget_exceeded"])


def add_manners():
    for manner, budget_mib in BUDGETS.items():
        def test(self, manner=manner, budget_mib=budget_mib):
            self.train(manner, budget_mib=budget_mib)
        setattr(Torch, f"test_{manner}", test)


add_manners()


if __name__ == "__main__":
    main()
