/* Embedding of tokens and positions. Gradients are sums over all tokens. Each thread has columns of
 * its own, so that no two write the same element, and the order is that of the tokens. */
#include "train/op/build.h"
#include "train/op/kernels.h"

#include <inttypes.h>

enum { TOKENS, OUTPUT, OUTPUT_GRADIENT, TABLE, TABLE_GRADIENT, POSITIONS, POSITIONS_GRADIENT };

enum { COLUMNS = 64 };

struct embedding {
    int64_t batch;
    int64_t time;
    int64_t vocabulary;
    int64_t features;
};

struct pass {
    const struct embedding *own;
    const int32_t *tokens;
    float *output; /* or its gradient */
    float *table;
    float *positions;
};

static void forward_range(void *context, uint64_t first, uint64_t last)
{
    const struct pass *pass = context;
    int64_t features = pass->own->features;
    for (int64_t i = (int64_t)first; i < (int64_t)last; i++) {
        const float *token = pass->table + pass->tokens[i] * features;
        const float *position = pass->positions + i % pass->own->time * features;
        for (int64_t j = 0; j < features; j++)
            pass->output[i * features + j] = token[j] + position[j];
    }
}

static void backward_range(void *context, uint64_t first, uint64_t last)
{
    const struct pass *pass = context;
    const struct embedding *own = pass->own;
    size_t bytes = (size_t)(last - first) * sizeof(float);
    for (int64_t i = 0; i < own->vocabulary; i++)
        memset(pass->table + i * own->features + first, 0, bytes);
    for (int64_t i = 0; i < own->time; i++)
        memset(pass->positions + i * own->features + first, 0, bytes);
    for (int64_t i = 0; i < own->batch * own->time; i++) {
        const float *gradient = pass->output + i * own->features;
        float *token = pass->table + pass->tokens[i] * own->features;
        float *position = pass->positions + i % own->time * own->features;
        for (uint64_t j = first; j < last; j++) {
            token[j] += gradient[j];
            position[j] += gradient[j];
        }
    }
}

static enum ebb_status run(struct ebb_op *op, enum ebb_op_step step, void *const *addresses,
                           const struct ebb_op_call *call, struct ebb_error *error)
{
    (void)call;
    const struct embedding *own = op->own;
    bool backward = step == EBB_OP_BACKWARD_WEIGHTS;
    struct pass pass = {.own = own,
                        .tokens = addresses[TOKENS],
                        .output = addresses[backward ? OUTPUT_GRADIENT : OUTPUT],
                        .table = addresses[backward ? TABLE_GRADIENT : TABLE],
                        .positions = addresses[backward ? POSITIONS_GRADIENT : POSITIONS]};
    for (int64_t i = 0; i < own->batch * own->time; i++) {
        if (pass.tokens[i] < 0 || pass.tokens[i] >= own->vocabulary)
            return ebb__op_fail(error, EBB_ERR_ARGUMENT, op,
                                "token %" PRId64 " is %" PRId32 ", but the vocabulary has %" PRId64,
                                i, pass.tokens[i], own->vocabulary);
    }
    if (backward)
        ebb__range_each((uint64_t)own->features, COLUMNS, backward_range, &pass);
    else
        ebb__range_each((uint64_t)(own->batch * own->time), 16, forward_range, &pass);
    return EBB_OK;
}

static const struct ebb_op_table table = {run};

enum ebb_status ebb_op_embedding_create(struct ebb_op_engine *engine, const char *name,
                                        const struct ebb_op_embedding *options,
                                        const struct ebb_op_desc *tokens, struct ebb_op **op,
                                        struct ebb_error *error)
{
    struct ebb__builder build =
        ebb__build_begin(engine, "embedding", name, &table, EBB__FORWARDS | EBB__WEIGHTS,
                         sizeof(struct embedding), error);
    char text[96];
    if (tokens->rank != 2 || tokens->layout.data_type != dnnl_s32 || options->vocabulary <= 0 ||
        options->features <= 0)
        ebb__build_fail(&build, EBB_ERR_ARGUMENT,
                        "the tokens are %s, but must be batch x time of indices; vocabulary "
                        "%" PRId64 " and features %" PRId64 " must be positive",
                        ebb_op_desc_text(tokens, text), options->vocabulary, options->features);
    if (build.status != EBB_OK)
        return build.status;
    struct embedding own = {tokens->dims[0], tokens->dims[1], options->vocabulary,
                            options->features};
    int64_t output[3] = {own.batch, own.time, own.features};
    int64_t rows[2] = {own.vocabulary, own.features}, places[2] = {own.time, own.features};
    struct ebb_op_desc output_desc = ebb__desc_floats(3, output);
    struct ebb_op_desc table_desc = ebb__desc_floats(2, rows);
    struct ebb_op_desc positions_desc = ebb__desc_floats(2, places);
    float spread = options->spread != 0.0f ? options->spread : 0.02f;
    uint32_t at = ebb__build_buffer(&build, EBB_OP_INPUT, "tokens", tokens);
    ebb__build_use(&build, at, EBB__FORWARDS | EBB__WEIGHTS, EBB_USE_READ);
    at = ebb__build_buffer(&build, EBB_OP_OUTPUT, "output", &output_desc);
    ebb__build_use(&build, at, EBB__FORWARDS, EBB_USE_OVERWRITE);
    at = ebb__build_buffer(&build, EBB_OP_OUTPUT_GRADIENT, "output gradient", &output_desc);
    ebb__build_use(&build, at, EBB__WEIGHTS, EBB_USE_READ);
    at = ebb__build_parameter(&build, "tokens", &table_desc);
    ebb__build_fill(&build, at, EBB_OP_NORMAL, spread, true);
    at = ebb__build_parameter(&build, "positions", &positions_desc);
    ebb__build_fill(&build, at, EBB_OP_NORMAL, spread, true);
    if (build.status == EBB_OK)
        *(struct embedding *)build.op->own = own;
    return ebb__build_end(&build, op);
}
