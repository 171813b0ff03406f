/* Memsets of all widths and forms: rows of one element that is repeated. */
#include "fake.h"
#include <stdlib.h>

struct fill_op {
    struct op op;
    CUDA_MEMSET_NODE_PARAMS fill;
};

static void fill_run(struct op *op, struct CUstream_st *stream)
{
    const CUDA_MEMSET_NODE_PARAMS *fill = &((struct fill_op *)op)->fill;
    size_t bytes = fill->width * fill->elementSize;
    for (size_t y = 0; y < fill->height; y++) {
        unsigned char *to = fake_access(stream->context, op, stream, fill->dst + y * fill->pitch,
                                        bytes, FAKECUDA_WRITE, "a memset");
        if (!to)
            return;
        for (size_t x = 0; x < fill->width; x++)
            memcpy(to + x * fill->elementSize, &fill->value, fill->elementSize);
        if (!fake_set.fast && fake_random(4) == 0)
            fake_yield(stream);
    }
    fake_clock_pass(1000 + bytes * fill->height / 1000);
}

static const struct op_class fill_class = {"memset", CU_GRAPH_NODE_TYPE_MEMSET, fill_run, NULL,
                                           NULL};

CUresult fake_fill_op(const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context, struct op **op)
{
    (void)context;
    struct range range;
    unsigned size = fill->elementSize;
    if ((size != 1 && size != 2 && size != 4) || fill->dst % size || !fill->dst ||
        (!fake_is_known((const void *)(uintptr_t)fill->dst, &range) && !fake_arena_owns(fill->dst)))
        return CUDA_ERROR_INVALID_VALUE;
    struct fill_op *made = fake_op_new(&fill_class, sizeof(*made));
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->fill = *fill;
    *op = &made->op;
    return CUDA_SUCCESS;
}

API cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *params)
{
    TRY(fake_ready());
    if (!node || !params || node->type != CU_GRAPH_NODE_TYPE_MEMSET)
        DONE(CUDA_ERROR_INVALID_VALUE);
    *params = ((struct fill_op *)node->op)->fill;
    return CUDA_SUCCESS;
}

static CUresult fill(CUdeviceptr to, size_t pitch, unsigned value, unsigned element, size_t width,
                     size_t height, CUstream handle, bool synchronous)
{
    CUcontext context;
    TRY(fake_usable(&context));
    struct CUstream_st *stream;
    TRY(fake_stream_of(handle, context, &stream));
    if (synchronous && stream->capture) {
        fake_capture_spoil(stream);
        DONE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if (!width || !height)
        return CUDA_SUCCESS;
    CUDA_MEMSET_NODE_PARAMS all = {to, pitch, value, element, width, height};
    struct op *op;
    TRY(fake_fill_op(&all, context, &op));
    fake_count(COUNT_MEMSETS, 1);
    /* Asynchronous to the host in all forms, for device memory. */
    DONE(fake_enqueue(stream, op));
}

#define FILL(bits, type)                                                                           \
    API cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t count)                             \
    {                                                                                              \
        return fill(to, 0, value, bits / 8, count, 1, NULL, true);                                 \
    }                                                                                              \
    API cuMemsetD##bits##_v2_ptds(CUdeviceptr to, type value, size_t count)                        \
    {                                                                                              \
        return fill(to, 0, value, bits / 8, count, 1, CU_STREAM_PER_THREAD, true);                 \
    }                                                                                              \
    API cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t count, CUstream stream)          \
    {                                                                                              \
        return fill(to, 0, value, bits / 8, count, 1, stream, false);                              \
    }                                                                                              \
    API cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width,             \
                               size_t height)                                                      \
    {                                                                                              \
        return fill(to, pitch, value, bits / 8, width, height, NULL, true);                        \
    }                                                                                              \
    API cuMemsetD2D##bits##_v2_ptds(CUdeviceptr to, size_t pitch, type value, size_t width,        \
                                    size_t height)                                                 \
    {                                                                                              \
        return fill(to, pitch, value, bits / 8, width, height, CU_STREAM_PER_THREAD, true);        \
    }                                                                                              \
    API cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width,           \
                                 size_t height, CUstream stream)                                   \
    {                                                                                              \
        return fill(to, pitch, value, bits / 8, width, height, stream, false);                     \
    }

FILL(8, unsigned char)
FILL(16, unsigned short)
FILL(32, unsigned)
