"""A kernel of Triton: y = 2 x + 1. Triton reads its text from a file of its own."""
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def add(x, y, count, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < count) + 1, mask=at < count)


def run(x, y):
    add[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), block=BLOCK)
