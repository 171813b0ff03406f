#include "model/lost.h"

#include <string.h>

const char *ebb__lost_cause_name(enum ebb_lost_cause cause)
{
    static const char *const names[] = {"observed", "evicted wrongly", "late", "switched"};
    return names[cause];
}

static enum ebb_lost_cause cause_in(const struct ebb_lost_sums *sums)
{
    if (sums->is_observed)
        return EBB_LOST_OBSERVED;
    if (sums->has_plan)
        return EBB_LOST_LATE;
    return sums->had_plan ? EBB_LOST_SWITCHED : EBB_LOST_EVICTED;
}

void ebb__lost_take(struct ebb_lost_sums *sums, const struct ebb_event *event)
{
    if (event->kind != EBB_EVENT_MARK)
        return;
    switch (event->mark) {
    case EBB_MARK_TRACE_ON:
    case EBB_MARK_TRACE_OFF:
        sums->is_observed = event->mark == EBB_MARK_TRACE_ON;
        break;
    case EBB_MARK_PLAN_ON:
        sums->has_plan = sums->had_plan = true;
        break;
    case EBB_MARK_PLAN_OFF:
        sums->has_plan = false;
        break;
    case EBB_MARK_WAIT:
        sums->cause_ns[cause_in(sums)] += event->size_bytes;
        break;
    case EBB_MARK_OBSERVED:
        sums->cause_ns[EBB_LOST_OBSERVED] += event->size_bytes;
        break;
    default:
        break;
    }
}

void ebb__lost_find(struct ebb_event_span trace, const size_t *starts, size_t start_count,
                    struct ebb_lost *lost)
{
    struct ebb_lost_sums sums = {0}, before = {0};
    memset(lost, 0, sizeof *lost);
    size_t begun = 0;
    for (size_t i = 0; i < trace.count; i++) {
        for (; begun < start_count && starts[begun] <= i; begun++) {
            struct ebb_lost_iteration *ended =
                begun && begun <= EBB_LOST_ITERATIONS ? &lost->iterations[begun - 1] : NULL;
            for (int c = 0; ended && c < EBB_LOST_CAUSES; c++)
                ended->cause_ns[c] = sums.cause_ns[c] - before.cause_ns[c];
            before = sums;
        }
        ebb__lost_take(&sums, &trace.events[i]);
        lost->has_waits |=
            trace.events[i].kind == EBB_EVENT_MARK && trace.events[i].mark == EBB_MARK_WAIT;
    }
    for (size_t k = 0; k + 1 < start_count && k < EBB_LOST_ITERATIONS; k++) {
        lost->iterations[k].ns =
            trace.events[starts[k + 1]].time_ns - trace.events[starts[k]].time_ns;
        lost->count++;
    }
}
