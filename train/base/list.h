/* A growable array of any type, with 32-bit counts.
 *
 *     EBB_LIST(struct ebb_slot) slots = {0};
 *     if (!ebb__list_push(&slots, slot)) return out_of_memory;
 *     ebb__list_free(&slots);
 *
 * The room doubles, so a push is amortised O(1). It returns false if out of memory, and the list is
 * then unchanged. Not thread-safe. */
#ifndef EBB_TRAIN_BASE_LIST_H
#define EBB_TRAIN_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define EBB_LIST(type)                                                                             \
    struct {                                                                                       \
        type *items;                                                                               \
        uint32_t count;                                                                            \
        uint32_t room;                                                                             \
    }

static inline bool ebb__list_grow(void **items, uint32_t *room, uint32_t count, size_t item_bytes)
{
    if (count < *room)
        return true;
    if (*room > UINT32_MAX / 4)
        return false;
    uint32_t grown = *room ? 2 * *room : 16;
    void *moved = realloc(*items, grown * item_bytes);
    if (!moved)
        return false;
    *items = moved;
    *room = grown;
    return true;
}

#define ebb__list_push(list, item)                                                                 \
    (ebb__list_grow((void **)&(list)->items, &(list)->room, (list)->count, sizeof *(list)->items)  \
         ? ((list)->items[(list)->count++] = (item), true)                                         \
         : false)

#define ebb__list_free(list)                                                                       \
    (free((list)->items), (list)->items = NULL, (list)->count = 0, (list)->room = 0)

#endif
