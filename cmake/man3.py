#!/usr/bin/python3
"""Writes a manual page for each function of the C API, from the comments of its headers.

    man3.py FOLDER_OF_HEADERS FOLDER_OF_PAGES VERSION

A comment describes the declarations that follow it, up to the next comment. What a header says at
its top is on the page of each of its functions.
"""
import os
import re
import sys

# A comment, or a declaration with its end.
PIECE = re.compile(r"/\*(.*?)\*/|^(EBB_API[^;]*;)", re.S | re.M)
NAME = re.compile(r"\b(ebb_\w+)\(")
ATTRIBUTES = re.compile(r"\bEBB_(API|NODISCARD)\s+")


def lines_of(comment):
    return [re.sub(r"^\s*\*? ?", "", line).rstrip() for line in comment.strip().split("\n")]


def escaped(line):
    line = line.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + line if line.startswith((".", "'")) else line


def paragraphs(lines):
    """Text as paragraphs; what is indented by four is an example."""
    page, example = [], False
    for line in lines:
        if line.startswith("    ") != example and line:
            example = line.startswith("    ")
            page.append(".nf" if example else ".fi")
        page.append(escaped(line[4:] if example else line) if line else ".PP")
    return page + ([".fi"] if example else [])


def synopsis(declaration):
    text = ATTRIBUTES.sub("", declaration)
    return re.sub(r"\s+", " ", text)


def page(name, declaration, about, header, top, version):
    first = re.split(r"(?<=[.:])\s", " ".join(about))[0]
    return "\n".join([
        f'.TH {name.upper()} 3 "" "Ebb {version}" "C API of Ebb"',
        ".SH NAME", f"{name} \\- {escaped(first.rstrip('.'))}",
        ".SH SYNOPSIS", ".nf", f"#include <ebb/{header}>", "", synopsis(declaration), ".fi",
        ".SH DESCRIPTION", *paragraphs(about),
        ".SH CONTEXT", *paragraphs(top),
        ".SH LINKING", "pkg\\-config \\-\\-cflags \\-\\-libs ebb", ""])


def pages(folder, version):
    for header in sorted(name for name in os.listdir(folder) if name.endswith(".h")):
        with open(os.path.join(folder, header), encoding="utf-8") as file:
            text = file.read()
        top, about = None, []
        for comment, declaration in PIECE.findall(text):
            if comment:
                about = lines_of(comment)
                top = top or about
                continue
            name = NAME.search(declaration).group(1)
            yield name, page(name, declaration, about, header, top, version)


def main():
    folder, target, version = sys.argv[1:]
    os.makedirs(target, exist_ok=True)
    for name, text in pages(folder, version):
        with open(os.path.join(target, f"{name}.3"), "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
