#include "base/order.h"

#include <stdlib.h>

static int by_value(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

void ebb__sort_u64(uint64_t *values, size_t count)
{
    if (count > 1)
        qsort(values, count, sizeof *values, by_value);
}

uint64_t ebb__median_u64(uint64_t *values, size_t count)
{
    if (count == 0)
        return 0;
    ebb__sort_u64(values, count);
    uint64_t upper = values[count / 2], lower = values[(count - 1) / 2];
    return lower + (upper - lower) / 2;
}
