/* Copies, in all forms. Operands are exact: a copy names what it reads and writes. Host addresses
 * may be blocks as well, since addresses are unified: they are looked at like the others. */
#include "door.h"
#include "job.h"
#include "payload.h"

static inline CUdeviceptr of_host(const void *host)
{
    return (CUdeviceptr)(uintptr_t)host;
}

/* The bytes from the first to the last byte of `height` rows. */
static uint64_t span(uint64_t pitch, uint64_t width, uint64_t height)
{
    return width && height ? (height - 1) * pitch + width : 0;
}

static void use_line(struct door_job *job, CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    ebb__job_init(job);
    if (bytes == 0)
        return;
    ebb__job_use(job, from, bytes, EBB_ACCESS_READ);
    ebb__job_use(job, to, bytes, EBB_ACCESS_WRITE);
}

CUresult ebb__door_copy(__typeof__(cuMemcpy) *next, CUstream stream, CUdeviceptr a, CUdeviceptr b,
                        size_t c)
{
    struct door_job job;
    use_line(&job, a, b, c);
    ebb__payload_scan_unified(a, b, c);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, true, 0);
    return ebb__job_end(&job, next(a, b, c));
}

CUresult ebb__door_copy_async(__typeof__(cuMemcpyAsync) *next, CUstream stream, CUdeviceptr a,
                              CUdeviceptr b, size_t c, CUstream d)
{
    struct door_job job;
    use_line(&job, a, b, c);
    ebb__payload_scan_unified(a, b, c);
    ebb__job_begin(&job, EBB_CUDA_COPY, ebb__job_stream(stream, d), false, 0);
    return ebb__job_end(&job, next(a, b, c, d));
}

CUresult ebb__door_copy_in(__typeof__(cuMemcpyHtoD_v2) *next, CUstream stream, CUdeviceptr a,
                           const void *b, size_t c)
{
    struct door_job job;
    use_line(&job, a, of_host(b), c);
    ebb__payload_scan(a, b, c);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, true, 0);
    return ebb__job_end(&job, next(a, b, c));
}

CUresult ebb__door_copy_in_async(__typeof__(cuMemcpyHtoDAsync_v2) *next, CUstream stream,
                                 CUdeviceptr a, const void *b, size_t c, CUstream d)
{
    struct door_job job;
    use_line(&job, a, of_host(b), c);
    ebb__payload_scan(a, b, c);
    ebb__job_begin(&job, EBB_CUDA_COPY, ebb__job_stream(stream, d), false, 0);
    return ebb__job_end(&job, next(a, b, c, d));
}

CUresult ebb__door_copy_out(__typeof__(cuMemcpyDtoH_v2) *next, CUstream stream, void *a,
                            CUdeviceptr b, size_t c)
{
    struct door_job job;
    use_line(&job, of_host(a), b, c);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, true, 0);
    return ebb__job_end(&job, next(a, b, c));
}

CUresult ebb__door_copy_out_async(__typeof__(cuMemcpyDtoHAsync_v2) *next, CUstream stream, void *a,
                                  CUdeviceptr b, size_t c, CUstream d)
{
    struct door_job job;
    use_line(&job, of_host(a), b, c);
    ebb__job_begin(&job, EBB_CUDA_COPY, ebb__job_stream(stream, d), false, 0);
    return ebb__job_end(&job, next(a, b, c, d));
}

CUresult ebb__door_copy_peer(__typeof__(cuMemcpyPeer) *next, CUstream stream, CUdeviceptr a,
                             CUcontext b, CUdeviceptr c, CUcontext d, size_t e)
{
    struct door_job job;
    use_line(&job, a, c, e);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, true, 0);
    return ebb__job_end(&job, next(a, b, c, d, e));
}

CUresult ebb__door_copy_peer_async(__typeof__(cuMemcpyPeerAsync) *next, CUstream stream,
                                   CUdeviceptr a, CUcontext b, CUdeviceptr c, CUcontext d, size_t e,
                                   CUstream f)
{
    struct door_job job;
    use_line(&job, a, c, e);
    ebb__job_begin(&job, EBB_CUDA_COPY, ebb__job_stream(stream, f), false, 0);
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

/* One side of a copy of a box. */
struct side {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    size_t x, y, z, pitch, height; /* pitch, height 0: as packed as the box */
};

/* Where the first byte is. */
static CUdeviceptr start_of(const struct side *side, size_t width, size_t height, uint64_t *pitch,
                            uint64_t *slice)
{
    CUdeviceptr base = side->type == CU_MEMORYTYPE_HOST ? of_host(side->host) : side->device;
    *pitch = side->pitch ? side->pitch : side->x + width;
    *slice = (side->height ? side->height : side->y + height) * *pitch;
    return base + side->z * *slice + side->y * *pitch + side->x;
}

static void use_side(struct door_job *job, const struct side *side, size_t width, size_t height,
                     size_t depth, unsigned access)
{
    uint64_t pitch, slice;
    if (side->type == CU_MEMORYTYPE_ARRAY || !width || !height || !depth)
        return;
    CUdeviceptr first = start_of(side, width, height, &pitch, &slice);
    ebb__job_use(job, first, (depth - 1) * slice + span(pitch, width, height), access);
}

struct box {
    struct side from, to;
    size_t width, height, depth;
};

static void use_box(struct door_job *job, const struct box *box, bool is_node)
{
    use_side(job, &box->from, box->width, box->height, box->depth, EBB_ACCESS_READ);
    use_side(job, &box->to, box->width, box->height, box->depth, EBB_ACCESS_WRITE);
    if (box->from.type == CU_MEMORYTYPE_ARRAY || box->to.type == CU_MEMORYTYPE_ARRAY)
        return;
    uint64_t pitch, slice;
    CUdeviceptr to = start_of(&box->to, box->width, box->height, &pitch, &slice);
    CUdeviceptr from = start_of(&box->from, box->width, box->height, &pitch, &slice);
    ebb__payload_scan_box(
        &(struct door_payload){to, from, box->width, box->height, box->depth, pitch, slice},
        is_node);
}

static void use_2d(struct door_job *job, const CUDA_MEMCPY2D *copy)
{
    ebb__job_init(job);
    if (!copy)
        return;
    const struct box box = {.from = {copy->srcMemoryType, copy->srcHost, copy->srcDevice,
                                     copy->srcXInBytes, copy->srcY, 0, copy->srcPitch, 0},
                            .to = {copy->dstMemoryType, copy->dstHost, copy->dstDevice,
                                   copy->dstXInBytes, copy->dstY, 0, copy->dstPitch, 0},
                            .width = copy->WidthInBytes,
                            .height = copy->Height,
                            .depth = 1};
    use_box(job, &box, false);
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
    const struct box box = BOX_OF(copy);
    use_box(job, &box, true);
}

static void use_3d(struct door_job *job, const CUDA_MEMCPY3D *copy)
{
    ebb__job_init(job);
    if (!copy)
        return;
    const struct box box = BOX_OF(copy);
    use_box(job, &box, false);
}

static void use_3d_peer(struct door_job *job, const CUDA_MEMCPY3D_PEER *copy)
{
    ebb__job_init(job);
    if (!copy)
        return;
    const struct box box = BOX_OF(copy);
    use_box(job, &box, false);
}

CUresult ebb__door_copy_2d(__typeof__(cuMemcpy2D_v2) *next, CUstream stream, const CUDA_MEMCPY2D *a)
{
    struct door_job job;
    use_2d(&job, a);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, true, 0);
    return ebb__job_end(&job, next(a));
}

CUresult ebb__door_copy_2d_async(__typeof__(cuMemcpy2DAsync_v2) *next, CUstream stream,
                                 const CUDA_MEMCPY2D *a, CUstream b)
{
    struct door_job job;
    use_2d(&job, a);
    ebb__job_begin(&job, EBB_CUDA_COPY, ebb__job_stream(stream, b), false, 0);
    return ebb__job_end(&job, next(a, b));
}

CUresult ebb__door_copy_3d(__typeof__(cuMemcpy3D_v2) *next, CUstream stream, const CUDA_MEMCPY3D *a)
{
    struct door_job job;
    use_3d(&job, a);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, true, 0);
    return ebb__job_end(&job, next(a));
}

CUresult ebb__door_copy_3d_async(__typeof__(cuMemcpy3DAsync_v2) *next, CUstream stream,
                                 const CUDA_MEMCPY3D *a, CUstream b)
{
    struct door_job job;
    use_3d(&job, a);
    ebb__job_begin(&job, EBB_CUDA_COPY, ebb__job_stream(stream, b), false, 0);
    return ebb__job_end(&job, next(a, b));
}

CUresult ebb__door_copy_3d_peer(__typeof__(cuMemcpy3DPeer) *next, CUstream stream,
                                const CUDA_MEMCPY3D_PEER *a)
{
    struct door_job job;
    use_3d_peer(&job, a);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, true, 0);
    return ebb__job_end(&job, next(a));
}

CUresult ebb__door_copy_3d_peer_async(__typeof__(cuMemcpy3DPeerAsync) *next, CUstream stream,
                                      const CUDA_MEMCPY3D_PEER *a, CUstream b)
{
    struct door_job job;
    use_3d_peer(&job, a);
    ebb__job_begin(&job, EBB_CUDA_COPY, ebb__job_stream(stream, b), false, 0);
    return ebb__job_end(&job, next(a, b));
}

/* ---- batches --------------------------------------------------------------------------------- */

static void use_batch(struct door_job *job, const CUdeviceptr *to, const CUdeviceptr *from,
                      const size_t *bytes, size_t count)
{
    ebb__job_init(job);
    for (size_t i = 0; to && from && bytes && i < count; i++) {
        if (bytes[i] == 0)
            continue;
        ebb__job_use(job, from[i], bytes[i], EBB_ACCESS_READ);
        ebb__job_use(job, to[i], bytes[i], EBB_ACCESS_WRITE);
    }
    ebb__payload_scan_batch(to, from, bytes, count);
}

CUresult ebb__door_copy_batch(__typeof__(cuMemcpyBatchAsync) *next, CUstream stream, CUdeviceptr *a,
                              CUdeviceptr *b, size_t *c, size_t d, CUmemcpyAttributes *e, size_t *f,
                              size_t g, size_t *h, CUstream i)
{
    struct door_job job;
    use_batch(&job, a, b, c, d);
    ebb__job_begin(&job, EBB_CUDA_COPY, ebb__job_stream(stream, i), false, 0);
    return ebb__job_end(&job, next(a, b, c, d, e, f, g, h, i));
}

CUresult ebb__door_copy_batch_2(__typeof__(cuMemcpyBatchAsync_v2) *next, CUstream stream,
                                CUdeviceptr *a, CUdeviceptr *b, size_t *c, size_t d,
                                CUmemcpyAttributes *e, size_t *f, size_t g, CUstream h)
{
    struct door_job job;
    use_batch(&job, a, b, c, d);
    ebb__job_begin(&job, EBB_CUDA_COPY, ebb__job_stream(stream, h), false, 0);
    return ebb__job_end(&job, next(a, b, c, d, e, f, g, h));
}

/* rowLength and layerHeight count elements of one byte. */
static struct side side_of(const CUmemcpy3DOperand *operand)
{
    if (operand->type != CU_MEMCPY_OPERAND_TYPE_POINTER)
        return (struct side){.type = CU_MEMORYTYPE_ARRAY};
    return (struct side){.type = CU_MEMORYTYPE_UNIFIED,
                         .device = operand->op.ptr.ptr,
                         .pitch = operand->op.ptr.rowLength,
                         .height = operand->op.ptr.layerHeight};
}

static void use_boxes(struct door_job *job, const CUDA_MEMCPY3D_BATCH_OP *boxes, size_t count)
{
    ebb__job_init(job);
    for (size_t i = 0; boxes && i < count; i++) {
        const struct box box = {side_of(&boxes[i].src), side_of(&boxes[i].dst),
                                boxes[i].extent.width, boxes[i].extent.height,
                                boxes[i].extent.depth};
        use_box(job, &box, false);
    }
}

CUresult ebb__door_copy_3d_batch(__typeof__(cuMemcpy3DBatchAsync) *next, CUstream stream, size_t a,
                                 CUDA_MEMCPY3D_BATCH_OP *b, size_t *c, unsigned long long d,
                                 CUstream e)
{
    struct door_job job;
    use_boxes(&job, b, a);
    ebb__job_begin(&job, EBB_CUDA_COPY, ebb__job_stream(stream, e), false, 0);
    return ebb__job_end(&job, next(a, b, c, d, e));
}

CUresult ebb__door_copy_3d_batch_2(__typeof__(cuMemcpy3DBatchAsync_v2) *next, CUstream stream,
                                   size_t a, CUDA_MEMCPY3D_BATCH_OP *b, unsigned long long c,
                                   CUstream d)
{
    struct door_job job;
    use_boxes(&job, b, a);
    ebb__job_begin(&job, EBB_CUDA_COPY, ebb__job_stream(stream, d), false, 0);
    return ebb__job_end(&job, next(a, b, c, d));
}
