/* AutoSwap and AppObMem rank the gaps that contain the load's peak by these scores.
 *
 * A gap (a, b) of a block of s bytes lies between the accesses at a and b. out(s) and in(s) are the
 * lane times. `limit` is the budget of the choice. By the papers:
 *   DOA    duration of absence: t(b) - t(a) - out(s) - in(s), ns
 *   AOA    area of absence: DOA * s if DOA >= 0, else DOA / s
 *   WDOA   weighted: the sum over the ticks in [a, b) of max(load - limit, 0), bytes
 *   SWDOA  submodular: WDOA on the load that remains after the gaps with a higher SWDOA are taken
 * AutoSwap's public scripts differ. Their DOA leaves in(s) out. Their WDOA and SWDOA sum the whole
 * load, and a taken gap counts from a to b. Higher scores are taken first. Source: AutoSwap, arXiv
 * 1903.06631, section 4, and the scripts published with it. AppObMem, doi 10.1145/3535355, votes by
 * the first three scores; it has no public code. */
#ifndef EBB_LAB_SWAP_SCORES_H
#define EBB_LAB_SWAP_SCORES_H

#include "plan/swap/swap.h"

enum ebb_swap_score {
    EBB_SCORE_DOA,
    EBB_SCORE_AOA,
    EBB_SCORE_WDOA,
    EBB_SCORE_SWDOA,
    EBB_SCORE_COUNT
};

struct ebb_swap_ranked {
    double key;
    uint32_t gap;
};

/* The scores of a swap's gaps, and an order by them. Valid as long as the gaps do not change. */
struct ebb_swap_ranking {
    struct ebb_swap *swap;
    bool scripts;                   /* scores as in AutoSwap's public scripts: see above */
    bool peaks;                     /* gaps are taken peak by peak */
    double *score[EBB_SCORE_COUNT]; /* gap_count each; unset until computed */
    double *key;                    /* gap_count: the order is by descending key */
    uint32_t *order;                /* gap_count: gaps, in the order in which they are taken */
    double *weight;                 /* cell_count + 1, working space */
    uint64_t *load;                 /* cell_count, working space */
    bool *picked;                   /* gap_count, working space */
    struct ebb_swap_ranked *ranked; /* gap_count, working space */
};

EBB_NODISCARD enum ebb_status ebb__ranking_init(struct ebb_swap_ranking *ranking,
                                                struct ebb_swap *swap, struct ebb_error *error);
void ebb__ranking_fini(struct ebb_swap_ranking *ranking);

/* True if the gap is a candidate. Its block has at least `smallest_bytes`, and the load's peak is
 * within the gap, which may end in a FREE. */
bool ebb__swap_straddles_peak(const struct ebb_swap *swap, const struct ebb_swap_gap *gap,
                              uint32_t peak_tick, uint64_t smallest_bytes);
/* The first tick that has the highest load. */
uint32_t ebb__swap_peak_tick(const struct ebb_swap *swap);

/* Computes score[kind] for a limit. O(gaps + cells); SWDOA O(gaps * (gaps + cells)). */
void ebb__ranking_score(struct ebb_swap_ranking *ranking, enum ebb_swap_score kind,
                        uint64_t limit_bytes);

/* Orders by one score. The score must have been computed. */
void ebb__ranking_by_score(struct ebb_swap_ranking *ranking, enum ebb_swap_score kind);
/* Orders by the sum of the ranks in DOA, AOA and WDOA, the lowest sum first. The three scores must
 * have been computed. */
void ebb__ranking_by_vote(struct ebb_swap_ranking *ranking);
/* Orders by the weighted sum of all four scores. The first three are standardised, to mean 0 and
 * deviation 1; SWDOA is not, as published. The scores must have been computed. */
void ebb__ranking_by_weights(struct ebb_swap_ranking *ranking, const double *weights);

/* Takes the fewest gaps, in order, with which the ideal curve is within `limit_bytes`. If even all
 * gaps do not suffice, takes all and returns false. O(log gaps * (gaps + cells)). */
bool ebb__ranking_take(struct ebb_swap_ranking *ranking, uint64_t limit_bytes);

#endif
