#!/usr/bin/env python3
"""Programs of the driver API under Ebb on a GPU: check.py FOLDER --bin BIN [--seconds S]
    [--only REGEX] [--jobs N] [--fake DRIVER]

Each program checks its memory bit for bit (tests/fakecuda/programs). First it runs without Ebb. Then
it runs within each budget, on each backing, with and without evictions at random. It passes if exit
code and output are those without Ebb, if the budget was kept, and if blocks have moved where they
must. Lines of JSON are appended to FOLDER/tests.jsonl, what programs said to FOLDER/log.txt.

--fake takes the folder of the fake driver instead of a GPU. The programs are there, too.

Exit code: 0 if all passed, 1 if one failed.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20
ALL = ("managed", "vmm-host", "vmm-trusting")
# For kernels that find memory by pointers in device memory: not what vmm-trusting is for.
UNNAMED = ("managed", "vmm-host")
ROOM = f"--room={MIB}"  # smaller blocks never move
SHORT = ("--iterations=2", "--layers=3", "--bytes=16384", ROOM)
LARGE = ("--bytes=3000000", "--layers=6", "--iterations=3")
# Of a program, at most. The longest one takes a few seconds.
PROGRAM_S = 25


class Case:
    """A program. without: its command without Ebb; None: not for the driver alone.
    moves: blocks must leave. refusal: what Ebb must say."""

    def __init__(self, name, *command, budget=None, backings=ALL, seeds=(0, 7), without=(),
                 moves=True, refusal=None, only=None, tune=()):
        self.name, self.command, self.budget, self.backings = name, command, budget, backings
        self.seeds, self.moves, self.refusal, self.only = seeds, moves, refusal, only
        self.tune = ("--tune", *tune) if tune else ()
        self.without = command if without == () else without


def cases():
    """The most important ones first. only: on a card, or on the fake driver."""
    yield Case("training", "cuda_train", *LARGE, budget=24)  # it takes 43
    yield Case("training, streams", "cuda_train", "--streams=4", "--async-alloc", *LARGE, budget=24)
    yield Case("training, hidden pointers", "cuda_train", "--hidden", *LARGE, budget=32,
               backings=UNNAMED)
    yield Case("training, graphs", "cuda_train", "--graphs", *SHORT, budget=20, seeds=(7,))
    yield Case("training, threads", "cuda_train", "--threads=3", *SHORT, seeds=(7,))
    yield Case("memory info, out of memory", "cuda_memory", "--limit={budget}", budget=24,
               without=("cuda_memory",))
    yield Case("freed blocks of graphs", "cuda_captured", "--words=400000", budget=20, without=None)
    yield Case("graphs", "cuda_graphs", moves=False, seeds=(0,))
    yield Case("a kernel that names nothing", "cuda_unnamed", budget=8, backings=UNNAMED)
    yield Case("a graph that names nothing", "cuda_unnamed", "--graph", budget=8, backings=UNNAMED)
    for seed in (1, 2, 3):
        yield Case(f"torture {seed}", "cuda_torture", "--operations=300", f"--seed={seed}", ROOM,
                   budget=8, seeds=(seed, 7 * seed))
    yield Case("fork", "cuda_fork", ROOM, moves=False)
    yield Case("other processes", "cuda_ipc", "--refused", without=("cuda_ipc",), moves=False,
               seeds=(0,), refusal="another process or device")
    yield Case("blocks of other processes", "cuda_ipc", "--beside=8", budget=12,
               tune=("cuda_shared_bytes=16384",))
    yield Case("more than the budget", "cuda_oom", "--most=24", "--beyond", budget=12)
    yield Case("ranks that meet", "cuda_ranks", ROOM, moves=False)
    # Kernels that wait for the other process may keep a block from moving. Patience ends soon.
    for name, seeds, *options in (("two processes", (0, 7)),
                                  ("two processes, copies", (5, 7), "--copies")):
        yield Case(name, "cuda_exchange", *options, ROOM, budget=32, seeds=seeds,
                   tune=("cuda_patience_ns=50ms",))
    yield Case("managed memory of the program", "cuda_managed", budget=12, moves=False, seeds=(0,))
    yield Case("mappings of the program", "cuda_flip", moves=False, seeds=(0,))
    yield Case("all devices", "cuda_devices", budget=12)
    yield Case("large training", "cuda_train", "--layers=8", f"--bytes={32 * MIB}",
               "--iterations=12", "--no-serial", budget=400, only="card")  # it takes 800
    yield Case("large training, streams", "cuda_train", "--layers=8", f"--bytes={32 * MIB}",
               "--iterations=8", "--no-serial", "--streams=3", "--async-alloc", budget=400,
               only="card")
    yield Case("large torture", "cuda_torture", "--words=2000000", "--operations=150", budget=32,
               only="card")


class Results:
    def __init__(self, folder):
        self.path, self.lock = os.path.join(folder, "tests.jsonl"), threading.Lock()
        self.log = os.path.join(folder, "log.txt")
        self.failed = self.passed = 0

    def say(self, text):
        with self.lock, open(self.log, "a", encoding="utf-8") as file:
            file.write(text)

    def note(self, result, **members):
        with self.lock:
            self.passed += result == "passed"
            self.failed += result == "failed"
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps({"m": "test", **members, "result": result}) + "\n")
            if result != "passed":
                print(result, json.dumps(members), flush=True)


class Runner:
    def __init__(self, options, results):
        self.options, self.results = options, results
        self.end = time.time() + options.seconds

    def environment(self, seed):
        found = {name: value for name, value in os.environ.items()
                 if name not in ("EBB_CUDA_BACKING", "LD_PRELOAD")}
        if self.options.fake:
            found["LD_LIBRARY_PATH"] = self.options.fake
            found["EBB_CUDA_DRIVER"] = os.path.join(self.options.fake, "libcuda.so.1")
        else:
            found["PROGRAM_PTX"] = self.options.ptx
        if seed:
            found.update(EBB_CHAOS=str(seed), FAKECUDA_SEED=str(seed))
        return found

    def run(self, command, seed=0):
        """Exit code, output and errors. The code is None if the program did not end."""
        self.results.say(f"== {shlex.join(command)}\n")
        # pylint: disable-next=consider-using-with
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env=self.environment(seed), start_new_session=True)
        try:
            out, errors = process.communicate(
                timeout=max(1, min(PROGRAM_S, self.end + 5 - time.time())))
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, errors = process.communicate()
            code = None
        self.results.say(errors)
        return code, out, errors

    def program(self, command, budget=None):
        folder = self.options.fake or os.path.join(self.options.bin, "programs")
        words = [word.format(budget=(budget or 0) * MIB) for word in command[1:]]
        return [os.path.join(folder, command[0]), *words]

    def under_ebb(self, case, backing, seed, expected):
        """One run within the budget: what is wrong, and figures."""
        name = f"{case.name}-{backing}-{seed}".replace(" ", "_").replace(",", "")
        summary = os.path.join(self.options.folder, f"summary.{os.getpid()}.{name}")
        code, out, errors = self.run([
            os.path.join(self.options.bin, "ebb"), "run", "--device", "cuda", "--no-cache",
            "--summary=never", "--cuda-backing", backing, "--budget",
            f"{case.budget}M" if case.budget else "1G", *case.tune, "--summary-json", summary, "--",
            *self.program(case.command, case.budget)], seed)
        figures = {}
        try:
            with open(summary, encoding="utf-8") as file:
                figures = json.load(file)
            os.unlink(summary)
        except (OSError, ValueError):
            pass
        peak = max([device["peak_resident_bytes"] for device in figures.get("devices", [])] or [0])
        over = max([device["over_bytes"] for device in figures.get("devices", [])] or [0])
        wrong = []
        if code != 0:
            wrong.append(f"exit code {code}")
        if out != expected:
            wrong.append(f"output {out[:200]!r} instead of {expected[:200]!r}")
        if not figures:
            wrong.append("no summary")
        if over:
            wrong.append(f"{over} bytes over the budget")
        if case.moves and not figures.get("moved_out_bytes"):
            wrong.append("no block has moved")
        if case.refusal and case.refusal not in errors:
            wrong.append("Ebb did not say why")
        return "; ".join(wrong), {"peak_bytes": peak,
                                  "moved_out_bytes": figures.get("moved_out_bytes", 0),
                                  "planned": figures.get("planned_iterations", 0)}

    def plain(self, case):
        """The output without Ebb, or None after a failure."""
        began = time.time()
        code, out, _ = self.run(self.program(case.without))
        passed = code == 0
        self.results.note("passed" if passed else "failed without Ebb", case=case.name,
                          backing=None, seconds=round(time.time() - began, 2),
                          **({} if passed else {"why": f"exit code {code}"}))
        return out if passed else None

    def check(self, case):
        if time.time() > self.end:
            self.results.note("not measured", case=case.name, why="no time is left")
            return
        expected = self.plain(case) if case.without else ""
        if case.refusal and expected is None:
            expected = ""  # where processes cannot share memory anyway
        for backing in case.backings if expected is not None else ():
            for seed in case.seeds:
                members = {"case": case.name, "backing": backing, "seed": seed,
                           "budget_bytes": (case.budget or 1024) * MIB}
                if time.time() > self.end:
                    self.results.note("not measured", why="no time is left", **members)
                    continue
                began = time.time()
                wrong, figures = self.under_ebb(case, backing, seed, expected)
                self.results.note("failed" if wrong else "passed", **members,
                                  seconds=round(time.time() - began, 2), **figures,
                                  **({"why": wrong} if wrong else {}))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder")
    parser.add_argument("--bin", required=True)
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--only", default="", help="cases whose name has this regular expression")
    parser.add_argument("--jobs", type=int, default=0, help="programs at a time")
    parser.add_argument("--fake", help="the folder of the fake driver and of the programs")
    options = parser.parse_args()
    options.folder, options.bin = os.path.abspath(options.folder), os.path.abspath(options.bin)
    options.fake = options.fake and os.path.abspath(options.fake)
    options.ptx = os.path.join(options.bin, "programs", "kernels.ptx")
    options.jobs = options.jobs or min(4, (os.cpu_count() or 1) // 2) or 1
    os.makedirs(options.folder, exist_ok=True)
    return options


def main():
    options = parse()
    results = Results(options.folder)
    runner = Runner(options, results)
    place = "fake" if options.fake else "card"
    wanted = [case for case in cases()
              if case.only in (None, place) and re.search(options.only, case.name)]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for done in [pool.submit(runner.check, case) for case in wanted]:
            done.result()
    print(f"tests: {results.passed} passed, {results.failed} failed")
    return 1 if results.failed or not results.passed else 0


if __name__ == "__main__":
    sys.exit(main())
