/* All parts of the engine together, for the files of its interface: engine.c, take.c, alloc.c,
 * work.c, plan.c. */
#ifndef EBB_CUDA_INTERNAL_H
#define EBB_CUDA_INTERNAL_H

#include "cuda/clock.h"
#include "cuda/room.h"
#include "cuda/slabs.h"

#include <sys/types.h>

#define CUDA_MOST_EVENTS_A_WORK 65536u

enum cuda_news { /* what the person who runs the program is told once */
                 CUDA_NEWS_HOST_FULL = 1,
                 CUDA_NEWS_TOO_LARGE = 2,
                 CUDA_NEWS_NO_WAITS = 4,
                 CUDA_NEWS_STREAMS = 8,
                 CUDA_NEWS_AWAY = 16,
};

struct cuda_scratch { /* for one work at a time */
    struct ebb_event *events;
    uint32_t *blocks;
    uint32_t count;
};

struct cuda_held { /* blocks that a work holds beyond those that it can note itself */
    uint32_t block, next;
};

/* The last place in `held` of a work leads to those noted elsewhere. */
#define CUDA_OWN_HELD (EBB_CUDA_MOST_HELD - 1)

struct cuda_holds {
    struct cuda_held *items; /* entry 0 is unused */
    uint32_t used, free;
};

struct cuda_tidings {
    uint32_t news, told; /* bits of enum cuda_news */
    uint64_t too_large_bytes;
};

struct ebb_cuda {
    struct ebb_cuda_config config;
    pthread_mutex_t lock;
    _Atomic bool is_abandoned;
    pid_t process;
    struct cuda_table table;
    struct cuda_streams streams;
    struct cuda_pool pool;
    struct cuda_slabs slabs;
    struct cuda_room room;
    struct ebb_cuda_backing *backing;
    struct cuda_mover *mover;
    struct cuda_gate gate;
    struct ebb_cuda_follow *follow;
    struct ebb_cuda_clock *clock;
    struct cuda_scratch scratch;
    struct cuda_holds holds;
    uint64_t order, newest_serial;
    uint64_t live_units, random;
    uint32_t open_works; /* between begin and end */
    bool is_last_try;    /* an allocation has waited: whatever serves it will do */
    uint32_t swept_arrival;
    struct cuda_tidings tidings;
    struct cuda_plan {
        enum ebb_observe observe;
        bool has_script, was_planned, is_observing;
        uint64_t laps;
    } plan;
};

/* engine.c: around each call. False: the engine has been abandoned, or has been forked. */
bool ebb__cuda_lock(struct ebb_cuda *engine);
/* Also wakes the mover and tells news. */
void ebb__cuda_unlock(struct ebb_cuda *engine);
void ebb__cuda_news(struct ebb_cuda *engine, enum cuda_news news);
/* The block at an address. CUDA_NO_BLOCK: none. *near is the unit found last: its number plus 1 in
 * the address space, and its owner. All zeros at first. It holds while the lock is held. */
struct cuda_near {
    CUdeviceptr unit;
    uint32_t owner;
};
static inline uint32_t ebb__cuda_find_near(const struct ebb_cuda *engine, CUdeviceptr address,
                                           struct cuda_near *near)
{
    if (address / EBB_CUDA_UNIT_BYTES + 1 != near->unit) {
        uint32_t unit = ebb__table_unit(&engine->table, address);
        if (unit == CUDA_NO_UNIT)
            return CUDA_NO_BLOCK;
        near->unit = address / EBB_CUDA_UNIT_BYTES + 1;
        near->owner = atomic_load_explicit(&engine->table.owners[unit], memory_order_acquire);
    }
    if (near->owner & CUDA_SLAB_OWNER)
        return ebb__slabs_find(&engine->slabs, near->owner & ~CUDA_SLAB_OWNER, address);
    return near->owner;
}
static inline uint32_t ebb__cuda_find(const struct ebb_cuda *engine, CUdeviceptr address)
{
    struct cuda_near near = {0};
    return ebb__cuda_find_near(engine, address, &near);
}
uint64_t ebb__cuda_random(struct ebb_cuda *engine);
/* `first_arrival`: for tests. Otherwise 2. */
EBB_NODISCARD enum ebb_status ebb__cuda_create_at(const struct ebb_cuda_config *config,
                                                  uint32_t first_arrival, struct ebb_cuda **engine,
                                                  struct ebb_error *error);

/* plan.c: an event has its place in the launch order: what is due then is done. */
void ebb__cuda_step(struct ebb_cuda *engine, uint8_t kind, uint32_t block);
/* What is due for a block that no work holds any more. */
void ebb__cuda_let_go(struct ebb_cuda *engine, uint32_t block);
/* What has changed by that: marks, counters, whether accesses are observed. */
void ebb__cuda_note_plan(struct ebb_cuda *engine);
/* An event of a block, for the trace. */
void ebb__cuda_event(struct ebb_event *event, const struct cuda_block *block, uint8_t kind,
                     uint8_t access);

/* waits.c: on the host, without the lock. The clock counts the stalls of streams. Where it cannot,
 * the caller adds what it has waited since then. */
void ebb__cuda_count_stall(struct ebb_cuda *engine, uint64_t since_ns);
/* If it is not 0, in a call that belongs to no stream. Counted. */
void ebb__cuda_wait_alone(struct ebb_cuda *engine, uint32_t arrival);
void ebb__cuda_wait_for_issue(struct ebb_cuda *engine, uint32_t arrival);
void ebb__cuda_wait_for_arrival(struct ebb_cuda *engine, uint32_t arrival);
/* What leaves has left, unless kernels wait for what is still to come: then until patience ends. */
void ebb__cuda_wait_for_evictions(struct ebb_cuda *engine);
/* Is `before` over, or if that is NULL, all that is owed? Asks the driver. Expects the lock. */
bool ebb__cuda_is_behind(struct ebb_cuda *engine, const struct cuda_passages *before);
/* Until the stream is ordered behind `before`, or all that is owed, or until patience ends. */
void ebb__cuda_wait_for_work(struct ebb_cuda *engine, uint32_t stream,
                             const struct cuda_passages *before);
/* With the lock, which is released meanwhile: until the gate is open. False: abandoned. */
bool ebb__cuda_await_gate(struct ebb_cuda *engine);
/* With the lock, while the gate is open: the work may be queued from now on. */
void ebb__cuda_enter_gate(struct ebb_cuda *engine, struct ebb_cuda_work *work);
/* Both, for a work that has waited. */
void ebb__cuda_pass_gate(struct ebb_cuda *engine, struct ebb_cuda_work *work);

/* scratch.c: the uses of a work by the names of their blocks. So iterations have the same order. */
void ebb__scratch_sort(struct cuda_scratch *scratch);
/* The block does not leave until the work lets it go. False: too many are held. */
bool ebb__cuda_hold(struct ebb_cuda *engine, struct ebb_cuda_work *work, uint32_t block);

/* sweep.c: now and then, forgets arrivals that are over. Expects the lock. */
void ebb__cuda_sweep(struct ebb_cuda *engine);

/* check.c: in builds with EBB_CHECK, what must hold between calls. */
void ebb__cuda_check(const struct ebb_cuda *engine);

#endif
