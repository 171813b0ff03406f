/* Plans with stalls. Sweeps over the load, judged by the simulator, give a plan that stalls. On the
 * timeline that includes its stalls, nothing stalls. Its stalls are reduced, and a choice that
 * still fits is searched. The result stalls less, and the step is repeated. */
#include "plan/swap/choice.h"

#include "base/tuning.h"

#define STRETCHES_MAX 64

static enum ebb_status judge_early(struct search *search)
{
    ebb__swap_trigger_early(&search->swap, search->swap.request->budget_bytes);
    return ebb__choice_judge(search, NULL);
}

/* Judges the choice under the three ways to time copies in. */
static enum ebb_status judge_all(struct search *search, bool *better)
{
    uint64_t budget = search->swap.request->budget_bytes;
    bool won;
    *better = false;
    for (int way = 0; way < 3; way++) {
        if (way == 1) {
            ebb__swap_schedule(&search->swap, 0);
            ebb__swap_trigger_limit(&search->swap, budget);
        }
        if (way == 2)
            ebb__swap_trigger_early(&search->swap, budget);
        enum ebb_status status = ebb__choice_judge(search, &won);
        if (status)
            return status;
        *better |= won;
    }
    return EBB_OK;
}

/* Lanes that share their bandwidth: a choice below the budget may leave them the time that it
 * needs more. Judges the ranked choices at lower limits whose schedule fits. */
static enum ebb_status judge_lower(struct search *search, enum ebb_swap_rank rank)
{
    struct ebb_swap *swap = &search->swap;
    uint64_t budget = swap->request->budget_bytes, least = swap->smallest_feasible_bytes;
    uint32_t sweeps = (uint32_t)ebb__tuning()->plan_sweeps;
    for (uint32_t step = 1; step < sweeps && budget > least; step++) {
        if (ebb__choice_is_over(search) || ebb__choice_is_free_of_stalls(search))
            break;
        ebb__swap_select_ranked(swap, budget - (budget - least) / sweeps * step, rank);
        if (ebb__swap_schedule(swap, 0) > budget)
            continue;
        ebb__swap_trigger_late(swap);
        enum ebb_status status = ebb__choice_judge(search, NULL);
        if (status)
            return status;
    }
    return EBB_OK;
}

enum ebb_status ebb__choice_sweeps(struct search *search)
{
    static const enum ebb_swap_order orders[] = {EBB_SWAP_FIRST_IN, EBB_SWAP_LATEST_NEED,
                                                 EBB_SWAP_CHEAPEST};
    for (uint32_t i = 0; i < 3 && (i == 0 || !ebb__choice_is_over(search)); i++) {
        ebb__swap_select(&search->swap, search->swap.request->budget_bytes, orders[i]);
        enum ebb_status status = judge_early(search);
        if (status)
            return status;
    }
    for (int rank = 0; rank < EBB_SWAP_RANKS && !ebb__choice_is_over(search); rank++) {
        bool better;
        ebb__swap_select_ranked(&search->swap, search->swap.request->budget_bytes,
                                (enum ebb_swap_rank)rank);
        ebb__swap_schedule(&search->swap, 0);
        ebb__swap_trigger_late(&search->swap);
        enum ebb_status status = judge_all(search, &better);
        if (!status && ebb__choice_scales(&search->swap) > 1)
            status = judge_lower(search, (enum ebb_swap_rank)rank);
        if (status)
            return status;
    }
    return EBB_OK;
}

/* Makes the model's timeline with stalls. Each stall of the best plan is scaled by `share`; their
 * sum, scaled by `even`, is spread over the whole timeline. Returns the added time. */
static uint64_t stretch(struct search *search, double share, double even)
{
    const struct ebb_swap *swap = &search->swap;
    const uint64_t *time_ns = swap->model->time_ns;
    double stalls = 0, all = (double)(search->best.outcome.iteration_ns - swap->lap_ns);
    for (uint32_t t = 0; t <= swap->cell_count; t++) {
        if (t < swap->cell_count)
            stalls += (double)search->best_stall_ns[t] * share;
        double spread = all * even * ((double)time_ns[t] / (double)swap->lap_ns);
        search->stretched_ns[t] = time_ns[t] + (uint64_t)(stalls + spread);
    }
    return search->stretched_ns[swap->cell_count] - swap->lap_ns;
}

enum ebb_status ebb__choice_stretched(struct search *search, uint64_t limit_steps)
{
    struct ebb_swap *swap = &search->swap;
    struct ebb_effort *effort = &swap->effort;
    uint64_t budget = swap->request->budget_bytes;
    uint64_t slice = limit_steps > effort->spent ? (limit_steps - effort->spent) / 12 : 0;
    double low = 0, high = 1; /* shares of the stalls */
    for (int i = 0; i < STRETCHES_MAX && high - low > 0.002; i++) {
        uint64_t peak;
        if (ebb__effort_is_over(effort, limit_steps) || ebb__choice_is_free_of_stalls(search) ||
            !search->best.outcome.feasible)
            break;
        double share = i < 2 ? 0.9 : (low + high) / 2, even = i % 3 == 2 ? share : 0;
        ebb__choice_restore(search);
        stretch(search, share - even, even);
        uint64_t end = effort->spent + slice < limit_steps ? effort->spent + slice : limit_steps;
        enum ebb_status status =
            ebb__choice_anneal(search, search->stretched_ns, budget, end, ANNEAL_GO_ON, &peak);
        bool better = false;
        uint64_t before_ns = search->best.outcome.iteration_ns - swap->lap_ns;
        if (!status && peak <= budget)
            status = judge_all(search, &better);
        if (status)
            return status;
        if (better) {
            /* The same bounds, as shares of the remaining stalls. */
            uint64_t after_ns = search->best.outcome.iteration_ns - swap->lap_ns;
            low = after_ns ? low * (double)before_ns / (double)after_ns : 0;
            low = low < 0.98 ? low : 0.98;
            high = 1;
        } else if (peak > budget) {
            low = share;
        } else {
            high = share;
        }
    }
    return EBB_OK;
}
