/* What the mover holds of the device, and what of it is spare.
 *
 * A backing may recycle pages. Those that have left their addresses are spare: they stay in the
 * ledger, and the next *in* takes them first. */
#include "cuda/mover_internal.h"

#include "base/clock.h"

/* Spare pages go after so long. To make and to free 2 MiB costs 17 us (docs/results/README.md): a
 * GiB of spare pages costs 9 ms each time. */
#define SPARE_NS 20000000u

static void release(struct cuda_mover *mover, uint64_t bytes)
{
    uint64_t held = atomic_fetch_sub(&mover->held_bytes, bytes) - bytes;
    ebb__ledger_release(mover->config.engine->ledger, mover->config.engine->slot, bytes);
    atomic_store(&mover->counters->held_bytes, held);
}

bool ebb__mover_take_bytes(struct cuda_mover *mover, uint64_t bytes)
{
    uint64_t spare = bytes < mover->spare.bytes ? bytes : mover->spare.bytes;
    uint64_t more = bytes - spare;
    if (more &&
        !ebb__ledger_reserve(mover->config.engine->ledger, mover->config.engine->slot, more)) {
        mover->spare.is_starved = true;
        return false;
    }
    mover->spare.bytes -= spare;
    mover->spare.is_starved = false;
    if (more)
        atomic_store(&mover->counters->held_bytes,
                     atomic_fetch_add(&mover->held_bytes, more) + more);
    return true;
}

void ebb__mover_give_bytes(struct cuda_mover *mover, uint64_t bytes)
{
    mover->spare.is_starved = false;
    if (mover->config.backing->ops->trim) {
        mover->spare.bytes += bytes;
        mover->spare.since_ns = ebb__now_ns();
    } else {
        release(mover, bytes);
    }
}

uint64_t ebb__mover_trim(struct cuda_mover *mover, bool now)
{
    if (!mover->spare.bytes)
        return UINT64_MAX;
    uint64_t age_ns = ebb__now_ns() - mover->spare.since_ns;
    if (!now && age_ns < SPARE_NS)
        return SPARE_NS - age_ns;
    mover->config.backing->ops->trim(mover->config.backing);
    release(mover, mover->spare.bytes);
    mover->spare.bytes = 0;
    return UINT64_MAX;
}
