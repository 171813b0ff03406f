#!/usr/bin/python3
"""Runs ctest on a build folder, counts its results, and fails if a skip is unexpected.

A skipped test exits with 77 and prints a line `skipped: needs NAME`, with more text after NAME if
it likes. A program that skips some of its tests (cmocka, unittest) prints such a line for each of
them. A skip is expected only if this machine lacks NAME. This script checks that itself. Any other
skip is a failure, so no test can be lost unnoticed.

Two tests run at a time, or more of those that mostly wait. tests/CMakeLists.txt says which these
are. It also says which depend on their pace, or need the machine for themselves. The temporary
files of tests are in memory, but for tests that name a disk (disk_tests there). The last line
printed is 'N passed, N failed, N skipped'.
"""
import argparse
import ctypes
import importlib.util
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

# For two CPUs: halves of one. A test takes two of them, or one if it mostly waits. With three tests
# at a time, whatever they do, one in forty failed for lack of a processor.
HALVES = 4
# Temporary files of tests go to memory if it has so much. Two tests had 0.8 GiB there at most.
IN_MEMORY_BYTES = 4 << 30

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def has_data():
    folder = os.environ.get("EBB_DATA") or os.path.join(SOURCE, "..", "shared", "data")
    return os.path.isdir(folder)


def has_userfaultfd():
    """The system call and UFFDIO_MOVE, as far as an ordinary user may use them."""
    number = {"x86_64": 323, "aarch64": 282}.get(os.uname().machine)
    if number is None:
        return False
    user_mode_only = 1
    fd = ctypes.CDLL(None).syscall(number, os.O_CLOEXEC | os.O_NONBLOCK | user_mode_only)
    if fd < 0:
        return False
    os.close(fd)
    release = [int(n) for n in re.findall(r"\d+", os.uname().release)[:2]]
    return release >= [6, 8]


def has_cgroup():
    return os.geteuid() == 0 and (os.access("/sys/fs/cgroup/memory", os.W_OK)
                                  or os.access("/sys/fs/cgroup/cgroup.subtree_control", os.W_OK))


def is_instrumented(build, sanitizers):
    with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as cache:
        return re.search(rf"^EBB_SANITIZE:.*\b({sanitizers})\b", cache.read(), re.M) is not None


def has_lab(build):
    """True if the build has src/lab."""
    with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as cache:
        return not re.search(r"^EBB_LAB:.*=OFF$", cache.read(), re.M)


def has_trainer(build):
    """True if the build has oneDNN and libebb, and is not told to leave the trainer out."""
    with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as cache:
        text = cache.read()
    return (not re.search(r"^EBB_TRAIN:.*=OFF$", text, re.M)
            and re.search(r"^DNNL_LIBRARY:.*=/", text, re.M) is not None
            and os.path.exists(os.path.join(build, "bin", "libebb.so")))


def has_gpu():
    return os.path.exists("/dev/nvidia0")


def has_mounts():
    """A mount namespace in which mounts are allowed."""
    return subprocess.run(["unshare", "-m", "true"], check=False,
                          stderr=subprocess.DEVNULL).returncode == 0


def has_sparse_files():
    """Files of 100 GiB without data."""
    try:
        with tempfile.TemporaryFile() as file:
            file.truncate(100 << 30)
        return True
    except OSError:
        return False


def has_zero_copy():
    so_zerocopy = 60
    try:
        with socket.socket() as tcp:
            tcp.setsockopt(socket.SOL_SOCKET, so_zerocopy, 1)
        return True
    except OSError:
        return False


def has_chromium():
    return bool(shutil.which("chromium") and shutil.which("chromedriver")
                and importlib.util.find_spec("selenium"))


def conditions(build):
    return {"EBB_DATA": has_data, "userfaultfd": has_userfaultfd, "cgroup": has_cgroup,
            "gpu": has_gpu, "lab": lambda: has_lab(build), "trainer": lambda: has_trainer(build),
            "chromium": has_chromium,
            **{tool: lambda tool=tool: shutil.which(tool) is not None
               for tool in ("shellcheck", "zsh", "fish", "mandoc")},
            "dataset-fashion-mnist": lambda: os.path.isdir("/usr/share/datasets/fashion-mnist"),
            "root": lambda: os.geteuid() == 0, "mounts": has_mounts,
            "memory compaction": lambda: os.access("/proc/sys/vm/compact_memory", os.W_OK),
            "two CPUs": lambda: len(os.sched_getaffinity(0)) >= 2,
            "sparse files": has_sparse_files, "MSG_ZEROCOPY": has_zero_copy,
            "/dev/userfaultfd": lambda: os.access("/dev/userfaultfd", os.R_OK | os.W_OK),
            "/dev/shm": lambda: os.path.ismount("/dev/shm"),
            "NUMA": lambda: os.path.exists("/sys/devices/system/node/node0"),
            # A file for each possible place of a store, and the usual descriptors of a process.
            "descriptors": lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 2048 + 64,
            # ThreadSanitizer starts no threads in a forked child of a threaded program.
            "threads after fork": lambda: not is_instrumented(build, "thread"),
            # These sanitizers keep a shadow of the whole address space.
            "address space": lambda: not is_instrumented(build, "thread|address")}


# The output of a program that skipped some of its tests: cmocka, or unittest at its end.
SKIPPED_SOME = r"^\[  SKIPPED \]|^OK \(.*skipped=\d"


def unexpected(needs, build):
    """The reason why a skip that names these needs is unexpected, or "" if it is expected."""
    if not needs:
        return "it does not say why"
    has = conditions(build)
    for need in needs:
        known = [name for name in has if re.match(re.escape(name) + r"(?![\w-])", need)]
        if not known:
            return f"unknown need: {need}"
        if has[known[0]]():
            return f"but {known[0]} is here"
    return ""


def folder_in_memory():
    """A folder for temporary files that waits for no disk; None: there is no room in memory."""
    left = os.statvfs("/dev/shm") if os.path.ismount("/dev/shm") else None
    with open("/proc/meminfo", encoding="utf-8") as file:
        available = int(re.search(r"MemAvailable: +(\d+)", file.read())[1]) << 10
    if not left or min(left.f_bavail * left.f_frsize, available // 2) < IN_MEMORY_BYTES:
        return None
    folder = tempfile.mkdtemp(prefix="ebb-tests-", dir="/dev/shm")
    os.chmod(folder, 0o1777)  # as /tmp: some programs change their user
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", help="a configured and built folder")
    parser.add_argument("--exclude", help="regular expression of tests to leave out")
    parser.add_argument("--only", help="regular expression of tests to run")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "junit.xml")
        command = ["ctest", "--test-dir", args.build, "--output-on-failure", "--no-tests=error",
                   "--parallel", str(HALVES), "--output-junit", report,
                   "--test-output-size-passed", "1000000"]
        if args.exclude:
            command += ["-E", args.exclude]
        if args.only:
            command += ["-R", args.only]
        in_memory = folder_in_memory()
        environment = {**os.environ, **({"TMPDIR": in_memory} if in_memory else {})}
        code = subprocess.run(command, check=False, env=environment).returncode
        if in_memory:
            shutil.rmtree(in_memory)
        if not os.path.exists(report):
            print("0 passed, 1 failed, 0 skipped")
            return code or 1
        cases = ElementTree.parse(report).getroot().findall("testcase")

    passed = failed = skipped = 0
    in_order = True
    for case in cases:
        name, status = case.get("name"), case.get("status")
        output = case.findtext("system-out") or ""
        needs = re.findall(r"^.*skipped: needs (.*)$", output, re.M)
        if status == "run":
            passed += 1
            if not needs and not re.search(SKIPPED_SOME, output, re.M):
                continue
        elif status == "notrun" and "SKIP" in (case.find("skipped").get("message") or ""):
            skipped += 1
        else:
            failed += 1
            print(f"{name}: FAILED" + (" (did not run)" if status == "notrun" else ""))
            continue
        why = unexpected(needs, args.build)
        print(f"{name}: skipped: needs {', '.join(needs) or '?'}"
              + (f" -- UNEXPECTED: {why}" if why else ""))
        in_order = in_order and not why
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 0 if failed == 0 and in_order and passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
