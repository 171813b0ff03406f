/* vDNN: evicts feature maps between the forward and the backward pass, whatever the budget.
 *
 * Problem: train with feature maps larger than the device, by a fixed rule. Method: `all` evicts
 * each feature map after its use in the forward pass, `conv` only those of convolutions. `dyn`
 * evicts none if the budget holds the load; else it is the faster of both that fits. In the
 * backward pass a map is fetched when the layer begins that reads the map needed before it. If the
 * program has marked its layers, maps are their outputs (layers.h). Otherwise a feature map is a
 * block that the iteration allocates, with a gap that contains the load's peak: there the forward
 * pass ends. A layer then begins where its map is needed. Convolutions have the large maps, so
 * `conv` takes the maps of at least mean size. Source: Rhu et al., MICRO 2016, arXiv 1602.08124;
 * docs/papers.md lists the differences. O(gaps log gaps). Fails in two ways: it evicts all maps
 * even if little memory is missing, and it evicts nothing else. */
#include "lab/swap/layers.h"
#include "lab/swap/policies.h"
#include "lab/swap/scores.h"

#include <string.h>

static bool is_feature_map(const struct ebb_swap *swap, const struct ebb_swap_gap *gap,
                           const void *peak_tick, uint32_t *margin_ticks)
{
    (void)margin_ticks;
    return swap->model->blocks[gap->block].alloc_tick != EBB_TICK_NONE && !gap->drops &&
           ebb__swap_straddles_peak(swap, gap, *(const uint32_t *)peak_tick, 0);
}

static bool is_large(const struct ebb_swap *swap, const struct ebb_swap_gap *gap,
                     const void *least_bytes, uint32_t *margin_ticks)
{
    (void)swap;
    (void)margin_ticks;
    return gap->bytes >= *(const uint64_t *)least_bytes;
}

static uint64_t mean_bytes(const struct ebb_swap *swap)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < swap->gap_count; i++)
        sum += swap->gaps[i].bytes;
    return swap->gap_count ? (sum + swap->gap_count - 1) / swap->gap_count : 0;
}

/* When the work begins that needs the gap's block: its layer's, if layers are known. */
static uint64_t work_ns(const struct ebb_swap *swap, const struct ebb_stages *stages,
                        const struct ebb_swap_gap *gap)
{
    uint32_t tick = gap->to_tick;
    if (stages)
        tick = stages->items[stages->at[tick]].first_tick;
    return swap->model->time_ns[tick] % swap->lap_ns;
}

/* The first event of the backward pass. */
static uint32_t turn_tick(const struct ebb_stages *stages)
{
    uint32_t turn = 0;
    while (turn + 1 < stages->count &&
           (stages->items[turn].phase != EBB_PHASE_BACKWARD ||
            stages->items[ebb__stage_before(stages, turn)].phase == EBB_PHASE_BACKWARD))
        turn++;
    return stages->items[turn].first_tick;
}

/* A copy in starts when the work for the preceding block begins. The first copy starts at the peak,
 * or with the layer before its own. No copy starts before its block fits permanently. */
static void trigger_one_ahead(struct ebb_swap *swap, uint32_t peak_tick,
                              const struct ebb_stages *stages)
{
    uint32_t first = 0, turn = stages ? turn_tick(stages) : peak_tick;
    uint64_t peak_ns = swap->model->time_ns[turn], before_ns = peak_ns;
    ebb__swap_trigger_early(swap, swap->request->budget_bytes);
    while (first < swap->gap_count &&
           swap->gaps[swap->by_due[first]].due_ns % swap->lap_ns <= peak_ns)
        first++;
    uint64_t now_ns = UINT64_MAX;
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        struct ebb_swap_gap *gap = &swap->gaps[swap->by_due[(first + i) % swap->gap_count]];
        uint64_t begin_ns = work_ns(swap, stages, gap);
        if (i == 0 && stages)
            before_ns = swap->model->time_ns[ebb__layers_fetch_tick(stages, gap)] % swap->lap_ns;
        else if (i > 0 && (!stages || begin_ns != now_ns))
            before_ns = now_ns;
        now_ns = begin_ns;
        /* Both are relative to the gap's begin. The gap contains the turn of the passes, and the
         * preceding need. */
        uint64_t ready_ns = gap->ready_ns % swap->lap_ns;
        uint64_t room = (gap->trigger_ns + swap->lap_ns - ready_ns) % swap->lap_ns;
        uint64_t ahead = (before_ns + swap->lap_ns - ready_ns) % swap->lap_ns;
        if (ahead > room && ahead <= gap->need_ns - gap->ready_ns)
            gap->trigger_ns = before_ns;
    }
}

static enum ebb_status make(const struct ebb_plan_request *request, bool only_large,
                            struct ebb_plan *plan, struct ebb_error *error)
{
    struct ebb_swap swap;
    struct ebb_stages stages = {0};
    bool layered = ebb__model_has_layers(request->model);
    enum ebb_status status = ebb__swap_init_within(&swap, request, error);
    if (status)
        return status;
    uint32_t peak_tick = ebb__swap_peak_tick(&swap);
    if (layered)
        status = ebb__stages_init(request->model, &stages, error);
    if (!status && layered)
        status = ebb__swap_narrow(&swap, ebb__layers_is_migrated, &stages, error);
    else if (!status)
        status = ebb__swap_narrow(&swap, is_feature_map, &peak_tick, error);
    if (!status && only_large) {
        uint64_t least_bytes = mean_bytes(&swap);
        status = ebb__swap_narrow(&swap, is_large, &least_bytes, error);
    }
    for (uint32_t i = 0; !status && i < swap.gap_count; i++)
        swap.gaps[i].taken = true;
    if (!status && swap.gap_count)
        trigger_one_ahead(&swap, peak_tick, layered ? &stages : NULL);
    if (!status)
        status = ebb__swap_finish(&swap, plan, error);
    ebb__stages_fini(&stages);
    ebb__swap_fini(&swap);
    return status;
}

/* The first of nothing, large maps and all maps that is feasible; of the last two the faster one.
 * Published is a trial run of each on the device, which the simulator replaces. */
static enum ebb_status make_dynamic(const struct ebb_plan_request *request, struct ebb_plan *plan,
                                    struct ebb_error *error)
{
    const struct ebb_plan blank = *plan;
    struct ebb_plan all = blank;
    enum ebb_status status = ebb__swap_none(request, plan, error);
    if (status || plan->feasible)
        return status;
    uint64_t spent_ns = plan->plan_ns;
    ebb__plan_fini(plan);
    *plan = blank;
    status = make(request, true, plan, error);
    if (!status)
        status = make(request, false, &all, error);
    uint64_t smallest = all.smallest_feasible_bytes;
    spent_ns += plan->plan_ns + all.plan_ns;
    if (!status && all.feasible && (!plan->feasible || all.iteration_ns < plan->iteration_ns)) {
        struct ebb_plan other = *plan;
        *plan = all;
        all = other;
    }
    ebb__plan_fini(&all);
    if (!status && smallest < plan->smallest_feasible_bytes)
        plan->smallest_feasible_bytes = smallest;
    plan->plan_ns = spent_ns;
    return status;
}

enum ebb_status ebb__swap_vdnn(const struct ebb_plan_request *request, struct ebb_plan *plan,
                               struct ebb_error *error)
{
    if (strcmp(plan->policy, "vdnn:dyn") == 0)
        return make_dynamic(request, plan, error);
    return make(request, strcmp(plan->policy, "vdnn:conv") == 0, plan, error);
}
