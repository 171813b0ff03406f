/* What the emulated allocators have in common: regions from the device, cut into chunks that know
 * their neighbours; free ones merge at once and are found by size.
 *
 * Chunks are named by index. The free list is sorted by size, then address: the smallest that fits,
 * the lowest of equals. Inserting moves what is behind, which is cheap for the thousands of chunks
 * that occur. Not thread-safe. */
#ifndef EBB_LAB_PEERS_HEAP_H
#define EBB_LAB_PEERS_HEAP_H

#include "base/vec.h"

#define EBB_CHUNK_NONE UINT32_MAX

struct ebb_chunk {
    uint64_t address; /* unique and rising within a region; regions never touch */
    uint64_t size_bytes;
    uint32_t previous, next; /* neighbours in the region */
    bool listed;             /* in the free list */
};

struct ebb_heap {
    EBB_VEC(struct ebb_chunk) chunks;
    EBB_VEC(uint32_t) unused; /* indices that name no chunk */
    EBB_VEC(uint32_t) free_list;
    uint64_t next_address;
    uint64_t held_bytes; /* of all regions */
};

void ebb__heap_fini(struct ebb_heap *heap);

/* Take a region of `bytes` from the device, as one chunk that is not listed; EBB_CHUNK_NONE: memory is
 * lacking, as below. */
uint32_t ebb__heap_grow(struct ebb_heap *heap, uint64_t bytes);
/* Take the best fit off the free list; EBB_CHUNK_NONE: none fits. */
uint32_t ebb__heap_take(struct ebb_heap *heap, uint64_t bytes);
/* Cut the chunk so that it has `bytes`; the rest becomes the chunk behind it, not listed. */
uint32_t ebb__heap_cut(struct ebb_heap *heap, uint32_t chunk, uint64_t bytes);
/* List a chunk, after merging it with listed neighbours. */
bool ebb__heap_release(struct ebb_heap *heap, uint32_t chunk);
/* Merge an unlisted chunk with listed neighbours; the chunk that is left is not listed. */
uint32_t ebb__heap_merge(struct ebb_heap *heap, uint32_t chunk);
/* Merge an unlisted chunk with the unlisted one behind it. */
bool ebb__heap_absorb_next(struct ebb_heap *heap, uint32_t chunk);

#endif
