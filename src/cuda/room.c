#include "cuda/room.h"

#include <string.h>

#define MOST_CANDIDATES 4096u
#define MOST_SPARE 8u    /* ranges that leave for one that is prepared */
#define LEAST_SPARE 128u /* ALLOCs and FREEs until a range is needed that leaves for that */
#define IN_USE_WORTH 8u  /* a range that must be waited for is worth so much less */

uint64_t ebb__room_limit(const struct cuda_room *room)
{
    const struct ebb_ledger *ledger = room->config->ledger;
    uint64_t own = ebb__mover_held_bytes(room->mover);
    uint64_t stuck = ebb__mover_stuck_bytes(room->mover);
    uint64_t limit = ebb__ledger_share(ledger, atomic_load(&ledger->budget_bytes), own, 0);
    uint64_t card =
        room->card_bytes > room->shared.bytes ? room->card_bytes - room->shared.bytes : 0;
    if (limit > card)
        limit = card;
    return limit > stuck ? limit - stuck : 0;
}

bool ebb__room_has_host(const struct cuda_room *room, uint64_t bytes)
{
    uint64_t budget = room->config->host_budget_bytes;
    uint64_t limit = ebb__away_limit(&room->backing->away);
    budget = limit < budget ? limit : budget;
    return bytes <= budget && room->absent_bytes <= budget - bytes;
}

/* ---- transfers in launch order --------------------------------------------------------------- */

bool ebb__room_may_evict(const struct cuda_room *room, uint32_t number)
{
    const struct cuda_block *block = &room->table->blocks[number];
    return block->state == CUDA_BLOCK_RESIDENT && !block->is_small && !block->is_kept &&
           block->holds == 0 && !room->config->record && room->backing->ops->can_evict &&
           !(block->is_placed && room->pool->keeps_runs); /* others are in its chunks */
}

bool ebb__room_evict(struct cuda_room *room, uint32_t number)
{
    struct cuda_block *block = &room->table->blocks[number];
    uint64_t bytes = block->unit_count * EBB_CUDA_UNIT_BYTES;
    struct cuda_move move = {
        .kind = CUDA_MOVE_EVICT, .first = block->first_unit, .count = block->unit_count};
    if (!ebb__room_may_evict(room, number))
        return false;
    if (!ebb__room_has_host(room, bytes)) {
        room->is_host_full = true;
        return false;
    }
    struct cuda_passages work = block->uses;
    ebb__passages_join(&work, room->streams, &block->before);
    if (!ebb__mover_has_room(room->mover, 1) ||
        !ebb__passages_cover(room->streams, &work, move.events, CUDA_MOVE_EVENTS,
                             &move.event_count)) {
        room->was_refused = true;
        return false;
    }
    block->move = ebb__mover_add(room->mover, &move, NULL);
    block->state = CUDA_BLOCK_ABSENT;
    block->is_served = 0;
    block->arrival = 0;
    block->evict_due = 0;
    room->absent_bytes += bytes;
    ebb__pool_set_backed(room->pool, block->first_unit, block->unit_count, false);
    ebb__table_leave(room->table, number);
    return true;
}

static bool add_fetch(struct cuda_room *room, struct cuda_block *block)
{
    struct cuda_move move = {
        .kind = CUDA_MOVE_FETCH, .first = block->first_unit, .count = block->unit_count};
    if (!ebb__mover_has_room(room->mover, 1))
        return false;
    /* Its addresses may have been used over the bus, also those of the block before it: a cached
     * range counts as arrived. */
    struct cuda_passages work = block->uses;
    ebb__passages_join(&work, room->streams, &block->before);
    /* Another thread's work may be about to use it where it is. */
    if (room->backing->ops->hides_absent && !ebb__passages_are_queued(room->streams, &work))
        return false;
    if (!room->backing->ops->is_coherent &&
        !ebb__passages_cover(room->streams, &work, move.events, CUDA_MOVE_EVENTS,
                             &move.event_count))
        return false;
    /* An eviction that has not begun need not begin. Evictions at random are there to be seen. */
    if (!room->config->chaos_seed || block->move % 4 == 0)
        ebb__mover_call_off(room->mover, block->move);
    block->move = ebb__mover_add(room->mover, &move, &block->arrival);
    return true;
}

bool ebb__room_fetch(struct cuda_room *room, uint32_t number)
{
    struct cuda_block *block = &room->table->blocks[number];
    if (!add_fetch(room, block))
        return false;
    block->state = CUDA_BLOCK_RESIDENT;
    block->is_served = 0;
    room->absent_bytes -= block->unit_count * EBB_CUDA_UNIT_BYTES;
    ebb__pool_set_backed(room->pool, block->first_unit, block->unit_count, true);
    ebb__table_use(room->table, number);
    return true;
}

void ebb__room_fetch_stray(struct cuda_room *room, uint32_t number)
{
    add_fetch(room, &room->table->blocks[number]);
}

void ebb__room_serve(struct cuda_room *room, uint32_t number)
{
    struct cuda_block *block = &room->table->blocks[number];
    struct cuda_move move = {
        .kind = CUDA_MOVE_SERVE, .first = block->first_unit, .count = block->unit_count};
    if (block->is_served || !room->backing->ops->hides_absent ||
        !ebb__mover_has_room(room->mover, 1))
        return;
    ebb__mover_add(room->mover, &move, &block->arrival);
    block->is_served = 1;
}

/* ---- who leaves ------------------------------------------------------------------------------ */

/* The cached run that goes first if `most` units are wanted. The plan tells when the last one of
 * its size will be needed: the later the better. To unmap a range and to map it again costs about
 * the same for each page, so large ones are better. CUDA_NO_RUN: the one that has been free for
 * longest. is_spare: none but one that is over, not needed soon, and a large part of that. */
struct choice {
    uint32_t run;   /* CUDA_NO_RUN: a chunk, if there is one */
    uint32_t chunk; /* its first unit; CUDA_NO_UNIT: none */
    uint64_t score;
};

/* needed: when what is there is needed again. worth: units that it frees, `most` at most. */
static uint64_t score_of(uint64_t needed, uint64_t worth, bool is_over)
{
    return (needed + 1) * worth / (is_over ? 1 : IN_USE_WORTH);
}

static bool may_spare(uint64_t needed, uint64_t worth, bool is_over, uint64_t most)
{
    return is_over && needed >= LEAST_SPARE && worth * MOST_SPARE >= most;
}

static void find_chunk(struct cuda_room *room, uint64_t most, bool is_spare, struct choice *best)
{
    struct cuda_pool *pool = room->pool;
    struct cuda_passages before;
    uint32_t old = pool->area_cached_units ? ebb__pool_old_chunk(pool) : CUDA_NO_UNIT;
    if (old != CUDA_NO_UNIT) { /* nobody needs it any more */
        *best = (struct choice){CUDA_NO_RUN, old, UINT64_MAX};
        return;
    }
    for (uint32_t i = 0; pool->area_cached_units && i < pool->area_count; i += pool->chunk_units) {
        uint32_t chunk = i / pool->chunk_units;
        uint64_t needed = chunk < CUDA_AHEAD_CHUNKS ? room->ahead.chunks[chunk] : UINT32_MAX;
        uint64_t worth = pool->chunk_units < most ? pool->chunk_units : most;
        if ((needed + 1) * worth <= best->score ||
            !ebb__pool_is_cached_chunk(pool, pool->area_first + i))
            continue;
        ebb__pool_cached_chunk(pool, pool->area_first + i, &before);
        bool is_over = ebb__passages_are_over(room->streams, &before);
        if (is_spare && !may_spare(needed, worth, is_over, most))
            continue;
        uint64_t score = score_of(needed, worth, is_over);
        if (score > best->score)
            *best = (struct choice){CUDA_NO_RUN, pool->area_first + i, score};
    }
}

static struct choice find_run(struct cuda_room *room, uint64_t most, bool is_spare)
{
    struct choice choice = {CUDA_NO_RUN, CUDA_NO_UNIT, 0};
    const struct cuda_pool *pool = room->pool;
    uint32_t looks = 0;
    if (!pool->keeps_runs || !ebb__follow_is_planned(room->follow))
        return choice;
    ebb__follow_ahead(room->follow, pool->kept, pool->chunk_units, UINT32_MAX, &room->ahead);
    for (uint32_t i = pool->oldest_cached; i && looks < MOST_CANDIDATES;
         i = pool->runs[i].newer, looks++) {
        const struct cuda_run *run = &pool->runs[i];
        uint64_t needed = room->ahead.needed[ebb__run_size(run->count)];
        uint64_t worth = run->count < most ? run->count : most;
        bool is_over = ebb__passages_are_over(room->streams, &pool->units[run->first].before);
        if (is_spare && !may_spare(needed, worth, is_over, most))
            continue;
        uint64_t score = score_of(needed, worth, is_over);
        if (score > choice.score)
            choice = (struct choice){i, CUDA_NO_UNIT, score};
    }
    find_chunk(room, most, is_spare, &choice);
    return choice;
}

/* Units of a cached run, or a chunk, leave. No choice: of the oldest. False: none can. */
static bool drop_cached(struct cuda_room *room, struct choice choice, uint64_t most)
{
    struct cuda_move move = {.kind = CUDA_MOVE_DROP};
    struct cuda_passages before;
    uint32_t limit = most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
    if (!ebb__mover_has_room(room->mover, 1))
        return false;
    if (choice.chunk != CUDA_NO_UNIT) {
        move.first = choice.chunk;
        move.count = room->pool->chunk_units;
        ebb__pool_cached_chunk(room->pool, choice.chunk, &before);
    } else {
        move.first = ebb__pool_cached(room->pool, choice.run, limit, &move.count, &before);
    }
    if (!move.count)
        return false;
    if (!ebb__passages_cover(room->streams, &before, move.events, CUDA_MOVE_EVENTS,
                             &move.event_count)) {
        /* Work that cannot be waited for now: the pages leave with their dead contents. */
        room->was_refused = true;
        if (!room->backing->ops->can_evict || !room->backing->ops->is_coherent)
            return false;
        move.kind = CUDA_MOVE_EVICT;
    }
    ebb__pool_drop(room->pool, move.first, move.count, ebb__mover_add(room->mover, &move, NULL));
    return true;
}

/* Is a better victim than b? Next uses that the plan knows go before those it does not. */
static bool is_better(uint64_t a, uint64_t b)
{
    if (a == UINT64_MAX || b == UINT64_MAX)
        return b == UINT64_MAX && a != UINT64_MAX;
    return a > b;
}

static uint32_t find_victim(struct cuda_room *room, uint64_t search)
{
    uint32_t best = CUDA_NO_BLOCK, looks = 0;
    uint64_t best_use = UINT64_MAX;
    bool is_planned = ebb__follow_is_planned(room->follow);
    for (uint32_t i = room->table->oldest; i && looks < MOST_CANDIDATES;
         i = room->table->blocks[i].newer) {
        const struct cuda_block *block = &room->table->blocks[i];
        if (!ebb__room_may_evict(room, i) || block->refused == search)
            continue; /* many blocks may stay for life */
        looks++;
        if (!ebb__room_has_host(room, block->unit_count * EBB_CUDA_UNIT_BYTES)) {
            room->is_host_full = true;
            continue;
        }
        if (!is_planned)
            return i;
        uint64_t use = ebb__follow_next_use(room->follow, i);
        if (!best || is_better(use, best_use)) {
            best = i;
            best_use = use;
        }
    }
    return best;
}

static bool evict_one(struct cuda_room *room)
{
    uint64_t search = ++room->searches;
    for (uint32_t tries = 0; tries < MOST_CANDIDATES; tries++) {
        uint32_t victim = find_victim(room, search);
        if (!victim)
            return false;
        if (ebb__room_evict(room, victim)) {
            atomic_fetch_add(&room->config->ring->counters.reactive_evictions, 1);
            return true;
        }
        room->table->blocks[victim].refused = search;
    }
    return false;
}

/* What is being evicted leaves when it has been copied, which takes a while. Cached ranges leave at
 * once, so they go first. */
static void make_at_once(struct cuda_room *room, uint64_t count)
{
    uint64_t limit = ebb__room_limit(room) / EBB_CUDA_UNIT_BYTES;
    uint64_t leaving =
        room->backing->ops->drops_at_once ? ebb__mover_leaving_units(room->mover) : 0;
    while (leaving && room->pool->backed_units + leaving + count > limit) {
        uint64_t most = room->pool->backed_units + leaving + count - limit;
        if (!drop_cached(room, find_run(room, most, false), most))
            return;
    }
}

/* Other processes hold what is missing: the parent lets one of them return some. */
static void ask_others(struct cuda_room *room, uint64_t count, uint64_t missing)
{
    struct ebb_ledger *ledger = room->config->ledger;
    uint64_t own = ebb__mover_held_bytes(room->mover) + room->shared.bytes;
    uint64_t held = atomic_load(&ledger->held_bytes), bytes = missing * EBB_CUDA_UNIT_BYTES;
    if (!count || held <= own || atomic_load(&room->config->ring->parent_gone) ||
        count * EBB_CUDA_UNIT_BYTES > atomic_load(&ledger->budget_bytes))
        return;
    atomic_store(&ledger->starving_process, room->process);
    atomic_store(&ledger->starving_bytes, bytes < held - own ? bytes : held - own);
    room->has_asked = true;
}

/* What was asked for has come. A process that asked meanwhile asks again. */
static void ask_no_more(struct cuda_room *room)
{
    struct ebb_ledger *ledger = room->config->ledger;
    if (room->has_asked && atomic_load(&ledger->starving_process) == room->process)
        atomic_store(&ledger->starving_bytes, 0);
    room->has_asked = false;
}

bool ebb__room_make(struct cuda_room *room, uint64_t count)
{
    if (count)
        make_at_once(room, count);
    for (;;) {
        uint64_t limit = ebb__room_limit(room) / EBB_CUDA_UNIT_BYTES;
        uint64_t wanted = room->pool->backed_units + count;
        if (wanted <= limit) {
            ask_no_more(room);
            return true;
        }
        if (count > limit ||
            (!drop_cached(room, find_run(room, wanted - limit, false), wanted - limit) &&
             !evict_one(room))) {
            ask_others(room, count, wanted - limit);
            return false;
        }
    }
}

bool ebb__room_make_spare(struct cuda_room *room, uint64_t count)
{
    for (unsigned tries = 0; tries < MOST_SPARE; tries++) {
        uint64_t limit = ebb__room_limit(room) / EBB_CUDA_UNIT_BYTES;
        uint64_t taken = room->pool->backed_units + ebb__mover_leaving_units(room->mover);
        if (taken + count <= limit)
            return true;
        uint64_t most = taken + count - limit;
        struct choice choice = find_run(room, most, true);
        if (!choice.score || !drop_cached(room, choice, most))
            return false;
    }
    return false;
}

void ebb__room_shrink(struct cuda_room *room, uint64_t bytes)
{
    uint64_t units = ebb__cuda_units(bytes), leaving = ebb__mover_leaving_units(room->mover);
    units = units > leaving ? units - leaving : 0;
    uint64_t backed = room->pool->backed_units;
    uint64_t goal = backed > units ? backed - units : 0;
    while (room->pool->backed_units > goal &&
           (drop_cached(room, (struct choice){CUDA_NO_RUN, CUDA_NO_UNIT, 0},
                        room->pool->backed_units - goal) ||
            evict_one(room)))
        ;
}
