/* Stream-ordered allocation. An address is known at once, but the block lives from its allocation
 * to its release in the order of the stream. A released block serves the same stream again at
 * once, and other streams when the release is done. Idle blocks above the pool's threshold go when
 * somebody waits for the stream; here: at the next call that needs memory.
 */
#include "fake.h"
#include <stdlib.h>

struct block {
    struct block *next;
    CUdeviceptr address;
    size_t bytes;
    bool used; /* between the two calls of the program */
    struct CUstream_st *freed_in;
    uint64_t freed_seq;
};

struct CUmemPoolHandle_st {
    int device;
    bool alive;
    struct block *blocks; /* under memory_lock */
    uint64_t attributes[16];
    size_t used, used_high, reserved, reserved_high;
    uint8_t peers;
};

static CUresult pool_new(int device, CUmemoryPool *pool)
{
    *pool = calloc(1, sizeof(**pool));
    if (!*pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*pool)->device = device;
    (*pool)->alive = true;
    for (int i = 1; i <= 3; i++)
        (*pool)->attributes[i] = 1;
    return CUDA_SUCCESS;
}

static CUmemoryPool default_pool(int device)
{
    struct device *d = &fake_devices[device];
    pthread_mutex_lock(&memory_lock);
    if (!d->default_pool && pool_new(device, &d->default_pool) == CUDA_SUCCESS && !d->pool)
        d->pool = d->default_pool;
    pthread_mutex_unlock(&memory_lock);
    return d->default_pool;
}

static bool is_idle(const struct block *block)
{
    return !block->used &&
           (!block->freed_in || fake_stream_done(block->freed_in, block->freed_seq));
}

/* Gives idle blocks back to the device until the pool reserves no more than that. */
static void trim(CUmemoryPool pool, size_t keep)
{
    for (struct block **link = &pool->blocks; *link && pool->reserved > keep;) {
        struct block *block = *link;
        if (!is_idle(block)) {
            link = &block->next;
            continue;
        }
        struct range *range = fake_range_find(block->address);
        fake_bytes_add(pool->device, BYTES_PLAIN, -(long long)block->bytes, "a release");
        fake_range_remove(range);
        fake_arena_give(block->address, block->bytes);
        pool->reserved -= block->bytes;
        *link = block->next;
        free(block);
    }
}

static struct block *find_block(CUmemoryPool pool, size_t bytes, const struct CUstream_st *stream)
{
    for (struct block *b = pool->blocks; b; b = b->next)
        if (!b->used && b->bytes == bytes && (b->freed_in == stream || is_idle(b)))
            return b;
    return NULL;
}

static struct block *new_block(CUmemoryPool pool, size_t bytes)
{
    if (!fake_bytes_fit(pool->device, bytes))
        trim(pool, 0);
    CUdeviceptr at = fake_bytes_fit(pool->device, bytes) ? fake_arena_take(bytes, 4096) : 0;
    struct block *block = at ? calloc(1, sizeof(*block)) : NULL;
    if (!block)
        return NULL;
    struct range *range = fake_range_add(at, bytes, RANGE_POOL);
    range->device = pool->device;
    range->pool = pool;
    range->live = false;
    range->readable = pool->peers;
    block->address = at;
    block->bytes = bytes;
    block->next = pool->blocks;
    pool->blocks = block;
    pool->reserved += bytes;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    fake_bytes_add(pool->device, BYTES_PLAIN, (long long)bytes, "a pool's allocation");
    return block;
}

/* --- the two operations ----------------------------------------------------------------------- */

struct life_op {
    struct op op;
    CUdeviceptr address;
    bool begins;
};

static void life_run(struct op *op, struct CUstream_st *stream)
{
    struct life_op *life = (struct life_op *)op;
    pthread_mutex_lock(&memory_lock);
    struct range *range = fake_range_find(life->address);
    if (range) {
        range->live = life->begins;
        if (life->begins)
            fake_race_forget(range); /* its block was idle */
        else
            fake_race_check(range, op, stream, 0, range->bytes, FAKECUDA_WRITE, "a release");
        memset(range->alias, 0xA5, range->bytes < 65536 ? range->bytes : 65536);
    }
    pthread_mutex_unlock(&memory_lock);
}

static const struct op_class begin_class = {"allocation", CU_GRAPH_NODE_TYPE_MEM_ALLOC, life_run,
                                            NULL, NULL};
static const struct op_class end_class = {"release", CU_GRAPH_NODE_TYPE_MEM_FREE, life_run, NULL,
                                          NULL};

static CUresult allocate(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream handle)
{
    CUcontext context;
    TRY(fake_usable(&context));
    struct CUstream_st *stream;
    TRY(fake_stream_of(handle, context, &stream));
    if (!pool) {
        default_pool(context->device);
        pool = fake_devices[context->device].pool;
    }
    if (!address || !pool || !pool->alive || !bytes)
        DONE(CUDA_ERROR_INVALID_VALUE);
    if (fake_fault(FAULT_ALLOC))
        DONE(CUDA_ERROR_OUT_OF_MEMORY);
    bytes = (bytes + 511) / 512 * 512;
    struct life_op *op = fake_op_new(&begin_class, sizeof(*op));
    pthread_mutex_lock(&memory_lock);
    trim(pool, (size_t)pool->attributes[CU_MEMPOOL_ATTR_RELEASE_THRESHOLD] + bytes);
    struct block *block = op ? find_block(pool, bytes, stream) : NULL;
    if (op && !block)
        block = new_block(pool, bytes);
    if (block) {
        block->used = true;
        *address = op->address = block->address;
        op->begins = true;
        pool->used += bytes;
        pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
    }
    pthread_mutex_unlock(&memory_lock);
    if (!block) {
        free(op);
        DONE(CUDA_ERROR_OUT_OF_MEMORY);
    }
    DONE(fake_enqueue(stream, &op->op));
}

API cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    return allocate(address, bytes, NULL, stream);
}

API cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    return pool ? allocate(address, bytes, pool, stream) : fake_result(CUDA_ERROR_INVALID_VALUE);
}

API cuMemFreeAsync(CUdeviceptr address, CUstream handle)
{
    CUcontext context;
    TRY(fake_usable(&context));
    struct CUstream_st *stream;
    TRY(fake_stream_of(handle, context, &stream));
    if (!address)
        return CUDA_SUCCESS;
    struct life_op *op = fake_op_new(&end_class, sizeof(*op));
    if (!op)
        DONE(CUDA_ERROR_OUT_OF_MEMORY);
    op->address = address;
    pthread_mutex_lock(&memory_lock);
    struct range *range = fake_range_find(address);
    struct block *block = NULL;
    if (range && range->kind == RANGE_POOL && range->address == address)
        for (block = range->pool->blocks; block && block->address != address;)
            block = block->next;
    bool good = block && block->used;
    if (good) {
        range->pool->used -= block->bytes;
        block->used = false;
        block->freed_in = stream;
        block->freed_seq = UINT64_MAX; /* until it is enqueued */
        op->op.seq_to = &block->freed_seq;
    }
    pthread_mutex_unlock(&memory_lock);
    if (!good) {
        free(op);
        fake_violation("bad-free", "cuMemFreeAsync(%#llx): not a block in use", address);
        DONE(CUDA_ERROR_INVALID_VALUE);
    }
    DONE(fake_enqueue(stream, &op->op));
}

void fake_pool_trim_stream(struct CUstream_st *stream)
{
    (void)stream; /* streams stay, so that a block can still name the one it was freed in */
}

/* --- pools ------------------------------------------------------------------------------------ */

API cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    TRY(fake_device_valid(device));
    *pool = default_pool(device);
    return CUDA_SUCCESS;
}

API cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    TRY(fake_device_valid(device));
    default_pool(device);
    *pool = fake_devices[device].pool;
    return CUDA_SUCCESS;
}

API cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    TRY(fake_device_valid(device));
    if (!pool || pool->device != device)
        DONE(CUDA_ERROR_INVALID_VALUE);
    default_pool(device);
    fake_devices[device].pool = pool;
    return CUDA_SUCCESS;
}

API cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    TRY(fake_ready());
    if (!pool || !properties || properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        DONE(CUDA_ERROR_INVALID_VALUE);
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        DONE(CUDA_ERROR_NOT_SUPPORTED);
    TRY(fake_device_valid(properties->location.id));
    DONE(pool_new(properties->location.id, pool));
}

API cuMemPoolDestroy(CUmemoryPool pool)
{
    TRY(fake_ready());
    if (!pool || pool == fake_devices[pool->device].default_pool)
        DONE(CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&memory_lock);
    trim(pool, 0);
    pool->alive = false;
    if (fake_devices[pool->device].pool == pool) /* as documented */
        fake_devices[pool->device].pool = fake_devices[pool->device].default_pool;
    pthread_mutex_unlock(&memory_lock);
    return CUDA_SUCCESS;
}

API cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    TRY(fake_ready());
    pthread_mutex_lock(&memory_lock);
    trim(pool, keep);
    pthread_mutex_unlock(&memory_lock);
    return CUDA_SUCCESS;
}

API cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    TRY(fake_ready());
    if (!pool || !value)
        DONE(CUDA_ERROR_INVALID_VALUE);
    if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        pool->used_high = pool->used;
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
        pool->reserved_high = pool->reserved;
    else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        memcpy(&pool->attributes[attribute], value, 8);
    else if (attribute < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        pool->attributes[attribute] = *(unsigned *)value;
    else
        DONE(CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

API cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    TRY(fake_ready());
    if (!pool || !value || (unsigned)attribute > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        DONE(CUDA_ERROR_INVALID_VALUE);
    uint64_t wide = attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT       ? pool->used
                    : attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH        ? pool->used_high
                    : attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? pool->reserved
                    : attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH    ? pool->reserved_high
                                                                     : pool->attributes[attribute];
    if (attribute >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        memcpy(value, &wide, 8);
    else
        *(unsigned *)value = (unsigned)wide;
    return CUDA_SUCCESS;
}

API cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    TRY(fake_ready());
    for (size_t i = 0; i < count; i++) {
        uint8_t bit = (uint8_t)(1u << map[i].location.id);
        if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
            pool->peers &= (uint8_t)~bit;
        else
            pool->peers |= bit;
    }
    return CUDA_SUCCESS;
}

API cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
    TRY(fake_ready());
    bool open = location->id == pool->device || pool->peers >> location->id & 1;
    *flags = open ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}
