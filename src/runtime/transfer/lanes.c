/* The lanes: workers that write what leaves and read what comes back.
 *
 * Each lane serves one block at a time, in pieces, with as many pieces in flight as it has
 * workers; so a lane is serial for the planner and busy for the disk. Whoever finishes the last
 * piece of a block finishes the block. What somebody waits for goes first; what merely returns by
 * plan takes pages only where there are some. */
#include "runtime/transfer/transfer.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>

/* So many pieces in flight keep the disk busy while a worker waits for a core that the program uses: two
 * reach 80 to 85 % of it, four all. */
#define DEFAULT_WORKERS 4
#define GIVE_WAY_NS ((uint64_t)1000000)
#define WORKER_STACK_BYTES ((size_t)256 << 10)

static bool has_chunks_left(const struct block *block)
{
    return block->transfer.chunk_bytes < block->page_bytes && !block->transfer.cancelled &&
           !block->transfer.error && block->state != BLOCK_DYING;
}

/* A piece more (1) or less (-1) is in flight in a lane: account for the time since the last change. */
static void count_lane(struct transfer *transfer, bool out, int change)
{
    struct ebb_counters *counters = transfer->core->counters;
    uint64_t now = ebb__now_ns(), elapsed = now - transfer->lanes_since_ns;
    if (transfer->lane_transfers[true])
        atomic_fetch_add(&counters->out_busy_ns, elapsed);
    if (transfer->lane_transfers[false])
        atomic_fetch_add(&counters->in_busy_ns, elapsed);
    if (transfer->lane_transfers[true] && transfer->lane_transfers[false])
        atomic_fetch_add(&counters->both_busy_ns, elapsed);
    transfer->lanes_since_ns = now;
    transfer->lane_transfers[out] += (unsigned)change;
}

/* Transfer the next piece of `block`, without the lock; true: it was the block's last. */
static bool transfer_chunk(struct transfer *transfer, struct block *block, bool out)
{
    uint64_t at = block->transfer.chunk_bytes;
    uint64_t bytes = block->page_bytes - at < CHUNK_BYTES ? block->page_bytes - at : CHUNK_BYTES;
    block->transfer.chunk_bytes += bytes;
    block->transfer.chunks_in_flight++;
    transfer->transfers++;
    uintptr_t staging = block->frame + at;
    uint64_t offset = block->copy.offset + at;
    const struct ebb_store store = transfer->table->copies.stores[block->copy.store];
    count_lane(transfer, out, 1);
    struct ebb_wait *wait = ebb__waits_transfer(transfer->table, block, out);
    pthread_mutex_unlock(&transfer->core->lock);
    int why = out ? store.ops->write(store.state, (const void *)staging, bytes, offset)
                  : store.ops->read(store.state, (void *)staging, bytes, offset);
    ebb__wait_end(wait);
    pthread_mutex_lock(&transfer->core->lock);
    count_lane(transfer, out, -1);
    atomic_fetch_add(out ? &transfer->core->counters->out_lane_bytes
                         : &transfer->core->counters->in_lane_bytes,
                     bytes);
    transfer->transfers--;
    block->transfer.chunks_in_flight--;
    if (why && !block->transfer.error)
        block->transfer.error = why;
    return block->transfer.chunks_in_flight == 0 && !has_chunks_left(block);
}

/* The program waits for a block that is being read: the disk is the read's. What is read has its pages,
 * so it does not wait for what leaves. */
static bool gives_way(const struct transfer *transfer)
{
    return transfer->core->held && transfer->room_waits == 0 && transfer->lane_transfers[false];
}

static void *out_worker(void *argument)
{
    struct transfer *transfer = argument;
    pthread_mutex_lock(&transfer->core->lock);
    while (!transfer->stopping) {
        uint64_t timer_ns = transfer->core->policy->fire(transfer->core->policy_context);
        uint32_t current = transfer->out_current;
        if (gives_way(transfer)) {
            ebb__core_wait_until(transfer->core, &transfer->out_work, ebb__now_ns() + GIVE_WAY_NS);
            continue;
        }
        if (current == NO_BLOCK) {
            if (transfer->frozen || transfer->out_queue.first == NO_BLOCK) {
                if (timer_ns)
                    ebb__core_wait_until(transfer->core, &transfer->out_work, timer_ns);
                else
                    pthread_cond_wait(&transfer->out_work, &transfer->core->lock);
                continue;
            }
            if (!ebb__store_have(transfer)) {
                while (transfer->out_queue.first != NO_BLOCK)
                    ebb__move_unqueue_out(transfer,
                                          &transfer->table->blocks[transfer->out_queue.first]);
                continue;
            }
            if (transfer->out_queue.first == NO_BLOCK)
                continue; /* the lock was released meanwhile */
            current = transfer->out_queue.first;
            if (!ebb__move_start_out(transfer, &transfer->table->blocks[current])) {
                pthread_cond_broadcast(&transfer->core->changed);
                continue;
            }
            if (transfer->out_current != NO_BLOCK) {
                /* Another worker started a block while this one hashed: write ours alone. */
                while (has_chunks_left(&transfer->table->blocks[current]))
                    if (transfer_chunk(transfer, &transfer->table->blocks[current], true))
                        break;
                ebb__move_finish_out(transfer, &transfer->table->blocks[current]);
                continue;
            }
            transfer->out_current = current;
            pthread_cond_signal(&transfer->out_work);
        }
        struct block *block = &transfer->table->blocks[current];
        if (!has_chunks_left(block)) {
            /* Cancelled before its first or next piece. */
            transfer->out_current = NO_BLOCK;
            if (block->transfer.chunks_in_flight == 0)
                ebb__move_finish_out(transfer, block);
            continue;
        }
        bool last = transfer_chunk(transfer, block, true);
        if (transfer->out_current == current && !has_chunks_left(block)) {
            transfer->out_current = NO_BLOCK;
            pthread_cond_signal(&transfer->out_work);
        }
        if (last)
            ebb__move_finish_out(transfer, block);
    }
    pthread_mutex_unlock(&transfer->core->lock);
    return NULL;
}

/* Pages for a block that comes: in frames for what is to be read, in the arena where it is new. */
static bool take_pages(struct transfer *transfer, struct block *block)
{
    bool is_new = block->state == BLOCK_BARE;
    uint64_t bytes = block->page_bytes;
    if (is_new ? ebb__pages_take(transfer->memory, block->address, bytes)
               : (block->frame = ebb__pages_take_frame(transfer->memory, bytes)) != 0)
        return true;
    if (!block->transfer.urgent || transfer->core->policy->make_room(transfer->core->policy_context,
                                                                     bytes, &block->wait.asking))
        return false;
    return is_new ? ebb__pages_force(transfer->memory, block->address, bytes)
                  : (block->frame = ebb__pages_force_frame(transfer->memory, bytes)) != 0;
}

/* The block that should come next and has its pages; NULL: none. *until: when to look again. */
static struct block *next_in(struct transfer *transfer, uint64_t *until)
{
    *until = 0;
    uint32_t index = transfer->in_queue.first;
    if (index == NO_BLOCK)
        return NULL;
    struct block *block = &transfer->table->blocks[index];
    /* The program's own need for room comes before what it may need soon. */
    if ((block->transfer.urgent || transfer->room_waits == 0) && take_pages(transfer, block))
        return block;
    transfer->no_room_ns = ebb__now_ns();
    *until = transfer->no_room_ns + 2000000; /* pages come free without a signal too */
    return NULL;
}

static void *in_worker(void *argument)
{
    struct transfer *transfer = argument;
    pthread_mutex_lock(&transfer->core->lock);
    while (!transfer->stopping) {
        uint32_t current = transfer->in_current;
        if (current == NO_BLOCK) {
            uint64_t until = 0;
            struct block *next = transfer->frozen ? NULL : next_in(transfer, &until);
            if (!next) {
                if (until)
                    ebb__core_wait_until(transfer->core, &transfer->in_work, until);
                else
                    pthread_cond_wait(&transfer->in_work, &transfer->core->lock);
                continue;
            }
            if (!ebb__move_start_in(transfer, next))
                continue;
            current = ebb__block_index(transfer->table, next);
            transfer->in_current = current;
            pthread_cond_signal(&transfer->in_work);
        }
        struct block *block = &transfer->table->blocks[current];
        if (!has_chunks_left(block)) {
            transfer->in_current = NO_BLOCK;
            if (block->transfer.chunks_in_flight == 0)
                ebb__move_finish_in(transfer, block);
            continue;
        }
        bool last = transfer_chunk(transfer, block, false);
        if (transfer->in_current == current && !has_chunks_left(block)) {
            transfer->in_current = NO_BLOCK;
            pthread_cond_signal(&transfer->in_work);
        }
        if (last)
            ebb__move_finish_in(transfer, block);
    }
    pthread_mutex_unlock(&transfer->core->lock);
    return NULL;
}

bool ebb__mover_start(struct transfer *transfer)
{
    unsigned out =
        transfer->core->config.out_workers ? transfer->core->config.out_workers : DEFAULT_WORKERS;
    unsigned in =
        transfer->core->config.in_workers ? transfer->core->config.in_workers : DEFAULT_WORKERS;
    if (out + in > sizeof transfer->workers / sizeof transfer->workers[0]) {
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
    transfer->worker_count = 0;
    int why = 0;
    for (unsigned i = 0; i < out + in && !why; i++) {
        why = pthread_create(&transfer->workers[i], &attributes, i < out ? out_worker : in_worker,
                             transfer);
        transfer->worker_count += !why;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (why)
        ebb__mover_stop(transfer);
    errno = why;
    return !why;
}

void ebb__mover_stop(struct transfer *transfer)
{
    pthread_mutex_lock(&transfer->core->lock);
    transfer->stopping = true;
    pthread_cond_broadcast(&transfer->out_work);
    pthread_cond_broadcast(&transfer->in_work);
    pthread_cond_broadcast(&transfer->core->changed);
    pthread_mutex_unlock(&transfer->core->lock);
    for (unsigned i = 0; i < transfer->worker_count; i++)
        pthread_join(transfer->workers[i], NULL);
    transfer->worker_count = 0;
}
