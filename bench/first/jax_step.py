"""JAX: one compiled step of a conv net. Another compiled function evaluates it each 5th step."""
import functools
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402

import life  # noqa: E402  pylint: disable=wrong-import-order

SIZE = 64


def convolve(x, weight, stride=1):
    return jax.lax.conv_general_dilated(x, weight, (stride, stride), "SAME",
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))


def normalise(x):
    mean = x.mean((0, 1, 2), keepdims=True)
    return (x - mean) * jax.lax.rsqrt(x.var((0, 1, 2), keepdims=True) + 1e-5)


def make(draw):
    def weight(*shape):
        scale = (2 / numpy.prod(shape[:-1])) ** 0.5
        return (draw.standard_normal(shape) * scale).astype(numpy.float32)
    blocks, had = [], 32
    for width in (32, 64, 128, 256):
        blocks.append((weight(3, 3, had, width), weight(3, 3, width, width),
                       weight(1, 1, had, width)))
        had = width
    return {"stem": weight(3, 3, 3, 32), "blocks": blocks, "head": weight(had, 100)}


def loss_of(parameters, images, labels):
    x = convolve(images, parameters["stem"])
    for i, (first, second, across) in enumerate(parameters["blocks"]):
        stride = 2 if i else 1
        y = normalise(convolve(jax.nn.relu(normalise(convolve(x, first, stride))), second))
        x = jax.nn.relu(convolve(x, across, stride) + y)
    logarithms = jax.nn.log_softmax(x.mean((1, 2)) @ parameters["head"])
    return -jnp.take_along_axis(logarithms, labels[:, None], -1).mean()


@functools.partial(jax.jit, donate_argnums=(0, 1))
def train(parameters, momentum, images, labels):
    loss, gradients = jax.value_and_grad(loss_of)(parameters, images, labels)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
    return loss, jax.tree.map(lambda p, m: p - 0.01 * m, parameters, momentum), momentum


evaluate = jax.jit(loss_of)


def main():
    args = life.arguments(batch=32)
    draw = numpy.random.default_rng(args.seed)
    parameters = jax.tree.map(jnp.asarray, make(draw))
    momentum = jax.tree.map(jnp.zeros_like, parameters)

    def data():
        return (draw.standard_normal((args.batch, SIZE, SIZE, 3), dtype=numpy.float32),
                draw.integers(0, 100, args.batch))

    life.begin()
    for step in range(args.steps):
        loss, parameters, momentum = train(parameters, momentum, *data())
        losses = [float(loss)]
        if step % 5 == 4:
            losses.append(float(evaluate(parameters, *data())))
        life.step(*losses)


if __name__ == "__main__":
    main()
