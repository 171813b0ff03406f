/* The search for a choice of gaps that needs least memory on a given timeline, without a stall.
 *
 *     struct ebb_anneal anneal;
 *     status = ebb__anneal_init(&anneal, &swap, swap.model->time_ns, margin_ns, &error);
 *     ebb__anneal_start(&anneal);                            (from what is taken in swap)
 *     ebb__anneal_greedy(&anneal, target_bytes, limit_steps);
 *     ebb__anneal_run(&anneal, target_bytes, limit_steps);   (as often as wanted)
 *     ebb__anneal_take(&anneal, &swap);                      (the best found becomes what is taken)
 *     ebb__anneal_fini(&anneal);
 *
 * The timeline may be longer than the model's own: then the program waits as if it had agreed to.
 * Lanes that share bandwidth are thought to be slower than they are, so that a plan still holds. */
#ifndef EBB_PLAN_SWAP_ANNEAL_H
#define EBB_PLAN_SWAP_ANNEAL_H

#include "plan/swap/measure.h"

#define EBB_ANNEAL_SEED 0x9e3779b97f4a7c15u /* any but 0 is as good: bench/zero_stall.c */

struct ebb_anneal {
    struct ebb_swap *swap;
    const uint64_t *time_ns; /* of the ticks, tick_count + 1 */
    struct ebb_measure measure;
    uint64_t chance;          /* state of the generator: the same search every time */
    uint32_t *order[2];       /* useful items as they become ready, and as they are due */
    uint32_t *place[2];       /* by useful item: its place there */
    bool *best;               /* by item */
    int64_t *best_start_ns;   /* by item: its copy in, on the timeline */
    uint64_t best_peak_bytes; /* with `best` taken; UINT64_MAX: none is known yet */
    uint64_t moves;
};

/* `time_ns`: of the ticks, tick_count + 1. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__anneal_init(struct ebb_anneal *anneal, struct ebb_swap *swap,
                                               const uint64_t *time_ns, struct ebb_error *error);
void ebb__anneal_fini(struct ebb_anneal *anneal);

/* Begin with what is taken in the swap. */
void ebb__anneal_start(struct ebb_anneal *anneal);

/* Greedy from what is taken now: the gap that lowers a smooth maximum most, again and again. */
void ebb__anneal_greedy(struct ebb_anneal *anneal, uint64_t target_bytes, uint64_t limit_steps);

/* Look for less until the best peak is within `target_bytes`, or the swap's effort has reached
 * `limit_steps`. */
void ebb__anneal_run(struct ebb_anneal *anneal, uint64_t target_bytes, uint64_t limit_steps);

/* Make the best what is taken in `swap`, with trigger_ns on the model clock. */
void ebb__anneal_take(const struct ebb_anneal *anneal, struct ebb_swap *swap);

#endif
