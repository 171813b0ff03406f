/* The engine as a whole: its life, its lock, its streams. */
#include "cuda/internal.h"

#include "base/clock.h"
#include "base/tuning.h"
#include "cuda/memory.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- the lock -------------------------------------------------------------------------------- */

/* A child of a fork must not touch a lock that another thread may have held. To ask for the process
 * is a system call. So the library that forks tells the engine: ebb__cuda_abandon(). */
bool ebb__cuda_lock(struct ebb_cuda *engine)
{
    if (atomic_load_explicit(&engine->is_abandoned, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&engine->lock);
    if (!atomic_load_explicit(&engine->is_abandoned, memory_order_relaxed))
        return true;
    pthread_mutex_unlock(&engine->lock);
    return false;
}

static void tell(struct ebb_cuda *engine, uint32_t news)
{
    char text[256];
    if (!engine->config.warn)
        return;
    if (news & CUDA_NEWS_HOST_FULL)
        engine->config.warn(engine->config.warn_context,
                            "the budget of host memory is full: nothing more is evicted from the "
                            "GPU");
    if (news & CUDA_NEWS_NO_WAITS)
        engine->config.warn(engine->config.warn_context,
                            "the GPU has no waits on memory: launches wait for transfers");
    if (news & CUDA_NEWS_STREAMS)
        engine->config.warn(engine->config.warn_context,
                            "the program uses too many streams at a time: some work waits");
    if (news & CUDA_NEWS_AWAY)
        engine->config.warn(engine->config.warn_context,
                            "the GPU's budget is full of blocks that cannot leave now: a new one "
                            "begins in host memory, which is slower");
    if (news & CUDA_NEWS_TOO_LARGE) {
        snprintf(text, sizeof text,
                 "one operation uses %.1f MiB, more than the GPU's budget: it reads a part from "
                 "host memory",
                 (double)engine->tidings.too_large_bytes / 1048576);
        engine->config.warn(engine->config.warn_context, text);
    }
}

void ebb__cuda_news(struct ebb_cuda *engine, enum cuda_news news)
{
    if (!(engine->tidings.told & news))
        engine->tidings.news |= news;
}

void ebb__cuda_unlock(struct ebb_cuda *engine)
{
    if (engine->room.is_host_full)
        ebb__cuda_news(engine, CUDA_NEWS_HOST_FULL);
    bool must_wake = engine->streams.has_news;
    uint32_t news = engine->tidings.news;
    engine->streams.has_news = false;
    engine->tidings.told |= news;
    engine->tidings.news = 0;
    ebb__cuda_check(engine);
    pthread_mutex_unlock(&engine->lock);
    if (must_wake)
        ebb__mover_wake(engine->mover);
    if (news)
        tell(engine, news);
}

uint64_t ebb__cuda_random(struct ebb_cuda *engine)
{
    uint64_t x = engine->random += 0x9e3779b97f4a7c15ull; /* splitmix64 */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* Host memory is pinned there. */
static void limit_to_pinned(struct ebb_cuda_config *config)
{
    uint64_t pinned = config->pinned_budget_bytes;
    uint64_t left = pinned == UINT64_MAX       ? pinned
                    : pinned > CUDA_FLAG_BYTES ? pinned - CUDA_FLAG_BYTES
                                               : 0;
    if (config->host_budget_bytes > left)
        config->host_budget_bytes = left;
}

static enum ebb_status make_backing(struct ebb_cuda *engine, struct ebb_error *error)
{
    switch (engine->config.backing) {
    case EBB_CUDA_MANAGED:
        return ebb__managed_create(&engine->config, &engine->backing, error);
    case EBB_CUDA_VMM_HOST:
    case EBB_CUDA_VMM_TRUSTING:
        limit_to_pinned(&engine->config);
        return ebb__vmm_host_create(&engine->config, &engine->backing, error);
    case EBB_CUDA_NATIVE:
        return ebb__native_create(&engine->config, &engine->backing, error);
    default:
        return ebb__fail(error, EBB_ERR_UNSUPPORTED, "CUDA", "there is no such backing");
    }
}

static bool make_storage(struct ebb_cuda *engine)
{
    engine->scratch.events =
        ebb__cuda_reserve(CUDA_MOST_EVENTS_A_WORK * sizeof *engine->scratch.events);
    engine->scratch.blocks = ebb__cuda_reserve(CUDA_MOST_BLOCKS * sizeof *engine->scratch.blocks);
    engine->holds.items = ebb__cuda_reserve(CUDA_MOST_BLOCKS * sizeof *engine->holds.items);
    engine->holds.used = 1;
    return engine->scratch.events && engine->scratch.blocks && engine->holds.items &&
           ebb__table_init(&engine->table) &&
           ebb__streams_init(&engine->streams, engine->config.driver, engine->config.context) &&
           ebb__pool_init(&engine->pool, &engine->table, &engine->streams) &&
           ebb__slabs_init(&engine->slabs, &engine->table, &engine->streams) &&
           (engine->follow = ebb__follow_create(CUDA_MOST_BLOCKS));
}

static void free_storage(struct ebb_cuda *engine, bool is_abandoned)
{
    if (engine->follow)
        ebb__follow_destroy(engine->follow);
    ebb__slabs_fini(&engine->slabs);
    ebb__pool_fini(&engine->pool);
    ebb__streams_fini(&engine->streams, is_abandoned);
    ebb__table_fini(&engine->table);
    ebb__cuda_unreserve(engine->holds.items, CUDA_MOST_BLOCKS * sizeof *engine->holds.items);
    ebb__cuda_unreserve(engine->scratch.blocks, CUDA_MOST_BLOCKS * sizeof *engine->scratch.blocks);
    ebb__cuda_unreserve(engine->scratch.events,
                        CUDA_MOST_EVENTS_A_WORK * sizeof *engine->scratch.events);
    pthread_mutex_destroy(&engine->lock);
    ebb__cuda_unreserve(engine, sizeof *engine);
}

static enum ebb_status make_mover(struct ebb_cuda *engine, uint32_t first_arrival,
                                  struct ebb_error *error)
{
    struct cuda_mover_config config = {.engine = &engine->config,
                                       .backing = engine->backing,
                                       .streams = &engine->streams,
                                       .table = &engine->table,
                                       .clock = engine->clock,
                                       .gate = &engine->gate,
                                       .engine_lock = &engine->lock,
                                       .first_arrival = first_arrival};
    engine->swept_arrival = first_arrival;
    engine->gate.is_used = engine->backing->ops->needs_quiet;
    return ebb__mover_create(&config, &engine->mover, error);
}

static void connect_parts(struct ebb_cuda *engine)
{
    size_t free_bytes = 0, total_bytes = 0;
    struct cuda_visit visit = ebb__streams_enter(&engine->streams);
    engine->config.driver->cuMemGetInfo_v2(&free_bytes, &total_bytes);
    ebb__streams_leave(&engine->streams, visit);
    engine->pool.outs_over = ebb__mover_outs_over(engine->mover);
    engine->pool.keeps_runs = engine->backing->ops->moves_whole;
    engine->pool.chunk_units = engine->backing->chunk_units;
    atomic_store(&engine->config.ring->counters.place_unit_bytes,
                 engine->backing->chunk_units * EBB_CUDA_UNIT_BYTES);
    engine->room = (struct cuda_room){.config = &engine->config,
                                      .table = &engine->table,
                                      .streams = &engine->streams,
                                      .pool = &engine->pool,
                                      .mover = engine->mover,
                                      .backing = engine->backing,
                                      .follow = engine->follow,
                                      .process = (uint32_t)engine->process,
                                      .card_bytes = free_bytes};
}

static void init_lock(struct ebb_cuda *engine)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP); /* spins before it sleeps */
    pthread_mutex_init(&engine->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

enum ebb_status ebb__cuda_create_at(const struct ebb_cuda_config *config, uint32_t first_arrival,
                                    struct ebb_cuda **made, struct ebb_error *error)
{
    struct ebb_cuda *engine = ebb__cuda_reserve(sizeof *engine);
    if (!engine)
        return ebb__fail(error, EBB_ERR_MEMORY, "CUDA", "memory is exhausted");
    engine->config = *config;
    engine->process = getpid();
    engine->random = config->chaos_seed;
    init_lock(engine);
    enum ebb_status status = make_storage(engine)
                                 ? EBB_OK
                                 : ebb__fail(error, EBB_ERR_MEMORY, "CUDA", "memory is exhausted");
    if (status == EBB_OK)
        status = make_backing(engine, error);
    if (status == EBB_OK)
        status =
            ebb__clock_create(config->driver, config->context, config->ring, &engine->clock, error);
    if (status == EBB_OK)
        status = make_mover(engine, first_arrival, error);
    if (status != EBB_OK) {
        if (engine->clock)
            ebb__clock_destroy(engine->clock);
        if (engine->backing)
            engine->backing->ops->destroy(engine->backing);
        free_storage(engine, true);
        return status;
    }
    connect_parts(engine);
    atomic_store(&config->ring->counters.managing, 1);
    *made = engine;
    return EBB_OK;
}

enum ebb_status ebb__cuda_create(const struct ebb_cuda_config *config, struct ebb_cuda **engine,
                                 struct ebb_error *error)
{
    return ebb__cuda_create_at(config, 2, engine, error);
}

/* The ledger has nothing of this process any more. */
static void release_all(struct ebb_cuda *engine)
{
    uint64_t held = ebb__mover_held_bytes(engine->mover) + engine->room.shared.bytes;
    ebb__ledger_release(engine->config.ledger, engine->config.slot, held);
    ebb__away_give(&engine->backing->away, atomic_load(&engine->backing->away.bytes));
    atomic_store(&engine->config.ring->counters.held_bytes, 0);
}

/* The program may have freed blocks that queued work uses. To unmap them does not wait for it. */
static void await_work(struct ebb_cuda *engine)
{
    const struct timespec pause = {.tv_nsec = 20000};
    uint64_t since_ns = ebb__now_ns();
    uint32_t events[CUDA_MOST_STREAMS], count = 0;
    pthread_mutex_lock(&engine->lock);
    ebb__streams_fence(&engine->streams, events, &count);
    pthread_mutex_unlock(&engine->lock);
    while (count > 0) {
        if (ebb__streams_event_is_over(&engine->streams, events[count - 1]))
            ebb__streams_release(&engine->streams, events[--count]);
        else if (ebb__now_ns() - since_ns > ebb__tuning()->cuda_patience_ns)
            return;
        else
            nanosleep(&pause, NULL);
    }
}

void ebb__cuda_destroy(struct ebb_cuda *engine)
{
    bool is_abandoned = atomic_load(&engine->is_abandoned);
    if (!is_abandoned) {
        ebb__mover_stop(engine->mover, false, false);
        struct cuda_visit visit = ebb__streams_enter(&engine->streams);
        if (!engine->backing->ops->is_coherent)
            await_work(engine);
        for (uint32_t i = 0; i < atomic_load(&engine->table.region_count); i++)
            engine->backing->ops->release(engine->backing, engine->table.regions[i].first,
                                          engine->table.regions[i].bytes);
        ebb__streams_leave(&engine->streams, visit);
        release_all(engine);
    }
    struct cuda_visit visit = {0};
    if (!is_abandoned)
        visit = ebb__streams_enter(&engine->streams);
    ebb__clock_destroy(engine->clock);
    ebb__mover_destroy(engine->mover, is_abandoned);
    engine->backing->ops->destroy(engine->backing);
    if (!is_abandoned)
        ebb__streams_leave(&engine->streams, visit);
    free_storage(engine, is_abandoned);
}

void ebb__cuda_abandon(struct ebb_cuda *engine)
{
    bool is_forked = engine->process != getpid();
    if (atomic_exchange(&engine->is_abandoned, true))
        return;
    ebb__mover_stop(engine->mover, true, is_forked);
    if (!is_forked)
        ebb__clock_abandon(engine->clock);
}

void ebb__cuda_is_gone(struct ebb_cuda *engine)
{
    release_all(engine);
}

/* ---- streams --------------------------------------------------------------------------------- */

void ebb__cuda_stream_ends(struct ebb_cuda *engine, CUstream stream)
{
    if (!ebb__cuda_lock(engine))
        return;
    ebb__streams_forget(&engine->streams, stream);
    ebb__cuda_unlock(engine);
}

void ebb__cuda_context_ends(struct ebb_cuda *engine, CUcontext context)
{
    if (!ebb__cuda_lock(engine))
        return;
    ebb__streams_lose(&engine->streams, context);
    ebb__cuda_unlock(engine);
}

void ebb__cuda_capture_begins(struct ebb_cuda *engine, CUstream stream)
{
    if (!ebb__cuda_lock(engine))
        return;
    ebb__streams_mark(&engine->streams, stream);
    ebb__cuda_unlock(engine);
}

void ebb__cuda_synchronized(struct ebb_cuda *engine, CUstream stream, bool all)
{
    if (!ebb__cuda_lock(engine))
        return;
    ebb__streams_synchronized(&engine->streams, stream, all);
    ebb__cuda_unlock(engine);
}
