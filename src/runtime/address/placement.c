/* Static placement: a part of the arena in which blocks lie at planned addresses.
 *
 * A block with its own 2 MiB units ends in 4 KiB pages. They slow down address translation, and
 * each allocation and free moves them. A block that is never evicted within an iteration needs no
 * pages of its own. The plan packs such blocks by their lifetimes (dynamic storage allocation).
 * During replay, each allocation gets the address of its position in the template. That takes O(1)
 * and one bit per page. The static placement has only huge pages. A unit that no block covers keeps
 * its page *cached*. The next block there uses it, unless another block has taken it meanwhile.
 *
 * Two blocks may share a page table entry, so none of them moves alone. They are not observed, and
 * a trace does not count while they exist. They are never evicted. The plan bounds their memory,
 * since it counts whole units. If small blocks and other processes leave less memory than the plan
 * assumed, no block is placed. A planned address may still be taken if the program departs from the
 * plan. The block then gets units of its own, as without a plan. So do all blocks while no script
 * is replayed. */
#include "runtime/address/address.h"

#include <sys/mman.h>

/* Share of the arena, as a divisor. It is only address space, and 1 TiB leaves plenty. */
#define PLACEMENT_SHARE 4

#define PAGES_PER_UNIT (EBB_HUGE_BYTES / EBB_PAGE_BYTES)

bool ebb__placement_init(struct addresses *addresses)
{
    struct placement *placement = &addresses->placement;
    placement->units_total = (uint32_t)(addresses->space.units_total / PLACEMENT_SHARE);
    placement->base = ebb__space_cut(addresses, placement->units_total);
    uint64_t pages = placement->units_total * PAGES_PER_UNIT;
    if (addresses->core->device.ops->fix)
        addresses->core->device.ops->fix(addresses->core->device.state, placement->base,
                                         placement->units_total * EBB_HUGE_BYTES);
    placement->first_page = ebb__core_memory(pages * sizeof *placement->first_page);
    placement->taken = ebb__core_memory(pages / 8);
    placement->users = ebb__core_memory(placement->units_total * sizeof *placement->users);
    placement->states = ebb__core_memory(placement->units_total);
    return placement->first_page && placement->taken && placement->users && placement->states;
}

void ebb__placement_fini(struct addresses *addresses)
{
    struct placement *placement = &addresses->placement;
    uint64_t pages = placement->units_total * PAGES_PER_UNIT;
    ebb__core_unmap(placement->first_page, pages * sizeof *placement->first_page);
    ebb__core_unmap(placement->taken, pages / 8);
    ebb__core_unmap(placement->users, placement->units_total * sizeof *placement->users);
    ebb__core_unmap(placement->states, placement->units_total);
}

bool ebb__placement_owns(const struct addresses *addresses, uintptr_t address)
{
    return address - addresses->placement.base < addresses->placement.units_total * EBB_HUGE_BYTES;
}

struct block *ebb__placement_find(const struct addresses *addresses, uintptr_t address)
{
    uint32_t index =
        addresses->placement.first_page[(address - addresses->placement.base) / EBB_PAGE_BYTES];
    return index == NO_BLOCK ? NULL : &addresses->table->blocks[index];
}

uintptr_t ebb__placement_unit_address(const struct addresses *addresses, uint32_t unit)
{
    return addresses->placement.base + unit * EBB_HUGE_BYTES;
}

uint32_t ebb__placement_first_unit(const struct addresses *addresses, const struct block *block)
{
    return (uint32_t)((block->address - addresses->placement.base) / EBB_HUGE_BYTES);
}

uint32_t ebb__placement_last_unit(const struct addresses *addresses, const struct block *block)
{
    return (uint32_t)((block->address - addresses->placement.base + block->page_bytes - 1) /
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

static bool is_free(const struct placement *placement, uint64_t place, uint64_t bytes)
{
    uint64_t first = place / EBB_PAGE_BYTES, behind = first + bytes / EBB_PAGE_BYTES;
    for (uint64_t word = first / 64; word * 64 < behind; word++)
        if (placement->taken[word] & bits_between(word, first, behind))
            return false;
    return true;
}

struct block *ebb__placement_covering(const struct addresses *addresses, uintptr_t address)
{
    const struct placement *placement = &addresses->placement;
    uint64_t page = (address - placement->base) / EBB_PAGE_BYTES;
    if (is_free(placement, page * EBB_PAGE_BYTES, EBB_PAGE_BYTES))
        return NULL;
    while (page > 0 && placement->first_page[page] == NO_BLOCK)
        page--;
    return ebb__placement_find(addresses, placement->base + page * EBB_PAGE_BYTES);
}

static void mark_taken(struct placement *placement, uint64_t place, uint64_t bytes, bool taken)
{
    uint64_t first = place / EBB_PAGE_BYTES, behind = first + bytes / EBB_PAGE_BYTES;
    for (uint64_t word = first / 64; word * 64 < behind; word++) {
        if (taken)
            placement->taken[word] |= bits_between(word, first, behind);
        else
            placement->taken[word] &= ~bits_between(word, first, behind);
    }
}

/* --- blocks --- */

struct block *ebb__placement_take(struct addresses *addresses, uint64_t place, size_t bytes,
                                  size_t alignment)
{
    struct placement *placement = &addresses->placement;
    uint64_t page_bytes = ebb__whole_pages(bytes);
    struct block *block = NULL;
    if ((place & (alignment - 1)) == 0 && is_free(placement, place, page_bytes))
        block = ebb__space_record(addresses, &placement->records);
    if (!block)
        return NULL;
    block->kind = BLOCK_STATIC;
    block->address = placement->base + place;
    block->page_bytes = page_bytes;
    block->size_bytes = bytes;
    mark_taken(placement, place, page_bytes, true);
    placement->first_page[place / EBB_PAGE_BYTES] = ebb__block_index(addresses->table, block);
    for (uint32_t unit = ebb__placement_first_unit(addresses, block);
         unit <= ebb__placement_last_unit(addresses, block); unit++)
        if (placement->users[unit]++ == 0 && (placement->states[unit] & UNIT_BACKED))
            placement->cached_bytes -= EBB_HUGE_BYTES;
    if (placement->units_used <= ebb__placement_last_unit(addresses, block))
        placement->units_used = ebb__placement_last_unit(addresses, block) + 1;
    placement->load_bytes += bytes;
    atomic_fetch_add(&addresses->core->counters->placement_blocks, 1);
    ebb__ledger_raise(&addresses->core->counters->placement_load_bytes, placement->load_bytes);
    return block;
}

void ebb__placement_give(struct addresses *addresses, struct block *block)
{
    struct placement *placement = &addresses->placement;
    uint64_t place = block->address - placement->base;
    mark_taken(placement, place, block->page_bytes, false);
    placement->first_page[place / EBB_PAGE_BYTES] = NO_BLOCK;
    for (uint32_t unit = ebb__placement_first_unit(addresses, block);
         unit <= ebb__placement_last_unit(addresses, block); unit++) {
        if (--placement->users[unit])
            continue;
        if (placement->states[unit] & UNIT_INHERITED) {
            addresses->core->device.ops->release(addresses->core->device.state,
                                                 ebb__placement_unit_address(addresses, unit),
                                                 EBB_HUGE_BYTES);
            placement->states[unit] = 0;
        } else if (placement->states[unit] & UNIT_BACKED) {
            placement->cached_bytes += EBB_HUGE_BYTES;
        }
    }
    placement->load_bytes -= block->size_bytes;
    ebb__block_become(block, BLOCK_EMPTY);
    ebb__list_push_front(addresses->table, &placement->records,
                         ebb__block_index(addresses->table, block), LINK_LIST);
}
