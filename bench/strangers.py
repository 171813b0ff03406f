#!/usr/bin/python3
"""Runs programs that nobody wrote for Ebb, alone and under `ebb run`, and compares their results.

Each suite runs alone, then with an ample budget to find out how much memory it holds, then with
half of that. Its report (the outcome of each test, a digest, an exit code) must be the same in all
three runs. If results differ, it runs once more on both sides. Tests that differ between two runs
without Ebb are `unsteady` and do not count.

  bench/strangers.py                        everything that is installed: half an hour and more
  bench/strangers.py --only python,redis    groups or suites; --list shows them
  bench/strangers.py --device protect       as on a system that has that device (EBB_REFUSE)
  bench/strangers.py --programs DIR         compile and run each *.c in DIR, for instance other
                                            people's tests of malloc

Debian's packages: libpython3.11-testsuite, python3-numpy, python3-pytest, python3-hypothesis,
stress-ng, redis-server, redis-tools. Missing suites are named and skipped. Prints a line of JSON
for each suite, and a table at the end. The exit code is 1 if one differs. This is no part of `make
test`: whole suites take long, and some need a quiet machine.
"""
import argparse
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

from paired import DEVICES

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("EBB_BIN_DIR") or os.path.join(SOURCE, "build", "release", "bin")
EBB = os.path.join(BIN, "ebb")
PYTHON = "/usr/bin/python3"  # Debian packages the tests of this Python
HERE = os.path.abspath(__file__)
MIB = 1 << 20
LEAST_BUDGET = MIB

CPYTHON = ("mmap threading subprocess multiprocessing_fork io socket ctypes bytes array zlib "
           "sqlite3 fork1 gc signal faulthandler pickle").split()
NUMPY = "core lib linalg fft ma random polynomial".split()
# It makes a histogram of 20 GB twice, of which it uses hardly any page.
TOO_LARGE = {"lib": ("-k", "not (TestHistogram and test_big_arrays)")}
STRESS = {"vm": "--vm 1 --vm-bytes 128M", "malloc": "--malloc 1 --malloc-bytes 64M",
          "fork": "--fork 2", "pthread": "--pthread 2", "mmap": "--mmap 1 --mmap-bytes 64M"}


# --- programs that run in their own process, with Ebb or without ------------------------------


class Outcomes(unittest.TestResult):
    """Collects the outcome of each test by its name."""

    def __init__(self):
        super().__init__()
        self.found = {}

    def addSuccess(self, test):
        self.found.setdefault(test.id(), "ok")

    def addFailure(self, test, err):
        self.found[test.id()] = "failure"
        super().addFailure(test, err)

    def addError(self, test, err):
        self.found[test.id()] = "error"
        super().addError(test, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.found[test.id()] = "failure"
        super().addSubTest(test, subtest, err)

    def addSkip(self, test, reason):
        self.found[test.id()] = "skipped"

    def addExpectedFailure(self, test, err):
        self.found[test.id()] = "expected failure"


def child_unittest(module, out):
    outcomes = Outcomes()
    owner = os.getpid()
    unittest.defaultTestLoader.loadTestsFromName(module).run(outcomes)
    if os.getpid() != owner:
        os._exit(1)  # a test forked and did not end its child
    for test, text in outcomes.failures + outcomes.errors:
        print(f"{test.id()}:\n{text}", file=sys.stderr)
    with open(out, "w", encoding="utf-8") as file:
        json.dump(outcomes.found, file)


def child_sqlite(out):
    """A database in memory, larger than the budget: joins, sorts, blobs, a backup, a check."""
    import random
    import sqlite3
    generator = random.Random(1)
    database = sqlite3.connect(":memory:")
    database.execute("pragma cache_size = -65536")
    database.execute("create table item (id integer primary key, name text, price real, data blob)")
    database.execute("create table sale (item integer, day integer, count integer)")
    database.executemany("insert into item values (?, ?, ?, ?)", (
        (i, f"item {generator.randrange(1 << 30)}", generator.random(),
         generator.randbytes(generator.choice((100, 2000, 300000 if i % 200 == 0 else 500))))
        for i in range(40000)))
    database.executemany("insert into sale values (?, ?, ?)", (
        (generator.randrange(40000), generator.randrange(365), generator.randrange(9))
        for _ in range(200000)))
    found = {}

    def ask(name, text):
        digest = hashlib.sha256()
        for row in database.execute(text):
            digest.update(repr(row).encode())
        found[name] = digest.hexdigest()

    ask("join", "select name, sum(count * price) from sale join item on item.id = item "
                "group by name order by 2 desc, 1")
    ask("sort", "select id, data from item order by name, id")
    database.execute("create index sale_day on sale (day, item)")
    ask("index", "select day, sum(count) from sale group by day")
    database.execute("delete from item where id % 3 = 0")
    database.commit()
    database.execute("vacuum")
    copy = sqlite3.connect(":memory:")
    database.backup(copy)
    database = copy
    ask("backup", "select * from item order by price")
    ask("integrity", "pragma integrity_check")
    with open(out, "w", encoding="utf-8") as file:
        json.dump(found, file)


# --- suites --------------------------------------------------------------------------------


class Suite:
    """One program: its command, and the results that it reports at its end."""

    def __init__(self, group, name, command, read=None, needs=None):
        self.group, self.name, self.command = group, name, command
        self.read = read or (lambda out: {})
        self.needs = needs  # the suite is not installed without this path

    def missing(self):
        return self.needs if self.needs and not os.path.exists(self.needs) else None

    def drive(self, process, folder):
        """Work to do while the program runs. Returns more results."""
        return {}


def read_json(out):
    with open(out, encoding="utf-8") as file:
        return json.load(file)


def read_junit(out):
    found = {}
    for case in xml.etree.ElementTree.parse(out).iter("testcase"):
        outcome = next((child.tag for child in case if child.tag in (
            "failure", "error", "skipped")), "ok")
        found[f"{case.get('classname')}.{case.get('name')}"] = outcome
    return found


class Redis(Suite):
    """A server with values of all sizes. They are saved by a fork and overwritten meanwhile. Its
    digests are the results."""

    def __init__(self):
        super().__init__("redis", "redis", lambda out: [
            "/usr/bin/redis-server", "--port", "0", "--unixsocket", "server", "--save", "",
            "--enable-debug-command", "yes", "--appendonly", "no", "--logfile", "log"],
            needs="/usr/bin/redis-server")

    def drive(self, process, folder):
        import random
        generator = random.Random(7)
        path = os.path.join(folder, "server")
        end = time.monotonic() + 60
        while not os.path.exists(path) and time.monotonic() < end and process.poll() is None:
            time.sleep(0.05)
        found = {}
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(300)
            link.connect(path)
            stream = link.makefile("rb")

            def call(*words):
                words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
                link.sendall(b"*%d\r\n" % len(words) + b"".join(
                    b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
                return answer()

            def answer():
                line = stream.readline()
                if line[:1] == b"$":
                    size = int(line[1:])
                    return stream.read(size + 2)[:-2] if size >= 0 else None
                if line[:1] == b"*":
                    return [answer() for _ in range(int(line[1:]))]
                return line[1:].strip()

            def fill(count):
                for _ in range(count):
                    key = f"key {generator.randrange(400)}"
                    size = generator.choice((100, 5000, 150000, 400000, 1 << 20))
                    call("SET", key, generator.randbytes(size))
                    call("APPEND", key, generator.randbytes(size // 3))
                    call("RPUSH", "list", generator.randbytes(3000))
                    call("ZADD", "scores", generator.random(), key)

            def fork_and_wait():
                began = call("LASTSAVE")
                time.sleep(1.1)  # LASTSAVE counts in seconds
                call("BGSAVE")
                fill(60)
                while call("LASTSAVE") == began and time.monotonic() < end + 300:
                    time.sleep(0.1)
                found["saved"] = [
                    word for word in call("INFO", "persistence").decode().split()
                    if word.startswith("rdb_last_bgsave_status")]

            fill(300)
            found["digest"] = call("DEBUG", "DIGEST").decode()
            fork_and_wait()
            found["after"] = call("DEBUG", "DIGEST").decode()
            call("DEBUG", "RELOAD")  # saves everything, empties the database, and loads it
            found["reloaded"] = call("DEBUG", "DIGEST").decode()
            found["values"] = hashlib.sha256(b"".join(
                call("GET", f"key {i}") or b"-" for i in range(400))).hexdigest()
            link.sendall(b"*2\r\n$8\r\nSHUTDOWN\r\n$6\r\nNOSAVE\r\n")
            stream.read()
        return found


def suites(options):
    found = []
    library = "/usr/lib/python3.11/test"
    for name in CPYTHON:
        module = f"test_{name}"
        there = os.path.join(library, module)
        found.append(Suite(
            "python", name, lambda out, m=module: [PYTHON, HERE, "--child", "unittest",
                                                   f"test.{m}", out],
            read_json, there if os.path.isdir(there) else there + ".py"))
    for name in NUMPY:
        found.append(Suite(
            "numpy", f"numpy-{name}", lambda out, n=name: [
                PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly",
                "--pyargs", f"numpy.{n}", f"--junitxml={out}", *TOO_LARGE.get(n, ())],
            read_junit, "/usr/lib/python3/dist-packages/numpy/testing"))
    for name, arguments in STRESS.items():
        found.append(Suite(
            "stress", f"stress-{name}", lambda out, a=arguments: [
                "/usr/bin/stress-ng", *a.split(), "--timeout", f"{options.seconds}s", "--verify",
                "--temp-path", "."],
            needs="/usr/bin/stress-ng"))
    found.append(Suite("sqlite", "sqlite", lambda out: [PYTHON, HERE, "--child", "sqlite", out],
                       read_json))
    found.append(Redis())
    return found


def programs_of(folder, into):
    """A suite for each *.c in `folder` that compiles."""
    found = []
    for file in sorted(os.listdir(folder)):
        if not file.endswith(".c"):
            continue
        out = os.path.join(into, file[:-2])
        done = subprocess.run(["cc", "-O2", "-w", "-pthread", "-o", out,
                               os.path.join(folder, file), "-lm"], check=False,
                              capture_output=True, text=True)
        if done.returncode:
            print(f"{file}: does not compile: {done.stderr.splitlines()[:1]}", file=sys.stderr)
        else:
            found.append(Suite("programs", file[:-2], lambda _, program=out: [program]))
    return found


# --- one run, one suite --------------------------------------------------------------------


def end_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass


def run_once(suite, budget, options):
    """One run: {"code", "results", "seconds", "summary", "text"}. If `budget` is None, it is
    without Ebb."""
    folder = tempfile.mkdtemp(prefix="ebb-strangers-", dir=options.folder)
    out, summary = os.path.join(folder, "out"), os.path.join(folder, "summary.json")
    command = suite.command(out)
    env = {k: v for k, v in os.environ.items() if not k.startswith("EBB_")}
    env.update(EBB_REFUSE=DEVICES[options.device], TMPDIR=folder, PYTHONDONTWRITEBYTECODE="1",
               OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="2")
    if budget is not None:
        command = [EBB, "run", "--no-cache", "--budget", str(budget), "--summary=never",
                   "--summary-json", summary, "--", *command]
    began = time.monotonic()
    results, code = {}, "timeout"
    with open(os.path.join(folder, "text"), "w+b") as text:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=text, stderr=text,
                                   env=env, cwd=folder, start_new_session=True)
        try:
            results.update(suite.drive(process, folder))
            code = process.wait(max(1, options.timeout - (time.monotonic() - began)))
        except subprocess.TimeoutExpired:
            pass
        except OSError as error:
            results["error"] = str(error)
        end_group(process)
        process.wait()
        text.seek(0)
        printed = text.read().decode(errors="replace")
    try:
        results.update(suite.read(out))
    except (OSError, ValueError, xml.etree.ElementTree.ParseError) as error:
        results["report"] = f"missing: {type(error).__name__}"
    results["exit code"] = code
    figures = {}
    if budget is not None and os.path.exists(summary):
        figures = read_json(summary)
    shutil.rmtree(folder, ignore_errors=True)
    return {"results": results, "seconds": round(time.monotonic() - began, 1),
            "figures": figures, "text": printed,
            "said": [line for line in printed.splitlines() if line.startswith("ebb: ")]}


def differing(one, other):
    return {name: [one.get(name), other.get(name)]
            for name in sorted(set(one) | set(other)) if one.get(name) != other.get(name)}


def judge(suite, options):
    plain = run_once(suite, None, options)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    wide = run_once(suite, memory * 3 // 4, options)
    held = wide["figures"].get("managed_peak_bytes") or 0
    budget = max(LEAST_BUDGET, int(held * options.share))
    tight = run_once(suite, budget, options)
    runs, unsteady = [wide, tight], set()
    if any(differing(plain["results"], run["results"]) for run in runs):
        unsteady = set(differing(plain["results"], run_once(suite, None, options)["results"]))
        runs.append(run_once(suite, budget, options))
    different = {}
    for run in runs:
        for name, pair in differing(plain["results"], run["results"]).items():
            if name not in unsteady:
                different.setdefault(name, []).append(pair[1])
    if "report" in plain["results"]:
        different["report"] = [run["results"].get("report") for run in runs]  # only reported
    figures = tight["figures"]
    line = {"suite": suite.name, "same": not different, "device": figures.get("device"),
            "results": len(plain["results"]), "held_mib": held >> 20,
            "budget_mib": round(budget / MIB, 1),
            "moved_out_mib": (figures.get("moved_out_bytes") or 0) >> 20,
            "budget_exceeded": figures.get("budget_exceeded"),
            "seconds": [plain["seconds"], wide["seconds"], tight["seconds"]],
            "unsteady": sorted(unsteady), "exit_code": plain["results"]["exit code"],
            "said": sorted({text for run in runs for text in run["said"]})[:8]}
    if different:
        line["different"] = {name: [plain["results"].get(name), *others]
                             for name, others in different.items()}
        if options.keep:
            for number, run in enumerate(runs):
                with open(os.path.join(options.keep, f"{suite.name}.{number}"), "w",
                          encoding="utf-8") as file:
                    file.write(run["text"])
    return line


def table(lines):
    print("\n| suite | same | results | held, MiB | budget, MiB | moved out, MiB | seconds alone, "
          "ample, half |\n|---|---|---|---|---|---|---|")
    for line in lines:
        print(f"| {line['suite']} | {'yes' if line['same'] else 'NO'} | {line['results']} | "
              f"{line['held_mib']} | {line['budget_mib']}"
              f"{' (exceeded)' if line['budget_exceeded'] else ''} | {line['moved_out_mib']} | "
              + ", ".join(map(str, line["seconds"])) + " |")


def main():
    if sys.argv[1:2] == ["--child"]:
        {"unittest": child_unittest, "sqlite": child_sqlite}[sys.argv[2]](*sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="suites or groups, separated by commas")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--device", choices=DEVICES, default="uffd-move")
    parser.add_argument("--share", type=float, default=0.5, help="budget as a share of the memory held")
    parser.add_argument("--seconds", type=int, default=60, help="seconds for each stressor")
    parser.add_argument("--timeout", type=int, default=900, help="seconds for one run")
    parser.add_argument("--programs", help="a folder with C programs")
    parser.add_argument("--keep", help="a folder for the output of suites that differ")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ebb-strangers-", dir="/var/tmp") as folder:
        options.folder = folder
        todo = programs_of(options.programs, folder) if options.programs else suites(options)
        if options.only:
            wanted = set(options.only.split(","))
            todo = [suite for suite in todo if {suite.group, suite.name} & wanted]
        if options.list:
            for suite in todo:
                print(suite.group, suite.name, "(not installed)" if suite.missing() else "")
            return
        lines = []
        for suite in todo:
            if suite.missing():
                print(f"{suite.name}: skipped: needs {suite.missing()}", file=sys.stderr)
                continue
            lines.append(judge(suite, options))
            print(json.dumps(lines[-1]), flush=True)
        table(lines)
    sys.exit(0 if lines and all(line["same"] for line in lines) else 1)


if __name__ == "__main__":
    main()
