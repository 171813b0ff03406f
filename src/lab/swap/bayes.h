/* Bayesian optimisation of a function on the unit cube: where to look next, from what was seen.
 *
 *     struct ebb_bayes bayes;
 *     status = ebb__bayes_init(&bayes, 4, 25, 5.0, &error);
 *     for (...) {
 *         double point[4];
 *         ebb__bayes_suggest(&bayes, point);
 *         ebb__bayes_observe(&bayes, point, value_at(point));
 *     }
 *     const double *best = ebb__bayes_best(&bayes);
 *     ebb__bayes_fini(&bayes);
 *
 * A Gaussian process with a Matern 5/2 kernel is put through the observations; the next point is the
 * one of many random ones with the highest upper confidence bound, mean + kappa * deviation. The
 * first few points are random. The numbers are the same in every run.
 * Source: Srinivas et al., ICML 2010, arXiv 0912.3995; Snoek et al., NIPS 2012, for the kernel.
 * A suggestion is O(observations^3 + points * observations^2). */
#ifndef EBB_LAB_SWAP_BAYES_H
#define EBB_LAB_SWAP_BAYES_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct ebb_bayes {
    size_t dimensions;
    size_t most;  /* observations */
    size_t count; /* of them made */
    double kappa;
    uint64_t random;
    double *points; /* most * dimensions */
    double *values; /* most */

    /* Internal. */
    double *factor;     /* most * most: Cholesky factor of the kernel matrix */
    double *weights;    /* most: its inverse times the values */
    double *candidates; /* points looked at for a suggestion */
    double *kernels;    /* their kernels with the observations, most each */
};

/* For up to `most` observations of a function of `dimensions` numbers in [0, 1]. */
EBB_NODISCARD enum ebb_status ebb__bayes_init(struct ebb_bayes *bayes, size_t dimensions,
                                              size_t most, double kappa, struct ebb_error *error);
void ebb__bayes_fini(struct ebb_bayes *bayes);

/* Where to look next, into point[dimensions]. */
void ebb__bayes_suggest(struct ebb_bayes *bayes, double *point);
/* The function is `value` at `point`; higher is better. Observations beyond `most` are forgotten. */
void ebb__bayes_observe(struct ebb_bayes *bayes, const double *point, double value);
/* The best point observed; NULL where there is none. */
const double *ebb__bayes_best(const struct ebb_bayes *bayes);

#endif
