/* Which sizes are allocated next, and how long do free ranges last? For memory that is prepared,
 * and for the choice of what leaves.
 *
 * The ALLOCs and FREEs of a script are kept as a list of their own. What is free now follows the
 * list: an ALLOC takes a range of its size, a FREE returns one. */
#include "cuda/follow_state.h"

#include "base/geometry.h"

#include <string.h>

#define IS_FREE ((uint32_t)1 << 31)

static uint32_t size_of(uint64_t bytes)
{
    return ebb__run_size((bytes + EBB_HUGE_BYTES - 1) / EBB_HUGE_BYTES);
}

void ebb__ahead_prepare(struct follow_script *known)
{
    for (uint32_t i = 0; i < known->script->clock_count; i++) {
        const struct ebb_script_event *event = follow_event(known, i);
        if (event->kind == EBB_EVENT_ACCESS)
            continue;
        known->turn_at[known->turn_count] = i;
        known->turns[known->turn_count++] =
            size_of(event->size_bytes) | (event->kind == EBB_EVENT_FREE ? IS_FREE : 0);
    }
}

/* The first turn at the position of `follow` or behind it. */
static uint32_t first_turn(const struct ebb_cuda_follow *follow,
                           const struct follow_script *current)
{
    uint32_t low = 0, high = current->turn_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (current->turn_at[middle] < follow->position)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void ebb__follow_ahead(const struct ebb_cuda_follow *follow, const uint32_t *free_runs,
                       uint32_t turns, struct cuda_ahead *ahead)
{
    const struct follow_script *current = follow->current;
    ahead->lacking = 0;
    memset(ahead->needed, 0xff, sizeof ahead->needed);
    if (!current || !current->turn_count)
        return;
    memcpy(ahead->free_runs, free_runs, sizeof ahead->free_runs);
    uint32_t turn = first_turn(follow, current);
    if (turns > current->turn_count)
        turns = current->turn_count;
    for (uint32_t i = 0; i < turns; i++, turn++) {
        uint32_t what = current->turns[turn % current->turn_count], size = what & ~IS_FREE;
        uint32_t *left = &ahead->free_runs[size];
        if (what & IS_FREE) {
            ++*left;
        } else if (*left) {
            if (--*left == 0 && ahead->needed[size] == UINT32_MAX)
                ahead->needed[size] = i;
        } else if (!ahead->lacking) {
            ahead->lacking = size;
        }
    }
}
