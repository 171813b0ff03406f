/* Fork: what a child may see of its parent's blocks.
 *
 * Before the fork every transfer ends and every parked block goes back to the arena, so that the
 * child inherits by copy on write what is resident. What is away stays in the store, which both
 * can read; block/copies.c sees to it that neither overwrites what the other needs. Slabs are all there:
 * other libraries' handlers may use some in the child before this file does. The child has no runtime thread yet and a new userfaultfd; it starts reactive, writes to a store
 * of its own, and counts only the pages that it takes itself. */
#include "runtime/internal.h"

#include <unistd.h>

void ebb__runtime_before_fork(struct ebb_runtime *runtime)
{
    pthread_mutex_lock(&runtime->core.lock);
    ebb__slab_recall(runtime);
    runtime->transfer.frozen = true;
    pthread_cond_broadcast(&runtime->transfer.out_work);
    pthread_cond_broadcast(&runtime->transfer.in_work);
    while (runtime->transfer.out_current != NO_BLOCK || runtime->transfer.in_current != NO_BLOCK ||
           runtime->transfer.transfers || runtime->store.opening)
        pthread_cond_wait(&runtime->core.changed, &runtime->core.lock);
    bool is_read = false;
    for (uint32_t i = 1; i <= runtime->table.count; i++) {
        struct block *block = &runtime->table.blocks[i];
        if (block->state == BLOCK_PARKED)
            ebb__move_unpark(runtime, block);
        /* A copy of what is in memory is worth less than the space, which a child would share. */
        if (block->state != BLOCK_EVICTED)
            ebb__copy_drop(runtime, block);
        is_read |= block->copy.is_there && ebb__relatives_wrote(&runtime->copies, block);
        block->copy.stays = block->copy.is_hashed = false;
    }
    ebb__relatives_before_fork(runtime, is_read);
    for (uint32_t i = 0; i < runtime->uses.open_count; i++)
        runtime->table.blocks[runtime->uses.open_blocks[i]].use.open = false;
    runtime->uses.open_count = 0;
    /* The lock stays held across the fork. */
}

/* What was watched before the fork is watched again. */
static void watch_again(struct ebb_runtime *runtime)
{
    for (uint32_t i = 1; runtime->uses.trace && i <= runtime->table.count; i++) {
        struct block *block = &runtime->table.blocks[i];
        if (block->state == BLOCK_RESIDENT && block->transfer.queue != QUEUE_OUT &&
            block->kind != BLOCK_STATIC && block->kind != BLOCK_SLAB)
            ebb__move_park(runtime, block);
    }
}

void ebb__runtime_after_fork_parent(struct ebb_runtime *runtime)
{
    runtime->core.forked = true;
    runtime->transfer.frozen = runtime->slabs.all_here = false;
    ebb__relatives_after_fork_parent(runtime);
    watch_again(runtime);
    pthread_cond_broadcast(&runtime->transfer.out_work);
    pthread_cond_broadcast(&runtime->transfer.in_work);
    pthread_mutex_unlock(&runtime->core.lock);
}

void ebb__runtime_set_slot(struct ebb_runtime *runtime, struct ebb_ledger_slot *slot)
{
    runtime->core.slot = slot;
}

enum ebb_status ebb__runtime_after_fork_child(struct ebb_runtime *runtime,
                                              struct ebb_ledger *ledger, struct ebb_ring *ring)
{
    ebb__runtime_init_sync(runtime);
    runtime->core.ledger = ledger;
    runtime->core.ring = ring;
    runtime->core.counters = &ring->counters;
    runtime->core.config.process_id = (uint32_t)getpid();
    atomic_store(&runtime->core.counters->held_bytes, 0); /* all pages came with the fork */
    runtime->memory.owed_bytes = 0;
    runtime->core.forked = true;
    runtime->transfer.frozen = runtime->slabs.all_here = false;
    runtime->replay.current = NULL;
    runtime->replay.awaited = (struct prepared_script){0};
    runtime->replay.awaited_due = false;
    runtime->core.held = 0;
    runtime->transfer.room_waits = 0;
    runtime->replay.script_count = 0;
    /* Depot and spare frames stayed with the parent, the arena came along. */
    runtime->memory.page_stack_bytes = 0;
    ebb__frames_reset(&runtime->memory.frames);
    runtime->transfer.out_queue = runtime->transfer.in_queue = (struct list){NO_BLOCK, NO_BLOCK};
    runtime->transfer.out_pending_bytes = 0;
    uint64_t live = 0;
    for (uint32_t i = 1; i <= runtime->table.count; i++) {
        struct block *block = &runtime->table.blocks[i];
        block->transfer.queue = QUEUE_NONE;
        block->transfer.urgent = false;
        block->wait.fault_ns = 0;
        block->wait.told = NULL; /* in the parent's ring */
        block->pins = 0;         /* of threads that the child does not have */
        block->inherited = block->kind != BLOCK_STATIC &&
                           (block->state == BLOCK_RESIDENT || block->state == BLOCK_CACHED);
        if (ebb__block_is_live(block))
            live += block->size_bytes;
    }
    while (runtime->memory.cached_by_age.first != NO_BLOCK)
        ebb__pages_drop_cached(runtime);
    ebb__placement_after_fork_child(runtime);
    atomic_store(&runtime->core.counters->live_bytes, live);
    atomic_store(&runtime->core.counters->peak_live_bytes, live);
    ebb__relatives_after_fork_child(runtime);
    ebb__extents_init(&runtime->copies.extents, runtime->copies.extent_table,
                      runtime->copies.extents.capacity, UINT64_MAX);
    if (runtime->uses.trace) {
        runtime->uses.trace = false;
        runtime->uses.blind_until = 0;
        ebb__core_mark(runtime, EBB_MARK_TRACE_OFF, 0);
    }
    ebb__runtime_announce(runtime);
    return ebb__mover_start(runtime) ? EBB_OK : EBB_ERR_LIMIT;
}
