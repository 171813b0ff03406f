/* First contents of parameters.
 *
 * Each element is a function of seed, names and row-major index. So a network begins alike in
 * whatever order its parameters are filled. Processors differ in layouts, not in elements. */
#include "train/op/kernels.h"
#include "train/op/op.h"

#include <math.h>

static const double turn = 6.283185307179586;

struct fill {
    const struct ebb_op_buffer *buffer;
    uint64_t key;
    float *target;
};

/* Uniform in (0, 1), of 53 bits. */
static double uniform(uint64_t key, uint64_t counter)
{
    uint64_t bits = ebb__mix(key + counter * UINT64_C(0x9e3779b97f4a7c15)) >> 11;
    return ((double)bits + 0.5) * 0x1p-53;
}

static float element(const struct fill *fill, uint64_t index)
{
    double spread = (double)fill->buffer->spread;
    switch (fill->buffer->filling) {
    case EBB_OP_ONES:
        return 1.0f;
    case EBB_OP_UNIFORM:
        return (float)(spread * (2 * uniform(fill->key, index) - 1));
    case EBB_OP_NORMAL:
        /* Box and Muller, 1958. */
        return (float)(spread * sqrt(-2 * log(uniform(fill->key, 2 * index))) *
                       cos(turn * uniform(fill->key, 2 * index + 1)));
    case EBB_OP_ZEROS:
        break;
    }
    return 0.0f;
}

static void fill_range(void *context, uint64_t first, uint64_t last)
{
    const struct fill *fill = context;
    for (uint64_t i = first; i < last; i++)
        fill->target[ebb_op_desc_offset(&fill->buffer->desc, i)] = element(fill, i);
}

void ebb_op_fill(const struct ebb_op *op, uint32_t buffer, uint64_t seed, void *address)
{
    const struct ebb_op_buffer *at = &op->buffers[buffer];
    struct fill fill = {.buffer = at, .target = address};
    fill.key = ebb__mix_text(ebb__mix_text(seed, op->name), at->name);
    uint64_t count = ebb_op_desc_count(&at->desc);
    if (at->desc.bytes > count * sizeof(float))
        memset(address, 0, at->desc.bytes);
    ebb__range_each(count, EBB__RANGE, fill_range, &fill);
}
