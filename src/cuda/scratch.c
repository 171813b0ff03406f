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

bool ebb__cuda_hold(struct ebb_cuda *engine, struct ebb_cuda_work *work, uint32_t block)
{
    if (work->held_count < CUDA_OWN_HELD) {
        work->held[work->held_count] = block;
    } else {
        uint32_t entry = engine->holds.free;
        if (entry)
            engine->holds.free = engine->holds.items[entry].next;
        else if (engine->holds.used < CUDA_MOST_BLOCKS)
            entry = engine->holds.used++;
        else
            return false;
        engine->holds.items[entry].block = block;
        engine->holds.items[entry].next =
            work->held_count == CUDA_OWN_HELD ? 0 : work->held[CUDA_OWN_HELD];
        work->held[CUDA_OWN_HELD] = entry;
    }
    work->held_count++;
    engine->table.blocks[block].holds++;
    return true;
}
