#!/usr/bin/python3
"""Our declarations of the CUDA driver's interface agree with the real header and stub library.

Each enumerator and constant, each size and offset, each prototype and the list of exported names
are compared. The compiler judges. Skipped without the toolkit (EBB_CUDA_TOOLKIT, default
/usr/local/cuda). Before that, one error of each kind is planted and must be found.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
TOOLKIT = os.environ.get("EBB_CUDA_TOOLKIT", "/usr/local/cuda")
HEADER = f"{TOOLKIT}/include/cuda.h"
STUB = f"{TOOLKIT}/lib64/stubs/libcuda.so"
FILES = ("abi.h", "abi_enums.h", "results.def", "calls.def")

COMMENT = re.compile(r"/\*.*?\*/", re.S)


def text_of(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return COMMENT.sub("", file.read())


def compiled(code, arguments, program=False):
    """(messages, output) of a C text. The program is run if `program` is set."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "check.c")
        with open(path, "w", encoding="utf-8") as file:
            file.write(code)
        target = ["-o", f"{path}.out"] if program else ["-fsyntax-only"]
        done = subprocess.run(["cc", "-std=gnu11", "-w", *arguments, path, *target],
                              capture_output=True, text=True, timeout=120, check=False)
        errors = [line for line in done.stderr.split("\n") if "error:" in line]
        if done.returncode or not program:
            return errors or ["the compiler failed"] * bool(done.returncode), ""
        ran = subprocess.run([f"{path}.out"], capture_output=True, text=True, timeout=60,
                             check=True)
        return [], ran.stdout


def constants(folder):
    """(name, value) of each enumerator, result code and numeric macro."""
    enums = text_of(folder, "abi_enums.h")
    yield from re.findall(r"\b(CU\w+) = (-?\w+)", enums)
    yield from re.findall(r"EBB_CUDA_RESULT\((\w+), (\d+)\)", text_of(folder, "results.def"))
    yield from re.findall(r"#define (CU\w+) (0x\w+)\n", text_of(folder, "abi.h"))


def wrong_constants(folder):
    checks = [f'_Static_assert((long long){name} == {value}, "{name}");'
              for name, value in constants(folder)]
    code = f'#include "{HEADER}"\n' + "\n".join(checks)
    return compiled(code, [])[0], len(checks)


def members(body, path=""):
    """The paths of the members of a struct's body."""
    at = 0
    while at < len(body):
        nested = re.match(r"\s*(?:struct|union)(?: \w+)? \{", body[at:])
        if nested:
            depth, end = 1, at + nested.end()
            while depth:
                depth += (body[end] == "{") - (body[end] == "}")
                end += 1
            name, stop = re.match(r"\s*(\w*);", body[end:]), body.index(";", end)
            inner = body[at + nested.end():end - 1]
            prefix = f"{path}{name.group(1)}." if name.group(1) else path
            if name.group(1):
                yield path + name.group(1)
            yield from members(inner, prefix)
            at = stop + 1
            continue
        stop = body.find(";", at)
        if stop < 0:
            return
        for declared in body[at:stop].split(","):
            name = re.search(r"(\w+)(?:\[[^\]]*\])?\s*$", declared)
            yield path + name.group(1)
        at = stop + 1


def structs(folder):
    """(name, paths of its members) of each struct and union that abi.h defines."""
    text = text_of(folder, "abi.h")
    for match in re.finditer(r"typedef (?:struct|union) \w+ \{\n(.*?)\n\} (\w+);", text, re.S):
        yield match.group(2), list(members(match.group(1) + "\n"))


def layouts(folder, include):
    """sizeof and offsetof of everything in abi.h, as `include` says them."""
    lines = []
    for name, paths in structs(folder):
        lines.append(f'printf("{name} %zu %zu\\n", sizeof({name}), _Alignof({name}));')
        for path in paths:
            lines.append(f'printf("{name}.{path} %zu %zu\\n", offsetof({name}, {path}), '
                         f'sizeof((({name} *)0)->{path}));')
    scalars = set(re.findall(r"typedef [\w ]+ \**(\w+);", text_of(folder, "abi.h")))
    for name in sorted(scalars - {"CUexecAffinityParam", "CUctxCigParam"}):
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
    code = (f'#include {include}\n#include <stdio.h>\n#include <stddef.h>\n'
            f'int main(void)\n{{\n' + "\n".join(lines) + "\nreturn 0;\n}\n")
    return compiled(code, [], program=True)


def wrong_layouts(folder):
    errors, ours = layouts(folder, f'"{folder}/abi.h"')
    more, theirs = layouts(folder, f'"{HEADER}"')
    differing = set(ours.split("\n")) ^ set(theirs.split("\n"))
    return errors + more + sorted(differing), len(ours.split("\n"))


def wrong_prototypes(folder):
    """A declaration beside another one of a different type is an error in C."""
    code = (f'#define __CUDA_API_VERSION_INTERNAL\n#include "{HEADER}"\n'
            '#define EBB_CUDA_CALL(name, parameters) __typeof__(name) *is_##name; '
            'CUresult name parameters;\n'
            f'#include "{folder}/calls.def"\n')
    return compiled(code, [])[0], text_of(folder, "calls.def").count("EBB_CUDA_CALL(")


def wrong_names(path):
    """The list of exported names, against the stub library."""
    with open(path, encoding="utf-8") as file:
        ours = re.findall(r"^EBB_CUDA_NAME\((\w+)\)$", file.read(), re.M)
    listed = subprocess.run(["nm", "-D", "--defined-only", STUB], capture_output=True, text=True,
                            timeout=60, check=True).stdout
    theirs = sorted(line.split()[-1] for line in listed.split("\n") if line)
    found = sorted(set(ours) ^ set(theirs))
    if ours != sorted(set(ours)):
        found.append("the names are not in order")
    return found, len(ours)


PLANTED = [  # file, text, its replacement, the check that must find it
    ("abi_enums.h", "CU_STREAM_NON_BLOCKING = 1", "CU_STREAM_NON_BLOCKING = 2", wrong_constants),
    ("results.def", "CUDA_ERROR_OUT_OF_MEMORY, 2)", "CUDA_ERROR_OUT_OF_MEMORY, 3)",
     wrong_constants),
    ("abi.h", "    CUmemLocation location;\n    CUmemAccess_flags flags;",
     "    CUmemAccess_flags flags;\n    CUmemLocation location;", wrong_layouts),
    ("abi.h", "_Alignas(128) cuuint64_t opaque", "cuuint64_t opaque", wrong_layouts),
    ("calls.def", "EBB_CUDA_CALL(cuMemAlloc_v2, (CUdeviceptr *, size_t))",
     "EBB_CUDA_CALL(cuMemAlloc_v2, (CUdeviceptr *, unsigned))", wrong_prototypes),
    ("calls.def", "EBB_CUDA_CALL(cuMemAlloc_v2, ", "EBB_CUDA_CALL(cuMemAlloc_v9, ",
     wrong_prototypes),
]


def planted():
    for name, text, other, check in PLANTED:
        with tempfile.TemporaryDirectory() as folder:
            for file in FILES:
                shutil.copy(os.path.join(SOURCE, "src/cuda", file), folder)
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as file:
                whole = file.read()
            if text not in whole:
                yield f"{name}: the text to change is not there: {text[:50]}"
            with open(path, "w", encoding="utf-8") as file:
                file.write(whole.replace(text, other))
            if not check(folder)[0]:
                yield f"{name}: {check.__name__} misses: {other[:50]}"


def main():
    if not os.path.exists(HEADER):
        print(f"skipped: no {HEADER}")
        return 77
    folder = os.path.join(SOURCE, "src/cuda")
    found, said = list(planted()), []
    checks = [(wrong_constants, folder, "constants"), (wrong_layouts, folder, "layouts"),
              (wrong_prototypes, folder, "prototypes")]
    if os.path.exists(STUB):
        checks.append((wrong_names, os.path.join(SOURCE, "shim/cuda/names.def"), "names"))
    for check, argument, what in checks:
        errors, count = check(argument)
        found += errors
        said.append(f"{count} {what}")
    for line in found:
        print(line)
    print(f"{', '.join(said)}: {len(found)} differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
