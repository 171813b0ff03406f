#!/usr/bin/python3
"""Checks that all names in the documents exist, and that the documents are easy to read:

- Relative links have a target. Commands, options and files that are named exist. So do documents
  that comments name.
- Lines end at 100 columns, rows of tables at 140. A sentence has at most 25 words. This holds for
  comments, too, including those of scripts, make and CMake.
- ARCHITECTURE.md links to a README of every folder. It stays short, and so does README.md.

First, a violation of each rule is planted and must be found.
"""
import glob
import os
import re
import subprocess
import sys

from planting import is_same, planted

sys.dont_write_bytecode = True

import reader  # noqa: E402  pylint: disable=wrong-import-position
from reader import documents, read  # noqa: E402  pylint: disable=wrong-import-position

SOURCE = reader.SOURCE
LINES = {"README.md": 150, "ARCHITECTURE.md": 200}
COLUMNS = 100
ROW_COLUMNS = 140  # a wider table should be a list
WORDS = 25

# Folders that need their own README, or must be named in the README of a folder above.
TOPS = ("src", "include", "shim", "cli", "train", "tests", "bench")
# Documents and commands that may be missing, and documents whose style is not checked.
PENDING = ()
UNREAD = ("docs/tuning.md",)

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
FENCE = reader.FENCE
CODE = re.compile(r"`([^`]+)`")
# A name in backquotes with a folder or a known ending must be a file of the tree.
TREE = re.compile(r"^(?:\./)?(?:src|include|shim|cli|tests|bench|examples|docs|cmake|train|debian|"
                  r"\.ci)(?:/[\w.*{},-]*)*$|^[\w.-]+\.md$")
# A file in the same folder as the README that names it.
BESIDE = re.compile(r"^[\w/.{},*-]+\.(?:c|h|py|map|cmake)$")
# In `test_MODULE.c` the capitals stand for any name.
ANY_NAME = re.compile(r"(?:^|[_/])[A-Z]{3,}\.(?!md)")


def exists(root, name):
    """True if the file exists. `a/{b,c}.h` and `a/*.c` stand for each of their files."""
    match = re.search(r"\{([^{}]*)\}", name)
    if match:
        return all(exists(root, name[:match.start()] + part + name[match.end():])
                   for part in match.group(1).split(","))
    return bool(glob.glob(os.path.join(root, name)))


def anchors(text):
    """The anchors of a document's headings, as the usual renderers make them."""
    for heading in re.findall(r"^#+\s+(.*?)\s*$", FENCE.sub("", text), re.M):
        yield re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")


# --- names -------------------------------------------------------------------------------------


def broken_links(root, path, text):
    for target in LINK.findall(FENCE.sub("", text)):
        if re.match(r"^[a-z][a-z0-9+.-]*:", target):
            continue
        name, _, anchor = target.partition("#")
        full = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
        if not os.path.exists(os.path.join(root, full)):
            if not (full.startswith(PENDING) and full.endswith(".md")):
                yield f"{path}: link to {target} leads nowhere"
        elif anchor and full.endswith(".md") and anchor not in anchors(read(root, full)):
            yield f"{path}: link to {target}: no such heading"


def missing_files(root, path, text):
    """Names of missing files. They may be relative to the root or to the README's folder."""
    folder = os.path.dirname(path)
    for name in CODE.findall(FENCE.sub("", text)):
        if ANY_NAME.search(name):
            continue
        if TREE.match(name):
            if not (exists(root, name) or exists(root, os.path.join(folder, name)) or
                    name in PENDING):
                yield f"{path}: {name} does not exist"
        elif os.path.basename(path) == "README.md" and folder and BESIDE.match(name):
            if not exists(root, os.path.join(folder, name)):
                yield f"{path}: {name} is not in {folder}"


def commands(text):
    """The command lines in code. A trailing backslash joins two lines."""
    for block in FENCE.findall(text):
        yield from block.replace("\\\n", " ").split("\n")[1:-1]
    rest = FENCE.sub("", text)
    indented = re.findall(r"(?:^(?: {4}).*\n?)+", rest, re.M)
    for block in indented:
        yield from block.replace("\\\n", " ").split("\n")
    for span in CODE.findall(rest):
        yield " ".join(span.split())


class Tools:
    """The commands of the tree at `root`, and their options."""

    def __init__(self, root):
        self.root = root
        cli = {path: read(root, path) for path in reader.files(root, (".c", ".h"))
               if path.startswith("cli/")}
        self.commands = set(re.findall(r'^ *\{"(\w+)", ".*", ebb__cmd_', cli.get("cli/main.c", ""),
                                       re.M))
        everything = "\n".join(cli.values())
        self.options = set(re.findall(r"--([a-z][\w-]*)", everything))
        self.options |= set(re.findall(r'\.name = "([\w-]+)"', everything))
        self.options |= set(re.findall(r'\{"([\w-]+)", \w+_argument', everything))
        makefile = read(root, "Makefile") if os.path.exists(os.path.join(root, "Makefile")) else ""
        self.targets = set(re.findall(r"^([a-z][\w -]*):", makefile, re.M))
        self.targets = {name for names in self.targets for name in names.split()}

    def script_options(self, path):
        """The options of a script, and of the modules beside it that it imports."""
        text = read(self.root, path)
        for module in re.findall(r"^(?:import|from) (\w+)", text, re.M):
            for beside in (f"{os.path.dirname(path)}/{module}.py", f"bench/{module}.py"):
                if os.path.exists(os.path.join(self.root, beside)):
                    text += read(self.root, beside)
        return set(re.findall(r"--([a-z][\w-]*)", text))

    def unknown(self, command):
        """The unknown parts of one command line."""
        words = re.split(r"[\s;|&()]+", command)
        options = None  # of the program whose words are being read
        who = ""
        for i, word in enumerate(words):
            if ANY_NAME.search(word):
                continue
            script = re.match(r"^(?:\./)?((?:bench|tests|examples|\.ci)/[\w./-]*\w)$", word)
            built = re.match(r"^(?:[\w./$-]*/)?bench_(\w+)$", word)
            if script:
                who, options = script.group(1), None
                if not exists(self.root, who) and not exists(self.root, who + ".c"):
                    if who not in PENDING:
                        yield f"{who} does not exist"
                elif who.endswith(".py") and "unittest" not in read(self.root, who):
                    options = self.script_options(who)
            elif built:
                who, options = word, None
                if not os.path.exists(os.path.join(self.root, f"bench/{built.group(1)}.c")):
                    yield f"{word} does not exist"
            elif re.match(r"^(?:[\w./-]*/)?ebb$", word) and i + 1 < len(words):
                following = words[i + 1]
                if re.match(r"^[a-z]+$", following):
                    who, options = f"ebb {following}", self.options
                    if following not in self.commands:
                        yield f"there is no command ebb {following}"
                elif following.startswith("--"):
                    who, options = "ebb", self.options
            elif word == "make" and i == 0 and re.match(r"^[a-z][\w-]*$", "".join(words[1:2])):
                if words[1] not in self.targets:
                    yield f"there is no make {words[1]}"
            elif word == "--":
                options = None
            elif options is not None and re.match(r"^--[a-z]", word):
                name = re.match(r"^--([\w-]+)", word).group(1)
                if name not in options | {"help"}:
                    yield f"{who} has no option --{name}"


NAMED_DOCUMENT = re.compile(r"\bdocs/[\w./-]*\w\.md\b")


def missing_documents(root):
    """Documents that a comment or message names, but that do not exist."""
    for path in reader.files(root, (".c", ".h", ".def", ".py", ".cmake", ".sh")):
        if path in ("tests/test_docs.py", "tests/test_bench.py"):
            continue  # they contain invented names
        for name in sorted(set(NAMED_DOCUMENT.findall(read(root, path)))):
            if not exists(root, name) and name not in PENDING:
                yield f"{path}: {name} does not exist"


# --- style -------------------------------------------------------------------------------------


def hard_to_read(path, text):
    for number, line in enumerate(text.split("\n"), 1):
        most = ROW_COLUMNS if reader.is_row(line) else COLUMNS
        if len(line) > most:
            yield f"{path}:{number}: {len(line)} columns, {most} are allowed"
    for number, paragraph in reader.paragraphs(text):
        for sentence in reader.sentences(paragraph):
            count = reader.words(sentence)
            if count > WORDS:
                yield f"{path}:{number}: {count} words, {WORDS} are allowed: {sentence[:40]}"


C_COMMENT_LINE = re.compile(r"^ */?\*[ /*]|\*/$")


def hard_comments(root):
    for path in reader.files(root, (".c", ".h", ".def")):
        for number, line in enumerate(read(root, path).split("\n"), 1):
            if len(line) > COLUMNS and C_COMMENT_LINE.search(line):
                yield f"{path}:{number}: {len(line)} columns, {COLUMNS} are allowed"
    for place, sentence in reader.drawn_from(root, "comments", ""):
        count = reader.words(sentence)
        if count > WORDS:
            yield f"{place}: {count} words, {WORDS} are allowed: {sentence[:40]}"


# --- all checks --------------------------------------------------------------------------------


def folders_with_sources(root):
    return sorted({os.path.dirname(path) for path in reader.files(root, (".c", ".h", ".py"))
                   if path.startswith(TOPS)})


def unexplained(root, architecture):
    """Folders of sources without a README, or without a name in the README above. ARCHITECTURE.md
    must link to that README."""
    for folder in folders_with_sources(root):
        above, name = folder, ""
        while above and not os.path.exists(os.path.join(root, above, "README.md")):
            above = os.path.dirname(above)
            name = os.path.relpath(folder, above or ".")
        if not above:
            if not folder.startswith(PENDING):
                yield f"{folder}: has no README.md"
        elif name and f"`{name}/`" not in read(root, f"{above}/README.md"):
            yield f"{above}/README.md: does not name `{name}/`"
        elif f"({above}/README.md)" not in architecture:
            yield f"ARCHITECTURE.md: does not link to {above}/README.md"


def problems(root):
    tools = Tools(root)
    found = []
    for path in documents(root):
        text = read(root, path)
        found += broken_links(root, path, text)
        found += missing_files(root, path, text)
        for command in commands(text):
            found += [f"{path}: {what}" for what in tools.unknown(command)]
        if not path.startswith(UNREAD):
            found += hard_to_read(path, text)
        lines = text.count("\n")
        if lines > LINES.get(path, lines):
            found.append(f"{path}: {lines} lines, {LINES[path]} are allowed")
    for path in LINES:
        if not os.path.exists(os.path.join(root, path)):
            found.append(f"{path}: is missing")
    if os.path.exists(os.path.join(root, "ARCHITECTURE.md")):
        found += unexplained(root, read(root, "ARCHITECTURE.md"))
    found += missing_documents(root)
    found += hard_comments(root)
    return list(dict.fromkeys(found))


LONG = ("One two three four five six seven eight nine ten eleven twelve thirteen fourteen\n"
        "fifteen sixteen seventeen eighteen nineteen twenty and one and two and three and\n"
        "four `a b c`.\n")

PLANTED = {
    "README.md": "x\n\n" * (LINES["README.md"] // 2 + 1),
    "ARCHITECTURE.md": "`src/base/gone.c` `src/base/{size,map}.c` `a/b` [a](src/base/README.md)\n"
                       "[p](src/plan/README.md) [t](tests/README.md) [c](cli/README.md) "
                       "[b](bench/README.md)\n",
    "Makefile": "all:\n\ntest: all\n",
    "docs/a.md": "[gone](b.md) [here](../README.md) [out](https://example.org) [x](#no-such)\n"
                 "```\n[not a link](nowhere.md)\n```\n# Title\n[good](#title)\n",
    "docs/commands.md": "`make test`, `make peace`, `tests/test_ANY.c`, `bench_lanes D`,\n"
                        "`bench/b.py --pairs 3 --apples 4`, `bench_pears`, `tests/gone.py`.\n\n"
                        "    ebb run --budget 60% --fast \\\n        -- python3 t.py --unknown-to-ebb\n"
                        "    ebb dance\n",
    "docs/long.md": "| " + "a" * ROW_COLUMNS + " |\n\n" + "b" * (COLUMNS + 1) + "\n\n- " + LONG +
                    "\n```\n" + LONG.replace("\n", " ")[:90] + "\n" + LONG + "```\n\n    " +
                    LONG.replace("\n", "\n    ") + "\n",
    "src/base/README.md": "`size.c` and `beside.c`.\n", "src/base/size.c": "/* docs/gone.md, docs/a.md */",
    "src/plan/README.md": "`swap/`\n", "src/plan/swap/a.c": "", "src/plan/pool/a.c": "",
    "src/new/thing.c": "", "src/old/README.md": "Old.\n", "src/old/a.c": "",
    "cli/README.md": "", "cli/main.c": '    {"run", "runs", ebb__cmd_run},\n"--budget B"\n',
    "bench/README.md": "", "bench/b.py": "import c\n", "bench/c.py": '"--pairs"\n',
    "bench/lanes.c": "",
    "src/old/long.c": "/* Short.\n *\n *     " + LONG.replace("\n", "\n *     ") + "\n * - " +
                      LONG.replace("\n", "\n *   ") + "*/\n/* " + "c" * COLUMNS + " */\n",
    "src/old/long.py": 'def f():\n    """' + LONG.replace("\n", "\n    ") + '"""\n',
    ".ci/run": "#!/bin/sh\n# " + LONG.replace("\n", "\n# ") + "\n",
}

EXPECTED = [
    f".ci/run:2: 29 words, 25 are allowed: {LONG[:40]}",
    "ARCHITECTURE.md: does not link to src/old/README.md",
    "ARCHITECTURE.md: link to tests/README.md leads nowhere",
    "ARCHITECTURE.md: src/base/gone.c does not exist",
    "ARCHITECTURE.md: src/base/{size,map}.c does not exist",
    f"README.md: {LINES['README.md'] + 2} lines, {LINES['README.md']} are allowed",
    "docs/a.md: link to #no-such: no such heading",
    "docs/a.md: link to b.md leads nowhere",
    "docs/commands.md: bench/b.py has no option --apples",
    "docs/commands.md: bench_pears does not exist",
    "docs/commands.md: ebb run has no option --fast",
    "docs/commands.md: tests/gone.py does not exist",
    "docs/commands.md: there is no command ebb dance",
    "docs/commands.md: there is no make peace",
    "docs/long.md:1: 144 columns, 140 are allowed",
    "docs/long.md:3: 101 columns, 100 are allowed",
    f"docs/long.md:5: 29 words, 25 are allowed: {LONG[:40]}",
    "src/base/README.md: beside.c is not in src/base",
    "src/base/size.c: docs/gone.md does not exist",
    "src/new: has no README.md",
    f"src/old/long.c:7: 29 words, 25 are allowed: {LONG[:40]}",
    f"src/old/long.c:11: {COLUMNS + 6} columns, {COLUMNS} are allowed",
    f"src/old/long.py:2: 29 words, 25 are allowed: {LONG[:40]}",
    "src/plan/README.md: does not name `pool/`",
]


def self_test():
    with planted(PLANTED) as root:
        return is_same(problems(root), EXPECTED)


def scripts_parse():
    """Shell scripts must parse, and Python scripts must compile."""
    found = []
    for path in [".ci/run", *glob.glob("examples/*.sh", root_dir=SOURCE)]:
        if subprocess.run(["bash", "-n", os.path.join(SOURCE, path)], check=False).returncode:
            found.append(f"{path}: does not parse")
    for path in glob.glob("*/*.py", root_dir=SOURCE):
        try:
            compile(read(SOURCE, path), path, "exec")
        except SyntaxError as error:
            found.append(f"{path}: {error}")
    return found


def main():
    if not self_test():
        return 1
    found = problems(SOURCE) + scripts_parse()
    for line in found:
        print(line)
    count = sum(1 for _ in documents(SOURCE))
    print(f"{count} documents, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
