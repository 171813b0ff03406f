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

/* Decides about the 64 elements of a word. Their numbers have 32 bits, which vectors can multiply:
 * Wellons' "lowbias32" (hash-prospector, 2018), from where a mixed counter of the word begins. */
EBB_KERNEL
static void decide(uint8_t *mask, uint64_t key, uint64_t word, uint32_t threshold)
{
    uint64_t mixed = ebb__mix(key + word * UINT64_C(0x9e3779b97f4a7c15));
    uint32_t base = (uint32_t)mixed, salt = (uint32_t)(mixed >> 32);
    float stays[64];
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t number = base + i * UINT32_C(0x9e3779b9);
        number = (number ^ number >> 16) * UINT32_C(0x7feb352d);
        number = (number ^ number >> 15) * UINT32_C(0x846ca68b);
        number ^= number >> 16 ^ salt;
        stays[i] = number >= threshold ? 1.0f : 0.0f;
    }
    ebb__relu_range(stays, stays, mask + 8 * word, 64);
}

static void forward_range(void *context, uint64_t first, uint64_t last)
{
    const struct pass *pass = context;
    for (uint64_t word = first / 64; word < (last + 63) / 64; word++)
        decide(pass->mask, pass->key, word, pass->own.threshold);
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
