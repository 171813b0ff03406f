#!/usr/bin/python3
"""The three properties of AppObMem, its linear cost of a transfer, and what swapping saves.

    bench/properties.py --store DIR -o properties.json TRACE...

AppObMem (docs/papers.md) rests on three properties of a training, and on a cost of a transfer that
is linear in its bytes. It says that swapping saves 40 to 60 % of the memory. Three tables:

  properties  of each trace, by `ebb info`. *Iterative*: the share of events that repeat an iteration
              exactly. *Regular*: the share of blocks whose size, ticks and accesses agree in all
              iterations. *Extremal*: the share of the byte-seconds of gaps in the longest tenth
  cost        of writing and reading one block in DIR, by size; the least squares of
              `bytes * per_byte + fixed`, and how far they are from what was measured
  savings     of each trace and machine: how much smaller than the peak the budget may be if an
              iteration may be 0 or 5 % longer, by policy (`ebb compare --at-slowdown`)

The times of a trace are those of the processor that it was recorded on. --scale-time 0.05 is a
processor 20 times as fast.
"""
import argparse
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time

from paired import SOURCE, provenance

KIB, MIB = 1 << 10, 1 << 20
SIZES = (256 * KIB, 512 * KIB, MIB, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 32 * MIB, 64 * MIB)
PUBLISHED = (0.4, 0.6)  # savings, by the paper
MACHINES = ("pcie3", "pcie4", "pcie5", "nvlink", "nvme", "hdd")
POLICIES = ("ebb", "appobmem", "autoswap:vote", "fifo", "lru")


def fit(points):
    """(fixed, per_byte) of the least squares of relative errors over (bytes, ns)."""
    weighted = [(1 / ns ** 2, size, ns) for size, ns in points]
    total = sum(weight for weight, _, _ in weighted)
    mean_size = sum(weight * size for weight, size, _ in weighted) / total
    mean_ns = sum(weight * ns for weight, _, ns in weighted) / total
    square = sum(weight * (size - mean_size) ** 2 for weight, size, _ in weighted)
    both = sum(weight * (size - mean_size) * (ns - mean_ns) for weight, size, ns in weighted)
    per_byte = both / square if square else 0
    return mean_ns - per_byte * mean_size, per_byte


def errors_of(points, fixed, per_byte):
    """How far the fit is from each point, as a share of it, without sign."""
    return [abs(fixed + per_byte * size - ns) / ns for size, ns in points]


def cost_of(points):
    fixed, per_byte = fit(points)
    errors = errors_of(points, fixed, per_byte)
    return {"points": points, "fixed_ns": fixed, "ns_per_byte": per_byte,
            "error_median": statistics.median(errors), "error_worst": max(errors)}


def saving_of(row):
    """The share of the peak that a row of --at-slowdown does without; None: there is no such budget."""
    return 1 - row["share"] if row["share"] is not None else None


def savings_of(rows):
    """By machine, policy and slow-down: the median saving over the traces. Also the number of traces
    that save as much as the paper says, at least."""
    groups = {}
    for row in rows:
        key = (row["machine"], row["policy"], row["at_percent"])
        groups.setdefault(key, []).append(saving_of(row) or 0)
    return [{"machine": machine, "policy": policy, "at_percent": at, "traces": len(found),
             "median": statistics.median(found),
             "as_published": sum(saving >= PUBLISHED[0] for saving in found)}
            for (machine, policy, at), found in groups.items()]


# --- measured --------------------------------------------------------------------------------


def timed(call):
    began = time.monotonic_ns()
    call()
    return time.monotonic_ns() - began


def measure_costs(folder, rounds):
    """(bytes, ns) of writes and of reads of single blocks, each the median of `rounds`."""
    direct = os.O_DIRECT
    with tempfile.NamedTemporaryFile(dir=folder, prefix="ebb-properties-") as named:
        try:
            file = os.open(named.name, os.O_RDWR | direct)
        except OSError:
            file = os.open(named.name, os.O_RDWR)
        out, into = [], []
        for size in SIZES:
            with mmap.mmap(-1, size) as block:
                block[:] = os.urandom(MIB) * (size // MIB) if size >= MIB else os.urandom(size)
                os.pwritev(file, [block], 0)
                out.append((size, statistics.median(
                    timed(lambda: os.pwritev(file, [block], 0)) for _ in range(rounds))))
                into.append((size, statistics.median(
                    timed(lambda: os.preadv(file, [block], 0)) for _ in range(rounds))))
        os.close(file)
    return {"out": cost_of(out), "in": cost_of(into)}


def ebb(args, *arguments):
    done = subprocess.run([os.path.join(args.build, "bin", "ebb"), *arguments, "--json"],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"properties.py: ebb {' '.join(arguments)}: {done.stderr}")
    return json.loads(done.stdout)


def name_of(trace):
    return os.path.splitext(os.path.basename(trace))[0]


def measure_properties(args):
    for trace in args.traces:
        info = ebb(args, "info", trace)
        yield {"trace": name_of(trace), "period_events": info["period_events"],
               "iteration_ns": info["iteration_ns"], "peak_bytes": info["iteration_peak_bytes"],
               **info["properties"]}


def measure_savings(args):
    for machine in args.machines:
        for trace in args.traces:
            rows = ebb(args, "compare", trace, "--machine", machine, "--at-slowdown", "0,5,20",
                       "--policies", ",".join(args.policies), "--scale-time", str(args.scale_time))
            for row in rows["rows"]:
                yield {**row, "trace": name_of(trace)}


# --- output ----------------------------------------------------------------------------------


def percent(share):
    return "-" if share is None else f"{100 * share:.0f} %"


def show(report):
    print("| trace | events | peak, MiB | iterative | regular | extremal |\n|---|---|---|---|---|---|")
    for row in report["properties"]:
        print(f"| {row['trace']} | {row['period_events']:,} | {row['peak_bytes'] / MIB:,.0f} | "
              f"{row['iterative']:.3f} | {row['regularity']:.3f} | {row['extremalization']:.3f} |")
    print("\n| way | fixed, us | GB/s | median error | worst error |\n|---|---|---|---|---|")
    for way, cost in report["cost"].items():
        print(f"| {way} | {cost['fixed_ns'] / 1000:.0f} | {1 / cost['ns_per_byte']:.2f} | "
              f"{percent(cost['error_median'])} | {percent(cost['error_worst'])} |")
    columns = list(dict.fromkeys((row["policy"], row["at_percent"]) for row in report["savings"]))
    policies = list(dict.fromkeys(policy for policy, _ in columns))
    print(f"\n| machine | trace | {' | '.join(policies)} |\n|---|---|{'---|' * len(policies)}")
    by_trace = {}
    for row in report["savings"]:
        cells = by_trace.setdefault((row["machine"], row["trace"]), {})
        cells.setdefault(row["policy"], []).append(saving_of(row))
    for (machine, trace), cells in by_trace.items():
        print(f"| {machine} | {trace} | " + " | ".join(
            ", ".join(map(percent, cells.get(policy, []))) for policy in policies) + " |")
    print("\n| machine | longer by | policy | median saving | traces with 40 % and more |\n"
          "|---|---|---|---|---|")
    for row in report["summary"]:
        print(f"| {row['machine']} | {row['at_percent']:g} % | {row['policy']} | "
              f"{percent(row['median'])} | {row['as_published']} of {row['traces']} |")


def words(text):
    return text.split(",")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--build", default=os.path.join(SOURCE, "build", "release"))
    parser.add_argument("--store", default=".", help="folder in which transfers are timed")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--scale-time", type=float, default=1)
    parser.add_argument("--machines", type=words, default=list(MACHINES))
    parser.add_argument("--policies", type=words, default=list(POLICIES))
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    report = {"schema": "ebb.bench-properties/1", **provenance(args.store)}
    report["cost"] = measure_costs(args.store, args.rounds)
    report["properties"] = list(measure_properties(args))
    report["savings"] = list(measure_savings(args))
    report["summary"] = savings_of(report["savings"])
    show(report)
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
