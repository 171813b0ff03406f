/* Is the load of a program, its live bytes, the same as one period ago? A repetition within an
 * iteration has equal symbols, too, but what it allocates stays. */
#ifndef EBB_MODEL_LOAD_H
#define EBB_MODEL_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ebb_load {
    const uint64_t *live; /* bytes, after each symbol */
    size_t count;         /* symbols so far */
    uint64_t peak_bytes;
    uint64_t period_bytes; /* allocated by the newest period */
};

static inline uint64_t ebb__load_distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* True if the load of the newest `run` symbols equals that of the period before. It must agree at
 * the newest symbol and at three quarters of up to 32 phases, since a single one may agree by
 * chance. Equal means nearly so; if less than a period has been seen again, it means exactly. */
bool ebb__load_is_back(const struct ebb_load *load, size_t period, size_t run);

#endif
