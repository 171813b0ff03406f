/* Blocks come and go. */
#include "cuda/take.h"

#include "base/clock.h"
#include "base/tuning.h"

#include <time.h>

#define RETRY_NS 200000u

/* ---- blocks ---------------------------------------------------------------------------------- */

/* The stream that allocates waits itself, and others follow it. Without one, all streams wait: a
 * kernel may use the block although nobody announces it. */
static void order(struct ebb_cuda *engine, uint32_t stream, const struct cuda_passages *before)
{
    if (before->count &&
        (stream == CUDA_NO_STREAM || !ebb__passages_await(&engine->streams, stream, before)))
        ebb__passages_owe(&engine->streams, before);
}

static uint32_t alloc_small(struct ebb_cuda *engine, uint64_t bytes, uint32_t stream)
{
    uint32_t block = ebb__slabs_take(&engine->slabs, bytes, stream);
    if (block)
        return block;
    struct cuda_taken taken = {.count = 1};
    if (!ebb__take_units(engine, stream, &taken))
        return CUDA_NO_BLOCK;
    if (!ebb__slabs_add(&engine->slabs, bytes, taken.first, taken.arrival, &taken.before)) {
        ebb__pool_give(&engine->pool, taken.first, 1, true, &taken.before, taken.arrival);
        return CUDA_NO_BLOCK;
    }
    return ebb__slabs_take(&engine->slabs, bytes, stream);
}

static uint32_t alloc_large(struct ebb_cuda *engine, uint64_t bytes, uint32_t stream)
{
    uint64_t units = ebb__cuda_units(bytes);
    struct cuda_taken taken = {.count = (uint32_t)units};
    uint32_t block = ebb__table_take(&engine->table);
    if (!block)
        return CUDA_NO_BLOCK;
    if (!ebb__take_planned(engine, bytes, &taken) && !ebb__take_units(engine, stream, &taken) &&
        !(engine->is_last_try && ebb__take_absent(engine, stream, &taken))) {
        ebb__table_give(&engine->table, block);
        return CUDA_NO_BLOCK;
    }
    struct cuda_block *entry = &engine->table.blocks[block];
    entry->address = ebb__table_address(&engine->table, taken.first);
    entry->serial = ++engine->newest_serial;
    entry->first_unit = taken.first;
    entry->unit_count = taken.count;
    entry->state = taken.is_absent ? CUDA_BLOCK_ABSENT : CUDA_BLOCK_RESIDENT;
    entry->arrival = taken.arrival;
    entry->move = taken.move;
    entry->before = taken.before;
    entry->is_placed = taken.is_placed;
    entry->is_served = taken.is_absent;
    ebb__table_own(&engine->table, taken.first, taken.count, block);
    if (!taken.is_absent)
        ebb__table_use(&engine->table, block);
    engine->live_units += taken.count;
    return block;
}

static void count_live(struct ebb_cuda *engine)
{
    struct ebb_counters *counters = &engine->config.ring->counters;
    uint64_t live = engine->live_units * EBB_CUDA_UNIT_BYTES + engine->slabs.live_bytes;
    atomic_store_explicit(&counters->live_bytes, live, memory_order_relaxed);
    if (live > atomic_load_explicit(&counters->peak_live_bytes, memory_order_relaxed))
        atomic_store_explicit(&counters->peak_live_bytes, live, memory_order_relaxed);
    atomic_store_explicit(&counters->small_bytes, engine->slabs.live_bytes, memory_order_relaxed);
}

static void note_alloc(struct ebb_cuda *engine, uint32_t block)
{
    struct cuda_block *entry = &engine->table.blocks[block];
    atomic_fetch_add_explicit(&engine->config.ring->counters.allocations, 1, memory_order_relaxed);
    count_live(engine);
    if (entry->is_small)
        return;
    struct ebb_event event;
    ebb__cuda_event(&event, entry, EBB_EVENT_ALLOC, 0);
    ebb__clock_event(engine->clock, &event);
    ebb__cuda_step(engine, EBB_EVENT_ALLOC, block);
    ebb__cuda_note_plan(engine);
    ebb__take_ahead(engine);
}

static CUresult try_alloc(struct ebb_cuda *engine, size_t bytes, CUstream stream,
                          CUdeviceptr *address)
{
    uint32_t index = CUDA_NO_STREAM;
    engine->room.was_refused = engine->room.is_host_full = false;
    if (stream != EBB_CUDA_NO_STREAM)
        index = ebb__streams_find(&engine->streams, stream, engine->order);
    bool is_small = bytes < CUDA_SMALL_BYTES;
    uint32_t block = is_small ? alloc_small(engine, bytes, index) : CUDA_NO_BLOCK;
    if (!block && (!is_small || engine->is_last_try))
        block = alloc_large(engine, bytes, index);
    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct cuda_block *entry = &engine->table.blocks[block];
    static _Atomic uint64_t newest_id; /* of all engines */
    entry->id = atomic_fetch_add(&newest_id, 1) + 1;
    entry->bytes = bytes;
    entry->is_of_stream = stream != EBB_CUDA_NO_STREAM;
    order(engine, index, &entry->before);
    *address = entry->address;
    note_alloc(engine, block);
    return CUDA_SUCCESS;
}

/* Nothing is left to wait for, or it has been waited for. */
static CUresult try_last(struct ebb_cuda *engine, size_t bytes, CUstream stream,
                         CUdeviceptr *address)
{
    engine->is_last_try = true;
    CUresult result = try_alloc(engine, bytes, stream, address);
    engine->is_last_try = false;
    return result;
}

/* May memory become free without a call of this thread? */
static bool can_change(const struct ebb_cuda *engine, size_t bytes)
{
    uint64_t held = atomic_load(&engine->config.ledger->held_bytes);
    return bytes <= engine->room.card_bytes && !engine->room.is_host_full &&
           (engine->open_works > 0 || engine->room.was_refused ||
            ebb__mover_stuck_bytes(engine->mover) > 0 ||
            held > ebb__mover_held_bytes(engine->mover) + engine->room.shared.bytes);
}

/* Where nothing serves accesses to absent pages, the pages must be there now. */
static bool is_there(struct ebb_cuda *engine, CUdeviceptr address)
{
    const struct timespec pause = {.tv_nsec = RETRY_NS / 4};
    for (unsigned tries = 0; tries < 3; tries++) {
        if (!ebb__cuda_lock(engine))
            return false;
        struct cuda_block *block = &engine->table.blocks[ebb__cuda_find(engine, address)];
        uint32_t first = block->first_unit, count = block->unit_count;
        if (block->is_small) {
            first = engine->slabs.slabs[block->first_unit].unit;
            count = 1;
        }
        bool is_over = !block->arrival || ebb__mover_is_over(engine->mover, block->arrival);
        bool is_stray = is_over && ebb__mover_is_stray(engine->mover, first, count);
        if (is_stray)
            ebb__take_populate(engine, first, count, &block->move, &block->arrival);
        uint32_t arrival = block->arrival;
        ebb__cuda_unlock(engine);
        if (is_over && !is_stray)
            return true;
        while (!ebb__mover_is_over(engine->mover, arrival) && !atomic_load(&engine->is_abandoned))
            nanosleep(&pause, NULL);
    }
    return false;
}

/* The block begins in host memory. Where accesses need a mapping, it must be there now. */
static bool is_served(struct ebb_cuda *engine, CUdeviceptr address, uint32_t arrival)
{
    if (arrival)
        ebb__cuda_wait_alone(engine, arrival);
    if (!ebb__cuda_lock(engine))
        return false;
    struct cuda_block *block = &engine->table.blocks[ebb__cuda_find(engine, address)];
    bool is_absent = block->state == CUDA_BLOCK_ABSENT; /* a plan may have fetched it meanwhile */
    bool is_missing = is_absent && arrival &&
                      ebb__mover_is_stray(engine->mover, block->first_unit, block->unit_count);
    if (is_absent)
        block->arrival = 0;
    if (!is_missing) {
        atomic_fetch_add(&engine->config.ring->counters.away_allocations, 1);
        ebb__cuda_news(engine, CUDA_NEWS_AWAY);
    }
    ebb__cuda_unlock(engine);
    return !is_missing;
}

struct placed {
    uint32_t arrival;
    bool is_absent;
};

/* Other threads may end what they hold, captures end, other processes return memory, and the mover
 * makes addresses usable. */
static CUresult try_for_a_while(struct ebb_cuda *engine, size_t bytes, CUstream stream,
                                CUdeviceptr *address, struct placed *placed)
{
    const struct timespec pause = {.tv_nsec = RETRY_NS};
    uint64_t until_ns = ebb__now_ns() + ebb__tuning()->cuda_patience_ns / 4;
    for (;;) {
        if (!ebb__cuda_lock(engine))
            return CUDA_ERROR_NOT_INITIALIZED;
        CUresult result = try_alloc(engine, bytes, stream, address);
        bool is_last =
            result == CUDA_SUCCESS || !can_change(engine, bytes) || ebb__now_ns() > until_ns;
        if (is_last && result != CUDA_SUCCESS)
            result = try_last(engine, bytes, stream, address);
        if (result == CUDA_SUCCESS) {
            const struct cuda_block *block =
                &engine->table.blocks[ebb__cuda_find(engine, *address)];
            *placed = (struct placed){block->arrival, block->state == CUDA_BLOCK_ABSENT};
        }
        ebb__cuda_unlock(engine);
        if (is_last)
            return result;
        nanosleep(&pause, NULL);
    }
}

CUresult ebb__cuda_alloc(struct ebb_cuda *engine, size_t bytes, CUstream stream,
                         CUdeviceptr *address)
{
    struct placed placed = {0};
    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > EBB_EVENT_SIZE_LIMIT)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = try_for_a_while(engine, bytes, stream, address, &placed);
    if (result != CUDA_SUCCESS)
        return result;
    bool is_good = true;
    if (placed.is_absent)
        is_good = is_served(engine, *address, placed.arrival);
    else if (engine->gate.is_used && placed.arrival) /* a kernel may use it without naming it */
        ebb__cuda_wait_alone(engine, placed.arrival);
    if (!engine->backing->ops->can_evict)
        is_good = is_there(engine, *address);
    if (!is_good)
        ebb__cuda_free(engine, *address, stream);
    return is_good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- free ------------------------------------------------------------------------------------ */

/* Other streams may take the range, behind the free only. What comes later in this stream may wait
 * for them. So the place gets an event now. */
static void mark_free(struct cuda_streams *streams, const struct cuda_passage *passage)
{
    uint32_t event;
    if (streams->live_count > 1 && ebb__streams_cover(streams, passage, &event))
        ebb__streams_release(streams, event);
}

/* What must be over before the addresses are used again. */
static struct cuda_passages work_before(struct ebb_cuda *engine, CUstream stream)
{
    struct cuda_streams *streams = &engine->streams;
    if (stream != EBB_CUDA_NO_STREAM) {
        uint32_t index = ebb__streams_find(streams, stream, engine->order);
        if (index != CUDA_NO_STREAM) { /* the program has ordered all uses before this place */
            struct cuda_passages own = {.count = 0};
            ebb__streams_begin(streams, index, ++engine->order);
            ebb__streams_end(streams, index);
            ebb__passages_add(&own, streams, index, engine->order);
            mark_free(streams, &own.items[0]);
            return own;
        }
    }
    /* The driver would wait for the device here: any work may have used the block. With several
     * streams, what is queued until now gets events, so that nothing later is waited for. */
    if (streams->live_count > 1)
        ebb__streams_mark_all(streams);
    return ebb__passages_of_all(streams, engine->order);
}

static void free_units(struct ebb_cuda *engine, struct cuda_block *block,
                       const struct cuda_passages *before)
{
    bool is_backed = block->state == CUDA_BLOCK_RESIDENT;
    struct cuda_move forget = {
        .kind = CUDA_MOVE_FORGET, .first = block->first_unit, .count = block->unit_count};
    if (is_backed) {
        if (block->arrival)
            ebb__mover_kill(engine->mover, block->move);
        ebb__table_leave(&engine->table, (uint32_t)(block - engine->table.blocks));
    } else {
        engine->room.absent_bytes -= block->unit_count * EBB_CUDA_UNIT_BYTES;
        if (ebb__mover_has_room(engine->mover, 1) &&
            ebb__passages_cover(&engine->streams, before, forget.events, CUDA_MOVE_EVENTS,
                                &forget.event_count))
            ebb__pool_destroy(&engine->pool, block->first_unit, block->unit_count,
                              ebb__mover_add(engine->mover, &forget, NULL));
    }
    ebb__table_own(&engine->table, block->first_unit, block->unit_count, 0);
    engine->live_units -= block->unit_count;
    ebb__pool_give(&engine->pool, block->first_unit, block->unit_count, is_backed, before,
                   block->arrival);
}

static void free_small(struct ebb_cuda *engine, uint32_t block, const struct cuda_passages *before)
{
    struct cuda_passages all;
    uint32_t unit;
    uint32_t arrival = engine->slabs.slabs[engine->table.blocks[block].first_unit].arrival;
    engine->table.blocks[block].uses = *before;
    ebb__slabs_give(&engine->slabs, block, &unit, &all);
    if (unit != CUDA_NO_UNIT)
        ebb__pool_give(&engine->pool, unit, 1, true, &all, arrival);
}

static void free_large(struct ebb_cuda *engine, uint32_t block, const struct cuda_passages *before)
{
    struct cuda_block *entry = &engine->table.blocks[block];
    struct ebb_event event;
    ebb__cuda_event(&event, entry, EBB_EVENT_FREE, 0);
    ebb__clock_event(engine->clock, &event);
    free_units(engine, entry, before);
    entry->state = CUDA_BLOCK_FREE; /* no action may move it any more */
    ebb__cuda_step(engine, EBB_EVENT_FREE, block);
    ebb__cuda_note_plan(engine);
    if (!entry->holds) /* else the last work that holds it gives it back */
        ebb__table_give(&engine->table, block);
}

bool ebb__cuda_free(struct ebb_cuda *engine, CUdeviceptr address, CUstream stream)
{
    if (!ebb__cuda_lock(engine))
        return false;
    uint32_t block = ebb__cuda_find(engine, address);
    bool found = block && engine->table.blocks[block].address == address;
    if (found) {
        struct cuda_passages before = work_before(engine, stream);
        ebb__passages_join(&before, &engine->streams, &engine->table.blocks[block].before);
        if (engine->table.blocks[block].is_small)
            free_small(engine, block, &before);
        else
            free_large(engine, block, &before);
        count_live(engine);
    }
    ebb__cuda_unlock(engine);
    return found;
}

/* ---- questions ------------------------------------------------------------------------------- */

bool ebb__cuda_owns(const struct ebb_cuda *engine, CUdeviceptr address)
{
    return ebb__table_unit(&engine->table, address) != CUDA_NO_UNIT;
}

bool ebb__cuda_range(struct ebb_cuda *engine, CUdeviceptr address, CUdeviceptr *base, size_t *bytes)
{
    if (!ebb__cuda_lock(engine))
        return false;
    uint32_t block = ebb__cuda_find(engine, address);
    const struct cuda_block *entry = &engine->table.blocks[block];
    bool found = block && address - entry->address < entry->bytes;
    if (found) {
        *base = entry->address;
        *bytes = entry->bytes;
    }
    ebb__cuda_unlock(engine);
    return found;
}

uint64_t ebb__cuda_id(struct ebb_cuda *engine, CUdeviceptr address)
{
    if (!ebb__cuda_lock(engine))
        return 0;
    uint32_t block = ebb__cuda_find(engine, address);
    uint64_t id = block ? engine->table.blocks[block].id : 0;
    ebb__cuda_unlock(engine);
    return id;
}

bool ebb__cuda_is_of_stream(struct ebb_cuda *engine, CUdeviceptr address)
{
    if (!ebb__cuda_lock(engine))
        return false;
    uint32_t block = ebb__cuda_find(engine, address);
    bool is_of_stream = block && engine->table.blocks[block].is_of_stream;
    ebb__cuda_unlock(engine);
    return is_of_stream;
}

void ebb__cuda_memory(struct ebb_cuda *engine, size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = *total_bytes = 0;
    if (!ebb__cuda_lock(engine))
        return;
    uint64_t shared = engine->room.shared.bytes;
    uint64_t live = engine->live_units * EBB_CUDA_UNIT_BYTES + engine->slabs.live_bytes + shared;
    uint64_t budget = atomic_load(&engine->config.ledger->budget_bytes);
    uint64_t own = ebb__room_limit(&engine->room) + shared;
    *total_bytes = budget < engine->room.card_bytes ? budget : engine->room.card_bytes;
    *free_bytes = own > live ? own - live : 0;
    ebb__cuda_unlock(engine);
}
