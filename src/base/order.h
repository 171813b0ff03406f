/* Sorting and medians of plain numbers. Thread-safe where the arrays are not shared. */
#ifndef EBB_BASE_ORDER_H
#define EBB_BASE_ORDER_H

#include <stddef.h>
#include <stdint.h>

/* Ascending. O(count log count). */
void ebb__sort_u64(uint64_t *values, size_t count);
/* The median, the mean of the middle two (rounded down) where there is no middle one; 0 of nothing.
 * Sorts them. */
uint64_t ebb__median_u64(uint64_t *values, size_t count);

#endif
