/* From the terms of a process to a plan in force: the terms, the plan, its check, the script. The
 * plan is made from its terms by src/plan/request, as for `ebb plan`. */
#include "base/geometry.h"
#include "base/limits.h"
#include "base/tuning.h"
#include "parent/internal.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SLAB_ROUNDS = 4 };     /* in which slabs that are not used are parked, and evicted */
enum { PEAK_ITERATIONS = 8 }; /* in which a peak grows by what comes late */

/* Sends a message with `bytes` in a file. */
static bool send_in_file(struct process *process, enum ebb_message_kind kind, const void *what,
                         size_t bytes)
{
    int memory = memfd_create("ebb-message", MFD_CLOEXEC);
    if (memory < 0)
        return false;
    struct rlimit limit; /* the user's limit is for files; exceeding it would cause SIGXFSZ */
    bool good = ebb__limit_raise(RLIMIT_FSIZE, bytes, &limit) &&
                write(memory, what, bytes) == (ssize_t)bytes;
    ebb__limit_restore(RLIMIT_FSIZE, &limit);
    good = good &&
           ebb__parent_send(process, &(struct ebb_message){.kind = kind, .value = bytes}, memory);
    close(memory);
    return good;
}

bool ebb__parent_send_script(struct process *process, const struct ebb_script *script)
{
    return send_in_file(process, EBB_MESSAGE_SCRIPT, script, script->bytes);
}

bool ebb__parent_send_names(struct process *process, const struct ebb_renaming *renamings,
                            size_t count)
{
    struct sent *sent = &process->sent;
    if (sent->script)
        ebb__script_rename(sent->script, renamings, count);
    if (sent->script_before)
        ebb__script_rename(sent->script_before, renamings, count);
    return count == 0 ||
           send_in_file(process, EBB_MESSAGE_NAMES, renamings, count * sizeof *renamings);
}

/* Bytes that one operation needs at the same time, under any policy. 0: unknown. */
static uint64_t working_set(const struct ebb_plan_request *request)
{
    struct ebb_plan plan;
    uint64_t bytes = 0;
    if (ebb__plan_make(ebb__plan_policy("fifo"), request, &plan, NULL) == EBB_OK) {
        bytes = plan.smallest_feasible_bytes;
        ebb__plan_fini(&plan);
    }
    return bytes;
}

static void say_infeasible(struct ebb_parent *parent, struct budget *budget, uint64_t least_bytes)
{
    parent->figures.smallest_feasible_bytes = least_bytes;
    if (!budget->told_infeasible)
        ebb__parent_warn(parent,
                         "one operation needs more than the budget: running on at the smallest "
                         "feasible, %.1f MiB; give --budget at least that",
                         (double)least_bytes / (1024.0 * 1024.0));
    budget->told_infeasible = true;
    budget->untold_bytes = 0;
}

/* Is it still to be told? The budget may have grown with the peak. */
static bool is_untold(struct fast_memory *memory)
{
    struct budget *budget = &memory->budget;
    if (budget->untold_bytes <= atomic_load(&memory->ledger->budget_bytes))
        budget->untold_bytes = 0;
    return budget->untold_bytes && budget->state != BUDGET_PRESUMED;
}

void ebb__plans_tell(struct ebb_parent *parent, const struct process *process)
{
    struct budget *budget = &process->memory->budget;
    if (is_untold(process->memory) && budget->untold_of == process &&
        ebb__now_ns() >= budget->tell_ns &&
        ebb__watch_iterations(process->stream.watch) >= budget->tell_after)
        say_infeasible(parent, budget, budget->untold_bytes);
}

void ebb__plans_tell_last(struct ebb_parent *parent, struct fast_memory *memory)
{
    if (is_untold(memory) && atomic_load(&memory->ledger->over_bytes))
        say_infeasible(parent, &memory->budget, memory->budget.untold_bytes);
}

/* Small blocks that are not used leave memory in so long. */
static uint64_t small_settled_ns(void)
{
    return (uint64_t)ebb__tuning()->slab_look_ns * SLAB_ROUNDS;
}

static bool others_hold_memory(const struct process *process)
{
    return atomic_load(&process->memory->ledger->held_bytes) >
           atomic_load(&process->stream.ring->counters.held_bytes);
}

static void tell_infeasible(struct ebb_parent *parent, struct process *process,
                            const struct ebb_planned *planned, uint64_t budget_bytes)
{
    const struct ebb_plan *plan = &planned->plan;
    struct budget *budget = &process->memory->budget;
    uint64_t least = working_set(&planned->request);
    uint64_t small = ebb__budget_small(process);
    uint64_t least_bytes = (least ? least : plan->smallest_feasible_bytes) + planned->beside_bytes;
    bool is_for_small = least && least <= budget_bytes && least + small > budget_bytes;
    if (least && least + small <= budget_bytes && others_hold_memory(process))
        return;
    bool grows = budget->state == BUDGET_OPEN || budget->state == BUDGET_SHARED;
    bool may_change = (is_for_small || grows) && !budget->told_infeasible;
    if (budget->state == BUDGET_PRESUMED || may_change) {
        /* The budget may be of another size soon. Small blocks may turn out to be unused. */
        if (budget->untold_bytes == 0 || budget->untold_of != process) {
            budget->untold_of = process;
            budget->tell_ns = may_change ? ebb__now_ns() + small_settled_ns() : 0;
            budget->tell_after =
                grows ? ebb__watch_iterations(process->stream.watch) + PEAK_ITERATIONS : 0;
        }
        budget->untold_bytes = least_bytes;
    } else if (plan->smallest_feasible_bytes <= plan->budget_bytes) {
        parent->figures.smallest_feasible_bytes = least_bytes;
    } else if (!least || least > plan->budget_bytes) {
        say_infeasible(parent, budget, least_bytes);
    } else {
        parent->figures.smallest_feasible_bytes = least_bytes;
        if (!budget->told_infeasible)
            ebb__parent_warn(parent,
                             "policy %s can plan for %.1f MiB at least: the rest is evicted when "
                             "memory is needed",
                             plan->policy,
                             (double)plan->smallest_feasible_bytes / (1024.0 * 1024.0));
        budget->told_infeasible = true;
    }
}

/* True if the repetition has lasted longer than a loop inside an operation does. */
static bool is_evident(const struct process *process, const struct ebb_plan *plan)
{
    size_t in_a_row = ebb__parent_seen(process).in_a_row; /* 0: it is from an earlier run */
    return in_a_row == 0 ||
           in_a_row * (plan->iteration_ns - plan->stall_ns) >= ebb__tuning()->evident_work_ns;
}

struct ebb_plan_terms ebb__parent_terms(const struct ebb_parent *parent,
                                        const struct process *process,
                                        const struct ebb_model *model)
{
    uint64_t budget = ebb__budget_of(parent, process);
    struct ebb_plan_terms terms =
        ebb__plan_terms(parent->options.policy, model, &process->memory->lanes.machine, budget);
    terms.beside_bytes = budget - ebb__budget_share(parent, process, budget);
    /* Small blocks come and go. If they held a byte more than the plan assumed, none of it would be
     * in the static placement. */
    uint64_t small = ebb__budget_small(process);
    uint64_t growth = small / (uint64_t)ebb__tuning()->small_growth_divisor;
    terms.margin_bytes = growth > process->sent.margin_bytes ? growth : process->sent.margin_bytes;
    if (process->memory->is_device) { /* blocks take whole units, and smaller ones do not move */
        terms.page_bytes = EBB_HUGE_BYTES;
        terms.smallest_block_bytes = EBB_HUGE_BYTES / 2;
        terms.place_unit_bytes = atomic_load(&process->stream.ring->counters.place_unit_bytes);
    }
    return terms;
}

/* Compiles the plan, sends it, and keeps it as the newest one. Returns false if it could not be
 * sent. */
static bool send_plan(struct process *process, const struct ebb_plan_terms *terms,
                      struct ebb_planned *planned, uint64_t first_serial)
{
    struct sent *sent = &process->sent;
    struct ebb_script *script;
    if (ebb__planned_script(planned, &script, NULL) != EBB_OK)
        return false;
    script->first_serial = first_serial;
    if (process->phase == PHASE_RECALLED && process->recall.is_scaled)
        script->peak_bytes = UINT64_MAX; /* a guess: what is placed could not be evicted */
    if (script->alloc_count && process->stream.watch && ebb__watch_is_marked(process->stream.watch))
        script->flags |= EBB_SCRIPT_MARKED;
    if (sent->is_of_part)
        ebb__parent_tell(process, EBB_MESSAGE_SCRIPT, 0);
    sent->is_of_part = false;
    bool good = ebb__parent_send_script(process, script);
    bool fits = planned->plan.feasible && terms->budget_bytes != UINT64_MAX;
    free(sent->script_before);
    sent->script_before = sent->script;
    sent->script = script;
    sent->has_access_clock = script->alloc_count == 0;
    sent->share_bytes = ebb__plan_request(terms).budget_bytes;
    sent->slab_bytes = atomic_load(&process->stream.ring->counters.small_bytes);
    sent->small_bytes = sent->slab_bytes;
    sent->peak_bytes = fits ? planned->places.peak_bytes : 0;
    return good;
}

static void note_figures(struct figures *figures, const struct ebb_planned *planned)
{
    const struct ebb_plan *plan = &planned->plan;
    uint64_t peak_bytes = plan->reactive ? plan->peak_bytes : planned->places.peak_bytes;
    figures->plan.count += !plan->reactive;
    figures->plan.peak_bytes = peak_bytes + planned->beside_bytes;
    figures->plan.stall_ns = plan->stall_ns;
    figures->plan.overhead_ns = plan->overhead_ns;
    figures->plan.iteration_ns = plan->iteration_ns + plan->overhead_ns;
    figures->plan.learnt_iteration_ns = figures->plan.iteration_ns;
    figures->plan.machine = *planned->request.machine;
    figures->plan.timed_out = plan->timed_out;
    figures->period_events = planned->model->tick_count;
}

bool ebb__parent_plan(struct ebb_parent *parent, struct process *process,
                      const struct ebb_model *model, uint64_t first_serial)
{
    struct ebb_plan_terms terms = ebb__parent_terms(parent, process, model);
    struct ebb_planned planned;
    const struct ebb_plan *plan = &planned.plan;
    struct ebb_error error;
    if (model->tick_count == 0 || ebb__model_iteration_ns(model) == 0)
        return false; /* an empty iteration cannot be planned */
    process->memory->lanes.machine.costs =
        ebb__measured_costs(process, &process->memory->lanes.machine);
    if (ebb__planned_make(&terms, &planned, &error) != EBB_OK) {
        ebb__parent_warn(parent, "no plan: %s", error.why);
        return false;
    }
    bool sent = false;
    if (!plan->feasible && !is_evident(process, plan))
        goto out;
    bool learns = process->phase == PHASE_OBSERVING || process->phase == PHASE_RELEARNING;
    if (!plan->feasible && !plan->reactive && learns && !process->learning.exactly) {
        process->learning.exactly = true; /* uses that were not told apart may make it too large */
        ebb__parent_trace(process);
        goto out;
    }
    if (!plan->feasible)
        tell_infeasible(parent, process, &planned, terms.budget_bytes);
    else if (process->memory->budget.untold_of == process)
        process->memory->budget.untold_bytes = 0;
    if (ebb__planned_check(&planned, &error) != EBB_OK && plan->feasible)
        ebb__parent_warn(parent, "the plan failed its check and is not used: %s", error.why);
    else
        sent = plan->reactive || send_plan(process, &terms, &planned, first_serial);
    if (sent) {
        note_figures(&parent->figures, &planned);
        ebb__budget_enforce(parent, process, terms.budget_bytes);
        process->trial.predicted_stall_ns = plan->stall_ns;
        process->trial.predicted_work_ns = plan->iteration_ns - plan->stall_ns;
        if (plan->reactive)
            process->learning.reactive_from = (int64_t)ebb__watch_iterations(process->stream.watch);
        else
            ebb__trial_begin(process);
    }
out:
    ebb__planned_fini(&planned);
    return sent;
}

bool ebb__parent_plan_beside(struct ebb_parent *parent, struct process *process,
                             const struct ebb_model *model)
{
    struct ebb_plan_terms terms = ebb__parent_terms(parent, process, model);
    struct ebb_planned planned;
    struct ebb_script *script = NULL;
    if (model->tick_count == 0 || ebb__model_iteration_ns(model) == 0 ||
        ebb__planned_make(&terms, &planned, NULL) != EBB_OK)
        return false;
    bool sent = planned.plan.feasible && !planned.plan.reactive &&
                ebb__planned_check(&planned, NULL) == EBB_OK &&
                ebb__planned_script(&planned, &script, NULL) == EBB_OK &&
                ebb__parent_send_script(process, script);
    parent->figures.plan.count += sent;
    free(script);
    ebb__planned_fini(&planned);
    return sent;
}
