/* Sections: the instants that matter to a packing.
 *
 * Between two successive begins or ends of lifetimes the set of live buffers is constant. A section
 * is such a span whose set is no subset of another. Any two buffers that are ever live together are
 * so in a section. Each buffer covers a contiguous run of sections. On a circle the run may
 * continue at section 0. */
#ifndef EBB_PLAN_POOL_SECTIONS_H
#define EBB_PLAN_POOL_SECTIONS_H

#include "plan/pool/pool.h"

/* first < count; first < last <= first + count. Sections from count on mean those from 0 on. */
struct ebb_pool_run {
    uint32_t first;
    uint32_t last;
};

struct ebb_pool_sections {
    uint32_t count;            /* at least 1 if there are buffers */
    struct ebb_pool_run *runs; /* one a buffer */
    uint64_t *load_bytes;      /* one a section */
    uint64_t load_bound_bytes; /* the largest load */
};

/* The problem must be valid (ebb__pool_solve() checks). O(n log n + sections). */
EBB_NODISCARD enum ebb_status ebb__pool_sections_init(struct ebb_pool_sections *sections,
                                                      const struct ebb_pool_problem *problem);
void ebb__pool_sections_fini(struct ebb_pool_sections *sections);

/* The largest load during a buffer's lifetime. */
static inline uint64_t ebb__pool_sections_peak(const struct ebb_pool_sections *sections,
                                               uint32_t buffer)
{
    uint64_t load = 0;
    for (uint32_t s = sections->runs[buffer].first; s < sections->runs[buffer].last; s++)
        if (sections->load_bytes[s % sections->count] > load)
            load = sections->load_bytes[s % sections->count];
    return load;
}

/* True if two runs on a circle of `count` sections share one. */
static inline bool ebb__pool_runs_meet(struct ebb_pool_run a, struct ebb_pool_run b, uint32_t count)
{
    return (a.first < b.last && b.first < a.last) || a.first + count < b.last ||
           b.first + count < a.last;
}

#endif
