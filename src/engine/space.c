/* Address space: each block has its own run of 2 MiB units of the arena, kept for life.
 *
 * Address space costs nothing, pages do: so a block is rounded up to whole units of the former and
 * to 4 KiB of the latter. A run that is given back is given out again to the next block of as many
 * units; a larger one serves where the arena is exhausted. */
#include "engine/internal.h"

#include <sys/mman.h>

#define MOST_BLOCKS ((uint32_t)1 << 21)

static uint32_t bucket_of(uint32_t units)
{
    return units < SPARE_BUCKETS ? units : SPARE_BUCKETS - 1;
}

uintptr_t ebb__space_cut(struct ebb_engine *engine, uint64_t units)
{
    engine->units_total -= units;
    return engine->device.layout.arena.base + engine->units_total * EBB_HUGE_BYTES;
}

bool ebb__space_init(struct ebb_engine *engine)
{
    engine->units_total = engine->device.layout.arena.bytes / EBB_HUGE_BYTES;
    /* The last two take their parts of them. */
    if (!ebb__pages_init(engine) || !ebb__cold_init(engine) || !ebb__placed_init(engine))
        return false;
    engine->blocks = ebb__engine_memory(MOST_BLOCKS * sizeof *engine->blocks);
    engine->unit_block = ebb__engine_memory(engine->units_total * sizeof *engine->unit_block);
    engine->empty_by_units = ebb__engine_memory(SPARE_BUCKETS * sizeof *engine->empty_by_units);
    return engine->blocks && engine->unit_block && engine->empty_by_units;
}

void ebb__space_fini(struct ebb_engine *engine)
{
    ebb__engine_unmap(engine->blocks, MOST_BLOCKS * sizeof *engine->blocks);
    ebb__engine_unmap(engine->unit_block, engine->units_total * sizeof *engine->unit_block);
    ebb__engine_unmap(engine->empty_by_units, SPARE_BUCKETS * sizeof *engine->empty_by_units);
    ebb__placed_fini(engine);
    ebb__cold_fini(engine);
    ebb__pages_fini(engine);
}

struct block *ebb__space_record(struct ebb_engine *engine, struct list *list)
{
    uint32_t index = list->first;
    if (index != NO_BLOCK)
        ebb__list_remove(engine, list, index, LINK_LIST);
    else if (engine->block_count + 1 < MOST_BLOCKS)
        index = ++engine->block_count;
    if (index == NO_BLOCK)
        return NULL;
    engine->blocks[index].head = index;
    engine->blocks[index].parts = 1;
    return &engine->blocks[index];
}

/* An empty block of at least `units` from bucket `bucket` or a larger one. */
static struct block *reuse(struct ebb_engine *engine, uint32_t units, bool larger)
{
    uint32_t last = larger ? SPARE_BUCKETS - 1 : bucket_of(units);
    for (uint32_t bucket = bucket_of(units); bucket <= last; bucket++) {
        struct list *list = &engine->empty_by_units[bucket];
        for (uint32_t i = list->first; i != NO_BLOCK; i = engine->blocks[i].list.next) {
            struct block *block = &engine->blocks[i];
            if (larger ? block->units < units : block->units != units)
                continue;
            ebb__list_remove(engine, list, i, LINK_LIST);
            return block;
        }
    }
    return NULL;
}

void ebb__space_fill(struct ebb_engine *engine, struct block *block, uintptr_t address)
{
    if (!engine->device.ops->fill(engine->device.state, address))
        return;
    if (!block && ebb__cold_owns(engine, address))
        engine->cold.strays_beyond = true;
    else if (!block)
        engine->strays_beyond = true;
    else if (block->state != BLOCK_RESIDENT || address - block->address >= block->page_bytes)
        block->strays = true;
}

/* A new block must begin without pages: a stray one would take the program's writes without a
 * fault, and make way for the block's own pages later. */
static struct block *clear_strays(struct ebb_engine *engine, struct block *block, bool strays)
{
    if (block && strays)
        engine->device.ops->release(engine->device.state, block->address,
                                    block->units * EBB_HUGE_BYTES);
    if (block)
        block->strays = false;
    return block;
}

struct block *ebb__space_take(struct ebb_engine *engine, uint64_t page_bytes)
{
    uint64_t wanted = ebb__whole_units(page_bytes) / EBB_HUGE_BYTES;
    if (wanted > engine->units_total)
        return NULL;
    uint32_t units = (uint32_t)wanted;
    uint32_t entries = ebb__part_is_large(engine, units * EBB_HUGE_BYTES) ? units : 1;
    bool full = units > engine->units_total - engine->units_used ||
                entries >= MOST_BLOCKS - engine->block_count;
    struct block *block = reuse(engine, units, false);
    if (!block && full)
        block = reuse(engine, units, true);
    if (block)
        block->parts = 1;
    if (block || full)
        return clear_strays(engine, block, block && block->strays);
    uint32_t index = engine->block_count + 1;
    engine->block_count += entries;
    block = &engine->blocks[index];
    for (uint32_t i = 0; i < entries; i++)
        block[i].head = index;
    block->run_units = units;
    block->parts = 1;
    block->address = engine->device.layout.arena.base + engine->units_used * EBB_HUGE_BYTES;
    block->units = units;
    block->state = BLOCK_EMPTY;
    for (uint32_t unit = 0; unit < units; unit++)
        engine->unit_block[engine->units_used + unit] = index;
    engine->units_used += units;
    return clear_strays(engine, block, engine->strays_beyond);
}

void ebb__space_give(struct ebb_engine *engine, struct block *block)
{
    if (block->placed) {
        ebb__placed_give(engine, block);
        return;
    }
    if (block->slab) {
        ebb__cold_give(engine, block);
        return;
    }
    block->state = BLOCK_EMPTY;
    if (!ebb__part_bury(engine, block))
        return;
    block = &engine->blocks[block->head];
    ebb__list_push_front(engine, &engine->empty_by_units[bucket_of(block->units)],
                         ebb__block_index(engine, block), LINK_LIST);
}

struct block *ebb__space_find(struct ebb_engine *engine, uintptr_t address)
{
    if (ebb__placed_owns(engine, address))
        return ebb__placed_find(engine, address);
    if (ebb__cold_owns(engine, address))
        return ebb__cold_find(engine, address);
    uint64_t unit = (address - engine->device.layout.arena.base) / EBB_HUGE_BYTES;
    if (address < engine->device.layout.arena.base || unit >= engine->units_used)
        return NULL;
    return &engine->blocks[engine->unit_block[unit]];
}
