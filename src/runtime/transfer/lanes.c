/* The lanes: workers that write blocks back and fetch them. One implementation serves both
 * directions.
 *
 * Each lane serves one block at a time, in pieces, with as many pieces in flight as it has workers.
 * So a lane is serial for the planner and busy for the disk. The worker that ends a block's last
 * piece finishes the block. Blocks that a thread waits for go first. Prefetches take pages only if
 * some are available. */
#include "runtime/transfer/transfer.h"

#include "base/threads.h"
#include "base/tuning.h"

#include <errno.h>

#define WORKER_STACK_BYTES ((size_t)256 << 10)

/* The result of a worker's look at its lane. */
enum look {
    LOOK_WAIT,  /* nothing to do yet */
    LOOK_AGAIN, /* the lock was released meanwhile, so look again */
    LOOK_FOUND,
};

/* The functions that differ between the directions. */
struct direction {
    bool is_out;
    /* Must the whole lane wait now? *until: when to look again (CLOCK_MONOTONIC), also if it need
     * not wait. 0: when woken. NULL: it never waits. */
    bool (*pauses)(struct transfer *transfer, uint64_t *until);
    /* The block to transfer next, ready except for its place in the lane. */
    enum look (*next)(struct transfer *transfer, struct block **block, uint64_t *until);
    /* Takes the block off the queue. False: there is nothing to transfer. May release the lock. */
    bool (*start)(struct transfer *transfer, struct block *block);
    void (*finish)(struct transfer *transfer, struct block *block);
};

static bool has_chunks_left(const struct block *block)
{
    return block->transfer.chunk_bytes < block->page_bytes &&
           block->transfer.end == TRANSFER_GOES_ON && !block->transfer.error &&
           block->state != BLOCK_DYING;
}

/* One piece more (1) or less (-1) is in flight: accounts for the time since the last change. */
static void count_lane(struct lane *lane, int change)
{
    struct transfer *transfer = lane->transfer;
    struct ebb_counters *counters = transfer->core->counters;
    uint64_t now = ebb__now_ns(), elapsed = now - transfer->lanes_since_ns;
    if (transfer->out.transfers)
        atomic_fetch_add(&counters->out_busy_ns, elapsed);
    if (transfer->in.transfers)
        atomic_fetch_add(&counters->in_busy_ns, elapsed);
    if (transfer->out.transfers && transfer->in.transfers)
        atomic_fetch_add(&counters->both_busy_ns, elapsed);
    transfer->lanes_since_ns = now;
    lane->transfers += (unsigned)change;
}

/* A piece is a power of two or whole units. So pieces of a block, and of its parts after a split,
 * begin at the same places in the store. A compressed frame is read from its first byte only. */
static uint64_t chunk_most(void)
{
    uint64_t bytes = ebb__tuning()->transfer_chunk_bytes;
    if (bytes >= EBB_HUGE_BYTES)
        return bytes & ~(EBB_HUGE_BYTES - 1);
    return (uint64_t)1 << (63 - __builtin_clzll(bytes));
}

/* Transfers the next piece of `block`, without the lock. True: it was the block's last. */
static bool transfer_chunk(struct lane *lane, struct block *block)
{
    struct transfer *transfer = lane->transfer;
    struct core *core = transfer->core;
    bool out = lane->direction->is_out;
    uint64_t at = block->transfer.chunk_bytes;
    uint64_t chunk = chunk_most();
    uint64_t bytes = block->page_bytes - at < chunk ? block->page_bytes - at : chunk;
    block->transfer.chunk_bytes += bytes;
    block->transfer.chunks_in_flight++;
    transfer->transfers++;
    uintptr_t staging = block->frame + at;
    uint64_t offset = block->copy.offset + at;
    const struct ebb_store store = transfer->table->copies.stores[block->copy.store];
    count_lane(lane, 1);
    struct ebb_wait *wait = ebb__waits_transfer(transfer->table, block, out);
    pthread_mutex_unlock(&core->lock);
    int why = out ? store.ops->write(store.state, (const void *)staging, bytes, offset)
                  : store.ops->read(store.state, (void *)staging, bytes, offset);
    ebb__wait_end(wait);
    pthread_mutex_lock(&core->lock);
    count_lane(lane, -1);
    atomic_fetch_add(out ? &core->counters->out_lane_bytes : &core->counters->in_lane_bytes, bytes);
    transfer->transfers--;
    block->transfer.chunks_in_flight--;
    if (why && !block->transfer.error)
        block->transfer.error = why;
    return block->transfer.chunks_in_flight == 0 && !has_chunks_left(block);
}

/* The program waits for a block that is being read, so the read gets the disk alone. A block being
 * read has its pages, so it does not wait for write backs. */
static bool gives_way(const struct transfer *transfer)
{
    return transfer->core->held && transfer->room_waits == 0 && transfer->in.transfers;
}

/* Takes pages for a block: in frames if it is to be read, in the arena if it is new. */
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

static bool out_pauses(struct transfer *transfer, uint64_t *until)
{
    *until = transfer->core->policy->fire(transfer->core->policy_context);
    uint64_t observe = transfer->observe_ns ? ebb__observe_forked(transfer, ebb__now_ns()) : 0;
    if (observe && (*until == 0 || observe < *until))
        *until = observe;
    bool pauses = gives_way(transfer);
    if (pauses)
        *until = ebb__now_ns() + ebb__tuning()->give_way_ns;
    return pauses;
}

static enum look next_out(struct transfer *transfer, struct block **block, uint64_t *until)
{
    (void)until; /* keeps the time of the next timer */
    if (transfer->out.queue.first == NO_BLOCK)
        return LOOK_WAIT;
    bool has_store = ebb__store_have(transfer);
    while (!has_store && transfer->out.queue.first != NO_BLOCK)
        ebb__move_unqueue_out(transfer, &transfer->table->blocks[transfer->out.queue.first]);
    if (transfer->out.queue.first == NO_BLOCK)
        return LOOK_AGAIN;
    *block = &transfer->table->blocks[transfer->out.queue.first];
    return LOOK_FOUND;
}

static bool start_out(struct transfer *transfer, struct block *block)
{
    bool starts = ebb__move_start_out(transfer, block);
    if (!starts)
        pthread_cond_broadcast(&transfer->core->changed);
    return starts;
}

static enum look next_in(struct transfer *transfer, struct block **block, uint64_t *until)
{
    uint32_t index = transfer->in.queue.first;
    if (index == NO_BLOCK)
        return LOOK_WAIT;
    *block = &transfer->table->blocks[index];
    /* The program's current need for memory precedes prefetches. */
    if (((*block)->transfer.urgent || transfer->room_waits == 0) && take_pages(transfer, *block))
        return LOOK_FOUND;
    transfer->no_room_ns = ebb__now_ns();
    *until = transfer->no_room_ns + 2000000; /* pages may become free without a signal */
    return LOOK_WAIT;
}

static const struct direction out_direction = {
    .is_out = true,
    .pauses = out_pauses,
    .next = next_out,
    .start = start_out,
    .finish = ebb__move_finish_out,
};

static const struct direction in_direction = {
    .next = next_in,
    .start = ebb__move_start_in,
    .finish = ebb__move_finish_in,
};

/* Another worker has started a block while this one started `block`. This worker then transfers
 * `block` alone. */
static void serve_alone(struct lane *lane, struct block *block)
{
    while (has_chunks_left(block))
        if (transfer_chunk(lane, block))
            break;
    lane->direction->finish(lane->transfer, block);
}

/* The block that the lane should serve: the current one, or the next. */
static enum look look(struct lane *lane, struct block **block, uint64_t *until)
{
    struct transfer *transfer = lane->transfer;
    const struct direction *direction = lane->direction;
    *until = 0;
    if (direction->pauses && direction->pauses(transfer, until))
        return LOOK_WAIT;
    if (lane->current != NO_BLOCK) {
        *block = &transfer->table->blocks[lane->current];
        return LOOK_FOUND;
    }
    if (transfer->phase == LANES_FROZEN)
        return LOOK_WAIT;
    enum look found = direction->next(transfer, block, until);
    if (found != LOOK_FOUND)
        return found;
    if (!direction->start(transfer, *block))
        return LOOK_AGAIN;
    if (lane->current != NO_BLOCK) {
        serve_alone(lane, *block);
        return LOOK_AGAIN;
    }
    lane->current = ebb__block_index(transfer->table, *block);
    pthread_cond_signal(&lane->work);
    return LOOK_FOUND;
}

/* Transfers the next piece of the lane's block. The worker that ends the last piece finishes it. */
static void serve(struct lane *lane, struct block *block)
{
    uint32_t index = ebb__block_index(lane->transfer->table, block);
    if (!has_chunks_left(block)) {
        /* The transfer was cancelled before its next piece. */
        lane->current = NO_BLOCK;
        if (block->transfer.chunks_in_flight == 0)
            lane->direction->finish(lane->transfer, block);
        return;
    }
    bool last = transfer_chunk(lane, block);
    if (lane->current == index && !has_chunks_left(block)) {
        lane->current = NO_BLOCK;
        pthread_cond_signal(&lane->work);
    }
    if (last)
        lane->direction->finish(lane->transfer, block);
}

static void *work(void *argument)
{
    struct lane *lane = argument;
    struct core *core = lane->transfer->core;
    pthread_mutex_lock(&core->lock);
    while (lane->transfer->phase != LANES_STOP) {
        struct block *block = NULL;
        uint64_t until;
        enum look found = look(lane, &block, &until);
        if (found == LOOK_FOUND)
            serve(lane, block);
        else if (found == LOOK_WAIT && until)
            ebb__core_wait_until(core, &lane->work, until);
        else if (found == LOOK_WAIT)
            pthread_cond_wait(&lane->work, &core->lock);
    }
    pthread_mutex_unlock(&core->lock);
    return NULL;
}

static void init_lane(struct transfer *transfer, struct lane *lane,
                      const struct direction *direction)
{
    *lane = (struct lane){.transfer = transfer, .direction = direction};
    pthread_cond_init(&lane->work, NULL);
}

void ebb__lanes_init(struct transfer *transfer)
{
    init_lane(transfer, &transfer->out, &out_direction);
    init_lane(transfer, &transfer->in, &in_direction);
    transfer->phase = LANES_RUN;
}

bool ebb__lanes_are_idle(const struct transfer *transfer)
{
    return transfer->out.queue.first == NO_BLOCK && transfer->out.current == NO_BLOCK &&
           transfer->in.queue.first == NO_BLOCK && transfer->in.current == NO_BLOCK &&
           transfer->transfers == 0;
}

void ebb__lanes_wake(struct transfer *transfer)
{
    pthread_cond_broadcast(&transfer->out.work);
    pthread_cond_broadcast(&transfer->in.work);
}

bool ebb__mover_start(struct transfer *transfer)
{
    unsigned out = transfer->core->config.out_workers ? transfer->core->config.out_workers
                                                      : (unsigned)ebb__tuning()->lane_workers;
    unsigned in = transfer->core->config.in_workers ? transfer->core->config.in_workers
                                                    : (unsigned)ebb__tuning()->lane_workers;
    if (out + in > sizeof transfer->workers / sizeof transfer->workers[0]) {
        errno = E2BIG;
        return false;
    }
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    transfer->worker_count = 0;
    int why = 0;
    for (unsigned i = 0; i < out + in && !why; i++) {
        why = ebb__thread_create(&transfer->workers[i], &attributes, WORKER_STACK_BYTES, work,
                                 i < out ? &transfer->out : &transfer->in);
        transfer->worker_count += !why;
    }
    pthread_attr_destroy(&attributes);
    if (why)
        ebb__mover_stop(transfer);
    errno = why;
    return !why;
}

void ebb__mover_stop(struct transfer *transfer)
{
    pthread_mutex_lock(&transfer->core->lock);
    transfer->phase = LANES_STOP;
    ebb__lanes_wake(transfer);
    pthread_cond_broadcast(&transfer->core->changed);
    pthread_mutex_unlock(&transfer->core->lock);
    for (unsigned i = 0; i < transfer->worker_count; i++)
        pthread_join(transfer->workers[i], NULL);
    transfer->worker_count = 0;
}
