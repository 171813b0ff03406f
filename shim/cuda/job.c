#include "job.h"

#include "unheard.h"
#include "ways.h"

#include <stdlib.h>
#include <string.h>

/* False: memory is exhausted. Then the use is left out, which costs time only. */
static bool grow(struct door_job *job)
{
    size_t room = job->room * 4;
    struct ebb_cuda_use *more =
        realloc(job->uses == job->few ? NULL : job->uses, room * sizeof *more);
    if (!more)
        return false;
    if (job->uses == job->few)
        memcpy(more, job->few, sizeof job->few);
    job->uses = more;
    job->room = room;
    return true;
}

void ebb__job_use_slowly(struct door_job *job, CUdeviceptr address, uint64_t bytes, unsigned access)
{
    int owner = ebb__engines_owner(address);
    if (owner < 0 || (job->count == job->room && !grow(job)))
        return;
    job->owners |= 1u << owner;
    job->uses[job->count++] = (struct ebb_cuda_use){address, bytes, (uint8_t)access};
}

/* A kernel may use what it does not name. */
static void add_hearing(struct door_job *job)
{
    int device = ebb__engines_hearing();
    if (device >= 0)
        job->owners |= 1u << device;
}

void ebb__job_begin(struct door_job *job, enum ebb_cuda_work_kind kind, CUstream stream,
                    bool is_synchronous, uint64_t name)
{
    bool may_use_more = kind == EBB_CUDA_KERNEL || kind == EBB_CUDA_GRAPH;
    if (may_use_more)
        add_hearing(job);
    if (!may_use_more && !job->owners)
        return;
    bool is_captured = ebb__stream_is_captured(stream);
    job->is_unheard = !job->owners && !is_captured;
    for (uint32_t left = job->owners; left; left &= left - 1) {
        int device = __builtin_ctz(left);
        struct ebb_cuda *engine = ebb__engines_at(device);
        if (!engine)
            continue;
        struct ebb_cuda_work *work = &job->works[device];
        work->kind = kind;
        work->stream = stream;
        work->is_synchronous = is_synchronous;
        work->is_captured = is_captured;
        work->elsewhere = NULL;
        if (!job->is_own_way && ebb__stream_is_elsewhere(stream, device))
            ebb__real.cuCtxGetCurrent(&work->elsewhere);
        work->name = name;
        work->uses = job->uses;
        work->use_count = job->count;
        work->held_count = 0;
        work->order = 0;
        job->begun |= 1u << device;
        /* If memory is exhausted, the driver may serve the work all the same. */
        (void)ebb__cuda_begin(engine, work);
    }
}

CUresult ebb__job_end(struct door_job *job, CUresult result)
{
    for (uint32_t left = job->begun; left; left &= left - 1) {
        int device = __builtin_ctz(left);
        struct ebb_cuda *engine = ebb__engines_at(device);
        if (engine)
            ebb__cuda_end(engine, &job->works[device], result == CUDA_SUCCESS);
    }
    if (job->is_unheard && result == CUDA_SUCCESS)
        ebb__unheard_note();
    if (job->uses != job->few && !job->is_borrowed)
        free(job->uses);
    return result;
}
