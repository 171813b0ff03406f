/* Batches of copies. The copies of a batch have no order. */
#include "detours.h"
#include "door.h"
#include "job.h"
#include "payload.h"

/* Lines, or boxes if there are any. */
struct batch {
    size_t count;
    const CUdeviceptr *to, *from;
    const size_t *bytes;
    const CUDA_MEMCPY3D_BATCH_OP *boxes;
};

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

static struct door_box box_at(const struct batch *batch, size_t i)
{
    if (!batch->boxes)
        return ebb__box_line(batch->to[i], batch->from[i], batch->bytes[i]);
    const CUDA_MEMCPY3D_BATCH_OP *copy = &batch->boxes[i];
    return (struct door_box){side_of(&copy->src), side_of(&copy->dst), copy->extent.width,
                             copy->extent.height, copy->extent.depth};
}

static void use_copy(struct door_job *job, const struct door_box *box)
{
    ebb__side_use(job, &box->from, box, EBB_ACCESS_READ);
    ebb__side_use(job, &box->to, box, EBB_ACCESS_WRITE);
}

static bool has_array(const struct door_box *box)
{
    return box->from.type == CU_MEMORYTYPE_ARRAY || box->to.type == CU_MEMORYTYPE_ARRAY;
}

/* Each may be a copy by itself. Is any of them far? A batch with arrays goes to the driver as it
 * is. */
static bool is_far(const struct door_job *job, const struct batch *batch, CUstream stream)
{
    bool is_any_far = false;
    for (size_t i = 0; job->owners && i < batch->count; i++) {
        const struct door_box box = box_at(batch, i);
        if (has_array(&box))
            return false;
        is_any_far = is_any_far || ebb__detour_is_needed(&box, stream, false);
    }
    return is_any_far;
}

static CUresult copy_each(const struct batch *batch, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < batch->count && result == CUDA_SUCCESS; i++) {
        const struct door_box box = box_at(batch, i);
        struct door_job job;
        ebb__job_init(&job);
        use_copy(&job, &box);
        result = ebb__detour_copy(&job, &box, stream, false);
    }
    return result;
}

/* The job uses the operands, and begins. False: the copies are made already, with *result. */
static bool begin(struct door_job *job, const struct batch *batch, CUstream stream,
                  CUresult *result)
{
    if (is_far(job, batch, stream)) {
        ebb__job_end(job, CUDA_SUCCESS); /* it has not begun */
        *result = copy_each(batch, stream);
        return false;
    }
    ebb__job_begin(job, EBB_CUDA_COPY, stream, false, 0);
    return true;
}

static bool begin_lines(struct door_job *job, const struct batch *batch, CUstream stream,
                        CUresult *result)
{
    ebb__job_init(job);
    for (size_t i = 0; batch->to && batch->from && batch->bytes && i < batch->count; i++) {
        const struct door_box box = box_at(batch, i);
        use_copy(job, &box);
    }
    ebb__payload_scan_batch(batch->to, batch->from, batch->bytes, batch->count);
    return begin(job, batch, stream, result);
}

static bool begin_boxes(struct door_job *job, const struct batch *batch, CUstream stream,
                        CUresult *result)
{
    ebb__job_init(job);
    for (size_t i = 0; batch->boxes && i < batch->count; i++) {
        const struct door_box box = box_at(batch, i);
        ebb__copies_use_box(job, &box, false);
    }
    return begin(job, batch, stream, result);
}

CUresult ebb__door_copy_batch(__typeof__(cuMemcpyBatchAsync) *next, CUstream stream, CUdeviceptr *a,
                              CUdeviceptr *b, size_t *c, size_t d, CUmemcpyAttributes *e, size_t *f,
                              size_t g, size_t *h, CUstream i)
{
    const struct batch batch = {.count = d, .to = a, .from = b, .bytes = c};
    struct door_job job;
    CUresult result;
    if (!begin_lines(&job, &batch, ebb__job_stream(stream, i), &result))
        return result;
    return ebb__job_end(&job, next(a, b, c, d, e, f, g, h, i));
}

CUresult ebb__door_copy_batch_2(__typeof__(cuMemcpyBatchAsync_v2) *next, CUstream stream,
                                CUdeviceptr *a, CUdeviceptr *b, size_t *c, size_t d,
                                CUmemcpyAttributes *e, size_t *f, size_t g, CUstream h)
{
    const struct batch batch = {.count = d, .to = a, .from = b, .bytes = c};
    struct door_job job;
    CUresult result;
    if (!begin_lines(&job, &batch, ebb__job_stream(stream, h), &result))
        return result;
    return ebb__job_end(&job, next(a, b, c, d, e, f, g, h));
}

CUresult ebb__door_copy_3d_batch(__typeof__(cuMemcpy3DBatchAsync) *next, CUstream stream, size_t a,
                                 CUDA_MEMCPY3D_BATCH_OP *b, size_t *c, unsigned long long d,
                                 CUstream e)
{
    const struct batch batch = {.count = a, .boxes = b};
    struct door_job job;
    CUresult result;
    if (!begin_boxes(&job, &batch, ebb__job_stream(stream, e), &result))
        return result;
    return ebb__job_end(&job, next(a, b, c, d, e));
}

CUresult ebb__door_copy_3d_batch_2(__typeof__(cuMemcpy3DBatchAsync_v2) *next, CUstream stream,
                                   size_t a, CUDA_MEMCPY3D_BATCH_OP *b, unsigned long long c,
                                   CUstream d)
{
    const struct batch batch = {.count = a, .boxes = b};
    struct door_job job;
    CUresult result;
    if (!begin_boxes(&job, &batch, ebb__job_stream(stream, d), &result))
        return result;
    return ebb__job_end(&job, next(a, b, c, d));
}
