/* An allocator of managed memory on the device, for torch.cuda.memory.CUDAPluggableAllocator: to
 * measure what managed memory costs the kernels of a framework. Never more than 8 GiB. Freed blocks
 * are kept by size and reused at once: right for one stream only. */
#include "cuda/abi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#define MIB ((size_t)1 << 20)
#define SLAB_BYTES (1024 * MIB)
#define MOST_BYTES (8 * 1024 * MIB)
#define MOST_BLOCKS 65536

struct block {
    CUdeviceptr base;
    size_t bytes;
    int is_free;
};

static struct block blocks[MOST_BLOCKS];
static size_t block_count, total_bytes, slab_left;
static CUdeviceptr slab;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t round_up(size_t bytes)
{
    size_t unit = bytes >= MIB ? 2 * MIB : 4096;
    return (bytes + unit - 1) / unit * unit;
}

static int grow(size_t bytes)
{
    static __typeof__(cuMemAllocManaged) *alloc;
    static __typeof__(cuMemPrefetchAsync_v2) *prefetch;
    static __typeof__(cuMemAdvise_v2) *advise;
    static __typeof__(cuCtxSynchronize) *synchronize;
    static __typeof__(cuDevicePrimaryCtxRetain) *retain;
    static __typeof__(cuCtxGetCurrent) *get_current;
    static __typeof__(cuCtxSetCurrent) *set_current;
    if (!alloc) {
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        *(void **)&alloc = dlsym(library, "cuMemAllocManaged");
        *(void **)&prefetch = dlsym(library, "cuMemPrefetchAsync_v2");
        *(void **)&advise = dlsym(library, "cuMemAdvise_v2");
        *(void **)&synchronize = dlsym(library, "cuCtxSynchronize");
        *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
        *(void **)&get_current = dlsym(library, "cuCtxGetCurrent");
        *(void **)&set_current = dlsym(library, "cuCtxSetCurrent");
    }
    CUcontext context = NULL;
    if ((get_current(&context) != 0 || !context) &&
        (retain(&context, 0) != 0 || set_current(context) != 0))
        return -1;
    CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    size_t size = bytes > SLAB_BYTES ? bytes : SLAB_BYTES;
    if (total_bytes + size > MOST_BYTES || alloc(&slab, size, CU_MEM_ATTACH_GLOBAL) != 0 ||
        advise(slab, size, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device) != 0 ||
        prefetch(slab, size, device, 0, NULL) != 0 || synchronize() != 0)
        return -1;
    total_bytes += size;
    slab_left = size;
    return 0;
}

void *pool_malloc(ssize_t bytes, int device, CUstream stream)
{
    (void)device, (void)stream;
    size_t size = round_up(bytes > 0 ? (size_t)bytes : 1);
    CUdeviceptr found = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < block_count && !found; i++)
        if (blocks[i].is_free && blocks[i].bytes == size) {
            blocks[i].is_free = 0;
            found = blocks[i].base;
        }
    if (!found && block_count < MOST_BLOCKS && (size <= slab_left || grow(size) == 0)) {
        blocks[block_count++] = (struct block){slab, size, 0};
        found = slab;
        slab += size;
        slab_left -= size;
    }
    pthread_mutex_unlock(&lock);
    if (!found)
        fprintf(stderr, "managed_pool: no room for %zu bytes\n", size);
    return (void *)(uintptr_t)found;
}

void pool_free(void *pointer, ssize_t bytes, int device, CUstream stream)
{
    (void)bytes, (void)device, (void)stream;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < block_count; i++)
        if (blocks[i].base == (CUdeviceptr)(uintptr_t)pointer)
            blocks[i].is_free = 1;
    pthread_mutex_unlock(&lock);
}
