#!/usr/bin/python3
"""What the documents promise exists: relative links, files named in ARCHITECTURE.md, the README's
length. Broken examples are planted first and must be found."""
import glob
import os
import re
import subprocess
import sys

from planting import is_same, planted

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
README_LINES = 150

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
FENCE = re.compile(r"^```.*?^```", re.M | re.S)
CODE = re.compile(r"`([^`\n]+)`")
# A name in backquotes that is meant as a file of the tree: it has a folder or a known ending.
TREE = re.compile(r"^(?:\./)?(?:src|include|shim|cli|tests|bench|examples|docs|cmake|train|debian|"
                  r"\.ci)(?:/[\w.*{},-]*)*$|^[\w.-]+\.(?:md|txt|json)$")


def documents(root):
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if not f.startswith(("build", ".git"))]
        for name in sorted(names):
            if name.endswith(".md"):
                yield os.path.relpath(os.path.join(folder, name), root)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def exists(root, name):
    """`a/{b,c}.h` and `a/*.c` stand for each of their files."""
    match = re.search(r"\{([^{}]*)\}", name)
    if match:
        return all(exists(root, name[:match.start()] + part + name[match.end():])
                   for part in match.group(1).split(","))
    return bool(glob.glob(os.path.join(root, name)))


def anchors(text):
    """The anchors that the headings of a document give, as the usual renderers make them."""
    for heading in re.findall(r"^#+\s+(.*?)\s*$", FENCE.sub("", text), re.M):
        yield re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")


def problems(root):
    found = []
    for path in documents(root):
        text = read(root, path)
        for target in LINK.findall(FENCE.sub("", text)):
            if re.match(r"^[a-z][a-z0-9+.-]*:", target):
                continue
            name, _, anchor = target.partition("#")
            full = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
            if not os.path.exists(os.path.join(root, full)):
                found.append(f"{path}: link to {target} leads nowhere")
            elif anchor and full.endswith(".md") and anchor not in anchors(read(root, full)):
                found.append(f"{path}: link to {target}: no such heading")
    if os.path.exists(os.path.join(root, "README.md")):
        lines = read(root, "README.md").count("\n")
        if lines > README_LINES:
            found.append(f"README.md: {lines} lines, {README_LINES} are allowed")
    else:
        found.append("README.md: is missing")
    if os.path.exists(os.path.join(root, "ARCHITECTURE.md")):
        text = read(root, "ARCHITECTURE.md")
        for name in CODE.findall(FENCE.sub("", text)):
            if TREE.match(name) and not exists(root, name):
                found.append(f"ARCHITECTURE.md: {name} does not exist")
        found += unnamed_folders(root, text)
    else:
        found.append("ARCHITECTURE.md: is missing")
    return found


def unnamed_folders(root, text):
    """Every folder with sources is named: a reader can look each up."""
    folders = {os.path.dirname(os.path.relpath(path, root))
               for top in ("src", "include", "shim", "cli", "train")
               for path in glob.glob(os.path.join(root, top, "**", "*.[ch]"), recursive=True)}
    return [f"ARCHITECTURE.md: does not name the folder {folder}"
            for folder in sorted(folders) if f"{folder}/" not in text]


def self_test():
    files = {
        "README.md": "x\n" * (README_LINES + 1),
        "ARCHITECTURE.md": "`src/base/gone.c` `src/base/{size,map}.c` `size.c` `a/b` src/base/\n",
        "docs/a.md": "[gone](b.md) [here](../README.md) [out](https://example.org) [x](#no-such)\n"
                     "```\n[not a link](nowhere.md)\n```\n# Title\n[good](#title)\n",
        "src/base/size.c": "", "src/new/thing.c": "",
    }
    expected = [
        "ARCHITECTURE.md: does not name the folder src/new",
        "ARCHITECTURE.md: src/base/gone.c does not exist",
        "ARCHITECTURE.md: src/base/{size,map}.c does not exist",
        f"README.md: {README_LINES + 1} lines, {README_LINES} are allowed",
        "docs/a.md: link to #no-such: no such heading",
        "docs/a.md: link to b.md leads nowhere",
    ]
    with planted(files) as root:
        return is_same(problems(root), expected)


def scripts_parse():
    """Shell scripts at least parse; Python ones compile."""
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
