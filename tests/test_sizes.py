#!/usr/bin/python3
"""No file, function or struct of src, shim and cli is larger than one can keep in mind.

What is larger stands in a list with its size. The list may only shrink: what has grown fails, and so
does an entry that is not needed any more. The test first looks at planted text whose sizes are known.
"""
import os
import re
import sys

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
TOPS = ("src", "shim", "cli")

MOST_FILE_LINES = 450
MOST_FUNCTION_LINES = 60  # from the first line of its head to its last brace
MOST_FIELDS = 25

# What is larger: "path" lines of a file, "path name" lines of a function, "struct name" its fields.
LARGER = {
    "cli/record.c ebb__cmd_record": 64,
    "cli/run.c ebb__cmd_run": 106,
    "cli/run.c set_option": 74,
    "cli/summary.c ebb__summary_json": 82,
    "cli/summary.c ebb__summary_text": 62,
    "shim/malloc/start.c": 452,
    "src/lab/bound/program.c": 514,
    "src/lab/bound/program.c group_put": 61,
    "src/lab/import/pickle.c": 466,
    "src/lab/import/pickle.c step": 91,
    "src/model/build.c": 606,
    "src/model/build.c fill_model": 70,
    "src/model/detect.c": 482,
    "src/model/parts.c": 480,
    "src/model/stream.c": 674,
    "src/model/unordered.c": 480,
    "src/model/watch.c": 631,
    "src/parent/finish.c ebb__parent_finish": 67,
    "src/parent/profile_read.c take_model": 61,
    "src/plan/request/compile.c assemble": 89,
    "src/plan/swap/ebb.c": 644,
    "src/sim/simulate.c": 560,
    "struct ebb_parent_result": 51,
    "struct sim": 27,
}

# Layouts that other processes read, from a file, a socket or shared memory, are as their format says.
WIRE = {"ebb_counters", "ebb_ring", "ebb_ledger", "ebb_script"}

FUNCTION = re.compile(r"^[a-zA-Z](?:(?!\n\n)[^;{}#])*?\b(\w+)\((?:(?!\n\n)[^;{}#])*\)"
                      r"\n\{\n.*?^\}$", re.M | re.S)
STRUCT = re.compile(r"\bstruct (\w+) \{")
NOISE = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)


def bare(text):
    """The text without comments and strings, with as many lines."""
    return NOISE.sub(lambda match: "\n" * match.group(0).count("\n"), text)


def functions(text):
    """(name, lines) of each function that is defined in bare text."""
    for match in FUNCTION.finditer(text):
        yield match.group(1), match.group(0).count("\n") + 1


def fields_in(body):
    """How many fields the body of a struct has; a struct or union inside without a name counts as one."""
    depth, count, commas = 0, 0, 0
    for char in body:
        if char in "({[":
            depth += 1
        elif char in ")}]":
            depth -= 1
        elif depth == 0 and char == ",":
            commas += 1
        elif depth == 0 and char == ";":
            count += 1 + commas
            commas = 0
    return count


def structs(text):
    """(name, fields) of each struct that is defined in bare text."""
    for match in STRUCT.finditer(text):
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        yield match.group(1), fields_in(text[match.end():end - 1])


def larger(path, text):
    """(what, size) of all in a file that is larger than it should be."""
    lines = text.count("\n")
    if lines > MOST_FILE_LINES:
        yield path, lines
    text = bare(text)
    for name, size in functions(text):
        if size > MOST_FUNCTION_LINES:
            yield f"{path} {name}", size
    for name, size in structs(text):
        if size > MOST_FIELDS and name not in WIRE:
            yield f"struct {name}", size


def self_test():
    body = "".join(f"    step({i}); /* }} */\n" for i in range(MOST_FUNCTION_LINES - 4))
    head = "static int\nwork(struct thing *thing,\n     int more)\n"
    fields = "".join(f"    int (*f{i})(int a, int b), g{i}; /* a, b; */\n" for i in range(13))
    text = (f"{head}{{\n{body}}}\n\n{head.replace('work', 'fits')}{{\n"
            f"{''.join(body.splitlines(True)[1:])}}}\n\nstruct big {{\n{fields}}};\n"
            "struct small {\n    int a, b;\n    struct {\n        int c, d;\n    } e;\n};\n")
    found = dict(larger("a.c", text))
    expected = {"a.c work": MOST_FUNCTION_LINES + 1, "struct big": 26}
    sizes = dict(structs(bare(text)))
    long_file = dict(larger("b.c", "\n" * (MOST_FILE_LINES + 1)))
    good = found == expected and sizes["small"] == 3 and list(long_file) == ["b.c"] \
        and not dict(larger("c.c", "\n" * MOST_FILE_LINES))
    if not good:
        print(f"self-test: {found} {sizes} {long_file}")
    return good


def main():
    if not self_test():
        return 1
    found = {}
    for top in TOPS:
        for folder, _, names in os.walk(os.path.join(SOURCE, top)):
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    path = os.path.join(folder, name)
                    with open(path, encoding="utf-8") as file:
                        found.update(larger(os.path.relpath(path, SOURCE), file.read()))
    failures = 0
    for what, size in sorted(found.items()):
        if size > LARGER.get(what, 0):
            print(f"{what}: {size}, may be {LARGER.get(what, 'no longer than the rule says')}")
            failures += 1
    for what in sorted(set(LARGER) - set(found)):
        print(f"{what}: is not too large any more: take it off the list")
        failures += 1
    print(f"{len(found)} exceptions, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
