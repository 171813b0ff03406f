#!/usr/bin/python3
"""A run of many iterations: the memory of program and parent does not grow with their number."""
import json
import os
import subprocess
import time

import launching
from launching import EBB, cycle

ITERATIONS = 6000  # the parent keeps at most 2,048 of them in memory
LEAK_KIB = 1024  # half a KiB for each iteration


def anonymous_kib(pid):
    """Anonymous memory of the process, or 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            for line in file:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0


class Long(launching.Launch):
    def test_resident_bytes_are_flat(self):
        path = os.path.join(self.folder, "summary.json")
        program = [cycle(), "--iterations", str(ITERATIONS), "--layers", "12", "--block", "128K",
                   "--persistent", "256K"]
        plain = subprocess.run(program, stdout=subprocess.PIPE, check=True).stdout
        parent = subprocess.Popen(
            [EBB, "run", "--no-cache", "--store", self.store, "--budget", "70%", "--summary-json",
             path, "--", *program], env=self.env, stdout=subprocess.PIPE)
        samples = []
        while parent.poll() is None:
            with open(f"/proc/{parent.pid}/task/{parent.pid}/children", encoding="utf-8") as file:
                children = file.read().split()
            if children:
                samples.append((anonymous_kib(parent.pid), anonymous_kib(children[0])))
            time.sleep(0.02)
        self.assertEqual(plain, parent.stdout.read())
        parent.stdout.close()
        self.assertEqual(0, parent.returncode)
        with open(path, encoding="utf-8") as file:
            summary = json.load(file)
        os.unlink(path)
        self.assertGreaterEqual(summary["iterations"], ITERATIONS - 10)
        self.assertGreater(summary["planned_iterations"], ITERATIONS // 2)
        self.assertEqual(0, summary["lost_events"])
        samples = [pair for pair in samples if all(pair)]
        self.assertGreater(len(samples), 30)
        third = len(samples) // 3
        for which, name in enumerate(("parent", "program")):
            # Uses minima: the parent drops events by the thousand, and holds them twice meanwhile.
            middle = min(pair[which] for pair in samples[third:2 * third])
            end = min(pair[which] for pair in samples[2 * third:])
            self.assertLess(end - middle, LEAK_KIB,
                            f"the {name} grew from {middle} to {end} KiB")


if __name__ == "__main__":
    launching.main()
