/* Learning and planning for one process: as soon as two iterations have been seen and the accesses
 * of one are known, plan it, check the plan, send it. When the program leaves what was learnt and
 * does not come back within an iteration and a half, its accesses are observed again. */
#include "base/clock.h"
#include "base/limits.h"
#include "check/check.h"
#include "plan/plan.h"
#include "serve/compile.h"
#include "serve/internal.h"
#include "serve/widen.h"

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
    struct ebb_serve *serve = argument;
    serve->probe_status =
        ebb__machine_probe(serve->options.store, PROBE_BYTES, &serve->machine, &serve->probe_error);
    return NULL;
}

void ebb__serve_lanes_known(struct ebb_serve *serve, bool compressed)
{
    serve->probed = true;
    serve->compressed = compressed;
    for (size_t i = 0; compressed && i < serve->processes.count; i++)
        if (serve->processes.items[i]->channel >= 0)
            ebb__serve_tell(serve->processes.items[i], EBB_MESSAGE_COMPRESS, 0);
}

void ebb__serve_begin_probe(struct ebb_serve *serve)
{
    if (serve->probed || serve->probing || serve->options.record)
        return;
    serve->probing = pthread_create(&serve->prober, NULL, probe, serve) == 0;
}

void ebb__serve_end_probe(struct ebb_serve *serve)
{
    if (serve->probed)
        return;
    if (serve->probing)
        pthread_join(serve->prober, NULL);
    else if (!serve->options.record)
        probe(serve);
    serve->probing = false;
    if (serve->probe_status != EBB_OK) {
        struct ebb_error error;
        ebb__serve_warn(serve, "%s: %s: assuming the lanes of an NVMe drive",
                        serve->probe_error.what, serve->probe_error.why);
        if (ebb__machine_named("nvme", &serve->machine, &error) != EBB_OK)
            serve->machine = (struct ebb_machine){.out = {1, 0}, .in = {1, 0}};
    }
    bool slow = serve->machine.out.ns_per_byte > COMPRESS_FROM_NS_PER_BYTE;
    ebb__serve_lanes_known(serve, serve->options.compress == EBB_COMPRESS_ON ||
                                      (serve->options.compress == EBB_COMPRESS_AUTO && slow));
}

uint64_t ebb__serve_unmanaged_peak(const struct process *process)
{
    const struct ebb_counters *counters = &process->ring->counters;
    return atomic_load(&counters->peak_live_bytes) + atomic_load(&counters->unmanaged_bytes);
}

/* The budget of the run: given, or a share of what this process has been seen to take. */
static uint64_t whole_budget(const struct ebb_serve *serve, const struct process *process)
{
    if (serve->options.budget_fraction > 0 && !serve->budget_set)
        return (uint64_t)(serve->options.budget_fraction *
                          (double)ebb__serve_unmanaged_peak(process));
    return atomic_load(&serve->ledger->budget_bytes);
}

uint64_t ebb__serve_share(const struct ebb_serve *serve, const struct process *process,
                          uint64_t budget)
{
    if (budget == UINT64_MAX)
        return budget;
    uint64_t own = atomic_load(&process->ring->counters.held_bytes);
    uint64_t small = atomic_load(&process->ring->counters.small_bytes);
    if (small < process->recalled.small_bytes)
        small = process->recalled.small_bytes;
    return ebb__ledger_share(serve->ledger, budget, own, small);
}

bool ebb__serve_send_script(struct process *process, const struct ebb_script *script)
{
    int memory = memfd_create("ebb-script", MFD_CLOEXEC);
    if (memory < 0)
        return false;
    struct rlimit limit; /* the user's is for files; to exceed it would be SIGXFSZ */
    bool good = ebb__limit_raise(RLIMIT_FSIZE, script->bytes, &limit) &&
                write(memory, script, script->bytes) == (ssize_t)script->bytes;
    ebb__limit_restore(RLIMIT_FSIZE, &limit);
    good = good &&
           ebb__serve_send(
               process, &(struct ebb_message){.kind = EBB_MESSAGE_SCRIPT, .value = script->bytes},
               memory);
    close(memory);
    return good;
}

static void put_budget_in_force(struct ebb_serve *serve, struct process *process, uint64_t budget)
{
    if (serve->options.budget_fraction <= 0 || serve->budget_set)
        return;
    serve->budget_set = true;
    serve->share_of = process;
    serve->share_of_bytes = ebb__serve_unmanaged_peak(process);
    atomic_store(&serve->ledger->budget_bytes, budget);
    process->budget_from = (int64_t)ebb__watch_iterations(process->watch);
    for (size_t i = 0; i < serve->processes.count; i++)
        if (serve->processes.items[i]->channel >= 0)
            ebb__serve_tell(serve->processes.items[i], EBB_MESSAGE_TRIM, 0);
}

/* A share was meant of all that the program takes. Where that turns out to be a little more, the
 * budget grows; where it is much more, what was taken for its iterations was not them: no budget until
 * they are known. */
static void follow_peak(struct ebb_serve *serve, struct process *process)
{
    uint64_t peak = ebb__serve_unmanaged_peak(process), known = serve->share_of_bytes;
    if (serve->options.budget_fraction <= 0 || !serve->budget_set || serve->budget_presumed ||
        serve->share_of != process || peak <= known)
        return;
    if (peak <= known + known / MUCH_MORE_SHARE + MUCH_MORE_BYTES) {
        uint64_t budget = (uint64_t)(serve->options.budget_fraction * (double)peak);
        if (budget > atomic_load(&serve->ledger->budget_bytes))
            atomic_store(&serve->ledger->budget_bytes, budget);
        return;
    }
    serve->budget_set = false;
    serve->told_infeasible = false;
    serve->smallest_feasible_bytes = 0;
    process->budget_from = -1;
    atomic_store(&serve->ledger->budget_bytes, UINT64_MAX);
    atomic_store(&serve->ledger->in_force, 0);
    atomic_store(&serve->ledger->over_bytes, 0);
    ebb__serve_trace(process);
}

/* What one operation needs together, whatever the policy; 0 where that is not known. */
static uint64_t working_set(const struct ebb_plan_request *request)
{
    struct ebb_plan plan;
    uint64_t bytes = 0;
    if (ebb__plan_make("fifo", request, &plan, NULL) == EBB_OK) {
        bytes = plan.smallest_feasible_bytes;
        ebb__plan_fini(&plan);
    }
    return bytes;
}

/* `beside`: bytes of the budget that the plan could not have. */
static void tell_infeasible(struct ebb_serve *serve, const struct ebb_plan_request *request,
                            const struct ebb_plan *plan, uint64_t beside)
{
    uint64_t least = working_set(request);
    serve->smallest_feasible_bytes = (least ? least : plan->smallest_feasible_bytes) + beside;
    if (serve->told_infeasible || plan->smallest_feasible_bytes <= plan->budget_bytes)
        return;
    serve->told_infeasible = true;
    if (least && least <= plan->budget_bytes) {
        ebb__serve_warn(serve,
                        "policy %s can plan for %.1f MiB at least: the rest is evicted when room "
                        "is needed",
                        plan->policy, (double)plan->smallest_feasible_bytes / (1024.0 * 1024.0));
        return;
    }
    ebb__serve_warn(serve,
                    "one operation needs more than the budget: running on at the smallest "
                    "feasible, %.1f MiB; give --budget at least that",
                    (double)serve->smallest_feasible_bytes / (1024.0 * 1024.0));
}

/* A plan for the request's budget without `slack_bytes`, or for all of it where that is too little. */
static enum ebb_status make_plan(const struct ebb_serve *serve, struct ebb_plan_request *request,
                                 uint64_t slack_bytes, struct ebb_plan *plan,
                                 struct ebb_error *error)
{
    request->budget_bytes -= slack_bytes;
    enum ebb_status made = ebb__plan_make(serve->options.policy, request, plan, error);
    if (made != EBB_OK || plan->feasible || slack_bytes == 0)
        return made;
    ebb__plan_fini(plan);
    request->budget_bytes += slack_bytes;
    return ebb__plan_make(serve->options.policy, request, plan, error);
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
static void plan_for_pages(const struct ebb_serve *serve, struct ebb_plan_request *request,
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
    if (ebb__plan_make(serve->options.policy, &again, &other, NULL) == EBB_OK) {
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

bool ebb__serve_plan(struct ebb_serve *serve, struct process *process,
                     const struct ebb_model *model, uint64_t first_serial)
{
    uint64_t budget = whole_budget(serve, process);
    uint64_t share = ebb__serve_share(serve, process, budget), whole_share = share;
    /* What another order of events may need is left free, and what was lacking before; but not to the
     * plan's ruin. */
    uint64_t slack = model->slack_bytes + model->slack_bytes / 2 + process->margin_bytes;
    slack = budget == UINT64_MAX ? 0 : slack < share / 6 ? slack : share / 6;
    struct ebb_plan_request request = {
        .model = model,
        .machine = &serve->machine,
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
    if (make_plan(serve, &request, slack, &plan, &error) != EBB_OK) {
        ebb__serve_warn(serve, "no plan: %s", error.why);
        return false;
    }
    plan_for_pages(serve, &request, &plan, &wide, &places);
    share = request.budget_bytes;
    bool sent = false;
    struct ebb_script *script;
    if (!plan.feasible && !is_evident(process, &plan))
        goto out;
    if (!plan.feasible)
        tell_infeasible(serve, &request, &plan, budget - share);
    const struct ebb_check_request check = {request.model, &serve->machine, share,
                                            request.page_bytes};
    enum ebb_status checked = ebb__check_plan(&check, &plan, &error);
    if (checked != EBB_OK && plan.feasible)
        ebb__serve_warn(serve, "the plan failed its check and is not used: %s", error.why);
    else if (plan.reactive)
        sent = true;
    else if (place(&request, &plan, &wide, &places) &&
             ebb__compile_script(model, &plan, &places, &script) == EBB_OK) {
        script->first_serial = first_serial;
        sent = ebb__serve_send_script(process, script);
        free(process->script_before);
        process->script_before = process->script;
        process->script = script;
        process->guarded = script->alloc_count == 0;
        process->planned_share = whole_share;
        process->planned_slabs = atomic_load(&process->ring->counters.small_bytes);
        process->planned_bytes = plan.feasible && budget != UINT64_MAX ? places.peak_bytes : 0;
    }
    if (sent) {
        serve->plans += !plan.reactive;
        serve->predicted_peak_bytes =
            (plan.reactive ? plan.peak_bytes : places.peak_bytes) + (budget - share);
        serve->predicted_stall_ns = plan.stall_ns;
        serve->predicted_iteration_ns = plan.iteration_ns;
        serve->period_events = model->tick_count;
        put_budget_in_force(serve, process, budget);
        if (plan.reactive)
            process->reactive_from = (int64_t)ebb__watch_iterations(process->watch);
        else
            ebb__replan_begin(serve, process);
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

void ebb__serve_settle(struct process *process)
{
    process->settled_pattern = ebb__watch_patterns(process->watch);
    process->settled_period = ebb__watch_period_clock_events(process->watch);
}

static void try_to_plan(struct ebb_serve *serve, struct process *process)
{
    uint64_t now = ebb__now_ns();
    if (now < process->next_attempt_ns || !ebb__watch_found(process->watch) ||
        ebb__watch_iterations(process->watch) == process->traced_from)
        return;
    ebb__serve_settle(process);
    struct ebb_model model;
    if (ebb__watch_model(process->watch, &model, NULL, NULL) != EBB_OK) {
        process->next_attempt_ns = now + RETRY_NS / 10;
        return;
    }
    if (serve->options.record) {
        /* Two iterations with accesses are in the trace; now their true times. */
        if (seen_of_newest(process).traced >= 2 && model.has_accesses &&
            is_worth_planning(process, &model)) {
            ebb__serve_tell(process, EBB_MESSAGE_TRACE, 0);
            process->state = LEARNER_DONE;
        }
        process->next_attempt_ns = now + RETRY_NS / 10;
    } else if (model.has_accesses && is_worth_planning(process, &model)) {
        ebb__serve_end_probe(serve);
        if (ebb__serve_plan(serve, process, &model, 0)) {
            ebb__serve_tell(process, EBB_MESSAGE_TRACE, 0);
            bool reactive = ebb__plan_policy_reactive(serve->options.policy);
            process->state = reactive ? LEARNER_DONE : LEARNER_PLANNED;
            process->allocs_lost = 0;
            if (!reactive && !process->guarded) /* a profile tells of allocations */
                ebb__recall_learn(process, &model);
        }
        process->next_attempt_ns = ebb__now_ns() + RETRY_NS;
    }
    ebb__model_fini(&model);
}

void ebb__serve_note_event(struct ebb_serve *serve, struct process *process,
                           const struct ebb_event *event)
{
    (void)serve;
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

void ebb__serve_trace(struct process *process)
{
    ebb__serve_tell(process, EBB_MESSAGE_TRACE, 1);
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
    ebb__serve_settle(process);
    return longer;
}

/* What was planned or recorded is a part of an iteration, and would go on matching by chance. */
static void forget_parts(struct process *process)
{
    if (process->script)
        ebb__serve_tell(process, EBB_MESSAGE_SCRIPT, 0);
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

void ebb__serve_learn(struct ebb_serve *serve, struct process *process)
{
    follow_count(process);
    follow_peak(serve, process);
    if (process->state == LEARNER_TRACING) {
        if (found_longer(process))
            forget_parts(process);
        try_to_plan(serve, process);
    } else if (process->state == LEARNER_RECALLED) {
        ebb__recall_judge(serve, process);
    } else if (process->state == LEARNER_PLANNED && !process->playing &&
               process->allocs_lost * 4 >
                   ebb__watch_period_clock_events(process->watch) * 3 + 256) {
        /* An iteration and a half of allocations (half of the clock events) without a match. */
        ebb__serve_trace(process);
    } else if (found_longer(process)) {
        forget_parts(process);
        ebb__serve_trace(process);
    } else if (process->state == LEARNER_PLANNED) {
        ebb__replan_consider(serve, process);
    }
}
