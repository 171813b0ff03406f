/* Addresses of slabs: 64 KiB each, in a part of the arena of their own (reclaim/slabs.c). */
#include "runtime/internal.h"

/* Of the arena, and at most. Only address space. */
#define SHARE 8
#define MOST_BYTES ((uint64_t)64 << 30)

bool ebb__slab_init(struct ebb_runtime *runtime)
{
    struct slab_space *space = &runtime->slabs;
    uint64_t units = runtime->space.units_total / SHARE, most = MOST_BYTES / EBB_HUGE_BYTES;
    units = units < most ? units : most;
    space->base = ebb__space_cut(runtime, units);
    space->total = (uint32_t)(units * (EBB_HUGE_BYTES / EBB_SLAB_BYTES));
    space->slabs = ebb__core_memory(space->total * sizeof *space->slabs);
    space->lap_ns = ebb__now_ns();
    return space->slabs != NULL;
}

void ebb__slab_fini(struct ebb_runtime *runtime)
{
    ebb__core_unmap(runtime->slabs.slabs, runtime->slabs.total * sizeof *runtime->slabs.slabs);
}

bool ebb__slab_owns(const struct ebb_runtime *runtime, uintptr_t address)
{
    return address - runtime->slabs.base < (uint64_t)runtime->slabs.total * EBB_SLAB_BYTES;
}

struct slab_record *ebb__slab_record_at(const struct ebb_runtime *runtime, uintptr_t address)
{
    return &runtime->slabs.slabs[(address - runtime->slabs.base) / EBB_SLAB_BYTES];
}

struct block *ebb__slab_find(struct ebb_runtime *runtime, uintptr_t address)
{
    uint32_t index = ebb__slab_record_at(runtime, address)->block;
    return index == NO_BLOCK ? NULL : &runtime->table.blocks[index];
}

struct block *ebb__slab_take(struct ebb_runtime *runtime)
{
    struct slab_space *space = &runtime->slabs;
    struct block *block = space->empty.first != NO_BLOCK || space->used < space->total
                              ? ebb__space_record(runtime, &space->empty)
                              : NULL;
    if (!block)
        return NULL;
    if (block->kind != BLOCK_SLAB) {
        block->address = space->base + space->used++ * EBB_SLAB_BYTES;
        block->page_bytes = EBB_SLAB_BYTES;
        block->kind = BLOCK_SLAB;
        block->has_orphans = space->orphans_beyond;
    }
    if (block->has_orphans)
        runtime->core.device.ops->release(runtime->core.device.state, block->address,
                                          EBB_SLAB_BYTES);
    block->has_orphans = false;
    ebb__ledger_raise(&runtime->core.counters->slab_peak_bytes, ++space->taken * EBB_SLAB_BYTES);
    *ebb__slab_record_at(runtime, block->address) = (struct slab_record){
        .block = ebb__block_index(&runtime->table, block),
        .since_ns = ebb__now_ns(),
        .arrival = ++space->arrivals,
    };
    return block;
}

void ebb__slab_give(struct ebb_runtime *runtime, struct block *block)
{
    ebb__block_become(block, BLOCK_EMPTY);
    runtime->slabs.taken--;
    ebb__list_push_front(&runtime->table, &runtime->slabs.empty,
                         ebb__block_index(&runtime->table, block), LINK_LIST);
}
