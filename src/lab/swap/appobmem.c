/* AppObMem: evicts in gaps that contain the load's peak, chosen by a majority vote of three scores.
 *
 * Problem: choose the blocks to evict around the one peak of an iteration, from the trace of
 * accesses alone. Method: a candidate is a pair of successive accesses of one block with the peak
 * between them. Candidates are ranked by the sum of their ranks in DOA, AOA and WDOA (scores.h). As
 * many as the budget needs are evicted, over one lane in each direction. An absent block is fetched
 * on access. Source: ACM TACO 2022, doi 10.1145/3535355; docs/papers.md lists the differences.
 * O(gaps log gaps * (gaps + cells)). Fails if the load is high far from its peak: a block has at
 * most one candidate gap, so no choice may meet the budget. */
#include "lab/swap/policies.h"
#include "lab/swap/straddle.h"

static bool is_candidate(const struct ebb_swap *swap, const struct ebb_swap_gap *gap,
                         const void *peak_tick, uint32_t *margin_ticks)
{
    (void)margin_ticks;
    return ebb__swap_straddles_peak(swap, gap, *(const uint32_t *)peak_tick, 0);
}

static const struct ebb_straddle policy = {is_candidate, ebb__straddle_vote, NULL};

enum ebb_status ebb__swap_appobmem(const struct ebb_plan_request *request, struct ebb_plan *plan,
                                   struct ebb_error *error)
{
    return ebb__straddle_make(&policy, request, plan, error);
}

enum ebb_status ebb__swap_appobmem_zero_stall(const struct ebb_plan_request *request,
                                              struct ebb_plan *plan, struct ebb_error *error)
{
    return ebb__straddle_zero_stall(&policy, ebb__swap_appobmem, request, plan, error);
}
