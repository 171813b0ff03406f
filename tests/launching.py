"""The common part of the launch tests: a temporary folder, and `ebb run` with checks afterwards.

Each test_launch*.py runs $EBB_BIN_DIR/ebb. With NAME... as arguments it runs single tests
(`test_launch_signals.py Signals.test_forwarded`). cc compiles the programs that the tests need into
a temporary folder.
"""
import json
import os
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

from devices import REFUSED, sample

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("EBB_BIN_DIR") or os.path.join(SOURCE, "build", "dev", "bin")
EBB = os.path.join(BIN, "ebb")
PYTHON = "/usr/bin/python3"
MIB = 1 << 20
TIMEOUT = 60  # seconds, far more than any of these programs takes
HANG = 50  # of the small ones; on an idle machine none of them takes one second

# Small enough to be quick, and large enough that every activation is managed.
CYCLE_ARGS = ["--iterations", "10", "--layers", "12", "--block", "4M", "--persistent", "8M"]

work = None  # a temporary folder for all tests of a file
plain_runs = {}  # results of Launch.plain(), by command


def faulty_disk():
    """A library to preload. With it, the disk fails as FAULTY_DISK says."""
    disk = os.path.join(work, "faulty_disk.so")
    if not os.path.exists(disk):
        os.rename(compile_c("faulty_disk", options=["-shared", "-fPIC"]), disk)
    return disk


def device_of(name):
    """The device `name` if the kernel has UFFDIO_MOVE, else the device that replaces it."""
    if "move" not in name:
        return name
    done = subprocess.run([EBB, "doctor", "--json", "--store", work or "/var/tmp"], check=False,
                          stdout=subprocess.PIPE, timeout=TIMEOUT)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    return name if checks["move"]["verdict"] == "ok" else name.replace("move", "remap")


def compile_c(name, text=None, options=(), of=None):
    """Compiles `text`, or tests/programs/<of or name>.c, once, to work/<name>."""
    out = os.path.join(work, name)
    if os.path.exists(out):
        return out
    source = os.path.join(SOURCE, "tests", "programs", f"{of or name}.c")
    if text is not None:
        source = out + ".c"
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
    subprocess.run(["cc", "-std=gnu11", "-O2", "-pthread", "-o", out, source, *options],
                   check=True)
    return out


def cycle():
    """The compiled tests/programs/cycle.c."""
    return compile_c("cycle")


def needs_mounts():
    """Decorates tests that mount. In a container, being root may not be enough."""
    there = subprocess.run(["unshare", "-m", "true"], check=False, stderr=subprocess.DEVNULL)
    return unittest.skipIf(there.returncode, "skipped: needs mounts")


needs_root = unittest.skipIf(os.geteuid() != 0, "skipped: needs root")


class Launch(unittest.TestCase):
    """Each test has its own store, TMPDIR and cache, and a mark in the environment. At its end, no
    file may be left in these folders, and no process with the mark may live."""

    paced = False  # a class of a script that is run in parts says if it depends on its pace

    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=work)
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
        self.assertEqual(set(), self.left_in_memory(20), "left in /dev/shm")
        shutil.rmtree(self.folder)

    def left_in_memory(self, seconds):
        """Files in /dev/shm that this test has left. Temporary ones of Python and PyTorch, and the
        folder of other tests (.ci/ctest.py), may belong to a test that runs at the same time. So
        may others, which are there for less than `seconds`."""
        until = time.monotonic() + seconds
        while True:
            left = {name for name in set(os.listdir("/dev/shm")) - self.shm
                    if not name.startswith(("sem.mp-", "torch_", "ebb-tests-"))}
            if not left or time.monotonic() > until:
                return left
            time.sleep(0.1)

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

    def run_twice(self, *args, options=(), times=2):
        """Two runs (or more) with a plan cache; the summary of each."""
        path, summaries = os.path.join(self.folder, "summary.json"), []
        for _ in range(times):
            done = self.run_command([EBB, "run", "--store", self.store, "--summary-json", path,
                                     *options, "--", *args])
            self.assertEqual(0, done.returncode, done.stderr)
            with open(path, encoding="utf-8") as file:
                summaries.append(json.load(file))
        shutil.rmtree(os.path.join(self.cache, "ebb"))
        return summaries

    def run_beside_plain(self, program, budget):
        """Runs the program with and without Ebb, compares, and returns the summary."""
        plain = self.plain(*program)
        self.assertEqual(0, plain.returncode, plain.stderr)
        path = os.path.join(self.folder, "summary.json")
        result = self.run_ebb(*program, options=["--budget", budget, "--summary-json", path])
        self.assertEqual((0, plain.stdout), (result.returncode, result.stdout), result.stderr)
        with open(path, encoding="utf-8") as file:
            summary = json.load(file)
        self.assertFalse(summary["budget_exceeded"])
        self.assertLessEqual(summary["peak_resident_bytes"], summary["budget_bytes"])
        self.assertGreater(summary["moved_in_bytes"], 0)
        return summary

    def run_ebb(self, *args, options=(), **kwargs):
        """Runs `ebb run options -- args` to its end. The output is captured as bytes."""
        return self.run_command([*self.options(*options), "--", *args], **kwargs)

    def plain(self, *program):
        """Runs `program` without Ebb, once for all tests of a file, since its output is always the
        same.

        Programs are run without --work and --wait, which take time and change no byte."""
        for option in ("--work", "--wait"):
            if option in program:
                at = program.index(option)
                program = program[:at] + program[at + 2:]
        if program not in plain_runs:
            plain_runs[program] = self.run_command(program)
        return plain_runs[program]

    def both(self, *program, budget_mib=4, refused=REFUSED, code=0, before=(), quiet=True):
        """`program` ends with `code` and the same output without Ebb and on every device. Of the
        devices, devices.sample() may leave out some."""
        plain = self.run_command([*before, *program], timeout=HANG)
        self.assertEqual(code, plain.returncode, plain.stderr)
        what = " ".join((os.path.basename(program[0]), *program[1:]))
        for features in sample(what, refused):
            with self.subTest(refused=features):
                try:
                    result = self.run_command(
                        [*before, *self.options("--budget", f"{budget_mib}M", "-q"), "--",
                         *program], env={**self.env, "EBB_REFUSE": features}, timeout=HANG)
                except subprocess.TimeoutExpired:
                    self.fail("hangs")
                self.assertEqual((plain.returncode, plain.stdout),
                                 (result.returncode, result.stdout), result.stderr)
                if quiet:
                    self.assertEqual(plain.stderr, result.stderr)

    def run_command(self, command, **kwargs):
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        if "input" in kwargs:
            del kwargs["stdin"]
        kwargs.setdefault("stdout", subprocess.PIPE)
        kwargs.setdefault("stderr", subprocess.PIPE)
        kwargs.setdefault("timeout", TIMEOUT)
        return subprocess.run(command, env=kwargs.pop("env", self.env), check=False, **kwargs)

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
        """Waits until the program has printed `text` as a line."""
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


class Part(unittest.TestLoader):
    """Loads the classes that depend on their pace (EBB_TEST_PART=paced), or the others (other)."""

    def loadTestsFromTestCase(self, testCaseClass):
        part = os.environ.get("EBB_TEST_PART")
        if part and testCaseClass.paced != (part == "paced"):
            return self.suiteClass()
        return super().loadTestsFromTestCase(testCaseClass)


def main():
    """Runs the tests of the script, and exits. So no script can forget the exit code."""
    global work
    if not os.access(EBB, os.X_OK):
        print(f"skipped: needs ebb, {EBB} is not built")
        sys.exit(77)
    # Some tests kill programs by signals. These must not write core files, nor ignore them since
    # the test is in the background.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    with tempfile.TemporaryDirectory(prefix="ebb-launch-") as work:
        program = unittest.main(module="__main__", argv=sys.argv, exit=False, verbosity=2,
                                testLoader=Part())
    sys.exit(0 if program.result.wasSuccessful() and program.result.testsRun > 0 else 1)
