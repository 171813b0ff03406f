/* Layer normalisation. oneDNN computes outputs. Its backward primitive computes the gradients of
 * data and parameters together, so each has a loop of its own here. Those of parameters are sums
 * over rows; each thread has columns of its own, so the order of additions is that of the rows.
 *
 * With x' = (x - mean) / deviation and g = dy * scale, the gradient of a row is
 * dx = (g - mean(g) - x' mean(g x')) / deviation. */
#include "train/op/build.h"
#include "train/op/kernels.h"

#include <inttypes.h>
#include <math.h>

enum { COLUMNS = 64 };

struct layer_norm {
    int64_t rows;
    int64_t columns;
    float epsilon;
    uint32_t scale; /* positions of buffers */
    uint32_t shift;
    uint32_t mean;
    uint32_t variance;
};

struct sums {
    const struct layer_norm *own;
    const float *input;
    const float *gradient;
    const float *mean;
    const float *variance;
    float *scale;
    float *shift;
};

EBB_KERNEL
static void sum_columns(const struct sums *sums, uint64_t first, uint64_t count)
{
    float scale[COLUMNS] = {0}, shift[COLUMNS] = {0};
    const struct layer_norm *own = sums->own;
    for (int64_t row = 0; row < own->rows; row++) {
        const float *x = sums->input + row * own->columns + first;
        const float *dy = sums->gradient + row * own->columns + first;
        float mean = sums->mean[row];
        float inverse = 1.0f / sqrtf(sums->variance[row] + own->epsilon);
        for (uint64_t i = 0; i < count; i++) {
            scale[i] += dy[i] * ((x[i] - mean) * inverse);
            shift[i] += dy[i];
        }
    }
    memcpy(sums->scale + first, scale, count * sizeof(float));
    memcpy(sums->shift + first, shift, count * sizeof(float));
}

static void sum_range(void *context, uint64_t first, uint64_t last)
{
    sum_columns(context, first, last - first);
}

/* Sixteen sums of each kind, which become vectors. */
EBB_KERNEL
static void gradient_row(float *target, const float *gradient, const float *x, const float *scale,
                         int64_t count, float mean, float inverse)
{
    enum { LANES = 16 };
    float sums[LANES] = {0}, products[LANES] = {0};
    int64_t whole = count / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES) {
        for (int64_t j = i; j < i + LANES; j++) {
            float scaled = gradient[j] * scale[j];
            sums[j - i] += scaled;
            products[j - i] += scaled * ((x[j] - mean) * inverse);
        }
    }
    for (int64_t j = whole; j < count; j++) {
        float scaled = gradient[j] * scale[j];
        sums[j - whole] += scaled;
        products[j - whole] += scaled * ((x[j] - mean) * inverse);
    }
    float sum = 0, product = 0;
    for (int j = 0; j < LANES; j++) {
        sum += sums[j];
        product += products[j];
    }
    sum /= (float)count;
    product /= (float)count;
    for (int64_t j = 0; j < count; j++)
        target[j] = inverse * (gradient[j] * scale[j] - sum - (x[j] - mean) * inverse * product);
}

struct data_pass {
    const struct layer_norm *own;
    void *const *addresses;
};

static void gradient_range(void *context, uint64_t first, uint64_t last)
{
    const struct data_pass *pass = context;
    const struct layer_norm *own = pass->own;
    const float *mean = pass->addresses[own->mean], *variance = pass->addresses[own->variance];
    for (uint64_t row = first; row < last; row++) {
        int64_t at = (int64_t)row * own->columns;
        gradient_row((float *)pass->addresses[EBB__DX] + at,
                     (const float *)pass->addresses[EBB__DY] + at,
                     (const float *)pass->addresses[EBB__X] + at, pass->addresses[own->scale],
                     own->columns, mean[row], 1.0f / sqrtf(variance[row] + own->epsilon));
    }
}

static enum ebb_status run(struct ebb_op *op, enum ebb_op_step step, void *const *addresses,
                           const struct ebb_op_call *call, struct ebb_error *error)
{
    (void)call;
    (void)error;
    const struct layer_norm *own = op->own;
    if (step == EBB_OP_BACKWARD_WEIGHTS) {
        struct sums sums = {.own = own,
                            .input = addresses[EBB__X],
                            .gradient = addresses[EBB__DY],
                            .mean = addresses[own->mean],
                            .variance = addresses[own->variance],
                            .scale = addresses[own->scale + 1],
                            .shift = addresses[own->shift + 1]};
        ebb__range_each((uint64_t)own->columns, COLUMNS, sum_range, &sums);
    } else if (step == EBB_OP_BACKWARD_DATA) {
        struct data_pass pass = {own, addresses};
        ebb__range_each((uint64_t)own->rows, 8, gradient_range, &pass);
    }
    return EBB_OK;
}

static const struct ebb_op_table table = {run};

static void add_forward(struct ebb__builder *build, const struct layer_norm *own,
                        const struct ebb_op_desc *input, dnnl_prop_kind_t kind, uint32_t steps)
{
    struct ebb_op_desc statistics = ebb__desc_floats(input->rank - 1, input->dims);
    dnnl_layer_normalization_desc_t desc;
    ebb__build_check(build,
                     dnnl_layer_normalization_forward_desc_init(&desc, kind, &input->layout,
                                                                &statistics.layout, own->epsilon,
                                                                dnnl_use_scale | dnnl_use_shift),
                     "layer normalisation");
    const_dnnl_primitive_desc_t pd = ebb__build_pd(build, &desc, NULL, "layer normalisation");
    ebb__build_primitive(build, pd, steps);
    ebb__build_bind(build, DNNL_ARG_SRC, ebb__place(EBB__X));
    ebb__build_bind(build, DNNL_ARG_SCALE, ebb__place(own->scale));
    ebb__build_bind(build, DNNL_ARG_SHIFT, ebb__place(own->shift));
    ebb__build_bind(build, DNNL_ARG_DST, ebb__place(EBB__Y));
    if (kind == dnnl_forward_training) {
        ebb__build_bind(build, DNNL_ARG_MEAN, ebb__place(own->mean));
        ebb__build_bind(build, DNNL_ARG_VARIANCE, ebb__place(own->variance));
    }
}

enum ebb_status ebb_op_layer_norm_create(struct ebb_op_engine *engine, const char *name,
                                         const struct ebb_op_layer_norm *options,
                                         const struct ebb_op_desc *input, struct ebb_op **op,
                                         struct ebb_error *error)
{
    struct ebb__builder build =
        ebb__build_begin(engine, "layer norm", name, &table, EBB__FORWARDS | EBB__BACKWARDS,
                         sizeof(struct layer_norm), error);
    char text[96];
    if (input->rank != 2 && input->rank != 3)
        ebb__build_fail(&build, EBB_ERR_ARGUMENT,
                        "the input is %s, but must be rows or a sequence of features",
                        ebb_op_desc_text(input, text));
    if (build.status != EBB_OK)
        return build.status;
    struct layer_norm own = {.columns = input->dims[input->rank - 1],
                             .epsilon = options->epsilon != 0.0f ? options->epsilon : 1e-5f};
    own.rows = (int64_t)ebb_op_desc_count(input) / own.columns;
    struct ebb_op_desc column = ebb__desc_floats(1, &own.columns);
    ebb__build_values(&build, 1, &input, input);
    own.scale = ebb__build_parameter(&build, "scale", &column);
    own.shift = ebb__build_parameter(&build, "shift", &column);
    own.mean = ebb__build_floats(&build, EBB_OP_SAVED, "mean", own.rows);
    own.variance = ebb__build_floats(&build, EBB_OP_SAVED, "variance", own.rows);
    ebb__build_fill(&build, own.scale, EBB_OP_ONES, 0.0f, false);
    ebb__build_use(&build, EBB__X, EBB__BACKWARDS, EBB_USE_READ);
    ebb__build_use(&build, own.scale, EBB__DATA, EBB_USE_READ);
    for (uint32_t i = own.mean; i <= own.variance; i++) {
        ebb__build_use(&build, i, EBB__FORWARD, EBB_USE_OVERWRITE);
        ebb__build_use(&build, i, EBB__BACKWARDS, EBB_USE_READ);
    }
    add_forward(&build, &own, input, dnnl_forward_training, EBB__FORWARD);
    add_forward(&build, &own, input, dnnl_forward_inference, EBB__EVALUATE);
    ebb__build_replace(&build, EBB__DX, EBB__DY);
    ebb__build_replace(&build, EBB__DX, EBB__X);
    if (build.status == EBB_OK)
        *(struct layer_norm *)build.op->own = own;
    return ebb__build_end(&build, op);
}
