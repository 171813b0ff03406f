/* Feedback: waits, faults and lack of memory correct the times of evictions and prefetches.
 *
 * The script has the planned times, but disk and machine differ from those that it assumes. A late
 * prefetch starts earlier in the next iteration; a timely one moves back towards the planned time.
 * Only positions and delays of the replay change, never the script. */
#include "runtime/replay/matcher.h"

#include "base/tuning.h"

/* How much earlier than planned an absence's prefetch would start at `position`. */
static uint64_t earlier_by(const struct prepared_script *current, uint32_t absence,
                           uint32_t position, uint64_t delay_ns)
{
    const struct ebb_script_absence *planned = &ebb__script_absences(current->script)[absence];
    uint64_t turn_ns = current->script->iteration_ns;
    const struct ebb_script_event *events = ebb__script_events(current->script);
    uint64_t start_ns = events[planned->in_clock].time_ns + planned->in_delay_ns;
    uint64_t other_ns = events[position].time_ns + delay_ns;
    return turn_ns ? (start_ns % turn_ns + turn_ns - other_ns % turn_ns) % turn_ns : 0;
}

/* How much earlier than planned it currently starts. */
static uint64_t earlier_now(const struct prepared_script *current, uint32_t absence)
{
    return earlier_by(current, absence, current->in_clock[absence], current->in_delay_ns[absence]);
}

/* Starts an absence's prefetch `earlier_ns` before its planned time, but not before the block's
 * eviction. */
static void move_earlier(struct prepared_script *current, uint32_t absence, uint64_t earlier_ns)
{
    const struct ebb_script_absence *planned = &ebb__script_absences(current->script)[absence];
    uint32_t clocks = current->script->clock_count, to = planned->in_clock;
    bool lap_later = to == planned->out_clock && planned->in_delay_ns < planned->out_delay_ns;
    for (uint32_t steps = 1; steps < clocks && (to != planned->out_clock || lap_later) &&
                             earlier_by(current, absence, to, 0) < earlier_ns;
         steps++)
        to = (to + clocks - 1) % clocks;
    uint32_t *place = &current->in_first[current->in_clock[absence]];
    while (*place != absence)
        place = &current->in_next[*place];
    *place = current->in_next[absence];
    current->in_next[absence] = current->in_first[to];
    current->in_first[to] = absence;
    current->in_clock[absence] = to;
    uint64_t reach_ns = earlier_by(current, absence, to, 0);
    current->in_delay_ns[absence] = reach_ns > earlier_ns ? reach_ns - earlier_ns : 0;
    if (to == planned->out_clock && !lap_later &&
        current->in_delay_ns[absence] < current->out_delay_ns[absence])
        current->in_delay_ns[absence] = current->out_delay_ns[absence];
}

void ebb__feedback_learn(struct prepared_script *current, uint32_t absence, uint64_t late_ns)
{
    uint64_t earlier_ns = earlier_now(current, absence);
    if (late_ns)
        move_earlier(current, absence, earlier_ns + late_ns + late_ns / 2);
    else if (earlier_ns)
        move_earlier(current, absence,
                     earlier_ns - (earlier_ns + ebb__tuning()->relax_divisor - 1) /
                                      ebb__tuning()->relax_divisor);
}

/* The absence of `block` that ends next within the present stretch. out: the one that has begun in
 * it. EBB_SCRIPT_NONE: none. Faults are rare, so it searches all absences. */
static uint32_t absence_here(const struct replay *replay, const struct block *block, bool out)
{
    const struct prepared_script *current = replay->current;
    if (!current || !current->matcher->is_ordered || block->script_block == EBB_SCRIPT_NONE)
        return EBB_SCRIPT_NONE;
    const struct ebb_script_absence *absences = ebb__script_absences(current->script);
    uint32_t here = ebb__clock_now(replay);
    uint64_t since_ns = ebb__timers_since_ns(replay);
    for (uint32_t i = 0; i < current->script->absence_count; i++) {
        if (absences[i].block != block->script_block)
            continue;
        bool ending = absences[i].in_within && current->in_clock[i] != EBB_SCRIPT_NONE &&
                      ebb__script_is_between(here, current->in_clock[i], absences[i].due_clock);
        bool begun = current->out_delay_ns[i] > 0 && here == absences[i].out_clock;
        bool lap_later = absences[i].due_delay_ns < absences[i].out_delay_ns;
        if (begun && ending && lap_later)
            begun = block->use.planned_evict_at > replay->position_event;
        else if (begun && ending && here == current->in_clock[i]) /* takes the nearer of its
                                                                     beginning and end */
            begun = 2 * since_ns < current->out_delay_ns[i] + current->in_delay_ns[i];
        if (out ? begun : ending && !begun)
            return i;
    }
    return EBB_SCRIPT_NONE;
}

bool ebb__feedback_is_due(const struct replay *replay, const struct block *block)
{
    return absence_here(replay, block, false) != EBB_SCRIPT_NONE;
}

void ebb__feedback_missed(struct replay *replay, const struct block *block)
{
    if (block->state != BLOCK_WRITING_BACK && block->state != BLOCK_EVICTED &&
        block->transfer.queue != QUEUE_OUT)
        return;
    uint32_t absence = absence_here(replay, block, true);
    if (absence == EBB_SCRIPT_NONE)
        return;
    uint64_t since_ns = ebb__timers_since_ns(replay);
    const struct ebb_script_absence *planned =
        &ebb__script_absences(replay->current->script)[absence];
    uint64_t latest_ns =
        planned->out_delay_ns + ebb__timers_most_shift_ns(replay->current, planned->out_clock);
    if (since_ns > replay->current->out_delay_ns[absence])
        replay->current->out_delay_ns[absence] = since_ns < latest_ns ? since_ns : latest_ns;
}

void ebb__feedback_late(struct replay *replay, const struct block *block, uint64_t late_ns)
{
    struct prepared_script *current = replay->current;
    uint32_t absence = absence_here(replay, block, false);
    if (absence == EBB_SCRIPT_NONE)
        return;
    uint64_t planned_ns = ebb__script_absences(current->script)[absence].stall_ns;
    if (late_ns <= planned_ns || block->transfer.lacked_room)
        return;
    uint64_t earlier_ns = late_ns - planned_ns + earlier_now(current, absence);
    uint32_t due = ebb__script_absences(current->script)[absence].due_clock;
    uint64_t most_ns = ebb__timers_most_shift_ns(current, due);
    move_earlier(current, absence, earlier_ns < most_ns ? earlier_ns : most_ns);
}

void ebb__feedback_early(struct replay *replay, struct block *block)
{
    struct prepared_script *current = replay->current;
    if (!current || block->script_block == EBB_SCRIPT_NONE)
        return;
    const struct ebb_script_absence *absences = ebb__script_absences(current->script);
    uint32_t here = ebb__clock_now(replay);
    for (uint32_t i = 0; i < current->script->absence_count; i++) {
        if (absences[i].block != block->script_block || absences[i].due_clock == EBB_SCRIPT_NONE ||
            !ebb__script_is_between(here, current->in_clock[i], absences[i].due_clock))
            continue;
        move_earlier(current, i, earlier_now(current, i) / 2);
        block->transfer.gave_way = true;
    }
}
