#include "cuda/pool.h"

#include "base/check.h"
#include "cuda/memory.h"

#include <string.h>

#define EXACT_BINS 32u
#define MOST_LOOKS 24u          /* runs looked at in a search: more find little better */
#define MOST_UNITS_LOOKED 4096u /* in one run: a microsecond or two each thousand */

bool ebb__pool_init(struct cuda_pool *pool, struct cuda_table *table, struct cuda_streams *streams)
{
    memset(pool, 0, sizeof *pool);
    pool->table = table;
    pool->streams = streams;
    pool->units = ebb__cuda_reserve(CUDA_MOST_UNITS * sizeof *pool->units);
    pool->runs = ebb__cuda_reserve(CUDA_MOST_UNITS * sizeof *pool->runs);
    pool->run_count = 1; /* run 0 is CUDA_NO_RUN */
    return pool->units && pool->runs;
}

void ebb__pool_fini(struct cuda_pool *pool)
{
    ebb__cuda_unreserve(pool->units, CUDA_MOST_UNITS * sizeof *pool->units);
    ebb__cuda_unreserve(pool->runs, CUDA_MOST_UNITS * sizeof *pool->runs);
}

/* ---- bins ------------------------------------------------------------------------------------ */

static uint32_t bin_of(uint32_t count)
{
    if (count <= EXACT_BINS)
        return count - 1;
    uint32_t power = 31 - (uint32_t)__builtin_clz(count); /* >= 5 */
    return EXACT_BINS + (power - 5) * 8 + (count >> (power - 3) & 7);
}

static uint32_t filled_from(const struct cuda_bins *bins, uint32_t bin)
{
    for (uint32_t word = bin / 64; word < CUDA_POOL_BINS / 64; word++) {
        uint64_t bits = bins->filled[word];
        if (word == bin / 64)
            bits &= ~(uint64_t)0 << bin % 64;
        if (bits)
            return word * 64 + (uint32_t)__builtin_ctzll(bits);
    }
    return CUDA_POOL_BINS;
}

static void put_cached(struct cuda_pool *pool, uint32_t number)
{
    struct cuda_run *run = &pool->runs[number];
    pool->kept[ebb__run_size(run->count)]++;
    run->newer = CUDA_NO_RUN;
    run->older = pool->newest_cached;
    if (run->older)
        pool->runs[run->older].newer = number;
    pool->newest_cached = number;
    if (!pool->oldest_cached)
        pool->oldest_cached = number;
}

static void take_cached(struct cuda_pool *pool, uint32_t number)
{
    struct cuda_run *run = &pool->runs[number];
    pool->kept[ebb__run_size(run->count)]--;
    if (run->newer)
        pool->runs[run->newer].older = run->older;
    else
        pool->newest_cached = run->older;
    if (run->older)
        pool->runs[run->older].newer = run->newer;
    else
        pool->oldest_cached = run->newer;
}

/* A run of these units, which are free, and all backed or all bare. */
static void make_run(struct cuda_pool *pool, uint32_t first, uint32_t count)
{
    uint32_t number = pool->unused_run;
    if (number)
        pool->unused_run = pool->runs[number].next;
    else
        number = pool->run_count++; /* there are no more runs than units */
    struct cuda_run *run = &pool->runs[number];
    *run = (struct cuda_run){
        .first = first, .count = count, .is_backed = pool->units[first].is_backed};
    struct cuda_bins *bins = &pool->bins[run->is_backed];
    uint32_t bin = bin_of(count);
    run->next = bins->heads[bin];
    if (run->next)
        pool->runs[run->next].previous = number;
    bins->heads[bin] = number;
    bins->filled[bin / 64] |= (uint64_t)1 << bin % 64;
    pool->units[first].run = pool->units[first + count - 1].run = number;
    if (run->is_backed) {
        put_cached(pool, number);
        pool->cached_units += count;
    }
}

static void unmake_run(struct cuda_pool *pool, uint32_t number)
{
    struct cuda_run *run = &pool->runs[number];
    struct cuda_bins *bins = &pool->bins[run->is_backed];
    uint32_t bin = bin_of(run->count);
    if (run->next)
        pool->runs[run->next].previous = run->previous;
    if (run->previous)
        pool->runs[run->previous].next = run->next;
    else
        bins->heads[bin] = run->next;
    if (!bins->heads[bin])
        bins->filled[bin / 64] &= ~((uint64_t)1 << bin % 64);
    pool->units[run->first].run = pool->units[run->first + run->count - 1].run = CUDA_NO_RUN;
    if (run->is_backed) {
        take_cached(pool, number);
        pool->cached_units -= run->count;
    }
    run->next = pool->unused_run;
    pool->unused_run = number;
}

/* The number of the run that ends before `unit`, or begins at it, if it can be joined. */
static uint32_t neighbour(const struct cuda_pool *pool, uint32_t unit, bool is_backed)
{
    const struct cuda_unit *other = &pool->units[unit];
    return other->is_free && !other->is_area && other->is_backed == is_backed ? other->run
                                                                              : CUDA_NO_RUN;
}

/* Free units join their neighbours. */
static void join(struct cuda_pool *pool, uint32_t first, uint32_t count)
{
    bool is_backed = pool->units[first].is_backed;
    if (is_backed && pool->keeps_runs) {
        make_run(pool, first, count);
        return;
    }
    if (!pool->units[first].is_first) {
        uint32_t left = neighbour(pool, first - 1, is_backed);
        if (left) {
            first = pool->runs[left].first;
            count += pool->runs[left].count;
            unmake_run(pool, left);
        }
    }
    uint32_t end = first + count;
    if (end < pool->table->unit_count && !pool->units[end].is_first) {
        uint32_t right = neighbour(pool, end, is_backed);
        if (right) {
            count += pool->runs[right].count;
            unmake_run(pool, right);
        }
    }
    make_run(pool, first, count);
}

/* ---- free units ------------------------------------------------------------------------------ */

void ebb__pool_add(struct cuda_pool *pool, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        pool->units[first + i] = (struct cuda_unit){.is_free = true, .is_first = i == 0};
    join(pool, first, count);
}

static bool is_settled(const struct cuda_pool *pool, uint32_t first, uint32_t count)
{
    uint64_t over = atomic_load_explicit(pool->outs_over, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++)
        if (pool->units[first + i].destroyed > over)
            return false;
    return true;
}

/* The first `count` units of the run whose contents nothing will destroy. CUDA_NO_UNIT: none. */
static uint32_t find_settled(const struct cuda_pool *pool, const struct cuda_run *run,
                             uint32_t count)
{
    uint64_t over = atomic_load_explicit(pool->outs_over, memory_order_acquire);
    uint32_t last = run->first + run->count, settled = 0;
    if (run->is_backed)
        return run->first;
    if (run->count > MOST_UNITS_LOOKED + count)
        last = run->first + MOST_UNITS_LOOKED + count;
    for (uint32_t unit = run->first; unit < last; unit++) {
        settled = pool->units[unit].destroyed > over ? 0 : settled + 1;
        if (settled == count)
            return unit + 1 - count;
    }
    return CUDA_NO_UNIT;
}

/* 0: nothing, 1: waits on the device, 2: the units cannot be used now. */
static unsigned cost(const struct cuda_pool *pool, uint32_t first, uint32_t stream)
{
    return first == CUDA_NO_UNIT
               ? 2
               : ebb__passages_cost(pool->streams, stream, &pool->units[first].before);
}

/* The best of the runs that fit, and where in it: the cheapest, then the smallest. If none is found
 * soon, the first run of each larger size is tried. */
static uint32_t find_run(const struct cuda_pool *pool, const struct cuda_bins *bins, uint32_t count,
                         uint32_t stream, uint32_t *first)
{
    uint32_t best = CUDA_NO_RUN, looks = 0;
    bool is_exact = pool->keeps_runs && bins == &pool->bins[true];
    unsigned best_cost = 2;
    for (uint32_t bin = filled_from(bins, bin_of(count)); bin < CUDA_POOL_BINS;
         bin = filled_from(bins, bin + 1)) {
        for (uint32_t i = bins->heads[bin];
             i && (looks < MOST_LOOKS || (!best && i == bins->heads[bin]));
             i = pool->runs[i].next) {
            const struct cuda_run *run = &pool->runs[i];
            if (run->count < count || (is_exact && run->count > count) || (looks++, false))
                continue;
            uint32_t unit = find_settled(pool, run, count);
            unsigned price = cost(pool, unit, stream);
            if (price < best_cost ||
                (price == best_cost && best && run->count < pool->runs[best].count)) {
                best = i;
                best_cost = price;
                *first = unit;
            }
            if (price == 0 && run->count == count)
                return i;
        }
        if (is_exact || (best && (best_cost == 0 || looks >= MOST_LOOKS)))
            break;
    }
    return best;
}

static void take_units(struct cuda_pool *pool, uint32_t first, uint32_t count,
                       struct cuda_passages *before)
{
    before->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct cuda_unit *unit = &pool->units[first + i];
        if (unit->before.count)
            ebb__passages_join(before, pool->streams, &unit->before);
        unit->before.count = 0;
        unit->is_free = false;
        pool->backed_units += !unit->is_backed;
        unit->is_backed = true;
    }
}

uint32_t ebb__pool_take(struct cuda_pool *pool, uint32_t count, bool cached, uint32_t stream,
                        struct cuda_passages *before)
{
    uint32_t unit = CUDA_NO_UNIT;
    uint32_t number = find_run(pool, &pool->bins[cached], count, stream, &unit);
    if (number == CUDA_NO_RUN)
        return CUDA_NO_UNIT;
    uint32_t first = pool->runs[number].first, last = first + pool->runs[number].count;
    unmake_run(pool, number);
    take_units(pool, unit, count, before);
    if (unit > first)
        make_run(pool, first, unit - first);
    if (last > unit + count)
        make_run(pool, unit + count, last - unit - count);
    return unit;
}

uint32_t ebb__pool_arrival(const struct cuda_pool *pool, uint32_t first, uint32_t count)
{
    uint32_t all = 0;
    for (uint32_t i = 0; i < count; i++)
        all = ebb__arrival_both(all, pool->units[first + i].arrival);
    return all;
}

void ebb__pool_give(struct cuda_pool *pool, uint32_t first, uint32_t count, bool is_backed,
                    const struct cuda_passages *before, uint32_t arrival)
{
    bool is_area = pool->units[first].is_area;
    for (uint32_t i = 0; i < count; i++) {
        struct cuda_unit *unit = &pool->units[first + i];
        EBB_CHECK_THAT(!unit->is_free && unit->is_backed == is_backed);
        unit->before = *before;
        unit->arrival = arrival;
        unit->is_free = true;
    }
    if (!is_area)
        join(pool, first, count);
    else if (is_backed)
        pool->area_cached_units += count;
}

void ebb__pool_destroy(struct cuda_pool *pool, uint32_t first, uint32_t count, uint64_t number)
{
    for (uint32_t i = 0; i < count; i++)
        pool->units[first + i].destroyed = number;
}

void ebb__pool_set_backed(struct cuda_pool *pool, uint32_t first, uint32_t count, bool is_backed)
{
    for (uint32_t i = 0; i < count; i++) {
        struct cuda_unit *unit = &pool->units[first + i];
        pool->backed_units += (uint64_t)is_backed - unit->is_backed;
        unit->is_backed = is_backed;
    }
}

/* ---- the area -------------------------------------------------------------------------------- */

static void join_passages(const struct cuda_pool *pool, uint32_t first, uint32_t count,
                          struct cuda_passages *before)
{
    for (uint32_t i = 0; i < count; i++)
        ebb__passages_join(before, pool->streams, &pool->units[first + i].before);
}

uint32_t ebb__pool_cached(struct cuda_pool *pool, uint32_t run, uint32_t most, uint32_t *count,
                          struct cuda_passages *before)
{
    uint32_t first, number = run ? run : pool->oldest_cached;
    *count = 0;
    before->count = 0;
    if (number) {
        first = pool->runs[number].first;
        *count = pool->runs[number].count;
        if (*count > most && !pool->keeps_runs)
            *count = most;
    } else {
        first = ebb__pool_oldest_chunks(pool, most, count);
    }
    join_passages(pool, first, *count, before);
    return first;
}

void ebb__pool_drop(struct cuda_pool *pool, uint32_t first, uint32_t count, uint64_t number)
{
    uint32_t left = 0;
    bool is_area = pool->units[first].is_area;
    if (is_area) {
        pool->area_cached_units -= count;
    } else { /* units at the beginning of a run */
        uint32_t run = pool->units[first].run;
        left = pool->runs[run].count - count;
        unmake_run(pool, run);
    }
    ebb__pool_set_backed(pool, first, count, false);
    ebb__pool_destroy(pool, first, count, number);
    if (left)
        make_run(pool, first + count, left);
    if (!is_area)
        join(pool, first, count);
}

static void leave_area(struct cuda_pool *pool)
{
    uint32_t last = pool->area_first + pool->area_count;
    for (uint32_t i = pool->area_first; i < last; i++) {
        pool->units[i].is_area = false;
        if (pool->units[i].is_free)
            join(pool, i, 1);
    }
    pool->area_cached_units = 0;
}

static bool is_left(const struct cuda_pool *pool, const struct cuda_span *area)
{
    for (uint32_t i = 0; i < area->count; i++)
        if (!pool->units[area->first + i].is_free || pool->units[area->first + i].is_backed)
            return false;
    return true;
}

bool ebb__pool_may_set_area(struct cuda_pool *pool)
{
    for (uint32_t i = 0; i < pool->old_area_count;) {
        struct cuda_span area = pool->old_areas[i];
        if (!is_left(pool, &area)) {
            i++;
            continue;
        }
        pool->old_areas[i] = pool->old_areas[--pool->old_area_count];
        for (uint32_t unit = area.first; unit < area.first + area.count; unit++)
            pool->units[unit].is_area = false;
        join(pool, area.first, area.count);
    }
    return !pool->keeps_runs || pool->old_area_count < CUDA_MOST_AREAS;
}

bool ebb__pool_set_area(struct cuda_pool *pool, uint32_t first, uint32_t count)
{
    if (!ebb__pool_may_set_area(pool))
        return false;
    if (pool->keeps_runs && pool->area_count)
        pool->old_areas[pool->old_area_count++] =
            (struct cuda_span){pool->area_first, pool->area_count};
    if (!pool->keeps_runs)
        leave_area(pool);
    for (uint32_t i = 0; i < count; i++)
        pool->units[first + i] =
            (struct cuda_unit){.is_free = true, .is_first = i == 0, .is_area = true};
    pool->area_first = first;
    pool->area_count = count;
    pool->area_cursor = 0;
    return true;
}

bool ebb__pool_is_free_at(const struct cuda_pool *pool, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!pool->units[first + i].is_free || !pool->units[first + i].is_area)
            return false;
    return true;
}

bool ebb__pool_take_at(struct cuda_pool *pool, uint32_t first, uint32_t count,
                       struct cuda_passages *before)
{
    if (!ebb__pool_is_free_at(pool, first, count))
        return false;
    /* Where nothing is mapped, nobody writes what a drop destroys, and pages come after it. */
    if (!pool->keeps_runs && !is_settled(pool, first, count))
        return false;
    pool->area_cached_units -= count;
    take_units(pool, first, count, before);
    return true;
}
