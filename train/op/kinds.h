/* The kinds of operations, and how to make them.
 *
 *     struct ebb_op_convolution options = {.channels = 64, .kernel = {3, 3}, .padding = {1, 1}};
 *     ebb_op_convolution_create(engine, "conv1", &options, ebb_op_output(before, 0), &op, &error);
 *
 * Inputs are the outputs' descriptions of other operations, or ebb_op_desc_floats(). A constructor
 * copies all that it is given. Fields that are 0 have the default that is given here.
 *
 * EBB_ERR_ARGUMENT: shapes or options do not fit; the error names the operation and the shapes.
 * EBB_ERR_UNSUPPORTED: oneDNN cannot do it. EBB_ERR_MEMORY. */
#ifndef EBB_TRAIN_KINDS_H
#define EBB_TRAIN_KINDS_H

#include "train/op/op.h"

/* (batch, channels, height, width). Parameters: weights (channels, inputs, height, width), with
 * groups (groups, channels / groups, inputs / groups, height, width), and bias if wanted. They
 * begin as He's normal distribution over the outputs, and zeros. BACKWARD_DATA does not read the
 * input. */
struct ebb_op_convolution {
    int64_t channels; /* of the output */
    int64_t kernel[2];
    int64_t stride[2];  /* 0: 1 */
    int64_t padding[2]; /* on both sides */
    int64_t groups;     /* 0: 1 */
    bool bias;
};
EBB_NODISCARD enum ebb_status ebb_op_convolution_create(
    struct ebb_op_engine *engine, const char *name, const struct ebb_op_convolution *options,
    const struct ebb_op_desc *input, struct ebb_op **op, struct ebb_error *error);

/* Parameters: scale, shift. States: running mean and variance (unbiased), which EVALUATE uses.
 * BACKWARD_DATA reads the parameters' gradients. With `relu` a ReLU follows, whose mask is saved.
 */
struct ebb_op_batch_norm {
    float epsilon;  /* 0: 1e-5 */
    float momentum; /* weight of the new value in running ones; 0: 0.1 */
    bool relu;
};
EBB_NODISCARD enum ebb_status ebb_op_batch_norm_create(struct ebb_op_engine *engine,
                                                       const char *name,
                                                       const struct ebb_op_batch_norm *options,
                                                       const struct ebb_op_desc *input,
                                                       struct ebb_op **op, struct ebb_error *error);

/* max(x, 0). Saves one bit for each element; may work in place in both directions. */
EBB_NODISCARD enum ebb_status ebb_op_relu_create(struct ebb_op_engine *engine, const char *name,
                                                 const struct ebb_op_desc *input,
                                                 struct ebb_op **op, struct ebb_error *error);

/* x Phi(x) by the error function. BACKWARD_DATA reads the input. */
EBB_NODISCARD enum ebb_status ebb_op_gelu_create(struct ebb_op_engine *engine, const char *name,
                                                 const struct ebb_op_desc *input,
                                                 struct ebb_op **op, struct ebb_error *error);

/* Pooling of images. `max` saves the places of the maxima. The average is over the elements inside
 * the image. */
struct ebb_op_pooling {
    bool max;           /* false: average */
    int64_t kernel[2];  /* 0: the whole image */
    int64_t stride[2];  /* 0: as the kernel */
    int64_t padding[2]; /* on both sides */
    bool ceiling;       /* a last window that is only partly inside the image counts */
};
EBB_NODISCARD enum ebb_status ebb_op_pooling_create(struct ebb_op_engine *engine, const char *name,
                                                    const struct ebb_op_pooling *options,
                                                    const struct ebb_op_desc *input,
                                                    struct ebb_op **op, struct ebb_error *error);

/* Average over the whole image: (batch, channels, height, width) to (batch, channels, 1, 1). */
EBB_NODISCARD enum ebb_status ebb_op_global_pooling_create(struct ebb_op_engine *engine,
                                                           const char *name,
                                                           const struct ebb_op_desc *input,
                                                           struct ebb_op **op,
                                                           struct ebb_error *error);

/* An image is flattened: (batch, channels, height, width) to (batch, features). Otherwise the last
 * dimension is transformed: (batch, time, inputs) to (batch, time, features). Parameters: weights
 * (features, inputs) or (features, channels, height, width), and bias if wanted. */
struct ebb_op_dense {
    int64_t features;
    bool bias;
    float spread; /* weights are normal with this standard deviation. 0: uniform, with the bound
                     1 / sqrt(inputs) */
};
EBB_NODISCARD enum ebb_status ebb_op_dense_create(struct ebb_op_engine *engine, const char *name,
                                                  const struct ebb_op_dense *options,
                                                  const struct ebb_op_desc *input,
                                                  struct ebb_op **op, struct ebb_error *error);

/* The sum of two values of the same shape; the output has the layout of the first. With `relu` a
 * ReLU follows, whose mask is saved. Without, input gradients are copies (`is_copy`), unless the
 * layouts differ. */
struct ebb_op_add {
    bool relu;
};
EBB_NODISCARD enum ebb_status ebb_op_add_create(struct ebb_op_engine *engine, const char *name,
                                                const struct ebb_op_add *options,
                                                const struct ebb_op_desc *const inputs[2],
                                                struct ebb_op **op, struct ebb_error *error);

enum { EBB_OP_CONCAT_MAX = 20 };

/* Images side by side in their channels; 2 to EBB_OP_CONCAT_MAX of them. */
EBB_NODISCARD enum ebb_status ebb_op_concat_create(struct ebb_op_engine *engine, const char *name,
                                                   uint32_t count,
                                                   const struct ebb_op_desc *const *inputs,
                                                   struct ebb_op **op, struct ebb_error *error);

/* Softmax and cross entropy. Inputs: scores (batch, classes) or (batch, time, classes), labels
 * (int32_t) with the same shape less the last dimension. A negative label is left out. Outputs, of
 * one element each: the mean loss (float), and how many labels have the highest score (int32_t).
 * There is no output gradient: backward begins here, with the gradient of weight * loss. */
struct ebb_op_cross_entropy {
    float weight; /* 0: 1 */
};
EBB_NODISCARD enum ebb_status ebb_op_cross_entropy_create(
    struct ebb_op_engine *engine, const char *name, const struct ebb_op_cross_entropy *options,
    const struct ebb_op_desc *scores, const struct ebb_op_desc *labels, struct ebb_op **op,
    struct ebb_error *error);

/* Over the last dimension. Parameters: scale, shift. */
struct ebb_op_layer_norm {
    float epsilon; /* 0: 1e-5 */
};
EBB_NODISCARD enum ebb_status ebb_op_layer_norm_create(struct ebb_op_engine *engine,
                                                       const char *name,
                                                       const struct ebb_op_layer_norm *options,
                                                       const struct ebb_op_desc *input,
                                                       struct ebb_op **op, struct ebb_error *error);

/* Causal self-attention of several heads. Input (batch, time, 3 x features): queries, keys, values
 * side by side, made by a dense operation. Output (batch, time, features). Saves the weights of the
 * attention (batch, heads, time, time). */
struct ebb_op_attention {
    int64_t heads; /* divides the features */
};
EBB_NODISCARD enum ebb_status ebb_op_attention_create(struct ebb_op_engine *engine,
                                                      const char *name,
                                                      const struct ebb_op_attention *options,
                                                      const struct ebb_op_desc *input,
                                                      struct ebb_op **op, struct ebb_error *error);

/* Tokens (batch, time) of int32_t to (batch, time, features): the row of each token plus the row of
 * its position. Parameters: tokens (vocabulary, features), positions (time, features). There is no
 * BACKWARD_DATA. */
struct ebb_op_embedding {
    int64_t vocabulary;
    int64_t features;
    float spread; /* standard deviation at first; 0: 0.02 */
};
EBB_NODISCARD enum ebb_status ebb_op_embedding_create(struct ebb_op_engine *engine,
                                                      const char *name,
                                                      const struct ebb_op_embedding *options,
                                                      const struct ebb_op_desc *tokens,
                                                      struct ebb_op **op, struct ebb_error *error);

/* Sets elements to 0 with a probability, and divides the others by what remains. Which ones depends
 * on the call's seed and the operation's name only. Saves one bit for each element. */
struct ebb_op_dropout {
    float probability; /* 0 to below 1 */
};
EBB_NODISCARD enum ebb_status ebb_op_dropout_create(struct ebb_op_engine *engine, const char *name,
                                                    const struct ebb_op_dropout *options,
                                                    const struct ebb_op_desc *input,
                                                    struct ebb_op **op, struct ebb_error *error);

/* Local response normalisation across channels: x / (k + alpha / size * sum of squares)^beta. */
struct ebb_op_lrn {
    int64_t size; /* 0: 5 */
    float alpha;  /* 0: 1e-4 */
    float beta;   /* 0: 0.75 */
    float k;      /* 0: 1 */
};
EBB_NODISCARD enum ebb_status ebb_op_lrn_create(struct ebb_op_engine *engine, const char *name,
                                                const struct ebb_op_lrn *options,
                                                const struct ebb_op_desc *input, struct ebb_op **op,
                                                struct ebb_error *error);

#endif
