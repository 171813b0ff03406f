#!/usr/bin/python3
"""A program overwrites the ring to its parent. The parent reports this, and both continue."""
import os

from launching import SOURCE, Launch, compile_c, main


class Scribble(Launch):
    def expect(self, what, why):
        program = compile_c("scribble", options=["-I", os.path.join(SOURCE, "src"),
                                                  "-I", os.path.join(SOURCE, "include")])
        result = self.run_ebb(program, what, options=("--budget", "3M"), timeout=30)
        self.assertEqual((0, b"123840\n"), (result.returncode, result.stdout), result.stderr)
        self.assertRegex(result.stderr.decode(), rf"\Aebb: .*not watched any more: {why}\n\Z")

    def test_counters(self):
        self.expect("counters", "its ring has been overwritten")

    def test_events(self):
        self.expect("events", "its events are none")


if __name__ == "__main__":
    main()
