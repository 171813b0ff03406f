#!/usr/bin/python3
"""A program whose threads interleave has the same bytes, within the budget, by a plan."""
from launching import Launch, compile_c, main


class Unordered(Launch):
    def run_unordered(self, budget, *arguments):
        program = [compile_c("unordered"), "--block", "1M", "--chains", "4", "--layers", "12",
                   "--work", "1", *arguments]
        return self.run_beside_plain(program, budget)

    def test_planned(self):
        summary = self.run_unordered("70%", "--iterations", "24")
        self.assertLessEqual(summary["planned_from_iteration"], 10)
        self.assertGreaterEqual(summary["planned_iterations"], 12)
        self.assertEqual(0, summary["mismatches"])
        # An iteration has a hundred blocks. Without a plan, half of them cause a fault.
        self.assertLess(summary["demand_faults_planned_median"], 20)

    def test_second_run(self):
        first, second = self.run_twice(
            compile_c("unordered"), "--block", "1M", "--chains", "4", "--layers", "12", "--work",
            "1", "--iterations", "24", options=["--budget", "70%"])
        self.assertEqual(("none", "used"), (first["plan_cache"], second["plan_cache"]))
        self.assertLessEqual(second["planned_from_iteration"], 3)

    def test_in_bytes_with_allocations_of_no_iteration(self):
        summary = self.run_unordered("40M", "--iterations", "14", "--extra", "3", "--skew", "1")
        self.assertGreaterEqual(summary["planned_iterations"], 6)

    def test_training_and_evaluation(self):
        summary = self.run_unordered("70%", "--iterations", "64", "--evaluate", "8", "8")
        # More than the first phase of each has: what was learnt is used again.
        self.assertGreaterEqual(summary["planned_iterations"], 20)

    def test_the_program_sees_a_wrong_byte(self):
        result = self.run_ebb(compile_c("unordered"), "--block", "256K", "--corrupt", "2")
        self.assertEqual(1, result.returncode)


if __name__ == "__main__":
    main()
