#!/usr/bin/python3
"""The texts of the commands, as tests/golden/ has them: complete, with units, within 100 columns.

`ebb compare` without --tiers is in test_compare_cli.py. `ebb top` and `ebb doctor` show a machine, so
test_live_texts.c has their texts for made-up ones. After a change that is
meant:

    EBB_BIN_DIR=build/dev/bin tests/test_texts.py --bless

writes the texts anew. Look at the difference. Times that are measured are masked.
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

from test_compare_cli import BLESS, COLUMNS, EBB, GOLDEN, program

BLOCKS = "id,lower,upper,size\n" + "".join(f"{i},{i},{i + 3},{4096 * i}\n" for i in range(1, 40))
MODEL = ["net.csv", "--machine", "pcie3"]
TIERS = ["compare", "net.csv", "--machine", "optane,cxl", "--policies",
         "ebb,first-touch,sentinel,hardware-cache"]
# name of the golden file: exit code, arguments. In the folder are traces, blocks and summaries.
TEXTS = {
    "info": (0, ["info", "net.csv"]),
    "plan": (0, ["plan", *MODEL, "--budget", "70%"]),
    "plan-stalls": (0, ["plan", *MODEL, "--budget", "60%", "--policy", "fifo"]),
    "plan-zero-stall": (0, ["plan", *MODEL, "--zero-stall", "--policy", "fifo"]),
    "plan-infeasible": (3, ["plan", *MODEL, "--budget", "10%"]),
    "simulate": (0, ["simulate", "net.csv", "fifo.json"]),
    "pack": (0, ["pack", "blocks.csv"]),
    "pack-trace": (0, ["pack", "net.csv", "--plan", "fifo.json"]),
    "pack-infeasible": (3, ["pack", "blocks.csv", "--capacity", "300K"]),
    "compare-tiers": (0, [*TIERS, "--tiers", "1:4,50%"]),
    "compare-tiers-cost": (0, [*TIERS, "--tiers", "1:4", "--cost", "20"]),
    "compare-at-slowdown": (0, ["compare", *MODEL, "--policies", "fifo,lru", "--at-slowdown",
                                "0,5,20"]),
    "advise": (0, ["advise", *MODEL]),
    "report": (0, ["report", *MODEL, "--text"]),
    "report-two": (0, ["report", "net.csv", "deep.csv", "--machine", "pcie3", "--text"]),
    "report-run": (0, ["report", *MODEL, "run.json", "--text"]),
    "help": (0, ["--help"]),
    **{f"help-{command}": (0, [command, "--help"])
       for command in ("run", "record", "info", "advise", "report", "plan", "simulate", "pack", "top",
                       "doctor", "import")},
    "help-compare-tiers": (0, ["compare", "--tiers", "1:4", "--help"]),
}
# Its lost time is shown, since the trace has none.
RUN = """{"schema": "ebb.run/2", "lost": [
  {"ns": 9000000, "observed": 250000, "evicted wrongly": 0, "late": 0, "switched": 0},
  {"ns": 8000000, "observed": 0, "evicted wrongly": 1500000, "late": 40000, "switched": 7}],
 "peak_resident_bytes": 29360128, "budget_bytes": 33554432,
 "unmanaged_peak_bytes": 50331648, "iteration_ns": {"median": 6400000, "min": 1, "max": 2},
 "stall_ns": 250000, "moved_out_bytes": 62914560, "moved_in_bytes": 62914560, "iterations": 12,
 "planned_iterations": 3, "planned_from_iteration": 6, "predicted_peak_bytes": 28311552,
 "predicted_iteration_ns": 6300000, "predicted_stall_ns_per_iteration": 100000,
 "out_bps": 3000000000, "measured_out_bps": 2800000000}"""


def masked(text):
    """The text without what depends on the machine: times of planning."""
    text = re.sub(r"((?:planned|found|solved) in) [\d.]+ \w+", r"\1 N", text)
    return re.sub(r"(?m)^(\S+ .* \d\.\d{3} x) +[\d.]+ \w+", r"\1          N", text)


class Texts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        for name, text in (("net.csv", program()), ("deep.csv", program(layers=10)),
                           ("blocks.csv", BLOCKS), ("run.json", RUN)):
            with open(os.path.join(cls.folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        cls.run_ebb("plan", *MODEL, "--budget", "70%", "--policy", "fifo", "-o", "fifo.json")

    @classmethod
    def run_ebb(cls, *arguments):
        done = subprocess.run([EBB, *arguments], cwd=cls.folder, capture_output=True, text=True,
                              env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_golden(self):
        for name, (code, arguments) in TEXTS.items():
            with self.subTest(name):
                found, out, err = self.run_ebb(*arguments)
                self.assertEqual((found, err), (code, ""))
                self.assertEqual([line for line in out.splitlines() if len(line) > COLUMNS], [])
                path = os.path.join(GOLDEN, f"{name}.txt")
                if BLESS:
                    with open(path, "w", encoding="utf-8") as file:
                        file.write(masked(out))
                with open(path, encoding="utf-8") as file:
                    self.assertEqual(masked(out), file.read())

    def test_every_command_has_a_text(self):
        """A new command, and a golden file of a text that is gone, are seen."""
        _, out, _ = self.run_ebb("--help")
        commands = re.findall(r"(?m)^  (\w+)  +\w", out)
        self.assertLessEqual({f"help-{command}" for command in commands} - {"help-compare"},
                             set(TEXTS))
        ours = {"compare.txt", "compare-many.txt", "compare-help.txt"}  # of test_compare_cli.py
        ours |= {"top.txt", "doctor.txt"}  # of test_live_texts.c
        self.assertEqual(set(os.listdir(GOLDEN)) - ours, {f"{name}.txt" for name in TEXTS})

    def test_masks_hide_only_times_of_planning(self):
        self.assertEqual(masked("policy      ebb on machine pcie3 (planned in 2.73 s)"),
                         "policy      ebb on machine pcie3 (planned in N)")
        row = "1:4      ebb   9.60 MiB  48.00 MiB     6.9 ms   1.109 x    90.8 us     0.70 (2)"
        self.assertEqual(masked(row), row.replace("    90.8 us", "          N"))
        self.assertEqual(masked("iteration   6.2 ms, 0 ns of it stalls"),
                         "iteration   6.2 ms, 0 ns of it stalls")


if __name__ == "__main__":
    if os.environ.get("EBB_LAB") == "OFF":
        print("skipped: needs lab")
        sys.exit(77)
    sys.exit(unittest.main(argv=[word for word in sys.argv if word != "--bless"]))
