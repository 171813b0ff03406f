/* A map from serials of blocks to indices of what is known about them.
 *
 *     struct ebb_serials serials = {0};
 *     if (!ebb__serials_put(&serials, event->block, index)) return EBB_ERR_MEMORY;
 *     if (ebb__serials_get(&serials, event->block, &index)) use(index);
 *     ebb__serials_fini(&serials);
 *
 * Serials usually count from 1. Those not far above the largest index are in an array of 4 bytes
 * each, the others in a hash map. Not thread-safe. */
#ifndef EBB_MODEL_SERIALS_H
#define EBB_MODEL_SERIALS_H

#include "base/map.h"
#include "base/vec.h"

/* A zeroed struct is the empty map. */
struct ebb_serials {
    EBB_VEC(uint32_t) dense; /* [serial]: index + 1; 0: none */
    struct ebb_map sparse;
};

/* Inserts or replaces. `index` is below 2^32 - 1, `serial` below 2^64 - 1. Returns false if out of
 * memory. O(1) expected. */
bool ebb__serials_put(struct ebb_serials *serials, uint64_t serial, size_t index);
/* Returns true and sets *index if the serial is present. */
bool ebb__serials_get(const struct ebb_serials *serials, uint64_t serial, size_t *index);
void ebb__serials_fini(struct ebb_serials *serials);

#endif
