/* A table of the last position of each hash: open addressing, a third of the slots or more free. An
 * entry is found by 32 bits of the hash, so the caller must verify a match. Inline, because the
 * detector looks up every symbol. */
#ifndef EBB_MODEL_SEEN_H
#define EBB_MODEL_SEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum { EBB_SEEN_SMALLEST = 256 }; /* slots of the smallest table */

struct ebb_seen_slot {
    uint32_t tag;
    uint32_t place; /* 1 + index of a symbol; 0: free */
};

struct ebb_seen {
    struct ebb_seen_slot *slots;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
};

static inline struct ebb_seen_slot *ebb__seen_slot(const struct ebb_seen *table, uint32_t tag)
{
    size_t mask = table->capacity - 1, at = tag & mask;
    while (table->slots[at].place && table->slots[at].tag != tag)
        at = (at + 1) & mask;
    return &table->slots[at];
}

static inline bool ebb__seen_grow(struct ebb_seen *table)
{
    struct ebb_seen bigger = {.capacity = table->capacity ? table->capacity * 2 : EBB_SEEN_SMALLEST,
                              .count = table->count};
    bigger.slots = calloc(bigger.capacity, sizeof *bigger.slots);
    if (!bigger.slots)
        return false;
    for (size_t i = 0; i < table->capacity; i++)
        if (table->slots[i].place)
            *ebb__seen_slot(&bigger, table->slots[i].tag) = table->slots[i];
    free(table->slots);
    *table = bigger;
    return true;
}

/* Records that `hash` occurred at `index`. *before is its last position; SIZE_MAX: none. */
static inline bool ebb__seen_meet(struct ebb_seen *table, uint64_t hash, size_t index,
                                  size_t *before)
{
    if (table->count * 3 >= table->capacity * 2 && !ebb__seen_grow(table))
        return false;
    struct ebb_seen_slot *slot = ebb__seen_slot(table, (uint32_t)hash);
    *before = slot->place ? (size_t)slot->place - 1 : SIZE_MAX;
    table->count += slot->place == 0;
    *slot = (struct ebb_seen_slot){(uint32_t)hash, (uint32_t)index + 1};
    return true;
}

#endif
