/* What prediction and its rival know of the blocks, while accesses are observed and no plan is in
 * force. Without observation only misses are seen, which tell nothing of what is resident: then
 * nothing is noted, and reclaim evicts the least recently used block. */
#ifndef EBB_RUNTIME_RECLAIM_FORESEE_H
#define EBB_RUNTIME_RECLAIM_FORESEE_H

#include "runtime/block/block.h"
#include "runtime/reclaim/predict.h"
#include "runtime/reclaim/rival.h"

/* Of one block or part. */
struct foreseen {
    struct outlook outlook;
    struct rival_entry rival;
    uint64_t serial; /* of the allocation that `outlook` is about */
    uint64_t since;  /* the observation that the rest is about */
    bool fetched;    /* it was fetched ahead, and not used since */
};

struct foresee {
    struct predictor *predictor; /* NULL: nothing was observed yet, or memory was lacking */
    struct foreseen *blocks;     /* by block index */
    struct rival rival;
    uint64_t observations; /* how often observation has begun */
    bool is_lacking;       /* there was no memory for the tables: nothing is noted */
    bool is_on;            /* accesses are observed, and noted here */
};

void ebb__foresee_fini(struct foresee *foresee);
/* Each of these returns at once if accesses are not observed. `block` is allocated; is used; will
 * be freed. For a large block, alloc and freed stand for all parts. */
void ebb__foresee_alloc(struct foresee *foresee, struct table *table, const struct block *block);
void ebb__foresee_used(struct foresee *foresee, struct table *table, const struct block *block);
void ebb__foresee_freed(struct foresee *foresee, struct table *table, const struct block *block);
/* Is the prediction to choose victims? Otherwise LRU is. */
bool ebb__foresee_leads(struct foresee *foresee, struct table *table);
/* The expected distance of the next use. 0: it is in use. */
uint64_t ebb__foresee_distance(const struct foresee *foresee, const struct table *table,
                               const struct block *block);
/* The expected distance of the next use of an absent block that may be fetched ahead. UINT64_MAX:
 * unknown, or it is overdue or freed first. */
uint64_t ebb__foresee_ahead(const struct foresee *foresee, const struct table *table,
                            const struct block *block);
/* `block` is fetched ahead. */
void ebb__foresee_fetched(struct foresee *foresee, struct table *table, const struct block *block);
/* `block` is evicted, while `capacity_bytes` of blocks fit into memory. */
void ebb__foresee_evicted(struct foresee *foresee, struct table *table, const struct block *block,
                          uint64_t capacity_bytes);
/* `block` is fetched because the program reads it. Is its copy in the store to be kept, since the
 * block will probably not be written before it is evicted again? */
bool ebb__foresee_keeps_copy(struct foresee *foresee, struct table *table,
                             const struct block *block);
/* The block was written: the copy was kept in vain. False: not for that answer. */
bool ebb__foresee_changed(struct foresee *foresee, struct table *table, const struct block *block);

#endif
