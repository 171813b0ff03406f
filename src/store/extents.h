/* Free space of a store: first fit over free extents in address order, merged when they are freed.
 *
 * No allocation: the caller provides the table. If the table is full, a freed extent is forgotten.
 * That loses store space, but is correct. Not thread-safe. */
#ifndef EBB_STORE_EXTENTS_H
#define EBB_STORE_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ebb_extent {
    uint64_t offset;
    uint64_t bytes;
};

struct ebb_extents {
    struct ebb_extent *free; /* sorted by offset */
    size_t count;
    size_t capacity;
    uint64_t end_bytes;   /* the store's size so far */
    uint64_t limit_bytes; /* the store never exceeds it */
    uint64_t used_bytes;
    uint64_t peak_bytes; /* the maximum of used_bytes */
};

void ebb__extents_init(struct ebb_extents *extents, struct ebb_extent *table, size_t capacity,
                       uint64_t limit_bytes);
/* Takes `bytes` (> 0). Returns false if the limit forbids it. */
bool ebb__extents_take(struct ebb_extents *extents, uint64_t bytes, uint64_t *offset);
/* True if `bytes` can be taken without growing the store. */
bool ebb__extents_have(const struct ebb_extents *extents, uint64_t bytes);
void ebb__extents_give(struct ebb_extents *extents, uint64_t offset, uint64_t bytes);

#endif
