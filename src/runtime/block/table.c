/* The block table: its memory, and its state after a fork. */
#include "runtime/block/block.h"

#define MOST_OPEN ((uint32_t)1 << 20)
#define MOST_EXTENTS ((size_t)1 << 16)

static uint64_t unit_count(const struct table *table)
{
    return table->core->device.layout.arena.bytes / EBB_HUGE_BYTES;
}

bool ebb__block_init(struct table *table, struct core *core)
{
    struct uses *uses = &table->uses;
    struct store_copies *copies = &table->copies;
    table->core = core;
    bool has_relatives = ebb__relatives_init(table); /* first, so that ebb__block_fini() works
                                                        after any failure */
    table->blocks = ebb__core_memory(MOST_BLOCKS * sizeof *table->blocks);
    table->unit_block = ebb__core_memory(unit_count(table) * sizeof *table->unit_block);
    uses->open_capacity = MOST_OPEN;
    uses->open_blocks = ebb__core_memory(MOST_OPEN * sizeof *uses->open_blocks);
    copies->extent_table = ebb__core_memory(MOST_EXTENTS * sizeof *copies->extent_table);
    if (!has_relatives || !table->blocks || !table->unit_block || !uses->open_blocks ||
        !copies->extent_table)
        return false;
    ebb__extents_init(&copies->extents, copies->extent_table, MOST_EXTENTS, UINT64_MAX);
    return true;
}

void ebb__block_fini(struct table *table)
{
    ebb__relatives_fini(table);
    ebb__core_unmap(table->blocks, MOST_BLOCKS * sizeof *table->blocks);
    ebb__core_unmap(table->unit_block, unit_count(table) * sizeof *table->unit_block);
    ebb__core_unmap(table->uses.open_blocks, MOST_OPEN * sizeof *table->uses.open_blocks);
    ebb__core_unmap(table->copies.extent_table, MOST_EXTENTS * sizeof *table->copies.extent_table);
}

void ebb__block_before_fork(struct table *table, bool is_read)
{
    ebb__relatives_before_fork(table, is_read);
    for (uint32_t i = 0; i < table->uses.open_count; i++)
        table->blocks[table->uses.open_blocks[i]].use.open = false;
    table->uses.open_count = 0;
}

void ebb__block_after_fork(struct table *table)
{
    ebb__relatives_after_fork_parent(table);
}

/* No transfer is in progress in the child. Returns the bytes that the block represents. */
static uint64_t fork_block(struct block *block)
{
    block->transfer.queue = QUEUE_NONE;
    block->transfer.urgent = false;
    block->wait.fault_ns = 0;
    block->wait.told = NULL; /* it lies in the parent's ring */
    block->pins = 0;         /* those are of threads that the child lacks, */
    block->unborn = false;   /* and so is who waits for memory for it */
    block->inherited = block->kind != BLOCK_STATIC &&
                       (block->state == BLOCK_RESIDENT || block->state == BLOCK_CACHED);
    return ebb__block_is_live(block) ? block->size_bytes : 0;
}

void ebb__block_forked(struct table *table, bool parent_wrote)
{
    struct ebb_counters *counters = table->core->counters;
    uint64_t live = 0;
    for (uint32_t i = 1; i <= table->count; i++)
        live += fork_block(&table->blocks[i]);
    atomic_store(&counters->live_bytes, live);
    atomic_store(&counters->peak_live_bytes, live);
    atomic_store(&counters->inherited_bytes, live);
    ebb__relatives_forked(table, parent_wrote);
    ebb__extents_init(&table->copies.extents, table->copies.extent_table,
                      table->copies.extents.capacity, UINT64_MAX);
    if (!table->uses.trace)
        return;
    table->uses.trace = false;
    table->uses.blind_until = 0;
    ebb__core_mark(table->core, EBB_MARK_TRACE_OFF, 0);
}
