#!/usr/bin/env python3
"""Runs other frameworks under `ebb run`: same losses, within the budget, with a plan in force.

    bench/frameworks/run.py --venv DIR [--budget 60%] [--only NAME ...] [--small] [--pairs 1]
        [--devices uffd-remap,protect] [-o out.json]

Makes a virtual environment in DIR if there is none, from the package index: current PyTorch,
torchvision, TensorFlow, JAX, transformers, lightning, about 8 GiB. Each program runs alone under
each of --allocators, tuned (bench/paired.py), with the settings that Ebb makes. The fastest is A. B
is the program under Ebb. Runs are interleaved A B A B ... The table has these columns:

  losses      equal to the last digit, or DIFFER. TensorFlow with several inter-op threads differs
              from itself: its `ends` says that it completed
  ratio       median of B's iterations over that of A's, each from the second half of its run: the
              median of the pairs, and the least and the greatest
  resident    the peak of resident bytes as a share of the budget
  planned     iterations in which a plan was in force, of all
  faults      demand faults in the median planned iteration
  left        how often the program departed from the template

With --devices, B runs on each of these devices, in turns. Each has a row.

The exit code is 1 if losses differ, a budget is exceeded or a program fails. This is no part of CI.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import venv

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))

# pylint: disable=wrong-import-position
from paired import DEVICES, MIB, allocators, provenance  # noqa: E402

PACKAGES = "torch torchvision tensorflow-cpu jax transformers lightning accelerate timm numpy".split()
SETTINGS = {"TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1", "CUDA_VISIBLE_DEVICES": "",
            "TF_CPP_MIN_LOG_LEVEL": "3"}
TORCH = os.path.join(SOURCE, "examples", "torch_train.py")

# name: (program, its arguments, those of --small, whether losses are reproducible)
PROGRAMS = {
    "torch": (TORCH, "--model resnet18 --batch 24 --size 128", "--batch 8 --size 96", True),
    "torch-gpt": (TORCH, "--model gpt --batch 8 --size 256", "--batch 4 --size 128", True),
    "torch-compile": (TORCH, "--compile --model resnet18 --batch 24 --size 128",
                      "--batch 8 --size 96", True),
    "keras-eager": ("keras_train.py", "--mode eager --model conv", "--size 32 --batch 8", True),
    "keras-graph": ("keras_train.py", "--mode graph --model conv", "--size 32 --batch 8", True),
    "keras-transformer": ("keras_train.py", "--mode graph --model transformer",
                          "--size 64 --batch 8", True),
    "keras-threads": ("keras_train.py", "--mode graph --model conv --inter-op 2",
                      "--size 32 --batch 8", False),
    "jax": ("jax_train.py", "--model conv", "--size 32 --batch 8", True),
    "jax-transformer": ("jax_train.py", "--model transformer", "--size 64 --batch 8", True),
    "trainer": ("trainer_train.py", "--batch 16 --size 256", "--batch 8 --size 128", True),
    "lightning": ("lightning_train.py", "--batch 32 --size 96", "--batch 8", True),
}


def make_environment(folder):
    python = os.path.join(folder, "bin", "python")
    if not os.path.exists(python):
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
    return python


class Failed(Exception):
    """The program failed."""


def measure(command, env, timeout):
    """The lines with losses, the seconds of each training iteration, and the program's messages."""
    try:
        done = subprocess.run(command, env=env, timeout=timeout, check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"no end within {timeout} s") from late
    losses = re.findall(r"^((?:evaluation )?iteration \d+ loss \S+)", done.stdout, re.M)
    seconds = [float(s) for s in re.findall(r"^iteration .* seconds (\S+)", done.stdout, re.M)]
    if done.returncode or not losses:
        raise Failed(f"exit code {done.returncode}: {done.stderr[-300:]}")
    return losses, seconds, done.stderr[-500:]


def pace(seconds):
    """The median iteration after learning, with Ebb and without."""
    return statistics.median(seconds[-max(3, len(seconds) // 2):])


def measure_ebb(command, env, args, device):
    env = {**env, "EBB_REFUSE": DEVICES[device or "uffd-move"]}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "summary.json")
        losses, seconds, messages = measure(
            [args.ebb, "run", "--no-cache", "--budget", args.budget, "--summary-json", path, "--",
             *command], env, args.timeout)
        with open(path, encoding="utf-8") as file:
            summary = json.load(file)
    if device and summary["device"] != device:
        raise Failed(f"ran on {summary['device']}, not on {device}")
    return losses, seconds, messages, summary


def run_one(name, args, python):
    program, given, small, repeats = PROGRAMS[name]
    command = [python, os.path.join(HERE, program), *given.split(),
               *(small.split() if args.small else []), "--iterations", str(args.iterations)]
    env = dict(os.environ, OMP_NUM_THREADS="2", **SETTINGS)
    alone, known = {}, allocators()
    for allocator, settings in known.items():
        if allocator in args.allocators:
            alone[allocator] = measure(command, {**env, **settings}, args.timeout)
    best = min(alone, key=lambda allocator: pace(alone[allocator][1]))
    tuned = {**env, **known[best]}
    plain, ours = [alone[best]], {device: [] for device in args.devices}
    for pair in range(args.pairs):
        for device, runs in ours.items():
            try:
                runs.append(measure_ebb(command, env, args, device))
            except Failed as failed:
                runs.append(failed)
        if pair + 1 < args.pairs:
            plain.append(measure(command, tuned, args.timeout))
    for device, runs in ours.items():
        title = f"{name} {device or ''}".strip()
        failed = [run for run in runs if isinstance(run, Failed)]
        if failed:
            yield {"name": title, "error": str(failed[0])}
        else:
            yield row_of(title, repeats, best, alone, plain, runs)


def row_of(name, repeats, best, alone, plain, ours):
    losses = plain[0][0]
    summaries = [summary for *_, summary in ours]
    kept = all(not summary["budget_exceeded"] and
               summary["peak_resident_bytes"] <= summary["budget_bytes"] for summary in summaries)
    same = all(run[0] == losses for run in ours)
    whole = all(len(run[0]) == len(losses) for run in ours)
    return {"name": name, "same": same, "repeats": repeats, "kept": kept,
            "good": kept and whole and (same or not repeats),
            "allocator": best, "allocators": {peer: pace(run[1]) for peer, run in alone.items()},
            "ratios": [pace(b[1]) / pace(a[1]) for a, b in zip(plain, ours)],
            "seconds": [run[1] for run in plain], "ours_seconds": [run[1] for run in ours],
            "messages": ours[-1][2], **{
                key: statistics.median_low([summary[key] for summary in summaries])
                for key in ("budget_bytes", "peak_resident_bytes", "unmanaged_peak_bytes",
                            "iterations", "planned_iterations", "planned_from_iteration",
                            "demand_faults_planned_median", "mismatches", "moved_in_bytes")}}


def show(row):
    if "error" in row:
        print(f"{row['name']:34} {row['error']}", flush=True)
        return
    losses = "equal" if row["same"] else "DIFFER" if row["repeats"] else "ends"
    ratios = row["ratios"]
    print(f"{row['name']:34} {losses:7} {statistics.median(ratios):5.2f} "
          f"({min(ratios):.2f}-{max(ratios):.2f}) of {row['allocator']:9} "
          f"{row['peak_resident_bytes'] / MIB:7.1f} of {row['budget_bytes'] / MIB:7.1f}"
          f"{'' if row['kept'] else ' EXCEEDED'}  "
          f"{row['planned_iterations']:4} of {row['iterations']:4}  "
          f"{row['demand_faults_planned_median']:6}  {row['mismatches']:4}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", required=True, help="virtual environment; made if missing")
    parser.add_argument("--ebb", default=os.path.join(SOURCE, "build", "release", "bin", "ebb"))
    parser.add_argument("--budget", default="60%")
    parser.add_argument("--only", nargs="*", choices=sorted(PROGRAMS), default=None)
    parser.add_argument("--small", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--iterations", type=int, default=16)
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--devices", default=[None], type=lambda text: text.split(","),
                        help="separated by commas; else the best one here: " + ", ".join(DEVICES))
    parser.add_argument("--allocators", default="jemalloc,glibc",
                        type=lambda text: text.split(","))
    parser.add_argument("--timeout", type=int, default=1800, help="seconds for one run")
    parser.add_argument("-o", "--output", help="the figures as JSON")
    args = parser.parse_args()
    python = make_environment(os.path.abspath(args.venv))
    print(f"{'':34} losses  ratio                          resident, MiB          planned       "
          "faults  left")
    store = os.environ.get("TMPDIR", "/var/tmp")  # the store's folder of `ebb run`
    report = {"schema": "ebb.bench-frameworks/1", **provenance(store), "budget": args.budget}
    rows = report["rows"] = []
    for name in args.only or PROGRAMS:
        try:
            for row in run_one(name, args, python):
                rows.append(row)
                show(row)
        except Failed as failed:
            rows.append({"name": name, "error": str(failed)})
            show(rows[-1])
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
    sys.exit(not all(row.get("good") for row in rows))


if __name__ == "__main__":
    main()
