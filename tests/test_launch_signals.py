#!/usr/bin/python3
"""Signals reach the program exactly once."""
import os
import pty
import signal
import subprocess
import time

from launching import CYCLE_ARGS, EBB, PYTHON, TIMEOUT, Launch, cycle, main

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
        """A supervisor sends the signal to Ebb only."""
        for name in ("INT", "QUIT"):
            self.check(name, lambda process, number: process.send_signal(number))

    def test_keyboard_reaches_the_group_once(self):
        """The terminal sends a signal to the whole group, so Ebb must not send it again."""
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

    def test_ignored_child_signals(self):
        """A service that ignores SIGCHLD starts Ebb. The program ends as it ends, and ignores it."""
        ends = "import os, signal, sys\n"
        for program, code in (("sys.exit(3)", 3), ("os.kill(os.getpid(), signal.SIGTERM)", -15),
                              ("sys.exit(signal.getsignal(signal.SIGCHLD) != signal.SIG_IGN)", 0)):
            result = self.run_ebb(PYTHON, "-c", ends + program, preexec_fn=lambda: signal.signal(
                signal.SIGCHLD, signal.SIG_IGN))
            self.assertEqual((code, b""), (result.returncode, result.stdout), result.stderr)

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
        plain = self.plain(cycle(), *CYCLE_ARGS, "--work", "10").stdout
        process = self.start(cycle(), *CYCLE_ARGS, "--work", "10", options=["--budget", "26M"])
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
        process = self.start(cycle(), *CYCLE_ARGS, "--work", "50", options=["--budget", "26M"])
        time.sleep(1)
        child = [pid for pid in self.marked() if pid != process.pid and
                 os.readlink(f"/proc/{pid}/exe") == cycle()]
        self.assertEqual(1, len(child))
        os.kill(child[0], signal.SIGKILL)
        process.communicate(timeout=TIMEOUT)
        self.assertEqual(-signal.SIGKILL, process.returncode)


if __name__ == "__main__":
    main()
