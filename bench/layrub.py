#!/usr/bin/python3
"""Layrub's memory and time, live, beside static buffers and Ebb.

Each network trains under each policy of ebb-train on the same machine:

- `static`: each blob is allocated once and kept, as Caffe does. Savings are measured against it.
- `layrub:*`: as published; everything eligible moves, one layer ahead, a barrier after each layer.
- `ebb=hybrid`: Ebb's own plan with the peak of `layrub:hybrid` as its budget.
- `ebb=half`: Ebb's own plan with half of the static peak.

Losses must be equal under all of them. Times are medians of the iterations after the first, and of
rounds in turns. `vdnn:*` is simulated by `ebb plan` on a recorded trace, and marked so.

    bench/layrub.py -o layrub.json
    bench/layrub.py --deepest 16            ResNet-1517 at 224x224 within 12 GiB

Published (Jin et al., ACM TACO 2018, 12 GB device): 58.2 % less memory and 24.1 % more time on
average, 98.9 % less at best.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import paired

BIN = os.path.join(paired.SOURCE, "build/release/bin")
# Network and batch: the largest that static buffers and this machine's time allow. Published are
# batches of 32 for ResNets, 64 for VGG-16.
NETS = ["alexnet:64", "vgg-16:16", "googlenet:16", "resnet-50:16", "resnet-101:8", "resnet-152:8"]
LAYRUB = ["layrub:intra", "layrub:inter", "layrub:hybrid"]
SIMULATED = ["vdnn:all", "vdnn:conv"]


def train(net, batch, options, policy, budget=None):
    """Runs ebb-train. Returns its summary, or None if memory did not suffice."""
    command = [os.path.join(BIN, "ebb-train"), net, "--batch", str(batch), "--size",
               str(options.size), "--iterations", str(options.iterations), "--quiet",
               "--store", options.store, "--policy", policy, "--summary-json", "-"]
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


def simulate(net, batch, options, folder):
    """Peaks and times of vdnn, by a plan for a recorded trace."""
    trace = os.path.join(folder, "net.ebbt")
    subprocess.run([os.path.join(BIN, "ebb-train"), net, "--batch", str(batch), "--size",
                    str(options.size), "--iterations", "3", "--quiet", "--record", trace],
                   check=True, timeout=options.timeout)
    rows = {}
    for policy in SIMULATED:
        told = subprocess.run([os.path.join(BIN, "ebb"), "plan", "--policy", policy, "--store",
                               options.store, "--budget", "100%", trace], capture_output=True,
                              text=True, check=False).stdout
        peak = re.search(r"^peak +([0-9.]+) (\w+)", told, re.M)
        slow = re.search(r": ([0-9.]+) times the unlimited", told)
        if peak and slow:
            unit = {"MiB": 1, "GiB": 1024, "KiB": 1 / 1024}[peak.group(2)]
            rows[policy] = {"peak_resident_bytes": float(peak.group(1)) * unit * paired.MIB,
                            "slowdown": float(slow.group(1)), "simulated": True}
    return rows


def measure(net, batch, options):
    """The rows of one network."""
    rows = {policy: [] for policy in ["static", *LAYRUB, "ebb", "ebb=hybrid", "ebb=half"]}
    for _ in range(options.rounds):
        for policy in ["static", *LAYRUB, "ebb"]:
            rows[policy].append(train(net, batch, options, policy))
        hybrid, static = rows["layrub:hybrid"][-1], rows["static"][-1] or rows["ebb"][-1]
        if hybrid:
            rows["ebb=hybrid"].append(train(net, batch, options, "ebb",
                                            hybrid["peak_resident_bytes"]))
        rows["ebb=half"].append(train(net, batch, options, "ebb",
                                      static["static_peak_bytes"] // 2))
    whole = {policy: runs for policy, runs in rows.items() if runs and all(runs)}
    losses = {json.dumps(run["losses"]) for runs in whole.values() for run in runs}
    if len(losses) != 1:
        raise SystemExit(f"{net}: losses differ between policies")
    peak = next(iter(whole.values()))[0]["static_peak_bytes"]
    base = statistics.median(run["median_s"] for run in whole.get("static", whole["ebb"]))
    return {policy: {"peak_resident_bytes": max(run["peak_resident_bytes"] for run in runs),
                     "seconds": [run["median_s"] for run in runs],
                     "slowdown": statistics.median(run["median_s"] for run in runs) / base,
                     "saved": 1 - max(run["peak_resident_bytes"] for run in runs) / peak,
                     "images_per_s": batch / statistics.median(run["median_s"] for run in runs)}
            for policy, runs in whole.items()}


def print_rows(net, batch, rows):
    for policy, row in rows.items():
        saved = f"{100 * row['saved']:5.1f} %" if "saved" in row else ""
        images = f"{row['images_per_s']:6.1f} images/s" if "images_per_s" in row else "simulated"
        print(f"{net:<12} {batch:>4}  {policy:<14} {row['peak_resident_bytes'] / paired.MIB:9.0f} "
              f"MiB {saved:>8}  {row['slowdown']:6.2f} x  {images}", flush=True)


def deepest(options):
    """ResNet-1517 at full size: the most that wait4() has seen of the process, and the time."""
    began = time.monotonic()
    command = [os.path.join(BIN, "ebb-train"), "resnet-1517", "--batch", str(options.deepest),
               "--size", "224", "--iterations", "2", "--budget", "10300M", "--quiet", "--store",
               options.store, "--summary-json", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        summary = json.loads(process.stdout.read())
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    summary.update(peak_rss_bytes=used.ru_maxrss * 1024, wall_s=time.monotonic() - began)
    print(f"resnet-1517 at batch {options.deepest}: {summary['peak_rss_bytes'] / 2**30:.2f} GiB at "
          f"most, {summary['static_peak_bytes'] / 2**30:.1f} GiB with static buffers, seconds "
          f"{' '.join(f'{second:.0f}' for second in summary['seconds'])}")
    return summary


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--nets", nargs="+", default=NETS, metavar="NET:BATCH")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--store", default="/var/tmp")
    parser.add_argument("--timeout", type=float, default=1200)
    parser.add_argument("--deepest", type=int, metavar="BATCH")
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    report = {"schema": "ebb.layrub/1", **paired.provenance(options.store), "nets": {}}
    if options.deepest:
        report["deepest"] = deepest(options)
    for spec in [] if options.deepest else options.nets:
        net, batch = spec.split(":")
        with tempfile.TemporaryDirectory(prefix="ebb-layrub-") as folder:
            rows = measure(net, int(batch), options)
            rows.update(simulate(net, int(batch), options, folder))
        report["nets"][net] = {"batch": int(batch), "rows": rows}
        print_rows(net, int(batch), rows)
    for policy in ["layrub:hybrid", "ebb=hybrid", "ebb=half"] if report["nets"] else []:
        rows = [net["rows"][policy] for net in report["nets"].values() if policy in net["rows"]]
        print(f"average      {policy:<14} {100 * statistics.mean(r['saved'] for r in rows):5.1f} % "
              f"less memory, {100 * (statistics.mean(r['slowdown'] for r in rows) - 1):+5.1f} % time")
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
