#!/usr/bin/python3
"""Files that commands write: one that exists is kept without -f, and a failure leaves no part."""
import json
import os
import resource
import stat
import subprocess
import sys
import tempfile
import unittest

from test_compare_cli import EBB, LITTLE, program, run

KEPT = "what somebody wrote before\n"


def writers(trace, blocks, singa):
    """The commands that write FILE, with the option that names it, without it."""
    model = (trace, "--machine", "pcie3", *LITTLE)
    return {
        "plan": ("plan", *model, "--budget", "70%", "-o"),
        "pack": ("pack", blocks, "-o"),
        "import": ("import", "singa", singa, "-o"),
        "compare-csv": ("compare", *model, "--budgets", "70%", "--policies", "lru", "--csv"),
        "compare-plot": ("compare", *model, "--budgets", "70%", "--policies", "lru", "--plot"),
        "compare-tiers": ("compare", trace, "--tiers", "1:4", "--machine", "optane",
                          "--policies", "first-touch", "--plot"),
        "report": ("report", *model, "-o"),
        "report-json": ("report", *model, "--json", "-o"),
        "report-csv": ("report", *model, "--csv", "-o"),
        "report-chrome": ("report", *model, "--chrome-trace", "-o"),
    }


def no_space():
    """A file system that is full, as far as a program can tell: files end at 100 bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))


class Outputs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.out = self.path("out")
        self.writers = writers(
            self.path("trace.csv", program()),
            self.path("blocks.csv", "id,lower,upper,size\n" +
                      "".join(f"{i},{i},{i + 3},{4096 * i}\n" for i in range(1, 40))),
            self.path("singa.csv", program(layers=20)))
        self.inputs = set(os.listdir(self.folder))

    def path(self, name, text=None):
        path = os.path.join(self.folder, name)
        if text is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return path

    def read(self, path):
        with open(path, "rb") as file:
            return file.read()

    def made(self):
        return set(os.listdir(self.folder)) - self.inputs

    def each(self):
        for name, command in self.writers.items():
            for file in self.made():
                os.unlink(self.path(file))
            yield name, command

    def test_existing_files_are_kept(self):
        for name, command in self.each():
            with self.subTest(name):
                self.path("out", KEPT)
                code, out, err = run(*command, self.out)
                self.assertEqual((code, out), (1, ""))
                self.assertEqual(err, f"ebb: {command[0]}: {self.out}: exists\n"
                                      "ebb: give another name, or -f to replace it\n")
                self.assertEqual(self.read(self.out), KEPT.encode())
                self.assertEqual(self.made(), {"out"})

    def test_force_replaces(self):
        for name, command in self.each():
            with self.subTest(name):
                code, _, err = run(*command, self.out)
                self.assertEqual((code, err), (0, ""))
                first = self.read(self.out)
                self.assertGreater(len(first), 100)
                self.path("out", KEPT)
                code, _, err = run(*command, self.out, "-f")
                self.assertEqual((code, err), (0, ""))
                self.assertNotEqual(self.read(self.out), KEPT.encode())
                self.assertEqual(self.made(), {"out"})

    def test_a_full_disk_leaves_nothing(self):
        for name, command in self.each():
            with self.subTest(name):
                code, _, err = run(*command, self.out, preexec_fn=no_space)
                self.assertEqual(code, 1)
                self.assertTrue(err.startswith(f"ebb: {command[0]}: {self.out}: cannot be "), err)
                self.assertIn("File too large", err)
                self.assertEqual(self.made(), set())

    def test_a_full_disk_keeps_what_was_there(self):
        for name, command in self.each():
            with self.subTest(name):
                self.path("out", KEPT)
                self.assertEqual(run(*command, self.out, "-f", preexec_fn=no_space)[0], 1)
                self.assertEqual(self.read(self.out), KEPT.encode())
                self.assertEqual(self.made(), {"out"})

    def test_links(self):
        """A link to a file stays one. One to nothing exists."""
        for name, command in self.each():
            with self.subTest(name):
                self.path("there", KEPT)
                os.symlink("there", self.out)
                self.assertEqual(run(*command, self.out)[0], 1)
                self.assertEqual(run(*command, self.out, "-f")[0], 0)
                self.assertTrue(os.path.islink(self.out))
                self.assertNotEqual(self.read(self.path("there")), KEPT.encode())
                os.unlink(self.path("there"))
                code, _, err = run(*command, self.out)
                self.assertEqual((code, err.splitlines()[0]),
                                 (1, f"ebb: {command[0]}: {self.out}: exists"))

    def test_what_is_no_plain_file_is_written_in_place(self):
        for name, command in self.each():
            with self.subTest(name):
                code, _, err = run(*command, "/dev/full")
                self.assertEqual(code, 1)
                self.assertIn("/dev/full: cannot be ", err)
                self.assertIn("No space left on device", err)
                self.assertTrue(stat.S_ISCHR(os.stat("/dev/full").st_mode))
                self.assertEqual(run(*command, "/dev/null")[0], 0)
                self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))
                with open(self.out, "wb") as file:
                    done = subprocess.run([EBB, *command, "/dev/stderr"], stdout=subprocess.DEVNULL,
                                          stderr=file, check=False)
                self.assertEqual(done.returncode, 0, self.read(self.out)[:500])
                self.assertGreater(os.stat(self.out).st_size, 100)
                self.assertTrue(os.path.islink("/dev/stderr"))
                self.assertEqual(self.made(), {"out"})

    def test_folders(self):
        for name, command in self.each():
            with self.subTest(name):
                for path, why in ((self.folder, "it is a folder"),
                                  (self.path("no/such/file"), "No such file or directory")):
                    code, out, err = run(*command, path)
                    self.assertEqual((code, out), (1, ""))
                    self.assertTrue(err.startswith(f"ebb: {command[0]}: {path}: cannot be written: "
                                                   f"{why}\n"), err)

    def test_the_work_is_not_wasted(self):
        """A file that exists is refused before the input is read."""
        for name, command in self.each():
            with self.subTest(name):
                self.path("out", KEPT)
                bad = [self.path("none") if argument.startswith(self.folder) else argument
                       for argument in command]
                self.assertIn(": exists\n", run(*bad, self.out)[2])


class Runs(unittest.TestCase):
    """Trace and summary of a run replace what exists: the same command is typed again and again."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = os.path.join(folder.name, "out")
        self.folder = folder.name

    def test_replaced(self):
        for command in (("record", "-q", "-o", self.out, "--", "true"),
                        ("run", "-q", "--no-cache", "--summary-json", self.out, "--", "true"),
                        ("run", "-q", "--no-cache", "--record", self.out, "--", "true")):
            with open(self.out, "w", encoding="utf-8") as file:
                file.write(KEPT)
            self.assertEqual(run(*command), (0, "", ""))
            with open(self.out, "rb") as file:
                self.assertNotIn(KEPT.encode(), file.read())
            self.assertEqual(os.listdir(self.folder), ["out"])

    def test_a_summary_that_cannot_be_written(self):
        """It is said, and the exit code is the program's."""
        command = ("run", "-q", "--no-cache", "--summary-json")
        code, out, err = run(*command, "/dev/full", "--", "sh", "-c", "exit 7")
        self.assertEqual((code, out), (7, ""))
        self.assertIn("ebb: run: /dev/full: cannot be written: No space left on device\n", err)
        self.assertEqual(run(*command, self.out, "--", "true")[0], 0)
        with open(self.out, encoding="utf-8") as file:
            self.assertEqual(json.load(file)["exit_status"], 0)

    def test_a_summary_for_who_has_the_file_open(self):
        with tempfile.NamedTemporaryFile(dir=self.folder) as file:
            file.write(KEPT.encode() * 1000)
            file.flush()
            file.seek(0)
            run("run", "-q", "--no-cache", "--summary-json", file.name, "--", "true")
            self.assertEqual(json.load(file)["exit_status"], 0)

    @unittest.skipIf(os.geteuid() != 0, "skipped: needs root")
    def test_what_may_be_written(self):
        """A summary that exists needs a file that may be written, not a folder."""
        summary = os.path.join(self.folder, "s.json")
        for of_folder, of_file, code in ((0o777, 0o444, 125), (0o755, 0o666, 0)):
            with open(summary, "w", encoding="utf-8") as file:
                file.write(KEPT)
            os.chmod(self.folder, of_folder)
            os.chmod(summary, of_file)
            done = subprocess.run(
                ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", EBB, "run",
                 "--no-cache", "--store", "/var/tmp", "--summary-json", summary, "--", "echo",
                 "ran"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
            self.assertEqual((code, b"" if code else b"ran\n"), (done.returncode, done.stdout),
                             done.stderr)
            with open(summary, encoding="utf-8") as file:
                self.assertEqual(code != 0, file.read() == KEPT)

    def test_a_bad_path_of_the_summary_wastes_no_run(self):
        for path in (self.folder, os.path.join(self.folder, "no", "such")):
            code, out, err = run("run", "--no-cache", "--summary-json", path, "--", "echo", "ran")
            self.assertEqual((code, out), (125, ""))
            self.assertIn(f"ebb: run: {path}: cannot be written", err)


if __name__ == "__main__":
    if os.environ.get("EBB_LAB") == "OFF":
        print("skipped: needs lab")
        sys.exit(77)
    unittest.main()
