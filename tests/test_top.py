#!/usr/bin/python3
"""`ebb top`: what a living run shows, as text, JSON, Prometheus and on a terminal; and who may look."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

import launching
from launching import EBB

sys.dont_write_bytecode = True

BUDGET = 48 << 20
NUMBER = r"(?:\+Inf|[0-9.e+-]+)"


class Run:
    """A program under Ebb that goes on until the block ends."""

    def __init__(self, *options):
        self.options = options

    def __enter__(self):
        # A group of its own, so that all of it ends with the test.
        self.process = subprocess.Popen(
            [EBB, "run", "--no-cache", "-q", "--store", launching.work, *self.options, "--",
             launching.cycle(), "--iterations", "100000", "--layers", "12", "--block", "4M",
             "--persistent", "8M", "--work", "1"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        for _ in range(100):
            shown = json.loads(top("--once", "--json", str(self.process.pid)).stdout)["runs"]
            if shown and shown[0]["iterations"] > 3:
                return self
            time.sleep(0.1)
        raise AssertionError(f"the run is not seen: {shown}")

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def top(*options, **more):
    return subprocess.run([EBB, "top", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=30, check=False, **more)


class Top(unittest.TestCase):
    def test_a_run_is_shown_in_every_form(self):
        with Run("--budget", str(BUDGET)) as run:
            pid = str(run.process.pid)
            shown = json.loads(top("--once", "--json", pid).stdout)
            self.assertEqual("ebb.top/1", list(shown.values())[0])
            one, = shown["runs"]
            self.assertEqual(run.process.pid, one["process_id"])
            self.assertEqual((BUDGET, True, 1), (one["budget_bytes"], one["in_force"],
                                                one["processes"]))
            self.assertIn("cycle --iterations 100000", one["command"])
            self.assertTrue(0 < one["resident_bytes"] <= one["peak_resident_bytes"] <= BUDGET, one)
            self.assertIn(one["mode"], ("observing", "planned", "relearning"))
            self.assertTrue(0 <= one["rates"]["out_busy"] <= 1.1, one)
            later = json.loads(top("--once", "--json", pid).stdout)["runs"][0]
            self.assertGreater(later["iterations"], one["iterations"])
            self.assertGreater(later["elapsed_ns"], one["elapsed_ns"])
            # By the process id of the program, too.
            program = json.loads(top("--once", "--json", str(one["main_process_id"])).stdout)
            self.assertEqual([run.process.pid], [r["process_id"] for r in program["runs"]])
            self.check_text(top("--once", pid).stdout, pid)
            # No terminal, and one that can show nothing: the same lines.
            self.check_text(top(pid).stdout, pid)
            self.check_text(self.on_terminal("dumb", pid, b""), pid)
            self.check_prometheus(pid)

    def check_text(self, text, pid):
        lines = text.replace("\r", "").splitlines()
        self.assertEqual(6, len(lines), text)
        size, time_ = r"[\d.]+ (?:[KMG]i)?B", r"[\d.]+ (?:s|ms|us|ns)"
        for line, pattern in zip(lines, (
                rf"{pid} +\S*cycle --iterations 100000 .*",
                rf"  resident   \[[#-]{{20}}\] {size} of 48\.00 MiB; peak {size}",
                rf"  mode       [a-z]+; policy ebb; device [\w-]+; processes: 1; runs for {time_}",
                rf"  iteration  \d+, \d+ of them planned; the last took {time_}",
                rf"  lanes      out {size}/s, busy \d+ %; in {size}/s, busy \d+ %",
                rf"  stalls     [\d.]+ % of the time; {time_} so far; demand faults: \d+")):
            self.assertRegex(line, rf"\A{pattern}\Z")
            self.assertLessEqual(len(line), 100)

    def check_prometheus(self, pid):
        with tempfile.TemporaryDirectory(dir=launching.work) as folder:
            path = os.path.join(folder, "ebb.prom")
            done = top("--once", "--prom", path, pid)
            self.assertEqual((0, "", ""), (done.returncode, done.stdout, done.stderr))
            with open(path, encoding="utf-8") as file:
                text = file.read()
            for line in text.splitlines():
                self.assertRegex(line, r"\A(?:# HELP ebb_\w+ .+\.|# TYPE ebb_\w+ (?:gauge|counter)|"
                                 rf'ebb_\w+\{{pid="{pid}",command="[^"]+"\}} {NUMBER})\Z')
            self.assertIn(f"{BUDGET}\n", text)
            # Goes on until Ctrl-C, and never leaves half a file.
            going = subprocess.Popen([EBB, "top", "--prom", path, pid])
            changed, deadline = set(), time.monotonic() + launching.HANG
            while len(changed) < 3 and time.monotonic() < deadline:
                with open(path, encoding="utf-8") as file:
                    seen = file.read()
                self.assertTrue(seen.endswith("\n") and seen.count("\n") == text.count("\n"))
                changed.add(seen)
                time.sleep(0.01)
            going.send_signal(signal.SIGINT)
            self.assertEqual(-signal.SIGINT, going.wait(timeout=10))
            self.assertEqual(3, len(changed))
            self.assertEqual(["ebb.prom"], os.listdir(folder))
            missing = top("--once", "--prom", os.path.join(folder, "none/x"), pid)
            self.assertEqual(1, missing.returncode)
            self.assertRegex(missing.stderr, r"\Aebb: top: .*none/x: cannot be written: ")

    def on_terminal(self, terminal, pid, keys, **variables):
        """What is printed on a terminal of 100 columns; `keys` are typed after a while."""
        process, master = pty.fork()
        if process == 0:
            os.environ.update(TERM=terminal, **variables)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
            os.execv(EBB, [EBB, "top", pid])
        said, deadline = b"", time.monotonic() + 20
        while time.monotonic() < deadline:
            if select.select([master], [], [], 1.2)[0]:
                try:
                    got = os.read(master, 65536)
                except OSError:
                    break
                said += got
                if not got:
                    break
            if keys and b"stalls" in said and said.count(b"iteration") >= 1:
                time.sleep(0.7)
                os.write(master, keys)
                keys = b""
        os.close(master)
        _, status = os.waitpid(process, 0)
        self.assertEqual(0, status, said)
        return said.decode()

    def test_the_view(self):
        with Run("--budget", str(BUDGET)) as run:
            pid = str(run.process.pid)
            plain = self.on_terminal("xterm-256color", pid, b"q", NO_COLOR="1")
            colored = self.on_terminal("xterm-256color", pid, b"q", NO_COLOR="")
            for said in (plain, colored):
                self.assertIn("ebb top, runs: 1", said)
                self.assertIn("resident", said)
                self.assertIn("stalls", said)
                self.assertTrue(said.rstrip().endswith("\x1b[?1l\x1b>"), repr(said[-40:]))
            green = r"\x1b\[[0-9;]*3[12]m"
            self.assertRegex(colored, green)
            self.assertNotRegex(plain, green)

    def test_a_run_that_is_stopped(self):
        with Run("--budget", str(BUDGET)) as run:
            os.kill(run.process.pid, signal.SIGSTOP)
            done = top("--once", str(run.process.pid))
            os.kill(run.process.pid, signal.SIGCONT)
        self.assertEqual(1, done.returncode)
        self.assertIn(f"run {run.process.pid}: does not answer: it is stopped", done.stderr)

    def test_letters_of_other_languages(self):
        """A command is cut between letters, and what is no UTF-8 is `?`."""
        most = 255  # bytes; in one of the first two commands a letter ends there
        for word, shown, least in ((("ä" * 300).encode(), "ää", most - 1),
                                   (("x" + "ä" * 300).encode(), "ää", most - 1),
                                   (b"x" * 260 + b"\xff", "xx", most), (b"\xff\xfe", " ??", 0)):
            with subprocess.Popen([EBB, "run", "--no-cache", "-q", "--store", launching.work, "--",
                                   "sh", "-c", "sleep 30", word], stderr=subprocess.DEVNULL) as process:
                pid = str(process.pid)
                for _ in range(100):
                    runs = json.loads(top("--once", "--json", pid).stdout)["runs"]
                    if runs or process.poll() is not None:
                        break
                    time.sleep(0.1)
                path = os.path.join(launching.work, "exported")
                top("--once", "--prom", path, pid)
                process.terminate()
            with open(path, encoding="utf-8") as file:
                exported = file.read()
            os.unlink(path)
            self.assertRegex(runs[0]["command"], f"^sh -c sleep 30 .*{re.escape(shown.strip())}$")
            self.assertIn(runs[0]["command"], exported)
            self.assertIn(len(runs[0]["command"].encode()), range(least, most + 1))

    def test_no_run(self):
        done = top("--once", "--json", "1")
        self.assertEqual((1, []), (done.returncode, json.loads(done.stdout)["runs"]))
        self.assertIn("no run that you may see has the process id 1", done.stderr)
        self.assertEqual(1, top("--once", "1").returncode)

    def test_bad_usage(self):
        for options, why in ((("x",), "'x' is not a process id"), (("0",), "not a process id"),
                             (("1", "2"), "one PID"), (("--json",), "--once"),
                             (("99999999999",), "not a process id")):
            done = top(*options)
            self.assertEqual((2, ""), (done.returncode, done.stdout))
            self.assertIn(why, done.stderr)

    def test_nothing_is_left_behind(self):
        def names():
            with open("/proc/net/unix", encoding="utf-8") as file:
                return set(re.findall(r"@ebb-run-\d+-\d+", file.read()))
        before = names()
        with Run("--budget", str(BUDGET)) as run:
            name = f"@ebb-run-{os.geteuid()}-{run.process.pid}"
            self.assertIn(name, names())
            os.kill(run.process.pid, signal.SIGKILL)  # ebb alone: the program goes on
            run.process.wait()
            self.assertNotIn(name, names())
        self.assertLessEqual(names() - {name}, before | names())

    @launching.needs_root
    def test_other_users_see_nothing(self):
        os.chmod(launching.work, 0o755)
        with Run("--budget", str(BUDGET)) as run:
            asked = subprocess.run(
                ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", EBB, "top",
                 "--once", "--json", str(run.process.pid)], stdout=subprocess.PIPE, text=True,
                timeout=30, check=False, stderr=subprocess.PIPE)
            shown = json.loads(asked.stdout)
            self.assertEqual((1, []), (asked.returncode, shown["runs"]))
            self.assertGreaterEqual(shown["hidden_runs"], 1)
            self.assertNotIn("cycle", asked.stdout)


if __name__ == "__main__":
    launching.main()
