#!/usr/bin/python3
"""An installed tree: where files are, that they work from there, and a path with a blank.

tests/test_api_install.py looks at the C API of it.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("EBB_BIN_DIR", os.path.join(SOURCE, "build/dev/bin"))


def run(*command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=120, check=False, **more)


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="ebb-tree-", dir="/var/tmp")
        cls.blank = os.path.join(cls.folder.name, "a path with blanks")
        cls.tree = os.path.join(cls.folder.name, "moved")
        done = run("cmake", "--install", os.path.dirname(BIN), "--prefix", cls.blank)
        if done.returncode or "scdoc is not installed" in done.stderr:
            raise AssertionError(done.stderr)
        shutil.copytree(cls.blank, cls.tree, symlinks=True)  # an installed tree can be moved
        cls.ebb = os.path.join(cls.tree, "bin/ebb")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_ebb(self, tree):
        return run(os.path.join(tree, "bin/ebb"), "run", "--no-cache", "--budget", "64M", "--store",
                   self.folder.name, "--", "/bin/echo", "good")

    def test_a_moved_tree_works(self):
        done = self.run_ebb(self.tree)
        self.assertEqual((0, "good\n", ""), (done.returncode, done.stdout, done.stderr))
        self.assertIn("usage: ebb COMMAND", run(self.ebb, "--help").stdout)

    def test_a_path_with_blanks_is_refused(self):
        done = self.run_ebb(self.blank)
        self.assertEqual((125, ""), (done.returncode, done.stdout))
        self.assertRegex(done.stderr, r"\Aebb: run: /.*with blanks/.*/libebb_malloc\.so: its path has "
                         r"a blank or a colon, which LD_PRELOAD cannot hold\nebb: install Ebb in "
                         r"another folder\n\Z")
        doctor = run(os.path.join(self.blank, "bin/ebb"), "doctor", "--store", self.folder.name)
        self.assertEqual(1, doctor.returncode)
        self.assertRegex(doctor.stdout, r"(?m)^fail  library +\S")
        # What starts no program works there.
        self.assertEqual(0, run(os.path.join(self.blank, "bin/ebb"), "plan", "--help").returncode)

    def test_a_store_with_blanks(self):
        store = os.path.join(self.folder.name, "a store")
        os.mkdir(store)
        done = run(self.ebb, "run", "--no-cache", "--budget", "64M", "--store", store, "--",
                   "/bin/echo", "good")
        self.assertEqual((0, "good\n", ""), (done.returncode, done.stdout, done.stderr))
        self.assertEqual([], os.listdir(store))

    def test_pages_and_completions(self):
        man = os.path.join(self.tree, "share/man")
        for page in ("man1/ebb-run.1", "man1/ebb-top.1", "man5/ebb-trace.5", "man5/ebb-plan.5",
                     "man7/ebb.7", "man7/ebb-environment.7", "man3/ebb_context_create.3"):
            self.assertTrue(os.path.exists(os.path.join(man, page)), page)
        shown = run("man", "-M", man, "ebb-run", env={**os.environ, "MANWIDTH": "80"})
        self.assertIn("within a memory budget", shown.stdout)
        for path in ("share/bash-completion/completions/ebb", "share/zsh/vendor-completions/_ebb",
                     "share/fish/vendor_completions.d/ebb.fish"):
            self.assertTrue(os.path.exists(os.path.join(self.tree, path)), path)

    def test_the_python_module(self):
        found = [folder for folder, _, names in os.walk(self.tree)
                 if os.path.basename(folder) == "ebb" and "__init__.py" in names]
        self.assertEqual(1, len(found))
        done = run("/usr/bin/python3", "-c", "import ebb; print(ebb.__file__, ebb.mark())",
                   env={"PYTHONPATH": os.path.dirname(found[0]), "PATH": "/usr/bin"})
        self.assertEqual(f"{found[0]}/__init__.py False\n", done.stdout, done.stderr)

    def test_documents(self):
        docs = [folder for folder, _, names in os.walk(self.tree) if "README.md" in names]
        self.assertTrue(docs)
        self.assertTrue(os.path.exists(os.path.join(docs[0], "docs/limits.md")))
        for folder, _, names in os.walk(self.tree):
            for name in names:
                self.assertNotIn("__pycache__", os.path.join(folder, name))

    def test_destdir(self):
        """Nothing is written beside DESTDIR."""
        dest = os.path.join(self.folder.name, "dest dir")
        done = run("cmake", "--install", os.path.dirname(BIN), "--prefix", "/nowhere/usr",
                   env={**os.environ, "DESTDIR": dest})
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(["nowhere"], os.listdir(dest))
        self.assertFalse(os.path.exists("/nowhere"))
        self.assertTrue(os.path.islink(os.path.join(dest, "nowhere/usr/bin/ebb")))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
