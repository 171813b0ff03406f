/* The runtime's waits that the parent can see (trace/waits.h). A fault on a resident block only
 * takes and returns one record. No other frequent path uses this. */
#include "runtime/block/block.h"

struct ebb_wait *ebb__waits_enter(struct table *table, uintptr_t address)
{
    return ebb__wait_begin(table->core->ring->waits.answers, EBB_WAIT_ANSWERS, EBB_WAIT_ANSWER,
                           address, 0, 0);
}

static enum ebb_wait_kind kind_of(const struct block *block)
{
    switch (block->state) {
    case BLOCK_WRITING_BACK:
        return EBB_WAIT_WRITING_BACK;
    case BLOCK_EVICTED:
        return EBB_WAIT_EVICTED;
    case BLOCK_FETCHING:
        return EBB_WAIT_FETCHING;
    default:
        return EBB_WAIT_NEW;
    }
}

struct ebb_wait *ebb__waits_block(struct table *table, const struct block *block)
{
    return ebb__wait_begin(table->core->ring->waits.blocks, EBB_WAIT_BLOCKS, kind_of(block),
                           ebb__block_index(table, block),
                           block->kind == BLOCK_SLAB ? 0 : block->serial, block->page_bytes);
}

struct ebb_wait *ebb__waits_transfer(struct table *table, const struct block *block, bool out)
{
    return ebb__wait_begin(table->core->ring->waits.transfers, EBB_WAIT_TRANSFERS,
                           out ? EBB_WAIT_WRITE : EBB_WAIT_READ, ebb__block_index(table, block),
                           block->kind == BLOCK_SLAB ? 0 : block->serial, block->page_bytes);
}

struct ebb_wait *ebb__waits_open(struct table *table)
{
    return ebb__wait_begin(table->core->ring->waits.transfers, EBB_WAIT_TRANSFERS, EBB_WAIT_OPEN, 0,
                           0, 0);
}

void ebb__waits_fault(struct table *table, struct block *block)
{
    block->wait.fault_ns = ebb__now_ns();
    block->wait.told = ebb__waits_block(table, block);
    ebb__progress_hold(table->core, true);
}

uint64_t ebb__waits_fault_over(struct table *table, struct block *block)
{
    if (block->wait.fault_ns == 0)
        return 0;
    uint64_t waited_ns = ebb__now_ns() - block->wait.fault_ns;
    block->wait.fault_ns = 0;
    ebb__wait_end(block->wait.told);
    block->wait.told = NULL;
    ebb__progress_hold(table->core, false);
    return waited_ns;
}
