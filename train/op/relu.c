/* ReLU with a mask of one bit an element. oneDNN's backward step reads input or output instead,
 * which keeps 32 times as many bytes alive. */
#include "train/op/build.h"
#include "train/op/kernels.h"

enum { MASK = EBB__DY + 1 };

static enum ebb_status run(struct ebb_op *op, enum ebb_op_step step, void *const *addresses,
                           const struct ebb_op_call *call, struct ebb_error *error)
{
    (void)call;
    (void)error;
    uint64_t count = op->buffers[EBB__X].desc.bytes / sizeof(float);
    if (step == EBB_OP_BACKWARD_DATA)
        ebb__mask(addresses[EBB__DX], addresses[EBB__DY], addresses[MASK], count, 1.0f);
    else
        ebb__relu(addresses[EBB__Y], addresses[EBB__X],
                  step == EBB_OP_EVALUATE ? NULL : addresses[MASK], count);
    return EBB_OK;
}

static const struct ebb_op_table table = {run};

enum ebb_status ebb_op_relu_create(struct ebb_op_engine *engine, const char *name,
                                   const struct ebb_op_desc *input, struct ebb_op **op,
                                   struct ebb_error *error)
{
    struct ebb__builder build =
        ebb__build_begin(engine, "relu", name, &table, EBB__FORWARDS | EBB__DATA, 0, error);
    ebb__build_values(&build, 1, &input, input);
    uint32_t mask = ebb__build_bytes(&build, EBB_OP_SAVED, "mask",
                                     ebb__mask_bytes(input->bytes / sizeof(float)));
    ebb__build_use(&build, mask, EBB__FORWARD, EBB_USE_OVERWRITE);
    ebb__build_use(&build, mask, EBB__DATA, EBB_USE_READ);
    ebb__build_replace(&build, EBB__Y, EBB__X);
    ebb__build_replace(&build, EBB__DX, EBB__DY);
    return ebb__build_end(&build, op);
}
