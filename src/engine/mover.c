/* The lanes: workers that write what leaves and read what comes back.
 *
 * Each lane serves one block at a time, in pieces, with as many pieces in flight as it has
 * workers; so a lane is serial for the planner and busy for the disk. Whoever finishes the last
 * piece of a block finishes the block. What somebody waits for goes first; what merely returns by
 * plan takes pages only where there are some. */
#include "engine/internal.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>

/* So many pieces in flight keep the disk busy while a worker waits for a core that the program uses: two
 * reach 80 to 85 % of it, four all. */
#define DEFAULT_WORKERS 4
#define GIVE_WAY_NS ((uint64_t)1000000)
#define WORKER_STACK_BYTES ((size_t)256 << 10)

static bool wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t ns)
{
    struct timespec until = {.tv_sec = (time_t)(ns / 1000000000),
                             .tv_nsec = (long)(ns % 1000000000)};
    return pthread_cond_clockwait(condition, lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT;
}

/* Opens the store at the first need; false where there is none. Releases the lock meanwhile. */
static bool have_store(struct ebb_engine *engine)
{
    while (engine->store_opening)
        pthread_cond_wait(&engine->changed, &engine->lock);
    if (engine->store_open || engine->store_failed)
        return engine->store_open && !engine->store_failed;
    if (!engine->config.open_store) {
        engine->store_failed = true;
        return false;
    }
    engine->store_opening = true;
    pthread_mutex_unlock(&engine->lock);
    struct ebb_error error;
    struct ebb_store store;
    struct ebb_wait *wait = ebb__waits_open(engine);
    enum ebb_status status = engine->config.open_store(engine->config.context, &store, &error);
    ebb__wait_end(wait);
    pthread_mutex_lock(&engine->lock);
    engine->store_opening = false;
    if (status == EBB_OK) {
        engine->stores[engine->store_current] = store;
        engine->extents.limit_bytes = store.limit_bytes;
        engine->store_open = true;
    } else {
        engine->store_failed = true;
        atomic_store(&engine->counters->store_error, EIO);
        ebb__engine_warn(engine, "the store cannot be opened: the budget is NOT kept");
    }
    pthread_cond_broadcast(&engine->changed);
    return engine->store_open;
}

static bool has_chunks_left(const struct block *block)
{
    return block->chunk_bytes < block->page_bytes && !block->cancelled && !block->transfer_error &&
           block->state != BLOCK_DYING;
}

/* A piece more (1) or less (-1) is in flight in a lane: account for the time since the last change. */
static void count_lane(struct ebb_engine *engine, bool out, int change)
{
    struct ebb_counters *counters = engine->counters;
    uint64_t now = ebb__now_ns(), elapsed = now - engine->lanes_since_ns;
    if (engine->lane_transfers[true])
        atomic_fetch_add(&counters->out_busy_ns, elapsed);
    if (engine->lane_transfers[false])
        atomic_fetch_add(&counters->in_busy_ns, elapsed);
    if (engine->lane_transfers[true] && engine->lane_transfers[false])
        atomic_fetch_add(&counters->both_busy_ns, elapsed);
    engine->lanes_since_ns = now;
    engine->lane_transfers[out] += (unsigned)change;
}

/* Transfer the next piece of `block`, without the lock; true: it was the block's last. */
static bool transfer_chunk(struct ebb_engine *engine, struct block *block, bool out)
{
    uint64_t at = block->chunk_bytes;
    uint64_t bytes = block->page_bytes - at < CHUNK_BYTES ? block->page_bytes - at : CHUNK_BYTES;
    block->chunk_bytes += bytes;
    block->chunks_in_flight++;
    engine->transfers++;
    uintptr_t staging = block->frame + at;
    uint64_t offset = block->store_offset + at;
    const struct ebb_store store = engine->stores[block->store];
    count_lane(engine, out, 1);
    struct ebb_wait *wait = ebb__waits_transfer(engine, block, out);
    pthread_mutex_unlock(&engine->lock);
    int why = out ? store.ops->write(store.state, (const void *)staging, bytes, offset)
                  : store.ops->read(store.state, (void *)staging, bytes, offset);
    ebb__wait_end(wait);
    pthread_mutex_lock(&engine->lock);
    count_lane(engine, out, -1);
    atomic_fetch_add(out ? &engine->counters->out_lane_bytes : &engine->counters->in_lane_bytes,
                     bytes);
    engine->transfers--;
    block->chunks_in_flight--;
    if (why && !block->transfer_error)
        block->transfer_error = why;
    return block->chunks_in_flight == 0 && !has_chunks_left(block);
}

/* The program waits for a block that is being read: the disk is the read's. What is read has its pages,
 * so it does not wait for what leaves. */
static bool gives_way(const struct ebb_engine *engine)
{
    return engine->held && engine->room_waits == 0 && engine->lane_transfers[false];
}

static void *out_worker(void *argument)
{
    struct ebb_engine *engine = argument;
    pthread_mutex_lock(&engine->lock);
    while (!engine->stopping) {
        uint64_t timer_ns = ebb__timers_fire(engine);
        uint32_t current = engine->out_current;
        if (gives_way(engine)) {
            wait_until(&engine->out_work, &engine->lock, ebb__now_ns() + GIVE_WAY_NS);
            continue;
        }
        if (current == NO_BLOCK) {
            if (engine->frozen || engine->out_queue.first == NO_BLOCK) {
                if (timer_ns)
                    wait_until(&engine->out_work, &engine->lock, timer_ns);
                else
                    pthread_cond_wait(&engine->out_work, &engine->lock);
                continue;
            }
            if (!have_store(engine)) {
                while (engine->out_queue.first != NO_BLOCK)
                    ebb__move_unqueue_out(engine, &engine->blocks[engine->out_queue.first]);
                continue;
            }
            if (engine->out_queue.first == NO_BLOCK)
                continue; /* the lock was released meanwhile */
            current = engine->out_queue.first;
            if (!ebb__move_start_out(engine, &engine->blocks[current])) {
                pthread_cond_broadcast(&engine->changed);
                continue;
            }
            if (engine->out_current != NO_BLOCK) {
                /* Another worker started a block while this one hashed: write ours alone. */
                while (has_chunks_left(&engine->blocks[current]))
                    if (transfer_chunk(engine, &engine->blocks[current], true))
                        break;
                ebb__move_finish_out(engine, &engine->blocks[current]);
                continue;
            }
            engine->out_current = current;
            pthread_cond_signal(&engine->out_work);
        }
        struct block *block = &engine->blocks[current];
        if (!has_chunks_left(block)) {
            /* Cancelled before its first or next piece. */
            engine->out_current = NO_BLOCK;
            if (block->chunks_in_flight == 0)
                ebb__move_finish_out(engine, block);
            continue;
        }
        bool last = transfer_chunk(engine, block, true);
        if (engine->out_current == current && !has_chunks_left(block)) {
            engine->out_current = NO_BLOCK;
            pthread_cond_signal(&engine->out_work);
        }
        if (last)
            ebb__move_finish_out(engine, block);
    }
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}

/* A block that comes back by plan, and nobody waits for; NULL: none. */
static struct block *early_comer(struct ebb_engine *engine)
{
    for (uint32_t i = 1; i <= engine->block_count; i++) {
        struct block *block = &engine->blocks[i];
        if (block->state == BLOCK_COMING && !block->cancelled && !block->urgent &&
            block->fault_ns == 0)
            return block;
    }
    return NULL;
}

bool ebb__mover_make_room(struct ebb_engine *engine, uint64_t bytes)
{
    /* What is on its way out counts; what is still lacking must be evicted. */
    uint64_t available = ebb__pages_available(engine);
    uint64_t coming_free = engine->out_pending_bytes;
    if (engine->store_failed)
        return coming_free > 0;
    while (available + coming_free < bytes) {
        struct block *victim = ebb__victim_choose(engine);
        if (!victim)
            break;
        coming_free += victim->page_bytes;
        ebb__move_evict(engine, victim);
    }
    struct block *comer;
    while (available + coming_free < bytes && (comer = early_comer(engine))) {
        coming_free += comer->page_bytes;
        ebb__feedback_early(engine, comer);
        ebb__move_give_up(engine, comer);
    }
    return coming_free > 0;
}

/* Others are given PATIENCE_NS to let go of what a starving process needs, from when the parent has
 * passed the request on: while it plans it passes nothing on. */
#define PATIENCE_NS ((uint64_t)500000000)
#define PATIENCE_WITH_PARENT_NS ((uint64_t)10000000000)
#define ALONE_NS ((uint64_t)5000000000)

bool ebb__mover_ask_others(struct ebb_engine *engine, uint64_t bytes, struct asking *asking)
{
    struct ebb_ledger *ledger = engine->ledger;
    uint64_t own = atomic_load(&engine->counters->held_bytes), now = ebb__now_ns();
    uint64_t passed_on = atomic_load(&ledger->passed_on);
    if (asking->since_ns == 0)
        *asking = (struct asking){.since_ns = now, .passed_on = passed_on};
    if (atomic_load(&ledger->held_bytes) <= own || now < engine->alone_until_ns ||
        atomic_load(&engine->ring->parent_gone))
        return false;
    if (passed_on != asking->passed_on && !asking->is_heard) {
        asking->since_ns = now;
        asking->is_heard = true;
    }
    if (now - asking->since_ns > (asking->is_heard ? PATIENCE_NS : PATIENCE_WITH_PARENT_NS)) {
        engine->alone_until_ns = now + ALONE_NS;
        return false;
    }
    atomic_store(&ledger->starving_process, engine->config.process_id);
    atomic_store(&ledger->starving_bytes, bytes);
    wait_until(&engine->changed, &engine->lock, now + 5000000);
    return true;
}

/* Pages for a block that comes: in frames for what is to be read, in the arena where it is new. */
static bool take_pages(struct ebb_engine *engine, struct block *block)
{
    bool is_new = block->state == BLOCK_BARE;
    uint64_t bytes = block->page_bytes;
    if (is_new ? ebb__pages_take(engine, block->address, bytes)
               : (block->frame = ebb__pages_take_frame(engine, bytes)) != 0)
        return true;
    if (!block->urgent || ebb__mover_make_room(engine, bytes) ||
        ebb__mover_ask_others(engine, bytes, &block->asking))
        return false;
    return is_new ? ebb__pages_force(engine, block->address, bytes)
                  : (block->frame = ebb__pages_force_frame(engine, bytes)) != 0;
}

/* The block that should come next and has its pages; NULL: none. *until: when to look again. */
static struct block *next_in(struct ebb_engine *engine, uint64_t *until)
{
    *until = 0;
    uint32_t index = engine->in_queue.first;
    if (index == NO_BLOCK)
        return NULL;
    struct block *block = &engine->blocks[index];
    /* The program's own need for room comes before what it may need soon. */
    if ((block->urgent || engine->room_waits == 0) && take_pages(engine, block))
        return block;
    engine->no_room_ns = ebb__now_ns();
    *until = engine->no_room_ns + 2000000; /* pages come free without a signal too */
    return NULL;
}

static void *in_worker(void *argument)
{
    struct ebb_engine *engine = argument;
    pthread_mutex_lock(&engine->lock);
    while (!engine->stopping) {
        uint32_t current = engine->in_current;
        if (current == NO_BLOCK) {
            uint64_t until = 0;
            struct block *next = engine->frozen ? NULL : next_in(engine, &until);
            if (!next) {
                if (until)
                    wait_until(&engine->in_work, &engine->lock, until);
                else
                    pthread_cond_wait(&engine->in_work, &engine->lock);
                continue;
            }
            if (!ebb__move_start_in(engine, next))
                continue;
            current = ebb__block_index(engine, next);
            engine->in_current = current;
            pthread_cond_signal(&engine->in_work);
        }
        struct block *block = &engine->blocks[current];
        if (!has_chunks_left(block)) {
            engine->in_current = NO_BLOCK;
            if (block->chunks_in_flight == 0)
                ebb__move_finish_in(engine, block);
            continue;
        }
        bool last = transfer_chunk(engine, block, false);
        if (engine->in_current == current && !has_chunks_left(block)) {
            engine->in_current = NO_BLOCK;
            pthread_cond_signal(&engine->in_work);
        }
        if (last)
            ebb__move_finish_in(engine, block);
    }
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}

bool ebb__mover_start(struct ebb_engine *engine)
{
    unsigned out = engine->config.out_workers ? engine->config.out_workers : DEFAULT_WORKERS;
    unsigned in = engine->config.in_workers ? engine->config.in_workers : DEFAULT_WORKERS;
    if (out + in > sizeof engine->workers / sizeof engine->workers[0]) {
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
    engine->worker_count = 0;
    int why = 0;
    for (unsigned i = 0; i < out + in && !why; i++) {
        why = pthread_create(&engine->workers[i], &attributes, i < out ? out_worker : in_worker,
                             engine);
        engine->worker_count += !why;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (why)
        ebb__mover_stop(engine);
    errno = why;
    return !why;
}

unsigned ebb__engine_thread_count(const struct ebb_engine *engine)
{
    return engine->worker_count;
}

void ebb__mover_stop(struct ebb_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    engine->stopping = true;
    pthread_cond_broadcast(&engine->out_work);
    pthread_cond_broadcast(&engine->in_work);
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
    for (unsigned i = 0; i < engine->worker_count; i++)
        pthread_join(engine->workers[i], NULL);
    engine->worker_count = 0;
}
