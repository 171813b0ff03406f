/* Work: what it uses is resident when it runs, and stays until it has been queued. */
#include "cuda/internal.h"

#include "base/clock.h"

/* ---- what a work holds ----------------------------------------------------------------------- */

static void let_go(struct ebb_cuda *engine, uint32_t block)
{
    struct cuda_block *entry = &engine->table.blocks[block];
    if (!entry->holds || --entry->holds > 0)
        return;
    if (entry->state == CUDA_BLOCK_FREE) /* it has been freed meanwhile */
        ebb__table_give(&engine->table, block);
    else if (entry->evict_due)
        ebb__cuda_let_go(engine, block);
}

static void let_all_go(struct ebb_cuda *engine, struct ebb_cuda_work *work)
{
    uint32_t own = work->held_count < CUDA_OWN_HELD ? work->held_count : CUDA_OWN_HELD;
    for (uint32_t i = 0; i < own; i++)
        let_go(engine, work->held[i]);
    uint32_t entry = work->held_count > CUDA_OWN_HELD ? work->held[CUDA_OWN_HELD] : 0;
    while (entry) {
        uint32_t next = engine->holds.items[entry].next;
        let_go(engine, engine->holds.items[entry].block);
        engine->holds.items[entry].next = engine->holds.free;
        engine->holds.free = entry;
        entry = next;
    }
    work->held_count = 0;
}

/* ---- what must be there ---------------------------------------------------------------------- */

struct begun {              /* of one work */
    uint32_t stream, stall; /* of the clock; CLOCK_NO_STALL */
    uint64_t absent_units, all_units;
    uint32_t arrival;            /* newest one to wait for; 0: none */
    uint32_t light;              /* the same, among those that are over when they are issued */
    bool may_arrive;             /* some pages may still be on their way */
    struct cuda_passages before; /* of its blocks, if it names all that it uses */
};

static void note_arrival(struct ebb_cuda *engine, struct cuda_block *entry, struct begun *begun)
{
    if (!entry->arrival)
        return;
    uint32_t *newest = ebb__arrival_is_light(entry->arrival) ? &begun->light : &begun->arrival;
    if (ebb__mover_is_over(engine->mover, entry->arrival))
        entry->arrival = 0;
    else if (!*newest || ebb__arrival_reached(entry->arrival, *newest))
        *newest = entry->arrival;
}

/* When this one is issued, so are all. */
static uint32_t newest_arrival(const struct begun *begun)
{
    uint32_t light = begun->light, other = begun->arrival;
    return !other || (light && ebb__arrival_reached(light, other)) ? light : other;
}

static void note_use(struct ebb_cuda *engine, const struct ebb_cuda_work *work,
                     const struct begun *begun, struct cuda_block *entry)
{
    if (!work->is_captured && begun->stream != CUDA_NO_STREAM)
        ebb__passages_add(&entry->uses, &engine->streams, begun->stream, engine->order);
}

/* It never moves: what begin() has to do for it is done at once. */
static void use_small(struct ebb_cuda *engine, const struct ebb_cuda_work *work,
                      struct begun *begun, struct cuda_block *entry)
{
    entry->last_order = engine->order;
    note_arrival(engine, entry, begun);
    note_use(engine, work, begun, entry);
}

static void use_large(struct ebb_cuda *engine, struct ebb_cuda_work *work, struct begun *begun,
                      uint32_t block, uint8_t access)
{
    struct cuda_scratch *scratch = &engine->scratch;
    struct cuda_block *entry = &engine->table.blocks[block];
    if (!ebb__cuda_hold(engine, work, block))
        return;
    entry->last_order = engine->order;
    begun->all_units += entry->unit_count;
    if (entry->state != CUDA_BLOCK_ABSENT)
        ebb__table_use(&engine->table, block);
    else if (!entry->stays_absent)
        begun->absent_units += entry->unit_count;
    begun->may_arrive |= entry->arrival != 0;
    if (scratch->count < CUDA_MOST_EVENTS_A_WORK)
        ebb__cuda_event(&scratch->events[scratch->count], entry, EBB_EVENT_ACCESS, access);
    scratch->blocks[scratch->count++] = block;
}

/* All blocks of the work once. Those that may move are held, and in engine->scratch. */
static void collect(struct ebb_cuda *engine, struct ebb_cuda_work *work, struct begun *begun)
{
    struct cuda_near near = {0};
    engine->scratch.count = 0;
    for (size_t i = 0; i < work->use_count; i++) {
        uint32_t block = ebb__cuda_find_near(engine, work->uses[i].address, &near);
        struct cuda_block *entry = &engine->table.blocks[block];
        if (!block)
            continue;
        if (work->is_captured)
            entry->is_kept = 1;
        if (ebb__cuda_names_all(work))
            ebb__passages_join(&begun->before, &engine->streams, &entry->before);
        if (entry->last_order == engine->order)
            continue;
        if (entry->is_small)
            use_small(engine, work, begun, entry);
        else
            use_large(engine, work, begun, block, work->uses[i].access);
    }
    if (engine->scratch.count > 1)
        ebb__scratch_sort(&engine->scratch);
}

/* What is due at the uses happens before anything is fetched: it makes room, and may fetch. */
static void step_uses(struct ebb_cuda *engine, struct begun *begun)
{
    const struct cuda_scratch *scratch = &engine->scratch;
    if (!engine->plan.has_script || !scratch->count)
        return; /* nobody asks for it */
    begun->absent_units = 0;
    begun->may_arrive = true;
    for (uint32_t i = 0; i < scratch->count && i < CUDA_MOST_EVENTS_A_WORK; i++)
        ebb__cuda_step(engine, EBB_EVENT_ACCESS, scratch->blocks[i]);
    for (uint32_t i = 0; i < scratch->count; i++) {
        const struct cuda_block *entry = &engine->table.blocks[scratch->blocks[i]];
        if (entry->state == CUDA_BLOCK_ABSENT && !entry->stays_absent)
            begun->absent_units += entry->unit_count;
    }
}

/* Absent blocks come, as many as fit. False: not all of them. */
static bool fetch_absent(struct ebb_cuda *engine, const struct begun *begun)
{
    struct cuda_scratch *scratch = &engine->scratch;
    bool fits = ebb__room_make(&engine->room, begun->absent_units);
    for (uint32_t i = 0; i < scratch->count; i++) {
        struct cuda_block *entry = &engine->table.blocks[scratch->blocks[i]];
        if (entry->state != CUDA_BLOCK_ABSENT || entry->stays_absent)
            continue;
        if ((fits || ebb__room_make(&engine->room, entry->unit_count)) &&
            ebb__room_fetch(&engine->room, scratch->blocks[i]) && engine->plan.was_planned) {
            atomic_fetch_add(&engine->config.ring->counters.demand_faults, 1);
            if (i < CUDA_MOST_EVENTS_A_WORK)
                scratch->events[i].flags |= EBB_EVENT_DEMAND;
        }
    }
    return fits;
}

/* While kernels use what they do not name, nothing moves; others use only what does not move. */
static bool is_trusting(const struct ebb_cuda *engine)
{
    return !engine->backing->ops->is_coherent && !engine->backing->ops->needs_quiet;
}

/* A block that is absent and used all the same is served over the bus. */
static void note_absent(struct ebb_cuda *engine, uint32_t block, struct begun *begun)
{
    struct cuda_block *entry = &engine->table.blocks[block];
    if (entry->state == CUDA_BLOCK_ABSENT)
        ebb__room_serve(&engine->room, block);
    note_arrival(engine, entry, begun);
}

/* Blocks that are used where they are although there was room for them come now. */
static void fetch_stray(struct ebb_cuda *engine, uint32_t block)
{
    struct cuda_block *entry = &engine->table.blocks[block];
    if (entry->is_fixed || (entry->is_kept && is_trusting(engine)))
        return; /* what nobody announces may use it */
    if (!entry->arrival && entry->state == CUDA_BLOCK_RESIDENT &&
        ebb__mover_is_stray(engine->mover, entry->first_unit, entry->unit_count))
        ebb__room_fetch_stray(&engine->room, block);
}

static void look_at_blocks(struct ebb_cuda *engine, struct begun *begun)
{
    struct cuda_scratch *scratch = &engine->scratch;
    bool has_strays = ebb__mover_has_strays(engine->mover);
    if (!begun->may_arrive && !begun->absent_units && !has_strays)
        return;
    for (uint32_t i = 0; i < scratch->count; i++) {
        struct cuda_block *entry = &engine->table.blocks[scratch->blocks[i]];
        note_absent(engine, scratch->blocks[i], begun);
        if (has_strays) {
            fetch_stray(engine, scratch->blocks[i]);
            note_arrival(engine, entry, begun);
        }
    }
}

/* ---- waits ----------------------------------------------------------------------------------- */

/* From here on the stream stands still for Ebb. */
static void stand_still(struct ebb_cuda *engine, const struct ebb_cuda_work *work,
                        struct begun *begun)
{
    if (begun->stall == CLOCK_NO_STALL && !work->is_captured)
        begun->stall = ebb__clock_stall_begin(engine->clock, work->stream);
}

/* The stream waits on the device for the newest arrival: older ones are over by then. False: the
 * caller must wait. */
static bool await_arrival(struct ebb_cuda *engine, const struct ebb_cuda_work *work,
                          struct begun *begun)
{
    struct cuda_stream *stream = &engine->streams.streams[begun->stream];
    if (!begun->arrival ||
        (stream->awaited && ebb__arrival_reached(stream->awaited, begun->arrival)))
        return true;
    stand_still(engine, work, begun);
    if (!ebb__mover_await(engine->mover, stream->handle, begun->arrival)) {
        ebb__cuda_news(engine, CUDA_NEWS_NO_WAITS);
        return false;
    }
    stream->awaited = begun->arrival;
    return true;
}

/* ---- begin and end --------------------------------------------------------------------------- */

/* For tests: any block that may be evicted is. */
static void make_chaos(struct ebb_cuda *engine)
{
    if (!engine->config.chaos_seed || ebb__cuda_random(engine) % 4)
        return;
    for (unsigned tries = 0; tries < 16; tries++) {
        uint32_t block = 1 + (uint32_t)(ebb__cuda_random(engine) % engine->table.used);
        if (block < engine->table.used && ebb__room_may_evict(&engine->room, block) &&
            ebb__room_evict(&engine->room, block))
            return;
    }
}

static void note_uses(struct ebb_cuda *engine, struct ebb_cuda_work *work,
                      const struct begun *begun)
{
    struct cuda_scratch *scratch = &engine->scratch;
    uint32_t count = scratch->count;
    for (uint32_t i = 0; i < count; i++)
        note_use(engine, work, begun, &engine->table.blocks[scratch->blocks[i]]);
    if (count > CUDA_MOST_EVENTS_A_WORK)
        count = CUDA_MOST_EVENTS_A_WORK;
    ebb__cuda_note_plan(engine);
    ebb__clock_work_begin(engine->clock, work->stream, scratch->events, count, !work->is_captured);
}

/* What it comes after: the earlier uses of its addresses. NULL: see `owed`. */
static const struct cuda_passages *before(const struct ebb_cuda_work *work, struct begun *begun)
{
    return ebb__cuda_names_all(work) ? &begun->before : NULL;
}

/* Queues the waits of the work. False in *arrived, *ordered: the caller waits for it. */
static void queue_waits(struct ebb_cuda *engine, const struct ebb_cuda_work *work,
                        struct begun *begun, bool *arrived, bool *ordered)
{
    if (work->is_unlisted) {
        *arrived = newest_arrival(begun) == 0;
        *ordered = ebb__cuda_is_behind(engine, before(work, begun));
        return;
    }
    /* Events first: behind a wait for an arrival they would depend on it. */
    *ordered = ebb__passages_settle(&engine->streams, begun->stream, before(work, begun));
    *arrived = engine->gate.is_used ? !newest_arrival(begun) : await_arrival(engine, work, begun);
}

/* May the stream wait on the device? Only for transfers that are queued: see mover.h. */
static bool may_queue_waits(const struct ebb_cuda *engine, const struct begun *begun)
{
    uint32_t newest = newest_arrival(begun);
    return !newest || engine->gate.is_used || ebb__mover_is_issued(engine->mover, newest);
}

/* `is_queued`: the waits have been queued, but for what is not arrived or not ordered. The stream
 * may have work meanwhile, so only the device knows for how long it stood still. */
static void wait_on_host(struct ebb_cuda *engine, struct ebb_cuda_work *work, struct begun *begun,
                         bool is_queued, bool arrived, bool ordered)
{
    if (is_queued && arrived && ordered)
        return;
    uint64_t since_ns = ebb__now_ns();
    stand_still(engine, work, begun);
    if (!is_queued) {
        ebb__cuda_wait_for_issue(engine, newest_arrival(begun));
        if (!ebb__cuda_lock(engine))
            return;
        queue_waits(engine, work, begun, &arrived, &ordered);
        ebb__cuda_unlock(engine);
    }
    if (!ordered)
        ebb__cuda_wait_for_work(engine, begun->stream, before(work, begun));
    if (!arrived && begun->light)
        ebb__cuda_wait_for_arrival(engine, begun->light);
    if (!arrived && begun->arrival)
        ebb__cuda_wait_for_arrival(engine, begun->arrival);
    if (!arrived || !ordered)
        ebb__cuda_pass_gate(engine, work);
    if (begun->stall == CLOCK_NO_STALL)
        ebb__cuda_count_stall(engine, since_ns);
}

CUresult ebb__cuda_begin(struct ebb_cuda *engine, struct ebb_cuda_work *work)
{
    work->held_count = 0;
    work->is_counted = work->is_unlisted = false;
    struct begun begun = {.stream = CUDA_NO_STREAM, .stall = CLOCK_NO_STALL};
    if (!ebb__cuda_lock(engine))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (ebb__gate_is_closed(&engine->gate))
        stand_still(engine, work, &begun);
    if (!work->is_captured && !ebb__cuda_await_gate(engine))
        return CUDA_ERROR_NOT_INITIALIZED;
    bool fits = true, arrived = true, ordered = true;
    if (!work->is_captured) {
        begun.stream =
            ebb__streams_find_in(&engine->streams, work->elsewhere, work->stream, engine->order);
        work->is_unlisted = begun.stream == CUDA_NO_STREAM;
        if (work->is_unlisted)
            ebb__cuda_news(engine, CUDA_NEWS_STREAMS);
    }
    work->order = ++engine->order;
    engine->open_works++;
    collect(engine, work, &begun);
    step_uses(engine, &begun);
    make_chaos(engine);
    if (begun.absent_units)
        fits = fetch_absent(engine, &begun);
    if (!fits &&
        begun.all_units * EBB_CUDA_UNIT_BYTES > atomic_load(&engine->config.ledger->budget_bytes)) {
        engine->tidings.too_large_bytes = begun.all_units * EBB_CUDA_UNIT_BYTES;
        ebb__cuda_news(engine, CUDA_NEWS_TOO_LARGE);
    }
    look_at_blocks(engine, &begun);
    bool is_queued = work->is_captured || may_queue_waits(engine, &begun);
    if (!work->is_captured && is_queued)
        queue_waits(engine, work, &begun, &arrived, &ordered);
    if (begun.stream != CUDA_NO_STREAM)
        ebb__streams_begin(&engine->streams, begun.stream, work->order);
    note_uses(engine, work, &begun);
    ebb__cuda_sweep(engine);
    if (arrived && ordered)
        ebb__cuda_enter_gate(engine, work);
    ebb__cuda_unlock(engine);
    wait_on_host(engine, work, &begun, is_queued, arrived, ordered);
    ebb__clock_stall_end(engine->clock, begun.stall);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void ebb__cuda_end(struct ebb_cuda *engine, struct ebb_cuda_work *work, bool is_queued)
{
    /* It ends before its blocks can leave: no passage tells later when it is over. */
    if (work->is_unlisted && is_queued && !atomic_load(&engine->is_abandoned))
        ebb__streams_await(&engine->streams, work->stream);
    if (!ebb__cuda_lock(engine))
        return;
    uint32_t stream = CUDA_NO_STREAM;
    if (!work->is_captured && !work->is_unlisted)
        stream =
            ebb__streams_find_in(&engine->streams, work->elsewhere, work->stream, engine->order);
    ebb__clock_work_end(engine->clock, work->stream, is_queued);
    if (stream != CUDA_NO_STREAM)
        ebb__streams_end(&engine->streams, stream);
    let_all_go(engine, work);
    engine->open_works -= engine->open_works > 0;
    engine->gate.queuing -= work->is_counted;
    make_chaos(engine);
    ebb__cuda_unlock(engine);
}

/* ---- uses that no work names ----------------------------------------------------------------- */

/* Nobody will announce what uses it. is_fixed: so the caller waits until it moves no more. */
static void keep(struct ebb_cuda *engine, uint32_t block, bool is_fixed, struct begun *begun)
{
    struct cuda_block *entry = &engine->table.blocks[block];
    entry->is_kept = 1;
    entry->is_fixed |= is_fixed;
    if (entry->state == CUDA_BLOCK_ABSENT && !entry->stays_absent &&
        ebb__room_make(&engine->room, entry->unit_count))
        ebb__room_fetch(&engine->room, block);
    if (is_fixed) {
        entry->stays_absent = entry->state == CUDA_BLOCK_ABSENT;
        note_absent(engine, block, begun);
    }
}

void ebb__cuda_reach(struct ebb_cuda *engine, CUdeviceptr pointer)
{
    if (ebb__table_unit(&engine->table, pointer) == CUDA_NO_UNIT || !ebb__cuda_lock(engine))
        return;
    uint32_t block = ebb__cuda_find(engine, pointer);
    struct begun begun = {.stream = CUDA_NO_STREAM};
    if (block)
        keep(engine, block, is_trusting(engine), &begun);
    ebb__cuda_unlock(engine);
    ebb__cuda_wait_alone(engine, begun.light);
    ebb__cuda_wait_alone(engine, begun.arrival);
}

/* Where the next block may begin. No block is smaller than 512 bytes. */
static CUdeviceptr next_place(const struct ebb_cuda *engine, CUdeviceptr at, uint32_t block)
{
    const struct cuda_table *table = &engine->table;
    const struct cuda_block *entry = &table->blocks[block];
    if (block && !entry->is_small)
        return entry->address + entry->unit_count * EBB_CUDA_UNIT_BYTES;
    uint32_t unit = ebb__table_unit(table, at);
    if (unit == CUDA_NO_UNIT)
        return ebb__table_next(table, at);
    if (!atomic_load_explicit(&table->owners[unit], memory_order_relaxed))
        return ebb__table_address(table, unit) + EBB_CUDA_UNIT_BYTES;
    return (at / 512 + 1) * 512;
}

void ebb__cuda_keep(struct ebb_cuda *engine, CUdeviceptr address, size_t bytes)
{
    if (!bytes || !ebb__cuda_lock(engine))
        return;
    CUdeviceptr last = address + bytes - 1, at = address;
    struct begun begun = {.stream = CUDA_NO_STREAM};
    bool is_fixed = !engine->backing->ops->is_coherent, is_absent = false;
    for (;;) {
        uint32_t block = ebb__cuda_find(engine, at);
        if (block)
            keep(engine, block, is_fixed, &begun);
        is_absent |=
            engine->table.blocks[block].stays_absent; /* number 0 is none, and not absent */
        CUdeviceptr next = next_place(engine, at, block);
        if (next > last || next <= at)
            break;
        at = next;
    }
    ebb__cuda_unlock(engine);
    ebb__cuda_wait_alone(engine, begun.light);
    ebb__cuda_wait_alone(engine, begun.arrival);
    if (is_absent && engine->gate.is_used)
        ebb__cuda_wait_for_evictions(engine);
}
