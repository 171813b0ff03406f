/* The program's own clock: the time that it has not waited for the runtime. */
#include "runtime/internal.h"

#include "base/tuning.h"

uint64_t ebb__progress_ns(const struct ebb_runtime *runtime)
{
    return (runtime->core.held ? runtime->core.held_since_ns : ebb__now_ns()) -
           runtime->core.stalled_ns;
}

void ebb__progress_stalled(struct ebb_runtime *runtime, uint64_t ns)
{
    runtime->core.stalled_ns += ns;
    atomic_fetch_add(&runtime->core.counters->stall_ns, ns);
    if (ns >= ebb__tuning()->stall_event_ns)
        ebb__core_mark(runtime, EBB_MARK_WAIT, ns);
}

void ebb__progress_hold(struct ebb_runtime *runtime, bool hold)
{
    if (hold) {
        if (runtime->core.held++ == 0)
            runtime->core.held_since_ns = ebb__now_ns();
        return;
    }
    if (--runtime->core.held)
        return;
    ebb__progress_stalled(runtime, ebb__now_ns() - runtime->core.held_since_ns);
    runtime->core.policy->resumed(runtime);
}
