#!/usr/bin/env python3
"""Kernels and training steps of PyTorch: torch_micro.py FILE CASE [POOL]

CASE is `plain` (PyTorch's caching allocator), `nocache` (PYTORCH_NO_CUDA_MEMORY_CACHING=1) or
`managed` (the library POOL, made from managed_pool.c, as pluggable allocator). Lines of JSON are
appended to FILE.
"""
import json
import os
import sys
import time

OUTPUT, CASE = sys.argv[1], sys.argv[2]
BEGIN = time.time()
if CASE == "nocache":
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from models import Gpt, ResNet50  # noqa: E402


def emit(**members):
    with open(OUTPUT, "a", encoding="utf-8") as output:
        output.write(json.dumps({"m": "torch", "case": CASE, **members}) + "\n")


def clock(work, least=5, seconds=0.4):
    """The median time of one call, in ms, of the device."""
    work()
    work()
    torch.cuda.synchronize()
    times, end = [], time.time() + seconds
    while len(times) < least or (time.time() < end and len(times) < 200):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        work()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last))
    return sorted(times)[len(times) // 2]


def train(name, model, inputs, targets, autocast, count=8):
    model = model.cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    lowest, losses, times, host = [1 << 60], [], [], []

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            out = model(inputs)
            loss = F.cross_entropy(out.float().flatten(0, -2), targets.flatten())
        lowest[0] = min(lowest[0], torch.cuda.mem_get_info()[0])
        loss.backward()
        optimizer.step()
        return loss

    before = torch.cuda.mem_get_info()[0]
    for i in range(count):
        torch.cuda.synchronize()
        first = time.perf_counter()
        loss = step()
        queued = time.perf_counter()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - first) * 1e3)
        host.append((queued - first) * 1e3)
        losses.append(loss.item())
    peak = 0
    if CASE == "plain":
        peak = torch.cuda.max_memory_allocated()
    emit(train=name, ms=[round(t, 2) for t in times], host_ms=round(sorted(host)[count // 2], 2),
         losses=[repr(x) for x in losses[:3]], peak_mib=peak >> 20,
         held_mib=(before - lowest[0]) >> 20)


def triton_kernel():
    """y = 2 x + 1 in a kernel of Triton, which compiles it here."""
    import triton_add  # pylint: disable=import-outside-toplevel
    x = torch.randn(1 << 28, device="cuda")
    y = torch.empty_like(x)
    return lambda: triton_add.run(x, y)


def kernels():
    tensor = lambda *shape, **kind: torch.randn(*shape, device="cuda", **kind)  # noqa: E731
    a, b = (tensor(8192, 8192, dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    emit(kernel="matmul bf16 8192", ms=clock(lambda: torch.matmul(a, b, out=out)))
    a, b = tensor(4096, 4096), tensor(4096, 4096)
    out = torch.empty_like(a)
    emit(kernel="matmul tf32 4096", ms=clock(lambda: torch.matmul(a, b, out=out)))
    x, w = tensor(64, 256, 56, 56), tensor(64, 256, 3, 3)
    emit(kernel="conv 3x3 256->64, 64x56x56", ms=clock(lambda: F.conv2d(x, w, padding=1)))
    emit(kernel="batch norm", ms=clock(lambda: F.batch_norm(x, None, None, training=True)))
    emit(kernel="relu in place", ms=clock(lambda: F.relu_(x)))
    q = tensor(8, 12, 2048, 64, dtype=torch.bfloat16)
    emit(kernel="attention", ms=clock(
        lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True)))
    table, places = tensor(1 << 20, 64), torch.randint(0, 1 << 20, (1 << 20,), device="cuda")
    emit(kernel="embedding gather", ms=clock(lambda: F.embedding(places, table)))
    del a, b, x, w, q, table, places, out
    try:
        emit(kernel="Triton", ms=clock(triton_kernel()))
    except Exception as error:  # pylint: disable=broad-exception-caught
        emit(kernel="Triton", skipped=repr(error)[:200])


def main():
    emit(import_s=round(time.time() - BEGIN, 1))
    if not torch.cuda.is_available():
        print("no GPU")
        return 77
    if CASE == "managed":
        torch.cuda.memory.change_current_allocator(torch.cuda.memory.CUDAPluggableAllocator(
            sys.argv[3], "pool_malloc", "pool_free"))
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.manual_seed(1)
    torch.zeros(1, device="cuda")
    emit(torch=torch.__version__, start_s=round(time.time() - BEGIN, 1))
    with torch.no_grad():
        if CASE != "nocache":
            kernels()
    if CASE == "plain":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    batch = 32 if CASE == "managed" else 64
    for size in (32, 64) if CASE == "plain" else (batch,):
        train(f"resnet50 b={size} tf32", ResNet50(), torch.randn(size, 3, 224, 224, device="cuda"),
              torch.randint(0, 1000, (size,), device="cuda"), False)
        if CASE == "plain":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
    if CASE != "managed":
        words = torch.randint(0, 32768, (8, 1024), device="cuda")
        train("gpt 12x768 b=8x1024 bf16", Gpt(), words, words, True)
    emit(done_s=round(time.time() - BEGIN, 1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
