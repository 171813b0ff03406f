#!/usr/bin/env python3
"""One training, for bench/gpu/run.py. Prints lines of JSON; losses are hexadecimal, bit for bit.

The mode says how device memory is saved, if Ebb does not do it:
    plain        PyTorch as it is; also the mode of runs with Ebb
    managed      each tensor in managed memory (--pool: managed_plain.so)
    offload      torch.autograd.graph.save_on_cpu(pin_memory=True)
    checkpoint   gradient checkpointing, one segment for each layer
"""
import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from models import MODELS  # noqa: E402


def emit(**members):
    print(json.dumps(members), flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="fp32")
    parser.add_argument("--mode", choices=("plain", "managed", "offload", "checkpoint"),
                        default="plain")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=6, help="of training, at most")
    parser.add_argument("--pool", help="the allocator of the mode managed")
    parser.add_argument("--free", type=int, default=0,
                        help="so many bytes of the device are left free: the rest is taken first")
    parser.add_argument("--profile", action="store_true", help="count launches in one iteration")
    parser.add_argument("--lock", help="a file: its lock is taken before the GPU is used")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="a tiny model, to try the program")
    return parser.parse_args()


def prepare(options):
    if options.lock:
        # The next process starts while this one runs, and waits here.
        lock = open(options.lock, "w", encoding="utf-8")  # pylint: disable=consider-using-with
        fcntl.flock(lock, fcntl.LOCK_EX)
        options.locked = lock
    emit(started=True)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("no GPU", file=sys.stderr)
        sys.exit(77)
    if options.mode == "managed":
        torch.cuda.memory.change_current_allocator(torch.cuda.memory.CUDAPluggableAllocator(
            options.pool, "pool_malloc", "pool_free"))
    # The attention of fp32 repeats only if what does not repeat is an error. For pooling, PyTorch
    # has no kernel that promises to repeat.
    torch.use_deterministic_algorithms(True, warn_only=options.model == "resnet50")
    torch.backends.cudnn.benchmark = False
    allow = options.precision != "fp32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allow
    torch.manual_seed(1)


def take_ballast(free):
    """Takes device memory until `free` bytes are left."""
    torch.zeros(1, device="cuda")  # makes the context
    cuda = ctypes.CDLL("libcuda.so.1")
    left, total, address = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
    cuda.cuMemGetInfo_v2(ctypes.byref(left), ctypes.byref(total))
    if left.value > free:
        result = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(left.value - free))
        cuda.cuMemGetInfo_v2(ctypes.byref(left), ctypes.byref(total))
        emit(ballast=result, free_mib=left.value >> 20)


class Training:
    def __init__(self, options):
        self.options = options
        kind = MODELS[options.model]
        self.inputs, self.targets = (
            t.to(options.device) for t in kind.data(options.batch, options.small))
        self.model = kind(options.mode == "checkpoint", options.small).to(options.device).train()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def saved(self):
        if self.options.mode == "offload":
            return torch.autograd.graph.save_on_cpu(pin_memory=self.options.device == "cuda")
        return contextlib.nullcontext()

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        with self.saved():
            with torch.autocast(self.options.device, torch.bfloat16,
                                enabled=self.options.precision == "bf16"):
                out = self.model(self.inputs)
                loss = F.cross_entropy(out.float().flatten(0, -2), self.targets.flatten())
        loss.backward()
        self.optimizer.step()
        return loss


def launches_of_ebb():
    """How many launches the library before the driver has seen; None without it."""
    try:
        counter = ctypes.CDLL(None).ebb_cuda_launches
    except AttributeError:
        return None
    counter.restype = ctypes.c_uint64
    return counter()


def profile(training):
    """Launches of one iteration, as CUPTI counts them, and as the library before the driver does."""
    from torch.profiler import ProfilerActivity  # pylint: disable=import-outside-toplevel
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        torch.cuda.synchronize()
        before = launches_of_ebb()
        training.step()
        torch.cuda.synchronize()
        after = launches_of_ebb()
    calls, kernels = {}, 0
    for event in profiler.events():
        if "Launch" in event.name and event.name.startswith("cu"):
            calls[event.name] = calls.get(event.name, 0) + 1
        elif event.device_type == torch.autograd.DeviceType.CUDA:
            kernels += not event.name.startswith(("Memcpy", "Memset"))
    emit(calls=calls, kernels=kernels, ebb=None if before is None else after - before)


def main():
    options = arguments()
    begin = time.time()
    prepare(options)
    is_cuda = options.device == "cuda"
    if options.free:
        take_ballast(options.free)
    training = Training(options)
    first = time.time()
    emit(ready_s=round(first - begin, 2))
    for i in range(options.iterations):
        if is_cuda:
            torch.cuda.synchronize()
        now = time.perf_counter()
        loss = training.step()
        value = loss.item()
        emit(i=i, ms=round((time.perf_counter() - now) * 1e3, 2), loss=value.hex())
        if time.time() - first > options.seconds:
            break
    if is_cuda and options.profile:
        try:
            profile(training)
        except Exception as error:  # pylint: disable=broad-exception-caught
            emit(profile_error=repr(error))
    peak = 0
    if is_cuda and options.mode != "managed":
        peak = torch.cuda.max_memory_allocated()
    emit(ended=True, peak_bytes=peak)
    return 0


if __name__ == "__main__":
    sys.exit(main())
