/* Cases of the trainer's operations: how to make each, and its reference. */
#ifndef EBB_TESTS_TRAIN_CASES_H
#define EBB_TESTS_TRAIN_CASES_H

#include "train_references.h"

enum case_kind {
    CONVOLUTION,
    BATCH_NORM,
    RELU,
    GELU,
    POOLING,
    GLOBAL_POOLING,
    DENSE,
    ADD,
    CONCAT,
    CROSS_ENTROPY,
    LAYER_NORM,
    ATTENTION,
    EMBEDDING,
    DROPOUT,
    LRN
};

enum case_layout { PLAIN, BLOCKED, LAST };

struct train_case {
    const char *name;
    enum case_kind kind;
    enum case_layout layout;
    uint32_t rank;
    int64_t dims[4];
    union {
        struct ebb_op_convolution convolution;
        struct ebb_op_pooling pooling;
        struct ebb_op_dense dense;
        struct ebb_op_batch_norm batch_norm;
        struct ebb_op_add add;
        struct ebb_op_cross_entropy cross_entropy;
        struct ebb_op_lrn lrn;
        int64_t heads;
        int64_t channels;  /* of the second input of a concatenation */
        bool other_layout; /* of the second input of a sum */
    } of;
};

static const struct train_case train_cases[] = {
    {"first",
     CONVOLUTION,
     PLAIN,
     4,
     {2, 3, 9, 8},
     {.convolution = {.channels = 16, .kernel = {3, 3}, .padding = {1, 1}, .bias = true}}},
    {"stride",
     CONVOLUTION,
     BLOCKED,
     4,
     {2, 16, 7, 6},
     {.convolution = {.channels = 32, .kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}}},
    {"point",
     CONVOLUTION,
     BLOCKED,
     4,
     {2, 32, 5, 4},
     {.convolution = {.channels = 16, .kernel = {1, 1}}}},
    {"groups",
     CONVOLUTION,
     PLAIN,
     4,
     {2, 8, 5, 6},
     {.convolution = {.channels = 12, .kernel = {3, 3}, .groups = 2, .bias = true}}},
    {"row",
     CONVOLUTION,
     BLOCKED,
     4,
     {1, 20, 5, 9},
     {.convolution = {.channels = 20, .kernel = {1, 7}, .padding = {0, 3}}}},
    {"depthwise",
     CONVOLUTION,
     BLOCKED,
     4,
     {2, 16, 6, 6},
     {.convolution = {.channels = 16, .kernel = {3, 3}, .padding = {1, 1}, .groups = 16}}},
    {"reordered",
     CONVOLUTION,
     PLAIN,
     4,
     {2, 32, 5, 5},
     {.convolution = {.channels = 16, .kernel = {3, 3}, .padding = {1, 1}}}},
    {"last",
     CONVOLUTION,
     LAST,
     4,
     {2, 32, 5, 5},
     {.convolution = {.channels = 16, .kernel = {3, 3}, .padding = {1, 1}}}},
    {"plain", BATCH_NORM, PLAIN, 4, {3, 5, 7, 7}, {.batch_norm = {.relu = false}}},
    {"plain relu", BATCH_NORM, PLAIN, 4, {3, 5, 7, 7}, {.batch_norm = {.relu = true}}},
    {"blocked", BATCH_NORM, BLOCKED, 4, {2, 32, 3, 5}, {.batch_norm = {.relu = false}}},
    {"blocked relu", BATCH_NORM, BLOCKED, 4, {2, 20, 3, 5}, {.batch_norm = {.relu = true}}},
    {"last", BATCH_NORM, LAST, 4, {2, 20, 3, 5}, {.batch_norm = {.relu = true}}},
    {"few", BATCH_NORM, PLAIN, 4, {2, 3, 1, 2}, {.batch_norm = {.relu = false}}},
    {"few blocked", BATCH_NORM, BLOCKED, 4, {3, 16, 1, 2}, {.batch_norm = {.relu = false}}},
    {"pieces", BATCH_NORM, BLOCKED, 4, {2, 16, 17, 19}, {.batch_norm = {.relu = true}}},
    {"plain pieces", BATCH_NORM, PLAIN, 4, {2, 2, 51, 47}, {.batch_norm = {.relu = true}}},
    {"ranges", RELU, PLAIN, 4, {3, 33, 13, 11}, {.heads = 0}},
    {"odd", RELU, PLAIN, 4, {3, 5, 7, 7}, {.heads = 0}},
    {"blocked", RELU, BLOCKED, 4, {2, 20, 5, 7}, {.heads = 0}},
    {"sequence", GELU, PLAIN, 3, {2, 5, 33}, {.heads = 0}},
    {"max",
     POOLING,
     BLOCKED,
     4,
     {2, 16, 7, 8},
     {.pooling = {.max = true, .kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}}},
    {"max ceiling",
     POOLING,
     BLOCKED,
     4,
     {1, 32, 6, 7},
     {.pooling = {.max = true, .kernel = {3, 3}, .stride = {2, 2}, .ceiling = true}}},
    {"max plain",
     POOLING,
     PLAIN,
     4,
     {2, 3, 6, 8},
     {.pooling = {.max = true, .kernel = {2, 2}, .stride = {2, 2}}}},
    {"average",
     POOLING,
     BLOCKED,
     4,
     {2, 16, 6, 6},
     {.pooling = {.kernel = {2, 2}, .stride = {2, 2}}}},
    {"average same",
     POOLING,
     BLOCKED,
     4,
     {1, 20, 5, 4},
     {.pooling = {.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}}}},
    {"blocked",
     GLOBAL_POOLING,
     BLOCKED,
     4,
     {2, 32, 4, 3},
     {.pooling = {.kernel = {4, 3}, .stride = {1, 1}}}},
    {"image", DENSE, BLOCKED, 4, {3, 16, 2, 3}, {.dense = {.features = 10, .bias = true}}},
    {"pooled", DENSE, BLOCKED, 4, {3, 20, 1, 1}, {.dense = {.features = 10, .bias = true}}},
    {"rows", DENSE, PLAIN, 2, {3, 37}, {.dense = {.features = 24, .bias = true}}},
    {"sequence", DENSE, PLAIN, 3, {2, 5, 24}, {.dense = {.features = 48}}},
    {"blocked", ADD, BLOCKED, 4, {2, 20, 3, 5}, {.add = {.relu = false}}},
    {"relu", ADD, PLAIN, 4, {3, 5, 7, 7}, {.add = {.relu = true}}},
    {"layouts", ADD, BLOCKED, 4, {2, 20, 3, 5}, {.add = {.relu = false}}},
    {"blocks", CONCAT, BLOCKED, 4, {2, 16, 3, 4}, {.channels = 32}},
    {"parts of blocks", CONCAT, BLOCKED, 4, {2, 20, 3, 4}, {.channels = 12}},
    {"plain", CONCAT, PLAIN, 4, {2, 5, 3, 4}, {.channels = 3}},
    {"images", CROSS_ENTROPY, PLAIN, 2, {6, 37}, {.cross_entropy = {.weight = 0.3f}}},
    {"sequence", CROSS_ENTROPY, PLAIN, 3, {2, 4, 7}, {.cross_entropy = {.weight = 0.0f}}},
    {"sequence", LAYER_NORM, PLAIN, 3, {2, 5, 70}, {.heads = 0}},
    {"few", LAYER_NORM, PLAIN, 3, {1, 3, 5}, {.heads = 0}},
    {"short", ATTENTION, PLAIN, 3, {2, 5, 3 * 16}, {.heads = 2}},
    {"blocks", ATTENTION, PLAIN, 3, {1, 131, 3 * 8}, {.heads = 2}},
    {"tokens", EMBEDDING, PLAIN, 2, {2, 9}, {.heads = 0}},
    {"ranges", DROPOUT, PLAIN, 4, {3, 33, 13, 11}, {.heads = 0}},
    {"ranges", ADD, PLAIN, 4, {3, 33, 13, 11}, {.add = {.relu = true}}},
    {"blocked", DROPOUT, BLOCKED, 4, {2, 20, 5, 7}, {.heads = 0}},
    {"blocked",
     LRN,
     BLOCKED,
     4,
     {2, 32, 3, 4},
     {.lrn = {.size = 5, .alpha = 0.5f, .beta = 0.75f, .k = 2.0f}}},
    {"plain",
     LRN,
     PLAIN,
     4,
     {2, 9, 3, 4},
     {.lrn = {.size = 5, .alpha = 0.5f, .beta = 0.75f, .k = 1.0f}}},
};

enum { TRAIN_CASES = sizeof train_cases / sizeof train_cases[0], CASE_CLASSES = 7 };

static const float dropout_probability = 0.3f;

static inline struct ebb_op_desc case_desc(const struct train_case *of, int64_t channels,
                                           enum case_layout layout)
{
    struct ebb_op_desc desc;
    int64_t dims[4];
    memcpy(dims, of->dims, sizeof dims);
    dims[1] = channels;
    assert_int_equal(ebb_op_desc_floats(of->rank, dims, &desc, NULL), EBB_OK);
    if (layout != PLAIN) {
        dnnl_memory_desc_t made, plain = desc.layout;
        assert_int_equal(dnnl_memory_desc_init_by_tag(&made, 4, plain.dims, dnnl_f32,
                                                      layout == BLOCKED ? dnnl_nChw16c : dnnl_nhwc),
                         dnnl_success);
        desc = ebb__desc_of(&made);
    }
    return desc;
}

static inline enum ebb_status case_create_other(struct ebb_op_engine *engine,
                                                const struct train_case *of, struct ebb_op **op,
                                                struct ebb_error *error)
{
    struct ebb_op_desc first = case_desc(of, of->dims[1], of->layout), second = first;
    const struct ebb_op_desc *inputs[2] = {&first, &second};
    struct ebb_op_embedding embedding = {.vocabulary = CASE_CLASSES, .features = 70};
    struct ebb_op_attention attention = {.heads = of->of.heads};
    struct ebb_op_dropout dropout = {.probability = dropout_probability};
    struct ebb_op_layer_norm layer_norm = {0};
    switch (of->kind) {
    case ADD:
        if (strcmp(of->name, "layouts") == 0)
            second = case_desc(of, of->dims[1], PLAIN);
        return ebb_op_add_create(engine, of->name, &of->of.add, inputs, op, error);
    case CONCAT:
        second = case_desc(of, of->of.channels, of->layout);
        return ebb_op_concat_create(engine, of->name, 2, inputs, op, error);
    case CROSS_ENTROPY:
        assert_int_equal(ebb_op_desc_indices(of->rank - 1, of->dims, &second, NULL), EBB_OK);
        return ebb_op_cross_entropy_create(engine, of->name, &of->of.cross_entropy, &first, &second,
                                           op, error);
    case LAYER_NORM:
        return ebb_op_layer_norm_create(engine, of->name, &layer_norm, &first, op, error);
    case ATTENTION:
        return ebb_op_attention_create(engine, of->name, &attention, &first, op, error);
    case EMBEDDING:
        assert_int_equal(ebb_op_desc_indices(of->rank, of->dims, &first, NULL), EBB_OK);
        return ebb_op_embedding_create(engine, of->name, &embedding, &first, op, error);
    default:
        return ebb_op_dropout_create(engine, of->name, &dropout, &first, op, error);
    }
}

static inline struct ebb_op *case_create(struct ebb_op_engine *engine, const struct train_case *of)
{
    struct ebb_op_desc input = case_desc(of, of->dims[1], of->layout);
    struct ebb_error error;
    struct ebb_op *op = NULL;
    const char *name = of->name;
    enum ebb_status status;
    if (of->kind == CONVOLUTION)
        status = ebb_op_convolution_create(engine, name, &of->of.convolution, &input, &op, &error);
    else if (of->kind == BATCH_NORM)
        status = ebb_op_batch_norm_create(engine, name, &of->of.batch_norm, &input, &op, &error);
    else if (of->kind == RELU)
        status = ebb_op_relu_create(engine, name, &input, &op, &error);
    else if (of->kind == GELU)
        status = ebb_op_gelu_create(engine, name, &input, &op, &error);
    else if (of->kind == POOLING)
        status = ebb_op_pooling_create(engine, name, &of->of.pooling, &input, &op, &error);
    else if (of->kind == GLOBAL_POOLING)
        status = ebb_op_global_pooling_create(engine, name, &input, &op, &error);
    else if (of->kind == DENSE)
        status = ebb_op_dense_create(engine, name, &of->of.dense, &input, &op, &error);
    else if (of->kind == LRN)
        status = ebb_op_lrn_create(engine, name, &of->of.lrn, &input, &op, &error);
    else
        status = case_create_other(engine, of, &op, &error);
    if (status != EBB_OK)
        fail_msg("%s: %s", error.what, error.why);
    return op;
}

/* Element by element. Dropout takes its mask from the buffer that FORWARD has written. */
static inline void case_elements(const struct rig *rig, const struct train_case *of)
{
    const double *other = value_of(rig, EBB_OP_INPUT, 1);
    int saved = ebb_op_find(rig->op, EBB_OP_SAVED, 0);
    for (uint64_t i = 0; i < count_of(rig, EBB_OP_INPUT, 0); i++) {
        double x = X[i];
        if (of->kind == RELU)
            Y[i] = x > 0 ? x : 0;
        else if (of->kind == GELU)
            Y[i] = x * 0.5 * (1 + erf(x * sqrt(0.5)));
        else if (of->kind == ADD)
            Y[i] = of->of.add.relu && x + other[i] < 0 ? 0 : x + other[i];
        else {
            uint64_t at = ebb_op_desc_offset(&rig->op->buffers[0].desc, i);
            const uint8_t *mask = rig->address[saved];
            Y[i] = mask[at / 8] >> at % 8 & 1 ? x / (1 - (double)dropout_probability) : 0;
        }
    }
}

/* Computes the outputs' values in `rig->value` of those of inputs and parameters. */
static inline void case_reference(const struct rig *rig, const struct train_case *of, bool evaluate)
{
    switch (of->kind) {
    case CONVOLUTION:
        convolve(rig, &of->of.convolution);
        break;
    case BATCH_NORM:
        normalise_batch(rig, of->of.batch_norm.relu, evaluate);
        break;
    case POOLING:
    case GLOBAL_POOLING:
        pool(rig, &of->of.pooling);
        break;
    case DENSE:
        transform(rig);
        break;
    case CONCAT:
        concatenate(rig);
        break;
    case CROSS_ENTROPY:
        lose(rig);
        break;
    case LAYER_NORM:
        normalise_rows(rig);
        break;
    case ATTENTION:
        attend(rig, of->of.heads);
        break;
    case EMBEDDING:
        embed(rig);
        break;
    case LRN:
        respond(rig, &of->of.lrn);
        break;
    default:
        case_elements(rig, of);
    }
}

#endif
