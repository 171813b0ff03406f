#!/usr/bin/env python3
"""Trains with Darknet, which allocates once, with and without Ebb, on images made for it.

    bench/darknet.py [--budgets 60%,50%] [--pairs 3] [--network tiny] [--batch 8] [-o out.json]

Needs Debian's darknet. One of its networks is trained for some iterations, twice in each pair:
alone with jemalloc and huge pages, and under `ebb run`, in turns. Prints:

- the median planned iteration over the median of the same iterations alone;
- the wall time of the whole command;
- the peak of resident bytes as a share of the budget;
- the demand faults in the median planned iteration;
- whether the weights are equal bit for bit.

The exit code is 1 if the weights differ, or the budget is exceeded or never in force. A budget of a
share is never in force if no iteration is found, since the peak is unknown then.
"""
import argparse
import hashlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import paired

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(HERE)
CONFIGURATIONS = "/usr/share/darknet/cfg"
CLASSES = ("cat", "dog")


def prepare(folder, args):
    """Makes the images, their list, and the network for them."""
    paths = []
    for i in range(8):
        name = CLASSES[i % 2]
        path = os.path.join(folder, f"{name}_{i}.ppm")
        with open(path, "wb") as file:
            file.write(b"P6\n256 256\n255\n" + bytes(
                (x * (i + 1) + 3 * y * (1 + i % 2) + c) & 255
                for y in range(256) for x in range(256) for c in range(3)))
        paths.append(path)
    texts = {"train.list": "\n".join(paths) + "\n", "labels": "\n".join(CLASSES) + "\n",
             "data": f"classes={len(CLASSES)}\ntrain=train.list\nvalid=train.list\n"
                     "labels=labels\nbackup=backup\ntop=1\n"}
    with open(os.path.join(CONFIGURATIONS, args.network + ".cfg"), encoding="utf-8") as file:
        network = file.read()
    for key, value in (("batch", args.batch), ("subdivisions", 1),
                       ("max_batches", args.iterations)):
        network = re.sub(rf"(?m)^{key} *=.*", f"{key}={value}", network)
    texts["network.cfg"] = network.replace("filters=1000", f"filters={len(CLASSES)}")
    for name, text in texts.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)


def train(folder, args, command, env):
    """Seconds of each iteration, its losses, the hash of the weights, and the wall time."""
    backup = os.path.join(folder, "backup")
    shutil.rmtree(backup, ignore_errors=True)
    os.mkdir(backup)
    begin = time.monotonic()
    done = subprocess.run([*command, "darknet", "classifier", "train", "data", "network.cfg"],
                          cwd=folder, env={**os.environ, **env}, capture_output=True, text=True,
                          check=False)
    elapsed = time.monotonic() - begin
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} darknet: exit {done.returncode}\n{done.stderr[-2000:]}")
    lines = re.findall(r"^\d+, [\d.]+: ([-\w.]+), .* rate, ([\d.]+) seconds", done.stdout, re.M)
    with open(os.path.join(backup, "network.weights"), "rb") as file:
        weights = hashlib.sha256(file.read()).hexdigest()
    if len(lines) != args.iterations:
        sys.exit(f"{len(lines)} iterations of {args.iterations}\n{done.stdout[-2000:]}")
    return [float(s) for _, s in lines], [loss for loss, _ in lines], weights, elapsed


def measure(folder, args, budget):
    fixed = os.path.join(args.build, "bench", "libfixed_random_preload.so")
    peer = paired.allocators()["jemalloc"]
    alone_env = {**peer, "LD_PRELOAD": f"{fixed} {peer['LD_PRELOAD']}"}
    summary_path = os.path.join(folder, "summary.json")
    ebb = [os.path.join(args.build, "bin", "ebb"), "run", "-q", "--no-cache", "--store", args.store,
           "--budget", budget, "--summary-json", summary_path, "--"]
    ratios, whole, same, summary = [], [], True, {}
    for pair in range(args.pairs):
        alone = train(folder, args, [], alone_env)
        under = train(folder, args, ebb, {"LD_PRELOAD": fixed})
        with open(summary_path, encoding="utf-8") as file:
            summary = json.load(file)
        first = summary["planned_from_iteration"]
        first = first + 1 if first is not None and first < args.iterations - 1 else 0
        ratios.append(statistics.median(under[0][first:]) / statistics.median(alone[0][first:]))
        whole.append(under[3] / alone[3])
        same = same and under[1:3] == alone[1:3]
        print(f"{budget} pair {pair + 1}: {alone[0]} alone, {under[0]} under Ebb", file=sys.stderr)
    return {"budget": budget, "ratio": statistics.median(ratios), "ratios": ratios,
            "whole_ratio": statistics.median(whole), "weights_equal": same,
            "within_budget": summary["budget_bytes"] is not None and not summary["budget_exceeded"],
            "summary": summary}


def main():
    parser = argparse.ArgumentParser(description="Darknet with and without Ebb.")
    parser.add_argument("--network", default="tiny", help="a file of " + CONFIGURATIONS)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--budgets", default="60%")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--build", default=os.path.join(SOURCE, "build", "release"))
    parser.add_argument("--store", default=tempfile.gettempdir(), help="folder of the store")
    parser.add_argument("-o", "--output", help="write everything as JSON")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    if not shutil.which("darknet"):
        sys.exit("darknet is missing: apt-get install darknet")
    report = {"schema": "ebb.bench-darknet/1", **paired.provenance(args.store)}
    rows = report["rows"] = []
    with tempfile.TemporaryDirectory(prefix="ebb-darknet-") as folder:
        prepare(folder, args)
        for budget in args.budgets.split(","):
            rows.append(measure(folder, args, budget))
    print(f"{'budget':8} {'ratio':>6} {'whole':>6} {'resident / budget, MiB':>24} "
          f"{'planned':>8} {'faults':>7}  weights")
    for row in rows:
        s = row["summary"]
        budget = "none" if s["budget_bytes"] is None else s["budget_bytes"] >> 20
        held = f"{s['peak_resident_bytes'] >> 20} / {budget}"
        print(f"{row['budget']:8} {row['ratio']:6.2f} {row['whole_ratio']:6.2f} {held:>24} "
              f"{s['planned_iterations']:>8} {str(s['demand_faults_planned_median']):>7}  "
              f"{'equal' if row['weights_equal'] else 'DIFFER'}")
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
    return 0 if all(row["weights_equal"] and row["within_budget"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
