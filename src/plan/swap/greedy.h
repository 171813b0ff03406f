/* A first choice of gaps, fast: what covers most excess per lane time, again and again. */
#ifndef EBB_PLAN_SWAP_GREEDY_H
#define EBB_PLAN_SWAP_GREEDY_H

#include "plan/swap/swap.h"

struct ebb_greedy_use;

struct ebb_greedy {
    struct ebb_swap *swap;
    double *weight;  /* cell_count + 1: prefix sums of the cells' weights */
    double *benefit; /* gap_count */
    struct ebb_greedy_use *uses;
};

/* Into `benefit`: how much each gap that is not taken would cover of what the load exceeds the target
 * by, per lane time. */
void ebb__greedy_merits(struct ebb_greedy *greedy, uint64_t target_bytes);

EBB_NODISCARD enum ebb_status ebb__greedy_init(struct ebb_greedy *greedy, struct ebb_swap *swap,
                                               struct ebb_error *error);
void ebb__greedy_fini(struct ebb_greedy *greedy);

/* Take gaps until the scheduled curve meets `target_bytes`; what was taken before stays. False where
 * it cannot, or at the swap's deadline. */
bool ebb__greedy_take(struct ebb_greedy *greedy, uint64_t target_bytes, uint64_t margin_ns);

/* Drop what the target does not need, dear absences first. */
void ebb__greedy_drop(struct ebb_greedy *greedy, uint64_t target_bytes, uint64_t margin_ns);

#endif
