/* AppObMem: evicts in gaps that contain the load's peak, chosen by a majority vote of three scores.
 *
 * Problem: choose the blocks to evict around the one peak of an iteration, from the trace of
 * accesses alone. Method: a candidate is a pair of successive accesses of one block with the peak
 * between them. Candidates are ranked by the sum of their ranks in DOA, AOA and WDOA (scores.h). As
 * many as the budget needs are evicted, over one lane in each direction. What lacks memory beside
 * that is swapped passively, on access (engine.h). `strong` also has the same vote over all gaps,
 * peak by peak, and takes the better plan. Source: ACM TACO 2022, doi 10.1145/3535355;
 * docs/papers.md lists the differences. O(gaps log gaps * (gaps + cells)). Fails if the load is
 * high far from its peak: a block has at most one candidate gap. Most of the swapping there is
 * passive, and the program waits. */
#include "lab/swap/policies.h"
#include "lab/swap/straddle.h"

#include <string.h>

static const struct ebb_straddle policies[] = {
    {ebb__straddle_candidate, false, true, ebb__straddle_vote, NULL},
    {NULL, false, true, ebb__straddle_vote, NULL},
};

/* `strong` uses both, the published policy the first. */
static size_t count_of(const char *name)
{
    return strcmp(name, "appobmem:strong") == 0 ? 2 : 1;
}

enum ebb_status ebb__swap_appobmem(const struct ebb_plan_request *request, struct ebb_plan *plan,
                                   struct ebb_error *error)
{
    return ebb__straddle_make(policies, count_of(plan->policy), request, plan, error);
}

enum ebb_status ebb__swap_appobmem_zero_stall(const struct ebb_plan_request *request,
                                              struct ebb_plan *plan, struct ebb_error *error)
{
    return ebb__straddle_zero_stall(policies, count_of(plan->policy), ebb__swap_appobmem, request,
                                    plan, error);
}
