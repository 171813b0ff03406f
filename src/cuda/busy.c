/* How long each lane is busy, for the parent, which compares that with the bytes.
 *
 * A lane is busy from the call that queues a transfer until the mover sees that it is over. With
 * managed memory that call is a part of it, since it lasts as long. Elsewhere it comes before: host
 * memory is made only once. */
#include "cuda/mover_internal.h"

#include "base/clock.h"

/* Adds the time since the last call to the lanes that have been busy since. */
static void add_up(struct cuda_mover *mover)
{
    struct cuda_busy *busy = &mover->lanes.busy;
    struct ebb_counters *counters = mover->counters;
    uint64_t now_ns = ebb__now_ns(), ns = now_ns - busy->since_ns;
    busy->since_ns = now_ns;
    if (busy->in)
        atomic_fetch_add_explicit(&counters->in_busy_ns, ns, memory_order_relaxed);
    if (busy->out)
        atomic_fetch_add_explicit(&counters->out_busy_ns, ns, memory_order_relaxed);
    if (busy->in && busy->out)
        atomic_fetch_add_explicit(&counters->both_busy_ns, ns, memory_order_relaxed);
}

void ebb__mover_busy(struct cuda_mover *mover, bool *lane)
{
    if (*lane)
        return;
    add_up(mover);
    *lane = true;
}

void ebb__mover_look_at_lanes(struct cuda_mover *mover)
{
    struct cuda_busy *busy = &mover->lanes.busy;
    if (!busy->in && !busy->out)
        return;
    add_up(mover);
    if (busy->out && !mover->moving.flights.count)
        busy->out = false;
    if (busy->in && mover->driver->cuStreamQuery(mover->lanes.in) != CUDA_ERROR_NOT_READY)
        busy->in = false;
}
