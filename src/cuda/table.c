#include "cuda/table.h"

#include "cuda/memory.h"

#include <string.h>

bool ebb__table_init(struct cuda_table *table)
{
    memset(table, 0, sizeof *table);
    table->blocks = ebb__cuda_reserve(CUDA_MOST_BLOCKS * sizeof *table->blocks);
    table->owners = ebb__cuda_reserve(CUDA_MOST_UNITS * sizeof *table->owners);
    table->places = ebb__cuda_reserve(CUDA_PLACES * sizeof *table->places);
    table->used = 1; /* entry 0 is CUDA_NO_BLOCK */
    return table->blocks && table->owners && table->places;
}

void ebb__table_fini(struct cuda_table *table)
{
    ebb__cuda_unreserve(table->blocks, CUDA_MOST_BLOCKS * sizeof *table->blocks);
    ebb__cuda_unreserve(table->owners, CUDA_MOST_UNITS * sizeof *table->owners);
    ebb__cuda_unreserve(table->places, CUDA_PLACES * sizeof *table->places);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static bool can_note(const struct cuda_table *table, CUdeviceptr first, uint64_t bytes)
{
    uint64_t last = (first + bytes - 1) >> CUDA_PLACE_SHIFT;
    if (last >= CUDA_PLACES)
        return false;
    for (uint64_t i = first >> CUDA_PLACE_SHIFT; i <= last; i++)
        if (atomic_load(&table->places[i]) >> 16)
            return false;
    return true;
}

uint32_t ebb__table_add(struct cuda_table *table, CUdeviceptr first, uint64_t bytes)
{
    uint64_t count = bytes / EBB_CUDA_UNIT_BYTES;
    uint32_t number = atomic_load_explicit(&table->region_count, memory_order_relaxed);
    if (number == CUDA_MOST_REGIONS || count > CUDA_MOST_UNITS - table->unit_count ||
        !can_note(table, first, bytes))
        return CUDA_NO_UNIT;
    struct cuda_region *region = &table->regions[number++];
    *region = (struct cuda_region){first, bytes, table->unit_count};
    table->unit_count += (uint32_t)count;
    atomic_store_explicit(&table->region_count, number, memory_order_release);
    for (uint64_t i = first >> CUDA_PLACE_SHIFT; i <= (first + bytes - 1) >> CUDA_PLACE_SHIFT; i++)
        atomic_store_explicit(&table->places[i], atomic_load(&table->places[i]) << 16 | number,
                              memory_order_release);
    return region->first_unit;
}

CUdeviceptr ebb__table_address(const struct cuda_table *table, uint32_t unit)
{
    uint32_t first = 0, last = atomic_load_explicit(&table->region_count, memory_order_acquire);
    while (last - first > 1) { /* regions are in the order of their units */
        uint32_t middle = first + (last - first) / 2;
        if (table->regions[middle].first_unit <= unit)
            first = middle;
        else
            last = middle;
    }
    const struct cuda_region *region = &table->regions[first];
    return region->first + (uint64_t)(unit - region->first_unit) * EBB_CUDA_UNIT_BYTES;
}

CUdeviceptr ebb__table_next(const struct cuda_table *table, CUdeviceptr address)
{
    uint32_t count = atomic_load_explicit(&table->region_count, memory_order_acquire);
    CUdeviceptr next = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++)
        if (table->regions[i].first > address && table->regions[i].first < next)
            next = table->regions[i].first;
    return next;
}

void ebb__table_own(struct cuda_table *table, uint32_t first_unit, uint32_t count, uint32_t owner)
{
    for (uint32_t i = 0; i < count; i++)
        atomic_store_explicit(&table->owners[first_unit + i], owner, memory_order_release);
}

/* ---- entries --------------------------------------------------------------------------------- */

uint32_t ebb__table_take(struct cuda_table *table)
{
    uint32_t block = table->unused_head;
    if (block)
        table->unused_head = table->blocks[block].older;
    else if (table->used < CUDA_MOST_BLOCKS)
        block = table->used++;
    if (block)
        memset(&table->blocks[block], 0, sizeof table->blocks[block]);
    return block;
}

void ebb__table_give(struct cuda_table *table, uint32_t block)
{
    struct cuda_block *entry = &table->blocks[block];
    entry->state = CUDA_BLOCK_FREE;
    entry->older = table->unused_head;
    table->unused_head = block;
}

/* ---- last uses ------------------------------------------------------------------------------- */

void ebb__table_leave(struct cuda_table *table, uint32_t block)
{
    struct cuda_block *entry = &table->blocks[block];
    if (entry->newer)
        table->blocks[entry->newer].older = entry->older;
    else if (table->newest == block)
        table->newest = entry->older;
    if (entry->older)
        table->blocks[entry->older].newer = entry->newer;
    else if (table->oldest == block)
        table->oldest = entry->newer;
    entry->newer = entry->older = CUDA_NO_BLOCK;
}

void ebb__table_renew(struct cuda_table *table, uint32_t block)
{
    struct cuda_block *entry = &table->blocks[block];
    ebb__table_leave(table, block);
    entry->older = table->newest;
    if (table->newest)
        table->blocks[table->newest].newer = block;
    table->newest = block;
    if (!table->oldest)
        table->oldest = block;
}
