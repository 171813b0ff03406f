/* Observation rests while nothing comes of it: each step differs from the one before, so there is
 * no plan. Or the run is far below its budget, so there is nothing to evict. */
#ifndef EBB_PARENT_REST_H
#define EBB_PARENT_REST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ebb_parent;
struct process;

/* A stretch in which accesses are observed, or not. Zeros: none has begun. */
struct rest {
    uint64_t from_ns;      /* when it began */
    uint64_t from_lost_ns; /* what had been lost, */
    uint64_t from_allocs;  /* the allocations made, */
    uint64_t peak_bytes;   /* and the most that had been live until then */
    double observed_share; /* lost of the time in the newest stretch that was observed */
    size_t patterns;       /* repetitions known when the rest began */
    unsigned fruitless;    /* observations in a row that no plan came of */
    bool is_judged;        /* it is known whether resting costs less */
    bool is_dearer;        /* it costs more */
    bool is_far;           /* the run has not come near its budget: there is nothing to plan */
    uint64_t next_look_ns;
};

/* A process has said hello. While the run is far below its budget, its accesses are not
 * observed. */
void ebb__rest_begin(const struct ebb_parent *parent, struct process *process);

/* While no plan is there, ends or begins observing accesses, whichever costs less. Call in
 * PHASE_OBSERVING, PHASE_RELEARNING and PHASE_RESTING. Looks seldom, and is cheap otherwise. */
void ebb__rest_consider(const struct ebb_parent *parent, struct process *process);

#endif
