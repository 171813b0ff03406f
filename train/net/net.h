/* Networks: graphs of layers, with the shape of every output.
 *
 *     struct ebb_net *net;
 *     struct ebb_net_options options = {.batch = 32, .size = 224};
 *     if (ebb__net_named("resnet-50", &options, &net, &error) == EBB_OK) {
 *         for (uint32_t l = 1; l <= net->layer_count; l++)
 *             use(&net->layers[l]);
 *         ebb__net_destroy(net);
 *     }
 *
 * Layers are numbered from 1, in an order in which each comes after its inputs. Layer 1 is the
 * input, the last one is the loss. Batch norm and ReLU are layers of their own: so the scheduler
 * sees each of their tensors. A net is not changed once it is finished, so threads may share it. */
#ifndef EBB_TRAIN_NET_H
#define EBB_TRAIN_NET_H

#include "ebb/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(name, text) */
#define EBB_LAYER_TABLE(X)                                                                         \
    X(INPUT, "input")                                                                              \
    X(CONV, "conv")                                                                                \
    X(BATCH_NORM, "batch-norm")                                                                    \
    X(RELU, "relu")                                                                                \
    X(MAX_POOL, "max-pool")                                                                        \
    X(AVERAGE_POOL, "average-pool")                                                                \
    X(LRN, "lrn")                                                                                  \
    X(DROPOUT, "dropout")                                                                          \
    X(LINEAR, "linear")                                                                            \
    X(ADD, "add")                                                                                  \
    X(CONCAT, "concat")                                                                            \
    X(EMBEDDING, "embedding")                                                                      \
    X(LAYER_NORM, "layer-norm")                                                                    \
    X(GELU, "gelu")                                                                                \
    X(ATTENTION, "attention")                                                                      \
    X(LOSS, "loss")

enum ebb_layer_kind {
#define EBB_LAYER_ENUM(name, text) EBB_LAYER_##name,
    EBB_LAYER_TABLE(EBB_LAYER_ENUM)
#undef EBB_LAYER_ENUM
        EBB_LAYER_KIND_COUNT
};

/* Images are count, channels, height, width. Vectors are count, channels. Sequences are count,
 * positions, channels. Token numbers are count, positions. */
#define EBB_SHAPE_MOST 4
struct ebb_shape {
    uint32_t rank;
    uint32_t size[EBB_SHAPE_MOST];
};

#define EBB_LAYER_INPUTS_MOST 4
/* Weights and bias, or scale and shift, or the tables of tokens and of positions. */
#define EBB_LAYER_PARAMETERS_MOST 2

struct ebb_layer {
    enum ebb_layer_kind kind;
    char name[48];
    uint32_t inputs[EBB_LAYER_INPUTS_MOST]; /* layers */
    uint32_t input_count;
    struct ebb_shape shape; /* of the output; of the loss: the logits */
    uint32_t outputs;       /* of a convolution or linear layer: channels */
    uint32_t kernel;        /* of a convolution or pool: pixels; of LRN: channels */
    uint32_t stride;
    uint32_t pad;
    uint32_t heads;      /* of attention */
    float rate;          /* of dropout: the share that is dropped */
    bool has_bias;       /* of a convolution or linear layer */
    uint32_t vocabulary; /* of an embedding: tokens */
    struct ebb_shape parameters[EBB_LAYER_PARAMETERS_MOST];
    uint32_t parameter_count;
};

/* What a user may choose. 0: the default of the family. */
struct ebb_net_options {
    uint32_t batch;    /* images or sequences; 0: 1 */
    uint32_t size;     /* height and width in pixels, or positions of a sequence */
    uint32_t channels; /* of the images */
    uint32_t classes;  /* or the vocabulary */
};

struct ebb_net {
    char name[32];
    struct ebb_net_options options; /* no zeros */
    bool takes_tokens;              /* the input is token numbers, else images */
    struct ebb_layer *layers;       /* [1, layer_count] */
    uint32_t layer_count;
    uint32_t layer_room;
    enum ebb_status status; /* of building: the first failure */
    struct ebb_error error;
};

/* Builds the network that a user names: `resnet-50`. EBB_ERR_ARGUMENT: no such network, or its
 * shapes do not fit: the image is too small. EBB_ERR_MEMORY. The caller destroys *net. */
EBB_NODISCARD enum ebb_status ebb__net_named(const char *name,
                                             const struct ebb_net_options *options,
                                             struct ebb_net **net, struct ebb_error *error);

/* NULL is allowed. */
void ebb__net_destroy(struct ebb_net *net);

/* The names that ebb__net_named() takes, as a line of text. */
const char *ebb__net_names(void);

/* Values of a shape; of one element of the batch. */
uint64_t ebb__shape_values(const struct ebb_shape *shape);
/* Writes `32x3x224x224` into `out` (48 bytes are always enough); returns `out`. */
char *ebb__shape_format(const struct ebb_shape *shape, char *out, size_t out_bytes);

/* All parameters of a layer or of the net. Running statistics are none. */
uint64_t ebb__layer_parameter_values(const struct ebb_layer *layer);
uint64_t ebb__net_parameter_values(const struct ebb_net *net);

const char *ebb__layer_kind_text(enum ebb_layer_kind kind);

#endif
