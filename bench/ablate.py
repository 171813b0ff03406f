#!/usr/bin/python3
"""Shows the effect of half and twice of each number in src/base/tuning.def.

    bench/ablate.py --record DIR [--only NAME ...] [--acts plan\x01run] [--programs NAME ...]
                    [--repeat N] [--data ../shared/data] -o tuning.json
    bench/report.py tuning.json > docs/tuning.md

Rows that act on plans are tested by `ebb plan` and `ebb pack` on traces. Missing traces are
recorded into --record first. With --data, SINGA's VGG trace and packing instances are used, too. A
search counts its steps, so its result is always the same. Any difference is an effect, and the
machine need not be quiet.

Rows that act on runs are tested by programs under `ebb run --budget 60%`, without and with the
change in turns. There is an effect if the ratios of all pairs are on one side of 1. Their median
must also be farther from 1 than pairs of the table with itself (A A). This needs a quiet machine:
--acts run.
"""
import argparse
import glob
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

from paired import SOURCE, provenance

PROGRAMS = {
    "torch": ["/usr/bin/python3", f"{SOURCE}/examples/torch_train.py", "--model", "squeezenet1_1",
              "--batch", "8", "--size", "96", "--iterations", "40"],
    "cycle": ["{cycle}", "--iterations", "60", "--layers", "24", "--block", "8M", "--persistent",
              "16M", "--work", "2"],
    "unordered": ["{unordered}", "--iterations", "60", "--chains", "4", "--layers", "12", "--block",
                  "2M", "--work", "1"],
    # Allocates once, so accesses are its clock.
    "static": ["{cycle}", "--static", "--iterations", "60", "--layers", "24", "--block", "8M",
               "--persistent", "16M", "--work", "2"],
}
DEFAULTS = ["torch", "cycle", "unordered"]
SHORT = {"40": "6", "60": "12"}  # --iterations of a recording
BUDGETS = ("60%", "40%")
# Lanes so slow that there are stalls, and a plan has to choose.
MACHINE = {"schema": "ebb.machine/1", "name": "slow",
           "out": {"ns_per_byte": 1.6, "fixed_ns": 50000},
           "in": {"ns_per_byte": 1.2, "fixed_ns": 50000}, "duplex": False}
PACKS = ("pack_", "improve_")
ZERO_STALL = ("zero_stall_", "anneal_", "measure_", "plan_sweeps", "bound_")
QUICK = ["--tune", "bound_steps=10000"]  # a bound is not part of a plan


def rows_of(ebb):
    """name: (value, least, most, whole, acts), from the output of `--tune help`."""
    text = subprocess.run([ebb, "run", "--tune", "help"], check=True, capture_output=True,
                          text=True).stdout
    with open(f"{SOURCE}/src/base/tuning.def", encoding="utf-8") as file:
        real = set(re.findall(r"^EBB_TUNING\(REAL, (\w+),", file.read(), re.M))
    found = {}
    for name, value, unit, least, most, acts in re.findall(
            r"^(\w+) = (\S+) ([^\n(]+) \((\S+) to (\S+); acts on (plan|run)s\)", text, re.M):
        found[name] = {"value": float(value), "least": float(least), "most": float(most),
                       "unit": unit, "acts": acts, "whole": name not in real}
    return found


def half_and_twice(row):
    """Both values, limited to the range. A value without change is left out."""
    for factor in (0.5, 2):
        value = min(max(row["value"] * factor, row["least"]), row["most"])
        value = round(value) if row["whole"] else value
        if value != row["value"]:
            yield f"{value:.10g}"


def with_iterations(command, number_of):
    """The command with another value of --iterations: number_of(value)."""
    return [number_of(word) if before == "--iterations" else word
            for before, word in zip(["", *command], command)]


def build(folder):
    paths = {}
    for name in ("cycle", "unordered"):
        paths[name] = os.path.join(folder, name)
        if not os.path.exists(paths[name]):
            subprocess.run(["cc", "-std=gnu11", "-O2", "-pthread", "-o", paths[name],
                            f"{SOURCE}/tests/programs/{name}.c"], check=True)
    return {name: [word.format(**paths) for word in command] for name, command in PROGRAMS.items()}


# --- plans -----------------------------------------------------------------------------------


def record(args, commands):
    traces = {}
    for name in PROGRAMS:
        path = os.path.join(args.record, f"{name}.ebbt")
        if not os.path.exists(path):
            command = with_iterations(commands[name], lambda number: SHORT.get(number, number))
            subprocess.run([args.ebb, "record", "-o", path, "--", *command], check=True,
                           stdout=subprocess.DEVNULL)
        traces[name] = path
    vgg = os.path.join(args.data, "singa", "vec_block_fresh_vgg.csv")
    if os.path.exists(vgg):
        traces["VGG (SINGA)"] = vgg
    return traces


def ask(args, *arguments):
    done = subprocess.run([args.ebb, *arguments, "--json"], capture_output=True, text=True,
                          check=False)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        sys.exit(f"ablate.py: ebb {' '.join(arguments)}: {done.stderr}")
    if found.get("timed_out"):
        sys.exit(f"ablate.py: ebb {' '.join(arguments)}: the time was out; the machine is too busy")
    return found


def cases_of(args, name, traces, machine):
    """(label, arguments of ebb, key of the figure) of everything that the row may affect."""
    if name.startswith(PACKS):
        less = [] if name == "pack_steps" else ["--tune", "pack_steps=10000000"]
        for path in sorted(glob.glob(f"{args.data}/minimalloc/*.csv") +
                           glob.glob(f"{args.data}/dsa/*.csv")):
            yield os.path.basename(path), ["pack", path, *less], "height_bytes"
    for trace, path in traces.items():
        if name.startswith(PACKS):
            yield f"{trace}, packed", ["pack", path, *less], "height_bytes"
            continue
        lanes = ["--machine", "autoswap-paper" if path.endswith(".csv") else machine]
        box = ["--tune", "plan_box_ns=3600s"]
        if name.startswith(ZERO_STALL):
            bound = [] if name == "bound_steps" else QUICK
            less = ["--tune", "zero_stall_steps=100000000"] if name != "zero_stall_steps" else []
            key = "lower_bound_bytes" if name == "bound_steps" else "peak_bytes"
            yield f"{trace}, no stall", ["plan", path, "--zero-stall", *lanes, *bound, *less, *box], key
        if name not in ("zero_stall_steps", "bound_steps"):
            for budget in BUDGETS:
                yield (f"{trace}, {budget}",
                       ["plan", path, "--budget", budget, *lanes, *QUICK, *box], "iteration_ns")


def ablate_plan(args, name, row, traces, machine, known):
    found = []
    for label, arguments, key in cases_of(args, name, traces, machine):
        asked = (label, *arguments)
        if asked not in known:
            known[asked] = ask(args, *arguments)
        default = known[asked]
        for value in half_and_twice(row):
            other = ask(args, *arguments, "--tune", f"{name}={value}")
            same = {k: v for k, v in other.items() if k not in ("plan_ns", "solve_ns", "tuning")} == \
                   {k: v for k, v in default.items() if k not in ("plan_ns", "solve_ns", "tuning")}
            found.append({"case": label, "value": value, "figure": key,
                          "ratio": other[key] / default[key] if default[key] else 1.0,
                          "same": same})
    return found


# --- runs ------------------------------------------------------------------------------------


def run_once(args, command, *options):
    """The median seconds of an iteration, or the whole time if no iteration is known."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        done = subprocess.run([args.ebb, "run", "--no-cache", "--budget", "60%", "--summary-json",
                               file.name, *options, "--", *command], check=False,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"ablate.py: {' '.join(command)}: {done.stderr}")
        summary = json.load(file)
    # Without known iterations, the whole time counts.
    return summary["iteration_ns"]["median"] or summary["elapsed_ns"]


def ablate_run(args, name, row, commands, noise):
    found = []
    for program in args.programs:
        command = commands[program]
        if program not in noise:
            noise[program] = [run_once(args, command) / run_once(args, command)
                              for _ in range(args.repeat)]
        spread = max(abs(ratio - 1) for ratio in noise[program])
        for value in half_and_twice(row):
            ratios = []
            for _ in range(args.repeat):
                before = run_once(args, command)
                ratios.append(run_once(args, command, "--tune", f"{name}={value}") / before)
            middle = statistics.median(ratios)
            one_side = min(ratios) > 1 or max(ratios) < 1
            found.append({"case": program, "value": value, "figure": "iteration_ns",
                          "ratio": middle, "least": min(ratios), "most": max(ratios),
                          "noise": spread, "same": not (one_side and abs(middle - 1) > spread)})
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=DEFAULTS,
                        help="for rows that act on runs (default: torch cycle unordered)")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="rows (default: all)")
    parser.add_argument("--acts", choices=("plan", "run"), help="only rows that act on these")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="pairs of a run")
    parser.add_argument("--record", required=True, metavar="DIR", help="traces and programs")
    parser.add_argument("--data", default=os.path.join(SOURCE, "..", "shared", "data"))
    parser.add_argument("--ebb", default=os.path.join(SOURCE, "build", "release", "bin", "ebb"))
    parser.add_argument("-o", "--output", metavar="FILE")
    args = parser.parse_args()
    rows = rows_of(args.ebb)
    if unknown := set(args.only) - set(rows):
        sys.exit(f"ablate.py: no row is called {', '.join(sorted(unknown))}")
    os.makedirs(args.record, exist_ok=True)
    report = {"schema": "ebb.bench-ablate/1", **provenance(args.record), "rows": []}
    commands = build(args.record)
    machine = os.path.join(args.record, "slow.json")
    with open(machine, "w", encoding="utf-8") as file:
        json.dump(MACHINE, file)
    chosen = {name: row for name, row in rows.items()
              if (not args.only or name in args.only) and args.acts in (None, row["acts"])}
    plans = any(row["acts"] == "plan" for row in chosen.values())
    traces, known, noise = record(args, commands) if plans else {}, {}, {}
    for name, row in chosen.items():
        found = ablate_plan(args, name, row, traces, machine, known) if row["acts"] == "plan" else \
            ablate_run(args, name, row, commands, noise)
        report["rows"].append({"name": name, "unit": row["unit"], "value": row["value"],
                               "acts": row["acts"], "cases": found})
        changed = [case for case in found if not case["same"]]
        worst = max(changed, key=lambda case: abs(case["ratio"] - 1), default=None)
        print(f"{name:28} " + ("no difference" if not worst else
                               f"{len(changed)} of {len(found)}; {worst['case']}, {worst['value']}: "
                               f"{100 * (worst['ratio'] - 1):+.2f} % {worst['figure']}"),
              flush=True)
        if args.output:
            with open(args.output, "w", encoding="utf-8") as file:
                json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
