#!/usr/bin/python3
"""The plan cache: the second run of a program begins with the results of the first.

Other files in the cache have no effect, except on time.
"""
import json
import os
import shutil
import signal
import time

import launching
from launching import EBB, MIB, SOURCE, compile_c

# 4 MiB in 6 ms is 0.7 GB/s. A disk of that speed fetches each block in time.
ARGS = ["--iterations", "12", "--layers", "12", "--persistent", "8M", "--wait", "6"]
# For tests of whether a profile is written and used. The pace does not matter. 18 iterations of 72 ms
# leave the parent time for planning beside other tests.
QUICK = ["--iterations", "18", *ARGS[2:-1], "3"]

DIVERGES = """
import os, time
M = 1 << 20
weights = bytearray(8 * M)
for _ in range(16):
    kept = []
    for layer in range(1, 13):
        kept.append(bytearray(b"x") * (layer * M // 2 + M))
        time.sleep(0.005)
    odd = bytearray(b"x") * (int(os.environ["ODD"]) * M)
    del odd
    while kept:
        kept.pop()[0] = 1
        time.sleep(0.005)
    weights[0] += 1
print("ok")
"""


# A step is a forward and a backward pass over layers. At the end of the first one an optimizer makes
# its states, which all steps change.
MAKES_STATES = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum { LAYERS = 16, BYTES = 2 << 20, STATES = 4 };
static unsigned char *states[STATES], *layers[LAYERS];
int main(void)
{
    unsigned long sum = 0;
    for (int step = 0; step < 10; step++) {
        for (int i = 0; i < LAYERS; i++) {
            memset(layers[i] = malloc(BYTES + i * 65536), step + i, BYTES);
            usleep(3000);
        }
        for (int i = LAYERS; i-- > 0; free(layers[i])) {
            unsigned char *gradient = malloc(BYTES / 2 + i * 65536);
            memset(gradient, layers[i][BYTES - 1], BYTES / 2);
            sum += gradient[i];
            free(gradient);
            usleep(3000);
        }
        for (int i = 0; i < STATES; i++) {
            if (step == 0)
                states[i] = calloc(1, BYTES / 2);
            unsigned char *root = malloc(BYTES / 4);
            memset(root, (int)sum, BYTES / 4);
            states[i][step] = root[step];
            sum += states[i][0];
            free(root);
        }
    }
    printf("checksum %lu\\n", sum);
    return 0;
}
"""


# Each plan comes a second late, as from a parent that gets no processor.
LATE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>
#include <time.h>
ssize_t sendmsg(int socket, const struct msghdr *message, int flags)
{
    ssize_t (*next)(int, const struct msghdr *, int) =
        (ssize_t (*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
    const struct iovec *part = message->msg_iov;
    enum { SCRIPT = 3 }; /* EBB_MESSAGE_SCRIPT */
    if (part->iov_len >= 8 && ((const unsigned *)part->iov_base)[1] == SCRIPT &&
        message->msg_controllen)
        nanosleep(&(struct timespec){.tv_sec = 1}, 0);
    return next(socket, message, flags);
}
"""


def program(name, block):
    """tests/programs/cycle.c, with blocks of `block` unless the arguments give another size."""
    with open(os.path.join(SOURCE, "tests", "programs", "cycle.c"), encoding="utf-8") as file:
        text = file.read()
    changed = text.replace(".block_bytes = (size_t)8 << 20", f".block_bytes = {block}")
    assert changed != text
    return compile_c(f"{name}-{block}", changed)


class PlanCache(launching.Launch):
    def setUp(self):
        super().setUp()
        self.program = os.path.join(self.folder, "cycle")
        self.use(QUICK)

    def use(self, arguments):
        """From this call on, the program gets these arguments, and has blocks of 4 MiB."""
        self.arguments = arguments
        self.become(4 << 20)

    def tearDown(self):
        # Only profiles may be left.
        for folder, _, names in os.walk(self.cache):
            for name in names:
                if name.endswith(".profile"):
                    os.unlink(os.path.join(folder, name))
        super().tearDown()

    def become(self, block):
        """From this call on, the program has blocks of this size."""
        if os.path.exists(self.program):
            os.unlink(self.program)
        original = program("cycle", block)
        shutil.copy2(original, self.program)
        self.expected = self.plain(original, *self.arguments).stdout
        self.assertIn(b"checksum", self.expected)

    def profiles(self):
        folder = os.path.join(self.cache, "ebb")
        return [os.path.join(folder, name) for name in os.listdir(folder)] \
            if os.path.isdir(folder) else []

    def command(self, *options):
        return [EBB, "run", "--store", self.store, *options, "--", self.program,
                *self.arguments]

    def run_once(self, *options, budget="60%"):
        path = os.path.join(self.folder, "summary.json")
        done = self.run_command(self.command("--budget", budget, "--summary-json", path, *options))
        self.assertEqual((0, self.expected, b""), (done.returncode, done.stdout, done.stderr))
        with open(path, encoding="utf-8") as file:
            summary = json.load(file)
        os.unlink(path)
        self.assertLessEqual(summary["peak_resident_bytes"], summary["budget_bytes"])
        self.assertFalse(summary["budget_exceeded"])
        self.assertEqual(summary["plan_cache"] == "dropped", bool(summary["plan_cache_dropped"]))
        return summary

    def used_once(self, *options):
        """A run that must use its profile."""
        summary = self.run_once(*options)
        self.assertEqual("used", summary["plan_cache"], summary)
        return summary

    def test_second_run_starts_planned(self):
        self.use(ARGS)
        first = self.run_once()
        self.assertEqual("none", first["plan_cache"])
        self.assertGreater(first["budget_from_iteration"], 0)
        self.assertEqual(1, len(self.profiles()))
        for budget in ("60%", "30M"):
            second = self.run_once(budget=budget)
            self.assertEqual("used", second["plan_cache"], second)
            self.assertLess(second["planned_from_iteration"], first["planned_from_iteration"])
            self.assertEqual(0, second["budget_from_iteration"])
            self.assertEqual(0, second["learning_peak_bytes"])
            self.assertGreater(second["moved_out_bytes"], 0)
            self.assertEqual(0, second["demand_faults_planned_median"])
            if budget == "60%":
                self.assertAlmostEqual(0.6, second["budget_bytes"] / first["unmanaged_peak_bytes"],
                                       delta=0.001)
        self.assertEqual(1, len(self.profiles()))

    def test_the_first_step_is_planned_too(self):
        """In the second run, though the first step makes what no other does."""
        self.program = compile_c("makes_states", MAKES_STATES)
        self.arguments = []
        self.expected = self.plain(self.program).stdout
        first = self.run_once(budget="28M")
        self.assertGreater(first["planned_from_iteration"], 0)
        second = self.run_once(budget="28M")
        self.assertEqual(("used", 0),
                         (second["plan_cache"], second["planned_from_iteration"]))

    def test_summary_says_so(self):
        self.use(ARGS)
        self.run_once()
        done = self.run_command(self.command("--budget", "60%", "--summary=always"))
        self.assertRegex(done.stderr, rb"planned from [0-5] \(from the plan cache\)")

    def test_changed_program(self):
        """Another program runs under the same name. Its events show that the profile is wrong."""
        self.use(ARGS)
        for before, after in ((4 << 20, 6 << 20), (6 << 20, 3 << 20)):
            self.become(before)
            for profile in self.profiles():
                os.unlink(profile)
            known = self.run_once()
            self.become(after)
            changed = self.run_once()
            self.assertEqual("dropped", changed["plan_cache"])
            self.assertIn(changed["plan_cache_dropped"],
                          ("the program takes more memory", "nothing was replayed"))
            self.assertGreater(changed["planned_iterations"], 0)
            self.assertGreater(changed["budget_from_iteration"], 0)
            self.assertGreater(abs(changed["budget_bytes"] - known["budget_bytes"]), 2 * MIB)
        self.used_once()

    def test_a_program_that_has_grown(self):
        """One block is more than a share of the peak in the profile. It is no excess over the budget
        that comes into force then."""
        self.use(ARGS)
        self.become(3 << 20)
        self.run_once()
        self.become(16 << 20)
        self.assertEqual("dropped", self.run_once("--strict")["plan_cache"])

    def test_other_arguments(self):
        """Another number of iterations: the profile is used, and left under the new arguments, too."""
        self.use(ARGS)
        self.run_once()
        for iterations, runs in (("9", 2), ("16", 1)):
            self.use(["--iterations", iterations, *ARGS[2:]])
            for _ in range(runs):
                other = self.run_once()
                self.assertEqual("used", other["plan_cache"], other)
                self.assertLessEqual(other["planned_from_iteration"], 2)
                self.assertEqual(int(iterations), other["iterations"])
        self.assertEqual(3, len(self.profiles()))

    def test_a_plan_that_comes_late(self):
        """What other arguments have done before their plan came does not count against it."""
        self.run_once()
        self.use(["--iterations", "30", *QUICK[2:]])
        self.env["LD_PRELOAD"] = compile_c("late", LATE, options=["-shared", "-fPIC"])
        self.used_once()

    def test_other_batch(self):
        """Larger or smaller blocks by other arguments: the plan is scaled, and planned anew."""
        long = ["--iterations", "16", *ARGS[2:]]
        self.use(long)
        self.run_once()
        for block, runs in (("6M", 2), ("3M", 1), ("5M", 1)):
            self.use([*long, "--block", block])
            for _ in range(runs):
                other = self.run_once()
                self.assertEqual("used", other["plan_cache"], other)
                self.assertLessEqual(other["planned_from_iteration"], 6)
        self.assertEqual(4, len(self.profiles()))

    def test_ended_early(self):
        """What is killed after it was planned has left a profile."""
        for number in (signal.SIGKILL, signal.SIGINT):
            self.arguments = ["--iterations", "2000", *ARGS[2:]]
            process = launching.subprocess.Popen(
                self.command("--budget", "60%", "--summary=never"), env=self.env,
                stdout=launching.subprocess.DEVNULL, start_new_session=True)
            end = time.monotonic() + launching.TIMEOUT
            while not any(path.endswith(".profile") for path in self.profiles()):
                self.assertLess(time.monotonic(), end, "no profile")
                time.sleep(0.05)
            os.killpg(process.pid, number)
            process.wait()
            self.wait_for_none(launching.TIMEOUT)
            self.use(ARGS)
            self.used_once()
            for profile in self.profiles():
                os.unlink(profile)

    def test_divergence(self):
        """Most of an iteration is unchanged. Replay begins and ends in each iteration."""
        program = [launching.PYTHON, "-c", DIVERGES]
        command = self.command("--budget", "60%")
        command[command.index("--") + 1:] = program
        for odd, use in (("3", "none"), ("5", "dropped"), ("5", "used")):
            self.env["ODD"] = odd
            path = os.path.join(self.folder, "diverged.json")
            done = self.run_command([*command[:2], "--summary-json", path, *command[2:]])
            self.assertEqual((0, b"ok\n"), (done.returncode, done.stdout), done.stderr)
            with open(path, encoding="utf-8") as file:
                summary = json.load(file)
            self.assertEqual(use, summary["plan_cache"], odd)
            self.assertGreater(summary["planned_iterations"], 0)

    def test_damaged(self):
        self.run_once()
        (path,) = self.profiles()
        with open(path, "rb") as file:
            good = file.read()
        other = bytes(good[:40]) + bytes([good[40] ^ 1]) + good[41:]
        for damaged in (b"", good[:-1], other):  # more: tests/fuzz_profile.c
            with open(path, "wb") as file:
                file.write(damaged)
            self.assertEqual("none", self.run_once()["plan_cache"])
            with open(path, "rb") as file:
                self.assertGreater(len(file.read()), 64, "it was not written anew")
        self.used_once()

    def test_of_another_program(self):
        self.run_once()
        (mine,) = self.profiles()
        done = self.run_command([*self.command("--budget", "60%"), "--realloc", "--iterations",
                                 "40"])  # beside other tests a plan takes many
        self.assertEqual(0, done.returncode)
        (theirs,) = [path for path in self.profiles() if path != mine]
        os.replace(theirs, mine)
        self.assertEqual("none", self.run_once()["plan_cache"])
        self.used_once()

    def test_two_at_once(self):
        for expected in ("none", "used"):
            running = []
            for i in range(2):
                path = os.path.join(self.folder, f"summary{i}.json")
                command = self.command("--budget", "60%", "--summary-json", path)
                running.append((path, launching.subprocess.Popen(
                    command, env=self.env, stdout=launching.subprocess.PIPE,
                    stderr=launching.subprocess.PIPE)))
            for path, process in running:
                out, err = process.communicate(timeout=launching.TIMEOUT)
                self.assertEqual((0, self.expected, b""), (process.returncode, out, err))
                with open(path, encoding="utf-8") as file:
                    summary = json.load(file)
                self.assertEqual(expected, summary["plan_cache"], summary)
                os.unlink(path)
            self.assertEqual(1, len(self.profiles()))

    def test_no_cache(self):
        self.assertEqual("off", self.run_once("--no-cache")["plan_cache"])
        self.assertEqual([], self.profiles())
        self.run_once()
        before = [(path, os.stat(path).st_mtime_ns) for path in self.profiles()]
        summary = self.run_once("--no-cache")
        self.assertEqual("off", summary["plan_cache"])
        self.assertGreater(summary["planned_from_iteration"], 0)
        self.assertEqual(before, [(path, os.stat(path).st_mtime_ns) for path in self.profiles()])

    def test_nowhere_to_write(self):
        """Without a usable folder there is no cache, and no message."""
        blocked = os.path.join(self.folder, "blocked")
        with open(blocked, "w", encoding="utf-8"):
            pass
        for place in (blocked, "/proc/self/none", "relative/path"):
            self.env["XDG_CACHE_HOME"] = place
            self.env["HOME"] = blocked
            self.assertIn(self.run_once()["plan_cache"], ("none", "off"))
        os.unlink(blocked)

    def test_home(self):
        """Without XDG_CACHE_HOME, the cache is in ~/.cache."""
        del self.env["XDG_CACHE_HOME"]
        self.env["HOME"] = self.cache
        self.run_once()
        folder = os.path.join(self.cache, ".cache", "ebb")
        self.assertEqual(1, len(os.listdir(folder)))
        self.used_once()

    def test_killed(self):
        """A killed run leaves a whole profile: the one that was there, or one of its own."""
        self.run_once()
        (path,) = self.profiles()
        for seconds in (0.2, 1):
            process = launching.subprocess.Popen(self.command("--budget", "60%"), env=self.env,
                                                 stdout=launching.subprocess.DEVNULL)
            time.sleep(seconds)
            process.send_signal(signal.SIGKILL)
            process.wait()
            self.wait_for_none(launching.TIMEOUT)
            self.assertEqual([path], self.profiles())
        self.used_once()

    def test_fork_and_threads(self):
        """A forked child does not count as a run of the program."""
        for args in (["--fork"], ["--realloc", "--io"]):
            command = [*self.command("--budget", "30M"), *args]
            plain = self.plain(program("cycle", 4 << 20), *self.arguments, *args).stdout
            for _ in range(2):
                done = self.run_command(command)
                self.assertEqual((0, plain, b""), (done.returncode, done.stdout, done.stderr))


if __name__ == "__main__":
    launching.main()
