/* Concatenation of channels by oneDNN. Backward copies parts of the output gradient by reorders.
 * These need parts that begin at a whole block of channels. Otherwise the output has plain rows. */
#include "train/op/build.h"

#include <inttypes.h>

static const struct ebb_op_table table = {0};

struct concat {
    uint32_t count;
    const struct ebb_op_desc *const *inputs;
    dnnl_memory_desc_t layouts[EBB_OP_CONCAT_MAX]; /* of the inputs */
    dnnl_memory_desc_t parts[EBB_OP_CONCAT_MAX];   /* in the output */
    int64_t channels;
};

static void check(struct ebb__builder *build, struct concat *own)
{
    if (own->count < 2 || own->count > EBB_OP_CONCAT_MAX) {
        ebb__build_fail(build, EBB_ERR_ARGUMENT, "has %" PRIu32 " inputs, not 2 to %d", own->count,
                        EBB_OP_CONCAT_MAX);
        return;
    }
    const struct ebb_op_desc *first = own->inputs[0];
    for (uint32_t i = 0; i < own->count; i++) {
        const struct ebb_op_desc *input = own->inputs[i];
        char texts[2][96];
        if (input->rank != 4 || first->rank != 4 || input->dims[0] != first->dims[0] ||
            input->dims[2] != first->dims[2] || input->dims[3] != first->dims[3])
            ebb__build_fail(build, EBB_ERR_ARGUMENT,
                            "the inputs %s and %s differ in more than channels, or are no images",
                            ebb_op_desc_text(first, texts[0]), ebb_op_desc_text(input, texts[1]));
        own->layouts[i] = input->layout;
        own->channels += input->dims[1];
    }
}

/* Describes the parts. False: a part begins within a block. */
static bool divide(struct concat *own, const dnnl_memory_desc_t *whole)
{
    dnnl_dims_t offsets = {0};
    for (uint32_t i = 0; i < own->count; i++) {
        if (dnnl_memory_desc_init_submemory(&own->parts[i], whole, own->layouts[i].dims, offsets) !=
            dnnl_success)
            return false;
        offsets[1] += own->layouts[i].dims[1];
    }
    return true;
}

static const_dnnl_primitive_desc_t describe(struct ebb__builder *build, struct concat *own,
                                            const dnnl_memory_desc_t *target)
{
    if (build->status != EBB_OK)
        return NULL;
    const struct ebb_op_engine *engine = build->op->engine;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = dnnl_concat_primitive_desc_create(
        &pd, target, (int)own->count, 1, own->layouts, engine->attributes, engine->engine);
    return ebb__build_keep(build, status, pd, "a concatenation");
}

enum ebb_status ebb_op_concat_create(struct ebb_op_engine *engine, const char *name, uint32_t count,
                                     const struct ebb_op_desc *const *inputs, struct ebb_op **op,
                                     struct ebb_error *error)
{
    struct ebb__builder build =
        ebb__build_begin(engine, "concat", name, &table, EBB__FORWARDS | EBB__DATA, 0, error);
    struct concat own = {.count = count, .inputs = inputs};
    if (build.status == EBB_OK)
        check(&build, &own);
    if (build.status != EBB_OK)
        return build.status;
    int64_t dims[4] = {inputs[0]->dims[0], own.channels, inputs[0]->dims[2], inputs[0]->dims[3]};
    struct ebb_op_desc output = ebb__desc_floats(4, dims);
    dnnl_memory_desc_t target = ebb__desc_any(&output);
    const_dnnl_primitive_desc_t pd = describe(&build, &own, &target);
    target = ebb__build_layout(&build, pd, DNNL_ARG_DST);
    if (build.status == EBB_OK && !divide(&own, &target)) {
        target = output.layout;
        pd = describe(&build, &own, &target);
        if (!divide(&own, &target))
            ebb__build_fail(&build, EBB_ERR_INTERNAL, "plain rows cannot be divided");
    }
    output = ebb__desc_of(&target);
    ebb__build_values(&build, count, inputs, &output);
    ebb__build_primitive(&build, pd, EBB__FORWARDS);
    for (uint32_t i = 0; i < count; i++)
        ebb__build_bind(&build, DNNL_ARG_MULTIPLE_SRC + (int)i, ebb__place(i));
    ebb__build_bind(&build, DNNL_ARG_DST, ebb__place(count));
    for (uint32_t i = 0; i < count; i++)
        ebb__build_reorder(&build, EBB__DATA, &own.parts[i], ebb__place(2 * count + 1),
                           &inputs[i]->layout, ebb__place(count + 1 + i));
    return ebb__build_end(&build, op);
}
