#!/usr/bin/env python3
"""Trainings on a GPU with and without Ebb: trainings.py FOLDER --bin BIN [--quick] [--seconds S]
    [--train S] [--only REGEX] [--oversubscribe]

Writes run.jsonl (what each training printed, at once) and log.txt (what it said on stderr) to
FOLDER. table.py makes a table of run.jsonl. Each training is a process of its own with a time limit.
The most important ones come first. The next process starts while one runs, and waits for the GPU.
What cannot run here is skipped, with a line that says why.

Budgets are parts of the peak without Ebb: torch.cuda.max_memory_allocated().
"""
import argparse
import ctypes
import importlib.util
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

import table

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
SKIPPED = 77  # the exit code of a training that cannot run here
RANKS = 2


class Raw:
    """The file of raw results. Lines are complete when they are there."""

    def __init__(self, path):
        self.path, self.lock = path, threading.Lock()

    def write(self, **members):
        with self.lock, open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(members) + "\n")


class Case(table.Training):
    """One training. share: of the peak, or a case whose peak is the budget; backing: of Ebb, or
    None."""

    def __init__(self, model, precision, mode="plain", backing=None, share=None, extra=()):
        self.way = f"ddp {backing or ''}".strip() if mode == "ddp" else backing or mode
        super().__init__(f"{model} {precision} {self.way} {share or ''}".strip()
                         + "".join(f" {x.strip('-')}" for x in extra))
        self.model, self.precision, self.mode = model, precision, mode
        self.backing, self.share, self.extra = backing, share, list(extra)
        self.started, self.over = threading.Event(), threading.Event()
        self.process = self.reader = None

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
        if self.mode == "ddp":
            command += ["--ranks", str(RANKS)]
        if self.mode == "managed":
            command += ["--pool", os.path.join(options.bin, "managed_plain.so")]
            if self.budget:
                command += ["--free", str(self.budget)]
        if self.backing:
            # In a trial, Ebb manages the host's memory.
            where = ["--device", "cpu"] if options.trial else \
                ["--device", "cuda", "--cuda-backing", self.backing]
            self.summary = os.path.join(options.folder, f"summary.json.{os.getpid()}.{id(self)}")
            command = [os.path.join(options.bin, "ebb"), "run", "--budget", str(self.budget), *where,
                       "--no-cache", "--summary=always", "--summary-json", self.summary, "--",
                       *command]
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
        if self.status == SKIPPED:
            self.skipped = next((line["skipped"] for line in self.lines if "skipped" in line), True)
        raw.write(m=self.name, status=self.status, budget_bytes=self.budget, ebb=self.summary)

    def wait(self, seconds):
        try:
            self.process.wait(seconds)
            return True
        except subprocess.TimeoutExpired:
            return False


def cases(options):
    """The cases that were asked for, and those without Ebb that they are compared with. A case whose
    budget is the peak of another one takes that with it."""
    found = all_cases(options)
    wanted = [case for case in found if re.search(options.only, case.name)]
    names = {case.base() for case in wanted}
    names |= {f"{case.model} {case.precision} {case.share}" for case in wanted
              if isinstance(case.share, str)}
    return [case for case in found if case in wanted or case.name in names]


def beside_ebb(peer):
    """Another way to save memory, then Ebb at its peak."""
    for model in ("gpt", "resnet50"):
        yield Case(model, "fp32", peer)
    for model in ("gpt", "resnet50"):
        yield Case(model, "fp32", backing="vmm-trusting", share=peer)


def all_cases(options):
    """Lists of cases, the most important ones first."""
    models, backings = ("gpt", "resnet50"), ("vmm-trusting", "managed")
    found = [Case(model, "fp32") for model in models]
    found += [Case(model, "fp32", backing="vmm-trusting", share=share)
              for share in (75, 50) for model in models]
    found += [Case("gpt", "fp32", "ddp"),
              *(Case("gpt", "fp32", "ddp", backing=backing, share=75) for backing in backings)]
    found.append(Case("gpt1280", "fp32"))
    found += [Case("gpt1280", "fp32", backing="vmm-trusting", share=share) for share in (75, 50)]
    found += beside_ebb("offload")
    found += beside_ebb("zero3")
    found += [Case(model, "fp32", backing="vmm-trusting", share=share)
              for share in (100, 40) for model in models]
    found += [Case(model, "fp32", backing="managed", share=share)
              for share in (75, 50) for model in models]
    if options.quick:
        return found
    if options.oversubscribe:  # more managed memory than the device has free
        found += [Case(model, "fp32", "managed", share=50, extra=["--iterations", "8"])
                  for model in models]
    found += beside_ebb("checkpoint")
    found += beside_ebb("zero2")
    found += [Case(model, "fp32", backing="vmm-host", share=50) for model in models]
    found += [Case(model, "fp32", backing=backing, share=share)
              for share, backing in ((25, "vmm-trusting"), (100, "managed"), (40, "managed"))
              for model in models]
    for model, precision in (("gpt", "bf16"), ("resnet50", "tf32")):
        found += [Case(model, precision), Case(model, precision, "offload")]
        found += [Case(model, precision, backing=backing, share=share)
                  for share in (75, 50) for backing in backings]
    return found


def device_count():
    """Of GPUs, as the driver counts them."""
    count = ctypes.c_int(0)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuInit(0)
        driver.cuDeviceGetCount(ctypes.byref(count))
    except OSError:
        return 0
    return count.value


def cannot_run(case, options):
    """Why this case cannot run on this machine; None: it may."""
    if case.mode in ("zero2", "zero3") and not importlib.util.find_spec("deepspeed"):
        return "DeepSpeed is not installed"
    if case.mode == "ddp" and not options.trial and device_count() < RANKS:
        return f"it needs {RANKS} GPUs"
    return None


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


class Plan:
    """Which case is next."""

    def __init__(self, options, raw, results):
        self.left, self.options, self.raw, self.results = cases(options), options, raw, results
        self.failures, self.running = {}, None

    def next(self):
        """Starts the next case. None: there is none that can start now."""
        while self.left:
            case = self.left[0]
            other = f"{case.model} {case.precision} {case.share}"
            if case.share and (case.base() not in self.results or
                               (isinstance(case.share, str) and other == self.running)):
                return None
            del self.left[0]
            why = cannot_run(case, self.options)
            command = None if why else case.command(self.options, self.results)
            if not why and self.failures.get(case.way, 0) >= FAILURES:
                why = f"{case.way} has failed twice"
            if why or not command:
                case.skipped = why or "what it is compared with has failed"
                self.raw.write(m=case.name, skipped=case.skipped)
                self.results[case.name] = case
                print(table.row(case, self.results), flush=True)
                continue
            case.start(command, self.options, self.raw)
            self.running = case.name
            return case
        return None

    def note(self, case):
        self.results[case.name] = case
        if self.running == case.name:
            self.running = None
        if not case.has_ended() and not case.skipped:
            self.failures[case.way] = self.failures.get(case.way, 0) + 1


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
    plan = Plan(options, raw, results)
    case, following = plan.next(), None
    while case:
        case.started.wait(START_S)
        if time.time() < end - EXTRA_S - options.train:
            following = plan.next()
        case.finish(min(options.train + EXTRA_S, max(1, end - time.time())), raw)
        plan.note(case)
        print(table.row(case, results), flush=True)
        case, following = following, None
        if not case and time.time() < end - EXTRA_S:
            case = plan.next()
    return 0


if __name__ == "__main__":
    sys.exit(main())
