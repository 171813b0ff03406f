#include "train/net/build.h"

#include "train/base/fail.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Blobs of more values would not fit into 32-bit counts of the operations. */
#define DIMENSION_MOST (1u << 24)

enum ebb_status ebb__net_create(const char *name, const struct ebb_net_options *options,
                                struct ebb_net **net, struct ebb_error *error)
{
    const uint32_t sizes[] = {options->batch, options->size, options->channels, options->classes};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] > DIMENSION_MOST)
            return ebb__train_fail(error, EBB_ERR_ARGUMENT, name,
                                   "a size of %" PRIu32 " exceeds %u", sizes[i], DIMENSION_MOST);
    struct ebb_net *made = calloc(1, sizeof *made);
    if (!made)
        return ebb__train_fail_memory(error, name);
    snprintf(made->name, sizeof made->name, "%s", name);
    made->options.batch = options->batch ? options->batch : 1;
    made->options.size = options->size ? options->size : 1;
    made->options.channels = options->channels ? options->channels : 1;
    made->options.classes = options->classes ? options->classes : 1;
    *net = made;
    return EBB_OK;
}

void ebb__net_destroy(struct ebb_net *net)
{
    if (!net)
        return;
    free(net->layers);
    free(net);
}

enum ebb_status ebb__net_finish(struct ebb_net **net, struct ebb_error *error)
{
    struct ebb_net *built = *net;
    if (!built->status &&
        (!built->layer_count || built->layers[built->layer_count].kind != EBB_LAYER_LOSS))
        built->status = ebb__train_fail(&built->error, EBB_ERR_INTERNAL, built->name,
                                        "the last layer is not the loss");
    enum ebb_status status = built->status;
    if (status) {
        if (error)
            *error = built->error;
        ebb__net_destroy(built);
        *net = NULL;
    }
    return status;
}

static bool has_room(struct ebb_net *net)
{
    if (net->layer_count + 1 < net->layer_room)
        return true;
    uint32_t room = net->layer_room ? 2 * net->layer_room : 64;
    struct ebb_layer *layers = realloc(net->layers, room * sizeof *layers);
    if (!layers)
        return false;
    net->layers = layers;
    net->layer_room = room;
    return true;
}

static uint32_t append(struct ebb_net *net, struct ebb_layer layer)
{
    if (net->status)
        return 0;
    if (!has_room(net)) {
        net->status = ebb__train_fail_memory(&net->error, net->name);
        return 0;
    }
    snprintf(layer.name, sizeof layer.name, "%s-%" PRIu32, ebb__layer_kind_text(layer.kind),
             net->layer_count + 1);
    for (uint32_t i = 0; i < layer.input_count; i++)
        if (!layer.inputs[i] || layer.inputs[i] > net->layer_count) {
            net->status = ebb__train_fail(&net->error, EBB_ERR_INTERNAL, layer.name,
                                          "input %" PRIu32 " is no earlier layer", i);
            return 0;
        }
    net->status = ebb__layer_infer(net, &layer, &net->error);
    if (net->status)
        return 0;
    net->layers[++net->layer_count] = layer;
    return net->layer_count;
}

static struct ebb_layer with_input(enum ebb_layer_kind kind, uint32_t input)
{
    return (struct ebb_layer){.kind = kind, .inputs = {input}, .input_count = 1};
}

static struct ebb_layer with_window(enum ebb_layer_kind kind, uint32_t input,
                                    struct ebb_window window)
{
    struct ebb_layer layer = with_input(kind, input);
    layer.kernel = window.kernel;
    layer.stride = window.stride;
    layer.pad = window.pad;
    return layer;
}

uint32_t ebb__net_images(struct ebb_net *net)
{
    const struct ebb_net_options *options = &net->options;
    struct ebb_layer layer = {.kind = EBB_LAYER_INPUT};
    layer.shape =
        (struct ebb_shape){4, {options->batch, options->channels, options->size, options->size}};
    return append(net, layer);
}

uint32_t ebb__net_tokens(struct ebb_net *net)
{
    struct ebb_layer layer = {.kind = EBB_LAYER_INPUT};
    layer.shape = (struct ebb_shape){2, {net->options.batch, net->options.size}};
    net->takes_tokens = true;
    return append(net, layer);
}

uint32_t ebb__net_conv(struct ebb_net *net, uint32_t input, struct ebb_window window,
                       uint32_t outputs, bool has_bias)
{
    struct ebb_layer layer = with_window(EBB_LAYER_CONV, input, window);
    layer.outputs = outputs;
    layer.has_bias = has_bias;
    return append(net, layer);
}

uint32_t ebb__net_batch_norm(struct ebb_net *net, uint32_t input)
{
    return append(net, with_input(EBB_LAYER_BATCH_NORM, input));
}

uint32_t ebb__net_relu(struct ebb_net *net, uint32_t input)
{
    return append(net, with_input(EBB_LAYER_RELU, input));
}

uint32_t ebb__net_max_pool(struct ebb_net *net, uint32_t input, struct ebb_window window)
{
    return append(net, with_window(EBB_LAYER_MAX_POOL, input, window));
}

uint32_t ebb__net_average_pool(struct ebb_net *net, uint32_t input, struct ebb_window window)
{
    return append(net, with_window(EBB_LAYER_AVERAGE_POOL, input, window));
}

uint32_t ebb__net_global_pool(struct ebb_net *net, uint32_t input)
{
    /* The kernel is known only here. An input of another rank is reported by the inference. */
    uint32_t kernel = input && input <= net->layer_count ? net->layers[input].shape.size[2] : 1;
    struct ebb_window whole = {.kernel = kernel, .stride = 1};
    return append(net, with_window(EBB_LAYER_AVERAGE_POOL, input, whole));
}

uint32_t ebb__net_lrn(struct ebb_net *net, uint32_t input, uint32_t channels)
{
    struct ebb_layer layer = with_input(EBB_LAYER_LRN, input);
    layer.kernel = channels;
    return append(net, layer);
}

uint32_t ebb__net_dropout(struct ebb_net *net, uint32_t input, float rate)
{
    struct ebb_layer layer = with_input(EBB_LAYER_DROPOUT, input);
    layer.rate = rate;
    return append(net, layer);
}

uint32_t ebb__net_linear(struct ebb_net *net, uint32_t input, uint32_t outputs, bool has_bias)
{
    struct ebb_layer layer = with_input(EBB_LAYER_LINEAR, input);
    layer.outputs = outputs;
    layer.has_bias = has_bias;
    return append(net, layer);
}

uint32_t ebb__net_add(struct ebb_net *net, uint32_t a, uint32_t b)
{
    struct ebb_layer layer = {.kind = EBB_LAYER_ADD, .inputs = {a, b}, .input_count = 2};
    return append(net, layer);
}

uint32_t ebb__net_concat(struct ebb_net *net, const uint32_t *inputs, uint32_t count)
{
    struct ebb_layer layer = {.kind = EBB_LAYER_CONCAT, .input_count = count};
    memcpy(layer.inputs, inputs, count * sizeof *inputs);
    return append(net, layer);
}

uint32_t ebb__net_embedding(struct ebb_net *net, uint32_t input, uint32_t vocabulary,
                            uint32_t outputs)
{
    struct ebb_layer layer = with_input(EBB_LAYER_EMBEDDING, input);
    layer.vocabulary = vocabulary;
    layer.outputs = outputs;
    return append(net, layer);
}

uint32_t ebb__net_layer_norm(struct ebb_net *net, uint32_t input)
{
    return append(net, with_input(EBB_LAYER_LAYER_NORM, input));
}

uint32_t ebb__net_gelu(struct ebb_net *net, uint32_t input)
{
    return append(net, with_input(EBB_LAYER_GELU, input));
}

uint32_t ebb__net_attention(struct ebb_net *net, uint32_t input, uint32_t heads)
{
    struct ebb_layer layer = with_input(EBB_LAYER_ATTENTION, input);
    layer.heads = heads;
    return append(net, layer);
}

uint32_t ebb__net_loss(struct ebb_net *net, uint32_t input)
{
    return append(net, with_input(EBB_LAYER_LOSS, input));
}
