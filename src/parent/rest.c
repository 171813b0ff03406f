/* Observation rests while nothing comes of it.
 *
 * Observing accesses costs a tenth of the time of small steps. It is worth that if a plan follows.
 * If each step differs from the one before, none does. As a rule, what recency gains by it is less
 * than what it costs, but not always. So both are measured: a long stretch goes one way, a short
 * one the other way. What loses less of the time goes on. A new repetition that is long enough ends
 * the rest, since it may be planned once it is observed.
 *
 * A stretch is measured in swings of the live bytes: a step has one, or one for each micro-batch.
 * It begins anew when the peak grows: a program that still makes its model is not judged. */
#include "parent/rest.h"

#include "base/tuning.h"
#include "parent/internal.h"

enum {
    LOOK_NS = 50000000,  /* from one count of the swings to the next */
    SWING_DIVISOR = 8,   /* of the peak: what swings less tells no step */
    GROWTH_DIVISOR = 8,  /* so much more is another peak */
    STEP_DIVISOR = 4,    /* a repetition with fewer allocations of a swing is a loop in it */
    FOUND_FACTOR = 4,    /* more patience while one that is no loop goes on */
    MOST_DOUBLINGS = 4,  /* of the long stretch: it is 16 times as long at most */
    DEARER_DIVISOR = 32, /* resting may lose so much more of the time: that is noise */
};

#define NEAR_SHARE 0.5 /* of the budget: a first step is observed from there on */

static uint64_t lost_ns(const struct process *process)
{
    uint64_t sum = 0;
    for (int cause = 0; cause < EBB_LOST_CAUSES; cause++)
        sum += process->stream.steps.lost.cause_ns[cause];
    return sum;
}

/* The program may rest only if it could have been planned by now, and if its allocations tell its
 * steps. */
static bool may_rest(const struct ebb_parent *parent, const struct process *process)
{
    bool by_allocs = ebb__watch_is_by_allocs(process->stream.watch);
    bool may_plan = process->memory->lanes.state == LANES_KNOWN;
    return by_allocs && may_plan && !parent->options.record && !process->memory->is_device;
}

static void begin(struct process *process)
{
    struct rest *rest = &process->learning.rest;
    rest->from_ns = process->stream.now_ns;
    rest->from_lost_ns = lost_ns(process);
    rest->from_allocs = process->stream.allocs;
    rest->peak_bytes = process->stream.steps.peak_bytes;
    rest->is_judged = false;
}

static void observe_again(struct process *process)
{
    ebb__parent_trace(process);
    begin(process);
}

static void rest_now(struct process *process)
{
    ebb__parent_tell(process, EBB_MESSAGE_TRACE, EBB_OBSERVE_NEVER);
    ebb__phase_set(&process->phase, PHASE_RESTING);
    process->learning.rest.patterns = ebb__watch_patterns(process->stream.watch);
    begin(process);
}

/* The part of the time that the program has lost in this stretch. */
static double lost_share(const struct process *process)
{
    const struct rest *rest = &process->learning.rest;
    uint64_t ns = process->stream.now_ns - rest->from_ns;
    return ns ? (double)(lost_ns(process) - rest->from_lost_ns) / (double)ns : 0;
}

/* Is the newest repetition no loop in a step? There were `swings` of them in this stretch. */
static bool is_long_enough(const struct process *process, uint64_t swings)
{
    uint64_t allocs = process->stream.allocs - process->learning.rest.from_allocs;
    return ebb__watch_period_allocs(process->stream.watch) * STEP_DIVISOR * (swings + 1) >= allocs;
}

static uint64_t short_stretch(const struct process *process, uint64_t swings)
{
    uint64_t least = (uint64_t)ebb__tuning()->rest_after_swings;
    bool is_found = ebb__watch_in_period(process->stream.watch) && is_long_enough(process, swings);
    return is_found ? FOUND_FACTOR * least : least;
}

static uint64_t long_stretch(const struct process *process)
{
    unsigned doublings = process->learning.rest.fruitless;
    doublings = doublings < MOST_DOUBLINGS ? doublings : MOST_DOUBLINGS;
    return (uint64_t)ebb__tuning()->rest_swings << doublings;
}

static void judge_observed(struct process *process, uint64_t swings)
{
    struct rest *rest = &process->learning.rest;
    if (swings < (rest->is_dearer ? long_stretch(process) : short_stretch(process, swings)))
        return;
    rest->observed_share = lost_share(process);
    rest->fruitless++;
    rest_now(process);
}

static void judge_resting(struct process *process, uint64_t swings)
{
    struct rest *rest = &process->learning.rest;
    if (!rest->is_judged && swings >= (uint64_t)ebb__tuning()->rest_after_swings) {
        rest->is_judged = true;
        rest->is_dearer = lost_share(process) > rest->observed_share + 1.0 / DEARER_DIVISOR;
        if (rest->is_dearer)
            observe_again(process);
    } else if (swings >= long_stretch(process)) {
        observe_again(process);
    }
}

/* Has a repetition been found that was not there when the rest began? Each rest that ended in vain
 * makes the next ones longer. */
static bool has_found(const struct process *process, uint64_t swings)
{
    const struct rest *rest = &process->learning.rest;
    return ebb__watch_found(process->stream.watch) &&
           ebb__watch_patterns(process->stream.watch) != rest->patterns &&
           is_long_enough(process, swings) && swings + 1 >= rest->fruitless;
}

/* Swings in this stretch. Those that are told apart are two thirds of the largest at least: an
 * operation may take and give back much, too. 0: none tells a step. */
static uint64_t count_swings(const struct process *process)
{
    const struct ebb_steps *steps = &process->stream.steps;
    uint64_t from_ns = process->learning.rest.from_ns;
    uint64_t most = ebb__steps_swing(steps, from_ns, process->stream.now_ns);
    return most * SWING_DIVISOR >= steps->peak_bytes
               ? ebb__steps_swings(steps, most - most / 3, from_ns)
               : 0;
}

void ebb__rest_begin(const struct ebb_parent *parent, struct process *process)
{
    if (process->phase != PHASE_OBSERVING || parent->options.record || process->memory->is_device ||
        ebb__budget_is_near(process, NEAR_SHARE))
        return;
    process->learning.rest.is_far = true;
    ebb__phase_set(&process->phase, PHASE_RESTING);
}

void ebb__rest_consider(const struct ebb_parent *parent, struct process *process)
{
    struct rest *rest = &process->learning.rest;
    const struct ebb_steps *steps = &process->stream.steps;
    if (rest->is_far) {
        rest->is_far = !ebb__budget_is_near(process, NEAR_SHARE);
        if (!rest->is_far)
            ebb__parent_trace(process);
        return;
    }
    bool looks = process->phase == PHASE_RESTING || may_rest(parent, process);
    if (!looks || process->stream.now_ns < rest->next_look_ns)
        return;
    rest->next_look_ns = process->stream.now_ns + LOOK_NS;
    if (!rest->from_ns || steps->peak_bytes > rest->peak_bytes + rest->peak_bytes / GROWTH_DIVISOR)
        begin(process);
    if (process->stream.now_ns - rest->from_ns < (uint64_t)ebb__tuning()->rest_least_ns)
        return;
    uint64_t swings = count_swings(process);
    if (process->phase != PHASE_RESTING)
        judge_observed(process, swings);
    else if (has_found(process, swings))
        observe_again(process);
    else
        judge_resting(process, swings);
}
