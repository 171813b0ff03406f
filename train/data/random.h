/* Random numbers that depend on a seed and a position only, not on what was drawn before.
 *
 * The function is SplitMix64 (Steele, Lea, Flood, 2014): a counter through a mixing function. */
#ifndef EBB_TRAIN_DATA_RANDOM_H
#define EBB_TRAIN_DATA_RANDOM_H

#include <stdint.h>

static inline uint64_t ebb__random_mix(uint64_t value)
{
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

/* One of 2^64 numbers for (seed, stream, position). */
static inline uint64_t ebb__random_at(uint64_t seed, uint64_t stream, uint64_t position)
{
    return ebb__random_mix(ebb__random_mix(ebb__random_mix(seed) ^ stream) ^ position);
}

/* A number below `bound`, which is at least 1. The bias of 2^-32 bound does not matter here. */
static inline uint32_t ebb__random_below(uint64_t number, uint32_t bound)
{
    return (uint32_t)(((number >> 32) * bound) >> 32);
}

/* A number in [-1, 1). */
static inline float ebb__random_symmetric(uint64_t number)
{
    return (float)(number >> 40) / (float)(1u << 23) - 1.0f;
}

#endif
