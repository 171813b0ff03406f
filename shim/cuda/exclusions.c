/* Memory that others would reach by themselves: other processes, other devices, network cards. A
 * block that moves cannot be shared that way, and one that was allocated as a block cannot become
 * the driver's later. So the library offers none of it, as a driver does where a device cannot:
 * programs have another way, and take it. `ebb run` tells NCCL the same by its environment. A
 * program that insists is told how its blocks of that size stay the driver's from the beginning.
 * Memory that it maps itself (cuMemCreate) is the driver's, and can be exported as always. */
#include "door.h"

#include "attach.h"
#include "engines.h"

#include <stdio.h>

/* The block of this address was to be shared. */
static void tell(int owner, CUdeviceptr address)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    struct ebb_cuda *engine = ebb__engines_at(owner);
    CUdeviceptr base;
    size_t bytes;
    char text[300];
    if (!engine || !ebb__cuda_range(engine, address, &base, &bytes) ||
        atomic_flag_test_and_set(&told))
        return;
    snprintf(text, sizeof text,
             "the program shares device memory with another process or device: not possible with "
             "blocks that Ebb moves. --tune cuda_shared_bytes=%zu leaves blocks of this size to "
             "the driver, --device cpu all",
             bytes);
    ebb__attach_warn(NULL, text);
}

CUresult ebb__door_ipc_handle(__typeof__(cuIpcGetMemHandle) *next, CUstream stream,
                              CUipcMemHandle *a, CUdeviceptr b)
{
    (void)stream;
    int owner = ebb__engines_owner(b);
    if (owner < 0)
        return next(a, b);
    tell(owner, b);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult ebb__door_range_handle(__typeof__(cuMemGetHandleForAddressRange) *next, CUstream stream,
                                void *a, CUdeviceptr b, size_t c, int d, unsigned long long e)
{
    (void)stream;
    int owner = ebb__engines_owner(b);
    if (owner < 0)
        return next(a, b, c, d, e);
    tell(owner, b);
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* The driver refuses this for memory that was not mapped by handle. Blocks may be mapped so, but to
 * the program they are not. */
CUresult ebb__door_retain_handle(__typeof__(cuMemRetainAllocationHandle) *next, CUstream stream,
                                 CUmemGenericAllocationHandle *a, void *b)
{
    (void)stream;
    return ebb__engines_owner((CUdeviceptr)(uintptr_t)b) < 0 ? next(a, b)
                                                             : CUDA_ERROR_INVALID_VALUE;
}

CUresult ebb__door_can_access_peer(__typeof__(cuDeviceCanAccessPeer) *next, CUstream stream, int *a,
                                   CUdevice b, CUdevice c)
{
    (void)stream;
    CUresult result = next(a, b, c);
    if (result == CUDA_SUCCESS)
        *a = 0;
    return result;
}

CUresult ebb__door_peer_attribute(__typeof__(cuDeviceGetP2PAttribute) *next, CUstream stream,
                                  int *a, CUdevice_P2PAttribute b, CUdevice c, CUdevice d)
{
    (void)stream;
    CUresult result = next(a, b, c, d);
    if (result == CUDA_SUCCESS && b != CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK)
        *a = 0;
    return result;
}

CUresult ebb__door_enable_peer(__typeof__(cuCtxEnablePeerAccess) *next, CUstream stream,
                               CUcontext a, unsigned b)
{
    (void)stream, (void)next, (void)a, (void)b;
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}
