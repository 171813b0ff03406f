#!/usr/bin/python3
"""What `ebb` says about the policies, pools and commands of src/lab, with and without src/lab.

In a build without it (EBB_LAB=OFF), a command works or names what is missing, in one line.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

from names import LAB_OPTIONS, LAB_POLICIES, OPTIONS, OWN_POLICIES

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
EBB = os.path.join(os.environ.get("EBB_BIN_DIR") or os.path.join(SOURCE, "build", "dev", "bin"),
                   "ebb")
WITH_LAB = os.environ.get("EBB_LAB") != "OFF"
MISSING = "this build is without src/lab (cmake -DEBB_LAB=ON adds it)"
POLICIES = OWN_POLICIES + (LAB_POLICIES if WITH_LAB else [])


def run(*arguments):
    done = subprocess.run([EBB, *arguments], capture_output=True, text=True, timeout=120,
                          check=False)
    return done.returncode, done.stdout, done.stderr


def own_options(text):
    """The options in a help text, in its order."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if line.startswith("  -") and not line.startswith("   "):
            found.append(words[1] if words[0].endswith(",") else words[0])
    return found


class Lab(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)

    def test_unknown_policy(self):
        for policy in ("autoswap:none", *([] if WITH_LAB else LAB_POLICIES)):
            said = f"no policy is called '{policy}'" + ("" if WITH_LAB else f": {MISSING}")
            for arguments, code in ((["plan", "gone", "--budget", "1G", "--policy", policy], 2),
                                    (["run", "--policy", policy, "--", "true"], 125)):
                found, out, err = run(*arguments)
                self.assertEqual((found, out, err), (code, "", f"ebb: {arguments[0]}: {said}\n"
                                                     f"ebb: known: {', '.join(POLICIES)}\n"))

    def test_help_lists_what_is_there(self):
        for command in ("plan", "run"):
            code, out, err = run(command, "--help")
            self.assertEqual((code, err), (0, ""))
            words = out.replace(",", " ").split()
            for policy in OWN_POLICIES + LAB_POLICIES:
                self.assertEqual(policy in words, policy in POLICIES, (command, policy))
            for line in out.splitlines():
                self.assertLessEqual(len(line), 100, command)
                self.assertEqual(line, line.rstrip(), command)

    def test_options_of_each_command(self):
        """One table describes all options. A command accepts exactly the options in its help."""
        wanted = {**OPTIONS, **(LAB_OPTIONS if WITH_LAB else {})}
        every = sorted({option for options in wanted.values() for option in options})
        for command, options in wanted.items():
            code, out, err = run(command, "--help")
            self.assertEqual((code, err, own_options(out)), (0, "", options))
            for option in every:
                if any(known != option and known.startswith(option) for known in options):
                    continue  # a short form of that option
                value = "help" if option == "--tune" else "1"
                code, _, said = run(command, option, value, "--help")
                self.assertEqual((code, said.splitlines()[:1]),
                                 (0, []) if option in options else
                                 (2, [f"ebb: {command}: unknown option '{option}'"]))

    def test_commands(self):
        for command in ("compare", "pack", "import"):
            for arguments in (["--help"], ["gone"]):
                code, out, err = run(command, *arguments)
                if not WITH_LAB:
                    self.assertEqual((code, out, err), (2, "", f"ebb: {command}: {MISSING}\n"))
                elif arguments == ["--help"]:
                    self.assertEqual((code, err), (0, ""))
                    self.assertTrue(out.startswith(f"usage: ebb {command} "))
                else:
                    self.assertNotEqual(code, 0)
                    self.assertNotIn(MISSING, err)

    def test_version(self):
        code, out, err = run("--version", "-v")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual([line.split()[0] for line in out.splitlines()],
                         ["ebb", "zstd", "jansson", "src/lab"])
        self.assertEqual(out.splitlines()[-1].split()[1], "yes" if WITH_LAB else "no")

    def test_libraries(self):
        done = subprocess.run(["ldd", EBB], capture_output=True, text=True, check=True)
        names = {line.split()[0].split(".so")[0] for line in done.stdout.splitlines()}
        self.assertLessEqual({"libzstd", "libjansson"}, names)
        for solver in () if WITH_LAB else ("lapack", "blas", "clp", "coin"):
            self.assertFalse([name for name in names if solver in name.lower()], solver)

    def test_traces_of_others(self):
        path = os.path.join(self.folder.name, "singa.csv")
        with open(path, "w", encoding="utf-8") as file:
            for lap in range(4):
                for i, operation in enumerate(("Malloc", "Mutable", "Read", "Free")):
                    file.write(f"{operation} 0x10 4096 {1000 * (4 * lap + i)}\n")
        code, out, err = run("info", path, "--json")
        if WITH_LAB:
            self.assertEqual((code, err), (0, ""))
            self.assertEqual(json.loads(out)["events"], 16)
        else:
            self.assertEqual((code, out, err), (1, "", f"ebb: info: {path}: not an Ebb trace\n"
                                                f"ebb: no trace of another tool is read: {MISSING}\n"))

    def test_own_trace(self):
        """A recorded program is planned, simulated and written in both builds. Only src/lab has
        bounds."""
        program, trace, plan = (os.path.join(self.folder.name, name)
                                for name in ("cycle", "run.ebbt", "plan.json"))
        subprocess.run(["cc", "-std=gnu11", "-O2", "-pthread", "-o", program,
                        os.path.join(SOURCE, "tests", "programs", "cycle.c")], check=True)
        self.assertEqual(run("record", "-q", "-o", trace, "--", program, "--iterations", "10",
                             "--layers", "8", "--block", "2M", "--persistent", "4M")[0], 0)
        for policy in ("ebb", "fifo"):
            asked = ("plan", trace, "--machine", "pcie3", "--budget", "70%", "--policy", policy)
            code, out, err = run(*asked, "--json", "-fo", plan)
            self.assertEqual((code, err), (0, ""))
            made = json.loads(out)
            with open(plan, encoding="utf-8") as file:
                written = json.load(file)
            for key in ("lower_bound_bytes", "lower_bound_stall_ns", "gap"):
                self.assertEqual(made[key], written[key])
                self.assertEqual(made[key] is not None, WITH_LAB, key)
            self.assertGreater(made["absences"], 0)
            code, out, err = run("simulate", trace, plan, "--json")
            self.assertEqual((code, err), (0, ""))
            seen = json.loads(out)
            for key in ("policy", "budget_bytes", "peak_bytes", "stall_ns", "moved_out_bytes"):
                self.assertEqual(seen[key], made[key], key)
            out = run(*asked)[1]
            self.assertEqual(["policy", "budget", "peak", "iteration", "moved"],
                             [line.split()[0] for line in out.splitlines()
                              if line[0] != " " and line.split()[0] not in ("bound", "gap")])
            for word in ("no plan without a stall is below", "above the bound"):
                self.assertEqual(word in out, WITH_LAB, word)


if __name__ == "__main__":
    sys.exit(unittest.main())
