#!/usr/bin/python3
"""`ebb run` does not change exit codes, streams or the environment of the program."""
import json
import os
import re
import signal

import launching
from launching import EBB, MIB, PYTHON, Launch, compile_c, main


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
        """A script without `#!` is run by sh, like in a shell."""
        path = os.path.join(self.folder, "bare")
        with open(path, "w", encoding="utf-8") as file:
            file.write("exit 42\n")
        os.chmod(path, 0o755)
        self.assertEqual(42, self.run_ebb(path).returncode)
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
        as_user = []
        if os.geteuid() == 0:  # root may write everywhere
            as_user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
            for folder in (launching.work, self.folder):
                os.chmod(folder, 0o755)
        for mode, code in ((0o777, 0), (0o555, 125)):
            os.chmod(self.store, mode)
            result = self.run_command([*as_user, *self.options(), "--", "true"])
            self.assertEqual(code, result.returncode, result.stderr)
        os.chmod(self.store, 0o755)

    def test_help(self):
        result = self.run_command([EBB, "run", "--help"])
        self.assertEqual(0, result.returncode)
        self.assertIn(b"--budget", result.stdout)
        self.assert_quiet(result)

    def test_options_end(self):
        """Options end at `--`, or at the first word that is no option."""
        for head in (["--"], []):
            result = self.run_command([*self.options(), *head, "echo", "--budget", "--", "x"])
            self.assertEqual((0, b"--budget -- x\n"), (result.returncode, result.stdout))
            self.assert_quiet(result)

    def test_sizes(self):
        for size in ("1G", "512MiB", "2GB", "60%", "1.5G", "1073741824"):
            for options in (["--budget", size], [f"--budget={size}"]):
                self.assertEqual(0, self.run_ebb("true", options=options).returncode, options)


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
        library = os.path.join(launching.work, "hello.so")
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


class Static(Launch):
    def setUp(self):
        super().setUp()
        self.program = os.path.join(launching.work, "static")
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

    def test_strict_with_a_launcher_that_is_static(self):
        """It starts a program that is not."""
        launcher = os.path.join(launching.work, "execs")
        if not os.path.exists(launcher):
            compile_c("execs", '#include <unistd.h>\nint main(int c, char **v) {'
                      ' usleep(300000); execvp(v[1], v + 1); return 127; }\n', ["-static"])
        for _ in range(3):
            result = self.run_ebb(launcher, "sh", "-c", "exit 3",
                                  options=["--budget", "64M", "--strict"])
            self.assertEqual(3, result.returncode)
            self.assert_quiet(result)

    def test_strict_with_a_program_that_says_hello(self):
        result = self.run_ebb("sh", "-c", "exit 3", options=["--budget", "64M", "--strict"])
        self.assertEqual(3, result.returncode)
        self.assert_quiet(result)


if __name__ == "__main__":
    main()
