/* A best fit like that of glibc's malloc on x86-64: one heap that grows at its top, and a separate
 * mapping for each large block.
 * Rules, from malloc/malloc.c of glibc 2.36:
 *   - A chunk has the requested size plus 8 bytes, rounded up to 16, at least 32 (request2size).
 *   - A request gets the smallest free chunk that fits (_int_malloc, bins). The remainder is split
 *     off if it has at least 32 bytes (MINSIZE). If no chunk fits, the top of the heap is cut if it
 *     has 32 bytes more than the chunk.
 *   - If the top is too small, a chunk of at least 128 KiB gets its own mapping of whole pages
 *     (sysmalloc; mmap_threshold). For a smaller chunk the heap grows by the chunk, 128 KiB
 *     (top_pad) and 32 bytes, less the size of the top, in whole pages.
 *   - A freed mapping is returned to the kernel. If its size is above the threshold and at most 32
 *     MiB, it becomes the threshold, and twice the size the trim threshold (__libc_free).
 *   - A free chunk merges with its free neighbours and with the top. The heap then shrinks if the
 *     chunk has 64 KiB and the top the trim threshold (128 KiB at first). It shrinks by whole
 *     pages; a top of at least 128 KiB and 33 bytes remains (_int_free, systrim).
 * Differences from glibc: there are no caches (tcache, fast bins, unsorted bin), so every free
 * chunk merges at once. Of equal chunks the lowest is taken. There is one arena. The kernel never
 * refuses. */
#include "lab/peers/heap.h"
#include "lab/peers/peers.h"

#define MIN_CHUNK_BYTES ((uint64_t)32)
#define PAGE_BYTES ((uint64_t)4096)
#define TOP_PAD_BYTES ((uint64_t)128 << 10)
#define FIRST_THRESHOLD_BYTES ((uint64_t)128 << 10)
#define MOST_THRESHOLD_BYTES ((uint64_t)32 << 20)
#define TRIM_AFTER_BYTES ((uint64_t)64 << 10)

struct glibc {
    struct ebb_heap heap;
    uint32_t top; /* EBB_CHUNK_NONE: the heap is still empty */
    uint64_t mapped_bytes;
    uint64_t map_threshold, trim_threshold;
    EBB_VEC(uint64_t) mappings; /* sizes; 0: the entry is unused */
    EBB_VEC(size_t) unused;
};

static void *create(void)
{
    struct glibc *glibc = calloc(1, sizeof *glibc);
    if (!glibc)
        return NULL;
    glibc->top = EBB_CHUNK_NONE;
    glibc->map_threshold = glibc->trim_threshold = FIRST_THRESHOLD_BYTES;
    return glibc;
}

static void destroy(void *state)
{
    struct glibc *glibc = state;
    ebb__heap_fini(&glibc->heap);
    ebb_vec_free(&glibc->mappings);
    ebb_vec_free(&glibc->unused);
    free(glibc);
}

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static struct ebb_chunk *chunk_at(struct glibc *glibc, uint32_t chunk)
{
    return &glibc->heap.chunks.items[chunk];
}

static uint64_t top_bytes(struct glibc *glibc)
{
    return glibc->top == EBB_CHUNK_NONE ? 0 : chunk_at(glibc, glibc->top)->size_bytes;
}

/* Chunks have even handles, mappings odd ones. */
static bool map(struct glibc *glibc, uint64_t chunk_bytes, uint64_t *handle)
{
    uint64_t bytes = round_up(chunk_bytes + 8, PAGE_BYTES);
    size_t index = glibc->mappings.count;
    if (glibc->unused.count) {
        index = glibc->unused.items[--glibc->unused.count];
        glibc->mappings.items[index] = bytes;
    } else if (!ebb_vec_push(&glibc->mappings, bytes) ||
               !ebb_vec_reserve(&glibc->unused, glibc->mappings.count)) {
        return false;
    }
    glibc->mapped_bytes += bytes;
    *handle = 2 * (uint64_t)index + 1;
    return true;
}

static bool unmap(struct glibc *glibc, size_t index)
{
    uint64_t bytes = glibc->mappings.items[index];
    if (bytes > glibc->map_threshold && bytes <= MOST_THRESHOLD_BYTES) {
        glibc->map_threshold = bytes;
        glibc->trim_threshold = 2 * bytes;
    }
    glibc->mapped_bytes -= bytes;
    glibc->mappings.items[index] = 0;
    return ebb_vec_push(&glibc->unused, index);
}

/* Makes the top large enough. The heap is one region, and the top is its end. */
static bool extend(struct glibc *glibc, uint64_t bytes)
{
    uint64_t more =
        round_up(bytes + TOP_PAD_BYTES + MIN_CHUNK_BYTES - top_bytes(glibc), PAGE_BYTES);
    if (glibc->top == EBB_CHUNK_NONE) {
        glibc->top = ebb__heap_grow(&glibc->heap, more);
        return glibc->top != EBB_CHUNK_NONE;
    }
    chunk_at(glibc, glibc->top)->size_bytes += more;
    glibc->heap.held_bytes += more;
    return true;
}

static bool allocate(void *state, uint64_t bytes, uint64_t *handle)
{
    struct glibc *glibc = state;
    bytes = round_up(bytes + 8, 16);
    bytes = bytes < MIN_CHUNK_BYTES ? MIN_CHUNK_BYTES : bytes;
    uint32_t chunk = ebb__heap_take(&glibc->heap, bytes);
    if (chunk != EBB_CHUNK_NONE) {
        *handle = 2 * (uint64_t)chunk;
        if (chunk_at(glibc, chunk)->size_bytes - bytes < MIN_CHUNK_BYTES)
            return true;
        uint32_t rest = ebb__heap_cut(&glibc->heap, chunk, bytes);
        return rest != EBB_CHUNK_NONE && ebb__heap_release(&glibc->heap, rest);
    }
    if (top_bytes(glibc) < bytes + MIN_CHUNK_BYTES) {
        if (bytes >= glibc->map_threshold)
            return map(glibc, bytes, handle);
        if (!extend(glibc, bytes))
            return false;
    }
    chunk = glibc->top;
    glibc->top = ebb__heap_cut(&glibc->heap, chunk, bytes);
    *handle = 2 * (uint64_t)chunk;
    return glibc->top != EBB_CHUNK_NONE;
}

static void trim(struct glibc *glibc)
{
    struct ebb_chunk *top = chunk_at(glibc, glibc->top);
    uint64_t keep = MIN_CHUNK_BYTES + 1 + TOP_PAD_BYTES;
    if (top->size_bytes < glibc->trim_threshold || top->size_bytes <= keep)
        return;
    uint64_t extra = (top->size_bytes - keep) / PAGE_BYTES * PAGE_BYTES;
    top->size_bytes -= extra;
    glibc->heap.held_bytes -= extra;
}

static bool release(void *state, uint64_t handle)
{
    struct glibc *glibc = state;
    if (handle & 1)
        return unmap(glibc, (size_t)(handle / 2));
    uint32_t chunk = ebb__heap_merge(&glibc->heap, (uint32_t)(handle / 2));
    bool ok = true;
    uint64_t bytes;
    if (chunk_at(glibc, chunk)->next == glibc->top) {
        ok = ebb__heap_absorb_next(&glibc->heap, chunk);
        glibc->top = chunk;
        bytes = chunk_at(glibc, chunk)->size_bytes;
    } else {
        bytes = chunk_at(glibc, chunk)->size_bytes;
        ok = ebb__heap_release(&glibc->heap, chunk);
    }
    if (bytes >= TRIM_AFTER_BYTES)
        trim(glibc);
    return ok;
}

static uint64_t held_bytes(const void *state)
{
    const struct glibc *glibc = state;
    return glibc->heap.held_bytes + glibc->mapped_bytes;
}

const struct ebb_peer ebb__peer_glibc = {"glibc", create, destroy, allocate, release, held_bytes};
