/* The access clock: the clock of a program that allocates nothing while it iterates.
 *
 * Accesses drive the replay of a script without allocations. Each event is the use of a part after
 * a long pause; there is one every few ms. The parts of the next few events are parked, so that
 * their use is seen, at the cost of one fault each. The part that is used shows how far the program
 * is. No position needs to be found first: from any position the program soon uses one of these
 * parts. Until then, at worst, the position is wrong, and so are the events that are expected. */
#include "runtime/replay/matcher.h"

#include "base/tuning.h"

enum { MOST_MISSED = 1024 }; /* parts, since the clock was last seen: this is not what was learnt */

static uint32_t armed_count(const struct ebb_script *script)
{
    return script->clock_count < (uint32_t)ebb__tuning()->access_clock_armed
               ? script->clock_count
               : (uint32_t)ebb__tuning()->access_clock_armed;
}

static const struct ebb_script_event *ahead(const struct replay *replay, uint32_t steps)
{
    const struct ebb_script *script = replay->current->script;
    return &ebb__script_events(script)[(replay->position + steps) % script->clock_count];
}

/* Parks the parts of the next events, except those of script block `in_use`. */
static void arm(struct replay *replay, uint32_t in_use)
{
    if (replay->table->uses.trace)
        return;
    for (uint32_t i = 0; i < armed_count(replay->current->script); i++) {
        uint32_t known = ahead(replay, i)->block, index = replay->current->live[known];
        for (; known != in_use && index != NO_BLOCK &&
               replay->table->blocks[index].script_block == known;
             index = ebb__part_next(replay->table, index)) {
            struct block *part = &replay->table->blocks[index];
            if (part->state == BLOCK_RESIDENT && part->transfer.queue != QUEUE_OUT &&
                part->pinned_until <= replay->table->uses.event_number)
                ebb__move_park(replay->transfer, part);
        }
    }
}

static bool is_watching(const struct replay *replay, const struct block *block)
{
    if (replay->table->uses.trace || block->script_block == EBB_SCRIPT_NONE)
        return false;
    for (uint32_t i = 0; i < armed_count(replay->current->script); i++)
        if (ahead(replay, i)->block == block->script_block)
            return true;
    return false;
}

static void watch(struct replay *replay)
{
    arm(replay, EBB_SCRIPT_NONE);
}

/* Begins an iteration. False: the last one was too short to be a real one. */
static bool begin_lap(struct replay *replay)
{
    uint64_t now = ebb__now_ns(), took = now - replay->access_clock_began_ns;
    replay->access_clock_began_ns = now;
    return took >= replay->current->script->iteration_ns / 8;
}

static void touched(struct replay *replay, const struct block *block, bool missed)
{
    if (missed && ++replay->missed > MOST_MISSED) {
        ebb__clock_stop(replay);
        return;
    }
    for (uint32_t i = 0; i < armed_count(replay->current->script); i++) {
        if (block->script_block == EBB_SCRIPT_NONE ||
            ahead(replay, i)->block != block->script_block)
            continue;
        replay->missed = 0;
        uint32_t before = replay->position;
        for (uint32_t passed = 0; passed <= i; passed++)
            ebb__clock_pass(replay);
        if (replay->position <= before && !begin_lap(replay)) {
            ebb__clock_stop(replay);
            return;
        }
        arm(replay, block->script_block);
        return;
    }
}

/* Allocations are no events of this clock, and may change. But freeing a block of the clock ends
 * the match. */
static bool match(struct replay *replay, enum ebb_event_kind kind, struct block *block,
                  struct due *due)
{
    struct prepared_script *current = replay->current;
    uint32_t known = block->script_block;
    due->count = 0;
    if (kind == EBB_EVENT_ALLOC || known == EBB_SCRIPT_NONE)
        return true;
    for (uint32_t i = 0; i < current->script->clock_count; i++)
        if (ebb__replay_event(current, i)->block == known)
            return false;
    ebb__clock_unbind(replay, current, block);
    return true;
}

static uint32_t next_position(const struct replay *replay, uint64_t size_bytes)
{
    (void)replay;
    (void)size_bytes;
    return EBB_SCRIPT_NONE;
}

const struct matcher ebb__matcher_access_clock = {
    .name = "access clock",
    .is_ordered = true,
    .starts_at_once = true,
    .match = match,
    .next_position = next_position,
    .watch = watch,
    .is_watching = is_watching,
    .touched = touched,
};
