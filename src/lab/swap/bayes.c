#include "lab/swap/bayes.h"

#include <lapacke.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_RANDOM 5   /* customary: a few points before the process is used */
#define CANDIDATES 512   /* a limit: more than a hundred for each dimension */
#define LENGTH 0.5       /* length scale of the kernel: half the cube's edge */
#define NOISE_LEAST 1e-6 /* keeps the kernel matrix positive if points are nearly equal */
#define NOISE_MOST 1e-1  /* if even this noise does not suffice, the next point is random */

static double random_unit(struct ebb_bayes *bayes)
{
    bayes->random ^= bayes->random << 13;
    bayes->random ^= bayes->random >> 7;
    bayes->random ^= bayes->random << 17;
    return (double)(bayes->random >> 11) * 0x1p-53;
}

enum ebb_status ebb__bayes_init(struct ebb_bayes *bayes, size_t dimensions, size_t most,
                                double kappa, struct ebb_error *error)
{
    *bayes = (struct ebb_bayes){.dimensions = dimensions,
                                .most = most,
                                .kappa = kappa,
                                .random = EBB_BAYES_SEED,
                                .first_random = FIRST_RANDOM};
    bayes->points = calloc(most * dimensions + 1, sizeof *bayes->points);
    bayes->values = calloc(most + 1, sizeof *bayes->values);
    bayes->factor = calloc(most * most + 1, sizeof *bayes->factor);
    bayes->weights = calloc(most + 1, sizeof *bayes->weights);
    bayes->candidates = calloc(CANDIDATES * dimensions + 1, sizeof *bayes->candidates);
    bayes->kernels = calloc(CANDIDATES * most + 1, sizeof *bayes->kernels);
    if (bayes->points && bayes->values && bayes->factor && bayes->weights && bayes->candidates &&
        bayes->kernels)
        return EBB_OK;
    ebb__bayes_fini(bayes);
    return ebb__fail(error, EBB_ERR_MEMORY, "optimise", "out of memory");
}

void ebb__bayes_fini(struct ebb_bayes *bayes)
{
    free(bayes->points);
    free(bayes->values);
    free(bayes->factor);
    free(bayes->weights);
    free(bayes->candidates);
    free(bayes->kernels);
    memset(bayes, 0, sizeof *bayes);
}

static double kernel(const struct ebb_bayes *bayes, const double *left, const double *right)
{
    double squares = 0;
    for (size_t d = 0; d < bayes->dimensions; d++)
        squares += (left[d] - right[d]) * (left[d] - right[d]);
    double r = sqrt(5 * squares) / LENGTH;
    return (1 + r + r * r / 3) * exp(-r);
}

/* Fits the process to the observations, scaled to mean 0 and deviation 1. False if the kernel
 * matrix has no Cholesky factor. */
static bool process_fit(struct ebb_bayes *bayes)
{
    size_t count = bayes->count;
    double mean = 0, square = 0;
    for (size_t i = 0; i < count; i++)
        mean += bayes->values[i] / (double)count;
    for (size_t i = 0; i < count; i++)
        square += (bayes->values[i] - mean) * (bayes->values[i] - mean) / (double)count;
    double deviation = square > 0 ? sqrt(square) : 1;
    lapack_int n = (lapack_int)count;
    for (double noise = NOISE_LEAST; noise <= NOISE_MOST; noise *= 10) {
        for (size_t i = 0; i < count; i++)
            for (size_t j = 0; j < count; j++)
                bayes->factor[j * count + i] = kernel(bayes, &bayes->points[i * bayes->dimensions],
                                                      &bayes->points[j * bayes->dimensions]) +
                                               (i == j ? noise : 0);
        if (LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'L', n, bayes->factor, n) != 0)
            continue;
        for (size_t i = 0; i < count; i++)
            bayes->weights[i] = (bayes->values[i] - mean) / deviation;
        return LAPACKE_dpotrs(LAPACK_COL_MAJOR, 'L', n, 1, bayes->factor, n, bayes->weights, n) ==
               0;
    }
    return false;
}

void ebb__bayes_suggest(struct ebb_bayes *bayes, double *point)
{
    size_t dimensions = bayes->dimensions, count = bayes->count;
    for (size_t i = 0; i < CANDIDATES * dimensions; i++)
        bayes->candidates[i] = random_unit(bayes);
    memcpy(point, bayes->candidates, dimensions * sizeof *point);
    if (count < bayes->first_random || count == 0 || !process_fit(bayes))
        return;
    double mean[CANDIDATES];
    for (size_t c = 0; c < CANDIDATES; c++) {
        mean[c] = 0;
        for (size_t i = 0; i < count; i++) {
            double with =
                kernel(bayes, &bayes->candidates[c * dimensions], &bayes->points[i * dimensions]);
            bayes->kernels[c * count + i] = with;
            mean[c] += with * bayes->weights[i];
        }
    }
    lapack_int n = (lapack_int)count;
    if (LAPACKE_dtrtrs(LAPACK_COL_MAJOR, 'L', 'N', 'N', n, CANDIDATES, bayes->factor, n,
                       bayes->kernels, n) != 0)
        return;
    double best = -INFINITY;
    for (size_t c = 0; c < CANDIDATES; c++) {
        double variance = kernel(bayes, bayes->candidates, bayes->candidates);
        for (size_t i = 0; i < count; i++)
            variance -= bayes->kernels[c * count + i] * bayes->kernels[c * count + i];
        double bound = mean[c] + bayes->kappa * sqrt(fmax(variance, 0));
        if (bound > best) {
            best = bound;
            memcpy(point, &bayes->candidates[c * dimensions], dimensions * sizeof *point);
        }
    }
}

void ebb__bayes_observe(struct ebb_bayes *bayes, const double *point, double value)
{
    if (bayes->count == bayes->most)
        return;
    memcpy(&bayes->points[bayes->count * bayes->dimensions], point,
           bayes->dimensions * sizeof *point);
    bayes->values[bayes->count++] = value;
}

const double *ebb__bayes_best(const struct ebb_bayes *bayes)
{
    size_t best = 0;
    for (size_t i = 1; i < bayes->count; i++)
        if (bayes->values[i] > bayes->values[best])
            best = i;
    return bayes->count ? &bayes->points[best * bayes->dimensions] : NULL;
}
