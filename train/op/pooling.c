/* Pooling by oneDNN. Its workspace of a maximum tells the place of the maximum in each window, in
 * one byte if windows are small. That is what is saved. */
#include "train/op/build.h"

#include <inttypes.h>

static const struct ebb_op_table table = {0};

struct pooling {
    dnnl_alg_kind_t algorithm;
    dnnl_dims_t stride;
    dnnl_dims_t kernel;
    dnnl_dims_t before; /* padding */
    dnnl_dims_t after;
    int64_t output[4];
    bool max;
};

static bool measure(struct pooling *own, const struct ebb_op_pooling *options,
                    const struct ebb_op_desc *input)
{
    for (int i = 0; i < 2; i++) {
        int64_t size = input->dims[2 + i], padding = options->padding[i];
        int64_t kernel = options->kernel[i] ? options->kernel[i] : size;
        int64_t stride = options->stride[i] ? options->stride[i] : kernel;
        int64_t room = size + 2 * padding - kernel;
        if (kernel <= 0 || stride <= 0 || padding < 0 || padding >= kernel || room < 0)
            return false;
        int64_t output = room / stride + 1;
        /* A window that begins behind the image has no element. */
        if (options->ceiling && room % stride != 0 && output * stride < size + padding)
            output++;
        int64_t reach = (output - 1) * stride + kernel - size - padding;
        own->kernel[i] = kernel;
        own->stride[i] = stride;
        own->before[i] = padding;
        own->after[i] = reach > padding ? reach : padding;
        own->output[2 + i] = output;
    }
    own->output[0] = input->dims[0];
    own->output[1] = input->dims[1];
    own->max = options->max;
    own->algorithm = options->max ? dnnl_pooling_max : dnnl_pooling_avg_exclude_padding;
    return true;
}

static const_dnnl_primitive_desc_t describe(struct ebb__builder *build, const struct pooling *own,
                                            dnnl_prop_kind_t kind, const dnnl_memory_desc_t *source,
                                            const dnnl_memory_desc_t *target)
{
    dnnl_pooling_desc_t desc;
    ebb__build_check(build,
                     dnnl_pooling_forward_desc_init(&desc, kind, own->algorithm, source, target,
                                                    own->stride, own->kernel, own->before,
                                                    own->after),
                     "pooling");
    return ebb__build_pd(build, &desc, NULL, "pooling");
}

static void add_data(struct ebb__builder *build, const struct pooling *own,
                     const struct ebb_op_desc *input, const dnnl_memory_desc_t *target,
                     const_dnnl_primitive_desc_t forward, uint32_t saved)
{
    dnnl_pooling_desc_t desc;
    ebb__build_check(build,
                     dnnl_pooling_backward_desc_init(&desc, own->algorithm, &input->layout, target,
                                                     own->stride, own->kernel, own->before,
                                                     own->after),
                     "pooling's gradient");
    ebb__build_primitive(build, ebb__build_pd(build, &desc, forward, "pooling's gradient"),
                         EBB__DATA);
    ebb__build_bind(build, DNNL_ARG_DIFF_DST, ebb__place(EBB__DY));
    ebb__build_bind(build, DNNL_ARG_DIFF_SRC, ebb__place(EBB__DX));
    if (saved)
        ebb__build_bind(build, DNNL_ARG_WORKSPACE, ebb__place(saved));
}

static enum ebb_status create(struct ebb_op_engine *engine, const char *kind, const char *name,
                              const struct ebb_op_pooling *options, const struct ebb_op_desc *input,
                              struct ebb_op **op, struct ebb_error *error)
{
    struct ebb__builder build =
        ebb__build_begin(engine, kind, name, &table, EBB__FORWARDS | EBB__DATA, 0, error);
    struct pooling own = {0};
    char text[96];
    if (input->rank != 4 || !measure(&own, options, input))
        ebb__build_fail(&build, EBB_ERR_ARGUMENT,
                        "a window of %" PRId64 "x%" PRId64 ", stride %" PRId64 "x%" PRId64
                        ", padding %" PRId64 "x%" PRId64 " does not fit the input %s",
                        options->kernel[0], options->kernel[1], options->stride[0],
                        options->stride[1], options->padding[0], options->padding[1],
                        ebb_op_desc_text(input, text));
    if (build.status != EBB_OK)
        return build.status;
    struct ebb_op_desc output = ebb__desc_floats(4, own.output);
    dnnl_memory_desc_t target = ebb__desc_any(&output);
    const_dnnl_primitive_desc_t forward =
        describe(&build, &own, dnnl_forward_training, &input->layout, &target);
    target = ebb__build_layout(&build, forward, DNNL_ARG_DST);
    output = ebb__desc_of(&target);
    ebb__build_values(&build, 1, &input, &output);
    uint32_t saved = 0;
    if (own.max) {
        dnnl_memory_desc_t places = ebb__build_layout(&build, forward, DNNL_ARG_WORKSPACE);
        struct ebb_op_desc desc = ebb__desc_of(&places);
        saved = ebb__build_buffer(&build, EBB_OP_SAVED, "maxima", &desc);
        ebb__build_use(&build, saved, EBB__FORWARD, EBB_USE_OVERWRITE);
        ebb__build_use(&build, saved, EBB__DATA, EBB_USE_READ);
    }
    ebb__build_map(&build, forward, EBB__FORWARD, saved);
    const_dnnl_primitive_desc_t inference =
        describe(&build, &own, dnnl_forward_inference, &input->layout, &target);
    ebb__build_map(&build, inference, EBB__EVALUATE, 0);
    add_data(&build, &own, input, &target, forward, saved);
    return ebb__build_end(&build, op);
}

enum ebb_status ebb_op_pooling_create(struct ebb_op_engine *engine, const char *name,
                                      const struct ebb_op_pooling *options,
                                      const struct ebb_op_desc *input, struct ebb_op **op,
                                      struct ebb_error *error)
{
    return create(engine, "pooling", name, options, input, op, error);
}

enum ebb_status ebb_op_global_pooling_create(struct ebb_op_engine *engine, const char *name,
                                             const struct ebb_op_desc *input, struct ebb_op **op,
                                             struct ebb_error *error)
{
    struct ebb_op_pooling whole = {.max = false};
    return create(engine, "global pooling", name, &whole, input, op, error);
}
