#!/usr/bin/env python3
"""Trainings on a GPU with and without Ebb: run.py FOLDER --bin BIN [--quick] [--seconds S]
    [--train S] [--only REGEX] [--oversubscribe]

Writes run.jsonl (what each training printed, at once), log.txt (what it said on stderr) and
table.md to FOLDER. Each training is a process of its own with a time limit. The most important ones
come first. The next process starts while one runs, and waits for the GPU.

Budgets are parts of the peak without Ebb: torch.cuda.max_memory_allocated().
"""
import argparse
import json
import mmap
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BATCH = {"resnet50": 64, "gpt": 8, "gpt1280": 8}
# Seconds until a process has the GPU: PyTorch's import, and the case before.
START_S = 45
# Beside training, until the end: for the context and the first iteration.
EXTRA_S = 9
# Of host memory, touched first: more than any case pins.
WARM_BYTES = 32 << 30
# So often a backing may fail before its other cases are left out.
FAILURES = 2


class Raw:
    """The file of raw results. Lines are complete when they are there."""

    def __init__(self, path):
        self.path, self.lock = path, threading.Lock()

    def write(self, **members):
        with self.lock, open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(members) + "\n")


class Case:
    """One training. share: of the peak, or a case whose peak is the budget; backing: of Ebb, or
    None."""

    def __init__(self, model, precision, mode="plain", backing=None, share=None, extra=()):
        self.model, self.precision, self.mode = model, precision, mode
        self.backing, self.share, self.extra = backing, share, list(extra)
        self.name = " ".join(str(x) for x in (model, precision, backing or mode, share) if x) \
            + "".join(f" {x.strip('-')}" for x in extra)
        self.lines, self.budget, self.status, self.summary = [], None, None, {}
        self.started, self.over = threading.Event(), threading.Event()
        self.process = self.reader = None

    def base(self):
        return f"{self.model} {self.precision} plain"

    def command(self, options, results):
        """The command, or None if the case that it depends on has failed."""
        if self.share:
            plain = results.get(self.base())
            peak = plain.peak() if plain else 0
            if options.trial:
                peak = 1 << 30
            if isinstance(self.share, str):
                other = results.get(f"{self.model} {self.precision} {self.share}")
                self.budget = other.peak() if other else 0
            else:
                self.budget = peak * self.share // 100
            if not self.budget or not peak:
                return None
        command = [sys.executable, os.path.join(HERE, "train.py"), self.model, "--precision",
                   self.precision, "--mode", self.mode, "--batch", str(BATCH[self.model]),
                   "--seconds", str(options.train), "--lock", os.path.join(options.folder, "lock")]
        command += self.extra
        if options.trial:
            command += ["--device", "cpu", "--small"]
        if self.mode == "managed":
            command += ["--pool", os.path.join(options.bin, "managed_plain.so")]
            if self.budget:
                command += ["--free", str(self.budget)]
        if self.backing:
            self.summary = os.path.join(options.folder, "summary.json")
            command = [os.path.join(options.bin, "ebb"), "run", "--budget", str(self.budget),
                       "--device", "cuda", "--cuda-backing", self.backing, "--no-cache",
                       "--summary=always", "--summary-json",
                       f"{self.summary}.{os.getpid()}.{id(self)}", "--"] + command
            self.summary = command[command.index("--summary-json") + 1]
        return command

    def start(self, command, options, raw):
        environment = dict(os.environ, CUBLAS_WORKSPACE_CONFIG=":4096:8")
        environment.pop("EBB_CUDA_BACKING", None)  # it would go before the option
        log = open(os.path.join(options.folder, "log.txt"), "a",  # pylint: disable=R1732
                   encoding="utf-8")
        log.write(f"== {self.name}: {' '.join(command)}\n")
        log.flush()
        self.process = subprocess.Popen(  # pylint: disable=consider-using-with
            command, stdout=subprocess.PIPE, stderr=log, env=environment, text=True,
            start_new_session=True)
        log.close()
        self.reader = threading.Thread(target=self.read, args=(raw,), daemon=True)
        self.reader.start()

    def read(self, raw):
        for line in self.process.stdout:
            try:
                members = json.loads(line)
            except ValueError:
                continue
            self.lines.append(members)
            raw.write(m=self.name, **members)
            if "started" in members:
                self.started.set()
        self.over.set()
        self.started.set()

    def finish(self, limit_s, raw):
        """Ends the process after the limit. Its group is its own."""
        self.started.wait(START_S)
        self.over.wait(limit_s)
        if self.process.poll() is None and not self.wait(0.5 if self.over.is_set() else 0):
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(self.process.pid, number)
                except ProcessLookupError:
                    pass
                if self.wait(2):
                    break
        self.status = self.process.poll()
        self.reader.join(2)
        if isinstance(self.summary, str):
            try:
                with open(self.summary, encoding="utf-8") as file:
                    self.summary = json.load(file)
                os.unlink(file.name)
            except (OSError, ValueError):
                self.summary = {}
        raw.write(m=self.name, status=self.status, budget_bytes=self.budget, ebb=self.summary)

    def wait(self, seconds):
        try:
            self.process.wait(seconds)
            return True
        except subprocess.TimeoutExpired:
            return False

    # ---- results ------------------------------------------------------------------------------

    def losses(self):
        return [line["loss"] for line in self.lines if "loss" in line]

    def times(self):
        return [line["ms"] for line in self.lines if "ms" in line]

    def ms(self):
        """The median of the last third of the iterations: plans are in force then."""
        times = self.times()
        last = sorted(times[-max(1, len(times) // 3):]) if times else []
        return last[len(last) // 2] if last else 0

    def peak(self):
        return max([line["peak_bytes"] for line in self.lines if "peak_bytes" in line] or [0])

    def has_ended(self):
        return any("ended" in line for line in self.lines)


def cases(options):
    """The cases that were asked for, and those without Ebb that they are compared with."""
    found = all_cases(options)
    wanted = [case for case in found if re.search(options.only, case.name)]
    bases = {case.base() for case in wanted}
    return [case for case in found if case in wanted or case.name in bases]


def all_cases(options):
    """Lists of cases, the most important ones first."""
    models, backings = ("gpt", "resnet50"), ("vmm-trusting", "managed")
    found = [Case(model, "fp32") for model in models]
    found += [Case(model, "fp32", backing="vmm-trusting", share=share)
              for share in (75, 50) for model in models]
    found.append(Case("gpt1280", "fp32"))
    found += [Case("gpt1280", "fp32", backing="vmm-trusting", share=share) for share in (75, 50)]
    found += [Case(model, "fp32", "offload") for model in models]
    found += [Case(model, "fp32", backing="vmm-trusting", share=share)
              for share in ("offload", 100, 40) for model in models]
    found += [Case(model, "fp32", backing="managed", share=share)
              for share in (75, 50) for model in models]
    if options.quick:
        return found
    found.append(Case("gpt", "fp32", backing="managed", share=100,
                      extra=["--profile", "--iterations", "6"]))
    if options.oversubscribe:  # more managed memory than the device has free
        found += [Case(model, "fp32", "managed", share=50, extra=["--iterations", "8"])
                  for model in models]
    found += [Case(model, "fp32", "checkpoint") for model in models]
    found += [Case(model, "fp32", backing="vmm-trusting", share="checkpoint") for model in models]
    found += [Case(model, "fp32", backing="vmm-host", share=50) for model in models]
    found += [Case(model, "fp32", backing=backing, share=share)
              for share, backing in ((25, "vmm-trusting"), (100, "managed"), (40, "managed"))
              for model in models]
    for model, precision in (("gpt", "bf16"), ("resnet50", "tf32")):
        found += [Case(model, precision), Case(model, precision, "offload")]
        found += [Case(model, precision, backing=backing, share=share)
                  for share in (75, 50) for backing in backings]
    return found


def touch(number_of_bytes):
    """In a process of its own: takes memory, writes to each page, and returns it."""
    with mmap.mmap(-1, number_of_bytes) as memory:
        for at in range(0, number_of_bytes, mmap.PAGESIZE):
            memory[at] = 1


def warm_up():
    """The memory of a fresh virtual machine is slow at its first use, and pinned memory shows that.
    All cases come after this, those without Ebb, too."""
    each = WARM_BYTES // (os.cpu_count() or 1)
    workers = [multiprocessing.Process(target=touch, args=(each,))
               for _ in range(os.cpu_count() or 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def launches(options, raw):
    """What a launch costs more."""
    command = [os.path.join(options.bin, "ebb"), "run", "--budget", "1G", "--device", "cuda",
               "--no-cache", "-q", "--", os.path.join(options.bin, "launches")]
    found = []
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=12, check=False)
    except subprocess.TimeoutExpired:
        raw.write(m="launch", error="killed after 12 s")
        return found
    for line in done.stdout.splitlines():
        try:
            found.append(json.loads(line))
            raw.write(**found[-1])
        except ValueError:
            raw.write(m="launch", error=line)
    return found


def same(case, results):
    """Are the losses those of the run without Ebb, bit for bit?"""
    plain = results.get(case.base())
    count = min(len(case.losses()), len(plain.losses())) if plain else 0
    if not count:
        return "-"
    return "same" if case.losses()[:count] == plain.losses()[:count] else "DIFFER"


def row(case, results):
    plain = results.get(case.base())
    ratio = f"{case.ms() / plain.ms():.2f}" if plain and plain.ms() and case.ms() else "-"
    summary = case.summary if isinstance(case.summary, dict) else {}
    peak = summary.get("peak_resident_bytes", 0) or case.peak()
    moved = summary.get("moved_out_bytes", 0) / max(1, len(case.times()))
    end = "" if case.has_ended() else f" (status {case.status})"
    return (f"| {case.name} | {(case.budget or 0) >> 20} | {peak >> 20} | {case.ms():.1f} | {ratio} "
            f"| {same(case, results)} of {len(case.losses())}{end} | {int(moved) >> 20} |")


def table(results, costs):
    yield "| case | budget, MiB | most, MiB | ms an iteration | times plain | losses | out, MiB |"
    yield "|---|---|---|---|---|---|---|"
    for case in results.values():
        yield row(case, results)
    for cost in costs:
        if "more_ns" in cost:
            yield (f"launch, {cost['parameters']}, {cost['threads']} threads: driver "
                   f"{cost['driver_ns']} ns, more {cost['more_ns']} ns")
    for case in results.values():
        for line in case.lines:
            if "kernels" in line:
                yield f"{case.name}: {json.dumps(line)}"


class Plan:
    """Which case is next."""

    def __init__(self, options, raw, results):
        self.left, self.options, self.raw, self.results = cases(options), options, raw, results
        self.failures = {}

    def next(self):
        """Starts the next case. None: there is none that can start now."""
        while self.left:
            case = self.left[0]
            if case.share and case.base() not in self.results:
                return None
            del self.left[0]
            command = case.command(self.options, self.results)
            if self.failures.get(case.backing or case.mode, 0) >= FAILURES or not command:
                self.raw.write(m=case.name, skipped=True)
                continue
            case.start(command, self.options, self.raw)
            return case
        return None

    def note(self, case):
        self.results[case.name] = case
        if not case.has_ended():
            name = case.backing or case.mode
            self.failures[name] = self.failures.get(name, 0) + 1


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder")
    parser.add_argument("--bin", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--train", type=float, default=6, help="seconds of each training at most")
    parser.add_argument("--only", default="", help="cases whose name has this regular expression")
    parser.add_argument("--oversubscribe", action="store_true",
                        help="also plain managed memory, more than the device has free: it may hang")
    parser.add_argument("--trial", action="store_true",
                        help="tiny models on the CPU: to try this program")
    options = parser.parse_args()
    options.folder, options.bin = os.path.abspath(options.folder), os.path.abspath(options.bin)
    options.seconds = options.seconds or (95 if options.quick else 235)
    return options


def main():
    options = parse()
    end = time.time() + options.seconds
    os.makedirs(options.folder, exist_ok=True)
    raw, results = Raw(os.path.join(options.folder, "run.jsonl")), {}
    begin = time.time()
    if not options.trial:
        warm_up()
    raw.write(m="warm_up", bytes=WARM_BYTES, seconds=round(time.time() - begin, 2))
    costs = [] if options.only else launches(options, raw)  # before anything else uses the GPU
    plan = Plan(options, raw, results)
    case, following = plan.next(), None
    while case:
        case.started.wait(START_S)
        if time.time() < end - EXTRA_S - options.train:
            following = plan.next()
        case.finish(min(options.train + EXTRA_S, max(1, end - time.time())), raw)
        plan.note(case)
        print(row(case, results), flush=True)
        case, following = following, None
        if not case and time.time() < end - EXTRA_S:
            case = plan.next()
    with open(os.path.join(options.folder, "table.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(table(results, costs)) + "\n")
    print("\n".join(list(table(results, costs))[2 + len(results):]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
