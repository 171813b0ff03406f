/* CnMem, NVIDIA's pool of 2015, as SINGA uses it. SmartPool's authors compared their pool with it.
 * Rules, each with its function in src/cnmem.cpp of github.com/NVIDIA/cnmem:
 *   - cnmemInit() takes the first pool at once (Manager::reserve); 256 MiB in SINGA's CnMemPool.
 *   - Sizes are rounded up to 512 bytes (CNMEM_GRANULARITY, cnmemMalloc). A size of 0 needs no
 *     block.
 *   - A request gets the smallest free block that fits, of equal ones the lowest
 *     (findBestBlockUnsafe on a list sorted by address). The remainder becomes free, however small
 *     (extractBlockUnsafe).
 *   - If none fits, exactly the rounded size is taken from the device (allocateBlockUnsafe).
 *   - A free block merges with its free neighbours, but only within one piece of device memory
 *     (releaseBlockUnsafe). No memory is returned before the end. */
#include "lab/peers/heap.h"
#include "lab/peers/peers.h"

#define GRANULARITY_BYTES 512
#define FIRST_POOL_BYTES ((uint64_t)256 << 20)

static void destroy(void *state)
{
    ebb__heap_fini(state);
    free(state);
}

static void *create(void)
{
    struct ebb_heap *heap = calloc(1, sizeof *heap);
    if (!heap)
        return NULL;
    uint32_t first = ebb__heap_grow(heap, FIRST_POOL_BYTES);
    if (first == EBB_CHUNK_NONE || !ebb__heap_release(heap, first)) {
        destroy(heap);
        return NULL;
    }
    return heap;
}

static bool allocate(void *state, uint64_t bytes, uint64_t *handle)
{
    struct ebb_heap *heap = state;
    *handle = EBB_CHUNK_NONE;
    if (!bytes)
        return true;
    bytes = (bytes + GRANULARITY_BYTES - 1) / GRANULARITY_BYTES * GRANULARITY_BYTES;
    uint32_t chunk = ebb__heap_take(heap, bytes);
    if (chunk == EBB_CHUNK_NONE)
        chunk = ebb__heap_grow(heap, bytes);
    if (chunk == EBB_CHUNK_NONE)
        return false;
    *handle = chunk;
    if (heap->chunks.items[chunk].size_bytes == bytes)
        return true;
    uint32_t rest = ebb__heap_cut(heap, chunk, bytes);
    return rest != EBB_CHUNK_NONE && ebb__heap_release(heap, rest);
}

static bool release(void *state, uint64_t handle)
{
    return handle == EBB_CHUNK_NONE || ebb__heap_release(state, (uint32_t)handle);
}

static uint64_t held_bytes(const void *state)
{
    return ((const struct ebb_heap *)state)->held_bytes;
}

const struct ebb_peer ebb__peer_cnmem = {"cnmem", create, destroy, allocate, release, held_bytes};
