/* A simulation under way: what simulate.c changes event by event, and setup.c prepares. */
#ifndef EBB_SIM_STATE_H
#define EBB_SIM_STATE_H

#include "sim/simulate.h"

#define LAPS_MAX 8
#define NONE UINT32_MAX

enum state { RESIDENT, QUEUED, WRITING_BACK, EVICTED, FETCHING };

/* Absences in the order in which they asked for a lane. Entries of cancelled ones go stale and are
 * dropped when they are met; each absence enters at most once a lap. */
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
    uint64_t half_ns_left; /* in half nanoseconds, so that sharing stays exact */
};

/* Why the event at sim->tick cannot happen yet. */
enum wait_kind {
    WAIT_NONE,
    WAIT_ROOM,  /* an allocation needs room */
    WAIT_BLOCK, /* a use needs a block that is not there */
};

struct wait {
    enum wait_kind kind;
    uint32_t demanded; /* WAIT_BLOCK: the absence that the program waits for; else NONE */
    uint64_t bytes;    /* WAIT_ROOM: that are needed */
    uint64_t since_ns;
};

struct sim {
    const struct ebb_sim_request *request;
    const struct ebb_sim_detail *detail;
    const struct ebb_model *model;
    uint64_t lap_ns;
    uint64_t *block_bytes;
    uint32_t *ending;      /* by tick: the absence that ends there, NONE */
    uint8_t *state;        /* by absence */
    bool *wanted_in;       /* its in_start has come */
    uint32_t *ready_first; /* tick_count + 1: absences by ready tick */
    uint32_t *ready_list;
    struct in_key *by_in_start; /* absences that come back */
    uint32_t in_count;
    struct queue out_queue, in_queue;
    struct lane out, in;

    uint64_t resident_bytes;
    uint64_t now_ns, model_ns; /* real and model clock; model_ns is within the lap */
    uint32_t tick;             /* next event */
    uint32_t trigger;          /* next entry of by_in_start */
    struct wait wait;
    struct ebb_sim_result lap; /* figures of the lap under way */
};

/* Of several absences that end at one use, which no checked plan has, the first counts. */
static inline bool ebb__sim_is_first_of_gap(const struct sim *sim, uint32_t absence)
{
    return sim->ending[sim->request->absences[absence].to_tick] == absence;
}

/* Do the absences name blocks and ticks of the model? EBB_ERR_ARGUMENT. */
EBB_NODISCARD enum ebb_status ebb__sim_check(const struct ebb_sim_request *request,
                                             struct ebb_error *error);
/* False: no memory; to be released also then. */
bool ebb__sim_allocate(struct sim *sim);
void ebb__sim_release(struct sim *sim);
/* List the absences by the tick at which each becomes ready, and by when each comes back. The tick
 * goes into ready[] as well. EBB_ERR_MEMORY. */
EBB_NODISCARD enum ebb_status ebb__sim_index(struct sim *sim, uint32_t *ready);
/* What is there when the first lap begins. */
void ebb__sim_begin(struct sim *sim, const uint32_t *ready);

#endif
