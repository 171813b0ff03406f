/* Blocks that are demanded against the order of their allocations.
 *
 * A backward pass uses what the forward pass has made, the newest first. What was evicted of it is
 * demanded so, too. Two neighbours in a row begin a *walk*, and its next block is fetched ahead.
 * Weights go down a walk of their own beside that. Nothing must repeat for it: it serves the first
 * iteration, and programs whose sizes differ in each one. */
#ifndef EBB_RUNTIME_RECLAIM_IN_ORDER_H
#define EBB_RUNTIME_RECLAIM_IN_ORDER_H

#include "runtime/block/block.h"

#define MOST_WALKS 4u

struct walk {
    uint64_t at;     /* serial of the block that was demanded or fetched ahead last; 0: none */
    uint32_t block;  /* its index: which part of a large allocation */
    uint32_t length; /* blocks that were demanded since it began */
    uint64_t newest; /* number of its newest demand, or use of what was fetched ahead */
};

struct in_order {
    struct walk walks[MOST_WALKS];
    uint64_t demands; /* and such uses */
    uint64_t demanded_bytes;
    uint64_t useful_bytes, wasted_bytes; /* fetched ahead: used; gone without a use */
};

/* The program waits for `block`, which is absent. O(blocks) */
void ebb__in_order_demanded(struct in_order *order, const struct table *table,
                            const struct block *block);
/* The block to fetch next, of at most `most_bytes`, and the number of its walk. NULL: none is
 * expected. `budget_bytes`: a part of that may be fetched in vain until more has been useful.
 * O(blocks) */
struct block *ebb__in_order_next(struct in_order *order, struct table *table, uint64_t most_bytes,
                                 uint64_t budget_bytes, unsigned *walk);
/* It is fetched ahead; it is used; it is evicted or freed. Of others, the last two do nothing. */
void ebb__in_order_fetched(struct in_order *order, const struct table *table, struct block *block,
                           unsigned walk);
void ebb__in_order_used(struct in_order *order, struct block *block);
void ebb__in_order_gone(struct in_order *order, struct block *block);
/* Was it fetched ahead for a walk that goes on, and not used since? */
bool ebb__in_order_awaits(const struct in_order *order, const struct block *block);

#endif
