#!/usr/bin/python3
"""Files, functions and structs stay small enough to be read at once.

A file has at most 450 lines, a function 60, a struct 25 fields. Anything larger has parts that
should have their own names. Violations are planted first and must be found.
"""
import os
import re
import sys

from planting import is_same, planted

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))

MOST_LINES, MOST_FUNCTION_LINES, MOST_FIELDS = 450, 60, 25

# (file, name): the reason for the exception. The name "" means the file.
EXCEPTIONS = {
    ("src/trace/ring.h", "ebb_counters"):
        "in memory that processes and the parent share: each field is one counter of a run",
}

# Parts of src/runtime that are still to be divided. An obsolete row is no violation here.
UNDIVIDED = {
    ("src/runtime/runtime.c", ""),
    ("src/runtime/memory/pages.c", ""),
    ("src/runtime/transfer/moves.c", ""),
    ("src/runtime/transfer/lanes.c", "out_worker"),
}

COMMENT_OR_STRING = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)
STRUCT = re.compile(r"\bstruct(?:\s+(\w+))?\s*\{")
HEAD = re.compile(r"(\w+)\(")


def sources(root):
    for top in ("src", "include", "shim", "cli", "train"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    yield os.path.relpath(os.path.join(folder, name), root)


def blank(text):
    """The text without comments and strings. Line numbers do not change."""
    return COMMENT_OR_STRING.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)


def functions(text):
    """(name, lines) of each function. Its head and its last brace begin in the first column."""
    lines = text.split("\n")
    head = begin = None
    for number, line in enumerate(lines):
        if line == "{":
            begin = number
            while begin > 0 and re.match(r"[^}#\s]|\s+\S", lines[begin - 1]):
                begin -= 1
            head = HEAD.search(" ".join(lines[begin:number]))
        elif line.startswith("}") and begin is not None:
            yield head.group(1) if head else "?", number - begin + 1
            begin = None


def fields(body):
    """The number of names that a struct's body declares. The fields of a nested struct count
    once."""
    depth, flat = 0, []
    for letter in body:
        depth += (letter == "{") - (letter == "}")
        if depth == 0 or (depth == 1 and letter == "{"):
            flat.append(letter)
    count = 0
    for declaration in re.sub("[{}]", " ", "".join(flat)).split(";"):
        declaration = re.sub(r"\([^()]*\)", "", declaration).strip()
        if declaration:
            count += 1 + declaration.count(",")
    return count


def structs(text):
    """(name, fields) of each struct, nested ones included."""
    for match in STRUCT.finditer(text):
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += (text[end] == "{") - (text[end] == "}")
            end += 1
        yield match.group(1) or "?", fields(text[match.end():end - 1])


def large(root):
    """(file, name, size, kind) of everything that is too large."""
    for path in sources(root):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        lines = text.count("\n")
        if lines > MOST_LINES:
            yield path, "", lines, "lines"
        text = blank(text)
        for name, size in functions(text) if path.endswith(".c") else ():
            if size > MOST_FUNCTION_LINES:
                yield path, name, size, "lines"
        for name, size in structs(text):
            if size > MOST_FIELDS:
                yield path, name, size, "fields"


def violations(root, exceptions):
    found, used = [], set()
    for path, name, size, what in large(root):
        if (path, name) in exceptions:
            used.add((path, name))
        elif (path, name) not in UNDIVIDED:
            found.append(f"{path}: {name or 'the file'} has {size} {what}")
    for path, name in sorted(set(exceptions) - used):
        found.append(f"{path}: {name or 'the file'} needs no exception")
    return found


def members(count):
    return "".join(f"    int field_{i}, *other_{i}; /* a, b; c */\n" for i in range(count // 2))


PLANTED = {  # file: (text, the expected message)
    "src/base/long.c": ("int a;\n" * (MOST_LINES + 1), "the file has 451 lines"),
    "src/base/good.c": ("int a;\n" * MOST_LINES, None),
    "cli/function.c": ("int a;\n\nstatic int\nlong_one(int a)\n{\n" + "    a++;\n" * 57 + "}\n",
                       "long_one has 61 lines"),
    "cli/good.c": ("static int good_one(int a)\n{\n" + "    a++;\n" * 57 + "}\n", None),
    "shim/struct.h": ("struct wide {\n" + members(26) + "};\n", "wide has 26 fields"),
    "shim/nested.h": ("struct outer {\n" + members(22) + "    struct inner {\n" + members(24)
                      + "    } inner;\n    int (*call)(int a, int b);\n};\n", None),
    "include/ebb/inner.h": ("struct outer {\n    struct inner {\n" + members(26)
                            + "    } inner;\n};\n", "inner has 26 fields"),
    "src/base/excepted.h": ("struct excepted {\n" + members(30) + "};\n", None),
    "src/base/needless.h": ("struct needless {\n" + members(2) + "};\n",
                            "needless needs no exception"),
}
PLANTED_EXCEPTIONS = {("src/base/excepted.h", "excepted"): "",
                      ("src/base/needless.h", "needless"): ""}


def self_test():
    with planted({path: text for path, (text, _) in PLANTED.items()}) as root:
        found = violations(root, PLANTED_EXCEPTIONS)
    return is_same(found, [f"{path}: {said}" for path, (_, said) in PLANTED.items() if said])


def main():
    if not self_test():
        return 1
    found = violations(SOURCE, EXCEPTIONS)
    for line in found:
        print(line)
    count = sum(1 for _ in sources(SOURCE))
    print(f"{count} files, {len(found)} violations")
    return 1 if found or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
