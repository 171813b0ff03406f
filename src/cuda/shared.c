/* Blocks that stay the driver's own memory, so that other processes may open them.
 *
 * They count in the budget, but nothing of the engine moves, names or reuses them. Room for one is
 * made as for a block: others leave, and the ledger has their bytes when they have left. */
#include "base/clock.h"
#include "base/tuning.h"
#include "cuda/internal.h"

#include <time.h>

#define RETRY_NS 200000u

bool ebb__cuda_is_shared(uint64_t bytes)
{
    return bytes && bytes == (uint64_t)ebb__tuning()->cuda_shared_bytes;
}

/* With the lock. */
static void give_bytes(struct ebb_cuda *engine, uint64_t bytes)
{
    engine->room.shared.bytes -= bytes;
    ebb__ledger_release(engine->config.ledger, engine->config.slot, bytes);
}

static bool take_bytes(struct ebb_cuda *engine, uint64_t bytes)
{
    if (!ebb__room_make(&engine->room, bytes / EBB_CUDA_UNIT_BYTES) ||
        !ebb__ledger_reserve(engine->config.ledger, engine->config.slot, bytes))
        return false;
    engine->room.shared.bytes += bytes;
    return true;
}

/* Has the budget room for so much? What leaves for that takes a while. */
static bool await_bytes(struct ebb_cuda *engine, uint64_t bytes)
{
    const struct timespec pause = {.tv_nsec = RETRY_NS};
    uint64_t until_ns = ebb__now_ns() + ebb__tuning()->cuda_patience_ns / 4;
    for (;;) {
        if (!ebb__cuda_lock(engine))
            return false;
        bool is_taken = take_bytes(engine, bytes);
        ebb__cuda_unlock(engine);
        if (is_taken || ebb__now_ns() > until_ns)
            return is_taken;
        nanosleep(&pause, NULL);
    }
}

/* False: there are too many. */
static bool note(struct ebb_cuda *engine, CUdeviceptr address, uint64_t bytes)
{
    struct cuda_shared *shared = &engine->room.shared;
    if (shared->count == CUDA_MOST_SHARED)
        return false;
    shared->items[shared->count++] = (struct cuda_shared_block){address, bytes};
    return true;
}

CUresult ebb__cuda_alloc_shared(struct ebb_cuda *engine, uint64_t size, CUdeviceptr *address)
{
    const struct ebb_cuda_driver *driver = engine->config.driver;
    uint64_t bytes = ebb__cuda_units(size) * EBB_CUDA_UNIT_BYTES; /* as the driver takes them */
    if (!await_bytes(engine, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = driver->cuMemAlloc_v2(address, size);
    if (!ebb__cuda_lock(engine))
        return result;
    if (result == CUDA_SUCCESS && !note(engine, *address, bytes)) {
        driver->cuMemFree_v2(*address);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS)
        give_bytes(engine, bytes);
    ebb__cuda_unlock(engine);
    return result;
}

bool ebb__cuda_free_shared(struct ebb_cuda *engine, CUdeviceptr address, CUresult *result)
{
    struct cuda_shared *shared = &engine->room.shared;
    if (!ebb__tuning()->cuda_shared_bytes || !ebb__cuda_lock(engine))
        return false;
    uint32_t at = 0;
    while (at < shared->count && shared->items[at].address != address)
        at++;
    bool is_found = at < shared->count;
    struct cuda_shared_block block = is_found ? shared->items[at] : (struct cuda_shared_block){0};
    if (is_found)
        shared->items[at] = shared->items[--shared->count];
    ebb__cuda_unlock(engine);
    if (!is_found)
        return false;
    *result = engine->config.driver->cuMemFree_v2(address); /* it waits for the device */
    if (!ebb__cuda_lock(engine))
        return true;
    if (*result == CUDA_SUCCESS)
        give_bytes(engine, block.bytes);
    else
        note(engine, address, block.bytes);
    ebb__cuda_unlock(engine);
    return true;
}
