"""Keras on TensorFlow in graph mode: a residual conv net, one inter-op thread."""
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "frameworks"))
import life  # noqa: E402  pylint: disable=wrong-import-position
import numpy  # noqa: E402
import tensorflow  # noqa: E402
from keras_train import conv_net  # noqa: E402
from tensorflow import keras  # noqa: E402


def main():
    args = life.arguments(batch=22)
    tensorflow.config.threading.set_inter_op_parallelism_threads(1)
    tensorflow.config.threading.set_intra_op_parallelism_threads(2)
    keras.utils.set_random_seed(args.seed)
    model = conv_net(80, 100, 32)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9),
                  keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    draw = numpy.random.default_rng(args.seed)
    life.begin()
    for _ in range(args.steps):
        images = draw.standard_normal((args.batch, 80, 80, 3), dtype=numpy.float32)
        model.reset_metrics()  # the loss is a running mean, which would hide the last digits
        life.step(model.train_on_batch(images, draw.integers(0, 100, args.batch)))


if __name__ == "__main__":
    main()
