/* The sum at the end of a residual block, with or without the ReLU that follows it there. One pass
 * over memory is less than two. If layouts differ, the second input is reordered. */
#include "train/op/build.h"
#include "train/op/kernels.h"

enum { A, B, SUM, GRADIENT_A, GRADIENT_B, GRADIENT, MASK };

struct add {
    struct ebb__place b; /* the second input in the layout of the first */
    bool relu;
};

static void copy_range(void *context, uint64_t first, uint64_t last)
{
    float *const *pair = context;
    memcpy(pair[0] + first, pair[1] + first, (last - first) * sizeof(float));
}

static void copy(float *target, float *source, uint64_t count)
{
    float *pair[2] = {target, source};
    if (target != source)
        ebb__range_each(count, EBB__RANGE, copy_range, pair);
}

static void run_backward(const struct ebb_op *op, void *const *addresses)
{
    const struct add *own = op->own;
    uint64_t count = op->buffers[SUM].desc.bytes / sizeof(float);
    float *targets[2] = {addresses[GRADIENT_A], addresses[GRADIENT_B]};
    if (own->b.buffer != B)
        targets[1] = NULL; /* oneDNN reorders it */
    /* The one that takes the place of the output gradient comes last. */
    int first = targets[0] == addresses[GRADIENT];
    for (int i = 0; i < 2; i++) {
        float *target = targets[i == 0 ? first : 1 - first];
        if (target && own->relu)
            ebb__mask(target, addresses[GRADIENT], addresses[MASK], count, 1.0f);
        else if (target)
            copy(target, addresses[GRADIENT], count);
    }
}

static enum ebb_status run(struct ebb_op *op, enum ebb_op_step step, void *const *addresses,
                           const struct ebb_op_call *call, struct ebb_error *error)
{
    (void)call;
    (void)error;
    const struct add *own = op->own;
    if (step == EBB_OP_BACKWARD_DATA) {
        run_backward(op, addresses);
        return EBB_OK;
    }
    uint64_t count = op->buffers[SUM].desc.bytes / sizeof(float);
    const float *b = (const float *)((char *)addresses[own->b.buffer] + own->b.offset_bytes);
    if (own->relu)
        ebb__add_relu(addresses[SUM], addresses[A], b,
                      step == EBB_OP_EVALUATE ? NULL : addresses[MASK], count);
    else
        ebb__add(addresses[SUM], addresses[A], b, count);
    return EBB_OK;
}

static const struct ebb_op_table table = {run};

/* With two layouts a ReLU would need the mask in both orders. */
static void add_reorders(struct ebb__builder *build, const struct ebb_op_desc *const inputs[2],
                         bool relu)
{
    const dnnl_memory_desc_t *first = &inputs[0]->layout, *second = &inputs[1]->layout;
    if (dnnl_memory_desc_equal(first, second))
        return;
    if (relu)
        ebb__build_fail(build, EBB_ERR_UNSUPPORTED,
                        "a sum with a ReLU cannot have inputs of two layouts");
    struct ebb__place b = ebb__build_adopt(build, EBB__FORWARDS, second, ebb__place(B), first);
    ebb__build_reorder(build, EBB__DATA, first, ebb__place(GRADIENT), second,
                       ebb__place(GRADIENT_B));
    if (build->status == EBB_OK)
        ((struct add *)build->op->own)->b = b;
}

enum ebb_status ebb_op_add_create(struct ebb_op_engine *engine, const char *name,
                                  const struct ebb_op_add *options,
                                  const struct ebb_op_desc *const inputs[2], struct ebb_op **op,
                                  struct ebb_error *error)
{
    struct ebb__builder build = ebb__build_begin(
        engine, "add", name, &table, EBB__FORWARDS | EBB__DATA, sizeof(struct add), error);
    bool same = inputs[0]->rank == inputs[1]->rank;
    for (uint32_t i = 0; same && i < inputs[0]->rank; i++)
        same = inputs[0]->dims[i] == inputs[1]->dims[i];
    char texts[2][96];
    if (!same)
        ebb__build_fail(&build, EBB_ERR_ARGUMENT, "the inputs %s and %s have different shapes",
                        ebb_op_desc_text(inputs[0], texts[0]),
                        ebb_op_desc_text(inputs[1], texts[1]));
    ebb__build_values(&build, 2, inputs, inputs[0]);
    ebb__build_replace(&build, SUM, A);
    ebb__build_replace(&build, GRADIENT_A, GRADIENT);
    if (build.status == EBB_OK)
        *(struct add *)build.op->own = (struct add){.b = ebb__place(B), .relu = options->relu};
    if (options->relu) {
        uint32_t mask = ebb__build_bytes(&build, EBB_OP_SAVED, "mask",
                                         ebb__mask_bytes(inputs[0]->bytes / sizeof(float)));
        ebb__build_use(&build, mask, EBB__FORWARD, EBB_USE_OVERWRITE);
        ebb__build_use(&build, mask, EBB__DATA, EBB_USE_READ);
    }
    add_reorders(&build, inputs, options->relu);
    if (build.status == EBB_OK && ((struct add *)build.op->own)->b.buffer == B) {
        ebb__build_replace(&build, SUM, B);
        ebb__build_replace(&build, GRADIENT_B, GRADIENT);
        build.op->buffers[GRADIENT_B].is_copy = !options->relu;
    }
    if (build.status == EBB_OK)
        build.op->buffers[GRADIENT_A].is_copy = !options->relu;
    return ebb__build_end(&build, op);
}
