/* Learning and planning for one process. When two iterations were seen and the accesses of one are
 * known, it plans the iteration, checks the plan and sends it. If the program deviates for an
 * iteration and a half, its accesses are observed again. */
#include "base/clock.h"
#include "base/tuning.h"
#include "parent/internal.h"
#include "plan/plan.h"

/* True for an iteration of training, false for a loop inside of one (the initialisation of each
 * weight, say). A whole iteration touches most live bytes. If a loop repeats long enough without a
 * break, it counts as the iteration, whatever it touches. */
static bool is_worth_planning(const struct process *process, const struct ebb_model *model)
{
    uint64_t touched = 0, all = 0;
    for (uint32_t i = 0; i < model->block_count; i++) {
        const struct ebb_model_block *block = &model->blocks[i];
        bool later_part = block->part_count && block->part_first;
        all += later_part ? 0 : block->part_count ? block->allocated_bytes : block->size_bytes;
        touched += model->blocks[i].access_count ? model->blocks[i].size_bytes : 0;
    }
    size_t in_a_row = ebb__parent_seen(process).in_a_row;
    size_t allocs = ebb__watch_period_allocs(process->stream.watch);
    bool evident = allocs == 0 || in_a_row * allocs >= ebb__tuning()->evident_allocations;
    return (touched * 2 >= all && evident) || in_a_row >= ebb__tuning()->patience_iterations;
}

static void try_to_plan(struct ebb_parent *parent, struct process *process)
{
    uint64_t now = ebb__now_ns();
    if (now < process->learning.next_attempt_ns || !ebb__watch_found(process->stream.watch) ||
        ebb__watch_iterations(process->stream.watch) == process->learning.traced_from)
        return;
    ebb__parent_settle(process);
    struct ebb_model model;
    if (ebb__watch_model(process->stream.watch, &model, NULL, NULL) != EBB_OK) {
        process->learning.next_attempt_ns = now + ebb__tuning()->retry_ns / 10;
        return;
    }
    if (parent->options.record) {
        /* The trace has two iterations with accesses. Later iterations show times without
         * observation. */
        if (ebb__parent_seen(process).traced >= 2 && model.has_accesses &&
            is_worth_planning(process, &model)) {
            ebb__parent_tell(process, EBB_MESSAGE_TRACE, 0);
            ebb__phase_set(&process->phase, PHASE_FOLLOWED);
        }
        process->learning.next_attempt_ns = now + ebb__tuning()->retry_ns / 10;
    } else if (model.has_accesses && is_worth_planning(process, &model)) {
        ebb__lanes_await(parent);
        if (ebb__parent_plan(parent, process, &model, 0)) {
            ebb__parent_tell(process, EBB_MESSAGE_TRACE, 0);
            bool reactive = parent->options.policy->reactive;
            ebb__phase_set(&process->phase, reactive ? PHASE_FOLLOWED : PHASE_PLANNED);
            process->stream.allocs_lost = 0;
            if (!reactive)
                ebb__watch_hold(process->stream.watch);
            if (!reactive)
                ebb__leave_learn(process, &model);
        }
        process->learning.next_attempt_ns = ebb__now_ns() + ebb__tuning()->retry_ns;
    }
    ebb__model_fini(&model);
}

/* True if the newest repetition is longer than the one examined last. */
static bool found_longer(struct process *process)
{
    size_t pattern = ebb__watch_patterns(process->stream.watch);
    size_t period = ebb__watch_period_clock_events(process->stream.watch);
    if (pattern == process->learning.settled_pattern || period == 0)
        return false;
    bool longer = period > process->learning.settled_period;
    ebb__parent_settle(process);
    return longer;
}

/* The plan or record covers a part of an iteration, and would match by chance. */
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

/* True after allocations of an iteration and a half (half of its clock events) without a match. */
static bool is_lost(const struct process *process)
{
    return !process->stream.replaying &&
           process->stream.allocs_lost * 4 >
               ebb__watch_period_clock_events(process->stream.watch) * 3 + 256;
}

/* Does what comes between the planned iterations cost so much that it is worth a plan that contains
 * it, too? It does if the program waits for it, or is much slower there than in the iterations: what
 * trains takes longer than what does not. */
static bool is_costly(const struct ebb_watch_longer *longer)
{
    return longer->waited_ns * ebb__tuning()->beside_divisor > longer->duration_ns ||
           longer->pace > ebb__tuning()->beside_pace;
}

/* Observe accesses for a plan of the longer repetition, if that is worth it. The plan in force stays
 * meanwhile. */
static bool take_longer(struct process *process)
{
    size_t count = ebb__watch_iterations(process->stream.watch);
    struct ebb_watch_longer longer;
    if (count == process->learning.judged_at)
        return false;
    process->learning.judged_at = count;
    if (!ebb__watch_longer(process->stream.watch, &longer) || !is_costly(&longer))
        return false;
    ebb__watch_take_longer(process->stream.watch);
    ebb__parent_settle(process);
    return true;
}

/* Planned, or followed without a plan. */
static void look_on(struct ebb_parent *parent, struct process *process)
{
    bool planned = process->phase == PHASE_PLANNED;
    if (planned && (is_lost(process) || take_longer(process))) {
        ebb__parent_trace(process);
    } else if (found_longer(process)) {
        forget_parts(process);
        ebb__parent_trace(process);
    } else if (planned) {
        ebb__replan_consider(parent, process);
    }
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
}
