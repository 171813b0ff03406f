/* Free space of a store: first fit over free extents in address order, merged on return.
 *
 * No allocation: the table is memory handed in. When the table is full a returned extent is
 * forgotten (a leak of store space, never of correctness). Not thread-safe. */
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
    struct ebb_extent *free; /* in order of offset */
    size_t count;
    size_t capacity;
    uint64_t end_bytes;   /* the store's size so far */
    uint64_t limit_bytes; /* it never grows beyond */
    uint64_t used_bytes;
    uint64_t peak_bytes; /* of used_bytes */
};

void ebb__extents_init(struct ebb_extents *extents, struct ebb_extent *table, size_t capacity,
                       uint64_t limit_bytes);
/* Take `bytes` (> 0); false where the limit forbids it. */
bool ebb__extents_take(struct ebb_extents *extents, uint64_t bytes, uint64_t *offset);
/* Can `bytes` be taken without growing the store? */
bool ebb__extents_have(const struct ebb_extents *extents, uint64_t bytes);
void ebb__extents_give(struct ebb_extents *extents, uint64_t offset, uint64_t bytes);

#endif
