#include "api/internal.h"

#include <stdatomic.h>

void ebb_statistics(struct ebb_context *context, struct ebb_statistics *statistics)
{
    const struct ebb_counters *counters = &context->ring->counters;
    pthread_mutex_lock(&context->lock);
    *statistics = context->counts;
    pthread_mutex_unlock(&context->lock);
    statistics->budget_bytes = context->budget_bytes == UINT64_MAX ? 0 : context->budget_bytes;
    statistics->resident_bytes = atomic_load(&context->ledger->held_bytes);
    statistics->peak_resident_bytes = atomic_load(&context->ledger->peak_bytes);
    statistics->live_bytes = atomic_load(&counters->live_bytes);
    statistics->peak_live_bytes = atomic_load(&counters->peak_live_bytes);
    statistics->moved_out_bytes = atomic_load(&counters->moved_out_bytes);
    statistics->moved_in_bytes = atomic_load(&counters->moved_in_bytes);
    statistics->over_budget_bytes = atomic_load(&context->ledger->over_bytes);
    statistics->store_errno = (int)atomic_load(&counters->store_error);
    statistics->stall_ns = atomic_load(&counters->stall_ns);
}
