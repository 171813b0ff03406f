/* Ebb's own planner: all gaps of all blocks on the cyclic timeline, judged by the simulator.
 *
 * Problem: choose gaps and copy times on two serial lanes. The resident curve of a cyclic iteration
 * must stay within the budget. The stall is minimised first, then the bytes moved. Choosing alone
 * is NP-hard (it contains knapsack).
 * Method: (1) Without a stall (stall_free.c): greedy, then annealing (greedy.c, anneal.c), then
 * useless gaps are dropped. First with a margin before copies in are due, so that jitter makes none
 * late; with less margin if that fails. (2) If that fails: sweeps over the load and choices by rank
 * (sweep.c, ranked.c) give a plan that stalls. The simulator judges. (3) **Stretching**: on the
 * timeline that includes the stalls of the best plan, nothing stalls. Its stalls are reduced, and
 * the search of (1) looks for a choice that still fits. The result stalls less, and the step is
 * repeated. (4) The remaining effort adds or removes one gap at a time, then two. (5) **Pruning**:
 * absences that are not needed are dropped, since every copy costs the program at least processor
 * time. All of this first uses absences that begin and end with clock events. If these do not keep
 * the budget, or stall, other absences are used, too. For the smallest budget without a stall: (1)
 * without a margin; the target is the reached peak. If lanes share their bandwidth, budgets below
 * are bisected by the whole search.
 * Complexity: O(taken * (gaps + cells)) a greedy run, O(cells + taken) a move of the annealing.
 * Fails: nothing is proved; src/lab/bound computes how far from the best a plan may be.
 * Source: greedy and measure after docs/papers.md, AutoSwap; the rest is ours. */
#include "plan/swap/choice.h"

#include "base/tuning.h"

static enum ebb_status search_run(struct search *search)
{
    struct ebb_swap *swap = &search->swap;
    bool possible = swap->request->budget_bytes >= swap->smallest_feasible_bytes;
    uint64_t whole = swap->limit_steps;
    enum ebb_status status = EBB_OK;
    search->target_bytes = swap->request->budget_bytes;
    if (possible) {
        /* Only a part of the effort: plans that stall a little must still be searched. */
        swap->limit_steps -= whole / 5 * 3;
        status = ebb__choice_without_stall(search);
        swap->limit_steps = whole;
    }
    if (status || ebb__choice_is_free_of_stalls(search))
        return status;
    status = ebb__choice_sweeps(search);
    if (status || !possible)
        return status;
    bool small = swap->gap_count <= ebb__tuning()->plan_small_gaps;
    for (uint32_t s = 0; s < ebb__choice_scales(swap) && !status; s++) {
        swap->lane_scale = ebb__lane_scales[s];
        status = ebb__choice_stretched(search, ebb__effort_slice(&swap->effort,
                                                                 whole - whole / (small ? 4 : 10),
                                                                 ebb__choice_scales(swap) - s));
    }
    swap->lane_scale = 1;
    return status || !small ? status : ebb__choice_refine(search);
}

static enum ebb_status plan_one(const struct ebb_plan_request *request, bool within,
                                struct ebb_plan *plan, struct ebb_error *error)
{
    struct search search = {.error = error};
    enum ebb_status status = ebb__choice_init(&search, request, within);
    if (!status)
        status = search_run(&search);
    if (!status)
        status = ebb__choice_prune(&search);
    if (!status) {
        ebb__choice_restore(&search);
        status = ebb__swap_finish(&search.swap, plan, error);
    }
    ebb__choice_fini(&search);
    return status;
}

/* Whether a gap gains from beginning or ending within a stretch. */
static enum ebb_status within_matters(const struct ebb_plan_request *request, bool *matters,
                                      struct ebb_error *error)
{
    struct ebb_swap swap;
    enum ebb_status status = ebb__swap_init_within(&swap, request, error);
    if (status)
        return status;
    *matters = swap.within_count > 0;
    ebb__swap_fini(&swap);
    return EBB_OK;
}

/* Absences that begin and end with clock events are valid at any pace of the program. */
static bool is_worth_within(const struct ebb_plan *whole, const struct ebb_plan *within)
{
    if (whole->feasible != within->feasible)
        return within->feasible;
    if (!whole->feasible)
        return within->peak_bytes < whole->peak_bytes;
    return within->iteration_ns + whole->iteration_ns / ebb__tuning()->within_gain_divisor <
           whole->iteration_ns;
}

enum ebb_status ebb__swap_ebb(const struct ebb_plan_request *request, struct ebb_plan *plan,
                              struct ebb_error *error)
{
    struct ebb_plan_request part = *request;
    struct ebb_plan second = *plan;
    bool matters = false;
    enum ebb_status status = within_matters(request, &matters, error);
    if (matters)
        ebb__plan_request_share(&part, 2);
    if (!status)
        status = plan_one(&part, false, plan, error);
    if (status || !matters || (plan->feasible && plan->stall_ns == 0))
        return status;
    status = plan_one(&part, true, &second, error);
    if (!status && is_worth_within(plan, &second)) {
        struct ebb_plan first = *plan;
        *plan = second;
        second = first;
    }
    plan->plan_ns += second.plan_ns;
    plan->timed_out |= second.timed_out;
    if (second.smallest_feasible_bytes < plan->smallest_feasible_bytes)
        plan->smallest_feasible_bytes = second.smallest_feasible_bytes;
    ebb__plan_fini(&second);
    return status;
}

enum ebb_status ebb__swap_ebb_zero_stall(const struct ebb_plan_request *request,
                                         struct ebb_plan *plan, struct ebb_error *error)
{
    struct search search = {.error = error};
    struct ebb_plan_request own = *request;
    own.budget_bytes = UINT64_MAX / 4; /* until it is known */
    if (own.time_limit_ns == 0 && own.effort_steps == 0)
        own.effort_steps = ebb__tuning()->zero_stall_steps;
    enum ebb_status status = ebb__choice_init(&search, &own, true);
    struct ebb_swap *swap = &search.swap;
    if (!status) {
        /* If trying each gap would take too long: lower the target step by step. */
        bool large = ebb__choice_is_large(swap);
        for (uint64_t peak = ebb__swap_schedule(swap, 0); large && peak > 0;) {
            if (!ebb__greedy_take(&search.greedy, peak - peak / 20, 0))
                break;
            peak -= peak / 20;
        }
        status = ebb__choice_lowest(&search, &own);
    }
    if (!status)
        status = ebb__swap_finish(swap, plan, error);
    ebb__choice_fini(&search);
    /* Lanes that share their bandwidth: (1) counts on a share of it all the time. A search within
     * budgets is judged by the simulator, and so often finds less. */
    if (!status && !request->machine->duplex && plan->stall_ns == 0)
        status = ebb__plan_search_zero_stall(ebb__swap_ebb, request, plan, error);
    return status;
}
