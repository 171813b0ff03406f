"""The common part of paired benchmarks: machine, tuned allocators, memory cgroups, swap, one
run."""
import datetime
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.append(os.path.join(SOURCE, "tests"))
from devices import DEVICES  # noqa: E402,F401  pylint: disable=wrong-import-position,unused-import

MIB = 1 << 20
LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")


def first_line(path, pattern, default=None):
    try:
        with open(path, encoding="utf-8") as file:
            match = re.search(pattern, file.read(), re.M)
            return match.group(1).strip() if match else default
    except OSError:
        return default


def machine(store):
    memory_kib = int(first_line("/proc/meminfo", r"^MemTotal:\s+(\d+)", "0"))
    return {
        "cpu": first_line("/proc/cpuinfo", r"^model name\s*:\s*(.*)$", platform.processor()),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory_kib * 1024,
        "kernel": platform.release(),
        "transparent_hugepages": first_line("/sys/kernel/mm/transparent_hugepage/enabled",
                                            r"\[(\w+)\]"),
        "swap_bytes": int(first_line("/proc/meminfo", r"^SwapTotal:\s+(\d+)", "0")) * 1024,
        "file_system": subprocess.run(["stat", "-f", "-c", "%T", store], check=False,
                                      capture_output=True, text=True).stdout.strip(),
        "load_before": os.getloadavg()[0],
    }


def provenance(store):
    """The begin of each report, for bench/report.py: command, date, machine."""
    command = [os.path.relpath(sys.argv[0], SOURCE), *sys.argv[1:]]
    return {"command": shlex.join(command),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "machine": machine(store)}


# --- allocators ------------------------------------------------------------------------------


def library(name):
    for folder in LIBRARIES:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return path
    return None


def allocators():
    """Environments of the tuned allocators that this machine has, by name. They use huge pages and
    return no memory to the system."""
    found = {}
    jemalloc, mimalloc = library("libjemalloc.so.2"), library("libmimalloc.so.2")
    if not jemalloc:
        sys.exit("libjemalloc2 is missing: run 'make deps'")
    found["jemalloc"] = {"LD_PRELOAD": jemalloc,
                         "MALLOC_CONF": "thp:always,dirty_decay_ms:-1,muzzy_decay_ms:-1"}
    if mimalloc:
        found["mimalloc"] = {"LD_PRELOAD": mimalloc, "MIMALLOC_ALLOW_LARGE_OS_PAGES": "1",
                             "MIMALLOC_RESERVE_OS_MEMORY": "4GiB", "MIMALLOC_PAGE_RESET": "0"}
    # One heap, no trimming, and no mmap: large blocks would be mapped and unmapped each time.
    found["glibc"] = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
                      "MALLOC_TOP_PAD_": str(64 * MIB), "MALLOC_ARENA_MAX": "1",
                      "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    return found


# --- memory cgroups --------------------------------------------------------------------------


class Cgroup:
    """A memory cgroup (version 1 or 2) with that limit, without swap or with unlimited swap."""

    def __init__(self, limit_bytes, swap=False):
        self.path = None
        self.version = 1 if os.path.isdir("/sys/fs/cgroup/memory") else 2
        root = "/sys/fs/cgroup/memory" if self.version == 1 else "/sys/fs/cgroup"
        path = os.path.join(root, f"ebb-bench-{os.getpid()}-{time.monotonic_ns()}")
        try:
            if self.version == 2:
                self.write(os.path.join(root, "cgroup.subtree_control"), "+memory")
            os.mkdir(path)
            self.path = path
            if self.version == 1:
                self.write("memory.limit_in_bytes", limit_bytes)
                if not swap:
                    if os.path.exists(os.path.join(path, "memory.memsw.limit_in_bytes")):
                        self.write("memory.memsw.limit_in_bytes", limit_bytes)
                    self.write("memory.swappiness", 0)
            else:
                self.write("memory.max", limit_bytes)
                if not swap:
                    self.write("memory.swap.max", 0)
        except OSError as error:
            self.close()
            raise RuntimeError(f"no memory cgroup: {error}") from error

    def write(self, name, value):
        with open(os.path.join(self.path or "", name), "w", encoding="utf-8") as file:
            file.write(str(value))

    def read(self, name):
        try:
            with open(os.path.join(self.path, name), encoding="utf-8") as file:
                return file.read()
        except OSError:
            return ""

    def enter(self):
        """Runs in the child, before exec."""
        with open(os.path.join(self.path, "cgroup.procs"), "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))

    def peak_bytes(self):
        text = self.read("memory.max_usage_in_bytes" if self.version == 1 else "memory.peak")
        return int(text) if text.strip().isdigit() else None

    def kills(self):
        text = self.read("memory.oom_control" if self.version == 1 else "memory.events")
        match = re.search(r"oom_kill (\d+)", text)
        return int(match.group(1)) if match else None

    def close(self):
        if self.path and os.path.isdir(self.path):
            for _ in range(50):
                try:
                    os.rmdir(self.path)
                    return
                except OSError:
                    time.sleep(0.1)


# --- the kernel's swap -----------------------------------------------------------------------


def shell(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Swap:
    """Swap during a `with`: a file in the store's folder, or zram. Needs root."""

    def __init__(self, kind, folder, size_bytes):
        self.kind, self.folder, self.size_bytes = kind, folder, size_bytes
        self.device = None

    def __enter__(self):
        try:
            if self.kind == "zram":
                number = first_line("/sys/class/zram-control/hot_add", r"(\d+)")
                if number is None:
                    raise OSError("this kernel has no zram")
                self.device = f"/dev/zram{number}"
                with open(f"/sys/block/zram{number}/disksize", "w", encoding="utf-8") as file:
                    file.write(str(self.size_bytes))
            else:
                self.device = os.path.join(self.folder, f"ebb-bench-{os.getpid()}.swap")
                with open(self.device, "wb") as file:
                    os.chmod(self.device, 0o600)
                    os.posix_fallocate(file.fileno(), 0, self.size_bytes)
            shell("/sbin/mkswap", self.device)
            shell("/sbin/swapon", "--priority", "100", self.device)
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            raise RuntimeError(f"no {self.kind} swap: {error}") from error
        return self

    def compressed_bytes(self):
        """The most memory that zram itself has used, which is outside the cgroup's limit."""
        if self.kind != "zram":
            return 0
        return int(first_line(f"/sys/block/{os.path.basename(self.device)}/mm_stat",
                              r"^\s*(?:\d+\s+){4}(\d+)", "0"))

    def __exit__(self, *_):
        if not self.device:
            return
        subprocess.run(["/sbin/swapoff", self.device], check=False, capture_output=True)
        if self.kind == "zram":
            with open("/sys/class/zram-control/hot_remove", "w", encoding="utf-8") as file:
                file.write(self.device[len("/dev/zram"):])
        elif os.path.exists(self.device):
            os.unlink(self.device)
        self.device = None


# --- one run ---------------------------------------------------------------------------------


def run(command, env, cgroup=None, limit_s=None):
    """Runs a command to its end. Returns losses and seconds of each iteration, exit code, and peak
    RSS by wait4. After limit_s it is killed, and its output so far counts."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=err, preexec_fn=cgroup.enter if cgroup else None)
        timed_out = False
        if limit_s:
            try:
                # Looks without reaping, since wait4 takes the usage below.
                deadline = started + limit_s
                while not os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
                    if time.monotonic() > deadline:
                        timed_out = True
                        process.kill()
                        break
                    time.sleep(0.2)
            except ChildProcessError:
                pass
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        text, errors = out.read().decode(), err.read().decode(errors="replace")
    rows = [line.split() for line in text.splitlines() if line.startswith("iteration ")]
    rows = [row for row in rows if len(row) >= 6]
    return {
        "exit_code": process.returncode,
        "timed_out": timed_out,
        "elapsed_s": round(time.monotonic() - started, 3),
        "peak_rss_bytes": usage.ru_maxrss * 1024,
        "losses": [row[3] for row in rows],
        "seconds": [float(row[5]) for row in rows],
        "stderr": errors[-2000:],
    }
