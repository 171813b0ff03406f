/* What both exact searches do in every node, in the header since their speed is that of these loops. */
#ifndef EBB_PLAN_POOL_SEARCH_H
#define EBB_PLAN_POOL_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

typedef int32_t ebb_height; /* in units: what the inner loops add up must be narrow to be fast */
#define EBB_HEIGHT_MAX INT32_MAX

/* Spread the bits of a value: for hashes of states. */
static inline uint64_t ebb__search_mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x7fb5d329728ea185ull;
    x ^= x >> 27;
    x *= 0x81dadef4bc2dd44dull;
    return x ^ x >> 33;
}

/* Highest first, by insertion: the lists are short and nearly sorted from node to node. `heights` by
 * buffer. */
static inline void ebb__search_sort(const ebb_height *heights, uint32_t *list, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        uint32_t b = list[i], k = i;
        ebb_height key = heights[b];
        for (; k && heights[list[k - 1]] < key; k--)
            list[k] = list[k - 1];
        list[k] = b;
    }
}

/* Add `size` to what is above in sections [first, last); is it within `room` in each? */
static inline bool ebb__search_stack(ebb_height *above, uint32_t first, uint32_t last,
                                     ebb_height size, ebb_height room)
{
    int over = 0;
    for (uint32_t s = first; s < last; s++) {
        above[s] += size;
        over |= above[s] > room;
    }
    return !over;
}

#endif
