/* Searches for the choice of gaps that needs least memory on a given timeline, without a stall.
 *
 *     struct ebb_anneal anneal;
 *     status = ebb__anneal_init(&anneal, &swap, swap.model->time_ns, margin_ns, &error);
 *     ebb__anneal_start(&anneal);                            (from the gaps taken in swap)
 *     ebb__anneal_greedy(&anneal, target_bytes, limit_steps);
 *     ebb__anneal_run(&anneal, target_bytes, limit_steps);   (repeatedly)
 *     ebb__anneal_take(&anneal, &swap);                      (the best choice is taken in swap)
 *     ebb__anneal_fini(&anneal);
 *
 * The timeline may be longer than the model's own: the difference stands for expected stalls. Lanes
 * that share bandwidth are assumed slower than they are, so that the plan is still valid. */
#ifndef EBB_PLAN_SWAP_ANNEAL_H
#define EBB_PLAN_SWAP_ANNEAL_H

#include "plan/swap/measure.h"

#define EBB_ANNEAL_SEED 0x9e3779b97f4a7c15u /* any value but 0 is as good: bench/zero_stall.c */

struct ebb_anneal {
    struct ebb_swap *swap;
    const uint64_t *time_ns; /* tick_count + 1: time of each tick */
    struct ebb_measure measure;
    uint64_t chance;          /* state of the generator. Searches with the same seed are the same */
    uint32_t *order[2];       /* useful items in order of ready time, and of due time */
    uint32_t *place[2];       /* by useful item: its index in that order */
    bool *best;               /* by item */
    int64_t *best_start_ns;   /* by item: start of its copy in, on the timeline */
    uint64_t best_peak_bytes; /* peak with `best` taken; UINT64_MAX: none is known yet */
    uint64_t moves;
};

/* `time_ns` has tick_count + 1 entries: the time of each tick. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__anneal_init(struct ebb_anneal *anneal, struct ebb_swap *swap,
                                               const uint64_t *time_ns, struct ebb_error *error);
void ebb__anneal_fini(struct ebb_anneal *anneal);

/* Starts with the gaps taken in the swap. */
void ebb__anneal_start(struct ebb_anneal *anneal);

/* Greedy from the current choice: repeatedly takes the gap that reduces a smooth maximum most. */
void ebb__anneal_greedy(struct ebb_anneal *anneal, uint64_t target_bytes, uint64_t limit_steps);

/* Searches for a lower peak until the best is within `target_bytes`, or the swap's effort has
 * reached `limit_steps`. */
void ebb__anneal_run(struct ebb_anneal *anneal, uint64_t target_bytes, uint64_t limit_steps);

/* Takes the best choice in `swap`, with trigger_ns on the model clock. */
void ebb__anneal_take(const struct ebb_anneal *anneal, struct ebb_swap *swap);

#endif
