/* Evicts blocks if memory is needed, and asks other processes for memory. */
#include "runtime/reclaim/reclaim.h"

#include "base/tuning.h"

/* Limits: other processes are given so long to make room, once they have heard of it. The parent is
 * given so long to pass a request on, which it does not while it plans. After both in vain nobody
 * is asked for so long. */
#define PATIENCE_NS ((uint64_t)500000000)
#define PARENT_NS ((uint64_t)10000000000)
#define ALONE_NS ((uint64_t)5000000000)

/* A block that a plan prefetches and no thread waits for. NULL: none. */
static struct block *early_fetch(struct reclaim *reclaim)
{
    for (uint32_t i = 1; i <= reclaim->table->count; i++) {
        struct block *block = &reclaim->table->blocks[i];
        if (block->state == BLOCK_FETCHING && block->transfer.end == TRANSFER_GOES_ON &&
            !block->transfer.urgent && block->wait.fault_ns == 0)
            return block;
    }
    return NULL;
}

bool ebb__room_make(struct reclaim *reclaim, uint64_t bytes)
{
    /* Bytes that are being evicted count. The rest must be evicted. */
    uint64_t available = ebb__pages_available(reclaim->memory);
    uint64_t becoming_free = reclaim->transfer->out_pending_bytes;
    if (!ebb__store_may_write(&reclaim->transfer->store))
        return becoming_free > 0;
    while (available + becoming_free < bytes) {
        struct block *victim = ebb__victim_choose(reclaim);
        if (!victim)
            break;
        becoming_free += victim->page_bytes;
        ebb__move_evict(reclaim->transfer, victim);
        reclaim->short_until_ns = ebb__now_ns() + ebb__tuning()->ahead_ns;
    }
    struct block *fetch;
    while (available + becoming_free < bytes && (fetch = early_fetch(reclaim))) {
        becoming_free += fetch->page_bytes;
        reclaim->core->policy->evicting(reclaim->core->policy_context, fetch);
        ebb__move_give_up(reclaim->transfer, fetch);
    }
    return becoming_free > 0;
}

bool ebb__room_ask_others(struct reclaim *reclaim, uint64_t bytes, struct asking *asking)
{
    struct ebb_ledger *ledger = reclaim->core->ledger;
    uint64_t own = atomic_load(&reclaim->core->counters->held_bytes), now = ebb__now_ns();
    uint64_t passed_on = atomic_load(&ledger->passed_on);
    if (asking->since_ns == 0)
        *asking = (struct asking){.since_ns = now, .passed_on = passed_on};
    if (atomic_load(&ledger->held_bytes) <= own || now < reclaim->alone_until_ns ||
        atomic_load(&reclaim->core->ring->parent_gone))
        return false;
    if (passed_on != asking->passed_on && !asking->is_heard) {
        asking->since_ns = now;
        asking->is_heard = true;
    }
    if (now - asking->since_ns > (asking->is_heard ? PATIENCE_NS : PARENT_NS)) {
        reclaim->alone_until_ns = now + ALONE_NS;
        return false;
    }
    atomic_store(&ledger->starving_process, reclaim->core->config.process_id);
    atomic_store(&ledger->starving_bytes, bytes);
    ebb__core_wait_until(reclaim->core, &reclaim->core->changed, now + 5000000);
    return true;
}

void ebb__room_evict_until(struct reclaim *reclaim, uint64_t bytes)
{
    while (reclaim->transfer->out_pending_bytes < bytes &&
           ebb__store_may_write(&reclaim->transfer->store)) {
        struct block *victim = ebb__victim_choose(reclaim);
        if (!victim)
            break;
        ebb__move_evict(reclaim->transfer, victim);
    }
}

void ebb__room_approach_budget(struct reclaim *reclaim)
{
    struct ebb_ledger *ledger = reclaim->core->ledger;
    bool in_force = atomic_load_explicit(&ledger->in_force, memory_order_relaxed);
    if (in_force && !reclaim->transfer->may_exceed)
        return;
    uint64_t budget = atomic_load(&ledger->budget_bytes);
    if (budget == UINT64_MAX)
        return;
    ebb__pages_trim(reclaim->memory);
    uint64_t held = atomic_load(&ledger->held_bytes);
    if (held > budget) {
        ebb__room_evict_until(reclaim, held - budget);
        return;
    }
    reclaim->transfer->may_exceed = false;
    if (in_force)
        return;
    atomic_store(&ledger->peak_bytes, held);
    atomic_store(&ledger->in_force, 1);
}

bool ebb__room_get(struct reclaim *reclaim, uint64_t bytes, struct asking *asking)
{
    return ebb__room_make(reclaim, bytes) || ebb__room_ask_others(reclaim, bytes, asking);
}
