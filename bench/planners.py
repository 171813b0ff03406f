#!/usr/bin/python3
"""Compares all planners: the memory that each needs without a stall, and its time at a budget.

    bench/planners.py --data ../shared/data --record DIR -o planners.json

Each table has a bound or a peer for comparison:

  detection   period found, and the time it took
  zero stall  the smallest budget at which nothing waits, by policy; the bound; ebb's gap to it
  budgets     iteration time by policy at 80 ... 40 % of the peak, and whether ebb is at or below
              every other one; ebb against the bound on the time
  frontier    AutoSwap's published VGG trace, 260 ... 630 MiB, and the published overheads
  footprint   the memory that other allocators would have held, and Ebb's packing
  large       a plan for 100,000 events and 20,000 blocks an iteration: seconds and memory
  pack        bench/pack.py's

The traces are SINGA's in --data, and six of PyTorch. Missing ones are recorded into --record, which
takes minutes each. The machine is autoswap-paper, so the figures do not depend on this computer.
"""
import argparse
import csv
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TRAIN = os.path.join(os.path.dirname(HERE), "examples", "torch_train.py")
MIB = 1 << 20
BUDGETS = ("80%", "70%", "60%", "50%", "40%")
POLICIES = ("ebb", "appobmem", "appobmem:strong", "autoswap:doa", "autoswap:aoa", "autoswap:wdoa", "autoswap:swdoa",
            "autoswap:vote", "autoswap:bo", "autoswap:strong", "capuchin", "vdnn:all", "vdnn:conv",
            "vdnn:dyn", "fifo", "lru", "belady")
MODELS = {"resnet50": (8, 160), "vgg16": (4, 160), "densenet121": (8, 128),
          "mobilenet_v2": (16, 128), "gpt": (4, 128), "lstm": (16, 64)}
PUBLISHED = "vec_block_fresh_vgg.csv"
# SINGA's traces with accesses, and those with allocations only.
ACCESSES = (PUBLISHED, "vec_run_5_alex.csv")
ALLOCATIONS = ("memInfo_alex_20itr_100size.text", "memInfo_vgg_20itr_100size.text")
# A tolerance for rounding of times in the simulator and the planner.
SAME = 1.0001


def ebb(args, *arguments):
    done = subprocess.run([args.ebb, *arguments, "--json"], capture_output=True, text=True,
                          check=False)
    if done.returncode not in (0, 3):
        sys.exit(f"planners.py: ebb {' '.join(arguments)}: {done.stderr}")
    return json.loads(done.stdout)


def record(args):
    os.makedirs(args.record, exist_ok=True)
    # By default, the two thread pools of PyTorch 1.13 slow each other down.
    env = {"OMP_NUM_THREADS": str(len(os.sched_getaffinity(0))), **os.environ}
    for model, (batch, size) in MODELS.items():
        path = os.path.join(args.record, f"{model}.ebbt")
        if not os.path.exists(path):
            print(f"recording {model} ...", file=sys.stderr)
            subprocess.run([args.ebb, "record", "-o", path + ".part", "--", "/usr/bin/python3", TRAIN,
                            "--model", model, "--batch", str(batch), "--size", str(size),
                            "--iterations", "9"], stdout=subprocess.DEVNULL, env=env, check=True)
            os.rename(path + ".part", path)
        yield model, path


def detection(args, traces):
    for name, path in traces:
        found = ebb(args, "info", path)
        yield {"trace": name, **{key: found[key] for key in (
            "events", "iterations", "period_events", "detect_ns", "iteration_peak_bytes")}}


def on_machine(args):
    return ("--machine", args.machine)


def zero_stall(args, traces):
    for name, path in traces:
        policies = {}
        for policy in args.policies:
            plan = ebb(args, "plan", path, "--zero-stall", "--policy", policy, *on_machine(args))
            policies[policy] = {key: plan[key] for key in ("budget_bytes", "feasible", "peak_bytes",
                                                           "lower_bound_bytes", "plan_ns")}
            # Some policies stall at any budget.
            policies[policy]["feasible"] &= plan["stall_ns"] == 0
        best = policies["ebb"]
        others = [p["peak_bytes"] for name, p in policies.items() if name != "ebb" and p["feasible"]]
        yield {"trace": name, "policies": policies, "lower_bound_bytes": best["lower_bound_bytes"],
               "of_bound": best["peak_bytes"] / best["lower_bound_bytes"],
               "ebb_is_lowest": all(best["peak_bytes"] <= other for other in others)}


def budgets(args, traces):
    for name, path in traces:
        compared = ebb(args, "compare", path, "--budgets", ",".join(BUDGETS), "--policies",
                       ",".join(args.policies), *on_machine(args))
        for budget in BUDGETS:
            rows = {row["policy"]: row for row in compared["rows"] if row["budget"] == budget}
            own = rows["ebb"]
            others = [row for policy, row in rows.items() if policy != "ebb" and row["feasible"]]
            plan = ebb(args, "plan", path, "--budget", budget, *on_machine(args))
            unlimited = plan["iteration_ns"] - plan["stall_ns"]
            yield {"trace": name, "budget": budget, "feasible": own["feasible"],
                   "policies": {policy: {"feasible": row["feasible"],
                                         "iteration_ns": row["iteration_ns"]}
                                for policy, row in rows.items()},
                   "of_bound": own["iteration_ns"] / (unlimited + plan["lower_bound_stall_ns"])
                               if own["feasible"] else None,
                   "ebb_is_fastest": all(own["feasible"] and
                                         own["iteration_ns"] <= row["iteration_ns"] * SAME
                                         for row in others)}


def frontier(args, path):
    """Stall by budget, and the published overheads at the nearest published limit."""
    with open(os.path.join(args.data, "singa", "autoswap_vgg_expected_overhead_ns.csv"),
              encoding="utf-8") as file:
        published = [{key: float(value) for key, value in row.items()}
                     for row in csv.DictReader(file)]
    for mib in range(260, 631, 10):
        plan = ebb(args, "plan", path, "--budget", f"{mib}MiB", *on_machine(args))
        near = min(published, key=lambda row: abs(row["mem_limit_bytes"] - mib * MIB))
        shown = abs(near["mem_limit_bytes"] - mib * MIB) < 5 * MIB
        yield {"budget_mib": mib, "stall_ns": plan["stall_ns"], "peak_bytes": plan["peak_bytes"],
               "lower_bound_stall_ns": plan["lower_bound_stall_ns"],
               "published_least_ns": min(value for key, value in near.items()
                                         if key.startswith("overhead")) if shown else None}


def footprints(args, traces):
    for name, path in traces:
        compared = ebb(args, "compare", path, "--budgets", "100%", "--policies", "none",
                       *on_machine(args))
        yield {"trace": name, **{row["allocator"]: row["held_bytes"]
                                 for row in compared["footprints"]},
               "load_bytes": compared["footprints"][0]["load_bytes"]}


def large(args, folder):
    """The layers of a deep network. The output of a layer is read by its mirror image."""
    path = os.path.join(folder, "large.csv")
    with open(path, "w", encoding="ascii") as file:
        now = 0

        def event(kind, block, size):
            nonlocal now
            now += 20000
            print(kind, f"0x{block * 4096 + 4096:x}", size, now, file=file)
        sizes = [(1 + (i * 7919) % 64) << 18 for i in range(20000)]
        for _ in range(3):
            for i, size in enumerate(sizes):
                event("Malloc", i, size)
                event("Mutable", i, size)
                if i:
                    event("Read", i - 1, sizes[i - 1])
            for i in reversed(range(len(sizes))):
                event("Read", i, sizes[i])
                event("Free", i, sizes[i])
    begin = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    plan = ebb(args, "plan", path, "--budget", "50%", *on_machine(args))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"period_events": ebb(args, "info", path)["period_events"], "plan_ns": plan["plan_ns"],
            "seconds_in_all": time.monotonic() - begin,
            "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            "max_rss_bytes": after.ru_maxrss * 1024, "feasible": plan["feasible"],
            "iteration_ns": plan["iteration_ns"], "stall_ns": plan["stall_ns"]}


def pack(args, folder):
    out = os.path.join(folder, "pack.json")
    command = [sys.executable, os.path.join(HERE, "pack.py"), "--ebb", args.ebb, "--data", args.data,
               "-o", out]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    with open(out, encoding="utf-8") as file:
        return json.load(file)["rows"]


def mib(value):
    return "-" if value is None else f"{value / MIB:.1f}"


def table(title, columns, rows):
    print(f"\n{title}")
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(name), *(len(row[i]) for row in texts)) if texts else len(name)
              for i, name in enumerate(columns)]
    for row in [columns, *texts]:
        print("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                        for i, (cell, width) in enumerate(zip(row, widths))))


def show(report):
    table("Detection", ["trace", "events", "iterations", "period", "ms"],
          [[r["trace"], r["events"], r["iterations"], r["period_events"],
            f"{r['detect_ns'] / 1e6:.3f}"] for r in report["detection"]])
    policies = list(report["zero_stall"][0]["policies"]) if report["zero_stall"] else []
    table("Smallest budget without a stall, MiB",
          ["trace", "bound", *policies, "ebb/bound", "ebb lowest"],
          [[r["trace"], mib(r["lower_bound_bytes"]),
            *(mib(p["peak_bytes"]) if p["feasible"] else "none" for p in r["policies"].values()),
            f"{r['of_bound']:.3f}", "yes" if r["ebb_is_lowest"] else "NO"]
           for r in report["zero_stall"]])
    table("Iteration by budget, ms ('-': the policy cannot)",
          ["trace", "budget", *policies, "ebb/bound", "ebb fastest"],
          [[r["trace"], r["budget"],
            *(f"{p['iteration_ns'] / 1e6:.1f}" if p["feasible"] else "-"
              for p in r["policies"].values()),
            "-" if r["of_bound"] is None else f"{r['of_bound']:.3f}",
            "yes" if r["ebb_is_fastest"] else "NO"] for r in report["budgets"]])
    table("Published VGG trace: stall an iteration by budget, ms",
          ["MiB", "ebb", "bound", "published, best"],
          [[r["budget_mib"], f"{r['stall_ns'] / 1e6:.2f}", f"{r['lower_bound_stall_ns'] / 1e6:.2f}",
            "-" if r["published_least_ns"] is None else f"{r['published_least_ns'] / 1e6:.2f}"]
           for r in report["frontier"]])
    names = [key for key in report["footprints"][0] if key not in ("trace",)] \
        if report["footprints"] else []
    table("Footprint, MiB", ["trace", *names],
          [[r["trace"], *(mib(r.get(name)) for name in names)] for r in report["footprints"]])
    if report["large"]:
        r = report["large"]
        print(f"\nLarge: {r['period_events']} events an iteration planned in "
              f"{r['plan_ns'] / 1e9:.2f} s, {r['max_rss_bytes'] / MIB:.0f} MiB")
    if report["pack"]:
        table("Packing", ["instance", "pool", "buffers", "height/load", "optimal", "ms"],
              [[r["instance"], r["pool"], r["buffers"], f"{r['ratio']:.4f}",
                "yes" if r["optimal"] else "no", f"{r['solve_ns'] / 1e6:.1f}"]
               for r in report["pack"]])
    medians = report["medians"]
    print("\nMedian of ebb against the bound: "
          + ", ".join(f"{key} {value:.3f}" for key, value in medians.items() if value))


def medians(report):
    found = {"zero-stall peak": [r["of_bound"] for r in report["zero_stall"]]}
    for budget in ("60%", "40%"):
        found[f"iteration at {budget}"] = [r["of_bound"] for r in report["budgets"]
                                           if r["budget"] == budget and r["of_bound"]]
    return {key: statistics.median(values) if values else None for key, values in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ebb", default=os.path.join(os.path.dirname(HERE), "build", "release",
                                                      "bin", "ebb"))
    parser.add_argument("--data", default=os.environ.get("EBB_DATA", "../shared/data"))
    parser.add_argument("--record", help="folder of the recorded traces; none are used without it")
    parser.add_argument("--machine", default="autoswap-paper")
    parser.add_argument("--policies", default=",".join(POLICIES),
                        type=lambda text: text.split(","))
    parser.add_argument("--skip", default="", help="tables to leave out, e.g. pack,large",
                        type=lambda text: text.split(","))
    parser.add_argument("-o", "--output", help="write everything as JSON")
    args = parser.parse_args()
    if "ebb" not in args.policies:
        parser.error("--policies: ebb must be among them")

    def at(name):
        return name.split("_itr")[0].rsplit(".", 1)[0], os.path.join(args.data, "singa", name)
    planned = [at(name) for name in ACCESSES] + (list(record(args)) if args.record else [])
    every = planned + [at(name) for name in ALLOCATIONS]

    def made(name, rows):
        return [] if name in args.skip else list(rows)
    report = {"schema": "ebb.planners/1", "machine": args.machine}
    report["detection"] = made("detection", detection(args, every))
    report["zero_stall"] = made("zero_stall", zero_stall(args, planned))
    report["budgets"] = made("budgets", budgets(args, planned))
    report["frontier"] = made("frontier", frontier(args, at(PUBLISHED)[1]))
    report["footprints"] = made("footprint", footprints(args, every))
    with tempfile.TemporaryDirectory() as folder:
        report["large"] = None if "large" in args.skip else large(args, folder)
        report["pack"] = [] if "pack" in args.skip else pack(args, folder)
    report["medians"] = medians(report)
    show(report)
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
