#!/usr/bin/python3
"""Bad input: each importer and `ebb pack` refuse each kind of damage.

The command prints one error with the place, and nothing on stdout. The exit code is 1, or 3 if the
capacity is exceeded.
"""
import os
import pickle
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))
EBB = os.path.join(os.environ.get("EBB_BIN_DIR") or os.path.join(SOURCE, "build/dev/bin"), "ebb")

RMM = "Thread,Time,Action,Pointer,Size,Stream\n"
LIMIT = 1 << 48


def rmm(*rows):
    return RMM + "".join(f"1,10:00:0{i}.0,{row},0x0\n" for i, row in enumerate(rows))


def torch(*entries):
    keys = ("action", "addr", "size")
    return pickle.dumps({"segments": [], "device_traces": [
        [dict(zip(keys, entry), stream=0, time_us=10 + i) for i, entry in enumerate(entries)]]})


def profile(*memory, end="]}"):
    """A Chrome trace with memory events of (address, bytes)."""
    return '{"traceEvents": [' + ", ".join(
        f'{{"name": "[memory]", "pid": 1, "tid": 1, "ts": {10 + i}, "args": {{"Addr": {address}, '
        f'"Bytes": {size}, "Device Type": 0, "Device Id": -1}}}}'
        for i, (address, size) in enumerate(memory)) + end


def varint(number):
    low = bytes([number & 127 | (128 if number > 127 else 0)])
    return low + varint(number >> 7) if number > 127 else low


def field(number, value):
    """A field of a protocol buffer: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def xplane(*memory):
    """An XSpace with a line of memory events, each with its statistics by name."""
    names = ("addr", "allocation_bytes")
    events = b"".join(field(4, field(1, 1) + b"".join(
        field(4, field(1, 1 + names.index(name)) + field(4, value))
        for name, value in stats.items())) for stats in memory)
    tables = field(4, field(1, 1) + field(2, field(2, b"MemoryAllocation"))) + b"".join(
        field(5, field(1, 1 + i) + field(2, field(2, name.encode())))
        for i, name in enumerate(names))
    return field(1, field(2, b"/host:CPU") + field(3, events) + tables)


def buffers(*values, ranges=("a{}:0-1",)):
    return "\n".join(["BufferAssignment:", "allocation 0: size 8, preallocated-temp:",
                      *(f" value: {value}: f32[]" for value in values),
                      "HloLiveRange (max 2):", "  BufferLiveRange:",
                      *("    " + text for text in ranges)]) + "\n"


def pools(*rows):
    return "id,lower,upper,size\n" + "".join(row + "\n" for row in rows)


# By kind of input: the defect -> the file, and the expected `why`.
BAD = {
    "singa": {
        "overlap": ("Malloc 0x1 8 1\nMalloc 0x2 8 1\nMalloc 0x1 8 2\n",
                    "line 3: block 0x1 is allocated again while it is live (line 1)"),
        "twice": ("Malloc 0x1 8 1\nFree 0x1 8 2\nFree 0x1 8 3\n",
                  "line 3: block 0x1 is freed after its end (line 2)"),
        "negative": ("Malloc 0x1 8 1\nMalloc 0x2 -8 2\n", "line 2: size '-8' is negative"),
        "huge": (f"Malloc 0x1 {LIMIT + 1} 1\n",
                 f"line 1: a block of {LIMIT + 1} bytes is impossibly large"),
        "nan": ("Malloc 0x1 NaN 1\n", "line 1: size 'NaN' is not a whole number"),
        "nan time": ("Malloc 0x1 8 nan\n", "line 1: time 'nan' is not a whole number"),
        "empty": ("", "is empty, no trace"),
    },
    "rmm": {
        "overlap": (rmm("allocate,0x1,8", "allocate,0x2,8", "allocate,0x1,8"),
                    "line 4: block 0x1 is allocated again while it is live (line 2)"),
        "twice": (rmm("allocate,0x1,8", "free,0x1,8", "free,0x1,8"),
                  "line 4: block 0x1 is freed after its end (line 3)"),
        "negative": (rmm("allocate,0x1,-8"), "line 2: size '-8' is negative"),
        "huge": (rmm(f"allocate,0x1,{LIMIT + 1}"),
                 f"line 2: a block of {LIMIT + 1} bytes is impossibly large"),
        "nan": (rmm("allocate,0x1,nan"), "line 2: size 'nan' is not a whole number"),
        "nan time": (RMM + "1,NaN,allocate,0x1,8,0x0\n", "line 2: time 'NaN' is no time of day"),
        "empty": ("", "is empty, no trace"),
        "header only": (RMM, "holds no events"),
    },
    "stalloc": {
        "overlap": ("1 0x1 8 0\n1 0x2 8 0\n1 0x1 8 0\n",
                    "line 3: block 0x1 is allocated again while it is live (line 1)"),
        "twice": ("1 0x1 8 0\n0 0x1 8 0\n0 0x1 8 0\n",
                  "line 3: block 0x1 is freed after its end (line 2)"),
        "negative": ("1 0x1 -8 0\n", "line 1: size '-8' is negative"),
        "huge": (f"1 0x1 {LIMIT + 1} 0\n",
                 f"line 1: a block of {LIMIT + 1} bytes is impossibly large"),
        "nan": ("1 0x1 nan 0\n", "line 1: size 'nan' is not a whole number"),
        "empty": ("", "is empty, no trace"),
    },
    "torch-snapshot": {
        "overlap": (torch(("alloc", 1, 8), ("alloc", 2, 8), ("alloc", 1, 8)),
                    "entry 3: block 0x1 is allocated again while it is live (entry 1)"),
        "twice": (torch(("alloc", 1, 8), ("free_completed", 1, 8), ("free_completed", 1, 8)),
                  "entry 3: block 0x1 is freed after its end (entry 2)"),
        "negative": (torch(("alloc", 1, 8), ("alloc", 2, -8)), "entry 2: size is negative"),
        "huge": (torch(("alloc", 1, LIMIT + 1)),
                 f"entry 1: a block of {LIMIT + 1} bytes is impossibly large"),
        "huger": (torch(("alloc", 1, 1 << 70)), "entry 1: size is too large"),
        "nan": (torch(("alloc", 1, float("nan"))), "entry 1: size is not a whole number"),
        "empty": ("", "is empty, no trace"),
    },
    "torch-profile": {
        "huge": (profile((1, 8), (2, LIMIT + 1)),
                 f"event 2: a block of {LIMIT + 1} bytes is impossibly large"),
        "huger": (profile((1, 1 << 70)),
                  "byte 119: no valid JSON: too big integer"),
        "nan": (profile((1, "NaN")), "byte 100: no valid JSON: invalid token near 'NaN'"),
        "half": (profile((1, 8.5)), "event 1: Bytes is not a whole number"),
        "cut": (profile((1, 8), end=""),
                f"byte {len(profile((1, 8), end=''))}: the file ends within its events"),
        "no memory": (profile(), "has no memory events: PyTorch writes them with "
                                 "profile_memory=True"),
        "no trace": ('{"a": 1}', "has no traceEvents, so it is no Chrome trace"),
        "empty": ("", "is empty, no trace"),
    },
    "xplane": {
        "huge": (xplane({"addr": 1, "allocation_bytes": 8},
                        {"addr": 2, "allocation_bytes": LIMIT + 1}),
                 f"event 2: a block of {LIMIT + 1} bytes is impossibly large"),
        "no address": (xplane({"allocation_bytes": 8}), "event 1: a memory event without addr"),
        "no size": (xplane({"addr": 8}), "event 1: a memory event without allocation_bytes"),
        "cut": (xplane({"addr": 1})[:-1],
                "byte 0: ends too early, or is no XSpace (protocol buffer)"),
        "no memory": (xplane(), "has no memory events: only the BFC allocator writes them, on "
                                "GPUs or with TF_CPU_ALLOCATOR_USE_BFC=true"),
        "empty": ("", "is empty, no trace"),
    },
    "xla": {
        "outside": (buffers("<1 a @0> (size=8,offset=1)"),
                    "line 3: a value lies outside of its allocation"),
        "twice": (buffers("<1 a @0> (size=8,offset=0)", "<1 a @0> (size=8,offset=0)"),
                  "line 4: a value has two places"),
        "negative": (buffers("<1 a @0> (size=-8,offset=0)"),
                     "line 3: a value lacks its name, size or offset"),
        "ends first": (buffers("<1 a @0> (size=8,offset=0)", ranges=("a{}:2-1",)),
                       "line 6: a live range is not FIRST-LAST"),
        "nan": (buffers("<1 a @0> (size=8,offset=0)", ranges=("a{}:0-nan",)),
                "line 6: a live range is not FIRST-LAST"),
        "no ranges": ("BufferAssignment:\n", "lacks live ranges (BufferLiveRange)"),
        "no values": (buffers(), "has no value with memory and a live range"),
        "empty": ("", "is empty, no trace"),
    },
    "pack": {
        "overlap": (pools("a,0,2,1", "b,0,2,1", "a,1,3,1"),
                    "line 4: id 'a' again, with a lifetime that overlaps that of line 2"),
        "negative": (pools("a,0,2,1", "b,0,2,-1"), "line 3: size '-1' is negative"),
        "negative time": (pools("a,-1,2,1"), "line 2: lower '-1' is negative"),
        "huge": (pools("a,0,2,99999999999999999999"),
                 "line 2: size '99999999999999999999' is too large"),
        "sum": (pools(f"a,0,2,{1 << 61}", f"b,0,2,{1 << 61}", f"c,0,2,{1 << 61}"),
                "line 3: size is too large: all together are 2^62 bytes or more"),
        "nan": (pools("a,0,nan,1"), "line 2: upper 'nan' is not a whole number"),
        "ends first": (pools("a,2,2,1"), "line 2: upper 2 is not above lower 2"),
        "empty": ("", "is empty, no packing problem"),
        "header only": (pools(), "line 1: no buffer follows the header"),
    },
}


class BadInput(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def expect(self, content, code, why, *command):
        """Runs `command` with IN replaced by the file. stderr must end in `why` and one line of
        remedy."""
        path = os.path.join(self.folder.name, "in")
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        done = subprocess.run([EBB, *(path if word == "IN" else word for word in command)],
                              capture_output=True, text=True, timeout=60, check=False,
                              cwd=self.folder.name)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        lines = done.stderr.splitlines()
        self.assertEqual(lines[0], f"ebb: {command[0]}: {path}: {why}")
        self.assertLessEqual(len(lines), 2)
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["in"])  # no other file is left

    def test_importers(self):
        for kind in ("singa", "rmm", "stalloc", "torch-snapshot", "torch-profile", "xplane", "xla"):
            for name, (content, why) in BAD[kind].items():
                with self.subTest(kind=kind, wrong=name):
                    self.expect(content, 1, why, "import", kind, "IN", "-o", "out.ebbt")

    def test_what_reads_a_trace(self):
        for kind, wrong in (("singa", "overlap"), ("rmm", "overlap"), ("stalloc", "overlap"),
                            ("torch-snapshot", "overlap"), ("torch-profile", "huge"),
                            ("xplane", "huge"), ("xla", "outside")):
            content, why = BAD[kind][wrong]
            for command in (["info"], ["plan", "--budget", "50%"], ["pack"], ["compare"]):
                with self.subTest(kind=kind, command=command[0]):
                    self.expect(content, 1, why, command[0], "IN", *command[1:])

    def test_pack(self):
        for name, (content, why) in BAD["pack"].items():
            with self.subTest(wrong=name):
                self.expect(content, 1, why, "pack", "IN")

    def test_capacity_below_the_largest_buffer(self):
        self.expect(pools("a,0,4,4", "b,2,7,6"), 3, "line 3: buffer 'b' of 6 B is larger than the "
                    "capacity of 5 B", "pack", "IN", "--capacity", "5")


if __name__ == "__main__":
    if os.environ.get("EBB_LAB") == "OFF":
        print("skipped: needs lab")
        sys.exit(77)
    sys.exit(unittest.main())
