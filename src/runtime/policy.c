/* Answers to the questions of mechanism to policy, from the script in force and from reclaim. This
 * is the only way to call higher parts. */
#include "runtime/internal.h"

static bool is_planned(const void *context)
{
    const struct ebb_runtime *runtime = context;
    return runtime->replay.current != NULL;
}

static uint64_t iteration_ns(const void *context)
{
    const struct ebb_runtime *runtime = context;
    return runtime->replay.current ? runtime->replay.current->script->iteration_ns : 0;
}

static bool knows(const void *context, const struct block *block)
{
    return is_planned(context) && block->script_block != EBB_SCRIPT_NONE;
}

static uint64_t next_use(const void *context, const struct block *block)
{
    const struct ebb_runtime *runtime = context;
    return ebb__replay_next_use(&runtime->replay, block);
}

static uint32_t next_alloc(const void *context, uint64_t size_bytes)
{
    const struct ebb_runtime *runtime = context;
    return ebb__replay_next_alloc(&runtime->replay, size_bytes);
}

static uint32_t next_cover(const void *context, uint32_t unit)
{
    const struct ebb_runtime *runtime = context;
    return ebb__replay_next_cover(&runtime->replay, unit);
}

static bool is_awaited(const void *context, const struct block *block)
{
    const struct ebb_runtime *runtime = context;
    /* Without a plan it was fetched ahead, and its use is to be observed. */
    return runtime->replay.current ? ebb__replay_is_awaited(&runtime->replay, block)
                                   : runtime->table.uses.trace || block->transfer.walk;
}

static void evicting(void *context, struct block *block)
{
    struct ebb_runtime *runtime = context;
    ebb__feedback_early(&runtime->replay, block);
}

static void was_late(void *context, const struct block *block, uint64_t ns)
{
    struct ebb_runtime *runtime = context;
    ebb__feedback_late(&runtime->replay, block, ns);
}

static void changed(void *context, const struct block *block)
{
    struct ebb_runtime *runtime = context;
    if (!ebb__foresee_changed(&runtime->reclaim.foresee, &runtime->table, block))
        ebb__clock_changed(&runtime->replay, block);
}

static uint64_t fire(void *context)
{
    struct ebb_runtime *runtime = context;
    return ebb__timers_fire(&runtime->replay);
}

/* Timers stood still during the wait, so a worker of the out lane must check them. */
static void resumed(void *context)
{
    struct ebb_runtime *runtime = context;
    pthread_cond_signal(&runtime->transfer.out.work);
}

static bool make_room(void *context, uint64_t bytes, struct asking *asking)
{
    struct ebb_runtime *runtime = context;
    return ebb__room_get(&runtime->reclaim, bytes, asking);
}

static void slab_parked(void *context, struct block *block)
{
    struct ebb_runtime *runtime = context;
    ebb__slab_count(&runtime->reclaim, block, false);
}

static void slab_back(void *context, struct block *block)
{
    struct ebb_runtime *runtime = context;
    ebb__slab_back(&runtime->reclaim, block);
}

const struct policy ebb__runtime_policy = {
    .is_planned = is_planned,
    .iteration_ns = iteration_ns,
    .knows = knows,
    .next_use = next_use,
    .next_alloc = next_alloc,
    .next_cover = next_cover,
    .is_awaited = is_awaited,
    .evicting = evicting,
    .was_late = was_late,
    .changed = changed,
    .fire = fire,
    .resumed = resumed,
    .make_room = make_room,
    .slab_parked = slab_parked,
    .slab_back = slab_back,
};
