#!/usr/bin/python3
"""Predicted iterations beside measured ones: trainings, budgets and policies.

    bench/validate.py --venv DIR -o validate.json

Each training runs under `ebb run --budget B --policy P`, once for each budget and policy. It runs
under Debian's PyTorch, and under that of the virtual environment DIR. What is measured is the median
of the planned iterations; under a policy without a script, of the iterations after learning. Three
predictions stand beside it:

  run    what the run itself said when it had learnt its iteration (`learnt_iteration_ns` of the
         summary): no planned iteration had been seen. Often it knows only the first iteration,
         in which libraries prepare themselves
  plan   what it says of the plan in force at the end (`predicted_iteration_ns`), simulated with the
         pace and the lanes that the run has measured meanwhile
  trace  what `ebb plan` says of a trace of the training, on the machine that the run assumed. The
         trace is recorded once for each training, before its runs

A budget `b60%` is 60 % of the trace's peak, given in bytes: it holds from the first allocation. `60%`
is passed on as it is, so the first iterations are unlimited.

The error is predicted / measured - 1. A run without a planned iteration has none, and says why. So
does a run whose budget is too small for its policy: the plan is then not carried out. The
output file is written after each run. If it exists, the runs in it are not repeated. The exit code
is 0 if the errors of `plan` are within LIMITS and there are at least --least runs.

The sizes keep an iteration at 0.3 to 3 s on two cores. With --lock FILE the runs hold a lock
on FILE, so that benchmarks that know the file do not disturb each other.
"""
import argparse
import fcntl
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from paired import SOURCE, provenance, run

# Batch, size, further options: of examples/torch_train.py.
MODELS = {"resnet50": (4, 128, ()), "vgg16": (2, 96, ()), "densenet121": (4, 128, ()),
          "gpt": (4, 128, ("--width", "384", "--layers", "6")),
          "lstm": (16, 96, ("--width", "512"))}
BUDGETS = ("b100%", "b80%", "b60%", "b50%", "b40%", "b30%")
POLICIES = ("ebb", "appobmem", "autoswap:vote", "lru")
# The greatest errors that are good enough: of the median run, of the worst.
LIMITS = {"ebb": (0.07, 0.15)}
LIMITS_OF_OTHERS = (0.12, 0.25)
SOURCES = ("run", "plan", "trace")
TOO_LONG = 124  # exit code of timeout(1)


def error_of(predicted_ns, measured_ns):
    """How much the prediction is above the measurement, as a share of it; None: there is none."""
    return predicted_ns / measured_ns - 1 if predicted_ns and measured_ns else None


def why_nothing(result, summary):
    """Why a run has no measurement, or None if it has one."""
    if result["exit_code"] == TOO_LONG:
        return "took too long"
    if result["exit_code"] != 0:
        return f"exit code {result['exit_code']}"
    if not summary.get("iteration_ns", {}).get("median"):
        return "no planned iteration"
    if summary.get("predicted_peak_bytes", 0) > (summary.get("budget_bytes") or 0):
        return "infeasible budget"
    return None


def budget_of(text, peak_bytes):
    """The value of --budget."""
    if not text.startswith("b"):
        return text
    return str(int(peak_bytes * float(text[1:].rstrip("%")) / 100))


def row_of(key, result, summary, plan):
    """One row: the key of the run, its result by paired.run(), its summary, what `ebb plan` says."""
    row = dict(key)
    why = why_nothing(result, summary)
    row["why_nothing"] = why
    row["measured_ns"] = None if why else summary["iteration_ns"]["median"]
    row["run_ns"] = summary.get("learnt_iteration_ns") or None
    row["plan_ns"] = summary.get("predicted_iteration_ns") or None
    row["trace_ns"] = (plan["iteration_ns"] + plan.get("overhead_ns", 0)
                       if plan.get("feasible") else None)
    for source in SOURCES:
        row[f"{source}_error"] = error_of(row[f"{source}_ns"], row["measured_ns"])
    for name in ("budget_bytes", "predicted_iteration_ns", "predicted_overhead_ns",
                 "predicted_stall_ns_per_iteration", "planned_iterations", "replans", "stall_ns",
                 "moved_out_bytes", "moved_in_bytes", "observed_faults", "observed_ns",
                 "demand_faults_planned_median", "machine", "iteration_ns"):
        row[name] = summary.get(name)
    row["seconds"] = result["seconds"]
    return row


def summary_of(rows, source):
    """By policy: the number of runs with an error, the median error and the worst, without sign."""
    summary = {}
    for policy in dict.fromkeys(row["policy"] for row in rows):
        errors = [abs(row[f"{source}_error"]) for row in rows
                  if row["policy"] == policy and row[f"{source}_error"] is not None]
        summary[policy] = {"runs": len(errors),
                           "median": statistics.median(errors) if errors else None,
                           "worst": max(errors, default=None)}
    return summary


def is_good(summary, least):
    """Are there enough runs, and is each policy within its limits?"""
    for policy, found in summary.items():
        median, worst = LIMITS.get(policy, LIMITS_OF_OTHERS)
        if not found["runs"] or found["median"] > median or found["worst"] > worst:
            return False
    return sum(found["runs"] for found in summary.values()) >= least


# --- runs ------------------------------------------------------------------------------------


class Lock:
    """A lock on a file, held for several runs: for so many seconds and the rest of a run."""

    def __init__(self, path, seconds_held):
        self.path, self.seconds_held = path, seconds_held
        self.file, self.since = None, 0

    def __enter__(self):
        if self.path and not self.file:
            self.file = open(self.path, "a", encoding="utf-8")
            fcntl.flock(self.file, fcntl.LOCK_EX)
            self.since = time.monotonic()

    def __exit__(self, *_):
        if self.file and time.monotonic() - self.since >= self.seconds_held:
            self.file.close()
            self.file = None
            time.sleep(1)  # others are waiting


class Validation:
    def __init__(self, args):
        self.args = args
        self.lock = Lock(args.lock, args.lock_seconds)
        self.ebb = os.path.join(args.build, "bin", "ebb")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("EBB_")}
        self.env.setdefault("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
        self.pythons = {"debian": "/usr/bin/python3"}
        if args.venv:
            self.pythons["venv"] = os.path.join(args.venv, "bin", "python")

    def program(self, python, model, iterations):
        batch, size, options = MODELS[model]
        return [self.pythons[python], os.path.join(SOURCE, "examples", "torch_train.py"),
                "--model", model, "--batch", str(batch), "--size", str(size),
                "--iterations", str(iterations), *options]

    def trace(self, python, model):
        """The path of the training's trace, which is recorded if it is missing."""
        os.makedirs(self.args.traces, exist_ok=True)
        path = os.path.join(self.args.traces, f"{python}-{model}.ebbt")
        if not os.path.exists(path):
            with self.lock:
                result = run([self.ebb, "record", "-o", path + ".part", "--",
                              *self.program(python, model, self.args.recorded)], self.env)
            if result["exit_code"] != 0:
                sys.exit(f"validate.py: ebb record: {result['stderr']}")
            os.rename(path + ".part", path)
        return path

    def peak_bytes(self, trace):
        """The most bytes of the trace, or of its iteration made anew."""
        done = subprocess.run([self.ebb, "info", trace, "--json"], capture_output=True, text=True,
                              check=True)
        found = json.loads(done.stdout)
        return max(found["peak_bytes"], found["iteration_peak_bytes"])

    def planned(self, trace, summary, policy):
        """What `ebb plan` says of the trace with the machine and the budget of the run."""
        if not summary.get("machine") or not summary.get("budget_bytes"):
            return {}
        with tempfile.TemporaryDirectory() as folder:
            machine = os.path.join(folder, "machine.json")
            with open(machine, "w", encoding="utf-8") as file:
                json.dump(summary["machine"], file)
            # Small blocks are in no trace.
            budget = summary["budget_bytes"] - summary["slab_used_bytes"]
            done = subprocess.run([self.ebb, "plan", trace, "--machine", machine, "--budget",
                                   str(budget), "--policy", policy, "--json"],
                                  capture_output=True, text=True, check=False)
        try:
            return json.loads(done.stdout)
        except ValueError:
            return {"feasible": False, "error": done.stderr.strip()}

    def row(self, key):
        trace = self.trace(key["python"], key["model"])
        budget = budget_of(key["budget"], self.peak_bytes(trace))
        with tempfile.TemporaryDirectory() as folder, self.lock:
            path = os.path.join(folder, "summary.json")
            # timeout(1) lets Ebb end the program, too.
            result = run(["timeout", "-k", "10", str(self.args.limit), self.ebb, "run", "--no-cache", "--store", self.args.store, "--budget",
                          budget, "--policy", key["policy"], "--summary-json", path, "--",
                          *self.program(key["python"], key["model"], self.args.iterations)],
                         self.env)
            summary = {}
            if result["exit_code"] == 0:
                with open(path, encoding="utf-8") as file:
                    summary = json.load(file)
            plan = self.planned(trace, summary, key["policy"])
        return row_of(key, result, summary, plan)

    def keys(self):
        return [{"python": python, "model": model, "budget": budget, "policy": policy}
                for budget in self.args.budgets for policy in self.args.policies
                for python in self.pythons if python in self.args.pythons
                for model in self.args.models]


# --- output ----------------------------------------------------------------------------------


def percent(error):
    return "-" if error is None else f"{100 * error:+.1f} %"


def seconds(ns):
    return "-" if not ns else f"{ns / 1e9:.3f}"


def print_row(row):
    print("{python:<7}{model:<13}{budget:>6} {policy:<14}".format(**row)
          + f"{seconds(row['measured_ns']):>9}{seconds(row['run_ns']):>9}"
          f"{percent(row['run_error']):>10}{seconds(row['plan_ns']):>9}"
          f"{percent(row['plan_error']):>10}{seconds(row['trace_ns']):>9}"
          f"{percent(row['trace_error']):>10}  {row['why_nothing'] or ''}", flush=True)


def print_summary(report):
    for source in SOURCES:
        print(f"\npredicted by the {source}: {'policy':<14}{'runs':>5}{'median':>10}{'worst':>10}")
        for policy, found in report["summary"][source].items():
            print(f"{'':<{18 + len(source)}} {policy:<14}{found['runs']:>5}"
                  f"{percent(found['median']):>10}{percent(found['worst']):>10}")


def save(report, path):
    report["summary"] = {source: summary_of(report["rows"], source) for source in SOURCES}
    if path:
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")
        os.replace(path + ".part", path)


def begin(args):
    """The report so far."""
    if args.output and os.path.exists(args.output):
        with open(args.output, encoding="utf-8") as file:
            report = json.load(file)
        if report.get("schema") != "ebb.bench-validate/1":
            sys.exit(f"validate.py: {args.output} is no output of this program")
        return report
    return {"schema": "ebb.bench-validate/1", **provenance(args.store), "rows": []}


def words(text):
    return text.split(",")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(SOURCE, "build", "release"))
    parser.add_argument("--venv", help="a virtual environment with current PyTorch")
    parser.add_argument("--pythons", type=words, default=["venv", "debian"])
    parser.add_argument("--models", type=words, default=list(MODELS))
    parser.add_argument("--budgets", type=words, default=list(BUDGETS))
    parser.add_argument("--policies", type=words, default=list(POLICIES))
    parser.add_argument("--iterations", type=int, default=14, help="of each run")
    parser.add_argument("--recorded", type=int, default=10, help="iterations of each trace")
    parser.add_argument("--limit", type=float, default=90, help="seconds that a run may take")
    parser.add_argument("--least", type=int, default=60, help="runs that suffice")
    parser.add_argument("--store", default=".", help="folder of the store")
    parser.add_argument("--traces", default="traces", help="folder of the traces")
    parser.add_argument("--lock", help="a file that is locked during each run")
    parser.add_argument("--lock-seconds", type=float, default=180, help="and held for so long")
    parser.add_argument("-o", "--output", help="JSON, written after each run")
    args = parser.parse_args()
    validation = Validation(args)
    report = begin(args)
    done = {tuple(row[name] for name in ("python", "model", "budget", "policy"))
            for row in report["rows"]}
    print(f"{'python':<7}{'model':<13}{'':>6} {'policy':<14}{'measured':>9}{'run':>9}{'error':>10}"
          f"{'plan':>9}{'error':>10}{'trace':>9}{'error':>10}")
    for row in report["rows"]:
        print_row(row)
    for key in validation.keys():
        if tuple(key.values()) in done:
            continue
        report["rows"].append(validation.row(key))
        print_row(report["rows"][-1])
        save(report, args.output)
    save(report, args.output)
    print_summary(report)
    sys.exit(0 if is_good(report["summary"]["plan"], args.least) else 1)


if __name__ == "__main__":
    main()
