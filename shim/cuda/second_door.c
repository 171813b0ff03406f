/* A second door: the entry points of PyTorch's CUDAPluggableAllocator. A program that names this
 * library there gets its tensors from the engine, also where it bypasses libcuda.so.1.
 *
 *     allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "ebb_malloc", "ebb_free")
 *
 * PyTorch then has no statistics of its own and no private pools, so it cannot capture graphs. */
#include "door.h"
#include "engines.h"
#include "kept.h"

#include <sys/types.h>

void *ebb_malloc(ssize_t bytes, int device, CUstream stream);
void ebb_free(void *pointer, ssize_t bytes, int device, CUstream stream);

/* NULL, without an error of its own: PyTorch then frees what it can, and says that memory is
 * out. */
__attribute__((visibility("default"))) void *ebb_malloc(ssize_t bytes, int device, CUstream stream)
{
    CUdeviceptr address = 0;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    (void)device; /* PyTorch has made its context current */
    if (bytes <= 0)
        return NULL;
    if (ebb__door_enter()) {
        struct ebb_cuda *engine = ebb__engines_here();
        result = engine ? ebb__kept_alloc(engine, (size_t)bytes, stream ? stream : CU_STREAM_LEGACY,
                                          &address)
                        : ebb__real.cuMemAlloc_v2(&address, (size_t)bytes);
        ebb__door_leave();
    } else {
        result = ebb__real.cuMemAlloc_v2(&address, (size_t)bytes);
    }
    return result == CUDA_SUCCESS ? (void *)(uintptr_t)address : NULL;
}

__attribute__((visibility("default"))) void ebb_free(void *pointer, ssize_t bytes, int device,
                                                     CUstream stream)
{
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
    bool inside = pointer && ebb__door_enter();
    int owner = inside ? ebb__engines_owner(address) : -1;
    (void)bytes, (void)device;
    if (owner >= 0)
        (void)ebb__kept_free(owner, address, stream ? stream : CU_STREAM_LEGACY);
    else if (pointer)
        ebb__real.cuMemFree_v2(address);
    if (inside)
        ebb__door_leave();
}
