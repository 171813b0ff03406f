/* When accesses are observed: always, never, or where the program departs from all known
 * scripts. What it does there is then known, and has a plan when it comes again. */
#include "runtime/internal.h"

static void stop(struct ebb_runtime *runtime)
{
    struct uses *uses = &runtime->table.uses;
    for (uint32_t i = 0; i < uses->open_count; i++)
        runtime->table.blocks[uses->open_blocks[i]].use.open = false;
    uses->open_count = 0;
    uses->trace = false;
    for (uint32_t i = 1; i <= runtime->table.count; i++) {
        struct block *block = &runtime->table.blocks[i];
        if (block->kind != BLOCK_SLAB && block->state == BLOCK_PARKED &&
            block->transfer.queue != QUEUE_OUT)
            ebb__move_unpark(&runtime->transfer, block);
    }
    for (uint32_t i = 1; i <= runtime->table.count; i++)
        if (ebb__block_is_live(&runtime->table.blocks[i]) && runtime->table.blocks[i].run.parts > 1)
            ebb__part_join(&runtime->table, &runtime->table.blocks[i]);
    if (uses->blind_until)
        uses->blind_until = 0; /* its beginning was never recorded, so its end is not */
    else
        ebb__core_mark(&runtime->core, EBB_MARK_TRACE_OFF, 0);
}

static void start(struct ebb_runtime *runtime)
{
    struct uses *uses = &runtime->table.uses;
    uses->open_count = 0;
    uses->trace = true;
    for (uint32_t i = 1; i <= runtime->table.count; i++) {
        struct block *block = &runtime->table.blocks[i];
        if (block->kind == BLOCK_SLAB)
            continue;
        if (ebb__block_is_live(block) && block->run.head == i)
            ebb__part_split(&runtime->table, block);
        if (block->state == BLOCK_RESIDENT && block->transfer.queue != QUEUE_OUT &&
            block->kind != BLOCK_STATIC)
            ebb__move_park(&runtime->transfer, block);
    }
    /* Blocks in the static placement are not observed. Where it has departed the program cannot be
     * expected to free them soon. */
    uses->blind_until =
        runtime->observing.always ? uses->event_number + runtime->replay.planned_clocks : 0;
    runtime->observing.lacks =
        !runtime->observing.always && runtime->addresses.placement.load_bytes > 0;
    ebb__observe_note(&runtime->transfer);
}

static bool is_wanted(struct ebb_runtime *runtime)
{
    struct observing *observing = &runtime->observing;
    const struct replay *replay = &runtime->replay;
    if (!observing->departures)
        return observing->always;
    if ((!replay->current && replay->script_count) || ebb__sizes_doubtful(replay)) {
        if (!runtime->table.uses.trace)
            observing->until = replay->allocations + observing->allocations;
        return true;
    }
    return runtime->table.uses.trace && replay->allocations < observing->until;
}

void ebb__observe_as_wanted(struct ebb_runtime *runtime)
{
    bool wanted = is_wanted(runtime);
    if (runtime->table.uses.trace == wanted)
        return;
    if (wanted)
        start(runtime);
    else
        stop(runtime);
    ebb__replay_watch(&runtime->replay);
}

void ebb__runtime_set_trace(struct ebb_runtime *runtime, enum ebb_observe observe,
                            uint64_t allocations)
{
    pthread_mutex_lock(&runtime->core.lock);
    if (runtime->core.retired) {
        pthread_mutex_unlock(&runtime->core.lock);
        return;
    }
    struct observing *observing = &runtime->observing;
    bool exactly = observe == EBB_OBSERVE_EXACTLY, always = observe == EBB_OBSERVE_ALWAYS;
    if (runtime->table.uses.trace &&
        ((exactly && !runtime->table.uses.exactly) || (always && observing->lacks)))
        stop(runtime); /* what was observed until now lacks uses: it ends here */
    runtime->table.uses.exactly = exactly;
    observing->always = always || exactly;
    observing->departures = observe == EBB_OBSERVE_DEPARTURES;
    observing->allocations = allocations;
    ebb__observe_as_wanted(runtime);
    ebb__runtime_check(runtime);
    pthread_mutex_unlock(&runtime->core.lock);
}
