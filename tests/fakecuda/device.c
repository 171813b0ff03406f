/* What a device says of itself: a sane modern card, or an older driver, a MIG slice, or one without
 * concurrent managed access. FAKECUDA_ATTRIBUTES sets single values: "89=0,102=0".
 */
#include "fake.h"
#include <stdlib.h>

static const struct {
    CUdevice_attribute attribute;
    int value;
} usual[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 2619000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 50 << 20},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 1},
    {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
    {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
};

static bool set_by_environment(int attribute, int *value)
{
    const char *text = getenv("FAKECUDA_ATTRIBUTES");
    while (text && *text) {
        int number, given;
        if (sscanf(text, "%d=%d", &number, &given) == 2 && number == attribute) {
            *value = given;
            return true;
        }
        text = strchr(text, ',');
        text = text ? text + 1 : NULL;
    }
    return false;
}

int fake_attribute(CUdevice_attribute attribute, int device)
{
    int value;
    if (set_by_environment((int)attribute, &value))
        return value;
    if (attribute == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS && fake_set.no_concurrent)
        return 0;
    if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
        return 1 + device;
    if (fake_set.mig && attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
        return 16;
    for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
        if (usual[i].attribute == attribute)
            return usual[i].value;
    return 0;
}

API cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    TRY(fake_device_valid(device));
    if (!value || (int)attribute < 1 || (int)attribute > 160)
        DONE(CUDA_ERROR_INVALID_VALUE);
    *value = fake_attribute(attribute, device);
    return CUDA_SUCCESS;
}

API cuDeviceGet(CUdevice *device, int ordinal)
{
    TRY(fake_device_valid(ordinal));
    *device = ordinal;
    return CUDA_SUCCESS;
}

API cuDeviceGetCount(int *count)
{
    TRY(fake_ready());
    *count = fake_set.device_count;
    return CUDA_SUCCESS;
}

API cuDeviceGetName(char *name, int length, CUdevice device)
{
    TRY(fake_device_valid(device));
    if (!name || length <= 0)
        DONE(CUDA_ERROR_INVALID_VALUE);
    snprintf(name, (size_t)length, "Fake CUDA device%s", fake_set.mig ? " MIG 1g.10gb" : "");
    return CUDA_SUCCESS;
}

static CUresult uuid(CUuuid *to, CUdevice device)
{
    TRY(fake_device_valid(device));
    memset(to, 0, sizeof(*to));
    snprintf(to->bytes, sizeof(to->bytes), "FAKE-%s%d", fake_set.mig ? "MIG-" : "", device);
    return CUDA_SUCCESS;
}

API cuDeviceGetUuid(CUuuid *to, CUdevice device)
{
    return uuid(to, device);
}

API cuDeviceGetUuid_v2(CUuuid *to, CUdevice device)
{
    return uuid(to, device);
}

API cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    TRY(fake_device_valid(device));
    *bytes = fake_set.memory_bytes;
    return CUDA_SUCCESS;
}

API cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
    TRY(fake_device_valid(device));
    *major = fake_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    *minor = fake_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    return CUDA_SUCCESS;
}

API cuDeviceGetPCIBusId(char *text, int length, CUdevice device)
{
    TRY(fake_device_valid(device));
    snprintf(text, (size_t)length, "0000:%02x:00.0", 1 + device);
    return CUDA_SUCCESS;
}

API cuDeviceGetByPCIBusId(CUdevice *device, const char *text)
{
    TRY(fake_ready());
    unsigned domain, bus;
    if (sscanf(text, "%x:%x", &domain, &bus) != 2 || bus < 1 ||
        bus > (unsigned)fake_set.device_count)
        DONE(CUDA_ERROR_INVALID_DEVICE);
    *device = (int)bus - 1;
    return CUDA_SUCCESS;
}

API cuMemGetInfo_v2(size_t *available, size_t *total)
{
    CUcontext context;
    TRY(fake_usable(&context));
    pthread_mutex_lock(&memory_lock);
    size_t used = fake_bytes_used(context->device);
    pthread_mutex_unlock(&memory_lock);
    if (available)
        *available = used < fake_set.memory_bytes ? fake_set.memory_bytes - used : 0;
    if (total)
        *total = fake_set.memory_bytes;
    return CUDA_SUCCESS;
}

/* --- peers ------------------------------------------------------------------------------------ */

API cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    TRY(fake_device_valid(device));
    TRY(fake_device_valid(peer));
    *can = device != peer && !fake_set.mig;
    return CUDA_SUCCESS;
}

API cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice device,
                            CUdevice peer)
{
    TRY(fake_device_valid(device));
    TRY(fake_device_valid(peer));
    if (device == peer)
        DONE(CUDA_ERROR_INVALID_DEVICE);
    *value = attribute != CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK && !fake_set.mig;
    return CUDA_SUCCESS;
}

API cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    CUcontext context;
    TRY(fake_usable(&context));
    if (!peer || flags)
        DONE(flags ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT);
    if (peer->device == context->device)
        DONE(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    if (context->peers[peer->device])
        DONE(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    context->peers[peer->device] = true;
    return CUDA_SUCCESS;
}

API cuCtxDisablePeerAccess(CUcontext peer)
{
    CUcontext context;
    TRY(fake_usable(&context));
    if (!peer || !context->peers[peer->device])
        DONE(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    context->peers[peer->device] = false;
    return CUDA_SUCCESS;
}
