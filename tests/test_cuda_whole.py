#!/usr/bin/python3
"""The library in front of the CUDA driver with its engine, without a parent. Programs of the driver
API compute what they compute without it, within a budget, with evictions at random.

The programs are those of tests/fakecuda/programs. The fake driver counts more bytes on the device
than the budget as an error, and so each access to memory that is not there.

EBB_CUDA_SEEDS is the number of schedules for each program and backing (default 3), EBB_CUDA_FIRST
the first one (1). Programs that take long get a part of them, but with EBB_CUDA_ALL=1 all get as
many. EBB_CUDA_JOBS run at a time (1). EBB_CUDA_BACKINGS has the backings, separated by
spaces (all three). How many schedules passed is printed. A failure prints the command that repeats
it. A seed does not fix when threads of the host run, so that may need some repetitions.
"""
import concurrent.futures
import itertools
import json
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import unittest

from devices import WHOLE

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("EBB_BIN_DIR") or os.path.join(SOURCE, "build", "dev", "bin")
FAKE = os.path.abspath(os.path.join(os.path.dirname(BIN), "tests", "fakecuda"))
LIBRARY = os.path.abspath(os.path.join(BIN, "libebb_cuda_alone.so"))
SEEDS = int(os.environ.get("EBB_CUDA_SEEDS", "3"))
FIRST = int(os.environ.get("EBB_CUDA_FIRST", "1"))
JOBS = int(os.environ.get("EBB_CUDA_JOBS", "1"))
BACKINGS = os.environ.get("EBB_CUDA_BACKINGS", "managed vmm-host vmm-trusting").split()
# For kernels that find memory by pointers in device memory: not what vmm-trusting is for.
UNNAMED = [name for name in BACKINGS if name != "vmm-trusting"]
MOST_SHOWN = 10
PATIENCE_S = 120
MIB = 1 << 20
# Blocks of vmm-host leave only if no kernel runs. With several threads a new one may have no room.
AWAY = ("ebb: the GPU's budget is full of blocks that cannot leave now: a new one begins in host "
        "memory, which is slower\n")
FULL = "ebb: the budget of host memory is full: nothing more is evicted from the GPU\n"
# Smaller blocks never move. Of these, kernels use the first bytes, or the last ones.
ROOM = f"--room={MIB}"
SHORT = ["--iterations=2", "--layers=3", "--bytes=16384", ROOM]
# Each page of a block is computed, but not each byte.
EVERY = ["--every=16"]
SPARSE = ["--iterations=2", "--layers=3", "--bytes=1100000", *EVERY]
LARGE = ["--bytes=3000000", "--layers=6"]
if os.environ.get("EBB_SANITIZE") or (SEEDS < 10 and not WHOLE):  # all take several times as long
    LARGE += EVERY
# Blocks that move, and more of them than fit.
FREED = ["--words=400000"] if WHOLE else ["--words=270000", "--others=12"]
TRAININGS = [SHORT, ["--streams=4", "--async-alloc", *SHORT], ["--hidden", *SHORT], SPARSE]
GRAPHS = ["--graphs", *SHORT]
# A new block waits for a quarter of it until others leave, before it begins in host memory. Beside
# other tests, threads that keep them may rest for long.
PATIENT = {"EBB_ALONE_TUNING": "cuda_patience_ns=60s"}
GLOBALS = 512  # bytes of a module, which are none of the budget


def part(divisor):
    """The schedules of a program that takes long."""
    return SEEDS if os.environ.get("EBB_CUDA_ALL") else 1 + SEEDS // divisor


def budget(mib):
    return {"EBB_ALONE_BUDGET": mib * MIB, "FAKECUDA_BUDGET": mib * MIB + GLOBALS}


def host(mib):
    """Of host memory. The engine's own pinned memory is in it."""
    return {"EBB_ALONE_HOST": mib * MIB, "FAKECUDA_PINNED": mib * MIB}


def full(command):
    return [os.path.join(FAKE, command[0]), *command[1:]]


def run(command, **variables):
    env = {name: str(value) for name, value in variables.items()}
    return subprocess.run(full(command), env=env, timeout=PATIENCE_S, capture_output=True,
                          text=True, check=False)


def preloaded(variables):
    return {"LD_PRELOAD": LIBRARY, "EBB_CUDA_DRIVER": os.path.join(FAKE, "libfakecuda.so"),
            **variables}


def through(command, **variables):
    return run(command, **preloaded(variables))


def repeat(command, variables):
    """The line that runs the same again."""
    settings = [f"{name}={value}" for name, value in preloaded(variables).items()
                if name != "EBB_ALONE_REPORT"]
    return shlex.join(["env", "-i", *settings, *full(command)])


def wrong(command, expected, variables):
    """What is wrong with this run, with the line that repeats it; None: nothing."""
    try:
        done = through(command, **variables)
    except subprocess.TimeoutExpired:
        return f"{repeat(command, variables)}\n    no end within {PATIENCE_S} s"
    if variables["EBB_ALONE_BACKING"] == "vmm-host":
        done.stderr = done.stderr.replace(AWAY, "")
    if "EBB_ALONE_HOST" in variables:
        done.stderr = done.stderr.replace(FULL, "")
    if (done.stdout, done.returncode, done.stderr) == (expected, 0, ""):
        return None
    return (f"{repeat(command, variables)}\n    exit code {done.returncode}, output "
            f"{done.stdout!r}, expected {expected!r}, errors {done.stderr[:2000]!r}")


def children_s():
    """Seconds of CPUs that processes took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def failures(command, expected, seeds, variables):
    """Of these schedules, JOBS at a time. Stops when there are enough to look at."""
    found, seeds = [], iter(seeds)
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        while len(found) < MOST_SHOWN:
            part = list(itertools.islice(seeds, 50 * JOBS))
            if not part:
                break
            found += filter(None, pool.map(lambda seed: wrong(
                [word.format(seed=seed) for word in command], expected,
                {"FAKECUDA_SEED": seed, "EBB_ALONE_CHAOS": 7 * seed, **variables}), part))
    return found


def evicted_bytes(path):
    """Of all runs, as tests/cuda_alone.c reports them, the largest excess over the budget, and most
    bytes in host memory."""
    with open(path, encoding="utf-8") as file:
        devices = [[int(word) for word in line.split()] for line in file]
    return (sum(device[0] for device in devices), max(device[3] for device in devices),
            max(device[4] for device in devices))


class Schedules(unittest.TestCase):
    """Each program, on each backing, under many schedules. {seed} in a command is the seed. moves:
    are there evictions? None: perhaps."""

    def same(self, command, backings=None, seeds=SEEDS, moves=True, **variables):
        plain = run([word.format(seed=1) for word in command], LD_LIBRARY_PATH=FAKE,
                    FAKECUDA_DEVICES=variables.get("FAKECUDA_DEVICES", 1))
        self.assertEqual((0, ""), (plain.returncode, plain.stderr))
        if command[0] == "cuda_train":  # it need not compute twice what is compared here
            self.assertTrue(plain.stdout)
            command = [*command, "--no-serial"]
        for backing in BACKINGS if backings is None else backings:
            with self.subTest(command=shlex.join(command), backing=backing, **variables):
                self.many(command, plain.stdout, seeds, moves,
                          {"EBB_ALONE_BACKING": backing, **variables})

    def many(self, command, expected, seeds, moves, variables):
        before = children_s()
        with tempfile.TemporaryDirectory() as folder:
            report = os.path.join(folder, "report")
            found = failures(command, expected, range(FIRST, FIRST + seeds),
                             {**variables, "EBB_ALONE_REPORT": report})
            if found:
                self.fail("\n" + "\n".join(found[:MOST_SHOWN]))
            out, over, most_host = evicted_bytes(report)
        if moves is not None:
            self.assertEqual(moves and variables["EBB_ALONE_BACKING"] != "native", out > 0,
                             "evictions")
        self.assertEqual(0, over)
        self.assertLessEqual(most_host, variables.get("EBB_ALONE_HOST", most_host))
        settings = [f"{name}={value}" for name, value in variables.items()]
        print(f"{seeds} schedules passed, {1000 * (children_s() - before) / seeds:.0f} ms of a CPU "
              f"and {out / seeds / MIB:.0f} MiB evicted each:", *settings, shlex.join(command),
              flush=True)

    def trainings(self, trainings, **variables):
        for options in trainings:
            self.same(["cuda_train", *options], UNNAMED if "--hidden" in options else None,
                      **variables)

    def test_without_a_budget(self):
        self.trainings([*TRAININGS, GRAPHS])

    def test_within_a_budget(self):
        self.trainings(TRAININGS, **budget(12))  # a backward pass uses 10
        self.trainings([GRAPHS], **budget(20))  # what a graph uses does not move: 12

    def test_whole_blocks(self):
        """Blocks of several units, with many schedules in all bytes, and three threads with blocks
        of one unit. They take long, so that there are fewer runs."""
        self.same(["cuda_train", *LARGE], seeds=part(100), **budget(24))
        self.same(["cuda_train", "--threads=3", *SPARSE], seeds=part(20),
                  **budget(12), **PATIENT)

    def test_host_budget(self):
        """Device and host have little more than what is live. An eviction waits until what comes
        before it has left host memory, and no byte is lost."""
        self.same(["cuda_train", *LARGE, *EVERY], seeds=1 + SEEDS // 20, **budget(24), **host(42))
        self.same(["cuda_train", *SHORT], seeds=1 + SEEDS // 2, **budget(12), **host(13))
        self.same(["cuda_torture", "--operations=120", "--seed={seed}", ROOM], **budget(8),
                  EBB_ALONE_HOST=9 * MIB)  # it has pinned memory of its own

    def test_nothing_moves(self):
        self.same(["cuda_train", *SHORT], ["native"])

    def test_torture(self):
        """Other operations with each seed, in all bytes as in a serial run."""
        self.same(["cuda_torture", "--operations=120", "--seed={seed}", ROOM], **budget(8))

    def test_ranks(self):
        """Kernels that wait for each other. A transfer that waits for them is given up."""
        moves = SEEDS >= 6 or None  # in few schedules no block may find a moment to leave
        self.same(["cuda_ranks", ROOM], moves=moves, EBB_ALONE_TUNING="cuda_patience_ns=30ms")
        # Longer than between attempts to find the device quiet: these are no sign of progress.
        self.same(["cuda_ranks", ROOM], ["vmm-host"] if "vmm-host" in BACKINGS else [],
                  1 + SEEDS // 100, None, EBB_ALONE_TUNING="cuda_patience_ns=1500ms")

    def test_processes(self):
        """Gradients are added by kernels of two processes that wait for each other, and for a
        proxy. Its copies must not wait for the kernel that waits for them."""
        variables = {"FAKECUDA_DEVICES": 2, "EBB_ALONE_TUNING": "cuda_patience_ns=30ms"}
        for options in [], ["--copies"]:
            self.same(["cuda_exchange", ROOM, *options], **variables, **budget(16))

    def test_fork(self):
        self.same(["cuda_fork", ROOM])

    def test_graphs(self):
        """What a capture forbids is refused as by the driver alone. Small blocks do not move."""
        self.same(["cuda_graphs"], moves=False)

    def test_freed_blocks_of_graphs(self):
        """A graph never writes to a block that came after those that it uses."""
        for options, moves in ([["--words=2000"], False],
                               [FREED, True]):
            for backing in BACKINGS:
                with self.subTest(options=options, backing=backing):
                    self.many(["cuda_captured", *options], "", part(20), moves,
                              {"EBB_ALONE_BACKING": backing, **budget(20)})

    def test_graphs_of_graphs(self):
        """What belongs to a graph ends with it, and its blocks with both."""
        for kind in "body", "moved", "node":
            for backing in BACKINGS:
                with self.subTest(kind=kind, backing=backing):
                    self.many(["cuda_bodies", kind], "good\n", part(20), None,
                              {"EBB_ALONE_BACKING": backing, **budget(20)})

    def test_kernels_that_name_nothing(self):
        """A block that is in use does not move, although nobody names it."""
        for options in [], ["--graph"]:
            self.same(["cuda_unnamed", *options], UNNAMED, part(20), **budget(8))
            # A free waits for it, as the driver's.
            self.same(["cuda_unnamed", "--free", *options], UNNAMED, part(20), None, **budget(20))

    def test_contexts(self):
        """Contexts of the program's own, and what ends with a context: streams, captures, pools."""
        for case in ("blocking", "other", "default", "thread", "waited", "beside", "destroyed",
                     "captured", "reset", "green", "unseen", "pool", "freed", "meets", "word",
                     "timed", "ends 10"):
            for backing in (name for name in BACKINGS if name != "native"):
                with self.subTest(case=case, backing=backing):
                    self.many(["cuda_contexts", *case.split()], "good\n", part(30), None,
                              {"EBB_ALONE_BACKING": backing, "FAKECUDA_LAZY_US": 2000, **budget(8),
                               **host(64)})

    def test_neighbours(self):
        """A second device's default stream and pools, and its end, beside blocks of the first."""
        for case in "copied", "read", "pooled", "reset":
            self.same(["cuda_neighbour", case], seeds=part(30), moves=None, FAKECUDA_DEVICES=2,
                      FAKECUDA_LAZY_US=2000, FAKECUDA_RACES=1, **budget(8))

    def test_threads(self):
        """Three trainings at a time, each on a stream of its own."""
        self.same(["cuda_train", "--threads=3", *SHORT], **PATIENT)
        # One backward pass at a time fills the budget. The other threads allocate all the same.
        self.same(["cuda_train", "--threads=3", *SHORT], **budget(12), **PATIENT)

    def test_mappings_of_the_program(self):
        """What it maps itself is the driver's."""
        self.same(["cuda_flip"], moves=False)

    def test_more_than_the_budget(self):
        """Twice as much as the budget is there, and each word is right."""
        for backing in BACKINGS:
            self.many(["cuda_oom", "--most=24", "--beyond"], "24 allocations\n", part(20),
                      True, {"EBB_ALONE_BACKING": backing, **budget(12)})

    def test_faults(self):
        """Calls of the engine that fail now and then are repeated, or another way is taken."""
        for faults, backings in (("prefetch:10%", ["managed"]),
                                 ("create:10%,map:10%", ["vmm-trusting"]), ("create:10%", UNNAMED),
                                 ("copy-late:5%,alloc:5%", BACKINGS)):
            self.same(["cuda_train", *SHORT], [name for name in backings if name in BACKINGS],
                      part(2), FAKECUDA_FAULTS=faults, **budget(12))

    def test_devices(self):
        """Two devices, each with an engine, a budget of its own, and 18 MiB of blocks."""
        self.same(["cuda_devices", *([] if WHOLE else ["--words=270000"])], seeds=part(20), FAKECUDA_DEVICES=2,
                  **budget(12), **PATIENT)

    def test_copies_between_devices(self):
        """Each device has 6 blocks of up to 3 MiB. One block of each is the program's own."""
        few = ["cuda_peers", "--seed={seed}", *([] if WHOLE else ["--operations=30"])]
        devices = {"FAKECUDA_RACES": 1, "EBB_ALONE_BUDGET": 12 * MIB}
        self.same(few, seeds=part(6), FAKECUDA_DEVICES=2, FAKECUDA_BUDGET=12 * MIB + GLOBALS,
                  **devices, **PATIENT)
        self.same([*few, "--own"], seeds=part(6), FAKECUDA_DEVICES=3,
                  FAKECUDA_BUDGET=14 * MIB + GLOBALS, **devices, **PATIENT)
        self.same([*few, "--own"], ["native"], FAKECUDA_DEVICES=2)

    def test_shared_blocks(self):
        """Another process opens blocks of one size. They are the driver's, within the budget."""
        self.same(["cuda_ipc", "--beside=8"], EBB_ALONE_TUNING="cuda_shared_bytes=16384",
                  EBB_ALONE_BUDGET=12 * MIB,
                  FAKECUDA_BUDGET=14 * MIB + GLOBALS)  # the program maps 2 itself

    def test_a_divided_device(self):
        """MIG: one device, with the memory of its instance."""
        self.same(["cuda_train", *SHORT], FAKECUDA_MIG=1)


class Whole(unittest.TestCase):
    def test_bytes_on_the_device(self):
        """The training needs 43 MiB. It gets 24, and never has more on the device."""
        command, budget = ["cuda_train", *LARGE], 24 * MIB
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report")
            run(command, LD_LIBRARY_PATH=FAKE, FAKECUDA_REPORT=path)
            with open(path, encoding="utf-8") as file:
                self.assertGreater(json.load(file)["devices"][0]["most_bytes"], 40 * MIB)
            through(command, EBB_ALONE_BUDGET=budget, FAKECUDA_REPORT=path)
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
        self.assertLessEqual(report["devices"][0]["most_bytes"], budget)
        self.assertGreater(report["prefetched_to_host_bytes"], 0)
        self.assertEqual((0, 0, 0), (report["violations"], report["faults"],
                                     report["remote_accesses"]))

    def test_pytorch_is_refused(self):
        """Without its caching allocator PyTorch allocates in captures. It is told why it fails."""
        done = through(["cuda_graphs"], PYTORCH_NO_CUDA_MEMORY_CACHING=1)
        self.assertEqual((0, ""), (done.returncode, done.stdout))
        self.assertEqual(1, done.stderr.count("\n"), done.stderr)
        self.assertIn("ebb run --no-env", done.stderr)

    def test_frees_of_frameworks(self):
        """Without its cache each tensor of PyTorch ends by a free. These do not wait, so what only
        waits by them is not over."""
        with tempfile.TemporaryDirectory() as folder:
            library = os.path.join(folder, "libc10_cuda.so")
            subprocess.run(["cc", "-shared", "-o", library, "-x", "c", os.devnull], check=True)
            variables = preloaded({"LD_PRELOAD": f"{LIBRARY} {library}",
                                   "FAKECUDA_LAZY_US": 20000})
            for variable, result in ("PYTORCH_NO_CUDA_MEMORY_CACHING", 1), ("OTHER", 0):
                done = run(["cuda_contexts", "freed"], **variables, **{variable: "1"})
                self.assertEqual(result, done.returncode, done.stderr)

    def test_words_that_are_refused(self):
        """The documentation of the driver says so for managed memory. The user is told what helps."""
        for backing, is_refused in ("managed", True), ("vmm-host", False):
            done = through(["cuda_contexts", "word"], EBB_ALONE_BACKING=backing,
                           FAKECUDA_FAULTS="word:1+", **budget(20))
            self.assertEqual(is_refused, done.returncode != 0, done.stderr)
            self.assertEqual(is_refused, "--cuda-backing vmm-host allows it" in done.stderr)

    def test_signals(self):
        """Threads of the engine take none of the program's."""
        for backing in "managed", "vmm-host", "vmm-trusting", "native":
            done = through(["cuda_signals"], EBB_ALONE_BACKING=backing)
            self.assertEqual((0, "good\n", ""), (done.returncode, done.stdout, done.stderr))

    def test_contexts_that_end(self):
        """Work is ordered by events after more have ended with their contexts than there may be."""
        for backing in "managed", "vmm-trusting":
            done = through(["cuda_contexts", "ends", "1100"], EBB_ALONE_BACKING=backing,
                           FAKECUDA_FAST=1, **budget(8))
            self.assertEqual((0, "good\n", ""), (done.returncode, done.stdout, done.stderr))

    def test_faults_happen(self):
        """Those of test_faults."""
        for faults, backing in (("prefetch:10%", "managed"), ("map:10%", "vmm-trusting")):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "report")
                done = through(["cuda_train", *SHORT], EBB_ALONE_BACKING=backing,
                               EBB_ALONE_CHAOS=7, FAKECUDA_FAULTS=faults, FAKECUDA_REPORT=path,
                               **budget(12))
                self.assertEqual(0, done.returncode, done.stderr)
                with open(path, encoding="utf-8") as file:
                    errors = json.load(file)["errors"]
            self.assertGreater(sum(errors.values()) - errors.get("CUDA_ERROR_NOT_READY", 0), 0,
                               (faults, errors))

    def test_managed_memory_of_the_program(self):
        """It is the driver's. A program without other memory gets no engine."""
        for backing in BACKINGS:
            done = through(["cuda_managed"], EBB_ALONE_BACKING=backing, **budget(12))
            self.assertEqual((0, "", ""), (done.returncode, done.stdout, done.stderr))

    def test_out_of_memory(self):
        """If nothing moves, the budget is what there is. The error comes, and nothing breaks."""
        done = through(["cuda_oom"], EBB_ALONE_BACKING="native", **budget(12))
        self.assertEqual((0, "6 allocations\n", ""), (done.returncode, done.stdout, done.stderr))

    def test_other_processes(self):
        """No other process reaches a block. What the program maps itself can be exported."""
        for backing in BACKINGS:
            done = through(["cuda_ipc", "--refused"], EBB_ALONE_BACKING=backing)
            self.assertEqual((0, ""), (done.returncode, done.stdout), done.stderr)
            self.assertEqual(1, done.stderr.count("\n"), done.stderr)
            self.assertIn("another process or device", done.stderr)

    def test_a_device_that_cannot(self):
        """One line, and the program runs as without the library."""
        plain = run(["cuda_train"], LD_LIBRARY_PATH=FAKE)
        done = through(["cuda_train"], FAKECUDA_NO_CONCURRENT=1)
        self.assertEqual((plain.stdout, 0), (done.stdout, done.returncode))
        self.assertEqual(1, done.stderr.count("\n"), done.stderr)
        self.assertTrue(re.match(r"ebb: GPU 0: .*the budget is NOT enforced", done.stderr),
                        done.stderr)

    def test_an_older_driver(self):
        plain = run(["cuda_train"], LD_LIBRARY_PATH=FAKE)
        done = through(["cuda_train"], FAKECUDA_DRIVER=12020)
        self.assertEqual((plain.stdout, 0), (done.stdout, done.returncode))
        self.assertEqual("ebb: the CUDA driver is version 12.2, 12.4 is needed: the budget is NOT "
                         "enforced\n", done.stderr)


if __name__ == "__main__":
    if not os.path.exists(LIBRARY):
        print("skipped: the library is built on x86-64 only")
        sys.exit(77)
    unittest.main()
