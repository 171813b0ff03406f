#!/usr/bin/env python3
"""Trains with Keras on TensorFlow on synthetic data, and prints each iteration's loss and seconds.

    keras_train.py --model conv --mode graph --iterations 12

--mode graph compiles the step into one graph. Several threads execute its operations as they become
ready. --mode eager dispatches them one by one. There is one inter-op thread. With more,
TensorFlow's own losses differ from run to run.
"""
import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy  # noqa: E402
import tensorflow  # noqa: E402
from tensorflow import keras  # noqa: E402


def conv_net(size, classes, first=64):
    """Residual convolutions in four stages, each with twice the channels of the previous one."""
    layers = keras.layers
    inputs = keras.Input((size, size, 3))
    x = layers.Conv2D(first, 3, padding="same", use_bias=False)(inputs)
    for stage in range(4):
        width = first << stage
        for block in range(2):
            stride = 2 if stage and not block else 1
            y = layers.Conv2D(width, 3, stride, padding="same", use_bias=False)(x)
            y = layers.ReLU()(layers.BatchNormalization()(y))
            y = layers.Conv2D(width, 3, padding="same", use_bias=False)(y)
            y = layers.BatchNormalization()(y)
            if stride > 1 or x.shape[-1] != width:
                x = layers.Conv2D(width, 1, stride, use_bias=False)(x)
            x = layers.ReLU()(layers.Add()([x, y]))
    return keras.Model(inputs, layers.Dense(classes)(layers.GlobalAveragePooling2D()(x)))


def transformer(length, tokens, width=256, depth=4):
    layers = keras.layers
    inputs = keras.Input((length,), dtype="int32")
    x = layers.Embedding(tokens, width)(inputs)
    for _ in range(depth):
        y = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(4, width // 4)(y, y, use_causal_mask=True)
        y = layers.LayerNormalization()(x)
        x = x + layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(y))
    return keras.Model(inputs, layers.Dense(tokens)(layers.LayerNormalization()(x)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=("conv", "transformer"), default="conv")
    parser.add_argument("--mode", choices=("graph", "eager"), default="graph")
    parser.add_argument("--batch", type=int, default=0, help="0: 32 images, 16 sequences")
    parser.add_argument("--size", type=int, default=0, help="0: 96 for an image, 256 for a sequence")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inter-op", type=int, default=1)
    args = parser.parse_args()
    conv = args.model == "conv"
    batch = args.batch or (32 if conv else 16)
    size = args.size or (96 if conv else 256)

    tensorflow.config.threading.set_inter_op_parallelism_threads(args.inter_op)
    tensorflow.config.threading.set_intra_op_parallelism_threads(2)
    keras.utils.set_random_seed(args.seed)
    model = conv_net(size, args.classes) if conv else transformer(size, args.classes)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9),
                  keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  run_eagerly=args.mode == "eager", jit_compile=False)
    draw = numpy.random.default_rng(args.seed)
    for iteration in range(args.iterations):
        start = time.perf_counter()
        if conv:
            inputs = draw.standard_normal((batch, size, size, 3), dtype=numpy.float32)
            labels = draw.integers(0, args.classes, batch)
        else:
            drawn = draw.integers(0, args.classes, (batch, size + 1))
            inputs, labels = drawn[:, :-1], drawn[:, 1:]
        # The metric is a running mean. Without a reset it would hide the last digits.
        model.reset_metrics()
        loss = float(model.train_on_batch(inputs, labels))
        print(f"iteration {iteration} loss {loss!r} seconds {time.perf_counter() - start:.4f}",
              flush=True)


if __name__ == "__main__":
    main()
