#!/usr/bin/python3
"""Every command of the tutorial and of the guide for authors, typed to the letter.

A block of `sh` is typed into one shell, with the installed tree on the path. `python` blocks are
saved as train.py. In all documents, each `ebb COMMAND --options` must be accepted as such: that is
tests/test_docs.py.
"""
import os
import re
import subprocess
import tempfile
import unittest

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("EBB_BIN_DIR", os.path.join(SOURCE, "build/dev/bin"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)


def blocks(name):
    with open(os.path.join(SOURCE, "docs", name), encoding="utf-8") as file:
        return BLOCK.findall(file.read())


class Typed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="ebb-typed-", dir="/var/tmp")
        cls.addClassCleanup(cls.folder.cleanup)
        prefix = os.path.join(cls.folder.name, "usr")
        subprocess.run(["cmake", "--install", os.path.dirname(BIN), "--prefix", prefix], check=True,
                       stdout=subprocess.DEVNULL, timeout=120)
        library = next(path for path, _, names in os.walk(prefix) if "libebb.so.0" in names)
        module = next(path for path, _, names in os.walk(prefix) if "live.py" in names)
        cls.env = {"PATH": f"{prefix}/bin:/usr/bin:/bin", "HOME": cls.folder.name, "LC_ALL": "C.UTF-8",
                   "PKG_CONFIG_PATH": f"{library}/pkgconfig", "LD_LIBRARY_PATH": library,
                   "PYTHONPATH": os.path.dirname(module), "OMP_NUM_THREADS": "2",
                   "OMP_WAIT_POLICY": "passive"}  # what spins takes processor time from tests

    def setUp(self):
        self.work = os.path.join(self.folder.name, self.id().split(".")[-1])
        os.mkdir(self.work)
        os.symlink(os.path.join(SOURCE, "examples"), os.path.join(self.work, "examples"))

    def type(self, name):
        """Types the blocks; returns what each printed, by its first line."""
        said = {}
        for kind, text in blocks(name):
            if kind == "python":
                with open(os.path.join(self.work, "train.py"), "w", encoding="utf-8") as file:
                    file.write(text.replace("else 4096", "else 512"))  # it takes less time
            if kind != "sh":
                continue
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=self.work,
                                  env=self.env, text=True, stdout=subprocess.PIPE, check=False,
                                  stderr=subprocess.STDOUT, timeout=180)
            self.assertEqual(0, done.returncode, f"{text}{done.stdout}")
            said[text.split("\n")[0]] = done.stdout
        return said

    def test_tutorial(self):
        said = self.type("tutorial.md")
        self.assertEqual(9, len(said))
        self.assertIn("out of memory", said["(ulimit -v 2500000; python3 train.py 1000000) || "
                                            "echo \"out of memory\""])
        self.assertIn("same losses\n", "".join(said.values()))
        found = next(text for line, text in said.items() if line.startswith("ebb run"))
        self.assertEqual(10, len(re.findall(r"^iteration \d+ loss", found, re.M)))
        self.assertRegex(found, r"(?m)^ebb: 10 iterations, planned from \d")
        recorded = said["ebb record -o run.ebbt -- python3 train.py"]
        self.assertRegex(recorded, r"ebb run --budget [\d.]+\S* -- python3 train\.py")
        self.assertRegex("".join(said.values()), r"(?m)^events: \d{2,}$")
        self.assertGreater(os.path.getsize(os.path.join(self.work, "run.html")), 10_000)

    def test_guide_for_authors(self):
        said = self.type("framework-authors.md")
        self.assertEqual(2, len(said))
        self.assertIn("under Ebb", said[next(line for line in said if "marked.c" in line)])
        self.assertIn("iterations planned", said[next(line for line in said if "explicit" in line)])

    def test_readme(self):
        """The commands of README.md's list of uses, on the smallest program."""
        with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as file:
            text = file.read().split("## Use\n")[1]
        lines = [re.split(r"  +", line)[0] for line in BLOCK.findall(text)[0][1].splitlines()]
        self.assertGreater(len(lines), 8)
        with open(os.path.join(self.work, "train.py"), "w", encoding="utf-8") as file:
            file.write("for i in range(20):\n    x = [bytearray(1 << 20) for j in range(20)]\n"
                       "    while x: x.pop()\n")
        for line in lines:
            done = subprocess.run(["bash", "-c", line], cwd=self.work, env=self.env, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False,
                                  stderr=subprocess.STDOUT, timeout=120)
            # Such a program need not be one that can be planned within 4 GiB, or at all.
            good = (0, 1, 3) if re.match(r"ebb (plan|advise|doctor)", line) else (0,)
            self.assertIn(done.returncode, good, f"{line}\n{done.stdout}")
            self.assertNotRegex(done.stdout, r"see 'ebb |unknown option", line)


if __name__ == "__main__":
    unittest.main(verbosity=2)
