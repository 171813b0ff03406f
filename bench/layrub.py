#!/usr/bin/python3
"""Layrub's and vDNN's memory and time, live, beside static buffers and Ebb.

Each network trains under each policy of ebb-train on the same machine:

- `static`: each blob is allocated once and kept, as Caffe does. Savings are measured against it.
- `layrub:*`: as published; everything eligible moves, one layer ahead, a barrier after each layer.
- `vdnn:*`: outputs move as published, memory is freed at the last use.
- `ebb=hybrid`: Ebb's own plan with the peak of `layrub:hybrid` as its budget.
- `ebb=half`: Ebb's own plan with half of the static peak.

Losses must be equal under all of them. Times are medians of the iterations after the first, and of
rounds in turns. They are relative to the first policy that runs.

    bench/layrub.py -o layrub.json
    bench/layrub.py --policies static ebb=hybrid --rounds 3 --nets resnet-50:16
    bench/layrub.py --iterations 2 --deepest 8 --as ebb:10300M layrub:hybrid ebb:1.1%

The last one trains ResNet-1517 at 224x224. A budget in percent is of static buffers.

Published (Jin et al., ACM TACO 2018, 12 GB device): 58.2 % less memory and 24.1 % more time on
average, 98.9 % less at best.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import paired

BIN = os.path.join(paired.SOURCE, "build/release/bin")
# Network and batch: the largest that static buffers and this machine's time allow. Published are
# batches of 32 for ResNets, 64 for VGG-16.
NETS = ["alexnet:64", "vgg-16:16", "googlenet:16", "resnet-50:16", "resnet-101:8", "resnet-152:8",
        "wrn-28-10:32", "densenet-121:16", "gpt-12:4"]
FIXED = ["static", "layrub:intra", "layrub:inter", "layrub:hybrid", "vdnn:all", "vdnn:conv", "ebb"]
BUDGETED = ["ebb=hybrid", "ebb=half"]
AVERAGES = ["layrub:hybrid", "vdnn:all", "vdnn:conv", *BUDGETED]


def train(net, batch, options, policy, budget=None):
    """Runs ebb-train. Returns its summary, or None if memory did not suffice."""
    command = [os.path.join(BIN, "ebb-train"), net, "--batch", str(batch), "--iterations",
               str(options.iterations), "--quiet", "--store", options.store, "--policy", policy,
               "--summary-json", "-"]
    if options.size:
        command += ["--size", str(options.size)]
    if budget:
        command += ["--budget", str(budget)]
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          timeout=options.timeout)
    if done.returncode:
        print(f"{net} {policy}: {done.stderr.strip()}", file=sys.stderr)
        return None
    summary = json.loads(done.stdout)
    summary["median_s"] = statistics.median(summary["seconds"][1:])
    return summary


def measure(net, batch, options):
    """The rows of one network."""
    rows = {policy: [] for policy in options.policies}
    for _ in range(options.rounds):
        done = {}
        for policy in options.policies:
            budget = None
            if policy == "ebb=half":
                budget = next(run for run in done.values() if run)["static_peak_bytes"] // 2
            elif policy == "ebb=hybrid":
                hybrid = done.get("layrub:hybrid")
                budget = hybrid["peak_resident_bytes"] if hybrid else options.budget
                if not budget:
                    continue
            done[policy] = train(net, batch, options, policy.partition("=")[0], budget)
            rows[policy].append(done[policy])
    whole = {policy: runs for policy, runs in rows.items() if runs and all(runs)}
    losses = {json.dumps(run["losses"]) for runs in whole.values() for run in runs}
    if len(losses) != 1:
        raise SystemExit(f"{net}: losses differ between policies")
    peak = next(iter(whole.values()))[0]["static_peak_bytes"]
    base = statistics.median(run["median_s"] for run in next(iter(whole.values())))
    return {policy: {"peak_resident_bytes": max(run["peak_resident_bytes"] for run in runs),
                     "seconds": [run["median_s"] for run in runs],
                     "slowdown": statistics.median(run["median_s"] for run in runs) / base,
                     "saved": 1 - max(run["peak_resident_bytes"] for run in runs) / peak,
                     "images_per_s": batch / statistics.median(run["median_s"] for run in runs)}
            for policy, runs in whole.items()}


def print_rows(net, batch, rows):
    for policy, row in rows.items():
        print(f"{net:<12} {batch:>4}  {policy:<14} {row['peak_resident_bytes'] / paired.MIB:9.0f} "
              f"MiB {100 * row['saved']:5.1f} %  {row['slowdown']:6.2f} x  "
              f"{row['images_per_s']:6.1f} images/s", flush=True)


def deepest(options, way, before):
    """The deepest network: the most that wait4() has seen of the process, and the time. `before` is
    the summary of the way before, or None."""
    began = time.monotonic()
    policy, budget = ("ebb", way[4:]) if way.startswith("ebb:") else (way, "")
    command = [os.path.join(BIN, "ebb-train"), options.deep_net, "--batch", str(options.deepest),
               "--size", str(options.size or 224), "--iterations", str(options.iterations),
               "--policy", policy, "--quiet", "--store", options.store, "--summary-json", "-"]
    if budget.endswith("%"):
        if not before:
            raise SystemExit(f"{way}: static buffers are known after the first way only")
        budget = str(int(before["static_peak_bytes"] * float(budget[:-1]) / 100))
    if budget:
        command += ["--budget", budget]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        summary = json.loads(process.stdout.read())
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    summary.update(way=way, peak_rss_bytes=used.ru_maxrss * 1024, wall_s=time.monotonic() - began)
    saved = 1 - summary["peak_resident_bytes"] / summary["static_peak_bytes"]
    print(f"{options.deep_net} at batch {options.deepest}, {way}: "
          f"{summary['peak_rss_bytes'] / 2**30:.2f} GiB at most, tensors "
          f"{summary['peak_resident_bytes'] / 2**30:.2f} of "
          f"{summary['static_peak_bytes'] / 2**30:.1f} GiB with static buffers "
          f"({-100 * saved:.1f} %), seconds "
          f"{' '.join(f'{second:.0f}' for second in summary['seconds'])}", flush=True)
    return summary


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--nets", nargs="+", default=NETS, metavar="NET:BATCH")
    parser.add_argument("--policies", nargs="+", default=[*FIXED, *BUDGETED],
                        choices=[*FIXED, *BUDGETED], metavar="POLICY")
    parser.add_argument("--budget", help="of ebb=hybrid, if layrub:hybrid does not run")
    parser.add_argument("--size", type=int, help="of images or sequences; that of the network")
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--store", default="/var/tmp")
    parser.add_argument("--timeout", type=float, default=1200)
    parser.add_argument("--deepest", type=int, metavar="BATCH")
    parser.add_argument("--deep-net", default="resnet-1517", metavar="NET")
    parser.add_argument("--as", nargs="+", default=["ebb:10300M"], dest="ways", metavar="POLICY",
                        help="of the deepest network; ebb:BUDGET, in bytes or percent of static")
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    report = {"schema": "ebb.layrub/1", **paired.provenance(options.store), "nets": {}}
    if options.deepest:
        report["deepest"] = []
        for way in options.ways:
            before = report["deepest"][-1] if report["deepest"] else None
            report["deepest"].append(deepest(options, way, before))
    for spec in [] if options.deepest else options.nets:
        net, batch = spec.split(":")
        rows = measure(net, int(batch), options)
        report["nets"][net] = {"batch": int(batch), "rows": rows}
        print_rows(net, int(batch), rows)
    for policy in AVERAGES if report["nets"] else []:
        rows = [net["rows"][policy] for net in report["nets"].values() if policy in net["rows"]]
        if rows:
            saved = 100 * statistics.mean(row["saved"] for row in rows)
            more = 100 * (statistics.mean(row["slowdown"] for row in rows) - 1)
            print(f"average      {policy:<14} {saved:5.1f} % less memory, {more:+5.1f} % time")
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
