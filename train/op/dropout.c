/* Dropout. Whether an element stays is a function of the call's seed, the name, and the element's
 * place in memory (a counter-based generator). So the same call gives the same mask again. */
#include "train/op/build.h"
#include "train/op/kernels.h"

enum { MASK = EBB__DY + 1 };

struct dropout {
    uint32_t threshold; /* an element stays if its number is not below */
    float factor;
};

struct pass {
    float *target;
    const float *source;
    uint8_t *mask;
    uint64_t key;
    uint64_t count;
    struct dropout own;
};

/* 64 decisions, of 32 random bits each. */
static uint64_t decide(uint64_t key, uint64_t word, uint32_t threshold)
{
    uint64_t bits = 0;
    for (uint64_t i = 0; i < 32; i++) {
        uint64_t two = ebb__mix(key + (word * 32 + i) * UINT64_C(0x9e3779b97f4a7c15));
        bits |= (uint64_t)((uint32_t)two >= threshold) << 2 * i;
        bits |= (uint64_t)((uint32_t)(two >> 32) >= threshold) << (2 * i + 1);
    }
    return bits;
}

static void forward_range(void *context, uint64_t first, uint64_t last)
{
    const struct pass *pass = context;
    for (uint64_t word = first / 64; word < (last + 63) / 64; word++) {
        uint64_t bits = decide(pass->key, word, pass->own.threshold);
        for (int i = 0; i < 8; i++)
            pass->mask[8 * word + (uint64_t)i] = (uint8_t)(bits >> 8 * i);
    }
    ebb__mask_range(pass->target + first, pass->source + first, pass->mask, first, last - first,
                    pass->own.factor);
}

static void copy_range(void *context, uint64_t first, uint64_t last)
{
    const struct pass *pass = context;
    if (pass->target != pass->source)
        memcpy(pass->target + first, pass->source + first, (last - first) * sizeof(float));
}

static enum ebb_status run(struct ebb_op *op, enum ebb_op_step step, void *const *addresses,
                           const struct ebb_op_call *call, struct ebb_error *error)
{
    (void)error;
    const struct dropout *own = op->own;
    uint64_t count = op->buffers[EBB__X].desc.bytes / sizeof(float);
    if (step == EBB_OP_BACKWARD_DATA) {
        ebb__mask(addresses[EBB__DX], addresses[EBB__DY], addresses[MASK], count, own->factor);
        return EBB_OK;
    }
    struct pass pass = {.target = addresses[EBB__Y],
                        .source = addresses[EBB__X],
                        .mask = step == EBB_OP_EVALUATE ? NULL : addresses[MASK],
                        .key = ebb__mix_text(call->seed, op->name),
                        .count = count,
                        .own = *own};
    ebb__range_each(count, EBB__RANGE, pass.mask ? forward_range : copy_range, &pass);
    return EBB_OK;
}

static const struct ebb_op_table table = {run};

enum ebb_status ebb_op_dropout_create(struct ebb_op_engine *engine, const char *name,
                                      const struct ebb_op_dropout *options,
                                      const struct ebb_op_desc *input, struct ebb_op **op,
                                      struct ebb_error *error)
{
    struct ebb__builder build = ebb__build_begin(
        engine, "dropout", name, &table, EBB__FORWARDS | EBB__DATA, sizeof(struct dropout), error);
    if (!(options->probability >= 0.0f && options->probability < 1.0f))
        ebb__build_fail(&build, EBB_ERR_ARGUMENT, "the probability %g is not in [0, 1)",
                        (double)options->probability);
    ebb__build_values(&build, 1, &input, input);
    uint32_t mask = ebb__build_bytes(&build, EBB_OP_SAVED, "mask",
                                     ebb__mask_bytes(input->bytes / sizeof(float)));
    ebb__build_use(&build, mask, EBB__FORWARD, EBB_USE_OVERWRITE);
    ebb__build_use(&build, mask, EBB__DATA, EBB_USE_READ);
    ebb__build_replace(&build, EBB__Y, EBB__X);
    ebb__build_replace(&build, EBB__DX, EBB__DY);
    if (build.status == EBB_OK)
        *(struct dropout *)build.op->own =
            (struct dropout){.threshold = (uint32_t)((double)options->probability * 0x1p32),
                             .factor = 1.0f / (1.0f - options->probability)};
    return ebb__build_end(&build, op);
}
