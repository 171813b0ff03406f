/* Actions: what leaves and what returns at a position of the script, and the wait for what is due. */
#include "runtime/replay/replay.h"

void ebb__replay_return(struct replay *replay, struct block *block, bool keep_copy, bool urgent)
{
    block->copy.stays = keep_copy;
    if (block->transfer.queue == QUEUE_OUT)
        ebb__move_unqueue_out(replay->transfer, block);
    else if (block->state == BLOCK_LEAVING)
        block->transfer.cancelled = true;
    else if (block->state == BLOCK_AWAY)
        ebb__move_queue_in(replay->transfer, block, urgent);
}

void ebb__clock_changed(struct replay *replay, const struct block *block)
{
    if (replay->playing && block->script_block != EBB_SCRIPT_NONE)
        replay->playing->changes[block->script_block] = true;
}

/* The block that `absence` is about, or the first part of it that is; NULL: none is there. */
static struct block *absent_block(struct replay *replay, const struct performance *playing,
                                  uint32_t absence)
{
    uint32_t index = playing->live[ebb__script_absences(playing->script)[absence].block];
    return index == NO_BLOCK ? NULL : &replay->table->blocks[index];
}

/* The next part that the same absences are about; NULL: none. */
static struct block *next_absent(struct replay *replay, const struct block *block)
{
    uint32_t next = ebb__part_next(replay->table, ebb__block_index(replay->table, block));
    return next != NO_BLOCK && replay->table->blocks[next].script_block == block->script_block
               ? &replay->table->blocks[next]
               : NULL;
}

/* Has the end of the absence been seen before its beginning? */
static bool is_over(const struct performance *playing, const struct ebb_script_absence *absence)
{
    const uint32_t *passed = playing->woven.passed;
    return passed && absence->due_clock != EBB_SCRIPT_NONE &&
           absence->due_clock > absence->out_clock && passed[absence->due_clock];
}

static void leave(struct replay *replay, const struct performance *playing, uint32_t absence)
{
    if (is_over(playing, &ebb__script_absences(playing->script)[absence]))
        return;
    for (struct block *block = absent_block(replay, playing, absence); block;
         block = next_absent(replay, block))
        if ((block->state == BLOCK_RESIDENT || block->state == BLOCK_PARKED) &&
            block->transfer.queue != QUEUE_OUT && block->kind != BLOCK_PLACED &&
            ebb__store_may_write(&replay->transfer->store)) {
            block->use.left_at = replay->table->uses.event_number + 1;
            ebb__move_queue_out(replay->transfer, block, false);
        }
}

static void come_back(struct replay *replay, const struct performance *playing, uint32_t absence)
{
    const struct ebb_script_absence *planned = &ebb__script_absences(playing->script)[absence];
    bool keep_copy = planned->keep_copy && !playing->changes[planned->block];
    for (struct block *block = absent_block(replay, playing, absence); block;
         block = next_absent(replay, block))
        ebb__replay_return(replay, block, keep_copy, false);
}

void ebb__clock_fire(struct replay *replay, uint32_t absence, bool in)
{
    const struct performance *playing = replay->playing;
    const struct ebb_script_absence *planned = &ebb__script_absences(playing->script)[absence];
    uint32_t in_clock = playing->in_clock[absence], now = ebb__clock_now(replay);
    uint64_t in_ns = playing->in_delay_ns[absence], out_ns = playing->out_delay_ns[absence];
    bool is_past =
        in ? !ebb__script_is_during(now, in_clock, in_ns, planned->due_clock, planned->due_delay_ns)
           : in_clock != EBB_SCRIPT_NONE &&
                 !ebb__script_is_during(now, planned->out_clock, out_ns, in_clock, in_ns);
    if (is_past && !playing->woven.passed)
        return;
    if (in)
        come_back(replay, playing, absence);
    else
        leave(replay, playing, absence);
}

void ebb__clock_act(struct replay *replay, struct performance *playing, uint32_t position)
{
    ebb__timers_pace(replay, playing, position);
    for (uint32_t i = playing->out_first[position]; i != EBB_SCRIPT_NONE; i = playing->out_next[i])
        if (!ebb__timers_set(replay, playing, position, i, false))
            leave(replay, playing, i);
    for (uint32_t i = playing->in_first[position]; i != EBB_SCRIPT_NONE; i = playing->in_next[i])
        if (!ebb__timers_set(replay, playing, position, i, true))
            come_back(replay, playing, i);
}

/* Wait until `block` is back; *began: when the first of several had to be waited for, or 0. Releases
 * the lock. False: the block is another, or the script is not followed any more. */
static bool wait_for_block(struct replay *replay, const struct performance *playing,
                           struct block *block, uint64_t *began)
{
    uint64_t serial = block->serial, sets = replay->script_sets;
    struct ebb_wait *wait = NULL;
    bool there = false;
    while (replay->script_sets == sets && replay->playing == playing && block->serial == serial) {
        if (block->transfer.queue == QUEUE_OUT)
            ebb__move_unqueue_out(replay->transfer, block);
        if (block->state == BLOCK_PARKED)
            ebb__move_unpark(replay->transfer, block);
        if (block->state != BLOCK_LEAVING && block->state != BLOCK_AWAY &&
            block->state != BLOCK_COMING) {
            there = true;
            break;
        }
        if (block->state == BLOCK_AWAY && block->transfer.error) {
            there = true; /* its only copy is lost, and that has been said */
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

/* Wait until every block that is due at `position` is back. Releases the lock; scripts may come and
 * go meanwhile, and `playing` with them. */
void ebb__replay_wait_for_due(struct replay *replay, struct performance *playing, uint32_t position)
{
    uint64_t sets = replay->script_sets, planned_ns = 0;
    for (uint32_t i = playing->due_first[position]; i != EBB_SCRIPT_NONE; i = playing->due_next[i])
        planned_ns += ebb__script_absences(playing->script)[i].stall_ns;
    for (uint32_t i = playing->due_first[position]; i != EBB_SCRIPT_NONE;
         i = playing->due_next[i]) {
        uint64_t began = 0;
        struct block *block = absent_block(replay, playing, i);
        ebb__progress_hold(replay->core, true);
        bool lacked_room = false;
        while (block && wait_for_block(replay, playing, block, &began)) {
            lacked_room |= block->transfer.lacked_room;
            block = next_absent(replay, block);
        }
        uint64_t late_ns = began ? ebb__now_ns() - began : 0;
        ebb__progress_hold(replay->core, false);
        if (replay->script_sets != sets)
            return;
        uint64_t expected_ns = late_ns < planned_ns ? late_ns : planned_ns;
        planned_ns -= expected_ns;
        if (replay->playing == playing)
            ebb__feedback_learn(playing, i, lacked_room ? 0 : late_ns - expected_ns);
    }
}
