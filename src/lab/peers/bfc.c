/* TensorFlow's best-fit-with-coalescing allocator, with allow_growth. Without that option it takes
 * the whole device at the start.
 * Rules, from tensorflow/core/common_runtime/bfc_allocator.cc:
 *   - Sizes are rounded up to 256 bytes (RoundedBytes; kMinAllocationSize).
 *   - A block gets the smallest free chunk that fits, of equal ones the lowest (FindChunkPtr). Bins
 *     are powers of two. Each is sorted by size and address.
 *   - The chunk is split if it is at least twice as large, or if 128 MiB would be wasted
 *     (kMaxInternalFragmentation). Otherwise the block gets all of it.
 *   - If no chunk fits, a region is taken (Extend). The first has 2 MiB, each later one twice the
 *     size of the last. If that is less than the block, the size is doubled until the block fits;
 *     then the next region is not doubled.
 *   - A free chunk merges with its free neighbours in the region (TryToCoalesce). Regions merge
 *     only if the device's sub-allocator allows it, which is not emulated. No memory is
 *     returned. */
#include "lab/peers/heap.h"
#include "lab/peers/peers.h"

#define MIN_BYTES 256
#define FIRST_REGION_BYTES ((uint64_t)2 << 20)
#define MOST_WASTE_BYTES ((uint64_t)128 << 20)

struct bfc {
    struct ebb_heap heap;
    uint64_t region_bytes; /* of the next region */
};

static void *create(void)
{
    struct bfc *bfc = calloc(1, sizeof *bfc);
    if (bfc)
        bfc->region_bytes = FIRST_REGION_BYTES;
    return bfc;
}

static void destroy(void *state)
{
    struct bfc *bfc = state;
    ebb__heap_fini(&bfc->heap);
    free(bfc);
}

static uint32_t extend(struct bfc *bfc, uint64_t bytes)
{
    bool increased = false;
    while (bytes > bfc->region_bytes) {
        bfc->region_bytes *= 2;
        increased = true;
    }
    uint32_t chunk = ebb__heap_grow(&bfc->heap, bfc->region_bytes);
    if (!increased)
        bfc->region_bytes *= 2;
    return chunk;
}

static bool allocate(void *state, uint64_t bytes, uint64_t *handle)
{
    struct bfc *bfc = state;
    *handle = EBB_CHUNK_NONE;
    if (!bytes)
        return true;
    bytes = (bytes + MIN_BYTES - 1) / MIN_BYTES * MIN_BYTES;
    uint32_t chunk = ebb__heap_take(&bfc->heap, bytes);
    if (chunk == EBB_CHUNK_NONE)
        chunk = extend(bfc, bytes);
    if (chunk == EBB_CHUNK_NONE)
        return false;
    *handle = chunk;
    uint64_t size_bytes = bfc->heap.chunks.items[chunk].size_bytes;
    if (size_bytes < 2 * bytes && size_bytes - bytes < MOST_WASTE_BYTES)
        return true;
    uint32_t rest = ebb__heap_cut(&bfc->heap, chunk, bytes);
    return rest != EBB_CHUNK_NONE && ebb__heap_release(&bfc->heap, rest);
}

static bool release(void *state, uint64_t handle)
{
    struct bfc *bfc = state;
    return handle == EBB_CHUNK_NONE || ebb__heap_release(&bfc->heap, (uint32_t)handle);
}

static uint64_t held_bytes(const void *state)
{
    return ((const struct bfc *)state)->heap.held_bytes;
}

const struct ebb_peer ebb__peer_bfc = {"bfc", create, destroy, allocate, release, held_bytes};
