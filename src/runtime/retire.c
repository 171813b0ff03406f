/* Retirement: the process begins to use a device, whose memory has the budget from now on.
 *
 * All blocks come back and are kept (keep.c), so nothing is moved under the device, which may copy
 * from them or pin them. Then the device of the host no longer watches the arena: it is memory like
 * any other. The runtime takes no more blocks, obeys no more messages, and tells nothing more. Its
 * pages leave the ledger of the run, since other processes may still need that budget. It only
 * serves frees from then on, and there is no way back.
 *
 * A block without pages gets them from the kernel as it is used, as without Ebb. If the only copy
 * of a block cannot be read, that block stays watched: an access to it must not read zeros. */
#include "runtime/internal.h"

#define LOOK_AGAIN_NS 100000000u /* a limit: what changes wakes the thread */

/* The pages are counted in a ledger of their own, which has no budget. */
static void leave_ledger(struct ebb_runtime *runtime)
{
    struct core *core = &runtime->core;
    struct ebb_ledger *own = &runtime->own_ledger;
    uint64_t held = atomic_load(&core->counters->held_bytes);
    atomic_store(&core->counters->retired, 1);
    if (core->ledger != own)
        ebb__ledger_release(core->ledger, core->slot, held);
    own->magic = EBB_LEDGER_MAGIC;
    own->slot_count = 1;
    atomic_store(&own->budget_bytes, UINT64_MAX);
    atomic_store(&own->held_bytes, held);
    core->ledger = own;
    core->slot = own->slots;
    atomic_store(&core->counters->managing, 0);
}

/* The kernel gives the pages, at the first use. */
static void furnish_bare(struct ebb_runtime *runtime, struct block *block)
{
    const struct ebb_device *device = &runtime->core.device;
    if (block->unborn || block->transfer.queue == QUEUE_IN || block->kind == BLOCK_STATIC)
        return; /* it is being furnished */
    if (!device->ops->let && device->ops->fresh(device->state, block->address, block->page_bytes))
        return; /* at its first use, as ever */
    ebb__pages_came(&runtime->memory, block->page_bytes);
    ebb__block_become(block, BLOCK_RESIDENT);
}

/* Begins to bring the block back, if it is away. It never leaves again. */
static void recall(struct ebb_runtime *runtime, struct block *block)
{
    block->kept = true;
    if (block->transfer.queue == QUEUE_OUT)
        ebb__move_unqueue_out(&runtime->transfer, block);
    if (block->state == BLOCK_BARE)
        furnish_bare(runtime, block);
    else if (block->state == BLOCK_PARKED)
        ebb__move_unpark(&runtime->transfer, block);
    else if (block->state != BLOCK_RESIDENT)
        ebb__move_call_back(&runtime->transfer, block);
}

/* May another thread, or a lane, still change where the block's bytes are? */
static bool is_under_way(const struct block *block)
{
    if (!ebb__block_is_live(block))
        return block->state == BLOCK_DYING;
    if (block->state == BLOCK_BARE)
        return block->unborn || block->transfer.queue == QUEUE_IN;
    bool cannot_be_read = block->state == BLOCK_EVICTED && block->transfer.queue == QUEUE_NONE &&
                          block->transfer.error;
    return block->state != BLOCK_RESIDENT && !cannot_be_read;
}

/* Waits for each block in turn. No new one can appear behind it. Returns whether all are there. */
static bool await_all(struct ebb_runtime *runtime)
{
    bool all = true;
    for (uint32_t i = 1; i <= runtime->table.count; i++) {
        struct block *block = &runtime->table.blocks[i];
        while (is_under_way(block)) {
            if (ebb__block_is_live(block))
                recall(runtime, block);
            if (is_under_way(block))
                ebb__core_wait_until(&runtime->core, &runtime->core.changed,
                                     ebb__now_ns() + LOOK_AGAIN_NS);
        }
        all &= !ebb__block_is_live(block) || block->state == BLOCK_RESIDENT;
    }
    return all;
}

/* Waits while another thread does this. False: it is done. */
static bool begin(struct ebb_runtime *runtime)
{
    while (runtime->retirement == RETIREMENT_UNDER_WAY)
        ebb__core_wait_until(&runtime->core, &runtime->core.changed, ebb__now_ns() + LOOK_AGAIN_NS);
    if (runtime->retirement == RETIREMENT_OVER)
        return false;
    runtime->retirement = RETIREMENT_UNDER_WAY;
    return true;
}

bool ebb__runtime_retire(struct ebb_runtime *runtime)
{
    ebb__replay_forget_scripts(&runtime->replay); /* one that comes now finds nothing to move */
    pthread_mutex_lock(&runtime->core.lock);
    if (begin(runtime)) {
        runtime->observing = (struct observing){0};
        ebb__observe_as_wanted(runtime);
        runtime->core.retired = true;
        leave_ledger(runtime);
        pthread_cond_broadcast(&runtime->core.changed); /* there is memory for who waits for it */
        for (uint32_t i = 1; i <= runtime->table.count; i++)
            if (ebb__block_is_live(&runtime->table.blocks[i]))
                recall(runtime, &runtime->table.blocks[i]);
        runtime->all_back = await_all(runtime);
        runtime->memory.owed_bytes = ebb__pages_idle(&runtime->memory);
        ebb__pages_trim(&runtime->memory);
        runtime->retirement = RETIREMENT_OVER;
        ebb__runtime_let_kept(runtime);
        pthread_cond_broadcast(&runtime->core.changed);
    }
    bool all_back = runtime->all_back;
    ebb__runtime_check(runtime);
    pthread_mutex_unlock(&runtime->core.lock);
    return all_back;
}

void ebb__retire_forked(struct ebb_runtime *runtime)
{
    if (!runtime->core.retired)
        return;
    if (runtime->retirement == RETIREMENT_UNDER_WAY) /* the thread is in the other process */
        runtime->retirement = RETIREMENT_NOT_YET;
    leave_ledger(runtime);
}
