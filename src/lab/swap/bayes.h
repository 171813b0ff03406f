/* Bayesian optimisation on the unit cube: suggests the next point to evaluate from earlier values.
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
 * A Gaussian process with a Matern 5/2 kernel is fitted to the observations. Of many random points,
 * the one with the highest upper confidence bound, mean + kappa * deviation, is suggested. The
 * first few points are random. Every run gets the same numbers. Source: Srinivas et al., ICML 2010,
 * arXiv 0912.3995; Snoek et al., NIPS 2012, for the kernel. A suggestion costs O(observations^3 +
 * points * observations^2). */
#ifndef EBB_LAB_SWAP_BAYES_H
#define EBB_LAB_SWAP_BAYES_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct ebb_bayes {
    size_t dimensions;
    size_t most;         /* most observations */
    size_t count;        /* observations made */
    size_t first_random; /* so many first points are random; a caller may change it */
    double kappa;
    uint64_t random; /* state of the generator, from EBB_BAYES_SEED on */
    double *points;  /* most * dimensions */
    double *values;  /* most */

    /* Internal. */
    double *factor;     /* most * most: Cholesky factor of the kernel matrix */
    double *weights;    /* most: inverse of the kernel matrix times the values */
    double *candidates; /* random points that a suggestion is chosen from */
    double *kernels;    /* most for each candidate: its kernels with the observations */
};

#define EBB_BAYES_SEED 0x2545f4914f6cdd1du /* any value but 0 is as good */

/* For up to `most` observations of a function of `dimensions` numbers in [0, 1]. The caller may
 * then set `random`, which must not be 0. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__bayes_init(struct ebb_bayes *bayes, size_t dimensions,
                                              size_t most, double kappa, struct ebb_error *error);
void ebb__bayes_fini(struct ebb_bayes *bayes);

/* Writes the next point to evaluate to point[dimensions]. */
void ebb__bayes_suggest(struct ebb_bayes *bayes, double *point);
/* Adds an observation: the function is `value` at `point`; higher is better. Observations after the
 * first `most` are ignored. */
void ebb__bayes_observe(struct ebb_bayes *bayes, const double *point, double value);
/* The best observed point; NULL if there is none. */
const double *ebb__bayes_best(const struct ebb_bayes *bayes);

#endif
