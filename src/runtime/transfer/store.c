/* The store as the lanes see it: opened at the first need, tried again when it has failed. */
#include "runtime/internal.h"

#include "base/tuning.h"

#include <errno.h>

/* Opens the store at the first need; false where there is none. Releases the lock meanwhile. */
bool ebb__store_have(struct ebb_runtime *runtime)
{
    while (runtime->store.opening)
        pthread_cond_wait(&runtime->core.changed, &runtime->core.lock);
    if (runtime->store.open || runtime->store.failed)
        return runtime->store.open && !runtime->store.failed;
    if (!runtime->core.config.open_store) {
        runtime->store.failed = true;
        return false;
    }
    runtime->store.opening = true;
    pthread_mutex_unlock(&runtime->core.lock);
    struct ebb_error error;
    struct ebb_store store;
    struct ebb_wait *wait = ebb__waits_open(runtime);
    enum ebb_status status =
        runtime->core.config.open_store(runtime->core.config.context, &store, &error);
    ebb__wait_end(wait);
    pthread_mutex_lock(&runtime->core.lock);
    runtime->store.opening = false;
    if (status == EBB_OK) {
        runtime->copies.stores[runtime->copies.current] = store;
        runtime->copies.extents.limit_bytes = store.limit_bytes;
        runtime->store.open = true;
    } else {
        runtime->store.failed = true;
        atomic_store(&runtime->core.counters->store_error, EIO);
        ebb__core_warn(runtime, "the store cannot be opened: the budget is NOT kept");
    }
    pthread_cond_broadcast(&runtime->core.changed);
    return runtime->store.open;
}

void ebb__store_fail(struct ebb_runtime *runtime, int why)
{
    if (runtime->store.failed)
        return;
    uint64_t first_ns = runtime->core.config.store_pause_ns;
    runtime->store.failed = runtime->store.doubtful = true;
    if (runtime->store.pause_ns == 0) {
        runtime->store.pause_ns = first_ns;
        ebb__core_warn(
            runtime,
            why == ENOSPC
                ? "the store is full: until there is room again blocks stay in memory, the "
                  "budget is NOT kept; free space or give --store another directory"
                : "the store cannot be written: until it can blocks stay in memory, the "
                  "budget is NOT kept; give --store another directory");
    } else if (runtime->store.pause_ns < first_ns * ebb__tuning()->store_most_pauses) {
        runtime->store.pause_ns *= 2;
    }
    runtime->store.retry_ns = ebb__now_ns() + runtime->store.pause_ns;
    atomic_store(&runtime->core.counters->store_error, (uint32_t)why);
    while (runtime->transfer.out_queue.first != NO_BLOCK)
        ebb__move_unqueue_out(runtime, &runtime->table.blocks[runtime->transfer.out_queue.first]);
}

void ebb__store_retry(struct ebb_runtime *runtime, uint64_t now_ns)
{
    if (runtime->store.retry_ns && now_ns >= runtime->store.retry_ns) {
        runtime->store.failed = false;
        runtime->store.retry_ns = 0;
        runtime->beyond = true;
    }
}

void ebb__store_worked(struct ebb_runtime *runtime)
{
    if (!runtime->store.doubtful || runtime->store.failed)
        return;
    runtime->store.doubtful = false;
    if (!runtime->store.recovered)
        ebb__core_warn(runtime, "the store can be written again: the budget is kept from here");
    runtime->store.recovered = true;
}
