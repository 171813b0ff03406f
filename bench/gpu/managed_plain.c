/* Plain managed memory for PyTorch: an allocator for torch.cuda.memory.CUDAPluggableAllocator that
 * gives each block from cuMemAllocManaged, without advice and prefetches. The peer of Ebb's budget:
 * the driver alone decides what is on the device.
 *
 * Freed blocks are kept by size and reused at once: right for one stream only. The sum is limited
 * by EBB_BENCH_MOST_BYTES, 16 GiB without it. */
#include "cuda/abi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#define MIB ((size_t)1 << 20)
#define MOST_BLOCKS 65536

static struct block {
    CUdeviceptr address;
    size_t bytes;
    int is_free;
} blocks[MOST_BLOCKS];
static size_t block_count, total_bytes, most_bytes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void *pool_malloc(ssize_t bytes, int device, CUstream stream);
void pool_free(void *pointer, ssize_t bytes, int device, CUstream stream);

static size_t round_up(size_t bytes)
{
    size_t unit = bytes >= MIB ? 2 * MIB : 4096;
    return (bytes + unit - 1) / unit * unit;
}

static CUdeviceptr allocate(size_t bytes)
{
    static __typeof__(cuMemAllocManaged) *alloc;
    const char *limit = getenv("EBB_BENCH_MOST_BYTES");
    CUdeviceptr address = 0;
    if (!alloc) {
        *(void **)&alloc = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAllocManaged");
        most_bytes = limit ? strtoull(limit, NULL, 0) : (size_t)16 << 30;
    }
    if (total_bytes + bytes > most_bytes || block_count == MOST_BLOCKS ||
        alloc(&address, bytes, CU_MEM_ATTACH_GLOBAL) != CUDA_SUCCESS)
        return 0;
    total_bytes += bytes;
    blocks[block_count++] = (struct block){address, bytes, 0};
    return address;
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
            found = blocks[i].address;
        }
    if (!found)
        found = allocate(size);
    pthread_mutex_unlock(&lock);
    if (!found)
        fprintf(stderr, "managed_plain: no room for %zu bytes beside %zu\n", size, total_bytes);
    return (void *)(uintptr_t)found;
}

void pool_free(void *pointer, ssize_t bytes, int device, CUstream stream)
{
    (void)bytes, (void)device, (void)stream;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < block_count; i++)
        if (blocks[i].address == (CUdeviceptr)(uintptr_t)pointer)
            blocks[i].is_free = 1;
    pthread_mutex_unlock(&lock);
}
