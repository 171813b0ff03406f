/* Sorting and medians of plain numbers. Thread-safe if the arrays are not shared. */
#ifndef EBB_BASE_ORDER_H
#define EBB_BASE_ORDER_H

#include <stddef.h>
#include <stdint.h>

/* Sorts in ascending order. O(count log count). */
void ebb__sort_u64(uint64_t *values, size_t count);
/* Returns the median; for an even count the mean of the middle two, rounded down; 0 if count is 0.
 * Sorts `values`. */
uint64_t ebb__median_u64(uint64_t *values, size_t count);

#endif
