/* Shape inference: the output of a layer from its inputs, and its parameters.
 *
 * Every mismatch is found while the network is built. So the executor and the operations only see
 * shapes that fit. */
#include "train/net/build.h"

#include "train/base/fail.h"

#include <inttypes.h>
#include <stdio.h>

uint64_t ebb__shape_values(const struct ebb_shape *shape)
{
    uint64_t values = 1;
    for (uint32_t i = 0; i < shape->rank; i++)
        values *= shape->size[i];
    return values;
}

char *ebb__shape_format(const struct ebb_shape *shape, char *out, size_t out_bytes)
{
    size_t used = 0;
    if (out_bytes)
        out[0] = '\0';
    for (uint32_t i = 0; i < shape->rank && used < out_bytes; i++)
        used += (size_t)snprintf(out + used, out_bytes - used, i ? "x%" PRIu32 : "%" PRIu32,
                                 shape->size[i]);
    return out;
}

static const struct ebb_shape *input_shape(const struct ebb_net *net, const struct ebb_layer *layer,
                                           uint32_t input)
{
    return &net->layers[layer->inputs[input]].shape;
}

static enum ebb_status fail_rank(const struct ebb_layer *layer, const struct ebb_shape *shape,
                                 const char *takes, struct ebb_error *error)
{
    char text[48];
    return ebb__train_fail(error, EBB_ERR_ARGUMENT, layer->name, "takes %s, not %s", takes,
                           ebb__shape_format(shape, text, sizeof text));
}

static void add_parameter(struct ebb_layer *layer, struct ebb_shape shape)
{
    layer->parameters[layer->parameter_count++] = shape;
}

/* The output of a window that slides over an image. Pixels that do not fill a stride are left out,
 * as in PyTorch. Caffe would take them in for pools. */
static enum ebb_status infer_window(struct ebb_layer *layer, const struct ebb_shape *input,
                                    uint32_t channels, struct ebb_error *error)
{
    if (input->rank != 4)
        return fail_rank(layer, input, "images", error);
    if (!layer->kernel || !layer->stride || layer->pad >= layer->kernel)
        return ebb__train_fail(error, EBB_ERR_ARGUMENT, layer->name,
                               "kernel %" PRIu32 ", stride %" PRIu32 ", pad %" PRIu32
                               " is no window",
                               layer->kernel, layer->stride, layer->pad);
    layer->shape = (struct ebb_shape){4, {input->size[0], channels, 0, 0}};
    for (uint32_t i = 2; i < 4; i++) {
        uint64_t padded = (uint64_t)input->size[i] + 2 * layer->pad;
        if (padded < layer->kernel) {
            char text[48];
            enum ebb_status status =
                ebb__train_fail(error, EBB_ERR_ARGUMENT, layer->name,
                                "the kernel of %" PRIu32 " exceeds the image: %s", layer->kernel,
                                ebb__shape_format(input, text, sizeof text));
            ebb__train_remedy(error, "choose a larger --size");
            return status;
        }
        layer->shape.size[i] = (uint32_t)((padded - layer->kernel) / layer->stride) + 1;
    }
    return EBB_OK;
}

static enum ebb_status infer_conv(const struct ebb_net *net, struct ebb_layer *layer,
                                  struct ebb_error *error)
{
    const struct ebb_shape *input = input_shape(net, layer, 0);
    enum ebb_status status = infer_window(layer, input, layer->outputs, error);
    if (status)
        return status;
    add_parameter(layer, (struct ebb_shape){
                             4, {layer->outputs, input->size[1], layer->kernel, layer->kernel}});
    if (layer->has_bias)
        add_parameter(layer, (struct ebb_shape){1, {layer->outputs}});
    return EBB_OK;
}

/* Scale and shift of each channel. The channels of a sequence come last. */
static enum ebb_status infer_norm(const struct ebb_net *net, struct ebb_layer *layer,
                                  struct ebb_error *error)
{
    const struct ebb_shape *input = input_shape(net, layer, 0);
    bool is_batch_norm = layer->kind == EBB_LAYER_BATCH_NORM;
    if (is_batch_norm ? input->rank != 4 : input->rank < 2 || input->rank > 3)
        return fail_rank(layer, input, is_batch_norm ? "images" : "sequences", error);
    uint32_t channels = input->size[is_batch_norm ? 1 : input->rank - 1];
    layer->shape = *input;
    add_parameter(layer, (struct ebb_shape){1, {channels}});
    add_parameter(layer, (struct ebb_shape){1, {channels}});
    return EBB_OK;
}

static enum ebb_status infer_linear(const struct ebb_net *net, struct ebb_layer *layer,
                                    struct ebb_error *error)
{
    const struct ebb_shape *input = input_shape(net, layer, 0);
    if (input->rank < 2)
        return fail_rank(layer, input, "vectors", error);
    uint64_t inputs = input->size[input->rank - 1];
    if (input->rank == 4)
        inputs = ebb__shape_values(input) / input->size[0];
    if (inputs > UINT32_MAX)
        return fail_rank(layer, input, "fewer values", error);
    layer->shape = (struct ebb_shape){2, {input->size[0], layer->outputs}};
    if (input->rank == 3)
        layer->shape = (struct ebb_shape){3, {input->size[0], input->size[1], layer->outputs}};
    add_parameter(layer, (struct ebb_shape){2, {layer->outputs, (uint32_t)inputs}});
    if (layer->has_bias)
        add_parameter(layer, (struct ebb_shape){1, {layer->outputs}});
    return EBB_OK;
}

/* Inputs must agree in all sizes but `joined`, which is added up. EBB_SHAPE_MOST: in all. */
static enum ebb_status infer_join(const struct ebb_net *net, struct ebb_layer *layer,
                                  uint32_t joined, struct ebb_error *error)
{
    const struct ebb_shape *first = input_shape(net, layer, 0);
    if (joined < EBB_SHAPE_MOST && first->rank != 4)
        return fail_rank(layer, first, "images", error);
    layer->shape = *first;
    for (uint32_t input = 1; input < layer->input_count; input++) {
        const struct ebb_shape *next = input_shape(net, layer, input);
        bool fits = next->rank == first->rank;
        for (uint32_t i = 0; fits && i < first->rank; i++)
            fits = i == joined || next->size[i] == first->size[i];
        if (!fits) {
            char a[48], b[48];
            return ebb__train_fail(
                error, EBB_ERR_ARGUMENT, layer->name, "its inputs differ: %s and %s",
                ebb__shape_format(first, a, sizeof a), ebb__shape_format(next, b, sizeof b));
        }
        if (joined < EBB_SHAPE_MOST)
            layer->shape.size[joined] += next->size[joined];
    }
    return EBB_OK;
}

static enum ebb_status infer_embedding(const struct ebb_net *net, struct ebb_layer *layer,
                                       struct ebb_error *error)
{
    const struct ebb_shape *input = input_shape(net, layer, 0);
    if (!net->takes_tokens || input->rank != 2)
        return fail_rank(layer, input, "tokens", error);
    layer->shape = (struct ebb_shape){3, {input->size[0], input->size[1], layer->outputs}};
    add_parameter(layer, (struct ebb_shape){2, {layer->vocabulary, layer->outputs}});
    add_parameter(layer, (struct ebb_shape){2, {input->size[1], layer->outputs}});
    return EBB_OK;
}

static enum ebb_status infer_attention(const struct ebb_net *net, struct ebb_layer *layer,
                                       struct ebb_error *error)
{
    const struct ebb_shape *input = input_shape(net, layer, 0);
    if (input->rank != 3)
        return fail_rank(layer, input, "sequences", error);
    if (!layer->heads || input->size[2] % (3 * layer->heads))
        return ebb__train_fail(error, EBB_ERR_ARGUMENT, layer->name,
                               "%" PRIu32 " channels are not three times %" PRIu32 " heads",
                               input->size[2], layer->heads);
    layer->shape = (struct ebb_shape){3, {input->size[0], input->size[1], input->size[2] / 3}};
    return EBB_OK;
}

static enum ebb_status infer_same(const struct ebb_net *net, struct ebb_layer *layer,
                                  struct ebb_error *error)
{
    const struct ebb_shape *input = input_shape(net, layer, 0);
    if (layer->kind == EBB_LAYER_LRN && input->rank != 4)
        return fail_rank(layer, input, "images", error);
    if (layer->kind == EBB_LAYER_LOSS && input->rank != 2 && input->rank != 3)
        return fail_rank(layer, input, "vectors", error);
    if (layer->kind == EBB_LAYER_LOSS && input->size[input->rank - 1] != net->options.classes)
        return ebb__train_fail(error, EBB_ERR_ARGUMENT, layer->name,
                               "takes %" PRIu32 " classes, not %" PRIu32, net->options.classes,
                               input->size[input->rank - 1]);
    layer->shape = *input;
    return EBB_OK;
}

enum ebb_status ebb__layer_infer(const struct ebb_net *net, struct ebb_layer *layer,
                                 struct ebb_error *error)
{
    switch (layer->kind) {
    case EBB_LAYER_INPUT:
        return EBB_OK;
    case EBB_LAYER_CONV:
        return infer_conv(net, layer, error);
    case EBB_LAYER_MAX_POOL:
    case EBB_LAYER_AVERAGE_POOL:
        return infer_window(layer, input_shape(net, layer, 0), input_shape(net, layer, 0)->size[1],
                            error);
    case EBB_LAYER_BATCH_NORM:
    case EBB_LAYER_LAYER_NORM:
        return infer_norm(net, layer, error);
    case EBB_LAYER_LINEAR:
        return infer_linear(net, layer, error);
    case EBB_LAYER_ADD:
        return infer_join(net, layer, EBB_SHAPE_MOST, error);
    case EBB_LAYER_CONCAT:
        return infer_join(net, layer, 1, error);
    case EBB_LAYER_EMBEDDING:
        return infer_embedding(net, layer, error);
    case EBB_LAYER_ATTENTION:
        return infer_attention(net, layer, error);
    default:
        return infer_same(net, layer, error);
    }
}
