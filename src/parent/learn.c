/* Learning and planning for one process: as soon as two iterations have been seen and the accesses
 * of one are known, plan it, check the plan, send it. When the program leaves what was learnt and
 * does not come back within an iteration and a half, its accesses are observed again. */
#include "base/clock.h"
#include "base/limits.h"
#include "check/check.h"
#include "parent/compile.h"
#include "parent/internal.h"
#include "parent/widen.h"
#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Smaller blocks stay: what they would free is not worth a transfer's fixed cost. */
#define SMALLEST_MOVED_BYTES ((uint64_t)256 << 10)
#define PLAN_TIME_LIMIT_NS ((uint64_t)300000000)
#define PAGES_COST 50 /* of an iteration, as a divisor: what huge pages are worth at least */
#define MOST_LACKING_SHARE 25 /* of the budget, as a divisor; arbitrary */
#define PROBE_BYTES ((uint64_t)256 << 20)
#define PATIENCE_ITERATIONS 64 /* arbitrary */
/* A repetition must have lasted so many allocations: layers of a model repeat a few, too. Arbitrary. */
#define EVIDENT_ALLOCATIONS 32u
/* Less in a row may be a loop within an operation: no plan is better than one that is not feasible.
 * Arbitrary. */
#define EVIDENT_WORK_NS ((uint64_t)20000000)
/* A peak that exceeds the known one by more than a fourth and this much is another one; arbitrary. */
#define MUCH_MORE_SHARE 4
#define MUCH_MORE_BYTES ((uint64_t)16 << 20)
#define RETRY_NS ((uint64_t)100000000)
/* A lane out that is slower, 1 GB/s, gains by what compression leaves out more than two processors at
 * work lose by it (docs/host-engine.md, "Compression"). */
#define COMPRESS_FROM_NS_PER_BYTE 1.0

static void *probe(void *argument)
{
    struct ebb_parent *parent = argument;
    parent->probe_status = ebb__machine_probe(parent->options.store, PROBE_BYTES, &parent->machine,
                                              &parent->probe_error);
    return NULL;
}

void ebb__parent_lanes_known(struct ebb_parent *parent, bool compressed)
{
    parent->probed = true;
    parent->compressed = compressed;
    for (size_t i = 0; compressed && i < parent->processes.count; i++)
        if (parent->processes.items[i]->channel >= 0)
            ebb__parent_tell(parent->processes.items[i], EBB_MESSAGE_COMPRESS, 0);
}

void ebb__parent_begin_probe(struct ebb_parent *parent)
{
    if (parent->probed || parent->probing || parent->options.record)
        return;
    parent->probing = pthread_create(&parent->prober, NULL, probe, parent) == 0;
}

void ebb__parent_end_probe(struct ebb_parent *parent)
{
    if (parent->probed)
        return;
    if (parent->probing)
        pthread_join(parent->prober, NULL);
    else if (!parent->options.record)
        probe(parent);
    parent->probing = false;
    if (parent->probe_status != EBB_OK) {
        struct ebb_error error;
        ebb__parent_warn(parent, "%s: %s: assuming the lanes of an NVMe drive",
                         parent->probe_error.what, parent->probe_error.why);
        if (ebb__machine_named("nvme", &parent->machine, &error) != EBB_OK)
            parent->machine = (struct ebb_machine){.out = {1, 0}, .in = {1, 0}};
    }
    bool slow = parent->machine.out.ns_per_byte > COMPRESS_FROM_NS_PER_BYTE;
    ebb__parent_lanes_known(parent, parent->options.compress == EBB_COMPRESS_ON ||
                                        (parent->options.compress == EBB_COMPRESS_AUTO && slow));
}

uint64_t ebb__parent_unmanaged_peak(const struct process *process)
{
    const struct ebb_counters *counters = &process->ring->counters;
    return atomic_load(&counters->peak_live_bytes) + atomic_load(&counters->unmanaged_bytes);
}

/* The budget of the run: given, or a share of what this process has been seen to take. */
static uint64_t whole_budget(const struct ebb_parent *parent, const struct process *process)
{
    if (parent->options.budget_fraction > 0 && !parent->budget_set)
        return (uint64_t)(parent->options.budget_fraction *
                          (double)ebb__parent_unmanaged_peak(process));
    return atomic_load(&parent->ledger->budget_bytes);
}

uint64_t ebb__parent_share(const struct ebb_parent *parent, const struct process *process,
                           uint64_t budget)
{
    if (budget == UINT64_MAX)
        return budget;
    uint64_t own = atomic_load(&process->ring->counters.held_bytes);
    uint64_t small = atomic_load(&process->ring->counters.small_bytes);
    if (small < process->recalled.small_bytes)
        small = process->recalled.small_bytes;
    return ebb__ledger_share(parent->ledger, budget, own, small);
}

bool ebb__parent_send_script(struct process *process, const struct ebb_script *script)
{
    int memory = memfd_create("ebb-script", MFD_CLOEXEC);
    if (memory < 0)
        return false;
    struct rlimit limit; /* the user's is for files; to exceed it would be SIGXFSZ */
    bool good = ebb__limit_raise(RLIMIT_FSIZE, script->bytes, &limit) &&
                write(memory, script, script->bytes) == (ssize_t)script->bytes;
    ebb__limit_restore(RLIMIT_FSIZE, &limit);
    good = good &&
           ebb__parent_send(
               process, &(struct ebb_message){.kind = EBB_MESSAGE_SCRIPT, .value = script->bytes},
               memory);
    close(memory);
    return good;
}

static void put_budget_in_force(struct ebb_parent *parent, struct process *process, uint64_t budget)
{
    if (parent->options.budget_fraction <= 0 || parent->budget_set)
        return;
    parent->budget_set = true;
    parent->share_of = process;
    parent->share_of_bytes = ebb__parent_unmanaged_peak(process);
    atomic_store(&parent->ledger->budget_bytes, budget);
    process->budget_from = (int64_t)ebb__watch_iterations(process->watch);
    for (size_t i = 0; i < parent->processes.count; i++)
        if (parent->processes.items[i]->channel >= 0)
            ebb__parent_tell(parent->processes.items[i], EBB_MESSAGE_TRIM, 0);
}

/* A share was meant of all that the program takes. Where that turns out to be a little more, the
 * budget grows; where it is much more, what was taken for its iterations was not them: no budget until
 * they are known. */
static void follow_peak(struct ebb_parent *parent, struct process *process)
{
    uint64_t peak = ebb__parent_unmanaged_peak(process), known = parent->share_of_bytes;
    if (parent->options.budget_fraction <= 0 || !parent->budget_set || parent->budget_presumed ||
        parent->share_of != process || peak <= known)
        return;
    if (peak <= known + known / MUCH_MORE_SHARE + MUCH_MORE_BYTES) {
        uint64_t budget = (uint64_t)(parent->options.budget_fraction * (double)peak);
        if (budget > atomic_load(&parent->ledger->budget_bytes))
            atomic_store(&parent->ledger->budget_bytes, budget);
        return;
    }
    parent->budget_set = false;
    parent->told_infeasible = false;
    parent->smallest_feasible_bytes = 0;
    process->budget_from = -1;
    atomic_store(&parent->ledger->budget_bytes, UINT64_MAX);
    atomic_store(&parent->ledger->in_force, 0);
    atomic_store(&parent->ledger->over_bytes, 0);
    ebb__parent_trace(process);
}

/* What one operation needs together, whatever the policy; 0 where that is not known. */
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

/* `beside`: bytes of the budget that the plan could not have. */
static void tell_infeasible(struct ebb_parent *parent, const struct ebb_plan_request *request,
                            const struct ebb_plan *plan, uint64_t beside)
{
    uint64_t least = working_set(request);
    parent->smallest_feasible_bytes = (least ? least : plan->smallest_feasible_bytes) + beside;
    if (parent->told_infeasible || plan->smallest_feasible_bytes <= plan->budget_bytes)
        return;
    parent->told_infeasible = true;
    if (least && least <= plan->budget_bytes) {
        ebb__parent_warn(parent,
                         "policy %s can plan for %.1f MiB at least: the rest is evicted when room "
                         "is needed",
                         plan->policy, (double)plan->smallest_feasible_bytes / (1024.0 * 1024.0));
        return;
    }
    ebb__parent_warn(parent,
                     "one operation needs more than the budget: running on at the smallest "
                     "feasible, %.1f MiB; give --budget at least that",
                     (double)parent->smallest_feasible_bytes / (1024.0 * 1024.0));
}

/* A plan for the request's budget without `slack_bytes`, or for all of it where that is too little. */
static enum ebb_status make_plan(const struct ebb_parent *parent, struct ebb_plan_request *request,
                                 uint64_t slack_bytes, struct ebb_plan *plan,
                                 struct ebb_error *error)
{
    request->budget_bytes -= slack_bytes;
    enum ebb_status made = ebb__plan_make(parent->options.policy, request, plan, error);
    if (made != EBB_OK || plan->feasible || slack_bytes == 0)
        return made;
    ebb__plan_fini(plan);
    request->budget_bytes += slack_bytes;
    return ebb__plan_make(parent->options.policy, request, plan, error);
}

/* Addresses for `plan`, unless *places has them already, and which blocks are wide. */
static bool place(const struct ebb_plan_request *request, const struct ebb_plan *plan,
                  const struct ebb_wide *wide, struct ebb_places *places)
{
    if (!places->offsets && ebb__place_blocks(request, plan, places, NULL) != EBB_OK)
        return false;
    places->wide = wide->count ? wide->blocks : NULL;
    return true;
}

/* Plan again so that more of the memory is huge pages, which cost less to move and to use: with wide
 * blocks, and with room for what the pool's units waste. Keep that where it costs no time; the
 * request's model and wide->count say whether blocks are wide then. *places: the addresses for `plan` if
 * they had to be found, otherwise as it was, empty. */
static void plan_for_pages(const struct ebb_parent *parent, struct ebb_plan_request *request,
                           struct ebb_plan *plan, struct ebb_wide *wide, struct ebb_places *places)
{
    struct ebb_plan other;
    if (!plan->feasible || plan->reactive || request->model->woven ||
        ebb__place_blocks(request, plan, places, NULL) != EBB_OK)
        return;
    uint64_t lacking = places->lacking_bytes;
    if (ebb__widen(request->model, plan, wide) != EBB_OK || (wide->count == 0 && lacking == 0))
        return;
    struct ebb_plan_request again = *request;
    if (wide->count)
        again.model = &wide->model;
    if (lacking > request->budget_bytes / MOST_LACKING_SHARE)
        lacking = request->budget_bytes / MOST_LACKING_SHARE;
    again.budget_bytes -= lacking;
    bool kept = false;
    if (ebb__plan_make(parent->options.policy, &again, &other, NULL) == EBB_OK) {
        kept = other.feasible &&
               other.iteration_ns <= plan->iteration_ns + plan->iteration_ns / PAGES_COST;
        ebb__plan_fini(kept ? plan : &other);
    }
    if (kept) {
        *plan = other;
        ebb__places_fini(places);
        plan->budget_bytes = request->budget_bytes;
        request->model = again.model;
    } else {
        wide->count = 0;
    }
}

struct seen {
    size_t traced;
    size_t in_a_row; /* the newest, without anything between them */
};

/* Of the repetition now taken for the iteration. */
static struct seen seen_of_newest(const struct process *process)
{
    const struct ebb_watch_iteration *iterations;
    size_t count = ebb__watch_kept(process->watch, &iterations);
    size_t newest = ebb__watch_pattern(process->watch);
    struct seen seen = {0};
    bool in_a_row = true;
    for (size_t i = count; i-- > 0 && iterations[i].pattern + 1 == newest;) {
        seen.traced += iterations[i].traced;
        seen.in_a_row += in_a_row;
        in_a_row = in_a_row && i > 0 && iterations[i - 1].last_event == iterations[i].first_event;
    }
    return seen;
}

/* Has it gone on for longer than a loop within an operation does? */
static bool is_evident(const struct process *process, const struct ebb_plan *plan)
{
    size_t in_a_row = seen_of_newest(process).in_a_row; /* 0: it comes from an earlier run */
    return in_a_row == 0 || in_a_row * (plan->iteration_ns - plan->stall_ns) >= EVIDENT_WORK_NS;
}

bool ebb__parent_plan(struct ebb_parent *parent, struct process *process,
                      const struct ebb_model *model, uint64_t first_serial)
{
    uint64_t budget = whole_budget(parent, process);
    uint64_t share = ebb__parent_share(parent, process, budget), whole_share = share;
    /* What another order of events may need is left free, and what was lacking before; but not to the
     * plan's ruin. */
    uint64_t slack = model->slack_bytes + model->slack_bytes / 2 + process->margin_bytes;
    slack = budget == UINT64_MAX ? 0 : slack < share / 6 ? slack : share / 6;
    struct ebb_plan_request request = {
        .model = model,
        .machine = &parent->machine,
        .budget_bytes = share,
        .page_bytes = 4096,
        .smallest_block_bytes = SMALLEST_MOVED_BYTES,
        .time_limit_ns = PLAN_TIME_LIMIT_NS / 2, /* there may be two to choose from */
        .newest_only = true,
    };
    struct ebb_plan plan;
    struct ebb_places places = {0};
    struct ebb_wide wide = {0};
    struct ebb_error error;
    if (model->tick_count == 0 || ebb__model_iteration_ns(model) == 0)
        return false; /* nothing happens in it that could be planned */
    if (make_plan(parent, &request, slack, &plan, &error) != EBB_OK) {
        ebb__parent_warn(parent, "no plan: %s", error.why);
        return false;
    }
    plan_for_pages(parent, &request, &plan, &wide, &places);
    share = request.budget_bytes;
    bool sent = false;
    struct ebb_script *script;
    if (!plan.feasible && !is_evident(process, &plan))
        goto out;
    if (!plan.feasible)
        tell_infeasible(parent, &request, &plan, budget - share);
    const struct ebb_check_request check = {request.model, &parent->machine, share,
                                            request.page_bytes};
    enum ebb_status checked = ebb__check_plan(&check, &plan, &error);
    if (checked != EBB_OK && plan.feasible)
        ebb__parent_warn(parent, "the plan failed its check and is not used: %s", error.why);
    else if (plan.reactive)
        sent = true;
    else if (place(&request, &plan, &wide, &places) &&
             ebb__compile_script(model, &plan, &places, &script) == EBB_OK) {
        script->first_serial = first_serial;
        sent = ebb__parent_send_script(process, script);
        free(process->script_before);
        process->script_before = process->script;
        process->script = script;
        process->guarded = script->alloc_count == 0;
        process->planned_share = whole_share;
        process->planned_slabs = atomic_load(&process->ring->counters.small_bytes);
        process->planned_bytes = plan.feasible && budget != UINT64_MAX ? places.peak_bytes : 0;
    }
    if (sent) {
        parent->plans += !plan.reactive;
        parent->predicted_peak_bytes =
            (plan.reactive ? plan.peak_bytes : places.peak_bytes) + (budget - share);
        parent->predicted_stall_ns = plan.stall_ns;
        parent->predicted_iteration_ns = plan.iteration_ns;
        parent->period_events = model->tick_count;
        put_budget_in_force(parent, process, budget);
        if (plan.reactive)
            process->reactive_from = (int64_t)ebb__watch_iterations(process->watch);
        else
            ebb__replan_begin(parent, process);
    }
out:
    ebb__places_fini(&places);
    ebb__plan_fini(&plan);
    ebb__wide_fini(&wide);
    return sent;
}

/* Is this an iteration of training, or a loop inside of one (the initialisation of one weight after
 * another, say)? A whole iteration touches most of what is alive. A loop that goes on and on, with
 * nothing between, is what the program does, whatever it touches. */
static bool is_worth_planning(const struct process *process, const struct ebb_model *model)
{
    uint64_t touched = 0, all = 0;
    for (uint32_t i = 0; i < model->block_count; i++) {
        const struct ebb_model_block *block = &model->blocks[i];
        bool later_part = block->part_count && block->part_first;
        all += later_part ? 0 : block->part_count ? block->allocated_bytes : block->size_bytes;
        touched += model->blocks[i].access_count ? model->blocks[i].size_bytes : 0;
    }
    size_t in_a_row = seen_of_newest(process).in_a_row;
    size_t allocs = ebb__watch_period_allocs(process->watch);
    bool evident = allocs == 0 || in_a_row * allocs >= EVIDENT_ALLOCATIONS;
    return (touched * 2 >= all && evident) || in_a_row >= PATIENCE_ITERATIONS;
}

void ebb__parent_settle(struct process *process)
{
    process->settled_pattern = ebb__watch_patterns(process->watch);
    process->settled_period = ebb__watch_period_clock_events(process->watch);
}

static void try_to_plan(struct ebb_parent *parent, struct process *process)
{
    uint64_t now = ebb__now_ns();
    if (now < process->next_attempt_ns || !ebb__watch_found(process->watch) ||
        ebb__watch_iterations(process->watch) == process->traced_from)
        return;
    ebb__parent_settle(process);
    struct ebb_model model;
    if (ebb__watch_model(process->watch, &model, NULL, NULL) != EBB_OK) {
        process->next_attempt_ns = now + RETRY_NS / 10;
        return;
    }
    if (parent->options.record) {
        /* Two iterations with accesses are in the trace; now their true times. */
        if (seen_of_newest(process).traced >= 2 && model.has_accesses &&
            is_worth_planning(process, &model)) {
            ebb__parent_tell(process, EBB_MESSAGE_TRACE, 0);
            process->state = LEARNER_DONE;
        }
        process->next_attempt_ns = now + RETRY_NS / 10;
    } else if (model.has_accesses && is_worth_planning(process, &model)) {
        ebb__parent_end_probe(parent);
        if (ebb__parent_plan(parent, process, &model, 0)) {
            ebb__parent_tell(process, EBB_MESSAGE_TRACE, 0);
            bool reactive = parent->options.policy->reactive;
            process->state = reactive ? LEARNER_DONE : LEARNER_PLANNED;
            process->allocs_lost = 0;
            if (!reactive && !process->guarded) /* a profile tells of allocations */
                ebb__recall_learn(process, &model);
        }
        process->next_attempt_ns = ebb__now_ns() + RETRY_NS;
    }
    ebb__model_fini(&model);
}

void ebb__parent_note_event(struct ebb_parent *parent, struct process *process,
                            const struct ebb_event *event)
{
    (void)parent;
    if (event->kind == EBB_EVENT_MARK && event->mark == EBB_MARK_PLAN_ON) {
        process->playing = true;
    } else if (event->kind == EBB_EVENT_MARK && event->mark == EBB_MARK_PLAN_OFF) {
        process->playing = false;
        process->allocs_lost = process->guarded ? UINT32_MAX : 0;
    } else if (event->kind == EBB_EVENT_ALLOC) {
        process->allocs++;
        process->allocs_lost = process->playing ? 0 : process->allocs_lost + 1;
    }
}

void ebb__parent_trace(struct process *process)
{
    ebb__parent_tell(process, EBB_MESSAGE_TRACE, 1);
    process->state = LEARNER_TRACING;
    process->traced_from = ebb__watch_iterations(process->watch);
    process->allocs_lost = 0;
    process->next_attempt_ns = ebb__now_ns() + RETRY_NS;
}

/* Has a repetition been found that is longer than the one last looked at? */
static bool found_longer(struct process *process)
{
    size_t pattern = ebb__watch_patterns(process->watch);
    size_t period = ebb__watch_period_clock_events(process->watch);
    if (pattern == process->settled_pattern || period == 0)
        return false;
    bool longer = period > process->settled_period;
    ebb__parent_settle(process);
    return longer;
}

/* What was planned or recorded is a part of an iteration, and would go on matching by chance. */
static void forget_parts(struct process *process)
{
    if (process->script)
        ebb__parent_tell(process, EBB_MESSAGE_SCRIPT, 0);
    ebb__profile_fini(&process->learnt);
}

/* What was counted as iterations may turn out to be none, once a longer repetition is known. */
static void follow_count(struct process *process)
{
    int64_t count = (int64_t)ebb__watch_iterations(process->watch);
    if (process->budget_from > count)
        process->budget_from = count > 0 ? count : 1; /* 0 is from the first allocation on */
    if (process->reactive_from > count)
        process->reactive_from = count;
}

void ebb__parent_learn(struct ebb_parent *parent, struct process *process)
{
    follow_count(process);
    follow_peak(parent, process);
    if (process->state == LEARNER_TRACING) {
        if (found_longer(process))
            forget_parts(process);
        try_to_plan(parent, process);
    } else if (process->state == LEARNER_RECALLED) {
        ebb__recall_judge(parent, process);
    } else if (process->state == LEARNER_PLANNED && !process->playing &&
               process->allocs_lost * 4 >
                   ebb__watch_period_clock_events(process->watch) * 3 + 256) {
        /* An iteration and a half of allocations (half of the clock events) without a match. */
        ebb__parent_trace(process);
    } else if (found_longer(process)) {
        forget_parts(process);
        ebb__parent_trace(process);
    } else if (process->state == LEARNER_PLANNED) {
        ebb__replan_consider(parent, process);
    }
}
