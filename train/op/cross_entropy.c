/* Softmax and cross entropy. Each row saves the logarithm of its sum, from which backward makes the
 * probabilities again. So the probabilities are never stored, and the gradient may take over the
 * space of the scores. Sums over rows are in order, and in double precision. */
#include "train/op/build.h"
#include "train/op/kernels.h"

#include <inttypes.h>
#include <math.h>

enum { SCORES, LABELS, LOSS, CORRECT, GRADIENT, SUMS };

struct cross_entropy {
    int64_t rows;
    int64_t classes;
    float weight;
};

struct rows {
    const struct cross_entropy *own;
    const float *scores;
    const int32_t *labels;
    float *sums;     /* logarithm of the sum of each row */
    uint8_t *hits;   /* is the label the highest score? */
    float *gradient; /* for backward */
    float factor;
};

/* Sixteen sums, which become a vector. */
EBB_KERNEL
static float log_sum(const float *row, int64_t count, float highest)
{
    enum { LANES = 16 };
    float lanes[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        for (int j = 0; j < LANES; j++)
            lanes[j] += ebb__exp(row[i + j] - highest);
    }
    double sum = 0;
    for (; i < count; i++)
        sum += (double)ebb__exp(row[i] - highest);
    for (int j = 0; j < LANES; j++)
        sum += (double)lanes[j];
    return highest + (float)log(sum);
}

EBB_KERNEL
static float highest_of(const float *row, int64_t count)
{
    return ebb__highest(row, count);
}

static void forward_range(void *context, uint64_t first, uint64_t last)
{
    const struct rows *rows = context;
    int64_t classes = rows->own->classes;
    for (uint64_t i = first; i < last; i++) {
        const float *row = rows->scores + (int64_t)i * classes;
        float highest = highest_of(row, classes);
        rows->sums[i] = log_sum(row, classes, highest);
        rows->hits[i] = rows->labels[i] >= 0 && row[rows->labels[i]] >= highest;
    }
}

EBB_KERNEL
static void gradient_row(float *gradient, const float *row, int64_t count, float sum, float factor)
{
    for (int64_t i = 0; i < count; i++)
        gradient[i] = ebb__exp(row[i] - sum) * factor;
}

static void backward_range(void *context, uint64_t first, uint64_t last)
{
    const struct rows *rows = context;
    int64_t classes = rows->own->classes;
    for (uint64_t i = first; i < last; i++) {
        float *gradient = rows->gradient + (int64_t)i * classes;
        if (rows->labels[i] < 0) {
            memset(gradient, 0, (size_t)classes * sizeof(float));
            continue;
        }
        gradient_row(gradient, rows->scores + (int64_t)i * classes, classes, rows->sums[i],
                     rows->factor);
        gradient[rows->labels[i]] -= rows->factor;
    }
}

/* Counts labels that are not left out. -1: one is out of range, *bad. */
static int64_t count_labels(const struct cross_entropy *own, const int32_t *labels, int64_t *bad)
{
    int64_t count = 0;
    for (int64_t i = 0; i < own->rows; i++) {
        if (labels[i] >= own->classes) {
            *bad = i;
            return -1;
        }
        count += labels[i] >= 0;
    }
    return count;
}

static void summarise(const struct rows *rows, int64_t count, float *loss, int32_t *correct)
{
    double sum = 0;
    int32_t hits = 0;
    for (int64_t i = 0; i < rows->own->rows; i++) {
        if (rows->labels[i] < 0)
            continue;
        float score = rows->scores[i * rows->own->classes + rows->labels[i]];
        sum += (double)rows->sums[i] - (double)score;
        hits += rows->hits[i];
    }
    *loss = count ? (float)(sum / (double)count) : 0.0f;
    *correct = hits;
}

static enum ebb_status run(struct ebb_op *op, enum ebb_op_step step, void *const *addresses,
                           const struct ebb_op_call *call, struct ebb_error *error)
{
    (void)call;
    const struct cross_entropy *own = op->own;
    struct rows rows = {.own = own, .scores = addresses[SCORES], .labels = addresses[LABELS]};
    int64_t bad = 0, count = count_labels(own, rows.labels, &bad);
    if (count < 0)
        return ebb__op_fail(error, EBB_ERR_ARGUMENT, op,
                            "label %" PRId64 " is %" PRId32 ", but there are %" PRId64 " classes",
                            bad, rows.labels[bad], own->classes);
    if (step == EBB_OP_BACKWARD_DATA) {
        rows.sums = addresses[SUMS];
        rows.gradient = addresses[GRADIENT];
        rows.factor = count ? own->weight / (float)count : 0.0f;
        ebb__range_each((uint64_t)own->rows, 1, backward_range, &rows);
        return EBB_OK;
    }
    char *workspace = addresses[SUMS + 1];
    rows.hits = (uint8_t *)workspace;
    rows.sums = step == EBB_OP_EVALUATE ? (float *)(workspace + (own->rows + 63) / 64 * 64)
                                        : addresses[SUMS];
    ebb__range_each((uint64_t)own->rows, 1, forward_range, &rows);
    summarise(&rows, count, addresses[LOSS], addresses[CORRECT]);
    return EBB_OK;
}

static const struct ebb_op_table table = {run};

static void add_buffers(struct ebb__builder *build, const struct ebb_op_desc *scores,
                        const struct ebb_op_desc *labels, int64_t rows)
{
    int64_t one = 1;
    struct ebb_op_desc correct;
    if (ebb_op_desc_indices(1, &one, &correct, NULL) != EBB_OK)
        return;
    uint32_t at = ebb__build_buffer(build, EBB_OP_INPUT, "scores", scores);
    ebb__build_use(build, at, EBB__FORWARDS | EBB__DATA, EBB_USE_READ);
    at = ebb__build_buffer(build, EBB_OP_INPUT, "labels", labels);
    ebb__build_use(build, at, EBB__FORWARDS | EBB__DATA, EBB_USE_READ);
    at = ebb__build_floats(build, EBB_OP_OUTPUT, "loss", 1);
    ebb__build_use(build, at, EBB__FORWARDS, EBB_USE_OVERWRITE);
    at = ebb__build_buffer(build, EBB_OP_OUTPUT, "correct", &correct);
    ebb__build_use(build, at, EBB__FORWARDS, EBB_USE_OVERWRITE);
    at = ebb__build_buffer(build, EBB_OP_INPUT_GRADIENT, "gradient of scores", scores);
    ebb__build_use(build, at, EBB__DATA, EBB_USE_OVERWRITE);
    ebb__build_replace(build, at, SCORES);
    at = ebb__build_floats(build, EBB_OP_SAVED, "sums", rows);
    ebb__build_use(build, at, EBB__FORWARD, EBB_USE_OVERWRITE);
    ebb__build_use(build, at, EBB__DATA, EBB_USE_READ);
    ebb__build_workspace(build, EBB__FORWARDS, (uint64_t)rows);
    ebb__build_workspace(build, EBB__FORWARDS, (uint64_t)rows * sizeof(float));
}

enum ebb_status ebb_op_cross_entropy_create(struct ebb_op_engine *engine, const char *name,
                                            const struct ebb_op_cross_entropy *options,
                                            const struct ebb_op_desc *scores,
                                            const struct ebb_op_desc *labels, struct ebb_op **op,
                                            struct ebb_error *error)
{
    struct ebb__builder build =
        ebb__build_begin(engine, "cross entropy", name, &table, EBB__FORWARDS | EBB__DATA,
                         sizeof(struct cross_entropy), error);
    bool fits = (scores->rank == 2 || scores->rank == 3) && labels->rank == scores->rank - 1 &&
                labels->layout.data_type == dnnl_s32;
    for (uint32_t i = 0; fits && i < labels->rank; i++)
        fits = labels->dims[i] == scores->dims[i];
    char texts[2][96];
    if (!fits)
        ebb__build_fail(&build, EBB_ERR_ARGUMENT,
                        "scores are %s and labels %s; labels must be indices without the last "
                        "dimension of scores",
                        ebb_op_desc_text(scores, texts[0]), ebb_op_desc_text(labels, texts[1]));
    if (build.status != EBB_OK)
        return build.status;
    struct cross_entropy own = {.rows = (int64_t)ebb_op_desc_count(labels),
                                .classes = scores->dims[scores->rank - 1],
                                .weight = options->weight != 0.0f ? options->weight : 1.0f};
    add_buffers(&build, scores, labels, own.rows);
    if (build.status == EBB_OK)
        *(struct cross_entropy *)build.op->own = own;
    return ebb__build_end(&build, op);
}
