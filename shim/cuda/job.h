/* A job: one piece of work of the program, from before its real call to after it.
 *
 *     struct door_job job;
 *     ebb__job_init(&job);
 *     ebb__job_use(&job, address, bytes, EBB_ACCESS_READ);
 *     ebb__job_begin(&job, EBB_CUDA_COPY, stream, false, 0);
 *     return ebb__job_end(&job, next(...));
 *
 * Addresses that no engine owns are left out. If none remains, the engines hear nothing, but for
 * kernels where blocks move only while none runs. A job is for one thread. It allocates only for
 * more than DOOR_FEW uses. */
#ifndef EBB_SHIM_CUDA_JOB_H
#define EBB_SHIM_CUDA_JOB_H

#include "door.h"
#include "engines.h"

#include "trace/event.h"

#define DOOR_FEW 64
#define DOOR_READ_WRITE (EBB_ACCESS_READ | EBB_ACCESS_WRITE)

struct door_job {
    struct ebb_cuda_use *uses; /* `few`, or allocated */
    size_t count, room;
    bool is_borrowed; /* `uses` belongs to someone else, and nothing is added */
    bool is_own_way;  /* its stream is that of the engine's context, whatever the thread's is */
    bool is_unheard;  /* it may use blocks, and no engine hears of it */
    uint32_t owners;  /* devices whose engines own a use */
    uint32_t begun;   /* those that have heard of the work */
    struct ebb_cuda_use few[DOOR_FEW];
    struct ebb_cuda_work works[EBB_DOOR_DEVICES];
};

static inline void ebb__job_init(struct door_job *job)
{
    job->uses = job->few;
    job->count = 0;
    job->room = DOOR_FEW;
    job->is_borrowed = job->is_unheard = job->is_own_way = false;
    job->owners = job->begun = 0;
}

/* Slow: asks the engines whose the address is, or makes room. */
void ebb__job_use_slowly(struct door_job *job, CUdeviceptr address, uint64_t bytes,
                         unsigned access);

/* bytes: 0: unknown. access: bits of enum ebb_access_kind. `only` is ebb__engines_only. */
static inline void ebb__job_use_likely(struct door_job *job, int only, CUdeviceptr address,
                                       uint64_t bytes, unsigned access)
{
    if (__builtin_expect(only < 0 || job->count == job->room, 0)) {
        ebb__job_use_slowly(job, address, bytes, access);
        return;
    }
    job->owners = 1u << only;
    job->uses[job->count++] = (struct ebb_cuda_use){address, bytes, (uint8_t)access};
}

static inline void ebb__job_use(struct door_job *job, CUdeviceptr address, uint64_t bytes,
                                unsigned access)
{
    if (ebb__engines_may_own(address))
        ebb__job_use_likely(job, atomic_load_explicit(&ebb__engines_only, memory_order_relaxed),
                            address, bytes, access);
}

/* name: 0: none. */
void ebb__job_begin(struct door_job *job, enum ebb_cuda_work_kind kind, CUstream stream,
                    bool is_synchronous, uint64_t name);
/* Returns `result`, that of the real call. A job ends once, also one that never began. */
CUresult ebb__job_end(struct door_job *job, CUresult result);

/* The stream that a call means: `given`, or what 0 means at this entry. */
static inline CUstream ebb__job_stream(CUstream meant, CUstream given)
{
    return given ? given : meant;
}

/* captures.c: the stream is capturing. Asks the driver only while any capture is in progress. */
bool ebb__stream_is_captured(CUstream stream);

#endif
