#!/usr/bin/python3
"""The meaning of a budget, and the summary's figures about it."""
import json
import os
import pty
import re
import select
import signal

from devices import WHOLE
from launching import CYCLE_ARGS, EBB, MIB, PYTHON, SOURCE, Launch, cycle, main

# Keys of `ebb.run/2` that scripts rely on.
SUMMARY_KEYS = """schema exit_status elapsed_ns budget_bytes peak_resident_bytes
    unmanaged_peak_bytes iterations period_events planned_from_iteration policy
    predicted_peak_bytes predicted_iteration_ns predicted_stall_ns_per_iteration
    moved_out_bytes moved_in_bytes stall_ns
    demand_faults demand_faults_planned_median planned_iterations budget_from_iteration
    learning_peak_bytes budget_exceeded unmanaged_bytes store_peak_bytes mismatches iteration_ns
    processes""".split()


# Each layer has a repetition, like a DenseNet. It must not be taken for the iteration.
LAYERS = """
for iteration in range(90):
    kept = []
    for layer in range(14):
        for i in range(10):
            scratch = bytearray(262144)
            scratch[::4096] = b"x" * 64
            del scratch
        kept.append(bytearray(2500000 + 40000 * layer))
        kept[-1][::4096] = b"y" * len(kept[-1][::4096])
    while kept:
        assert kept[-1][4096] == 121
        kept.pop()
"""


# An optimizer makes its state behind four micro-batches, which have repeated by then.
STATE_BEHIND = """
import time
M = 1 << 20
weights, state = bytearray(16 * M), []
for batch in range(48):
    kept = []
    for layer in range(12):
        kept.append(bytearray(b"x") * (2 * M + layer * M // 8))
        time.sleep(0.002)
    while kept:
        assert kept.pop()[-1] == 120
        time.sleep(0.002)
    weights[batch] += 1
    if batch == 7:
        state = [bytearray(b"s") * (8 * M) for _ in range(5)]
    if state and batch % 4 == 3:
        state[batch % 5][batch] += 1
"""


# No iteration uses what was made before, but the end of the program does.
IDLE = """
import time
M = 1 << 20
weights = bytearray(16 * M)
idle = [bytearray(bytes([i])) * (2 * M) for i in range(6)]
for step in range(24):
    kept = []
    for layer in range(12):
        kept.append(bytearray(b"x") * (2 * M + layer * M // 8))
        time.sleep(0.002)
    while kept:
        assert kept.pop()[-1] == 120
        time.sleep(0.002)
    weights[step] += 1
assert all(block.count(i) == 2 * M for i, block in enumerate(idle))
"""


WITH_LAB = os.environ.get("EBB_LAB") != "OFF"  # the build has the policies of src/lab


class Summary(Launch):
    paced = True

    def check_text(self, text):
        lines = text.decode().splitlines()
        self.assertTrue(1 <= len(lines) <= 8, text)
        for line in lines:
            self.assertTrue(line.startswith("ebb: "), text)

    def test_only_when_asked(self):
        program = [cycle(), *CYCLE_ARGS]
        plain = self.plain(*program).stdout
        for options in ([], ["--summary=auto"], ["--summary=never"], ["-q"]):
            result = self.run_ebb(*program, options=["--budget", "1G", *options])
            self.assertEqual((0, plain), (result.returncode, result.stdout), options)
            self.assert_quiet(result)
        for options in (["--summary=always"], ["--summary", "always"]):
            result = self.run_ebb(*program, options=["--budget", "1G", *options])
            self.assertEqual((0, plain), (result.returncode, result.stdout), options)
            self.check_text(result.stderr)

    def test_of_a_program_that_does_nothing(self):
        result = self.run_ebb("true", options=["--summary=always"])
        self.check_text(result.stderr)

    def on_terminal(self, *options):
        leader, follower = pty.openpty()
        result = self.run_ebb("true", options=options, stderr=follower)
        os.close(follower)
        text = b""
        while select.select([leader], [], [], 0.2)[0]:
            try:
                chunk = os.read(leader, 65536)
            except OSError:
                break
            if not chunk:
                break
            text += chunk
        os.close(leader)
        self.assertEqual((0, b""), (result.returncode, result.stdout))
        return text.replace(b"\r\n", b"\n")

    def test_terminal(self):
        self.check_text(self.on_terminal())
        self.assertEqual(b"", self.on_terminal("--summary=never"))
        self.assertEqual(b"", self.on_terminal("-q"))

    def read_json(self, *program, options=(), code=0):
        path = os.path.join(self.folder, "summary.json")
        result = self.run_ebb(*program, options=[*options, "--summary-json", path])
        self.assertEqual(code, result.returncode, result.stderr)
        self.assert_quiet(result)
        with open(path, encoding="utf-8") as file:
            summary = json.load(file)
        os.unlink(path)
        return summary

    def documented_keys(self):
        """The unit of each key in docs/formats/summary.md, without the table of versions."""
        with open(os.path.join(SOURCE, "docs", "formats", "summary.md"), encoding="utf-8") as file:
            text = file.read().split("## Versions")[0]
        rows = re.findall(r"^\| (`.*?) \| (.*?) \|", text, re.M)
        return {key: unit for keys, unit in rows for key in re.findall(r"`(\w+)`", keys)}

    def check_documented(self, summary):
        """The document names exactly the keys that are written; without a GPU, two are not. Each
        unit is that of the key's name."""
        units = self.documented_keys()
        for key in ("devices", "host"):
            units.pop(key)
        self.assertEqual(sorted(units), sorted(summary))
        ends = {"_bytes": "B", "_ns": "ns", "_bps": "B/s"}
        for key, unit in units.items():
            for end, expected in ends.items():
                if key.endswith(end) and key != "iteration_ns":
                    self.assertEqual(expected, unit.removesuffix(" or null"), key)
            if unit == "count":
                self.assertGreaterEqual(summary[key], 0, key)
            elif unit == "string":
                self.assertIs(type(summary[key]), str, key)
            elif unit.startswith("object"):
                self.assertIs(type(summary[key]), dict, key)

    def check_keys(self, summary):
        self.assertEqual([], [key for key in SUMMARY_KEYS if key not in summary])
        self.check_documented(summary)
        self.assertEqual("schema", next(iter(summary)))
        self.assertEqual("ebb.run/2", summary["schema"])
        for key, value in summary.items():
            if key.endswith(("_bytes", "_ns")) and key != "iteration_ns":
                self.assertTrue(value is None or type(value) is int and value >= 0,
                                f"{key}: {value!r}")

    def test_json(self):
        summary = self.read_json(cycle(), *CYCLE_ARGS, options=["--budget", "26M"])
        self.check_keys(summary)
        self.assertEqual(0, summary["exit_status"])
        self.assertEqual(26 * MIB, summary["budget_bytes"])
        self.assertEqual(0, summary["budget_from_iteration"] or 0)
        self.assertLessEqual(summary["peak_resident_bytes"], 26 * MIB)
        self.assertFalse(summary["budget_exceeded"])
        self.assertGreater(summary["unmanaged_peak_bytes"], 42 * MIB)
        for key in ("median", "min", "max"):
            self.assertIn(key, summary["iteration_ns"] or {})

    def test_json_of_a_program_that_does_nothing(self):
        summary = self.read_json("sh", "-c", "exit 42", code=42)
        self.check_keys(summary)
        self.assertEqual(42, summary["exit_status"])

    def test_json_after_a_signal(self):
        path = os.path.join(self.folder, "summary.json")
        result = self.run_ebb("sh", "-c", "kill -KILL $$", options=["--summary-json", path])
        self.assertEqual(-signal.SIGKILL, result.returncode)
        with open(path, encoding="utf-8") as file:
            self.check_keys(json.load(file))
        os.unlink(path)


class Cycle(Launch):
    """Each run must also print the right checksum."""

    def run_cycle(self, *options, code=0, args=()):
        program = [cycle(), *CYCLE_ARGS, *args]
        plain = self.plain(*program)
        path = os.path.join(self.folder, "summary.json")
        result = self.run_ebb(*program, options=[*options, "--summary-json", path])
        self.assertEqual(code, result.returncode, result.stderr)
        if code == 0:
            self.assertEqual(plain.stdout, result.stdout)
        summary = {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                summary = json.load(file)
            os.unlink(path)
        return summary, result.stderr


class Budgets(Cycle):
    def test_in_bytes_from_the_first_allocation(self):
        for mib in (96, 34, 24):
            summary, _ = self.run_cycle("--budget", f"{mib}M")
            self.assertEqual(mib * MIB, summary["budget_bytes"])
            self.assertLessEqual(summary["peak_resident_bytes"], mib * MIB)
            self.assertFalse(summary["budget_exceeded"])
            if mib == 96:
                self.assertEqual(0, summary["moved_out_bytes"])
            else:
                self.assertGreater(summary["moved_out_bytes"], 0)

    def test_none_given(self):
        summary, _ = self.run_cycle()
        self.assertGreater(summary["budget_bytes"], 100 * MIB)
        self.assertEqual(0, summary["moved_out_bytes"])

    def test_impossible(self):
        """One operation needs more than the budget. The program continues, and this is reported."""
        summary, _ = self.run_cycle("--budget", "2M")
        self.assertTrue(summary["budget_exceeded"])
        _, errors = self.run_cycle("--budget", "2M", "--strict", code=125)
        self.assertRegex(errors, rb"[0-9.]+ MiB")

    def test_store_full(self):
        summary, _ = self.run_cycle("--budget", "26M", "--store-limit", "4M")
        self.assertTrue(summary["budget_exceeded"])
        self.assertLessEqual(summary["store_peak_bytes"], 4 * MIB)

    def test_verify(self):
        self.run_cycle("--budget", "26M", "--verify")

    def test_no_env(self):
        self.run_cycle("--budget", "26M", "--no-env")

    def test_policies(self):
        """With every policy, the budget holds and the bytes are right. Scores of AutoSwap differ in
        the order of blocks only. EBB_TEST_WHOLE=1 tries all of them."""
        published = ("appobmem", "autoswap", "autoswap:bo", "vdnn:all", "vdnn:conv", "lru")
        if WHOLE:
            published += ("autoswap:vote", "autoswap:doa", "autoswap:aoa", "autoswap:wdoa",
                          "autoswap:swdoa")
        for policy in ("ebb", "fifo", "none", *(published if WITH_LAB else ())):
            summary, _ = self.run_cycle("--budget", "26M", "--policy", policy,
                                        args=["--iterations", "14"])
            self.assertEqual(policy, summary["policy"])
            self.assertLessEqual(summary["peak_resident_bytes"], 26 * MIB, policy)
            self.assertFalse(summary["budget_exceeded"], policy)
            self.assertGreater(summary["moved_out_bytes"], 0, policy)

    def test_record_beside(self):
        path = os.path.join(self.folder, "run.ebbt")
        self.run_cycle("--budget", "26M", "--record", path)
        self.assertGreater(os.path.getsize(path), 1000)
        info = self.run_command([EBB, "info", path, "--json"])
        self.assertEqual(0, info.returncode, info.stderr)
        self.assertEqual("ebb.info/1", json.loads(info.stdout)["schema"])
        os.unlink(path)


class Planned(Cycle):
    """The parent must have found an iteration, or have planned it, in time."""
    paced = True

    def test_in_per_cent_of_what_it_takes(self):
        summary, _ = self.run_cycle("--budget", "60%",
                                    args=["--iterations", "40", "--wait", "2"])
        self.assertGreater(summary["budget_from_iteration"], 0)
        self.assertGreaterEqual(summary["unmanaged_peak_bytes"], 42 * MIB)
        # The share is of the peak of the first iterations. Blocks that outlive several may raise it
        # later.
        self.assertGreaterEqual(summary["learning_peak_bytes"], 0.9 * summary["budget_bytes"] / 0.6)
        self.assertAlmostEqual(summary["budget_bytes"], 0.6 * summary["unmanaged_peak_bytes"],
                               delta=0.1 * summary["unmanaged_peak_bytes"])
        self.assertLessEqual(summary["peak_resident_bytes"], summary["budget_bytes"])

    def of_programs(self, script, *argument_lists):
        """The summary of a shell that runs cycle with each list of arguments, at 60 %."""
        path = os.path.join(self.folder, "summary.json")
        words = [" ".join([cycle(), *arguments]) for arguments in argument_lists]
        result = self.run_ebb("sh", "-c", script.format(*words), options=[
            "--budget", "60%", "--summary-json", path])
        self.assertEqual((0, b""), (result.returncode, result.stderr))
        with open(path, encoding="utf-8") as file:
            summary = json.load(file)
        self.assertFalse(summary["budget_exceeded"])
        self.assertGreater(summary["planned_iterations"], 0)
        return summary

    def test_a_share_of_the_larger_of_two_programs(self):
        """The second one takes four times as much. It is learnt, too."""
        small, large = (["--iterations", "24", "--layers", "10", "--block", block, "--persistent",
                         "4M", "--wait", "4"] for block in ("2M", "10M"))
        for programs in ([small, large], [large, small]):
            summary = self.of_programs("{}; {}", *programs)
            self.assertGreater(summary["unmanaged_peak_bytes"], 60 * MIB)
            self.assertAlmostEqual(summary["budget_bytes"], 0.6 * summary["unmanaged_peak_bytes"],
                                   delta=0.05 * summary["unmanaged_peak_bytes"])

    def test_a_share_of_what_programs_hold_together(self):
        each = ["--iterations", "40", "--layers", "10", "--block", "3M", "--persistent", "4M",
                "--wait", "4"]
        summary = self.of_programs("{} & {} & {} & wait", each, each, each)
        peak = 3 * summary["unmanaged_peak_bytes"]
        self.assertAlmostEqual(summary["budget_bytes"], 0.6 * peak, delta=0.1 * peak)

    def test_what_no_iteration_uses_makes_no_budget_too_small(self):
        """The 16 MiB of weights and one block fit, but not its 12 MiB, too."""
        path = os.path.join(self.folder, "summary.json")
        result = self.run_ebb(PYTHON, "-c", IDLE, options=[
            "--budget", "24M", "--summary-json", path])
        self.assertEqual((0, b""), (result.returncode, result.stderr))
        with open(path, encoding="utf-8") as file:
            summary = json.load(file)
        self.assertEqual(0, summary["smallest_feasible_bytes"])
        self.assertGreater(summary["planned_iterations"], 8)
        self.assertLessEqual(summary["peak_resident_bytes"], 24 * MIB)
        self.assertFalse(summary["budget_exceeded"])

    def test_a_share_of_a_peak_that_grows_behind_iterations(self):
        """The share stays in force, and is of the new peak."""
        path = os.path.join(self.folder, "summary.json")
        result = self.run_ebb(PYTHON, "-c", STATE_BEHIND, options=[
            "--budget", "60%", "--summary-json", path])
        self.assertEqual((0, b""), (result.returncode, result.stderr))
        with open(path, encoding="utf-8") as file:
            summary = json.load(file)
        self.assertGreater(summary["planned_iterations"], 8)
        self.assertAlmostEqual(summary["budget_bytes"], 0.6 * summary["unmanaged_peak_bytes"],
                               delta=0.02 * summary["unmanaged_peak_bytes"])
        self.assertGreater(summary["unmanaged_peak_bytes"], 85 * MIB)

    def test_loops_within_an_iteration_are_none(self):
        summary, _ = self.run_cycle("--budget", "60%",
                                    args=["--iterations", "24", "--loops", "12", "--work", "2"])
        self.assertGreater(summary["planned_iterations"], 0)
        self.assertLessEqual(summary["iterations"], 24)
        self.assertLess(summary["planned_from_iteration"], summary["iterations"])
        self.assertGreater(summary["budget_from_iteration"], 0)
        self.assertLessEqual(summary["budget_from_iteration"], summary["iterations"])

    def test_a_loop_of_one_block_is_none(self):
        """It is most of the allocations, and repeats more often in a row than is waited for."""
        summary, _ = self.run_cycle("--budget", "30M",
                                    args=["--iterations", "16", "--loops", "168", "--work", "2"])
        self.assertGreater(summary["planned_from_iteration"], 0)
        self.assertGreater(summary["planned_iterations"], 4)
        self.assertLess(summary["mismatches"], 10)  # 48 if the loop is planned

    def test_a_plan_comes_into_force(self):
        summary, _ = self.run_cycle("--budget", "30M", args=["--iterations", "30"])
        self.assertGreater(summary["planned_iterations"], 10)
        self.assertGreater(summary["planned_from_iteration"], 0)
        self.assertGreater(summary["period_events"], 24)
        self.assertTrue(26 <= summary["iterations"] <= 31, summary["iterations"])

    def test_layers_are_no_iterations(self):
        summary = os.path.join(self.folder, "summary.json")
        result = self.run_ebb(PYTHON, "-c", LAYERS, options=[
            "--budget", "70%", "--summary-json", summary])
        self.assertEqual(0, result.returncode, result.stderr)
        self.assert_quiet(result)
        with open(summary, encoding="utf-8") as file:
            figures = json.load(file)
        self.assertEqual(0, figures["mismatches"])
        self.assertIn(figures["iterations"], (88, 89, 90))
        self.assertGreater(figures["planned_iterations"], 0)

    def test_published_policies_are_in_force(self):
        for policy in ("appobmem", "autoswap:vote", "vdnn:all") if WITH_LAB else ("fifo",):
            summary, _ = self.run_cycle("--budget", "30M", "--policy", policy,
                                        args=["--iterations", "30", "--wait", "1"])
            self.assertGreater(summary["planned_iterations"], 10, policy)
            self.assertGreater(summary["iteration_ns"]["median"], 24000000, policy)

    def test_lru_sends_no_script(self):
        """LRU only predicts. No plan is made, but the duration of an iteration is known."""
        if not WITH_LAB:
            self.skipTest("skipped: needs lab")
        for budget in ("26M", "60%"):
            summary, _ = self.run_cycle("--budget", budget, "--policy", "lru",
                                        args=["--iterations", "40", "--wait", "1"])
            self.assertEqual(0, summary["planned_iterations"])
            self.assertIsNone(summary["planned_from_iteration"])
            self.assertEqual(0, summary["plans"])
            self.assertGreater(summary["reactive_evictions"], 0)
            self.assertGreater(summary["predicted_stall_ns_per_iteration"], 0)
            self.assertGreater(summary["predicted_iteration_ns"],
                               summary["predicted_stall_ns_per_iteration"])
            self.assertGreater(summary["iteration_ns"]["median"], 24000000)
            self.assertLessEqual(summary["peak_resident_bytes"], summary["budget_bytes"])

    def test_lost_time(self):
        """Of the first iterations: the summary has it without a trace. What observing has cost is an
        estimate, and is marked now and then: a row may have more of it than its time."""
        found, _ = self.run_cycle("--budget", "26M")
        rows = found["lost"]
        self.assertTrue(3 <= len(rows) <= min(20, found["iterations"]), rows)
        for row in rows:
            self.assertEqual({"ns", "observed", "evicted wrongly", "late", "switched"}, set(row))
        lost = sum(sum(row.values()) - row["ns"] for row in rows)
        self.assertGreater(lost, 0)
        self.assertLess(lost, 1.1 * (found["stall_ns"] + found["observed_ns"]))


REPEATS_BEFORE = """
M = 1 << 20
for _ in range(16):
    scratch, other = bytearray(M), bytearray(2 * M)
    del scratch, other
weights = bytearray(8 * M)
for _ in range(10):
    kept = [bytearray(b"x") * (layer * M) for layer in range(1, 13)]
    while kept:
        kept.pop()[0] = 1
    weights[0] += 1
"""


STARTS = """
import subprocess, sys
held = [bytearray(300000) for _ in range(3)]
sys.exit(subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode)
"""


class Record(Launch):
    """The iteration must have been found while the program runs, for its accesses to be observed."""
    paced = True

    def test_accesses_of_the_iteration(self):
        """The trace has the accesses of the iteration, not of an earlier repetition that is found
        first."""
        path = os.path.join(self.folder, "run.ebbt")
        result = self.run_command([EBB, "record", "-o", path, "--", PYTHON, "-c", REPEATS_BEFORE])
        self.assertEqual(0, result.returncode, result.stderr)
        info = json.loads(self.run_command([EBB, "info", path, "--json"]).stdout)
        self.assertEqual(10, info["iterations"])
        self.assertTrue(info["accesses"])
        os.unlink(path)

    def test_changes_nothing(self):
        path = os.path.join(self.folder, "run.ebbt")
        plain = self.plain(cycle(), *CYCLE_ARGS)
        result = self.run_command([EBB, "record", "-o", path, "--", cycle(), *CYCLE_ARGS])
        self.assertEqual((0, plain.stdout, b""), (result.returncode, result.stdout, result.stderr))
        info = json.loads(self.run_command([EBB, "info", path, "--json"]).stdout)
        self.assertGreaterEqual(info["iterations"], 7)
        self.assertAlmostEqual(43 * MIB, info["peak_bytes"], delta=2 * MIB)
        os.unlink(path)

    def test_a_launcher_is_not_what_was_meant(self):
        """It has blocks, and starts the program that trains."""
        path = os.path.join(self.folder, "run.ebbt")
        result = self.run_command([EBB, "record", "-o", path, "--", PYTHON, "-c", STARTS, cycle(),
                                   *CYCLE_ARGS])
        self.assertEqual(0, result.returncode)
        self.assertRegex(result.stderr, rb"\Aebb: the trace is of the first process with blocks; "
                         rb"process \d+ held 4\d\.\d MiB[^\n]*record that program alone\n\Z")
        os.unlink(path)

    def test_exit_codes(self):
        path = os.path.join(self.folder, "run.ebbt")
        for code, program in ((42, "exit 42"), (-signal.SIGTERM, "kill -TERM $$")):
            result = self.run_command([EBB, "record", "-o", path, "--", "sh", "-c", program])
            self.assertEqual(code, result.returncode)
        self.assertEqual(127, self.run_command(
            [EBB, "record", "-o", path, "--", "/no/such/program"]).returncode)
        if os.path.exists(path):
            os.unlink(path)


if __name__ == "__main__":
    main()
