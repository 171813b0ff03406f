/* Launches of kernels, in all forms. Graphs are in graphs.c. Not seen are the deprecated launches
 * of CUDA 3 (cuLaunchGrid with cuParamSet), and those that kernels make themselves. */
#include "door.h"
#include "job.h"
#include "params.h"

#include <stdatomic.h>
#include <stdlib.h>

/* ---- how many -------------------------------------------------------------------------------- */

/* Threads count apart, so that they do not wait for each other's cache lines. */
enum { SHARDS = 16 };
static struct shard {
    _Alignas(64) _Atomic uint64_t count;
} shards[SHARDS];
static _Atomic unsigned next_shard;
static _Thread_local struct shard *own_shard;

static void count_launch(void)
{
    if (!own_shard)
        own_shard = &shards[atomic_fetch_add(&next_shard, 1) % SHARDS];
    atomic_fetch_add_explicit(&own_shard->count, 1, memory_order_relaxed);
}

/* For measurements (bench/gpu): launches of kernels until now, without those in graphs. */
uint64_t ebb_cuda_launches(void);
__attribute__((visibility("default"))) uint64_t ebb_cuda_launches(void)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < SHARDS; i++)
        sum += atomic_load_explicit(&shards[i].count, memory_order_relaxed);
    return sum;
}

/* ---- launches -------------------------------------------------------------------------------- */

CUresult ebb__door_launch(__typeof__(cuLaunchKernel) *next, CUstream stream, CUfunction a,
                          unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g,
                          unsigned h, CUstream i, void **j, void **k)
{
    struct door_job job;
    count_launch();
    ebb__job_init(&job);
    uint64_t name = ebb__params_scan(&job, a, j, k);
    ebb__job_begin(&job, EBB_CUDA_KERNEL, ebb__job_stream(stream, i), false, name);
    return ebb__job_end(&job, next(a, b, c, d, e, f, g, h, i, j, k));
}

CUresult ebb__door_launch_ex(__typeof__(cuLaunchKernelEx) *next, CUstream stream,
                             const CUlaunchConfig *a, CUfunction b, void **c, void **d)
{
    struct door_job job;
    count_launch();
    ebb__job_init(&job);
    uint64_t name = ebb__params_scan(&job, b, c, d);
    if (a)
        ebb__job_begin(&job, EBB_CUDA_KERNEL, ebb__job_stream(stream, a->hStream), false, name);
    return ebb__job_end(&job, next(a, b, c, d));
}

CUresult ebb__door_launch_cooperative(__typeof__(cuLaunchCooperativeKernel) *next, CUstream stream,
                                      CUfunction a, unsigned b, unsigned c, unsigned d, unsigned e,
                                      unsigned f, unsigned g, unsigned h, CUstream i, void **j)
{
    struct door_job job;
    count_launch();
    ebb__job_init(&job);
    uint64_t name = ebb__params_scan(&job, a, j, NULL);
    ebb__job_begin(&job, EBB_CUDA_KERNEL, ebb__job_stream(stream, i), false, name);
    return ebb__job_end(&job, next(a, b, c, d, e, f, g, h, i, j));
}

/* One launch for each device. Each has a stream of its own. */
CUresult ebb__door_launch_multi(__typeof__(cuLaunchCooperativeKernelMultiDevice) *next,
                                CUstream stream, CUDA_LAUNCH_PARAMS *a, unsigned b, unsigned c)
{
    struct door_job *jobs = a && b && b <= EBB_DOOR_DEVICES ? malloc(b * sizeof *jobs) : NULL;
    if (!jobs)
        return next(a, b, c);
    for (unsigned i = 0; i < b; i++) {
        count_launch();
        ebb__job_init(&jobs[i]);
        uint64_t name = ebb__params_scan(&jobs[i], a[i].function, a[i].kernelParams, NULL);
        ebb__job_begin(&jobs[i], EBB_CUDA_KERNEL, ebb__job_stream(stream, a[i].hStream), false,
                       name);
    }
    CUresult result = next(a, b, c);
    for (unsigned i = 0; i < b; i++)
        ebb__job_end(&jobs[i], result);
    free(jobs);
    return result;
}
