/* Reclaim: what is evicted when memory is needed that no plan has freed. */
#ifndef EBB_RUNTIME_RECLAIM_RECLAIM_H
#define EBB_RUNTIME_RECLAIM_RECLAIM_H

#include "runtime/transfer/transfer.h"

/* The hand that goes round the slabs. */
struct slab_hand {
    uint32_t next;      /* slab to be looked at next */
    uint32_t lap_slabs; /* the lap ends in front of this one */
    uint32_t next_victim;
    uint64_t lap_ns; /* when the lap began */
    bool all_here;   /* around fork: none is parked, none leaves */
};

struct reclaim {
    struct core *core;
    struct table *table;
    struct addresses *addresses;
    struct memory *memory;
    struct transfer *transfer;
    struct slab_hand hand;
    uint64_t alone_until_ns; /* other processes gave nothing: do not ask before */
};

void ebb__reclaim_init(struct reclaim *reclaim, struct transfer *transfer);
/* Around fork: all slabs come back, and stay until it is over. Releases the lock while it waits. */
void ebb__reclaim_before_fork(struct reclaim *reclaim);
/* It is over, in parent and child. */
void ebb__reclaim_forked(struct reclaim *reclaim);

/* Its pages are in use from now on (or not any more): what plans have to leave room for. */
void ebb__slab_count(struct reclaim *reclaim, const struct block *block, bool here);
/* It has been parked and is back. */
void ebb__slab_back(struct reclaim *reclaim, struct block *block);
/* Park up to `most` of those that have not been looked at in this lap; nothing where it is too early
 * for another one. */
void ebb__slab_look(struct reclaim *reclaim, uint32_t most);
/* A slab that has not been used for some time; NULL: none. */
struct block *ebb__slab_victim(struct reclaim *reclaim);
/* The one that has been there, or has not been used, for longest; NULL: none that may leave. O(slabs) */
struct block *ebb__slab_oldest(struct reclaim *reclaim);
/* A thread of the program waits for `address` in it. */
void ebb__slab_fault(struct reclaim *reclaim, struct block *block, uintptr_t address);

/* victim.c */
struct block *ebb__victim_choose(struct reclaim *reclaim);

/* room.c */
/* Let victims leave until `bytes` will be available; false: nothing is on its way out, waiting is of no use
 * (there may be enough, but not as it is wanted: then it can be forced). */
bool ebb__room_make(struct reclaim *reclaim, uint64_t bytes);
/* No block of this process can leave: ask for what other processes of the run hold, wait a little;
 * false: it is of no use to wait longer. Releases the lock. *asking: zero before the first call. */
bool ebb__room_ask_others(struct reclaim *reclaim, uint64_t bytes, struct asking *asking);
/* The policy's make_room(). */
bool ebb__room_get(struct reclaim *reclaim, uint64_t bytes, struct asking *asking);
/* Let victims leave until `bytes` are on their way out, or nothing more can leave. */
void ebb__room_evict_until(struct reclaim *reclaim, uint64_t bytes);
/* A budget that has just been set, or that the store did not let be kept, is approached step by step, then
 * it holds. */
void ebb__room_approach_budget(struct reclaim *reclaim);

#endif
