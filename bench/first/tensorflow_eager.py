"""TensorFlow, eager: a transformer, gradients of two micro-batches, evaluated each 4th step."""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import life  # noqa: E402  pylint: disable=wrong-import-position
import tensorflow as tf  # noqa: E402

WIDTH, HEADS, LAYERS, LENGTH, TOKENS = 256, 4, 4, 128, 2000


def weights(seed):
    draw = tf.random.Generator.from_seed(seed)

    def weight(*shape):
        return tf.Variable(draw.normal(shape) * shape[0] ** -0.5)
    layers = [(weight(WIDTH, 3 * WIDTH), weight(WIDTH, WIDTH), weight(WIDTH, 4 * WIDTH),
               weight(4 * WIDTH, WIDTH)) for _ in range(LAYERS)]
    return weight(TOKENS, WIDTH), layers, weight(WIDTH, TOKENS)


def normalise(x):
    mean, variance = tf.nn.moments(x, -1, keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-5)


def scores_of(parameters, tokens):
    embedding, layers, head = parameters
    x = tf.gather(embedding, tokens)
    batch = tokens.shape[0]
    for joint, out, up, down in layers:
        parts = tf.split(tf.tensordot(normalise(x), joint, 1), 3, -1)
        query, key, value = (
            tf.transpose(tf.reshape(part, (batch, LENGTH, HEADS, -1)), (0, 2, 1, 3))
            for part in parts)
        weight = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) * (WIDTH // HEADS) ** -0.5)
        mixed = tf.transpose(tf.matmul(weight, value), (0, 2, 1, 3))
        x = x + tf.tensordot(tf.reshape(mixed, (batch, LENGTH, WIDTH)), out, 1)
        x = x + tf.tensordot(tf.nn.gelu(tf.tensordot(normalise(x), up, 1)), down, 1)
    return tf.tensordot(normalise(x), head, 1)


def main():
    args = life.arguments(batch=10)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(2)
    parameters = weights(args.seed)
    variables = tf.nest.flatten(parameters)
    velocity = [tf.Variable(tf.zeros_like(variable)) for variable in variables]
    draw = tf.random.Generator.from_seed(args.seed + 1)

    def loss_of():
        drawn = draw.uniform((args.batch, LENGTH + 1), 0, TOKENS, tf.int32)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
            drawn[:, 1:], scores_of(parameters, drawn[:, :-1])))

    life.begin()
    for step in range(args.steps):
        losses, summed = [], None
        for _ in range(2):
            with tf.GradientTape() as tape:
                loss = loss_of()
            gradients = [tf.convert_to_tensor(part) for part in tape.gradient(loss, variables)]
            summed = gradients if summed is None else [a + b for a, b in zip(summed, gradients)]
            losses.append(float(loss))
        for variable, change, gradient in zip(variables, velocity, summed):
            change.assign(0.9 * change + gradient)
            variable.assign_sub(0.01 * change)
        if step % 4 == 3:
            losses.append(float(loss_of()))
        life.step(*losses)


if __name__ == "__main__":
    main()
