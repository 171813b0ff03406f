#!/usr/bin/python3
"""cycle.c verifies each byte; here it is run in half its memory, in every manner it has."""

from launching import CYCLE_ARGS, MIB, Launch, cycle, main


class Torture(Launch):
    """cycle.c verifies each byte; here it is run in half its memory, in every manner it has."""
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
        else:  # by chance the operations of all threads fall together, and need more
            self.assertRegex(result.stderr, rb"\A(ebb: one operation needs more than the budget: .*\n)?\Z")

    def test_a_wrong_byte_shows(self):
        """The program that all of the above relies on is not blind."""
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
