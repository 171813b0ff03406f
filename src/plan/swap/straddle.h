/* What AppObMem and AutoSwap share: rank the gaps that straddle the load's peak, take the first of
 * them, and put their copies on the lanes in one of two modes. */
#ifndef EBB_PLAN_SWAP_STRADDLE_H
#define EBB_PLAN_SWAP_STRADDLE_H

#include "plan/swap/scores.h"

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

/* Both as plans. `swap` is narrowed to the candidates; its request's budget is not used by the
 * second, which sets plan->budget_bytes. */
EBB_NODISCARD enum ebb_status ebb__straddle_plan(struct ebb_swap_ranking *ranking,
                                                 ebb_swap_ranker rank, const double *weights,
                                                 struct ebb_plan *plan, struct ebb_error *error);
EBB_NODISCARD enum ebb_status ebb__straddle_plan_no_stall(struct ebb_swap_ranking *ranking,
                                                          ebb_swap_ranker rank,
                                                          const double *weights,
                                                          struct ebb_plan *plan,
                                                          struct ebb_error *error);

/* The vote of AutoSwap and AppObMem, as a ranker. */
void ebb__straddle_vote(struct ebb_swap_ranking *ranking, uint64_t limit_bytes,
                        const double *weights);

#endif
