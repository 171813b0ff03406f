#!/usr/bin/python3
"""Paired benchmark of a real training with and without Ebb.

    bench/host.py --model resnet50 --budgets 100%,b60%,b50% --pairs 5 -o out.json --plot out.svg

A is the program under the best tuned allocator. Each one of --allocators runs once, and the fastest
is used. B is the program under `ebb run --budget X`, with an empty plan cache. Runs are interleaved
A B B A B B A ..., so that each B is next to the A that it is compared with.

malloc_log_preload counts the program's allocations independently and gives their peak. `b60%` means
60 % of that peak, passed to Ebb in bytes. `60%` is passed on as it is, and `60%@lru` under a
policy. Reported for each budget:

  losses     equal to the last digit in every iteration, or DIFFER
  ratio      median planned iteration of B over the median of A over the same iterations,
             median of the pairs (and the spread)
  managed    Ebb's peak of managed memory against the budget, and as a share of the independent peak
  heap       the share of the independent peak that Ebb manages: all but the peak of the next
             allocator
  rss        peak resident set of each program, by wait4
  plan       the iteration time that Ebb's plan predicted
  fifo       the iteration time of first in first out on the lanes measured in this run, predicted
             by `ebb plan --policy fifo`; it matters if the disk sets the pace
  whole      wall time of the whole command of B over that of A, from start to exit, median of the
             pairs (and the spread); it includes Ebb's start and the observed iterations

With --whole 10,20,100, the pairs run once for each of these iteration counts. A second table has
`whole` for each count. The first table then belongs to the greatest count.

With --cgroup, B also runs inside a memory cgroup without swap, so that the kernel confirms the
budget. Its limit is budget + (RSS of A - peak of the log) + 64 MiB. With --swap disk,zram, the
program runs without Ebb in a cgroup of that limit, on the kernel's swap. It runs once for each of
--swap-allocators, and the fastest run counts. A run that takes more than --swap-patience times as
long as A is stopped. zram's own memory is outside the limit, and is printed.

Debian's PyTorch on the reference BLAS multiplies matrices several times slower than on OpenBLAS.
That hides Ebb's cost, so such a program is refused without --allow-reference-blas.

Ctrl-C ends the pairs. Finished pairs are reported. The JSON has the basis of each figure: each run,
its seconds per iteration, and the machine.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

from paired import DEVICES, MIB, Cgroup, Swap, allocators, machine, provenance, run

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PYTHON = "/usr/bin/python3"
MANAGED_BYTES = 512 << 10  # threshold of the malloc log; a budget is a share of the peak above it
DEBIAN_PACKAGES = "/usr/lib/python3/dist-packages/"  # the folder of Debian's python3-torch

# The program's Python runs this to find its PyTorch, and the BLAS that the loader gave it.
FIND_BLAS = """
import torch
print(torch.__file__)
for line in open("/proc/self/maps"):
    if "/libblas.so" in line:
        print(line.split(None, 5)[5].strip())
"""


class Bench:
    def __init__(self, args):
        self.args = args
        self.ebb = os.path.join(args.build, "bin", "ebb")
        self.tools = os.path.join(args.build, "bench")
        self.logger = os.path.join(self.tools, "libmalloc_log_preload.so")
        if args.command:
            self.program = args.command
        else:
            self.program = [PYTHON, os.path.join(SOURCE, "examples", "torch_train.py"),
                            "--model", args.model, "--batch", str(args.batch),
                            "--size", str(args.size), "--iterations", str(args.iterations)]
        if args.whole:
            self.program = with_iterations(self.program, max(args.whole))
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("EBB_")}
        self.env.setdefault("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
        self.ebb_env = {**self.env, "EBB_REFUSE": DEVICES[args.device or "uffd-move"]}
        known = allocators()
        self.peers = {name: {**self.env, **known[name]} for name in known
                      if name in args.allocators}
        self.swap_peers = {name: {**self.env, **known[name]} for name in known
                           if name in args.swap_allocators}
        self.tuned = self.peers[next(iter(self.peers))]

    def log(self):
        """The independent count of the program's allocations."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "log.json")
            preload = " ".join([self.logger, self.tuned.get("LD_PRELOAD", "")])
            result = run(self.program, {
                **self.tuned, "LD_PRELOAD": preload.strip(),
                "EBB_MALLOC_LOG": path, "EBB_LOG_THRESHOLD": str(MANAGED_BYTES)})
            if result["exit_code"] != 0 or not os.path.exists(path):
                sys.exit(f"host.py: the program failed by itself: {result['stderr']}")
            with open(path, encoding="utf-8") as file:
                counts = json.load(file)
        counts["peak_rss_bytes"] = result["peak_rss_bytes"]
        return counts

    def lanes(self):
        result = subprocess.run([os.path.join(self.tools, "bench_lanes"), self.args.store,
                                 "--rounds", str(self.args.lane_rounds)], check=True,
                                capture_output=True, text=True)
        return json.loads(result.stdout)

    def choose_peer(self):
        """Runs each allocator once. The one with the least median iteration is A from then on."""
        runs = {}
        for name, env in self.peers.items():
            runs[name] = run(self.program, env)
            if runs[name]["exit_code"] != 0:
                sys.exit(f"host.py: the program failed under {name}: {runs[name]['stderr']}")
        best = min(runs, key=lambda name: statistics.median(runs[name]["seconds"][1:]))
        self.tuned = self.peers[best]
        return best, runs

    def run_a(self, program=None):
        return run(program or self.program, self.tuned)

    def run_b(self, budget, cgroup=None, program=None):
        size, _, policy = budget.partition("@")
        options = ["--policy", policy] if policy else []
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "summary.json")
            result = run([self.ebb, "run", "--budget", size, "--no-cache", "--store",
                          self.args.store, "--summary-json", path, *options,
                          *self.args.ebb_option, "--", *(program or self.program)], self.ebb_env, cgroup)
            result["summary"] = {}
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    result["summary"] = json.load(file)
        device = result["summary"].get("device")
        if self.args.device and device != self.args.device:
            sys.exit(f"host.py: Ebb ran on the device {device}, not on {self.args.device}")
        return result

    def fifo(self, lanes, budgets):
        """Predicted iteration time of first in first out at each budget (bytes)."""
        out, into = lanes["out_bytes_per_s"], lanes["in_bytes_per_s"]
        both = lanes["both_bytes_per_s"]
        predicted = {}
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "trace.ebbt")
            lanes_file = os.path.join(folder, "lanes.json")
            with open(lanes_file, "w", encoding="utf-8") as file:
                json.dump({"schema": "ebb.machine/1", "name": "lanes",
                           "out": {"bytes_per_second": out}, "in": {"bytes_per_second": into},
                           # Duplex if each direction keeps most of its rate while the other is
                           # busy.
                           "duplex": both > 0.75 * min(out, into)}, file)
            recorded = run([self.ebb, "record", "-o", trace, "--", *self.program], self.env)
            if recorded["exit_code"] != 0:
                return {"error": f"ebb record: {recorded['exit_code']}: {recorded['stderr']}"}
            for policy in (self.args.reference_policy, "ebb"):
                for budget in budgets:
                    result = subprocess.run(
                        [self.ebb, "plan", trace, "--policy", policy, "--machine", lanes_file,
                         "--budget", str(budget), "--json"], check=False, capture_output=True,
                        text=True)
                    try:
                        plan = json.loads(result.stdout)
                    except ValueError:
                        plan = {"error": result.stderr.strip(), "exit_code": result.returncode}
                    predicted.setdefault(policy, {})[str(budget)] = plan
        return predicted


# --- commands --------------------------------------------------------------------------------


def with_iterations(program, count):
    """The same command with another `--iterations N`, which it must have."""
    for i, word in enumerate(program):
        if word == "--iterations" and i + 1 < len(program):
            return [*program[:i + 1], str(count), *program[i + 2:]]
        if word.startswith("--iterations="):
            return [*program[:i], f"--iterations={count}", *program[i + 1:]]
    return sys.exit("host.py: --whole needs a program with `--iterations N`")


def reference_blas(torch, libraries):
    """The reference BLAS among these libraries of a process, if its PyTorch is Debian's, else None.
    Debian has each BLAS in its own folder: blas/, openblas-pthread/, atlas/."""
    if not torch.startswith(DEBIAN_PACKAGES):
        return None
    return next((path for path in libraries
                 if os.path.basename(os.path.dirname(path)) == "blas"), None)


def refuse_reference_blas(program, env):
    """Ends the benchmark if Debian's PyTorch would multiply matrices by the reference BLAS."""
    if not re.match(r"python[\d.]*$", os.path.basename(program[0])):
        return
    found = subprocess.run([program[0], "-c", FIND_BLAS], env=env, check=False,
                           capture_output=True, text=True)
    if found.returncode != 0:
        return  # the program has no PyTorch
    torch, *libraries = found.stdout.splitlines()
    slow = reference_blas(torch, libraries)
    if slow:
        sys.exit(f"host.py: PyTorch uses the reference BLAS, {slow}: run 'make deps', which installs "
                 "libopenblas0-pthread, or give --allow-reference-blas")


# --- figures ---------------------------------------------------------------------------------


def compare(a, b):
    """Compares one pair: losses, planned iterations, and the whole runs."""
    summary = b["summary"]
    first = summary.get("planned_from_iteration")
    own = (summary.get("iteration_ns") or {}).get("median")
    if first is None and own:
        first = 3  # a policy without a script: iterations after the observed ones
    count = min(len(a["seconds"]), len(b["seconds"]))
    planned = summary.get("planned_iterations") or 0
    if first is not None and first >= count >= planned > 0:
        first = count - planned  # loops before the training were counted as iterations
    pair = {"losses_equal": b["exit_code"] == 0 and len(a["losses"]) > 0
            and a["losses"] == b["losses"], "ratio": None, "planned_from_iteration": first,
            "whole_ratio": b["elapsed_s"] / a["elapsed_s"]
            if b["exit_code"] == 0 and a["elapsed_s"] else None}
    if first is not None and 0 <= first < count:
        pair["a_s"] = statistics.median(a["seconds"][first:count])
        # Ebb's own times are used if there are any. It knows which iterations ran under the plan.
        pair["b_printed_s"] = statistics.median(b["seconds"][first:count])
        pair["b_s"] = own / 1e9 if own else pair["b_printed_s"]
        pair["ratio"] = pair["b_s"] / pair["a_s"]
    return pair


def median_of(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def spread_of(values):
    values = [v for v in values if v is not None]
    return [min(values), max(values)] if values else None


def whole_of(done):
    """The figures of whole commands for a row, from its pairs."""
    ratios = [pair["whole_ratio"] for _, _, pair in done]
    return {"whole_ratio": median_of(ratios), "whole_spread": spread_of(ratios),
            "a_whole_s": median_of(a["elapsed_s"] for a, _, _ in done),
            "b_whole_s": median_of(b["elapsed_s"] for _, b, _ in done)}


def row_of(budget, done, log, plan):
    """A row of the table, from (run of A, run of B, compare() of both) of each pair."""
    text, given, size = budget
    summaries = [b["summary"] for _, b, _ in done]
    managed = max((s.get("peak_resident_bytes") or 0 for s in summaries), default=0)
    peak = log["threshold_peak_bytes"]
    row = {
        "budget": text, "given": given, "budget_bytes": size,
        "losses_equal": all(pair["losses_equal"] for _, _, pair in done),
        "ratio": median_of(pair["ratio"] for _, _, pair in done),
        "ratio_spread": spread_of(pair["ratio"] for _, _, pair in done),
        **whole_of(done),
        "a_s": median_of(pair.get("a_s") for _, _, pair in done),
        "b_s": median_of(pair.get("b_s") for _, _, pair in done),
        "peak_resident_bytes": managed or None, "share": managed / peak if managed else None,
        "heap_share": 1 - max(s["unmanaged_bytes"] for s in summaries) / log["peak_bytes"]
                      if all(s.get("unmanaged_bytes") for s in summaries) else None,
        "unmanaged_peak_bytes": median_of(s.get("unmanaged_peak_bytes") for s in summaries),
        "peak_rss_bytes": max(b["peak_rss_bytes"] for _, b, _ in done),
        "fifo_s": plan["iteration_ns"] / 1e9 if plan.get("iteration_ns") else None,
        "plan_s": median_of((s.get("predicted_iteration_ns") or 0) / 1e9 or None
                            for s in summaries),
        "pairs": [{"a": a, "b": b, **pair} for a, b, pair in done],
    }
    for key in ("moved_out_bytes", "moved_in_bytes", "stall_ns", "demand_faults",
                "demand_faults_planned_median", "planned_from_iteration", "mismatches"):
        row[key] = median_of(s.get(key) for s in summaries)
    return row


def whole_row(count, text, done):
    """A row of the table of --whole."""
    return {"iterations": count, "budget": text,
            "losses_equal": all(pair["losses_equal"] for _, _, pair in done), **whole_of(done),
            "pairs": [{"a": a, "b": b, **pair} for a, b, pair in done]}


def text_of(value, form="{:.3f}"):
    return "-" if value is None else form.format(value)


def ratio_text(ratio, spread):
    return "-" if ratio is None else f"{ratio:.3f} ({spread[0]:.2f}-{spread[1]:.2f})"


def mib(value):
    return "-" if value is None else f"{value / MIB:.0f}"


def print_table(report):
    print(f"\n{report['program']}")
    m = report["machine"]
    print(f"{m['cpu']}, {m['cores']} cores, {m['memory_bytes'] / (1 << 30):.1f} GiB, "
          f"Linux {m['kernel']}, load {m['load_before']:.2f}")
    lanes = report["lanes"]
    print(f"lanes: out {lanes['out_bytes_per_s'] / 1e9:.2f} GB/s, "
          f"in {lanes['in_bytes_per_s'] / 1e9:.2f} GB/s, "
          f"each way while both are busy {lanes['both_bytes_per_s'] / 1e9:.2f} GB/s")
    log = report["malloc_log"]
    others = ", ".join(f"{name} {statistics.median(made['seconds'][1:]):.2f}"
                       for name, made in report["allocators"].items())
    print(f"device: {report['device']}")
    print(f"A is {report['allocator']} (s an iteration: {others})")
    print(f"independent count: peak {mib(log['peak_bytes'])} MiB, "
          f"{mib(log['threshold_peak_bytes'])} MiB of it in blocks of at least "
          f"{log['threshold_bytes'] >> 10} KiB; A: {report['a_rss_bytes'] / MIB:.0f} MiB RSS, "
          f"{text_of(report['a_s'])} s an iteration\n")
    wide = max(8, *(len(row["budget"]) + 1 for row in report["rows"]))
    form = "{:<%d}{:>8}{:>9}{:>8}{:>8}{:>7}{:>8}{:>21}{:>22}{:>8}{:>8}{:>8}{:>8}  {}" % wide
    print(form.format("budget", "MiB", "managed", "of peak", "heap", "RSS", "s/iter",
                      "ratio (spread)", "whole (spread)", "plan s", "fifo s", "moved", "faults",
                      "losses"))
    for row in report["rows"]:
        print(form.format(row["budget"], mib(row["budget_bytes"]),
                          mib(row["peak_resident_bytes"]), text_of(row["share"], "{:.0%}"),
                          text_of(row["heap_share"], "{:.1%}"),
                          mib(row["peak_rss_bytes"]), text_of(row["b_s"]),
                          ratio_text(row["ratio"], row["ratio_spread"]),
                          ratio_text(row["whole_ratio"], row["whole_spread"]),
                          text_of(row["plan_s"]), text_of(row["fifo_s"]), mib(row["moved_out_bytes"]),
                          text_of(row["demand_faults_planned_median"], "{:.0f}"),
                          "equal" if row["losses_equal"] else "DIFFER"))
        cgroup = row.get("cgroup")
        if cgroup:
            print(f"        cgroup of {mib(cgroup.get('limit_bytes'))} MiB: {cgroup['verdict']}"
                  + (f", peak {mib(cgroup['peak_bytes'])} MiB"
                     if cgroup.get("peak_bytes") else ""))
        for swap in row.get("swap", []):
            beside = swap.get("beside_bytes")
            times = swap["s"] and row["b_s"] and swap["s"] / row["b_s"]
            print(f"        {swap['swap']} swap, {swap['allocator']}, in "
                  f"{mib(row['swap_limit_bytes'])} MiB"
                  + (f" + {mib(beside)} MiB compressed" if beside else "")
                  + f": {text_of(swap['s'])} s an iteration"
                  + (f", {times:.1f} x Ebb's" if times else "") + f", {swap['verdict']}")
    print("\nmanaged, RSS, moved in MiB (moved: whole run, out); plan, fifo: predicted, not measured; "
          "whole: the whole command, start to exit")
    print_whole(report.get("whole", []))


def print_whole(rows):
    if not rows:
        return
    wide = max(8, *(len(row["budget"]) + 1 for row in rows))
    form = "{:<%d}{:>12}{:>12}{:>12}{:>22}  {}" % wide
    print("\n" + form.format("budget", "iterations", "A whole s", "B whole s", "whole (spread)",
                             "losses"))
    for row in rows:
        print(form.format(row["budget"], row["iterations"], text_of(row["a_whole_s"], "{:.1f}"),
                          text_of(row["b_whole_s"], "{:.1f}"),
                          ratio_text(row["whole_ratio"], row["whole_spread"]),
                          "equal" if row["losses_equal"] else "DIFFER"))


def plot(report, path):
    """Plots the ratio by budget, with the pairs as dots, and the kernel's swap."""
    try:
        import matplotlib
    except ImportError:
        sys.exit("host.py: --plot needs python3-matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    rows = sorted((row for row in report["rows"] if row["ratio"]),
                  key=lambda row: row["budget_bytes"])
    axes.plot([row["budget_bytes"] / MIB for row in rows], [row["ratio"] for row in rows],
              marker="o", label="ebb run")
    for row in rows:
        ratios = [pair["ratio"] for pair in row["pairs"] if pair["ratio"]]
        axes.scatter([row["budget_bytes"] / MIB] * len(ratios), ratios, s=8, color="grey")
    for kind in sorted({swap["swap"] for row in rows for swap in row.get("swap", [])}):
        points = [(row["budget_bytes"] / MIB,
                   min(swap["s"] for swap in row["swap"] if swap["swap"] == kind and swap["s"])
                   / report["a_s"])
                  for row in rows
                  if any(swap["swap"] == kind and swap["s"] for swap in row.get("swap", []))]
        if points:
            axes.plot(*zip(*points), marker="x", label=f"{kind} swap")
    axes.axhline(1, color="black", linewidth=0.5)
    axes.set(xlabel="budget, MiB", ylabel=f"iteration, times unlimited ({report['allocator']})",
             title=report["program"][-60:])
    axes.legend()
    figure.savefig(path, bbox_inches="tight")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0],
                                     epilog="see the head of this file for what is reported")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--iterations", type=int, default=14)
    parser.add_argument("--budgets", default="100%,80%,60%,b80%,b60%",
                        help="comma-separated; b60%% = 60 %% of the independent peak, in bytes")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--whole", default=[], metavar="COUNTS",
                        type=lambda text: sorted({int(count) for count in text.split(",")}),
                        help="pairs for each of these iteration counts, e.g. 10,20,100, and a table "
                        "of whole commands")
    parser.add_argument("--allow-reference-blas", action="store_true",
                        help="measure Debian's PyTorch on the reference BLAS, too")
    parser.add_argument("--build", default=os.path.join(SOURCE, "build", "release"))
    parser.add_argument("--store", default=tempfile.gettempdir(), help="folder of the store")
    parser.add_argument("--lane-rounds", type=int, default=5)
    parser.add_argument("--allocators", default="jemalloc,mimalloc,glibc",
                        help="candidates for A, each tuned", type=lambda text: text.split(","))
    parser.add_argument("--swap", default="", help="also run A on the kernel's swap: disk,zram",
                        type=lambda text: [kind for kind in text.split(",") if kind])
    parser.add_argument("--swap-allocators", default="jemalloc,glibc",
                        type=lambda text: text.split(","))
    parser.add_argument("--swap-patience", type=float, default=6.0,
                        help="stop a run on swap after so many times the time of A")
    parser.add_argument("--plot", help="draw ratio by budget (needs python3-matplotlib)")
    parser.add_argument("--cgroup", action="store_true", help="also run B in a memory cgroup")
    parser.add_argument("--no-fifo", action="store_true", help="leave the reference out")
    parser.add_argument("--reference-policy", default="fifo")
    parser.add_argument("--device", choices=DEVICES,
                        help="the device that Ebb is to run on; else the best one here")
    parser.add_argument("--ebb-option", action="append", default=[],
                        help="one more option for `ebb run` (may be repeated)")
    parser.add_argument("-o", "--output", help="write everything as JSON")
    parser.add_argument("command", nargs="*",
                        help="another program that prints `iteration I loss X seconds S`")
    args = parser.parse_args()
    for needed in ("bin/ebb", "bench/bench_lanes", "bench/libmalloc_log_preload.so"):
        if not os.path.exists(os.path.join(args.build, needed)):
            sys.exit(f"host.py: {os.path.join(args.build, needed)} is missing: run 'make build'")
    return args


def budget_bytes(text, peak):
    """(the text passed to Ebb, its meaning in bytes)."""
    text, at, policy = text.partition("@")
    match = re.fullmatch(r"(b?)(\d+(?:\.\d+)?)%", text)
    if match:
        size = int(peak * float(match.group(2)) / 100)
        return (str(size) if match.group(1) else text) + at + policy, size
    units = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)(?:iB)?", text)
    if not match:
        sys.exit(f"host.py: budget '{text}' is neither a share nor a size")
    return text + at + policy, int(float(match.group(1)) * units[match.group(2)])


def cgroup_limit(size, log):
    """Budget + the program's memory outside its blocks + 64 MiB."""
    return size + max(0, log["peak_rss_bytes"] - log["threshold_peak_bytes"]) + 64 * MIB


def on_swap(bench, kind, limit, a_s):
    """Runs the program without Ebb at that limit, on the kernel's swap, once for each allocator."""
    rows, iterations = [], max(bench.args.whole, default=bench.args.iterations)
    for name, env in bench.swap_peers.items():
        row = {"swap": kind, "allocator": name, "s": None}
        try:
            with Swap(kind, bench.args.store, 8 << 30) as swap:
                cgroup = Cgroup(limit, swap=True)
                try:
                    result = run(bench.program, env, cgroup,
                                 bench.args.swap_patience * iterations * a_s + 20)
                    row["kills"], row["beside_bytes"] = cgroup.kills(), swap.compressed_bytes()
                finally:
                    cgroup.close()
        except RuntimeError as error:
            rows.append({**row, "verdict": str(error)})
            continue
        row["run"] = result
        settled = result["seconds"][2:]
        if settled:
            row["s"] = statistics.median(settled)
        row["verdict"] = ("completed" if result["exit_code"] == 0 else "stopped after "
                          f"{len(result['seconds'])} iterations" if result["timed_out"] else
                          f"ended with {result['exit_code']}")
        rows.append(row)
    return rows


def in_cgroup(bench, given, size, log):
    limit = cgroup_limit(size, log)
    try:
        cgroup = Cgroup(limit)
    except RuntimeError as error:
        return {"verdict": str(error)}
    try:
        result = bench.run_b(given, cgroup)
        peak, kills = cgroup.peak_bytes(), cgroup.kills()
    finally:
        cgroup.close()
    completed = result["exit_code"] == 0
    return {"limit_bytes": limit, "peak_bytes": peak, "oom_kills": kills, "run": result,
            "completed": completed,
            "verdict": "completed" if completed else f"ended with {result['exit_code']}"
                       + (f", {kills} killed" if kills else "")}


def run_pairs(bench, budgets, program):
    """Runs A B B A B B A ... Returns all runs of A. For each budget it also returns pairs of a B
    and the A before or after it. After Ctrl-C these are the finished pairs. The last result tells
    whether all are finished."""
    runs_a, pairs = [], {text: [] for text, _, _ in budgets}

    def run_a():
        runs_a.append(bench.run_a(program))
        if runs_a[-1]["exit_code"] != 0:
            sys.exit(f"host.py: the program failed by itself: {runs_a[-1]['stderr']}")

    run_a()
    try:
        for number, (text, given, _) in enumerate(budgets * bench.args.pairs):
            print(f"pair {number // len(budgets) + 1} of {bench.args.pairs}, budget {text} ...",
                  file=sys.stderr)
            b = bench.run_b(given, program=program)
            if b["exit_code"] != 0:
                print(f"  ebb run ended with {b['exit_code']}: {b['stderr']}", file=sys.stderr)
            if number % 2:
                run_a()
            pairs[text].append((runs_a[-1], b, compare(runs_a[-1], b)))
    except KeyboardInterrupt:
        print("stopped: the pairs that are done count", file=sys.stderr)
        complete = False
    else:
        complete = True
    return runs_a, {text: done for text, done in pairs.items() if done}, complete


def run_whole(bench, budgets):
    """Runs pairs for each count of --whole, or for the given program. Returns the rows of the
    second table. It also returns the runs and pairs of the greatest count that has any, and the
    program with that count."""
    rows, last = [], ([], {}, bench.program)
    for count in bench.args.whole or [None]:
        program = with_iterations(bench.program, count) if count else bench.program
        if count:
            print(f"{count} iterations:", file=sys.stderr)
        runs_a, pairs, complete = run_pairs(bench, budgets, program)
        if pairs:
            last = runs_a, pairs, program
        if count:
            rows += [whole_row(count, text, done) for text, done in pairs.items()]
        if not complete:
            break
    return rows, *last


def main():
    args = parse()
    bench = Bench(args)
    if not args.allow_reference_blas:
        refuse_reference_blas(bench.program, bench.env)
    report = {"schema": "ebb.bench-host/1", **provenance(args.store), "pairs": args.pairs}
    print("counting allocations ...", file=sys.stderr)
    log = report["malloc_log"] = bench.log()
    peak = log["threshold_peak_bytes"]
    print("measuring lanes ...", file=sys.stderr)
    report["lanes"] = bench.lanes()

    print("choosing the allocator ...", file=sys.stderr)
    report["allocator"], report["allocators"] = bench.choose_peer()

    budgets = [(text, *budget_bytes(text, peak)) for text in args.budgets.split(",")]
    report["whole"], runs_a, pairs, program = run_whole(bench, budgets)
    report["program"] = " ".join(program)
    budgets = [budget for budget in budgets if budget[0] in pairs]
    if not budgets:
        sys.exit(130)

    fifo = {}
    if not args.no_fifo:
        print("reference: recording and planning ...", file=sys.stderr)
        fifo = report["reference"] = bench.fifo(
            report["lanes"], sorted({size for _, _, size in budgets}))

    report["device"] = next((b["summary"]["device"] for done in pairs.values()
                             for _, b, _ in done if "device" in b["summary"]), None)
    report["a_rss_bytes"] = statistics.median(a["peak_rss_bytes"] for a in runs_a)
    report["a_s"] = statistics.median(s for a in runs_a for s in a["seconds"][1:])
    report["rows"] = []
    for text, given, size in budgets:
        plan = fifo.get(args.reference_policy, {}).get(str(size), {})
        row = row_of((text, given, size), pairs[text], log, plan)
        if args.cgroup:
            print(f"cgroup, budget {text} ...", file=sys.stderr)
            row["cgroup"] = in_cgroup(bench, given, size, log)
        if args.swap:
            limit = cgroup_limit(size, log)
            row["swap"] = []
            for kind in args.swap:
                print(f"{kind} swap at the limit of budget {text} ...", file=sys.stderr)
                row["swap"] += on_swap(bench, kind, limit, report["a_s"])
            row["swap_limit_bytes"] = limit
        report["rows"].append(row)

    print_table(report)
    if args.plot:
        plot(report, args.plot)
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")
    sys.exit(0 if all(row["losses_equal"] for row in report["rows"] + report["whole"]) else 1)


if __name__ == "__main__":
    main()
