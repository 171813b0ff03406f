/* Causal self-attention: for each head, softmax(Q K' / sqrt(d)) V, where a position sees itself and
 * those before it.
 *
 * Each thread computes whole heads of one sequence, by oneDNN's sgemm. So sums have a fixed order.
 * Rows of the weights are computed in blocks, and only up to the diagonal, which saves almost half
 * of the work. The weights are saved, as backward needs them twice; their upper triangle is zero.
 *
 * With P = softmax(S), backward is dV = P' dO, dP = dO V', dS = P (dP - rowsum(dP P)), dQ = dS K,
 * dK = dS' Q. */
#include "train/op/build.h"
#include "train/op/kernels.h"

#include <inttypes.h>
#include <math.h>

enum { WEIGHTS = EBB__DY + 1, WORKSPACE_EVALUATE, WORKSPACE_DATA };

/* Rows. Of 32 to 512, 64 and 128 are fastest (measured: 512 positions, 64 features a head). */
enum { BLOCK = 128 };

struct attention {
    int64_t batch;
    int64_t time;
    int64_t heads;
    int64_t features; /* of all heads */
    int64_t size;     /* features of a head */
    int64_t block;    /* rows that are computed together */
    float scale;
};

/* One head of one sequence. Rows of queries, keys and values are 3 x features apart. */
struct head {
    const struct attention *own;
    const float *input;
    float *weights;
    bool keeps; /* weights of all rows, not of a block only */
    float *output;
    const float *output_gradient;
    float *input_gradient;
    float *scores; /* gradient of a block of scores */
    dnnl_status_t status;
};

/* Rows [first, last), which see themselves and those before. `weights` is the first of them. */
EBB_KERNEL
static void softmax_rows(float *weights, int64_t time, int64_t first, int64_t last, float scale)
{
    for (int64_t i = first; i < last; i++) {
        float *row = weights + (i - first) * time;
        float highest = ebb__highest(row, i + 1);
        enum { LANES = 16 };
        float lanes[LANES] = {0}, sum = 0;
        int64_t j = 0;
        for (; j + LANES <= i + 1; j += LANES) {
            for (int k = 0; k < LANES; k++) {
                row[j + k] = ebb__exp((row[j + k] - highest) * scale);
                lanes[k] += row[j + k];
            }
        }
        for (; j <= i; j++) {
            row[j] = ebb__exp((row[j] - highest) * scale);
            sum += row[j];
        }
        for (int k = 0; k < LANES; k++)
            sum += lanes[k];
        float inverse = 1.0f / sum;
        for (j = 0; j <= i; j++)
            row[j] *= inverse;
        memset(row + i + 1, 0, (size_t)(time - i - 1) * sizeof(float));
    }
}

/* Turns the gradient of these rows into that of the scores before the scale. */
EBB_KERNEL
static void softmax_gradient_rows(float *gradient, const float *weights, int64_t time,
                                  int64_t first, int64_t last, float scale)
{
    for (int64_t i = first; i < last; i++) {
        float *row = gradient + (i - first) * time;
        const float *weight = weights + (i - first) * time;
        float sum = ebb__dot(row, weight, i + 1);
        for (int64_t j = 0; j <= i; j++)
            row[j] = weight[j] * (row[j] - sum) * scale;
        memset(row + i + 1, 0, (size_t)(last - i - 1) * sizeof(float));
    }
}

static void forward_head(struct head *head)
{
    const struct attention *own = head->own;
    int64_t time = own->time, size = own->size, row = 3 * own->features;
    const float *queries = head->input, *keys = queries + own->features;
    const float *values = keys + own->features;
    for (int64_t first = 0; first < time && head->status == dnnl_success; first += BLOCK) {
        int64_t last = first + BLOCK < time ? first + BLOCK : time;
        float *weights = head->weights + (head->keeps ? first * time : 0);
        head->status = dnnl_sgemm('N', 'T', last - first, last, size, 1.0f, queries + first * row,
                                  row, keys, row, 0.0f, weights, time);
        softmax_rows(weights, time, first, last, own->scale);
        if (head->status == dnnl_success)
            head->status =
                dnnl_sgemm('N', 'N', last - first, size, last, 1.0f, weights, time, values, row,
                           0.0f, head->output + first * own->features, own->features);
    }
}

/* The last block is first: its keys are all, so it overwrites their gradients. Others add. */
static void backward_head(struct head *head)
{
    const struct attention *own = head->own;
    int64_t time = own->time, size = own->size, row = 3 * own->features;
    const float *queries = head->input, *keys = queries + own->features;
    const float *values = keys + own->features;
    float *query_gradient = head->input_gradient;
    float *key_gradient = query_gradient + own->features;
    float *value_gradient = key_gradient + own->features;
    float *scores = head->scores;
    for (int64_t first = (time - 1) / BLOCK * BLOCK; first >= 0; first -= BLOCK) {
        int64_t last = first + BLOCK < time ? first + BLOCK : time, rows = last - first;
        float beta = last == time ? 0.0f : 1.0f;
        const float *weights = head->weights + first * time;
        const float *gradient = head->output_gradient + first * own->features;
        dnnl_status_t products[4];
        products[0] = dnnl_sgemm('T', 'N', last, size, rows, 1.0f, weights, time, gradient,
                                 own->features, beta, value_gradient, row);
        products[1] = dnnl_sgemm('N', 'T', rows, last, size, 1.0f, gradient, own->features, values,
                                 row, 0.0f, scores, time);
        softmax_gradient_rows(scores, weights, time, first, last, own->scale);
        products[2] = dnnl_sgemm('N', 'N', rows, size, last, 1.0f, scores, time, keys, row, 0.0f,
                                 query_gradient + first * row, row);
        products[3] = dnnl_sgemm('T', 'N', last, size, rows, 1.0f, scores, time,
                                 queries + first * row, row, beta, key_gradient, row);
        for (int i = 0; i < 4; i++)
            head->status = products[i] != dnnl_success ? products[i] : head->status;
    }
}

static struct head head_of(const struct attention *own, enum ebb_op_step step,
                           void *const *addresses, int64_t index)
{
    int64_t sequence = index / own->heads, at = index % own->heads * own->size;
    int64_t input = sequence * own->time * 3 * own->features + at;
    int64_t output = sequence * own->time * own->features + at;
    int64_t weights = index * own->time * own->time, block = index * own->block * own->time;
    struct head head = {.own = own, .input = (const float *)addresses[EBB__X] + input};
    head.keeps = step != EBB_OP_EVALUATE;
    head.weights = head.keeps ? (float *)addresses[WEIGHTS] + weights
                              : (float *)addresses[WORKSPACE_EVALUATE] + block;
    if (step == EBB_OP_BACKWARD_DATA) {
        head.scores = (float *)addresses[WORKSPACE_DATA] + block;
        head.output_gradient = (const float *)addresses[EBB__DY] + output;
        head.input_gradient = (float *)addresses[EBB__DX] + input;
    } else {
        head.output = (float *)addresses[EBB__Y] + output;
    }
    return head;
}

static enum ebb_status run(struct ebb_op *op, enum ebb_op_step step, void *const *addresses,
                           const struct ebb_op_call *call, struct ebb_error *error)
{
    (void)call;
    const struct attention *own = op->own;
    int failures = 0;
#pragma omp parallel for schedule(static) reduction(+ : failures)
    for (int64_t i = 0; i < own->batch * own->heads; i++) {
        struct head head = head_of(own, step, addresses, i);
        if (step == EBB_OP_BACKWARD_DATA)
            backward_head(&head);
        else
            forward_head(&head);
        failures += head.status != dnnl_success;
    }
    if (failures > 0)
        return ebb__op_fail(error, EBB_ERR_INTERNAL, op, "oneDNN fails to multiply matrices");
    return EBB_OK;
}

static const struct ebb_op_table table = {run};

static void add_buffers(struct ebb__builder *build, const struct attention *own,
                        const struct ebb_op_desc *input)
{
    int64_t output[3] = {own->batch, own->time, own->features};
    int64_t weights[4] = {own->batch, own->heads, own->time, own->time};
    struct ebb_op_desc output_desc = ebb__desc_floats(3, output);
    struct ebb_op_desc weights_desc = ebb__desc_floats(4, weights);
    weights[2] = own->block;
    struct ebb_op_desc block_desc = ebb__desc_floats(4, weights);
    ebb__build_values(build, 1, &input, &output_desc);
    ebb__build_use(build, EBB__X, EBB__DATA, EBB_USE_READ);
    uint32_t at = ebb__build_buffer(build, EBB_OP_SAVED, "weights", &weights_desc);
    ebb__build_use(build, at, EBB__FORWARD, EBB_USE_OVERWRITE);
    ebb__build_use(build, at, EBB__DATA, EBB_USE_READ);
    at = ebb__build_buffer(build, EBB_OP_WORKSPACE, "block of weights", &block_desc);
    ebb__build_use(build, at, EBB__EVALUATE, EBB_USE_OVERWRITE);
    at = ebb__build_buffer(build, EBB_OP_WORKSPACE, "gradient of a block", &block_desc);
    ebb__build_use(build, at, EBB__DATA, EBB_USE_OVERWRITE);
}

enum ebb_status ebb_op_attention_create(struct ebb_op_engine *engine, const char *name,
                                        const struct ebb_op_attention *options,
                                        const struct ebb_op_desc *input, struct ebb_op **op,
                                        struct ebb_error *error)
{
    struct ebb__builder build =
        ebb__build_begin(engine, "attention", name, &table, EBB__FORWARDS | EBB__DATA,
                         sizeof(struct attention), error);
    char text[96];
    if (input->rank != 3 || options->heads <= 0 || input->dims[2] % (3 * options->heads) != 0)
        ebb__build_fail(&build, EBB_ERR_ARGUMENT,
                        "the input is %s, but must be batch x time x 3 features of %" PRId64
                        " heads",
                        ebb_op_desc_text(input, text), options->heads);
    if (build.status != EBB_OK)
        return build.status;
    struct attention own = {.batch = input->dims[0],
                            .time = input->dims[1],
                            .heads = options->heads,
                            .features = input->dims[2] / 3,
                            .size = input->dims[2] / 3 / options->heads};
    own.block = own.time < BLOCK ? own.time : BLOCK;
    own.scale = (float)(1 / sqrt((double)own.size));
    add_buffers(&build, &own, input);
    if (build.status == EBB_OK) {
        *(struct attention *)build.op->own = own;
        /* Two products forward and four backward, of half of the matrix. */
        uint64_t product = (uint64_t)(own.batch * own.time * own.time * own.features);
        for (int step = 0; step < EBB_OP_STEP_COUNT; step++)
            build.op->flops[step] = (step == EBB_OP_BACKWARD_DATA ? 4 : 2) * product;
    }
    return ebb__build_end(&build, op);
}
