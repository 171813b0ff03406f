/* What the events of a process have shown so far, and the return to observing its accesses. */
#include "base/clock.h"
#include "base/tuning.h"
#include "parent/internal.h"

struct seen ebb__parent_seen(const struct process *process)
{
    const struct ebb_watch_iteration *iterations;
    size_t count = ebb__watch_kept(process->stream.watch, &iterations);
    size_t newest = ebb__watch_pattern(process->stream.watch);
    struct seen seen = {0};
    bool in_a_row = true;
    for (size_t i = count; i-- > 0 && iterations[i].pattern + 1 == newest;) {
        seen.traced += iterations[i].traced;
        seen.in_a_row += in_a_row;
        if (iterations[i].alloc_bytes > seen.widest_bytes)
            seen.widest_bytes = iterations[i].alloc_bytes;
        in_a_row = in_a_row && i > 0 && iterations[i - 1].last_event == iterations[i].first_event;
    }
    return seen;
}

void ebb__parent_settle(struct process *process)
{
    process->learning.settled_pattern = ebb__watch_patterns(process->stream.watch);
    process->learning.settled_period = ebb__watch_period_clock_events(process->stream.watch);
}

/* A lap of the replay, or the replay, has ended: was it an iteration of a profile? */
static void end_followed(struct process *process, bool by_lap)
{
    struct stream *stream = &process->stream;
    struct recall *recall = &process->recall;
    recall->strayed |= !by_lap;
    bool is_whole = recall->whole_allocs ? stream->followed_allocs >= recall->whole_allocs : by_lap;
    if (is_whole) {
        recall->followed++;
        recall->disappointments += stream->followed_faults > recall->most_faults;
    } else if (!by_lap && (recall->broken == 0 ||
                           stream->allocs - recall->broken_at >= recall->whole_allocs)) {
        recall->broken++;
        recall->broken_at = stream->allocs;
    }
    stream->followed_allocs = stream->followed_faults = 0;
}

void ebb__parent_note_event(struct process *process, const struct ebb_event *event)
{
    struct ebb_steps *steps = &process->stream.steps;
    process->stream.now_ns = event->time_ns;
    if (ebb__steps_push(steps, event, process->stream.replaying) != EBB_OK)
        ebb__steps_fini(steps); /* out of memory: it counts anew */
    if (event->kind == EBB_EVENT_MARK && event->mark == EBB_MARK_PLAN_ON) {
        process->stream.replaying = true;
        process->stream.followed_allocs = process->stream.followed_faults = 0;
    } else if (event->kind == EBB_EVENT_MARK && event->mark == EBB_MARK_LAP) {
        end_followed(process, true);
    } else if (event->kind == EBB_EVENT_MARK && event->mark == EBB_MARK_PLAN_OFF) {
        process->stream.replaying = false;
        end_followed(process, false);
        process->stream.allocs_lost = process->sent.has_access_clock ? UINT32_MAX : 0;
    } else if (event->kind == EBB_EVENT_ACCESS && (event->flags & EBB_EVENT_DEMAND)) {
        /* A slow store is no sign of a wrong plan. */
        process->stream.followed_faults += !(event->flags & EBB_EVENT_LATE);
    } else if (event->kind == EBB_EVENT_ALLOC) {
        process->stream.allocs++;
        process->stream.followed_allocs += process->stream.replaying;
        process->stream.allocs_lost =
            process->stream.replaying ? 0 : process->stream.allocs_lost + 1;
    }
}

void ebb__parent_trace(struct process *process)
{
    ebb__parent_tell(process, EBB_MESSAGE_TRACE,
                     process->learning.exactly ? EBB_OBSERVE_EXACTLY : EBB_OBSERVE_ALWAYS);
    ebb__phase_set(&process->phase, PHASE_RELEARNING);
    process->learning.traced_from = ebb__watch_iterations(process->stream.watch);
    process->learning.attempted_at = SIZE_MAX;
    process->stream.allocs_lost = 0;
    process->learning.gaps.observed = false; /* not they alone */
    process->learning.next_attempt_ns = ebb__now_ns() + ebb__tuning()->retry_ns;
}
