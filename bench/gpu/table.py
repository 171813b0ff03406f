#!/usr/bin/env python3
"""A table of what bench/gpu/run.sh has found: table.py FILE.jsonl... [-o FILE]

The ten points are what decides how Ebb uses a GPU. A point of which nothing is known says why.
"""
import argparse
import json
import sys

MOVES = ("vmm-trusting", "vmm-host", "managed")
SIZES = (2, 32, 512, 1024)  # MiB of a prefetch


def read(paths):
    """All lines that are JSON, in the order of the files."""
    found = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in file:
                try:
                    found.append(json.loads(line))
                except ValueError:
                    continue
    return found


# ---- trainings ----------------------------------------------------------------------------------


class Training:
    """What one training has printed."""

    def __init__(self, name):
        self.name, self.lines, self.summary = name, [], {}
        self.budget = self.status = None
        self.skipped = False

    def base(self):
        """The training without Ebb that it is compared with."""
        words = self.name.split()
        return " ".join(words[:2] + ["ddp" if "ddp" in words else "plain"])

    def take(self, line):
        if line.get("skipped"):
            self.skipped = line["skipped"]
        if "status" in line:
            self.status, self.budget, self.summary = line["status"], line["budget_bytes"], line["ebb"]
        else:
            self.lines.append(line)

    def losses(self):
        return [line["loss"] for line in self.lines if "loss" in line]

    def times(self):
        return [line["ms"] for line in self.lines if "ms" in line]

    def ms(self):
        """The median of the last third of the iterations: plans are in force then."""
        times = self.times()
        last = sorted(times[-max(1, len(times) // 3):]) if times else []
        return last[len(last) // 2] if last else 0

    def peak(self):
        return max([line["peak_bytes"] for line in self.lines if "peak_bytes" in line] or [0])

    def has_ended(self):
        return any("ended" in line for line in self.lines)


def trainings(lines):
    """By name. A training that was run twice is the last one."""
    found = {}
    for line in lines:
        name = line.get("m", "")
        if not any(name.startswith(model + " ") for model in ("gpt", "gpt1280", "resnet50")):
            continue
        if name not in found or "started" in line:
            found[name] = Training(name)
        found[name].take(line)
    return found


def same(case, results):
    """Are the losses those of the run without Ebb, bit for bit?"""
    plain = results.get(case.base())
    count = min(len(case.losses()), len(plain.losses())) if plain else 0
    if not count:
        return "-"
    return "same" if case.losses()[:count] == plain.losses()[:count] else "DIFFER"


def row(case, results):
    if case.skipped:
        why = case.skipped if isinstance(case.skipped, str) else "not run"
        return f"| {case.name} | | | | | {why} | |"
    plain = results.get(case.base())
    ratio = f"{case.ms() / plain.ms():.2f}" if plain and plain.ms() and case.ms() else "-"
    summary = case.summary if isinstance(case.summary, dict) else {}
    peak = summary.get("peak_resident_bytes", 0) or case.peak()
    moved = summary.get("moved_out_bytes", 0) / max(1, len(case.times()))
    end = "" if case.has_ended() else f" (status {case.status})"
    return (f"| {case.name} | {(case.budget or 0) >> 20} | {peak >> 20} | {case.ms():.1f} | {ratio} "
            f"| {same(case, results)} of {len(case.losses())}{end} | {int(moved) >> 20} |")


def training_table(results):
    yield "| case | budget, MiB | most, MiB | ms an iteration | times plain | losses | out, MiB |"
    yield "|---|---|---|---|---|---|---|"
    for case in results.values():
        yield row(case, results)


# ---- the ten points -----------------------------------------------------------------------------


class Lines:
    def __init__(self, lines):
        self.all = lines

    def of(self, m, *keys, **values):
        """The lines of a measurement that have these members."""
        return [line for line in self.all if line.get("m") == m
                and all(key in line for key in keys)
                and all(line.get(key) == value for key, value in values.items())]


def newest(lines, *keys):
    """The last line for each value of these members."""
    return list({tuple(line[key] for key in keys): line for line in lines}.values())


def span(values):
    return f"{min(values)} to {max(values)}"


def prefetches(lines):
    for line in newest(lines.of("prefetch", "in_gbps"), "mib", "advice"):
        if line["mib"] in SIZES:
            yield (f"prefetch, {line['mib']} MiB{', with advice' if line['advice'] else ''}",
                   f"in {line['in_gbps'][-1]}, out {line['out_gbps'][-1]} GB/s")
    for line in lines.of("prefetch_busy", "gbps"):
        yield (f"beside {line['beside']}, {'in' if line['to_device'] else 'out'}",
               f"{line['gbps']} GB/s")
    for line in lines.of("evict_copies", "copy", "gbps"):
        if line["piece_mib"] == 32:
            yield f"copy, {line['copy']}, 32 MiB", f"{max(line['gbps'])} GB/s"


def call_times(lines):
    for line in newest(lines.of("prefetch", "in_call_us", advice=0), "mib"):
        if line["mib"] in SIZES:
            yield (f"{line['mib']} MiB", f"in {line['in_call_us'][-1]}, out "
                   f"{line['out_call_us'][-1]} us")


def faults(lines):
    for line in lines.of("faults", "with_fault_us"):
        yield ("a launch that faults once", f"{span(line['with_fault_us'])} us, without "
               f"{line['launch_and_wait_us']} us")
        yield "the same, with advice to use it on the host", f"{span(line['remote_us'])} us"
        yield "2 MiB by faults", f"{span(line['whole_2_mib_faults_us'])} us"


def kernels(lines):
    plain = {line["kernel"]: line["ms"] for line in lines.of("torch", "kernel", "ms", case="plain")}
    for line in lines.of("torch", "kernel", case="managed"):
        name = line["kernel"]
        if name in plain and "ms" in line:
            yield name, f"{100 * plain[name] / line['ms']:.0f} % of the speed on plain memory"
    for line in lines.of("torch", "kernel", "skipped"):
        yield f"{line['kernel']}, {line['case']}", f"not measured: {line['skipped']}"
    for line in lines.of("kernels", "copy_gbps"):
        yield (line["memory"], f"copy {line['copy_gbps']}, read {line['read_gbps']}, write "
               f"{line['write_gbps']}, gather {line['gather_gbps']} GB/s")


def flips(lines):
    for line in lines.of("vmm_busy", "flip"):
        yield (f"{line['flip']}, {line['mib']} MiB", f"{line['whole_us']} us: unmap "
               f"{line['unmap_us']}, map {line['map_us']}, set access {line['access_us']}")


def host_mappings(lines):
    for line in lines.of("vmm_host", "copy", mib=256):
        yield f"copy, {line['copy']}", f"{line['gbps']} GB/s"
    for line in newest(lines.of("vmm_host", "both_ways"), "both_ways"):
        yield f"both ways, {line['both_ways']}", f"out {line['out_gbps']}, in {line['in_gbps']} GB/s"
    for line in newest(lines.of("vmm_host", "kernel_on"), "kernel_on"):
        yield (f"kernels, {line['kernel_on']}", f"read {line['read_gbps']}, write "
               f"{line['write_gbps']}, gather {line['gather_gbps']} GB/s")


def pointers(lines):
    for line in lines.of("pointers", "same_as_an_export"):
        yield (f"flags {line['flags']}", f"{line['same_as_an_export']} of {line['found']} are "
               f"pointers of dlsym. Others: {line['others'].strip() or 'none'}")


def launches_seen(lines):
    for line in lines.all:
        if "calls" in line and "kernels" in line:
            count, ebb = sum(line["calls"].values()), line["ebb"]
            if not count:
                yield line["m"], "not measured: CUPTI saw no launch"
            else:
                verdict = "equal" if count == ebb else "DIFFER"
                yield line["m"], f"CUPTI {count}, the library before the driver {ebb}: {verdict}"
        elif "profile_error" in line:
            yield line["m"], line["profile_error"]


def launch_costs(lines):
    for line in newest(lines.of("launch", "more_ns"), "parameters", "threads"):
        yield (f"{line['parameters']}, threads: {line['threads']}", f"driver {line['driver_ns']}, "
               f"more {line['more_ns']} ns")


def shares(lines):
    results = trainings(lines.all)
    for model in ("gpt", "resnet50"):
        plain = results.get(f"{model} fp32 plain")
        if not plain or not plain.ms():
            continue
        yield model, f"{plain.ms():.1f} ms without Ebb, {plain.peak() >> 20} MiB"
        for share in (100, 75, 50, 40, 25):
            found = []
            for backing in MOVES:
                case = results.get(f"{model} fp32 {backing} {share}")
                if case and case.ms():
                    found.append(f"{backing} {case.ms() / plain.ms():.2f}, losses "
                                 f"{same(case, results)}")
            yield f"{model}, {share} %", "; ".join(found) or "not measured"
        for other in ("managed", "offload", "checkpoint", "zero2", "zero3"):
            case = results.get(f"{model} fp32 {other}") or results.get(f"{model} fp32 {other} 50")
            if not case or not case.ms() or (other == "managed" and case.summary):
                if case and isinstance(case.skipped, str):
                    yield f"{model}, {other}", f"not measured: {case.skipped}"
                continue
            text = f"{case.ms() / plain.ms():.2f} times, {case.peak() >> 20} MiB"
            beside = results.get(f"{model} fp32 vmm-trusting {other}")
            if beside and beside.ms():
                text += f"; Ebb at that peak {beside.ms() / plain.ms():.2f}"
            yield f"{model}, {other}", text


POINTS = (
    ("Prefetches and copies", prefetches, ("prefetch", "prefetch_busy", "evict_copies")),
    ("CPU time of a prefetch call", call_times, ("prefetch",)),
    ("A fault on an absent managed block", faults, ("faults",)),
    ("Kernels on managed memory", kernels, ("torch", "kernels")),
    ("A flip of a mapping", flips, ("vmm_busy",)),
    ("Host memory that is mapped", host_mappings, ("vmm_host",)),
    ("cuGetProcAddress and dlsym", pointers, ("pointers",)),
    ("Launches seen", launches_seen, ("profile",)),
    ("What a launch costs more", launch_costs, ("launch",)),
    ("Trainings within a budget", shares, ("trainings",)),
)


def points(lines):
    """The number, the name, and rows of figures of each point."""
    for number, (name, figures, measurements) in enumerate(POINTS, 1):
        rows = list(figures(lines))
        if not rows:
            errors = [f"{line['m']}: {line['error']}" for line in lines.all
                      if line.get("m") in measurements and "error" in line]
            rows = [("", f"not measured: {'; '.join(errors) or 'its part did not run'}")]
        yield number, name, rows


# ---- the document -------------------------------------------------------------------------------


def test_table(lines):
    """A row for each program: what passed, by backing."""
    found = {}
    for line in lines.of("test", "case"):
        found.setdefault(line["case"], []).append(line)
    if not found:
        yield "not run"
        return
    yield "| program | without Ebb | " + " | ".join(MOVES) + " | out, MiB | remarks |"
    yield "|---" * (len(MOVES) + 4) + "|"
    for case, runs in found.items():
        cells = []
        for backing in (None, *MOVES):
            of = [run for run in runs if run.get("backing") == backing]
            passed = sum(run["result"] == "passed" for run in of)
            cells.append(f"{passed} of {len(of)}" if of else "")
        moved = max([run.get("moved_out_bytes", 0) for run in runs])
        why = "; ".join(sorted({run["why"] for run in runs if "why" in run}))
        yield f"| {case} | " + " | ".join(cells) + f" | {moved >> 20} | {why[:200]} |"


def document(lines):
    lines = Lines(lines)
    for line in lines.of("machine"):
        yield "; ".join(f"{key}: {value}" for key, value in line.items() if key != "m")
        yield ""
    yield "| point | what | figure |"
    yield "|---|---|---|"
    for number, name, rows in points(lines):
        for i, (what, figure) in enumerate(rows):
            yield f"| {f'{number}. {name}' if i == 0 else ''} | {what} | {figure} |"
    yield ""
    yield from test_table(lines)
    yield ""
    results = trainings(lines.all)
    if results:
        yield from training_table(results)
        yield ""
    for line in lines.all:
        if "error" in line:
            yield f"{line.get('m')}: {line['error']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    text = "\n".join(document(read(options.files))) + "\n"
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(text)
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
