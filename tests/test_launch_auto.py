#!/usr/bin/python3
"""`ebb run` on a machine with a GPU: what is managed follows what each process does.

The GPU is the fake driver's. A process that begins to use it has its device memory within the
budget, and its host memory comes back. Other processes have their host memory within the budget, as
without a GPU. tests/programs/turning.c does both, and checks each byte.
"""
import json
import os
import re
import shutil
import sys
import unittest

import launching
from devices import WHOLE, sample
from launching import BIN, CYCLE_ARGS, MIB, Launch, compile_c, cycle, main

sys.path.append(os.path.join(launching.SOURCE, "bench"))
import paired  # noqa: E402  pylint: disable=wrong-import-position

FAKE = os.path.abspath(os.path.join(BIN, os.pardir, "tests", "fakecuda"))
DRIVER = os.path.join(FAKE, "libfakecuda.so")
TRAIN = [os.path.join(FAKE, "cuda_train"), "--no-serial", "--layers=8", f"--bytes={4 * MIB}",
         "--iterations=10", "--every=16"]
BUSY = TRAIN[:-1]  # it computes all bytes, and so leaves time for planning
# Iterations of 100 ms leave the parent enough of them for planning, beside other tests.
HOST = [*CYCLE_ARGS, "--iterations", "20", "--wait", "4"]
GIB = 1 << 30


EARLY = """
#include <dlfcn.h>
#include <stdlib.h>
__attribute__((constructor)) static void start(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
    int (*retain)(void **, int) =
        init ? (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain") : NULL;
    if (!retain || init(0) || retain(&context, 0))
        abort();
}
"""


def turning():
    return compile_c("turning")


class Auto(Launch):
    def setUp(self):
        super().setUp()
        self.env.update(EBB_CUDA_DRIVER=DRIVER, LD_LIBRARY_PATH=FAKE)

    def figures(self, *program, options=(), code=0, budget="40M"):
        """The result of a run, and its summary."""
        path = os.path.join(self.folder, "summary.json")
        done = self.run_ebb(*program, options=["--budget", budget, "--summary", "always",
                                               "--summary-json", path, *options])
        self.assertEqual(code, done.returncode, done.stderr)
        with open(path, encoding="utf-8") as file:
            return done, json.load(file)

    def turn(self, *words, refused="", budget="40M"):
        """Words of turning.c, on this device of the host."""
        self.env["EBB_REFUSE"] = refused
        done, summary = self.figures(turning(), *words, budget=budget)
        self.assertEqual({b"good"}, set(done.stdout.split()), done.stderr)
        return done, summary


class OneProcess(Auto):
    def test_a_program_of_the_gpu(self):
        """Its device memory is within the budget, as with --device cuda. The host's is not
        managed."""
        plain = self.run_command(TRAIN)
        for device in ("auto", "cuda"):
            done, summary = self.figures(*TRAIN, options=["--device", device], budget="60M")
            self.assertEqual(plain.stdout, done.stdout)
            self.assertEqual("cuda", summary["device"])
            self.assertEqual(10, summary["iterations"])
            self.assertGreater(summary["moved_out_bytes"], 0)
            self.assertEqual([60 * MIB], [one["budget_bytes"] for one in summary["devices"]])
            self.assertLessEqual(summary["devices"][0]["peak_resident_bytes"], 60 * MIB)
            self.assertNotIn("host", summary)
            self.assertEqual(2, summary["processes"], device)
            self.assertIn(b"ebb: device cuda: Fake CUDA device", done.stderr)
            self.assertNotIn(b"ebb: host memory", done.stderr)

    def test_a_program_of_the_host(self):
        """As on a machine without a GPU: the same output, plan and figures."""
        program = [cycle(), *HOST]
        plain = self.run_command(program)
        seen = []
        for options, variables in ((("--device", "cpu"), {}), ((), {"FAKECUDA_DEVICES": "0"}),
                                   ((), {})):
            self.env.update(variables)
            done, summary = self.figures(*program, options=options, budget="38M")
            self.env.pop("FAKECUDA_DEVICES", None)
            self.assertEqual(plain.stdout, done.stdout)
            self.assertFalse(summary["budget_exceeded"])
            self.assertLessEqual(summary["peak_resident_bytes"], 38 * MIB)
            self.assertGreater(summary["planned_iterations"], 0)
            form = [re.sub(r"[\d.]+|\b[KMG]iB\b|\b[mu]?s\b|set for.*", "N", line)
                    for line in done.stderr.decode().splitlines()]
            seen.append(([line for line in form if "at this rate" not in line], sorted(summary),
                         [summary[name] for name in (
                             "budget_bytes", "iterations", "managed_peak_bytes", "policy", "processes",
                             "device", "plan_cache")]))
        self.assertEqual(seen[0], seen[1])
        self.assertEqual(seen[0], seen[2])

    def test_a_program_that_only_links_the_driver(self):
        """It never calls it, or only counts devices: it is a program of the host."""
        linked = compile_c("linked", of="cycle", options=[
            "-Wl,--no-as-needed", f"-L{FAKE}", "-l:libfakecuda.so"])
        _, summary = self.figures(linked, *HOST, budget="38M")
        self.assertGreater(summary["planned_iterations"], 0)
        self.assertNotIn("devices", summary)
        _, summary = self.turn("fill", "100", "count", "verify", "away", "fill", "10", "verify")
        self.assertLessEqual(summary["peak_resident_bytes"], 40 * MIB)
        self.assertGreater(summary["moved_in_bytes"], 100 * MIB)
        self.assertNotIn("devices", summary)

    def test_default_budgets(self):
        """90 % of what is managed."""
        done, summary = self.figures(*TRAIN, options=["--budget", "100%"])
        self.assertEqual("cuda", summary["device"])
        for program, words, most in ((TRAIN, b"(90 % of the GPU's memory)", 7.3 * GIB),
                                     ([cycle(), *CYCLE_ARGS], b"(90 % of the free memory)", None)):
            path = os.path.join(self.folder, "default.json")
            done = self.run_ebb(*program, options=["--summary", "always", "--summary-json", path])
            self.assertIn(words, done.stderr)
            with open(path, encoding="utf-8") as file:
                budget = json.load(file)["budget_bytes"]
            if most:
                self.assertTrue(0.9 * 8 * GIB - 16 < budget <= most, budget)

    def test_a_budget_above_the_card(self):
        """It is the card's for who uses it, and whole for the others."""
        done, summary = self.figures(*TRAIN, budget="9G")
        self.assertEqual(8 * GIB, summary["budget_bytes"])
        self.assertIn(b"which is less than the budget", done.stderr)
        done, summary = self.figures(cycle(), *CYCLE_ARGS, budget="9G")
        self.assertEqual(9 * GIB, summary["budget_bytes"])
        self.assertNotIn(b"less than the budget", done.stderr)

    def test_host_memory_is_limited(self):
        """Without --store-limit, what leaves the GPU takes no more than the free memory. Here the
        cgroup of `ebb` limits that, and the program, which has the fake's memory, leaves it."""
        try:
            group = paired.Cgroup(60 * MIB, swap=True)
        except RuntimeError:
            self.skipTest("skipped: needs cgroup")
        self.addCleanup(group.close)
        enter = 'echo $$ > "$1/cgroup.procs"; shift; exec "$@"'
        program = [TRAIN[0], "--no-serial", "--layers=8", f"--bytes={8 * MIB}", "--iterations=2",
                   "--every=64"]
        found = []
        for options in ([], ["--store-limit", "1G"]):
            path = os.path.join(self.folder, "limited.json")
            done = self.run_command(
                ["sh", "-c", enter, "sh", group.path, launching.EBB, "run", "--store", self.store,
                 "--budget", "75M", "--cuda-backing", "vmm-trusting", "--summary-json", path,
                 *options, "--", "sh", "-c", enter, "sh", os.path.dirname(group.path), *program])
            with open(path, encoding="utf-8") as file:
                found.append((done.returncode, json.load(file)["store_peak_bytes"], done.stderr))
        self.assertEqual(0, found[1][0], found[1][2])
        self.assertGreater(found[1][1], 75 * MIB)
        self.assertNotEqual(0, found[0][0])
        self.assertIn(b"budget of host memory is full", found[0][2])
        self.assertTrue(25 * MIB < found[0][1] <= 54 * MIB, found[0])

    def test_shares_of_the_peak(self):
        self.env["FAKECUDA_FAST"] = "1"
        self.env["FAKECUDA_KERNEL_US"] = "4000"
        for program in (TRAIN, [cycle(), *HOST]):
            plain = self.run_command(program)
            done, summary = self.figures(*program, budget="70%")
            self.assertEqual(plain.stdout, done.stdout)
            self.assertGreater(summary["planned_iterations"], 0)
            self.assertLess(summary["budget_bytes"], 0.75 * summary["unmanaged_peak_bytes"])

    def test_plan_caches(self):
        """The profile of a program of the host is that of --device cpu. The host's side of a
        program of the device leaves none."""
        program = [cycle(), *HOST]
        options = ["--budget", "38M"]
        first, second = self.run_twice(*program, options=options)
        self.assertEqual(("none", "used"), (first["plan_cache"], second["plan_cache"]))
        folder = os.path.join(self.cache, "ebb")
        for options, uses in ((["--device", "cpu"], "none"), ([], "used"),
                              (["--device", "cpu"], "used")):
            path = os.path.join(self.folder, "cached.json")
            done = self.run_command([launching.EBB, "run", "--store", self.store, "--budget", "38M",
                                     *options, "--summary-json", path, "--", *program])
            self.assertEqual(0, done.returncode, done.stderr)
            with open(path, encoding="utf-8") as file:
                self.assertEqual(uses, json.load(file)["plan_cache"], options)
        shutil.rmtree(folder)
        for device in ("auto", "cuda"):
            done = self.run_command([launching.EBB, "run", "--store", self.store, "--budget", "60M",
                                     "--device", device, "--", *BUSY])
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertEqual(1, len(os.listdir(folder)), device)
        shutil.rmtree(folder)

    def test_marks(self):
        """Both libraries take marks. The device's is the one that counts."""
        path = os.path.join(self.folder, "marks.ebbt")
        done = self.run_command([launching.EBB, "record", "-o", path, "--", *TRAIN, "--marks"])
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(10, self.info(path)["iterations"])

    def info(self, path):
        done = self.run_command([launching.EBB, "info", path, "--json"])
        self.assertEqual(0, done.returncode, done.stderr)
        return json.loads(done.stdout)

    def test_records(self):
        """The trace is that of the device if one is used, from its first event on."""
        path = os.path.join(self.folder, "run.ebbt")
        record = [launching.EBB, "record", "-o", path]
        found = []
        for options, program in ((["--device", "cuda"], TRAIN), ([], TRAIN),
                                 (["--device", "cpu"], [cycle(), *CYCLE_ARGS]),
                                 ([], [cycle(), *CYCLE_ARGS])):
            done = self.run_command([*record, *options, "--", *program])
            self.assertEqual(0, done.returncode, done.stderr)
            found.append([self.info(path)[name] for name in ("iterations", "peak_bytes")])
        self.assertEqual(found[0], found[1])
        self.assertEqual(found[2], found[3])
        done = self.run_command([*record, "--", turning(), "fill", "30", "primary", "use", "half",
                                 "verify"])
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(4 * MIB, self.info(path)["peak_bytes"])
        pipe = os.path.join(self.folder, "pipe")
        os.mkfifo(pipe)
        script = 'cat "$1" > "$2" & shift 2; "$@"; code=$?; wait; exit $code'
        done = self.run_command(["sh", "-c", script, "sh", pipe, path, launching.EBB, "record",
                                 "-o", pipe, "--", turning(), "fill", "30", "primary", "use"])
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn(b"its trace stays that of the host's memory", done.stderr)
        self.assertGreaterEqual(self.info(path)["peak_bytes"], 30 * MIB)


class Turning(Auto):
    """A program of the host begins to use the device, near its budget, on the host's devices."""

    def test_everything_comes_back(self):
        words = ("fill", "100", "away", "verify", "verify", "primary", "there", "verify", "use",
                 "fill", "100", "there", "change", "verify", "half", "verify", "there", "use")
        for refused in sample("back"):
            with self.subTest(refused):
                done, summary = self.turn(*words, refused=refused)
                self.assertEqual("cuda", summary["device"])
                self.assertFalse(summary["budget_exceeded"])
                self.assertEqual(4 * MIB, summary["peak_resident_bytes"])
                host = summary["host"]  # before it used the device
                self.assertLessEqual(host["peak_resident_bytes"], 40 * MIB)
                self.assertGreater(host["store_peak_bytes"], 50 * MIB)
                self.assertIn(b"ebb: host memory, where no device is used: budget 40.00 MiB",
                              done.stderr)
                self.assertIn(b"ebb: blocks in the host's memory: most 0 B", done.stderr)

    def test_blocks_without_pages(self):
        """They get pages as they are used, not before."""
        for refused in sample("bare"):
            with self.subTest(refused):
                self.turn("fill", "60", "bare", "300", "count", "away", "primary", "there", "use",
                          "verify", "there", refused=refused)
        path = os.path.join(self.folder, "bare.json")
        self.run_ebb(turning(), "bare", "600", "primary",
                     options=["--budget", "40M", "--summary-json", path])
        with open(path, encoding="utf-8") as file:
            self.assertLess(json.load(file)["peak_rss_bytes"], 200 * MIB)

    def test_contexts_of_the_programs_own(self):
        """Page-locked memory never moves. The engine has nothing to do here, which is told."""
        for refused in sample("own"):
            with self.subTest(refused):
                done, summary = self.turn("fill", "100", "away", "own", "there", "register",
                                          "verify", "fill", "60", "there", refused=refused)
                self.assertNotIn("devices", summary)
                self.assertIn(b"ebb: run: the program used the GPU, but in no way that Ebb manages",
                              done.stderr)

    def test_its_budget_is_that_of_the_device(self):
        """A share of the host's memory is asked for no more, so nobody waits for its iterations."""
        done, _ = self.figures(turning(), "fill", "100", "primary", "use", "nap", "1000",
                               options=["--tune", "budget_open_ns=300000000"], budget="60%")
        self.assertNotIn(b"no iteration has been found", done.stderr)

    def test_parts_of_a_device(self):
        """A green context makes the primary one, without the call for that."""
        done, summary = self.turn("fill", "100", "away", "green", "there", "verify", "primary",
                                  "use", "verify")
        self.assertEqual(4 * MIB, summary["devices"][0]["peak_resident_bytes"], done.stderr)

    def test_beside_threads_that_work(self):
        for refused in sample("threads"):
            for nap in ("0", "30", "150") if WHOLE else ("0", "150"):
                with self.subTest(refused, nap=nap):
                    self.turn("fill", "60", "churn", "3", "nap", nap, "primary", "there", "use",
                              "nap", "50", "there", "stop", "verify", refused=refused)

    def test_asynchronous_calls(self):
        """Refused where the host's device cannot see their buffers, until nothing is managed."""
        for refused in sample("asynchronous"):
            before = "refused" if refused else "allowed"
            with self.subTest(refused):
                self.turn("fill", "60", before, "primary", "allowed", refused=refused)

    def test_forks_before(self):
        """The child uses the device. The parent's memory is managed as before."""
        for refused in sample("fork before"):
            with self.subTest(refused):
                _, summary = self.turn("fill", "100", "fork", "away", "primary", "there", "use",
                                       "fill", "60", "there", "verify", "parent", "away",
                                       "verify", "fill", "60", "away", "verify", refused=refused)
                self.assertGreater(summary["host"]["store_peak_bytes"], 100 * MIB)
                self.assertEqual(1, len(summary["devices"]))

    def test_forks_behind(self):
        """As children that load data: they are as little managed as their parent."""
        for refused in sample("fork behind"):
            with self.subTest(refused):
                _, summary = self.turn("fill", "100", "primary", "use", "fork", "there", "verify",
                                       "change", "verify", "half", "fill", "60", "verify", "there",
                                       "parent", "there", "verify", "fork", "verify", "parent",
                                       "use", refused=refused)
                self.assertEqual(4 * MIB, summary["peak_resident_bytes"])
                self.assertFalse(summary["budget_exceeded"])

    def test_forks_beside_threads(self):
        for refused in sample("fork beside"):
            with self.subTest(refused):
                self.turn("fill", "60", "churn", "2", "primary", "fork", "verify", "there",
                          "parent", "stop", "verify", "use", refused=refused)

    def test_nothing_was_managed_before(self):
        """The device is used first. No runtime of the host starts."""
        _, summary = self.turn("primary", "fill", "100", "there", "use", "verify", "fork",
                               "verify", "fill", "30", "there", "parent")
        self.assertNotIn("host", summary)
        self.assertEqual(4 * MIB, summary["peak_resident_bytes"])


    def test_a_library_that_starts_before(self):
        """It makes a context before the library for host memory has joined the run."""
        early = compile_c("early.so", EARLY, ["-shared", "-fPIC"])
        script = 'LD_PRELOAD="$LD_PRELOAD:$1" && shift && exec "$@"'
        done, summary = self.figures("sh", "-c", script, "sh", early, turning(), "fill", "100",
                                     "there", "verify")
        self.assertNotIn("host", summary)
        self.assertIn(b"ebb: run: the program used the GPU", done.stderr)


class Trees(Auto):
    """Several processes, each of which decides for itself."""

    def test_one_of_each(self):
        """A script prepares on the host, then trains on the device."""
        words = [cycle(), *CYCLE_ARGS]
        plain = [self.run_command(one).stdout for one in (words, TRAIN)]
        script = f"{' '.join(words)} && {' '.join(TRAIN)}"
        done, summary = self.figures("sh", "-c", script, budget="60M")
        self.assertEqual(b"".join(plain), done.stdout)
        self.assertLessEqual(summary["host"]["peak_resident_bytes"], 60 * MIB)
        self.assertGreater(summary["host"]["peak_resident_bytes"], 30 * MIB)
        self.assertLessEqual(summary["devices"][0]["peak_resident_bytes"], 60 * MIB)
        self.assertGreater(summary["devices"][0]["peak_resident_bytes"], 50 * MIB)
        self.assertIn(b"ebb: device cuda: Fake CUDA device", done.stderr)
        self.assertIn(b"ebb: host memory, where no device is used: budget 60.00 MiB", done.stderr)

    def test_at_the_same_time(self):
        """What a program of the device holds on the host takes nothing from the others."""
        words = f"{cycle()} {' '.join(HOST)}"
        device = f"{turning()} fill 30 primary fill 170 there use nap 1500 verify there"
        done, summary = self.figures("sh", "-c", f"{device} & {words}; wait $!", budget="38M")
        self.assertEqual(20, summary["iterations"])
        self.assertGreater(summary["planned_iterations"], 0)
        self.assertNotEqual("cuda", summary["device"])
        self.assertLessEqual(summary["peak_resident_bytes"], 38 * MIB)
        self.assertFalse(summary["budget_exceeded"])
        self.assertEqual(4 * MIB, summary["devices"][0]["peak_resident_bytes"])
        self.assertIn(b"good", done.stdout)

    def test_one_limit_of_host_memory(self):
        """Two processes of a GPU share --store-limit. What one has taken is there for others when it
        has ended."""
        oom = f"{FAKE}/cuda_oom --beyond --piece={2 * MIB} --most=20"
        script = (f"mkfifo go; {oom} --hold <go >held & exec 3>go; "
                  "until grep -q holds held; do sleep 0.05; done; "
                  f"{oom}; exec 3>&-; wait; cat held; {oom}")
        for backing in ("managed", "vmm-trusting"):
            with self.subTest(backing):
                folder = os.path.join(self.tmp, backing)
                os.mkdir(folder)
                done, summary = self.figures(
                    "sh", "-c", f"cd {folder} && {script}", budget="24M",
                    options=["--store-limit", "40M", "--cuda-backing", backing])
                told = done.stdout.decode().splitlines()
                self.assertEqual(["holds"] + 2 * ["20 allocations"], told[1:], done.stderr)
                self.assertLess(int(told[0].split()[0]), 20)
                self.assertIn(b"budget of host memory is full", done.stderr)
                self.assertLessEqual(summary["devices"][0]["peak_resident_bytes"], 24 * MIB)
                shutil.rmtree(folder)

    def test_beside_an_idle_process(self):
        """What it holds is there for a process that needs it."""
        oom = f"{FAKE}/cuda_oom --piece={2 * MIB} --most=20 --beyond --hold"
        train = f"{FAKE}/cuda_train --no-serial --layers=3 --bytes={2 * MIB} --iterations=4 --every=64"
        report = os.path.join(self.tmp, "report")
        script = (f"mkfifo go; {oom} <go >held & exec 3>go; "
                  "until grep -q holds held; do sleep 0.05; done; "
                  f"FAKECUDA_REPORT={report} {train}; exec 3>&-; wait; cat held")
        done, summary = self.figures("sh", "-c", f"cd {self.tmp} && {script}", budget="40M")
        self.assertIn(b"20 allocations", done.stdout)
        self.assertNotIn(b"more than the GPU", done.stderr)
        with open(report, encoding="utf-8") as file:
            told = json.load(file)
        self.assertEqual(0, told["violations"])
        self.assertGreater(told["devices"][0]["most_bytes"], 8 * MIB)
        self.assertLessEqual(summary["devices"][0]["peak_resident_bytes"], 40 * MIB)
        for name in "go", "held", "report":
            os.unlink(os.path.join(self.tmp, name))

    def test_strict(self):
        done, _ = self.figures("sh", "-c", " ".join(TRAIN), options=["--strict"], budget="60M")
        self.assertEqual(0, done.returncode)
        done = self.run_ebb(turning(), "fill", "100", "primary", "use", "verify",
                            options=["--strict", "--budget", "40M"])
        self.assertEqual((0, b"good\n"), (done.returncode, done.stdout), done.stderr)


if __name__ == "__main__":
    if not os.path.exists(DRIVER):
        print("skipped: needs the fake driver, which is for x86-64 only")
        sys.exit(77)
    main()
