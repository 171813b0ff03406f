#!/usr/bin/python3
"""Programs with several processes, one after another or at once."""
import json
import os
import signal
import time

from launching import CYCLE_ARGS, MIB, PYTHON, TIMEOUT, Launch, cycle, main

# Fills 48 MiB, says so, and looks at all of it when a line has come.
HOLDER = """
import sys
blocks = [bytearray([number + 1]) * (1 << 20) for number in range(48)]
print("holds", flush=True)
sys.stdin.readline()
print(all(block == bytearray([number + 1]) * (1 << 20) for number, block in enumerate(blocks)))
"""
# Two holders at once, then another one beside the second. Prints the bytes of their stores' files.
HOLDERS = """
import os, subprocess, sys
def begin():
    child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"holds\\n"
    return child
def end(child):
    assert child.communicate(b"\\n")[0] == b"True\\n"
def stored(child):
    fds = f"/proc/{child.pid}/fd"
    opened = [os.path.join(fds, name) for name in os.listdir(fds)]
    return sum(os.stat(path).st_blocks * 512 for path in opened
               if os.readlink(path).startswith(sys.argv[2]))
first, second = begin(), begin()
print(stored(first), stored(second))
end(first)
third = begin()
print(stored(third), stored(second))
end(second)
end(third)
"""


class Processes(Launch):
    def expect_checksum(self, command, options=("--budget", "26M"), args=(), **kwargs):
        arguments = [*CYCLE_ARGS, *args]
        plain = self.plain(cycle(), *arguments)
        self.assertEqual(0, plain.returncode)
        result = self.run_ebb(*command(arguments), options=options, **kwargs)
        self.assertEqual((0, plain.stdout), (result.returncode, result.stdout), result.stderr)
        self.assert_quiet(result)

    def test_fork(self):
        self.expect_checksum(lambda args: [cycle(), *args], args=["--fork"])

    def test_exec_chain(self):
        def chain(args):
            inner = " ".join([cycle(), *args])
            return ["sh", "-c", f"exec sh -c 'exec env sh -c \"exec {inner}\"'"]
        self.expect_checksum(chain)

    def test_child_of_a_shell(self):
        self.expect_checksum(lambda args: ["sh", "-c", " ".join([cycle(), *args]) + "; exit $?"])

    def test_two_at_once(self):
        """Both processes share one budget."""
        both = f"{cycle()} {' '.join(CYCLE_ARGS)} & {cycle()} {' '.join(CYCLE_ARGS)}; wait"
        plain = self.run_command(["sh", "-c", both])
        parent = self.start("sh", "-c", both, options=self.options_of_56_mib())
        out, err = parent.communicate(timeout=TIMEOUT)
        self.assertEqual((0, plain.stdout), (parent.returncode, out), err)
        self.expect_peak_of_56_mib()

    def test_one_limit_of_the_store(self):
        """What a process has taken of the limit is there for others when it has ended."""
        done = self.run_ebb(PYTHON, "-c", HOLDERS, HOLDER, self.store,
                            options=["--budget", "24M", "--store-limit", "40M"])
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn(b"the store has reached its limit", done.stderr)
        at_first, later = ([int(word) for word in line.split()] for line in done.stdout.splitlines())
        self.assertLessEqual(sum(at_first), 41 * MIB)  # the file system's own blocks
        self.assertLessEqual(sum(later), 41 * MIB)
        self.assertGreater(at_first[0], 20 * MIB)
        self.assertGreater(later[0], at_first[1])

    def test_a_busy_parent(self):
        """A process waits for another's pages until the parent has time to pass the request on."""
        child = ("import os, sys, time\n"
                 "print('waiting', flush=True)\n"
                 "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
                 "print(sum(bytearray(16 << 20)), flush=True)\n")
        holder = ("import subprocess, sys\n"
                  "blocks = [bytearray(8 << 20) for _ in range(8)]\n"
                  "subprocess.run([sys.executable, '-c', *sys.argv[1:]], check=True)\n"
                  "print(any(map(any, blocks)), flush=True)\n")
        go = os.path.join(self.folder, "go")
        parent = self.start(PYTHON, "-c", holder, child, go, options=self.options_of_56_mib())
        self.expect_line(parent, b"waiting")
        parent.send_signal(signal.SIGSTOP)
        with open(go, "wb"):
            time.sleep(1.5)
        parent.send_signal(signal.SIGCONT)
        out, err = parent.communicate(timeout=TIMEOUT)
        os.unlink(go)
        self.assertEqual((0, b"0\nFalse\n"), (parent.returncode, out), err)
        self.expect_peak_of_56_mib()

    def options_of_56_mib(self):
        self.summary = os.path.join(self.folder, "summary.json")
        return ["--budget", "56M", "--summary-json", self.summary]

    def expect_peak_of_56_mib(self):
        with open(self.summary, encoding="utf-8") as file:
            self.assertLessEqual(json.load(file)["peak_resident_bytes"], 56 * MIB)
        os.unlink(self.summary)

    def test_environment_wiped_on_the_way(self):
        """There is no budget, but the result is right."""
        arguments = CYCLE_ARGS
        plain = self.plain(cycle(), *arguments).stdout
        result = self.run_ebb("env", "-i", cycle(), *arguments)
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
        plain = self.plain(cycle(), *arguments).stdout
        path = os.path.join(self.folder, "out")
        with open(path, "wb") as out:
            process = self.start(cycle(), *arguments, options=["--budget", "26M"], stdout=out)
            time.sleep(1)
            self.assertIsNone(process.poll(), "ended too early to be killed")
            process.kill()
            process.wait()
        self.assertNotEqual([], self.marked(), "the program died with its parent")
        self.assertEqual([], self.wait_for_none(TIMEOUT))
        with open(path, "rb") as file:
            self.assertEqual(plain, file.read())
        os.unlink(path)


if __name__ == "__main__":
    main()
