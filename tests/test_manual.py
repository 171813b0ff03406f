#!/usr/bin/python3
"""Help, manual pages and completions say the same, and are well formed.

All are made from one table, which `ebb --describe` prints. The tests read what people read.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("EBB_BIN_DIR", os.path.join(SOURCE, "build/dev/bin"))
EBB = os.path.join(BIN, "ebb")
TRAIN = os.path.join(BIN, "ebb-train")
COLUMNS = 100


def run(*command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=60, check=False, **more)


def needs(tool):
    if not shutil.which(tool):
        print(f"skipped: needs {tool}")
        raise unittest.SkipTest(tool)


class Manual(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="ebb-manual-")
        cls.pages = os.path.join(cls.folder.name, "man")
        described = run(EBB, "--describe").stdout
        cls.commands = json.loads(described)["commands"]
        source = os.path.join(cls.folder.name, "describe.json")
        with open(source, "w", encoding="utf-8") as file:
            file.write(described)
        done = run("/usr/bin/python3", os.path.join(SOURCE, "cmake/manual.py"), source,
                   os.path.join(SOURCE, "docs/man"), cls.pages, cls.folder.name)
        if done.returncode or done.stderr:
            raise AssertionError(done.stderr)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def shown(self, name, section):
        path = os.path.join(self.pages, f"man{section}", f"{name}.{section}")
        text = run("man", "-E", "UTF-8", "--nh", "--nj", "-l", path, env={**os.environ, "MANWIDTH": "100"}).stdout
        return re.sub(".\x08", "", text)

    def completed(self, *words):
        """What bash offers for the last of these words."""
        script = f"""source '{self.folder.name}/ebb.bash'
            compopt() {{ :; }}
            COMP_WORDS=(ebb "$@"); COMP_CWORD=$#; _ebb; printf '%s\\n' "${{COMPREPLY[@]}}" """
        done = run("bash", "-c", script, "bash", *words)
        self.assertEqual("", done.stderr)
        return done.stdout.split()

    def test_help_names_every_command(self):
        helped = run(EBB, "--help").stdout
        listed = re.findall(r"^  ([a-z]+) +(.+)$", helped.split("commands:")[1], re.M)
        known = {command["name"]: command["does"] for command in self.commands}
        for name, does in known.items():
            self.assertIn((name, does), listed)
        overview = self.shown("ebb", 7)
        for name, does in known.items():
            self.assertRegex(overview, rf"ebb-{name}\(1\)\n +{re.escape(does)}\n")

    def test_help_and_page_have_the_same_options(self):
        for command in self.commands:
            name = command["name"]
            helped = run(EBB, name, "--help").stdout
            page = self.shown(f"ebb-{name}", 1).split("\nOPTIONS\n")[1]
            page = re.split(r"\n(?=[A-Z])", page)[0]
            in_help = re.findall(r"^  (?:-\w, |    )?--([a-z][\w-]*)", helped, re.M)
            in_page = re.findall(r"^       (?:-\w, )?--([a-z][\w-]*)", page, re.M)
            self.assertEqual([option["name"] for option in command["options"]], in_help, name)
            self.assertEqual(in_help + ["help"], in_page, name)
            squeezed = " ".join(page.split())
            for option in command["options"]:
                about = " ".join(option["help"].split())
                self.assertIn(about, squeezed, f"{name} --{option['name']}")

    def test_words_are_named_by_help(self):
        for command in self.commands:
            for option in command["options"]:
                # report and advise refer to the list of the others
                known = option["words"] if command["name"] not in ("report", "advise") else []
                for word in known:
                    self.assertIn(word, option["help"], f"{command['name']} --{option['name']}")

    def test_help_fits(self):
        for name in [""] + [command["name"] for command in self.commands]:
            done = run(EBB, *name.split(), "--help")
            self.assertEqual((0, ""), (done.returncode, done.stderr))
            for line in done.stdout.split("\n"):
                self.assertLessEqual(len(line), COLUMNS, f"{name}: {line}")

    def test_no_arguments_help(self):
        done = run(EBB)
        self.assertEqual((2, ""), (done.returncode, done.stdout))
        self.assertEqual(run(EBB, "--help").stdout, done.stderr)

    def test_pages_have_no_warnings(self):
        for folder, _, names in os.walk(self.pages):
            for name in names:
                done = run("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z",
                           os.path.join(folder, name))
                self.assertEqual((0, ""), (done.returncode, done.stderr), name)
                self.assertGreater(len(done.stdout), 500, name)

    def test_mandoc(self):
        needs("mandoc")
        for folder, _, names in os.walk(self.pages):
            for name in names:
                done = run("mandoc", "-T", "lint", "-W", "warning", os.path.join(folder, name))
                self.assertEqual((0, ""), (done.returncode, done.stdout), name)

    def test_the_trainer_has_a_page(self):
        if not os.path.exists(TRAIN):
            raise unittest.SkipTest("skipped: needs oneDNN")
        told = run(TRAIN, "--help").stdout
        self.assertEqual([line for line in told.split("\n") if len(line) > COLUMNS], [])
        shown = self.shown("ebb-train", 1)
        self.assertEqual(set(re.findall(r"--[a-z][\w-]+", told)),
                         set(re.findall(r"--[a-z][\w-]+", shown)))

    def test_variables_are_documented(self):
        """Every variable that the sources read is in ebb-environment(7)."""
        page = self.shown("ebb-environment", 7)
        found = set()
        for top in ("src", "shim", "cli"):
            for folder, _, names in os.walk(os.path.join(SOURCE, top)):
                for name in names:
                    if name.endswith((".c", ".h")):
                        with open(os.path.join(folder, name), encoding="utf-8") as file:
                            found |= set(re.findall(r'getenv\("(\w+)"\)', file.read()))
        self.assertGreater(len(found), 8)
        for name in found - {"OMP_WAIT_POLICY"}:  # the trainer's and the API's own
            self.assertRegex(page, rf"\b{name}\b")

    def test_bash_completes(self):
        names = [command["name"] for command in self.commands]
        self.assertEqual(names, self.completed(""))
        for command in self.commands:
            options = [f"--{option['name']}" for option in command["options"]] + ["--help"]
            self.assertEqual(options, self.completed(command["name"], "-"))
        self.assertEqual(["--store", "--store-limit"], self.completed("run", "--sto"))
        self.assertEqual(["auto", "on", "off"], self.completed("run", "--compress", ""))
        self.assertEqual(["pcie3", "pcie4", "pcie5"], self.completed("plan", "--machine", "pci"))
        self.assertIn("true", self.completed("run", "tru"))

    def test_shellcheck(self):
        needs("shellcheck")
        done = run("shellcheck", "-s", "bash", f"{self.folder.name}/ebb.bash")
        self.assertEqual((0, ""), (done.returncode, done.stdout))

    def test_zsh(self):
        needs("zsh")
        self.assertEqual("", run("zsh", "-n", f"{self.folder.name}/_ebb").stderr)
        with open(f"{self.folder.name}/_ebb", encoding="utf-8") as file:
            text = file.read()
        for command in self.commands:
            for option in command["options"]:
                self.assertIn(f"--{option['name']}[", text)

    def test_fish(self):
        needs("fish")
        self.assertEqual("", run("fish", "-n", f"{self.folder.name}/ebb.fish").stderr)
        done = run("fish", "--no-config", "-c",
                   f"source {self.folder.name}/ebb.fish; complete -C 'ebb run --sto'")
        self.assertRegex(done.stdout, r"--store\b.*\n--store-limit")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
