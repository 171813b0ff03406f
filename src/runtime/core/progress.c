/* The program's own clock, which excludes the time that the program waits for the runtime. What
 * observation costs is told by marks: the parent subtracts it from observed iterations. */
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

void ebb__progress_observed(struct core *core, uint64_t ns, unsigned faults)
{
    uint64_t cost_ns = ns + faults * (uint64_t)ebb__tuning()->observed_fault_ns;
    core->observed_ns += cost_ns;
    atomic_fetch_add(&core->counters->observed_ns, cost_ns);
    atomic_fetch_add(&core->counters->observed_faults, faults);
}

void ebb__progress_tell_observed(struct core *core)
{
    uint64_t ns = core->observed_ns;
    if (ns == 0 || ns < ebb__tuning()->stall_event_ns)
        return;
    core->observed_ns = 0;
    ebb__core_mark(core, EBB_MARK_OBSERVED, ns);
}
