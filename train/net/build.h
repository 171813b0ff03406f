/* How a family describes its network: one call a layer.
 *
 *     struct ebb_net *net;
 *     ebb__net_create("tiny", &options, &net, &error);
 *     uint32_t at = ebb__net_images(net);
 *     at = ebb__net_conv(net, at, (struct ebb_window){.kernel = 3, .stride = 1, .pad = 1}, 16,
 * true);
 *     at = ebb__net_relu(net, at);
 *     at = ebb__net_linear(net, at, options.classes, true);
 *     ebb__net_loss(net, at);
 *     status = ebb__net_finish(&net, &error);
 *
 * Each call returns the number of its layer. The first failure stays in the net: later calls do
 * nothing and return 0, and ebb__net_finish() reports it. So families need no error handling. */
#ifndef EBB_TRAIN_NET_BUILD_H
#define EBB_TRAIN_NET_BUILD_H

#include "train/net/net.h"

struct ebb_window {
    uint32_t kernel;
    uint32_t stride;
    uint32_t pad; /* on each side */
};

/* Zero options become 1. */
EBB_NODISCARD enum ebb_status ebb__net_create(const char *name,
                                              const struct ebb_net_options *options,
                                              struct ebb_net **net, struct ebb_error *error);
/* Checks that the last layer is the loss. After a failure the net is destroyed, and *net is
 * NULL. */
EBB_NODISCARD enum ebb_status ebb__net_finish(struct ebb_net **net, struct ebb_error *error);

uint32_t ebb__net_images(struct ebb_net *net); /* the input: batch, channels, size, size */
uint32_t ebb__net_tokens(struct ebb_net *net); /* the input: batch, size */
uint32_t ebb__net_conv(struct ebb_net *net, uint32_t input, struct ebb_window window,
                       uint32_t outputs, bool has_bias);
uint32_t ebb__net_batch_norm(struct ebb_net *net, uint32_t input);
uint32_t ebb__net_relu(struct ebb_net *net, uint32_t input);
uint32_t ebb__net_max_pool(struct ebb_net *net, uint32_t input, struct ebb_window window);
uint32_t ebb__net_average_pool(struct ebb_net *net, uint32_t input, struct ebb_window window);
/* The average of a whole image: height and width become 1. */
uint32_t ebb__net_global_pool(struct ebb_net *net, uint32_t input);
uint32_t ebb__net_lrn(struct ebb_net *net, uint32_t input, uint32_t channels);
uint32_t ebb__net_dropout(struct ebb_net *net, uint32_t input, float rate);
/* Images become vectors first. Sequences stay sequences. */
uint32_t ebb__net_linear(struct ebb_net *net, uint32_t input, uint32_t outputs, bool has_bias);
uint32_t ebb__net_add(struct ebb_net *net, uint32_t a, uint32_t b); /* the same shape */
/* Joins the channels of images of one size. `count` is 2 to EBB_LAYER_INPUTS_MOST. */
uint32_t ebb__net_concat(struct ebb_net *net, const uint32_t *inputs, uint32_t count);
/* A table of tokens and one of positions; both rows are added. */
uint32_t ebb__net_embedding(struct ebb_net *net, uint32_t input, uint32_t vocabulary,
                            uint32_t outputs);
uint32_t ebb__net_layer_norm(struct ebb_net *net, uint32_t input);
uint32_t ebb__net_gelu(struct ebb_net *net, uint32_t input);
/* Causal attention of queries, keys and values that lie side by side: of 3 C channels, C remain. */
uint32_t ebb__net_attention(struct ebb_net *net, uint32_t input, uint32_t heads);
/* The mean cross entropy of a softmax. */
uint32_t ebb__net_loss(struct ebb_net *net, uint32_t input);

/* Sets shape and parameters of a layer from its inputs. EBB_ERR_ARGUMENT: they do not fit; the
 * error names the layer. */
EBB_NODISCARD enum ebb_status ebb__layer_infer(const struct ebb_net *net, struct ebb_layer *layer,
                                               struct ebb_error *error);

/* The families. Each builds from a created net up to its loss. */
void ebb__net_build_cnn(struct ebb_net *net);
void ebb__net_build_alexnet(struct ebb_net *net);
void ebb__net_build_vgg_16(struct ebb_net *net);
void ebb__net_build_googlenet(struct ebb_net *net);
/* False: there is no such depth. */
bool ebb__net_build_resnet(struct ebb_net *net, uint32_t depth);
void ebb__net_build_wrn(struct ebb_net *net, uint32_t depth, uint32_t width);
void ebb__net_build_densenet_121(struct ebb_net *net);
void ebb__net_build_gpt(struct ebb_net *net, uint32_t blocks);

#endif
