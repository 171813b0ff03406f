/* Internals of the bound: the relaxed gaps, and the linear program over the chosen instants. */
#ifndef EBB_LAB_BOUND_INTERNAL_H
#define EBB_LAB_BOUND_INTERNAL_H

#include "lab/bound/bound.h"

#include <stdbool.h>

/* A gap that a plan may use for an absence. Times are unrolled: ready_ns is in [0, lap_ns), need_ns
 * is later. */
struct ebb_bound_gap {
    uint64_t bytes;
    uint64_t ready_ns; /* earliest start of the eviction */
    uint64_t need_ns;  /* the block must be resident again by then, or is freed then */
    uint64_t out_ns;   /* shortest copy out that the checker accepts; 0 if none is needed */
    uint64_t in_ns;    /* shortest copy in that the checker accepts; 0 if the gap drops */
    uint32_t first;    /* the block may be absent at the ticks [first, first + count), cyclic */
    uint32_t count;
    bool drops;
};

struct ebb_bound {
    const struct ebb_plan_request *request;
    const struct ebb_model *model;
    uint64_t lap_ns;
    uint64_t *load; /* by tick: bytes that are resident if none of `gaps` is taken */
    struct ebb_bound_gap *gaps;
    uint32_t gap_count;
    uint64_t floor_bytes;
};

/* One linear program. It is exact only at its instants, which are ticks in ascending order. */
struct ebb_bound_program {
    const struct ebb_bound *bound;
    const uint32_t *instants;
    uint32_t instant_count;
    bool stalls;    /* true: find the least stall within the request's budget; false: the peak */
    uint64_t steps; /* limit for the solver: its iterations times the size of the basis */
    double box_s;   /* time limit of the solver, the last resort */
    /* Results. */
    double value;   /* peak in bytes, or stall in ns; a certified bound */
    double *absent; /* tick_count: absent bytes at each tick in the relaxed solution, interpolated
                       between instants; owned by the caller, may be NULL */
    bool solved;    /* to the optimum */
    uint64_t spent; /* steps used */
};

/* Collects the gaps and the load. If `stalls`, gaps too short for both copies are included, and the
 * floor holds for any plan. EBB_ERR_MEMORY. EBB_ERR_ARGUMENT if the model has no events or no time.
 * Call ebb__bound_fini() after a failure, too. */
EBB_NODISCARD enum ebb_status ebb__bound_init(struct ebb_bound *bound,
                                              const struct ebb_plan_request *request,
                                              enum ebb_bound_copies copies, bool stalls,
                                              struct ebb_error *error);
void ebb__bound_fini(struct ebb_bound *bound);

/* Builds the linear program and solves it. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__bound_solve(struct ebb_bound_program *program,
                                               struct ebb_error *error);

#endif
