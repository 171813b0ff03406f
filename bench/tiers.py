#!/usr/bin/python3
"""Two memories used in place: DeepTM beside AutoTM, Sentinel and others, on recorded programs.

    bench/tiers.py --record DIR --keep DIR --write docs/tiers.md

Programs are recorded once, into --record. Each is planned for each machine, share of fast memory
and policy; `ebb compare --tiers` checks and simulates every plan. Results are kept in --keep, one
file a plan, and are not made again: delete the folder after a change of settings. Times of a trace
are those of the processor that recorded it. With --scale-time 0.05 it is 20 times as fast, as a
socket of a server is.

The last three programs are recorded last, and nothing is chosen by them.

    bench/tiers.py --validate FOLDER --write docs/tiers.md

Instead: trainings that carry plans out, by `ebb-train --tiers`. The slow tier is a file in FOLDER.
Its copies, and operations that use it, take at least what the machine LANES says: operations in
fast memory take three times their time. Predicted times stand beside measured ones.
"""
import argparse
import json
import math
import os
import subprocess
import statistics
import sys
import tempfile

import paired

TRAIN = os.path.join(paired.SOURCE, "examples/torch_train.py")
# torchvision's model, batch, size, further options of torch_train.py
TRACES = {"resnet50": ("resnet50", 16, 128), "resnet152": ("resnet152", 16, 128),
          "vgg16": ("vgg16", 8, 128), "densenet121": ("densenet121", 16, 128),
          "inception": ("inception_v3", 8, 299), "gpt": ("gpt", 8, 128, "--width", "512"),
          "lstm": ("lstm", 32, 64, "--width", "512")}
LAST = {"mobilenet": ("mobilenet_v2", 32, 128), "efficientnet": ("efficientnet_b0", 16, 128),
        "vit": ("vit_b_16", 4, 224)}
MACHINES, SHARES = ["optane", "cxl"], ["1:1", "1:4", "1:8"]
QUICK = ["deeptm", "sentinel", "ebb", "first-touch", "hardware-cache"]
SLOW = ["autotm:static", "autotm:sync", "autotm:async"]  # an integer program each
PARTS = ["deeptm:-aggregation", "deeptm:-runs", "deeptm:-prices", "deeptm:-heat",
         "deeptm:-regret", "deeptm:-asynchronous", "deeptm:+learning"]
ABLATED = "1:4"
ABLATED_TRACES = ["resnet50", "densenet121"]


# Slower than a copy within DRAM, so that a busy machine keeps up with it.
LANES = {"schema": "ebb.machine/1", "name": "throttled",
         "tiers": [{"read": "20GB/s", "write": "20GB/s"}, {"read": "500MB/s", "write": "250MB/s"}],
         "out": {"bytes_per_second": "400MB/s", "fixed_ns": 20000},
         "in": {"bytes_per_second": "500MB/s", "fixed_ns": 20000}}
TRAININGS = {"cnn": ("--batch", "64"), "gpt-2": ("--batch", "2", "--size", "32", "--classes", "100"),
             "resnet-18": ("--batch", "2", "--size", "64", "--classes", "10")}
CARRIED = ["deeptm", "deeptm:-asynchronous", "autotm:static", "sentinel", "ebb", "first-touch"]
VALIDATED_SHARES = ["1:1", "1:4"]


def train(args, net, *more):
    command = [os.path.join(os.path.dirname(args.ebb), "ebb-train"), net, *TRAININGS[net],
               "--iterations", "7", "--quiet", "--summary-json", "-", *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=600,
                          env=dict(os.environ, OMP_NUM_THREADS="1"))
    return json.loads(done.stdout)


def off(ratio):
    return f"{100 * (ratio - 1):+.1f} %"


def validate(args):
    """Carries out each plan; returns the lines of the table."""
    lines = ["| program | share | policy | iteration | of it without compute | copies | losses | "
             "residency |", "|---" * 8 + "|"]
    errors, rest_errors, wrong = [], [], 0
    with tempfile.NamedTemporaryFile("w", suffix=".json") as machine:
        json.dump(LANES, machine)
        machine.flush()
        for net in TRAININGS:
            losses = train(args, net)["losses"]
            for share in VALIDATED_SHARES:
                for policy in CARRIED:
                    run = train(args, net, "--tiers", share, "--policy", policy, "--store",
                                args.validate, "--machine", machine.name, "--throttle", "3")
                    tiers, same = run["tiers"], run["losses"] == losses
                    predicted = tiers["predicted_iteration_ns"]
                    # Compute as it was predicted; what is left are copies and waits.
                    rest = 1 + (tiers["rest_ns"] - tiers["predicted_rest_ns"]) / predicted
                    errors.append(abs(tiers["iteration_ns"] / predicted - 1))
                    rest_errors.append(abs(rest - 1))
                    copies = tiers["predicted_copy_ns"]
                    wrong += tiers["off_operations"] > 0 or not same
                    lines.append(
                        f"| {net} | {share} | {policy} | {off(tiers['iteration_ns'] / predicted)} "
                        f"| {off(rest)} | {off(tiers['copy_ns'] / copies) if copies else '-'} | "
                        f"{'same' if same else 'OTHER'} | "
                        f"{tiers['sampled_operations'] - tiers['off_operations']} of "
                        f"{tiers['sampled_operations']} |")
                    print(lines[-1], file=sys.stderr)
    lines.append(f"| median, absolute | | | {100 * statistics.median(errors):.1f} % | "
                 f"{100 * statistics.median(rest_errors):.1f} % | | | wrong: {wrong} |")
    return lines


def record(args, programs):
    env = {"OMP_NUM_THREADS": str(len(os.sched_getaffinity(0))), **os.environ}
    for name, (model, batch, size, *more) in programs.items():
        path = os.path.join(args.record, f"{name}.ebbt")
        if not os.path.exists(path):
            print(f"recording {name} ...", file=sys.stderr)
            subprocess.run([args.ebb, "record", "-o", path + ".part", "--", "/usr/bin/python3",
                            TRAIN, "--model", model, "--batch", str(batch), "--size", str(size),
                            "--iterations", "7", *more], stdout=subprocess.DEVNULL, env=env,
                           check=True)
            os.rename(path + ".part", path)


def plan(args, name, machine, share, policy):
    """The row of one plan, or None if there is none."""
    file_name = f"{name}-{machine}-{share}-{policy}.json".replace(":", "_")
    path = os.path.join(args.keep, file_name)
    if not os.path.exists(path):
        command = [args.ebb, "compare", os.path.join(args.record, f"{name}.ebbt"), "--tiers",
                   share, "--machine", machine, "--scale-time", str(args.scale_time),
                   "--policies", policy, "--json"]
        if policy in SLOW:
            command += ["--time-limit", str(args.seconds)]
        print(f"{name} {machine} {share} {policy} ...", file=sys.stderr)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return None
        with open(path + ".part", "w", encoding="utf-8") as file:
            file.write(done.stdout)
        os.rename(path + ".part", path)
    with open(path, encoding="utf-8") as file:
        row = json.load(file)["rows"][0]
    return row if row["made"] else None


def mean(values):
    """The geometric mean, or None of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def time_table(rows, names, machine, share):
    """Times over all in fast memory. `rows` is by name, machine, share and policy."""
    policies = QUICK[:1] + SLOW + QUICK[1:]
    lines = ["| program | " + " | ".join(policies) + " |", "|---" * (len(policies) + 1) + "|"]
    columns = {policy: [] for policy in policies}
    for name in names:
        cells = []
        for policy in policies:
            row = rows.get((name, machine, share, policy))
            cells.append(f"{row['slowdown']:.3f}" if row else "-")
            if row:
                columns[policy].append(row["slowdown"])
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    means = [f"{mean(columns[p]):.3f}" if len(columns[p]) == len(names) else "-" for p in policies]
    lines.append("| geometric mean | " + " | ".join(means) + " |")
    return lines


def part_table(rows, names):
    lines = ["| variant | " + " | ".join(MACHINES) + " |", "|---" * (len(MACHINES) + 1) + "|"]
    for policy in ["deeptm", *PARTS]:
        cells = []
        for machine in MACHINES:
            found = [rows.get((name, machine, ABLATED, policy)) for name in names]
            cells.append(f"{mean([row['slowdown'] for row in found]):.4f}" if all(found) else "-")
        lines.append(f"| {policy} | " + " | ".join(cells) + " |")
    return lines


def overhead_table(rows, names):
    """Profile and solution, in seconds: geometric means over all cases."""
    lines = ["| policy | profile, computed | solution | together over deeptm |", "|---|---|---|---|"]
    totals = {}
    for policy in ["deeptm", "sentinel", *SLOW]:
        found = [row for (name, _, _, of), row in rows.items()
                 if of == policy and name in names and row]
        if not found:
            continue
        profile = mean([max(row["profile_ns"], 1) / 1e9 for row in found])
        solved = mean([row["plan_ns"] / 1e9 for row in found])
        totals[policy] = mean([(row["profile_ns"] + row["plan_ns"]) / 1e9 for row in found])
        lines.append(f"| {policy} | {profile:.2f} s | {solved:.2f} s | "
                     f"{totals[policy] / totals.get('deeptm', math.nan):.1f} |")
    return lines


def cost_table(rows, names):
    """Money for both tiers at 1:8 to 1:1, over all in fast memory; and the time that it buys."""
    lines = ["| machine | share | deeptm: time, price | autotm:sync: time, price |",
             "|---|---|---|---|"]
    for machine in MACHINES:
        for share in SHARES:
            cells = []
            for policy in ("deeptm", "autotm:sync"):
                found = [rows.get((name, machine, share, policy)) for name in names]
                cells.append(f"{mean([r['slowdown'] for r in found]):.3f}, "
                             f"{mean([r['price'] / r['all_fast_price'] for r in found]):.3f}"
                             if all(found) else "-")
            lines.append(f"| {machine} | {share} | " + " | ".join(cells) + " |")
    return lines


def ratios(rows, names, peer):
    """How much longer a peer takes than deeptm, by case."""
    return {(name, machine, share): rows[name, machine, share, peer]["slowdown"]
            / rows[name, machine, share, "deeptm"]["slowdown"]
            for name in names for machine in MACHINES for share in SHARES
            if rows.get((name, machine, share, peer)) and rows.get((name, machine, share, "deeptm"))}


def goal_lines(rows, names):
    lines = ["| goal | reached |", "|---|---|"]
    for peer, goal in (("autotm:sync", 36), ("sentinel", 49)):
        found = ratios(rows, names, peer)
        if not found:
            continue
        most = max(found, key=found.get)
        slower = sum(ratio < 1 for ratio in found.values())
        lines.append(f"| never slower than {peer} | slower in {slower} of {len(found)} cases |")
        lines.append(f"| {goal} % faster than {peer} on one | {100 * (found[most] - 1):.0f} % on "
                     f"{', '.join(most)}; geometric mean {100 * (mean(list(found.values())) - 1):.1f}"
                     " % |")
    for machine in MACHINES:
        found = [rows.get((name, machine, "1:4", "deeptm")) for name in names]
        good = sum(row["slowdown"] <= 1.08 for row in found if row)
        lines.append(f"| 80 % less fast memory at 8 % more time, {machine} | {good} of "
                     f"{len(names)} programs |")
    return lines


def sections(rows):
    names, last = list(TRACES), list(LAST)
    made = {f"{machine} {share}": time_table(rows, names, machine, share)
            for machine in MACHINES for share in SHARES}
    made["parts"] = part_table(rows, ABLATED_TRACES)
    made["overhead"] = overhead_table(rows, names)
    made["cost"] = cost_table(rows, names)
    made["goals"] = goal_lines(rows, names)
    for machine in MACHINES:
        made[f"last {machine}"] = time_table(rows, last, machine, ABLATED)
    return made


def write(path, made):
    """Replaces the sections between `<!-- tiers: NAME -->` and `<!-- end -->`."""
    with open(path, encoding="utf-8") as file:
        document = file.read()
    for name, lines in made.items():
        mark = f"<!-- tiers: {name} -->\n"
        if mark not in document:
            sys.exit(f"tiers.py: {path} has no section '{name}'")
        begin = document.index(mark) + len(mark)
        end = document.index("<!-- end -->", begin)
        document = document[:begin] + "\n".join(lines) + "\n" + document[end:]
    with open(path + ".part", "w", encoding="utf-8") as file:
        file.write(document)
    os.rename(path + ".part", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ebb", default=os.path.join(paired.SOURCE, "build/release/bin/ebb"))
    parser.add_argument("--record", help="folder of the recorded programs")
    parser.add_argument("--keep", help="folder of results")
    parser.add_argument("--validate", metavar="FOLDER", help="carry plans out, slow tier here")
    parser.add_argument("--scale-time", type=float, default=0.05)
    parser.add_argument("--seconds", type=float, default=20, help="that an integer program may take")
    parser.add_argument("--kept-only", action="store_true", help="make no new plans")
    parser.add_argument("--quick-only", action="store_true",
                        help="make no new plans by integer programs")
    parser.add_argument("--write", metavar="DOCUMENT", help="replace the tables' sections there")
    parser.add_argument("-o", "--output", help="write all rows as JSON")
    args = parser.parse_args()
    if args.validate:
        made = {"validation": validate(args)}
        print("\n".join(made["validation"]))
        if args.write:
            write(args.write, made)
        return
    if not args.record or not args.keep:
        parser.error("--record and --keep, or --validate, are needed")
    for folder in (args.record, args.keep):
        os.makedirs(folder, exist_ok=True)
    wanted = [(name, machine, share, policy) for name in TRACES for machine in MACHINES
              for share in SHARES for policy in QUICK + SLOW]
    wanted += [(name, machine, ABLATED, policy) for name in ABLATED_TRACES for machine in MACHINES
               for policy in PARTS]
    wanted += [(name, machine, ABLATED, policy) for name in LAST for machine in MACHINES
               for policy in QUICK + SLOW]
    if not args.kept_only:
        record(args, {**TRACES, **LAST})
    rows = {}
    for case in wanted:
        kept = os.path.join(args.keep, ("-".join(case) + ".json").replace(":", "_"))
        refused = args.kept_only or (args.quick_only and case[3] in SLOW)
        if not refused or os.path.exists(kept):
            rows[case] = plan(args, *case)
    made = sections(rows)
    for name, lines in made.items():
        print(f"\n{name}\n" + "\n".join(lines))
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            json.dump({"schema": "ebb.bench-tiers/1", "scale_time": args.scale_time,
                       "seconds": args.seconds, "rows": [row for row in rows.values() if row]},
                      file, indent=1)
    if args.write:
        write(args.write, made)


if __name__ == "__main__":
    main()
