#!/usr/bin/python3
"""`ebb import` and each command that reads a trace, on files of other tools.

Checks the output and the exit codes, and that a hostile pickle executes nothing.
"""
import gzip
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import unittest

EBB = os.path.join(os.environ.get("EBB_BIN_DIR", "build/dev/bin"), "ebb")
TRACES = os.path.join(os.environ.get("EBB_SOURCE_DIR", "."), "tests", "traces")
MIB = 1 << 20


def run(*arguments):
    done = subprocess.run([EBB, *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def entry(action, addr, size, time_us):
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time_us,
            "frames": [{"name": "f", "filename": "a.py", "line": 3}]}


def snapshot():
    """Four iterations of three blocks each, and a weight that is older than the recorded
    history."""
    base, time_us, trace = 0x7F0000000000, 1_700_000_000_000_000, []
    for _ in range(4):
        for i, mib in enumerate((4, 8, 2)):
            time_us += 10
            trace.append(entry("alloc", base + (i + 1) * 64 * MIB, mib * MIB, time_us))
        for i, mib in enumerate((4, 8, 2)):
            time_us += 10
            addr = base + (i + 1) * 64 * MIB
            trace.append(entry("free_requested", addr, mib * MIB, time_us))
            trace.append(entry("free_completed", addr, mib * MIB, time_us))
    segment = {"device": 0, "address": base, "total_size": 20 * MIB, "stream": 0,
               "blocks": [{"address": base, "size": 16 * MIB, "requested_size": 16 * MIB - 100,
                           "state": "active_allocated", "frames": []},
                          {"address": base + 16 * MIB, "size": 4 * MIB, "requested_size": 0,
                           "state": "inactive", "frames": []}]}
    other = dict(segment, device=1, address=1 << 20)
    return {"segments": [segment, other], "device_traces": [trace, [entry("oom", 0, 1, 1)]],
            "allocator_settings": {"expandable_segments": False, "limits": (1, 2.5, None, -1)}}


class Hostile:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


class Import(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name, content=None):
        path = os.path.join(self.folder.name, name)
        if content is not None:
            with open(path, "wb") as file:
                file.write(content)
        return path

    def info(self, path):
        code, out, err = run("info", "--json", path)
        self.assertEqual((code, err), (0, ""))
        return json.loads(out)

    def test_snapshots(self):
        for protocol in (2, 3, 4, 5):
            data = pickle.dumps(snapshot(), protocol=protocol)
            found = self.info(self.path("snapshot.pickle", data))
            self.assertEqual(found["events"], 25)
            self.assertEqual(found["blocks"], 13)
            self.assertEqual(found["iterations"], 4)
            self.assertEqual(found["period_events"], 6)
            self.assertEqual(found["peak_bytes"], 30 * MIB - 100)

    def test_real_snapshots(self):
        """Of a training on a GPU, the second with expandable segments. The profile of the same
        program, torch-profile-cuda.json.gz, has the same peak. There sizes are rounded."""
        highest, _, _ = self.profiled("torch-profile-cuda.json.gz", 1)
        for name in ("torch-snapshot.pickle.gz", "torch-snapshot-expandable.pickle.gz"):
            found = self.info(os.path.join(TRACES, name))
            self.assertEqual((found["iterations"], found["events"]), (3, 388))
            self.assertLess(abs(found["peak_bytes"] - highest), highest // 100)

    def test_devices_of_snapshots(self):
        two = snapshot()
        two["device_traces"][1] = two["device_traces"][0][:9]
        source, out = self.path("two.pickle", pickle.dumps(two)), self.path("x.ebbt")
        code, text, err = run("import", "torch-snapshot", source, "-o", out)
        self.assertEqual((code, text), (1, ""))
        self.assertEqual(err.splitlines()[0], f"ebb: import: {source}: has several devices: "
                                              "cuda:0 (24 events), cuda:1 (6 events)")
        for device, blocks in (("cuda:0", 13), ("cuda:1", 4), ("1", 4)):
            command = ("import", "torch-snapshot", source, "-fo", out, "--device", device)
            self.assertEqual(run(*command), (0, "", ""))
            self.assertEqual(self.info(out)["blocks"], blocks)
        code, _, err = run("import", "torch-snapshot", source, "-fo", out, "--device", "cuda:2")
        self.assertEqual(code, 2)
        self.assertIn("has no device 'cuda:2'; it has cuda:0 (24 events), cuda:1", err)

    def test_unreadable_snapshots(self):
        """The version that wrote the file is named, as far as the file tells."""
        def refused(data, why, remedy):
            source, out = self.path("bad.pickle", data), self.path("x.ebbt")
            code, text, err = run("import", "torch-snapshot", source, "-o", out)
            self.assertEqual((code, text), (1, ""))
            lines = err.splitlines()
            self.assertEqual(lines[0], f"ebb: import: {source}: {why}")
            self.assertIn(remedy, lines[1])
            self.assertFalse(os.path.exists(out))
        new = snapshot()
        new["device_traces"][0][2].update(size=-1)
        new["device_traces"][0][0].update(user_metadata="", compile_context="N/A")
        refused(pickle.dumps(new), "entry 3: size is negative",
                "pickle protocol 4, with the fields of PyTorch 2.10 or later")
        new["device_traces"][0][0]["pool_id"] = (0, 0)
        refused(pickle.dumps(new, protocol=2), "entry 3: size is negative",
                "pickle protocol 2, with the fields of PyTorch 2.12 or later")
        refused(pickle.dumps(snapshot()["segments"]),
                "no memory snapshot with a history (device_traces)", "PyTorch 1.x")
        refused(pickle.dumps({"segments": [], "device_traces": [[], []]}),
                "its history is empty: call torch.cuda.memory._record_memory_history() before the "
                "training", "pickle protocol 4")
        refused(b"\x80\x07N.", "byte 1: pickle protocol 7 is not known, 2 to 5 are",
                "pickle protocol 7")
        refused(pickle.dumps(snapshot(), protocol=0),
                "byte 0: no pickle of protocol 2 or later begins like this", "docs/formats")

    def test_nothing_is_executed(self):
        sign = self.path("executed")
        for protocol in (0, 1, 2, 3, 4, 5):
            for hostile in (Hostile(f"touch {sign}"), {"device_traces": Hostile(f"touch {sign}")}):
                path = self.path("hostile.pickle", pickle.dumps(hostile, protocol=protocol))
                code, out, err = run("import", "torch-snapshot", path, "-o", self.path("x.ebbt"))
                self.assertEqual((code, out), (1, ""))
                self.assertRegex(err, r"\Aebb: import: .*hostile.pickle: byte \d+: ")
                self.assertFalse(os.path.exists(sign))
                self.assertFalse(os.path.exists(self.path("x.ebbt")))

    def test_kinds_convert(self):
        rows = [f"1,10:00:{i:02}.5,{action},0x{1 + k:x}00,{(k + 1) * MIB},0x0"
                for i in range(3) for action in ("allocate", "free") for k in range(3)]
        rmm = "Thread,Time,Action,Pointer,Size,Stream\n" + "\n".join(rows) + "\n"
        stalloc = "".join(
            f"Iteration Index : {i}\nmicro-batch : F\n1 0x7f00 {MIB} 0\n1 0x7e00 {MIB} 0\n"
            f"micro-batch : B\n0 0x7f00 {MIB} 0\n0 0x7e00 {MIB} 0\n" for i in range(3))
        stalloc += "Iteration Index : end\n"
        singa = "".join(
            f"Malloc 0x1 64 {i}00\nMutable 0x1 64 {i}10\nMutable 0x2 32 {i}20\nMalloc 0x3 8 {i}25\n"
            f"Read 0x1 64 {i}30\nFree 0x1 64 {i}40\nFree 0x3 8 {i}45\n" for i in range(1, 5))
        for kind, text, period, iterations in (("rmm", rmm, 6, 3), ("stalloc", stalloc, 6, 3),
                                               ("singa", singa, 7, 4)):
            source, out = self.path(kind, text.encode()), self.path(kind + ".ebbt")
            self.assertEqual(run("import", kind, source, "-fo", out), (0, "", ""))
            direct, converted = self.info(source), self.info(out)
            for found in (direct, converted):
                found.pop("detect_ns")
                self.assertEqual(found["period_events"], period)
                self.assertEqual(found["iterations"], iterations)
            self.assertEqual(direct, converted)

    def profiled(self, name, device_type):
        """What the profiler itself says of a device: its highest total, its total at the start,
        and the blocks that are freed without an allocation."""
        with gzip.open(os.path.join(TRACES, name)) as file:
            events = json.load(file)["traceEvents"]
        memory = sorted((event["ts"], event["args"]) for event in events
                        if event["name"] == "[memory]" and
                        event["args"]["Device Type"] == device_type)
        memory = [args for _, args in memory]
        totals = [args["Total Allocated"] for args in memory]
        live, older = set(), []
        for args in memory:
            if args["Bytes"] > 0:
                live.add(args["Addr"])
            elif args["Addr"] in live:
                live.remove(args["Addr"])
            else:
                older.append(-args["Bytes"])
        return max(totals), totals[0] - memory[0]["Bytes"], older

    def test_profiles(self):
        """The peak is that of the profiler, and blocks older than the window are reported."""
        for name, device, kind, iterations in (("torch-profile-cpu.json.gz", "cpu", 0, 0),
                                               ("torch-profile-cuda.json.gz", "cpu", 0, 3),
                                               ("torch-profile-cuda.json.gz", "cuda:0", 1, 2)):
            out = self.path("profile.ebbt")
            code, text, err = run("import", "torch-profile", os.path.join(TRACES, name), "-fo", out,
                                  "--device", device)
            self.assertEqual((code, text), (0, ""))
            highest, start, older = self.profiled(name, kind)
            found = self.info(out)
            self.assertEqual(found["existing_blocks"], len(older))
            self.assertEqual(found["existing_bytes"], sum(older))
            self.assertEqual(found["peak_bytes"], highest - start + sum(older))
            self.assertEqual(found["iterations"], iterations)
            self.assertEqual(f"{len(older)} blocks, " in err, bool(older))
            self.assertNotIn("add up", err)

    def test_several_devices(self):
        source, out = os.path.join(TRACES, "torch-profile-cuda.json.gz"), self.path("x.ebbt")
        code, text, err = run("import", "torch-profile", source, "-fo", out)
        self.assertEqual((code, text), (1, ""))
        self.assertEqual(err.splitlines(), [
            f"ebb: import: {source}: has several devices: cpu (258 events), cuda:0 (271 events)",
            "ebb: choose one: 'ebb import KIND IN -o FILE --device cpu'"])
        code, _, err = run("import", "torch-profile", source, "-fo", out, "--device", "cuda:7")
        self.assertEqual(code, 2)
        self.assertIn("has no device 'cuda:7'; it has cpu (258 events), cuda:0 (271 events)", err)
        singa = self.path("singa", b"Malloc 0x1 8 1\nFree 0x1 8 2\n")
        code, _, err = run("import", "singa", singa, "-o", out, "--device", "cpu")
        self.assertEqual((code, err), (
            2, f"ebb: import: {singa}: a trace of kind 'singa' names no devices\n"))
        self.assertFalse(os.path.exists(out))

    def test_xplanes(self):
        """Peaks by the allocator's own peak_bytes_in_use, less what is in no event. TensorFlow's
        counts whole chunks, so the peak of what was asked for is below it."""
        for name, peak, older, iterations in (
                ("jax-gpu.xplane.pb.gz", 123_732_224 - 512 * 1024, (1, MIB), 16),
                ("tensorflow-bfc.xplane.pb.gz", 337_956, (3, 70_664), 4)):
            out = self.path("xplane.ebbt")
            code, text, err = run("import", "xplane", os.path.join(TRACES, name), "-fo", out)
            self.assertEqual((code, text), (0, ""))
            found = self.info(out)
            self.assertEqual(found["peak_bytes"], peak)
            self.assertEqual((found["existing_blocks"], found["existing_bytes"]), older)
            self.assertEqual(found["iterations"], iterations)
            self.assertIn("older than the window", err)
            self.assertNotIn("add up", err)

    def test_buffer_assignments(self):
        """The load never exceeds XLA's allocations, and comes near them. Each buffer of a run is
        used, and only what a module is given lasts."""
        for name, lasting in (("jax-buffers.txt.gz", 11), ("jax-loop-buffers.txt.gz", 9),
                              ("tensorflow-buffers.txt.gz", 1)):
            out = self.path("xla.ebbt")
            source = os.path.join(TRACES, name)
            self.assertEqual(run("import", "xla", source, "-fo", out), (0, "", ""))
            found = self.info(out)
            self.assertEqual(found["iterations"], 3)
            self.assertTrue(found["accesses"])
            with gzip.open(source, "rt") as file:
                lines = re.findall(r"^allocation \d+: size (\d+), (.*)$", file.read(), re.M)
            sizes = [int(size) for size, what in lines if "thread-local" not in what]
            self.assertEqual(lasting, sum("parameter" in what or "constant" in what
                                          for _, what in lines))
            self.assertLessEqual(found["peak_bytes"], sum(sizes))
            self.assertGreater(found["peak_bytes"], 0.9 * sum(sizes))

    def test_parts_of_buffer_assignments(self):
        """Newer releases write a section a file. Without one the message says which is missing.
        The order does not matter, and without uses there are no accesses."""
        with gzip.open(os.path.join(TRACES, "tensorflow-buffers.txt.gz")) as file:
            whole = file.read()
        uses, ranges = whole.index(b"Used values:"), whole.index(b"HloLiveRange")
        parts = whole[:uses], whole[uses:ranges], whole[ranges:]
        out = self.path("x.ebbt")
        for present, why in (((0, 1), "lacks live ranges (BufferLiveRange)"),
                             ((2, 1), "lacks a buffer assignment (BufferAssignment)")):
            source = self.path("part", b"".join(parts[i] for i in present))
            for command in (["import", "xla", source, "-fo", out], ["info", source]):
                code, text, err = run(*command)
                self.assertEqual((code, text), (1, ""))
                self.assertIn(f"part: {why}", err.splitlines()[0])
                self.assertIn("M-live-range.txt", err.splitlines()[1])
        self.assertFalse(os.path.exists(out))
        found = self.info(self.path("order", parts[2] + parts[1] + parts[0]))
        self.assertEqual(dict(found, detect_ns=0),
                         dict(self.info(self.path("whole", whole)), detect_ns=0))
        source = self.path("part", parts[0] + parts[2])
        code, text, err = run("import", "xla", source, "-fo", out)
        self.assertEqual((code, text), (0, ""))
        self.assertEqual(err, f"ebb: import: {source}: there are no accesses, since it lacks the "
                              "uses (Used values)\n")
        self.assertFalse(self.info(out)["accesses"])
        damaged = whole.replace(b"offset=0", b"offset=9", 1)
        code, text, err = run("import", "xla", self.path("bad", damaged), "-fo", out)
        self.assertEqual((code, text), (1, ""))
        self.assertIn("bad: line 3: a value lies outside of its allocation", err)

    def test_without_lifetimes(self):
        source, out = os.path.join(TRACES, "jax-memory.prof.gz"), self.path("x.ebbt")
        for command in (["import", "xplane", source, "-o", out], ["info", source]):
            code, text, err = run(*command)
            self.assertEqual((code, text), (1, ""))
            self.assertIn("is a pprof profile", err.splitlines()[0])
            self.assertIn("without lifetimes", err.splitlines()[0])
        self.assertFalse(os.path.exists(out))

    def test_damaged_profiles(self):
        """A file that is cut anywhere is refused in one line, and nothing is written."""
        out = self.path("x.ebbt")
        for kind, name in (("torch-profile", "torch-profile-cpu.json.gz"),
                           ("xplane", "tensorflow-bfc.xplane.pb.gz")):
            with open(os.path.join(TRACES, name), "rb") as file:
                packed = file.read()
            plain = gzip.decompress(packed)
            for data in [whole[:len(whole) * i // 7] for i in range(1, 7)
                         for whole in (packed, plain)]:
                path = self.path("cut", data)
                for command in (["import", kind, path, "-o", out], ["info", path]):
                    code, text, err = run(*command)
                    self.assertEqual((code, text), (1, ""))
                    self.assertRegex(err.splitlines()[0],
                                     r"cut: (byte \d+: (the file )?ends|not an Ebb trace)")
        self.assertFalse(os.path.exists(out))

    def test_errors(self):
        bad = self.path("bad.csv", b"Malloc 0x1 8 1\nMalloc 0x1 8 2\n")
        for command in (["info", bad], ["plan", bad, "--budget", "50%"],
                        ["import", "singa", bad, "-o", self.path("x.ebbt")]):
            code, out, err = run(*command)
            self.assertEqual((code, out), (1, ""))
            self.assertEqual(err.splitlines(), [
                f"ebb: {command[0]}: {bad}: line 2: block 0x1 is allocated again while it is live "
                "(line 1)", "ebb: docs/formats/import.md says what 'singa' reads"])
        empty = self.path("empty", b"")
        code, _, err = run("import", "rmm", empty, "-o", self.path("x.ebbt"))
        self.assertEqual((code, err.splitlines()[0]),
                         (1, f"ebb: import: {empty}: is empty, no trace"))
        self.assertFalse(os.path.exists(self.path("x.ebbt")))
        self.assertEqual(run("import", "rmm", self.path("no-such"), "-o", "x")[0], 1)
        self.assertEqual(run("import", "what", bad, "-o", "x")[0], 2)
        self.assertEqual(run("import", "singa", bad)[0], 2)
        self.assertEqual(run("import", "singa", bad, bad, "-o", "x")[0], 2)
        good = self.path("good.csv", b"Malloc 0x1 8 1\nFree 0x1 8 2\n")
        code, out, err = run("import", "singa", good, "-o", self.path("no/such/folder"))
        self.assertEqual((code, out), (1, ""))
        self.assertRegex(err, r"\Aebb: import: .*no/such/folder: ")
        code, out, _ = run("import", "--help")
        self.assertEqual(code, 0)
        for kind in ("singa", "rmm", "stalloc", "torch-snapshot", "torch-profile", "xplane", "xla"):
            self.assertIn(f"  {kind} ", out)


if __name__ == "__main__":
    if os.environ.get("EBB_LAB") == "OFF":
        print("skipped: needs lab")
        sys.exit(77)
    sys.exit(unittest.main())
