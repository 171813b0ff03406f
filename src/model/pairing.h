/* Pairs the allocations of a model with those of a run with another batch size.
 *
 * The model is a cycle that begins anywhere. The new run has allocated other blocks before its
 * first iteration, and states in it. Later, other phases may come between its iterations. */
#ifndef EBB_MODEL_PAIRING_H
#define EBB_MODEL_PAIRING_H

#include "base/status.h"
#include "model/watch.h"

struct ebb_pairing {
    const uint64_t *sizes; /* of the model's allocations, in order; `allocs` of them */
    const size_t *lived;   /* allocations between each of these and its free */
    size_t allocs;
    const struct ebb_watch_block *newest; /* allocations of the new run, in order */
    size_t count;
    double ratio; /* of sizes that depend on the batch: new by old */
    /* Out: */
    size_t *at;    /* [allocs]: the partner of each in the new run, plus one; 0: none */
    size_t first;  /* of the model: the one with the first partner; the others follow in a cycle */
    size_t found;  /* number of pairs */
    size_t behind; /* those of the new run from this one up to the first partner came between two
                      iterations; `count` if no iteration is known before */
};

/* Finds an iteration in the new run, and pairs its allocations. `at` is the caller's memory.
 * EBB_INFEASIBLE if nothing agrees, or if the lists are too long; EBB_ERR_MEMORY. O(allocs * count)
 * time and memory. */
EBB_NODISCARD enum ebb_status ebb__pairing_find(struct ebb_pairing *pairing);

/* May a size become this one? It stays, or it is scaled. */
bool ebb__pairing_agrees(const struct ebb_pairing *pairing, uint64_t from, uint64_t to);
bool ebb__pairing_is_scaled(uint64_t from, uint64_t to, double ratio);
/* The largest size that `from` may be scaled to. */
uint64_t ebb__pairing_most_bytes(uint64_t from, double ratio);
/* May the allocation `newest` of the new run be `alloc` of the model, as far as its life tells? It
 * was freed, or it lives no longer than that. */
bool ebb__pairing_is_young(const struct ebb_pairing *pairing, size_t alloc, size_t newest);

#endif
