/* Dense layers: the inner product of oneDNN. The forward primitive chooses the layout of the
 * weights, which is kept. Others reorder them in their workspace if they want another one. */
#include "train/op/build.h"

#include <inttypes.h>
#include <math.h>

struct dense {
    bool bias;
    dnnl_memory_desc_t source; /* rows of inputs, or images */
    dnnl_memory_desc_t target; /* rows of features */
    struct ebb_op_desc weights;
    struct ebb_op_desc bias_desc;
    const_dnnl_primitive_desc_t forward;
    uint32_t weights_at;
    uint32_t bias_at;
};

static const struct ebb_op_table table = {0};

/* Describes output and weights. Sequences are seen as rows: their layout is plain. */
static struct ebb_op_desc describe(struct dense *own, const struct ebb_op_desc *input,
                                   int64_t features)
{
    bool image = input->rank == 4;
    int64_t weights[4] = {features, image ? input->dims[1] : input->dims[input->rank - 1],
                          input->dims[2], input->dims[3]};
    own->weights = ebb__desc_floats(image ? 4 : 2, weights);
    own->bias_desc = ebb__desc_floats(1, &features);
    int64_t dims[3] = {input->dims[0], input->dims[1], features};
    int64_t rows[2] = {input->dims[0], features};
    if (input->rank == 3)
        rows[0] *= input->dims[1];
    own->target = ebb__desc_floats(2, rows).layout;
    own->source = input->layout;
    if (input->rank == 3) {
        rows[1] = input->dims[2];
        own->source = ebb__desc_floats(2, rows).layout;
        return ebb__desc_floats(3, dims);
    }
    return ebb__desc_of(&own->target);
}

static void add_forward(struct ebb__builder *build, struct dense *own)
{
    dnnl_memory_desc_t weights = ebb__desc_any(&own->weights);
    dnnl_inner_product_desc_t desc;
    ebb__build_check(build,
                     dnnl_inner_product_forward_desc_init(
                         &desc, dnnl_forward_training, &own->source, &weights,
                         own->bias ? &own->bias_desc.layout : NULL, &own->target),
                     "an inner product");
    own->forward = ebb__build_pd(build, &desc, NULL, "an inner product");
    weights = ebb__build_layout(build, own->forward, DNNL_ARG_WEIGHTS);
    if (build->status != EBB_OK)
        return;
    own->weights = ebb__desc_of(&weights);
    own->weights_at = ebb__build_parameter(build, "weights", &own->weights);
    if (own->bias)
        own->bias_at = ebb__build_parameter(build, "bias", &own->bias_desc);
    ebb__build_primitive(build, own->forward, EBB__FORWARDS);
    ebb__build_bind(build, DNNL_ARG_SRC, ebb__place(EBB__X));
    ebb__build_bind(build, DNNL_ARG_WEIGHTS, ebb__place(own->weights_at));
    if (own->bias)
        ebb__build_bind(build, DNNL_ARG_BIAS, ebb__place(own->bias_at));
    ebb__build_bind(build, DNNL_ARG_DST, ebb__place(EBB__Y));
}

static void add_weights(struct ebb__builder *build, struct dense *own)
{
    dnnl_memory_desc_t weights = ebb__desc_any(&own->weights);
    dnnl_inner_product_desc_t desc;
    ebb__build_check(
        build,
        dnnl_inner_product_backward_weights_desc_init(
            &desc, &own->source, &weights, own->bias ? &own->bias_desc.layout : NULL, &own->target),
        "an inner product's weights");
    const_dnnl_primitive_desc_t pd =
        ebb__build_pd(build, &desc, own->forward, "an inner product's weights");
    if (build->status != EBB_OK)
        return;
    ebb__build_use(build, EBB__X, EBB__WEIGHTS, EBB_USE_READ);
    dnnl_memory_desc_t wanted = ebb__build_layout(build, pd, DNNL_ARG_DIFF_WEIGHTS);
    struct ebb__place gradient = ebb__place(own->weights_at + 1);
    struct ebb__place target =
        ebb__build_outlet(build, EBB__WEIGHTS, &wanted, gradient, &own->weights.layout);
    ebb__build_primitive(build, pd, EBB__WEIGHTS);
    ebb__build_bind(build, DNNL_ARG_SRC, ebb__place(EBB__X));
    ebb__build_bind(build, DNNL_ARG_DIFF_DST, ebb__place(EBB__DY));
    ebb__build_bind(build, DNNL_ARG_DIFF_WEIGHTS, target);
    if (own->bias)
        ebb__build_bind(build, DNNL_ARG_DIFF_BIAS, ebb__place(own->bias_at + 1));
    ebb__build_deliver(build, EBB__WEIGHTS, &wanted, target, &own->weights.layout, gradient);
}

static void add_data(struct ebb__builder *build, struct dense *own)
{
    dnnl_memory_desc_t weights = ebb__desc_any(&own->weights);
    dnnl_inner_product_desc_t desc;
    ebb__build_check(
        build,
        dnnl_inner_product_backward_data_desc_init(&desc, &own->source, &weights, &own->target),
        "an inner product's data");
    const_dnnl_primitive_desc_t pd =
        ebb__build_pd(build, &desc, own->forward, "an inner product's data");
    if (build->status != EBB_OK)
        return;
    struct ebb__place w = ebb__build_weights(build, EBB__DATA, pd, own->weights_at, &own->weights);
    ebb__build_primitive(build, pd, EBB__DATA);
    ebb__build_bind(build, DNNL_ARG_DIFF_DST, ebb__place(EBB__DY));
    ebb__build_bind(build, DNNL_ARG_WEIGHTS, w);
    ebb__build_bind(build, DNNL_ARG_DIFF_SRC, ebb__place(EBB__DX));
}

enum ebb_status ebb_op_dense_create(struct ebb_op_engine *engine, const char *name,
                                    const struct ebb_op_dense *options,
                                    const struct ebb_op_desc *input, struct ebb_op **op,
                                    struct ebb_error *error)
{
    struct ebb__builder build =
        ebb__build_begin(engine, "dense", name, &table, EBB__FORWARDS | EBB__BACKWARDS, 0, error);
    char text[96];
    if (options->features <= 0 || input->rank < 2 || input->rank > 4)
        ebb__build_fail(&build, EBB_ERR_ARGUMENT,
                        "%" PRId64 " features of the input %s: the input must have 2 to 4 "
                        "dimensions, and features must be positive",
                        options->features, ebb_op_desc_text(input, text));
    if (build.status != EBB_OK)
        return build.status;
    struct dense own = {.bias = options->bias};
    struct ebb_op_desc output = describe(&own, input, options->features);
    ebb__build_values(&build, 1, &input, &output);
    add_forward(&build, &own);
    add_weights(&build, &own);
    add_data(&build, &own);
    uint64_t count = ebb_op_desc_count(&own.weights);
    uint64_t inputs = count / (uint64_t)options->features;
    bool normal = options->spread > 0.0f;
    ebb__build_fill(&build, own.weights_at, normal ? EBB_OP_NORMAL : EBB_OP_UNIFORM,
                    normal ? options->spread : (float)(1 / sqrt((double)inputs)), true);
    if (build.status == EBB_OK) {
        for (int step = 0; step < EBB_OP_STEP_COUNT; step++)
            build.op->flops[step] = 2 * inputs * ebb_op_desc_count(&output);
    }
    return ebb__build_end(&build, op);
}
