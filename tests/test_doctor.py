#!/usr/bin/python3
"""`ebb doctor`: its report on this machine, and on a machine with less.

There, features are refused or folders are missing.
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
BIN = os.environ.get("EBB_BIN_DIR") or os.path.join(SOURCE, "build", "dev", "bin")
EBB = os.path.join(BIN, "ebb")
NAMES = ["library", "kernel", "page-tables", "container", "seccomp", "userfaultfd", "move", "device",
         "limits", "page-moves", "huge-pages", "store", "lanes", "memory", "swap", "memlock", "numa",
         "plan-cache", "program", "python3", "pytorch", "cuda"]


class Doctor(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(dir="/var/tmp")
        self.addCleanup(self.folder.cleanup)

    def run_doctor(self, *options, ebb=EBB, code=None, **variables):
        env = {k: v for k, v in os.environ.items() if not k.startswith("EBB_")}
        env["PATH"] = "/usr/bin:/bin"  # another python3 may take a second to start
        env.update(XDG_CACHE_HOME=os.path.join(self.folder.name, "cache"), **variables)
        if "--store" not in options:
            options = ["--store", self.folder.name, *options]
        done = subprocess.run([ebb, "doctor", *options], env=env, timeout=60, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if code is not None:
            self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        return done

    def look(self, *options, code, **kwargs):
        """The report, and its checks by name."""
        done = self.run_doctor("--json", *options, code=code, **kwargs)
        self.assertEqual("", done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual("schema", next(iter(report)))
        self.assertEqual("ebb.doctor/1", report["schema"])
        order = ["ok", "warn", "fail"]
        worst = max(order.index(check["verdict"]) for check in report["checks"])
        self.assertEqual(order[worst], report["verdict"])
        self.assertEqual(code, int(report["verdict"] == "fail"))
        for check in report["checks"]:
            self.assertEqual(check["verdict"] != "ok", bool(check["remedy"]), check)
            self.assertTrue(check["detail"], check)
        return report, {check["name"]: check for check in report["checks"]}

    def test_this_machine(self):
        report, checks = self.look(code=0)
        self.assertEqual(NAMES, list(checks))
        self.assertEqual("ok", checks["library"]["verdict"])
        self.assertIn(os.uname().release, checks["kernel"]["detail"])
        self.assertGreater(report["out_bps"], 1e6)
        self.assertGreater(report["in_bps"], 1e6)
        self.assertEqual(self.folder.name, report["store"])
        self.assertEqual(os.path.join(self.folder.name, "cache", "ebb"), report["plan_cache"])
        self.assertEqual([], os.listdir(self.folder.name), "files were left")

    def test_programs(self):
        report, checks = self.look(code=0)
        self.assertEqual("/bin/true runs under Ebb", checks["program"]["detail"])
        self.assertRegex(checks["python3"]["detail"], r"^/\S+ 3\.\d+\.\S+ runs under Ebb$")
        self.assertRegex(checks["pytorch"]["detail"], r"^(?:not found.*|\d\S+, built for .*)$")
        self.assertRegex(checks["page-moves"]["detail"], r"^[\d.]+ [nu]s for 2 MiB, .* for 4 KiB$")
        self.assertTrue(0 < report["small_move_ns"] < 1e6 and 0 < report["huge_move_ns"] < 1e7)
        # A python3 that does not work is told, with its words.
        with open(os.path.join(self.folder.name, "python3"), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho broken >&2; exit 3\n")
        os.chmod(os.path.join(self.folder.name, "python3"), 0o755)
        checks = self.look(code=0, PATH=f"{self.folder.name}:{os.environ['PATH']}")[1]
        self.assertEqual(("warn", "does not run under Ebb: broken"),
                         (checks["python3"]["verdict"], checks["python3"]["detail"]))

    def cuda(self, text):
        """The check with a driver whose functions are `text`."""
        source = os.path.join(self.folder.name, "driver.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
        subprocess.run(["cc", "-shared", "-fPIC", "-o",
                        os.path.join(self.folder.name, "libcuda.so.1"), source], check=True)
        return self.look(code=0, LD_LIBRARY_PATH=self.folder.name)[1]["cuda"]

    def test_cuda(self):
        if not os.path.exists("/dev/nvidia0"):
            self.assertIn("no driver", self.look(code=0)[1]["cuda"]["detail"])
        driver = """#include <stddef.h>
#include <stdio.h>
int cuInit(unsigned flags) { INIT; }
int cuDriverGetVersion(int *v) { *v = 12040; return 0; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetName(char *n, int b, int d) { snprintf(n, b, "GPU"); return 0; }
int cuDeviceTotalMem_v2(size_t *b, int d) { *b = 80ul << 30; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? 9 : a == 76 ? 0 : 1; return 0; }
"""
        good = self.cuda(driver.replace("INIT", "return 0"))
        self.assertEqual(("ok", "driver for CUDA 12.4, devices: 2; GPU, 80.0 GiB, sm_90, 1 copy "
                          "engines, virtual addresses: yes, managed: yes, concurrent, pageable"),
                         (good["verdict"], good["detail"]))
        for init, why in (("return 100", "error 100"), ("__builtin_trap()", "crashes or hangs")):
            bad = self.cuda(driver.replace("INIT", init))
            self.assertEqual("warn", bad["verdict"])
            self.assertIn(why, bad["detail"])
        self.assertIn("too old", self.cuda("int cuInit;")["detail"])

    def test_text(self):
        done = self.run_doctor(code=0)
        lines = done.stdout.splitlines()
        self.assertLessEqual(len(lines), 40, "more than a screen")
        for line in lines:
            self.assertLessEqual(len(line), 100, line)
        found = [re.match(r"(ok  |warn|fail)  (\S+) +\S", line) for line in lines
                 if not line.startswith("    ")]
        self.assertEqual(NAMES, [match.group(2) for match in found])
        warned = sum(match.group(1) != "ok  " for match in found)
        self.assertEqual(warned, sum(" -> " in line for line in lines))

    def test_run_gets_the_same_device(self):
        """A program gets the device that the report names."""
        for refuse in ("", "move", "kernel", "uffd"):
            report, checks = self.look(code=0, EBB_REFUSE=refuse)
            path = os.path.join(self.folder.name, "summary.json")
            env = dict(os.environ, EBB_REFUSE=refuse)
            subprocess.run([EBB, "run", "--no-cache", "--budget", "1G", "--store",
                            self.folder.name, "--summary-json", path, "--", sys.executable, "-c",
                            "b = bytearray(1 << 20)"], env=env, check=True, timeout=60)
            with open(path, encoding="utf-8") as file:
                self.assertEqual(json.load(file)["device"], report["device"])
            os.unlink(path)
            if refuse:
                self.assertEqual("warn", checks["device"]["verdict"])

    def test_nothing_at_all(self):
        report, checks = self.look(code=1, EBB_REFUSE="uffd,protect")
        self.assertEqual("none", report["device"])
        self.assertEqual("fail", checks["userfaultfd"]["verdict"])
        self.assertEqual("fail", checks["device"]["verdict"])

    def test_doors(self):
        """The report names the source of userfaultfd: the file, the system call, or the call for
        users."""
        for refuse, door, words in (("node", "call", "by the system call: "),
                                    ("node,kernel", "user-call", "for users"),
                                    ("node,call", "none", "none: ")):
            report, checks = self.look(code=0, EBB_REFUSE=refuse)
            self.assertEqual(door, report["userfaultfd"])
            self.assertIn(words, checks["userfaultfd"]["detail"])

    @unittest.skipUnless(os.access("/dev/userfaultfd", os.R_OK | os.W_OK),
                         "skipped: needs /dev/userfaultfd")
    def test_door_that_is_a_file(self):
        report, checks = self.look(code=0)
        self.assertEqual("node", report["userfaultfd"])
        self.assertIn("by /dev/userfaultfd", checks["userfaultfd"]["detail"])

    def test_container(self):
        """In a container, the remedy is for whoever starts the container."""
        _, checks = self.look(code=0, EBB_REFUSE="uffd", KUBERNETES_SERVICE_HOST="10.0.0.1")
        self.assertEqual("Kubernetes", checks["container"]["detail"])
        self.assertIn("seccompProfile", checks["userfaultfd"]["remedy"])
        _, checks = self.look(code=0, EBB_REFUSE="uffd", APPTAINER_CONTAINER="/x.sif")
        self.assertIn("Apptainer", checks["container"]["detail"])
        self.assertRegex(checks["userfaultfd"]["remedy"], "udev|sysctl")

    def test_limits(self):
        _, checks = self.look(code=0)
        self.assertEqual("ok", checks["limits"]["verdict"])
        done = subprocess.run(["bash", "-c", 'ulimit -v 8000000; exec "$@"', "-", EBB, "doctor", "--json",
                               "--store", self.folder.name], stdout=subprocess.PIPE, check=False,
                              timeout=60)
        (check,) = [c for c in json.loads(done.stdout)["checks"] if c["name"] == "limits"]
        self.assertEqual(("fail", "ulimit -v unlimited", 1),
                         (check["verdict"], check["remedy"], done.returncode))

    def test_store(self):
        report, checks = self.look("--store", "/no/such/folder", code=1)
        self.assertEqual("fail", checks["store"]["verdict"])
        self.assertIsNone(report["store"])
        self.assertNotIn("lanes", checks)

    @unittest.skipUnless(os.path.ismount("/dev/shm"), "skipped: needs /dev/shm")
    def test_store_in_memory(self):
        _, checks = self.look("--store", "/dev/shm", code=0)
        self.assertEqual("warn", checks["store"]["verdict"])
        self.assertIn("in memory", checks["store"]["detail"])

    def test_cache(self):
        blocked = os.path.join(self.folder.name, "blocked")
        with open(blocked, "w", encoding="utf-8"):
            pass
        env = {k: v for k, v in os.environ.items() if not k.startswith("EBB_")}
        env["XDG_CACHE_HOME"] = blocked
        done = subprocess.run([EBB, "doctor", "--json", "--store", self.folder.name], env=env,
                              stdout=subprocess.PIPE, check=True, timeout=60)
        (check,) = [c for c in json.loads(done.stdout)["checks"] if c["name"] == "plan-cache"]
        self.assertEqual("warn", check["verdict"])

    def test_library_missing(self):
        alone = shutil.copy2(EBB, os.path.join(self.folder.name, "ebb"))
        _, checks = self.look(code=1, ebb=alone)
        self.assertEqual("fail", checks["library"]["verdict"])

    def test_usage(self):
        for options in (["FILE"], ["--nonsense"], ["--store"]):
            done = subprocess.run([EBB, "doctor", *options], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, check=False, timeout=60)
            self.assertEqual((2, b""), (done.returncode, done.stdout), options)
            self.assertTrue(done.stderr.startswith(b"ebb: doctor: "))
        done = subprocess.run([EBB, "doctor", "--help"], stdout=subprocess.PIPE, check=True)
        self.assertIn(b"usage: ebb doctor", done.stdout)


if __name__ == "__main__":
    if not os.access(EBB, os.X_OK):
        print(f"skipped: needs ebb, {EBB} is not built")
        sys.exit(77)
    unittest.main()
