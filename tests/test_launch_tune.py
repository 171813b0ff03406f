#!/usr/bin/python3
"""`ebb run --tune`: the number reaches the program, programs that it starts, and its forks.

The summary lists it.
"""
import json
import os
import re

import launching
from launching import MIB, cycle

# Large enough for parts if these begin at 4 MiB. Each block is touched as a whole.
ARGS = ["--iterations", "8", "--layers", "6", "--persistent", "4M", "--block", "8M"]
PARTS = ("--tune", "part_from_bytes=4M")


class Tune(launching.Launch):
    def summary(self, *options, program=(), cache=False):
        path = os.path.join(self.folder, "summary.json")
        command = [*self.options("--budget", "60%", "--summary-json", path, *options), "--",
                   *(program or (cycle(), *ARGS))]
        if cache:
            command.remove("--no-cache")
        result = self.run_command(command)
        self.assertEqual((0, b""), (result.returncode, result.stderr))
        if not program:
            self.assertEqual(self.plain(cycle(), *ARGS).stdout, result.stdout)
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def test_reaches_the_runtime(self):
        """A block with parts has an event for each part that is touched."""
        plain, parts = self.summary(), self.summary(*PARTS)
        self.assertEqual({}, plain["tuning"]["changed"])
        self.assertEqual({"part_from_bytes": 4 * MIB}, parts["tuning"]["changed"])
        self.assertRegex(plain["tuning"]["table"], r"\A[0-9a-f]{16}\Z")
        self.assertEqual(plain["tuning"]["table"], parts["tuning"]["table"])
        self.assertGreater(parts["events"], plain["events"] * 5 // 4)

    def test_reaches_what_is_started(self):
        """A shell forks and executes the program with its own environment."""
        def program(*options):
            return self.summary(*options, program=("sh", "-c", f"{cycle()} {' '.join(ARGS)} >/dev/null; :"))
        self.assertGreater(program(*PARTS)["events"], program()["events"] * 5 // 4)

    def test_reaches_a_process_without_the_descriptor(self):
        code = ("import os,sys; os.closerange(3, 4096); "
                "os.execv(sys.argv[1], sys.argv[1:])")
        def program(*options):
            return self.summary(*options, program=("/usr/bin/python3", "-c",
                                                   code.replace("os.execv", "print(); os.execv"),
                                                   cycle(), *ARGS))
        self.assertGreater(program(*PARTS)["events"], program()["events"] * 5 // 4)

    def test_text(self):
        for options, pattern in ((PARTS, rb"\nebb: other tuning than the table's: part_from_bytes=4194304\n"),
                                 ((), rb"\A(?!.*other tuning)")):
            result = self.run_ebb(cycle(), *ARGS, options=["--summary=always", *options])
            self.assertEqual(0, result.returncode)
            self.assertRegex(result.stderr, re.compile(pattern, re.S))

    def test_environment_does_not_tune(self):
        self.env["EBB_TUNE"] = "part_from_bytes=4194304"
        self.assertEqual({}, self.summary()["tuning"]["changed"])

    def test_profile_of_another_tuning(self):
        """The profile is not found, since its plan depends on the numbers."""
        slow = ("--tune", "evident_work_ns=0")
        args = ["--iterations", "12", "--layers", "12", "--persistent", "8M", "--block", "4M",
                "--work", "3"]
        def use(*options):
            return self.summary(*options, program=(cycle(), *args), cache=True)["plan_cache"]
        try:
            self.assertEqual("none", use())
            self.assertNotEqual("none", use())
            self.assertEqual("none", use(*slow))
            self.assertNotEqual("none", use(*slow))
        finally:
            for folder, _, names in os.walk(self.cache):
                for name in names:
                    os.unlink(os.path.join(folder, name))


if __name__ == "__main__":
    launching.main()
