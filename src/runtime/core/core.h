/* What all parts of the runtime share: the lock, the device, the ledger, the questions to policy.
 *
 * Every function of the runtime's parts expects the lock to be held unless it says otherwise. */
#ifndef EBB_RUNTIME_CORE_CORE_H
#define EBB_RUNTIME_CORE_CORE_H

#include "base/clock.h"
#include "runtime/config.h"

#include <pthread.h>

#define NO_BLOCK 0u /* index of no block; block 0 of the table is never used */

struct block;

/* A wait for pages that other processes hold. */
struct asking {
    uint64_t since_ns;  /* 0: none */
    uint64_t passed_on; /* the ledger's, at first */
    bool is_heard;      /* by the parent, since_ns ago */
};

/* What mechanism asks of policy. Blocks, pages and lanes know nothing of scripts and victims but what these
 * functions say; each may be called with the lock held, and none waits unless stated. `context` is
 * core->policy_context. */
struct policy {
    /* Is a script in force? */
    bool (*is_planned)(const void *context);
    /* Nanoseconds of its iteration; 0: none is in force. */
    uint64_t (*iteration_ns)(const void *context);
    /* Does it move `block` as a whole? */
    bool (*knows)(const void *context, const struct block *block);
    /* How far away the next use of `block` is thought to be: larger is later, 0: now. */
    uint64_t (*next_use)(const void *context, const struct block *block);
    /* Clock positions until `size_bytes` are allocated next, until a block is to lie in `unit` of the
     * pool; UINT32_MAX: never. Only while a script is in force. */
    uint32_t (*next_alloc)(const void *context, uint64_t size_bytes);
    uint32_t (*next_cover)(const void *context, uint32_t unit);
    /* Is the next use of `block` to be a fault? */
    bool (*is_awaited)(const void *context, const struct block *block);
    /* The room of `block` is needed first for something else. */
    void (*evicting)(void *context, struct block *block);
    /* The program has waited `ns` for `block`, which is back. */
    void (*was_late)(void *context, const struct block *block, uint64_t ns);
    /* The store's copy of `block`, kept because it was to be only read, is not its bytes any more. */
    void (*changed)(void *context, const struct block *block);
    /* Do what is due by time. Returns when to ask again (CLOCK_MONOTONIC), 0: when woken. */
    uint64_t (*fire)(void *context);
    /* The program goes on, having waited for the runtime. */
    void (*resumed)(void *context);
    /* Let victims leave until `bytes` will be available, or ask other processes for them; false: waiting is of
     * no use. May release the lock. */
    bool (*make_room)(void *context, uint64_t bytes, struct asking *asking);
    /* A slab has been parked; one that was parked is back. */
    void (*slab_parked)(void *context, struct block *block);
    void (*slab_back)(void *context, struct block *block);
};

/* What all parts share. */
struct core {
    pthread_mutex_t lock;   /* for the state of all blocks, and everything below */
    pthread_cond_t changed; /* some block changed state, or pages were freed */
    struct ebb_runtime_config config;
    struct ebb_device device;
    struct ebb_ledger *ledger;
    struct ebb_ledger_slot *slot; /* ours */
    struct ebb_ring *ring;
    struct ebb_counters *counters;
    const struct policy *policy; /* what mechanism asks */
    void *policy_context;        /* of its functions */
    bool forked;                 /* pages may be shared with a child */
    uint64_t stalled_ns;         /* that the program has waited for the runtime in all */
    uint32_t held;               /* waits at a clock event or for an absent block, now */
    uint64_t held_since_ns;      /* when the first of them began */
};

/* core.c */
/* What `config` leaves open is as usual; `policy` is asked with `context`. */
void ebb__core_init(struct core *core, const struct ebb_runtime_config *config,
                    const struct policy *policy, void *context);
/* In the child of a fork: nobody waits, all pages came along, and it has its own ledger and ring. */
void ebb__core_forked(struct core *core, struct ebb_ledger *ledger, struct ebb_ring *ring);
void *ebb__core_memory(size_t bytes); /* zeroed, from the system; NULL: none */

void ebb__core_unmap(void *memory, size_t bytes); /* back to it; NULL is fine */

void ebb__core_event(struct core *core, const struct ebb_event *event);

void ebb__core_mark(struct core *core, enum ebb_mark mark, uint64_t value);

/* Tells it to the person who runs the program, where there is a way. */
void ebb__core_warn(struct core *core, const char *message);

/* Wait for `condition` until `ns` of CLOCK_MONOTONIC at most; false: it is over. Releases the lock. */
bool ebb__core_wait_until(struct core *core, pthread_cond_t *condition, uint64_t ns);

/* progress.c */
/* CLOCK_MONOTONIC less what the program has waited for the runtime. */
uint64_t ebb__progress_ns(const struct core *core);

/* The program has waited so long. */
void ebb__progress_stalled(struct core *core, uint64_t ns);

/* The program is held, or goes on: what it has waited counts. */
void ebb__progress_hold(struct core *core, bool hold);

static inline uint64_t ebb__whole_pages(uint64_t bytes)
{
    return (bytes + EBB_PAGE_BYTES - 1) & ~(EBB_PAGE_BYTES - 1);
}
static inline uint64_t ebb__whole_units(uint64_t bytes)
{
    return (bytes + EBB_HUGE_BYTES - 1) & ~(EBB_HUGE_BYTES - 1);
}

#endif
