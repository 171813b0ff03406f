/* Shared by all parts of the runtime: the lock, the device, the ledger, the questions to policy.
 *
 * Each function of the runtime's parts expects the lock to be held, unless its comment says
 * otherwise. */
#ifndef EBB_RUNTIME_CORE_CORE_H
#define EBB_RUNTIME_CORE_CORE_H

#include "base/clock.h"
#include "runtime/config.h"

#include <pthread.h>

#define NO_BLOCK 0u /* index of no block; block 0 of the table is never used */

struct block;

/* A wait for memory that other processes hold. */
struct asking {
    uint64_t since_ns;  /* 0: none */
    uint64_t passed_on; /* the ledger's passed_on when the wait began */
    bool is_heard;      /* the parent has seen it; since_ns is then the time of that */
};

/* The questions of mechanism to policy. Blocks, pages and lanes know scripts and victims only
 * through these functions. Each may be called with the lock held, and none waits unless stated.
 * `context` is core->policy_context. */
struct policy {
    /* Is a script in force? */
    bool (*is_planned)(const void *context);
    /* Length of the iteration of the script in force, in nanoseconds. 0: none is in force. */
    uint64_t (*iteration_ns)(const void *context);
    /* Does the script move `block` as a whole? */
    bool (*knows)(const void *context, const struct block *block);
    /* The expected distance of the next use of `block`. Larger is later; 0: now. */
    uint64_t (*next_use)(const void *context, const struct block *block);
    /* Clock positions until the next allocation of `size_bytes`, and until the next block in `unit`
     * of the static placement. UINT32_MAX: never. Only while a script is in force. */
    uint32_t (*next_alloc)(const void *context, uint64_t size_bytes);
    uint32_t (*next_cover)(const void *context, uint32_t unit);
    /* Must the next use of `block` be seen as a fault? */
    bool (*is_awaited)(const void *context, const struct block *block);
    /* The memory of `block` is needed first for another use. */
    void (*evicting)(void *context, struct block *block);
    /* The program has waited `ns` for `block`, which is resident again. */
    void (*was_late)(void *context, const struct block *block, uint64_t ns);
    /* The store's copy of `block` is outdated. It was kept because the block was expected not to
     * change. */
    void (*changed)(void *context, const struct block *block);
    /* Performs the actions whose time has come. Returns when to call again (CLOCK_MONOTONIC); 0:
     * when woken. */
    uint64_t (*fire)(void *context);
    /* The program resumes after a wait for the runtime. */
    void (*resumed)(void *context);
    /* Evicts victims until `bytes` will be available, or asks other processes for them. False:
     * waiting is of no use. May release the lock. */
    bool (*make_room)(void *context, uint64_t bytes, struct asking *asking);
    /* A slab has been parked, or a parked one is resident again. */
    void (*slab_parked)(void *context, struct block *block);
    void (*slab_back)(void *context, struct block *block);
};

/* State that all parts share. */
struct core {
    pthread_mutex_t lock;   /* protects the state of all blocks, and everything below */
    pthread_cond_t changed; /* signalled if a block changed state or pages were freed */
    struct ebb_runtime_config config;
    struct ebb_device device;
    struct ebb_ledger *ledger;
    struct ebb_ledger_slot *slot; /* this process's slot */
    struct ebb_ring *ring;
    struct ebb_counters *counters;
    const struct policy *policy; /* the questions of mechanism */
    void *policy_context;        /* passed to the functions of `policy` */
    bool forked;                 /* pages may be shared with a child */
    bool retired;                /* the process has left the run (retire.c): it tells nothing */
    uint64_t stalled_ns;         /* total time that the program has waited for the runtime */
    uint32_t held;               /* waits in progress, at clock events or for absent blocks */
    uint64_t held_since_ns;      /* when the first of these began */
    uint64_t observed_ns;        /* what observation has cost, and no mark has told so far */
};

/* core.c */
/* Unset fields of `config` get their defaults. `policy` is called with `context`. */
void ebb__core_init(struct core *core, const struct ebb_runtime_config *config,
                    const struct policy *policy, void *context);
/* In the child of a fork: no thread waits, all pages are inherited, and it has its own ledger and
 * ring. */
void ebb__core_forked(struct core *core, struct ebb_ledger *ledger, struct ebb_ring *ring);
void *ebb__core_memory(size_t bytes); /* zeroed memory from the system; NULL: none left */

void ebb__core_unmap(void *memory, size_t bytes); /* unmaps it; NULL is allowed */

void ebb__core_event(struct core *core, const struct ebb_event *event);

void ebb__core_mark(struct core *core, enum ebb_mark mark, uint64_t value);

/* Shows `message` to the person who runs the program, if possible. */
void ebb__core_warn(struct core *core, const char *message);

/* Waits for `condition`, at most until `ns` of CLOCK_MONOTONIC. False: that time has passed.
 * Releases the lock. */
bool ebb__core_wait_until(struct core *core, pthread_cond_t *condition, uint64_t ns);

/* progress.c */
/* CLOCK_MONOTONIC minus the time that the program has waited for the runtime. */
uint64_t ebb__progress_ns(const struct core *core);

/* The program has waited `ns`. */
void ebb__progress_stalled(struct core *core, uint64_t ns);

/* Begins or ends a wait of the program, which counts as stalled time. */
void ebb__progress_hold(struct core *core, bool hold);

/* Observing accesses has cost the program `ns`, for so many faults. The next event is preceded by a
 * mark that tells it. */
void ebb__progress_observed(struct core *core, uint64_t ns, unsigned faults);

/* Writes that mark if there is enough to tell. */
void ebb__progress_tell_observed(struct core *core);

static inline uint64_t ebb__whole_pages(uint64_t bytes)
{
    return (bytes + EBB_PAGE_BYTES - 1) & ~(EBB_PAGE_BYTES - 1);
}
static inline uint64_t ebb__whole_units(uint64_t bytes)
{
    return (bytes + EBB_HUGE_BYTES - 1) & ~(EBB_HUGE_BYTES - 1);
}

#endif
