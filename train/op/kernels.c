#include "train/op/kernels.h"

#include "train/op/op.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

uint64_t ebb__mix_text(uint64_t seed, const char *text)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    return ebb__mix(seed + ebb__mix(hash));
}

void ebb__range_each(uint64_t count, uint64_t grain, ebb__range_work *work, void *context)
{
    uint64_t ranges = (count + grain - 1) / grain;
#pragma omp parallel for schedule(static) if (ranges > 1)
    for (uint64_t i = 0; i < ranges; i++) {
        uint64_t last = (i + 1) * grain;
        work(context, i * grain, last < count ? last : count);
    }
}

/* The bit of each of up to eight elements. */
static inline uint8_t bits_of(const float *source, uint64_t count)
{
    uint32_t bits = 0;
    for (uint64_t i = 0; i < count; i++)
        bits |= (uint32_t)(source[i] > 0.0f) << i;
    return (uint8_t)bits;
}

/* Every x86-64 has an instruction for four bits at a time, which compilers do not find. */
static inline uint8_t bits_of_eight(const float *source)
{
#if defined(__SSE__)
    __m128 zero = _mm_setzero_ps();
    int low = _mm_movemask_ps(_mm_cmpgt_ps(_mm_loadu_ps(source), zero));
    int high = _mm_movemask_ps(_mm_cmpgt_ps(_mm_loadu_ps(source + 4), zero));
    return (uint8_t)(low | high << 4);
#else
    return bits_of(source, 8);
#endif
}

EBB_KERNEL
void ebb__relu_range(float *target, const float *source, uint8_t *mask, uint64_t count)
{
    if (mask) {
        uint64_t whole = count / 8;
        for (uint64_t i = 0; i < whole; i++)
            mask[i] = bits_of_eight(source + 8 * i);
        if (count % 8 != 0)
            mask[whole] = bits_of(source + 8 * whole, count % 8);
    }
    for (uint64_t i = 0; i < count; i++)
        target[i] = source[i] > 0.0f ? source[i] : 0.0f;
}

static inline float masked(const float *source, const uint8_t *mask, uint64_t bit, float factor)
{
    return mask[bit / 8] >> bit % 8 & 1 ? *source * factor : 0.0f;
}

EBB_KERNEL
void ebb__mask_range(float *target, const float *source, const uint8_t *mask, uint64_t first,
                     uint64_t count, float factor)
{
    uint64_t at = 0;
    for (; at < count && (first + at) % 8 != 0; at++)
        target[at] = masked(source + at, mask, first + at, factor);
    const ebb__bits own_bit = {1,       1 << 1,  1 << 2,  1 << 3, 1 << 4,  1 << 5,
                               1 << 6,  1 << 7,  1 << 8,  1 << 9, 1 << 10, 1 << 11,
                               1 << 12, 1 << 13, 1 << 14, 1 << 15};
    for (; at + EBB__LANES <= count; at += EBB__LANES) {
        const uint8_t *bytes = mask + (first + at) / 8;
        ebb__bits stays = ((bytes[0] | bytes[1] << 8) & own_bit) != 0;
        /* Not a masked load: these wait for stores with the same offset in a page, which took twice
         * as long (measured on Zen 5). */
        ebb__vector scaled = EBB__READ(source + at) * factor;
        *(ebb__bits *)(target + at) = (ebb__bits)scaled & stays;
    }
    for (; at < count; at++)
        target[at] = masked(source + at, mask, first + at, factor);
}

EBB_KERNEL
static void add_range(float *target, const float *a, const float *b, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        target[i] = a[i] + b[i];
}

struct loop {
    float *target;
    const float *a;
    const float *b;
    uint8_t *mask;
    uint64_t count;
    float factor;
};

/* The rest of the last word of the mask is written, too: all bytes of a buffer have contents. */
static void end_mask(const struct loop *loop, uint64_t last)
{
    if (loop->mask && last == loop->count) {
        uint64_t used = (last + 7) / 8;
        memset(loop->mask + used, 0, ebb__mask_bytes(last) - used);
    }
}

static void relu_work(void *context, uint64_t first, uint64_t last)
{
    const struct loop *loop = context;
    ebb__relu_range(loop->target + first, loop->a + first,
                    loop->mask ? loop->mask + first / 8 : NULL, last - first);
    end_mask(loop, last);
}

static void add_work(void *context, uint64_t first, uint64_t last)
{
    const struct loop *loop = context;
    add_range(loop->target + first, loop->a + first, loop->b + first, last - first);
}

static void add_relu_work(void *context, uint64_t first, uint64_t last)
{
    const struct loop *loop = context;
    add_work(context, first, last);
    ebb__relu_range(loop->target + first, loop->target + first,
                    loop->mask ? loop->mask + first / 8 : NULL, last - first);
    end_mask(loop, last);
}

static void mask_work(void *context, uint64_t first, uint64_t last)
{
    const struct loop *loop = context;
    ebb__mask_range(loop->target + first, loop->a + first, loop->mask, first, last - first,
                    loop->factor);
}

void ebb__relu(float *target, const float *source, uint8_t *mask, uint64_t count)
{
    struct loop loop = {.target = target, .a = source, .mask = mask, .count = count};
    ebb__range_each(count, EBB__RANGE, relu_work, &loop);
}

void ebb__add(float *target, const float *a, const float *b, uint64_t count)
{
    struct loop loop = {.target = target, .a = a, .b = b, .count = count};
    ebb__range_each(count, EBB__RANGE, add_work, &loop);
}

void ebb__add_relu(float *target, const float *a, const float *b, uint8_t *mask, uint64_t count)
{
    struct loop loop = {.target = target, .a = a, .b = b, .mask = mask, .count = count};
    ebb__range_each(count, EBB__RANGE, add_relu_work, &loop);
}

void ebb__mask(float *target, const float *source, const uint8_t *mask, uint64_t count,
               float factor)
{
    struct loop loop = {.target = target,
                        .a = source,
                        .mask = (uint8_t *)(uintptr_t)mask, /* only read */
                        .count = count,
                        .factor = factor};
    ebb__range_each(count, EBB__RANGE, mask_work, &loop);
}

void ebb_op_accumulate(uint64_t bytes, void *sum, const void *addend)
{
    ebb__add(sum, sum, addend, bytes / sizeof(float));
}
