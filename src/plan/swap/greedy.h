/* A fast first choice of gaps: repeatedly takes the gap that covers most excess per lane time. */
#ifndef EBB_PLAN_SWAP_GREEDY_H
#define EBB_PLAN_SWAP_GREEDY_H

#include "plan/swap/swap.h"

struct ebb_greedy_use;

struct ebb_greedy {
    struct ebb_swap *swap;
    double *weight;  /* cell_count + 1: prefix sums of the cells' weights */
    double *benefit; /* gap_count: benefit of each gap */
    struct ebb_greedy_use *uses;
};

/* Fills `benefit`: for each gap not taken, the excess of the load over the target that it would
 * cover, per lane time. */
void ebb__greedy_merits(struct ebb_greedy *greedy, uint64_t target_bytes);

EBB_NODISCARD enum ebb_status ebb__greedy_init(struct ebb_greedy *greedy, struct ebb_swap *swap,
                                               struct ebb_error *error);
void ebb__greedy_fini(struct ebb_greedy *greedy);

/* Takes further gaps until the scheduled curve is within `target_bytes`. Returns false if that is
 * impossible, or at the swap's deadline. */
bool ebb__greedy_take(struct ebb_greedy *greedy, uint64_t target_bytes, uint64_t margin_ns);

/* Drops gaps that the target does not need, expensive ones first. */
void ebb__greedy_drop(struct ebb_greedy *greedy, uint64_t target_bytes, uint64_t margin_ns);

#endif
