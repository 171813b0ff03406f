#!/usr/bin/python3
"""Makes Markdown tables from the output of the benchmarks, with command, date and machine.

    bench/report.py host.json frameworks.json darknet.json malloc.json
    bench/report.py --write docs/performance.md host.json malloc.json

Reads files that these programs write with -o, in the order given: bench/host.py, bench/first.py,
bench/frameworks/run.py, bench/darknet.py, bench/malloc_pairs.py, bench/ablate.py,
bench/screen.py and bench/validate.py. The key `schema` tells which is which. Only medians and
units are computed here. A file without command or date is refused, since nobody could repeat it.

With --write, the tables replace the text in the document between the lines

    <!-- report: NAME -->
    <!-- end -->

NAME is the name of the file without folder and `.json`. A document without such a section is
refused and not changed.
"""
import argparse
import json
import os
import re
import shlex
import statistics
import sys
import textwrap

from lost import CAUSES, COUNTS
from malloc_pairs import KINDS as SIZES

MIB = 1 << 20
LINE = 100  # characters in a line of Markdown; rows of tables may be longer


class Unusable(Exception):
    """The file is not the output of a benchmark."""


def number(value, form="{:.2f}"):
    return "-" if value is None else form.format(value)


def mib(value):
    return "-" if value is None else f"{value / MIB:,.0f}"


def spread(middle, ends):
    """A ratio with its spread, as `1.04 (1.02-1.08)`."""
    return "-" if middle is None else f"{middle:.2f} ({ends[0]:.2f}-{ends[1]:.2f})"


def spread_of(values):
    values = [value for value in values if value is not None]
    return spread(statistics.median(values), (min(values), max(values))) if values else "-"


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |"
                     for line in lines)


def prose(text):
    return textwrap.fill(text, LINE, break_long_words=False, break_on_hyphens=False)


def items(*texts):
    """A Markdown list."""
    return "\n".join(textwrap.fill(text, LINE, initial_indent="- ", subsequent_indent="  ",
                                   break_long_words=False, break_on_hyphens=False) for text in texts)


def command_lines(command):
    """The command as code, in lines that a shell joins. No argument is broken. The folder of the
    output file is left out."""
    words = shlex.split(command)
    for i, word in enumerate(words[:-1]):
        if word in ("-o", "--output"):
            words[i + 1] = os.path.basename(words[i + 1])
    lines = [""]
    for word in map(shlex.quote, words):
        if lines[-1] and len(lines[-1]) + len(word) > LINE - 12:
            lines.append("    ")
        lines[-1] += word if not lines[-1].strip() else " " + word
    return "\n".join("    " + line for line in " \\\n".join(lines).split("\n"))


def head(report, title):
    """The title, the command, the date and the machine."""
    for key in ("command", "date", "machine"):
        if not report.get(key):
            raise Unusable(f"has no {key}: write it anew with the benchmark")
    machine = report["machine"]
    swap = machine.get("swap_bytes")
    where = (f"{report['date']}. {machine['cpu']}, {machine['cores']} cores, "
             f"{machine['memory_bytes'] / (1 << 30):.1f} GiB, Linux {machine['kernel']}. Store on "
             f"{machine['file_system']}, huge pages `{machine['transparent_hugepages']}`, "
             f"{'swap' if swap else 'no swap'}. Load before: {machine['load_before']:.2f}.")
    return f"## {title}\n\n{command_lines(report['command'])}\n\n{prose(where)}\n"


# --- bench/host.py ---------------------------------------------------------------------------


def host(report):
    program = report["program"].split()
    name = program[program.index("--model") + 1] if "--model" in program[:-1] else "Training"
    title = f"{name} with and without Ebb, `{report['device']}`"
    lanes = report["lanes"]
    peers = ", ".join(f"{name} {statistics.median(run['seconds'][1:]):.2f}"
                      for name, run in report["allocators"].items())
    log = report["malloc_log"]
    pairs = " or ".join(map(str, sorted({len(row["pairs"]) for row in report["rows"]})))
    said = items(
        f"Without Ebb: under {report['allocator']}, the fastest. Seconds an iteration: {peers}.",
        f"Lanes, GB/s: {lanes['out_bytes_per_s'] / 1e9:.2f} out, {lanes['in_bytes_per_s'] / 1e9:.2f} "
        f"in, {lanes['both_bytes_per_s'] / 1e9:.2f} each way while both are busy.",
        f"Peak of the program's blocks: {mib(log['threshold_peak_bytes'])} MiB. RSS without Ebb: "
        f"{mib(report['a_rss_bytes'])} MiB.",
        f"Ratios of iterations and of whole commands are medians of {pairs} pairs (least-most).",
        "Faults are those of the median planned iteration. Sizes are in MiB; *out* is what was moved "
        "out in the whole run.")
    rows = []
    for row in report["rows"]:
        rows.append([row["budget"], spread(row["ratio"], row["ratio_spread"]),
                     spread(row.get("whole_ratio"), row.get("whole_spread")),
                     f"{number(row['b_s'])}, {number(row['plan_s'])}",
                     f"{mib(row['peak_resident_bytes'])}/{mib(row['budget_bytes'])}",
                     mib(row["peak_rss_bytes"]), mib(row["moved_out_bytes"]),
                     number(row["demand_faults_planned_median"], "{:.0f}"),
                     "equal" if row["losses_equal"] else "DIFFER"])
    parts = [head(report, title), said, "",
             table(["budget", "iteration", "whole", "s, predicted", "resident/budget", "RSS",
                    "out", "faults", "losses"], rows)]
    parts += beside(report["rows"])
    if report.get("whole"):
        parts += ["", whole(report["whole"])]
    return "\n".join(parts) + "\n"


def whole(rows):
    """Ratio of whole commands. Each budget has a row, each count a column."""
    counts = sorted({row["iterations"] for row in rows})
    lines = []
    for budget in dict.fromkeys(row["budget"] for row in rows):
        at = {row["iterations"]: row for row in rows if row["budget"] == budget}
        lines.append([budget, *(spread(at[count]["whole_ratio"], at[count]["whole_spread"]) +
                                ("" if at[count]["losses_equal"] else ", losses DIFFER")
                                if count in at else "-" for count in counts)])
    return table(["whole command, budget", *(f"{count} iterations" for count in counts)], lines)


def beside(rows):
    """The kernel's swap with the same memory, if it was measured."""
    lines = []
    for row in rows:
        if "cgroup" in row:
            lines.append([row["budget"], "Ebb in a cgroup", mib(row["cgroup"].get("limit_bytes")), "-",
                          row["cgroup"]["verdict"]])
        for swap in row.get("swap", []):
            lines.append([row["budget"], f"{swap['swap']} swap, {swap['allocator']}",
                          mib(row["swap_limit_bytes"]), number(swap["s"]), swap["verdict"]])
    return ["", table(["budget", "beside it", "limit, MiB", "s an iteration", "end"],
                      lines)] if lines else []


# --- the others ------------------------------------------------------------------------------


def frameworks(report):
    rows = []
    for row in report["rows"]:
        if "error" in row:
            rows.append([row["name"], "failed: " + " ".join(row["error"].split())[:80],
                         *["-"] * 5])
            continue
        losses = "equal" if row["same"] else "DIFFER" if row["repeats"] else "ends"
        rows.append([row["name"], losses, f"{spread_of(row['ratios'])} of {row['allocator']}",
                     f"{mib(row['peak_resident_bytes'])} / {mib(row['budget_bytes'])}"
                     + ("" if row["kept"] else " EXCEEDED"),
                     f"{row['planned_iterations']} / {row['iterations']}",
                     number(row["demand_faults_planned_median"], "{:.0f}"), row["mismatches"]])
    return head(report, f"Frameworks at {report['budget']}") + "\n" + table(
        ["program", "losses", "iteration", "resident / budget, MiB", "planned / all",
         "faults", "mismatches"], rows) + "\n"


def darknet(report):
    rows = []
    for row in report["rows"]:
        summary = row["summary"]
        rows.append([row["budget"], len(row["ratios"]), spread_of(row["ratios"]),
                     number(row["whole_ratio"]),
                     f"{mib(summary['peak_resident_bytes'])} / {mib(summary['budget_bytes'])}",
                     summary["planned_iterations"],
                     number(summary["demand_faults_planned_median"], "{:.0f}"),
                     "equal" if row["weights_equal"] else "DIFFER"])
    return head(report, "Darknet, which allocates once") + "\n" + table(
        ["budget", "pairs", "iteration", "whole", "resident / budget, MiB", "planned", "faults",
         "weights"], rows) + "\n"


def malloc_pairs(report):
    def cell(which, key):
        values = [run[key] for run in report[which]]
        return f"{statistics.median(values):,.1f} ({min(values):,.1f}-{max(values):,.1f})"
    rows = [[name, cell("alone", key), cell("under", key)] for key, name in SIZES.items()]
    return head(report, "What an allocation costs") + "\n" + prose(
        f"Nanoseconds for a malloc and its free, the median of {len(report['alone'])} runs each "
        "(least-most).") + "\n\n" + table(["size", "by itself", "under Ebb"], rows) + "\n"


def first(report):
    lanes = report["lanes"]
    said = (f"Lanes: {lanes['out_bytes_per_s'] / 1e9:.2f} GB/s out, {lanes['in_bytes_per_s'] / 1e9:.2f} "
            f"in, {lanes['both_bytes_per_s'] / 1e9:.2f} each way while both are busy. Budget: "
            f"{report['budget']} of the peak, in bytes; {report['steps']} steps. Lost: time beyond that "
            "of the same steps without Ebb, in median steps; medians of the pairs. Planned: the first "
            "step that a plan was in force for half of.")
    if report["second_run"]:
        said += f" With the profile of a run before (`{report['second_run']}`)."
    done = [row for row in report["rows"] if "error" not in row]
    counts = [str(n) for n in COUNTS if all(str(n) in row["lost"] for row in done)] if done else []
    rows, causes = [], []
    for row in report["rows"]:
        if "error" in row:
            rows.append([row["name"], " ".join(row["error"].split())[:80], *["-"] * (9 + len(counts))])
            continue
        rows.append([row["name"], len(row["pairs"]),
                     f"{mib(row['count']['threshold_peak_bytes'])} / {mib(row['budget_bytes'])}"
                     + ("" if row["kept"] else " EXCEEDED"), number(row["median_s"]),
                     *(number(row["lost"][n], "{:.1f}") for n in counts),
                     number(row["planned_step"], "{}"), number(row["late_ratio"]),
                     number(row["whole_ratio"]),
                     f"{mib(row['moved_out_bytes'])}, {mib(row['moved_in_bytes'])}",
                     number(row["demand_faults"], "{}"), number(row["load"][1], "{:.1f}"),
                     ("equal" if row["losses_equal"] else "DIFFER")
                     + (f"; profile {row['plan_cache']}" if report["second_run"] else "")])
        causes.append([row["name"], *(number(row["causes"][cause], "{:.1f}") for cause in CAUSES),
                       number(sum(row["causes"].values()), "{:.1f}")])
    return "\n".join([
        head(report, f"The first iterations at {report['budget']}"), prose(said), "",
        table(["program", "pairs", "peak / budget, MiB", "step, s",
               *(f"{'lost ' if n == counts[0] else ''}in {n}" for n in counts), "planned",
               "steps 10 to 20, ratio", "whole command, ratio", "moved out, in, MiB", "faults", "load",
               "losses"], rows), "",
        prose("What the first 20 steps, or all if there are fewer, were lost to, in iterations (the "
              "pair in the middle):"), "",
        table(["program", *CAUSES, "sum"], causes)]) + "\n"


# --- bench/ablate.py -------------------------------------------------------------------------


def worst_case(cases, value):
    """The largest change of a row at this value, and the number of cases that change at all."""
    here = [case for case in cases if case["value"] == value]
    changed = [case for case in here if not case["same"]]
    if not changed:
        return "none"
    worst = max(changed, key=lambda case: abs(case["ratio"] - 1))
    ends = f" ({100 * (worst['least'] - 1):+.1f} to {100 * (worst['most'] - 1):+.1f})" \
        if "least" in worst else ""
    if abs(worst["ratio"] - 1) < 0.00005:
        return f"another plan, as good, in {len(changed)} of {len(here)}"
    figure = {"iteration_ns": "iteration", "peak_bytes": "peak", "height_bytes": "height",
              "lower_bound_bytes": "bound"}[worst["figure"]]
    return (f"{figure} {100 * (worst['ratio'] - 1):+.2f} %{ends} in {worst['case']}; "
            f"{len(changed)} of {len(here)} change")


def ablate(report):
    parts = [head(report, "What half and twice of each number do"), prose(
        "Plans are judged by what they predict for recorded traces; searches count steps, so any "
        "difference is one. Runs are judged by pairs: a difference is one if all pairs agree and their "
        "median is farther from 1 than pairs without a change. Cells name the largest difference.")]
    for acts, title in (("plan", "Rows that act on plans"), ("run", "Rows that act on runs")):
        rows = []
        for row in report["rows"]:
            if row["acts"] != acts:
                continue
            values = sorted({case["value"] for case in row["cases"]}, key=float)
            cells = {"less": "-", "more": "-"}
            for value in values:
                cells["less" if float(value) < row["value"] else "more"] = \
                    f"{value}: {worst_case(row['cases'], value)}"
            rows.append([f"`{row['name']}`", f"{row['value']:.10g} {row['unit']}", cells["less"],
                         cells["more"]])
        if rows:
            parts += ["", f"### {title}\n", table(["row", "value", "half", "twice"], rows)]
    return "\n".join(parts) + "\n"


def screen(report):
    """Which rows that act on runs matter, and what could not have been seen."""
    figures = {"iteration": "planned iteration", "whole": "whole command"}
    rows = [[f"`{effect['name']}`", f"{report['rows'][effect['name']]['value']:.10g} "
             f"{report['rows'][effect['name']]['unit']}", effect["value"], effect["program"],
             figures[effect["figure"]], f"{100 * effect['change']:+.1f} %",
             f"{100 * effect['limit']:.1f} %"] for effect in report["effects"]]
    seen = {effect["name"] for effect in report["effects"]}
    limits = [[what, f"{100 * limit:.1f} %"] for what, limit in report["limits"].items()]
    failed = sum(1 for run in report["runs"] if run["why_nothing"])
    return "\n".join([
        head(report, "Screening of the rows that act on runs"), prose(
            f"{len(report['runs'])} runs, {failed} of them failed; {len(report['rows'])} rows at half "
            "and at twice, about a dozen changes a run. A change counts if it exceeds the limit, "
            f"{report['z']:g} standard errors of its median."), "",
        table(["row", "value", "changed to", "program", "figure", "change", "limit"], rows), "",
        prose("The other rows change no figure of these programs by more than its limit:"), "",
        table(["program, figure", "smallest change that is seen"], limits), "",
        prose(", ".join(f"`{name}`" for name in report["rows"] if name not in seen) + ".")]) + "\n"


def validate(report):
    """The errors of predictions by policy, and each run."""
    def error(value, form="{:+.1%}"):
        return number(value, form).replace("%", " %")
    said = prose(
        "Predicted by the run: what it says when it has learnt its iteration, before any planned "
        "iteration. By the plan: what it says of the plan in force at the end, with the pace and the "
        "lanes that it has measured. By the trace: what `ebb plan` says of a recording. Errors are "
        "shares of what was measured, the median of the planned iterations. Medians and worst are "
        "without sign.")
    sources = list(report["summary"])
    totals = [[policy, source, found["runs"], *(error(found[which], "{:.1%}")
                                                for which in ("median", "worst"))]
              for source, policies in report["summary"].items() for policy, found in policies.items()]
    rows = [[row["python"], row["model"], row["budget"], row["policy"],
             number(row["measured_ns"] and row["measured_ns"] / 1e9),
             *(f"{number(row[source + '_ns'] and row[source + '_ns'] / 1e9)} "
               f"({error(row[source + '_error'])})" for source in sources)]
            for row in report["rows"]]
    return "\n".join([
        head(report, "Predicted and measured"), said, "",
        table(["policy", "predicted by", "runs", "median error", "worst"], totals), "",
        table(["PyTorch", "training", "budget", "policy", "s",
               *(f"{source}, s" for source in sources)], rows)]) + "\n"


KINDS = {"ebb.bench-ablate/1": ablate, "ebb.bench-screen/1": screen,
         "ebb.bench-validate/1": validate, "ebb.bench-host/1": host, "ebb.bench-first/1": first,
         "ebb.bench-frameworks/1": frameworks,
         "ebb.bench-darknet/1": darknet, "ebb.bench-malloc-pairs/1": malloc_pairs}


def section(text):
    """The Markdown of one file's content."""
    try:
        report = json.loads(text)
    except ValueError as error:
        raise Unusable(f"is no JSON: {error}") from error
    kind = report.get("schema") if isinstance(report, dict) else None
    if kind not in KINDS:
        raise Unusable(f"schema {kind!r} is none of {', '.join(KINDS)}")
    try:
        return KINDS[kind](report)
    except (KeyError, TypeError, IndexError, statistics.StatisticsError) as error:
        raise Unusable(f"lacks what {kind} has: {error!r}") from error


MARK = re.compile(r"(<!-- report: (\S+) -->\n).*?(<!-- end -->)", re.S)


def replaced(document, sections):
    """The document with `sections`, Markdown by name, inserted at their places."""
    names = [match.group(2) for match in MARK.finditer(document)]
    for name in sections:
        if names.count(name) != 1:
            raise Unusable(f"has {names.count(name)} sections `<!-- report: {name} -->`, not one")
    return MARK.sub(lambda match: match.group(1) + sections[match.group(2)] + match.group(3)
                    if match.group(2) in sections else match.group(0), document)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="FILE", help="output of a benchmark (-o)")
    parser.add_argument("--write", metavar="DOCUMENT", help="replace the files' sections there")
    arguments = parser.parse_args()
    sections = {}
    for path in arguments.files:
        name = os.path.basename(path).removesuffix(".json")
        try:
            with open(path, encoding="utf-8") as file:
                if name in sections:
                    raise Unusable("another file has the same name")
                sections[name] = section(file.read())
        except (OSError, Unusable) as error:
            sys.exit(f"report.py: {path}: {error}")
    if not arguments.write:
        print("\n".join(sections.values()), end="")
        return
    try:
        with open(arguments.write, encoding="utf-8") as file:
            document = replaced(file.read(), sections)
        with open(arguments.write, "w", encoding="utf-8") as file:
            file.write(document)
    except (OSError, Unusable) as error:
        sys.exit(f"report.py: {arguments.write}: {error}")


if __name__ == "__main__":
    main()
