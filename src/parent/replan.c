/* Compares what a plan assumed with what happened, and plans again.
 *
 * The lanes are measured before the first plan, alone and for a fraction of a second. The first
 * iterations are timed while accesses are observed. During replay both are measured better: the
 * runtime counts moved bytes and busy times of its lanes, and iterations run without observation.
 * The same iteration is planned again with new measurements in two cases. Either the lanes differ
 * markedly, or stalls are markedly longer than predicted and lanes or pace differ.
 *
 * It is also planned again if there is less memory than the plan needs, or much more.
 *
 * To make this settle, each plan is judged over several iterations and enough bytes. The waits
 * between plans double, and their number is limited. If a plan is slower than the one before, that
 * one replaces it for good. */
#include "base/order.h"
#include "base/tuning.h"
#include "parent/internal.h"

#include <stdlib.h>
#include <string.h>

/* Limits: plans for other lanes than assumed, beyond which what is measured is noise, and plans for
 * another room. */
enum { MOST_PLANS = 4, MOST_FOR_ROOM = 6 };

/* The planned iterations of this trial: returns their number, and the median of their durations. */
static size_t judge_iterations(const struct process *process, uint64_t *median_ns)
{
    const struct ebb_watch_iteration *iterations;
    size_t count = ebb__watch_kept(process->stream.watch, &iterations), taken = 0;
    size_t forgotten = ebb__watch_forgotten(process->stream.watch).iterations;
    size_t first = process->trial.first_iteration;
    first = first > forgotten ? first - forgotten : 0;
    uint64_t *durations = malloc((count - first + 1) * sizeof *durations);
    for (size_t i = first; durations && i < count; i++)
        if (iterations[i].planned)
            durations[taken++] = iterations[i].duration_ns;
    if (taken)
        *median_ns = ebb__median_u64(durations, taken);
    free(durations);
    return taken;
}

/* Notes the stalls of the iterations since the last look. */
static void note_stalls(struct process *process, size_t count)
{
    struct trial *trial = &process->trial;
    const struct ebb_watch_iteration *iterations;
    size_t kept = ebb__watch_kept(process->stream.watch, &iterations);
    uint64_t now_ns = atomic_load(&process->stream.ring->counters.stall_ns);
    uint64_t each_ns = (now_ns - trial->stalled_ns) / (count - trial->looked_at);
    for (size_t behind = count - trial->looked_at; behind > 0; behind--)
        if (behind <= kept && iterations[kept - behind].planned)
            trial->stalls_ns[trial->stall_count++ % TRIAL_STALLS] = each_ns;
    trial->stalled_ns = now_ns;
}

/* The median, the lower one of two: the stalls of an iteration in which plans change may be counted
 * in the next one. A device is behind the calls that tell the iterations. */
static uint64_t judge_stalls(const struct trial *trial)
{
    uint64_t stalls_ns[TRIAL_STALLS];
    size_t count = trial->stall_count < TRIAL_STALLS ? trial->stall_count : TRIAL_STALLS;
    memcpy(stalls_ns, trial->stalls_ns, count * sizeof *stalls_ns);
    ebb__sort_u64(stalls_ns, count);
    return count ? stalls_ns[(count - 1) / 2] : 0;
}

/* Updates the replayed iteration in `learnt` with its current times. */
static struct ebb_profile_iteration *refresh(struct process *process, uint64_t work_ns)
{
    struct ebb_profile *learnt = &process->learnt;
    const struct ebb_watch_iteration *iterations;
    size_t count = ebb__watch_kept(process->stream.watch, &iterations);
    struct ebb_profile_iteration *newest =
        learnt->iteration_count ? &learnt->iterations[learnt->iteration_count - 1] : NULL;
    if (!newest || !count || !iterations[count - 1].planned ||
        ebb__model_count_allocs(&newest->model) != iterations[count - 1].alloc_count)
        return NULL;
    struct ebb_model model; /* fails if its observed events are no longer in the window */
    if (ebb__watch_model(process->stream.watch, &model, NULL, NULL) == EBB_OK) {
        bool is_shorter = ebb__measured_shorten(&model, &newest->model, work_ns);
        struct ebb_model old = is_shorter ? newest->model : model;
        if (is_shorter)
            newest->model = model;
        ebb__model_fini(&old);
    }
    if (process->memory->is_device && ebb__measured_fit(&newest->model, work_ns) != EBB_OK)
        return NULL;
    return newest;
}

/* Plans again with what was measured. work_ns: of an iteration without waits; 0: not known. Returns
 * false if there is no new plan. */
static bool replan(struct ebb_parent *parent, struct process *process,
                   const struct ebb_machine *measured, uint64_t work_ns)
{
    struct ebb_profile_iteration *iteration = refresh(process, work_ns);
    struct ebb_machine assumed = process->memory->lanes.machine;
    if (!iteration)
        return false;
    uint64_t learnt_ns = parent->figures.plan.learnt_iteration_ns;
    process->memory->lanes.machine = *measured;
    if (!ebb__parent_plan(parent, process, &iteration->model, 0)) {
        process->memory->lanes.machine = assumed;
        return false;
    }
    parent->figures.plan.learnt_iteration_ns = learnt_ns;
    parent->figures.plan.replans++;
    process->learnt_anew = true;
    return true;
}

/* CRAMPED: small blocks or other processes hold memory that the plan counts on. The runtime then
 * does not use its static placement. ROOMY: they have released much memory that the plan could not
 * use. */
static enum replan_reason judge_room(struct trial *trial, const struct sent *sent, uint64_t budget,
                                     uint64_t share)
{
    bool is_roomy = sent->script && budget != UINT64_MAX &&
                    share > sent->share_bytes + budget / ebb__tuning()->replan_room_divisor;
    bool is_cramped = sent->peak_bytes > share;
    enum replan_reason room = is_roomy ? REPLAN_ROOMY : is_cramped ? REPLAN_CRAMPED : REPLAN_NONE;
    trial->room_iterations = room == trial->room ? trial->room_iterations + 1 : 1;
    trial->room = room;
    if (trial->room_iterations < ebb__tuning()->replan_room_iterations ||
        trial->room_replans == MOST_FOR_ROOM)
        return REPLAN_NONE;
    return room;
}

/* Plans for the current memory. If there is less than before, subtracts a margin, which doubles
 * each time. */
static bool find_room(struct ebb_parent *parent, struct process *process)
{
    struct trial *trial = &process->trial;
    struct sent *sent = &process->sent;
    uint64_t budget = atomic_load(&process->memory->ledger->budget_bytes);
    uint64_t share = ebb__budget_share(parent, process, budget), before = sent->margin_bytes;
    enum replan_reason reason = judge_room(trial, sent, budget, share);
    if (reason == REPLAN_NONE)
        return false;
    if (reason == REPLAN_CRAMPED) {
        uint64_t lacking = sent->peak_bytes - share;
        sent->margin_bytes = lacking > 2 * before ? lacking : 2 * before;
    }
    trial->room = REPLAN_NONE;
    trial->room_replans++;
    if (!replan(parent, process, &process->memory->lanes.machine, 0)) {
        sent->margin_bytes = before;
        return false;
    }
    trial->before_ns = 0; /* there is no previous plan to return to */
    return true;
}

/* The results of a trial so far. */
struct findings {
    struct ebb_machine measured;
    uint64_t median_ns; /* of planned iterations */
    uint64_t work_ns;   /* of these, without waits */
    bool enough;        /* enough of them have passed */
    bool waits;         /* stalls are longer than predicted */
    bool faster;        /* the program runs faster than assumed */
    bool slower;        /* it is slower than under the previous plan */
};

static struct findings look(const struct process *process, size_t wanted)
{
    const struct trial *trial = &process->trial;
    struct findings found = {0};
    size_t planned = judge_iterations(process, &found.median_ns);
    struct lane_counts now = ebb__measured_counts(process);
    ebb__measured_lanes(&trial->machine, &trial->counts, &now, &found.measured);
    uint64_t stall_ns = judge_stalls(trial);
    found.waits =
        (double)stall_ns > (double)trial->predicted_stall_ns * ebb__tuning()->replan_stall_factor +
                               (double)found.median_ns * ebb__tuning()->replan_stall_share;
    /* The plan assumed the times between uses of observed iterations. */
    found.work_ns = found.median_ns > stall_ns ? found.median_ns - stall_ns : 0;
    found.faster = planned && (double)found.work_ns * (1 + ebb__tuning()->replan_lane_change) <
                                  (double)trial->predicted_work_ns;
    found.slower =
        planned && trial->before_ns && process->sent.script_before &&
        (double)found.median_ns > (double)trial->before_ns * ebb__tuning()->replan_slower;
    found.enough = planned >= wanted / 2;
    return found;
}

static enum replan_reason judge(const struct trial *trial, const struct findings *found)
{
    if (found->slower)
        return REPLAN_BACK;
    if (trial->replans == MOST_PLANS)
        return REPLAN_ENOUGH;
    if (found->waits && found->faster)
        return REPLAN_PACE;
    if (ebb__measured_differ(&trial->machine, &found->measured,
                             found->waits ? ebb__tuning()->replan_worth
                                          : ebb__tuning()->replan_lane_change))
        return REPLAN_LANES;
    return REPLAN_NONE;
}

static void act(struct ebb_parent *parent, struct process *process, enum replan_reason reason,
                const struct findings *found, uint64_t before_ns)
{
    struct trial *trial = &process->trial;
    struct ebb_machine assumed = trial->machine;
    switch (reason) {
    case REPLAN_BACK:
        ebb__trial_set(&trial->state, TRIAL_SETTLED);
        ebb__parent_send_script(process, process->sent.script_before);
        parent->figures.plan.replans++;
        process->memory->lanes.machine = trial->machine_before;
        break;
    case REPLAN_ENOUGH:
        ebb__trial_set(&trial->state, TRIAL_SETTLED);
        break;
    case REPLAN_PACE:
    case REPLAN_LANES:
        trial->replans++;
        if (replan(parent, process, &found->measured, found->work_ns)) {
            trial->before_ns = found->median_ns;
            trial->machine_before = assumed;
        } else {
            trial->before_ns = before_ns;
        }
        break;
    case REPLAN_NONE:
    case REPLAN_CRAMPED:
    case REPLAN_ROOMY:
        break;
    }
}

/* The iteration in which a plan arrives, and the next whole one, are not typical. */
static void wait_for_first(struct process *process, size_t count)
{
    struct trial *trial = &process->trial;
    if (count <= trial->first_iteration + 1)
        return;
    ebb__trial_begin(process);
    ebb__trial_set(&trial->state, TRIAL_RUNNING);
}

static void judge_trial(struct ebb_parent *parent, struct process *process, size_t count)
{
    struct trial *trial = &process->trial;
    size_t wanted = (size_t)ebb__tuning()->replan_wait_iterations << trial->replans;
    size_t seen = count - trial->first_iteration;
    bool early = seen == ebb__tuning()->replan_pace_iterations && trial->replans == 0;
    if (seen < wanted && !early)
        return;
    const struct findings found = look(process, wanted);
    if (early && !(found.waits && found.faster && found.enough))
        return;
    uint64_t before_ns = trial->before_ns;
    ebb__trial_begin(process);
    ebb__trial_set(&trial->state, TRIAL_RUNNING);
    if (!found.enough)
        return;
    trial->before_ns = 0;
    act(parent, process, judge(trial, &found), &found, before_ns);
}

void ebb__replan_consider(struct ebb_parent *parent, struct process *process)
{
    struct trial *trial = &process->trial;
    size_t count = ebb__watch_iterations(process->stream.watch);
    if (count < trial->first_iteration) /* a longer repetition has replaced those iterations */
        ebb__trial_begin(process);
    if (!process->stream.replaying || count <= trial->looked_at)
        return;
    note_stalls(process, count);
    trial->looked_at = count;
    uint64_t small = atomic_load(&process->stream.ring->counters.small_bytes);
    if (small > process->sent.small_bytes)
        process->sent.small_bytes = small;
    if (find_room(parent, process))
        return;
    ebb__plans_tell(parent, process);
    switch (trial->state) {
    case TRIAL_BEGUN:
        wait_for_first(process, count);
        break;
    case TRIAL_RUNNING:
        judge_trial(parent, process, count);
        break;
    case TRIAL_NONE:
    case TRIAL_SETTLED:
    case TRIAL_COUNT:
        break;
    }
}
