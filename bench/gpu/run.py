#!/usr/bin/env python3
"""All that is measured and tested on a GPU: run.py FOLDER [PART...] --bin BIN [--quick]
    [--seconds S] [--only REGEX] [--train S] [--oversubscribe] [--fake DRIVER]

Parts, each a file of lines of JSON in FOLDER:
    micro      micro.jsonl: the driver, without and with PyTorch (micro.c, torch_micro.py)
    launches   launches.jsonl: what a launch costs more, and whether each is seen
    tests      tests.jsonl: programs that check their memory (check.py)
    trainings  run.jsonl: with and without Ebb, beside other ways (trainings.py)

Each part has its share of the seconds, and what an earlier part has left. Whatever runs at the end
of its time is killed, so a crash or a hang loses one step. FOLDER/table.md is written after each
part, log.txt has what programs said. bench/gpu/run.sh is the way to start this.
"""
import argparse
import ctypes
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import table

HERE = os.path.dirname(os.path.abspath(__file__))
# Seconds that a part may take, in all and with --quick. Together they are less than ten minutes.
SECONDS = {"micro": (130, 80), "launches": (40, 30), "tests": (110, 60), "trainings": (235, 95)}
FILES = {"micro": "micro.jsonl", "launches": "launches.jsonl", "tests": "tests.jsonl",
         "trainings": "run.jsonl"}
TORCH_CASES = ("plain", "managed", "nocache")
TORCH_S = 40  # of each
KILL_S = 5  # after the end of a step that ends itself


class Step:
    """A command with a time limit. Its output is printed, or if there is a `note`, its lines of JSON
    are results. Other exit codes than those that are good are an error."""

    def __init__(self, name, command, seconds, note=None, good=(0,)):
        self.name, self.command, self.seconds = name, command, seconds
        self.note, self.good = note, good

    def take(self, stream):
        for line in stream:
            if not self.note:
                print(line, end="", flush=True)
                continue
            try:
                members = json.loads(line)
            except ValueError:
                continue
            self.note(**{"m": self.name, **members})

    def run(self, log):
        """What went wrong, or None."""
        log.write(f"== {self.name}: {' '.join(self.command)}\n")
        log.flush()
        process = subprocess.Popen(  # pylint: disable=consider-using-with
            self.command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
        reader = threading.Thread(target=self.take, args=(process.stdout,), daemon=True)
        reader.start()
        wrong = None
        try:
            status = process.wait(max(1, self.seconds))
            if status not in self.good:
                wrong = "it cannot run here" if status == 77 else f"status {status}"
        except subprocess.TimeoutExpired:
            wrong = f"killed after {self.seconds:.0f} s"
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        reader.join(2)
        if not reader.is_alive():
            process.stdout.close()
        return wrong


class Runner:
    def __init__(self, options):
        self.options = options
        self.log = open(  # pylint: disable=consider-using-with
            os.path.join(options.folder, "log.txt"), "a", encoding="utf-8")

    def note(self, part, **members):
        with open(self.path(part), "a", encoding="utf-8") as file:
            file.write(json.dumps(members) + "\n")

    def path(self, part):
        return os.path.join(self.options.folder, FILES[part])

    def bin(self, name):
        return os.path.join(self.options.bin, name)

    def ebb(self, *command):
        return [self.bin("ebb"), "run", "--device", "cuda", "--no-cache", "-q", *command]

    def is_wanted(self, name):
        return re.search(self.options.only, name) is not None

    # Each part yields its steps. `end`: when its time is over.

    def micro(self, end):
        done = subprocess.run([self.bin("micro"), "--list"], capture_output=True, text=True,
                              check=True)
        names = [name for name in done.stdout.split() if self.is_wanted(name)]
        cases = [case for case in TORCH_CASES if self.is_wanted(f"torch {case}")]
        if names:
            seconds = end - time.time()
            yield Step("micro", [self.bin("micro"), self.path("micro"),
                                 os.path.join(HERE, "kernels.ptx"), *names],
                       0.6 * seconds if cases else seconds)
        for case in cases:
            yield Step(f"torch {case}", [sys.executable, os.path.join(HERE, "torch_micro.py"),
                                         self.path("micro"), case, self.bin("managed_pool.so")],
                       min(TORCH_S, end - time.time()))

    def launches(self, end):
        def note(**members):
            self.note("launches", **members)

        if self.is_wanted("launch"):
            yield Step("launch", self.ebb("--budget", "1G", "--", self.bin("launches")),
                       min(15, end - time.time()), note)
        if self.is_wanted("profile"):
            yield Step("profile", self.ebb(
                "--budget", "16G", "--cuda-backing", "vmm-trusting", "--", sys.executable,
                os.path.join(HERE, "train.py"), "gpt", "--batch", "8", "--iterations", "4",
                "--profile"), end - time.time(), note)

    def tests(self, end):
        seconds = end - time.time()
        command = [sys.executable, os.path.join(HERE, "check.py"), self.options.folder, "--bin",
                   self.options.bin, "--seconds", f"{seconds:.0f}", "--only", self.options.only]
        if self.options.fake:
            command += ["--fake", self.options.fake]
        yield Step("tests", command, seconds + 2 * KILL_S, good=(0, 1))  # 1: one has failed

    def trainings(self, end):
        seconds = end - time.time()
        command = [sys.executable, os.path.join(HERE, "trainings.py"), self.options.folder, "--bin",
                   self.options.bin, "--seconds", f"{seconds:.0f}", "--only", self.options.only,
                   "--train", str(self.options.train)]
        for flag in ("quick", "oversubscribe"):
            if getattr(self.options, flag):
                command.append(f"--{flag}")
        yield Step("trainings", command, seconds + 3 * KILL_S)

    def run(self, part, seconds):
        began = time.time()
        for step in getattr(self, part)(began + seconds):
            if step.seconds < 1:
                wrong = "no time is left"
            else:
                wrong = step.run(self.log)
            if wrong:
                self.note(part, m=step.name, error=wrong)
                print(f"{step.name}: {wrong}", flush=True)
        print(f"{part}: {time.time() - began:.0f} s", flush=True)


def machine():
    """What the driver, the system and Ebb say of themselves."""
    found = {"m": "machine", "date": datetime.date.today().isoformat()}
    driver, name = ctypes.CDLL("libcuda.so.1"), ctypes.create_string_buffer(100)
    version, count, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    driver.cuInit(0)
    driver.cuDeviceGetCount(ctypes.byref(count))
    driver.cuDeviceGetName(name, len(name), 0)
    driver.cuDeviceTotalMem_v2(ctypes.byref(total), 0)
    driver.cuDriverGetVersion(ctypes.byref(version))
    found.update(gpu=name.value.decode(), gpus=count.value, gpu_mib=total.value >> 20,
                 cuda=f"{version.value // 1000}.{version.value % 1000 // 10}")
    if shutil.which("nvidia-smi"):
        done = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                              capture_output=True, text=True, timeout=20, check=False)
        found["driver"] = done.stdout.split("\n", maxsplit=1)[0]
    found.update(cores=os.cpu_count(), kernel=os.uname().release,
                 memory_mib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20)
    return found


def write_table(options):
    paths = [os.path.join(options.folder, name) for name in ("machine.jsonl", *FILES.values())]
    text = "\n".join(table.document(table.read(filter(os.path.exists, paths)))) + "\n"
    with open(os.path.join(options.folder, "table.md"), "w", encoding="utf-8") as file:
        file.write(text)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder")
    parser.add_argument("parts", nargs="*", metavar="PART",
                        help=f"{', '.join(SECONDS)}; usual: all of them")
    parser.add_argument("--bin", required=True)
    parser.add_argument("--quick", action="store_true", help="what matters most, in less time")
    parser.add_argument("--seconds", type=float, help="for all parts that run, at most")
    parser.add_argument("--only", default="",
                        help="measurements, tests and trainings whose name has this expression")
    parser.add_argument("--train", type=float, default=6, help="seconds of each training at most")
    parser.add_argument("--oversubscribe", action="store_true",
                        help="also more managed memory than the device has free: it may hang")
    parser.add_argument("--fake", help="tests: the folder of the fake driver and of the programs")
    options = parser.parse_intermixed_args()
    unknown = set(options.parts) - set(SECONDS)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: parts are {', '.join(SECONDS)}")
    options.parts = [part for part in SECONDS if part in options.parts or not options.parts]
    options.folder, options.bin = os.path.abspath(options.folder), os.path.abspath(options.bin)
    os.makedirs(options.folder, exist_ok=True)
    return options


def main():
    options = parse()
    shares = {part: SECONDS[part][options.quick] for part in options.parts}
    end = time.time() + (options.seconds or sum(shares.values()))
    with open(os.path.join(options.folder, "machine.jsonl"), "w", encoding="utf-8") as file:
        file.write(json.dumps(machine()) + "\n")
    runner = Runner(options)
    for i, part in enumerate(options.parts):
        left = sum(shares[later] for later in options.parts[i:])
        runner.run(part, max(1, (end - time.time()) * shares[part] / left))
        write_table(options)
    print(os.path.join(options.folder, "table.md"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
