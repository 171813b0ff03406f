/* A driver that does nothing, for measurements of the CUDA engine without a GPU. Host memory is
 * there, and each attribute is 1. What else a driver does, its program gives. */
#ifndef EBB_BENCH_NO_DRIVER_H
#define EBB_BENCH_NO_DRIVER_H

#include "cuda/abi.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct no_driver_symbol {
    const char *symbol;
    void *function; /* NULL: the driver lacks it */
};

static CUresult no_driver_nothing(void)
{
    return CUDA_SUCCESS;
}

static CUresult no_driver_get_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)attribute, (void)device;
    *value = 1;
    return CUDA_SUCCESS;
}

static CUresult no_driver_get_info(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = *total_bytes = (size_t)128 << 30;
    return CUDA_SUCCESS;
}

static CUresult no_driver_host_alloc(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    return (*memory = calloc(1, bytes)) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult no_driver_host_free(void *memory)
{
    free(memory);
    return CUDA_SUCCESS;
}

static CUresult no_driver_host_pointer(CUdeviceptr *address, void *memory, unsigned flags)
{
    (void)flags;
    *address = (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

/* The function of that symbol: of the program's list, which ends with NULL, or of this driver. */
static inline void *no_driver_find(const struct no_driver_symbol *given, const char *symbol)
{
    static const struct no_driver_symbol own[] = {
        {"cuMemGetInfo_v2", (void *)no_driver_get_info},
        {"cuDeviceGetAttribute", (void *)no_driver_get_attribute},
        {"cuMemHostAlloc", (void *)no_driver_host_alloc},
        {"cuMemFreeHost", (void *)no_driver_host_free},
        {"cuMemHostGetDevicePointer_v2", (void *)no_driver_host_pointer},
        {"cuStreamGetCtx", NULL},
        {"cuStreamGetFlags", NULL},
        {"cuStreamIsCapturing", NULL},
        {NULL, NULL}};
    const struct no_driver_symbol *lists[] = {given, own};
    for (unsigned i = 0; i < 2; i++)
        for (const struct no_driver_symbol *at = lists[i]; at->symbol; at++)
            if (strcmp(symbol, at->symbol) == 0)
                return at->function;
    return (void *)no_driver_nothing;
}

#endif
