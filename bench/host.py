#!/usr/bin/python3
"""Paired benchmark of the host engine: a real training with and without Ebb.

    bench/host.py --model resnet50 --batch 16 --budgets 100%,80%,60%,b80%,b60% --pairs 3 -o out.json

Runs A B A B ...: A is the program under the best tuned allocator (jemalloc, huge pages, nothing
given back), B the same program behind `ebb run --budget X`.  Before the pairs an independent count of
the program's allocations (malloc_log_preload) says what its peak is; `b60%` means 60 % of that, given
to Ebb in bytes, `60%` is passed on as it is.  Reported for each budget:

  losses     equal to the last digit in every iteration, or DIFFER
  ratio      median planned iteration of B over the median of A over the same iterations,
             median of the pairs (and the spread)
  managed    Ebb's peak of managed memory against the budget, and as a share of the independent peak
  heap       the share of the independent peak that Ebb manages: all but the most that the next
             allocator has held
  rss        peak resident set of each program, by wait4
  fifo       where the disk sets the pace: the iteration time that first in first out needs on the
             lanes measured in this run, predicted by `ebb plan --policy fifo`

With --cgroup, B also runs inside a memory cgroup limited to budget + (RSS of A - peak of the log)
+ 64 MiB, without swap: the kernel as a witness that the budget holds.

What a figure stands on is in the JSON: each run, its seconds per iteration, the machine.
"""
import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PYTHON = "/usr/bin/python3"
MIB = 1 << 20
MANAGED_BYTES = 512 << 10  # from this size on Ebb manages a block


# --- machine ---------------------------------------------------------------------------------


def first_line(path, pattern, default=None):
    try:
        with open(path, encoding="utf-8") as file:
            match = re.search(pattern, file.read(), re.M)
            return match.group(1).strip() if match else default
    except OSError:
        return default


def machine(store):
    memory_kib = int(first_line("/proc/meminfo", r"^MemTotal:\s+(\d+)", "0"))
    return {
        "cpu": first_line("/proc/cpuinfo", r"^model name\s*:\s*(.*)$", platform.processor()),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory_kib * 1024,
        "kernel": platform.release(),
        "transparent_hugepages": first_line("/sys/kernel/mm/transparent_hugepage/enabled",
                                            r"\[(\w+)\]"),
        "swap_bytes": int(first_line("/proc/meminfo", r"^SwapTotal:\s+(\d+)", "0")) * 1024,
        "file_system": subprocess.run(["stat", "-f", "-c", "%T", store], check=False,
                                      capture_output=True, text=True).stdout.strip(),
        "load_before": os.getloadavg()[0],
    }


def jemalloc():
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
                   "/usr/lib"):
        path = os.path.join(folder, "libjemalloc.so.2")
        if os.path.exists(path):
            return path
    sys.exit("host.py: libjemalloc2 is missing: run 'make deps'")


# --- memory cgroups --------------------------------------------------------------------------


class Cgroup:
    """A memory cgroup without swap (version 1 or 2); None-like where the machine has none."""

    def __init__(self, limit_bytes):
        self.path = None
        self.version = 1 if os.path.isdir("/sys/fs/cgroup/memory") else 2
        root = "/sys/fs/cgroup/memory" if self.version == 1 else "/sys/fs/cgroup"
        path = os.path.join(root, f"ebb-bench-{os.getpid()}-{time.monotonic_ns()}")
        try:
            if self.version == 2:
                self.write(os.path.join(root, "cgroup.subtree_control"), "+memory")
            os.mkdir(path)
            self.path = path
            if self.version == 1:
                self.write("memory.limit_in_bytes", limit_bytes)
                if os.path.exists(os.path.join(path, "memory.memsw.limit_in_bytes")):
                    self.write("memory.memsw.limit_in_bytes", limit_bytes)
                self.write("memory.swappiness", 0)
            else:
                self.write("memory.max", limit_bytes)
                self.write("memory.swap.max", 0)
        except OSError as error:
            self.close()
            raise RuntimeError(f"no memory cgroup: {error}") from error

    def write(self, name, value):
        with open(os.path.join(self.path or "", name), "w", encoding="utf-8") as file:
            file.write(str(value))

    def read(self, name):
        try:
            with open(os.path.join(self.path, name), encoding="utf-8") as file:
                return file.read()
        except OSError:
            return ""

    def enter(self):
        """In the child, before exec."""
        with open(os.path.join(self.path, "cgroup.procs"), "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))

    def peak_bytes(self):
        text = self.read("memory.max_usage_in_bytes" if self.version == 1 else "memory.peak")
        return int(text) if text.strip().isdigit() else None

    def kills(self):
        text = self.read("memory.oom_control" if self.version == 1 else "memory.events")
        match = re.search(r"oom_kill (\d+)", text)
        return int(match.group(1)) if match else None

    def close(self):
        if self.path and os.path.isdir(self.path):
            for _ in range(50):
                try:
                    os.rmdir(self.path)
                    return
                except OSError:
                    time.sleep(0.1)


# --- one run ---------------------------------------------------------------------------------


def run(command, env, cgroup=None):
    """Run to the end; losses and seconds of each iteration, exit code, peak RSS by wait4."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=err, preexec_fn=cgroup.enter if cgroup else None)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        text, errors = out.read().decode(), err.read().decode(errors="replace")
    rows = [line.split() for line in text.splitlines() if line.startswith("iteration ")]
    return {
        "exit_code": process.returncode,
        "elapsed_s": round(time.monotonic() - started, 3),
        "peak_rss_bytes": usage.ru_maxrss * 1024,
        "losses": [row[3] for row in rows],
        "seconds": [float(row[5]) for row in rows],
        "stderr": errors[-2000:],
    }


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
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("EBB_")}
        self.env.setdefault("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
        self.tuned = {**self.env, "LD_PRELOAD": jemalloc(),
                      "MALLOC_CONF": "thp:always,dirty_decay_ms:-1,muzzy_decay_ms:-1"}

    def log(self):
        """The independent count of the program's allocations."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "log.json")
            result = run(self.program, {
                **self.tuned, "LD_PRELOAD": f"{self.logger}:{self.tuned['LD_PRELOAD']}",
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

    def run_a(self):
        return run(self.program, self.tuned)

    def run_b(self, budget, cgroup=None):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "summary.json")
            result = run([self.ebb, "run", "--budget", budget, "--no-cache", "--store",
                          self.args.store, "--summary-json", path, *self.args.ebb_option, "--",
                          *self.program], self.env, cgroup)
            result["summary"] = {}
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    result["summary"] = json.load(file)
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
                           # Duplex where each way keeps most of its rate while the other is busy.
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


# --- figures ---------------------------------------------------------------------------------


def compare(a, b):
    """One pair: are the losses equal, and how do the planned iterations compare."""
    summary = b["summary"]
    first = summary.get("planned_from_iteration")
    count = min(len(a["seconds"]), len(b["seconds"]))
    pair = {"losses_equal": b["exit_code"] == 0 and len(a["losses"]) > 0
            and a["losses"] == b["losses"], "ratio": None, "planned_from_iteration": first}
    if first is not None and 0 <= first < count:
        pair["a_s"] = statistics.median(a["seconds"][first:count])
        # Ebb's own clock where it gives one: it knows which iterations ran under the plan.
        own = (summary.get("iteration_ns") or {}).get("median")
        pair["b_printed_s"] = statistics.median(b["seconds"][first:count])
        pair["b_s"] = own / 1e9 if own else pair["b_printed_s"]
        pair["ratio"] = pair["b_s"] / pair["a_s"]
    return pair


def median_of(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def text_of(value, form="{:.3f}"):
    return "-" if value is None else form.format(value)


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
    print(f"independent count: peak {mib(log['peak_bytes'])} MiB, "
          f"{mib(log['threshold_peak_bytes'])} MiB of it in blocks of at least "
          f"{log['threshold_bytes'] >> 10} KiB; A: {report['a_rss_bytes'] / MIB:.0f} MiB RSS, "
          f"{text_of(report['a_s'])} s an iteration\n")
    form = "{:<8}{:>9}{:>9}{:>8}{:>8}{:>9}{:>9}{:>19}{:>9}{:>9}{:>8}  {}"
    print(form.format("budget", "MiB", "managed", "of peak", "heap", "RSS", "s/iter", "ratio (spread)",
                      "fifo s", "moved", "faults", "losses"))
    for row in report["rows"]:
        spread = row["ratio_spread"]
        ratio = (f"{row['ratio']:.3f} ({spread[0]:.2f}-{spread[1]:.2f})"
                 if row["ratio"] is not None else "-")
        print(form.format(row["budget"], mib(row["budget_bytes"]),
                          mib(row["peak_resident_bytes"]), text_of(row["share"], "{:.0%}"),
                          text_of(row["heap_share"], "{:.1%}"),
                          mib(row["peak_rss_bytes"]), text_of(row["b_s"]), ratio,
                          text_of(row["fifo_s"]), mib(row["moved_out_bytes"]),
                          text_of(row["demand_faults_planned_median"], "{:.0f}"),
                          "equal" if row["losses_equal"] else "DIFFER"))
        cgroup = row.get("cgroup")
        if cgroup:
            print(f"        cgroup of {mib(cgroup.get('limit_bytes'))} MiB: {cgroup['verdict']}"
                  + (f", peak {mib(cgroup['peak_bytes'])} MiB"
                     if cgroup.get("peak_bytes") else ""))
    print("\nmanaged, RSS, moved in MiB (moved: whole run, out); fifo: predicted, not measured")


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
    parser.add_argument("--build", default=os.path.join(SOURCE, "build", "release"))
    parser.add_argument("--store", default=tempfile.gettempdir(), help="folder of the store")
    parser.add_argument("--lane-rounds", type=int, default=5)
    parser.add_argument("--cgroup", action="store_true", help="also run B in a memory cgroup")
    parser.add_argument("--no-fifo", action="store_true", help="leave the reference out")
    parser.add_argument("--reference-policy", default="fifo")
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
    """(what Ebb is given, bytes it means)."""
    match = re.fullmatch(r"(b?)(\d+(?:\.\d+)?)%", text)
    if match:
        size = int(peak * float(match.group(2)) / 100)
        return (str(size) if match.group(1) else text), size
    units = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)(?:iB)?", text)
    if not match:
        sys.exit(f"host.py: budget '{text}' is neither a share nor a size")
    return text, int(float(match.group(1)) * units[match.group(2)])


def in_cgroup(bench, given, size, log):
    """Budget + what the program holds beside its blocks + 64 MiB, and no swap."""
    limit = size + max(0, log["peak_rss_bytes"] - log["threshold_peak_bytes"]) + 64 * MIB
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


def main():
    args = parse()
    bench = Bench(args)
    report = {"schema": "ebb.bench-host/1", "program": " ".join(bench.program),
              "machine": machine(args.store), "pairs": args.pairs}
    print("counting allocations ...", file=sys.stderr)
    log = report["malloc_log"] = bench.log()
    peak = log["threshold_peak_bytes"]
    print("measuring lanes ...", file=sys.stderr)
    report["lanes"] = bench.lanes()

    budgets = [(text, *budget_bytes(text, peak)) for text in args.budgets.split(",")]
    runs_a, pairs = [], {text: [] for text, _, _ in budgets}
    for number in range(args.pairs):
        for text, given, _ in budgets:
            print(f"pair {number + 1} of {args.pairs}, budget {text} ...", file=sys.stderr)
            a = bench.run_a()
            if a["exit_code"] != 0:
                sys.exit(f"host.py: the program failed by itself: {a['stderr']}")
            b = bench.run_b(given)
            if b["exit_code"] != 0:
                print(f"  ebb run ended with {b['exit_code']}: {b['stderr']}", file=sys.stderr)
            runs_a.append(a)
            pairs[text].append((a, b, compare(a, b)))

    fifo = {}
    if not args.no_fifo:
        print("reference: recording and planning ...", file=sys.stderr)
        fifo = report["reference"] = bench.fifo(
            report["lanes"], sorted({size for _, _, size in budgets}))

    report["a_rss_bytes"] = statistics.median(a["peak_rss_bytes"] for a in runs_a)
    report["a_s"] = statistics.median(s for a in runs_a for s in a["seconds"][1:])
    report["rows"] = []
    for text, given, size in budgets:
        done = pairs[text]
        ratios = [pair["ratio"] for _, _, pair in done if pair["ratio"] is not None]
        summaries = [b["summary"] for _, b, _ in done]
        plan = fifo.get(args.reference_policy, {}).get(str(size), {})
        managed = max((s.get("peak_resident_bytes") or 0 for s in summaries), default=0)
        row = {
            "budget": text, "given": given, "budget_bytes": size,
            "losses_equal": all(pair["losses_equal"] for _, _, pair in done),
            "ratio": median_of(ratios), "ratio_spread": [min(ratios), max(ratios)]
                                                        if ratios else None,
            "a_s": median_of(pair.get("a_s") for _, _, pair in done),
            "b_s": median_of(pair.get("b_s") for _, _, pair in done),
            "peak_resident_bytes": managed or None, "share": managed / peak if managed else None,
            "heap_share": 1 - max(s["unmanaged_bytes"] for s in summaries) / log["peak_bytes"]
                          if all(s.get("unmanaged_bytes") for s in summaries) else None,
            "unmanaged_peak_bytes": median_of(s.get("unmanaged_peak_bytes") for s in summaries),
            "peak_rss_bytes": max(b["peak_rss_bytes"] for _, b, _ in done),
            "fifo_s": plan["iteration_ns"] / 1e9 if plan.get("iteration_ns") else None,
            "pairs": [{"a": a, "b": b, **pair} for a, b, pair in done],
        }
        for key in ("moved_out_bytes", "moved_in_bytes", "stall_ns", "demand_faults",
                    "demand_faults_planned_median", "planned_from_iteration", "mismatches"):
            row[key] = median_of(s.get(key) for s in summaries)
        if args.cgroup:
            print(f"cgroup, budget {text} ...", file=sys.stderr)
            row["cgroup"] = in_cgroup(bench, given, size, log)
        report["rows"].append(row)

    print_table(report)
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")
    sys.exit(0 if all(row["losses_equal"] for row in report["rows"]) else 1)


if __name__ == "__main__":
    main()
