#!/usr/bin/python3
"""Runs tests/programs/cycle.c, which verifies each byte, in half its memory and with all
options."""

from launching import CYCLE_ARGS, MIB, Launch, cycle, main


class Torture(Launch):
    """Runs cycle.c with half its memory and all options."""
    MANNERS = {
        "plain": [],
        "realloc": ["--realloc"],
        "system_calls": ["--io"],
        "threads": ["--threads", "3"],
        "fork": ["--fork", "--realloc"],
        "foreign": ["--foreign"],
        "changing": ["--odd", "3", "--realloc"],
        "allocated_once": ["--static", "--io"],
        "all": ["--threads", "3", "--fork", "--realloc", "--io", "--foreign", "--odd", "4"],
    }

    def check(self, manner, share):
        arguments = [*CYCLE_ARGS, *self.MANNERS[manner]]
        threads = 3 if "--threads" in arguments else 1
        budget = int(43 * MIB * threads * share)  # 43 MiB: a thread's peak by the malloc log
        plain = self.plain(cycle(), *arguments)
        self.assertEqual(0, plain.returncode, plain.stderr)
        result = self.run_ebb(cycle(), *arguments, options=["--budget", str(budget)])
        self.assertEqual((0, plain.stdout), (result.returncode, result.stdout), result.stderr)
        if threads == 1 or share > 0.6:
            self.assert_quiet(result)
        else:  # the operations of all threads may coincide and need more
            self.assertRegex(result.stderr, rb"\A(ebb: one operation needs more than the budget: .*\n)?\Z")

    def test_a_wrong_byte_shows(self):
        """cycle.c itself detects a wrong byte."""
        arguments = [*CYCLE_ARGS, "--corrupt", "5"]
        for command in ([cycle(), *arguments], [*self.options("--budget", "26M"), "--", cycle(),
                                                *arguments]):
            result = self.run_command(command)
            self.assertEqual(1, result.returncode)
            self.assertIn(b"wrong activation", result.stderr)


def add_torture():
    for manner in Torture.MANNERS:
        for share in (2.0, 0.8, 0.55):
            def test(self, manner=manner, share=share):
                self.check(manner, share)
            setattr(Torture, f"test_{manner}_at_{int(share * 100)}", test)


add_torture()


if __name__ == "__main__":
    main()
