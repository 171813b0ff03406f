/* Collects the gaps, chooses the instants of the linear program, and decides when to stop.
 *
 * Problem: the linear program over all ticks is too large, and over few instants it is weak.
 * Method: start with the worst tick of each of a few equal spans of time and solve. Interpolate the
 * relaxed solution; in each span between instants where it exceeds the bound, the worst tick
 * becomes an instant. Repeat. Every solution is a bound, so the search may stop at any time with
 * the best one. At most GAPS_MAX gaps are kept, those with the most bytes times duration. The
 * others count as absent at no cost, which only weakens the bound. */
#include "base/effort.h"
#include "base/tuning.h"
#include "lab/bound/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define INSTANTS_FIRST 24 /* solved in milliseconds */
#define INSTANTS_MAX 1024 /* a limit: more instants cost more than they gain */
#define GROWTH_POWER 2.5  /* measured: the effort grows with this power of the instants */
#define GAPS_MAX 20000    /* a limit: gaps are grouped, but each costs time */
#define CHECK_SLACK_NS 2  /* the checker accepts a copy that is this much too short */
#define GAIN_LEAST 0.0005 /* the search stops after a round with a smaller relative gain */

/* Adds `bytes`, which may be negative as two's complement, at the ticks [first, first + count),
 * cyclic. `load` has differences until load_sum(). *always has the bytes before tick 0. */
static void load_add(uint64_t *load, uint64_t *always, uint32_t ticks, uint32_t first,
                     uint32_t count, uint64_t bytes)
{
    *always += count / ticks * bytes;
    count %= ticks;
    if (count == 0)
        return;
    uint32_t last = (uint32_t)(((uint64_t)first + count) % ticks);
    load[first] += bytes;
    load[last] -= bytes;
    if (last <= first)
        *always += bytes;
}

static uint64_t load_sum(uint64_t *load, uint64_t always, uint32_t ticks)
{
    uint64_t most = 0;
    for (uint32_t t = 0; t < ticks; t++) {
        always += load[t];
        load[t] = always;
        most = always > most ? always : most;
    }
    return most;
}

static uint64_t lane_least_ns(const struct ebb_lane *lane, uint64_t bytes)
{
    uint64_t ns = ebb__lane_ns(lane, bytes);
    return ns > CHECK_SLACK_NS ? ns - CHECK_SLACK_NS : 0;
}

/* Makes the gap as a plan may use it. False if no plan may use it. */
static bool gap_make(const struct ebb_bound *bound, const struct ebb_gap *source,
                     const uint32_t *before, const uint32_t *after, struct ebb_bound_gap *gap)
{
    const struct ebb_model *model = bound->model;
    const struct ebb_plan_request *request = bound->request;
    const struct ebb_model_block *block = &model->blocks[source->block];
    uint32_t ticks = model->tick_count, ready = after[source->from_tick];
    if (block->access_count == 0 || block->size_bytes == 0 ||
        block->size_bytes < request->smallest_block_bytes)
        return false;
    /* A gap of a whole iteration or more would need two absences at once. */
    if (block->span_ticks > ticks && (request->newest_only || source->length_ns >= bound->lap_ns))
        return false;
    uint32_t to_ready =
        ready > source->from_tick ? ready - source->from_tick : ready + ticks - source->from_tick;
    uint32_t to_need = source->to_tick > source->from_tick
                           ? source->to_tick - source->from_tick
                           : source->to_tick + ticks - source->from_tick;
    if (to_ready >= to_need)
        return false;
    ready = ebb__plan_use_over(model, before, source->from_tick, ready);
    to_ready =
        ready > source->from_tick ? ready - source->from_tick : ready + ticks - source->from_tick;
    uint64_t bytes = ebb__plan_block_bytes(request, block);
    *gap = (struct ebb_bound_gap){
        .bytes = bytes,
        .ready_ns = model->time_ns[ready],
        .need_ns = model->time_ns[source->to_tick] + (source->to_tick <= ready ? bound->lap_ns : 0),
        .out_ns = lane_least_ns(&request->machine->out, bytes),
        .in_ns = source->ends_in_free ? 0 : lane_least_ns(&request->machine->in, bytes),
        .first = ready,
        .count = to_need - to_ready,
        .drops = source->ends_in_free,
    };
    return true;
}

static int area_compare(const void *left, const void *right)
{
    const struct ebb_bound_gap *a = left, *b = right;
    double a_area = (double)a->bytes * (double)(a->need_ns - a->ready_ns);
    double b_area = (double)b->bytes * (double)(b->need_ns - b->ready_ns);
    return (a_area < b_area) - (a_area > b_area);
}

/* True if the block may have a valid copy in the store when the gap begins. It is then only read
 * since the end of the gap before, in which it may have been evicted. */
static bool may_be_clean(const struct ebb_model *model, const struct ebb_gap *gap)
{
    const struct ebb_model_block *block = &model->blocks[gap->block];
    const struct ebb_model_access *uses = &model->accesses[block->first_access];
    bool persistent = block->alloc_tick == EBB_TICK_NONE;
    for (uint32_t i = 0; i < block->access_count; i++)
        if (uses[i].tick == gap->from_tick)
            return uses[i].access == EBB_ACCESS_READ && (i > 0 || persistent);
    return false;
}

enum ebb_status ebb__bound_init(struct ebb_bound *bound, const struct ebb_plan_request *request,
                                enum ebb_bound_copies copies, bool stalls, struct ebb_error *error)
{
    const struct ebb_model *model = request->model;
    uint32_t ticks = model->tick_count;
    *bound = (struct ebb_bound){.request = request, .model = model};
    if (ticks == 0 || ebb__model_iteration_ns(model) == 0)
        return ebb__fail(error, EBB_ERR_ARGUMENT, "bound", "the model has no events or no time");
    bound->lap_ns = ebb__model_iteration_ns(model);
    uint32_t *before = ebb__model_clocks_before(model), *after = ebb__model_clocks_after(model);
    uint64_t *least = calloc(ticks, sizeof *least);
    bound->load = calloc(ticks, sizeof *bound->load);
    bound->gaps = malloc((model->gap_count + 1u) * sizeof *bound->gaps);
    enum ebb_status status = EBB_ERR_MEMORY;
    if (!before || !after || !least || !bound->load || !bound->gaps)
        goto out;
    uint64_t always = 0, least_always;
    for (uint32_t b = 0; b < model->block_count; b++) {
        const struct ebb_model_block *block = &model->blocks[b];
        bool persistent = block->alloc_tick == EBB_TICK_NONE;
        load_add(bound->load, &always, ticks, persistent ? 0 : block->alloc_tick,
                 persistent ? ticks : block->span_ticks, ebb__plan_block_bytes(request, block));
    }
    for (uint32_t i = 0; i < model->gap_count; i++) {
        struct ebb_bound_gap gap;
        if (!gap_make(bound, &model->gaps[i], before, after, &gap))
            continue;
        if (copies == EBB_BOUND_DIRTY && may_be_clean(model, &model->gaps[i]))
            gap.out_ns = 0;
        if (stalls || gap.need_ns - gap.ready_ns >= gap.out_ns + gap.in_ns)
            bound->gaps[bound->gap_count++] = gap;
    }
    memcpy(least, bound->load, ticks * sizeof *least);
    least_always = always;
    qsort(bound->gaps, bound->gap_count, sizeof *bound->gaps, area_compare);
    uint32_t kept = bound->gap_count < GAPS_MAX ? bound->gap_count : GAPS_MAX;
    for (uint32_t i = 0; i < bound->gap_count; i++) {
        const struct ebb_bound_gap *gap = &bound->gaps[i];
        load_add(least, &least_always, ticks, gap->first, gap->count, 0 - gap->bytes);
        if (i >= kept)
            load_add(bound->load, &always, ticks, gap->first, gap->count, 0 - gap->bytes);
    }
    bound->gap_count = kept;
    bound->floor_bytes = load_sum(least, least_always, ticks);
    load_sum(bound->load, always, ticks);
    status = EBB_OK;
out:
    free(before);
    free(after);
    free(least);
    return status ? ebb__fail(error, status, "bound", "out of memory") : EBB_OK;
}

void ebb__bound_fini(struct ebb_bound *bound)
{
    free(bound->load);
    free(bound->gaps);
}

/* The chosen instants. worst_join() adds the tick with the highest load above `target` in each
 * span. A span is a part of the time if `spans`, else it lies between two instants. Returns how
 * many were added. */
struct instants {
    uint32_t *ticks;
    uint32_t count;
    bool *chosen;        /* by tick */
    uint32_t spans;      /* the time was last divided into this many spans */
    double value_before; /* the bound at that division */
};

static uint32_t worst_join(struct instants *instants, const struct ebb_bound *bound,
                           const double *absent, double target, uint32_t spans)
{
    const struct ebb_model *model = bound->model;
    uint32_t ticks = model->tick_count, joined = 0, worst = EBB_TICK_NONE;
    double worst_excess = 0;
    uint64_t span = 0;
    for (uint32_t t = 0; t <= ticks; t++) {
        uint64_t now = spans && t < ticks ? model->time_ns[t] / (bound->lap_ns / spans + 1) : 0;
        bool ends = t == ticks || (spans ? now != span : instants->chosen[t]);
        if (ends && worst != EBB_TICK_NONE) {
            instants->chosen[worst] = true;
            joined++;
            worst = EBB_TICK_NONE;
            worst_excess = 0;
        }
        span = now;
        if (t == ticks || instants->chosen[t])
            continue;
        double excess = (double)bound->load[t] - (absent ? absent[t] : 0) - target;
        if (excess > worst_excess) {
            worst_excess = excess;
            worst = t;
        }
    }
    instants->count = 0;
    for (uint32_t t = 0; t < ticks; t++)
        if (instants->chosen[t])
            instants->ticks[instants->count++] = t;
    return joined;
}

/* Adds instants where the solution exceeds the bound. If there are none, divides the time into more
 * spans, as long as the last division gained something. False: no instant was added. */
static bool instants_grow(struct instants *instants, const struct ebb_bound *bound,
                          const double *absent, double target, double value)
{
    if (worst_join(instants, bound, absent, target, 0) > 0)
        return true;
    if (value <= instants->value_before * (1 + GAIN_LEAST))
        return false;
    instants->value_before = value;
    instants->spans *= 2;
    return worst_join(instants, bound, NULL, -1, instants->spans) > 0;
}

static enum ebb_status bound_search(struct ebb_bound *bound, bool stalls, uint64_t effort_steps,
                                    double *best, struct ebb_error *error)
{
    uint32_t ticks = bound->model->tick_count;
    struct ebb_effort effort = ebb__effort(effort_steps, ebb__tuning()->plan_box_ns);
    double target = stalls ? (double)bound->request->budget_bytes : 0;
    struct instants instants = {.ticks = malloc(ticks * sizeof *instants.ticks),
                                .chosen = calloc(ticks, sizeof *instants.chosen),
                                .spans = INSTANTS_FIRST};
    double *absent = malloc(ticks * sizeof *absent);
    enum ebb_status status = EBB_ERR_MEMORY;
    *best = stalls ? 0 : (double)bound->floor_bytes;
    if (!instants.ticks || !instants.chosen || !absent)
        goto out;
    status = EBB_OK;
    bool more = worst_join(&instants, bound, NULL, -1, instants.spans) > 0;
    double took = 0, instants_before = 0;
    while (more && instants.count <= INSTANTS_MAX) {
        /* Do not begin a program that would not finish: an unfinished one is useless. */
        uint64_t now_ns = ebb__now_ns(), left = effort.limit - effort.spent;
        double growth = instants_before > 0 ? (double)instants.count / instants_before : 1;
        if (now_ns >= effort.deadline_ns || took * pow(growth, GROWTH_POWER) > (double)left)
            break;
        instants_before = (double)instants.count;
        struct ebb_bound_program program = {.bound = bound,
                                            .instants = instants.ticks,
                                            .instant_count = instants.count,
                                            .stalls = stalls,
                                            .steps = left,
                                            .box_s = (double)(effort.deadline_ns - now_ns) / 1e9,
                                            .absent = absent};
        status = ebb__bound_solve(&program, error);
        took = (double)program.spent;
        effort.spent += program.spent < left ? program.spent : left;
        *best = !status && program.value > *best ? program.value : *best;
        more = !status && program.solved &&
               instants_grow(&instants, bound, absent,
                             stalls ? target : program.value + (double)bound->floor_bytes / 1e5,
                             program.value);
    }
out:
    free(instants.ticks);
    free(instants.chosen);
    free(absent);
    return status == EBB_ERR_MEMORY ? ebb__fail(error, status, "bound", "out of memory") : status;
}

/* Rounds a certified value down by a safe margin: sums of doubles err in the 12th digit. */
static uint64_t value_round(double value)
{
    double safe = value * (1 - 1e-9) - 1;
    return safe > 0 ? (uint64_t)ceil(safe) : 0;
}

enum ebb_status ebb__bound_floor(const struct ebb_plan_request *request, uint64_t *bytes,
                                 struct ebb_error *error)
{
    struct ebb_bound bound;
    enum ebb_status status = ebb__bound_init(&bound, request, EBB_BOUND_ALL, true, error);
    if (!status)
        *bytes = bound.floor_bytes;
    ebb__bound_fini(&bound);
    return status;
}

enum ebb_status ebb__bound_peak(const struct ebb_plan_request *request,
                                enum ebb_bound_copies copies, uint64_t effort_steps,
                                uint64_t *bytes, struct ebb_error *error)
{
    struct ebb_bound bound;
    double value = 0;
    enum ebb_status status = ebb__bound_init(&bound, request, copies, false, error);
    if (!status)
        status = bound_search(&bound, false, effort_steps, &value, error);
    if (!status) {
        uint64_t rounded = value_round(value);
        *bytes = rounded > bound.floor_bytes ? rounded : bound.floor_bytes;
    }
    ebb__bound_fini(&bound);
    return status;
}

enum ebb_status ebb__bound_stall(const struct ebb_plan_request *request,
                                 enum ebb_bound_copies copies, uint64_t effort_steps,
                                 uint64_t *stall_ns, struct ebb_error *error)
{
    struct ebb_bound bound;
    double value = 0;
    enum ebb_status status = ebb__bound_init(&bound, request, copies, true, error);
    if (!status && request->budget_bytes < bound.floor_bytes) {
        *stall_ns = UINT64_MAX;
        status = EBB_INFEASIBLE;
    } else if (!status) {
        status = bound_search(&bound, true, effort_steps, &value, error);
        if (!status)
            *stall_ns = value_round(value);
    }
    ebb__bound_fini(&bound);
    return status;
}
