/* Uses that the program announces, instead of faults that show them: config.announced.
 *
 * Beginning and end of a use are events of the script's clock. In between the block is pinned. The
 * device need not show accesses. What is written is known exactly, so a copy in the store stays
 * valid until then. An unchanged block is evicted without a write. */
#include "runtime/internal.h"

#define LOOK_AGAIN_NS 100000000u /* a limit: what changes wakes the thread */

/* The live block at `pointer`, which acquire and release know to be one. */
static struct block *block_of(struct ebb_runtime *runtime, const void *pointer)
{
    return ebb__space_find(&runtime->addresses, (uintptr_t)pointer);
}

/* The event of the script's clock. Returns its time on the program's own clock. */
static uint64_t step(struct ebb_runtime *runtime, struct block *block)
{
    struct due due = ebb__clock_step(&runtime->replay, EBB_EVENT_ACCESS, block);
    uint64_t time_ns = ebb__progress_ns(&runtime->core);
    ebb__clock_end_step(&runtime->replay, EBB_EVENT_ACCESS, due);
    return time_ns;
}

/* Waits until the block is resident. The wait is accounted as for a fault. False: its only copy is
 * lost. */
static bool become_resident(struct ebb_runtime *runtime, struct block *block)
{
    while (block->state != BLOCK_RESIDENT &&
           !(block->state == BLOCK_EVICTED && block->transfer.error)) {
        ebb__runtime_look_at(runtime, block->address, false);
        if (block->state != BLOCK_RESIDENT)
            ebb__core_wait_until(&runtime->core, &runtime->core.changed,
                                 ebb__now_ns() + LOOK_AGAIN_NS);
    }
    return block->state == BLOCK_RESIDENT;
}

bool ebb__runtime_acquire(struct ebb_runtime *runtime, const void *pointer, bool write,
                          uint64_t *time_ns)
{
    pthread_mutex_lock(&runtime->core.lock);
    struct block *block = block_of(runtime, pointer);
    block->pins++;
    if (block->transfer.queue == QUEUE_OUT)
        ebb__move_unqueue_out(&runtime->transfer, block);
    *time_ns = step(runtime, block);
    bool there = block->state == BLOCK_RESIDENT || become_resident(runtime, block);
    if (there) {
        ebb__move_touch(&runtime->transfer, block);
        if (write && block->copy.is_there)
            ebb__copy_drop(&runtime->table, block);
    } else {
        block->pins--;
    }
    ebb__runtime_check(runtime);
    pthread_mutex_unlock(&runtime->core.lock);
    return there;
}

void ebb__runtime_release(struct ebb_runtime *runtime, const void *pointer, uint64_t *time_ns)
{
    pthread_mutex_lock(&runtime->core.lock);
    struct block *block = block_of(runtime, pointer);
    block->pins--;
    ebb__move_touch(&runtime->transfer, block);
    *time_ns = step(runtime, block);
    ebb__runtime_check(runtime);
    pthread_mutex_unlock(&runtime->core.lock);
}

bool ebb__runtime_begin(struct ebb_runtime *runtime, const struct ebb_script *script,
                        bool continues)
{
    pthread_mutex_lock(&runtime->core.lock);
    bool known = ebb__replay_begin(&runtime->replay, script, continues);
    pthread_mutex_unlock(&runtime->core.lock);
    return known;
}

bool ebb__runtime_end(struct ebb_runtime *runtime)
{
    pthread_mutex_lock(&runtime->core.lock);
    bool followed = runtime->replay.current != NULL;
    runtime->replay.current = NULL;
    pthread_mutex_unlock(&runtime->core.lock);
    return followed;
}

void ebb__runtime_evict(struct ebb_runtime *runtime, const void *pointer)
{
    pthread_mutex_lock(&runtime->core.lock);
    struct block *block = block_of(runtime, pointer);
    if (ebb__block_may_be_evicted(&runtime->table.uses, block) && block->kind == BLOCK_HEAP &&
        ebb__store_may_write(&runtime->transfer.store))
        ebb__move_queue_out(&runtime->transfer, block, false);
    pthread_mutex_unlock(&runtime->core.lock);
}

void ebb__runtime_prefetch(struct ebb_runtime *runtime, const void *pointer)
{
    pthread_mutex_lock(&runtime->core.lock);
    ebb__replay_return(&runtime->replay, block_of(runtime, pointer), true, false);
    pthread_mutex_unlock(&runtime->core.lock);
}

uint64_t ebb__runtime_serial(struct ebb_runtime *runtime, const void *pointer)
{
    pthread_mutex_lock(&runtime->core.lock);
    uint64_t serial = block_of(runtime, pointer)->serial;
    pthread_mutex_unlock(&runtime->core.lock);
    return serial;
}

uint64_t ebb__runtime_progress_ns(struct ebb_runtime *runtime)
{
    pthread_mutex_lock(&runtime->core.lock);
    uint64_t ns = ebb__progress_ns(&runtime->core);
    pthread_mutex_unlock(&runtime->core.lock);
    return ns;
}
