#include "lab/peers/heap.h"

#include <string.h>

#define REGION_GAP 1 /* keeps regions from being adjacent */

void ebb__heap_fini(struct ebb_heap *heap)
{
    ebb_vec_free(&heap->chunks);
    ebb_vec_free(&heap->unused);
    ebb_vec_free(&heap->free_list);
}

static uint32_t new_chunk(struct ebb_heap *heap, struct ebb_chunk chunk)
{
    /* `unused` has capacity for all existing chunks, so that a release of an index cannot fail. */
    if (heap->unused.count) {
        uint32_t index = heap->unused.items[--heap->unused.count];
        heap->chunks.items[index] = chunk;
        return index;
    }
    if (heap->chunks.count == EBB_CHUNK_NONE || !ebb_vec_push(&heap->chunks, chunk))
        return EBB_CHUNK_NONE;
    if (!ebb_vec_reserve(&heap->unused, heap->chunks.count))
        return EBB_CHUNK_NONE;
    return (uint32_t)heap->chunks.count - 1;
}

/* The first index of the free list whose (size, address) is not less than the given one. */
static size_t place_of(const struct ebb_heap *heap, uint64_t bytes, uint64_t address)
{
    size_t low = 0, high = heap->free_list.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct ebb_chunk *chunk = &heap->chunks.items[heap->free_list.items[middle]];
        if (chunk->size_bytes < bytes || (chunk->size_bytes == bytes && chunk->address < address))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void unlist_at(struct ebb_heap *heap, size_t place)
{
    uint32_t *items = heap->free_list.items;
    heap->chunks.items[items[place]].listed = false;
    heap->free_list.count--;
    memmove(items + place, items + place + 1, (heap->free_list.count - place) * sizeof *items);
}

static void unlist(struct ebb_heap *heap, uint32_t chunk)
{
    const struct ebb_chunk *at = &heap->chunks.items[chunk];
    unlist_at(heap, place_of(heap, at->size_bytes, at->address));
}

uint32_t ebb__heap_grow(struct ebb_heap *heap, uint64_t bytes)
{
    struct ebb_chunk chunk = {.address = heap->next_address,
                              .size_bytes = bytes,
                              .previous = EBB_CHUNK_NONE,
                              .next = EBB_CHUNK_NONE};
    uint32_t made = new_chunk(heap, chunk);
    if (made == EBB_CHUNK_NONE)
        return made;
    heap->next_address += bytes + REGION_GAP;
    heap->held_bytes += bytes;
    return made;
}

uint32_t ebb__heap_take(struct ebb_heap *heap, uint64_t bytes)
{
    size_t place = place_of(heap, bytes, 0);
    if (place == heap->free_list.count)
        return EBB_CHUNK_NONE;
    uint32_t chunk = heap->free_list.items[place];
    unlist_at(heap, place);
    return chunk;
}

uint32_t ebb__heap_cut(struct ebb_heap *heap, uint32_t chunk, uint64_t bytes)
{
    struct ebb_chunk whole = heap->chunks.items[chunk];
    struct ebb_chunk rest = {.address = whole.address + bytes,
                             .size_bytes = whole.size_bytes - bytes,
                             .previous = chunk,
                             .next = whole.next};
    uint32_t made = new_chunk(heap, rest);
    if (made == EBB_CHUNK_NONE)
        return made;
    heap->chunks.items[chunk].size_bytes = bytes;
    heap->chunks.items[chunk].next = made;
    if (whole.next != EBB_CHUNK_NONE)
        heap->chunks.items[whole.next].previous = made;
    return made;
}

bool ebb__heap_absorb_next(struct ebb_heap *heap, uint32_t chunk)
{
    struct ebb_chunk *at = &heap->chunks.items[chunk];
    uint32_t gone = at->next;
    const struct ebb_chunk *behind = &heap->chunks.items[gone];
    at->size_bytes += behind->size_bytes;
    at->next = behind->next;
    if (at->next != EBB_CHUNK_NONE)
        heap->chunks.items[at->next].previous = chunk;
    return ebb_vec_push(&heap->unused, gone);
}

uint32_t ebb__heap_merge(struct ebb_heap *heap, uint32_t chunk)
{
    uint32_t next = heap->chunks.items[chunk].next;
    if (next != EBB_CHUNK_NONE && heap->chunks.items[next].listed) {
        unlist(heap, next);
        ebb__heap_absorb_next(heap, chunk);
    }
    uint32_t previous = heap->chunks.items[chunk].previous;
    if (previous != EBB_CHUNK_NONE && heap->chunks.items[previous].listed) {
        unlist(heap, previous);
        ebb__heap_absorb_next(heap, previous);
        chunk = previous;
    }
    return chunk;
}

bool ebb__heap_release(struct ebb_heap *heap, uint32_t chunk)
{
    chunk = ebb__heap_merge(heap, chunk);
    struct ebb_chunk *at = &heap->chunks.items[chunk];
    size_t place = place_of(heap, at->size_bytes, at->address);
    if (!ebb_vec_push(&heap->free_list, chunk))
        return false;
    uint32_t *items = heap->free_list.items;
    memmove(items + place + 1, items + place, (heap->free_list.count - 1 - place) * sizeof *items);
    items[place] = chunk;
    at->listed = true;
    return true;
}
