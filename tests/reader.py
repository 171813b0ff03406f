#!/usr/bin/python3
"""The reader's test: draws random sentences from comments and documents, each with its place.

    tests/reader.py --seed 7 --count 40 [--only docs|comments] [--under FOLDER]

Read each sentence once, alone. Reword what is not understood at the first reading. The same seed
draws the same sentences from the same tree. tests/test_docs.py uses the functions of this file.
"""
import argparse
import inspect
import io
import os
import random
import re
import sys
import textwrap
import tokenize

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))

FENCE = re.compile(r"^[ ]*```.*?^[ ]*```[ ]*$", re.M | re.S)
HTML_COMMENT = re.compile(r"<!--.*?-->", re.S)
# The end of a sentence. Abbreviations like "e.g." and "no. 5" are not used here.
END = re.compile(r"(?<=[.!?])[)\"*_]*\s+(?=\*\*|[\"(*_`\[]*[A-Z0-9`(\[])")
SKIPPED = ("build", ".git", "shared")


def files(root, endings):
    """Sorted paths of the files below `root`."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith(SKIPPED))
        for name in sorted(names):
            if name.endswith(endings):
                yield os.path.relpath(os.path.join(folder, name), root)


def documents(root):
    return files(root, (".md",))


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def blank(match):
    """Only the line ends of the match, so that line numbers after it stay right."""
    return "\n" * match.group(0).count("\n")


def is_row(line):
    """True if the line is a row of a table."""
    return line.lstrip().startswith("|")


def paragraphs(markdown):
    """The paragraphs and list items of a document, without headings, tables and code, as (line
    number, text)."""
    text = HTML_COMMENT.sub(blank, FENCE.sub(blank, markdown))
    first, words, after_blank, in_list = 0, [], True, False
    for number, line in enumerate([*text.split("\n"), ""], 1):
        item = re.match(r"\s*(?:[-*]|\d+\.)\s+", line)
        is_code = line.startswith("    ") and after_blank and not in_list and not item
        ends = not line.strip() or is_row(line) or line.startswith("#") or is_code
        if (ends or item) and words:
            yield first, " ".join(words)
            words = []
        if is_code:
            continue  # the next line is code, too
        after_blank = not line.strip()
        if ends:
            in_list = in_list and after_blank
            continue
        in_list = bool(item) or in_list and line.startswith(" ")
        if not words:
            first = number
        words.append(line[item.end():].strip() if item else line.strip())


def without_links(text):
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)


def sentences(text):
    """The sentences of one paragraph. Spans of code stay whole."""
    spans = []

    def keep(match):
        spans.append(match.group(0))
        return f"`{len(spans) - 1}`"

    text = without_links(" ".join(text.split()))
    for part in END.split(re.sub(r"`[^`]+`", keep, text)):
        if part.strip():
            yield re.sub(r"`(\d+)`", lambda match: spans[int(match.group(1))], part).strip()


def words(sentence):
    """The number of words with a letter or digit. A span of code is one word."""
    return sum(bool(re.search(r"\w", word)) for word in re.sub(r"`[^`]+`", "x", sentence).split())


# --- comments --------------------------------------------------------------------------------

C_COMMENT = re.compile(r"/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)


def split_comment(first, text):
    """The paragraphs and list items of a comment without its marks. Indented lines that are no part
    of an item are examples or tables, and are left out."""
    lines, start, in_item = [], first, False
    for number, line in enumerate([*text.split("\n"), ""], first):
        item = re.match(r" *(?:-|\d+\.) ", line)
        in_item = bool(item) or in_item and line.startswith("  ")
        is_example = line.startswith("  ") and not in_item
        if (not line.strip() or is_example or item) and lines:
            yield start, " ".join(lines)
            lines = []
        if not line.strip() or is_example:
            continue
        if not lines:
            start = number
        lines.append(line[item.end():].strip() if item else line.strip())


def c_comments(text):
    for match in C_COMMENT.finditer(text):
        if match.group(0).startswith("/*"):
            body = re.sub(r"^[ \t]*\* ?", "", match.group(0)[2:-2].strip(), flags=re.M)
            yield from split_comment(text.count("\n", 0, match.start()) + 1, body)


def python_comments(text):
    """Comments and docstrings. Comments on successive lines are joined."""
    run, first, before = [], 0, 0
    previous = None
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            if run and token.start[0] != before + 1:
                yield from split_comment(first, "\n".join(run))
                run = []
            first = token.start[0] if not run else first
            before = token.start[0]
            run.append(token.string.lstrip("#").strip())
        elif token.type == tokenize.STRING and previous in (None, tokenize.NEWLINE,
                                                            tokenize.INDENT, tokenize.DEDENT):
            body = re.sub(r'^[rbu]*("""|"|\'\'\'|\')|("""|"|\'\'\'|\')$', "", token.string)
            yield from split_comment(token.start[0], inspect.cleandoc(body))
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            previous = token.type
    if run:
        yield from split_comment(first, "\n".join(run))


def hash_comments(text):
    """Whole lines of comments in shell, make and CMake. Successive lines are joined."""
    run, first = [], 0
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if line.lstrip().startswith("#") and not line.startswith("#!"):
            first = first if run else number
            run.append(re.sub(r"^\s*#", "", line))
        elif run:
            yield from split_comment(first, textwrap.dedent("\n".join(run)))
            run = []


def drawn_from(root, only, under):
    """(place, sentence) of each sentence that may be drawn. It has at least four words, and is no
    code."""
    kinds = [("docs", ".md", paragraphs), ("comments", (".c", ".h", ".def"), c_comments),
             ("comments", ".py", python_comments),
             ("comments", (".sh", ".cmake", "CMakeLists.txt", "Makefile", "run"), hash_comments)]
    for kind, endings, parts in kinds:
        if only not in (None, kind):
            continue
        for path in files(root, endings):
            if not path.startswith(under):
                continue
            for line, text in parts(read(root, path)):
                for sentence in sentences(text):
                    if words(sentence) >= 4:
                        yield f"{path}:{line}", sentence


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--only", choices=("docs", "comments"), help="draw from these alone")
    parser.add_argument("--under", default="", metavar="FOLDER", help="draw from files there")
    arguments = parser.parse_args()
    found = list(drawn_from(SOURCE, arguments.only, arguments.under))
    if not found:
        sys.exit("reader.py: there is no sentence")
    count = min(arguments.count, len(found))
    for place, sentence in random.Random(arguments.seed).sample(found, count):
        print(textwrap.fill(sentence, 100))
        print(f"    {place}\n")


if __name__ == "__main__":
    main()
