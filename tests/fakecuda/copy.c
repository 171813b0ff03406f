/* Copies. All forms become one operation on a box of bytes: width x height x depth.
 *
 * A host operand is pageable, pinned or managed. A copy from pageable memory takes the bytes when
 * it is called. A copy to pageable memory, and a synchronous one, returns when it is done. So the
 * memory of the program may go at once, as with the real driver. Pinned operands are read and
 * written when the stream gets there.
 */
#include "fake.h"
#include <stdlib.h>

enum { LARGE = 16384 }; /* bytes; arbitrary: from here on, the kernel is asked what was written */

struct side {
    CUdeviceptr at; /* a host or a device address: they are the same */
    size_t pitch, slice;
    bool pageable;
};

struct copy_op {
    struct op op;
    struct side from, to;
    size_t width, height, depth;
    bool late;
    unsigned char *held; /* the bytes of pageable memory; the operation owns them */
};

static CUdeviceptr address_in(const struct side *side, size_t y, size_t z, size_t x)
{
    return side->at + z * side->slice + y * side->pitch + x;
}

static const void *source(struct copy_op *copy, struct CUstream_st *stream, size_t y, size_t z,
                          size_t x, size_t bytes)
{
    if (copy->held)
        return copy->held + (z * copy->height + y) * copy->width + x;
    CUdeviceptr at = address_in(&copy->from, y, z, x);
    if (copy->from.pageable)
        return (const void *)(uintptr_t)at;
    return fake_access(stream->context, &copy->op, stream, at, bytes, FAKECUDA_READ | MODE_COPY,
                       "a copy");
}

static void clear(char *to, CUdeviceptr place, size_t bytes)
{
    size_t hole, data;
    while (fake_arena_next(place, bytes, &hole, &data)) {
        memset(to + hole, 0, data);
        to += hole + data;
        place += hole + data;
        bytes -= hole + data;
    }
}

/* Between two places of the memory file. Zeros that were never written are not written at the other
 * end either: of most blocks, a test uses a few bytes. */
static void move_written(char *to, CUdeviceptr to_place, const char *from, CUdeviceptr from_place,
                         size_t bytes)
{
    size_t at = 0, hole, data;
    while (fake_arena_next(from_place + at, bytes - at, &hole, &data)) {
        clear(to + at, to_place + at, hole);
        at += hole;
        memmove(to + at, from + at, data);
        at += data;
    }
    clear(to + at, to_place + at, bytes - at);
}

static void move(const struct copy_op *copy, void *to, CUdeviceptr to_at, const void *from,
                 CUdeviceptr from_at, size_t bytes)
{
    CUdeviceptr to_place = 0, from_place = 0;
    if (bytes >= LARGE && !copy->held && !fake_set.fast) {
        to_place = fake_range_place(to_at, bytes);
        from_place = fake_range_place(from_at, bytes);
    }
    if (to_place && from_place)
        move_written(to, to_place, from, from_place, bytes);
    else
        memmove(to, from, bytes);
}

static bool copy_row(struct copy_op *copy, struct CUstream_st *stream, size_t y, size_t z)
{
    for (size_t x = 0; x < copy->width;) {
        size_t bytes = copy->width - x < 65536 ? copy->width - x : 65536;
        const void *from = source(copy, stream, y, z, x, bytes);
        CUdeviceptr at = address_in(&copy->to, y, z, x);
        void *to = !from               ? NULL
                   : copy->to.pageable ? (void *)(uintptr_t)at
                                       : fake_access(stream->context, &copy->op, stream, at, bytes,
                                                     FAKECUDA_WRITE | MODE_COPY, "a copy");
        if (!to)
            return false;
        move(copy, to, at, from, address_in(&copy->from, y, z, x), bytes);
        x += bytes;
        if (!fake_set.fast && fake_random(4) == 0)
            fake_yield(stream);
    }
    return true;
}

static void copy_run(struct op *op, struct CUstream_st *stream)
{
    struct copy_op *copy = (struct copy_op *)op;
    for (int i = 0; copy->late && i < 500; i++)
        fake_yield_waiting(stream);
    for (size_t z = 0; z < copy->depth; z++)
        for (size_t y = 0; y < copy->height; y++)
            if (!copy_row(copy, stream, y, z))
                return;
    fake_take(copy->width * copy->height * copy->depth * fake_set.move_us >> 20);
    fake_clock_pass(2000 + copy->width * copy->height * copy->depth / 32);
}

static void copy_destroy(struct op *op)
{
    free(((struct copy_op *)op)->held);
}

static const struct op_class copy_class = {"copy", CU_GRAPH_NODE_TYPE_MEMCPY, copy_run, NULL,
                                           copy_destroy};

static void set_pageable(struct side *side)
{
    struct range range;
    side->pageable =
        !fake_is_known((const void *)(uintptr_t)side->at, &range) && !fake_arena_owns(side->at);
}

static bool hold(struct copy_op *copy)
{
    copy->held = malloc(copy->width * copy->height * copy->depth);
    if (!copy->held)
        return false;
    for (size_t z = 0; z < copy->depth; z++)
        for (size_t y = 0; y < copy->height; y++)
            memcpy(copy->held + (z * copy->height + y) * copy->width,
                   (const char *)(uintptr_t)(copy->from.at + z * copy->from.slice +
                                             y * copy->from.pitch),
                   copy->width);
    return true;
}

static struct copy_op *copy_new(CUdeviceptr to, CUdeviceptr from, size_t width)
{
    struct copy_op *copy = fake_op_new(&copy_class, sizeof(*copy));
    if (!copy)
        return NULL;
    copy->from.at = from;
    copy->to.at = to;
    copy->width = width;
    copy->height = copy->depth = 1;
    return copy;
}

/* Frees the operation if it fails. */
static CUresult submit(struct copy_op *copy, CUstream handle, bool synchronous)
{
    CUcontext context;
    CUresult result = fake_usable(&context);
    struct CUstream_st *stream;
    if (!result)
        result = fake_stream_of(handle, context, &stream);
    size_t total = copy->width * copy->height * copy->depth;
    if (!result && (!copy->to.at || !copy->from.at) && total)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && synchronous) {
        result = stream->capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                 : fake_capture_implicit(context, stream);
        if (stream->capture)
            fake_capture_spoil(stream);
        result = result ? result : fake_capture_unsafe();
    }
    if (result || !total) {
        fake_op_free(&copy->op);
        DONE(result);
    }
    set_pageable(&copy->from);
    set_pageable(&copy->to);
    bool captured = stream->capture != NULL;
    if (copy->from.pageable && !captured && !synchronous && !hold(copy)) {
        fake_op_free(&copy->op);
        DONE(CUDA_ERROR_OUT_OF_MEMORY);
    }
    copy->late = fake_fault(FAULT_COPY_LATE);
    bool waits = (synchronous || copy->to.pageable) && !captured;
    uint64_t seq = 0;
    copy->op.seq_to = &seq;
    fake_count(COUNT_COPIES, 1);
    fake_count(COUNT_COPY_BYTES, total);
    TRY(fake_enqueue(stream, &copy->op));
    if (waits)
        fake_wait(stream, seq);
    DONE(waits ? atomic_load(&context->error) : CUDA_SUCCESS);
}

static CUresult copy_1d(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream,
                        bool synchronous)
{
    struct copy_op *copy = copy_new(to, from, bytes);
    return copy ? submit(copy, stream, synchronous) : fake_result(CUDA_ERROR_OUT_OF_MEMORY);
}

#define D(pointer) ((CUdeviceptr)(uintptr_t)(pointer))
#define ONE(name, p, to, from)                                                                     \
    API name p                                                                                     \
    {                                                                                              \
        return copy_1d(to, from, bytes, NULL, true);                                               \
    }
#define ONE_ASYNC(name, p, to, from)                                                               \
    API name p                                                                                     \
    {                                                                                              \
        return copy_1d(to, from, bytes, stream, false);                                            \
    }
#define ONE_PTDS(name, p, to, from)                                                                \
    API name p                                                                                     \
    {                                                                                              \
        return copy_1d(to, from, bytes, CU_STREAM_PER_THREAD, true);                               \
    }

ONE(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes), to, from)
ONE(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes), to, D(from))
ONE(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes), D(to), from)
ONE(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes), to, from)
ONE_PTDS(cuMemcpy_ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes), to, from)
ONE_PTDS(cuMemcpyHtoD_v2_ptds, (CUdeviceptr to, const void *from, size_t bytes), to, D(from))
ONE_PTDS(cuMemcpyDtoH_v2_ptds, (void *to, CUdeviceptr from, size_t bytes), D(to), from)
ONE_PTDS(cuMemcpyDtoD_v2_ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes), to, from)
ONE_ASYNC(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), to,
          from)
ONE_ASYNC(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream),
          to, D(from))
ONE_ASYNC(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream), D(to),
          from)
ONE_ASYNC(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
          to, from)

/* The addresses say where the memory is; a peer's bytes need no enabled access. */
API cuMemcpyPeer(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t bytes)
{
    (void)there;
    (void)here;
    return copy_1d(to, from, bytes, NULL, true);
}

API cuMemcpyPeerAsync(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here,
                      size_t bytes, CUstream stream)
{
    (void)there;
    (void)here;
    return copy_1d(to, from, bytes, stream, false);
}

API cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here,
                      size_t bytes)
{
    (void)there;
    (void)here;
    return copy_1d(to, from, bytes, CU_STREAM_PER_THREAD, true);
}

/* --- boxes ------------------------------------------------------------------------------------ */

static CUresult side_of(CUmemorytype type, const void *host, CUdeviceptr device, struct side *side)
{
    if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
        return type == CU_MEMORYTYPE_ARRAY ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    side->at = type == CU_MEMORYTYPE_HOST ? D(host) : device;
    return CUDA_SUCCESS;
}

static CUresult box_op(const CUDA_MEMCPY3D *c, struct copy_op **op)
{
    struct side from = {0}, to = {0};
    CUresult result = side_of(c->srcMemoryType, c->srcHost, c->srcDevice, &from);
    if (!result)
        result = side_of(c->dstMemoryType, c->dstHost, c->dstDevice, &to);
    if (result)
        return result;
    from.pitch = c->srcPitch ? c->srcPitch : c->WidthInBytes;
    to.pitch = c->dstPitch ? c->dstPitch : c->WidthInBytes;
    if (c->srcXInBytes + c->WidthInBytes > from.pitch ||
        c->dstXInBytes + c->WidthInBytes > to.pitch)
        return CUDA_ERROR_INVALID_VALUE;
    from.slice = from.pitch * (c->srcHeight ? c->srcHeight : c->Height);
    to.slice = to.pitch * (c->dstHeight ? c->dstHeight : c->Height);
    from.at += c->srcZ * from.slice + c->srcY * from.pitch + c->srcXInBytes;
    to.at += c->dstZ * to.slice + c->dstY * to.pitch + c->dstXInBytes;
    struct copy_op *copy = copy_new(to.at, from.at, c->WidthInBytes);
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    copy->from = from;
    copy->to = to;
    copy->height = c->Height;
    copy->depth = c->Depth;
    *op = copy;
    return CUDA_SUCCESS;
}

CUresult fake_copy_op(const CUDA_MEMCPY3D *box, CUcontext context, struct op **op)
{
    (void)context;
    struct copy_op *copy;
    CUresult result = box_op(box, &copy);
    if (!result) {
        set_pageable(&copy->from);
        set_pageable(&copy->to);
        *op = &copy->op;
    }
    return result;
}

API cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *box)
{
    TRY(fake_ready());
    if (!node || !box || node->type != CU_GRAPH_NODE_TYPE_MEMCPY)
        DONE(CUDA_ERROR_INVALID_VALUE);
    const struct copy_op *copy = (const struct copy_op *)node->op;
    memset(box, 0, sizeof(*box));
    box->srcMemoryType = box->dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    box->srcDevice = copy->from.at;
    box->dstDevice = copy->to.at;
    box->srcPitch = copy->from.pitch ? copy->from.pitch : copy->width;
    box->dstPitch = copy->to.pitch ? copy->to.pitch : copy->width;
    box->srcHeight = copy->from.slice / box->srcPitch;
    box->dstHeight = copy->to.slice / box->dstPitch;
    box->WidthInBytes = copy->width;
    box->Height = copy->height;
    box->Depth = copy->depth;
    return CUDA_SUCCESS;
}

static CUresult copy_3d(const CUDA_MEMCPY3D *box, CUstream stream, bool synchronous)
{
    struct copy_op *copy;
    if (!box)
        DONE(CUDA_ERROR_INVALID_VALUE);
    TRY(box_op(box, &copy));
    return submit(copy, stream, synchronous);
}

static CUresult copy_2d(const CUDA_MEMCPY2D *c, CUstream stream, bool synchronous)
{
    if (!c)
        DONE(CUDA_ERROR_INVALID_VALUE);
    CUDA_MEMCPY3D box = {c->srcXInBytes,
                         c->srcY,
                         0,
                         0,
                         c->srcMemoryType,
                         c->srcHost,
                         c->srcDevice,
                         c->srcArray,
                         NULL,
                         c->srcPitch,
                         0,
                         c->dstXInBytes,
                         c->dstY,
                         0,
                         0,
                         c->dstMemoryType,
                         c->dstHost,
                         c->dstDevice,
                         c->dstArray,
                         NULL,
                         c->dstPitch,
                         0,
                         c->WidthInBytes,
                         c->Height,
                         1};
    return copy_3d(&box, stream, synchronous);
}

static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *c, CUstream stream, bool synchronous)
{
    if (!c)
        DONE(CUDA_ERROR_INVALID_VALUE);
    CUDA_MEMCPY3D box;
    memcpy(&box, c, sizeof(box)); /* contexts lie where the reserved fields are */
    return copy_3d(&box, stream, synchronous);
}

#define BOX(name, type, call, handle, synchronous, more)                                           \
    API name(const type *copy more)                                                                \
    {                                                                                              \
        return call(copy, handle, synchronous);                                                    \
    }
#define IN_STREAM , CUstream stream
#define NOTHING

BOX(cuMemcpy2D_v2, CUDA_MEMCPY2D, copy_2d, NULL, true, NOTHING)
BOX(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, copy_2d, NULL, true, NOTHING)
BOX(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, copy_2d, stream, false, IN_STREAM)
BOX(cuMemcpy3D_v2, CUDA_MEMCPY3D, copy_3d, NULL, true, NOTHING)
BOX(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, copy_3d, stream, false, IN_STREAM)
BOX(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER, copy_3d_peer, NULL, true, NOTHING)
BOX(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, copy_3d_peer, stream, false, IN_STREAM)
BOX(cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D, copy_2d, CU_STREAM_PER_THREAD, true, NOTHING)
BOX(cuMemcpy2DUnaligned_v2_ptds, CUDA_MEMCPY2D, copy_2d, CU_STREAM_PER_THREAD, true, NOTHING)
BOX(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D, copy_3d, CU_STREAM_PER_THREAD, true, NOTHING)
BOX(cuMemcpy3DPeer_ptds, CUDA_MEMCPY3D_PEER, copy_3d_peer, CU_STREAM_PER_THREAD, true, NOTHING)

static CUresult copy_batch(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
                           CUstream stream)
{
    if (!to || !from || !bytes || !count || !stream || stream == CU_STREAM_LEGACY)
        DONE(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++)
        TRY(copy_1d(to[i], from[i], bytes[i], stream, false));
    return CUDA_SUCCESS;
}

API cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
                       CUmemcpyAttributes *attributes, size_t *indices, size_t attribute_count,
                       size_t *failed, CUstream stream)
{
    (void)attributes;
    (void)indices;
    (void)attribute_count;
    if (failed)
        *failed = SIZE_MAX;
    return copy_batch(to, from, bytes, count, stream);
}

API cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
                          CUmemcpyAttributes *attributes, size_t *indices, size_t attribute_count,
                          CUstream stream)
{
    (void)attributes;
    (void)indices;
    (void)attribute_count;
    return copy_batch(to, from, bytes, count, stream);
}
