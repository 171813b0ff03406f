/* What a plan assumed and what came of it.
 *
 * Lanes are measured before anything is planned, alone and for a fraction of a second; the first
 * iterations are timed while accesses are observed. Once a plan plays, both are known better: the
 * runtime counts what its lanes move and how long they are busy, and untraced iterations pass. Where
 * the lanes differ markedly from what was assumed, or the program waits markedly longer than was
 * predicted and the lanes or its own pace differ, the same iteration is planned again with what was
 * measured.
 *
 * And it is planned again where the room that the plan was made for is not there any more, or much more.
 *
 * So that this settles: a plan is judged over several iterations and enough bytes, the waits double,
 * there is a last time, and a plan that turns out slower than the one before gives way to it for
 * good. */
#include "base/order.h"
#include "parent/internal.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_WAIT_ITERATIONS 4u /* planned ones, before a plan is judged; doubles. Arbitrary */
/* Its pace is known sooner than its lanes: an iteration tells it. */
#define PACE_ITERATIONS 2u
#define MOST_REPLANS 4u
/* What a lane must have moved to be believed. */
#define LEAST_LANE_BYTES ((uint64_t)64 << 20)
#define LANE_TOLERANCE 0.15
/* Waiting over the prediction that is not worth a thought: so many times it, and of an iteration. */
#define STALL_FACTOR 1.5
#define STALL_TOLERANCE 0.03
/* With inputs that differ by less a planner finds the same again. */
#define WORTHWHILE 0.05
#define SLOWER 1.03
/* Iterations in a row for which the room that a plan was made for is not there; arbitrary. */
#define CRAMPED_ITERATIONS 2u
#define MUCH_ROOM_SHARE 20 /* of the budget, as a divisor: so much more room is worth a plan */
#define MOST_ROOM_REPLANS 6u

static struct lane_counts count_lanes(const struct process *process)
{
    const struct ebb_counters *counters = &process->ring->counters;
    return (struct lane_counts){
        .out_bytes = atomic_load(&counters->out_lane_bytes),
        .in_bytes = atomic_load(&counters->in_lane_bytes),
        .out_busy_ns = atomic_load(&counters->out_busy_ns),
        .in_busy_ns = atomic_load(&counters->in_busy_ns),
        .both_busy_ns = atomic_load(&counters->both_busy_ns),
        .stall_ns = atomic_load(&counters->stall_ns),
    };
}

void ebb__replan_begin(struct ebb_parent *parent, struct process *process)
{
    struct trial *trial = &process->trial;
    trial->counts = count_lanes(process);
    trial->machine = parent->machine;
    trial->predicted_stall_ns = parent->predicted_stall_ns;
    trial->predicted_work_ns = parent->predicted_iteration_ns - parent->predicted_stall_ns;
    trial->first_iteration = trial->looked_at =
        process->watch ? ebb__watch_iterations(process->watch) : 0;
    trial->under_way = false;
}

/* ns a byte of a lane that was `busy_ns` busy; where lanes share their bandwidth, the time in which
 * both were counts half for each. The assumed rate where too little was moved. */
static double measured_rate(uint64_t bytes, uint64_t busy_ns, uint64_t both_ns, bool duplex,
                            double assumed)
{
    if (bytes < LEAST_LANE_BYTES)
        return assumed;
    double ns = (double)busy_ns - (duplex ? 0 : (double)both_ns / 2);
    return ns > 0 ? ns / (double)bytes : assumed;
}

void ebb__replan_lanes(const struct ebb_machine *assumed, const struct lane_counts *from,
                       const struct lane_counts *to, struct ebb_machine *measured)
{
    uint64_t both_ns = to->both_busy_ns - from->both_busy_ns;
    *measured = *assumed;
    measured->out.ns_per_byte =
        measured_rate(to->out_bytes - from->out_bytes, to->out_busy_ns - from->out_busy_ns, both_ns,
                      assumed->duplex, assumed->out.ns_per_byte);
    measured->in.ns_per_byte =
        measured_rate(to->in_bytes - from->in_bytes, to->in_busy_ns - from->in_busy_ns, both_ns,
                      assumed->duplex, assumed->in.ns_per_byte);
}

static bool differs(double assumed, double measured, double tolerance)
{
    return measured > assumed * (1 + tolerance) || measured < assumed / (1 + tolerance);
}

static bool lanes_differ(const struct ebb_machine *a, const struct ebb_machine *b, double tolerance)
{
    return differs(a->out.ns_per_byte, b->out.ns_per_byte, tolerance) ||
           differs(a->in.ns_per_byte, b->in.ns_per_byte, tolerance);
}

/* The planned iterations of this trial: how many, and the median of their durations. */
static size_t judge_iterations(const struct process *process, uint64_t *median_ns)
{
    const struct ebb_watch_iteration *iterations;
    size_t count = ebb__watch_kept(process->watch, &iterations), taken = 0;
    size_t forgotten = ebb__watch_forgotten(process->watch).iterations;
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

/* The next tick with a clock event from `tick` on; tick_count: none. */
static uint32_t clock_from(const struct ebb_model *model, uint32_t tick)
{
    while (tick < model->tick_count && !model->events[tick].clock)
        tick++;
    return tick;
}

/* Accesses may differ, as they do from one observed iteration to the next: only clock events count. */
static bool same_clock(const struct ebb_model *model, const struct ebb_model *other)
{
    uint32_t own = clock_from(model, 0), others = clock_from(other, 0);
    while (own < model->tick_count && others < other->tick_count) {
        const struct ebb_model_event *left = &model->events[own], *right = &other->events[others];
        if (left->kind != right->kind ||
            model->blocks[left->block].size_bytes != other->blocks[right->block].size_bytes)
            return false;
        own = clock_from(model, own + 1);
        others = clock_from(other, others + 1);
    }
    return own == model->tick_count && others == other->tick_count;
}

bool ebb__replan_shorten(struct ebb_model *model, const struct ebb_model *other)
{
    if (model->clock_count != other->clock_count || !same_clock(model, other))
        return false;
    uint64_t *clock_ns = malloc(((size_t)model->clock_count + 1) * sizeof *clock_ns);
    if (!clock_ns)
        return false;
    uint64_t now_ns = 0, last_ns = 0, other_last_ns = 0;
    uint32_t tick = 0, other_tick = 0;
    for (uint32_t clock = 0; clock <= model->clock_count; clock++) {
        tick = clock_from(model, tick);
        other_tick = clock_from(other, other_tick);
        uint64_t own = model->time_ns[tick] - last_ns,
                 others = other->time_ns[other_tick] - other_last_ns;
        now_ns += own < others ? own : others;
        last_ns = model->time_ns[tick++];
        other_last_ns = other->time_ns[other_tick++];
        clock_ns[clock] = now_ns;
    }
    ebb__model_retime(model, clock_ns);
    free(clock_ns);
    return true;
}

/* The iteration that plays, with its times as known now, in place of what is in `learnt`. */
static struct ebb_profile_iteration *refresh(struct process *process)
{
    struct ebb_profile *learnt = &process->learnt;
    const struct ebb_watch_iteration *iterations;
    size_t count = ebb__watch_kept(process->watch, &iterations);
    struct ebb_profile_iteration *newest =
        learnt->iteration_count ? &learnt->iterations[learnt->iteration_count - 1] : NULL;
    if (!newest || !count || !iterations[count - 1].planned ||
        ebb__parent_count_allocs(&newest->model) != iterations[count - 1].alloc_count)
        return NULL;
    struct ebb_model model;
    if (ebb__watch_model(process->watch, &model, NULL, NULL) != EBB_OK)
        return newest; /* what was traced has been forgotten: as it was */
    if (ebb__replan_shorten(&model, &newest->model)) {
        ebb__model_fini(&newest->model);
        newest->model = model;
    } else {
        ebb__model_fini(&model);
    }
    return newest;
}

/* Plan again with what was measured; false: nothing new came of it. */
static bool replan(struct ebb_parent *parent, struct process *process,
                   const struct ebb_machine *measured)
{
    struct ebb_profile_iteration *iteration = refresh(process);
    struct ebb_machine assumed = parent->machine;
    if (!iteration)
        return false;
    parent->machine = *measured;
    if (!ebb__parent_plan(parent, process, &iteration->model, 0)) {
        parent->machine = assumed;
        return false;
    }
    parent->replans++;
    process->learnt_anew = true;
    return true;
}

/* Small blocks, or other processes, have come to hold what the plan counts on: the runtime leaves its
 * addresses alone meanwhile. Plan for less: what is lacking, and each time twice the margin. Or they
 * have let go of much that it could not have: what they kept turned out not to be used. */
static bool find_room(struct ebb_parent *parent, struct process *process)
{
    struct trial *trial = &process->trial;
    uint64_t budget = atomic_load(&parent->ledger->budget_bytes);
    uint64_t share = ebb__parent_share(parent, process, budget);
    bool is_roomy = process->planned_bytes && budget != UINT64_MAX &&
                    share > process->planned_share + budget / MUCH_ROOM_SHARE;
    trial->cramped = process->planned_bytes > share ? trial->cramped + 1 : 0;
    trial->roomy = is_roomy ? trial->roomy + 1 : 0;
    if ((trial->cramped < CRAMPED_ITERATIONS && trial->roomy < CRAMPED_ITERATIONS) ||
        trial->room_replans == MOST_ROOM_REPLANS)
        return false;
    uint64_t before = process->margin_bytes;
    if (!is_roomy) {
        uint64_t lacking = process->planned_bytes - share;
        process->margin_bytes = lacking > 2 * before ? lacking : 2 * before;
    }
    trial->cramped = trial->roomy = 0;
    trial->room_replans++;
    if (!replan(parent, process, &parent->machine)) {
        process->margin_bytes = before;
        return false;
    }
    trial->before_ns = 0; /* the plan before is none to go back to */
    return true;
}

void ebb__replan_consider(struct ebb_parent *parent, struct process *process)
{
    struct trial *trial = &process->trial;
    size_t count = ebb__watch_iterations(process->watch);
    size_t wanted = (size_t)FIRST_WAIT_ITERATIONS << trial->replans;
    if (count < trial->first_iteration) /* a longer repetition has taken their place */
        ebb__replan_begin(parent, process);
    if (!process->playing || count == trial->looked_at)
        return;
    trial->looked_at = count;
    uint64_t small = atomic_load(&process->ring->counters.small_bytes);
    process->small_bytes = small > process->small_bytes ? small : process->small_bytes;
    if (find_room(parent, process) || trial->settled)
        return;
    if (!trial->under_way) {
        /* The iteration in which it came, and the first whole one, are not what follows. */
        if (count > trial->first_iteration + 1) {
            ebb__replan_begin(parent, process);
            trial->under_way = true;
        }
        return;
    }
    size_t seen = count - trial->first_iteration;
    bool early = seen == PACE_ITERATIONS && trial->replans == 0;
    if (seen < wanted && !early)
        return;
    uint64_t median_ns = 0;
    size_t planned = judge_iterations(process, &median_ns);
    struct lane_counts now = count_lanes(process);
    struct ebb_machine measured;
    ebb__replan_lanes(&trial->machine, &trial->counts, &now, &measured);
    uint64_t stall_ns = (now.stall_ns - trial->counts.stall_ns) / (planned ? planned : 1);
    bool waits = (double)stall_ns > (double)trial->predicted_stall_ns * STALL_FACTOR +
                                        (double)median_ns * STALL_TOLERANCE;
    /* What the plan took for the time between uses was that of observed iterations. */
    uint64_t work_ns = median_ns > stall_ns ? median_ns - stall_ns : 0;
    bool faster =
        planned && (double)work_ns * (1 + LANE_TOLERANCE) < (double)trial->predicted_work_ns;
    bool slower = planned && trial->before_ns && process->script_before &&
                  (double)median_ns > (double)trial->before_ns * SLOWER;
    bool enough = planned >= wanted / 2;
    if (early && !(waits && faster && enough))
        return;
    uint64_t before_ns = trial->before_ns;
    ebb__replan_begin(parent, process);
    trial->under_way = true;
    if (!enough)
        return;
    trial->before_ns = 0;
    if (slower) {
        trial->settled = true;
        ebb__parent_send_script(process, process->script_before);
        parent->replans++;
        parent->machine = trial->machine_before;
    } else if (trial->replans == MOST_REPLANS) {
        trial->settled = true;
    } else if ((waits && faster) ||
               lanes_differ(&trial->machine, &measured, waits ? WORTHWHILE : LANE_TOLERANCE)) {
        struct ebb_machine assumed = trial->machine;
        trial->replans++;
        if (replan(parent, process, &measured)) {
            trial->before_ns = median_ns;
            trial->machine_before = assumed;
        } else {
            trial->before_ns = before_ns;
        }
    }
}
