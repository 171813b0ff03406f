/* Address space: each block has its own run of 2 MiB units of the arena, for life.
 *
 * Address space costs nothing, but pages do. So a block's address space is rounded up to whole
 * units, its pages to 4 KiB. A freed run is reused for the next block of as many units. A larger
 * run is used if the arena is exhausted. */
#include "runtime/address/address.h"

#include <sys/mman.h>

static uint32_t bucket_of(uint32_t units)
{
    return units < SIZE_BUCKETS ? units : SIZE_BUCKETS - 1;
}

uintptr_t ebb__space_cut(struct addresses *addresses, uint64_t units)
{
    addresses->space.units_total -= units;
    return addresses->core->device.layout.arena.base +
           addresses->space.units_total * EBB_HUGE_BYTES;
}

bool ebb__address_init(struct addresses *addresses, struct table *table)
{
    struct space *space = &addresses->space;
    addresses->core = table->core;
    addresses->table = table;
    space->units_total = table->core->device.layout.arena.bytes / EBB_HUGE_BYTES;
    /* Slabs and the static placement cut their parts off the arena. */
    if (!ebb__slab_init(addresses) || !ebb__placement_init(addresses))
        return false;
    space->empty_by_units = ebb__core_memory(SIZE_BUCKETS * sizeof *space->empty_by_units);
    return space->empty_by_units != NULL;
}

void ebb__address_fini(struct addresses *addresses)
{
    struct space *space = &addresses->space;
    ebb__core_unmap(space->empty_by_units, SIZE_BUCKETS * sizeof *space->empty_by_units);
    ebb__placement_fini(addresses);
    ebb__slab_fini(addresses);
}

struct block *ebb__space_record(struct addresses *addresses, struct list *list)
{
    uint32_t index = list->first;
    if (index != NO_BLOCK)
        ebb__list_remove(addresses->table, list, index, LINK_LIST);
    else if (addresses->table->count + 1 < MOST_BLOCKS)
        index = ++addresses->table->count;
    if (index == NO_BLOCK)
        return NULL;
    addresses->table->blocks[index].run.head = index;
    addresses->table->blocks[index].run.parts = 1;
    return &addresses->table->blocks[index];
}

/* An empty block of at least `units`, from their bucket. `larger`: also from larger buckets. */
static struct block *reuse(struct addresses *addresses, uint32_t units, bool larger)
{
    uint32_t last = larger ? SIZE_BUCKETS - 1 : bucket_of(units);
    for (uint32_t bucket = bucket_of(units); bucket <= last; bucket++) {
        struct list *list = &addresses->space.empty_by_units[bucket];
        for (uint32_t i = list->first; i != NO_BLOCK; i = addresses->table->blocks[i].list.next) {
            struct block *block = &addresses->table->blocks[i];
            if (larger ? block->run.units < units : block->run.units != units)
                continue;
            ebb__list_remove(addresses->table, list, i, LINK_LIST);
            return block;
        }
    }
    return NULL;
}

void ebb__space_fill(struct addresses *addresses, struct block *block, uintptr_t address)
{
    if (!addresses->core->device.ops->fill(addresses->core->device.state, address))
        return;
    if (!block && ebb__slab_owns(addresses, address))
        addresses->slabs.orphans_beyond = true;
    else if (!block)
        addresses->space.orphans_beyond = true;
    else if (block->state != BLOCK_RESIDENT || address - block->address >= block->page_bytes)
        block->has_orphans = true;
}

/* A new block must begin without pages. A stray page would accept the program's writes without a
 * fault, and the block's own pages would replace it later. */
static struct block *clear_orphans(struct addresses *addresses, struct block *block,
                                   bool has_orphans)
{
    if (block && has_orphans)
        addresses->core->device.ops->release(addresses->core->device.state, block->address,
                                             block->run.units * EBB_HUGE_BYTES);
    if (block)
        block->has_orphans = false;
    return block;
}

struct block *ebb__space_take(struct addresses *addresses, uint64_t page_bytes)
{
    uint64_t wanted = ebb__whole_units(page_bytes) / EBB_HUGE_BYTES;
    if (wanted > addresses->space.units_total)
        return NULL;
    uint32_t units = (uint32_t)wanted;
    uint32_t entries = ebb__part_is_large(addresses->table, units * EBB_HUGE_BYTES) ? units : 1;
    bool full = units > addresses->space.units_total - addresses->space.units_used ||
                entries >= MOST_BLOCKS - addresses->table->count;
    struct block *block = reuse(addresses, units, false);
    if (!block && full)
        block = reuse(addresses, units, true);
    if (block)
        block->run.parts = 1;
    if (block || full)
        return clear_orphans(addresses, block, block && block->has_orphans);
    uint32_t index = addresses->table->count + 1;
    addresses->table->count += entries;
    block = &addresses->table->blocks[index];
    for (uint32_t i = 0; i < entries; i++)
        block[i].run.head = index;
    block->run.total_units = units;
    block->run.parts = 1;
    block->address =
        addresses->core->device.layout.arena.base + addresses->space.units_used * EBB_HUGE_BYTES;
    block->run.units = units;
    ebb__block_become(block, BLOCK_EMPTY);
    for (uint32_t unit = 0; unit < units; unit++)
        addresses->table->unit_block[addresses->space.units_used + unit] = index;
    addresses->space.units_used += units;
    return clear_orphans(addresses, block, addresses->space.orphans_beyond);
}

void ebb__space_give(struct addresses *addresses, struct block *block)
{
    if (block->kind == BLOCK_STATIC) {
        ebb__placement_give(addresses, block);
        return;
    }
    if (block->kind == BLOCK_SLAB) {
        ebb__slab_give(addresses, block);
        return;
    }
    ebb__block_become(block, BLOCK_EMPTY);
    if (!ebb__part_bury(addresses->table, block))
        return;
    block = &addresses->table->blocks[block->run.head];
    ebb__list_push_front(addresses->table,
                         &addresses->space.empty_by_units[bucket_of(block->run.units)],
                         ebb__block_index(addresses->table, block), LINK_LIST);
}

struct block *ebb__space_find(const struct addresses *addresses, uintptr_t address)
{
    if (ebb__placement_owns(addresses, address))
        return ebb__placement_find(addresses, address);
    if (ebb__slab_owns(addresses, address))
        return ebb__slab_find(addresses, address);
    uint64_t unit = (address - addresses->core->device.layout.arena.base) / EBB_HUGE_BYTES;
    if (address < addresses->core->device.layout.arena.base || unit >= addresses->space.units_used)
        return NULL;
    return &addresses->table->blocks[addresses->table->unit_block[unit]];
}
