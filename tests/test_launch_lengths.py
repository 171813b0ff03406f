#!/usr/bin/python3
"""Steps of other sizes each time have the same bytes, within the budget, by a plan."""
from launching import Launch, compile_c, main

WORK = ["--work", "2000", "--steps", "24"]


class Lengths(Launch):
    def run_lengths(self, *arguments, budget="110M"):
        return self.run_beside_plain([compile_c("lengths"), *WORK, *arguments], budget)

    def test_any_length(self):
        summary = self.run_lengths()
        self.assertEqual(24, summary["iterations"])
        self.assertGreaterEqual(summary["planned_iterations"], 10)
        self.assertEqual(0, summary["mismatches"])

    def test_longer_and_longer(self):
        summary = self.run_lengths("--grow", "20", budget="100M")
        self.assertGreaterEqual(summary["planned_iterations"], 8)

    def test_an_evaluation_in_between(self):
        summary = self.run_lengths("--evaluate", "3")
        self.assertGreaterEqual(summary["planned_iterations"], 8)

    def test_a_shorter_step_in_between(self):
        summary = self.run_lengths("--last", "6")
        self.assertGreaterEqual(summary["planned_iterations"], 10)
        # Three of them come once the plan is there. They are followed by its script.
        self.assertLessEqual(summary["mismatches"], 1)

    def test_second_run(self):
        first, second = self.run_twice(compile_c("lengths"), *WORK, options=["--budget", "110M"])
        self.assertEqual(("none", "used"), (first["plan_cache"], second["plan_cache"]))
        self.assertLess(second["planned_from_iteration"], first["planned_from_iteration"])


if __name__ == "__main__":
    main()
