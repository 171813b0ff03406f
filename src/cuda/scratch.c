/* What a work uses, in one order. */
#include "cuda/internal.h"

/* By the names of the blocks, which are in the order of their allocations. The order of parameters
 * is no other in each iteration, but for what is no parameter and looks like one. Few items, mostly
 * in order already, but a graph may have thousands: shell sort. */
void ebb__scratch_sort(struct cuda_scratch *scratch)
{
    uint32_t gap = 1;
    if (scratch->count > CUDA_MOST_EVENTS_A_WORK)
        return;
    while (gap < scratch->count / 9)
        gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3)
        for (uint32_t i = gap; i < scratch->count; i++) {
            const struct ebb_event event = scratch->events[i];
            uint32_t block = scratch->blocks[i], to = i;
            for (; to >= gap && scratch->events[to - gap].block > event.block; to -= gap) {
                scratch->events[to] = scratch->events[to - gap];
                scratch->blocks[to] = scratch->blocks[to - gap];
            }
            scratch->events[to] = event;
            scratch->blocks[to] = block;
        }
}
