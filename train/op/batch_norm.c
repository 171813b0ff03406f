/* Batch normalisation, with a ReLU behind it if wanted.
 *
 * oneDNN's backward primitive computes the gradients of data and parameters together. Here these
 * are two steps: the weights step sums up what both need, and the data step is then one pass in
 * place. All layouts are walked by planes.h. Planes are summed up in their order and in double
 * precision, so results do not depend on threads. */
#include "train/op/build.h"
#include "train/op/kernels.h"
#include "train/op/planes.h"

#include <math.h>

enum {
    SCALE = EBB__DY + 1,
    SCALE_GRADIENT,
    SHIFT,
    SHIFT_GRADIENT,
    RUNNING_MEAN,
    RUNNING_VARIANCE,
    STATISTICS, /* mean of each channel, including padding, then 1 / standard deviation */
    WORKSPACE,
    WORKSPACE_WEIGHTS,
    WORKSPACE_DATA,
    MASK
};

struct batch_norm {
    struct ebb__planes planes;
    float epsilon;
    float momentum;
    bool relu;
};

/* Mean and variance of a channel over all images, of the planes' moments (Chan, Golub and LeVeque,
 * 1979). */
static void combine(const struct ebb__planes *planes, const float *partial, int64_t channel,
                    double *mean, double *variance)
{
    int64_t block = planes->block, lane = channel % block, group = channel / block;
    double count = 0, size = (double)planes->positions, middle = 0, squares = 0;
    for (int64_t i = 0; i < planes->batch; i++) {
        const float *at = partial + (i * planes->groups + group) * 2 * block + lane;
        double from = (double)at[0] - middle;
        squares += (double)at[block] + from * from * count * size / (count + size);
        middle += from * size / (count + size);
        count += size;
    }
    *mean = middle;
    *variance = squares / count;
}

static double sum_planes(const struct ebb__planes *planes, const float *partial, int64_t channel,
                         int64_t row)
{
    int64_t block = planes->block, group = channel / block;
    double sum = 0;
    for (int64_t i = 0; i < planes->batch; i++)
        sum += (double)partial[((i * planes->groups + group) * 2 + row) * block + channel % block];
    return sum;
}

static void move_running(const struct batch_norm *own, float *running, double value)
{
    double momentum = (double)own->momentum;
    *running = (float)((1 - momentum) * (double)*running + momentum * value);
}

/* Computes the statistics of the batch, and keeps them. */
static void measure(const struct batch_norm *own, enum ebb_op_step step, void *const *addresses)
{
    const struct ebb__planes *planes = &own->planes;
    uint64_t channels = ebb__planes_channels(planes);
    struct ebb__plane_pass pass = {
        .planes = *planes, .input = addresses[EBB__X], .partial = addresses[WORKSPACE]};
    ebb__planes_moments(&pass);
    float *mean = addresses[STATISTICS], *inverse = mean + channels;
    memset(mean, 0, 2 * channels * sizeof(float));
    double count = (double)(planes->batch * planes->positions);
    for (int64_t i = 0; i < planes->channels; i++) {
        double middle, variance;
        combine(planes, pass.partial, i, &middle, &variance);
        mean[i] = (float)middle;
        inverse[i] = (float)(1 / sqrt(variance + (double)own->epsilon));
        if (step == EBB_OP_FORWARD) {
            float *running = addresses[RUNNING_MEAN], *spread = addresses[RUNNING_VARIANCE];
            move_running(own, &running[i], middle);
            move_running(own, &spread[i], variance * count / (count > 1 ? count - 1 : 1));
        }
    }
}

static void forward(const struct batch_norm *own, enum ebb_op_step step, void *const *addresses)
{
    const struct ebb__planes *planes = &own->planes;
    uint64_t channels = ebb__planes_channels(planes);
    bool training = step != EBB_OP_EVALUATE;
    if (training)
        measure(own, step, addresses);
    float *mean = addresses[WORKSPACE], *factor = mean + channels, *offset = factor + channels;
    const float *scale = addresses[SCALE], *shift = addresses[SHIFT];
    memset(mean, 0, 3 * channels * sizeof(float));
    for (int64_t i = 0; i < planes->channels; i++) {
        if (training) {
            const float *statistics = addresses[STATISTICS];
            mean[i] = statistics[i];
            factor[i] = scale[i] * statistics[(int64_t)channels + i];
        } else {
            const float *variance = addresses[RUNNING_VARIANCE];
            mean[i] = ((const float *)addresses[RUNNING_MEAN])[i];
            factor[i] = scale[i] / sqrtf(variance[i] + own->epsilon);
        }
        offset[i] = shift[i];
    }
    struct ebb__plane_pass pass = {.planes = *planes,
                                   .input = addresses[EBB__X],
                                   .target = addresses[EBB__Y],
                                   .target_mask = own->relu && training ? addresses[MASK] : NULL,
                                   .mean = mean,
                                   .factor = factor,
                                   .offset = offset};
    ebb__planes_normalise(&pass, own->relu);
}

static void backward_weights(const struct batch_norm *own, void *const *addresses)
{
    const struct ebb__planes *planes = &own->planes;
    const float *mean = addresses[STATISTICS], *inverse = mean + ebb__planes_channels(planes);
    struct ebb__plane_pass pass = {.planes = *planes,
                                   .input = addresses[EBB__X],
                                   .gradient = addresses[EBB__DY],
                                   .mask = own->relu ? addresses[MASK] : NULL,
                                   .mean = mean,
                                   .partial = addresses[WORKSPACE_WEIGHTS]};
    ebb__planes_products(&pass);
    float *scale = addresses[SCALE_GRADIENT], *shift = addresses[SHIFT_GRADIENT];
    for (int64_t i = 0; i < planes->channels; i++) {
        shift[i] = (float)sum_planes(planes, pass.partial, i, 0);
        scale[i] = (float)(sum_planes(planes, pass.partial, i, 1) * (double)inverse[i]);
    }
}

static void backward_data(const struct batch_norm *own, void *const *addresses)
{
    const struct ebb__planes *planes = &own->planes;
    uint64_t channels = ebb__planes_channels(planes);
    const float *mean = addresses[STATISTICS], *inverse = mean + channels;
    const float *scale = addresses[SCALE];
    const float *scale_gradient = addresses[SCALE_GRADIENT];
    const float *shift_gradient = addresses[SHIFT_GRADIENT];
    float *factor = addresses[WORKSPACE_DATA];
    float *offset = factor + channels, *slope = offset + channels;
    memset(factor, 0, 3 * channels * sizeof(float));
    float count = (float)(planes->batch * planes->positions);
    for (int64_t i = 0; i < planes->channels; i++) {
        factor[i] = scale[i] * inverse[i];
        offset[i] = shift_gradient[i] / count;
        slope[i] = scale_gradient[i] * inverse[i] / count;
    }
    struct ebb__plane_pass pass = {.planes = *planes,
                                   .input = addresses[EBB__X],
                                   .gradient = addresses[EBB__DY],
                                   .mask = own->relu ? addresses[MASK] : NULL,
                                   .target = addresses[EBB__DX],
                                   .mean = mean,
                                   .factor = factor,
                                   .offset = offset,
                                   .slope = slope};
    ebb__planes_gradient(&pass);
}

static enum ebb_status run(struct ebb_op *op, enum ebb_op_step step, void *const *addresses,
                           const struct ebb_op_call *call, struct ebb_error *error)
{
    (void)call;
    (void)error;
    if (step == EBB_OP_BACKWARD_WEIGHTS)
        backward_weights(op->own, addresses);
    else if (step == EBB_OP_BACKWARD_DATA)
        backward_data(op->own, addresses);
    else
        forward(op->own, step, addresses);
    return EBB_OK;
}

static const struct ebb_op_table table = {run};

static void add_buffers(struct ebb__builder *build, const struct batch_norm *own,
                        const struct ebb_op_desc *input)
{
    const struct ebb__planes *planes = &own->planes;
    uint64_t channels = ebb__planes_channels(planes), floats = sizeof(float);
    struct ebb_op_desc channel = ebb__desc_floats(1, &planes->channels);
    ebb__build_values(build, 1, &input, input);
    ebb__build_use(build, EBB__X, EBB__BACKWARDS, EBB_USE_READ);
    ebb__build_parameter(build, "scale", &channel);
    ebb__build_parameter(build, "shift", &channel);
    ebb__build_fill(build, SCALE, EBB_OP_ONES, 0.0f, false);
    ebb__build_use(build, SCALE, EBB__DATA, EBB_USE_READ);
    ebb__build_use(build, SCALE_GRADIENT, EBB__DATA, EBB_USE_READ);
    ebb__build_use(build, SHIFT_GRADIENT, EBB__DATA, EBB_USE_READ);
    ebb__build_buffer(build, EBB_OP_STATE, "running mean", &channel);
    ebb__build_buffer(build, EBB_OP_STATE, "running variance", &channel);
    ebb__build_fill(build, RUNNING_VARIANCE, EBB_OP_ONES, 0.0f, false);
    for (uint32_t i = RUNNING_MEAN; i <= RUNNING_VARIANCE; i++) {
        ebb__build_use(build, i, 1u << EBB_OP_FORWARD, EBB_USE_UPDATE);
        ebb__build_use(build, i, EBB__EVALUATE, EBB_USE_READ);
    }
    ebb__build_floats(build, EBB_OP_SAVED, "statistics", 2 * (int64_t)channels);
    ebb__build_use(build, STATISTICS, EBB__FORWARD, EBB_USE_OVERWRITE);
    ebb__build_use(build, STATISTICS, EBB__BACKWARDS, EBB_USE_READ);
    /* Coefficients take the place of the planes' moments. */
    uint64_t partials = ebb__planes_partials(planes);
    ebb__build_workspace(build, EBB__FORWARDS,
                         (partials > 3 * channels ? partials : 3 * channels) * floats);
    ebb__build_workspace(build, EBB__WEIGHTS, partials * floats);
    ebb__build_workspace(build, EBB__DATA, 3 * channels * floats);
    if (own->relu) {
        ebb__build_bytes(build, EBB_OP_SAVED, "mask", ebb__mask_bytes(input->bytes / floats));
        ebb__build_use(build, MASK, EBB__FORWARD, EBB_USE_OVERWRITE);
        ebb__build_use(build, MASK, EBB__BACKWARDS, EBB_USE_READ);
    }
    ebb__build_replace(build, EBB__DX, EBB__DY);
    ebb__build_replace(build, EBB__DX, EBB__X);
}

enum ebb_status ebb_op_batch_norm_create(struct ebb_op_engine *engine, const char *name,
                                         const struct ebb_op_batch_norm *options,
                                         const struct ebb_op_desc *input, struct ebb_op **op,
                                         struct ebb_error *error)
{
    struct ebb__builder build =
        ebb__build_begin(engine, "batch norm", name, &table, EBB__FORWARDS | EBB__BACKWARDS,
                         sizeof(struct batch_norm), error);
    struct batch_norm own = {.epsilon = options->epsilon != 0.0f ? options->epsilon : 1e-5f,
                             .momentum = options->momentum != 0.0f ? options->momentum : 0.1f,
                             .relu = options->relu};
    char text[96];
    if (input->rank != 4)
        ebb__build_fail(&build, EBB_ERR_ARGUMENT,
                        "the input is %s, but must be batch x channels x height x width",
                        ebb_op_desc_text(input, text));
    else if (!ebb__planes_of(input, &own.planes) || own.planes.block > EBB__WIDTH_MAX)
        ebb__build_fail(&build, EBB_ERR_UNSUPPORTED, "the layout of the input %s is not known",
                        ebb_op_desc_text(input, text));
    if (build.status != EBB_OK)
        return build.status;
    add_buffers(&build, &own, input);
    if (build.status == EBB_OK)
        *(struct batch_norm *)build.op->own = own;
    return ebb__build_end(&build, op);
}
