/* A heap that all emulated allocators use. It cuts regions of the device into chunks, which know
 * their neighbours. Free chunks merge at once and are found by size.
 *
 * Chunks are named by index. The free list is sorted by size, then address. So the best fit is the
 * smallest chunk that fits, and of equal ones the lowest. An insertion moves all later entries,
 * which is cheap for the thousands of chunks that occur. Not thread-safe. */
#ifndef EBB_LAB_PEERS_HEAP_H
#define EBB_LAB_PEERS_HEAP_H

#include "base/vec.h"

#define EBB_CHUNK_NONE UINT32_MAX

struct ebb_chunk {
    uint64_t address; /* unique, ascending within a region; regions are never adjacent */
    uint64_t size_bytes;
    uint32_t previous, next; /* neighbours in the region */
    bool listed;             /* in the free list */
};

struct ebb_heap {
    EBB_VEC(struct ebb_chunk) chunks;
    EBB_VEC(uint32_t) unused; /* indices without a chunk */
    EBB_VEC(uint32_t) free_list;
    uint64_t next_address;
    uint64_t held_bytes; /* of all regions */
};

void ebb__heap_fini(struct ebb_heap *heap);

/* Takes a region of `bytes` from the device, as one unlisted chunk. EBB_CHUNK_NONE or false, here
 * and below: out of memory. */
uint32_t ebb__heap_grow(struct ebb_heap *heap, uint64_t bytes);
/* Removes the best fit from the free list. EBB_CHUNK_NONE: no chunk fits. */
uint32_t ebb__heap_take(struct ebb_heap *heap, uint64_t bytes);
/* Shortens the chunk to `bytes`. Returns the remainder as a new, unlisted chunk after it. */
uint32_t ebb__heap_cut(struct ebb_heap *heap, uint32_t chunk, uint64_t bytes);
/* Merges a chunk with its listed neighbours, then lists it. */
bool ebb__heap_release(struct ebb_heap *heap, uint32_t chunk);
/* Merges an unlisted chunk with its listed neighbours. Returns the merged chunk, unlisted. */
uint32_t ebb__heap_merge(struct ebb_heap *heap, uint32_t chunk);
/* Merges an unlisted chunk with the unlisted chunk after it. */
bool ebb__heap_absorb_next(struct ebb_heap *heap, uint32_t chunk);

#endif
