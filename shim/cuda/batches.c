/* Batches of copies. The copies of a batch have no order. */
#include "detours.h"
#include "door.h"
#include "job.h"
#include "payload.h"

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

/* Each may be a copy by itself. Is any of them far? */
static bool is_batch_far(const struct door_job *job, const CUdeviceptr *to, const CUdeviceptr *from,
                         const size_t *bytes, size_t count, CUstream stream)
{
    for (size_t i = 0; job->owners && i < count; i++) {
        const struct door_box box = ebb__box_line(to[i], from[i], bytes[i]);
        if (ebb__detour_is_needed(&box, stream, false))
            return true;
    }
    return false;
}

static CUresult copy_each(struct door_job *job, const CUdeviceptr *to, const CUdeviceptr *from,
                          const size_t *bytes, size_t count, CUstream stream)
{
    CUresult result = ebb__job_end(job, CUDA_SUCCESS); /* it has not begun */
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        const struct door_box box = ebb__box_line(to[i], from[i], bytes[i]);
        struct door_job one;
        ebb__job_init(&one);
        ebb__side_use(&one, &box.from, &box, EBB_ACCESS_READ);
        ebb__side_use(&one, &box.to, &box, EBB_ACCESS_WRITE);
        result = ebb__detour_copy(&one, &box, stream, false);
    }
    return result;
}

CUresult ebb__door_copy_batch(__typeof__(cuMemcpyBatchAsync) *next, CUstream stream, CUdeviceptr *a,
                              CUdeviceptr *b, size_t *c, size_t d, CUmemcpyAttributes *e, size_t *f,
                              size_t g, size_t *h, CUstream i)
{
    struct door_job job;
    use_batch(&job, a, b, c, d);
    stream = ebb__job_stream(stream, i);
    if (is_batch_far(&job, a, b, c, d, stream))
        return copy_each(&job, a, b, c, d, stream);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, false, 0);
    return ebb__job_end(&job, next(a, b, c, d, e, f, g, h, i));
}

CUresult ebb__door_copy_batch_2(__typeof__(cuMemcpyBatchAsync_v2) *next, CUstream stream,
                                CUdeviceptr *a, CUdeviceptr *b, size_t *c, size_t d,
                                CUmemcpyAttributes *e, size_t *f, size_t g, CUstream h)
{
    struct door_job job;
    use_batch(&job, a, b, c, d);
    stream = ebb__job_stream(stream, h);
    if (is_batch_far(&job, a, b, c, d, stream))
        return copy_each(&job, a, b, c, d, stream);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, false, 0);
    return ebb__job_end(&job, next(a, b, c, d, e, f, g, h));
}

/* rowLength and layerHeight count elements of one byte. */
static struct door_side side_of(const CUmemcpy3DOperand *operand)
{
    if (operand->type != CU_MEMCPY_OPERAND_TYPE_POINTER)
        return (struct door_side){.type = CU_MEMORYTYPE_ARRAY};
    return (struct door_side){.type = CU_MEMORYTYPE_UNIFIED,
                              .device = operand->op.ptr.ptr,
                              .pitch = operand->op.ptr.rowLength,
                              .height = operand->op.ptr.layerHeight};
}

static struct door_box box_of(const CUDA_MEMCPY3D_BATCH_OP *copy)
{
    return (struct door_box){side_of(&copy->src), side_of(&copy->dst), copy->extent.width,
                             copy->extent.height, copy->extent.depth};
}

static void use_boxes(struct door_job *job, const CUDA_MEMCPY3D_BATCH_OP *boxes, size_t count)
{
    ebb__job_init(job);
    for (size_t i = 0; boxes && i < count; i++) {
        const struct door_box box = box_of(&boxes[i]);
        ebb__copies_use_box(job, &box, false);
    }
}

static bool has_array(const struct door_box *box)
{
    return box->from.type == CU_MEMORYTYPE_ARRAY || box->to.type == CU_MEMORYTYPE_ARRAY;
}

/* A batch with arrays goes to the driver as it is. */
static bool are_boxes_far(const struct door_job *job, const CUDA_MEMCPY3D_BATCH_OP *boxes,
                          size_t count, CUstream stream)
{
    bool is_any_far = false;
    for (size_t i = 0; job->owners && i < count; i++) {
        const struct door_box box = box_of(&boxes[i]);
        if (has_array(&box))
            return false;
        is_any_far |= ebb__detour_is_needed(&box, stream, false);
    }
    return is_any_far;
}

static CUresult copy_each_box(struct door_job *job, const CUDA_MEMCPY3D_BATCH_OP *boxes,
                              size_t count, CUstream stream)
{
    CUresult result = ebb__job_end(job, CUDA_SUCCESS); /* it has not begun */
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        const struct door_box box = box_of(&boxes[i]);
        struct door_job one;
        use_boxes(&one, &boxes[i], 1);
        result = ebb__detour_copy(&one, &box, stream, false);
    }
    return result;
}

CUresult ebb__door_copy_3d_batch(__typeof__(cuMemcpy3DBatchAsync) *next, CUstream stream, size_t a,
                                 CUDA_MEMCPY3D_BATCH_OP *b, size_t *c, unsigned long long d,
                                 CUstream e)
{
    struct door_job job;
    use_boxes(&job, b, a);
    stream = ebb__job_stream(stream, e);
    if (are_boxes_far(&job, b, a, stream))
        return copy_each_box(&job, b, a, stream);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, false, 0);
    return ebb__job_end(&job, next(a, b, c, d, e));
}

CUresult ebb__door_copy_3d_batch_2(__typeof__(cuMemcpy3DBatchAsync_v2) *next, CUstream stream,
                                   size_t a, CUDA_MEMCPY3D_BATCH_OP *b, unsigned long long c,
                                   CUstream d)
{
    struct door_job job;
    use_boxes(&job, b, a);
    stream = ebb__job_stream(stream, d);
    if (are_boxes_far(&job, b, a, stream))
        return copy_each_box(&job, b, a, stream);
    ebb__job_begin(&job, EBB_CUDA_COPY, stream, false, 0);
    return ebb__job_end(&job, next(a, b, c, d));
}
