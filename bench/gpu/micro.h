/* Measurements of a GPU's driver, each in a process of its own. Helpers that all of them use. */
#ifndef EBB_BENCH_GPU_MICRO_H
#define EBB_BENCH_GPU_MICRO_H

#include "cuda/abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

/* The driver's functions that are used. All others than the first group may be missing. */
// clang-format off: a name on each line
#define MICRO_NEEDED(X)                                                                            \
    X(cuInit)                                                                                      \
    X(cuDriverGetVersion)                                                                          \
    X(cuGetErrorName)                                                                              \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGetName)                                                                             \
    X(cuDeviceGetAttribute)                                                                        \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuCtxSetCurrent)                                                                             \
    X(cuCtxSynchronize)                                                                            \
    X(cuMemGetInfo_v2)                                                                             \
    X(cuMemAlloc_v2)                                                                               \
    X(cuMemFree_v2)                                                                                \
    X(cuMemHostAlloc)                                                                              \
    X(cuMemFreeHost)                                                                               \
    X(cuMemAllocManaged)                                                                           \
    X(cuMemcpyAsync)                                                                               \
    X(cuStreamCreate)                                                                              \
    X(cuStreamSynchronize)                                                                         \
    X(cuStreamQuery)                                                                               \
    X(cuEventCreate)                                                                               \
    X(cuEventDestroy_v2)                                                                           \
    X(cuEventRecord)                                                                               \
    X(cuEventQuery)                                                                                \
    X(cuEventSynchronize)                                                                          \
    X(cuEventElapsedTime)                                                                          \
    X(cuStreamWaitEvent)                                                                           \
    X(cuModuleLoadData)                                                                            \
    X(cuModuleGetFunction)                                                                         \
    X(cuLaunchKernel)                                                                              \
    X(cuMemsetD8Async)
#define MICRO_OPTIONAL(X)                                                                          \
    X(cuGetProcAddress_v2)                                                                         \
    X(cuMemPrefetchAsync_v2)                                                                       \
    X(cuMemAdvise_v2)                                                                              \
    X(cuMemPrefetchBatchAsync)                                                                     \
    X(cuMemDiscardBatchAsync)                                                                      \
    X(cuMemDiscardAndPrefetchBatchAsync)                                                           \
    X(cuStreamWaitValue32_v2)                                                                      \
    X(cuStreamWriteValue32_v2)                                                                     \
    X(cuStreamBatchMemOp_v2)                                                                       \
    X(cuLaunchHostFunc)                                                                            \
    X(cuMemCreate)                                                                                 \
    X(cuMemRelease)                                                                                \
    X(cuMemMap)                                                                                    \
    X(cuMemUnmap)                                                                                  \
    X(cuMemSetAccess)                                                                              \
    X(cuMemAddressReserve)                                                                         \
    X(cuMemAddressFree)                                                                            \
    X(cuMemGetAllocationGranularity)                                                               \
    X(cuMemAllocAsync)                                                                             \
    X(cuMemFreeAsync)                                                                              \
    X(cuMemHostRegister_v2)                                                                        \
    X(cuMemHostUnregister)                                                                         \
    X(cuStreamCreateWithPriority)                                                                  \
    X(cuCtxGetStreamPriorityRange)                                                                 \
    X(cuDeviceGetDefaultMemPool)                                                                   \
    X(cuMemPoolSetAttribute)                                                                       \
    X(cuMemcpy2DAsync_v2)                                                                          \
    X(cuMemcpyPeerAsync)
// clang-format on

#define MICRO_MEMBER(name) __typeof__(name) *name;
struct micro_driver {
    void *library;
    MICRO_NEEDED(MICRO_MEMBER)
    MICRO_OPTIONAL(MICRO_MEMBER)
};
extern struct micro_driver cu;
extern CUfunction k_empty, k_spin, k_copy, k_read, k_fill, k_gather;
extern CUcontext micro_context;

double now_us(void);
/* One line of JSON: {"m": the measurement's name, <the members given>}. */
void emit(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ends the measurement with a line that names the call. */
void micro_check(CUresult result, const char *what, int line);
#define T(call) micro_check((call), #call, __LINE__)
const char *error_text(CUresult result);

struct spread {
    double median, least, most;
};
struct spread spread_of(double *values, int count);
double median_of(double *values, int count);

CUdeviceptr device_alloc(size_t bytes);
CUdeviceptr managed_alloc(size_t bytes);
void *pinned_alloc(size_t bytes);
CUstream stream_new(void);
CUevent event_new(void);
size_t free_mib(void); /* of the device */

#define ON_DEVICE ((CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 0})
#define ON_HOST ((CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0})

void launch(CUfunction kernel, unsigned blocks, CUstream stream, uint64_t a, uint64_t b,
            uint64_t c);
/* Rate of a kernel with all blocks over `bytes`, GB/s; `moved` bytes count. Device time. */
double kernel_gbps(CUfunction kernel, CUdeviceptr to, uint64_t from, size_t bytes, size_t moved,
                   CUstream stream);

struct timing {
    double call_us, all_us;
};
struct timing prefetch(CUdeviceptr base, size_t bytes, CUmemLocation to, CUstream stream);
struct timing copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
double gbps(size_t bytes, double us);

/* micro_vmm.c */
CUmemAllocationProp prop_of(CUmemLocationType type);
/* Access of the device, and of the host too for host memory. */
CUresult set_access(CUdeviceptr base, size_t bytes, bool with_host);
CUdeviceptr reserve(size_t bytes);
/* Host memory at a device address, of the first type that works. 0: none. */
CUdeviceptr host_backed(size_t bytes, bool *by_host, const char **name);

/* The measurements. */
void m_info(void);
void m_pointers(void);
void m_prefetch(void);
void m_prefetch_busy(void);
void m_remote(void);
void m_faults(void);
void m_discard(void);
void m_kernels(void);
void m_evict(void);
void m_evict_threads(void);
void m_evict_copies(void);
void m_mixed(void);
void m_stream_values(void);
void m_stream_costs(void);
void m_stream_starvation(void);
void m_vmm_costs(void);
void m_vmm_host(void);
void m_vmm_busy(void);
void m_vmm_beside(void);
void m_pinned(void);
void m_allocs(void);

#endif
