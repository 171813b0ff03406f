/* Local response normalisation by oneDNN, whose workspace is what is saved. */
#include "train/op/build.h"

#include <inttypes.h>

static const struct ebb_op_table table = {0};

static const_dnnl_primitive_desc_t describe(struct ebb__builder *build, dnnl_prop_kind_t kind,
                                            const struct ebb_op_lrn *options,
                                            const struct ebb_op_desc *input)
{
    dnnl_lrn_desc_t desc;
    ebb__build_check(build,
                     dnnl_lrn_forward_desc_init(&desc, kind, dnnl_lrn_across_channels,
                                                &input->layout, options->size, options->alpha,
                                                options->beta, options->k),
                     "LRN");
    return ebb__build_pd(build, &desc, NULL, "LRN");
}

static void add_data(struct ebb__builder *build, const struct ebb_op_lrn *options,
                     const struct ebb_op_desc *input, const_dnnl_primitive_desc_t forward,
                     uint32_t saved)
{
    dnnl_lrn_desc_t desc;
    ebb__build_check(build,
                     dnnl_lrn_backward_desc_init(&desc, dnnl_lrn_across_channels, &input->layout,
                                                 &input->layout, options->size, options->alpha,
                                                 options->beta, options->k),
                     "LRN's gradient");
    ebb__build_primitive(build, ebb__build_pd(build, &desc, forward, "LRN's gradient"), EBB__DATA);
    ebb__build_bind(build, DNNL_ARG_SRC, ebb__place(EBB__X));
    ebb__build_bind(build, DNNL_ARG_DIFF_DST, ebb__place(EBB__DY));
    ebb__build_bind(build, DNNL_ARG_DIFF_SRC, ebb__place(EBB__DX));
    if (saved)
        ebb__build_bind(build, DNNL_ARG_WORKSPACE, ebb__place(saved));
}

enum ebb_status ebb_op_lrn_create(struct ebb_op_engine *engine, const char *name,
                                  const struct ebb_op_lrn *options, const struct ebb_op_desc *input,
                                  struct ebb_op **op, struct ebb_error *error)
{
    struct ebb__builder build =
        ebb__build_begin(engine, "lrn", name, &table, EBB__FORWARDS | EBB__DATA, 0, error);
    struct ebb_op_lrn full = {.size = options->size ? options->size : 5,
                              .alpha = options->alpha != 0.0f ? options->alpha : 1e-4f,
                              .beta = options->beta != 0.0f ? options->beta : 0.75f,
                              .k = options->k != 0.0f ? options->k : 1.0f};
    char text[96];
    if (input->rank != 4 || full.size <= 0 || full.size % 2 == 0)
        ebb__build_fail(&build, EBB_ERR_ARGUMENT,
                        "the input %s must be an image, and the size %" PRId64 " odd",
                        ebb_op_desc_text(input, text), full.size);
    ebb__build_values(&build, 1, &input, input);
    ebb__build_use(&build, EBB__X, EBB__DATA, EBB_USE_READ);
    const_dnnl_primitive_desc_t forward = describe(&build, dnnl_forward_training, &full, input);
    dnnl_memory_desc_t kept = ebb__build_layout(&build, forward, DNNL_ARG_WORKSPACE);
    uint32_t saved = 0;
    if (build.status == EBB_OK && dnnl_memory_desc_get_size(&kept) > 0) {
        struct ebb_op_desc desc = ebb__desc_of(&kept);
        saved = ebb__build_buffer(&build, EBB_OP_SAVED, "norms", &desc);
        ebb__build_use(&build, saved, EBB__FORWARD, EBB_USE_OVERWRITE);
        ebb__build_use(&build, saved, EBB__DATA, EBB_USE_READ);
    }
    ebb__build_map(&build, forward, EBB__FORWARD, saved);
    ebb__build_map(&build, describe(&build, dnnl_forward_inference, &full, input), EBB__EVALUATE,
                   0);
    add_data(&build, &full, input, forward, saved);
    return ebb__build_end(&build, op);
}
