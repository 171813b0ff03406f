/* Guards: the clock of a program that allocates nothing while it iterates.
 *
 * A script without allocations is played by accesses: each of its events is the use of a part after a
 * long pause, one every few ms. The parts of the next few events are parked, so that their use is
 * seen, at the price of a fault each; which of them is used says how far the program has come. Nothing has to
 * be found before: from any position the program runs into an armed guard, wrongly at worst, and
 * then the events that follow are not the ones that it comes to until it does. */
#include "runtime/replay/replay.h"

/* One that does not come is overtaken by those behind it. Arbitrary. */
#define ARMED 3u
/* So many parts were missed since the last guard was seen: this is not what was learnt. Arbitrary. */
#define MOST_MISSED 1024u

static uint32_t armed_count(const struct ebb_script *script)
{
    return script->clock_count < ARMED ? script->clock_count : ARMED;
}

static const struct ebb_script_event *ahead(const struct replay *replay, uint32_t steps)
{
    const struct ebb_script *script = replay->current->script;
    return &ebb__script_events(script)[(replay->position + steps) % script->clock_count];
}

/* `in_use`: a script block that is not to be parked. */
static void arm(struct replay *replay, uint32_t in_use)
{
    if (!ebb__access_clock_in_force(replay) || replay->table->uses.trace)
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

bool ebb__access_clock_await(const struct replay *replay, const struct block *block)
{
    if (!ebb__access_clock_in_force(replay) || replay->table->uses.trace ||
        block->script_block == EBB_SCRIPT_NONE)
        return false;
    for (uint32_t i = 0; i < armed_count(replay->current->script); i++)
        if (ahead(replay, i)->block == block->script_block)
            return true;
    return false;
}

void ebb__access_clock_arm(struct replay *replay)
{
    arm(replay, EBB_SCRIPT_NONE);
}

/* A lap begins; false: the one before was far too short to be an iteration. */
static bool begin_lap(struct replay *replay)
{
    uint64_t now = ebb__now_ns(), took = now - replay->access_clock_began_ns;
    replay->access_clock_began_ns = now;
    return took >= replay->current->script->iteration_ns / 8;
}

void ebb__access_clock_touched(struct replay *replay, const struct block *block, bool missed)
{
    if (!ebb__access_clock_in_force(replay))
        return;
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
        if (replay->position <= before && !begin_lap(replay))
            ebb__clock_stop(replay);
        arm(replay, block->script_block);
        return;
    }
}
