#!/usr/bin/env python3
"""Trains with JAX (one jitted step, CPU) on synthetic data, and prints losses and seconds.

    jax_train.py --model conv --iterations 12

XLA gives a compiled step one temporary block for everything that lives within it. In addition its
threads allocate scratch memory in varying order.
"""
import argparse
import functools
import os
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402


def convolve(x, weight, stride=1):
    return jax.lax.conv_general_dilated(x, weight, (stride, stride), "SAME",
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))


def normalise(x, axes):
    mean = x.mean(axes, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(x.var(axes, keepdims=True) + 1e-5)


def conv_parameters(draw, classes):
    def weight(*shape):
        fan_in = numpy.prod(shape[:-1])
        return (draw.standard_normal(shape) * (2 / fan_in) ** 0.5).astype(numpy.float32)
    blocks, had = [], 64
    for width in (64, 128, 256, 512):
        for _ in range(2):
            blocks.append((weight(3, 3, had, width), weight(3, 3, width, width),
                           weight(1, 1, had, width)))
            had = width
    return {"stem": weight(3, 3, 3, 64), "blocks": blocks, "head": weight(had, classes)}


def conv_scores(parameters, images):
    x = convolve(images, parameters["stem"])
    for i, (first, second, across) in enumerate(parameters["blocks"]):
        stride = 2 if i in (2, 4, 6) else 1
        y = jax.nn.relu(normalise(convolve(x, first, stride), (0, 1, 2)))
        y = normalise(convolve(y, second), (0, 1, 2))
        x = jax.nn.relu(convolve(x, across, stride) + y)
    return x.mean((1, 2)) @ parameters["head"]


def transformer_parameters(draw, tokens, width=256, depth=4):
    def weight(*shape):
        return (draw.standard_normal(shape) * shape[0] ** -0.5).astype(numpy.float32)
    layers = [(weight(width, 3 * width), weight(width, width), weight(width, 4 * width),
               weight(4 * width, width)) for _ in range(depth)]
    return {"embedding": weight(tokens, width), "layers": layers, "head": weight(width, tokens)}


def transformer_scores(parameters, tokens, heads=4):
    x = parameters["embedding"][tokens]
    batch, length, width = x.shape
    hidden = jnp.where(jnp.tril(jnp.ones((length, length), bool)), 0.0, -1e9)
    for joint, out, up, down in parameters["layers"]:
        query, key, value = jnp.split(normalise(x, -1) @ joint, 3, -1)
        query, key, value = (part.reshape(batch, length, heads, -1) for part in (query, key, value))
        scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * (width // heads) ** -0.5 + hidden
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), value)
        x = x + mixed.reshape(batch, length, width) @ out
        x = x + jax.nn.gelu(normalise(x, -1) @ up) @ down
    return normalise(x, -1) @ parameters["head"]


@functools.partial(jax.jit, static_argnums=0, donate_argnums=(1, 2))
def train_step(scores, parameters, momentum, inputs, labels):
    def loss_of(current):
        logarithms = jax.nn.log_softmax(scores(current, inputs))
        return -jnp.take_along_axis(logarithms, labels[..., None], -1).mean()
    loss, gradients = jax.value_and_grad(loss_of)(parameters)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
    return loss, jax.tree.map(lambda p, m: p - 0.01 * m, parameters, momentum), momentum


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=("conv", "transformer"), default="conv")
    parser.add_argument("--batch", type=int, default=0, help="0: 32 images, 16 sequences")
    parser.add_argument("--size", type=int, default=0, help="0: 96 for an image, 256 for a sequence")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    conv = args.model == "conv"
    batch = args.batch or (32 if conv else 16)
    size = args.size or (96 if conv else 256)

    draw = numpy.random.default_rng(args.seed)
    make = conv_parameters if conv else transformer_parameters
    parameters = jax.tree.map(jnp.asarray, make(draw, args.classes))
    momentum = jax.tree.map(jnp.zeros_like, parameters)
    scores = conv_scores if conv else transformer_scores
    for iteration in range(args.iterations):
        start = time.perf_counter()
        if conv:
            inputs = draw.standard_normal((batch, size, size, 3), dtype=numpy.float32)
            labels = draw.integers(0, args.classes, batch)
        else:
            drawn = draw.integers(0, args.classes, (batch, size + 1))
            inputs, labels = drawn[:, :-1], drawn[:, 1:]
        loss, parameters, momentum = train_step(scores, parameters, momentum, inputs, labels)
        print(f"iteration {iteration} loss {float(loss)!r} seconds {time.perf_counter() - start:.4f}",
              flush=True)


if __name__ == "__main__":
    main()
