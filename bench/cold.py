#!/usr/bin/python3
"""Measures how much of its memory a program uses, for pieces of different sizes.

Starts a command, waits, and sends its anonymous memory to swap (process_madvise). It waits again
and looks which pages have been read from swap. For each large mapping it prints the bytes held, and
the bytes used in pieces of 4 KiB to 2 MiB. A piece is used if any of its pages is. Needs root,
enough swap for the program, and no readahead there (vm.page-cluster = 0).
"""
import argparse
import ctypes
import json
import os
import re
import struct
import subprocess
import sys
import time

PAGE = os.sysconf("SC_PAGE_SIZE")
MADV_PAGEOUT = 21
SYS_PIDFD_OPEN, SYS_PROCESS_MADVISE = 434, 440
STEP = 1 << 20
PIECES_KIB = (4, 16, 64, 256, 2048)
PRESENT, SWAPPED = 1 << 63, 1 << 62


class Range(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


def mappings(pid, least_bytes):
    """(first, one past the end, name) of writable mappings with at least so much anonymous
    memory."""
    found, current = [], None
    with open(f"/proc/{pid}/smaps", encoding="utf-8") as lines:
        for line in lines:
            match = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \S+\s*(.*)", line)
            if match:
                current = (int(match[1], 16), int(match[2], 16), match[4])
                writable = "w" in match[3]
            elif line.startswith("Anonymous:") and writable:
                if int(line.split()[1]) * 1024 >= least_bytes:
                    found.append(current)
    return found


def pages(pid, first, behind):
    with open(f"/proc/{pid}/pagemap", "rb") as file:
        file.seek(first // PAGE * 8)
        data = file.read((behind - first) // PAGE * 8)
    return struct.unpack(f"<{len(data) // 8}Q", data)


def page_out(libc, handle, first, behind):
    for base in range(first, behind, STEP):
        piece = Range(base, min(STEP, behind - base))
        libc.syscall(SYS_PROCESS_MADVISE, handle, ctypes.byref(piece), ctypes.c_size_t(1),
                     MADV_PAGEOUT, 0)


def look(pid, arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    handle = libc.syscall(SYS_PIDFD_OPEN, pid, 0)
    if handle < 0:
        raise OSError(ctypes.get_errno(), "pidfd_open")
    watched = []
    for first, behind, name in mappings(pid, arguments.least << 20):
        behind = min(behind, first + (arguments.most << 20))
        watched.append((first, behind, name, pages(pid, first, behind)))
        page_out(libc, handle, first, behind)
    time.sleep(arguments.seconds)
    rows = []
    for first, behind, name, before in watched:
        now = pages(pid, first, behind)
        row = {"mapping": name or hex(first),
               "held_mib": sum(bool(p & (PRESENT | SWAPPED)) for p in before) * PAGE / 2**20}
        for kib in PIECES_KIB:
            step = kib * 1024 // PAGE
            used = sum(any(p & PRESENT for p in now[i:i + step])
                       for i in range(0, len(now), step))
            row[f"used_{kib}_kib_mib"] = used * kib / 1024
        rows.append(row)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--after", type=float, default=20, help="seconds from the start (20)")
    parser.add_argument("--seconds", type=float, default=8, help="length of the observation (8)")
    parser.add_argument("--child", help="observe the newest process with this in its command line")
    parser.add_argument("--least", type=int, default=12, help="MiB that a mapping must hold (12)")
    parser.add_argument("--most", type=int, default=512, help="MiB examined of each mapping (512)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    with subprocess.Popen(arguments.command, stdout=subprocess.DEVNULL) as process:
        time.sleep(arguments.after)
        pid = process.pid
        if arguments.child:
            pid = int(subprocess.run(["pgrep", "-n", "-f", arguments.child], check=True,
                                     stdout=subprocess.PIPE).stdout)
        rows = look(pid, arguments)
        process.wait()
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return
    heads = ["held"] + [f"{kib} KiB" for kib in PIECES_KIB]
    print(f"{'MiB; used, in pieces of':32}" + "".join(f"{head:>10}" for head in heads))
    for row in rows:
        print(f"{row['mapping'][-32:]:32}" +
              "".join(f"{value:10.1f}" for key, value in row.items() if key != "mapping"))


if __name__ == "__main__":
    sys.exit(main())
