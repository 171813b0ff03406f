/* Inside the bound: the relaxed gaps, and the linear program over a choice of instants. */
#ifndef EBB_LAB_BOUND_INTERNAL_H
#define EBB_LAB_BOUND_INTERNAL_H

#include "lab/bound/bound.h"

#include <stdbool.h>

/* A gap that a plan may take. Times are unrolled: ready_ns in [0, lap), need_ns after it. */
struct ebb_bound_gap {
    uint64_t bytes;
    uint64_t ready_ns; /* the eviction may start */
    uint64_t need_ns;  /* back by then, or freed */
    uint64_t out_ns;   /* least lane times that a check lets pass */
    uint64_t in_ns;    /* 0 where it drops */
    uint32_t first;    /* it may be absent at the ticks [first, first + count), cyclic */
    uint32_t count;
    bool drops;
};

struct ebb_bound {
    const struct ebb_plan_request *request;
    const struct ebb_model *model;
    uint64_t lap_ns;
    uint64_t *load; /* by tick: bytes that are there unless a gap of `gaps` is taken */
    struct ebb_bound_gap *gaps;
    uint32_t gap_count;
    uint64_t floor_bytes;
};

/* Where the relaxation is exact: instants are ticks, ascending. */
struct ebb_bound_program {
    const struct ebb_bound *bound;
    const uint32_t *instants;
    uint32_t instant_count;
    bool stalls;    /* the program may wait: least stall within the request's budget */
    uint64_t steps; /* for the solver: its iterations times the size of the basis */
    double box_s;   /* the last resort */
    /* Out. */
    double value;   /* bytes of peak, or ns of stall; certified */
    double *absent; /* tick_count: absent bytes at each tick in the relaxed solution, between
                       instants interpolated; the caller's, may be NULL */
    bool solved;    /* to the optimum */
    uint64_t spent; /* of the steps */
};

/* Collect the gaps and the load. `stalls`: also gaps too short for both copies count; the floor then
 * is that of any plan. EBB_ERR_ARGUMENT where the model has no events or no time, EBB_ERR_MEMORY;
 * to be released also then. */
EBB_NODISCARD enum ebb_status ebb__bound_init(struct ebb_bound *bound,
                                              const struct ebb_plan_request *request, bool stalls,
                                              struct ebb_error *error);
void ebb__bound_fini(struct ebb_bound *bound);

/* Build the program and solve it. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__bound_solve(struct ebb_bound_program *program,
                                               struct ebb_error *error);

#endif
