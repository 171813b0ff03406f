#!/usr/bin/python3
"""Measures the worth of zero-value compression for the tensors saved for a backward pass.

    bench/zeros.py --build build/release --model vgg16 --batch 4 --iterations 2

Prints the share of words that are zero, and the size and speed of compression (src/store/zvc.h).
With python3-lz4, lz4 is measured, too. The tensors are those of the last iteration. Each storage
counts once.
"""
import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(SOURCE, "examples"))

LEAST_BYTES = 512 << 10  # smaller blocks are hardly ever moved


def saved_bytes(args, torch, torch_train):
    """The bytes of each saved storage, in the order in which they were saved."""
    torch.manual_seed(args.seed)
    model, draw = torch_train.make(args)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    known = {parameter.data_ptr() for parameter in model.parameters()}
    for _ in range(args.iterations):
        saved = {}

        def keep(tensor):
            if tensor.data_ptr() not in known:
                saved[tensor.storage().data_ptr()] = tensor
            return tensor

        inputs, labels = draw()
        optimizer.zero_grad()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        pieces = []
        for tensor in saved.values():
            count = tensor.storage().nbytes()
            if count >= LEAST_BYTES:
                pieces.append(ctypes.string_at(tensor.storage().data_ptr(), count))
        loss.backward()
        optimizer.step()
    return pieces


def lz4_figures(pieces):
    try:
        import lz4.block
    except ImportError:
        return {}
    kept, seconds, restoring = 0, 0.0, 0.0
    for piece in pieces:
        for at in range(0, len(piece), 2 << 20):
            frame = piece[at:at + (2 << 20)]
            start = time.perf_counter()
            small = lz4.block.compress(frame, store_size=False)
            seconds += time.perf_counter() - start
            start = time.perf_counter()
            lz4.block.decompress(small, uncompressed_size=len(frame))
            restoring += time.perf_counter() - start
            kept += min(len(small), len(frame))
    total = sum(map(len, pieces))
    return {"bytes": total, "compressed_bytes": kept,
            "compress_bytes_per_s": round(total / seconds),
            "restore_bytes_per_s": round(total / restoring)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(SOURCE, "build", "release"))
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--iterations", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    import torch
    import torch_train
    pieces = saved_bytes(args, torch, torch_train)
    with tempfile.NamedTemporaryFile() as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        result = subprocess.run([os.path.join(args.build, "bench", "bench_zvc"), file.name],
                                check=True, capture_output=True, text=True)
    words = sum(len(piece) // 4 for piece in pieces)
    zeros = sum(int((torch.frombuffer(bytearray(piece), dtype=torch.int32) == 0).sum())
                for piece in pieces)
    figures = {"model": args.model, "batch": args.batch, "tensors": len(pieces),
               "zero_words": round(zeros / words, 3), "zvc": json.loads(result.stdout),
               "lz4": lz4_figures(pieces)}
    for name in ("zvc", "lz4"):
        if figures[name]:
            figures[name]["ratio"] = round(
                figures[name]["compressed_bytes"] / figures[name]["bytes"], 3)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
