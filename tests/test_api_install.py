#!/usr/bin/python3
"""The C API as others find it: headers, exports, the installed tree, and the examples.

A program of another project is built against an installed tree, by pkg-config and by CMake, in C
and in C++. Every example is compiled and run.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("EBB_BIN_DIR", os.path.join(SOURCE, "build/dev/bin"))
HEADERS = os.path.join(SOURCE, "include/ebb")
DECLARED = re.compile(r"^EBB_API[^;(]*?\b(ebb_\w+)\(", re.M)
CONSUMER = """cmake_minimum_required(VERSION 3.25)
project(consumer C)
find_package(ebb 0.1 REQUIRED)
add_executable(consumer explicit.c)
target_link_libraries(consumer ebb::ebb)
"""


def run(*command, cwd=None, env=None):
    result = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, timeout=300, check=False)
    if result.returncode:
        raise AssertionError(f"{command} exits with {result.returncode}: {result.stderr}")
    return result.stdout


def headers():
    for name in sorted(name for name in os.listdir(HEADERS) if name.endswith(".h")):
        with open(os.path.join(HEADERS, name), encoding="utf-8") as file:
            yield name, file.read()


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="ebb-install-")
        cls.prefix = os.path.join(cls.folder.name, "usr")
        run("cmake", "--install", os.path.dirname(BIN), "--prefix", cls.prefix)
        found = [path for path, _, names in os.walk(cls.prefix) if "ebb.pc" in names]
        cls.env = {**os.environ, "PKG_CONFIG_PATH": found[0],
                   "LD_LIBRARY_PATH": os.path.dirname(found[0])}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def build(self, compiler, source, name):
        target = os.path.join(self.folder.name, name)
        flags = run("pkg-config", "--cflags", "--libs", "ebb", env=self.env).split()
        run(compiler, "-O1", "-Wall", "-Wextra", "-Werror", source, "-o", target, *flags,
            env=self.env)
        return target

    def test_explicit_example_by_pkg_config(self):
        program = self.build("cc", os.path.join(SOURCE, "examples/explicit.c"), "explicit")
        resident, live, planned, all_of_them = map(int, re.findall(
            r"\d+", run(program, env=self.env)))
        self.assertEqual((68, 132, 8), (resident, live, all_of_them))
        self.assertGreaterEqual(planned, 6)

    def test_the_installed_command_finds_its_library(self):
        ebb = os.path.join(self.prefix, "bin", "ebb")
        result = run(ebb, "run", "--budget", "64M", "-q", "--summary-json", "summary.json", "--",
                     "/bin/echo", "good", cwd=self.folder.name)
        self.assertEqual("good\n", result)
        with open(os.path.join(self.folder.name, "summary.json"), encoding="utf-8") as file:
            self.assertEqual(1, json.load(file)["processes"])

    @unittest.skipUnless(os.access(os.path.join(BIN, "ebb-train"), os.X_OK), "without the trainer")
    def test_the_installed_trainer_finds_the_library(self):
        trainer = os.path.join(self.prefix, "bin", "ebb-train")
        result = run(trainer, "cnn", "--batch", "8", "--iterations", "2",
                     cwd=self.folder.name)
        self.assertIn("loss", result)

    def test_a_recorded_trace_is_planned(self):
        """`ebb plan` and `ebb compare` take the trace of a program that announces its uses."""
        with open(os.path.join(SOURCE, "examples/explicit.c"), encoding="utf-8") as file:
            text = file.read()
        trace = os.path.join(self.folder.name, "explicit.ebbt")
        changed = text.replace("    for (int i = 0; i < 8; i++) {",
                               f'    must(ebb_record(context, "{trace}", &error));\n'
                               "    for (int i = 0; i < 8; i++) {")
        self.assertNotEqual(text, changed)
        source = os.path.join(self.folder.name, "recorded.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write(changed)
        run(self.build("cc", source, "recorded"), env=self.env)
        ebb = os.path.join(BIN, "ebb")
        told = run(ebb, "info", trace)
        self.assertRegex(told, r"iterations +8,")
        self.assertRegex(told, r"blocks +33, of them 17 persistent with 68.00 MiB")
        self.assertRegex(run(ebb, "plan", "--machine", "nvme", "--budget", "70%", trace),
                         r"peak +[89][0-9]\.")
        self.assertIn("fifo", run(ebb, "compare", "--machine", "nvme", "--budget", "70%", trace))

    def test_marked_example_alone_and_under_ebb(self):
        program = self.build("cc", os.path.join(SOURCE, "examples/marked.c"), "marked")
        alone = run(program, env=self.env)
        self.assertTrue(alone.endswith(", alone\n"), alone)
        summary = os.path.join(self.folder.name, "summary.json")
        under = run(os.path.join(BIN, "ebb"), "run", "--no-cache", "--budget", "28M",
                    "--summary-json", summary, "--", program, env=self.env)
        self.assertEqual(alone.replace("alone", "under Ebb"), under)
        with open(summary, encoding="utf-8") as file:
            figures = json.load(file)
        self.assertIn(figures["iterations"], (28, 29, 30))
        self.assertGreater(figures["planned_iterations"], 10)
        self.assertLessEqual(figures["peak_resident_bytes"], 28 << 20)

    def test_consumer_by_cmake(self):
        folder = os.path.join(self.folder.name, "consumer")
        os.mkdir(folder)
        with open(os.path.join(folder, "CMakeLists.txt"), "w", encoding="utf-8") as file:
            file.write(CONSUMER)
        run("cp", os.path.join(SOURCE, "examples/explicit.c"), folder)
        run("cmake", "-S", folder, "-B", f"{folder}/build", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", f"{folder}/build")
        self.assertIn("iterations planned", run(f"{folder}/build/consumer", env=self.env))

    def test_headers_compile_alone_in_c_and_cpp(self):
        include = os.path.join(self.prefix, "include")
        for name, _ in headers():
            for compiler, language in (("cc", "c"), ("c++", "c++")):
                source = os.path.join(self.folder.name, "one.txt")
                with open(source, "w", encoding="utf-8") as file:
                    file.write(f"#include <ebb/{name}>\n")
                run(compiler, "-x", language, "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                    f"-I{include}", "-fsyntax-only", source)

    def test_exports_are_the_declared_names(self):
        declared = {name for _, text in headers() for name in DECLARED.findall(text)}
        lines = run("nm", "-D", "--defined-only", os.path.join(BIN, "libebb.so")).splitlines()
        exported = {line.split()[-1] for line in lines}
        self.assertEqual(declared, exported)
        self.assertGreater(len(declared), 20)

    def test_each_function_has_a_page(self):
        pages = os.path.join(self.prefix, "share/man/man3")
        for name in {name for _, text in headers() for name in DECLARED.findall(text)}:
            with open(os.path.join(pages, f"{name}.3"), encoding="utf-8") as file:
                page = file.read()
            about = page.split(".SH DESCRIPTION")[1].split(".SH CONTEXT")[0]
            self.assertGreater(len(about.split()), 3, name)
            self.assertIn(f"{name}(", page.split(".SH SYNOPSIS")[1])

    def test_each_function_is_described(self):
        for name, text in headers():
            if name == "ebb.h":
                continue
            self.assertIn("\n *     ", text.split("*/")[0], f"{name} has no example at its top")
            for function in DECLARED.finditer(text):
                before = text[:function.start()].rstrip()
                group = before.endswith("*/") or before.endswith(");")
                self.assertTrue(group, f"{function.group(1)} has no comment")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
