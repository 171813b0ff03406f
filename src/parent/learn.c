/* Learning and planning for one process. When an iteration is found and its accesses are known, it
 * plans the iteration, checks the plan and sends it. What comes between iterations is planned, too
 * (gaps.c). If the program deviates for long, its accesses are observed again. */
#include "base/clock.h"
#include "base/tuning.h"
#include "parent/internal.h"
#include "plan/plan.h"

#include <stdlib.h>

/* Have the two newest repetitions about as many events? Sizes alone repeat within an iteration.
 * Announced uses are there in each, so they tell. */
static bool has_even_events(const struct process *process)
{
    const struct ebb_watch_iteration *iterations;
    size_t count = ebb__watch_kept(process->stream.watch, &iterations);
    if (count < 2 || !iterations[count - 1].traced || !iterations[count - 2].traced)
        return true;
    uint64_t newest = iterations[count - 1].last_event - iterations[count - 1].first_event;
    uint64_t before = iterations[count - 2].last_event - iterations[count - 2].first_event;
    uint64_t off = newest > before ? newest - before : before - newest;
    return off * 16 <= newest;
}

enum worth { WORTH_NOTHING, WORTH_LITTLE, WORTH_A_PLAN };

/* A plan for an iteration of training, nothing for a loop inside of one (the initialisation of each
 * weight, the layers of a network). A whole iteration uses most of what lasts, if that is much,
 * and touches most live bytes. A loop over frozen layers touches much that it allocates itself,
 * but it ends with the last layer. If a loop repeats long enough without a break, it counts as
 * the iteration, of little worth, whatever it touches. Long enough is a part of the process's life:
 * an optimizer may update one weight after the other for seconds. Not so if the program announces
 * its uses: all are known then, and a network may have any number of layers. A loop that is shorter
 * than any transfer is none, although what precedes its newest turn may touch everything. */
static enum worth worth_of(const struct process *process, const struct ebb_model *model)
{
    uint64_t touched = 0, all = 0, lasting = 0, used = 0;
    for (uint32_t i = 0; i < model->block_count; i++) {
        const struct ebb_model_block *block = &model->blocks[i];
        bool later_part = block->part_count && block->part_first;
        uint64_t whole = later_part ? 0 : ebb__model_whole_bytes(block);
        uint64_t part = block->access_count ? block->size_bytes : 0;
        all += whole;
        touched += part;
        lasting += block->alloc_tick == EBB_TICK_NONE ? whole : 0;
        used += block->alloc_tick == EBB_TICK_NONE ? part : 0;
    }
    size_t in_a_row = ebb__parent_seen(process).in_a_row;
    size_t allocs = ebb__watch_period_allocs(process->stream.watch);
    size_t seen = in_a_row ? in_a_row : 1; /* the newest may have no iteration on record yet */
    bool evident = allocs == 0 || seen * allocs >= ebb__tuning()->evident_allocations;
    bool most = touched * 2 >= all && evident;
    bool is_announced = process->memory->is_device && ebb__model_announced(model);
    if (ebb__model_iteration_ns(model) < ebb__tuning()->shortest_iteration_ns)
        return WORTH_NOTHING;
    if (is_announced && !has_even_events(process))
        return WORTH_NOTHING;
    if (most && (used * 2 >= lasting || lasting * 4 <= model->peak_bytes))
        return WORTH_A_PLAN;
    if (is_announced)
        return WORTH_NOTHING;
    if (most && in_a_row >= ebb__tuning()->loop_iterations)
        return WORTH_A_PLAN;
    uint64_t lasted_ns = in_a_row * ebb__model_iteration_ns(model);
    bool is_patient =
        in_a_row >= ebb__tuning()->patience_iterations && lasted_ns >= ebb__tuning()->patience_ns &&
        lasted_ns * (uint64_t)ebb__tuning()->patience_divisor >= ebb__now_ns() - process->since_ns;
    return is_patient ? WORTH_LITTLE : WORTH_NOTHING;
}

/* A planned iteration is held once it has been whole twice in a row. An iteration that was believed
 * early may still turn out to be none; until then, what departs from its plan is observed. One that
 * touches little is replaced by any that contains it. */
static void hold(struct process *process)
{
    struct ebb_watch *watch = process->stream.watch;
    bool was_held = ebb__watch_is_held(watch); /* else it is learnt for the first time */
    bool is_due = was_held ? process->learning.unproven
                           : ebb__parent_seen(process).in_a_row >= 2 || ebb__watch_recurs(watch);
    if (process->learning.slight || !is_due)
        return;
    ebb__watch_hold(watch);
    process->learning.rest = (struct rest){0};
    if (process->learning.unproven || ebb__watch_is_held(watch))
        ebb__gaps_begin(process);
    process->learning.unproven = false;
}

/* Is there an iteration that has not been looked at? A plan needs the lanes. */
static bool is_attempt_due(struct ebb_parent *parent, const struct process *process)
{
    const struct learning *learning = &process->learning;
    const struct ebb_watch *watch = process->stream.watch;
    size_t count = ebb__watch_iterations(watch);
    bool is_new = ebb__watch_patterns(watch) != learning->settled_pattern;
    bool looked_at = count == learning->attempted_at || count == learning->traced_from;
    return ebb__now_ns() >= learning->next_attempt_ns && ebb__watch_found(watch) &&
           (is_new || !looked_at) &&
           (parent->options.record || ebb__lanes_known(parent, process->memory));
}

static void try_to_plan(struct ebb_parent *parent, struct process *process)
{
    if (!is_attempt_due(parent, process))
        return;
    uint64_t now = ebb__now_ns();
    ebb__parent_settle(process);
    process->learning.attempted_at = ebb__watch_iterations(process->stream.watch);
    struct ebb_model model;
    if (ebb__watch_model(process->stream.watch, &model, NULL, NULL) != EBB_OK) {
        process->learning.next_attempt_ns = now + ebb__tuning()->retry_ns / 10;
        return;
    }
    enum worth worth = model.has_accesses ? worth_of(process, &model) : WORTH_NOTHING;
    if (parent->options.record) {
        /* The trace has two iterations with accesses. Later iterations show times without
         * observation. */
        if (ebb__parent_seen(process).traced >= 2 && worth != WORTH_NOTHING) {
            ebb__parent_tell(process, EBB_MESSAGE_TRACE, EBB_OBSERVE_NEVER);
            ebb__phase_set(&process->phase, PHASE_FOLLOWED);
        }
        process->learning.next_attempt_ns = now + ebb__tuning()->retry_ns / 10;
    } else if (worth != WORTH_NOTHING) {
        process->learning.slight = worth == WORTH_LITTLE;
        process->learning.attempted_at = SIZE_MAX; /* without a plan it is tried again */
        if (ebb__parent_plan(parent, process, &model, 0)) {
            bool reactive = parent->options.policy->reactive;
            ebb__phase_set(&process->phase, reactive ? PHASE_FOLLOWED : PHASE_PLANNED);
            process->stream.allocs_lost = 0;
            process->learning.rest.from_ns = 0; /* that stretch is over */
            process->learning.widest_bytes = ebb__parent_seen(process).widest_bytes;
            if (reactive) {
                ebb__parent_tell(process, EBB_MESSAGE_TRACE, EBB_OBSERVE_NEVER);
            } else {
                process->learning.unproven = true;
                if (ebb__watch_is_early(process->stream.watch))
                    ebb__gaps_begin(process);
                hold(process);
            }
            if (!reactive)
                ebb__leave_learn(process, &model);
        }
        process->learning.next_attempt_ns = ebb__now_ns() + ebb__tuning()->retry_ns;
    }
    ebb__model_fini(&model);
}

/* The plan follows accesses, whose clock costs a fault each, and by now allocations tell the same
 * iteration. */
static bool has_better_clock(const struct process *process)
{
    return process->sent.has_access_clock &&
           ebb__watch_period_allocs(process->stream.watch) >= ebb__tuning()->clock_allocations;
}

/* True if the newest repetition is longer than the one examined last, or replaces it. */
static bool found_longer(struct process *process)
{
    size_t pattern = ebb__watch_patterns(process->stream.watch);
    size_t period = ebb__watch_period_clock_events(process->stream.watch);
    if (pattern == process->learning.settled_pattern || period == 0)
        return false;
    bool longer = period > process->learning.settled_period ||
                  process->learning.unproven || /* what was planned was none */
                  has_better_clock(process);
    ebb__parent_settle(process);
    return longer;
}

/* The plan or profile covers only a part of an iteration, and would match by chance. */
static void forget_parts(struct process *process)
{
    if (process->sent.script)
        ebb__parent_tell(process, EBB_MESSAGE_SCRIPT, 0);
    ebb__profile_fini(&process->learnt);
}

/* After a longer repetition was found, fewer iterations may count than before. */
static void follow_count(struct process *process)
{
    int64_t count = (int64_t)ebb__watch_iterations(process->stream.watch);
    if (process->budget_from > count)
        process->budget_from = count > 0 ? count : 1; /* 0 means from the first allocation on */
    if (process->learning.reactive_from > count)
        process->learning.reactive_from = count;
}

enum { RECURRING_FACTOR = 16 }; /* so many steps may be without a plan if they recur in any order */

/* True after allocations of an iteration and a half (half of its clock events) without a match. If
 * they are observed, they may become a phrase, and it takes longer. */
static bool is_lost(const struct process *process)
{
    uint64_t period = ebb__watch_period_clock_events(process->stream.watch);
    uint64_t lost = process->stream.allocs_lost;
    if (ebb__watch_recurs(process->stream.watch)) /* one of several: others may come for long */
        period *= RECURRING_FACTOR;
    if (process->learning.gaps.observed && ebb__watch_is_held(process->stream.watch))
        return !process->stream.replaying &&
               lost * 2 > period * (uint64_t)ebb__tuning()->lost_iterations + 128;
    return !process->stream.replaying && lost * 4 > period * 3 + 256;
}

/* True if the phrases between the planned iterations are worth a plan that contains them, too. They
 * are if the program waits in them, or is much slower there than in the iterations. A phrase that
 * trains is slower than one that does not. */
static bool is_costly(const struct ebb_watch_longer *longer)
{
    return longer->waited_ns * ebb__tuning()->beside_divisor > longer->duration_ns ||
           longer->pace > ebb__tuning()->beside_pace;
}

/* Observes accesses for a plan of the longer period, if that is worth it. The plan in force stays
 * meanwhile. */
static bool take_longer(struct process *process)
{
    size_t count = ebb__watch_iterations(process->stream.watch);
    const struct gaps *gaps = &process->learning.gaps;
    struct ebb_watch_longer longer;
    if (count == process->learning.judged_at || gaps->planned ||
        gaps->fresh < (unsigned)ebb__tuning()->beside_gaps)
        return false;
    process->learning.judged_at = count;
    if (!ebb__watch_longer(process->stream.watch, &longer) || !is_costly(&longer))
        return false;
    ebb__watch_take_longer(process->stream.watch);
    ebb__parent_settle(process);
    return true;
}

/* Another iteration is observed. What has been observed of it already is planned at once. For that
 * all must have been observed, not only where the program departed from a plan. */
static void turn_to_another(struct ebb_parent *parent, struct process *process)
{
    bool whole = process->learning.unproven && !process->learning.gaps.observed;
    ebb__parent_trace(process);
    if (!whole)
        return;
    process->learning.traced_from = process->learning.attempted_at = SIZE_MAX;
    process->learning.next_attempt_ns = 0;
    try_to_plan(parent, process);
}

/* A program may make its model anew: each fold of a validation does. The weights are then other
 * blocks of the same sizes, and all scripts get their names. Optimizers make their blocks at the
 * end of a step, so the names are looked for until all are there. The last few may be made after
 * most were found. */
static void follow_names(struct process *process)
{
    struct ebb_profile *learnt = &process->learnt;
    uint64_t now = ebb__now_ns();
    if (now < process->learning.names_ns || !learnt->iteration_count ||
        process->sent.has_access_clock)
        return;
    struct ebb_model *model = &learnt->iterations[learnt->iteration_count - 1].model;
    struct ebb_renaming *renamings;
    size_t count;
    bool hold = ebb__names_hold(process, model);
    bool looks = !hold || (process->stream.allocs < process->learning.names_allocs &&
                           ebb__names_lack(process, model));
    if (looks && ebb__names_find(process, model, &renamings, &count)) {
        ebb__parent_send_names(process, renamings, count);
        if (!hold)
            ebb__names_changed(process, model);
        free(renamings);
    }
    /* Long lists take long to compare: a small part of the time is spent on that. */
    uint64_t took_ns = ebb__now_ns() - now, pause_ns = ebb__tuning()->retry_ns;
    process->learning.names_ns = now + (64 * took_ns > pause_ns ? 64 * took_ns : pause_ns);
}

enum { WIDER_DIVISOR = 16 }; /* of its bytes: a longer step gets another plan */

/* Steps are of one shape, and a longer one has come than all before. The plan is made anew, for as
 * much memory as that one takes. What is observed is known already. */
static void plan_wider(struct ebb_parent *parent, struct process *process)
{
    struct learning *learning = &process->learning;
    size_t count = ebb__watch_iterations(process->stream.watch);
    struct ebb_model model;
    if (count == learning->widened_at || !learning->widest_bytes ||
        !ebb__watch_varies(process->stream.watch))
        return;
    learning->widened_at = count;
    uint64_t widest = ebb__parent_seen(process).widest_bytes;
    if (widest <= learning->widest_bytes + learning->widest_bytes / WIDER_DIVISOR ||
        ebb__watch_model(process->stream.watch, &model, NULL, NULL) != EBB_OK)
        return;
    learning->widest_bytes = widest;
    if (model.varies && ebb__parent_plan(parent, process, &model, 0))
        ebb__leave_learn(process, &model);
    ebb__model_fini(&model);
}

/* Watches an iteration that is planned, or followed without a plan. */
static void look_on(struct ebb_parent *parent, struct process *process)
{
    bool planned = process->phase == PHASE_PLANNED;
    if (planned && (is_lost(process) || take_longer(process))) {
        ebb__parent_trace(process);
    } else if (found_longer(process)) {
        bool accumulates = ebb__watch_accumulates(process->stream.watch);
        process->sent.is_of_part = planned && accumulates;
        if (planned && (process->learning.unproven || has_better_clock(process) || accumulates))
            ebb__profile_fini(&process->learnt); /* the plan stays: most of it may be right */
        else if (!process->learning.held) /* else it was whole, and the program has changed */
            forget_parts(process);
        turn_to_another(parent, process);
    } else if (planned) {
        hold(process);
        follow_names(process);
        ebb__gaps_consider(parent, process);
        ebb__replan_consider(parent, process);
        plan_wider(parent, process);
    }
    process->learning.held = ebb__watch_is_held(process->stream.watch);
}

void ebb__parent_learn(struct ebb_parent *parent, struct process *process)
{
    follow_count(process);
    if (ebb__budget_follow(parent, process))
        ebb__parent_trace(process);
    switch (process->phase) {
    case PHASE_OBSERVING:
    case PHASE_RELEARNING:
        if (found_longer(process))
            forget_parts(process);
        try_to_plan(parent, process);
        if (process->phase == PHASE_OBSERVING || process->phase == PHASE_RELEARNING)
            ebb__rest_consider(parent, process);
        break;
    case PHASE_RESTING:
        ebb__rest_consider(parent, process);
        break;
    case PHASE_RECALLED:
        ebb__recall_judge(parent, process);
        break;
    case PHASE_PLANNED:
    case PHASE_FOLLOWED:
    case PHASE_COUNT:
        look_on(parent, process);
        break;
    }
    if (!process->stream.replaying) /* else in replan.c: it finds room first */
        ebb__plans_tell(parent, process);
}
