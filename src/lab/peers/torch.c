/* PyTorch's caching allocator for CUDA, with its default settings, on one stream.
 * Rules, from c10/cuda/CUDACachingAllocator.cpp:
 *   - Sizes are rounded up to 512 bytes (round_size; kMinBlockSize).
 *   - Blocks of up to 1 MiB are in the small pool, larger ones in the large pool (get_pool;
 *     kSmallSize).
 *   - A request gets the smallest free block of its pool that fits, of equal ones the lowest
 *     (get_free_block; BlockComparatorSize).
 *   - If none fits, a segment is taken. It has 2 MiB for the small pool and 20 MiB for blocks below
 *     10 MiB. For larger blocks it has the size rounded up to 2 MiB (get_allocation_size;
 *     kSmallBuffer, kLargeBuffer, kMinLargeAlloc, kRoundLarge).
 *   - The remainder is split off if it has 512 bytes in the small pool, or more than 1 MiB in the
 *     large one (should_split).
 *   - A free block merges with its free neighbours in the segment (free_block, try_merge_blocks).
 *   - Segments are returned only if the device is out of memory, which never happens here. */
#include "lab/peers/heap.h"
#include "lab/peers/peers.h"

#define MIN_BLOCK_BYTES 512
#define SMALL_BYTES ((uint64_t)1 << 20)
#define SMALL_SEGMENT_BYTES ((uint64_t)2 << 20)
#define LARGE_SEGMENT_BYTES ((uint64_t)20 << 20)
#define MIN_LARGE_BYTES ((uint64_t)10 << 20)
#define ROUND_LARGE_BYTES ((uint64_t)2 << 20)

enum { SMALL, LARGE, POOL_COUNT };

struct torch {
    struct ebb_heap pools[POOL_COUNT];
};

static void *create(void)
{
    return calloc(1, sizeof(struct torch));
}

static void destroy(void *state)
{
    struct torch *torch = state;
    for (int i = 0; i < POOL_COUNT; i++)
        ebb__heap_fini(&torch->pools[i]);
    free(torch);
}

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static uint64_t segment_bytes(uint64_t bytes)
{
    if (bytes <= SMALL_BYTES)
        return SMALL_SEGMENT_BYTES;
    return bytes < MIN_LARGE_BYTES ? LARGE_SEGMENT_BYTES : round_up(bytes, ROUND_LARGE_BYTES);
}

/* The handle is twice the chunk's index, plus the pool's number. UINT64_MAX: a request of 0 bytes,
 * which has no block. */
static bool allocate(void *state, uint64_t bytes, uint64_t *handle)
{
    struct torch *torch = state;
    *handle = UINT64_MAX;
    if (!bytes)
        return true;
    bytes = round_up(bytes, MIN_BLOCK_BYTES);
    int pool = bytes <= SMALL_BYTES ? SMALL : LARGE;
    struct ebb_heap *heap = &torch->pools[pool];
    uint32_t chunk = ebb__heap_take(heap, bytes);
    if (chunk == EBB_CHUNK_NONE)
        chunk = ebb__heap_grow(heap, segment_bytes(bytes));
    if (chunk == EBB_CHUNK_NONE)
        return false;
    *handle = (uint64_t)chunk * POOL_COUNT + (uint64_t)pool;
    uint64_t left = heap->chunks.items[chunk].size_bytes - bytes;
    if (pool == SMALL ? left < MIN_BLOCK_BYTES : left <= SMALL_BYTES)
        return true;
    uint32_t rest = ebb__heap_cut(heap, chunk, bytes);
    return rest != EBB_CHUNK_NONE && ebb__heap_release(heap, rest);
}

static bool release(void *state, uint64_t handle)
{
    struct torch *torch = state;
    return handle == UINT64_MAX ||
           ebb__heap_release(&torch->pools[handle % POOL_COUNT], (uint32_t)(handle / POOL_COUNT));
}

static uint64_t held_bytes(const void *state)
{
    const struct torch *torch = state;
    return torch->pools[SMALL].held_bytes + torch->pools[LARGE].held_bytes;
}

const struct ebb_peer ebb__peer_torch = {"torch", create, destroy, allocate, release, held_bytes};
