#!/usr/bin/python3
"""Under seccomp filters that refuse calls or kill, whoever installs them, the result is the same.

The program lives and gets the best remaining device. If there is none, one line tells so.
"""
import json
import os

from launching import CYCLE_ARGS, MIB, Launch, compile_c, cycle, device_of, main

# The devices with and without /dev/userfaultfd. The rest of their names depends on this kernel.
NODE = os.access("/dev/userfaultfd", os.R_OK | os.W_OK)


class Filters(Launch):
    def expect(self, device, *program, before=(), budget_mib=30):
        plain = self.plain(*program)
        path = os.path.join(self.folder, "summary.json")
        result = self.run_command([*before, *self.options("--budget", f"{budget_mib}M",
                                                          "--summary-json", path), "--", *program])
        with open(path, encoding="utf-8") as file:
            figures = json.load(file)
        os.unlink(path)
        self.assertEqual((0, plain.stdout), (result.returncode, result.stdout), result.stderr)
        self.assertEqual(device_of(device), figures["device"])
        if device == "none":
            self.assertRegex(result.stderr, rb"\Aebb: [^\n]*NOT enforced[^\n]*\n\Z")
        else:
            self.assertEqual(b"", result.stderr)
            self.assertGreater(figures["moved_out_bytes"], 0)
            self.assertLessEqual(figures["peak_resident_bytes"], budget_mib * MIB)
        return result.stderr

    def test_around_ebb(self):
        short = [cycle(), *CYCLE_ARGS, "--iterations", "3"]
        for what, device in (("call", "uffd-move" if NODE else "protect"),
                             ("node,call", "protect"),
                             ("api", "protect"),
                             ("move", "uffd-remap"),
                             ("copy,unregister", "protect"),
                             ("call,move", "uffd-remap" if NODE else "protect"),
                             ("node,call,remap", "none")):
            for action in ("kill", "refuse"):
                with self.subTest(f"{action} {what}"):
                    self.expect(device, *short, before=[compile_c("filtered"), action, what])

    def test_between_ebb_and_the_program(self):
        self.expect("protect", compile_c("filtered"), "kill", "node,call", cycle(), *CYCLE_ARGS,
                    "--iterations", "3")

    def test_program_that_filters_itself(self):
        errors = self.expect("none", compile_c("filtered"), "kill", "later", budget_mib=8)
        self.assertIn(b"seccomp", errors)


if __name__ == "__main__":
    main()
