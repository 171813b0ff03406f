/* Planned addresses: the pool, a part of the arena in which blocks lie where the plan put them.
 *
 * A block with own 2 MiB units has its end in 4 KiB pages, which cost address translation, and takes
 * and gives pages as it comes and goes. What never leaves fast memory within an iteration needs no
 * pages of its own: the plan packs such blocks by their lifetimes (dynamic storage allocation), and
 * while it is played each allocation by its position in the template gets its address here, in
 * O(1) and a bit a page. The pool has huge pages only. A unit of it that no block covers keeps its
 * page as *spare*: the next block there finds it, unless somebody else has needed it meanwhile.
 *
 * Two blocks may share a page table entry, so none of these moves alone: they are watched by no
 * trace, which does not count as one meanwhile, and are nobody's victim until they are freed. That is
 * bounded by the plan, which counts whole units, and while small blocks and other processes leave less
 * room than it was made for, nothing is put there. An address that is still taken, because the program
 * departs from the plan, is no error: the block gets units of its own as it would without a plan. So
 * does everything while no script is played. */
#include "runtime/internal.h"

#include <sys/mman.h>

/* Of the arena. Only address space: the rest of 1 TiB is plenty as well. */
#define POOL_SHARE 4

enum { UNIT_BACKED = 1, UNIT_INHERITED = 2, UNIT_STRAYS = 4 };

#define PAGES_PER_UNIT (EBB_HUGE_BYTES / EBB_PAGE_BYTES)

bool ebb__placed_init(struct ebb_runtime *runtime)
{
    struct pool *pool = &runtime->pool;
    pool->units_total = (uint32_t)(runtime->units_total / POOL_SHARE);
    pool->base = ebb__space_cut(runtime, pool->units_total);
    uint64_t pages = pool->units_total * PAGES_PER_UNIT;
    if (runtime->device.ops->fix)
        runtime->device.ops->fix(runtime->device.state, pool->base,
                                 pool->units_total * EBB_HUGE_BYTES);
    pool->first_page = ebb__runtime_memory(pages * sizeof *pool->first_page);
    pool->taken = ebb__runtime_memory(pages / 8);
    pool->users = ebb__runtime_memory(pool->units_total * sizeof *pool->users);
    pool->states = ebb__runtime_memory(pool->units_total);
    return pool->first_page && pool->taken && pool->users && pool->states;
}

void ebb__placed_fini(struct ebb_runtime *runtime)
{
    struct pool *pool = &runtime->pool;
    uint64_t pages = pool->units_total * PAGES_PER_UNIT;
    ebb__runtime_unmap(pool->first_page, pages * sizeof *pool->first_page);
    ebb__runtime_unmap(pool->taken, pages / 8);
    ebb__runtime_unmap(pool->users, pool->units_total * sizeof *pool->users);
    ebb__runtime_unmap(pool->states, pool->units_total);
}

bool ebb__placed_owns(const struct ebb_runtime *runtime, uintptr_t address)
{
    return address - runtime->pool.base < runtime->pool.units_total * EBB_HUGE_BYTES;
}

struct block *ebb__placed_find(struct ebb_runtime *runtime, uintptr_t address)
{
    uint32_t index = runtime->pool.first_page[(address - runtime->pool.base) / EBB_PAGE_BYTES];
    return index == NO_BLOCK ? NULL : &runtime->blocks[index];
}

static uintptr_t unit_address(const struct ebb_runtime *runtime, uint32_t unit)
{
    return runtime->pool.base + unit * EBB_HUGE_BYTES;
}

static uint32_t first_unit(const struct ebb_runtime *runtime, const struct block *block)
{
    return (uint32_t)((block->address - runtime->pool.base) / EBB_HUGE_BYTES);
}

static uint32_t last_unit(const struct ebb_runtime *runtime, const struct block *block)
{
    return (uint32_t)((block->address - runtime->pool.base + block->page_bytes - 1) /
                      EBB_HUGE_BYTES);
}

/* --- which pages are taken --- */

static uint64_t bits_between(uint64_t word, uint64_t first, uint64_t behind)
{
    uint64_t low = word * 64, mask = UINT64_MAX;
    if (first > low)
        mask &= UINT64_MAX << (first - low);
    if (behind < low + 64)
        mask &= UINT64_MAX >> (low + 64 - behind);
    return mask;
}

static bool is_free(const struct pool *pool, uint64_t place, uint64_t bytes)
{
    uint64_t first = place / EBB_PAGE_BYTES, behind = first + bytes / EBB_PAGE_BYTES;
    for (uint64_t word = first / 64; word * 64 < behind; word++)
        if (pool->taken[word] & bits_between(word, first, behind))
            return false;
    return true;
}

struct block *ebb__placed_covering(struct ebb_runtime *runtime, uintptr_t address)
{
    const struct pool *pool = &runtime->pool;
    uint64_t page = (address - pool->base) / EBB_PAGE_BYTES;
    if (is_free(pool, page * EBB_PAGE_BYTES, EBB_PAGE_BYTES))
        return NULL;
    while (page > 0 && pool->first_page[page] == NO_BLOCK)
        page--;
    return ebb__placed_find(runtime, pool->base + page * EBB_PAGE_BYTES);
}

static void mark_taken(struct pool *pool, uint64_t place, uint64_t bytes, bool taken)
{
    uint64_t first = place / EBB_PAGE_BYTES, behind = first + bytes / EBB_PAGE_BYTES;
    for (uint64_t word = first / 64; word * 64 < behind; word++) {
        if (taken)
            pool->taken[word] |= bits_between(word, first, behind);
        else
            pool->taken[word] &= ~bits_between(word, first, behind);
    }
}

/* --- what the script says --- */

static bool is_placed(const struct ebb_script_block *block)
{
    return block->place != EBB_SCRIPT_NO_PLACE;
}

static uint32_t units_up_to(const struct ebb_script_block *block)
{
    return (uint32_t)((block->place + block->size_bytes - 1) / EBB_HUGE_BYTES) + 1;
}

size_t ebb__placed_table_words(const struct ebb_runtime *runtime, const struct ebb_script *script)
{
    if (script->pool_bytes == 0 || script->pool_bytes / EBB_HUGE_BYTES >= runtime->pool.units_total)
        return 0;
    const struct ebb_script_event *events = ebb__script_events(script);
    const struct ebb_script_block *blocks = ebb__script_blocks(script);
    size_t words = script->pool_bytes / EBB_HUGE_BYTES + 2;
    for (uint32_t i = 0; i < script->clock_count; i++) {
        const struct ebb_script_block *block = &blocks[events[i].block];
        if (events[i].kind == EBB_EVENT_ALLOC && is_placed(block))
            words += units_up_to(block) - block->place / EBB_HUGE_BYTES;
    }
    return words > UINT32_MAX ? 0 : words;
}

/* Positions of the allocations that cover each unit, ascending: by counting, since most units are
 * covered by many blocks. */
void ebb__placed_prepare(struct performance *performance, uint32_t *words)
{
    const struct ebb_script *script = performance->script;
    const struct ebb_script_event *events = ebb__script_events(script);
    const struct ebb_script_block *blocks = ebb__script_blocks(script);
    uint32_t units = (uint32_t)(script->pool_bytes / EBB_HUGE_BYTES) + 1;
    uint32_t *first = performance->unit_first = words;
    uint32_t *covers = performance->unit_covers = words + units + 1;
    performance->unit_count = units;
    for (int counting = 1; counting >= 0; counting--) {
        for (uint32_t i = 0; i < script->clock_count; i++) {
            const struct ebb_script_block *block = &blocks[events[i].block];
            if (events[i].kind != EBB_EVENT_ALLOC || !is_placed(block))
                continue;
            for (uint64_t unit = block->place / EBB_HUGE_BYTES; unit < units_up_to(block); unit++) {
                if (counting)
                    first[unit + 1]++;
                else
                    covers[first[unit]++] = i;
            }
        }
        if (counting)
            for (uint32_t unit = 0; unit < units; unit++)
                first[unit + 1] += first[unit];
    }
    for (uint32_t unit = units; unit > 0; unit--) /* each stands where the next one began */
        first[unit] = first[unit - 1];
    first[0] = 0;
}

uint32_t ebb__placed_least(const struct ebb_script *script)
{
    const struct ebb_script_event *events = ebb__script_events(script);
    const struct ebb_script_block *blocks = ebb__script_blocks(script);
    int64_t load = 0, least = INT64_MAX;
    uint32_t position = 0;
    for (uint32_t i = 0; i < script->clock_count; i++) {
        const struct ebb_script_block *block = &blocks[events[i].block];
        if (is_placed(block))
            load += events[i].kind == EBB_EVENT_ALLOC ? (int64_t)block->size_bytes
                                                      : -(int64_t)block->size_bytes;
        if (load < least) {
            least = load;
            position = (i + 1) % script->clock_count;
        }
    }
    return position;
}

/* Clock positions until a block is to lie in `unit`; UINT32_MAX: never. */
static uint32_t distance(const struct ebb_runtime *runtime, uint32_t unit)
{
    const struct performance *playing = runtime->playing;
    if (!playing || unit >= playing->unit_count)
        return UINT32_MAX;
    const uint32_t *covers = playing->unit_covers;
    uint32_t low = playing->unit_first[unit], high = playing->unit_first[unit + 1];
    uint32_t behind = high, earliest = low;
    if (low == behind)
        return UINT32_MAX;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (covers[middle] < runtime->position)
            low = middle + 1;
        else
            high = middle;
    }
    return low < behind ? covers[low] - runtime->position
                        : covers[earliest] + playing->script->clock_count - runtime->position;
}

/* --- blocks --- */

/* Does all that the plan holds at a time fit beside what small blocks and other processes hold now?
 * They may hold more than when it was made; then what lay in the pool could not make way. */
static bool plan_fits(const struct ebb_runtime *runtime)
{
    const struct ebb_counters *counters = runtime->counters;
    uint64_t share =
        ebb__ledger_share(runtime->ledger, atomic_load(&runtime->ledger->budget_bytes),
                          atomic_load(&counters->held_bytes), atomic_load(&counters->small_bytes));
    return runtime->playing->script->peak_bytes <= share;
}

struct block *ebb__placed_take(struct ebb_runtime *runtime, size_t bytes, size_t alignment)
{
    struct pool *pool = &runtime->pool;
    if (!runtime->playing || runtime->trace || runtime->playing->unit_count == 0)
        return NULL;
    uint32_t known = ebb__clock_foresee(runtime, bytes);
    if (known == EBB_SCRIPT_NONE)
        return NULL;
    const struct ebb_script_block *planned = &ebb__script_blocks(runtime->playing->script)[known];
    if (!is_placed(planned) || !plan_fits(runtime))
        return NULL;
    uint64_t page_bytes = ebb__whole_pages(bytes);
    uint64_t place = planned->place;
    struct block *block = NULL;
    if ((place & (alignment - 1)) == 0 && is_free(pool, place, page_bytes))
        block = ebb__space_record(runtime, &pool->records);
    if (!block) {
        atomic_fetch_add(&runtime->counters->pool_misses, 1);
        return NULL;
    }
    block->placed = true;
    block->address = pool->base + place;
    block->page_bytes = page_bytes;
    block->size_bytes = bytes;
    mark_taken(pool, place, page_bytes, true);
    pool->first_page[place / EBB_PAGE_BYTES] = ebb__block_index(runtime, block);
    for (uint32_t unit = first_unit(runtime, block); unit <= last_unit(runtime, block); unit++)
        if (pool->users[unit]++ == 0 && (pool->states[unit] & UNIT_BACKED))
            pool->spare_bytes -= EBB_HUGE_BYTES;
    if (pool->units_used <= last_unit(runtime, block))
        pool->units_used = last_unit(runtime, block) + 1;
    pool->load_bytes += bytes;
    atomic_fetch_add(&runtime->counters->pool_blocks, 1);
    ebb__ledger_raise(&runtime->counters->pool_load_bytes, pool->load_bytes);
    return block;
}

uint64_t ebb__placed_lacking(const struct ebb_runtime *runtime, const struct block *block)
{
    uint64_t lacking = 0;
    for (uint32_t unit = first_unit(runtime, block); unit <= last_unit(runtime, block); unit++)
        if (!(runtime->pool.states[unit] & UNIT_BACKED))
            lacking += EBB_HUGE_BYTES;
    return lacking;
}

bool ebb__placed_back(struct ebb_runtime *runtime, struct block *block, bool force)
{
    struct pool *pool = &runtime->pool;
    uint32_t behind = last_unit(runtime, block) + 1;
    if (!force && ebb__placed_lacking(runtime, block) > ebb__pages_available(runtime))
        return false;
    for (uint32_t unit = first_unit(runtime, block), next; unit < behind; unit = next) {
        next = unit + 1;
        if (pool->states[unit] & UNIT_BACKED)
            continue;
        while (next < behind && !(pool->states[next] & UNIT_BACKED))
            next++;
        uintptr_t target = unit_address(runtime, unit);
        uint64_t bytes = (next - unit) * EBB_HUGE_BYTES;
        for (uint32_t i = unit; i < next; i++)
            if (pool->states[i] & UNIT_STRAYS)
                runtime->device.ops->release(runtime->device.state, unit_address(runtime, i),
                                             EBB_HUGE_BYTES);
        if (force ? !ebb__pages_force(runtime, target, bytes)
                  : !ebb__pages_take(runtime, target, bytes))
            return false;
        for (uint32_t i = unit; i < next; i++)
            pool->states[i] = UNIT_BACKED;
        pool->held_bytes += bytes;
    }
    ebb__ledger_raise(&runtime->counters->pool_peak_bytes, pool->held_bytes);
    return true;
}

void ebb__placed_give(struct ebb_runtime *runtime, struct block *block)
{
    struct pool *pool = &runtime->pool;
    uint64_t place = block->address - pool->base;
    mark_taken(pool, place, block->page_bytes, false);
    pool->first_page[place / EBB_PAGE_BYTES] = NO_BLOCK;
    for (uint32_t unit = first_unit(runtime, block); unit <= last_unit(runtime, block); unit++) {
        if (--pool->users[unit])
            continue;
        if (pool->states[unit] & UNIT_INHERITED) {
            runtime->device.ops->release(runtime->device.state, unit_address(runtime, unit),
                                         EBB_HUGE_BYTES);
            pool->states[unit] = 0;
        } else if (pool->states[unit] & UNIT_BACKED) {
            pool->spare_bytes += EBB_HUGE_BYTES;
        }
    }
    pool->load_bytes -= block->size_bytes;
    block->state = BLOCK_EMPTY;
    ebb__list_push_front(runtime, &pool->records, ebb__block_index(runtime, block), LINK_LIST);
}

void ebb__placed_fill(struct ebb_runtime *runtime, uintptr_t address)
{
    uint64_t unit = (address - runtime->pool.base) / EBB_HUGE_BYTES;
    if (runtime->device.ops->fill(runtime->device.state, address) &&
        !(runtime->pool.states[unit] & UNIT_BACKED))
        runtime->pool.states[unit] |= UNIT_STRAYS;
}

/* --- spare pages --- */

static bool is_spare(const struct pool *pool, uint32_t unit)
{
    return pool->users[unit] == 0 && (pool->states[unit] & UNIT_BACKED);
}

struct spare_run ebb__placed_spare(const struct ebb_runtime *runtime, uint64_t most_bytes)
{
    const struct pool *pool = &runtime->pool;
    struct spare_run run = {0};
    if (pool->spare_bytes == 0)
        return run;
    for (uint32_t unit = 0; unit < pool->units_used; unit++) {
        uint32_t away = is_spare(pool, unit) ? distance(runtime, unit) : 0;
        if (away >= run.distance && is_spare(pool, unit))
            run = (struct spare_run){unit, 1, away};
    }
    /* Neighbours go along as long as they are not wanted much earlier: one move instead of many. */
    uint64_t most = ebb__whole_units(most_bytes) / EBB_HUGE_BYTES;
    uint32_t least = run.distance / 2;
    while (run.units < most && run.unit > 0 && is_spare(pool, run.unit - 1) &&
           distance(runtime, run.unit - 1) >= least) {
        run.unit--;
        run.units++;
    }
    for (uint32_t unit = run.unit + run.units;
         run.units < most && unit < pool->units_used && is_spare(pool, unit) &&
         distance(runtime, unit) >= least;
         unit++)
        run.units++;
    return run;
}

void ebb__placed_strip(struct ebb_runtime *runtime, struct spare_run run)
{
    struct pool *pool = &runtime->pool;
    uint64_t bytes = run.units * EBB_HUGE_BYTES;
    ebb__pages_give(runtime, unit_address(runtime, run.unit), bytes);
    for (uint32_t i = 0; i < run.units; i++)
        pool->states[run.unit + i] = 0;
    pool->spare_bytes -= bytes;
    pool->held_bytes -= bytes;
}

void ebb__placed_after_fork_child(struct ebb_runtime *runtime)
{
    struct pool *pool = &runtime->pool;
    for (uint32_t unit = 0; unit < pool->units_used; unit++) {
        if (is_spare(pool, unit)) {
            runtime->device.ops->release(runtime->device.state, unit_address(runtime, unit),
                                         EBB_HUGE_BYTES);
            pool->states[unit] = 0;
        } else if (pool->states[unit] & UNIT_BACKED) {
            pool->states[unit] |= UNIT_INHERITED;
        }
    }
    pool->spare_bytes = pool->held_bytes = 0;
}
