/* Reclaim: chooses what to evict if memory is needed that no plan has freed. */
#ifndef EBB_RUNTIME_RECLAIM_RECLAIM_H
#define EBB_RUNTIME_RECLAIM_RECLAIM_H

#include "runtime/reclaim/foresee.h"
#include "runtime/reclaim/in_order.h"
#include "runtime/transfer/transfer.h"

/* The position in the round of the slabs, in which idle slabs are found. */
struct slab_hand {
    uint32_t next;      /* slab to be looked at next */
    uint32_t lap_slabs; /* the round ends before this slab */
    uint32_t next_victim;
    uint64_t lap_ns;        /* when the round began */
    uint64_t lap_out_bytes; /* moved out of memory when the round began */
    bool forks;             /* a fork is in progress: what becomes resident is not used */
};

struct reclaim {
    struct core *core;
    struct table *table;
    struct addresses *addresses;
    struct memory *memory;
    struct transfer *transfer;
    struct slab_hand hand;
    struct foresee foresee;
    struct in_order order;
    uint64_t short_until_ns; /* act ahead of need before this time: memory was lacking lately */
    uint64_t look_at;        /* use or operation before which no block to fetch is looked for */
    bool foresees;           /* some block was expected at the last look */
    uint64_t order_at;       /* as look_at: for what is demanded in order */
    uint64_t alone_until_ns; /* do not ask other processes before this time: they released
                                nothing */
};

void ebb__reclaim_init(struct reclaim *reclaim, struct transfer *transfer);
/* Around fork(): before it, and after it in the parent. Before it, if the budget is tight, parked
 * slabs are evicted for a limited time, during which the lock is released. */
void ebb__reclaim_before_fork(struct reclaim *reclaim);
void ebb__reclaim_after_fork(struct reclaim *reclaim);
/* In the child, after its lanes have started. It may have lost the right to let system calls wait
 * for a page. Then this function fetches all slabs. Releases the lock while it waits. */
void ebb__reclaim_forked(struct reclaim *reclaim);

/* The slab's pages begin (or cease) to be in use. Plans must reserve memory for them. */
void ebb__slab_count(struct reclaim *reclaim, const struct block *block, bool here);
/* The slab was parked and is in the arena again. */
void ebb__slab_back(struct reclaim *reclaim, struct block *block);
/* Parks up to `most` slabs that this round has not looked at. Does nothing if it is too early for
 * another round. */
void ebb__slab_look(struct reclaim *reclaim, uint32_t most);
/* Call at each allocation. Looks at some slabs if accesses are observed or blocks are evicted. */
void ebb__slab_step(struct reclaim *reclaim);
/* A slab that has not been used for some time. NULL: none. */
struct block *ebb__slab_victim(struct reclaim *reclaim);
/* The slab that has been resident, or unused, for longest. NULL: none that may be evicted.
 * O(slabs) */
struct block *ebb__slab_oldest(struct reclaim *reclaim);
/* A thread of the program waits for `address` in the slab. */
void ebb__slab_fault(struct reclaim *reclaim, struct block *block, uintptr_t address);

/* victim.c */
/* The block to evict now. NULL: none can be evicted. */
struct block *ebb__victim_choose(struct reclaim *reclaim);
/* The block to evict ahead of need. NULL: all are in use, as far as is known. */
struct block *ebb__victim_ahead(struct reclaim *reclaim);

/* The block that is used latest, as far as that is known. NULL: all are in use. *distance: of its
 * next use. */
struct block *ebb__victim_latest(struct reclaim *reclaim, uint64_t *distance);

/* ahead.c */
/* Begins to evict and fetch ahead of need if no plan is in force and memory was lacking lately.
 * Call after each use and operation. */
void ebb__reclaim_ahead(struct reclaim *reclaim);
/* The program waits for `block`, which is absent, and no plan is in force. */
void ebb__reclaim_demanded(struct reclaim *reclaim, const struct block *block);

/* room.c */
/* Evicts victims until `bytes` will be available. False: nothing is being evicted, so waiting is of
 * no use. Enough memory may then exist in an unsuitable form, and can be taken by force. */
bool ebb__room_make(struct reclaim *reclaim, uint64_t bytes);
/* Asks other processes of the run for memory and waits a little, since this process cannot evict
 * any more. False: further waiting is of no use. Releases the lock. *asking: zero before the first
 * call. */
bool ebb__room_ask_others(struct reclaim *reclaim, uint64_t bytes, struct asking *asking);
/* The policy's make_room(). */
bool ebb__room_get(struct reclaim *reclaim, uint64_t bytes, struct asking *asking);
/* Evicts victims until `bytes` are being evicted, or nothing more can be. */
void ebb__room_evict_until(struct reclaim *reclaim, uint64_t bytes);
/* Approaches a budget step by step until it holds. The budget was just set, or the store prevented
 * keeping it. */
void ebb__room_approach_budget(struct reclaim *reclaim);

#endif
