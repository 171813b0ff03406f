/* Fits: buffers are placed one after the other, each into a gap between the placed buffers that are
 * live together with it. Fits differ in the order and in the choice of the gap. */
#ifndef EBB_PLAN_POOL_FIT_H
#define EBB_PLAN_POOL_FIT_H

#include "plan/pool/pool.h"
#include "plan/pool/sections.h"

#include <stdbool.h>
#include <stdint.h>

enum ebb_pool_rule {
    EBB_POOL_FIRST_FIT, /* the lowest gap that is large enough */
    EBB_POOL_BEST_FIT,  /* the smallest gap, of equals the lowest; on top only if there is none */
};

/* The placed buffers, by offset. A run that crosses the end of the circle covers [first, last) and
 * [0, more). */
struct ebb_pool_fit {
    const struct ebb_pool_problem *problem;
    const struct ebb_pool_sections *sections;
    uint32_t *first, *last, *more;
    uint64_t *offset, *top;
    uint32_t count;
};

EBB_NODISCARD enum ebb_status ebb__pool_fit_init(struct ebb_pool_fit *fit,
                                                 const struct ebb_pool_problem *problem,
                                                 const struct ebb_pool_sections *sections);
void ebb__pool_fit_fini(struct ebb_pool_fit *fit);

/* Places all buffers in this order. Returns the height, or UINT64_MAX as soon as it is certain to
 * reach `below`; `offsets` is then meaningless. O(n^2), with a small constant. */
uint64_t ebb__pool_fit_pack(struct ebb_pool_fit *fit, const uint32_t *order,
                            enum ebb_pool_rule rule, uint64_t below, uint64_t *offsets);

/* Orders: by two keys, the larger first; ties by earlier lifetime. */
enum ebb_pool_key {
    EBB_POOL_BY_SIZE,
    EBB_POOL_BY_WIDTH, /* its lifetime */
    EBB_POOL_BY_AREA,
    EBB_POOL_BY_LOAD,  /* the largest load during its lifetime */
    EBB_POOL_BY_BEGIN, /* the earlier first */
    EBB_POOL_BY_PEAK,  /* buffers live at the peak first, by size; all others are equal */
};

/* A way to pack in one pass. */
struct ebb_pool_way {
    enum ebb_pool_key first, second;
    enum ebb_pool_rule rule;
};

/* The ways of the portfolio; *count is their number. */
const struct ebb_pool_way *ebb__pool_ways(size_t *count);

/* A permutation of the buffers. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__pool_order(const struct ebb_pool_problem *problem,
                                              const struct ebb_pool_sections *sections,
                                              enum ebb_pool_key first, enum ebb_pool_key second,
                                              uint32_t *order);

#endif
