#!/usr/bin/python3
"""The library in front of the CUDA driver: names, resolution, and what it does without a driver.

It runs with an engine that only writes down what it hears (cuda_double.c). Behind it is a stand-in
for the driver that resolves names and does nothing else. With the CUDA toolkit, the real runtime
library (cudart) is run over both, static and dynamic.
"""
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import launching
from launching import BIN, SOURCE, compile_c

DOOR = os.path.join(BIN, "libebb_cuda_double.so")
AUDIT = os.path.join(BIN, "libebb_cuda_audit.so")
TOOLKIT = os.environ.get("CUDA_HOME", "/usr/local/cuda")
needs_toolkit = unittest.skipUnless(
    os.path.exists(os.path.join(TOOLKIT, "include", "cuda.h")), "skipped: needs the CUDA toolkit")

Row = collections.namedtuple("Row", "kind symbol base version stream body parameters")


def read(*path):
    with open(os.path.join(SOURCE, *path), encoding="utf-8") as file:
        return re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)


def hooks():
    """The rows of hooks.def."""
    text = re.sub(r"\s+", " ", read("shim", "cuda", "hooks.def"))
    rows = []
    for kind, rest in re.findall(r"EBB_(HOOK|HOOK_PLAIN|PASS|ALSO)\((.*?)\)(?= EBB_| *$)", text):
        head, *lists = rest.split(", (")
        symbol, base, version, *more = [part.strip() for part in head.split(",")]
        more += [None, None]
        rows.append(Row(kind, symbol, base, int(version), more[0], more[1],
                        lists[0].rstrip(")") if lists else "void"))
    return rows


def versions():
    """(base, symbol, version): the variants for the plain default stream, by versions.def."""
    return [(base, symbol, int(version)) for base, symbol, version in
            re.findall(r"FAKE_VERSION\((\w+), (\w+), (\d+)\)",
                       read("tests", "fakecuda", "versions.def"))]


def names():
    return re.findall(r"EBB_CUDA_NAME\((\w+)\)", read("shim", "cuda", "names.def"))


def standin():
    return compile_c("libstandin.so", of="cuda_standin", options=[
        "-shared", "-fPIC", "-I", os.path.join(SOURCE, "tests", "fakecuda"),
        os.path.join(SOURCE, "tests", "programs", "cuda_standin_names.c")])


def run(command, preload=True, **variables):
    env = {name: value for name, value in os.environ.items()
           if name not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    if preload:
        env["LD_PRELOAD"] = DOOR
    env.update({name: value for name, value in variables.items() if value is not None})
    return subprocess.run(command, env=env, timeout=60, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)


class Names(unittest.TestCase):
    def test_exports(self):
        """All names of the driver, and some of our own."""
        own = {"ebb_malloc", "ebb_free", "ebb_malloc_mark", "ebb_cuda_mark", "ebb_cuda_door",
               "ebb_cuda_launches"}
        done = subprocess.run(["nm", "-D", "--defined-only", DOOR], check=True, text=True,
                              stdout=subprocess.PIPE)
        exported = {line.split()[-1] for line in done.stdout.splitlines()}
        self.assertEqual(set(names()) | own, exported)

    def test_soname(self):
        done = subprocess.run(["readelf", "-d", DOOR], check=True, text=True,
                              stdout=subprocess.PIPE)
        self.assertIn("[libcuda.so.1]", done.stdout)
        needed = re.findall(r"\(NEEDED\).*\[(.*?)\]", done.stdout)
        self.assertEqual([], [name for name in needed if not name.startswith(("libc.", "ld-"))])

    def test_hooks_are_names(self):
        for row in hooks():
            self.assertIn(row.symbol, names())

    def test_hooks_are_complete(self):
        """Each variant of a hooked name is hooked, or listed as one that is not."""
        rows = hooks()
        known = {row.symbol for row in rows}
        for base in {row.base for row in rows}:
            for name in names():
                if re.fullmatch(base + r"(_v\d)?(_pt[sd][zs])?", name):
                    self.assertIn(name, known)

    def test_versions(self):
        """hooks.def and versions.def were written apart."""
        expected = {(base, symbol): version for base, symbol, version in versions()}
        for row in hooks():
            if row.kind == "ALSO":
                continue  # by a macro of the header, which has no type for it
            plain = re.sub(r"_pt[sd][zs]$", "", row.symbol)
            version = expected[(row.base, plain)]
            if row.stream == "THREAD":
                version = max(version, 7000)
            self.assertEqual(version, row.version, row.symbol)

    @needs_toolkit
    def test_types(self):
        """The prototypes and versions are those of the real headers."""
        lines = ["#define __CUDA_API_VERSION_INTERNAL 1", "#include <cuda.h>",
                 "#include <cudaTypedefs.h>"]
        for row in hooks():
            if row.kind not in ("HOOK", "HOOK_PLAIN") or \
                    row.symbol == "cuMemGetHandleForAddressRange":  # int in place of an enum
                continue
            ending = re.search(r"_pt[sd][zs]$", row.symbol)
            lines.append(f"_Static_assert(__builtin_types_compatible_p(CUresult (*)("
                         f"{row.parameters}), PFN_{row.base}_v{row.version}"
                         f"{ending.group(0) if ending else ''}), \"{row.symbol}\");")
        self.assertGreater(len(lines), 100)
        path = os.path.join(launching.work, "types.c")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        done = subprocess.run(["cc", "-std=gnu11", "-fsyntax-only", "-I",
                               os.path.join(TOOLKIT, "include"), path], check=False,
                              stderr=subprocess.PIPE, text=True)
        self.assertEqual("", done.stderr)


class Resolution(unittest.TestCase):
    """cuGetProcAddress gives the hook of the right variant, and leaves all other pointers alone."""

    def requests(self, lines):
        path = os.path.join(launching.work, "requests")
        with open(path, "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))
        return path

    def every_request(self):
        """Each name, at each version of it and at the newest, for each default stream."""
        for base, _, version in versions():
            for asked in sorted({version, 13000}):
                for flags in (0, 1, 2):
                    yield f"{base} {asked} {flags} ?"

    def replay(self, path, **variables):
        """(request, library, symbol) of each request, through the door."""
        log = os.path.join(launching.work, "log")
        if os.path.exists(log):
            os.remove(log)
        done = run([compile_c("cuda_requests"), DOOR, path], preload=False,
                   EBB_CUDA_DRIVER=standin(), **variables)
        self.assertEqual(0, done.returncode)
        return [(line.split()[:4], *line.split()[5:7]) for line in done.stdout.splitlines()], done

    def expect(self, path, least_hooked, **variables):
        hooked = {row.symbol for row in hooks() if row.kind.startswith("HOOK")}
        plain = self.symbols(path, **variables)
        answers, _ = self.replay(path, **variables)
        self.assertEqual(len(plain), len(answers))
        count = 0
        for symbol, (request, library, found) in zip(plain, answers):
            if symbol == "-":
                self.assertEqual("-", library, request)
            elif symbol in hooked:
                self.assertEqual((os.path.basename(DOOR), symbol), (library, found), request)
                count += 1
            else:
                self.assertEqual(("libstandin.so", symbol), (library, found.replace("other_", "")),
                                 request)
        self.assertGreaterEqual(count, least_hooked)

    def symbols(self, path, **variables):
        """What the stand-in alone answers."""
        log = os.path.join(launching.work, "alone")
        if os.path.exists(log):
            os.remove(log)
        run([compile_c("cuda_requests"), standin(), path], preload=False, STANDIN_LOG=log,
            EBB_CUDA_DRIVER=standin(), **variables)
        with open(log, encoding="utf-8") as file:
            return [line.split()[3] for line in file]

    def test_every_request(self):
        self.expect(self.requests(self.every_request()), 300)

    def test_pointers_of_their_own(self):
        """The driver gives other pointers than those of its symbols."""
        self.expect(self.requests(self.every_request()), 300, STANDIN_OTHER="1")

    def test_an_older_driver(self):
        """What it lacks is not found, and the older variants are hooked as such."""
        self.expect(self.requests(self.every_request()), 250, STANDIN_VERSION="12040")
        self.expect(self.requests(self.every_request()), 250, STANDIN_VERSION="12040",
                    STANDIN_OTHER="1")

    def test_a_driver_that_is_too_old(self):
        answers, done = self.replay(self.requests(self.every_request()), STANDIN_VERSION="12020")
        self.assertEqual([], [answer for answer in answers if answer[1].startswith("libebb")])
        self.assertEqual("ebb: the CUDA driver is version 12.2, 12.4 is needed: the budget is NOT "
                         "enforced\n", done.stderr)

    def test_a_newer_variant(self):
        """It is left alone, one line says so, and from then on nothing is hooked."""
        lines = ["cuLaunchKernel 4000 1 ?", "cuMemAlloc 13000 1 ?", "cuMemAlloc 3020 1 ?",
                 "cuMemFree 3020 1 ?", "cuMemAlloc 13000 1 ?"]
        answers, done = self.replay(self.requests(lines), STANDIN_NEWER="cuMemAlloc")
        self.assertEqual([os.path.basename(DOOR), *["libstandin.so"] * 4],
                         [answer[1] for answer in answers])
        self.assertEqual(1, len(done.stderr.splitlines()))
        self.assertIn("a variant of cuMemAlloc that this version of Ebb does not know", done.stderr)

    def test_outside_of_a_run(self):
        answers, done = self.replay(self.requests(self.every_request()), EBB_DOUBLE_ALONE="1")
        self.assertEqual([], [answer for answer in answers if answer[1].startswith("libebb")])
        self.assertEqual("", done.stderr)


@needs_toolkit
class Cudart(unittest.TestCase):
    """The real runtime library."""

    TEXT = ("#include <cuda_runtime_api.h>\n#include <stdio.h>\n"
            "int main(void) { int n = -1, v = -1; int r = cudaDriverGetVersion(&v);\n"
            "printf(\"%d %d %d\\n\", r, v, cudaGetDeviceCount(&n)); return CUDART_VERSION; }\n")

    def program(self, kind):
        include = ["-I", os.path.join(TOOLKIT, "include")]
        folder = os.path.join(TOOLKIT, "lib64")
        if kind == "static":
            return compile_c("cudart_static", self.TEXT, [
                *include, os.path.join(folder, "libcudart_static.a"), "-ldl", "-lrt"])
        return compile_c("cudart_dynamic", self.TEXT, [
            *include, "-L", folder, "-lcudart", f"-Wl,-rpath,{folder}"])

    def log_of(self, kind, **options):
        log = os.path.join(launching.work, f"requests_of_{kind}")
        if os.path.exists(log):
            os.remove(log)
        done = run([self.program(kind)], STANDIN_LOG=log, EBB_CUDA_DRIVER=standin(), **options)
        with open(log, encoding="utf-8") as file:
            return file.read().splitlines(), done, log

    def test_requests(self):
        """The runtime sends the same requests through the door as without it."""
        folder = os.path.join(launching.work, "driver")
        os.makedirs(folder, exist_ok=True)
        link = os.path.join(folder, "libcuda.so.1")
        if not os.path.exists(link):
            os.symlink(standin(), link)
        for kind in ("static", "dynamic"):
            through, one, log = self.log_of(kind)
            alone, two, _ = self.log_of(kind, preload=False, LD_LIBRARY_PATH=folder)
            self.assertEqual(alone, through)
            self.assertEqual((two.stdout, two.returncode), (one.stdout, one.returncode))
            self.assertGreater(len(through), 300)
            if "13.0" in os.path.realpath(TOOLKIT):
                self.assertEqual(440, len(through))
            self.log_of(kind)
            Resolution.expect(Resolution(), log, 100)
            Resolution.expect(Resolution(), log, 100, STANDIN_OTHER="1")

    def test_no_driver(self):
        """The program fails as it does without the library."""
        for kind in ("static", "dynamic"):
            plain = run([self.program(kind)], preload=False)
            through = run([self.program(kind)], EBB_CUDA_DRIVER="/nonexistent")
            self.assertEqual((plain.stdout, plain.stderr), (through.stdout, through.stderr))


class Driver(unittest.TestCase):
    """Where the real driver is found, and calls that are only forwarded."""

    GOOD = "init 0 version 0 13000 vector 1123 many 650 alloc 0"

    def check(self, done, library="libebb_cuda_double.so"):
        lines = done.stdout.splitlines()
        self.assertEqual([library, self.GOOD, self.GOOD, "child: init 0 alloc 0"], lines)
        self.assertEqual("", done.stderr)

    def test_forwarded(self):
        self.check(run([compile_c("cuda_names")], EBB_CUDA_DRIVER=standin()))

    def test_outside_of_a_run(self):
        self.check(run([compile_c("cuda_names")], EBB_CUDA_DRIVER=standin(), EBB_DOUBLE_ALONE="1"))

    def test_found_as_the_loader_does(self):
        """In LD_LIBRARY_PATH, also if this library is there under the driver's name as well."""
        folder = os.path.join(launching.work, "search")
        for name, target in (("door", DOOR), ("real", standin())):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
            link = os.path.join(folder, name, "libcuda.so.1")
            if not os.path.exists(link):
                os.symlink(target, link)
        path = ":".join(os.path.join(folder, name) for name in ("door", "none", "real"))
        self.check(run([compile_c("cuda_names")], LD_LIBRARY_PATH=path,
                       EBB_CUDA_DRIVER=None))

    def test_no_driver(self):
        done = run([compile_c("cuda_names")], EBB_CUDA_DRIVER="/nonexistent")
        self.assertEqual("", done.stderr)
        self.assertIn("init 100 version 100 0 vector 100 many 100 alloc 100", done.stdout)

    def test_audit(self):
        """By LD_AUDIT, also `libcuda.so` is this library. By LD_PRELOAD it is not."""
        folder = os.path.join(launching.work, "audit")
        os.makedirs(folder, exist_ok=True)
        for source, name in ((AUDIT, "libebb_cuda_audit.so"), (DOOR, "libebb_cuda.so"),
                             (standin(), "libcuda.so")):
            if not os.path.exists(os.path.join(folder, name)):
                shutil.copy(source, os.path.join(folder, name))
        program = compile_c("cuda_names")
        real = os.path.join(folder, "libcuda.so")
        for name in ("libcuda.so", "libcuda.so.1"):
            done = run([program, name], preload=False, EBB_CUDA_DRIVER=real,
                       LD_LIBRARY_PATH=folder,
                       LD_AUDIT=os.path.join(folder, "libebb_cuda_audit.so"))
            self.check(done, "libebb_cuda.so")
        done = run([program, "libcuda.so"], EBB_CUDA_DRIVER=real, LD_LIBRARY_PATH=folder)
        self.check(done, "libcuda.so")

    def test_debug(self):
        """What names the driver has more or fewer is told on request only."""
        text = subprocess.run(["cc", "-shared", "-x", "c", "-o",
                               os.path.join(launching.work, "libfew.so"), "-"],
                              input="int cuInit(void) { return 0; }\nint cuNew(void) { return 0; }",
                              text=True, check=True)
        self.assertEqual(0, text.returncode)
        few = os.path.join(launching.work, "libfew.so")
        done = run([compile_c("cuda_names")], EBB_CUDA_DRIVER=few, EBB_CUDA_DEBUG="1")
        self.assertIn(f"ebb: debug: the driver lacks {len(names()) - 1} names of CUDA 13.0, and "
                      "has 1 more: cuNew\n", done.stderr)
        done = run([compile_c("cuda_names")], EBB_CUDA_DRIVER=standin(), EBB_CUDA_DEBUG="1")
        self.assertEqual("", done.stderr)


class Choice(unittest.TestCase):
    """`ebb run --device`: which library is preloaded."""

    SHOW = [launching.PYTHON, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]

    @classmethod
    def setUpClass(cls):
        cls.folder = os.path.join(launching.work, "bin")
        os.makedirs(cls.folder, exist_ok=True)
        for source, name in ((os.path.join(BIN, "ebb"), "ebb"), (DOOR, "libebb_cuda.so"),
                             (os.path.join(BIN, "libebb_malloc.so"), "libebb_malloc.so")):
            shutil.copy(source, os.path.join(cls.folder, name))

    def ebb(self, *options, **variables):
        return run([os.path.join(self.folder, "ebb"), "run", "--no-cache", *options, "--",
                    *self.SHOW], preload=False, EBB_DOUBLE_ALONE="1", **variables)

    def test_auto_with_a_gpu(self):
        """Both libraries: what each process does decides."""
        done = self.ebb(EBB_CUDA_DRIVER=standin())
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertRegex(done.stdout, r'"LD_PRELOAD": "[^":]*libebb_malloc.so:[^":]*libebb_cuda.so"')
        for setting in ('"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"', '"NCCL_P2P_DISABLE": "1"',
                        '"TF_GPU_ALLOCATOR": "cuda_malloc_async"',
                        '"TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1"',
                        '"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"'):
            self.assertIn(setting, done.stdout)

    def test_cuda(self):
        done = self.ebb("--device", "cuda", EBB_CUDA_DRIVER=standin())
        self.assertEqual(0, done.returncode)
        self.assertIn("libebb_cuda.so", done.stdout)
        self.assertNotIn("libebb_malloc.so", done.stdout)
        self.assertIn('"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"', done.stdout)
        self.assertNotIn("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", done.stdout)
        self.assertIn("ebb: run: the program did not use the GPU", done.stderr)

    def test_settings_of_the_user(self):
        done = self.ebb("--no-env", EBB_CUDA_DRIVER=standin())
        self.assertNotIn("NCCL_P2P_DISABLE", done.stdout)
        done = self.ebb(EBB_CUDA_DRIVER=standin(), NCCL_P2P_DISABLE="0")
        self.assertIn('"NCCL_P2P_DISABLE": "0"', done.stdout)

    def test_auto_without_a_gpu(self):
        for variables in ({"EBB_CUDA_DRIVER": "/nonexistent"},
                          {"EBB_CUDA_DRIVER": standin(), "STANDIN_DEVICES": "0"}):
            done = self.ebb(**variables)
            self.assertEqual(0, done.returncode)
            self.assertIn("libebb_malloc.so", done.stdout)
            self.assertNotIn("NCCL_P2P_DISABLE", done.stdout)
            self.assertNotIn("GPU", done.stderr)

    def test_auto_with_a_gpu_that_is_not_usable(self):
        for variables, why in (({"STANDIN_VERSION": "12020"}, "the CUDA driver is version 12.2"),
                               ({"STANDIN_PLAIN": "1"}, "no concurrent managed access")):
            done = self.ebb(EBB_CUDA_DRIVER=standin(), **variables)
            self.assertEqual(0, done.returncode)
            self.assertIn("libebb_malloc.so", done.stdout)
            self.assertIn(why, done.stderr)
            self.assertEqual(1, done.stderr.count("\n"), done.stderr)

    def test_cpu(self):
        done = self.ebb("--device", "cpu", EBB_CUDA_DRIVER=standin())
        self.assertIn("libebb_malloc.so", done.stdout)
        self.assertNotIn("libebb_cuda.so", done.stdout)

    def test_cuda_that_is_not_there(self):
        for variables, why in (({"EBB_CUDA_DRIVER": "/nonexistent"}, "no CUDA driver"),
                               ({"EBB_CUDA_DRIVER": standin(), "STANDIN_DEVICES": "0"},
                                "has no device"),
                               ({"EBB_CUDA_DRIVER": standin(), "STANDIN_VERSION": "12020"},
                                "12.4 is needed")):
            done = self.ebb("--device", "cuda", **variables)
            self.assertEqual((125, "", 1),
                             (done.returncode, done.stdout, done.stderr.count("\n")), done.stderr)
            self.assertIn("ebb: run: --device cuda: ", done.stderr)
            self.assertIn(why, done.stderr)

    def test_a_budget_above_the_card(self):
        done = self.ebb("--device", "cuda", "--budget", "9G", EBB_CUDA_DRIVER=standin())
        self.assertEqual(0, done.returncode)
        self.assertIn("--budget: 9.00 GiB are more than Stand-in 0 has: the budget is 8.00 GiB",
                      done.stderr)
        done = self.ebb("--budget", "9G", EBB_CUDA_DRIVER=standin())
        self.assertEqual((0, ""), (done.returncode, done.stderr))  # the host may have them

    def test_a_budget_above_some_cards(self):
        """It holds for each device, so the largest one counts."""
        two = {"EBB_CUDA_DRIVER": standin(), "STANDIN_DEVICES": "2"}
        done = self.ebb("--device", "cuda", "--budget", "9G", **two)
        self.assertEqual(0, done.returncode)
        self.assertNotIn("--budget", done.stderr)
        self.assertIn("Stand-in 1 has: the budget is 24.00 GiB",
                      self.ebb("--device", "cuda", "--budget", "30G", **two).stderr)

    def test_a_word_that_is_none(self):
        done = self.ebb("--device", "gpu")
        self.assertEqual(125, done.returncode)
        self.assertIn("--device: 'gpu' is none of auto, cpu, cuda", done.stderr)


if __name__ == "__main__":
    if not os.path.exists(DOOR):
        print("skipped: the library is built on x86-64 only")
        sys.exit(77)
    launching.work = tempfile.mkdtemp(prefix="ebb-door-")
    try:
        outcome = unittest.main(exit=False).result
    finally:
        shutil.rmtree(launching.work)
    sys.exit(not outcome.wasSuccessful())
