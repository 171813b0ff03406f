/* Fork: what a child may see of its parent's blocks.
 *
 * Before the fork every transfer ends and every parked block goes back to the arena, so that the
 * child inherits by copy on write what is resident. What is away stays in the store, which both
 * can read; relatives.c sees to it that neither overwrites what the other needs. Slabs are all there:
 * other libraries' handlers may use some in the child before this file does. The child has no engine thread yet and a new userfaultfd; it starts reactive, writes to a store
 * of its own, and counts only the pages that it takes itself. */
#include "engine/internal.h"

#include <unistd.h>

void ebb__engine_before_fork(struct ebb_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    ebb__cold_recall(engine);
    engine->frozen = true;
    pthread_cond_broadcast(&engine->out_work);
    pthread_cond_broadcast(&engine->in_work);
    while (engine->out_current != NO_BLOCK || engine->in_current != NO_BLOCK || engine->transfers ||
           engine->store_opening)
        pthread_cond_wait(&engine->changed, &engine->lock);
    bool is_read = false;
    for (uint32_t i = 1; i <= engine->block_count; i++) {
        struct block *block = &engine->blocks[i];
        if (block->state == BLOCK_PARKED)
            ebb__move_unpark(engine, block);
        /* A copy of what is in memory is worth less than the space, which a child would share. */
        if (block->state != BLOCK_AWAY)
            ebb__move_drop_copy(engine, block);
        is_read |= block->has_copy && ebb__relatives_wrote(engine, block);
        block->keep_copy = block->hashed = false;
    }
    ebb__relatives_before_fork(engine, is_read);
    for (uint32_t i = 0; i < engine->open_count; i++)
        engine->blocks[engine->open_blocks[i]].open = false;
    engine->open_count = 0;
    /* The lock stays held across the fork. */
}

/* What was watched before the fork is watched again. */
static void watch_again(struct ebb_engine *engine)
{
    for (uint32_t i = 1; engine->trace && i <= engine->block_count; i++) {
        struct block *block = &engine->blocks[i];
        if (block->state == BLOCK_RESIDENT && !block->out_queued && !block->placed && !block->slab)
            ebb__move_park(engine, block);
    }
}

void ebb__engine_after_fork_parent(struct ebb_engine *engine)
{
    engine->forked = true;
    engine->frozen = engine->cold.all_here = false;
    ebb__relatives_after_fork_parent(engine);
    watch_again(engine);
    pthread_cond_broadcast(&engine->out_work);
    pthread_cond_broadcast(&engine->in_work);
    pthread_mutex_unlock(&engine->lock);
}

void ebb__engine_set_slot(struct ebb_engine *engine, struct ebb_ledger_slot *slot)
{
    engine->slot = slot;
}

enum ebb_status ebb__engine_after_fork_child(struct ebb_engine *engine, struct ebb_ledger *ledger,
                                             struct ebb_ring *ring)
{
    ebb__engine_init_sync(engine);
    engine->ledger = ledger;
    engine->ring = ring;
    engine->counters = &ring->counters;
    engine->config.process_id = (uint32_t)getpid();
    engine->owed_bytes = 0;
    engine->forked = true;
    engine->frozen = engine->cold.all_here = false;
    engine->playing = NULL;
    engine->awaited = (struct performance){0};
    engine->awaited_due = false;
    engine->held = 0;
    engine->room_waits = 0;
    engine->script_count = 0;
    /* Depot and spare frames stayed with the parent, the arena came along. */
    engine->depot_bytes = 0;
    ebb__frames_reset(engine);
    engine->out_queue = engine->in_queue = (struct list){NO_BLOCK, NO_BLOCK};
    engine->out_pending_bytes = 0;
    uint64_t live = 0;
    for (uint32_t i = 1; i <= engine->block_count; i++) {
        struct block *block = &engine->blocks[i];
        block->out_queued = block->in_queued = block->urgent = false;
        block->fault_ns = 0;
        block->fault_wait = NULL; /* in the parent's ring */
        block->pins = 0;          /* of threads that the child does not have */
        block->inherited =
            !block->placed && (block->state == BLOCK_RESIDENT || block->state == BLOCK_SPARE);
        if (ebb__block_is_live(block))
            live += block->size_bytes;
    }
    while (engine->spare_ages.first != NO_BLOCK)
        ebb__pages_drop_spare(engine);
    ebb__placed_after_fork_child(engine);
    atomic_store(&engine->counters->live_bytes, live);
    atomic_store(&engine->counters->peak_live_bytes, live);
    ebb__relatives_after_fork_child(engine);
    ebb__extents_init(&engine->extents, engine->extent_table, engine->extents.capacity, UINT64_MAX);
    if (engine->trace) {
        engine->trace = false;
        engine->blind_until = 0;
        ebb__engine_mark(engine, EBB_MARK_TRACE_OFF, 0);
    }
    ebb__engine_announce(engine);
    return ebb__mover_start(engine) ? EBB_OK : EBB_ERR_LIMIT;
}
