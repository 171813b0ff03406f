"""Keras on TensorFlow in graph mode: a residual conv net, one inter-op thread."""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import life  # noqa: E402  pylint: disable=wrong-import-position
import numpy  # noqa: E402
import tensorflow  # noqa: E402
from tensorflow import keras  # noqa: E402


def conv_net(size):
    layers = keras.layers
    inputs = keras.Input((size, size, 3))
    x = layers.Conv2D(32, 3, padding="same", use_bias=False)(inputs)
    for stage, width in enumerate((32, 64, 128, 256)):
        for block in range(2):
            stride = 2 if stage and not block else 1
            y = layers.Conv2D(width, 3, stride, padding="same", use_bias=False)(x)
            y = layers.ReLU()(layers.BatchNormalization()(y))
            y = layers.Conv2D(width, 3, padding="same", use_bias=False)(y)
            y = layers.BatchNormalization()(y)
            if stride > 1:
                x = layers.Conv2D(width, 1, stride, use_bias=False)(x)
            x = layers.ReLU()(layers.Add()([x, y]))
    return keras.Model(inputs, layers.Dense(100)(layers.GlobalAveragePooling2D()(x)))


def main():
    args = life.arguments(batch=22)
    tensorflow.config.threading.set_inter_op_parallelism_threads(1)
    tensorflow.config.threading.set_intra_op_parallelism_threads(2)
    keras.utils.set_random_seed(args.seed)
    model = conv_net(80)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9),
                  keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    draw = numpy.random.default_rng(args.seed)
    life.begin()
    for _ in range(args.steps):
        images = draw.standard_normal((args.batch, 80, 80, 3), dtype=numpy.float32)
        model.reset_metrics()  # which is a running mean: it would hide the last digits
        life.step(model.train_on_batch(images, draw.integers(0, 100, args.batch)))


if __name__ == "__main__":
    main()
