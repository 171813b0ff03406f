/* Convolution by oneDNN.
 *
 * The primitive chooses the layouts: of the output, which later operations adopt, and of the
 * weights, which are kept in it. If the input has another layout than the forward primitive wants,
 * each step reorders it in its workspace. This costs less than a convolution in the wrong layout:
 * plain rows take half as long again as blocked channels. */
#include "train/op/build.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

struct convolution {
    struct ebb_op_convolution options;
    dnnl_dims_t stride;
    dnnl_dims_t padding;
    struct ebb_op_desc input;
    struct ebb_op_desc output;
    struct ebb_op_desc weights;
    struct ebb_op_desc bias;
    const_dnnl_primitive_desc_t forward;
    dnnl_memory_desc_t source; /* layout of the input that the primitives work on */
    uint32_t weights_at;
    uint32_t bias_at;
};

static void check(struct ebb__builder *build, struct convolution *own,
                  const struct ebb_op_desc *input)
{
    struct ebb_op_convolution *options = &own->options;
    char text[96];
    ebb_op_desc_text(input, text);
    if (options->groups == 0)
        options->groups = 1;
    for (int i = 0; i < 2; i++) {
        if (options->stride[i] == 0)
            options->stride[i] = 1;
        if (options->kernel[i] <= 0 || options->stride[i] < 0 || options->padding[i] < 0) {
            ebb__build_fail(build, EBB_ERR_ARGUMENT,
                            "kernel, stride or padding is out of range: %" PRId64 ", %" PRId64
                            ", %" PRId64,
                            options->kernel[i], options->stride[i], options->padding[i]);
            return;
        }
    }
    if (input->rank != 4)
        ebb__build_fail(build, EBB_ERR_ARGUMENT,
                        "the input is %s, but must be batch x channels x height x width", text);
    else if (options->channels <= 0 || options->groups < 0 ||
             options->channels % options->groups != 0 || input->dims[1] % options->groups != 0)
        ebb__build_fail(build, EBB_ERR_ARGUMENT,
                        "%" PRId64 " groups do not divide the input %s and %" PRId64
                        " output channels",
                        options->groups, text, options->channels);
    else if (options->kernel[0] > input->dims[2] + 2 * options->padding[0] ||
             options->kernel[1] > input->dims[3] + 2 * options->padding[1])
        ebb__build_fail(build, EBB_ERR_ARGUMENT,
                        "the kernel %" PRId64 "x%" PRId64 " is larger than the input %s with its "
                        "padding",
                        options->kernel[0], options->kernel[1], text);
}

static void describe(struct convolution *own, const struct ebb_op_desc *input)
{
    const struct ebb_op_convolution *options = &own->options;
    int64_t groups = options->groups;
    int64_t output[4] = {input->dims[0], options->channels};
    for (int i = 0; i < 2; i++) {
        own->stride[i] = options->stride[i];
        own->padding[i] = options->padding[i];
        output[2 + i] =
            (input->dims[2 + i] + 2 * options->padding[i] - options->kernel[i]) / own->stride[i] +
            1;
    }
    int64_t weights[5] = {groups, options->channels / groups, input->dims[1] / groups,
                          options->kernel[0], options->kernel[1]};
    own->input = *input;
    own->output = ebb__desc_floats(4, output);
    own->weights = groups > 1 ? ebb__desc_floats(5, weights) : ebb__desc_floats(4, weights + 1);
    own->bias = ebb__desc_floats(1, &options->channels);
}

static void add_forward(struct ebb__builder *build, struct convolution *own)
{
    dnnl_memory_desc_t source = ebb__desc_any(&own->input), target = ebb__desc_any(&own->output);
    dnnl_memory_desc_t weights = ebb__desc_any(&own->weights);
    dnnl_convolution_desc_t desc;
    ebb__build_check(build,
                     dnnl_convolution_forward_desc_init(
                         &desc, dnnl_forward_training, dnnl_convolution_direct, &source, &weights,
                         own->options.bias ? &own->bias.layout : NULL, &target, own->stride,
                         own->padding, own->padding),
                     "a convolution");
    own->forward = ebb__build_pd(build, &desc, NULL, "a convolution");
    own->source = ebb__build_layout(build, own->forward, DNNL_ARG_SRC);
    target = ebb__build_layout(build, own->forward, DNNL_ARG_DST);
    weights = ebb__build_layout(build, own->forward, DNNL_ARG_WEIGHTS);
    if (build->status != EBB_OK)
        return;
    own->output = ebb__desc_of(&target);
    own->weights = ebb__desc_of(&weights);
    const struct ebb_op_desc *inputs[] = {&own->input};
    ebb__build_values(build, 1, inputs, &own->output);
    own->weights_at = ebb__build_parameter(build, "weights", &own->weights);
    if (own->options.bias)
        own->bias_at = ebb__build_parameter(build, "bias", &own->bias);
    struct ebb__place x = ebb__build_adopt(build, EBB__FORWARDS, &own->input.layout,
                                           ebb__place(EBB__X), &own->source);
    ebb__build_primitive(build, own->forward, EBB__FORWARDS);
    ebb__build_bind(build, DNNL_ARG_SRC, x);
    ebb__build_bind(build, DNNL_ARG_WEIGHTS, ebb__place(own->weights_at));
    if (own->options.bias)
        ebb__build_bind(build, DNNL_ARG_BIAS, ebb__place(own->bias_at));
    ebb__build_bind(build, DNNL_ARG_DST, ebb__place(EBB__Y));
}

/* The primitive for the weights' gradients, on these layouts. */
static const_dnnl_primitive_desc_t weights_pd(struct ebb__builder *build,
                                              const struct convolution *own,
                                              const dnnl_memory_desc_t *source,
                                              const dnnl_memory_desc_t *target)
{
    dnnl_memory_desc_t weights = ebb__desc_any(&own->weights);
    dnnl_convolution_desc_t desc;
    ebb__build_check(build,
                     dnnl_convolution_backward_weights_desc_init(
                         &desc, dnnl_convolution_direct, source, &weights,
                         own->options.bias ? &own->bias.layout : NULL, target, own->stride,
                         own->padding, own->padding),
                     "a convolution's weights");
    return ebb__build_pd(build, &desc, own->forward, "a convolution's weights");
}

static bool is_reference(const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == dnnl_success &&
           strncmp(name, "ref", 3) == 0;
}

/* On processors without AVX-512, oneDNN 2.6 has no fast primitive for few channels or small planes
 * in the forward layouts. The reference takes ten times as long as one with reorders. */
static void add_weights(struct ebb__builder *build, struct convolution *own)
{
    dnnl_memory_desc_t source = ebb__desc_any(&own->input), target = ebb__desc_any(&own->output);
    const_dnnl_primitive_desc_t pd = weights_pd(build, own, &own->source, &own->output.layout);
    if (build->status == EBB_OK && is_reference(pd))
        pd = weights_pd(build, own, &source, &target);
    if (build->status != EBB_OK)
        return;
    source = ebb__build_layout(build, pd, DNNL_ARG_SRC);
    target = ebb__build_layout(build, pd, DNNL_ARG_DIFF_DST);
    ebb__build_use(build, EBB__X, EBB__WEIGHTS, EBB_USE_READ);
    struct ebb__place x =
        ebb__build_adopt(build, EBB__WEIGHTS, &own->input.layout, ebb__place(EBB__X), &source);
    struct ebb__place dy =
        ebb__build_adopt(build, EBB__WEIGHTS, &own->output.layout, ebb__place(EBB__DY), &target);
    dnnl_memory_desc_t wanted = ebb__build_layout(build, pd, DNNL_ARG_DIFF_WEIGHTS);
    struct ebb__place gradient = ebb__place(own->weights_at + 1);
    struct ebb__place outlet =
        ebb__build_outlet(build, EBB__WEIGHTS, &wanted, gradient, &own->weights.layout);
    ebb__build_primitive(build, pd, EBB__WEIGHTS);
    ebb__build_bind(build, DNNL_ARG_SRC, x);
    ebb__build_bind(build, DNNL_ARG_DIFF_DST, dy);
    ebb__build_bind(build, DNNL_ARG_DIFF_WEIGHTS, outlet);
    if (own->options.bias)
        ebb__build_bind(build, DNNL_ARG_DIFF_BIAS, ebb__place(own->bias_at + 1));
    ebb__build_deliver(build, EBB__WEIGHTS, &wanted, outlet, &own->weights.layout, gradient);
}

/* The primitive chooses the layout of the input gradient. With plain rows of few channels
 * it would take a hundred times as long. */
static void add_data(struct ebb__builder *build, struct convolution *own)
{
    dnnl_memory_desc_t source = ebb__desc_any(&own->input);
    dnnl_memory_desc_t weights = ebb__desc_any(&own->weights);
    dnnl_convolution_desc_t desc;
    ebb__build_check(build,
                     dnnl_convolution_backward_data_desc_init(
                         &desc, dnnl_convolution_direct, &source, &weights, &own->output.layout,
                         own->stride, own->padding, own->padding),
                     "a convolution's data");
    const_dnnl_primitive_desc_t pd =
        ebb__build_pd(build, &desc, own->forward, "a convolution's data");
    if (build->status != EBB_OK)
        return;
    struct ebb__place w = ebb__build_weights(build, EBB__DATA, pd, own->weights_at, &own->weights);
    source = ebb__build_layout(build, pd, DNNL_ARG_DIFF_SRC);
    struct ebb__place target =
        ebb__build_outlet(build, EBB__DATA, &source, ebb__place(EBB__DX), &own->input.layout);
    ebb__build_primitive(build, pd, EBB__DATA);
    ebb__build_bind(build, DNNL_ARG_DIFF_DST, ebb__place(EBB__DY));
    ebb__build_bind(build, DNNL_ARG_WEIGHTS, w);
    ebb__build_bind(build, DNNL_ARG_DIFF_SRC, target);
    ebb__build_deliver(build, EBB__DATA, &source, target, &own->input.layout, ebb__place(EBB__DX));
}

enum ebb_status ebb_op_convolution_create(struct ebb_op_engine *engine, const char *name,
                                          const struct ebb_op_convolution *options,
                                          const struct ebb_op_desc *input, struct ebb_op **op,
                                          struct ebb_error *error)
{
    static const struct ebb_op_table table = {0};
    uint32_t steps = EBB__FORWARDS | EBB__BACKWARDS;
    struct ebb__builder build =
        ebb__build_begin(engine, "convolution", name, &table, steps, 0, error);
    struct convolution own = {.options = *options};
    if (build.status == EBB_OK)
        check(&build, &own, input);
    if (build.status == EBB_OK) {
        describe(&own, input);
        add_forward(&build, &own);
        add_weights(&build, &own);
        add_data(&build, &own);
    }
    int64_t area = options->kernel[0] * options->kernel[1];
    double fan = (double)(options->channels * area) / (double)own.options.groups;
    ebb__build_fill(&build, own.weights_at, EBB_OP_NORMAL, (float)sqrt(2 / fan), true);
    if (build.status == EBB_OK) {
        uint64_t inputs = (uint64_t)(input->dims[1] / own.options.groups * area);
        for (int step = 0; step < EBB_OP_STEP_COUNT; step++)
            build.op->flops[step] = 2 * inputs * ebb_op_desc_count(&own.output);
    }
    return ebb__build_end(&build, op);
}
