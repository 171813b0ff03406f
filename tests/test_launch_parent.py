#!/usr/bin/python3
"""`ebb run` as the parent of its processes, under difficult conditions.

It is slow, is stopped or killed at any time, has thousands of children, or nobody reads its
messages. Strangers try to replace it, or its processes.
"""
import array
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import time

import launching
from launching import CYCLE_ARGS, EBB, MIB, PYTHON, TIMEOUT, Launch, compile_c, cycle, main

STOPPED_SECONDS = 6  # longer than a child of a fork waits for an answer
MESSAGE = struct.Struct("=IIQQII2Q400s")
HELLO, WELCOME = 1, 2
RING_MAGIC, RING_BYTES = 0x31474e5242424536, 16 << 20
F_ADD_SEALS, SEALS = 1033, 1 | 2 | 4

# Waits for its first argument, a file, then executes the rest as a command.
LATER = ("import os, sys, time\n"
         "print('ready', flush=True)\n"
         "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
         "os.execvp(sys.argv[2], sys.argv[2:])\n")


class Parent(Launch):
    def setUp(self):
        super().setUp()
        self.summary = os.path.join(self.folder, "summary.json")
        self.go = os.path.join(self.folder, "go")

    def budget(self, size):
        return ["--budget", str(size), "--summary-json", self.summary]

    def figures(self):
        with open(self.summary, encoding="utf-8") as file:
            figures = json.load(file)
        os.unlink(self.summary)
        return figures

    def let_go(self):
        with open(self.go, "wb"):
            pass

    def test_stopped_at_a_hello(self):
        """The process waits, and is managed."""
        plain = self.plain(cycle(), *CYCLE_ARGS).stdout
        parent = self.start(PYTHON, "-c", LATER, self.go, cycle(), *CYCLE_ARGS,
                            options=self.budget(26 * MIB))
        self.expect_line(parent, b"ready")
        parent.send_signal(signal.SIGSTOP)
        self.let_go()
        time.sleep(STOPPED_SECONDS)
        parent.send_signal(signal.SIGCONT)
        out, err = parent.communicate(timeout=TIMEOUT)
        self.assertEqual((0, plain, b""), (parent.returncode, out, err))
        figures = self.figures()
        self.assertGreater(figures["moved_out_bytes"], 0)
        self.assertLessEqual(figures["peak_resident_bytes"], 26 * MIB)

    def test_killed_at_a_hello(self):
        """The process continues without Ebb."""
        plain = self.plain(cycle(), *CYCLE_ARGS).stdout
        path = os.path.join(self.folder, "out")
        with open(path, "wb") as out:
            parent = self.start(PYTHON, "-c", LATER, self.go, cycle(), *CYCLE_ARGS, stdout=out)
            while b"ready" not in self.read(path):
                time.sleep(0.01)
            parent.send_signal(signal.SIGSTOP)
            self.let_go()
            time.sleep(0.5)
            parent.kill()
            parent.wait()
        self.assertEqual([], self.wait_for_none(TIMEOUT))
        self.assertEqual(b"ready\n" + plain, self.read(path))

    @staticmethod
    def read(path):
        with open(path, "rb") as file:
            return file.read()

    def test_stopped_at_the_hello_of_a_fork(self):
        """Signals during the wait have no effect."""
        script = ("import os, signal, sys, time\n"
                  "signal.signal(signal.SIGUSR1, lambda *_: None)\n"
                  "kept = bytearray(8 << 20)\n"
                  "print('ready', flush=True)\n"
                  "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
                  "child = os.fork()\n"  # it waits inside fork()
                  "if child == 0: os._exit(sum(bytearray(40 << 20)))\n"
                  "for _ in range(20): time.sleep(0.05); os.kill(child, signal.SIGUSR1)\n"
                  "status = os.waitpid(child, 0)[1]\n"
                  "time.sleep(0.5)\n"
                  "print(status, sum(kept) + sum(bytearray(40 << 20)), flush=True)\n")
        parent = self.start(PYTHON, "-c", script, self.go, options=self.budget(512 * MIB))
        self.expect_line(parent, b"ready")
        parent.send_signal(signal.SIGSTOP)
        self.let_go()
        time.sleep(1.5)
        parent.send_signal(signal.SIGCONT)
        out, err = parent.communicate(timeout=TIMEOUT)
        self.assertEqual((0, b"0 0\n", b""), (parent.returncode, out, err))
        figures = self.figures()
        self.assertEqual(2, figures["processes"])
        # The child's memory is released, so both never hold memory at once.
        self.assertLess(figures["peak_resident_bytes"], 64 * MIB)

    def test_killed_while_it_learns(self):
        """Observation ends. Further accesses to the same pages cause no faults."""
        script = ("import resource, time\n"
                  "kept = [bytearray(1 << 20) for _ in range(8)]\n"
                  "print('ready', flush=True)\n"
                  "time.sleep(1)\n"
                  "def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
                  "for i in range(20):\n"
                  "    one = bytearray(200000)\n"
                  "    for block in kept: block[i] = 1\n"
                  "before = faults()\n"
                  "for i in range(100):\n"
                  "    one = bytearray(200000)\n"
                  "    for block in kept: block[i] += 1\n"
                  "good = all(block[99] == 1 and block[19] == 2 for block in kept)\n"
                  "open('seen', 'w').write(f'{faults() - before} {good}')\n")
        process = self.start(PYTHON, "-c", script, cwd=self.folder)
        self.expect_line(process, b"ready")
        process.kill()
        process.wait()
        self.assertEqual([], self.wait_for_none(TIMEOUT))
        faults, good = self.read(os.path.join(self.folder, "seen")).split()
        self.assertEqual(b"True", good)
        self.assertLess(int(faults), 200)  # at least 800 if it were still observed

    def test_killed_at_any_time(self):
        arguments = [*CYCLE_ARGS, "--work", "2"]
        plain = self.plain(cycle(), *arguments).stdout
        path = os.path.join(self.folder, "out")
        for seconds in (0.05, 0.2, 0.4):
            with open(path, "wb") as out:
                process = self.start(cycle(), *arguments, options=["--budget", "26M"], stdout=out)
                time.sleep(seconds)
                process.kill()
                process.wait()
            self.assertEqual([], self.wait_for_none(TIMEOUT))
            self.assertIn(self.read(path), (plain, b""))  # b"": killed before the start

    def test_nobody_reads_stderr(self):
        """Ebb's messages are lost, but not the program's exit code."""
        for code in (0, 7):
            read, write = os.pipe()
            os.close(read)
            result = self.run_ebb("sh", "-c", f"exit {code}", options=["--summary=always"],
                                  stderr=write)
            os.close(write)
            self.assertEqual(code, result.returncode)
        read, write = os.pipe()
        os.close(read)
        result = self.run_ebb("/nonexistent", stderr=write)
        os.close(write)
        self.assertEqual(127, result.returncode)

    def test_the_program_may_die_of_a_pipe(self):
        script = "import signal; print(signal.getsignal(signal.SIGPIPE))"
        plain = self.run_command(["sh", "-c", "kill -PIPE $$"])
        result = self.run_ebb("sh", "-c", "kill -PIPE $$")
        self.assertEqual((plain.returncode, b""), (result.returncode, result.stderr))
        self.assertEqual(-signal.SIGPIPE, result.returncode)
        self.assertEqual(self.run_command([PYTHON, "-c", script]).stdout,
                         self.run_ebb(PYTHON, "-c", script).stdout)

    def test_no_stderr(self):
        """No file of Ebb gets the number of a closed descriptor, so the program sees it closed."""
        program = compile_c("closed", """
            #include <fcntl.h>
            int main(void) { return fcntl(2, F_GETFD) < 0 ? 3 : 4; }
            """, options=["-static"])  # Ebb prints a message about it
        command = " ".join([*self.options(*self.budget(26 * MIB)), "--", program])
        result = self.run_command(["sh", "-c", f"exec {command} 2>&-"])
        self.assertEqual((3, b""), (result.returncode, result.stdout))
        self.assertEqual(3, self.figures()["exit_status"])

    def test_file_limit_of_the_program(self):
        result = self.run_command(["sh", "-c", "ulimit -Sn 700; exec " + " ".join(
            [*self.options(), "--", "sh", "-c", "'ulimit -Sn'"])])
        self.assertEqual((0, b"700\n"), (result.returncode, result.stdout), result.stderr)

    @staticmethod
    def sizes_of(pid):
        """KiB of address space, KiB of memory, descriptors."""
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            lines = dict(line.split(":", 1) for line in file)
        return (int(lines["VmSize"].split()[0]), int(lines["VmRSS"].split()[0]),
                len(os.listdir(f"/proc/{pid}/fd")))

    def test_many_short_children(self):
        """The parent counts all children, and does not grow with their number."""
        program = compile_c("children", """
            #include <stdio.h>
            #include <stdlib.h>
            #include <string.h>
            #include <sys/wait.h>
            #include <unistd.h>
            int main(int argc, char **argv)
            {
                char *kept = malloc(1 << 20), line[8];
                memset(kept, 1, 1 << 20);
                for (int round = 1; round < argc; round++) {
                    for (int i = atoi(argv[round]); i > 0; i--) {
                        pid_t child = fork();
                        if (child == 0) {
                            char *own = malloc(1 << 19);
                            memset(own, 2, 1 << 19);
                            _exit(own[1 << 18] + kept[1 << 19] == 3 ? 0 : 1);
                        }
                        int status;
                        if (child < 0 || waitpid(child, &status, 0) != child || status)
                            return 1;
                    }
                    puts("done");
                    fflush(stdout);
                    if (read(0, line, 1) != 1)
                        return 1;
                }
                return 0;
            }
            """)
        rounds = (50, 400)
        read, write = os.pipe()
        process = subprocess.Popen([*self.options(*self.budget(64 * MIB)), "--", program,
                                    *map(str, rounds)], env=self.env, stdin=read,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(self.close, process)
        os.close(read)
        seen = []
        for _ in rounds:
            self.expect_line(process, b"done")
            time.sleep(0.5)
            seen.append(self.sizes_of(process.pid))
            os.write(write, b"\n")
        os.close(write)
        out, err = process.communicate(timeout=TIMEOUT)
        self.assertEqual((0, b""), (process.returncode, err), out)
        few, many = seen
        self.assertLess(many[0] - few[0], 100 << 10)  # 400 rings would be 800 MiB
        self.assertLess(many[1] - few[1], 20 << 10)
        self.assertLess(many[2] - few[2], 10)
        self.assertEqual(1 + sum(rounds), self.figures()["processes"])

    @staticmethod
    def environment_of(pid):
        with open(f"/proc/{pid}/environ", "rb") as file:
            words = dict(w.split(b"=", 1) for w in file.read().split(b"\0") if b"=" in w)
        names = "version inherited inode pid uid secret name rest".split()
        return dict(zip(names, words[b"EBB_RUN"].decode().split(":", 7)))

    def program_of(self, parent):
        with open(f"/proc/{parent.pid}/task/{parent.pid}/children", encoding="ascii") as file:
            return int(file.read().split()[0])

    def test_impostor(self):
        """After the parent's end, its socket name can be taken. The new owner gets no data."""
        plain = self.plain(cycle(), *CYCLE_ARGS).stdout
        path = os.path.join(self.folder, "out")
        closing = "import os; os.closerange(3, 1024)\n" + LATER
        with open(path, "wb") as out:
            parent = self.start(PYTHON, "-c", closing, self.go, cycle(), *CYCLE_ARGS, stdout=out)
            while b"ready" not in self.read(path):
                time.sleep(0.01)
            name = self.environment_of(self.program_of(parent))["name"]
            parent.kill()
            parent.wait()
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as taken:
                taken.bind(b"\0" + name.encode())
                taken.listen(8)
                taken.settimeout(TIMEOUT)
                self.let_go()
                connection, _ = taken.accept()
                with connection:
                    connection.settimeout(TIMEOUT)
                    said, _, _, _ = connection.recvmsg(4096, socket.CMSG_SPACE(16))
                self.assertEqual(b"", said)
        self.assertEqual([], self.wait_for_none(TIMEOUT))
        self.assertEqual(b"ready\n" + plain, self.read(path))

    @staticmethod
    def make_ring(sealed):
        ring = os.memfd_create("ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.write(ring, struct.pack("=Q", RING_MAGIC))
        os.ftruncate(ring, RING_BYTES)
        if sealed:
            fcntl.fcntl(ring, F_ADD_SEALS, SEALS)
        return ring

    def say_hello(self, where, secret, sealed=True):
        """The kind of the parent's answer, or None."""
        channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ring = self.make_ring(sealed)
        words = [int(secret[:16], 16), int(secret[16:], 16)]
        hello = MESSAGE.pack(int(where["version"]), HELLO, 0, 0, os.getpid(), 1, *words, b"test")
        with channel, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
            door.connect(b"\0" + where["name"].encode())
            door.sendmsg([hello], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                    array.array("i", [theirs.fileno(), ring]))])
            theirs.close()
            os.close(ring)
            channel.settimeout(TIMEOUT)
            answer, came, _, _ = channel.recvmsg(4096, socket.CMSG_SPACE(16))
            for _, _, data in came:
                os.close(array.array("i", data[:4])[0])
            return MESSAGE.unpack(answer)[1] if answer else None

    def test_strangers_are_not_heard(self):
        """A stranger without the run's secret gets no answer, nor does a ring that may shrink."""
        parent = self.start("sh", "-c", "echo ready; sleep 3")
        self.expect_line(parent, b"ready")
        where = self.environment_of(self.program_of(parent))
        secret = where["secret"]
        self.assertEqual(WELCOME, self.say_hello(where, secret))
        wrong = secret[:-1] + ("0" if secret[-1] != "0" else "1")
        self.assertIsNone(self.say_hello(where, wrong))
        self.assertIsNone(self.say_hello(where, "0" * 32))
        self.assertIsNone(self.say_hello(where, secret, sealed=False))
        parent.communicate(timeout=TIMEOUT)

    def test_scripts_are_copied(self):
        """A plan is copied. No memory that the parent can still change stays mapped."""
        program = compile_c("maps", """
            #include <stdio.h>
            #include <stdlib.h>
            #include <string.h>
            #include <unistd.h>
            int main(void)
            {
                for (int i = 0; i < 150; i++) {
                    char *blocks[8];
                    for (int k = 0; k < 8; k++) {
                        size_t bytes = (size_t)(k + 40) << 16;
                        blocks[k] = malloc(bytes);
                        memset(blocks[k], i, bytes);
                        usleep(500);
                    }
                    for (int k = 8; k-- > 0;) {
                        memset(blocks[k], i, 1 << 20);
                        free(blocks[k]);
                    }
                }
                char line[512];
                int rings = 0, scripts = 0;
                FILE *maps = fopen("/proc/self/maps", "r");
                while (fgets(line, sizeof line, maps)) {
                    rings += strstr(line, "ebb-ring") != NULL;
                    scripts += strstr(line, "ebb-script") != NULL;
                }
                printf("%d %d\\n", rings, scripts);
                return 0;
            }
            """)
        result = self.run_ebb(program, options=self.budget(16 * MIB))
        self.assertEqual((0, b"1 0\n"), (result.returncode, result.stdout), result.stderr)
        self.assertGreater(self.figures()["plans"], 0)

    def test_environment_of_a_run_that_has_ended(self):
        plain = self.plain(cycle(), *CYCLE_ARGS).stdout
        stale = self.run_ebb("sh", "-c", "echo $EBB_RUN").stdout.decode().strip()
        self.assertRegex(stale, r"^\d+:\d+:")
        library = os.path.join(launching.BIN, "libebb_malloc.so")
        env = {**self.env, "EBB_RUN": stale, "LD_PRELOAD": library}
        result = self.run_command([cycle(), *CYCLE_ARGS], env=env)
        self.assertEqual((0, plain, b""), (result.returncode, result.stdout, result.stderr))
        self.env = env
        result = self.run_ebb(cycle(), *CYCLE_ARGS, options=self.budget(26 * MIB))
        self.assertEqual((0, plain, b""), (result.returncode, result.stdout, result.stderr))
        self.assertGreater(self.figures()["moved_out_bytes"], 0)

    def test_run_within_a_run(self):
        plain = self.plain(cycle(), *CYCLE_ARGS).stdout
        inner = [EBB, "run", "--no-cache", "--store", self.store, "--budget", "23M",
                 "--summary-json", self.summary, "--", cycle(), *CYCLE_ARGS]
        result = self.run_ebb(*inner, options=["--budget", "26M"])
        self.assertEqual((0, plain, b""), (result.returncode, result.stdout, result.stderr))
        figures = self.figures()
        self.assertGreater(figures["moved_out_bytes"], 0)
        self.assertLessEqual(figures["peak_resident_bytes"], 23 * MIB)

    @launching.needs_mounts()
    def test_without_proc(self):
        plain = self.plain(cycle(), *CYCLE_ARGS).stdout
        command = " ".join([*self.options(*self.budget(26 * MIB)), "--", cycle(), *CYCLE_ARGS])
        result = self.run_command(["unshare", "-m", "sh", "-c", "umount -l /proc && exec " + command])
        self.assertEqual((0, plain), (result.returncode, result.stdout), result.stderr)
        self.assertGreater(self.figures()["moved_out_bytes"], 0)


if __name__ == "__main__":
    main()
