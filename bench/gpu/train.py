#!/usr/bin/env python3
"""One training, for bench/gpu/trainings.py. Prints lines of JSON; losses are hexadecimal, bit for bit.

The mode says how device memory is saved, if Ebb does not do it:
    plain        PyTorch as it is; also the mode of runs with Ebb
    managed      each tensor in managed memory (--pool: managed_plain.so)
    offload      torch.autograd.graph.save_on_cpu(pin_memory=True)
    checkpoint   gradient checkpointing, one segment for each layer
    zero2        DeepSpeed, ZeRO stage 2: optimizer and its states on the host (ZeRO-Offload)
    zero3        DeepSpeed, ZeRO stage 3: weights, too
    ddp          DistributedDataParallel on --ranks devices. Losses are those of each rank.

Exit code 77: it cannot run here. The last line says why.
"""
import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import socket
import subprocess
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
    parser.add_argument("--mode", choices=("plain", "managed", "offload", "checkpoint", "zero2",
                                             "zero3", "ddp"), default="plain")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=6, help="of training, at most")
    parser.add_argument("--pool", help="the allocator of the mode managed")
    parser.add_argument("--free", type=int, default=0,
                        help="so many bytes of the device are left free: the rest is taken first")
    parser.add_argument("--profile", action="store_true", help="count launches in one iteration")
    parser.add_argument("--ranks", type=int, default=2, help="of the mode ddp")
    parser.add_argument("--rank", type=int, default=0, help="which one this process is")
    parser.add_argument("--port", type=int, default=0, help="where rank 0 listens")
    parser.add_argument("--lock", help="a file: its lock is taken before the GPU is used")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="a tiny model, to try the program")
    return parser.parse_args()


def skip(why):
    emit(skipped=why)
    sys.exit(77)


def prepare(options):
    if options.lock and options.rank == 0:
        # The next process starts while this one runs, and waits here.
        lock = open(options.lock, "w", encoding="utf-8")  # pylint: disable=consider-using-with
        fcntl.flock(lock, fcntl.LOCK_EX)
        options.locked = lock
    if options.rank == 0:
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


# ---- more than one process -----------------------------------------------------------------------


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def group_up(options, world):
    """Environment of a process group on this machine. DeepSpeed reads it, too."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port), RANK=str(options.rank),
                      WORLD_SIZE=str(world), LOCAL_RANK=str(options.rank))


def start_others(options):
    """The other ranks: this program again. What they print is not read."""
    command = [sys.executable, *sys.argv, "--port", str(options.port), "--rank"]
    return [subprocess.Popen(command + [str(rank)],  # pylint: disable=consider-using-with
                             stdout=subprocess.DEVNULL) for rank in range(1, options.ranks)]


def distributed(options, model):
    group_up(options, options.ranks)
    torch.distributed.init_process_group("nccl" if options.device == "cuda" else "gloo")
    return torch.nn.parallel.DistributedDataParallel(
        model, device_ids=[options.rank] if options.device == "cuda" else None)


def of_all_ranks(options, value):
    """The losses of all ranks, one after the other, and the highest of all peaks."""
    mine = torch.tensor(value, dtype=torch.float64, device=options.device)
    every = [torch.zeros_like(mine) for _ in range(options.ranks)]
    torch.distributed.all_gather(every, mine)
    return [one.item() for one in every]


# ---- DeepSpeed -----------------------------------------------------------------------------------


def zero_engine(options, model, optimizer):
    """The model under ZeRO, for one device. What it keeps on the host is pinned."""
    if options.device == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    try:
        import deepspeed  # pylint: disable=import-outside-toplevel,import-error
    except Exception as error:  # pylint: disable=broad-exception-caught
        skip(f"DeepSpeed cannot be imported: {str(error)[:200]}")
    options.port = options.port or free_port()
    group_up(options, 1)
    deepspeed.init_distributed("nccl" if options.device == "cuda" else "gloo", verbose=False)
    host = {"device": "cpu", "pin_memory": options.device == "cuda"}
    zero = {"stage": 3 if options.mode == "zero3" else 2, "offload_optimizer": host}
    if options.mode == "zero3":
        zero["offload_param"] = host
    config = {
        "train_micro_batch_size_per_gpu": options.batch,
        "gradient_accumulation_steps": 1,
        "zero_optimization": zero,
        # The optimizer of the other cases, and not DeepSpeed's own Adam.
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": options.precision == "bf16"},
    }
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


# ---- training ------------------------------------------------------------------------------------


class Training:
    def __init__(self, options):
        self.options = options
        kind = MODELS[options.model]
        device = f"cuda:{options.rank}" if options.device == "cuda" else options.device
        if options.mode == "ddp":
            torch.manual_seed(1 + options.rank)  # its own data, the same weights
        self.inputs, self.targets = (t.to(device) for t in kind.data(options.batch, options.small))
        if options.mode == "ddp":
            torch.manual_seed(1)
        self.model = kind(options.mode == "checkpoint", options.small).to(device).train()
        self.engine = None
        if options.mode == "ddp":
            self.model = distributed(options, self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        if options.mode.startswith("zero"):
            self.engine = self.model = zero_engine(options, self.model, self.optimizer)

    def saved(self):
        if self.options.mode == "offload":
            return torch.autograd.graph.save_on_cpu(pin_memory=self.options.device == "cuda")
        return contextlib.nullcontext()

    def step(self):
        if not self.engine:
            self.optimizer.zero_grad(set_to_none=True)
        with self.saved():
            with torch.autocast(self.options.device, torch.bfloat16,
                                enabled=self.options.precision == "bf16"):
                out = self.model(self.inputs)
                loss = F.cross_entropy(out.float().flatten(0, -2), self.targets.flatten())
        if self.engine:
            self.engine.backward(loss)
            self.engine.step()
        else:
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
    if ProfilerActivity.CUDA not in torch.profiler.supported_activities():
        emit(profile_error="not measured: no CUPTI")
        return
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


def train(options, training):
    """Iterations, until there are enough or the time is over. All ranks do as many."""
    is_cuda, is_ddp = options.device == "cuda", options.mode == "ddp"
    first = time.time()
    for i in range(options.iterations):
        if is_cuda:
            torch.cuda.synchronize()
        now = time.perf_counter()
        value = training.step().item()
        ms = (time.perf_counter() - now) * 1e3
        losses = [value]
        seconds = time.time() - first
        if is_ddp:
            losses = of_all_ranks(options, value)
            seconds = of_all_ranks(options, seconds)[0]
        if options.rank == 0:
            emit(i=i, ms=round(ms, 2), loss=" ".join(loss.hex() for loss in losses))
        if seconds > options.seconds:
            break


def main():
    options = arguments()
    begin = time.time()
    others = []
    if options.mode == "ddp" and options.rank == 0:
        options.port = options.port or free_port()
        others = start_others(options)
    prepare(options)
    is_cuda = options.device == "cuda"
    if is_cuda:
        torch.cuda.set_device(options.rank)
    if options.free:
        take_ballast(options.free)
    training = Training(options)
    if options.rank == 0:
        emit(ready_s=round(time.time() - begin, 2))
    train(options, training)
    if is_cuda and options.profile:
        try:
            profile(training)
        except Exception as error:  # pylint: disable=broad-exception-caught
            emit(profile_error=f"not measured: {error!r}")
    peak = 0
    if is_cuda and options.mode != "managed":
        peak = torch.cuda.max_memory_allocated()
    if options.mode == "ddp":
        peak = int(max(of_all_ranks(options, float(peak))))
        torch.distributed.destroy_process_group()
    for other in others:
        if other.wait(20):
            return 1
    if options.rank == 0:
        emit(ended=True, peak_bytes=peak)
    return 0


if __name__ == "__main__":
    sys.exit(main())
