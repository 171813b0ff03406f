#!/usr/bin/python3
"""If userfaultfd is old, restricted or absent, another device gives the same results.

The same budget holds, and the summary names the device. If no device works, the program runs
unmanaged, and this is reported. Older systems are emulated: features of this one are refused
(EBB_REFUSE). The ordinary user is a real one.
"""
import json
import os
import signal

import launching
from devices import DEVICES, sample
from launching import CYCLE_ARGS, MIB, PYTHON, Launch, compile_c, cycle, device_of, main

NAMES = {refused: device for device, refused in DEVICES.items()}
NOBODY = 65534


class Fallbacks(Launch):
    def expect(self, refused, *program, budget_mib, device=None, code=0, same=True, before=(),
               options=(), fits=True):
        """The program has the right result within the budget, on the remaining device."""
        plain = self.plain(*program)
        summary = os.path.join(self.folder, "summary.json")
        env = {**self.env, "EBB_REFUSE": refused}
        result = self.run_command(
            [*before, *self.options(*options, "--budget", f"{budget_mib}M", "--summary-json",
                                     summary),
             "--", *program], env=env)
        with open(summary, encoding="utf-8") as file:
            figures = json.load(file)
        os.unlink(summary)
        self.assertEqual((code, plain.stdout), (result.returncode, result.stdout), result.stderr)
        if same:
            self.assertEqual(plain.stderr, result.stderr)
        self.assertEqual(device_of(device or NAMES[refused]), figures["device"])
        # Two threads may have their peaks one after the other.
        is_above = "--threads" not in program or figures["unmanaged_peak_bytes"] > budget_mib * MIB
        if code == 0 and figures["device"] != "none" and is_above:
            self.assertGreater(figures["moved_out_bytes"], 0)
        if code == 0 and figures["device"] != "none" and fits:
            exceeded = figures["peak_resident_bytes"] > budget_mib * MIB
            self.assertEqual(exceeded, figures["budget_exceeded"])
            # Pages that parent or child write after a fork exist twice. This is counted and
            # reported.
            self.assertTrue(not exceeded or "--fork" in program)
        return figures, result.stderr

    def test_cycle(self):
        for refused in NAMES:
            if refused == "":
                continue  # all other tests use it
            with self.subTest(refused):
                figures, _ = self.expect(refused, cycle(), *CYCLE_ARGS, "--io", "--iterations",
                                         "16", budget_mib=30)
                self.assertGreater(figures["planned_iterations"], 0)

    def test_cycle_in_every_manner(self):
        for refused in sample("manners"):
            with self.subTest(refused):
                self.expect(refused, cycle(), *CYCLE_ARGS, "--iterations", "4", "--threads", "2",
                            "--fork", "--realloc", "--io", "--foreign", "--odd", "4",
                            options=["-q"],  # two threads may need more than a plan allows
                            budget_mib=36)  # one of them alone has more

    def test_remapping_device_forks(self):
        self.expect("move", cycle(), *CYCLE_ARGS, "--iterations", "4", "--fork", "--realloc",
                    budget_mib=40)

    def test_calls_that_take_buffers(self):
        calls = compile_c("calls")
        for refused in NAMES:
            with self.subTest(refused):
                self.expect(refused, calls, budget_mib=12)

    def test_buffers_that_are_handed_over(self):
        handed = compile_c("handed")
        for refused in NAMES:
            with self.subTest(refused):
                self.expect(refused, handed, budget_mib=8, fits=False, same=False)

    def test_names_and_structures(self):
        named = compile_c("named")
        for refused in sample("named"):
            with self.subTest(refused):
                self.expect(refused, named, budget_mib=8, fits=False, same=False)

    def test_python_reads_into_blocks(self):
        """Python's own calls read files into blocks."""
        script = ("import os, sys\n"
                  "M = 1 << 20\n"
                  "kept = [bytearray(os.urandom(1) * (2 * M)) for _ in range(12)]\n"
                  "path = os.environ['TMPDIR'] + '/x'\n"
                  "for a, b in zip(kept, kept[5:] + kept[:5]):\n"
                  "    with open(path, 'wb') as f: f.write(a)\n"
                  "    with open(path, 'rb') as f: assert f.readinto(b) == len(b)\n"
                  "    assert a == b\n"
                  "os.unlink(path)\n"
                  "print('good')\n")
        for refused in ("kernel", "uffd"):
            with self.subTest(refused):
                self.expect(refused, PYTHON, "-c", script, budget_mib=24)

    def test_signal_handlers_are_the_programs(self):
        program = compile_c("segv")
        for what, code in (("handler", 0), ("masked", 0), ("sleeps", 0), ("masks", 0),
                           ("events", 0), ("setters", 0), ("inside", 0), ("frames", 0),
                           ("die", -signal.SIGSEGV), ("sent", -signal.SIGSEGV)):
            with self.subTest(what):
                self.expect("uffd", program, what, budget_mib=12, code=code, same=False,
                            fits=what != "events")  # two threads use all blocks at once

    def test_the_stack_pointer_points_elsewhere(self):
        program = compile_c("pointed")
        for refused in NAMES:
            with self.subTest(refused):
                self.expect(refused, program, budget_mib=8, fits=False)  # one operation uses all

    def test_ordinary_user(self):
        os.chmod(launching.work, 0o755)
        os.chmod(self.folder, 0o777)
        os.chmod(self.store, 0o777)
        before = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
        if os.geteuid() != 0:
            before = []
        with open("/proc/sys/vm/unprivileged_userfaultfd", encoding="utf-8") as file:
            device = "uffd-move" if file.read().strip() == "1" else "uffd-move-user"
        self.expect("", cycle(), *CYCLE_ARGS, "--io", budget_mib=30, device=device, before=before)
        self.expect("uffd", cycle(), *CYCLE_ARGS, "--io", budget_mib=30, before=before)

    def test_nothing_will_do(self):
        _, errors = self.expect("uffd,protect", cycle(), *CYCLE_ARGS, budget_mib=30,
                                device="none", same=False)
        self.assertRegex(errors, rb"\Aebb: [^\n]*NOT enforced[^\n]*\n\Z")


if __name__ == "__main__":
    main()
