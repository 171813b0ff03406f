#!/usr/bin/python3
"""Measures the cost of a malloc and its free, alone and under `ebb run`, in turns.

    bench/malloc_pairs.py [--pairs 3] [--budget 60%] [-o out.json]

For each size, prints the median, least and greatest ns of a malloc and its free over all runs. The
program is bench/malloc_pairs.c.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

import paired

KINDS = {"small_ns": "64 B, left to the next allocator", "slab_ns": "1,024 B, in a slab",
         "large_ns": "1 to 2 MiB, managed, a plan in force"}


def measure(command, env):
    done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--budget", default="60%")
    parser.add_argument("--build", default=os.path.join(paired.SOURCE, "build", "release"))
    parser.add_argument("--store", default=tempfile.gettempdir(), help="folder of the store")
    parser.add_argument("-o", "--output", help="write everything as JSON")
    args = parser.parse_args()
    program = os.path.join(args.build, "bench", "bench_malloc_pairs")
    ebb = [os.path.join(args.build, "bin", "ebb"), "run", "-q", "--budget", args.budget, "--no-cache",
           "--store", args.store, "--"]
    env = {k: v for k, v in os.environ.items() if not k.startswith("EBB_")}
    report = {"schema": "ebb.bench-malloc-pairs/1", **paired.provenance(args.store),
              "alone": [], "under": []}
    for _ in range(args.pairs):
        report["alone"].append(measure([program], env))
        report["under"].append(measure([*ebb, program], env))
    for key, name in KINDS.items():
        for which in ("alone", "under"):
            values = [run[key] for run in report[which]]
            print(f"{name:40} {which:6} {statistics.median(values):8.1f} "
                  f"({min(values):.1f}-{max(values):.1f}) ns")
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
