#!/usr/bin/python3
"""Compares all planners: the memory that each needs without a stall, and its time at a budget.

    bench/planners.py --record DIR --write docs/planners.md
    bench/planners.py --skip large,pack -o planners.json

With --write, the tables replace the marked sections of a document, as those of report.py do. Each
has the date and the commit of the build. Each table has a bound or a peer for comparison:

  detection   period found, and the time it took
  zero-stall  the smallest budget at which nothing waits, by policy; the bound; ebb's gap to it
  budgets     iteration time by policy at 80 ... 40 % of the peak; ebb's gap to the bound
  curve       AutoSwap's published VGG trace, 260 ... 630 MiB, and the published overheads
  footprint   the memory that other allocators would have held, and what the pools need
  pools       pools under plans: SmartPool with AutoSwap, both of Ebb, against CnMem
  large       a plan for 100,000 events and 20,000 blocks an iteration: seconds and memory
  pack        bench/pack.py's

The traces are SINGA's in --data, and six of PyTorch. Missing ones are recorded into --record, which
takes minutes each. The machine is autoswap-paper, so the figures do not depend on this computer.

Policies are all that the build knows. A column is a policy, or the best of those that begin with
its name and a colon and are no columns themselves.
"""
import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile

from paired import provenance, run
from report import Unusable, prose, replaced, table

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(HERE)
TRAIN = os.path.join(SOURCE, "examples", "torch_train.py")
MIB = 1 << 20
ZERO = "zero-stall"
BUDGETS = ("80%", "70%", "60%", "50%", "40%")
SHOWN = ("80%", "60%", "40%")  # in the document
COLUMNS = ("ebb", "appobmem", "appobmem:strong", "autoswap", "autoswap:strong", "capuchin", "vdnn",
           "layrub", "fifo", "lru", "belady")
POOLED = ("ebb", "autoswap")  # columns whose plans are packed
MODELS = {"resnet50": (8, 160), "vgg16": (4, 160), "densenet121": (8, 128),
          "mobilenet_v2": (16, 128), "gpt": (4, 128), "lstm": (16, 64)}
PUBLISHED = "vec_block_fresh_vgg.csv"
# SINGA's traces with accesses, and those with allocations only.
ACCESSES = (PUBLISHED, "vec_run_5_alex.csv")
ALLOCATIONS = ("memInfo_alex_20itr_100size.text", "memInfo_vgg_20itr_100size.text")
# A tolerance for rounding of times in the simulator and the planner.
SAME = 1.0001


# --- measurements ----------------------------------------------------------------------------


def ebb(args, *arguments):
    done = subprocess.run([args.ebb, *arguments, "--json"], capture_output=True, text=True,
                          check=False)
    if done.returncode not in (0, 3):
        sys.exit(f"planners.py: ebb {' '.join(arguments)}: {done.stderr}")
    return json.loads(done.stdout)


def compare(args, path, budgets, *more):
    policies = ("--policies", ",".join(args.policies)) if args.policies else ()
    return ebb(args, "compare", path, "--machine", args.machine, "--budgets", ",".join(budgets),
               *policies, *more)


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


def works(row):
    return row["feasible"] and (row["budget"] != ZERO or row["stall_ns"] == 0)


def rows_at(rows, budget):
    return {row["policy"]: row for row in rows if row["budget"] == budget}


def is_in(policy, column, columns):
    return policy == column or policy.startswith(column + ":") and policy not in columns


def best(rows, columns, key):
    """The least figure of each column's policies; None if none works."""
    return [min((row[key] for policy, row in rows.items()
                 if is_in(policy, column, columns) and works(row)), default=None)
            for column in columns]


def planned(args, traces):
    """All policies, at all budgets and without a stall."""
    for name, path in traces:
        yield {"trace": name, "rows": compare(args, path, (ZERO, *BUDGETS))["rows"]}


def curve(args, path):
    """Stall by budget, and the published overheads at the nearest published limit."""
    with open(os.path.join(args.data, "singa", "autoswap_vgg_expected_overhead_ns.csv"),
              encoding="utf-8") as file:
        published = [{key: float(value) for key, value in row.items()}
                     for row in csv.DictReader(file)]
    sizes = range(260, 631, 10)
    rows = ebb(args, "compare", path, "--machine", args.machine, "--policies", "ebb", "--budgets",
               ",".join(f"{size}MiB" for size in sizes))["rows"]
    for size, row in zip(sizes, rows):
        near = min(published, key=lambda found: abs(found["mem_limit_bytes"] - size * MIB))
        shown = abs(near["mem_limit_bytes"] - size * MIB) < 5 * MIB
        yield {"budget_mib": size, "stall_ns": row["stall_ns"], "peak_bytes": row["peak_bytes"],
               "lower_bound_stall_ns": row["lower_bound_stall_ns"],
               "published_least_ns": min(value for key, value in near.items()
                                         if key.startswith("overhead")) if shown else None}


def footprints(args, traces):
    for name, path in traces:
        found = ebb(args, "compare", path, "--machine", args.machine, "--budgets", "100%",
                    "--policies", "none")["footprints"]
        yield {"trace": name, "load_bytes": found[0]["load_bytes"],
               **{row["allocator"] + (" pool" if row["scope"] == "iteration" else ""):
                  row["held_bytes"] for row in found}}


def pools(args, traces):
    """The best height for each column and pool, with what CnMem would hold."""
    for name, path in traces:
        known = sorted({row["policy"] for row in ebb(
            args, "compare", path, "--machine", args.machine, "--budgets", "100%")["rows"]
            if row["policy"].split(":")[0] in POOLED})
        found = ebb(args, "compare", path, "--machine", args.machine, "--policies",
                    ",".join(known), "--budgets", ",".join((ZERO, *SHOWN)), "--pools",
                    "ebb,smartpool")
        for budget in (*SHOWN, ZERO):
            for column in POOLED:
                for pool in ("ebb", "smartpool"):
                    heights = [row for row in found["pools"] if row["budget"] == budget and
                               row["pool"] == pool and row["policy"].split(":")[0] == column]
                    if heights:
                        yield {**min(heights, key=lambda row: row["height_bytes"]),
                               "trace": name, "column": column}


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
    file = os.path.join(folder, "large.json")
    done = run([args.ebb, "plan", path, "--budget", "50%", "--machine", args.machine, "-o", file,
                "--json"], dict(os.environ))
    if done["exit_code"] not in (0, 3):
        sys.exit(f"planners.py: ebb plan: {done['stderr']}")
    with open(file, encoding="utf-8") as text:
        plan = json.load(text)
    return {"period_events": ebb(args, "info", path)["period_events"], "plan_ns": plan["plan_ns"],
            "seconds_in_all": done["elapsed_s"],
            "max_rss_bytes": done["peak_rss_bytes"], "feasible": plan["feasible"],
            "iteration_ns": plan["iteration_ns"], "stall_ns": plan["stall_ns"]}


def pack(args, folder):
    out = os.path.join(folder, "pack.json")
    command = [sys.executable, os.path.join(HERE, "pack.py"), "--ebb", args.ebb, "--data", args.data,
               "-o", out]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    with open(out, encoding="utf-8") as file:
        return json.load(file)["rows"]


# --- tables ----------------------------------------------------------------------------------


def mib(value):
    return "-" if value is None else f"{value / MIB:.1f}"


def bold_least(values, form):
    """The cells of a row, with the least in bold."""
    known = [value for value in values if value is not None]
    return ["-" if value is None else
            f"**{form(value)}**" if value <= min(known) * SAME else form(value)
            for value in values]


def known_columns(args, entries):
    """The columns that have a plan for at least one trace."""
    return [column for column in args.columns
            if any(is_in(row["policy"], column, args.columns)
                   for entry in entries for row in entry["rows"])]


def lowest_sentence(gaps, lowest, what):
    return prose(f"`ebb` is {what} in {sum(lowest)} of {len(lowest)} rows. The median of the last "
                 f"column is {statistics.median(gaps):.3f}." if gaps else "No row has a plan.")


def show_zero_stall(args, report):
    columns = known_columns(args, report["planned"])
    lines, gaps, lowest = [], [], []
    for entry in report["planned"]:
        rows = rows_at(entry["rows"], ZERO)
        values = best(rows, columns, "peak_bytes")
        own, bound = rows["ebb"], rows["ebb"]["lower_bound_bytes"]
        gaps.append(own["peak_bytes"] / bound)
        lowest.append(all(value is None or own["peak_bytes"] <= value for value in values))
        lines.append([entry["trace"], mib(bound), *bold_least(values, mib), f"{gaps[-1]:.3f}"])
    return (table(["trace", "bound", *columns, "ebb / bound"], lines) + "\n\n"
            + prose("MiB. `-`: it stalls at any budget, or does not apply.") + "\n"
            + lowest_sentence(gaps, lowest, "lowest"))


def show_budgets(args, report):
    columns = known_columns(args, report["planned"])
    lines, gaps, lowest = [], [], []
    for entry in report["planned"]:
        for budget in args.budgets:
            rows = rows_at(entry["rows"], budget)
            values = best(rows, columns, "iteration_ns")
            own = rows["ebb"]
            if own["feasible"]:
                gaps.append(1 + own["gap"])
            lowest.append(all(value is None or own["feasible"] and
                              own["iteration_ns"] <= value * SAME for value in values))
            lines.append([entry["trace"], budget,
                          *bold_least(values, lambda ns: f"{ns / 1e6:.1f}"),
                          f"{1 + own['gap']:.3f}" if own["feasible"] else "-"])
    return (table(["trace", "budget", *columns, "ebb / bound"], lines) + "\n\n"
            + prose("ms an iteration. `-`: no plan of this policy is within the budget.") + "\n"
            + lowest_sentence(gaps, lowest, "as fast as the fastest, and feasible if any is,"))


def show_curve(_, report):
    rows = [row for row in report["curve"] if row["published_least_ns"]][::2]
    return table(["MiB", *(row["budget_mib"] for row in rows)],
                 [[name, *(f"{row[key] / 1e6:.2f}" for row in rows)] for name, key in (
                     ("ebb, ms", "stall_ns"), ("bound, ms", "lower_bound_stall_ns"),
                     ("published, ms", "published_least_ns"))])


def show_footprint(_, report):
    names = list(dict.fromkeys(key for row in report["footprint"] for key in row
                               if key not in ("trace", "load_bytes")))
    return table(["trace", "load", *names],
                 [[row["trace"], mib(row["load_bytes"]), *(mib(row.get(name)) for name in names)]
                  for row in report["footprint"]])


def show_pools(_, report):
    return table(["trace", "budget", "policy", "pool", "peak", "height", "CnMem", "below CnMem"],
                 [[row["trace"], row["budget"], row["policy"], row["pool"], mib(row["peak_bytes"]),
                   mib(row["height_bytes"]), mib(row["cnmem_bytes"]),
                   f"{100 - 100 * row['height_bytes'] / row['cnmem_bytes']:.1f} %"]
                  for row in report["pools"]])


def show_detection(_, report):
    return table(["trace", "events", "iterations", "period", "ms"],
                 [[row["trace"], row["events"], row["iterations"], row["period_events"],
                   f"{row['detect_ns'] / 1e6:.3f}"] for row in report["detection"]])


def show_large(_, report):
    row = report["large"]
    return prose(f"{row['period_events']:,} events an iteration are planned in "
                 f"{row['plan_ns'] / 1e9:.2f} s. The command takes {row['max_rss_bytes'] / MIB:.0f} "
                 "MiB.")


def show_pack(_, report):
    return table(["instance", "pool", "buffers", "height / load", "optimal", "ms"],
                 [[row["instance"], row["pool"], row["buffers"], f"{row['ratio']:.6f}",
                   "yes" if row["optimal"] else "no", f"{row['solve_ns'] / 1e6:.1f}"]
                  for row in report["pack"]])


TITLES = {"detection": show_detection, "zero-stall": show_zero_stall, "budgets": show_budgets,
          "curve": show_curve, "footprint": show_footprint, "pools": show_pools,
          "large": show_large, "pack": show_pack}
NEEDS = {"zero-stall": "planned", "budgets": "planned"}


def git(*words):
    return subprocess.run(["git", "-C", SOURCE, *words], capture_output=True, text=True,
                          check=False).stdout.strip()


def is_older(args):
    """True if the program was built before the last commit of what it consists of."""
    changed = git("log", "-1", "--format=%ct", "--", "src", "cli")
    return bool(changed) and os.stat(args.ebb).st_mtime < int(changed)


def build_of(args):
    """The version, and the commit of the source, with a plus if it was changed."""
    version = subprocess.run([args.ebb, "--version"], capture_output=True, text=True,
                             check=True).stdout.split()[-1]
    changed = git("status", "--porcelain", "--untracked-files=no")
    return f"{version} {git('rev-parse', '--short=8', 'HEAD')}{'+' if changed else ''}".strip()


def sections(args, report):
    """The Markdown of each table that was measured, by name."""
    machine = report["machine"]
    stamp = (f"{report['date'].split()[0]}, build {report['build']}, {machine['cpu']}, "
             f"{machine['cores']} cores.")
    return {f"planners/{name}": f"{prose(stamp)}\n\n{show(args, report)}\n"
            for name, show in TITLES.items() if report.get(NEEDS.get(name, name))}


def write(args, made):
    try:
        with open(args.write, encoding="utf-8") as file:
            document = replaced(file.read(), made)
        with open(args.write + ".part", "w", encoding="utf-8") as file:
            file.write(document)
        os.rename(args.write + ".part", args.write)
    except (OSError, Unusable) as error:
        sys.exit(f"planners.py: {args.write}: {error}")


def measure(args, report):
    def at(name):
        return name.split("_itr")[0].rsplit(".", 1)[0], os.path.join(args.data, "singa", name)
    singa = [at(name) for name in ACCESSES]
    traces = singa + (list(record(args)) if args.record else [])
    every = traces + [at(name) for name in ALLOCATIONS]

    def made(names, rows):
        return list(rows) if any(name not in args.skip for name in names) else []
    report["detection"] = made(["detection"], detection(args, every))
    report["planned"] = made(["zero-stall", "budgets"], planned(args, traces))
    report["curve"] = made(["curve"], curve(args, at(PUBLISHED)[1]))
    report["footprint"] = made(["footprint"], footprints(args, every))
    report["pools"] = made(["pools"], pools(args, singa))
    with tempfile.TemporaryDirectory() as folder:
        report["large"] = None if "large" in args.skip else large(args, folder)
        report["pack"] = [] if "pack" in args.skip else pack(args, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])

    def names(text):
        return [name for name in text.split(",") if name]
    parser.add_argument("--ebb", default=os.path.join(SOURCE, "build", "release", "bin", "ebb"))
    parser.add_argument("--data", default=os.environ.get("EBB_DATA", "../shared/data"))
    parser.add_argument("--record", help="folder of the recorded traces; none are used without it")
    parser.add_argument("--machine", default="autoswap-paper")
    parser.add_argument("--policies", type=names, help="default: all that the build knows")
    parser.add_argument("--columns", type=names, default=COLUMNS,
                        help="of the tables; a name stands for the best of name:..., too")
    parser.add_argument("--budgets", type=names, default=SHOWN, help="that the tables show")
    parser.add_argument("--skip", type=names, default=[], help="tables to leave out, e.g. pack,large")
    parser.add_argument("-o", "--output", help="write everything as JSON")
    parser.add_argument("--write", metavar="DOCUMENT", help="replace the tables' sections there")
    args = parser.parse_args()
    for name, known in ((args.skip, TITLES), (args.budgets, BUDGETS)):
        if set(name) - set(known):
            parser.error(f"{', '.join(sorted(set(name) - set(known)))}: known are {', '.join(known)}")
    if args.policies and "ebb" not in args.policies:
        parser.error("--policies: ebb must be among them")
    if not os.path.exists(args.ebb):
        parser.error(f"--ebb: {args.ebb} does not exist: build it, or name another")
    if args.write and is_older(args):
        parser.error("--write: the build is older than the source: build it anew")
    report = {"schema": "ebb.planners/2", **provenance("."), "build": build_of(args),
              "planned_for": args.machine}
    measure(args, report)
    made = {name: text for name, text in sections(args, report).items()
            if name.split("/")[1] not in args.skip}
    for name, text in made.items():
        print(f"\n{name}\n{text}")
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")
    if args.write:
        write(args, made)


if __name__ == "__main__":
    main()
