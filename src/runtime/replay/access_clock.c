/* Guards: the clock of a program that allocates nothing while it iterates.
 *
 * A script without allocations is played by accesses: each of its events is the use of a part after a
 * long pause, one every few ms. The parts of the next few events are parked, so that their use is
 * seen, at the price of a fault each; which of them is used says how far the program has come. Nothing has to
 * be found before: from any position the program runs into an armed guard, wrongly at worst, and
 * then the events that follow are not the ones that it comes to until it does. */
#include "runtime/internal.h"

#include "base/tuning.h"

static uint32_t armed_count(const struct ebb_script *script)
{
    return script->clock_count < (uint32_t)ebb__tuning()->access_clock_armed
               ? script->clock_count
               : (uint32_t)ebb__tuning()->access_clock_armed;
}

static const struct ebb_script_event *ahead(const struct ebb_runtime *runtime, uint32_t steps)
{
    const struct ebb_script *script = runtime->replay.current->script;
    return &ebb__script_events(script)[(runtime->replay.position + steps) % script->clock_count];
}

/* `in_use`: a script block that is not to be parked. */
static void arm(struct ebb_runtime *runtime, uint32_t in_use)
{
    if (!ebb__access_clock_in_force(&runtime->replay) || runtime->uses.trace)
        return;
    for (uint32_t i = 0; i < armed_count(runtime->replay.current->script); i++) {
        uint32_t known = ahead(runtime, i)->block, index = runtime->replay.current->live[known];
        for (; known != in_use && index != NO_BLOCK &&
               runtime->table.blocks[index].script_block == known;
             index = ebb__part_next(runtime, index)) {
            struct block *part = &runtime->table.blocks[index];
            if (part->state == BLOCK_RESIDENT && part->transfer.queue != QUEUE_OUT &&
                part->pinned_until <= runtime->uses.event_number)
                ebb__move_park(runtime, part);
        }
    }
}

bool ebb__access_clock_await(const struct ebb_runtime *runtime, const struct block *block)
{
    if (!ebb__access_clock_in_force(&runtime->replay) || runtime->uses.trace ||
        block->script_block == EBB_SCRIPT_NONE)
        return false;
    for (uint32_t i = 0; i < armed_count(runtime->replay.current->script); i++)
        if (ahead(runtime, i)->block == block->script_block)
            return true;
    return false;
}

void ebb__access_clock_arm(struct ebb_runtime *runtime)
{
    arm(runtime, EBB_SCRIPT_NONE);
}

/* A lap begins; false: the one before was far too short to be an iteration. */
static bool begin_lap(struct ebb_runtime *runtime)
{
    uint64_t now = ebb__now_ns(), took = now - runtime->replay.access_clock_began_ns;
    runtime->replay.access_clock_began_ns = now;
    return took >= runtime->replay.current->script->iteration_ns / 8;
}

void ebb__access_clock_touched(struct ebb_runtime *runtime, const struct block *block, bool missed)
{
    if (!ebb__access_clock_in_force(&runtime->replay))
        return;
    if (missed && ++runtime->replay.missed > ebb__tuning()->access_clock_most_missed) {
        ebb__clock_stop(runtime);
        return;
    }
    for (uint32_t i = 0; i < armed_count(runtime->replay.current->script); i++) {
        if (block->script_block == EBB_SCRIPT_NONE ||
            ahead(runtime, i)->block != block->script_block)
            continue;
        runtime->replay.missed = 0;
        uint32_t before = runtime->replay.position;
        for (uint32_t passed = 0; passed <= i; passed++)
            ebb__clock_pass(runtime);
        if (runtime->replay.position <= before && !begin_lap(runtime))
            ebb__clock_stop(runtime);
        arm(runtime, block->script_block);
        return;
    }
}
