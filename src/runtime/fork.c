/* Fork: what a child may see of its parent's blocks.
 *
 * Before the fork every transfer ends and every parked block goes back to the arena, so that the
 * child inherits by copy on write what is resident. What is away stays in the store, which both
 * can read; block/copies.c sees to it that neither overwrites what the other needs. Slabs are all there:
 * other libraries' handlers may use some in the child before this file does. The child has no runtime
 * thread yet and a new userfaultfd; it starts reactive, writes to a store of its own, and counts only the
 * pages that it takes itself. Each part knows by itself what a fork leaves of it. */
#include "runtime/internal.h"

void ebb__runtime_before_fork(struct ebb_runtime *runtime)
{
    pthread_mutex_lock(&runtime->core.lock);
    ebb__reclaim_before_fork(&runtime->reclaim);
    ebb__block_before_fork(&runtime->table, ebb__transfer_before_fork(&runtime->transfer));
    /* The lock stays held across the fork. */
}

void ebb__runtime_after_fork_parent(struct ebb_runtime *runtime)
{
    runtime->core.forked = true;
    ebb__block_after_fork(&runtime->table);
    ebb__transfer_after_fork(&runtime->transfer);
    ebb__reclaim_forked(&runtime->reclaim);
    pthread_mutex_unlock(&runtime->core.lock);
}

void ebb__runtime_set_slot(struct ebb_runtime *runtime, struct ebb_ledger_slot *slot)
{
    runtime->core.slot = slot;
}

enum ebb_status ebb__runtime_after_fork_child(struct ebb_runtime *runtime,
                                              struct ebb_ledger *ledger, struct ebb_ring *ring)
{
    ebb__core_forked(&runtime->core, ledger, ring);
    ebb__block_forked(&runtime->table, ebb__store_is_open(&runtime->transfer.store));
    ebb__memory_forked(&runtime->memory);
    ebb__transfer_forked(&runtime->transfer);
    ebb__reclaim_forked(&runtime->reclaim);
    ebb__replay_forked(&runtime->replay);
    ebb__runtime_announce(runtime);
    return ebb__mover_start(&runtime->transfer) ? EBB_OK : EBB_ERR_LIMIT;
}
