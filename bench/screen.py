#!/usr/bin/python3
"""Screens the rows of src/base/tuning.def that act on runs: which of them matter at all?

    bench/screen.py --programs-in DIR [--rounds 14] [--only NAME ...] -o screen.json
    bench/report.py screen.json

Pairs for each row (`bench/ablate.py --acts run`) take a day. This is a screening design. An option is
one row at half or at twice its value. A round shuffles all options and deals them to runs, about a
dozen to a run, as many as a welcome message holds. So a round has each option once, and one run has
none. Every run is a program under `ebb run --budget 60%`, and has two figures: its median planned
iteration and its whole time.

Each figure is taken as a logarithm, less the median of its round and program. The effect of an option
is the median over the runs that have it, less the median over the others. The largest effect is
subtracted from the runs that have it, then the next is sought, until none is left above the limit.
The limit is Z standard errors of such a median; the scale comes from the median absolute deviation of
all runs. So a row below it changes these programs by less than the limit, which is in the output.
What is above is a candidate: `bench/ablate.py --acts run --only NAME` confirms it by pairs.

Rows of `cuda_*` do not act without a GPU and are left out. A run that fails, exceeds its time or
prints another result than the first of its program is told with its options. Exit code 1 then.
The machine must be quiet.
"""
import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile

import ablate
from paired import SOURCE, provenance

ITERATIONS = "20"  # About half of a run is learning.
ROOM = 399  # Bytes of `name=value` that a welcome message holds.
Z = 4.0  # Chance exceeds it once in 13 screenings of 150 options and 8 figures.
FIGURES = ("iteration", "whole")
LIMIT_S = 120


def options_of(rows):
    return [(name, value) for name, row in rows.items() for value in ablate.half_and_twice(row)]


def size_of(option):
    """Bytes of an option in a message, where 2e+10 is a whole number."""
    name, value = option
    return len(f"{name}={float(value):.0f} ") if float(value).is_integer() else \
        len(f"{name}={value} ")


def deal(options, generator):
    """The options in runs: no row twice in a run, and no more bytes than a welcome holds."""
    runs = [[]]  # the first has the table as it is
    shuffled = options[:]
    generator.shuffle(shuffled)
    for option in shuffled:
        for run in runs[1:]:
            if option[0] not in (name for name, _ in run) and \
                    sum(map(size_of, [*run, option])) <= ROOM:
                run.append(option)
                break
        else:
            runs.append([option])
    return runs


def programs_of(folder):
    return {name: ablate.with_iterations(command, lambda _: ITERATIONS)
            for name, command in ablate.build(folder).items()}


def result_of(output):
    """What a program prints, without its times."""
    return [line.split(" seconds ")[0] for line in output.splitlines() if "loss" in line or
            "checksum" in line]


def run_once(ebb, command, options):
    """{iteration, whole} in ns, the result, and why there is none."""
    tunes = [word for name, value in options for word in ("--tune", f"{name}={value}")]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "summary.json")
        done = subprocess.run(["timeout", "-k", "5", str(LIMIT_S), ebb, "run", "--no-cache",
                               "--budget", "60%", "--summary-json", path, *tunes, "--", *command],
                              check=False, capture_output=True, text=True)
        if done.returncode:
            return None, None, f"exit code {done.returncode}: {done.stderr[-300:]}"
        with open(path, encoding="utf-8") as file:
            summary = json.load(file)
    return ({"iteration": summary["iteration_ns"]["median"] or None,
             "whole": summary["elapsed_ns"]}, result_of(done.stdout), None)


# --- analysis --------------------------------------------------------------------------------


def levelled(runs, figure):
    """[(set of options, logarithm less the median of its round)] of the runs with this figure."""
    rounds = {}
    for run in runs:
        if run["figures"] and run["figures"][figure]:
            rounds.setdefault(run["round"], []).append(run)
    found = []
    for members in rounds.values():
        logs = [math.log(run["figures"][figure]) for run in members]
        middle = statistics.median(logs)
        found += [({tuple(option) for option in run["options"]}, log - middle)
                  for run, log in zip(members, logs)]
    return found


def effect_of(option, values):
    having = [value for options, value in values if option in options]
    others = [value for options, value in values if option not in options]
    return statistics.median(having) - statistics.median(others), len(having)


def scale_of(values):
    middle = statistics.median(value for _, value in values)
    return 1.4826 * statistics.median(abs(value - middle) for _, value in values)


def analyse(values, options):
    """The options with an effect, largest first, as (option, effect, limit)."""
    found = []
    while values:
        scale = scale_of(values)
        sure = []
        for option in options:
            if any(option == known for known, _, _ in found) or \
                    sum(option in have for have, _ in values) < 3:
                continue
            effect, count = effect_of(option, values)
            limit = Z * 1.2533 * scale / math.sqrt(count)
            if abs(effect) > limit:
                sure.append((abs(effect) / limit, option, effect, limit))
        if not sure:
            break
        _, option, effect, limit = max(sure)
        found.append((option, effect, limit))
        values = [(have, value - effect if option in have else value) for have, value in values]
    return found


def analyse_all(report, options):
    """Fills report["effects"] and report["limits"] for each program and figure."""
    report["effects"], report["limits"] = [], {}
    for program in report["programs"]:
        runs = [run for run in report["runs"] if run["program"] == program]
        for figure in FIGURES:
            values = levelled(runs, figure)
            if len(values) < 10:
                continue
            counts = [sum(option in have for have, _ in values) for option in options]
            report["limits"][f"{program}, {figure}"] = math.expm1(
                Z * 1.2533 * scale_of(values) / math.sqrt(max(1, statistics.median(counts))))
            report["effects"] += [
                {"name": option[0], "value": option[1], "program": program, "figure": figure,
                 "change": math.expm1(effect), "limit": math.expm1(limit)}
                for option, effect, limit in analyse(values, options)]


# --- runs ------------------------------------------------------------------------------------


def screen(args, report, options, programs):
    generator = random.Random(args.seed)
    expected, bad = {}, 0
    for number in range(args.rounds):
        for group in deal(options, generator):
            for program, command in programs.items():
                figures, result, why = run_once(args.ebb, command, group)
                if not why and expected.setdefault(program, result) != result:
                    why = "another result"
                if why:
                    bad += 1
                    print(f"screen.py: {program} {group}: {why}", flush=True)
                report["runs"].append({"round": number, "program": program, "options": group,
                                       "figures": figures, "why_nothing": why})
        analyse_all(report, options)
        print(f"round {number + 1}: {len(report['runs'])} runs, {bad} failed, "
              f"{len(report['effects'])} effects", flush=True)
        if args.output:
            with open(args.output, "w", encoding="utf-8") as file:
                json.dump(report, file)
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs-in", required=True, metavar="DIR", help="programs built")
    parser.add_argument("--programs", nargs="+", choices=ablate.PROGRAMS,
                        default=list(ablate.PROGRAMS))
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="rows (default: all)")
    parser.add_argument("--rounds", type=int, default=14)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ebb", default=os.path.join(SOURCE, "build", "release", "bin", "ebb"))
    parser.add_argument("-o", "--output", metavar="FILE")
    args = parser.parse_args()
    rows = {name: row for name, row in ablate.rows_of(args.ebb).items() if row["acts"] == "run"
            and not name.startswith("cuda_") and (not args.only or name in args.only)}
    options = options_of(rows)
    os.makedirs(args.programs_in, exist_ok=True)
    programs = {name: command for name, command in programs_of(args.programs_in).items()
                if name in args.programs}
    report = {"schema": "ebb.bench-screen/1", **provenance(args.programs_in), "z": Z,
              "programs": list(programs), "runs": [],
              "rows": {name: {"value": row["value"], "unit": row["unit"]}
                       for name, row in rows.items()}}
    bad = screen(args, report, options, programs)
    for effect in report["effects"]:
        print("{name}={value}: {program}, {figure} {change:+.1%} (limit {limit:.1%})".format(
            **effect))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
