/* Launches of kernels, in all forms. Graphs are in graphs.c. Not seen are the deprecated launches
 * of CUDA 3 (cuLaunchGrid with cuParamSet), and those that kernels make themselves. */
#include "door.h"
#include "job.h"
#include "params.h"

#include <stdlib.h>

CUresult ebb__door_launch(__typeof__(cuLaunchKernel) *next, CUstream stream, CUfunction a,
                          unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g,
                          unsigned h, CUstream i, void **j, void **k)
{
    struct door_job job;
    ebb__job_init(&job);
    uint64_t name = ebb__params_scan(&job, a, j, k);
    ebb__job_begin(&job, EBB_CUDA_KERNEL, ebb__job_stream(stream, i), false, name);
    return ebb__job_end(&job, next(a, b, c, d, e, f, g, h, i, j, k));
}

CUresult ebb__door_launch_ex(__typeof__(cuLaunchKernelEx) *next, CUstream stream,
                             const CUlaunchConfig *a, CUfunction b, void **c, void **d)
{
    struct door_job job;
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
