/* Copies, in all forms. Operands are exact: a copy names what it reads and writes. Host addresses
 * may be blocks as well, since addresses are unified: they are looked at like the others. */
#include "detours.h"
#include "door.h"
#include "job.h"
#include "payload.h"

static inline CUdeviceptr of_host(const void *host)
{
    return (CUdeviceptr)(uintptr_t)host;
}

static struct door_box line_in(CUdeviceptr to, const void *from, size_t bytes)
{
    struct door_box box = ebb__box_line(to, 0, bytes);
    box.from = (struct door_side){.type = CU_MEMORYTYPE_HOST, .host = from};
    return box;
}

static struct door_box line_out(const void *to, CUdeviceptr from, size_t bytes)
{
    struct door_box box = ebb__box_line(0, from, bytes);
    box.to = (struct door_side){.type = CU_MEMORYTYPE_HOST, .host = to};
    return box;
}

static void use_line(struct door_job *job, CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    ebb__job_init(job);
    if (bytes == 0)
        return;
    ebb__job_use(job, from, bytes, EBB_ACCESS_READ);
    ebb__job_use(job, to, bytes, EBB_ACCESS_WRITE);
}

static bool is_far(const struct door_job *job, const struct door_box *box, CUstream stream,
                   bool is_synchronous)
{
    return job->owners && ebb__detour_is_needed(box, stream, is_synchronous);
}

static CUresult copy_now(__typeof__(cuMemcpy) *next, CUstream stream, CUdeviceptr to,
                         CUdeviceptr from, size_t bytes)
{
    struct door_job job;
    use_line(&job, to, from, bytes);
    const struct door_box box = ebb__box_line(to, from, bytes);
    if (is_far(&job, &box, stream, true))
        return ebb__detour_copy(&job, &box, stream, true);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, true, 0);
    return ebb__job_end(&job, next(to, from, bytes));
}

static CUresult copy_later(__typeof__(cuMemcpyAsync) *next, CUstream meant, CUdeviceptr to,
                           CUdeviceptr from, size_t bytes, CUstream given)
{
    struct door_job job;
    use_line(&job, to, from, bytes);
    const struct door_box box = ebb__box_line(to, from, bytes);
    CUstream stream = ebb__job_stream(meant, given);
    if (is_far(&job, &box, stream, false))
        return ebb__detour_copy(&job, &box, stream, false);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, false, 0);
    return ebb__job_end(&job, next(to, from, bytes, given));
}

CUresult ebb__door_copy(__typeof__(cuMemcpy) *next, CUstream stream, CUdeviceptr a, CUdeviceptr b,
                        size_t c)
{
    ebb__payload_scan_unified(a, b, c);
    return copy_now(next, stream, a, b, c);
}

CUresult ebb__door_copy_async(__typeof__(cuMemcpyAsync) *next, CUstream stream, CUdeviceptr a,
                              CUdeviceptr b, size_t c, CUstream d)
{
    ebb__payload_scan_unified(a, b, c);
    return copy_later(next, stream, a, b, c, d);
}

CUresult ebb__door_copy_within(__typeof__(cuMemcpy) *next, CUstream stream, CUdeviceptr a,
                               CUdeviceptr b, size_t c)
{
    ebb__payload_scan_within(a, b, c);
    return copy_now(next, stream, a, b, c);
}

CUresult ebb__door_copy_within_async(__typeof__(cuMemcpyAsync) *next, CUstream stream,
                                     CUdeviceptr a, CUdeviceptr b, size_t c, CUstream d)
{
    ebb__payload_scan_within(a, b, c);
    return copy_later(next, stream, a, b, c, d);
}

CUresult ebb__door_copy_in(__typeof__(cuMemcpyHtoD_v2) *next, CUstream stream, CUdeviceptr a,
                           const void *b, size_t c)
{
    struct door_job job;
    use_line(&job, a, of_host(b), c);
    ebb__payload_scan(a, b, c);
    const struct door_box box = line_in(a, b, c);
    if (is_far(&job, &box, stream, true))
        return ebb__detour_copy(&job, &box, stream, true);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, true, 0);
    return ebb__job_end(&job, next(a, b, c));
}

CUresult ebb__door_copy_in_async(__typeof__(cuMemcpyHtoDAsync_v2) *next, CUstream stream,
                                 CUdeviceptr a, const void *b, size_t c, CUstream d)
{
    struct door_job job;
    use_line(&job, a, of_host(b), c);
    ebb__payload_scan(a, b, c);
    const struct door_box box = line_in(a, b, c);
    stream = ebb__job_stream(stream, d);
    if (is_far(&job, &box, stream, false))
        return ebb__detour_copy(&job, &box, stream, false);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, false, 0);
    return ebb__job_end(&job, next(a, b, c, d));
}

CUresult ebb__door_copy_out(__typeof__(cuMemcpyDtoH_v2) *next, CUstream stream, void *a,
                            CUdeviceptr b, size_t c)
{
    struct door_job job;
    use_line(&job, of_host(a), b, c);
    const struct door_box box = line_out(a, b, c);
    if (is_far(&job, &box, stream, true))
        return ebb__detour_copy(&job, &box, stream, true);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, true, 0);
    return ebb__job_end(&job, next(a, b, c));
}

CUresult ebb__door_copy_out_async(__typeof__(cuMemcpyDtoHAsync_v2) *next, CUstream stream, void *a,
                                  CUdeviceptr b, size_t c, CUstream d)
{
    struct door_job job;
    use_line(&job, of_host(a), b, c);
    const struct door_box box = line_out(a, b, c);
    stream = ebb__job_stream(stream, d);
    if (is_far(&job, &box, stream, false))
        return ebb__detour_copy(&job, &box, stream, false);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, false, 0);
    return ebb__job_end(&job, next(a, b, c, d));
}

CUresult ebb__door_copy_peer(__typeof__(cuMemcpyPeer) *next, CUstream stream, CUdeviceptr a,
                             CUcontext b, CUdeviceptr c, CUcontext d, size_t e)
{
    struct door_job job;
    use_line(&job, a, c, e);
    const struct door_box box = ebb__box_line(a, c, e);
    if (is_far(&job, &box, stream, true))
        return ebb__detour_copy(&job, &box, stream, true);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, true, 0);
    return ebb__job_end(&job, next(a, b, c, d, e));
}

CUresult ebb__door_copy_peer_async(__typeof__(cuMemcpyPeerAsync) *next, CUstream stream,
                                   CUdeviceptr a, CUcontext b, CUdeviceptr c, CUcontext d, size_t e,
                                   CUstream f)
{
    struct door_job job;
    use_line(&job, a, c, e);
    const struct door_box box = ebb__box_line(a, c, e);
    stream = ebb__job_stream(stream, f);
    if (is_far(&job, &box, stream, false))
        return ebb__detour_copy(&job, &box, stream, false);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, false, 0);
    return ebb__job_end(&job, next(a, b, c, d, e, f));
}

CUresult ebb__door_copy_to_array(__typeof__(cuMemcpyDtoA_v2) *next, CUstream stream, CUarray a,
                                 size_t b, CUdeviceptr c, size_t d)
{
    struct door_job job;
    use_line(&job, 0, c, d);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, true, 0);
    return ebb__job_end(&job, next(a, b, c, d));
}

CUresult ebb__door_copy_from_array(__typeof__(cuMemcpyAtoD_v2) *next, CUstream stream,
                                   CUdeviceptr a, CUarray b, size_t c, size_t d)
{
    struct door_job job;
    use_line(&job, a, 0, d);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, true, 0);
    return ebb__job_end(&job, next(a, b, c, d));
}

/* ---- boxes ----------------------------------------------------------------------------------- */

void ebb__copies_use_box(struct door_job *job, const struct door_box *box, bool is_node)
{
    ebb__side_use(job, &box->from, box, EBB_ACCESS_READ);
    ebb__side_use(job, &box->to, box, EBB_ACCESS_WRITE);
    if (box->from.type == CU_MEMORYTYPE_ARRAY || box->to.type == CU_MEMORYTYPE_ARRAY)
        return;
    uint64_t pitch, slice;
    CUdeviceptr to = ebb__side_start(&box->to, box->width, box->height, &pitch, &slice);
    CUdeviceptr from = ebb__side_start(&box->from, box->width, box->height, &pitch, &slice);
    ebb__payload_scan_box(
        &(struct door_payload){to, from, box->width, box->height, box->depth, pitch, slice},
        is_node || box->from.type == CU_MEMORYTYPE_DEVICE); /* never read as the host's */
}

static struct door_box use_2d(struct door_job *job, const CUDA_MEMCPY2D *copy)
{
    ebb__job_init(job);
    if (!copy)
        return (struct door_box){0};
    const struct door_box box = {.from = {copy->srcMemoryType, copy->srcHost, copy->srcDevice,
                                          copy->srcXInBytes, copy->srcY, 0, copy->srcPitch, 0},
                                 .to = {copy->dstMemoryType, copy->dstHost, copy->dstDevice,
                                        copy->dstXInBytes, copy->dstY, 0, copy->dstPitch, 0},
                                 .width = copy->WidthInBytes,
                                 .height = copy->Height,
                                 .depth = 1};
    ebb__copies_use_box(job, &box, false);
    return box;
}

/* Also of a CUDA_MEMCPY3D_PEER, whose members have the same names. */
#define BOX_OF(copy)                                                                               \
    {                                                                                              \
        .from = {(copy)->srcMemoryType, (copy)->srcHost, (copy)->srcDevice, (copy)->srcXInBytes,   \
                 (copy)->srcY,          (copy)->srcZ,    (copy)->srcPitch,  (copy)->srcHeight},    \
        .to = {(copy)->dstMemoryType, (copy)->dstHost, (copy)->dstDevice, (copy)->dstXInBytes,     \
               (copy)->dstY,          (copy)->dstZ,    (copy)->dstPitch,  (copy)->dstHeight},      \
        .width = (copy)->WidthInBytes, .height = (copy)->Height, .depth = (copy)->Depth            \
    }

void ebb__copies_use_3d(struct door_job *job, const CUDA_MEMCPY3D *copy)
{
    const struct door_box box = BOX_OF(copy);
    ebb__copies_use_box(job, &box, true);
}

static struct door_box use_3d(struct door_job *job, const CUDA_MEMCPY3D *copy)
{
    ebb__job_init(job);
    if (!copy)
        return (struct door_box){0};
    const struct door_box box = BOX_OF(copy);
    ebb__copies_use_box(job, &box, false);
    return box;
}

static struct door_box use_3d_peer(struct door_job *job, const CUDA_MEMCPY3D_PEER *copy)
{
    ebb__job_init(job);
    if (!copy)
        return (struct door_box){0};
    const struct door_box box = BOX_OF(copy);
    ebb__copies_use_box(job, &box, false);
    return box;
}

CUresult ebb__door_copy_2d(__typeof__(cuMemcpy2D_v2) *next, CUstream stream, const CUDA_MEMCPY2D *a)
{
    struct door_job job;
    const struct door_box box = use_2d(&job, a);
    if (is_far(&job, &box, stream, true))
        return ebb__detour_copy(&job, &box, stream, true);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, true, 0);
    return ebb__job_end(&job, next(a));
}

CUresult ebb__door_copy_2d_async(__typeof__(cuMemcpy2DAsync_v2) *next, CUstream stream,
                                 const CUDA_MEMCPY2D *a, CUstream b)
{
    struct door_job job;
    const struct door_box box = use_2d(&job, a);
    stream = ebb__job_stream(stream, b);
    if (is_far(&job, &box, stream, false))
        return ebb__detour_copy(&job, &box, stream, false);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, false, 0);
    return ebb__job_end(&job, next(a, b));
}

CUresult ebb__door_copy_3d(__typeof__(cuMemcpy3D_v2) *next, CUstream stream, const CUDA_MEMCPY3D *a)
{
    struct door_job job;
    const struct door_box box = use_3d(&job, a);
    if (is_far(&job, &box, stream, true))
        return ebb__detour_copy(&job, &box, stream, true);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, true, 0);
    return ebb__job_end(&job, next(a));
}

CUresult ebb__door_copy_3d_async(__typeof__(cuMemcpy3DAsync_v2) *next, CUstream stream,
                                 const CUDA_MEMCPY3D *a, CUstream b)
{
    struct door_job job;
    const struct door_box box = use_3d(&job, a);
    stream = ebb__job_stream(stream, b);
    if (is_far(&job, &box, stream, false))
        return ebb__detour_copy(&job, &box, stream, false);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, false, 0);
    return ebb__job_end(&job, next(a, b));
}

CUresult ebb__door_copy_3d_peer(__typeof__(cuMemcpy3DPeer) *next, CUstream stream,
                                const CUDA_MEMCPY3D_PEER *a)
{
    struct door_job job;
    const struct door_box box = use_3d_peer(&job, a);
    if (is_far(&job, &box, stream, true))
        return ebb__detour_copy(&job, &box, stream, true);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, true, 0);
    return ebb__job_end(&job, next(a));
}

CUresult ebb__door_copy_3d_peer_async(__typeof__(cuMemcpy3DPeerAsync) *next, CUstream stream,
                                      const CUDA_MEMCPY3D_PEER *a, CUstream b)
{
    struct door_job job;
    const struct door_box box = use_3d_peer(&job, a);
    stream = ebb__job_stream(stream, b);
    if (is_far(&job, &box, stream, false))
        return ebb__detour_copy(&job, &box, stream, false);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, false, 0);
    return ebb__job_end(&job, next(a, b));
}
