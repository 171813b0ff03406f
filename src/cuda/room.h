/* Room: what leaves the device so that something else fits.
 *
 * In launch order, the units on the device or on their way to it never exceed the limit. This is
 * the budget without what other processes hold, and at most what the card has. Cached units go
 * first. Then blocks are evicted: the one with the farthest next use in the plan, else the least
 * recently used one. Blocks that a work holds, that are kept, or whose streams are being captured
 * stay.
 */
#ifndef EBB_CUDA_ROOM_H
#define EBB_CUDA_ROOM_H

#include "cuda/follow.h"
#include "cuda/mover.h"
#include "cuda/pool.h"

#define CUDA_MOST_SHARED 4096u

struct cuda_shared { /* blocks that are the driver's own memory (shared.c) */
    struct cuda_shared_block {
        CUdeviceptr address;
        uint64_t bytes;
    } items[CUDA_MOST_SHARED]; /* in any order */
    uint32_t count;
    uint64_t bytes; /* in the ledger */
};

struct cuda_room {
    const struct ebb_cuda_config *config;
    struct cuda_table *table;
    struct cuda_streams *streams;
    struct cuda_pool *pool;
    struct cuda_mover *mover;
    struct ebb_cuda_backing *backing;
    struct ebb_cuda_follow *follow;
    uint32_t process;        /* as the parent knows it */
    uint64_t card_bytes;     /* what the device had free at first */
    uint64_t absent_bytes;   /* of absent blocks, in launch order */
    uint64_t searches;       /* for victims: a number for each */
    bool was_refused;        /* something could not be had that may be had later */
    bool is_host_full;       /* an eviction was refused for that */
    bool has_asked;          /* other processes, for what is missing */
    struct cuda_ahead ahead; /* of the newest choice */
    struct cuda_shared shared;
};

/* Most bytes that may be on the device now. */
uint64_t ebb__room_limit(const struct cuda_room *room);
/* May `bytes` more be absent? */
bool ebb__room_has_host(const struct cuda_room *room, uint64_t bytes);
/* `count` units more fit. False: whatever could leave has left. */
bool ebb__room_make(struct cuda_room *room, uint64_t count);
/* Likewise, but only free ranges leave, for which nothing must be waited, and of sizes that are not
 * needed soon. */
bool ebb__room_make_spare(struct cuda_room *room, uint64_t count);
/* Returns `bytes` of the device's memory, as far as possible. What already leaves counts. */
void ebb__room_shrink(struct cuda_room *room, uint64_t bytes);
/* The block leaves, after the work that uses it. False: it cannot now. */
bool ebb__room_evict(struct cuda_room *room, uint32_t block);
/* Could it be evicted, as far as is known without the driver? */
bool ebb__room_may_evict(const struct cuda_room *room, uint32_t block);
/* An absent block, for which there is room, comes back. False: memory is exhausted. Or a work that
 * has begun uses it where it is, and a move beside that would lose bytes. */
bool ebb__room_fetch(struct cuda_room *room, uint32_t block);
/* Likewise a resident block that has strayed. */
void ebb__room_fetch_stray(struct cuda_room *room, uint32_t block);
/* From its arrival on, accesses to an absent block are served. Nothing happens if they are. */
void ebb__room_serve(struct cuda_room *room, uint32_t block);

#endif
