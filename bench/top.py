#!/usr/bin/python3
"""What it costs a run that `ebb top` looks at it twice a second.

    bench/top.py [--looks 1000] [-o FILE]

Counts the processor time of `ebb`, the parent, for many looks, less what it takes for as long
without any. The program itself is not asked. The time of the viewer is of its own. Prints a table,
and JSON with -o.
"""
import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EBB = os.path.join(os.environ.get("EBB_BIN_DIR") or os.path.join(SOURCE, "build/release/bin"), "ebb")
PER_SECOND = 2


def cpu_seconds(process_id):
    with open(f"/proc/{process_id}/schedstat", encoding="ascii") as file:
        return int(file.read().split()[0]) / 1e9


def look(process_id):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
        one.connect(f"\0ebb-run-{os.geteuid()}-{process_id}")
        if len(one.recv(65536)) < 400:
            raise SystemExit("bench/top.py: no answer")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--looks", type=int, default=1000)
    parser.add_argument("-o", "--output", help="file for the figures, JSON")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "cycle")
        subprocess.run(["cc", "-O2", "-pthread", "-o", program,
                        os.path.join(SOURCE, "tests/programs/cycle.c")], check=True)
        run = subprocess.Popen([EBB, "run", "--no-cache", "-q", "--budget", "48M", "--store", folder,
                                "--", program, "--iterations", "100000", "--work", "1"],
                               stdout=subprocess.DEVNULL)
        time.sleep(5)  # until it is planned
        try:
            began, used = time.monotonic(), cpu_seconds(run.pid)
            for _ in range(args.looks):
                look(run.pid)
                time.sleep(0.002)
            wall, looked = time.monotonic() - began, cpu_seconds(run.pid) - used
            used = cpu_seconds(run.pid)
            time.sleep(wall)
            idle = cpu_seconds(run.pid) - used
            viewer = subprocess.Popen([EBB, "top", "--prom", os.path.join(folder, "p"),
                                       str(run.pid)])
            time.sleep(10)
            seen = cpu_seconds(viewer.pid) / 10
            viewer.terminate()
            viewer.wait()
        finally:
            run.terminate()
            run.wait()
    each = max(looked - idle, 0) / args.looks
    figures = {"look_ns": round(each * 1e9), "run_percent_of_a_cpu": 100 * each * PER_SECOND,
               "viewer_percent_of_a_cpu": 100 * seen}
    print(f"a look costs the run {each * 1e6:.1f} us of a processor: at {PER_SECOND} a second, "
          f"{figures['run_percent_of_a_cpu']:.4f} % of one")
    print(f"the viewer takes {figures['viewer_percent_of_a_cpu']:.3f} % of one")
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            json.dump(figures, file)


if __name__ == "__main__":
    sys.exit(main())
