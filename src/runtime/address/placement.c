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
#include "runtime/address/address.h"

#include <sys/mman.h>

/* Of the arena. Only address space: the rest of 1 TiB is plenty as well. */
#define POOL_SHARE 4

#define PAGES_PER_UNIT (EBB_HUGE_BYTES / EBB_PAGE_BYTES)

bool ebb__placed_init(struct addresses *addresses)
{
    struct pool *pool = &addresses->pool;
    pool->units_total = (uint32_t)(addresses->space.units_total / POOL_SHARE);
    pool->base = ebb__space_cut(addresses, pool->units_total);
    uint64_t pages = pool->units_total * PAGES_PER_UNIT;
    if (addresses->core->device.ops->fix)
        addresses->core->device.ops->fix(addresses->core->device.state, pool->base,
                                         pool->units_total * EBB_HUGE_BYTES);
    pool->first_page = ebb__core_memory(pages * sizeof *pool->first_page);
    pool->taken = ebb__core_memory(pages / 8);
    pool->users = ebb__core_memory(pool->units_total * sizeof *pool->users);
    pool->states = ebb__core_memory(pool->units_total);
    return pool->first_page && pool->taken && pool->users && pool->states;
}

void ebb__placed_fini(struct addresses *addresses)
{
    struct pool *pool = &addresses->pool;
    uint64_t pages = pool->units_total * PAGES_PER_UNIT;
    ebb__core_unmap(pool->first_page, pages * sizeof *pool->first_page);
    ebb__core_unmap(pool->taken, pages / 8);
    ebb__core_unmap(pool->users, pool->units_total * sizeof *pool->users);
    ebb__core_unmap(pool->states, pool->units_total);
}

bool ebb__placed_owns(const struct addresses *addresses, uintptr_t address)
{
    return address - addresses->pool.base < addresses->pool.units_total * EBB_HUGE_BYTES;
}

struct block *ebb__placed_find(const struct addresses *addresses, uintptr_t address)
{
    uint32_t index = addresses->pool.first_page[(address - addresses->pool.base) / EBB_PAGE_BYTES];
    return index == NO_BLOCK ? NULL : &addresses->table->blocks[index];
}

uintptr_t ebb__placed_unit_address(const struct addresses *addresses, uint32_t unit)
{
    return addresses->pool.base + unit * EBB_HUGE_BYTES;
}

uint32_t ebb__placed_first_unit(const struct addresses *addresses, const struct block *block)
{
    return (uint32_t)((block->address - addresses->pool.base) / EBB_HUGE_BYTES);
}

uint32_t ebb__placed_last_unit(const struct addresses *addresses, const struct block *block)
{
    return (uint32_t)((block->address - addresses->pool.base + block->page_bytes - 1) /
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

struct block *ebb__placed_covering(const struct addresses *addresses, uintptr_t address)
{
    const struct pool *pool = &addresses->pool;
    uint64_t page = (address - pool->base) / EBB_PAGE_BYTES;
    if (is_free(pool, page * EBB_PAGE_BYTES, EBB_PAGE_BYTES))
        return NULL;
    while (page > 0 && pool->first_page[page] == NO_BLOCK)
        page--;
    return ebb__placed_find(addresses, pool->base + page * EBB_PAGE_BYTES);
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

/* --- blocks --- */

struct block *ebb__placed_take(struct addresses *addresses, uint64_t place, size_t bytes,
                               size_t alignment)
{
    struct pool *pool = &addresses->pool;
    uint64_t page_bytes = ebb__whole_pages(bytes);
    struct block *block = NULL;
    if ((place & (alignment - 1)) == 0 && is_free(pool, place, page_bytes))
        block = ebb__space_record(addresses, &pool->records);
    if (!block)
        return NULL;
    block->kind = BLOCK_PLACED;
    block->address = pool->base + place;
    block->page_bytes = page_bytes;
    block->size_bytes = bytes;
    mark_taken(pool, place, page_bytes, true);
    pool->first_page[place / EBB_PAGE_BYTES] = ebb__block_index(addresses->table, block);
    for (uint32_t unit = ebb__placed_first_unit(addresses, block);
         unit <= ebb__placed_last_unit(addresses, block); unit++)
        if (pool->users[unit]++ == 0 && (pool->states[unit] & UNIT_BACKED))
            pool->spare_bytes -= EBB_HUGE_BYTES;
    if (pool->units_used <= ebb__placed_last_unit(addresses, block))
        pool->units_used = ebb__placed_last_unit(addresses, block) + 1;
    pool->load_bytes += bytes;
    atomic_fetch_add(&addresses->core->counters->pool_blocks, 1);
    ebb__ledger_raise(&addresses->core->counters->pool_load_bytes, pool->load_bytes);
    return block;
}

void ebb__placed_give(struct addresses *addresses, struct block *block)
{
    struct pool *pool = &addresses->pool;
    uint64_t place = block->address - pool->base;
    mark_taken(pool, place, block->page_bytes, false);
    pool->first_page[place / EBB_PAGE_BYTES] = NO_BLOCK;
    for (uint32_t unit = ebb__placed_first_unit(addresses, block);
         unit <= ebb__placed_last_unit(addresses, block); unit++) {
        if (--pool->users[unit])
            continue;
        if (pool->states[unit] & UNIT_INHERITED) {
            addresses->core->device.ops->release(addresses->core->device.state,
                                                 ebb__placed_unit_address(addresses, unit),
                                                 EBB_HUGE_BYTES);
            pool->states[unit] = 0;
        } else if (pool->states[unit] & UNIT_BACKED) {
            pool->spare_bytes += EBB_HUGE_BYTES;
        }
    }
    pool->load_bytes -= block->size_bytes;
    ebb__block_become(block, BLOCK_EMPTY);
    ebb__list_push_front(addresses->table, &pool->records,
                         ebb__block_index(addresses->table, block), LINK_LIST);
}
