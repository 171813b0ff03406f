/* GELU by oneDNN, with the error function. */
#include "train/op/build.h"

enum ebb_status ebb_op_gelu_create(struct ebb_op_engine *engine, const char *name,
                                   const struct ebb_op_desc *input, struct ebb_op **op,
                                   struct ebb_error *error)
{
    static const struct ebb_op_table table = {0};
    struct ebb__builder build =
        ebb__build_begin(engine, "gelu", name, &table, EBB__FORWARDS | EBB__DATA, 0, error);
    ebb__build_values(&build, 1, &input, input);
    ebb__build_use(&build, EBB__X, EBB__DATA, EBB_USE_READ);
    ebb__build_replace(&build, EBB__DX, EBB__DY);
    const dnnl_memory_desc_t *layout = &input->layout;
    dnnl_eltwise_desc_t desc;
    ebb__build_check(&build,
                     dnnl_eltwise_forward_desc_init(&desc, dnnl_forward_training,
                                                    dnnl_eltwise_gelu_erf, layout, 0.0f, 0.0f),
                     "GELU");
    const_dnnl_primitive_desc_t forward = ebb__build_pd(&build, &desc, NULL, "GELU");
    ebb__build_primitive(&build, forward, EBB__FORWARDS);
    ebb__build_bind(&build, DNNL_ARG_SRC, ebb__place(EBB__X));
    ebb__build_bind(&build, DNNL_ARG_DST, ebb__place(EBB__Y));
    ebb__build_check(
        &build,
        dnnl_eltwise_backward_desc_init(&desc, dnnl_eltwise_gelu_erf, layout, layout, 0.0f, 0.0f),
        "GELU's gradient");
    ebb__build_primitive(&build, ebb__build_pd(&build, &desc, forward, "GELU's gradient"),
                         EBB__DATA);
    ebb__build_bind(&build, DNNL_ARG_SRC, ebb__place(EBB__X));
    ebb__build_bind(&build, DNNL_ARG_DIFF_DST, ebb__place(EBB__DY));
    ebb__build_bind(&build, DNNL_ARG_DIFF_SRC, ebb__place(EBB__DX));
    return ebb__build_end(&build, op);
}
