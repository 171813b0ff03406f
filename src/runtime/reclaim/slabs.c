/* Slabs as blocks: 64 KiB each, in a separate part of the arena, for small objects (slabs.c). *Slab
 * reclaim* evicts unused slabs.
 *
 * Most small blocks are not used again: a framework uses an eighth of those it allocates while
 * loading. No event reports their uses, and no plan knows them. Therefore slab reclaim visits the
 * slabs in rounds and parks some. It runs while accesses are observed and while blocks are evicted,
 * by a plan or for want of memory, at most two rounds a second. An access to a parked slab is a
 * fault and costs a page move. The slab is then left alone for a time that doubles with each such
 * access, up to a limit. Plans count parked slabs as free. A slab that stays parked for a round and
 * for an iteration and a half is the first to be evicted if memory is needed.
 *
 * The runtime's own threads must never wait for a slab. They touch no object of the program. Memory
 * of libc and the loader (streams, locales, dynamic TLS) is in no slab: the shim passes such
 * requests to the next allocator. If a system call cannot wait for an absent page, no slab is
 * evicted.
 *
 * Evicted slabs stay evicted during a fork. The child fetches those that it uses from its parent's
 * store. What a child shares cannot be freed. So parked slabs are evicted before the fork, if the
 * budget is tight. The rest of them become resident for the fork, which is no use of them. */
#include "runtime/reclaim/reclaim.h"

#include "base/tuning.h"

enum { MOST_DOUBLINGS = 8 }; /* a slab that comes back is left alone for twice as long, so often */

void ebb__slab_count(struct reclaim *reclaim, const struct block *block, bool here)
{
    if (block->inherited)
        return;
    if (here)
        atomic_fetch_add(&reclaim->core->counters->small_bytes, EBB_SLAB_BYTES);
    else
        atomic_fetch_sub(&reclaim->core->counters->small_bytes, EBB_SLAB_BYTES);
}

void ebb__slab_back(struct reclaim *reclaim, struct block *block)
{
    struct slab_record *record = ebb__slab_record_at(reclaim->addresses, block->address);
    ebb__slab_count(reclaim, block, true);
    if (reclaim->hand.forks)
        return;
    record->since_ns = ebb__now_ns();
    record->arrival = ++reclaim->addresses->slabs.arrivals;
    record->doublings += record->doublings < MOST_DOUBLINGS;
}

static bool slabs_may_be_evicted(const struct reclaim *reclaim)
{
    const struct ebb_device_ops *ops = reclaim->core->device.ops;
    return reclaim->core->config.open_store && ebb__store_may_write(&reclaim->transfer->store) &&
           !ops->calls_need_pins && !ops->faults_are_signals;
}

/* Has the slab been used recently, as far as is known? */
static bool is_kept(const struct reclaim *reclaim, const struct slab_record *record, uint64_t now)
{
    return now - record->since_ns < reclaim->core->config.slab_reclaim_ns << record->doublings >> 1;
}

void ebb__slab_look(struct reclaim *reclaim, uint32_t most)
{
    const struct slab_space *space = &reclaim->addresses->slabs;
    struct slab_hand *hand = &reclaim->hand;
    if (!slabs_may_be_evicted(reclaim) || space->used == 0)
        return;
    uint64_t now = ebb__now_ns();
    if (hand->next == hand->lap_slabs) {
        if (now - hand->lap_ns < reclaim->core->config.slab_reclaim_ns)
            return;
        hand->next = 0;
        hand->lap_slabs = space->used;
        hand->lap_ns = now;
        hand->lap_out_bytes = atomic_load(&reclaim->core->counters->moved_out_bytes);
    }
    for (unsigned parked = 0; hand->next < hand->lap_slabs && parked < most; hand->next++) {
        struct slab_record *record = &space->slabs[hand->next];
        struct block *block = &reclaim->table->blocks[record->block];
        if (block->state != BLOCK_RESIDENT ||
            !ebb__block_may_be_evicted(&reclaim->table->uses, block) ||
            is_kept(reclaim, record, now))
            continue;
        parked++;
        if (ebb__move_park(reclaim->transfer, block))
            record->since_ns = now;
    }
}

void ebb__slab_step(struct reclaim *reclaim)
{
    const struct ebb_counters *counters = reclaim->core->counters;
    if (reclaim->table->uses.trace ||
        atomic_load(&counters->moved_out_bytes) != reclaim->hand.lap_out_bytes)
        ebb__slab_look(reclaim, (uint32_t)ebb__tuning()->slab_looks_an_allocation);
}

struct block *ebb__slab_victim(struct reclaim *reclaim)
{
    const struct slab_space *space = &reclaim->addresses->slabs;
    if (!slabs_may_be_evicted(reclaim))
        return NULL;
    ebb__slab_look(reclaim, (uint32_t)ebb__tuning()->slab_batch);
    uint64_t now = ebb__now_ns(), rest_ns = reclaim->core->config.slab_reclaim_ns;
    uint64_t iteration_ns = reclaim->core->policy->iteration_ns(reclaim->core->policy_context);
    if (iteration_ns + iteration_ns / 2 > rest_ns)
        rest_ns = iteration_ns + iteration_ns / 2;
    for (uint32_t looked = 0; looked < space->used; looked++) {
        reclaim->hand.next_victim =
            reclaim->hand.next_victim + 1 < space->used ? reclaim->hand.next_victim + 1 : 0;
        const struct slab_record *record = &space->slabs[reclaim->hand.next_victim];
        struct block *block = &reclaim->table->blocks[record->block];
        if (block->state == BLOCK_PARKED &&
            ebb__block_may_be_evicted(&reclaim->table->uses, block) &&
            now - record->since_ns >= rest_ns)
            return block;
    }
    return NULL;
}

struct block *ebb__slab_oldest(struct reclaim *reclaim)
{
    const struct slab_space *space = &reclaim->addresses->slabs;
    uint64_t oldest_ns = UINT64_MAX;
    struct block *oldest = NULL;
    for (uint32_t i = 0; slabs_may_be_evicted(reclaim) && i < space->used; i++) {
        const struct slab_record *record = &space->slabs[i];
        struct block *block = &reclaim->table->blocks[record->block];
        if (ebb__block_may_be_evicted(&reclaim->table->uses, block) &&
            record->since_ns < oldest_ns &&
            space->arrivals - record->arrival >= ebb__tuning()->slabs_in_use) {
            oldest_ns = record->since_ns;
            oldest = block;
        }
    }
    return oldest;
}

void ebb__slab_fault(struct reclaim *reclaim, struct block *block, uintptr_t address)
{
    switch (block->state) {
    case BLOCK_PARKED:
        ebb__move_unpark(reclaim->transfer, block);
        break;
    case BLOCK_BARE: /* reported before it was freed; its next owner gives it pages */
        break;
    case BLOCK_WRITING_BACK:
    case BLOCK_EVICTED:
    case BLOCK_FETCHING:
        if (block->wait.fault_ns == 0) {
            atomic_fetch_add(&reclaim->core->counters->demand_faults, 1);
            ebb__waits_fault(reclaim->table, block);
        }
        ebb__move_call_back(reclaim->transfer, block);
        break;
    default:
        ebb__space_fill(reclaim->addresses, block, address);
        break;
    }
}

static bool is_leaving(const struct block *block)
{
    return block->transfer.queue == QUEUE_OUT || block->state == BLOCK_WRITING_BACK;
}

/* Is so much of the budget used that parked slabs will be evicted sooner or later? */
static bool is_tight(const struct ebb_ledger *ledger)
{
    uint64_t budget = atomic_load(&ledger->budget_bytes);
    return atomic_load(&ledger->in_force) && budget != UINT64_MAX &&
           atomic_load(&ledger->held_bytes) > budget / 2;
}

/* Evicts the parked slabs, as far as time permits. Releases the lock. */
static void evict_parked(struct reclaim *reclaim)
{
    const struct slab_space *space = &reclaim->addresses->slabs;
    struct block *blocks = reclaim->table->blocks;
    uint64_t until = ebb__now_ns() + ebb__tuning()->fork_write_ns;
    for (uint32_t i = 0; i < space->used; i++) {
        struct block *block = &blocks[space->slabs[i].block];
        if (block->state == BLOCK_PARKED && ebb__block_may_be_evicted(&reclaim->table->uses, block))
            ebb__move_queue_out(reclaim->transfer, block, false);
    }
    for (bool waits = true; waits && ebb__now_ns() < until;) {
        waits = false;
        for (uint32_t i = 0; !waits && i < space->used; i++)
            waits = is_leaving(&blocks[space->slabs[i].block]);
        if (waits)
            ebb__core_wait_until(reclaim->core, &reclaim->core->changed, until);
    }
    for (uint32_t i = 0; i < space->used; i++) {
        struct block *block = &blocks[space->slabs[i].block];
        if (block->transfer.queue == QUEUE_OUT)
            ebb__move_unqueue_out(reclaim->transfer, block);
    }
}

void ebb__reclaim_before_fork(struct reclaim *reclaim)
{
    if (slabs_may_be_evicted(reclaim) && is_tight(reclaim->core->ledger))
        evict_parked(reclaim);
    reclaim->hand.forks = true;
}

void ebb__reclaim_after_fork(struct reclaim *reclaim)
{
    reclaim->hand.forks = false;
}

void ebb__reclaim_forked(struct reclaim *reclaim)
{
    const struct ebb_device_ops *ops = reclaim->core->device.ops;
    const struct slab_space *space = &reclaim->addresses->slabs;
    reclaim->hand.forks = false;
    if (!ops->calls_need_pins && !ops->faults_are_signals)
        return;
    for (uint32_t i = 0; i < space->used; i++) {
        struct block *block = &reclaim->table->blocks[space->slabs[i].block];
        if (block->state == BLOCK_EVICTED)
            ebb__slab_fault(reclaim, block, block->address);
        while (block->wait.fault_ns)
            pthread_cond_wait(&reclaim->core->changed, &reclaim->core->lock);
    }
}

void ebb__reclaim_init(struct reclaim *reclaim, struct transfer *transfer)
{
    reclaim->core = transfer->core;
    reclaim->table = transfer->table;
    reclaim->addresses = transfer->addresses;
    reclaim->memory = transfer->memory;
    reclaim->transfer = transfer;
    reclaim->hand.lap_ns = ebb__now_ns();
}
