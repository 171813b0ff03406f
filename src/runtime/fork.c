/* Fork: what a child inherits of its parent's blocks.
 *
 * Before the fork every transfer ends and every parked block returns to the arena. So the child
 * inherits resident blocks and slabs by copy on write. Absent ones stay in the store, which both
 * can read; block/copies.c ensures that neither overwrites data of the other. Cached pages have no
 * contents, so the child does not get them, and the parent need not copy them.
 *
 * The child has a new userfaultfd, and no runtime thread yet. Until it has, it must not touch
 * memory that the runtime manages: an absent page would read as zeros. It starts reactive, writes
 * to its own store, and counts only the pages that it takes itself. Each part handles its own state
 * after a fork. */
#include "base/check.h"
#include "runtime/internal.h"

void ebb__runtime_before_fork(struct ebb_runtime *runtime)
{
    pthread_mutex_lock(&runtime->core.lock);
    ebb__reclaim_before_fork(&runtime->reclaim);
    ebb__block_before_fork(&runtime->table, ebb__transfer_before_fork(&runtime->transfer));
    ebb__memory_before_fork(&runtime->memory);
    /* The lock stays held during the fork. */
}

void ebb__runtime_after_fork_parent(struct ebb_runtime *runtime)
{
    EBB_CHECK_THAT(runtime->reclaim.hand.forks); /* it was locked before the fork */
    runtime->core.forked = true;
    ebb__block_after_fork(&runtime->table);
    ebb__transfer_after_fork(&runtime->transfer);
    ebb__reclaim_after_fork(&runtime->reclaim);
    pthread_mutex_unlock(&runtime->core.lock);
}

void ebb__runtime_set_slots(struct ebb_runtime *runtime, struct ebb_ledger_slot *slot,
                            struct ebb_ledger *store_ledger, struct ebb_ledger_slot *store_slot)
{
    runtime->core.slot = slot;
    runtime->core.config.store_ledger = store_ledger;
    runtime->core.config.store_slot = store_slot;
}

enum ebb_status ebb__runtime_after_fork_child(struct ebb_runtime *runtime,
                                              struct ebb_ledger *ledger, struct ebb_ring *ring)
{
    ebb__core_forked(&runtime->core, ledger, ring);
    ebb__block_forked(&runtime->table, ebb__store_is_open(&runtime->transfer.store));
    ebb__memory_forked(&runtime->memory);
    ebb__transfer_forked(&runtime->transfer);
    ebb__replay_forked(&runtime->replay);
    ebb__runtime_announce(runtime);
    ebb__retire_forked(runtime);
    if (!ebb__mover_start(&runtime->transfer))
        return EBB_ERR_LIMIT;
    pthread_mutex_lock(&runtime->core.lock);
    ebb__reclaim_forked(&runtime->reclaim);
    pthread_mutex_unlock(&runtime->core.lock);
    return EBB_OK;
}
