#include "train/exec/graph.h"

#include "train/base/fail.h"
#include "train/op/kinds.h"

#include <stdlib.h>
#include <string.h>

/* GPT-2's standard deviation of weights at first. Images begin as the operations' defaults. */
#define SEQUENCE_SPREAD 0.02f

static void to_dims(const struct ebb_shape *shape, int64_t dims[EBB_SHAPE_MOST])
{
    for (uint32_t i = 0; i < shape->rank; i++)
        dims[i] = shape->size[i];
}

static enum ebb_status describe_inputs(struct ebb_graph *graph, struct ebb_error *error)
{
    const struct ebb_net *net = graph->net;
    const struct ebb_shape *input = &net->layers[1].shape;
    int64_t dims[EBB_SHAPE_MOST];
    to_dims(input, dims);
    enum ebb_status status = net->takes_tokens
                                 ? ebb_op_desc_indices(input->rank, dims, &graph->input, error)
                                 : ebb_op_desc_floats(input->rank, dims, &graph->input, error);
    if (status)
        return status;
    const struct ebb_shape *scores = &net->layers[net->layer_count].shape;
    to_dims(scores, dims);
    return ebb_op_desc_indices(scores->rank - 1, dims, &graph->labels, error);
}

static enum ebb_status make_window(struct ebb_graph *graph, const struct ebb_layer *layer,
                                   const struct ebb_op_desc *input, struct ebb_op **op,
                                   struct ebb_error *error)
{
    int64_t kernel = layer->kernel, stride = layer->stride, pad = layer->pad;
    if (layer->kind == EBB_LAYER_CONV) {
        struct ebb_op_convolution options = {.channels = layer->outputs,
                                             .kernel = {kernel, kernel},
                                             .stride = {stride, stride},
                                             .padding = {pad, pad},
                                             .bias = layer->has_bias};
        return ebb_op_convolution_create(graph->engine, layer->name, &options, input, op, error);
    }
    if (layer->kind == EBB_LAYER_AVERAGE_POOL && kernel == input->dims[2] && !pad)
        return ebb_op_global_pooling_create(graph->engine, layer->name, input, op, error);
    struct ebb_op_pooling options = {.max = layer->kind == EBB_LAYER_MAX_POOL,
                                     .kernel = {kernel, kernel},
                                     .stride = {stride, stride},
                                     .padding = {pad, pad}};
    return ebb_op_pooling_create(graph->engine, layer->name, &options, input, op, error);
}

static enum ebb_status make_sequence(struct ebb_graph *graph, const struct ebb_layer *layer,
                                     const struct ebb_op_desc *input, struct ebb_op **op,
                                     struct ebb_error *error)
{
    struct ebb_op_engine *engine = graph->engine;
    if (layer->kind == EBB_LAYER_EMBEDDING) {
        struct ebb_op_embedding options = {.vocabulary = layer->vocabulary,
                                           .features = layer->outputs};
        return ebb_op_embedding_create(engine, layer->name, &options, input, op, error);
    }
    if (layer->kind == EBB_LAYER_LAYER_NORM) {
        struct ebb_op_layer_norm options = {0};
        return ebb_op_layer_norm_create(engine, layer->name, &options, input, op, error);
    }
    if (layer->kind == EBB_LAYER_GELU)
        return ebb_op_gelu_create(engine, layer->name, input, op, error);
    struct ebb_op_attention options = {.heads = layer->heads};
    return ebb_op_attention_create(engine, layer->name, &options, input, op, error);
}

static enum ebb_status make_op(struct ebb_graph *graph, const struct ebb_layer *layer,
                               const struct ebb_op_desc *const *inputs, struct ebb_op **op,
                               struct ebb_error *error)
{
    struct ebb_op_engine *engine = graph->engine;
    struct ebb_op_batch_norm norm = {0};
    struct ebb_op_lrn lrn = {.size = layer->kernel};
    struct ebb_op_dropout dropout = {.probability = layer->rate};
    struct ebb_op_add add = {0};
    struct ebb_op_cross_entropy loss = {0};
    struct ebb_op_dense dense = {.features = layer->outputs,
                                 .bias = layer->has_bias,
                                 .spread = graph->net->takes_tokens ? SEQUENCE_SPREAD : 0};
    switch (layer->kind) {
    case EBB_LAYER_CONV:
    case EBB_LAYER_MAX_POOL:
    case EBB_LAYER_AVERAGE_POOL:
        return make_window(graph, layer, inputs[0], op, error);
    case EBB_LAYER_BATCH_NORM:
        return ebb_op_batch_norm_create(engine, layer->name, &norm, inputs[0], op, error);
    case EBB_LAYER_RELU:
        return ebb_op_relu_create(engine, layer->name, inputs[0], op, error);
    case EBB_LAYER_LRN:
        return ebb_op_lrn_create(engine, layer->name, &lrn, inputs[0], op, error);
    case EBB_LAYER_DROPOUT:
        return ebb_op_dropout_create(engine, layer->name, &dropout, inputs[0], op, error);
    case EBB_LAYER_LINEAR:
        return ebb_op_dense_create(engine, layer->name, &dense, inputs[0], op, error);
    case EBB_LAYER_ADD:
        return ebb_op_add_create(engine, layer->name, &add, inputs, op, error);
    case EBB_LAYER_CONCAT:
        return ebb_op_concat_create(engine, layer->name, layer->input_count, inputs, op, error);
    case EBB_LAYER_LOSS:
        return ebb_op_cross_entropy_create(engine, layer->name, &loss, inputs[0], &graph->labels,
                                           op, error);
    default:
        return make_sequence(graph, layer, inputs[0], op, error);
    }
}

/* The network and the operation infer shapes independently. They must agree. */
static enum ebb_status compare_shapes(const struct ebb_layer *layer, const struct ebb_op *op,
                                      struct ebb_error *error)
{
    const struct ebb_op_desc *output = ebb_op_output(op, 0);
    if (layer->kind == EBB_LAYER_LOSS)
        return EBB_OK;
    bool is_same = output && output->rank == layer->shape.rank;
    for (uint32_t i = 0; is_same && i < output->rank; i++)
        is_same = output->dims[i] == layer->shape.size[i];
    if (is_same)
        return EBB_OK;
    char expected[48], found[96] = "nothing";
    if (output)
        ebb_op_desc_text(output, found);
    return ebb__train_fail(error, EBB_ERR_INTERNAL, layer->name, "has the output %s, not %s", found,
                           ebb__shape_format(&layer->shape, expected, sizeof expected));
}

enum ebb_status ebb__graph_create(const struct ebb_net *net, struct ebb_graph *graph,
                                  struct ebb_error *error)
{
    memset(graph, 0, sizeof *graph);
    graph->net = net;
    graph->ops = calloc(net->layer_count + 1, sizeof(struct ebb_op *));
    if (!graph->ops)
        return ebb__train_fail_memory(error, net->name);
    enum ebb_status status = ebb_op_engine_create(&graph->engine, error);
    if (!status)
        status = describe_inputs(graph, error);
    for (uint32_t l = 2; !status && l <= net->layer_count; l++) {
        const struct ebb_layer *layer = &net->layers[l];
        const struct ebb_op_desc *inputs[EBB_LAYER_INPUTS_MOST];
        for (uint32_t i = 0; i < layer->input_count; i++)
            inputs[i] = layer->inputs[i] == 1 ? &graph->input
                                              : ebb_op_output(graph->ops[layer->inputs[i]], 0);
        status = make_op(graph, layer, inputs, &graph->ops[l], error);
        if (!status)
            status = compare_shapes(layer, graph->ops[l], error);
    }
    return status;
}

void ebb__graph_destroy(struct ebb_graph *graph)
{
    for (uint32_t l = 1; graph->ops && l <= graph->net->layer_count; l++)
        ebb_op_destroy(graph->ops[l]);
    free(graph->ops);
    ebb_op_engine_destroy(graph->engine);
    memset(graph, 0, sizeof *graph);
}
