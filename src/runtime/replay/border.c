/* The border between two plans.
 *
 * A plan assumes which blocks are evicted at each of its positions. Where the program enters it,
 * another plan or none was in force, and others are. What the new plan has evicted there leaves,
 * and what it has resident returns, the next to be used first. */
#include "runtime/replay/matcher.h"

enum { MOST_RETURNS = 128 }; /* a limit; what is used later returns when it is used */

struct returning {
    uint64_t distance;
    struct block *block;
};

/* Is the block of the absence evicted at `now`, according to the plan? */
static bool is_evicted_at(const struct prepared_script *current, uint32_t absence, uint32_t now)
{
    const struct ebb_script_absence *planned = &ebb__script_absences(current->script)[absence];
    uint32_t in_clock = current->in_clock[absence];
    if (now == planned->out_clock)
        return current->out_delay_ns[absence] == 0;
    if (in_clock == EBB_SCRIPT_NONE || in_clock == planned->out_clock)
        return false;
    return now != in_clock && ebb__script_is_between(now, planned->out_clock, in_clock);
}

static void keep_nearest(struct returning *nearest, uint32_t *count, struct returning made)
{
    uint32_t place = *count;
    while (place > 0 && nearest[place - 1].distance > made.distance)
        place--;
    if (place == MOST_RETURNS)
        return;
    if (*count < MOST_RETURNS)
        ++*count;
    for (uint32_t i = *count - 1; i > place; i--)
        nearest[i] = nearest[i - 1];
    nearest[place] = made;
}

/* The evicted blocks of the script, those first that are used next. */
static uint32_t evicted_blocks(const struct replay *replay, struct returning *nearest)
{
    uint32_t count = 0;
    for (uint32_t i = 1; i <= replay->table->count; i++) {
        struct block *block = &replay->table->blocks[i];
        bool done;
        if (block->state != BLOCK_EVICTED || block->transfer.queue != QUEUE_NONE ||
            block->kind == BLOCK_SLAB || block->script_block == EBB_SCRIPT_NONE)
            continue;
        keep_nearest(nearest, &count,
                     (struct returning){ebb__replay_distance(replay, block, &done), block});
    }
    return count;
}

/* Does the plan have it evicted at `now`? O(absences), for few blocks. */
static bool stays_evicted(const struct replay *replay, const struct block *block, uint32_t now)
{
    const struct prepared_script *current = replay->current;
    const struct ebb_script_absence *absences = ebb__script_absences(current->script);
    for (uint32_t i = 0; i < current->script->absence_count; i++)
        if (absences[i].block == block->script_block && is_evicted_at(current, i, now))
            return true;
    return false;
}

void ebb__replay_cross_border(struct replay *replay)
{
    const struct prepared_script *current = replay->current;
    struct returning nearest[MOST_RETURNS];
    if (!current->matcher->is_ordered || current->matcher->starts_at_once)
        return;
    uint32_t now = ebb__clock_now(replay);
    for (uint32_t i = 0; i < current->script->absence_count; i++)
        if (is_evicted_at(current, i, now))
            ebb__clock_leave(replay, current, i);
    uint32_t count = evicted_blocks(replay, nearest);
    for (uint32_t i = 0; i < count; i++)
        if (!stays_evicted(replay, nearest[i].block, now))
            ebb__replay_return(replay, nearest[i].block, false, false);
}
