/* Choices without a stall. First greedy with a margin before copies in are due, so that jitter
 * makes none late. A smaller margin is tried if that fails, then annealing without a margin. */
#include "plan/swap/choice.h"

#include "base/tuning.h"

/* Starting points: first, every gap that is longer than its copies, which is right if the lanes
 * have time for all. Then sweeps over the load at budgets down to the least possible one. */
static void anneal_starts(struct search *search, struct ebb_anneal *anneal)
{
    static const enum ebb_swap_order orders[] = {EBB_SWAP_FIRST_IN, EBB_SWAP_LATEST_NEED,
                                                 EBB_SWAP_CHEAPEST};
    struct ebb_swap *swap = &search->swap;
    ebb__choice_take_none(swap);
    uint64_t most = ebb__swap_schedule(swap, 0), least = swap->smallest_feasible_bytes;
    for (uint32_t u = 0; u < anneal->measure.useful_count; u++)
        swap->gaps[anneal->measure.useful[u]].taken = true;
    ebb__anneal_start(anneal);
    for (uint32_t step = 0; step < (uint32_t)ebb__tuning()->plan_sweeps && most > least; step++) {
        uint64_t budget = least + (most - least) / (uint32_t)ebb__tuning()->plan_sweeps * step;
        for (uint32_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
            ebb__swap_select(swap, budget, orders[i]);
            ebb__anneal_start(anneal);
        }
    }
}

enum ebb_status ebb__choice_anneal(struct search *search, const uint64_t *time_ns,
                                   uint64_t target_bytes, uint64_t limit_steps, enum anneal_way way,
                                   uint64_t *peak_bytes)
{
    struct ebb_swap *swap = &search->swap;
    struct ebb_anneal anneal;
    enum ebb_status status = ebb__anneal_init(&anneal, swap, time_ns, search->error);
    if (status)
        return status;
    ebb__anneal_start(&anneal);
    if (!ebb__choice_is_large(swap))
        ebb__anneal_greedy(&anneal, target_bytes, ebb__effort_slice(&swap->effort, limit_steps, 3));
    if (way != ANNEAL_GO_ON)
        anneal_starts(search, &anneal);
    ebb__anneal_run(&anneal, target_bytes, limit_steps);
    if (way == ANNEAL_LOWEST || anneal.best_peak_bytes <= target_bytes)
        ebb__anneal_take(&anneal, swap);
    *peak_bytes = anneal.best_peak_bytes;
    ebb__anneal_fini(&anneal);
    return EBB_OK;
}

enum ebb_status ebb__choice_without_stall(struct search *search)
{
    struct ebb_swap *swap = &search->swap;
    uint64_t budget = swap->request->budget_bytes;
    uint64_t reserve = budget / ebb__tuning()->reserve_divisor < ebb__tuning()->reserve_most_bytes
                           ? budget / ebb__tuning()->reserve_divisor
                           : ebb__tuning()->reserve_most_bytes;
    uint64_t margin = swap->lap_ns / ebb__tuning()->margin_divisor < ebb__tuning()->margin_most_ns
                          ? swap->lap_ns / ebb__tuning()->margin_divisor
                          : ebb__tuning()->margin_most_ns;
    uint32_t scale_count = ebb__choice_scales(swap);
    const struct {
        uint64_t target, margin;
    } tries[] = {{budget - budget / 50, 2 * margin},
                 {budget - reserve, margin},
                 {budget - reserve, margin / 4},
                 {budget, 0}};
    const uint32_t last = sizeof tries / sizeof tries[0] - 1;
    enum ebb_status status = EBB_OK;
    for (uint32_t i = 0; i <= last && !status && !ebb__choice_is_free_of_stalls(search); i++) {
        for (uint32_t s = 0; s < scale_count && !status && !ebb__choice_is_free_of_stalls(search);
             s++) {
            uint64_t target = tries[i].target, peak;
            swap->lane_scale = ebb__lane_scales[s];
            ebb__choice_take_none(swap);
            bool met = ebb__greedy_take(&search->greedy, target, tries[i].margin);
            search->lean = met;
            if (met)
                ebb__greedy_drop(&search->greedy, target, tries[i].margin);
            if (met)
                ebb__swap_trigger_late(swap);
            if (!met && i == last) {
                status = ebb__choice_anneal(
                    search, swap->model->time_ns, target,
                    ebb__effort_slice(&swap->effort, swap->limit_steps, scale_count - s),
                    ANNEAL_ANEW, &peak);
                met = !status && peak <= target;
            }
            if (!met)
                break;
            status = ebb__choice_judge(search, NULL);
            search->target_bytes = target;
            if (ebb__choice_is_over(search) && search->best.any)
                break;
        }
    }
    swap->lane_scale = 1;
    return status;
}

enum ebb_status ebb__choice_lowest(struct search *search, struct ebb_plan_request *request)
{
    struct ebb_swap *swap = &search->swap;
    uint32_t scale_count = ebb__choice_scales(swap);
    for (uint32_t s = 0; s < scale_count; s++) {
        uint64_t peak;
        swap->lane_scale = ebb__lane_scales[s];
        enum ebb_status status =
            ebb__choice_anneal(search, swap->model->time_ns, swap->smallest_feasible_bytes,
                               ebb__effort_slice(&swap->effort, swap->limit_steps, scale_count - s),
                               ANNEAL_LOWEST, &peak);
        struct ebb_swap_outcome outcome;
        if (!status)
            status = ebb__swap_evaluate(swap, &outcome, search->error);
        if (status)
            return status;
        bool stalls = outcome.iteration_ns > swap->lap_ns;
        const struct ebb_swap_outcome *best = &search->best.outcome;
        if (!search->best.any ||
            (stalls ? outcome.iteration_ns < best->iteration_ns
                    : best->iteration_ns > swap->lap_ns || outcome.peak_bytes < best->peak_bytes))
            ebb__choice_note(search, &outcome);
    }
    request->budget_bytes = search->best.outcome.peak_bytes;
    swap->lane_scale = 1;
    ebb__choice_restore(search);
    return EBB_OK;
}
