#include "store/zvc.h"

#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define WORDS 64
#define SAMPLES 64 /* runs examined before compression */

/* Bit i is set if word i is not zero. */
static uint64_t mask_of(const uint32_t *words)
{
    uint64_t mask = 0;
#ifdef __SSE2__
    const __m128i zero = _mm_setzero_si128();
    for (int i = 0; i < WORDS / 16; i++) {
        const __m128i *four = (const __m128i *)(const void *)(words + (size_t)i * 16);
        __m128i low = _mm_packs_epi32(_mm_cmpeq_epi32(_mm_loadu_si128(four), zero),
                                      _mm_cmpeq_epi32(_mm_loadu_si128(four + 1), zero));
        __m128i high = _mm_packs_epi32(_mm_cmpeq_epi32(_mm_loadu_si128(four + 2), zero),
                                       _mm_cmpeq_epi32(_mm_loadu_si128(four + 3), zero));
        unsigned zeros = (unsigned)_mm_movemask_epi8(_mm_packs_epi16(low, high));
        mask |= (uint64_t)(~zeros & 0xffffu) << (i * 16);
    }
#else
    for (int i = 0; i < WORDS; i++)
        mask |= (uint64_t)(words[i] != 0) << i;
#endif
    return mask;
}

static size_t size_of(uint64_t mask)
{
    return sizeof mask + 4 * (size_t)__builtin_popcountll(mask);
}

static bool is_worthwhile(const unsigned char *from, size_t runs, size_t bytes, size_t most)
{
    size_t step = runs / SAMPLES + 1, seen = 0, size = 0;
    for (size_t run = 0; run < runs; run += step, seen++)
        size += size_of(mask_of((const uint32_t *)(const void *)(from + run * EBB_ZVC_RUN_BYTES)));
    return size * (bytes / EBB_ZVC_RUN_BYTES) <= most * seen;
}

size_t ebb__zvc_compress(const void *from, size_t bytes, void *to, size_t most)
{
    const unsigned char *source = from;
    unsigned char *target = to, *end = target + most;
    size_t runs = bytes / EBB_ZVC_RUN_BYTES;
    if (runs == 0 || !is_worthwhile(source, runs, bytes, most))
        return 0;
    for (size_t run = 0; run < runs; run++, source += EBB_ZVC_RUN_BYTES) {
        const uint32_t *words = (const uint32_t *)(const void *)source;
        uint64_t mask = mask_of(words);
        if (target > end)
            return 0;
        memcpy(target, &mask, sizeof mask);
        target += sizeof mask;
        if (mask == UINT64_MAX) {
            memcpy(target, words, EBB_ZVC_RUN_BYTES);
            target += EBB_ZVC_RUN_BYTES;
            continue;
        }
        for (; mask; mask &= mask - 1, target += 4)
            memcpy(target, &words[__builtin_ctzll(mask)], 4);
    }
    return target > end ? 0 : (size_t)(target - (unsigned char *)to);
}

bool ebb__zvc_restore(const void *from, size_t compressed_bytes, void *to, size_t bytes)
{
    const unsigned char *source = from, *end = source + compressed_bytes;
    unsigned char *target = to;
    if (bytes % EBB_ZVC_RUN_BYTES != 0)
        return false;
    for (size_t run = 0; run < bytes / EBB_ZVC_RUN_BYTES; run++, target += EBB_ZVC_RUN_BYTES) {
        uint64_t mask;
        if ((size_t)(end - source) < sizeof mask)
            return false;
        memcpy(&mask, source, sizeof mask);
        if ((size_t)(end - source) < size_of(mask))
            return false;
        source += sizeof mask;
        if (mask == UINT64_MAX) {
            memcpy(target, source, EBB_ZVC_RUN_BYTES);
            source += EBB_ZVC_RUN_BYTES;
            continue;
        }
        memset(target, 0, EBB_ZVC_RUN_BYTES);
        for (; mask; mask &= mask - 1, source += 4)
            memcpy(target + (size_t)4 * (size_t)__builtin_ctzll(mask), source, 4);
    }
    return true;
}
