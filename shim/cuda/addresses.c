/* What a program asks about its addresses. A block is part of a large managed allocation of the
 * engine's. To the program it is what it would be without Ebb: device memory of its own size. */
#include "door.h"
#include "engines.h"

#include <string.h>

/* An address of a block, with what is asked about it. */
struct block {
    CUdeviceptr address, base;
    size_t bytes;
    CUdevice device;
    struct ebb_cuda *engine;
};

static bool find_block(CUdeviceptr address, struct block *block)
{
    block->address = address;
    block->device = ebb__engines_owner(address);
    block->engine = ebb__engines_at(block->device);
    return block->engine && ebb__cuda_range(block->engine, address, &block->base, &block->bytes);
}

CUresult ebb__door_address_range(__typeof__(cuMemGetAddressRange_v2) *next, CUstream stream,
                                 CUdeviceptr *a, size_t *b, CUdeviceptr c)
{
    (void)stream;
    struct block block;
    if (ebb__engines_owner(c) < 0)
        return next(a, b, c);
    if (!find_block(c, &block))
        return CUDA_ERROR_NOT_FOUND;
    if (a)
        *a = block.base;
    if (b)
        *b = block.bytes;
    return CUDA_SUCCESS;
}

#define WRITE(type, what)                                                                          \
    do {                                                                                           \
        const type value = (type)(what);                                                           \
        memcpy(data, &value, sizeof value);                                                        \
    } while (0)

/* An attribute that differs from that of the engine's allocation. True: *data is set. */
static bool answer(const struct block *block, CUpointer_attribute attribute, void *data)
{
    bool is_of_pool = ebb__cuda_is_of_stream(block->engine, block->base);
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: /* mapped memory has none, nor has that of pools */
        WRITE(CUcontext, is_of_pool ? NULL : ebb__engines_context(block->device));
        return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        WRITE(unsigned, CU_MEMORYTYPE_DEVICE);
        return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        WRITE(unsigned long long, ebb__cuda_id(block->engine, block->base) |
                                      1ull << 63); /* no number of the driver's */
        return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        WRITE(unsigned char, 0); /* the driver writes one byte for a truth value */
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        WRITE(int, block->device);
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        WRITE(CUdeviceptr, block->base);
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        WRITE(size_t, block->bytes);
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: /* the driver refuses what is not mapped now */
        WRITE(CUdeviceptr, block->address);
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        WRITE(unsigned char, 1);
        return true;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: /* of the thread's device */
        if (ebb__engines_current() != block->device)
            return false;
        WRITE(unsigned, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        WRITE(unsigned long long, 0);
        return true;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        WRITE(CUmemoryPool, is_of_pool ? ebb__engines_default_pool(block->device) : NULL);
        return true;
    default:
        return false;
    }
}

CUresult ebb__door_attribute(__typeof__(cuPointerGetAttribute) *next, CUstream stream, void *a,
                             CUpointer_attribute b, CUdeviceptr c)
{
    (void)stream;
    struct block block;
    if (!a || !find_block(c, &block)) /* between blocks there is no memory */
        return a && block.device >= 0 ? CUDA_ERROR_INVALID_VALUE : next(a, b, c);
    if (b == CU_POINTER_ATTRIBUTE_HOST_POINTER)
        return CUDA_ERROR_INVALID_VALUE; /* device memory has none */
    return answer(&block, b, a) ? CUDA_SUCCESS : next(a, b, c);
}

/* The call for several attributes writes zeros for those that do not apply. */
CUresult ebb__door_attributes(__typeof__(cuPointerGetAttributes) *next, CUstream stream, unsigned a,
                              CUpointer_attribute *b, void **c, CUdeviceptr d)
{
    (void)stream;
    static const char unknown; /* no memory of the driver's */
    struct block block;
    bool is_block = find_block(d, &block);
    bool is_between = !is_block && block.device >= 0;
    CUresult result = next(a, b, c, is_between ? (CUdeviceptr)(uintptr_t)&unknown : d);
    if (result != CUDA_SUCCESS || !is_block)
        return result;
    for (unsigned i = 0; i < a; i++)
        if (b[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER)
            *(void **)c[i] = NULL;
        else
            answer(&block, b[i], c[i]);
    return result;
}

/* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: another device will access the memory by itself. */
CUresult ebb__door_set_attribute(__typeof__(cuPointerSetAttribute) *next, CUstream stream,
                                 const void *a, CUpointer_attribute b, CUdeviceptr c)
{
    (void)stream;
    struct block block;
    if (find_block(c, &block))
        ebb__cuda_keep(ebb__engines_at(block.device), block.base, block.bytes);
    return next(a, b, c);
}
