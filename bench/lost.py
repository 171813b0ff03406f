"""Computes lost iterations and their causes for bench/first.py.

A run is a list of steps as bench/first/life.py writes them. Step 0 is the beginning. The time of a
step under Ebb in addition to the time of the same step without Ebb is its loss. Divided by the
median step without Ebb, it is a number of lost iterations. bench_watch observes the run. The first
rule that holds gives the cause of a step's loss:

  fork      a process began in the step: the whole loss
  late      this is the 4th step or later, and no plan has been in force for half of a step yet
  change    one has been, but no plan was in force for all of this step: the whole loss
  evict     up to the third step: as much as the program waited for transfers and for memory
  wait      the same under a plan
  pages     of the rest, as much as the main thread was longer in the kernel than without Ebb:
            clearing huge pages, faults, moves of pages
  observe   if accesses were observed in the step: the whole rest
  unknown   the rest. Before all other rules, a step that was faster than without Ebb

The sum of the causes is the sum of the losses. Ebb adds the waits of several threads, so `evict`
and `wait` are upper bounds, as is `observe`. If bench_watch saw nothing, all causes are unknown.
"""
import bisect
import json
import statistics

CAUSES = ("observe", "evict", "late", "change", "fork", "wait", "pages", "unknown")
LATEST = 3  # a plan is due in this step: docs/first-iterations.md

# A plan that is in force for this share of a step counts as in force for all of it.
WHOLE = 0.98
COUNTS = (5, 10, 20, 50)
NEVER = 1 << 30


def seconds(steps):
    return [(b["t_ns"] - a["t_ns"]) / 1e9 for a, b in zip(steps, steps[1:])]


def losses(steps):
    return [line["loss"] for line in steps[1:]]


def lost(a, b, count):
    """Iterations lost in the first `count` steps. a, b: seconds of each step without and with
    Ebb."""
    if min(len(a), len(b)) < count or not count:
        return None
    return (sum(b[:count]) - sum(a[:count])) / statistics.median(a)


def late_ratio(a, b, first=10, last=20):
    """The median of the steps `first` to `last` over that without Ebb; None if fewer than five."""
    a, b = a[first - 1:last], b[first - 1:last]
    if min(len(a), len(b)) < 5:
        return None
    return statistics.median(b) / statistics.median(a)


class Watched:
    """The report of bench_watch: the process with the largest blocks, and the starts of other
    processes."""

    def __init__(self, lines=()):
        lines = list(lines)
        largest = {}
        for line in lines:
            if "peak_live_bytes" in line:
                largest[line["ring"]] = line["peak_live_bytes"]
        self.main = max(largest, key=largest.get, default=None)
        self.samples = [line for line in lines
                        if line["ring"] == self.main and "stall_ns" in line]
        self.times = [line["t_ns"] for line in self.samples]
        self.marks = [(line["t_ns"], line["mark"]) for line in lines
                      if line["ring"] == self.main and "mark" in line]
        self.others = sorted(line["t_ns"] for line in lines
                             if line["ring"] != self.main and "began" in line)

    @classmethod
    def read(cls, path):
        try:
            with open(path, encoding="utf-8") as file:
                return cls(json.loads(line) for line in file if line.endswith("}\n"))
        except OSError:
            return cls()

    def counter(self, name, at_ns):
        """The value of a counter at a time, interpolated between two samples."""
        i = bisect.bisect_right(self.times, at_ns)
        if i == 0:
            return 0
        before = self.samples[i - 1]
        if i == len(self.samples):
            return before[name]
        after = self.samples[i]
        share = (at_ns - before["t_ns"]) / max(1, after["t_ns"] - before["t_ns"])
        return before[name] + share * (after[name] - before[name])

    def time_in(self, name, first_ns, last_ns):
        """Seconds of [first, last) that are between the marks NAME_on and NAME_off."""
        total, since = 0, None
        for at, mark in [*self.marks, (last_ns, name + "_off")]:
            if mark == name + "_on" and since is None:
                since = at
            elif mark == name + "_off" and since is not None:
                total += max(0, min(at, last_ns) - max(since, first_ns))
                since = None
        return total / 1e9


def facts_of(steps, watched):
    """What was observed in each step of a run under Ebb."""
    found = []
    for before, line in zip(steps, steps[1:]):
        first, last = before["t_ns"], line["t_ns"]
        facts = {"seconds": (last - first) / 1e9,
                 "system_s": line["system_s"] - before["system_s"],
                 "observed_s": watched.time_in("observe", first, last),
                 "planned_s": watched.time_in("plan", first, last),
                 "began": sum(first <= at < last for at in watched.others),
                 "seen": watched.main is not None}
        for name in ("stall_ns", "demand_faults", "moved_out_bytes", "moved_in_bytes",
                     "mismatches", "reactive_evictions"):
            facts[name] = watched.counter(name, last) - watched.counter(name, first)
        found.append(facts)
    return found


def planned_step(facts):
    """The first step in which a plan was in force for half of the time, or None."""
    return next((number for number, step in enumerate(facts, 1)
                 if step["planned_s"] >= step["seconds"] / 2), None)


def causes_of(number, planned, lost_s, step, system_s):
    """{cause: seconds} of one step. planned: planned_step(). system_s: of the step without Ebb."""
    had = planned is not None and number >= planned
    if not step["seen"] or lost_s < 0:
        return {"unknown": lost_s}
    if step["began"]:
        return {"fork": lost_s}
    if not had and number > LATEST:
        return {"late": lost_s}
    if had and step["planned_s"] < WHOLE * step["seconds"]:
        return {"change": lost_s}
    found = {}
    left = lost_s
    for cause, most in (("wait" if had else "evict", step["stall_ns"] / 1e9),
                        ("pages", step["system_s"] - system_s)):
        found[cause] = min(left, max(0, most))
        left -= found[cause]
    found["observe" if step["observed_s"] > 0 else "unknown"] = left
    return found


def attribute(a_steps, facts, count):
    """{cause: lost iterations} of the first `count` steps. a_steps: the steps without Ebb."""
    a = seconds(a_steps)
    planned = planned_step(facts)
    total = dict.fromkeys(CAUSES, 0.0)
    for i, step in enumerate(facts[:min(count, len(a))]):
        system_s = a_steps[i + 1]["system_s"] - a_steps[i]["system_s"]
        lost_s = step["seconds"] - a[i]
        for cause, much in causes_of(i + 1, planned, lost_s, step, system_s).items():
            total[cause] += much
    return {cause: much / statistics.median(a) for cause, much in total.items()}


def compare(a_run, b_run):
    """One pair. A run is {"steps", "elapsed_s", "exit_code"}, with Ebb also "watched"."""
    a, b = seconds(a_run["steps"]), seconds(b_run["steps"])
    facts = facts_of(b_run["steps"], b_run["watched"])
    count = min(len(a), len(b))
    return {
        "losses_equal": b_run["exit_code"] == 0 and count > 0
                        and losses(a_run["steps"]) == losses(b_run["steps"]),
        "steps": count, "median_s": statistics.median(a), "a_seconds": a, "b_seconds": b,
        "first_s": {str(n): [sum(a[:n]), sum(b[:n])] for n in COUNTS if n <= count},
        "lost": {str(n): lost(a, b, n) for n in COUNTS if n <= count},
        "lost_all": lost(a, b, count), "late_ratio": late_ratio(a, b),
        "planned_step": planned_step(facts),
        "causes": attribute(a_run["steps"], facts, min(count, 20)), "facts": facts,
        "whole_ratio": b_run["elapsed_s"] / a_run["elapsed_s"],
    }


def row_of(pairs):
    """A row of the table with the medians of the pairs. The causes are those of the pair in the
    middle. So their sum is the loss of that pair in its first 20 steps."""
    middle = sorted(pairs, key=lambda pair: sum(pair["causes"].values()))[(len(pairs) - 1) // 2]
    counts = [n for n in map(str, COUNTS) if all(n in pair["lost"] for pair in pairs)]

    planned = statistics.median_low([pair["planned_step"] or NEVER for pair in pairs])

    def median(name):
        values = [pair[name] for pair in pairs if pair[name] is not None]
        return statistics.median(values) if values else None
    return {
        "losses_equal": all(pair["losses_equal"] for pair in pairs),
        "lost": {n: statistics.median(pair["lost"][n] for pair in pairs) for n in counts},
        "first_s": {n: [statistics.median(pair["first_s"][n][side] for pair in pairs)
                        for side in (0, 1)] for n in counts},
        "planned_step": planned if planned < NEVER else None,
        "median_s": median("median_s"), "late_ratio": median("late_ratio"),
        "whole_ratio": median("whole_ratio"), "causes": middle["causes"],
        "caused_steps": min(middle["steps"], 20),
    }
