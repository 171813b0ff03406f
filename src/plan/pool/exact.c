/* Exact packing: two searches in turns, in canonical order (canonical.c) and over valleys
 * (valley.c). Each finds some packings at once that the other may not find in hours.
 *
 * Problem: a packing within a given height, or the proof that there is none.
 * Method: rankings of the choices at a node take turns, each with a growing number of nodes, and
 * from the second round on with noise. The first turn that finishes decides. A remaining problem
 * that failed once fails under every ranking, so the turns share their memory of failures. An
 * unfinished turn leaves a packing, too: its deepest placement with the rest on top.
 * Source: restarts with noise: Gomes, Selman and Kautz 1998; rankings in turns: docs/papers.md,
 * MiniMalloc. */
#include "plan/pool/exact.h"

#include "base/tuning.h"

#include "plan/pool/canonical.h"
#include "plan/pool/internal.h"
#include "plan/pool/valley.h"

#include <stdlib.h>
#include <string.h>

#define LAP_GROWS 1.3 /* turns grow from round to round; 1 and 2.6 give the same packing */

enum key { BY_WIDTH, BY_AREA, BY_SIZE, BY_LOAD };

static const struct {
    enum key key;
    bool flush;
    enum ebb_valley_choice choice;
} rankings[] = {
    {BY_LOAD, false, EBB_VALLEY_ROOM},    {BY_WIDTH, true, EBB_VALLEY_TIGHT},
    {BY_AREA, false, EBB_VALLEY_FEWEST},  {BY_SIZE, true, EBB_VALLEY_TIGHT},
    {BY_WIDTH, false, EBB_VALLEY_FEWEST}, {BY_AREA, true, EBB_VALLEY_TIGHT},
    {BY_SIZE, false, EBB_VALLEY_TIGHT},
};

#define RANKINGS (sizeof rankings / sizeof rankings[0])

static double chance(uint64_t turn, uint32_t buffer)
{
    uint64_t x = turn * 0x9e3779b97f4a7c15ull + buffer; /* splitmix64 */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return (double)((x ^ x >> 31) >> 11) * 0x1p-53;
}

static void rank_all(struct ebb_valley_search *search, const struct ebb_pool_problem *problem,
                     const struct ebb_pool_sections *sections, uint64_t turn)
{
    size_t ranking = turn % RANKINGS;
    search->flush = rankings[ranking].flush;
    search->choice = rankings[ranking].choice;
    for (uint32_t i = 0; i < problem->count; i++) {
        const struct ebb_pool_buffer *item = &problem->buffers[i];
        double width = (double)(item->upper - item->lower), size = (double)item->size_bytes;
        uint64_t load = ebb__pool_sections_peak(sections, i);
        /* Of equal load, the longer-lived first. */
        double keys[] = {width, width * size, size,
                         (double)load * (1 + 1e-6 * width / (width + 1e4))};
        double noise = turn < RANKINGS ? 0 : ebb__tuning()->pack_noise * (2 * chance(turn, i) - 1);
        search->key[i] = keys[rankings[ranking].key] * (1 + noise);
    }
}

static uint64_t divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Floors are sums of sizes, so multiples of the greatest common divisor of all sizes. If heights in
 * that unit exceed ebb_height, sizes are rounded up to a larger unit. A packing found is still
 * valid, but "none exists" is then no proof. */
static uint64_t unit_find(const struct ebb_pool_problem *problem, uint64_t height_bytes,
                          bool *rounded)
{
    uint64_t unit = 0;
    for (uint32_t i = 0; i < problem->count; i++)
        unit = divisor(problem->buffers[i].size_bytes, unit);
    *rounded = height_bytes / unit > EBB_HEIGHT_MAX / 2;
    return *rounded ? height_bytes / (EBB_HEIGHT_MAX / 2) + 1 : unit;
}

/* Runs turn after turn. Returns true if a packing is found. */
static bool go_turns(struct ebb_valley_search *search, const struct ebb_pool_problem *problem,
                     const struct ebb_pool_sections *sections, uint64_t unit, uint64_t *turns,
                     uint64_t *offsets)
{
    ebb_height lowest = EBB_HEIGHT_MAX;
    double nodes = (double)ebb__tuning()->pack_turn_nodes;
    for (uint64_t i = 1;; i++) {
        rank_all(search, problem, sections, (*turns)++);
        bool found = ebb__valley_turn(search, (uint64_t)nodes);
        ebb_height height = found ? 0 : ebb__valley_complete(search);
        if (height < lowest) {
            lowest = height;
            for (uint32_t b = 0; b < problem->count; b++)
                offsets[b] = (uint64_t)search->base.floor[b] * unit;
        }
        if (found || !search->base.stopped || search->base.no_memory ||
            ebb__effort_is_over(search->base.effort, search->base.limit_steps)) {
            if (lowest == EBB_HEIGHT_MAX)
                memset(offsets, 0xff, problem->count * sizeof *offsets);
            return found;
        }
        if (i % RANKINGS == 0)
            nodes *= LAP_GROWS;
    }
}

static enum ebb_status go_valleys(const struct ebb_pool_problem *problem,
                                  const struct ebb_pool_sections *sections, uint64_t unit,
                                  uint32_t limit, struct ebb_effort *effort, uint64_t limit_steps,
                                  uint64_t *turns, uint64_t *offsets,
                                  enum ebb_pool_verdict *verdict)
{
    struct ebb_valley_search search;
    enum ebb_status status = ebb__valley_init(&search, problem, sections, unit, (ebb_height)limit);
    if (!status) {
        search.base.effort = effort;
        search.base.limit_steps = limit_steps;
        *verdict = EBB_POOL_FOUND;
        if (!go_turns(&search, problem, sections, unit, turns, offsets))
            *verdict = search.base.stopped ? EBB_POOL_TIME_OUT : EBB_POOL_IMPOSSIBLE;
        if (search.base.no_memory)
            status = EBB_ERR_MEMORY;
    }
    ebb__valley_fini(&search);
    return status;
}

static uint64_t top_of(const struct ebb_pool_problem *problem, const uint64_t *offsets)
{
    uint64_t top = 0;
    for (uint32_t i = 0; i < problem->count; i++) {
        if (offsets[i] == UINT64_MAX)
            return UINT64_MAX;
        if (offsets[i] + problem->buffers[i].size_bytes > top)
            top = offsets[i] + problem->buffers[i].size_bytes;
    }
    return top;
}

/* Runs both searches alternately, each for a growing time; `lowest` keeps the better of their
 * packings. */
static enum ebb_status go_both(const struct ebb_pool_problem *problem,
                               const struct ebb_pool_sections *sections, uint64_t unit,
                               uint32_t limit, struct ebb_effort *effort, uint64_t limit_steps,
                               uint64_t turns[2], uint64_t *lowest, uint64_t *offsets,
                               enum ebb_pool_verdict *verdict)
{
    uint64_t top = UINT64_MAX;
    enum ebb_status status = EBB_OK;
    *verdict = EBB_POOL_TIME_OUT;
    memset(offsets, 0xff, problem->count * sizeof *offsets);
    for (int i = 0; !status && *verdict == EBB_POOL_TIME_OUT &&
                    (i == 0 || !ebb__effort_is_over(effort, limit_steps));
         i++) {
        uint64_t until =
            effort->spent + (ebb__tuning()->pack_pair_steps * problem->count * problem->count
                             << (i / 2 < 20 ? i / 2 : 20));
        if (until > limit_steps)
            until = limit_steps;
        status = (i % 2 ? go_valleys : ebb__pool_canonical)(problem, sections, unit, limit, effort,
                                                            until, &turns[i % 2], lowest, verdict);
        uint64_t found = top_of(problem, lowest);
        if (status || *verdict == EBB_POOL_IMPOSSIBLE || found >= top)
            continue;
        top = found;
        memcpy(offsets, lowest, problem->count * sizeof *offsets);
    }
    return status;
}

enum ebb_status ebb__pool_exact(const struct ebb_pool_problem *problem,
                                const struct ebb_pool_sections *sections, uint64_t height_bytes,
                                struct ebb_effort *effort, uint64_t limit_steps, uint64_t turns[2],
                                uint64_t *offsets, enum ebb_pool_verdict *verdict)
{
    *verdict = EBB_POOL_IMPOSSIBLE;
    if (sections->load_bound_bytes > height_bytes)
        return EBB_OK;
    *verdict = EBB_POOL_FOUND;
    if (problem->count == 0)
        return EBB_OK;
    bool rounded;
    uint64_t unit = unit_find(problem, height_bytes, &rounded);
    uint64_t *scratch = malloc(problem->count * sizeof *scratch);
    if (!scratch)
        return EBB_ERR_MEMORY;
    enum ebb_status status = go_both(problem, sections, unit, (uint32_t)(height_bytes / unit),
                                     effort, limit_steps, turns, scratch, offsets, verdict);
    if (*verdict == EBB_POOL_IMPOSSIBLE && rounded)
        *verdict = EBB_POOL_TIME_OUT;
    free(scratch);
    return status;
}
