/* Evicts and fetches ahead of need while no plan is in force.
 *
 * Without a plan each eviction and each fetch would be waited for, and the lanes be idle between.
 * If memory was lacking lately, some of the budget is kept free. While accesses are observed, the
 * block that is expected to be used next is fetched, one at a time. It is fetched only if another
 * one is expected to be used much later, which gives way to it. The rival counts what is fetched.
 * So a wrong expectation costs no more than a wrong choice of victims (rival.h). */
#include "runtime/reclaim/reclaim.h"

#include "base/tuning.h"

/* After so many uses and operations it is looked again for a block to fetch, if there was none. */
#define LOOK_AGAIN_AFTER 16u

static void keep_free(struct reclaim *reclaim, uint64_t bytes)
{
    uint64_t available = ebb__pages_available(reclaim->memory);
    while (available + reclaim->transfer->out_pending_bytes < bytes) {
        struct block *victim = ebb__victim_ahead(reclaim);
        if (!victim)
            return;
        ebb__move_evict(reclaim->transfer, victim);
    }
}

/* The absent block that is used next, as far as is known. NULL: none. */
static struct block *used_next(struct reclaim *reclaim, uint64_t *distance)
{
    struct block *best = NULL;
    *distance = UINT64_MAX;
    for (uint32_t i = 1; i <= reclaim->table->count; i++) {
        struct block *block = &reclaim->table->blocks[i];
        if (block->state != BLOCK_EVICTED || block->transfer.queue != QUEUE_NONE ||
            block->transfer.error)
            continue;
        uint64_t own = ebb__foresee_ahead(&reclaim->foresee, reclaim->table, block);
        if (own < *distance) {
            *distance = own;
            best = block;
        }
    }
    return best;
}

/* Uses and operations so far. */
static uint64_t now(const struct reclaim *reclaim)
{
    return reclaim->table->uses.touches + reclaim->table->uses.event_number;
}

static void begin_fetch(struct reclaim *reclaim, struct block *block)
{
    if (reclaim->foresee.is_on)
        ebb__foresee_fetched(&reclaim->foresee, reclaim->table, block);
    block->copy.stays = false;
    ebb__move_queue_in(reclaim->transfer, block, false);
}

/* False: nothing is known of what comes next. */
static bool fetch_foreseen(struct reclaim *reclaim)
{
    uint64_t distance, latest;
    if (!ebb__foresee_leads(&reclaim->foresee, reclaim->table))
        return false;
    if (now(reclaim) < reclaim->look_at)
        return reclaim->foresees;
    struct block *block = used_next(reclaim, &distance);
    reclaim->foresees = block;
    if (!block || !ebb__victim_latest(reclaim, &latest) ||
        latest / (uint64_t)ebb__tuning()->ahead_factor <= distance) {
        reclaim->look_at = now(reclaim) + LOOK_AGAIN_AFTER;
        return block;
    }
    begin_fetch(reclaim, block);
    return true;
}

/* What is demanded in order goes on so, while there is memory for it. */
static void fetch_in_order(struct reclaim *reclaim, uint64_t budget)
{
    unsigned walk;
    if (now(reclaim) < reclaim->order_at)
        return;
    struct block *block = ebb__in_order_next(&reclaim->order, reclaim->table,
                                             ebb__pages_available(reclaim->memory), budget, &walk);
    if (!block) {
        reclaim->order_at = now(reclaim) + LOOK_AGAIN_AFTER;
        return;
    }
    ebb__in_order_fetched(&reclaim->order, reclaim->table, block, walk);
    begin_fetch(reclaim, block);
}

void ebb__reclaim_demanded(struct reclaim *reclaim, const struct block *block)
{
    ebb__in_order_demanded(&reclaim->order, reclaim->table, block);
    reclaim->order_at = 0;
}

/* Bytes that the next fetch waits for. */
static uint64_t awaited_bytes(const struct reclaim *reclaim)
{
    uint32_t next = reclaim->transfer->in.queue.first;
    return next == NO_BLOCK ? 0 : reclaim->table->blocks[next].page_bytes;
}

void ebb__reclaim_ahead(struct reclaim *reclaim)
{
    uint64_t budget = atomic_load(&reclaim->core->ledger->budget_bytes);
    uint64_t reserve = budget / (uint64_t)ebb__tuning()->ahead_divisor;
    if (budget == UINT64_MAX || !ebb__store_may_write(&reclaim->transfer->store) ||
        reclaim->core->policy->is_planned(reclaim->core->policy_context))
        return;
    const struct lane *in = &reclaim->transfer->in;
    bool is_short = ebb__now_ns() <= reclaim->short_until_ns;
    bool is_idle = in->queue.first == NO_BLOCK && in->current == NO_BLOCK;
    if (is_idle && !(is_short && fetch_foreseen(reclaim)))
        fetch_in_order(reclaim, budget);
    if (is_short)
        keep_free(reclaim, reserve + awaited_bytes(reclaim));
}
