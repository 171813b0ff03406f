/* Loops over elements: what oneDNN has no primitive for, or none with masks of one bit.
 *
 * Bit i % 8 of byte i / 8 of a mask tells about element i. Order of elements is that in memory.
 * Each element is computed in the same way wherever a range begins and however many threads there
 * are. Targets and sources of one call may be the same buffer, but may not overlap otherwise. */
#ifndef EBB_TRAIN_KERNELS_H
#define EBB_TRAIN_KERNELS_H

#include <stdint.h>
#include <string.h>

/* Compiled for several instruction sets; the best is taken at load time. Debian's baseline is
 * SSE2, which takes several times as long. Sanitizers cannot run the choice so early. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define EBB_KERNEL __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define EBB_KERNEL
#endif

/* A vector of 16 floats at any address of a float. The compiler divides it into what the processor
 * has. Plain loops do not become vectors everywhere: buffers may be equal, a mask is of bits. */
enum { EBB__LANES = 16 };
typedef float ebb__vector __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t ebb__bits __attribute__((vector_size(64), aligned(4), may_alias));
#define EBB__AT(pointer) (*(ebb__vector *)(pointer))
#define EBB__READ(pointer) (*(const ebb__vector *)(pointer))

/* Elements of a range that one thread computes: half of a 32 KiB cache. A multiple of 64, so that
 * no two threads write one word of a mask. */
enum { EBB__RANGE = 4096 };

/* Calls `work` for all ranges of [0, count), `grain` long, in several threads. */
typedef void ebb__range_work(void *context, uint64_t first, uint64_t last);
void ebb__range_each(uint64_t count, uint64_t grain, ebb__range_work *work, void *context);

/* target = max(source, 0), and the mask of what is above 0. For a whole word of the mask, or the
 * end of a buffer. */
void ebb__relu_range(float *target, const float *source, uint8_t *mask, uint64_t count);
/* target = source where mask bits from `first` on are set, factor 1; else 0. */
void ebb__mask_range(float *target, const float *source, const uint8_t *mask, uint64_t first,
                     uint64_t count, float factor);

/* Whole buffers, in several threads. `mask` may be NULL if there is no ReLU, or none is saved. */
void ebb__relu(float *target, const float *source, uint8_t *mask, uint64_t count);
void ebb__add(float *target, const float *a, const float *b, uint64_t count);
void ebb__add_relu(float *target, const float *a, const float *b, uint8_t *mask, uint64_t count);
void ebb__mask(float *target, const float *source, const uint8_t *mask, uint64_t count,
               float factor);

/* Bytes of a mask of `count` elements, in whole words of 64 bits. */
static inline uint64_t ebb__mask_bytes(uint64_t count)
{
    return (count + 63) / 64 * 8;
}

/* A bijection that mixes all bits (the finalizer of SplitMix64; Steele, Lea and Flood, 2014). */
static inline uint64_t ebb__mix(uint64_t value)
{
    value ^= value >> 30;
    value *= UINT64_C(0xbf58476d1ce4e5b9);
    value ^= value >> 27;
    value *= UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

/* A number for a text (FNV-1a), mixed with `seed`. */
uint64_t ebb__mix_text(uint64_t seed, const char *text);

/* e^x with a relative error below 2e-7, in a form that loops can use as vectors. It is 2^n times a
 * polynomial of the rest (Cephes). Below -87 it stays at e^-87, about 1e-38. */
static inline float ebb__exp(float x)
{
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    /* Adding 1.5 * 2^23 rounds to an integer. */
    float whole = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
    float rest = x - whole * 0.693359375f;
    rest -= whole * -2.12194440e-4f;
    float sum = 1.9875691500e-4f;
    sum = sum * rest + 1.3981999507e-3f;
    sum = sum * rest + 8.3334519073e-3f;
    sum = sum * rest + 4.1665795894e-2f;
    sum = sum * rest + 1.6666665459e-1f;
    sum = sum * rest + 5.0000001201e-1f;
    sum = sum * rest * rest + rest + 1.0f;
    int32_t bits = ((int32_t)whole + 127) * (1 << 23);
    float power;
    memcpy(&power, &bits, sizeof power);
    return sum * power;
}

/* The highest of `count` floats, at least one. In vectors, which compilers do not make of it. */
static inline float ebb__highest(const float *row, int64_t count)
{
    float highest = row[0];
    int64_t i = 0;
    if (count >= EBB__LANES) {
        ebb__vector most = EBB__READ(row);
        for (i = EBB__LANES; i + EBB__LANES <= count; i += EBB__LANES) {
            ebb__vector here = EBB__READ(row + i);
            ebb__bits above = here > most;
            most = (ebb__vector)(((ebb__bits)here & above) | ((ebb__bits)most & ~above));
        }
        for (int j = 0; j < EBB__LANES; j++)
            highest = most[j] > highest ? most[j] : highest;
    }
    for (; i < count; i++)
        highest = row[i] > highest ? row[i] : highest;
    return highest;
}

/* Sum of count products, in lanes that become a vector. The order of additions depends on `count`
 * only. */
static inline float ebb__dot(const float *a, const float *b, int64_t count)
{
    enum { LANES = 16 };
    float lanes[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        for (int j = 0; j < LANES; j++)
            lanes[j] += a[i + j] * b[i + j];
    }
    float sum = 0;
    for (; i < count; i++)
        sum += a[i] * b[i];
    for (int j = 0; j < LANES; j++)
        sum += lanes[j];
    return sum;
}

#endif
