/* The pool: which units are free, and what must be over before they are used again.
 *
 * Free units are in *runs*: neighbours in one region that are either all *cached*, with pages on
 * the device, or all *bare*. Each free unit has the passages of those that used it. A run is found
 * by its size in bins (exact up to 32 units, then 8 for each doubling), best fit among those looked
 * at. Addresses cost nothing: a bare run is taken whole from new regions if no other fits.
 *
 * Units whose contents the mover will still destroy are not given out: any kernel might write to
 * them before, even one that nobody announced.
 *
 * The *area* begins a region, and the plan gives its addresses. Its units are in no run.
 *
 * Where pages leave as they came (`moves_whole`), cached runs are neither joined nor cut. Each is
 * what a block was, and serves a block of that size again. In the area, memory comes and leaves in
 * *chunks* of up to 16 units there, which several blocks share. So placed blocks stay until they
 * are freed.
 *
 * `backed_units` is what the launch order has: it counts units on the device, or on their way. */
#ifndef EBB_CUDA_POOL_H
#define EBB_CUDA_POOL_H

#include "cuda/streams.h"
#include "cuda/table.h"

#define CUDA_NO_RUN 0u
#define CUDA_POOL_BINS 192u
#define CUDA_MOST_AREAS 8u

struct cuda_unit {
    struct cuda_passages before; /* of a free unit */
    uint32_t arrival;            /* of its pages, as far as known when it became free; 0: over */
    uint64_t destroyed;          /* request to the mover that destroys its contents; 0: none */
    uint32_t run;                /* of the first and the last unit of a run: its number */
    bool is_free, is_backed, is_area;
    bool is_first; /* of its region, or behind the area in it */
};

struct cuda_run {
    uint32_t first, count;
    uint32_t next, previous; /* in its bin */
    uint32_t newer, older;   /* cached runs, by the time at which they became free */
    bool is_backed;
};

struct cuda_bins {
    uint32_t heads[CUDA_POOL_BINS];
    uint64_t filled[CUDA_POOL_BINS / 64];
};

struct cuda_pool {
    struct cuda_table *table;
    struct cuda_streams *streams;
    struct cuda_unit *units;
    struct cuda_run *runs;
    uint32_t run_count, unused_run;
    struct cuda_bins bins[2]; /* bare, cached */
    uint32_t newest_cached, oldest_cached;
    uint64_t backed_units, cached_units, area_cached_units;
    uint32_t area_first, area_count, area_cursor;
    struct cuda_span {
        uint32_t first, count;
    } old_areas[CUDA_MOST_AREAS]; /* where runs are kept: they have chunks, until these leave */
    uint32_t old_area_count;
    uint32_t chunk_units;              /* of the area; it begins and ends with a chunk */
    const _Atomic uint64_t *outs_over; /* requests up to this number are over */
    bool keeps_runs;                   /* cached ones stay as they are */
    uint32_t kept[CUDA_RUN_SIZES]; /* then: how many there are of a size; larger ones: the last */
};

bool ebb__pool_init(struct cuda_pool *pool, struct cuda_table *table, struct cuda_streams *streams);
void ebb__pool_fini(struct cuda_pool *pool);

/* New addresses, bare. */
void ebb__pool_add(struct cuda_pool *pool, uint32_t first, uint32_t count);
/* `count` units for `stream` (CUDA_NO_STREAM: unknown), cached ones or bare ones. CUDA_NO_UNIT:
 * none fit. *before: what must be over before they are used. Bare ones count as backed now. */
uint32_t ebb__pool_take(struct cuda_pool *pool, uint32_t count, bool cached, uint32_t stream,
                        struct cuda_passages *before);
void ebb__pool_give(struct cuda_pool *pool, uint32_t first, uint32_t count, bool is_backed,
                    const struct cuda_passages *before, uint32_t arrival);
/* The newest arrival that was given with these units. 0: none. */
uint32_t ebb__pool_arrival(const struct cuda_pool *pool, uint32_t first, uint32_t count);
/* Up to `most` units of this cached run, or all of it if runs are kept. CUDA_NO_RUN: of the one
 * that has been free for longest, else of the area, in whole chunks. There are *count; 0: none is
 * cached. Work in *before must be over when their pages are taken. */
uint32_t ebb__pool_cached(struct cuda_pool *pool, uint32_t run, uint32_t most, uint32_t *count,
                          struct cuda_passages *before);
/* Likewise of the chunk at `first`, all of which must be cached. */
void ebb__pool_cached_chunk(struct cuda_pool *pool, uint32_t first, struct cuda_passages *before);
bool ebb__pool_is_cached_chunk(const struct cuda_pool *pool, uint32_t first);
/* Cached chunks, up to `most` units rounded up: of an area that is not used any more, else from
 * where the last search ended. There are *count units. CUDA_NO_UNIT: none. */
uint32_t ebb__pool_oldest_chunks(struct cuda_pool *pool, uint32_t most, uint32_t *count);
/* A cached chunk of an area that is not used any more. CUDA_NO_UNIT: none. */
uint32_t ebb__pool_old_chunk(const struct cuda_pool *pool);
/* These units become bare: the request of that number drops their pages. */
void ebb__pool_drop(struct cuda_pool *pool, uint32_t first, uint32_t count, uint64_t number);
/* The request of that number will destroy the contents of these free units. */
void ebb__pool_destroy(struct cuda_pool *pool, uint32_t first, uint32_t count, uint64_t number);
/* Live units leave the device, or come to it. */
void ebb__pool_set_backed(struct cuda_pool *pool, uint32_t first, uint32_t count, bool is_backed);

/* Old areas of which nothing is in use become runs. False: there are too many others. */
bool ebb__pool_may_set_area(struct cuda_pool *pool);
/* The first units of a new region, whole chunks, are the area from now on. Those of the old one
 * become runs, or leave by chunks where runs are kept. False: there have been too many. */
bool ebb__pool_set_area(struct cuda_pool *pool, uint32_t first, uint32_t count);
/* Are all of these units free ones of the area? */
bool ebb__pool_is_free_at(const struct cuda_pool *pool, uint32_t first, uint32_t count);
/* Units [first, + count) of the area, if all of them are free. Their chunks are backed. */
bool ebb__pool_take_at(struct cuda_pool *pool, uint32_t first, uint32_t count,
                       struct cuda_passages *before);
/* How many units of the chunks around these are without pages. */
uint32_t ebb__pool_bare_at(const struct cuda_pool *pool, uint32_t first, uint32_t count);
/* They count as backed from now on, and will have pages with that arrival. */
void ebb__pool_back_at(struct cuda_pool *pool, uint32_t first, uint32_t count, uint32_t arrival);
/* The chunks around these units of the area. */
struct cuda_span ebb__pool_chunks(const struct cuda_pool *pool, uint32_t first, uint32_t count);

#endif
