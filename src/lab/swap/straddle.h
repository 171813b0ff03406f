/* What AppObMem and AutoSwap share: rank the gaps that straddle the load's peak, take the first of
 * them, and put their copies on the lanes in one of two modes. */
#ifndef EBB_LAB_SWAP_STRADDLE_H
#define EBB_LAB_SWAP_STRADDLE_H

#include "lab/swap/scores.h"

/* Compute what a ranking needs for a limit, and order it; `weights` where it goes by weights. */
typedef void (*ebb_swap_ranker)(struct ebb_swap_ranking *ranking, uint64_t limit_bytes,
                                const double *weights);

/* Stick to the limit: take what the request's budget demands; outs by earliest start, ins by latest
 * start backwards but not before there is room for good. What does not fit waits. True where the
 * ideal curve meets the budget. */
bool ebb__straddle_stick(struct ebb_swap_ranking *ranking, ebb_swap_ranker rank,
                         const double *weights);

/* No stall: of many limits the one for which the curve as scheduled has the lowest peak. Leaves its
 * gaps taken, their copies in as late as they may, and *limit_bytes; returns that peak. */
uint64_t ebb__straddle_no_stall(struct ebb_swap_ranking *ranking, ebb_swap_ranker rank,
                                const double *weights, uint64_t *limit_bytes);

/* A policy of this kind. */
struct ebb_straddle {
    ebb_swap_choice is_candidate; /* its context: the peak's tick, const uint32_t * */
    ebb_swap_ranker rank;
    /* Find EBB_SCORE_COUNT weights for the ranker; NULL: it needs none. */
    enum ebb_status (*weigh)(struct ebb_swap_ranking *ranking, bool no_stall, double *weights,
                             struct ebb_error *error);
};

/* Plan by the policy within the request's budget: stuck to the limit, or in the no-stall mode where
 * that stalls and this does not. As ebb__plan_make(). */
EBB_NODISCARD enum ebb_status ebb__straddle_make(const struct ebb_straddle *policy,
                                                 const struct ebb_plan_request *request,
                                                 struct ebb_plan *plan, struct ebb_error *error);

/* By the no-stall mode, then by bisection from there, with plans that `make_within` makes. As
 * ebb__plan_zero_stall(). */
EBB_NODISCARD enum ebb_status ebb__straddle_zero_stall(const struct ebb_straddle *policy,
                                                       ebb_planner make_within,
                                                       const struct ebb_plan_request *request,
                                                       struct ebb_plan *plan,
                                                       struct ebb_error *error);

/* The vote of AutoSwap and AppObMem, as a ranker. */
void ebb__straddle_vote(struct ebb_swap_ranking *ranking, uint64_t limit_bytes,
                        const double *weights);

#endif
