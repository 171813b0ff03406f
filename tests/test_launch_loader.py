#!/usr/bin/python3
"""Libraries that are loaded while blocks are absent.

A thread that waits for a block may hold the loader's lock. The loader's own memory is not managed.
"""
import json
import os

from launching import MIB, Launch, compile_c, main

BLOCKS = 48 * MIB  # as in tests/programs/opened.c
BUDGET = 26 * MIB


class Loader(Launch):
    def test_absent_blocks_under_its_lock(self):
        program = compile_c("opened", options=["-rdynamic", "-ldl"])
        library = compile_c("opened_library", of="opened",
                            options=["-DLIBRARY", "-shared", "-fPIC"])
        plain = self.run_command([program, library])
        self.assertTrue(plain.stdout.startswith(b"sum "), plain.stderr)
        summary = os.path.join(self.folder, "summary.json")
        result = self.run_ebb(program, library, options=[
            "--budget", str(BUDGET), "--summary-json", summary])
        self.assertEqual((0, plain.stdout), (result.returncode, result.stdout), result.stderr)
        self.assert_quiet(result)
        with open(summary, encoding="utf-8") as file:
            figures = json.load(file)
        self.assertGreater(figures["moved_in_bytes"], BLOCKS - BUDGET)
        self.assertLessEqual(figures["peak_resident_bytes"], BUDGET)
        self.assertLess(figures["managed_peak_bytes"], BLOCKS + 4 * MIB)


if __name__ == "__main__":
    main()
