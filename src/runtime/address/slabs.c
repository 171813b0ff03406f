/* Addresses of slabs: 64 KiB each, in a separate part of the arena (reclaim/slabs.c). */
#include "runtime/address/address.h"

/* Share of the arena, as a divisor, and its upper limit. It is only address space. */
#define SHARE 8
#define MOST_BYTES ((uint64_t)64 << 30)

bool ebb__slab_init(struct addresses *addresses)
{
    struct slab_space *space = &addresses->slabs;
    uint64_t units = addresses->space.units_total / SHARE, most = MOST_BYTES / EBB_HUGE_BYTES;
    units = units < most ? units : most;
    space->base = ebb__space_cut(addresses, units);
    space->total = (uint32_t)(units * (EBB_HUGE_BYTES / EBB_SLAB_BYTES));
    space->slabs = ebb__core_memory(space->total * sizeof *space->slabs);
    return space->slabs != NULL;
}

void ebb__slab_fini(struct addresses *addresses)
{
    ebb__core_unmap(addresses->slabs.slabs,
                    addresses->slabs.total * sizeof *addresses->slabs.slabs);
}

bool ebb__slab_owns(const struct addresses *addresses, uintptr_t address)
{
    return address - addresses->slabs.base < (uint64_t)addresses->slabs.total * EBB_SLAB_BYTES;
}

struct slab_record *ebb__slab_record_at(const struct addresses *addresses, uintptr_t address)
{
    return &addresses->slabs.slabs[(address - addresses->slabs.base) / EBB_SLAB_BYTES];
}

struct block *ebb__slab_find(const struct addresses *addresses, uintptr_t address)
{
    uint32_t index = ebb__slab_record_at(addresses, address)->block;
    return index == NO_BLOCK ? NULL : &addresses->table->blocks[index];
}

struct block *ebb__slab_take(struct addresses *addresses)
{
    struct slab_space *space = &addresses->slabs;
    struct block *block = space->empty.first != NO_BLOCK || space->used < space->total
                              ? ebb__space_record(addresses, &space->empty)
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
        addresses->core->device.ops->release(addresses->core->device.state, block->address,
                                             EBB_SLAB_BYTES);
    block->has_orphans = false;
    ebb__ledger_raise(&addresses->core->counters->slab_peak_bytes, ++space->taken * EBB_SLAB_BYTES);
    *ebb__slab_record_at(addresses, block->address) = (struct slab_record){
        .block = ebb__block_index(addresses->table, block),
        .since_ns = ebb__now_ns(),
        .arrival = ++space->arrivals,
    };
    return block;
}

void ebb__slab_give(struct addresses *addresses, struct block *block)
{
    ebb__block_become(block, BLOCK_EMPTY);
    addresses->slabs.taken--;
    ebb__list_push_front(addresses->table, &addresses->slabs.empty,
                         ebb__block_index(addresses->table, block), LINK_LIST);
}
