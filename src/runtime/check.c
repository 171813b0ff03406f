/* Invariants that hold between any two operations, checked in EBB_CHECK builds (base/check.h).
 *
 * A check visits all blocks. So it runs only once per as many operations as there are blocks. */
#include "base/check.h"
#include "runtime/internal.h"

#if EBB_CHECKS

/* Bytes of its own pages in memory, as the ledger counts them. */
static uint64_t held_bytes(const struct block *block)
{
    if (block->kind == BLOCK_STATIC || block->inherited)
        return 0;
    switch (block->state) {
    case BLOCK_CACHED:
    case BLOCK_RESIDENT:
    case BLOCK_PARKED:
    case BLOCK_WRITING_BACK:
    case BLOCK_FETCHING:
    case BLOCK_DYING:
        return block->page_bytes;
    default:
        return 0;
    }
}

static bool has_frame(const struct block *block)
{
    return block->state == BLOCK_PARKED || block->state == BLOCK_WRITING_BACK ||
           block->state == BLOCK_FETCHING || block->state == BLOCK_DYING;
}

/* The number of blocks on a queue. Each block must name that queue. */
static uint32_t queue_length(const struct ebb_runtime *runtime, struct list list,
                             enum block_queue queue)
{
    uint32_t count = 0;
    for (uint32_t i = list.first; i != NO_BLOCK; i = runtime->table.blocks[i].queue.next) {
        EBB_CHECK_THAT(runtime->table.blocks[i].transfer.queue == queue);
        count++;
    }
    return count;
}

void ebb__runtime_check(struct ebb_runtime *runtime)
{
    const struct memory *memory = &runtime->memory;
    uint64_t held = memory->page_stack_bytes + memory->frames.cached_bytes +
                    memory->frames.tail_cache_bytes + runtime->addresses.placement.held_bytes;
    uint64_t pending = 0;
    uint32_t queued_out = 0, queued_in = 0;
    if (runtime->unchecked++ < runtime->table.count)
        return;
    runtime->unchecked = 0;
    for (uint32_t i = 1; i <= runtime->table.count; i++) {
        const struct block *block = &runtime->table.blocks[i];
        enum block_queue queue = block->transfer.queue;
        if (block->state == BLOCK_ASLEEP)
            continue;
        held += held_bytes(block);
        queued_out += queue == QUEUE_OUT;
        queued_in += queue == QUEUE_IN;
        if (queue == QUEUE_OUT || block->state == BLOCK_WRITING_BACK ||
            block->transfer.end == TRANSFER_GIVEN_UP)
            pending += block->page_bytes;
        /* The block's bytes are at one place. */
        EBB_CHECK_THAT(has_frame(block) == (block->frame != 0));
        EBB_CHECK_THAT(block->state != BLOCK_EVICTED || block->copy.is_there);
        EBB_CHECK_THAT(queue != QUEUE_OUT || block->state == BLOCK_RESIDENT ||
                       block->state == BLOCK_PARKED);
        EBB_CHECK_THAT(queue != QUEUE_IN || block->state == BLOCK_EVICTED ||
                       block->state == BLOCK_BARE);
    }
    EBB_CHECK_THAT(queue_length(runtime, runtime->transfer.out.queue, QUEUE_OUT) == queued_out);
    EBB_CHECK_THAT(queue_length(runtime, runtime->transfer.in.queue, QUEUE_IN) == queued_in);
    EBB_CHECK_THAT(held == atomic_load(&runtime->core.counters->held_bytes));
    EBB_CHECK_THAT(pending <= runtime->transfer.out_pending_bytes);
}

#endif
