/* The search of ebb.c while it runs: the best choice so far, and the steps that make a better one.
 *
 * Order of use: choice.c (judging, remembering), stall_free.c (choices without a stall),
 * stretched.c (with less and less of one), refine.c (gap by gap). Functions that return a status:
 * EBB_ERR_MEMORY, and errors of the simulator. */
#ifndef EBB_PLAN_SWAP_CHOICE_H
#define EBB_PLAN_SWAP_CHOICE_H

#include "plan/swap/anneal.h"
#include "plan/swap/greedy.h"

/* Lanes that share their bandwidth are slower where both are busy; how often is not known
 * beforehand: so much of their speed is counted on, from all of it to what is always there. */
enum { EBB_LANE_SCALES = 5 };
extern const double ebb__lane_scales[EBB_LANE_SCALES];

struct best {
    bool *taken; /* gap_count */
    uint64_t *trigger_ns;
    struct ebb_swap_outcome outcome;
    bool any;
};

struct use {
    double key;
    uint32_t gap;
};

struct search {
    struct ebb_swap swap;
    struct best best;
    struct ebb_greedy greedy;
    struct use *uses;
    uint64_t *tick_stall_ns; /* tick_count: where the plan judged last waits */
    uint64_t *best_stall_ns; /* likewise, the best */
    uint64_t *stretched_ns;  /* tick_count + 1: a timeline with stalls */
    uint64_t target_bytes;   /* that the best keeps: the budget, or less for jitter */
    bool lean;               /* what proved useless has been dropped from it */
    struct ebb_error *error;
};

/* ---- choice.c -------------------------------------------------------------------------------- */

/* within: gaps may begin and end within stretches. To be released also if it fails later. */
EBB_NODISCARD enum ebb_status ebb__choice_init(struct search *search,
                                               const struct ebb_plan_request *request, bool within);
void ebb__choice_fini(struct search *search);
/* Is the effort spent? */
bool ebb__choice_is_over(const struct search *search);
/* Too large to try each gap before a choice. */
bool ebb__choice_is_large(const struct ebb_swap *swap);
bool ebb__choice_is_free_of_stalls(const struct search *search);
void ebb__choice_take_none(struct ebb_swap *swap);
/* Take what the best takes; remember what is taken as the best. */
void ebb__choice_restore(struct search *search);
void ebb__choice_note(struct search *search, const struct ebb_swap_outcome *outcome);
/* Let the simulator judge what is taken; remember it if it is the best so far. better: may be
 * NULL. */
EBB_NODISCARD enum ebb_status ebb__choice_judge(struct search *search, bool *better);
/* How many of the lane scales there are to try. */
uint32_t ebb__choice_scales(const struct ebb_swap *swap);

/* ---- stall_free.c ---------------------------------------------------------------------------- */

enum anneal_way {
    ANNEAL_GO_ON,  /* from what is taken */
    ANNEAL_ANEW,   /* from the best of all beginnings */
    ANNEAL_LOWEST, /* likewise, and the choice is taken whatever its peak */
};

/* To a choice that has a peak of `target_bytes` on the timeline, if it can be found until
 * `limit_steps`: then it is taken. *peak_bytes is what was reached. */
EBB_NODISCARD enum ebb_status ebb__choice_anneal(struct search *search, const uint64_t *time_ns,
                                                 uint64_t target_bytes, uint64_t limit_steps,
                                                 enum anneal_way way, uint64_t *peak_bytes);
/* Plans without a stall, the most careful first. */
EBB_NODISCARD enum ebb_status ebb__choice_without_stall(struct search *search);
/* The lowest peak without a stall; the simulator has the last word on both. It becomes the
 * request's budget. */
EBB_NODISCARD enum ebb_status ebb__choice_lowest(struct search *search,
                                                 struct ebb_plan_request *request);

/* ---- stretched.c ----------------------------------------------------------------------------- */

/* A first plan that may stall. */
EBB_NODISCARD enum ebb_status ebb__choice_sweeps(struct search *search);
/* Less and less of the best plan's stalls, as long as a choice fits. */
EBB_NODISCARD enum ebb_status ebb__choice_stretched(struct search *search, uint64_t limit_steps);

/* ---- refine.c -------------------------------------------------------------------------------- */

/* Turn over one gap at a time, then two, as long as that gains and effort is left. */
EBB_NODISCARD enum ebb_status ebb__choice_refine(struct search *search);
/* Do without what covers least for its lane time: many at once, then fewer, down to one by one. */
EBB_NODISCARD enum ebb_status ebb__choice_prune(struct search *search);

#endif
