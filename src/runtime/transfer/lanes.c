/* The lanes: workers that write what leaves and read what comes back.
 *
 * Each lane serves one block at a time, in pieces, with as many pieces in flight as it has
 * workers; so a lane is serial for the planner and busy for the disk. Whoever finishes the last
 * piece of a block finishes the block. What somebody waits for goes first; what merely returns by
 * plan takes pages only where there are some. */
#include "runtime/internal.h"

#include "base/tuning.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>

#define WORKER_STACK_BYTES ((size_t)256 << 10)

static bool has_chunks_left(const struct block *block)
{
    return block->transfer.chunk_bytes < block->page_bytes && !block->transfer.cancelled &&
           !block->transfer.error && block->state != BLOCK_DYING;
}

/* A piece more (1) or less (-1) is in flight in a lane: account for the time since the last change. */
static void count_lane(struct ebb_runtime *runtime, bool out, int change)
{
    struct ebb_counters *counters = runtime->core.counters;
    uint64_t now = ebb__now_ns(), elapsed = now - runtime->transfer.lanes_since_ns;
    if (runtime->transfer.lane_transfers[true])
        atomic_fetch_add(&counters->out_busy_ns, elapsed);
    if (runtime->transfer.lane_transfers[false])
        atomic_fetch_add(&counters->in_busy_ns, elapsed);
    if (runtime->transfer.lane_transfers[true] && runtime->transfer.lane_transfers[false])
        atomic_fetch_add(&counters->both_busy_ns, elapsed);
    runtime->transfer.lanes_since_ns = now;
    runtime->transfer.lane_transfers[out] += (unsigned)change;
}

/* Transfer the next piece of `block`, without the lock; true: it was the block's last. */
static bool transfer_chunk(struct ebb_runtime *runtime, struct block *block, bool out)
{
    uint64_t at = block->transfer.chunk_bytes;
    uint64_t chunk = ebb__tuning()->transfer_chunk_bytes & ~(EBB_PAGE_BYTES - 1);
    uint64_t bytes = block->page_bytes - at < chunk ? block->page_bytes - at : chunk;
    block->transfer.chunk_bytes += bytes;
    block->transfer.chunks_in_flight++;
    runtime->transfer.transfers++;
    uintptr_t staging = block->frame + at;
    uint64_t offset = block->copy.offset + at;
    const struct ebb_store store = runtime->copies.stores[block->copy.store];
    count_lane(runtime, out, 1);
    struct ebb_wait *wait = ebb__waits_transfer(runtime, block, out);
    pthread_mutex_unlock(&runtime->core.lock);
    int why = out ? store.ops->write(store.state, (const void *)staging, bytes, offset)
                  : store.ops->read(store.state, (void *)staging, bytes, offset);
    ebb__wait_end(wait);
    pthread_mutex_lock(&runtime->core.lock);
    count_lane(runtime, out, -1);
    atomic_fetch_add(out ? &runtime->core.counters->out_lane_bytes
                         : &runtime->core.counters->in_lane_bytes,
                     bytes);
    runtime->transfer.transfers--;
    block->transfer.chunks_in_flight--;
    if (why && !block->transfer.error)
        block->transfer.error = why;
    return block->transfer.chunks_in_flight == 0 && !has_chunks_left(block);
}

/* The program waits for a block that is being read: the disk is the read's. What is read has its pages,
 * so it does not wait for what leaves. */
static bool gives_way(const struct ebb_runtime *runtime)
{
    return runtime->core.held && runtime->transfer.room_waits == 0 &&
           runtime->transfer.lane_transfers[false];
}

static void *out_worker(void *argument)
{
    struct ebb_runtime *runtime = argument;
    pthread_mutex_lock(&runtime->core.lock);
    while (!runtime->transfer.stopping) {
        uint64_t timer_ns = runtime->core.policy->fire(runtime);
        uint32_t current = runtime->transfer.out_current;
        if (gives_way(runtime)) {
            ebb__core_wait_until(runtime, &runtime->transfer.out_work,
                                 ebb__now_ns() + ebb__tuning()->give_way_ns);
            continue;
        }
        if (current == NO_BLOCK) {
            if (runtime->transfer.frozen || runtime->transfer.out_queue.first == NO_BLOCK) {
                if (timer_ns)
                    ebb__core_wait_until(runtime, &runtime->transfer.out_work, timer_ns);
                else
                    pthread_cond_wait(&runtime->transfer.out_work, &runtime->core.lock);
                continue;
            }
            if (!ebb__store_have(runtime)) {
                while (runtime->transfer.out_queue.first != NO_BLOCK)
                    ebb__move_unqueue_out(
                        runtime, &runtime->table.blocks[runtime->transfer.out_queue.first]);
                continue;
            }
            if (runtime->transfer.out_queue.first == NO_BLOCK)
                continue; /* the lock was released meanwhile */
            current = runtime->transfer.out_queue.first;
            if (!ebb__move_start_out(runtime, &runtime->table.blocks[current])) {
                pthread_cond_broadcast(&runtime->core.changed);
                continue;
            }
            if (runtime->transfer.out_current != NO_BLOCK) {
                /* Another worker started a block while this one hashed: write ours alone. */
                while (has_chunks_left(&runtime->table.blocks[current]))
                    if (transfer_chunk(runtime, &runtime->table.blocks[current], true))
                        break;
                ebb__move_finish_out(runtime, &runtime->table.blocks[current]);
                continue;
            }
            runtime->transfer.out_current = current;
            pthread_cond_signal(&runtime->transfer.out_work);
        }
        struct block *block = &runtime->table.blocks[current];
        if (!has_chunks_left(block)) {
            /* Cancelled before its first or next piece. */
            runtime->transfer.out_current = NO_BLOCK;
            if (block->transfer.chunks_in_flight == 0)
                ebb__move_finish_out(runtime, block);
            continue;
        }
        bool last = transfer_chunk(runtime, block, true);
        if (runtime->transfer.out_current == current && !has_chunks_left(block)) {
            runtime->transfer.out_current = NO_BLOCK;
            pthread_cond_signal(&runtime->transfer.out_work);
        }
        if (last)
            ebb__move_finish_out(runtime, block);
    }
    pthread_mutex_unlock(&runtime->core.lock);
    return NULL;
}

/* Pages for a block that comes: in frames for what is to be read, in the arena where it is new. */
static bool take_pages(struct ebb_runtime *runtime, struct block *block)
{
    bool is_new = block->state == BLOCK_BARE;
    uint64_t bytes = block->page_bytes;
    if (is_new ? ebb__pages_take(runtime, block->address, bytes)
               : (block->frame = ebb__pages_take_frame(runtime, bytes)) != 0)
        return true;
    if (!block->transfer.urgent ||
        runtime->core.policy->make_room(runtime, bytes, &block->wait.asking))
        return false;
    return is_new ? ebb__pages_force(runtime, block->address, bytes)
                  : (block->frame = ebb__pages_force_frame(runtime, bytes)) != 0;
}

/* The block that should come next and has its pages; NULL: none. *until: when to look again. */
static struct block *next_in(struct ebb_runtime *runtime, uint64_t *until)
{
    *until = 0;
    uint32_t index = runtime->transfer.in_queue.first;
    if (index == NO_BLOCK)
        return NULL;
    struct block *block = &runtime->table.blocks[index];
    /* The program's own need for room comes before what it may need soon. */
    if ((block->transfer.urgent || runtime->transfer.room_waits == 0) && take_pages(runtime, block))
        return block;
    runtime->transfer.no_room_ns = ebb__now_ns();
    *until = runtime->transfer.no_room_ns + 2000000; /* pages come free without a signal too */
    return NULL;
}

static void *in_worker(void *argument)
{
    struct ebb_runtime *runtime = argument;
    pthread_mutex_lock(&runtime->core.lock);
    while (!runtime->transfer.stopping) {
        uint32_t current = runtime->transfer.in_current;
        if (current == NO_BLOCK) {
            uint64_t until = 0;
            struct block *next = runtime->transfer.frozen ? NULL : next_in(runtime, &until);
            if (!next) {
                if (until)
                    ebb__core_wait_until(runtime, &runtime->transfer.in_work, until);
                else
                    pthread_cond_wait(&runtime->transfer.in_work, &runtime->core.lock);
                continue;
            }
            if (!ebb__move_start_in(runtime, next))
                continue;
            current = ebb__block_index(&runtime->table, next);
            runtime->transfer.in_current = current;
            pthread_cond_signal(&runtime->transfer.in_work);
        }
        struct block *block = &runtime->table.blocks[current];
        if (!has_chunks_left(block)) {
            runtime->transfer.in_current = NO_BLOCK;
            if (block->transfer.chunks_in_flight == 0)
                ebb__move_finish_in(runtime, block);
            continue;
        }
        bool last = transfer_chunk(runtime, block, false);
        if (runtime->transfer.in_current == current && !has_chunks_left(block)) {
            runtime->transfer.in_current = NO_BLOCK;
            pthread_cond_signal(&runtime->transfer.in_work);
        }
        if (last)
            ebb__move_finish_in(runtime, block);
    }
    pthread_mutex_unlock(&runtime->core.lock);
    return NULL;
}

bool ebb__mover_start(struct ebb_runtime *runtime)
{
    unsigned out = runtime->core.config.out_workers ? runtime->core.config.out_workers
                                                    : (uint32_t)ebb__tuning()->lane_workers;
    unsigned in = runtime->core.config.in_workers ? runtime->core.config.in_workers
                                                  : (uint32_t)ebb__tuning()->lane_workers;
    if (out + in > sizeof runtime->transfer.workers / sizeof runtime->transfer.workers[0]) {
        errno = E2BIG;
        return false;
    }
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, WORKER_STACK_BYTES > (size_t)PTHREAD_STACK_MIN
                                               ? WORKER_STACK_BYTES
                                               : (size_t)PTHREAD_STACK_MIN);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the program's signals are the program's */
    runtime->transfer.worker_count = 0;
    int why = 0;
    for (unsigned i = 0; i < out + in && !why; i++) {
        why = pthread_create(&runtime->transfer.workers[i], &attributes,
                             i < out ? out_worker : in_worker, runtime);
        runtime->transfer.worker_count += !why;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (why)
        ebb__mover_stop(runtime);
    errno = why;
    return !why;
}

unsigned ebb__runtime_thread_count(const struct ebb_runtime *runtime)
{
    return runtime->transfer.worker_count;
}

void ebb__mover_stop(struct ebb_runtime *runtime)
{
    pthread_mutex_lock(&runtime->core.lock);
    runtime->transfer.stopping = true;
    pthread_cond_broadcast(&runtime->transfer.out_work);
    pthread_cond_broadcast(&runtime->transfer.in_work);
    pthread_cond_broadcast(&runtime->core.changed);
    pthread_mutex_unlock(&runtime->core.lock);
    for (unsigned i = 0; i < runtime->transfer.worker_count; i++)
        pthread_join(runtime->transfer.workers[i], NULL);
    runtime->transfer.worker_count = 0;
}
