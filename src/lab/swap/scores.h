/* The scores by which AutoSwap and AppObMem rank the gaps that straddle the load's peak.
 *
 * A gap (a, b) of a block of s bytes lies between the accesses at a and b; out(s) and in(s) are the
 * lane times, `limit` the budget that the choice is for:
 *   DOA    duration of absence: t(b) - t(a) - out(s) - in(s), ns
 *   AOA    area of absence: DOA * s where DOA >= 0, else DOA / s
 *   WDOA   weighted: the sum over the ticks in [a, b) of load - limit where that is positive, bytes
 *   SWDOA  submodular: WDOA on the load that is left after the gaps with a higher SWDOA are taken
 * A score's higher values are taken first. Source: AutoSwap, arXiv 1903.06631, section 4, and the
 * code published with it; AppObMem, doi 10.1145/3535355, names the same three of the vote. */
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

/* The scores of a swap's gaps and an order made of them, for as long as its gaps stay the same. */
struct ebb_swap_ranking {
    struct ebb_swap *swap;
    double *score[EBB_SCORE_COUNT]; /* gap_count each; unset until computed */
    double *key;                    /* gap_count: what the order is by, higher first */
    uint32_t *order;                /* gap_count: gaps, to be taken from the first on */
    double *weight;                 /* cell_count + 1, working space */
    uint64_t *load;                 /* cell_count, working space */
    bool *picked;                   /* gap_count, working space */
    struct ebb_swap_ranked *ranked; /* gap_count, working space */
};

EBB_NODISCARD enum ebb_status ebb__ranking_init(struct ebb_swap_ranking *ranking,
                                                struct ebb_swap *swap, struct ebb_error *error);
void ebb__ranking_fini(struct ebb_swap_ranking *ranking);

/* True of the gaps between two accesses of a block of `smallest_bytes` at least whose first lies
 * before the load's peak and whose second behind it: the candidates. */
bool ebb__swap_straddles_peak(const struct ebb_swap *swap, const struct ebb_swap_gap *gap,
                              uint32_t peak_tick, uint64_t smallest_bytes);
/* The first tick with the highest load. */
uint32_t ebb__swap_peak_tick(const struct ebb_swap *swap);

/* Compute score[kind] for a limit. O(gaps + cells); SWDOA O(gaps * (gaps + cells)). */
void ebb__ranking_score(struct ebb_swap_ranking *ranking, enum ebb_swap_score kind,
                        uint64_t limit_bytes);

/* Order by one score, computed before. */
void ebb__ranking_by_score(struct ebb_swap_ranking *ranking, enum ebb_swap_score kind);
/* Order by the sum of the ranks in DOA, AOA and WDOA, computed before; the lowest sum first. */
void ebb__ranking_by_vote(struct ebb_swap_ranking *ranking);
/* Order by the weighted sum of all four scores, computed before, each over its largest magnitude. */
void ebb__ranking_by_weights(struct ebb_swap_ranking *ranking, const double *weights);

/* Take gaps in order until the ideal curve is within `limit_bytes`: the fewest with which it is, or
 * all. True where it then is. O(log gaps * (gaps + cells)). */
bool ebb__ranking_take(struct ebb_swap_ranking *ranking, uint64_t limit_bytes);

#endif
