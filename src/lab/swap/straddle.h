/* The common part of AppObMem and AutoSwap. It ranks the gaps at the load's peak, takes
 * the first of them, and schedules their copies on the lanes in one of two modes. */
#ifndef EBB_LAB_SWAP_STRADDLE_H
#define EBB_LAB_SWAP_STRADDLE_H

#include "lab/swap/scores.h"

/* Computes the scores that the ranking needs for a limit, and orders the gaps. `weights` is used
 * only if the order is by weights. */
typedef void (*ebb_swap_ranker)(struct ebb_swap_ranking *ranking, uint64_t limit_bytes,
                                const double *weights);

/* Mode "stick to the limit": takes the gaps that the request's budget needs. Copies out start as
 * early as possible. Copies in start as late as possible, but not before the block fits
 * permanently. A copy that does not fit waits. True if the ideal curve meets the budget. */
bool ebb__straddle_stick(struct ebb_swap_ranking *ranking, ebb_swap_ranker rank,
                         const double *weights);

/* Mode "no stall": tries many limits and chooses the one whose scheduled curve has the lowest peak.
 * Takes the gaps of that limit, with the latest possible copies in. Sets *limit_bytes to the limit
 * and returns the peak. */
uint64_t ebb__straddle_no_stall(struct ebb_swap_ranking *ranking, ebb_swap_ranker rank,
                                const double *weights, uint64_t *limit_bytes);

/* A policy of this kind. */
struct ebb_straddle {
    ebb_swap_choice is_candidate; /* its context is the peak's tick, a const uint32_t *; NULL: every
                                     gap is a candidate, and gaps are taken peak by peak */
    bool scripts;                 /* scores as in AutoSwap's public scripts (scores.h) */
    bool passive;                 /* its engine swaps passively, too (engine.h) */
    ebb_swap_ranker rank;
    /* Finds EBB_SCORE_COUNT weights for the ranker; NULL: it needs none. */
    enum ebb_status (*weigh)(struct ebb_swap_ranking *ranking, bool no_stall, double *weights,
                             struct ebb_error *error);
};

/* Plans by each of the policies within the request's budget and keeps the best plan. Uses the mode
 * "stick to the limit". If that plan stalls, uses the mode "no stall" if it finds a plan. Otherwise
 * as ebb__plan_make(). */
EBB_NODISCARD enum ebb_status ebb__straddle_make(const struct ebb_straddle *policies, size_t count,
                                                 const struct ebb_plan_request *request,
                                                 struct ebb_plan *plan, struct ebb_error *error);

/* A choice without a least size and without a guard. */
bool ebb__straddle_candidate(const struct ebb_swap *swap, const struct ebb_swap_gap *gap,
                             const void *peak_tick, uint32_t *margin_ticks);

/* As ebb__plan_zero_stall(): starts with the mode "no stall", then bisects the budget with plans of
 * `make_within`. */
EBB_NODISCARD enum ebb_status ebb__straddle_zero_stall(const struct ebb_straddle *policies,
                                                       size_t count, ebb_planner make_within,
                                                       const struct ebb_plan_request *request,
                                                       struct ebb_plan *plan,
                                                       struct ebb_error *error);

/* The ranker that votes by three scores, for AutoSwap and AppObMem. */
void ebb__straddle_vote(struct ebb_swap_ranking *ranking, uint64_t limit_bytes,
                        const double *weights);

#endif
