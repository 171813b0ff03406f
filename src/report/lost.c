#include "report/lost.h"

#include <string.h>

const char *ebb__lost_cause_name(enum ebb_lost_cause cause)
{
    static const char *const names[] = {"observed", "evicted wrongly", "late", "switched"};
    return names[cause];
}

/* What is in force while events are read. */
struct state {
    bool is_observed, has_plan, had_plan;
};

static enum ebb_lost_cause cause_in(const struct state *state)
{
    if (state->is_observed)
        return EBB_LOST_OBSERVED;
    if (state->has_plan)
        return EBB_LOST_LATE;
    return state->had_plan ? EBB_LOST_SWITCHED : EBB_LOST_EVICTED;
}

static void take_mark(const struct ebb_event *event, struct state *state,
                      struct ebb_lost_iteration *iteration, bool *has_waits)
{
    switch (event->mark) {
    case EBB_MARK_TRACE_ON:
    case EBB_MARK_TRACE_OFF:
        state->is_observed = event->mark == EBB_MARK_TRACE_ON;
        break;
    case EBB_MARK_PLAN_ON:
        state->has_plan = state->had_plan = true;
        break;
    case EBB_MARK_PLAN_OFF:
        state->has_plan = false;
        break;
    case EBB_MARK_WAIT:
        *has_waits = true;
        if (iteration)
            iteration->cause_ns[cause_in(state)] += event->size_bytes;
        break;
    default:
        break;
    }
}

void ebb__lost_find(struct ebb_event_span trace, const size_t *starts, size_t start_count,
                    struct ebb_lost *lost)
{
    struct state state = {0};
    size_t begun = 0;
    memset(lost, 0, sizeof *lost);
    for (size_t i = 0; i < trace.count; i++) {
        while (begun < start_count && starts[begun] <= i)
            begun++;
        if (trace.events[i].kind != EBB_EVENT_MARK)
            continue;
        struct ebb_lost_iteration *iteration =
            begun && begun <= EBB_LOST_ITERATIONS ? &lost->iterations[begun - 1] : NULL;
        take_mark(&trace.events[i], &state, iteration, &lost->has_waits);
    }
    for (size_t k = 0; k + 1 < start_count && k < EBB_LOST_ITERATIONS; k++) {
        lost->iterations[k].ns =
            trace.events[starts[k + 1]].time_ns - trace.events[starts[k]].time_ns;
        lost->count++;
    }
}
