#!/usr/bin/env python3
"""Wider frameworks under `ebb run`: the same losses, the budget kept, planned and not reactive.

    bench/frameworks/run.py --venv DIR [--budget 60%] [--only NAME ...] [--small] [-o out.json]

Makes a virtual environment in DIR if there is none (current PyTorch, torchvision, TensorFlow, JAX,
transformers, lightning from the package index; some 8 GiB), runs each program alone, with the
settings that Ebb makes in force, and then under Ebb, and prints a table:

  losses      equal to the last digit, or DIFFER (TensorFlow with several inter-op threads differs from
              itself: there `ends` says that it completed)
  ratio       median planned iteration over the median of the same iterations alone
  resident    most resident, of the budget
  planned     iterations in which a plan was in force, of all
  faults      demand faults in the median planned iteration
  left        times the program left the template

Exit code 1 where losses differ, a budget is exceeded or a program fails.  Not part of CI.
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
MIB = 1 << 20
PACKAGES = "torch torchvision tensorflow-cpu jax transformers lightning accelerate numpy".split()
SETTINGS = {"TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1", "CUDA_VISIBLE_DEVICES": "",
            "TF_CPP_MIN_LOG_LEVEL": "3"}
TORCH = os.path.join(SOURCE, "examples", "torch_train.py")

# name: (program, its arguments, those of --small, losses repeat)
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


def measure(command, env, timeout):
    """Exit code, the lines with losses, seconds of each training iteration."""
    done = subprocess.run(command, env=env, timeout=timeout, check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    losses = re.findall(r"^((?:evaluation )?iteration \d+ loss \S+)", done.stdout, re.M)
    seconds = [float(s) for s in re.findall(r"^iteration .* seconds (\S+)", done.stdout, re.M)]
    return done, losses, seconds


def run_one(name, args, python):
    program, given, small, repeats = PROGRAMS[name]
    command = [python, os.path.join(HERE, program), *given.split(),
               *(small.split() if args.small else []), "--iterations", str(args.iterations)]
    env = dict(os.environ, OMP_NUM_THREADS="2", **SETTINGS)
    plain, losses, seconds = measure(command, env, args.timeout)
    if plain.returncode or not losses:
        return {"name": name, "error": "fails without Ebb: " + plain.stderr[-300:]}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "summary.json")
        under, ours, ours_seconds = measure(
            [args.ebb, "run", "--no-cache", "--budget", args.budget, "--summary-json", path, "--",
             *command], env, args.timeout)
        try:
            with open(path, encoding="utf-8") as file:
                summary = json.load(file)
        except (OSError, ValueError):
            summary = {}
    if under.returncode:
        return {"name": name, "error": f"exit code {under.returncode}: {under.stderr[-300:]}"}
    first = summary["planned_from_iteration"]
    kept = (not summary["budget_exceeded"] and
            summary["peak_resident_bytes"] <= summary["budget_bytes"])
    same = ours == losses
    tail = max(3, len(seconds) // 2)  # behind the learning, in both
    return {"name": name, "same": same, "repeats": repeats, "kept": kept, "planned_from": first,
            "good": kept and len(ours) == len(losses) and (same or not repeats),
            "ratio": statistics.median(ours_seconds[-tail:]) / statistics.median(seconds[-tail:]),
            "seconds": seconds, "ours_seconds": ours_seconds, "messages": under.stderr[-500:],
            **{key: summary[key] for key in
               ("budget_bytes", "peak_resident_bytes", "unmanaged_peak_bytes", "iterations",
                "planned_iterations", "demand_faults_planned_median", "mismatches",
                "moved_in_bytes")}}


def show(row):
    if "error" in row:
        print(f"{row['name']:18} {row['error']}", flush=True)
        return
    losses = "equal" if row["same"] else "DIFFER" if row["repeats"] else "ends"
    print(f"{row['name']:18} {losses:7} {row['ratio']:5.2f}  "
          f"{row['peak_resident_bytes'] / MIB:7.1f} of {row['budget_bytes'] / MIB:7.1f}"
          f"{'' if row['kept'] else ' EXCEEDED'}  "
          f"{row['planned_iterations']:4} of {row['iterations']:4}  "
          f"{row['demand_faults_planned_median']:6}  {row['mismatches']:4}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", required=True, help="virtual environment; made if it is not there")
    parser.add_argument("--ebb", default=os.path.join(SOURCE, "build", "release", "bin", "ebb"))
    parser.add_argument("--budget", default="60%")
    parser.add_argument("--only", nargs="*", choices=sorted(PROGRAMS), default=None)
    parser.add_argument("--small", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--iterations", type=int, default=16)
    parser.add_argument("--timeout", type=int, default=1800, help="seconds for one run")
    parser.add_argument("-o", "--output", help="the figures as JSON")
    args = parser.parse_args()
    python = make_environment(os.path.abspath(args.venv))
    print(f"{'':18} losses  ratio   resident, MiB          planned       faults  left")
    rows = []
    for name in args.only or PROGRAMS:
        try:
            row = run_one(name, args, python)
        except subprocess.TimeoutExpired:
            row = {"name": name, "error": f"no end within {args.timeout} s"}
        rows.append(row)
        show(row)
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    sys.exit(not all(row.get("good") for row in rows))


if __name__ == "__main__":
    main()
