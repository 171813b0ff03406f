/* The state of a running simulation: setup.c prepares it, and simulate.c changes it event by
 * event. */
#ifndef EBB_SIM_STATE_H
#define EBB_SIM_STATE_H

#include "sim/simulate.h"

#define LAPS_MAX 8
#define NONE UINT32_MAX

enum state { RESIDENT, QUEUED, WRITING_BACK, EVICTED, FETCHING };

/* Absences in the order in which they requested a lane. Entries of cancelled ones remain and are
 * skipped when they are reached. Each absence enters at most once an iteration. */
struct queue {
    uint32_t *items;
    uint32_t first, end;
};

struct in_key {
    uint64_t in_start_ns;
    uint32_t absence;
};

struct lane {
    uint32_t absence;      /* NONE: idle */
    uint64_t half_ns_left; /* in half nanoseconds, so that shared rates remain exact */
};

/* Why the event at sim->tick cannot happen yet. */
enum wait_kind {
    WAIT_NONE,
    WAIT_ROOM,  /* an allocation needs memory */
    WAIT_BLOCK, /* a use needs a block that is not resident */
    WAIT_BARRIER,
};

struct wait {
    enum wait_kind kind;
    uint32_t demanded; /* the absence that the program waits for; NONE for memory and copies out */
    uint32_t passed;   /* WAIT_BARRIER: ticks behind it whose blocks are resident */
    uint64_t bytes;    /* WAIT_ROOM: the bytes needed */
    uint64_t since_ns;
};

struct sim {
    const struct ebb_sim_request *request;
    const struct ebb_sim_detail *detail;
    const struct ebb_model *model;
    uint64_t lap_ns;
    uint64_t *block_bytes;
    uint64_t *freed_bytes; /* by block: what its FREE releases */
    uint32_t *ending;      /* by tick: the absence that ends there, or NONE */
    uint8_t *state;        /* by absence */
    bool *wanted_in;       /* its in_start has been reached */
    uint32_t *ready_first; /* tick_count + 1: index of the first absence that is ready at each
                              tick */
    uint32_t *ready_list;
    struct in_key *by_in_start; /* absences that are fetched again */
    uint32_t in_count;
    struct queue out_queue, in_queue;
    struct lane out, in;

    uint64_t resident_bytes;
    uint64_t now_ns, model_ns; /* real and model clock; model_ns is within the iteration */
    uint32_t tick;             /* next event */
    uint32_t trigger;          /* next entry of by_in_start */
    uint32_t barrier;          /* next barrier of the rules */
    struct wait wait;
    struct ebb_sim_result lap; /* figures of the current iteration */
};

/* True for the first of several absences that end at one use. A checked plan has no others. */
static inline bool ebb__sim_is_first_of_gap(const struct sim *sim, uint32_t absence)
{
    return sim->ending[sim->request->absences[absence].to_tick] == absence;
}

/* Checks that the absences name blocks and ticks of the model. EBB_ERR_ARGUMENT. */
EBB_NODISCARD enum ebb_status ebb__sim_check(const struct ebb_sim_request *request,
                                             struct ebb_error *error);
/* False: out of memory. Must be released even then. */
bool ebb__sim_allocate(struct sim *sim);
void ebb__sim_release(struct sim *sim);
/* Sorts the absences by ready tick, and by the start of the copy in. The ready tick is also stored
 * in ready[]. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__sim_index(struct sim *sim, uint32_t *ready);
/* Sets the state at the start of the first iteration. */
void ebb__sim_begin(struct sim *sim, const uint32_t *ready);

#endif
