/* Actions: evictions and prefetches at a position of the script, and the wait for due blocks. */
#include "runtime/replay/matcher.h"

void ebb__replay_return(struct replay *replay, struct block *block, bool keep_copy, bool urgent)
{
    block->copy.stays = keep_copy;
    if (block->transfer.queue == QUEUE_OUT)
        ebb__move_unqueue_out(replay->transfer, block);
    else if (block->state == BLOCK_WRITING_BACK)
        ebb__block_cancel(block);
    else if (block->state == BLOCK_EVICTED)
        ebb__move_queue_in(replay->transfer, block, urgent);
}

void ebb__clock_changed(struct replay *replay, const struct block *block)
{
    if (replay->current && block->script_block != EBB_SCRIPT_NONE)
        replay->current->changes[block->script_block] = true;
}

/* The block of `absence`, or its first part. NULL: there is none. */
static struct block *absent_block(struct replay *replay, const struct prepared_script *current,
                                  uint32_t absence)
{
    uint32_t index = current->live[ebb__script_absences(current->script)[absence].block];
    return index == NO_BLOCK ? NULL : &replay->table->blocks[index];
}

/* The next part with the same absences. NULL: none. */
static struct block *next_absent(struct replay *replay, const struct block *block)
{
    uint32_t next = ebb__part_next(replay->table, ebb__block_index(replay->table, block));
    return next != NO_BLOCK && replay->table->blocks[next].script_block == block->script_block
               ? &replay->table->blocks[next]
               : NULL;
}

void ebb__clock_leave(struct replay *replay, const struct prepared_script *current,
                      uint32_t absence)
{
    if (current->matcher->is_over &&
        current->matcher->is_over(current, &ebb__script_absences(current->script)[absence]))
        return;
    for (struct block *block = absent_block(replay, current, absence); block;
         block = next_absent(replay, block))
        if ((block->state == BLOCK_RESIDENT || block->state == BLOCK_PARKED) &&
            block->transfer.queue != QUEUE_OUT && block->kind != BLOCK_STATIC &&
            ebb__store_may_write(&replay->transfer->store)) {
            block->use.planned_evict_at = replay->table->uses.event_number + 1;
            ebb__move_queue_out(replay->transfer, block, false);
        }
}

void ebb__clock_come_back(struct replay *replay, const struct prepared_script *current,
                          uint32_t absence)
{
    const struct ebb_script_absence *planned = &ebb__script_absences(current->script)[absence];
    bool keep_copy = planned->keep_copy && !current->changes[planned->block];
    for (struct block *block = absent_block(replay, current, absence); block;
         block = next_absent(replay, block))
        ebb__replay_return(replay, block, keep_copy, false);
}

void ebb__clock_fire(struct replay *replay, uint32_t absence, bool in)
{
    const struct prepared_script *current = replay->current;
    const struct ebb_script_absence *planned = &ebb__script_absences(current->script)[absence];
    uint32_t in_clock = current->in_clock[absence], now = ebb__clock_now(replay);
    uint64_t in_ns = current->in_delay_ns[absence], out_ns = current->out_delay_ns[absence];
    bool is_past =
        in ? !ebb__script_is_during(now, in_clock, in_ns, planned->due_clock, planned->due_delay_ns)
           : in_clock != EBB_SCRIPT_NONE &&
                 !ebb__script_is_during(now, planned->out_clock, out_ns, in_clock, in_ns);
    if (is_past && current->matcher->is_ordered)
        return;
    if (in)
        ebb__clock_come_back(replay, current, absence);
    else
        ebb__clock_leave(replay, current, absence);
}

void ebb__clock_act(struct replay *replay, struct prepared_script *current, uint32_t position)
{
    ebb__timers_pace(replay, current, position);
    for (uint32_t i = current->out_first[position]; i != EBB_SCRIPT_NONE; i = current->out_next[i])
        if (!ebb__timers_set(replay, current, position, i, false))
            ebb__clock_leave(replay, current, i);
    for (uint32_t i = current->in_first[position]; i != EBB_SCRIPT_NONE; i = current->in_next[i])
        if (!ebb__timers_set(replay, current, position, i, true))
            ebb__clock_come_back(replay, current, i);
}

/* Waits until `block` is resident. *began: when the first wait of several began, or 0. Releases the
 * lock. False: it is another block by then, or the script is no longer followed. */
static bool wait_for_block(struct replay *replay, const struct prepared_script *current,
                           struct block *block, uint64_t *began)
{
    uint64_t serial = block->serial, sets = replay->script_sets;
    struct ebb_wait *wait = NULL;
    bool there = false;
    while (replay->script_sets == sets && replay->current == current && block->serial == serial) {
        if (block->transfer.queue == QUEUE_OUT)
            ebb__move_unqueue_out(replay->transfer, block);
        if (block->state == BLOCK_PARKED)
            ebb__move_unpark(replay->transfer, block);
        if (block->state != BLOCK_WRITING_BACK && block->state != BLOCK_EVICTED &&
            block->state != BLOCK_FETCHING) {
            there = true;
            break;
        }
        if (block->state == BLOCK_EVICTED && block->transfer.error) {
            there = true; /* its only copy is lost, and that has been reported */
            break;
        }
        if (!wait)
            wait = ebb__waits_block(replay->table, block);
        if (!*began)
            *began = ebb__now_ns();
        ebb__replay_return(replay, block, block->copy.stays, true);
        pthread_cond_wait(&replay->core->changed, &replay->core->lock);
    }
    ebb__wait_end(wait);
    return there;
}

void ebb__replay_wait_for_due(struct replay *replay, struct prepared_script *current,
                              uint32_t position)
{
    uint64_t sets = replay->script_sets, planned_ns = 0;
    for (uint32_t i = current->due_first[position]; i != EBB_SCRIPT_NONE; i = current->due_next[i])
        planned_ns += ebb__script_absences(current->script)[i].stall_ns;
    for (uint32_t i = current->due_first[position]; i != EBB_SCRIPT_NONE;
         i = current->due_next[i]) {
        uint64_t began = 0;
        struct block *block = absent_block(replay, current, i);
        ebb__progress_hold(replay->core, true);
        bool lacked_room = false;
        while (block && wait_for_block(replay, current, block, &began)) {
            lacked_room |= block->transfer.lacked_room;
            block = next_absent(replay, block);
        }
        uint64_t late_ns = began ? ebb__now_ns() - began : 0;
        ebb__progress_hold(replay->core, false);
        if (replay->script_sets != sets)
            return;
        uint64_t expected_ns = late_ns < planned_ns ? late_ns : planned_ns;
        planned_ns -= expected_ns;
        if (replay->current == current)
            ebb__feedback_learn(current, i, lacked_room ? 0 : late_ns - expected_ns);
    }
}
