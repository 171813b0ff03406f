"""The common part of the programs of this folder: arguments, the log of their steps, a U-Net.

A program calls begin() when its set-up is over and step() at the end of each step. Both write one
line of JSON to the file, or to the open descriptor, that FIRST_STEPS names:

    {"step": 3, "t_ns": 81230458, "loss": ["0000004021d63a40"], "cpu_s": 4.1, "system_s": 0.52}

`t_ns` is CLOCK_MONOTONIC. `loss` holds the bytes of each loss as a double, in hexadecimal, so that
two runs are compared bit for bit. `cpu_s` is of all threads, `system_s` of the calling thread.
Step 0 is begin(). Without FIRST_STEPS the lines go to stdout.
"""
import argparse
import json
import os
import resource
import struct
import sys
import time

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
_log = {"descriptor": None, "step": 0, "owner": os.getpid()}


def arguments(batch, steps=20):
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def _write(losses):
    if os.getpid() != _log["owner"]:
        return  # a forked worker
    if _log["descriptor"] is None:
        place = os.environ.get("FIRST_STEPS", "1")
        _log["descriptor"] = int(place) if place.isdigit() else os.open(
            place, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    line = {"step": _log["step"], "t_ns": time.monotonic_ns(),
            "loss": [struct.pack("<d", float(loss)).hex() for loss in losses],
            "cpu_s": time.process_time(), "system_s": usage.ru_stime}
    os.write(_log["descriptor"], json.dumps(line).encode() + b"\n")
    _log["step"] += 1


def begin():
    _write(())


def step(*losses):
    _write(losses)


def unet(width, depth, inputs, outputs):
    """A U-Net: two convolutions a level, a skip across each. Apart from images, it may take
    times."""
    import torch  # pylint: disable=import-outside-toplevel

    def double(had, makes):
        layers = []
        for first in (had, makes):
            layers += [torch.nn.Conv2d(first, makes, 3, padding=1, bias=False),
                       torch.nn.GroupNorm(8, makes), torch.nn.SiLU()]
        return torch.nn.Sequential(*layers)

    class Unet(torch.nn.Module):
        def __init__(self):
            super().__init__()
            widths = [width << level for level in range(depth)]
            self.down = torch.nn.ModuleList(
                double(had, makes) for had, makes in zip([inputs, *widths], widths))
            self.up = torch.nn.ModuleList(
                double(wide + small, small) for wide, small in zip(widths[:0:-1], widths[-2::-1]))
            self.time = torch.nn.Linear(64, widths[-1])
            self.head = torch.nn.Conv2d(width, outputs, 1)

        def forward(self, x, t=None):
            skips = []
            for level, block in enumerate(self.down):
                x = block(torch.nn.functional.max_pool2d(x, 2) if level else x)
                skips.append(x)
            if t is not None:
                angles = t[:, None] * 0.7 ** torch.arange(32)
                x = x + self.time(torch.cat((angles.sin(), angles.cos()), 1))[:, :, None, None]
            skips.pop()
            for block in self.up:
                x = torch.nn.functional.interpolate(x, scale_factor=2.0)
                x = block(torch.cat((x, skips.pop()), 1))
            return self.head(x)

    return Unet()
