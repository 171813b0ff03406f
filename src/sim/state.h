/* The state of a running simulation: setup.c prepares it, and simulate.c changes it event by
 * event. */
#ifndef EBB_SIM_STATE_H
#define EBB_SIM_STATE_H

#include "sim/simulate.h"
#include "sim/uses.h"

#define LAPS_MAX 8
#define LAPS_PASSIVE_MAX 32 /* until the same blocks are evicted in each iteration */
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

/* Copies in by their planned starts. `next` is the first that has not come yet. */
struct triggers {
    struct in_key *items; /* absences that are fetched again */
    uint32_t count, next;
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

/* What a passive plan knows of a block. */
struct passive_block {
    uint32_t absence;    /* what keeps the block absent or is about to; NONE: it is resident */
    uint32_t used_tick;  /* its last use; NONE: none since its allocation */
    uint64_t used_at;    /* events of all iterations before that use */
    uint64_t evicted_ns; /* model time of its last passive eviction */
    uint32_t fetched_by; /* the planned absence that has ended before the use; NONE */
    bool single;         /* no instances of several iterations live at once */
    bool live, movable;
};

struct passive {
    struct ebb_sim_uses uses;
    struct passive_block *blocks;
    bool begun;         /* blocks are evicted */
    uint64_t lap_first; /* events before this iteration */
    uint32_t count;     /* absences noted in this iteration */
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
    struct triggers triggers;
    struct queue out_queue, in_queue;
    struct lane out, in;

    uint64_t resident_bytes;
    uint64_t now_ns, model_ns; /* real and model clock; model_ns is within the iteration */
    uint32_t tick;             /* next event */
    uint32_t barrier;          /* next barrier of the rules */
    struct wait wait;
    struct ebb_sim_result lap; /* figures of the current iteration */
    struct passive *passive;   /* NULL: nothing is evicted but by the plan */
};

static inline uint32_t ebb__sim_laps_most(const struct sim *sim)
{
    return sim->passive ? LAPS_PASSIVE_MAX : LAPS_MAX;
}

/* An absence of the plan, or the passive one of a block: those have the numbers behind. */
static inline uint32_t ebb__sim_block(const struct sim *sim, uint32_t absence)
{
    uint32_t planned = sim->request->absence_count;
    return absence < planned ? sim->request->absences[absence].block : absence - planned;
}

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
/* A digest of the state between two iterations. Two iterations that begin with the same one are the
 * same, if the plan is not passive. False: out of memory. */
bool ebb__sim_digest(const struct sim *sim, uint64_t *digest);

/* ---- passive.c; all but the first two do nothing if the plan is not passive ------------------ */

/* False: out of memory. */
bool ebb__passive_init(struct sim *sim);
void ebb__passive_fini(struct sim *sim);
void ebb__passive_lap(struct sim *sim);
/* After an iteration: true if the plan alone is not feasible. Passive swap then begins. */
bool ebb__passive_go_on(struct sim *sim, uint32_t lap, const struct ebb_sim_result *result);
/* What keeps the block of the event absent, or NONE. `planned` is returned without passive. */
uint32_t ebb__passive_absence(const struct sim *sim, const struct ebb_model_event *event,
                              uint32_t planned);
/* True if the plan may evict the block: it is resident. */
bool ebb__passive_allows(const struct sim *sim, uint32_t absence);
/* The absence begins to keep its block absent, or ends. */
void ebb__passive_begin(struct sim *sim, uint32_t absence);
void ebb__passive_end(struct sim *sim, uint32_t absence);
/* The event at sim->tick has happened. */
void ebb__passive_event(struct sim *sim, const struct ebb_model_event *event);
/* Starts the copy out of the least recently used block; false if there is none. */
bool ebb__passive_evict(struct sim *sim);

#endif
