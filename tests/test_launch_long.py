#!/usr/bin/python3
"""A run of many iterations: neither the program nor its parent grows with their number."""
import json
import os
import subprocess
import time

import launching
from launching import EBB, cycle

ITERATIONS = 6000  # of the parent's memory what is kept of them stops growing after 2,048
LEAK_KIB = 1024  # half a KiB an iteration


def anonymous_kib(pid):
    """Memory of its own, 0 where the process has ended."""
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
            # The least of each: the parent drops events by the thousand, and has them twice while
            # it does.
            middle = min(pair[which] for pair in samples[third:2 * third])
            end = min(pair[which] for pair in samples[2 * third:])
            self.assertLess(end - middle, LEAK_KIB,
                            f"the {name} grew from {middle} to {end} KiB")


if __name__ == "__main__":
    launching.main()
