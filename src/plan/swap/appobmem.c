/* AppObMem: the gaps that straddle the load's peak, by a majority vote of three scores.
 *
 * Problem: which blocks to move away around the one peak of an iteration, knowing nothing but the
 * trace of accesses. Method: candidates are pairs of successive accesses of one block with the peak
 * between them, ranked by the sum of their ranks in DOA, AOA and WDOA (scores.h); as many leave as
 * the budget demands, over one lane each way; what is missing is fetched on access.
 * Source: ACM TACO 2022, doi 10.1145/3535355; departures in docs/papers.md.
 * O(gaps log gaps * (gaps + cells)). Fails where the load is high anywhere but around its peak: a
 * block has one gap there at most, so the budget may be out of reach. */
#include "plan/swap/straddle.h"

static bool is_candidate(const struct ebb_swap *swap, const struct ebb_swap_gap *gap,
                         const void *peak_tick, uint32_t *guard_ticks)
{
    (void)guard_ticks;
    return ebb__swap_straddles_peak(swap, gap, *(const uint32_t *)peak_tick, 0);
}

static enum ebb_status plan_make(const struct ebb_plan_request *request, bool no_stall,
                                 struct ebb_plan *plan, struct ebb_error *error)
{
    struct ebb_swap swap;
    struct ebb_swap_ranking ranking = {0};
    enum ebb_status status = ebb__swap_init(&swap, request, error);
    if (status)
        return status;
    uint32_t peak_tick = ebb__swap_peak_tick(&swap);
    status = ebb__swap_narrow(&swap, is_candidate, &peak_tick, error);
    if (!status)
        status = ebb__ranking_init(&ranking, &swap, error);
    if (!status && no_stall)
        status = ebb__straddle_plan_no_stall(&ranking, ebb__straddle_vote, NULL, plan, error);
    else if (!status)
        status = ebb__straddle_plan(&ranking, ebb__straddle_vote, NULL, plan, error);
    ebb__ranking_fini(&ranking);
    ebb__swap_fini(&swap);
    return status;
}

enum ebb_status ebb__swap_appobmem(const struct ebb_plan_request *request, struct ebb_plan *plan,
                                   struct ebb_error *error)
{
    return plan_make(request, false, plan, error);
}

enum ebb_status ebb__swap_appobmem_zero_stall(const struct ebb_plan_request *request,
                                              struct ebb_plan *plan, struct ebb_error *error)
{
    enum ebb_status status = plan_make(request, true, plan, error);
    return status ? status : ebb__plan_search_zero_stall(request, plan, error);
}
