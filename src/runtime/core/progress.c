/* The program's own clock, which excludes the time that the program waits for the runtime. */
#include "runtime/core/core.h"

#include "base/tuning.h"

uint64_t ebb__progress_ns(const struct core *core)
{
    return (core->held ? core->held_since_ns : ebb__now_ns()) - core->stalled_ns;
}

void ebb__progress_stalled(struct core *core, uint64_t ns)
{
    core->stalled_ns += ns;
    atomic_fetch_add(&core->counters->stall_ns, ns);
    if (ns >= ebb__tuning()->stall_event_ns)
        ebb__core_mark(core, EBB_MARK_WAIT, ns);
}

void ebb__progress_hold(struct core *core, bool hold)
{
    if (hold) {
        if (core->held++ == 0)
            core->held_since_ns = ebb__now_ns();
        return;
    }
    if (--core->held)
        return;
    ebb__progress_stalled(core, ebb__now_ns() - core->held_since_ns);
    core->policy->resumed(core->policy_context);
}
