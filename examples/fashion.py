#!/usr/bin/python3
"""The demonstration of the trainer: Fashion-MNIST within 40 % of its memory.

    examples/fashion.py [--train PATH] [--svg FILE] [--epochs N]

`ebb-train` trains the same network twice, without a budget and within one. All losses must be
equal to the last digit; they are drawn as one curve. The exit code is 0 only if they are.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
NETWORK = "cnn --data fashion --batch 128 --rate 0.05 --halve-rate-every 468".split()
WIDTH, HEIGHT, EDGE = 720, 320, 44


def train(program, epochs, *more):
    done = subprocess.run([program, *NETWORK, "--epochs", str(epochs), "--quiet",
                           "--summary-json", "-", *more], capture_output=True, text=True,
                          check=False)
    if done.returncode:
        sys.exit(f"fashion: {done.stderr.strip()}")
    return json.loads(done.stdout)


def smooth(losses, count=10):
    return [statistics.mean(losses[max(0, i - count + 1):i + 1]) for i in range(len(losses))]


def points(losses, most):
    across = (WIDTH - 2 * EDGE) / max(1, len(losses) - 1)
    down = (HEIGHT - 2 * EDGE) / most
    return " ".join(f"{EDGE + i * across:.1f},{HEIGHT - EDGE - loss * down:.1f}"
                    for i, loss in enumerate(losses))


def drawing(free, tight):
    """Both curves, one broad and one thin on it: they are the same."""
    most = max(smooth(free["losses"]))
    mib = [run["peak_resident_bytes"] / 2**20 for run in (free, tight)]
    bottom, right = HEIGHT - EDGE, WIDTH - EDGE
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"
     font-family="sans-serif" font-size="13">
<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>
<path d="M{EDGE} {EDGE}V{bottom}H{right}" fill="none" stroke="#888"/>
<polyline points="{points(smooth(free['losses']), most)}" fill="none" stroke="#9ecae1"
     stroke-width="7"/>
<polyline points="{points(smooth(tight['losses']), most)}" fill="none" stroke="#08306b"
     stroke-width="1.5"/>
<text x="{EDGE}" y="24">Fashion-MNIST: loss, mean of ten iterations</text>
<text x="{right}" y="{EDGE + 20}" text-anchor="end" fill="#4292c6">without a budget: {mib[0]:.0f} MiB,
 {100 * free['test_accuracy']:.2f} % of the test set</text>
<text x="{right}" y="{EDGE + 40}" text-anchor="end" fill="#08306b">within a budget: {mib[1]:.0f} MiB,
 {100 * tight['test_accuracy']:.2f} %</text>
<text x="{EDGE - 6}" y="{EDGE + 4}" text-anchor="end">{most:.1f}</text>
<text x="{EDGE - 6}" y="{bottom}" text-anchor="end">0</text>
<text x="{right}" y="{bottom + 18}" text-anchor="end">{len(free['losses'])} iterations</text>
</svg>
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--train", default=os.path.join(HERE, "../build/release/bin/ebb-train"))
    parser.add_argument("--svg", default="fashion.svg")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--budget", default="40%")
    options = parser.parse_args()
    free = train(options.train, options.epochs)
    tight = train(options.train, options.epochs, "--budget", options.budget)
    with open(options.svg, "w", encoding="utf-8") as file:
        file.write(drawing(free, tight))
    for name, run in (("without a budget", free), (f"within {options.budget}", tight)):
        print(f"   {name:<18}{run['peak_resident_bytes'] / 2**20:8.1f} MiB "
              f"{sum(run['seconds']):8.1f} s   loss {run['losses'][-1]:.6f}   accuracy "
              f"{100 * run['test_accuracy']:.2f} %")
    equal = free["losses"] == tight["losses"] and free["test_accuracy"] == tight["test_accuracy"]
    within = tight["peak_resident_bytes"] <= tight["budget_bytes"]
    print(f"   {len(free['losses'])} losses {'equal' if equal else 'DIFFER'}; the curve: "
          f"{options.svg}")
    return 0 if equal and within else 1


if __name__ == "__main__":
    sys.exit(main())
