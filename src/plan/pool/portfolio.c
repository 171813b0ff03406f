/* Packing in one pass, by an order and a fit; and all such ways, of which the lowest packing is
 * kept. */
#include "plan/pool/fit.h"
#include "plan/pool/internal.h"

#include <stdlib.h>

/* The ways; those with the best results on the public instances first (ebb pack --pool
 * portfolio). */
static const struct ebb_pool_way ways[] = {
    {EBB_POOL_BY_SIZE, EBB_POOL_BY_LOAD, EBB_POOL_BEST_FIT},
    {EBB_POOL_BY_PEAK, EBB_POOL_BY_BEGIN, EBB_POOL_FIRST_FIT},
    {EBB_POOL_BY_PEAK, EBB_POOL_BY_SIZE, EBB_POOL_FIRST_FIT},
    {EBB_POOL_BY_AREA, EBB_POOL_BY_SIZE, EBB_POOL_FIRST_FIT},
    {EBB_POOL_BY_LOAD, EBB_POOL_BY_AREA, EBB_POOL_BEST_FIT},
    {EBB_POOL_BY_WIDTH, EBB_POOL_BY_SIZE, EBB_POOL_BEST_FIT},
    {EBB_POOL_BY_SIZE, EBB_POOL_BY_LOAD, EBB_POOL_FIRST_FIT},
    {EBB_POOL_BY_AREA, EBB_POOL_BY_SIZE, EBB_POOL_BEST_FIT},
    {EBB_POOL_BY_BEGIN, EBB_POOL_BY_SIZE, EBB_POOL_BEST_FIT},
    {EBB_POOL_BY_WIDTH, EBB_POOL_BY_SIZE, EBB_POOL_FIRST_FIT},
    {EBB_POOL_BY_LOAD, EBB_POOL_BY_SIZE, EBB_POOL_BEST_FIT},
    {EBB_POOL_BY_LOAD, EBB_POOL_BY_WIDTH, EBB_POOL_BEST_FIT},
    {EBB_POOL_BY_BEGIN, EBB_POOL_BY_SIZE, EBB_POOL_FIRST_FIT},
    {EBB_POOL_BY_LOAD, EBB_POOL_BY_AREA, EBB_POOL_FIRST_FIT},
};

const struct ebb_pool_way *ebb__pool_ways(size_t *count)
{
    *count = sizeof ways / sizeof ways[0];
    return ways;
}

static enum ebb_status go_ways(struct ebb_pool_job *job, const struct ebb_pool_way *list,
                               size_t count)
{
    uint32_t n = job->problem->count;
    struct ebb_pool_fit fit;
    enum ebb_status status = ebb__pool_fit_init(&fit, job->problem, &job->sections);
    if (status)
        return status;
    uint32_t *order = malloc((n + 1u) * sizeof *order);
    uint64_t *offsets = malloc((n + 1u) * sizeof *offsets);
    if (!order || !offsets)
        status = EBB_ERR_MEMORY;
    for (size_t i = 0; i < count && !status; i++) {
        if (i && (ebb__pool_settled(job) || ebb__pool_is_over(job)))
            break;
        ebb__effort_spend(&job->effort, ebb__pool_fit_steps(job->problem));
        status =
            ebb__pool_order(job->problem, &job->sections, list[i].first, list[i].second, order);
        if (!status)
            ebb__pool_offer(job, offsets,
                            ebb__pool_fit_pack(&fit, order, list[i].rule, job->height, offsets));
    }
    free(order);
    free(offsets);
    ebb__pool_fit_fini(&fit);
    return status;
}

enum ebb_status ebb__pool_bestfit(struct ebb_pool_job *job)
{
    static const struct ebb_pool_way way = {EBB_POOL_BY_SIZE, EBB_POOL_BY_BEGIN, EBB_POOL_BEST_FIT};
    return go_ways(job, &way, 1);
}

enum ebb_status ebb__pool_firstfit(struct ebb_pool_job *job)
{
    static const struct ebb_pool_way way = {EBB_POOL_BY_SIZE, EBB_POOL_BY_BEGIN,
                                            EBB_POOL_FIRST_FIT};
    return go_ways(job, &way, 1);
}

enum ebb_status ebb__pool_portfolio(struct ebb_pool_job *job)
{
    return go_ways(job, ways, sizeof ways / sizeof ways[0]);
}
