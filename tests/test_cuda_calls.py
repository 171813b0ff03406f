#!/usr/bin/python3
"""What the engine hears of each call of the CUDA driver, in all its forms.

tests/programs/cuda_calls.c makes the calls, on the fake driver, through the library with the engine
that writes down what it hears (cuda_double.c). In the lists below, `1`, `2` and `s` are streams: the
legacy one, that of the thread, another one. Each begin has its end at once, unless stated otherwise.
"""
import os
import re
import shutil
import sys
import tempfile
import unittest

import launching
from launching import BIN, SOURCE, compile_c
from test_cuda_door import DOOR, run, standin

ALONE = os.path.join(BIN, "libebb_cuda_alone.so")
FAKE = os.path.join(os.path.dirname(BIN), "tests", "fakecuda", "libfakecuda.so")

HEARD = {
    "memory": """
        alloc 0 1000 stream -1 -> 1
        alloc 0 3072 stream -1 -> 2
        alloc 0 3000 stream 1 -> 3
        alloc 0 4000 stream 2 -> 4
        alloc 0 5000 stream 2 -> 5
        alloc 0 6000 stream 1 -> 6
        alloc 0 9001 stream 1 -> 7
        synchronized 0 -1
        alloc 0 2097152 stream -1 -> 0
        free 0 b1 stream -1 wrong
        free 0 b1 stream -1
        free 0 b0 stream -1 wrong
        free 0 b3 stream 1
        free 0 b4 stream 2
        free 0 b5 stream 2""",
    "launches": """
        alloc 0 4096 stream -1 -> 1
        alloc 0 8192 stream -1 -> 2
        begin 0 kernel stream 1 name yes: b1+0:0:rw b2+100:0:rw
        begin 0 kernel stream 2 name yes: b1+0:0:rw b2+100:0:rw
        begin 0 kernel stream 2 name yes: b1+0:0:rw
        begin 0 kernel stream 1 name yes: b2+0:0:rw b1+0:0:rw
        begin 0 kernel stream 2 name yes: b1+0:0:rw
        begin 0 kernel stream 1 name yes: b2+0:0:rw b1+0:0:rw
        begin 0 kernel stream 1 name yes: b1+0:0:rw b2+100:0:rw
        failed
        synchronized 0 0 all
        begin 0 kernel stream 1 name yes: b1+0:0:rw b2+100:0:rw
        begin 0 kernel stream 1 name yes: b1+0:0:rw b2+100:0:rw
        synchronized 0 0 all""",
    "copies": """
        alloc 0 65536 stream -1 -> 1
        alloc 0 65536 stream -1 -> 2
        begin 0 copy stream 1 waits name no: b2+1:101:r b1+0:101:w
        begin 0 copy stream 2 name no: b2+2:102:r b1+0:102:w
        begin 0 copy stream 1 waits name no: b1+3:103:w
        begin 0 copy stream 2 name no: b1+4:104:w
        begin 0 copy stream 1 waits name no: b1+5:105:r
        begin 0 copy stream 2 name no: b1+6:106:r
        begin 0 copy stream 1 waits name no: b2+7:107:r b1+0:107:w
        begin 0 copy stream 2 name no: b2+8:108:r b1+0:108:w
        begin 0 copy stream 2 waits name no: b2+9:109:r b1+0:109:w
        begin 0 copy stream 2 name no: b2+10:110:r b1+0:110:w
        begin 0 copy stream 1 waits name no: b2+11:111:r b1+0:111:w
        begin 0 copy stream 2 name no: b2+12:112:r b1+0:112:w
        begin 0 copy stream 1 waits name no: b1+1034:1636:r
        begin 0 copy stream 2 name no: b1+1034:1636:r
        begin 0 copy stream 1 waits name no: b1+1034:1636:r b2+788:868:w
        begin 0 copy stream 1 waits name no: b1+1101:2450:r b2+0:1330:w
        begin 0 copy stream 2 name no: b1+1101:2450:r b2+0:1330:w
        begin 0 copy stream 1 waits name no: b1+0:2450:r b2+0:1330:w
        begin 0 copy stream 2 name no: b1+0:2450:r b2+0:1330:w
        begin 0 copy stream 2 name no: b2+0:11:r b1+0:11:w b2+2000:12:r b1+1000:12:w
        begin 0 copy stream 2 name no: b2+0:11:r b1+0:11:w b2+2000:12:r b1+1000:12:w
        begin 0 copy stream 2 name no: b1+0:2450:r b2+0:750:w
        failed
        begin 0 copy stream 2 name no: b1+0:2450:r b2+0:750:w
        failed
        synchronized 0 0 all""",
    "sets": """
        alloc 0 65536 stream -1 -> 1
        begin 0 set stream 1 name no: b1+0:100:w
        begin 0 set stream 1 name no: b1+2:200:w
        begin 0 set stream 1 name no: b1+4:400:w
        begin 0 set stream 2 name no: b1+0:101:w
        begin 0 set stream 2 name no: b1+0:202:w
        begin 0 set stream 2 name no: b1+0:404:w
        begin 0 set stream 1 name no: b1+0:1034:w
        begin 0 set stream 1 name no: b1+0:1044:w
        begin 0 set stream 1 name no: b1+0:1064:w
        begin 0 set stream 2 name no: b1+0:1035:w
        begin 0 set stream 2 name no: b1+0:1046:w
        begin 0 set stream 2 name no: b1+0:1068:w
        synchronized 0 0 all""",
    "words": """
        alloc 0 4096 stream -1 -> 1
        alloc 0 5000 stream -1 -> 2
        begin 0 set stream 1 name no: b1+0:4096:w
        begin 0 set stream 1 name no: b2+0:5000:w
        keep 0 b1 4096
        keep 0 b1 4096
        keep 0 b1 4096
        keep 0 b1 4096
        keep 0 b2 5000
        keep 0 b1 4096
        synchronized 0 0 all""",
    "streams": """
        alloc 0 4096 stream -1 -> 1
        begin 0 set stream 2 name no: b1+0:10:w
        synchronized 0 2
        synchronized 0 1
        synchronized 0 2
        synchronized 0 -1
        begin 0 set stream s captured name no: b1+0:20:w
        begin 0 set stream s name no: b1+0:30:w
        begin 0 set stream s name no: b1+0:40:w
        stream ends 0 its
        synchronized 0 0 all""",
    "graphs": """
        alloc 0 4096 stream -1 -> 1
        alloc 0 4096 stream -1 -> 2
        alloc 0 4096 stream -1 -> 3
        alloc 0 4096 stream -1 -> 4
        begin 0 graph stream 1 name yes: b1+0:0:rw b2+0:0:rw b3+0:0:rw
        begin 0 graph stream 2 name yes: b1+0:0:rw b2+0:0:rw b3+0:0:rw
        begin 0 graph stream 2 name yes: b1+0:0:rw b3+0:0:rw b4+0:0:rw
        synchronized 0 0 all
        alloc 0 5000 stream -1 -> 5
        free 0 b4 stream -1
        begin 0 graph stream 1 name yes: b1+0:0:rw b3+0:0:rw b5+0:0:rw
        begin 0 graph stream 1 name yes: b1+0:0:rw b2+0:0:rw b3+0:0:rw
        synchronized 0 0 all""",
    "addresses": """
        alloc 0 5000 stream -1 -> 1""",
    "exclusions": """
        alloc 0 5000 stream -1 -> 1""",
    "placement": """
        alloc 0 5000 stream -1 -> 1
        synchronized 0 0 all""",
    "payload": """
        alloc 0 131072 stream -1 -> 1
        alloc 0 4096 stream -1 -> 2
        alloc 0 4096 stream -1 -> 3
        reach 0 b2
        begin 0 copy stream 1 waits name no: b1+0:32:w
        begin 0 copy stream 1 waits name no: b1+0:20:w
        reach 0 b3
        begin 0 copy stream 1 name no: b1+0:4096:w
        reach 0 b3
        begin 0 copy stream 1 name no: b1+0:4096:w
        begin 0 copy stream 1 waits name no: b2+0:64:r b1+0:64:w
        begin 0 copy stream 1 waits name no: b1+0:131072:w
        reach 0 b2
        reach 0 b1
        synchronized 0 0 all""",
    "payload_boxes": """
        alloc 0 131072 stream -1 -> 1
        alloc 0 4096 stream -1 -> 2
        alloc 0 4096 stream -1 -> 3
        reach 0 b3
        begin 0 copy stream 1 waits name no: b1+0:48:w
        reach 0 b3
        begin 0 copy stream 2 name no: b1+0:48:w
        synchronized 0 2
        reach 0 b3
        begin 0 copy stream 2 name no: b1+0:16:w b2+0:10:r b1+100:10:w
        synchronized 0 2
        reach 0 b3
        reach 0 b3
        synchronized 0 0 all""",
    "contexts": """
        alloc 0 4096 stream -1 -> 1
        begin 0 set stream 1 name no: b1+0:10:w
        leave 0
        abandon 0
        create 0
        serve 0
        alloc 0 5000 stream -1 -> 2
        begin 0 set stream 1 name no: b2+0:10:w
        synchronized 0 0 all
        free 0 b2 stream -1""",
    "devices": """
        alloc 0 4096 stream -1 -> 1
        attach 1
        create 1
        serve 1
        alloc 1 8192 stream -1 -> 2
        begin 1 set stream 1 name no: b2+0:10:w
        begin 0 copy stream 1 waits name no: b1+0:100:r
        begin 1 copy stream 1 waits name no: b2+0:100:w
        begin 0 kernel stream s name yes: b1+0:0:rw
        begin 1 kernel stream s name yes: b2+0:0:rw
        begin 1 kernel stream s name yes: b2+0:0:rw b2+0:0:rw
        synchronized 1 0 all
        synchronized 1 1
        synchronized 0 1
        alloc 1 6000 stream s -> 3
        free 1 b3 stream s
        free 0 b1 stream -1
        free 1 b2 stream -1""",
    "peers": """
        alloc 0 4096 stream -1 -> 1
        attach 1
        create 1
        serve 1
        alloc 1 8192 stream -1 -> 2
        begin 0 copy stream s name no: b1+2:11:r
        begin 1 copy stream s name no: b2+1:11:w
        begin 0 copy stream s name no: b1+3:12:w
        begin 1 copy stream s name no: b2+4:12:r
        begin 1 copy stream s name no: b2+5:13:w
        begin 0 copy stream 1 waits name no: b1+6:14:r
        begin 0 copy stream s name no: b1+0:21:r
        begin 1 copy stream s name no: b2+0:21:w
        begin 1 copy stream s name no: b2+200:22:r b2+100:22:w
        synchronized 0 -1
        synchronized 1 -1
        leave 1
        abandon 1
        create 1
        serve 1
        alloc 1 8192 stream -1 -> 3
        begin 0 copy stream s name no: b1+2:11:r
        begin 1 copy stream s name no: b3+1:11:w
        begin 0 copy stream s name no: b1+3:12:w
        begin 1 copy stream s name no: b3+4:12:r
        begin 1 copy stream s name no: b3+5:13:w
        begin 0 copy stream 1 waits name no: b1+6:14:r
        begin 0 copy stream s name no: b1+0:21:r
        begin 1 copy stream s name no: b3+0:21:w
        begin 1 copy stream s name no: b3+200:22:r b3+100:22:w
        synchronized 0 -1
        synchronized 1 -1
        begin 0 copy stream s name no: b1+200:15:r b1+0:15:w
        synchronized 0 0 all""",
    "forked": """
        alloc 0 4096 stream -1 -> 1
        abandon 0
        free 0 b1 stream -1""",
}


def without_end(lines):
    """The lines up to the end of the process, when all engines end."""
    while lines and lines[-1].startswith("abandon"):
        lines.pop()
    return lines


# A library that calls the driver when it is loaded, before the door's own constructors, as it
# depends on nothing. Then a program that does the same as always.
EARLY = """
int cuInit(unsigned);
int early;
__attribute__((constructor)) static void begin(void) { early = 1 + cuInit(0); }
"""
AFTERWARDS = """
#include <stdio.h>
extern int early;
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, size_t);
int main(void)
{
    void *context;
    unsigned long long address;
    int init = cuInit(0), retain = cuDevicePrimaryCtxRetain(&context, 0);
    int current = cuCtxSetCurrent(context);
    printf("%d %d %d %d %d\\n", early, init, retain, current, cuMemAlloc_v2(&address, 4096));
    return 0;
}
"""


def calls():
    return compile_c("cuda_calls", options=[
        "-I", os.path.join(SOURCE, "src"), "-I", os.path.join(SOURCE, "tests", "fakecuda"),
        FAKE])


class Calls(unittest.TestCase):
    def hear(self, group, **variables):
        """The lines of the engine, from the first allocation on, and the program's output."""
        log = os.path.join(launching.work, "heard")
        if os.path.exists(log):
            os.remove(log)
        done = run([calls(), group], EBB_DOUBLE_LOG=log, EBB_CUDA_DRIVER=FAKE,
                   **{"EBB_DOUBLE_BYTES": "0x100000", "FAKECUDA_DEVICES": "2", **variables})
        self.assertEqual(0, done.returncode, done.stderr)
        if not os.path.exists(log):
            return [], done
        with open(log, encoding="utf-8") as file:
            return without_end([line.rstrip("\n") for line in file]), done

    def check(self, group):
        lines, done = self.hear(group)
        self.assertEqual("over\n", done.stdout)
        text = "\n".join(line for line in lines if line != "hello")
        text = re.sub(r"stream \d{3,}", "stream s", text)
        text = re.sub(r"(attach \d) .*", r"\1", text)
        self.assertEqual(sorted(re.findall(r"^begin (\d)", text, re.M)),
                         sorted(re.findall(r"^end (\d)", text, re.M)))
        self.assertNotIn("end without begin", text)
        text = re.sub(r"^end \d failed$", "failed", re.sub(r"^end \d\n", "", text, flags=re.M),
                      flags=re.M)
        expected = "\n".join(line.strip() for line in HEARD[group].strip().splitlines())
        self.assertEqual(f"attach 0\ncreate 0\nserve 0\n{expected}", text)
        return done

    def test_memory(self):
        self.check("memory")

    def test_launches(self):
        self.check("launches")

    def test_copies(self):
        self.check("copies")

    def test_sets(self):
        self.check("sets")

    def test_words(self):
        self.check("words")

    def test_streams(self):
        self.check("streams")

    def test_graphs(self):
        self.check("graphs")

    def test_addresses(self):
        self.check("addresses")

    def test_exclusions(self):
        self.assertEqual("ebb: the program shares device memory with another process or device: "
                         "not possible with blocks that Ebb moves. --tune cuda_shared_bytes=5000 "
                         "leaves blocks of this size to the driver, --device cpu all\n", self.check("exclusions").stderr)

    def test_placement(self):
        self.check("placement")

    def test_each_backing(self):
        """With the real engine: a block is plain device memory, however it is made."""
        for backing in "managed", "vmm-host", "vmm-trusting", "native":
            for group in "addresses", "exclusions", "placement":
                with self.subTest(backing=backing, group=group):
                    done = run([calls(), group], LD_PRELOAD=ALONE, EBB_CUDA_DRIVER=FAKE,
                               EBB_ALONE_BACKING=backing, FAKECUDA_DEVICES="2")
                    self.assertEqual((0, "over\n"), (done.returncode, done.stdout), done.stderr)

    def test_payload(self):
        self.check("payload")

    def test_payload_boxes(self):
        self.check("payload_boxes")

    def test_contexts(self):
        self.assertEqual("ebb: the program allocates in a context of its own (cuCtxCreate): these "
                         "blocks are not managed\n", self.check("contexts").stderr)

    def test_devices(self):
        self.check("devices")

    def test_forked(self):
        self.check("forked")

    def test_forked_early(self):
        """A child of a process that has used no device is a process like any other."""
        lines, done = self.hear("forked_early")
        self.assertEqual("", done.stdout)
        self.assertIn("create 0", lines)
        self.assertEqual("free 0 b1 stream -1", lines[-1])

    def test_threads(self):
        lines, done = self.hear("threads", EBB_DOUBLE_BYTES="0x1000000")
        self.assertEqual("over\n", done.stdout)
        self.assertEqual((1201, 1200, 1200, 1200), tuple(
            len([line for line in lines if line.startswith(word)])
            for word in ("alloc", "free", "begin", "end")))
        self.assertEqual([], [line for line in lines if "wrong" in line])

    def test_peers(self):
        self.assertEqual("ebb: the program captures a copy between devices: not possible with "
                         "blocks that Ebb moves\n", self.check("peers").stderr)

    def test_refused(self):
        """A device without a budget: the driver allocates, and nothing is heard."""
        lines, done = self.hear("launches", EBB_DOUBLE_REFUSE="1")
        self.assertEqual("over\n", done.stdout)
        self.assertEqual([], [line for line in lines if not line.startswith(("hello", "attach"))])

    def test_no_engine(self):
        """The engine cannot start: one line, and the program runs as without it."""
        lines, done = self.hear("launches", EBB_DOUBLE_BYTES="0")
        self.assertEqual("over\n", done.stdout)
        self.assertEqual(1, done.stderr.count("\n"), done.stderr)
        self.assertIn("the budget is NOT enforced", done.stderr)
        self.assertEqual([], [line for line in lines if not line.startswith(("hello", "attach"))])

    def test_outside_of_a_run(self):
        lines, done = self.hear("launches", EBB_DOUBLE_ALONE="1")
        self.assertEqual(("over\n", ""), (done.stdout, done.stderr))
        self.assertEqual({"hello"}, set(lines))


class StandIn(unittest.TestCase):
    """With the stand-in for the driver, which can do what the fake does not."""

    def hear(self, group, **variables):
        log = os.path.join(launching.work, "heard")
        if os.path.exists(log):
            os.remove(log)
        done = run([compile_c("cuda_over_standin", options=["-I", os.path.join(SOURCE, "src")]), group], EBB_DOUBLE_LOG=log, EBB_CUDA_DRIVER=standin(),
                   **variables)
        with open(log, encoding="utf-8") as file:
            return without_end([
                line.rstrip("\n") for line in file
                if not line.startswith(("hello", "attach", "create", "serve"))]), done

    def test_calls_of_the_driver(self):
        """The driver's calls to its own exported functions are not the program's."""
        lines, done = self.hear("depth")
        self.assertEqual((0, "inner 2\n"), (done.returncode, done.stdout), done.stderr)
        self.assertEqual(["alloc 0 4096 stream -1 -> 1",
                          "begin 0 copy stream 1 waits name no: b1+0:100:r",
                          "end 0 failed"], lines)  # its result is the number of inner calls

    def test_a_call_before_the_constructors(self):
        early = compile_c("libearly.so", EARLY, ["-shared", "-fPIC"])
        folder = os.path.dirname(early)
        program = compile_c("afterwards", AFTERWARDS, [
            early, "-L", os.path.dirname(FAKE), "-l:libcuda.so.1", "-Wl,-rpath," + folder])
        path = f"{folder}:{os.path.dirname(FAKE)}"
        for library in None, ALONE:
            done = run([program], preload=False, LD_PRELOAD=library, LD_LIBRARY_PATH=path,
                       EBB_CUDA_DRIVER=FAKE)
            self.assertEqual((0, "1 0 0 0 0\n"), (done.returncode, done.stdout), done.stderr)

    def test_a_newer_variant_afterwards(self):
        """It comes up when there are blocks already: they stay, and new ones are the driver's."""
        lines, done = self.hear("newer", STANDIN_NEWER="cuLaunchKernel")
        self.assertEqual((0, "native 1\n"), (done.returncode, done.stdout))
        self.assertEqual(["alloc 0 4096 stream -1 -> 1", f"keep 0 b0 {2 ** 64 - 1}",
                          "free 0 b1 stream -1"], lines)
        self.assertEqual(1, done.stderr.count("\n"), done.stderr)
        self.assertIn("a variant of cuLaunchKernel that", done.stderr)

    def test_nodes_of_graphs(self):
        """Copies, memsets and graphs in graphs, and updates of each."""
        lines, done = self.hear("graph")
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        union = "b1+0:296:w b1+100:50:w b2+7:50:r"
        more = union.replace(" b2+7", " b2+0:10:w b2+7") + " b3+1:20:r b3+100:20:w b4+0:296:w"
        self.assertEqual([
            *[f"alloc 0 4096 stream -1 -> {number}" for number in (1, 2, 3, 4)],
            f"begin 0 graph stream 1 name yes: {union}", "end 0",
            f"begin 0 graph stream 1 name yes: {more}", "end 0"], lines)

    def test_second_door(self):
        """The entry points for PyTorch."""
        lines, done = self.hear("second")
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertEqual(["alloc 0 1000 stream 1 -> 1", "alloc 0 2000 stream 2 -> 2",
                          "alloc 0 1152921504606846976 stream 1 -> 0", "free 0 b1 stream 1",
                          "free 0 b2 stream 2"], lines)
        lines, done = self.hear("second", EBB_DOUBLE_ALONE="1")
        self.assertEqual((0, "", []), (done.returncode, done.stderr, lines))


if __name__ == "__main__":
    if not os.path.exists(DOOR) or not os.path.exists(FAKE):
        print("skipped: the library and the fake driver are built on x86-64 only")
        sys.exit(77)
    launching.work = tempfile.mkdtemp(prefix="ebb-calls-")
    try:
        outcome = unittest.main(exit=False).result
    finally:
        shutil.rmtree(launching.work)
    sys.exit(not outcome.wasSuccessful())
