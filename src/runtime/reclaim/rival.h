/* The rival: least recently used, as it would have done on the same uses.
 *
 * It keeps a list of the blocks that would be resident under LRU, and counts the bytes that LRU
 * would have moved. A prediction may choose victims only while what was really moved exceeds this
 * count by no more than a share of it and an allowance. So prediction costs at most
 *
 *     moved <= (1 + excess) * moved by LRU + allowance + 2 * capacity + one block
 *
 * Reason: while the condition holds, one choice adds one block. When it ends, LRU chooses. The
 * order of last uses is the same for both. So it misses more than the rival only among the blocks
 * that the rival holds at that moment, each once. Prediction begins again only below the line.
 *
 * The bound holds for blocks of one size. With several sizes LRU itself depends on what it holds.
 * tests/test_predict.c counts both. */
#ifndef EBB_RUNTIME_RECLAIM_RIVAL_H
#define EBB_RUNTIME_RECLAIM_RIVAL_H

#include <stdbool.h>
#include <stdint.h>

#define RIVAL_NONE 0u /* entry 0 is never used */

enum rival_place { RIVAL_UNKNOWN = 0, RIVAL_RESIDENT, RIVAL_ABSENT };

/* One block or part. All zero: never used. */
struct rival_entry {
    uint64_t bytes;
    uint32_t newer, older; /* neighbours in the list, if resident */
    enum rival_place place;
};

struct rival {
    /* Entry i is at `entries` + i * stride: it may lie in a larger struct. */
    void *entries;
    uint32_t stride;
    uint32_t newest, oldest;
    uint64_t resident_bytes;
    uint64_t capacity_bytes; /* UINT64_MAX: memory has not been short yet */
    uint64_t moved_bytes;    /* what LRU would have moved */
    uint64_t really_bytes;   /* what was moved */
};

void ebb__rival_init(struct rival *rival, void *entries, uint32_t stride);
/* Entry `index` of `bytes` is used. absent: it was really evicted, and has to be fetched. */
void ebb__rival_used(struct rival *rival, uint32_t index, uint64_t bytes, bool absent);
void ebb__rival_freed(struct rival *rival, uint32_t index);
/* `bytes` are really evicted. `capacity_bytes` fit into memory at this moment. */
void ebb__rival_evicted(struct rival *rival, uint64_t bytes, uint64_t capacity_bytes);
/* `bytes` are fetched before they are used. That use does not tell so again. */
void ebb__rival_fetched(struct rival *rival, uint64_t bytes);
/* That eviction was cancelled before it moved anything. */
void ebb__rival_recalled(struct rival *rival, uint64_t bytes);
/* Is what was really moved at most what LRU moved, a share `excess` of it, and an allowance of the
 * capacity / `allowance_divisor`? */
bool ebb__rival_is_beaten(const struct rival *rival, double excess, uint64_t allowance_divisor);

#endif
