/* Local search by order: pack in one pass, move the buffers above the target to the front, pack
 * again.
 *
 * Problem: an order of the buffers under which a fit in one pass stays low, for inputs that are too
 * large for other methods.
 * Method: all buffers that end above the target are moved to the front of the order; the others
 * keep their places. Some rounds of this start from each way of the portfolio. Then a random share
 * of such buffers is moved forward by random distances, until the effort is spent.
 * Complexity: O(n^2) a round, with the small constant of the fit.
 * Fails: if the waste is spread over the whole packing instead of near its top.
 * Source: squeaky wheel optimisation, docs/papers.md. */
#include "plan/pool/fit.h"

#include "plan/pool/internal.h"

#include <stdlib.h>
#include <string.h>

#define CHANCE_ROUNDS 12 /* the same with chance */
#define ROUNDS                                                                                     \
    3 /* from one order: improvements occur early; half and twice give the same
                            packing */

struct improver {
    struct ebb_pool_job *job;
    struct ebb_pool_fit fit;
    uint32_t *order, *moved;
    uint64_t *offsets;
    uint64_t goal, chance;
};

static uint32_t chance_of(struct improver *improver, uint32_t below)
{
    /* xorshift: the same search on every machine. */
    improver->chance ^= improver->chance << 13;
    improver->chance ^= improver->chance >> 7;
    improver->chance ^= improver->chance << 17;
    return (uint32_t)(improver->chance % below);
}

static bool is_over(const struct improver *improver)
{
    return ebb__pool_settled(improver->job) || ebb__pool_is_over(improver->job);
}

static bool stands_out(const struct improver *improver, uint32_t buffer)
{
    return improver->offsets[buffer] + improver->job->problem->buffers[buffer].size_bytes >
           improver->goal;
}

/* Moves the buffers above the target to the front. With `some`, moves a random share of them to
 * random earlier places. */
static void promote(struct improver *improver, bool some)
{
    uint32_t n = improver->job->problem->count, count = 0;
    if (!some) {
        for (int out = 1; out >= 0; out--)
            for (uint32_t i = 0; i < n; i++)
                if (stands_out(improver, improver->order[i]) == out)
                    improver->moved[count++] = improver->order[i];
        memcpy(improver->order, improver->moved, n * sizeof *improver->order);
        return;
    }
    for (uint32_t i = 1; i < n; i++) {
        uint32_t b = improver->order[i];
        if (!stands_out(improver, b) || chance_of(improver, 4) == 0)
            continue;
        uint32_t to = chance_of(improver, i);
        memmove(improver->order + to + 1, improver->order + to, (i - to) * sizeof *improver->order);
        improver->order[to] = b;
    }
}

static enum ebb_status rounds(struct improver *improver, const struct ebb_pool_way *way, bool some)
{
    enum ebb_status status = ebb__pool_order(improver->job->problem, &improver->job->sections,
                                             way->first, way->second, improver->order);
    uint64_t count = some ? CHANCE_ROUNDS : ROUNDS;
    for (uint64_t round = 0; !status && round < count && !is_over(improver); round++) {
        ebb__effort_spend(&improver->job->effort, ebb__pool_fit_steps(improver->job->problem));
        uint64_t height = ebb__pool_fit_pack(&improver->fit, improver->order, way->rule, UINT64_MAX,
                                             improver->offsets);
        ebb__pool_offer(improver->job, improver->offsets, height);
        promote(improver, some);
    }
    return status;
}

enum ebb_status ebb__pool_improve(struct ebb_pool_job *job)
{
    size_t way_count, n = job->problem->count;
    const struct ebb_pool_way *ways = ebb__pool_ways(&way_count);
    struct improver improver = {
        .job = job, .goal = job->problem->capacity_bytes, .chance = 88172645463325252u};
    if (improver.goal == EBB_POOL_NO_CAPACITY)
        improver.goal = job->bound;
    improver.order = malloc((n + 1) * sizeof *improver.order);
    improver.moved = malloc((n + 1) * sizeof *improver.moved);
    improver.offsets = malloc((n + 1) * sizeof *improver.offsets);
    enum ebb_status status = ebb__pool_fit_init(&improver.fit, job->problem, &job->sections);
    if (!improver.order || !improver.moved || !improver.offsets)
        status = EBB_ERR_MEMORY;
    for (size_t i = 0; !status && !is_over(&improver); i++)
        status = rounds(&improver, &ways[i % way_count], i >= way_count);
    free(improver.order);
    free(improver.moved);
    free(improver.offsets);
    ebb__pool_fit_fini(&improver.fit);
    return status;
}
