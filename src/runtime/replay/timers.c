/* Actions at a set time after a clock event.
 *
 * Time here is the program's progress. It stops while the program waits for the runtime. So a stall
 * delays all later actions, and no block is evicted before a use that was delayed. While the
 * program is held at a clock event, or by a fault on an absent block, no action is performed.
 *
 * The script's times are of observed iterations, which are slow, perhaps on a busy machine. Delays
 * are scaled by the real duration of the stretch behind their clock event, as seen in earlier
 * iterations. In a long stretch, faults also show how far the program is.
 *
 * The timers are a heap, earliest first. The workers of the out lane check it whenever they look
 * for work. */
#include "runtime/replay/matcher.h"

#include "base/tuning.h"

#define PACE_LEAST 0.01
#define PACE_RANGE 4.0  /* a stretch differs from the pace in general by no more */
#define LONGEST_NS 1e15 /* a limit, since scripts are not trusted */

static uint64_t scaled(uint64_t ns, double factor)
{
    double product = (double)ns * factor;
    return (uint64_t)(product < LONGEST_NS ? product : LONGEST_NS);
}

uint64_t ebb__timers_stretch_ns(const struct prepared_script *current, uint32_t position)
{
    const struct ebb_script *script = current->script;
    const struct ebb_script_event *events = ebb__script_events(script);
    if (position + 1 < script->clock_count)
        return events[position + 1].time_ns - events[position].time_ns;
    return script->iteration_ns + events[0].time_ns - events[position].time_ns;
}

void ebb__timers_pace(struct replay *replay, struct prepared_script *current, uint32_t position)
{
    uint32_t clocks = current->script->clock_count;
    uint32_t before = (position + clocks - 1) % clocks;
    uint64_t now_ns = ebb__progress_ns(replay->core);
    /* Threads that wait at the same time may together wait longer than the elapsed time. */
    uint64_t took_ns = now_ns > replay->position_ns ? now_ns - replay->position_ns : 0;
    replay->position_ns = now_ns;
    replay->position_touches = replay->table->uses.touches;
    replay->position_event = replay->table->uses.event_number;
    /* In the new stretch, time needs no correction. Pending timers keep their moment. */
    for (uint32_t i = 0; i < current->timer_count; i++)
        current->timers[i].at_ns -= (uint64_t)replay->lead_ns;
    replay->lead_ns = 0;
    if (!current->matcher->is_ordered)
        return; /* the next event differs each time */
    uint64_t *known = &current->pace.stretch_ns[before];
    *known = *known ? (*known + took_ns) / 2 : took_ns;
    current->pace.took_ns += took_ns;
    current->pace.planned_ns += ebb__timers_stretch_ns(current, before);
}

/* Duration of the stretch behind `position`, as a multiple of the planned one. */
static double pace(const struct prepared_script *current, uint32_t position)
{
    double general = 1, planned = (double)ebb__timers_stretch_ns(current, position);
    if (current->pace.took_ns && current->pace.planned_ns)
        general = (double)current->pace.took_ns / (double)current->pace.planned_ns;
    general = general < PACE_LEAST ? PACE_LEAST : general;
    general = general > 1 / PACE_LEAST ? 1 / PACE_LEAST : general;
    if (!current->pace.stretch_ns[position] || planned <= 0)
        return general;
    double own = (double)current->pace.stretch_ns[position] / planned;
    if (own > general * PACE_RANGE)
        return general * PACE_RANGE;
    return own < general / PACE_RANGE ? general / PACE_RANGE : own;
}

/* The clock of the timers: progress, corrected by the uses seen since the last position. */
static uint64_t timer_now(const struct replay *replay)
{
    return ebb__progress_ns(replay->core) + (uint64_t)replay->lead_ns;
}

uint64_t ebb__timers_since_ns(const struct replay *replay)
{
    uint64_t now_ns = timer_now(replay);
    uint64_t since_ns = now_ns > replay->position_ns ? now_ns - replay->position_ns : 0;
    return scaled(since_ns, 1 / pace(replay->current, ebb__clock_now(replay)));
}

uint64_t ebb__timers_most_shift_ns(const struct prepared_script *current, uint32_t position)
{
    return ebb__timers_stretch_ns(current, position) / ebb__tuning()->within_drift_divisor;
}

static void exchange(struct timer *left, struct timer *right)
{
    struct timer kept = *left;
    *left = *right;
    *right = kept;
}

bool ebb__timers_set(struct replay *replay, struct prepared_script *current, uint32_t position,
                     uint32_t absence, bool in)
{
    uint64_t delay_ns = in ? current->in_delay_ns[absence] : current->out_delay_ns[absence];
    struct timer *heap = current->timers;
    if (delay_ns == 0 || current->timer_count == 2 * current->script->absence_count)
        return false;
    uint32_t at = current->timer_count++;
    heap[at] = (struct timer){replay->position_ns + scaled(delay_ns, pace(current, position)),
                              absence, in};
    for (; at > 0 && heap[at].at_ns < heap[(at - 1) / 2].at_ns; at = (at - 1) / 2)
        exchange(&heap[at], &heap[(at - 1) / 2]);
    if (at == 0)
        pthread_cond_signal(&replay->transfer->out.work);
    return true;
}

void ebb__timers_set_since(struct replay *replay, uint64_t ns)
{
    struct prepared_script *current = replay->current;
    uint32_t position = ebb__clock_now(replay);
    uint64_t before_ns = ebb__timers_since_ns(replay);
    uint64_t there_ns = replay->position_ns + scaled(ns, pace(current, position));
    replay->lead_ns = (int64_t)(there_ns - ebb__progress_ns(replay->core));
    /* These evictions had no effect: their blocks had not been used or fetched yet. Sets them
     * again. */
    for (uint32_t i = current->out_first[position]; i != EBB_SCRIPT_NONE; i = current->out_next[i])
        if (current->out_delay_ns[i] > ns && current->out_delay_ns[i] <= before_ns)
            (void)ebb__timers_set(replay, current, position, i, false);
    pthread_cond_signal(&replay->transfer->out.work);
}

static struct timer take_first(struct prepared_script *current)
{
    struct timer *heap = current->timers, first = heap[0];
    uint32_t count = --current->timer_count;
    heap[0] = heap[count];
    for (uint32_t at = 0;;) {
        uint32_t least = at;
        for (uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++)
            if (heap[child].at_ns < heap[least].at_ns)
                least = child;
        if (least == at)
            return first;
        exchange(&heap[at], &heap[least]);
        at = least;
    }
}

uint64_t ebb__timers_fire(struct replay *replay)
{
    struct prepared_script *current = replay->current;
    if (!current || replay->core->held || replay->transfer->phase == LANES_FROZEN)
        return 0;
    while (current->timer_count) {
        if (current->timers[0].at_ns > timer_now(replay))
            return current->timers[0].at_ns - (uint64_t)replay->lead_ns + replay->core->stalled_ns;
        struct timer timer = take_first(current);
        ebb__clock_fire(replay, timer.absence, timer.in);
    }
    return 0;
}
