/* Which sizes are allocated next, and how long do free ranges last? For memory that is prepared,
 * and for the choice of what leaves.
 *
 * The ALLOCs and FREEs of a script are kept as a list of their own. What is free now follows the
 * list: an ALLOC takes a range of its size, a FREE returns one. */
#include "cuda/follow_state.h"

#include "base/geometry.h"

#include <string.h>

#define IS_FREE ((uint32_t)1 << 31)
#define IS_PLACED ((uint32_t)1 << 30)

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
        bool is_placed =
            known->script->placement_bytes &&
            ebb__script_blocks(known->script)[event->block].place != EBB_SCRIPT_NO_PLACE;
        known->turns[known->turn_count++] = size_of(event->size_bytes) |
                                            (event->kind == EBB_EVENT_FREE ? IS_FREE : 0) |
                                            (is_placed ? IS_PLACED : 0);
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

/* The place of the block of a turn, in units: *first, *count. */
static void place_at(const struct follow_script *known, uint32_t turn, uint32_t *first,
                     uint32_t *count)
{
    const struct ebb_script_event *event = follow_event(known, known->turn_at[turn]);
    const struct ebb_script_block *block = &ebb__script_blocks(known->script)[event->block];
    *first = (uint32_t)(block->place / EBB_HUGE_BYTES);
    *count = (uint32_t)((event->size_bytes + EBB_HUGE_BYTES - 1) / EBB_HUGE_BYTES);
}

static void need_chunks(const struct follow_script *known, uint32_t turn, uint32_t chunk_units,
                        uint32_t when, struct cuda_ahead *ahead)
{
    uint32_t first, count;
    place_at(known, turn, &first, &count);
    for (uint32_t i = first / chunk_units; i <= (first + count - 1) / chunk_units; i++)
        if (i < CUDA_AHEAD_CHUNKS && ahead->chunks[i] == UINT32_MAX)
            ahead->chunks[i] = when;
}

uint32_t ebb__follow_places(const struct ebb_cuda_follow *follow, uint32_t turns,
                            struct cuda_place *places)
{
    const struct follow_script *current = follow->current;
    uint32_t found = 0;
    if (!follow_may_place(follow) || !current->turn_count || !current->script->placement_bytes)
        return 0;
    uint32_t turn = first_turn(follow, current);
    if (turns > current->turn_count)
        turns = current->turn_count;
    for (uint32_t i = 0; i < turns; i++, turn++) {
        uint32_t at = turn % current->turn_count;
        if ((current->turns[at] & (IS_FREE | IS_PLACED)) != IS_PLACED)
            continue;
        place_at(current, at, &places[found].first, &places[found].count);
        found++;
    }
    return found;
}

void ebb__follow_ahead(const struct ebb_cuda_follow *follow, const uint32_t *free_runs,
                       uint32_t chunk_units, uint32_t turns, struct cuda_ahead *ahead)
{
    const struct follow_script *current = follow->current;
    ahead->lacking = 0;
    memset(ahead->needed, 0xff, sizeof ahead->needed);
    memset(ahead->chunks, 0xff, sizeof ahead->chunks);
    if (!current || !current->turn_count)
        return;
    memcpy(ahead->free_runs, free_runs, sizeof ahead->free_runs);
    uint32_t turn = first_turn(follow, current);
    if (turns > current->turn_count)
        turns = current->turn_count;
    for (uint32_t i = 0; i < turns; i++, turn++) {
        uint32_t at = turn % current->turn_count, what = current->turns[at];
        uint32_t size = what & ~(IS_FREE | IS_PLACED);
        uint32_t *left = &ahead->free_runs[size];
        if (what & IS_PLACED) {
            if (!(what & IS_FREE))
                need_chunks(current, at, chunk_units, i, ahead);
        } else if (what & IS_FREE) {
            ++*left;
        } else if (*left) {
            if (--*left == 0 && ahead->needed[size] == UINT32_MAX)
                ahead->needed[size] = i;
        } else if (!ahead->lacking) {
            ahead->lacking = size;
        }
    }
}
