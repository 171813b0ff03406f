/* Address space: each block has its own run of 2 MiB units of the arena, kept for life.
 *
 * Address space costs nothing, pages do: so a block is rounded up to whole units of the former and
 * to 4 KiB of the latter. A run that is given back is given out again to the next block of as many
 * units; a larger one serves where the arena is exhausted. */
#include "runtime/internal.h"

#include <sys/mman.h>

#define MOST_BLOCKS ((uint32_t)1 << 21)

static uint32_t bucket_of(uint32_t units)
{
    return units < SIZE_BUCKETS ? units : SIZE_BUCKETS - 1;
}

uintptr_t ebb__space_cut(struct ebb_runtime *runtime, uint64_t units)
{
    runtime->space.units_total -= units;
    return runtime->core.device.layout.arena.base + runtime->space.units_total * EBB_HUGE_BYTES;
}

bool ebb__space_init(struct ebb_runtime *runtime)
{
    runtime->space.units_total = runtime->core.device.layout.arena.bytes / EBB_HUGE_BYTES;
    /* The last two take their parts of them. */
    if (!ebb__slab_init(runtime) || !ebb__placement_init(runtime))
        return false;
    runtime->table.blocks = ebb__core_memory(MOST_BLOCKS * sizeof *runtime->table.blocks);
    runtime->space.unit_block =
        ebb__core_memory(runtime->space.units_total * sizeof *runtime->space.unit_block);
    runtime->space.empty_by_units =
        ebb__core_memory(SIZE_BUCKETS * sizeof *runtime->space.empty_by_units);
    return runtime->table.blocks && runtime->space.unit_block && runtime->space.empty_by_units;
}

void ebb__space_fini(struct ebb_runtime *runtime)
{
    ebb__core_unmap(runtime->table.blocks, MOST_BLOCKS * sizeof *runtime->table.blocks);
    ebb__core_unmap(runtime->space.unit_block,
                    runtime->space.units_total * sizeof *runtime->space.unit_block);
    ebb__core_unmap(runtime->space.empty_by_units,
                    SIZE_BUCKETS * sizeof *runtime->space.empty_by_units);
    ebb__placement_fini(runtime);
    ebb__slab_fini(runtime);
}

struct block *ebb__space_record(struct ebb_runtime *runtime, struct list *list)
{
    uint32_t index = list->first;
    if (index != NO_BLOCK)
        ebb__list_remove(&runtime->table, list, index, LINK_LIST);
    else if (runtime->table.count + 1 < MOST_BLOCKS)
        index = ++runtime->table.count;
    if (index == NO_BLOCK)
        return NULL;
    runtime->table.blocks[index].run.head = index;
    runtime->table.blocks[index].run.parts = 1;
    return &runtime->table.blocks[index];
}

/* An empty block of at least `units` from bucket `bucket` or a larger one. */
static struct block *reuse(struct ebb_runtime *runtime, uint32_t units, bool larger)
{
    uint32_t last = larger ? SIZE_BUCKETS - 1 : bucket_of(units);
    for (uint32_t bucket = bucket_of(units); bucket <= last; bucket++) {
        struct list *list = &runtime->space.empty_by_units[bucket];
        for (uint32_t i = list->first; i != NO_BLOCK; i = runtime->table.blocks[i].list.next) {
            struct block *block = &runtime->table.blocks[i];
            if (larger ? block->run.units < units : block->run.units != units)
                continue;
            ebb__list_remove(&runtime->table, list, i, LINK_LIST);
            return block;
        }
    }
    return NULL;
}

void ebb__space_fill(struct ebb_runtime *runtime, struct block *block, uintptr_t address)
{
    if (!runtime->core.device.ops->fill(runtime->core.device.state, address))
        return;
    if (!block && ebb__slab_owns(runtime, address))
        runtime->slabs.orphans_beyond = true;
    else if (!block)
        runtime->space.orphans_beyond = true;
    else if (block->state != BLOCK_RESIDENT || address - block->address >= block->page_bytes)
        block->has_orphans = true;
}

/* A new block must begin without pages: a stray one would take the program's writes without a
 * fault, and make way for the block's own pages later. */
static struct block *clear_orphans(struct ebb_runtime *runtime, struct block *block,
                                   bool has_orphans)
{
    if (block && has_orphans)
        runtime->core.device.ops->release(runtime->core.device.state, block->address,
                                          block->run.units * EBB_HUGE_BYTES);
    if (block)
        block->has_orphans = false;
    return block;
}

struct block *ebb__space_take(struct ebb_runtime *runtime, uint64_t page_bytes)
{
    uint64_t wanted = ebb__whole_units(page_bytes) / EBB_HUGE_BYTES;
    if (wanted > runtime->space.units_total)
        return NULL;
    uint32_t units = (uint32_t)wanted;
    uint32_t entries = ebb__part_is_large(runtime, units * EBB_HUGE_BYTES) ? units : 1;
    bool full = units > runtime->space.units_total - runtime->space.units_used ||
                entries >= MOST_BLOCKS - runtime->table.count;
    struct block *block = reuse(runtime, units, false);
    if (!block && full)
        block = reuse(runtime, units, true);
    if (block)
        block->run.parts = 1;
    if (block || full)
        return clear_orphans(runtime, block, block && block->has_orphans);
    uint32_t index = runtime->table.count + 1;
    runtime->table.count += entries;
    block = &runtime->table.blocks[index];
    for (uint32_t i = 0; i < entries; i++)
        block[i].run.head = index;
    block->run.total_units = units;
    block->run.parts = 1;
    block->address =
        runtime->core.device.layout.arena.base + runtime->space.units_used * EBB_HUGE_BYTES;
    block->run.units = units;
    ebb__block_become(block, BLOCK_EMPTY);
    for (uint32_t unit = 0; unit < units; unit++)
        runtime->space.unit_block[runtime->space.units_used + unit] = index;
    runtime->space.units_used += units;
    return clear_orphans(runtime, block, runtime->space.orphans_beyond);
}

void ebb__space_give(struct ebb_runtime *runtime, struct block *block)
{
    if (block->kind == BLOCK_STATIC) {
        ebb__placement_give(runtime, block);
        return;
    }
    if (block->kind == BLOCK_SLAB) {
        ebb__slab_give(runtime, block);
        return;
    }
    ebb__block_become(block, BLOCK_EMPTY);
    if (!ebb__part_bury(runtime, block))
        return;
    block = &runtime->table.blocks[block->run.head];
    ebb__list_push_front(&runtime->table,
                         &runtime->space.empty_by_units[bucket_of(block->run.units)],
                         ebb__block_index(&runtime->table, block), LINK_LIST);
}

struct block *ebb__space_find(struct ebb_runtime *runtime, uintptr_t address)
{
    if (ebb__placement_owns(runtime, address))
        return ebb__placement_find(runtime, address);
    if (ebb__slab_owns(runtime, address))
        return ebb__slab_find(runtime, address);
    uint64_t unit = (address - runtime->core.device.layout.arena.base) / EBB_HUGE_BYTES;
    if (address < runtime->core.device.layout.arena.base || unit >= runtime->space.units_used)
        return NULL;
    return &runtime->table.blocks[runtime->space.unit_block[unit]];
}
