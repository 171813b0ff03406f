#include "captures.h"

#include "fork_lock.h"
#include "job.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct capture {
    CUstream stream;
    CUcontext context; /* NULL: not known */
    CUstreamCaptureMode mode;
    pthread_t thread;
    struct capture *next;
};

/* While there are none, no launch asks whether its stream is capturing. It counts before the real
 * call, so that no thread misses the capture's first work. */
static atomic_uint count;
static struct capture *captures; /* under the lock, as all below */
/* Blocks that were allocated or freed since the first capture began. */
static CUdeviceptr *blocks;
static size_t block_count, block_room;
EBB_FORK_LOCK(201)

static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool ebb__captures_any(void)
{
    return __builtin_expect(atomic_load_explicit(&count, memory_order_relaxed) > 0, 0);
}

static bool forbids(const struct capture *capture)
{
    if (capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    return pthread_equal(capture->thread, pthread_self()) ||
           (thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
            capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

bool ebb__captures_forbid(void)
{
    bool found = false;
    if (!ebb__captures_any() || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    pthread_mutex_lock(&lock);
    for (const struct capture *capture = captures; capture && !found; capture = capture->next)
        found = forbids(capture);
    pthread_mutex_unlock(&lock);
    return found;
}

void ebb__captures_note(CUdeviceptr block)
{
    if (!ebb__captures_any())
        return;
    pthread_mutex_lock(&lock);
    if (block_count == block_room) {
        size_t room = block_room ? 2 * block_room : 256;
        CUdeviceptr *more = realloc(blocks, room * sizeof *more);
        blocks = more ? more : blocks;
        block_room = more ? room : block_room;
    }
    if (block_count < block_room)
        blocks[block_count++] = block;
    pthread_mutex_unlock(&lock);
}

/* ---- begin and end --------------------------------------------------------------------------- */

void ebb__captures_enter(void)
{
    atomic_fetch_add(&count, 1);
}

static CUcontext context_of(CUstream stream)
{
    CUcontext context = NULL;
    CUresult result = stream == CU_STREAM_PER_THREAD ? ebb__real.cuCtxGetCurrent(&context)
                                                     : ebb__real.cuStreamGetCtx(stream, &context);
    return result == CUDA_SUCCESS ? context : NULL;
}

CUresult ebb__captures_begin(CUresult result, CUstream stream, CUstreamCaptureMode mode)
{
    /* Without memory for it, the capture counts as one that never ends. */
    struct capture *capture = result == CUDA_SUCCESS ? malloc(sizeof *capture) : NULL;
    if (capture) {
        CUcontext context = context_of(stream);
        pthread_mutex_lock(&lock);
        *capture = (struct capture){stream, context, mode, pthread_self(), captures};
        captures = capture;
        pthread_mutex_unlock(&lock);
    }
    if (result != CUDA_SUCCESS)
        atomic_fetch_sub(&count, 1);
    return result;
}

/* CU_STREAM_PER_THREAD is another stream in each thread. */
static bool is_of(const struct capture *capture, CUstream stream)
{
    return capture->stream == stream &&
           (stream != CU_STREAM_PER_THREAD || pthread_equal(capture->thread, pthread_self()));
}

void ebb__captures_end(CUstream stream)
{
    pthread_mutex_lock(&lock);
    struct capture **at = &captures;
    while (*at && !is_of(*at, stream))
        at = &(*at)->next;
    struct capture *gone = *at;
    if (gone) { /* not so for a stream that only took part */
        *at = gone->next;
        if (atomic_fetch_sub(&count, 1) == 1)
            block_count = 0;
    }
    pthread_mutex_unlock(&lock);
    free(gone);
}

bool ebb__captures_lose(CUcontext context)
{
    struct capture *gone = NULL;
    pthread_mutex_lock(&lock);
    for (struct capture **at = &captures; *at;) {
        struct capture *capture = *at;
        if (!context || capture->context != context) {
            at = &capture->next;
            continue;
        }
        *at = capture->next;
        capture->next = gone;
        gone = capture;
        if (atomic_fetch_sub(&count, 1) == 1)
            block_count = 0;
    }
    pthread_mutex_unlock(&lock);
    bool any = gone != NULL;
    while (gone) {
        struct capture *next = gone->next;
        free(gone);
        gone = next;
    }
    return any;
}

static CUstreamCaptureStatus status_of(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (ebb__real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS)
        return CU_STREAM_CAPTURE_STATUS_NONE; /* the legacy stream beside a capture */
    return status;
}

bool ebb__stream_is_captured(CUstream stream)
{
    return ebb__captures_any() && stream != EBB_CUDA_NO_STREAM &&
           status_of(stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

bool ebb__captures_has(CUstream stream)
{
    return ebb__captures_any() && status_of(stream) != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUdeviceptr *ebb__captures_blocks(size_t *many)
{
    pthread_mutex_lock(&lock);
    CUdeviceptr *copy = block_count ? malloc(block_count * sizeof *copy) : NULL;
    *many = copy ? block_count : 0;
    if (copy)
        memcpy(copy, blocks, block_count * sizeof *copy);
    pthread_mutex_unlock(&lock);
    return copy;
}

void ebb__captures_exchange(CUstreamCaptureMode mode)
{
    thread_mode = mode;
}
