/* Slabs as blocks: 64 KiB of a part of the arena of their own, for small objects (slabs.c), that leave
 * when nobody uses them.
 *
 * What a program keeps in small blocks it has mostly left behind: of what a framework takes while it is
 * loaded, an eighth is ever touched again. No event tells of uses of it and no plan knows it. So a
 * hand goes round the slabs, two laps a second at most, while accesses are observed and while room is
 * wanted, and parks some. What is used comes back by a fault, at the price of a page move, and is
 * left alone for a while, each time for longer. What lies parked counts as free where plans are made,
 * and after a lap, or an iteration and a half, it is the first to leave where room is wanted.
 *
 * The runtime's own threads must never wait for a slab. They touch no object of the program, and what libc
 * and the loader allocate for themselves (streams, locales, dynamic TLS) is in none: the shim leaves it to
 * the next allocator. Where a system call cannot wait for an absent page nothing leaves, and around a fork
 * everything is there: others' handlers may run in the child before it can have anything back. */
#include "runtime/internal.h"

#include "base/tuning.h"

#include <sys/mman.h>

void ebb__slab_count(struct ebb_runtime *runtime, const struct block *block, bool here)
{
    if (block->inherited)
        return;
    if (here)
        atomic_fetch_add(&runtime->core.counters->small_bytes, EBB_SLAB_BYTES);
    else
        atomic_fetch_sub(&runtime->core.counters->small_bytes, EBB_SLAB_BYTES);
}

void ebb__slab_back(struct ebb_runtime *runtime, struct block *block)
{
    struct slab_record *record = ebb__slab_record_at(runtime, block->address);
    ebb__slab_count(runtime, block, true);
    record->since_ns = ebb__now_ns();
    record->arrival = ++runtime->slabs.arrivals;
    record->doublings += record->doublings < ebb__tuning()->slab_most_doublings;
}

static bool slabs_may_be_evicted(const struct ebb_runtime *runtime)
{
    const struct ebb_device_ops *ops = runtime->core.device.ops;
    return runtime->core.config.open_store && !runtime->store.failed && !runtime->slabs.all_here &&
           !ops->calls_need_pins && !ops->faults_are_signals;
}

/* Has it been used of late, as far as is known? */
static bool is_kept(const struct ebb_runtime *runtime, const struct slab_record *record,
                    uint64_t now)
{
    return now - record->since_ns < runtime->core.config.slab_reclaim_ns << record->doublings >> 1;
}

void ebb__slab_look(struct ebb_runtime *runtime, uint32_t most)
{
    struct slab_space *space = &runtime->slabs;
    if (!slabs_may_be_evicted(runtime) || space->used == 0)
        return;
    uint64_t now = ebb__now_ns();
    if (space->hand == space->lap_slabs) {
        if (now - space->lap_ns < runtime->core.config.slab_reclaim_ns)
            return;
        space->hand = 0;
        space->lap_slabs = space->used;
        space->lap_ns = now;
    }
    for (unsigned parked = 0; space->hand < space->lap_slabs && parked < most; space->hand++) {
        struct slab_record *record = &space->slabs[space->hand];
        struct block *block = &runtime->table.blocks[record->block];
        if (block->state != BLOCK_RESIDENT || !ebb__block_may_be_evicted(&runtime->uses, block) ||
            is_kept(runtime, record, now))
            continue;
        parked++;
        if (ebb__move_park(runtime, block))
            record->since_ns = now;
    }
}

struct block *ebb__slab_victim(struct ebb_runtime *runtime)
{
    struct slab_space *space = &runtime->slabs;
    if (!slabs_may_be_evicted(runtime))
        return NULL;
    ebb__slab_look(runtime, (uint32_t)ebb__tuning()->slab_batch);
    uint64_t now = ebb__now_ns(), rest_ns = runtime->core.config.slab_reclaim_ns;
    uint64_t iteration_ns = runtime->core.policy->iteration_ns(runtime);
    if (iteration_ns + iteration_ns / 2 > rest_ns)
        rest_ns = iteration_ns + iteration_ns / 2;
    for (uint32_t looked = 0; looked < space->used; looked++) {
        space->next_victim = space->next_victim + 1 < space->used ? space->next_victim + 1 : 0;
        const struct slab_record *record = &space->slabs[space->next_victim];
        struct block *block = &runtime->table.blocks[record->block];
        if (block->state == BLOCK_PARKED && ebb__block_may_be_evicted(&runtime->uses, block) &&
            now - record->since_ns >= rest_ns)
            return block;
    }
    return NULL;
}

struct block *ebb__slab_oldest(struct ebb_runtime *runtime)
{
    const struct slab_space *space = &runtime->slabs;
    uint64_t oldest_ns = UINT64_MAX;
    struct block *oldest = NULL;
    for (uint32_t i = 0; slabs_may_be_evicted(runtime) && i < space->used; i++) {
        const struct slab_record *record = &space->slabs[i];
        struct block *block = &runtime->table.blocks[record->block];
        if (ebb__block_may_be_evicted(&runtime->uses, block) && record->since_ns < oldest_ns &&
            space->arrivals - record->arrival >= ebb__tuning()->slabs_in_use) {
            oldest_ns = record->since_ns;
            oldest = block;
        }
    }
    return oldest;
}

void ebb__slab_fault(struct ebb_runtime *runtime, struct block *block, uintptr_t address)
{
    switch (block->state) {
    case BLOCK_PARKED:
        ebb__move_unpark(runtime, block);
        break;
    case BLOCK_BARE: /* reported before it was given back: it gets its pages from whoever takes it now */
        break;
    case BLOCK_WRITING_BACK:
    case BLOCK_EVICTED:
    case BLOCK_FETCHING:
        if (block->wait.fault_ns == 0) {
            atomic_fetch_add(&runtime->core.counters->demand_faults, 1);
            ebb__waits_fault(runtime, block);
        }
        ebb__move_call_back(runtime, block);
        break;
    default:
        ebb__space_fill(runtime, block, address);
        break;
    }
}

void ebb__slab_recall(struct ebb_runtime *runtime)
{
    struct slab_space *space = &runtime->slabs;
    space->all_here = true;
    for (uint32_t i = 0; i < space->used; i++) {
        struct block *block = &runtime->table.blocks[space->slabs[i].block];
        if (block->state == BLOCK_WRITING_BACK || block->state == BLOCK_EVICTED ||
            block->state == BLOCK_FETCHING)
            ebb__slab_fault(runtime, block, block->address);
    }
    for (uint32_t i = 0; i < space->used; i++)
        while (runtime->table.blocks[space->slabs[i].block].wait.fault_ns)
            pthread_cond_wait(&runtime->core.changed, &runtime->core.lock);
}
