/* The state of the search of ebb.c: the best choice so far, and the steps that improve it.
 *
 * Order of use: choice.c (judges and remembers), stall_free.c (choices without a stall),
 * stretched.c (choices with less and less stall), refine.c (changes of single gaps). Functions that
 * return a status: EBB_ERR_MEMORY, and errors of the simulator. */
#ifndef EBB_PLAN_SWAP_CHOICE_H
#define EBB_PLAN_SWAP_CHOICE_H

#include "plan/swap/anneal.h"
#include "plan/swap/greedy.h"

/* Lanes that share their bandwidth are slower while both are busy; how often is not known in
 * advance. So plans are tried that count on a share of their speed: from all of it down to the part
 * that is always available. */
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
    uint64_t *tick_stall_ns; /* tick_count: stalls of the last judged plan */
    uint64_t *best_stall_ns; /* the same for the best plan */
    uint64_t *stretched_ns;  /* tick_count + 1: a timeline with stalls */
    uint64_t target_bytes;   /* limit that the best obeys: the budget, or less for jitter */
    bool lean;               /* useless gaps have been dropped from it */
    struct ebb_error *error;
};

/* ---- choice.c -------------------------------------------------------------------------------- */

/* `within`: gaps may begin and end within stretches. Must be released even on failure. */
EBB_NODISCARD enum ebb_status ebb__choice_init(struct search *search,
                                               const struct ebb_plan_request *request, bool within);
void ebb__choice_fini(struct search *search);
/* True if the effort is spent. */
bool ebb__choice_is_over(const struct search *search);
/* True if the problem is too large to try each gap before a choice. */
bool ebb__choice_is_large(const struct ebb_swap *swap);
bool ebb__choice_is_free_of_stalls(const struct search *search);
void ebb__choice_take_none(struct ebb_swap *swap);
/* Takes the gaps of the best choice; remembers the taken gaps as the best choice. */
void ebb__choice_restore(struct search *search);
void ebb__choice_note(struct search *search, const struct ebb_swap_outcome *outcome);
/* Simulates the taken gaps, and remembers them if they are the best so far. `better` may be
 * NULL. */
EBB_NODISCARD enum ebb_status ebb__choice_judge(struct search *search, bool *better);
/* The number of lane scales to try. */
uint32_t ebb__choice_scales(const struct ebb_swap *swap);

/* ---- stall_free.c ---------------------------------------------------------------------------- */

enum anneal_way {
    ANNEAL_GO_ON,  /* start from the taken gaps */
    ANNEAL_ANEW,   /* start from the best of all starting points */
    ANNEAL_LOWEST, /* the same, and take the result whatever its peak */
};

/* Searches for a choice with a peak of at most `target_bytes` on the timeline until `limit_steps`,
 * and takes it if one is found. Sets *peak_bytes to the reached peak. */
EBB_NODISCARD enum ebb_status ebb__choice_anneal(struct search *search, const uint64_t *time_ns,
                                                 uint64_t target_bytes, uint64_t limit_steps,
                                                 enum anneal_way way, uint64_t *peak_bytes);
/* Tries plans without a stall, the most conservative first. */
EBB_NODISCARD enum ebb_status ebb__choice_without_stall(struct search *search);
/* Finds the lowest peak without a stall, verified by the simulator. It becomes the request's
 * budget. */
EBB_NODISCARD enum ebb_status ebb__choice_lowest(struct search *search,
                                                 struct ebb_plan_request *request);

/* ---- stretched.c ----------------------------------------------------------------------------- */

/* Makes a first plan that may stall. */
EBB_NODISCARD enum ebb_status ebb__choice_sweeps(struct search *search);
/* Reduces the best plan's stalls step by step, as long as a choice fits. */
EBB_NODISCARD enum ebb_status ebb__choice_stretched(struct search *search, uint64_t limit_steps);

/* ---- refine.c -------------------------------------------------------------------------------- */

/* Adds or removes one gap at a time, then two, as long as that gains and effort is left. */
EBB_NODISCARD enum ebb_status ebb__choice_refine(struct search *search);
/* Drops the gaps that cover least for their lane time: many at once, then fewer, finally one by
 * one. */
EBB_NODISCARD enum ebb_status ebb__choice_prune(struct search *search);

#endif
