/* Memsets, in all forms. */
#include "door.h"
#include "job.h"

static void use_line(struct door_job *job, CUdeviceptr to, uint64_t bytes)
{
    ebb__job_init(job);
    if (bytes)
        ebb__job_use(job, to, bytes, EBB_ACCESS_WRITE);
}

static void use_rows(struct door_job *job, CUdeviceptr to, uint64_t pitch, uint64_t width,
                     uint64_t height)
{
    use_line(job, to, width && height ? (height - 1) * pitch + width : 0);
}

/* For elements of each size: to a, value b, count c; to a, pitch b, value c, width d, height e. The
 * last parameter of the asynchronous forms is the stream. */
#define SETS(bits, type)                                                                           \
    CUresult ebb__door_set_##bits(__typeof__(cuMemsetD##bits##_v2) *next, CUstream stream,         \
                                  CUdeviceptr a, type b, size_t c)                                 \
    {                                                                                              \
        struct door_job job;                                                                       \
        use_line(&job, a, c *(bits / 8));                                                          \
        ebb__job_begin(&job, EBB_CUDA_SET, stream, false, 0);                                      \
        return ebb__job_end(&job, next(a, b, c));                                                  \
    }                                                                                              \
    CUresult ebb__door_set_##bits##_async(__typeof__(cuMemsetD##bits##Async) *next,                \
                                          CUstream stream, CUdeviceptr a, type b, size_t c,        \
                                          CUstream d)                                              \
    {                                                                                              \
        struct door_job job;                                                                       \
        use_line(&job, a, c *(bits / 8));                                                          \
        ebb__job_begin(&job, EBB_CUDA_SET, ebb__job_stream(stream, d), false, 0);                  \
        return ebb__job_end(&job, next(a, b, c, d));                                               \
    }                                                                                              \
    CUresult ebb__door_set_2d_##bits(__typeof__(cuMemsetD2D##bits##_v2) *next, CUstream stream,    \
                                     CUdeviceptr a, size_t b, type c, size_t d, size_t e)          \
    {                                                                                              \
        struct door_job job;                                                                       \
        use_rows(&job, a, b, d *(bits / 8), e);                                                    \
        ebb__job_begin(&job, EBB_CUDA_SET, stream, false, 0);                                      \
        return ebb__job_end(&job, next(a, b, c, d, e));                                            \
    }                                                                                              \
    CUresult ebb__door_set_2d_##bits##_async(__typeof__(cuMemsetD2D##bits##Async) *next,           \
                                             CUstream stream, CUdeviceptr a, size_t b, type c,     \
                                             size_t d, size_t e, CUstream f)                       \
    {                                                                                              \
        struct door_job job;                                                                       \
        use_rows(&job, a, b, d *(bits / 8), e);                                                    \
        ebb__job_begin(&job, EBB_CUDA_SET, ebb__job_stream(stream, f), false, 0);                  \
        return ebb__job_end(&job, next(a, b, c, d, e, f));                                         \
    }

SETS(8, unsigned char)
SETS(16, unsigned short)
SETS(32, unsigned)
