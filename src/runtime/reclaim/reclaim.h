/* Reclaim: what is evicted when memory is needed that no plan has freed. */
#ifndef EBB_RUNTIME_RECLAIM_RECLAIM_H
#define EBB_RUNTIME_RECLAIM_RECLAIM_H

#include "runtime/transfer/transfer.h"

/* Its pages are in use from now on (or not any more): plans must leave that much memory. */
void ebb__slab_count(struct ebb_runtime *runtime, const struct block *block, bool here);
/* It was parked and has been unparked. */
void ebb__slab_unparked(struct ebb_runtime *runtime, struct block *block);
/* Park up to `most` of those that have not been looked at in this lap; nothing where it is too early
 * for another one. */
void ebb__slab_look(struct ebb_runtime *runtime, uint32_t most);
/* A slab that has not been used for some time; NULL: none. */
struct block *ebb__slab_victim(struct ebb_runtime *runtime);
/* The one that has been resident, or unused, for longest; NULL: none may be evicted. O(slabs) */
struct block *ebb__slab_oldest(struct ebb_runtime *runtime);
/* A thread of the program waits for `address` in it. */
void ebb__slab_fault(struct ebb_runtime *runtime, struct block *block, uintptr_t address);
/* All are fetched, and stay until all_here is cleared. Releases the lock while it waits. */
void ebb__slab_fetch_all(struct ebb_runtime *runtime);

/* victim.c */
/* victim.c */
struct block *ebb__victim_choose(struct ebb_runtime *runtime);

/* room.c */
/* Evict until `bytes` will be available; false: nothing is being evicted, waiting is of no use.
 * There may be enough pages of another kind: then the request can be forced. */
bool ebb__room_make(struct ebb_runtime *runtime, uint64_t bytes);
/* No block of this process can be evicted: ask for what other processes of the run hold, wait a
 * little; false: it is of no use to wait longer. Releases the lock. *asking: zero before the first
 * call. */
bool ebb__room_ask_others(struct ebb_runtime *runtime, uint64_t bytes, struct asking *asking);
/* The policy's make_room(). */
bool ebb__room_get(struct ebb_runtime *runtime, uint64_t bytes, struct asking *asking);
/* Evict until `bytes` are being written back, or nothing more can be evicted. */
void ebb__room_evict_until(struct ebb_runtime *runtime, uint64_t bytes);
/* A budget that has just been set, or that the store did not let be kept, is approached step by step, then
 * it holds. */
void ebb__room_approach_budget(struct ebb_runtime *runtime);

#endif
