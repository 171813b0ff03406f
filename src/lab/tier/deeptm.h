/* DeepTM's parts. Each mechanism is a file of its own, and can be switched off (deeptm.c).
 *
 * The **state** has a path for each block: where each use finds it, and what happens in each gap.
 * It knows the bytes of fast memory, the time that operands take and the load of the lanes, for
 * each operation. So the cost of one block's path, given all others, is known without a
 * simulation. */
#ifndef EBB_LAB_TIER_DEEPTM_H
#define EBB_LAB_TIER_DEEPTM_H

#include "lab/tier/tier.h"

#include <stdbool.h>
#include <stdint.h>

/* A copy in a gap: operations, as in struct ebb_stay. */
struct ebb_deeptm_copy {
    bool made;
    uint32_t start, first;
    double wait_ns; /* that the lanes cannot hide */
};

/* A use of a block, and the gap behind it. */
struct ebb_deeptm_use {
    bool fast;  /* during the use */
    bool stays; /* fast during the gap; otherwise it is in the slow tier, apart from copies */
    bool drops; /* leaves without a copy */
    struct ebb_deeptm_copy out, in;
};

struct ebb_deeptm_options {
    bool aggregation, runs, prices, heat, regret, asynchronous, learning;
};

#define EBB_HEAT_COUNT 5 /* size, lifetime, access frequency, next-use distance, share of writes */

struct ebb_deeptm {
    const struct ebb_tier_request *request;
    const struct ebb_operations *operations;
    struct ebb_deeptm_options options;
    struct ebb_deeptm_use *uses; /* in the operations' order of uses by block */
    bool *placed;                /* by block */
    uint64_t *used_bytes;        /* by operation: of fast memory */
    double *operand_ns;          /* by operation: of the placed blocks */
    double *fast_ns, *slow_ns;   /* by use */
    double *lane_ns[2];          /* by operation: what the lanes carry; [0] out, [1] in */
    double *price;               /* by operation: what a byte of fast memory is worth, ns */
    double *price_sum;           /* count + 1: prefix sums of price */
    double price_factor;         /* 0: prices do not count */
    double slack;                /* windows are for so many times the copy; at least 1 */
    double wait_ns, latency_ns;  /* of all placed blocks */
    uint64_t random;
    double heat_weight[EBB_HEAT_COUNT];
    double *heat;                   /* by block */
    struct ebb_deeptm_table *table; /* of deeptm_path.c */
};

/* ---- deeptm_state.c -------------------------------------------------------------------------- */

bool ebb__deeptm_init(struct ebb_deeptm *it, const struct ebb_tier_request *request,
                      struct ebb_deeptm_options options);
void ebb__deeptm_fini(struct ebb_deeptm *it);
/* Puts a block into the state, or takes it out. Its path is in `uses`. */
void ebb__deeptm_place(struct ebb_deeptm *it, uint32_t block);
void ebb__deeptm_remove(struct ebb_deeptm *it, uint32_t block);
/* The stays of all blocks. Closes the plan. */
EBB_NODISCARD enum ebb_status ebb__deeptm_plan(const struct ebb_deeptm *it,
                                               struct ebb_tier_plan *plan, struct ebb_error *error);
static inline uint64_t ebb__deeptm_bytes(const struct ebb_deeptm *it, uint32_t block)
{
    return ebb__tier_bytes(it->request->machine, it->operations->blocks[block].size_bytes);
}
/* Time of an operation in which the operands take `operand_ns`. */
static inline double ebb__deeptm_operation_ns(const struct ebb_deeptm *it, uint32_t index,
                                              double operand_ns)
{
    double recorded = (double)it->operations->items[index].ns;
    return operand_ns > recorded ? operand_ns : recorded;
}
/* xorshift: the same numbers on every machine. */
static inline uint64_t ebb__deeptm_random(struct ebb_deeptm *it)
{
    it->random ^= it->random << 13, it->random ^= it->random >> 7;
    return it->random ^= it->random << 17;
}

/* ---- deeptm_path.c --------------------------------------------------------------------------- */

/* Finds the best path of a block that is not placed, given all that are. The path fits into the
 * budget; with `ignores_budget` only prices say what memory is worth. O(operations). */
void ebb__deeptm_path(struct ebb_deeptm *it, uint32_t block, bool ignores_budget);

/* ---- deeptm_prices.c ------------------------------------------------------------------------- */

/* The performance model as an integer program, decomposed: finds the price of fast memory in each
 * operation. Leaves no block placed. */
void ebb__deeptm_prices(struct ebb_deeptm *it, uint32_t rounds);

/* ---- deeptm_heat.c --------------------------------------------------------------------------- */

/* The heat of each block, with the state's weights. */
void ebb__deeptm_heat(struct ebb_deeptm *it);
/* Draws other weights near the present ones. */
void ebb__deeptm_heat_vary(struct ebb_deeptm *it, double *weights);
/* Moves the weights to those of a placement that was better, or away from one that was worse. */
void ebb__deeptm_heat_regret(struct ebb_deeptm *it, const double *tried, double gain);
/* Sorts blocks, the hottest first. */
void ebb__deeptm_heat_sort(const struct ebb_deeptm *it, uint32_t *blocks, uint32_t count);

/* ---- deeptm_learn.c -------------------------------------------------------------------------- */

#define EBB_LEARN_INPUTS 12
#define EBB_LEARN_HIDDEN 32
#define EBB_LEARN_ACTIONS 8
#define EBB_LEARN_VERSION 1 /* of inputs, actions and layers; weights of another do not fit */
#define EBB_LEARN_WEIGHTS                                                                          \
    (EBB_LEARN_HIDDEN * (EBB_LEARN_INPUTS + 1) + EBB_LEARN_HIDDEN * (EBB_LEARN_HIDDEN + 1) +       \
     (EBB_LEARN_ACTIONS + 1) * (EBB_LEARN_HIDDEN + 1))

/* What a trial does. */
struct ebb_deeptm_action {
    double price_factor, slack;
    uint32_t reach_divisor; /* blocks are taken from at most that part of the iteration */
    uint32_t most_taken;
};

/* The network, and what it saw last. */
struct ebb_deeptm_learner {
    float weights[EBB_LEARN_WEIGHTS];
    bool trains;
    float inputs[EBB_LEARN_INPUTS];
    float hidden[2][EBB_LEARN_HIDDEN];
    float chance[EBB_LEARN_ACTIONS], value;
    uint32_t action;
};

/* The trained weights. */
void ebb__deeptm_learner_load(struct ebb_deeptm_learner *learner);
/* Weights to begin a training from. */
void ebb__deeptm_learner_draw(struct ebb_deeptm_learner *learner, uint64_t seed);
/* An action for the inputs, drawn by `random`, in [0, 1). */
struct ebb_deeptm_action ebb__deeptm_learner_act(struct ebb_deeptm_learner *learner,
                                                 const float *inputs, double random);
/* The reward of the action before; trains if the learner does. */
void ebb__deeptm_learner_reward(struct ebb_deeptm_learner *learner, double reward);
/* An action without a network: one of the same, each with the same chance. */
struct ebb_deeptm_action ebb__deeptm_action_of(uint32_t index);
/* Plans once with a learner, which trains on the way. */
EBB_NODISCARD enum ebb_status ebb__deeptm_train(const struct ebb_tier_request *request,
                                                struct ebb_deeptm_learner *learner, double *ns,
                                                struct ebb_error *error);

/* ---- deeptm_aggregate.c ---------------------------------------------------------------------- */

struct ebb_deeptm_merged {
    struct ebb_operations operations; /* small blocks of like heat are one block */
    uint32_t *merged_of;              /* by block of the original */
};

/* EBB_ERR_MEMORY. Release it with ebb__deeptm_merged_fini(). */
EBB_NODISCARD enum ebb_status ebb__deeptm_merge(const struct ebb_operations *operations,
                                                struct ebb_deeptm_merged *merged,
                                                struct ebb_error *error);
/* From a plan of the merged blocks to one of the blocks, which share pages. */
EBB_NODISCARD enum ebb_status ebb__deeptm_expand(const struct ebb_operations *operations,
                                                 const struct ebb_deeptm_merged *merged,
                                                 const struct ebb_tier_plan *plan,
                                                 struct ebb_tier_plan *expanded,
                                                 struct ebb_error *error);
void ebb__deeptm_merged_fini(struct ebb_deeptm_merged *merged);

/* ---- deeptm_runs.c --------------------------------------------------------------------------- */

/* Makes copies that go together one transfer each. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__deeptm_runs(const struct ebb_operations *operations,
                                               struct ebb_tier_plan *plan, struct ebb_error *error);

#endif
