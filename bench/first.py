#!/usr/bin/python3
"""Measures the first iterations of training programs, with and without Ebb, step by step.

    bench/first.py [--only unet,gan] [--pairs 3] [--budget 60%] [--steps 20] [--venv DIR] [-o FILE]

For each program of bench/first/, malloc_log_preload counts its blocks of 128 KiB and more. --budget
is a share of their peak, passed on in bytes. Each tuned allocator runs once for a few steps. The
fastest is A. B is `ebb run` with that budget and no plan cache. Pairs run A B A B ... A row tells:

  lost       time of the first 5, 10, 20, 50 steps in addition to that of A, in median steps of A
  planned    the first step in which a plan was in force for half of the time
  10-20      the median of the steps 10 to 20 over that of A
  whole      wall time of the whole command over that of A
  losses     equal bit for bit in every step, or DIFFER
  moved      MiB written and read; faults: demand faults

A second table shows the causes of the loss in the first 20 steps. bench/lost.py explains how a
cause is found. Marks and counters come from bench_watch, which reads them while Ebb runs. If it
sees nothing, all causes are unknown. `faults` and `moved` are taken from Ebb's summary.

With --second-run, B runs once to leave a profile in a temporary folder, then runs with that
profile. With `same`, both runs are equal. With `steps`, the first run has another length, with
`batch` another batch size. --scale N makes all batches N times as large. With --beside, A runs once
more beside bench_lanes, which transfers as many bytes a second as B did. That costs what it costs
without Ebb.

Programs marked `venv` need current packages. --venv DIR is a virtual environment made by
bench/frameworks/run.py --venv. Missing programs are named and skipped. Times need a quiet machine.
The report has its load. The exit code is 1 if losses differ or a program fails.
"""
import argparse
import glob
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import lost
from host import budget_bytes, mib, text_of
from paired import DEVICES, allocators, machine, provenance

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAMS_FOLDER = os.path.join(SOURCE, "bench", "first")
DEBIAN = "/usr/bin/python3"
MANAGED_BYTES = 128 << 10  # size of managed blocks: --threshold of `ebb run`
# The settings that Ebb makes, so that no gain comes from a setting alone.
SETTINGS = {"TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1", "CUDA_VISIBLE_DEVICES": "",
            "TF_CPP_MIN_LOG_LEVEL": "3"}

# name: (its modules; whether it needs the virtual environment, since Debian's packages are missing
# or too old)
PROGRAMS = {
    "unet": ("torch", False),
    "mobilenet": ("torch torchvision", False),
    "resnet": ("torch torchvision", False),
    "gan": ("torch", False),
    "rollout": ("torch", False),
    "lstm": ("torch", False),
    "padded": ("torch", False),
    "kfold": ("torch torchvision", False),
    "convnext": ("torch torchvision", True),
    "finetune": ("torch torchvision", True),
    "diffusion": ("torch", True),
    "timm_train": ("torch timm", True),
    "compiled": ("torch", True),
    "bert": ("torch transformers accelerate", True),
    "lightning_fit": ("torch torchvision lightning", True),
    "keras_graph": ("tensorflow keras", True),
    "tensorflow_eager": ("tensorflow", True),
    "jax_step": ("jax", True),
}


class Failed(Exception):
    """The program failed, or cannot run here."""


def about(name):
    with open(os.path.join(PROGRAMS_FOLDER, name + ".py"), encoding="utf-8") as file:
        return file.readline().strip().strip('"')


def python_of(name, args):
    modules, current = PROGRAMS[name]
    if current and not args.venv:
        raise Failed("skipped: needs --venv, with " + modules)
    python = os.path.join(args.venv, "bin", "python") if current else DEBIAN
    if not os.path.exists(python):
        raise Failed(f"skipped: needs {python}")
    for module in modules.split():
        found = subprocess.run([python, "-c", "import importlib.util, sys; sys.exit("
                                f"importlib.util.find_spec({module!r}) is None)"], check=False)
        if found.returncode:
            raise Failed(f"skipped: needs the module {module} of {python}")
    return python


# --- one run -----------------------------------------------------------------------------------


def run(command, env, folder, limit_s):
    """{"steps", "elapsed_s", "exit_code", "stderr", "load"}. A run that takes longer is killed."""
    log = os.path.join(folder, "steps.jsonl")
    if os.path.exists(log):
        os.unlink(log)
    began = time.monotonic()
    with tempfile.TemporaryFile() as text:
        process = subprocess.Popen(command, env={**env, "FIRST_STEPS": log}, cwd=folder,
                                   stdout=text, stderr=text, stdin=subprocess.DEVNULL,
                                   start_new_session=True)
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = f"no end within {limit_s:.0f} s"
        finally:
            elapsed = time.monotonic() - began
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except OSError:
                pass
            process.wait()
        text.seek(0)
        said = text.read().decode(errors="replace")
    steps = []
    if os.path.exists(log):
        with open(log, encoding="utf-8") as file:
            steps = [json.loads(line) for line in file if line.endswith("\n")]
    return {"steps": steps, "elapsed_s": elapsed, "exit_code": code, "stderr": said[-1500:],
            "load": os.getloadavg()[0]}


class Program:
    """One program of the suite, and how to run it."""

    def __init__(self, name, args, folder):
        self.name, self.args, self.folder = name, args, folder
        self.python = python_of(name, args)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("EBB_")}
        self.env.update(SETTINGS, TMPDIR=folder, PYTHONDONTWRITEBYTECODE="1")
        self.env.setdefault("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
        self.tuned, self.limit_s = {}, args.timeout

    def command(self, steps, batch=None):
        return [self.python, os.path.join(PROGRAMS_FOLDER, self.name + ".py"),
                "--steps", str(steps), "--batch", str(batch or self.batch())]

    def checked(self, result, steps, what):
        if result["exit_code"] != 0 or len(result["steps"]) != steps + 1:
            raise Failed(f"{what} ended with {result['exit_code']} after "
                         f"{len(result['steps']) - 1} steps: {result['stderr'][-400:]}")
        return result

    def count(self, known):
        """The independent count of its blocks. If there are several processes, the largest
        counts."""
        tuned = next(iter(known.values()))
        logger = os.path.join(self.args.build, "bench", "libmalloc_log_preload.so")
        env = {**self.env, **tuned, "EBB_LOG_THRESHOLD": str(MANAGED_BYTES),
               "LD_PRELOAD": f"{logger} {tuned.get('LD_PRELOAD', '')}".strip(),
               "EBB_MALLOC_LOG": os.path.join(self.folder, "count-%p.json")}
        self.checked(run(self.command(self.args.choice_steps), env, self.folder, self.limit_s),
                     self.args.choice_steps, "the program, counted,")
        counts = []
        for path in glob.glob(os.path.join(self.folder, "count-*.json")):
            with open(path, encoding="utf-8") as file:
                counts.append(json.load(file))
        return max(counts, key=lambda count: count["threshold_peak_bytes"])

    def choose(self, known):
        """The allocator with the least median step, and the median steps of all if there are
        several."""
        paces = {}
        if len(known) == 1:
            self.tuned = next(iter(known.values()))
            return next(iter(known)), paces
        for name, env in known.items():
            result = self.checked(
                run(self.command(self.args.choice_steps), {**self.env, **env}, self.folder,
                    self.limit_s), self.args.choice_steps, f"the program under {name}")
            paces[name] = statistics.median(lost.seconds(result["steps"]))
        best = min(paces, key=paces.get)
        self.tuned = known[best]
        return best, paces

    def run_a(self):
        steps = self.args.steps
        return self.checked(run(self.command(steps), {**self.env, **self.tuned}, self.folder,
                                self.limit_s), steps, "the program")

    def beside(self, b):
        """{"bytes_per_s", "seconds"}: the steps of A beside transfers of the rate of B."""
        moved = b["summary"]["moved_out_bytes"] + b["summary"]["moved_in_bytes"]
        rate = moved / sum(lost.seconds(b["steps"]))
        mover = subprocess.Popen([os.path.join(self.args.build, "bench", "bench_lanes"),
                                  self.args.store, "--rate", f"{rate:.0f}"])
        try:
            steps = lost.seconds(self.run_a()["steps"])
        finally:
            failed = mover.poll() is not None
            mover.kill()
            mover.wait()
        if failed:
            raise Failed("bench_lanes --rate ended")
        return {"bytes_per_s": rate, "seconds": steps}

    def run_b(self, budget, cache=None, command=None):
        """Runs under Ebb, with a folder of plan caches or without one."""
        args = self.args
        summary = os.path.join(self.folder, "summary.json")
        watched = os.path.join(self.folder, "watched.jsonl")
        for path in (summary, watched):
            if os.path.exists(path):
                os.unlink(path)
        command = [os.path.join(args.build, "bin", "ebb"), "run", "--budget", str(budget),
                   "--store", args.store, "--summary=never", "--summary-json", summary,
                   *([] if cache else ["--no-cache"]), *args.ebb_option, "--",
                   *(command or self.command(args.steps))]
        watch = os.path.join(args.build, "bench", "bench_watch")
        if os.path.exists(watch):
            command = [watch, watched, "--", *command]
        env = {**self.env, "EBB_REFUSE": DEVICES[args.device or "uffd-move"]}
        if cache:
            env["XDG_CACHE_HOME"] = cache
        result = run(command, env, self.folder, self.limit_s)
        result["watched"], result["summary"] = lost.Watched.read(watched), {}
        try:
            with open(summary, encoding="utf-8") as file:
                result["summary"] = json.load(file)
        except (OSError, ValueError):
            pass  # it ended before it wrote one; the exit code tells why
        device = result["summary"].get("device")
        if args.device and device not in (args.device, None):
            raise Failed(f"ran on the device {device}, not on {args.device}")
        return result

    def batch(self):
        """The program's default batch size, times --scale."""
        with open(os.path.join(PROGRAMS_FOLDER, self.name + ".py"), encoding="utf-8") as file:
            usual = file.read().split("life.arguments(batch=")[1].split(")")[0].split(",")[0]
        return self.args.scale * int(usual)

    def learn(self, budget, cache):
        """The first run of --second-run, which leaves the profile."""
        steps, batch = self.args.steps, None
        if self.args.second_run == "steps":
            steps = steps * 3 // 4
        if self.args.second_run == "batch":
            batch = max(1, self.batch() * 3 // 4)
        return self.checked(self.run_b(budget, cache, self.command(steps, batch)), steps,
                            "the run that learns")


# --- a program -----------------------------------------------------------------------------------


def measure(name, args, folder):
    program = Program(name, args, folder)
    known = {key: env for key, env in allocators().items() if key in args.allocators}
    say(f"{name}: counting and choosing the allocator ...")
    count = program.count(known)
    peak = count["peak_bytes" if args.of == "heap" else "threshold_peak_bytes"]
    budget = budget_bytes("b" + args.budget if args.budget.endswith("%") else args.budget, peak)[1]
    allocator, paces = program.choose(known)
    row = {"name": name, "count": count, "budget_bytes": budget, "allocator": allocator,
           "allocators": paces, "pairs": []}
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        if args.second_run:
            say(f"{name}: the run that learns ...")
            row["learnt"] = program.learn(budget, cache)["summary"]
        for number in range(args.pairs):
            say(f"{name}: pair {number + 1} of {args.pairs} ...")
            a = program.run_a()
            program.limit_s = max(120, args.patience * a["elapsed_s"])
            with tempfile.TemporaryDirectory(dir=folder) as own:
                if args.second_run:
                    subprocess.run(["cp", "-a", cache + "/.", own], check=True)
                b = program.checked(program.run_b(budget, own if args.second_run else None),
                                    args.steps, "ebb run")
            row["pairs"].append({**lost.compare(a, b), "summary": b["summary"],
                                 "elapsed_s": [a["elapsed_s"], b["elapsed_s"]],
                                 "load": [a["load"], b["load"]]})
    if args.beside:
        say(f"{name}: beside transfers ...")
        row["beside"] = program.beside(b)
        row["beside"]["late_ratio"] = lost.late_ratio(lost.seconds(a["steps"]),
                                                      row["beside"]["seconds"])
    row.update(lost.row_of(row["pairs"]))
    for key in ("peak_resident_bytes", "moved_out_bytes", "moved_in_bytes", "demand_faults",
                "mismatches", "plans", "replans", "planned_from_iteration", "iterations",
                "processes", "plan_cache"):
        row[key] = statistics.median_low([pair["summary"].get(key) for pair in row["pairs"]]) \
            if all(pair["summary"].get(key) is not None for pair in row["pairs"]) else None
    row["kept"] = not any(pair["summary"].get("budget_exceeded") for pair in row["pairs"])
    row["load"] = [min(low := [x for pair in row["pairs"] for x in pair["load"]]), max(low)]
    return row


def say(text):
    print(text, file=sys.stderr, flush=True)


# --- tables --------------------------------------------------------------------------------------


def print_tables(report):
    m, lanes = report["machine"], report["lanes"]
    print(f"\n{m['cpu']}, {m['cores']} cores, {m['memory_bytes'] / (1 << 30):.1f} GiB, "
          f"Linux {m['kernel']}, load {m['load_before']:.2f} before; budget {report['budget']}, "
          f"{report['steps']} steps")
    print(f"lanes: out {lanes['out_bytes_per_s'] / 1e9:.2f} GB/s, in "
          f"{lanes['in_bytes_per_s'] / 1e9:.2f} GB/s, each way while both are busy "
          f"{lanes['both_bytes_per_s'] / 1e9:.2f} GB/s\n")
    counts = [str(n) for n in lost.COUNTS if n <= report["steps"]]
    form = ("{:<17}{:>7}{:>7}{:>9}" + "{:>7}" * len(counts) +
            "{:>9}{:>7}{:>7}{:>8}{:>8}{:>8}{:>7}  {}")
    print(form.format("program", "peak", "budget", "A s/step", *(f"lost{n}" for n in counts),
                      "planned", "10-20", "whole", "out", "in", "faults", "load", "losses"))
    for row in report["rows"]:
        if "error" in row:
            print(f"{row['name']:<17}{' '.join(row['error'].split())[:160]}")
            continue
        print(form.format(
            row["name"], mib(row["count"]["threshold_peak_bytes"]), mib(row["budget_bytes"]),
            text_of(row["median_s"]), *(text_of(row["lost"].get(n), "{:.1f}") for n in counts),
            text_of(row["planned_step"], "{}"), text_of(row["late_ratio"], "{:.2f}"),
            text_of(row["whole_ratio"], "{:.2f}"), mib(row["moved_out_bytes"]),
            mib(row["moved_in_bytes"]), text_of(row["demand_faults"], "{}"),
            text_of(row["load"][1], "{:.1f}"),
            ("equal" if row["losses_equal"] else "DIFFER") + ("" if row["kept"] else " EXCEEDED")
            + (f", profile {row['plan_cache']}" if report["second_run"] else "")))
    done = [row for row in report["rows"] if "error" not in row]
    if not done:
        return
    for row in done:
        if "beside" in row:
            print(f"{row['name']} without Ebb beside transfers of "
                  f"{row['beside']['bytes_per_s'] / 1e6:.0f} MB/s: steps 10 to 20 "
                  + text_of(row["beside"]["late_ratio"], "{:.2f} x"))
    print("\nwhat the first 20 steps were lost to, in iterations (the pair in the middle)")
    form = "{:<17}" + "{:>9}" * (len(lost.CAUSES) + 1)
    print(form.format("program", *lost.CAUSES, "sum"))
    for row in done:
        print(form.format(row["name"], *(f"{row['causes'][cause]:.2f}" for cause in lost.CAUSES),
                          f"{sum(row['causes'].values()):.2f}"))
    at = "20" if all("20" in row["lost"] for row in done) else counts[-1] if counts else None
    if at:
        each = [row["lost"][at] for row in done]
        ratios = [row["late_ratio"] for row in done if row["late_ratio"] is not None]
        early = sum((row["planned_step"] or lost.NEVER) <= lost.LATEST for row in done)
        print(f"\n{len(done)} programs: lost in the first {at}: "
              f"median {statistics.median(each):.1f}, worst {max(each):.1f}; "
              f"planned in the third step at the latest: {early}"
              + (f"; steps 10 to 20: median {statistics.median(ratios):.2f} x, worst "
                 f"{max(ratios):.2f} x" if ratios else ""))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0],
                                     epilog="see the head of this file for what is reported")
    parser.add_argument("--only", default=list(PROGRAMS), help="programs, separated by commas",
                        type=lambda text: text.split(","))
    parser.add_argument("--list", action="store_true", help="the programs, and what each needs")
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--budget", default="60%", help="share of the independent peak, or a size")
    parser.add_argument("--of", choices=("blocks", "heap"), default="blocks",
                        help="what the share is of: blocks of 128 KiB and more, or all that the "
                        "program allocates")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--scale", type=int, default=1, help="times the programs' batch sizes: "
                        "programs as large as those that people run")
    parser.add_argument("--choice-steps", type=int, default=8,
                        help="steps of the runs that count and choose")
    parser.add_argument("--venv", help="virtual environment with current packages")
    parser.add_argument("--second-run", nargs="?", const="same", choices=("same", "steps", "batch"))
    parser.add_argument("--beside", action="store_true",
                        help="also run A beside transfers of the rate of B")
    parser.add_argument("--allocators", default="jemalloc,mimalloc,glibc",
                        type=lambda text: text.split(","))
    parser.add_argument("--device", choices=DEVICES)
    parser.add_argument("--build", default=os.path.join(SOURCE, "build", "release"))
    parser.add_argument("--store", default=os.environ.get("TMPDIR", "/var/tmp"),
                        help="folder of the store")
    parser.add_argument("--ebb-option", action="append", default=[],
                        help="one more option for `ebb run` (may be repeated)")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for one run")
    parser.add_argument("--patience", type=float, default=12,
                        help="stop a run under Ebb after so many times the time of A")
    parser.add_argument("-o", "--output", help="write everything as JSON")
    args = parser.parse_args()
    unknown = [name for name in args.only if name not in PROGRAMS]
    if unknown:
        parser.error(f"no program {unknown[0]}: --list shows them")
    args.build, args.store = os.path.abspath(args.build), os.path.abspath(args.store)
    args.venv = os.path.abspath(args.venv) if args.venv else None
    return args


def show_list():
    for name, (modules, current) in PROGRAMS.items():
        print(f"{name:<17}{'venv' if current else 'Debian':<8}{modules:<31}{about(name)}")


def main():
    args = parse()
    if args.list:
        show_list()
        return
    for needed in ("bin/ebb", "bench/bench_lanes", "bench/libmalloc_log_preload.so"):
        if not os.path.exists(os.path.join(args.build, needed)):
            sys.exit(f"first.py: {os.path.join(args.build, needed)} is missing: run 'make build'")
    report = {"schema": "ebb.bench-first/1", **provenance(args.store), "budget": args.budget,
              "of": args.of, "steps": args.steps, "second_run": args.second_run, "rows": []}
    say("measuring lanes ...")
    report["lanes"] = json.loads(subprocess.run(
        [os.path.join(args.build, "bench", "bench_lanes"), args.store, "--rounds", "3"], check=True,
        capture_output=True, text=True).stdout)
    try:
        for name in args.only:
            with tempfile.TemporaryDirectory(prefix="ebb-first-", dir=args.store) as folder:
                try:
                    report["rows"].append(measure(name, args, folder))
                except Failed as failed:
                    report["rows"].append({"name": name, "error": str(failed)})
                    say(f"{name}: {failed}")
            if args.output:
                write(report, args.output)
    except KeyboardInterrupt:
        say("stopped: the programs that are done count")
    report["machine"]["load_after"] = machine(args.store)["load_before"]
    print_tables(report)
    if args.output:
        write(report, args.output)
    sys.exit(any(not row.get("losses_equal") and not row.get("error", "").startswith("skipped")
                 for row in report["rows"]))


def write(report, path):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
