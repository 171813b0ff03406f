#!/usr/bin/python3
"""`ebb run` is invisible: exit codes, signals, streams, processes and files are the program's own.

Runs $EBB_BIN_DIR/ebb.  `test_launch.py NAME...` runs single tests (`Signals.test_term`).
Programs that the tests need are compiled into a temporary folder by cc.
"""
import json
import os
import pty
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("EBB_BIN_DIR") or os.path.join(SOURCE, "build", "dev", "bin")
EBB = os.path.join(BIN, "ebb")
PYTHON = "/usr/bin/python3"
MIB = 1 << 20
TIMEOUT = 60

# Keys of `ebb.run/1` that scripts rely on.
SUMMARY_KEYS = """schema exit_status elapsed_ns budget_bytes peak_resident_bytes
    unmanaged_peak_bytes iterations period_events planned_from_iteration policy
    predicted_peak_bytes predicted_stall_ns_per_iteration moved_out_bytes moved_in_bytes stall_ns
    demand_faults demand_faults_planned_median planned_iterations budget_from_iteration
    learning_peak_bytes budget_exceeded unmanaged_bytes store_peak_bytes mismatches iteration_ns
    processes""".split()

WORK = None  # a temporary folder for all tests
CYCLE = None  # the compiled tests/programs/cycle.c

# Small enough to be quick, large enough that every activation is managed.
CYCLE_ARGS = ["--iterations", "10", "--layers", "12", "--block", "4M", "--persistent", "8M"]


def compile_c(name, text=None, options=()):
    """Compile `text`, or tests/programs/<name>.c, to WORK/<name>."""
    out = os.path.join(WORK, name)
    source = os.path.join(SOURCE, "tests", "programs", f"{name}.c")
    if text is not None:
        source = out + ".c"
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
    subprocess.run(["cc", "-std=gnu11", "-O2", "-pthread", "-o", out, source, *options],
                   check=True)
    return out


class Launch(unittest.TestCase):
    """A store, a TMPDIR, a cache and a mark in the environment of each test's own; nothing may be
    left in the folders and no process with the mark may live at the end."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=WORK)
        self.store = os.path.join(self.folder, "store")
        self.tmp = os.path.join(self.folder, "tmp")
        self.cache = os.path.join(self.folder, "cache")
        for folder in (self.store, self.tmp, self.cache):
            os.mkdir(folder)
        self.mark = f"EBB_LAUNCH_TEST={uuid.uuid4().hex}"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("EBB_")}
        self.env.update(TMPDIR=self.tmp, XDG_CACHE_HOME=self.cache, LC_ALL="C.UTF-8")
        self.env["EBB_LAUNCH_TEST"] = self.mark.split("=")[1]
        self.shm = set(os.listdir("/dev/shm"))
        self.may_leave = False

    def tearDown(self):
        alive = self.wait_for_none(5)
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
        self.assertEqual([], alive, "processes were left")
        for folder in (self.store, self.tmp, self.cache):
            left = [os.path.join(f, n) for f, _, names in os.walk(folder) for n in names]
            self.assertEqual([], left, "files were left")
        self.assertEqual(set(), set(os.listdir("/dev/shm")) - self.shm, "left in /dev/shm")
        shutil.rmtree(self.folder)

    def marked(self):
        """Living processes that this test started, at any depth."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if self.mark.encode() in file.read().split(b"\0"):
                        found.append(int(pid))
            except OSError:
                pass
        return found

    def wait_for_none(self, seconds):
        end = time.monotonic() + seconds
        while (alive := self.marked()) and time.monotonic() < end:
            time.sleep(0.05)
        return alive

    def options(self, *options):
        return [EBB, "run", "--no-cache", "--store", self.store, *options]

    def run_ebb(self, *args, options=(), **kwargs):
        """`ebb run options -- args` to its end, output captured as bytes."""
        return self.run_command([*self.options(*options), "--", *args], **kwargs)

    def run_command(self, command, **kwargs):
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        if "input" in kwargs:
            del kwargs["stdin"]
        kwargs.setdefault("stdout", subprocess.PIPE)
        kwargs.setdefault("stderr", subprocess.PIPE)
        return subprocess.run(command, env=kwargs.pop("env", self.env), timeout=TIMEOUT,
                              check=False, **kwargs)

    def start(self, *args, options=(), **kwargs):
        kwargs.setdefault("stdout", subprocess.PIPE)
        kwargs.setdefault("stderr", subprocess.PIPE)
        process = subprocess.Popen([*self.options(*options), "--", *args], env=self.env,
                                   stdin=subprocess.DEVNULL, process_group=0, **kwargs)
        self.addCleanup(self.close, process)
        return process

    @staticmethod
    def close(process):
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()

    def expect_line(self, process, text):
        """Wait until the program has printed `text` as a line."""
        seen = b""
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            ready, _, _ = select.select([process.stdout], [], [], 0.2)
            if ready:
                chunk = os.read(process.stdout.fileno(), 65536)
                if not chunk:
                    break
                seen += chunk
                if text + b"\n" in seen:
                    return
        self.fail(f"never printed {text!r}, only {seen!r}")

    def assert_quiet(self, result):
        self.assertEqual(b"", result.stderr)


# --- exit codes ------------------------------------------------------------------------------


class ExitCodes(Launch):
    def test_passed_through(self):
        for code in (0, 1, 2, 3, 42, 125, 126, 127, 255):
            result = self.run_ebb("sh", "-c", f"exit {code}")
            self.assertEqual(code, result.returncode)
            self.assert_quiet(result)

    def test_death_by_signal(self):
        for name in ("TERM", "SEGV", "KILL", "ABRT", "HUP", "INT", "PIPE", "USR2"):
            result = self.run_ebb("sh", "-c", f"kill -{name} $$")
            self.assertEqual(-getattr(signal, f"SIG{name}"), result.returncode, name)

    def test_real_segmentation_fault(self):
        program = compile_c("crash", "int main(void) { return *(volatile int *)8; }\n")
        result = self.run_ebb(program)
        self.assertEqual(-signal.SIGSEGV, result.returncode)

    def test_abort_keeps_the_message(self):
        program = compile_c("assertion", "#include <assert.h>\n"
                            "int main(int c, char **v) { (void)v; assert(c == 7); return 0; }\n")
        result = self.run_ebb(program)
        self.assertEqual(-signal.SIGABRT, result.returncode)
        self.assertIn(b"c == 7", result.stderr)

    def test_not_found(self):
        for name in ("/no/such/program", "no-such-program-anywhere", "./no-such-program"):
            result = self.run_ebb(name)
            self.assertEqual(127, result.returncode, name)
            self.assertIn(b"ebb: ", result.stderr)
            self.assertEqual(b"", result.stdout)

    def test_not_executable(self):
        path = os.path.join(self.folder, "plain")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nexit 0\n")
        os.chmod(path, 0o644)
        for name in (path, self.folder):
            self.assertEqual(126, self.run_ebb(name).returncode, name)
        os.unlink(path)

    def test_script_without_interpreter_line(self):
        """execvp() of the shells runs it by sh; whatever Ebb does, it is 0 or 126."""
        path = os.path.join(self.folder, "bare")
        with open(path, "w", encoding="utf-8") as file:
            file.write("exit 0\n")
        os.chmod(path, 0o755)
        self.assertIn(self.run_ebb(path).returncode, (0, 126))
        os.unlink(path)

    def test_bad_usage(self):
        started = os.path.join(self.folder, "started")
        touch = ["--", "touch", started]
        plain_file = os.path.join(self.folder, "file")
        with open(plain_file, "w", encoding="utf-8"):
            pass
        cases = {
            "no command": [],
            "nothing after --": ["--"],
            "unknown option": ["--frobnicate", *touch],
            "budget without value": ["--budget"],
            "bad unit": ["--budget", "12Q", *touch],
            "negative": ["--budget", "-5", *touch],
            "zero": ["--budget", "0", *touch],
            "empty": ["--budget", "", *touch],
            "zero per cent": ["--budget", "0%", *touch],
            "bad summary": ["--summary=perhaps", *touch],
            "bad policy": ["--policy", "no-such-policy", *touch],
            "bad store limit": ["--store-limit", "much", *touch],
            "store missing": ["--store", os.path.join(self.folder, "gone"), *touch],
            "store is a file": ["--store", plain_file, *touch],
            "store cannot be written": ["--store", "/proc", *touch],
            "summary file cannot be written": ["--summary-json", "/proc/none/x.json", *touch],
            "record file cannot be written": ["--record", "/proc/none/x.ebbt", *touch],
        }
        for name, options in cases.items():
            with self.subTest(name):
                result = self.run_command([EBB, "run", "--no-cache", *options])
                self.assertEqual(125, result.returncode)
                self.assertTrue(result.stderr.startswith(b"ebb: run: "), result.stderr)
                self.assertLessEqual(result.stderr.count(b"\n"), 3)
                self.assertEqual(b"", result.stdout)
                self.assertFalse(os.path.exists(started), "the program was started")
        os.unlink(plain_file)

    def test_store_read_only_for_a_user(self):
        if os.geteuid() == 0:
            return  # root writes everywhere; /proc above stands for it
        os.chmod(self.store, 0o555)
        self.assertEqual(125, self.run_ebb("true").returncode)
        os.chmod(self.store, 0o755)

    def test_help(self):
        result = self.run_command([EBB, "run", "--help"])
        self.assertEqual(0, result.returncode)
        self.assertIn(b"--budget", result.stdout)
        self.assert_quiet(result)

    def test_options_end(self):
        """At `--`, or at the first word that is no option."""
        for head in (["--"], []):
            result = self.run_command([*self.options(), *head, "echo", "--budget", "--", "x"])
            self.assertEqual((0, b"--budget -- x\n"), (result.returncode, result.stdout))
            self.assert_quiet(result)

    def test_sizes(self):
        for size in ("1G", "512MiB", "2GB", "60%", "1.5G", "1073741824"):
            for options in (["--budget", size], [f"--budget={size}"]):
                self.assertEqual(0, self.run_ebb("true", options=options).returncode, options)


# --- streams and environment -----------------------------------------------------------------


class Streams(Launch):
    def test_bytes_pass_unchanged(self):
        data = os.urandom(3 * MIB) + b"\0\xff\r\n"
        result = self.run_ebb("cat", input=data)
        self.assertEqual(0, result.returncode)
        self.assertTrue(result.stdout == data, "stdout differs from stdin")
        self.assert_quiet(result)
        result = self.run_ebb("sh", "-c", "cat >&2", input=data)
        self.assertTrue(result.stderr == data, "stderr differs from stdin")
        self.assertEqual(b"", result.stdout)

    def test_closed_streams(self):
        result = self.run_command(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *self.options(),
                                   "--", "sh", "-c", "exit 6"])
        self.assertEqual(6, result.returncode)

    def test_other_descriptors_are_inherited(self):
        read_end, write_end = os.pipe()
        result = self.run_ebb("sh", "-c", f"echo through >&{write_end}", pass_fds=[write_end])
        os.close(write_end)
        self.assertEqual(0, result.returncode, result.stderr)
        self.assertEqual(b"through\n", os.read(read_end, 100))
        os.close(read_end)

    def test_environment_is_kept(self):
        program = [PYTHON, "-c", "import os, sys, json; json.dump([dict(os.environ), os.getcwd(), "
                   "os.umask(0), sys.argv, os.getpriority(0, 0)], sys.stdout)", "a b", "*", ""]
        plain = json.loads(self.run_command(program).stdout)
        under = json.loads(self.run_ebb(*program).stdout)
        self.assertEqual(plain[1:], under[1:])
        for name, value in plain[0].items():
            if name != "LD_PRELOAD":
                self.assertEqual(value, under[0].get(name), name)

    def test_signal_dispositions_are_kept(self):
        for prefix in ([], ["nohup"]):
            program = ["grep", "^Sig[BIC]", "/proc/self/status"]
            plain = self.run_command([*prefix, *program])
            under = self.run_command([*prefix, *self.options(), "--", *program])
            self.assertEqual(plain.stdout, under.stdout, prefix)

    def test_limits_are_kept(self):
        program = ["sh", "-c", "ulimit -a"]
        self.assertEqual(self.run_command(program).stdout, self.run_ebb(*program).stdout)

    def test_existing_preload_is_kept(self):
        library = os.path.join(WORK, "hello.so")
        compile_c("hello.so", '#include <unistd.h>\n__attribute__((constructor)) '
                  'static void f(void) { if (write(2, "hello\\n", 6)) {} }\n',
                  ["-shared", "-fPIC"])
        result = self.run_command([*self.options(), "--", PYTHON, "-c",
                                   "import os; print(os.environ['LD_PRELOAD'])"],
                                  env={**self.env, "LD_PRELOAD": library})
        entries = re.split(r"[: ]", result.stdout.decode().strip())
        self.assertEqual(library, entries[-1])
        self.assertGreaterEqual(len(entries), 2, "Ebb's own library is not preloaded")
        self.assertIn(b"hello\n", result.stderr)


# --- summary ---------------------------------------------------------------------------------


class Summary(Launch):
    def check_text(self, text):
        lines = text.decode().splitlines()
        self.assertTrue(1 <= len(lines) <= 8, text)
        for line in lines:
            self.assertTrue(line.startswith("ebb: "), text)

    def test_only_when_asked(self):
        program = [CYCLE, *CYCLE_ARGS]
        plain = self.run_command(program).stdout
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

    def check_keys(self, summary):
        self.assertEqual([], [key for key in SUMMARY_KEYS if key not in summary])
        self.assertEqual("schema", next(iter(summary)))
        self.assertEqual("ebb.run/1", summary["schema"])
        for key, value in summary.items():
            if key.endswith(("_bytes", "_ns")) and key != "iteration_ns":
                self.assertTrue(value is None or type(value) is int and value >= 0,
                                f"{key}: {value!r}")

    def test_json(self):
        summary = self.read_json(CYCLE, *CYCLE_ARGS, options=["--budget", "26M"])
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


class Budgets(Launch):
    """What a budget means; each run also prints the right checksum."""

    def run_cycle(self, *options, code=0, args=()):
        program = [CYCLE, *CYCLE_ARGS, *args]
        plain = self.run_command(program)
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

    def test_in_per_cent_of_what_it_takes(self):
        summary, _ = self.run_cycle("--budget", "60%",
                                    args=["--iterations", "40", "--work", "2"])
        self.assertGreater(summary["budget_from_iteration"], 0)
        self.assertGreaterEqual(summary["unmanaged_peak_bytes"], 42 * MIB)
        # Of the peak of the first iterations: blocks that outlive several may raise it later.
        self.assertGreaterEqual(summary["learning_peak_bytes"], 0.9 * summary["budget_bytes"] / 0.6)
        self.assertAlmostEqual(summary["budget_bytes"], 0.6 * summary["unmanaged_peak_bytes"],
                               delta=0.1 * summary["unmanaged_peak_bytes"])
        self.assertLessEqual(summary["peak_resident_bytes"], summary["budget_bytes"])

    def test_none_given(self):
        summary, _ = self.run_cycle()
        self.assertGreater(summary["budget_bytes"], 100 * MIB)
        self.assertEqual(0, summary["moved_out_bytes"])

    def test_a_plan_comes_into_force(self):
        summary, _ = self.run_cycle("--budget", "30M", args=["--iterations", "30"])
        self.assertGreater(summary["planned_iterations"], 10)
        self.assertGreater(summary["planned_from_iteration"], 0)
        self.assertGreater(summary["period_events"], 24)
        self.assertTrue(26 <= summary["iterations"] <= 31, summary["iterations"])

    def test_impossible(self):
        """One operation needs more: it runs on, and says so."""
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
        """Every policy runs, within the budget and with the right bytes."""
        for policy in ("ebb", "appobmem", "autoswap", "autoswap:vote", "autoswap:doa",
                       "autoswap:aoa", "autoswap:wdoa", "autoswap:swdoa", "autoswap:bo",
                       "vdnn:all", "vdnn:conv", "fifo", "lru", "none"):
            summary, _ = self.run_cycle("--budget", "26M", "--policy", policy,
                                        args=["--iterations", "14"])
            self.assertEqual(policy, summary["policy"])
            self.assertLessEqual(summary["peak_resident_bytes"], 26 * MIB, policy)
            self.assertFalse(summary["budget_exceeded"], policy)
            self.assertGreater(summary["moved_out_bytes"], 0, policy)

    def test_published_policies_are_in_force(self):
        for policy in ("appobmem", "autoswap:vote", "vdnn:all"):
            summary, _ = self.run_cycle("--budget", "30M", "--policy", policy,
                                        args=["--iterations", "30", "--work", "1"])
            self.assertGreater(summary["planned_iterations"], 10, policy)
            self.assertGreater(summary["iteration_ns"]["median"], 24000000, policy)

    def test_lru_sends_no_script(self):
        """It only predicts: nothing is planned, and what an iteration takes is known all the same."""
        for budget in ("26M", "60%"):
            summary, _ = self.run_cycle("--budget", budget, "--policy", "lru",
                                        args=["--iterations", "40", "--work", "1"])
            self.assertEqual(0, summary["planned_iterations"])
            self.assertIsNone(summary["planned_from_iteration"])
            self.assertEqual(0, summary["plans"])
            self.assertGreater(summary["reactive_evictions"], 0)
            self.assertGreater(summary["predicted_stall_ns_per_iteration"], 0)
            self.assertGreater(summary["iteration_ns"]["median"], 24000000)
            self.assertLessEqual(summary["peak_resident_bytes"], summary["budget_bytes"])

    def test_record_beside(self):
        path = os.path.join(self.folder, "run.ebbt")
        self.run_cycle("--budget", "26M", "--record", path)
        self.assertGreater(os.path.getsize(path), 1000)
        info = self.run_command([EBB, "info", path, "--json"])
        self.assertEqual(0, info.returncode, info.stderr)
        self.assertEqual("ebb.info/1", json.loads(info.stdout)["schema"])
        os.unlink(path)


REPEATS_BEFORE = """
import sys
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


class Record(Launch):
    def test_accesses_of_the_iteration(self):
        """Not of what repeated before it, which is found first."""
        path = os.path.join(self.folder, "run.ebbt")
        result = self.run_command([EBB, "record", "-o", path, "--", PYTHON, "-c", REPEATS_BEFORE])
        self.assertEqual(0, result.returncode, result.stderr)
        info = json.loads(self.run_command([EBB, "info", path, "--json"]).stdout)
        self.assertEqual(10, info["iterations"])
        self.assertTrue(info["accesses"])
        os.unlink(path)

    def test_changes_nothing(self):
        path = os.path.join(self.folder, "run.ebbt")
        plain = self.run_command([CYCLE, *CYCLE_ARGS])
        result = self.run_command([EBB, "record", "-o", path, "--", CYCLE, *CYCLE_ARGS])
        self.assertEqual((0, plain.stdout, b""), (result.returncode, result.stdout, result.stderr))
        info = json.loads(self.run_command([EBB, "info", path, "--json"]).stdout)
        self.assertGreaterEqual(info["iterations"], 7)
        self.assertAlmostEqual(43 * MIB, info["peak_bytes"], delta=2 * MIB)
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


# --- signals ---------------------------------------------------------------------------------

COUNT_SIGNALS = """
import signal, sys, time
counts = {}
def count(number, frame):
    counts[number] = counts.get(number, 0) + 1
for name in sys.argv[1:]:
    signal.signal(getattr(signal, "SIG" + name), count)
print("ready", flush=True)
end = time.monotonic() + 30
while not counts and time.monotonic() < end:
    time.sleep(0.02)
time.sleep(0.4)
for number, times in sorted(counts.items()):
    print(signal.Signals(number).name, times, flush=True)
sys.exit(9)
"""


class Signals(Launch):
    def check(self, name, send):
        process = self.start(PYTHON, "-c", COUNT_SIGNALS, name)
        self.expect_line(process, b"ready")
        send(process, getattr(signal, f"SIG{name}"))
        out, err = process.communicate(timeout=TIMEOUT)
        self.assertEqual(f"SIG{name} 1\n".encode(), out)
        self.assertEqual((9, b""), (process.returncode, err))

    def test_forwarded(self):
        for name in ("TERM", "HUP", "USR1", "USR2", "WINCH"):
            self.check(name, lambda process, number: process.send_signal(number))

    def test_interrupt_of_ebb_alone(self):
        """As a supervisor does it."""
        for name in ("INT", "QUIT"):
            self.check(name, lambda process, number: process.send_signal(number))

    def test_keyboard_reaches_the_group_once(self):
        """The terminal sends to the whole group: Ebb must not send it again."""
        for name, key in (("INT", b"\x03"), ("QUIT", b"\x1c")):
            command = [*self.options(), "--", PYTHON, "-c", COUNT_SIGNALS, name]
            pid, terminal = pty.fork()
            if pid == 0:
                os.execve(EBB, command, self.env)
            seen = b""
            pressed = False
            while True:
                try:
                    chunk = os.read(terminal, 4096)
                except OSError:
                    break
                if not chunk:
                    break
                seen += chunk
                if not pressed and b"ready" in seen:
                    os.write(terminal, key)
                    pressed = True
            os.close(terminal)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            self.assertEqual(9, code, seen)
            self.assertIn(f"SIG{name} 1\r\n".encode(), seen)

    def test_unhandled_term_kills_both(self):
        process = self.start("sleep", "30")
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT)
        self.assertEqual(-signal.SIGTERM, process.returncode)

    def test_unhandled_interrupt_of_the_group(self):
        process = self.start("sleep", "30")
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=TIMEOUT)
        self.assertEqual(-signal.SIGINT, process.returncode)

    def test_ignored_stays_ignored(self):
        process = subprocess.Popen(
            ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *self.options(), "--", "sh", "-c",
             "echo ready; sleep 1; exit 4"], env=self.env, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, process_group=0)
        self.addCleanup(self.close, process)
        self.expect_line(process, b"ready")
        os.killpg(process.pid, signal.SIGHUP)
        process.communicate(timeout=TIMEOUT)
        self.assertEqual(4, process.returncode)

    def states(self):
        found = {}
        for pid in self.marked():
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                    found[pid] = file.read().rsplit(")", 1)[1].split()[0]
            except OSError:
                pass
        return found

    def wait_for_state(self, stopped):
        end = time.monotonic() + 10
        while time.monotonic() < end:
            states = self.states()
            if states and all((s == "T") == stopped for s in states.values()):
                return states
            time.sleep(0.05)
        return self.fail(f"states {self.states()}, expected {'' if stopped else 'not '}stopped")

    def test_stop_and_continue(self):
        plain = self.run_command([CYCLE, *CYCLE_ARGS, "--work", "10"]).stdout
        process = self.start(CYCLE, *CYCLE_ARGS, "--work", "10", options=["--budget", "26M"])
        time.sleep(0.8)
        for _ in range(3):
            os.killpg(process.pid, signal.SIGTSTP)
            self.assertGreaterEqual(len(self.wait_for_state(stopped=True)), 2)
            time.sleep(0.3)
            self.assertIsNone(process.poll())
            os.killpg(process.pid, signal.SIGCONT)
            self.wait_for_state(stopped=False)
        out, _ = process.communicate(timeout=TIMEOUT)
        self.assertEqual((0, plain), (process.returncode, out))

    def test_program_killed_from_outside(self):
        process = self.start(CYCLE, *CYCLE_ARGS, "--work", "50", options=["--budget", "26M"])
        time.sleep(1)
        child = [pid for pid in self.marked() if pid != process.pid and
                 os.readlink(f"/proc/{pid}/exe") == CYCLE]
        self.assertEqual(1, len(child))
        os.kill(child[0], signal.SIGKILL)
        process.communicate(timeout=TIMEOUT)
        self.assertEqual(-signal.SIGKILL, process.returncode)


# --- processes -------------------------------------------------------------------------------


class Processes(Launch):
    def expect_checksum(self, command, options=("--budget", "26M"), args=(), **kwargs):
        arguments = [*CYCLE_ARGS, *args]
        plain = self.run_command([CYCLE, *arguments])
        self.assertEqual(0, plain.returncode)
        result = self.run_ebb(*command(arguments), options=options, **kwargs)
        self.assertEqual((0, plain.stdout), (result.returncode, result.stdout), result.stderr)
        self.assert_quiet(result)

    def test_fork(self):
        self.expect_checksum(lambda args: [CYCLE, *args], args=["--fork"])

    def test_exec_chain(self):
        def chain(args):
            inner = " ".join([CYCLE, *args])
            return ["sh", "-c", f"exec sh -c 'exec env sh -c \"exec {inner}\"'"]
        self.expect_checksum(chain)

    def test_child_of_a_shell(self):
        self.expect_checksum(lambda args: ["sh", "-c", " ".join([CYCLE, *args]) + "; exit $?"])

    def test_two_at_once(self):
        """Both processes share one budget."""
        path = os.path.join(self.folder, "summary.json")
        both = f"{CYCLE} {' '.join(CYCLE_ARGS)} & {CYCLE} {' '.join(CYCLE_ARGS)}; wait"
        plain = self.run_command(["sh", "-c", both])
        result = self.run_ebb("sh", "-c", both,
                              options=["--budget", "56M", "--summary-json", path])
        self.assertEqual((0, plain.stdout), (result.returncode, result.stdout), result.stderr)
        with open(path, encoding="utf-8") as file:
            summary = json.load(file)
        os.unlink(path)
        self.assertLessEqual(summary["peak_resident_bytes"], 56 * MIB)

    def test_environment_wiped_on_the_way(self):
        """No budget there, but the right result."""
        arguments = CYCLE_ARGS
        plain = self.run_command([CYCLE, *arguments]).stdout
        result = self.run_ebb("env", "-i", CYCLE, *arguments)
        self.assertEqual((0, plain), (result.returncode, result.stdout))

    def test_spawn_and_vfork(self):
        script = ("import os, subprocess; "
                  "b = [bytearray(8 << 20) for _ in range(8)]; "
                  "print(subprocess.run(['echo', 'one'], capture_output=True, check=True).stdout); "
                  "pid = os.posix_spawn('/bin/echo', ['echo', 'two'], os.environ); "
                  "print(os.waitpid(pid, 0)[1]); os.system('exit 3'); "
                  "print(all(not any(x[::4096]) for x in b), flush=True)")
        program = [PYTHON, "-c", script]
        plain = self.run_command(program)
        result = self.run_ebb(*program, options=["--budget", "48M"])
        self.assertEqual(sorted(plain.stdout.split()), sorted(result.stdout.split()))
        self.assertEqual(0, result.returncode, result.stderr)

    def test_python_multiprocessing(self):
        script = ("import multiprocessing as m\n"
                  "big = bytes(16 << 20)\n"
                  "def f(i): return len(big) + i + sum(bytearray(1 << 20))\n"
                  "if __name__ == '__main__':\n"
                  "    with m.get_context('fork').Pool(3) as p: print(sum(p.map(f, range(12))))\n")
        path = os.path.join(self.folder, "pool.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(script)
        plain = self.run_command([PYTHON, path]).stdout
        result = self.run_ebb(PYTHON, path, options=["--budget", "64M"])
        self.assertEqual((0, plain), (result.returncode, result.stdout), result.stderr)
        os.unlink(path)

    def test_background_child_is_not_waited_for(self):
        start = time.monotonic()
        result = self.run_ebb("sh", "-c", "sleep 4 >/dev/null 2>&1 & exit 5")
        self.assertEqual(5, result.returncode)
        self.assertLess(time.monotonic() - start, 3)

    def test_parent_killed_program_goes_on(self):
        arguments = [*CYCLE_ARGS, "--work", "10"]
        plain = self.run_command([CYCLE, *arguments]).stdout
        path = os.path.join(self.folder, "out")
        with open(path, "wb") as out:
            process = self.start(CYCLE, *arguments, options=["--budget", "26M"], stdout=out)
            time.sleep(1)
            self.assertIsNone(process.poll(), "ended too early to be killed")
            process.kill()
            process.wait()
        self.assertNotEqual([], self.marked(), "the program died with its parent")
        self.assertEqual([], self.wait_for_none(TIMEOUT))
        with open(path, "rb") as file:
            self.assertEqual(plain, file.read())
        os.unlink(path)


# --- static programs -------------------------------------------------------------------------


class Static(Launch):
    def setUp(self):
        super().setUp()
        self.program = os.path.join(WORK, "static")
        if not os.path.exists(self.program):
            compile_c("static", '#include <stdio.h>\n#include <stdlib.h>\n'
                      'int main(int c, char **v) { puts("static"); return c > 1 ? atoi(v[1]) : 0; }\n',
                      ["-static"])

    def test_one_warning(self):
        result = self.run_ebb(self.program, "7", options=["--budget", "64M"])
        self.assertEqual((7, b"static\n"), (result.returncode, result.stdout))
        self.assertRegex(result.stderr, rb"\Aebb: [^\n]*NOT enforced[^\n]*\n\Z")

    def test_strict(self):
        result = self.run_ebb(self.program, "7", options=["--budget", "64M", "--strict"])
        self.assertEqual(125, result.returncode)
        self.assertIn(b"NOT enforced", result.stderr)

    def test_strict_with_a_program_that_says_hello(self):
        result = self.run_ebb("sh", "-c", "exit 3", options=["--budget", "64M", "--strict"])
        self.assertEqual(3, result.returncode)
        self.assert_quiet(result)


# --- every byte ------------------------------------------------------------------------------


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
        plain = self.run_command([CYCLE, *arguments])
        self.assertEqual(0, plain.returncode, plain.stderr)
        result = self.run_ebb(CYCLE, *arguments, options=["--budget", str(budget)])
        self.assertEqual((0, plain.stdout), (result.returncode, result.stdout), result.stderr)
        self.assert_quiet(result)


    def test_a_wrong_byte_shows(self):
        """The program that all of the above relies on is not blind."""
        arguments = [*CYCLE_ARGS, "--corrupt", "5"]
        for command in ([CYCLE, *arguments], [*self.options("--budget", "26M"), "--", CYCLE,
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


def main():
    global WORK, CYCLE
    if not os.access(EBB, os.X_OK):
        print(f"skipped: needs ebb, {EBB} is not built")
        return 77
    # A death by signal is what some tests ask for: no core files of them.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory(prefix="ebb-launch-") as WORK:
        CYCLE = compile_c("cycle")
        program = unittest.main(argv=sys.argv, exit=False, verbosity=2)
    return 0 if program.result.wasSuccessful() and program.result.testsRun > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
