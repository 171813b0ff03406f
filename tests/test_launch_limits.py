#!/usr/bin/python3
"""Scarce resources: limits of address space, no mappings left, no /proc, another root, lost rights.

The program's result is the same. One line says what cannot be done.
"""
import os
import subprocess

import launching
from launching import EBB, Launch, compile_c, main

NOBODY = "65534"
SAID = rb"\Aebb: [^\n]*NOT (enforced|kept)[^\n]*\n\Z"


class Limits(Launch):
    def expect(self, *what, said=None, before=(), refused="", code=0):
        result = self.run_command(
            [*before, *self.options("--budget", "10M"), "--", compile_c("cramped"), *what],
            env={**self.env, "EBB_REFUSE": refused})
        self.assertEqual((code, b"good\n"), (result.returncode, result.stdout), result.stderr)
        self.assertRegex(result.stderr, said or rb"\A\Z")
        return result.stderr

    def test_limit_of_address_space(self):
        """If the limit is below this machine's memory, Ebb uses no address space."""
        for limit in ("-v 8000000", "-d 8000000"):
            errors = self.expect(said=SAID, before=["bash", "-c", f'ulimit {limit}; exec "$@"', "-"])
            self.assertIn(f"ulimit {limit[:2]}".encode(), errors)

    def test_large_limit_of_address_space(self):
        self.expect(before=["bash", "-c", 'ulimit -v 400000000; exec "$@"', "-"])

    def test_limit_that_the_program_sets(self):
        for refused in ("", "move", "uffd"):
            with self.subTest(refused):
                self.expect("limit", str(4 << 30), refused=refused)

    def test_large_thread_local_storage(self):
        """A thread's stack must hold the program's thread-local storage, too."""
        with open(os.path.join(launching.SOURCE, "tests", "programs", "cramped.c"),
                  encoding="utf-8") as file:
            text = file.read()
        storage = ("static __thread char storage[1 << 20];\n"
                   "__attribute__((constructor)) static void use(void)\n"
                   "{\n    *(volatile char *)storage = 1;\n}\n")
        program = compile_c("with_storage", text + storage)
        for refused in ("", "uffd"):
            result = self.run_ebb(program, options=["--budget", "10M"],
                                  env={**self.env, "EBB_REFUSE": refused})
            self.assertEqual((0, b"good\n", b""),
                             (result.returncode, result.stdout, result.stderr))

    @launching.needs_root
    def test_rights_given_away(self):
        for folder in (launching.work, self.folder, self.store):
            os.chmod(folder, 0o777)
        for refused in ("", "call", "move"):
            with self.subTest(refused):
                self.expect("user", NOBODY, refused=refused)

    @launching.needs_root
    def test_another_root(self):
        """The store, /proc and /dev are not available any more."""
        empty = os.path.join(self.folder, "empty")
        os.mkdir(empty)
        for refused in ("", "call", "move", "uffd"):
            with self.subTest(refused):
                self.expect("root", empty, said=rb"\A(ebb: [^\n]*NOT kept[^\n]*\n)?\Z",
                            refused=refused)

    @launching.needs_mounts()
    def test_no_proc(self):
        before = ["unshare", "-m", "sh", "-c", 'umount -l /proc && exec "$@"', "-"]
        for refused in ("", "move", "uffd"):
            with self.subTest(refused):
                self.expect(before=before, refused=refused)
        done = subprocess.run([*before, EBB, "doctor", "--store", self.store], env=self.env,
                              stdout=subprocess.PIPE, check=False, timeout=60)
        self.assertEqual(0, done.returncode, done.stdout)

    @launching.needs_mounts()
    def test_strict_overcommit(self):
        """With vm.overcommit_memory=2 nothing is reserved. The setting concerns the whole machine,
        so the test only replaces the file that shows it, in a mount namespace."""
        setting = os.path.join(self.folder, "overcommit_memory")
        for mode, said in (("2", SAID), ("0", None)):
            with open(setting, "w", encoding="ascii") as file:
                file.write(mode + "\n")
            errors = self.expect(said=said, before=[
                "unshare", "-m", "sh", "-c",
                f'mount --bind {setting} /proc/sys/vm/overcommit_memory && exec "$@"', "-"])
            self.assertEqual(mode == "2", b"vm.overcommit_memory=2" in errors, errors)
        os.unlink(setting)

    def test_no_mappings_left(self):
        for refused in ("", "kernel", "move", "uffd"):
            with self.subTest(refused):
                self.expect("mapslater", refused=refused, said=rb"\A(ebb: [^\n]*\n)?\Z")


if __name__ == "__main__":
    main()
