/* A growable array of any type, as a struct with a typed pointer.
 *
 *     EBB_VEC(struct ebb_event) events = {0};
 *     if (!ebb_vec_push(&events, event)) return EBB_ERR_MEMORY;
 *     for (size_t i = 0; i < events.count; i++) use(&events.items[i]);
 *     ebb_vec_free(&events);
 *
 * The capacity doubles. A push is amortised O(1); it returns false if out of memory, and the vector
 * is then unchanged. The shim must not use it, because it must not call the allocator that it
 * replaces. Not thread-safe. */
#ifndef EBB_BASE_VEC_H
#define EBB_BASE_VEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define EBB_VEC(type)                                                                              \
    struct {                                                                                       \
        type *items;                                                                               \
        size_t count;                                                                              \
        size_t capacity;                                                                           \
    }

/* Ensures capacity for `wanted` items in total; returns false if out of memory. */
static inline bool ebb__vec_reserve(void **items, size_t *capacity, size_t wanted,
                                    size_t item_bytes)
{
    if (wanted <= *capacity)
        return true;
    size_t grown = *capacity ? *capacity : 8;
    while (grown < wanted) {
        if (grown > SIZE_MAX / 2)
            return false;
        grown *= 2;
    }
    if (item_bytes && grown > SIZE_MAX / item_bytes)
        return false;
    void *moved = realloc(*items, grown * item_bytes);
    if (!moved)
        return false;
    *items = moved;
    *capacity = grown;
    return true;
}

#define ebb_vec_reserve(vec, wanted)                                                               \
    ebb__vec_reserve((void **)&(vec)->items, &(vec)->capacity, (wanted), sizeof *(vec)->items)

#define ebb_vec_push(vec, item)                                                                    \
    (ebb_vec_reserve((vec), (vec)->count + 1) ? ((vec)->items[(vec)->count++] = (item), true)      \
                                              : false)

#define ebb_vec_free(vec)                                                                          \
    (free((vec)->items), (vec)->items = NULL, (vec)->count = 0, (vec)->capacity = 0)

#endif
