/* Faults: the program accesses pages that are absent or observed. */
#include "runtime/internal.h"

/* Of an access to an absent block. If it is on its way, or should be by the plan, its use was
 * foreseen. */
static uint8_t flags_of(const struct ebb_runtime *runtime, const struct block *block)
{
    bool late = block->state == BLOCK_FETCHING || block->transfer.queue == QUEUE_IN ||
                ebb__feedback_is_due(&runtime->replay, block);
    return late ? EBB_EVENT_DEMAND | EBB_EVENT_LATE : EBB_EVENT_DEMAND;
}

void ebb__runtime_used(struct ebb_runtime *runtime, struct block *block, bool write, bool absent)
{
    bool demand = absent && !runtime->table.uses.trace;
    if (demand)
        atomic_fetch_add(&runtime->core.counters->demand_faults, 1);
    if (demand || (runtime->table.uses.trace && !block->use.open))
        ebb__observe_access(&runtime->transfer, block, write ? EBB_ACCESS_WRITE : EBB_ACCESS_READ,
                            demand ? flags_of(runtime, block) : 0);
    ebb__move_touch(&runtime->transfer, block);
    ebb__in_order_used(&runtime->reclaim.order, block);
    ebb__foresee_used(&runtime->reclaim.foresee, &runtime->table, block);
}

static void fault_in_block(struct ebb_runtime *runtime, struct block *block, uintptr_t address,
                           bool write)
{
    if (block->wait.fault_ns == 0) {
        ebb__feedback_missed(&runtime->replay, block);
        ebb__replay_seen(&runtime->replay, block);
    }
    switch (block->state) {
    case BLOCK_PARKED: /* an eviction candidate, an event of the access clock, or observed */
        ebb__runtime_used(runtime, block, write, block->transfer.queue == QUEUE_OUT);
        ebb__move_unpark(&runtime->transfer, block);
        ebb__replay_touched(&runtime->replay, block, false);
        break;
    case BLOCK_BARE:
        /* The program does not know this address yet. The fault was reported before the previous
         * block here was freed. */
        if (runtime->table.blocks[block->run.head].unborn)
            break;
        ebb__runtime_used(runtime, block, write, false);
        if (block->transfer.queue == QUEUE_IN)
            break; /* a worker handles it; only one thread may give it pages */
        if (ebb__pages_take(&runtime->memory, block->address, block->page_bytes)) {
            ebb__block_become(block, BLOCK_RESIDENT);
        } else {
            ebb__waits_fault(&runtime->table, block);
            ebb__move_queue_in(&runtime->transfer, block, true);
        }
        break;
    case BLOCK_WRITING_BACK:
    case BLOCK_EVICTED:
    case BLOCK_FETCHING:
        if (block->wait.fault_ns == 0) {
            if (!runtime->replay.current && !block->transfer.walk)
                ebb__reclaim_demanded(&runtime->reclaim, block);
            ebb__runtime_used(runtime, block, write, true);
            if (!runtime->replay.current)
                block->copy.stays = !write && ebb__foresee_keeps_copy(&runtime->reclaim.foresee,
                                                                      &runtime->table, block);
            ebb__waits_fault(&runtime->table, block);
            ebb__replay_touched(&runtime->replay, block, true);
        }
        ebb__move_call_back(&runtime->transfer, block);
        break;
    default: /* RESIDENT: fetched meanwhile, or the program dropped the page itself; or freed */
        ebb__space_fill(&runtime->addresses, block, address);
        break;
    }
}

/* A part may be too large to fit as a whole. If no plan relies on it any more, it is split. */
static struct block *part_to_bring(struct ebb_runtime *runtime, struct block *block,
                                   uintptr_t address)
{
    bool is_known = runtime->replay.current && block->script_block != EBB_SCRIPT_NONE;
    struct block *head = &runtime->table.blocks[block->run.head];
    if (is_known || head->unborn || (block->state != BLOCK_BARE && block->state != BLOCK_EVICTED) ||
        ebb__pages_available(&runtime->memory) >= block->page_bytes)
        return block;
    ebb__part_split(&runtime->table, head);
    return ebb__space_find(&runtime->addresses, address);
}

struct block *ebb__runtime_look_at(struct ebb_runtime *runtime, uintptr_t address, bool write)
{
    if (ebb__placement_owns(&runtime->addresses, address)) {
        ebb__placement_fill(&runtime->memory, address);
        return NULL;
    }
    struct block *block = ebb__space_find(&runtime->addresses, address);
    if (block && block->kind == BLOCK_SLAB) {
        ebb__slab_fault(&runtime->reclaim, block, address);
        return block;
    }
    /* No block's pages ever come there: it is behind the last page of a block, or there is none. */
    if (!block || address - block->address >= block->page_bytes) {
        ebb__space_fill(&runtime->addresses, block, address);
        return NULL;
    }
    block = part_to_bring(runtime, block, address);
    fault_in_block(runtime, block, address, write);
    ebb__reclaim_ahead(&runtime->reclaim);
    return block;
}

/* Uses of small objects do not show whether an operation has become long. */
static void note_pause(struct ebb_runtime *runtime, uintptr_t address)
{
    if (!ebb__slab_owns(&runtime->addresses, address) && ebb__observe_pause(&runtime->transfer))
        ebb__room_approach_budget(&runtime->reclaim);
}

void ebb__runtime_fault(struct ebb_runtime *runtime, uintptr_t address, bool write)
{
    struct ebb_wait *wait = ebb__waits_enter(&runtime->table, address);
    uint64_t began_ns = ebb__now_ns();
    pthread_mutex_lock(&runtime->core.lock);
    bool observed = runtime->table.uses.trace;
    note_pause(runtime, address);
    ebb__runtime_look_at(runtime, address, write);
    if (observed)
        ebb__progress_observed(&runtime->core, ebb__now_ns() - began_ns, 1);
    ebb__runtime_check(runtime);
    pthread_mutex_unlock(&runtime->core.lock);
    ebb__wait_end(wait);
}

bool ebb__runtime_await(struct ebb_runtime *runtime, uintptr_t address, bool write)
{
    struct ebb_wait *wait = ebb__waits_enter(&runtime->table, address);
    pthread_mutex_lock(&runtime->core.lock);
    const struct block *block = ebb__keep_live_at(runtime, address);
    bool waits = !block || !block->kept || block->state != BLOCK_RESIDENT;
    if (waits)
        note_pause(runtime, address);
    while (waits) {
        block = ebb__runtime_look_at(runtime, address, write);
        ebb__wait_end(wait); /* from this point on the parent sees the block's own wait */
        wait = NULL;
        if (!block || block->state == BLOCK_RESIDENT || !ebb__block_is_live(block))
            break;
        pthread_cond_wait(&runtime->core.changed, &runtime->core.lock);
    }
    ebb__runtime_check(runtime);
    pthread_mutex_unlock(&runtime->core.lock);
    ebb__wait_end(wait);
    return waits;
}
