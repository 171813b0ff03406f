/* AppObMem: the gaps that straddle the load's peak, by a majority vote of three scores.
 *
 * Problem: which blocks to evict around the one peak of an iteration, knowing nothing but the trace
 * of accesses. Method: candidates are pairs of successive accesses of one block with the peak
 * between them, ranked by the sum of their ranks in DOA, AOA and WDOA (scores.h); as many are
 * evicted as the budget demands, over one lane each way; what is missing is fetched on access.
 * Source: ACM TACO 2022, doi 10.1145/3535355; departures in docs/papers.md. O(gaps log gaps * (gaps
 * + cells)). Fails where the load is high anywhere but around its peak: a block has one gap there
 * at most, so the budget may be out of reach. */
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
