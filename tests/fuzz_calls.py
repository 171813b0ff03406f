#!/usr/bin/python3
"""Random programs of legal system calls under `ebb run`: a separate command, not a test.

tests/programs/legal/ verifies every byte that it owns. Here it runs with random seeds, budgets,
devices (EBB_REFUSE) and limits, and as a program with iterations, so that plans come into force.
A result that differs from that without Ebb is a failure. So is a hang, whose stacks are recorded.
Each failure is one line of JSON on stdout, with the command that repeats it.

  tests/fuzz_calls.py --seconds 600 --jobs 2           random cases
  tests/fuzz_calls.py --matrix                         a table: each operation on each device
  tests/fuzz_calls.py --reduce --only a,b --device D   the shortest list of operations that fails
"""
import argparse
import concurrent.futures
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

from devices import DEVICES

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("EBB_BIN_DIR") or os.path.join(SOURCE, "build", "dev", "bin")
EBB = os.path.join(BIN, "ebb")
MIB = 1 << 20
# On these devices the kernel cannot wait for an absent page. Calls other than those of libc's
# functions get EFAULT for it, as is documented.
USER_ONLY = ("uffd-move-user", "uffd-remap-user", "protect")
# Operations that have an effect only together with others.
COMPANIONS = {"dontfork": "fork,dofork", "wipeonfork": "fork,dofork", "dofork": "fork,dontfork",
              "lazy": "cold", "ordinary": "overfile,overshared", "allow": "protect,noaccess",
              "give": "threads,take", "take": "threads,give"}
# The warnings that are allowed. The budget cannot be kept by any order of the operations. Or the
# system can neither tell which pages the kernel holds nor wait for absent ones.
EXPECTED = re.compile(r"\Aebb: (one operation needs more than the budget|"
                      r"process \d+: io_uring and aio are refused \(ENOSYS\))")
# In a forked child without handlers, libc's lock over the stacks of threads may be locked for ever.
# Another thread was just starting or ending at the fork. This is documented, too.
DOCUMENTED_HANG = re.compile(r"lll_lock_wait_private.*\n(?:#.*\n)*#.*allocate_stack.*\n"
                             r"(?:#.*\n)*#.*rawfork\.c")
GRACE_S = 5  # a process without a parent that waits may still be ending


def compile_legal(folder):
    """The program, from $EBB_LEGAL or compiled into `folder`."""
    if os.environ.get("EBB_LEGAL"):
        return os.environ["EBB_LEGAL"]
    programs = os.path.join(SOURCE, "tests", "programs", "legal")
    out = os.path.join(folder, "legal")
    subprocess.run(["cc", "-std=gnu11", "-O2", "-g", "-pthread", "-o", out,
                    *sorted(os.path.join(programs, name) for name in os.listdir(programs)
                            if name.endswith(".c"))], check=True)
    return out


def operations(legal):
    """[(group, name, {"kernel", "raw"} that apply)]"""
    text = subprocess.run([legal, "--list"], check=True, capture_output=True, text=True).stdout
    return [(words[0], words[1], set(words[2:])) for words in map(str.split, text.splitlines())]


def marked(mark):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark.encode() in file.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:
            pass
    return sorted(found)


def stacks(pids):
    """The stack of each thread of these processes by gdb, or without gdb their places in the
    kernel."""
    texts = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                texts.append(f"process {pid}: {file.read()[:60]!r}")
            dump = subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 14"],
                                  capture_output=True, text=True, timeout=60, check=False,
                                  stdin=subprocess.DEVNULL)
            texts += [line[:160] for line in dump.stdout.splitlines()
                      if line.startswith(("Thread", "#"))]
        except (OSError, subprocess.TimeoutExpired):
            for task in os.listdir(f"/proc/{pid}/task") if os.path.exists(f"/proc/{pid}") else ():
                try:
                    with open(f"/proc/{pid}/task/{task}/stack", encoding="utf-8") as file:
                        texts.append(f"task {task}: " + " ".join(file.read().split()))
                except OSError:
                    pass
    return texts


class Case:
    """One run of the program: its settings and its result."""

    def __init__(self, legal, device, seed, *, run=200, iterations=1, memory=32, share=0.5,
                 only=None, without=None, options=(), limits=(), timeout=90, bin_ebb=EBB):
        self.legal, self.device, self.timeout, self.ebb = legal, device, timeout, bin_ebb
        self.options, self.limits, self.share = list(options), list(limits), share
        self.budget = memory << 10  # KiB
        self.only, self.without, self.seed, self.memory = only, without, seed, memory
        self.run_count, self.iterations = run, iterations

    def copy(self, **changes):
        new = Case.__new__(Case)
        new.__dict__.update(self.__dict__)
        new.__dict__.update(changes)
        return new

    def program(self):
        command = [self.legal, "--seed", str(self.seed), "--operations", str(self.run_count),
                   "--iterations", str(self.iterations), "--memory", str(self.memory)]
        if self.only is not None:
            command += ["--only", ",".join(self.only)]
        if self.without:
            command += ["--without", ",".join(self.without)]
        return command

    def command(self, store=None, plain=False):
        command = self.program()
        if not plain:
            command = [self.ebb, "run", "--no-cache", "--budget", f"{self.budget}K", *self.options,
                       *(["--store", store] if store else []), "--", *command]
        if self.limits:
            command = ["prlimit", *self.limits, *command]
        return command

    def shown(self):
        """The command line that repeats the run."""
        return f"EBB_REFUSE={DEVICES[self.device]} timeout {self.timeout} " + shlex.join(
            self.command())

    def settle(self):
        """Runs without Ebb. The budget becomes a share of the memory held. Returns None, or the
        failure."""
        trouble = self.execute(plain=True)
        if trouble is None:
            self.budget = max(1024, int(self.held * self.share) >> 10)
        return trouble

    def execute(self, plain=False):
        """Returns None if the run is right, else the failure as a dictionary."""
        mark = f"EBB_FUZZ={uuid.uuid4().hex}"
        folder = tempfile.mkdtemp(prefix="ebb-fuzz-")
        store, tmp = os.path.join(folder, "store"), os.path.join(folder, "tmp")
        os.mkdir(store)
        os.mkdir(tmp)
        env = {k: v for k, v in os.environ.items() if not k.startswith("EBB_")}
        env.update(TMPDIR=tmp, EBB_FUZZ=mark.split("=")[1], EBB_REFUSE=DEVICES[self.device])
        summary = os.path.join(folder, "summary.json")
        command = self.command(store, plain)
        if not plain:
            at = command.index("run") + 1
            command[at:at] = ["--summary=never", "--summary-json", summary]
        trouble = None
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                       env=env, start_new_session=True)
            try:
                code = process.wait(self.timeout)
            except subprocess.TimeoutExpired:
                trouble = {"kind": "hang", "stacks": stacks(marked(mark))}
                code = None
            end = time.monotonic() + GRACE_S
            while trouble is None and time.monotonic() < end and marked(mark):
                time.sleep(0.05)
            for pid in marked(mark):
                if trouble is None:
                    trouble = {"kind": "left", "process": pid}
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            process.wait()
            out.seek(0)
            err.seek(0)
            printed, errors = out.read().decode(errors="replace"), err.read().decode(
                errors="replace")
        held = re.search(r"most held (\d+) bytes", printed)
        self.held = int(held[1]) if held else 0
        if trouble is None and (code != 0 or not printed.startswith("good")):
            trouble = {"kind": "exit", "code": code}
        if trouble is None and not all(map(EXPECTED.search, errors.splitlines())):
            trouble = {"kind": "message"}
        if trouble is None and os.listdir(store) + os.listdir(tmp):
            trouble = {"kind": "files left", "files": os.listdir(store) + os.listdir(tmp)}
        if trouble is None and not plain:
            with open(summary, encoding="utf-8") as file:
                figures = json.load(file)
            managed = figures["device"] != "none"  # all blocks were too small
            if managed and figures["device"] != self.device:
                trouble = {"kind": "device", "is": figures["device"]}
            elif figures["peak_resident_bytes"] > self.budget << 10 and not figures[
                    "budget_exceeded"]:
                trouble = {"kind": "budget", "peak": figures["peak_resident_bytes"]}
        if trouble is not None and trouble["kind"] == "hang" and DOCUMENTED_HANG.search(
                "\n".join(trouble["stacks"])):
            print("a documented hang: " + self.shown(), file=sys.stderr)
            trouble = None
        if trouble is not None:
            trouble["stderr"] = errors[:1500]
        shutil.rmtree(folder, ignore_errors=True)
        return trouble


def random_case(legal, table, generator, options):
    device = options.device or generator.choice(list(DEVICES))
    memory = generator.choice((12, 24, 48))
    repeats = generator.random() < 0.35
    only = options.only.split(",") if options.only else None
    if only is None and generator.random() < 0.5:
        only = generator.sample([name for _, name, _ in table], generator.randint(1, 6))
    without = options.without.split(",") if options.without else []
    if device in USER_ONLY and not options.kernel_everywhere:
        without.append("kernel")
    if device == "protect" and not options.kernel_everywhere:
        without.append("bareprotect")  # documented, too: the kernel reads zeros
    limits = ["--nofile=256"] if generator.random() < 0.08 else []
    return Case(legal, device, generator.randrange(1 << 32),
                run=generator.randint(20, 60) if repeats else generator.randint(60, 500),
                iterations=generator.randint(6, 25) if repeats else 1, memory=memory,
                share=generator.choice((0.2, 0.35, 0.5, 0.7)), only=only,
                without=without, limits=limits, timeout=options.timeout,
                options=["--verify"] if generator.random() < 0.25 else [])


def fails(case, times):
    """The first failure of several runs, since some depend on time."""
    for _ in range(times):
        trouble = case.execute()
        if trouble:
            return trouble
    return None


def reduce(case, table, seconds):
    """The same failure with fewer operations to choose from."""
    end = time.monotonic() + seconds
    names = list(case.only if case.only is not None else [
        name for group, name, kinds in table
        if not {name, group, *kinds} & set(case.without or ())])
    size = max(1, len(names) // 2)
    while names and time.monotonic() < end:
        for at in range(0, len(names), size):
            kept = names[:at] + names[at + size:]
            found = False
            for seed in (case.seed, case.seed + 1, case.seed + 2):
                smaller = case.copy(only=kept, seed=seed)
                if fails(smaller, 1):
                    case, names, found = smaller, kept, True
                    break
            if found or time.monotonic() > end:
                break
        else:
            if size == 1:
                break
            size //= 2
            continue
        size = max(1, min(size, len(names) // 2))
    return case


def fuzz(legal, table, options):
    generator = random.Random(options.seed)
    end = time.monotonic() + options.seconds
    done = failed = 0

    def one(case):
        trouble = case.settle()
        if trouble:
            trouble.update(plain=True,  # the program itself has a defect
                           command=shlex.join(case.program()))
        elif (trouble := case.execute()):
            if options.reduce:
                case = reduce(case, table, options.reduce_seconds)
                trouble["reduced"] = case.only
            trouble.update(device=case.device, command=case.shown())
        return trouble

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = set()
        while time.monotonic() < end or running:
            while time.monotonic() < end and len(running) < options.jobs:
                running.add(pool.submit(one, random_case(legal, table, generator, options)))
            ready, running = concurrent.futures.wait(
                running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in ready:
                done += 1
                if future.result():
                    failed += 1
                    print(json.dumps(future.result()), flush=True)
    print(f"{done} programs, {failed} failed, seed {options.seed}", file=sys.stderr)
    return 1 if failed else 0


def matrix(legal, table, options):
    """Runs each operation alone with a few seeds on each device. Prints the numbers and kinds of
    failures."""
    devices = [options.device] if options.device else list(DEVICES)
    wanted = set(options.only.split(",")) if options.only else None
    print("| operation | " + " | ".join(devices) + " |\n|---|" + "---|" * len(devices), flush=True)
    worst = 0
    for group, name, kinds in table:
        if wanted and not {group, name} & wanted:
            continue
        cells = []
        for device in devices:
            if "kernel" in kinds and device in USER_ONLY and not options.kernel_everywhere:
                cells.append("-")
                continue
            if name == "bareprotect" and device == "protect" and not options.kernel_everywhere:
                cells.append("-")
                continue
            only = [name, *COMPANIONS.get(name, "").split(",")]
            kinds_seen, failed = [], 0
            for seed in range(options.seed, options.seed + options.seeds):
                repeats = seed % 2 == 1
                case = Case(legal, device, seed, run=40 if repeats else 250,
                            iterations=8 if repeats else 1, memory=24, share=0.35,
                            only=[n for n in only if n], timeout=options.timeout)
                trouble = case.settle() or case.execute()
                if trouble:
                    failed += 1
                    kinds_seen.append(trouble["kind"] + (f" {trouble['code']}"
                                                         if "code" in trouble else ""))
                    trouble.update(operation=name, device=device, command=case.shown())
                    if options.details:
                        with open(options.details, "a", encoding="utf-8") as file:
                            file.write(json.dumps(trouble) + "\n")
                    if trouble["kind"] == "hang":
                        break  # each hang takes the whole timeout
            worst = max(worst, failed)
            cells.append("ok" if not failed else f"{failed}: " + ", ".join(
                sorted(set(kinds_seen))))
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    return 1 if worst else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--seeds", type=int, default=3, help="seeds for each field of the table")
    parser.add_argument("--device", choices=DEVICES)
    parser.add_argument("--only", help="names or groups of operations")
    parser.add_argument("--without")
    parser.add_argument("--timeout", type=int, default=90, help="seconds after which a run counts as a hang")
    parser.add_argument("--kernel-everywhere", action="store_true",
                        help="also calls that are documented to give EFAULT on some devices")
    parser.add_argument("--reduce", action="store_true")
    parser.add_argument("--reduce-seconds", type=float, default=120)
    parser.add_argument("--matrix", action="store_true")
    parser.add_argument("--details", help="file for the failures behind the table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ebb-fuzz-") as folder:
        legal = compile_legal(folder)
        table = operations(legal)
        sys.exit((matrix if options.matrix else fuzz)(legal, table, options))


if __name__ == "__main__":
    main()
