#include "cuda/take.h"

#define STEP_BYTES ((uint64_t)4 << 30) /* of addresses; a larger block has a region of its own */
#define AHEAD_TURNS 32u                /* ALLOCs and FREEs that are looked at; arbitrary */
#define MOST_AHEAD 2u /* ranges that are prepared at an allocation, so that it stays short */
#define MOST_TRIES 4u /* to make room in chunks, of which others may leave meanwhile */
#define SPREAD 4u     /* addresses for what is in use; arbitrary: page tables cost 0.2 % of them */

/* ---- units ----------------------------------------------------------------------------------- */

/* A region of `count` units at least. CUDA_NO_UNIT: no addresses. */
static uint32_t reserve(struct ebb_cuda *engine, uint64_t count)
{
    uint64_t bytes = count * EBB_CUDA_UNIT_BYTES;
    CUdeviceptr first = 0;
    struct cuda_visit visit = ebb__streams_enter(&engine->streams);
    uint32_t unit = CUDA_NO_UNIT;
    if (engine->backing->ops->reserve(engine->backing, bytes, &first) == CUDA_SUCCESS) {
        unit = ebb__table_add(&engine->table, first, bytes);
        if (unit == CUDA_NO_UNIT)
            engine->backing->ops->release(engine->backing, first, bytes);
    }
    ebb__streams_leave(&engine->streams, visit);
    if (unit != CUDA_NO_UNIT && atomic_load(&engine->table.region_count) == 1)
        atomic_store(&engine->config.ring->counters.arena_first, first);
    if (unit != CUDA_NO_UNIT)
        atomic_store(&engine->config.ring->counters.arena_last, first + bytes);
    return unit;
}

/* A region of *count units at least, which becomes how many it has. Of regions of STEP_BYTES, only
 * two can have addresses in the same 4 GiB, and the table has no place for more. */
static uint32_t reserve_step(struct ebb_cuda *engine, uint32_t *count)
{
    const uint32_t step = STEP_BYTES / EBB_CUDA_UNIT_BYTES, least = *count;
    *count = least > step ? least + least / 4 : step; /* blocks that grow find place there */
    uint32_t unit = reserve(engine, *count);
    if (unit == CUDA_NO_UNIT && *count > least)
        unit = reserve(engine, *count = least);
    return unit;
}

/* The addresses are many times what is in use: those that are free wait for the mover. */
static bool is_spread(const struct ebb_cuda *engine, uint32_t count)
{
    uint64_t used =
        engine->pool.backed_units + count + engine->room.absent_bytes / EBB_CUDA_UNIT_BYTES;
    return engine->table.unit_count > SPREAD * (used + STEP_BYTES / EBB_CUDA_UNIT_BYTES);
}

static uint32_t take_bare(struct ebb_cuda *engine, uint32_t count, uint32_t stream,
                          struct cuda_passages *before)
{
    uint32_t unit = ebb__pool_take(&engine->pool, count, false, stream, before);
    if (unit != CUDA_NO_UNIT)
        return unit;
    if (is_spread(engine, count) && !engine->is_last_try) {
        engine->room.was_refused = true;
        return CUDA_NO_UNIT;
    }
    uint32_t made = count, first = reserve_step(engine, &made);
    if (first == CUDA_NO_UNIT) {
        engine->room.was_refused = true; /* the mover may make some usable */
        return CUDA_NO_UNIT;
    }
    ebb__pool_add(&engine->pool, first, made);
    return ebb__pool_take(&engine->pool, count, false, stream, before);
}

bool ebb__take_populate(struct ebb_cuda *engine, uint32_t first, uint32_t count, uint64_t *number,
                        uint32_t *arrival)
{
    struct cuda_move move = {.kind = CUDA_MOVE_POPULATE, .first = first, .count = count};
    if (!ebb__mover_has_room(engine->mover, 1))
        return false;
    *number = ebb__mover_add(engine->mover, &move, arrival);
    return true;
}

/* Pages for these units of the area, which belong to whoever takes them. */
static bool back_area(struct ebb_cuda *engine, uint32_t first, uint32_t count, uint64_t *number)
{
    struct cuda_span chunks = ebb__pool_chunks(&engine->pool, first, count);
    uint32_t arrival;
    if (!ebb__take_populate(engine, chunks.first, chunks.count, number, &arrival))
        return false;
    ebb__pool_back_at(&engine->pool, first, count, arrival);
    return true;
}

/* Room for what these units lack. To make it, others of the same chunks may have left. */
static bool make_area_room(struct ebb_cuda *engine, uint32_t first, uint32_t count)
{
    for (unsigned tries = 0; tries < MOST_TRIES; tries++) {
        uint32_t bare = ebb__pool_bare_at(&engine->pool, first, count);
        if (!ebb__room_make(&engine->room, bare))
            return false;
        if (bare == ebb__pool_bare_at(&engine->pool, first, count))
            return true;
    }
    return false;
}

/* The area has so many bytes at least. False: there are no addresses. */
static bool has_area(struct ebb_cuda *engine, uint64_t bytes)
{
    struct cuda_pool *pool = &engine->pool;
    if (bytes >= (uint64_t)1 << 46)
        return false;
    uint32_t chunks =
        ((uint32_t)ebb__cuda_units(bytes) + pool->chunk_units - 1) / pool->chunk_units;
    uint32_t count = chunks * pool->chunk_units;
    if (count > pool->area_count && ebb__pool_may_set_area(pool)) {
        uint32_t made = count, region = reserve_step(engine, &made);
        uint32_t taken =
            region != CUDA_NO_UNIT && ebb__pool_set_area(pool, region, count) ? count : 0;
        if (region != CUDA_NO_UNIT && made > taken)
            ebb__pool_add(pool, region + taken, made - taken);
    }
    return count <= pool->area_count;
}

/* The planned address of the allocation that comes now. False: it has none, or it is not free. */
bool ebb__take_planned(struct ebb_cuda *engine, uint64_t bytes, struct cuda_taken *taken)
{
    struct ebb_counters *counters = &engine->config.ring->counters;
    struct cuda_pool *pool = &engine->pool;
    uint64_t area_bytes = 0;
    uint64_t place = ebb__follow_place(engine->follow, bytes, &area_bytes);
    if (place == EBB_SCRIPT_NO_PLACE)
        return false;
    uint64_t first = place / EBB_CUDA_UNIT_BYTES;
    bool fits = place % EBB_CUDA_UNIT_BYTES == 0 && has_area(engine, area_bytes) &&
                first + taken->count <= pool->area_count;
    taken->first = pool->area_first + (uint32_t)first;
    if (fits && ebb__pool_is_free_at(pool, taken->first, taken->count) &&
        make_area_room(engine, taken->first, taken->count) &&
        (!ebb__pool_bare_at(pool, taken->first, taken->count) ||
         back_area(engine, taken->first, taken->count, &taken->move)) &&
        ebb__pool_take_at(pool, taken->first, taken->count, &taken->before)) {
        taken->arrival = ebb__pool_arrival(pool, taken->first, taken->count);
        atomic_fetch_add(&counters->placement_blocks, 1);
        return taken->is_placed = true;
    }
    atomic_fetch_add(&counters->placement_misses, 1);
    return false;
}

/* Units for a block or a slab. False: there is no room now. */
bool ebb__take_units(struct ebb_cuda *engine, uint32_t stream, struct cuda_taken *taken)
{
    taken->first = ebb__pool_take(&engine->pool, taken->count, true, stream, &taken->before);
    if (taken->first != CUDA_NO_UNIT) {
        taken->arrival = ebb__pool_arrival(&engine->pool, taken->first, taken->count);
        return true;
    }
    if (!ebb__room_make(&engine->room, taken->count) || !ebb__mover_has_room(engine->mover, 1))
        return false;
    taken->first = take_bare(engine, taken->count, stream, &taken->before);
    return taken->first != CUDA_NO_UNIT &&
           ebb__take_populate(engine, taken->first, taken->count, &taken->move, &taken->arrival);
}

/* The block's first use fetches it, if there is room then. Otherwise it is used over the bus. */
bool ebb__take_absent(struct ebb_cuda *engine, uint32_t stream, struct cuda_taken *taken)
{
    const struct ebb_cuda_backing_ops *ops = engine->backing->ops;
    uint64_t bytes = taken->count * EBB_CUDA_UNIT_BYTES;
    if (!ops->can_evict || engine->config.record || bytes > engine->room.card_bytes)
        return false;
    if (!ebb__room_has_host(&engine->room, bytes)) {
        engine->room.is_host_full = true;
        return false;
    }
    if (!ebb__mover_has_room(engine->mover, 1))
        return false;
    taken->first = take_bare(engine, taken->count, stream, &taken->before);
    if (taken->first == CUDA_NO_UNIT)
        return false;
    if (!ops->is_coherent) { /* an access needs a mapping */
        struct cuda_move move = {
            .kind = CUDA_MOVE_SERVE, .first = taken->first, .count = taken->count};
        ebb__mover_add(engine->mover, &move, &taken->arrival);
    }
    ebb__pool_set_backed(&engine->pool, taken->first, taken->count, false);
    engine->room.absent_bytes += bytes;
    return taken->is_absent = true;
}

/* Pages for the blocks that will be placed next, in their order. */
static void prepare_places(struct ebb_cuda *engine)
{
    struct cuda_place places[AHEAD_TURNS];
    uint32_t made = 0, count = ebb__follow_places(engine->follow, AHEAD_TURNS, places);
    uint64_t number;
    for (uint32_t i = 0; i < count && made < MOST_AHEAD; i++) {
        uint32_t first = engine->pool.area_first + places[i].first;
        if (places[i].first + places[i].count > engine->pool.area_count)
            return;
        uint32_t bare = ebb__pool_bare_at(&engine->pool, first, places[i].count);
        if (!bare || !ebb__pool_is_free_at(&engine->pool, first, places[i].count))
            continue; /* the units of an absent block are bare, too */
        if (!ebb__mover_has_room(engine->mover, 1) || !ebb__room_make_spare(&engine->room, bare) ||
            ebb__pool_bare_at(&engine->pool, first, places[i].count) != bare ||
            !back_area(engine, first, places[i].count, &number))
            return;
        made++;
    }
}

void ebb__take_ahead(struct ebb_cuda *engine)
{
    struct cuda_pool *pool = &engine->pool;
    struct cuda_ahead ahead;
    struct cuda_passages before;
    uint64_t number;
    uint32_t arrival;
    if (!pool->keeps_runs || engine->config.record || !ebb__follow_is_planned(engine->follow))
        return;
    prepare_places(engine);
    for (unsigned i = 0; i < MOST_AHEAD; i++) {
        ebb__follow_ahead(engine->follow, pool->kept, pool->chunk_units, AHEAD_TURNS, &ahead);
        uint32_t count = ahead.lacking;
        if (!count || count == CUDA_RUN_SIZES - 1 || !ebb__mover_has_room(engine->mover, 1) ||
            !ebb__room_make_spare(&engine->room, count))
            return;
        uint32_t first = take_bare(engine, count, CUDA_NO_STREAM, &before);
        if (first == CUDA_NO_UNIT)
            return;
        ebb__take_populate(engine, first, count, &number, &arrival);
        ebb__pool_give(pool, first, count, true, &before, arrival);
    }
}
