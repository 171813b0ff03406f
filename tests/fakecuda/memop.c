/* Operations on words in memory: a stream waits for a value, or writes one. */
#include "fake.h"
#include <stdlib.h>

struct memop_op {
    struct op op;
    bool waits, wide;
    CUdeviceptr address;
    uint64_t value;
    unsigned flags;
};

/* The word, wherever it is. The memory of the address may be gone: then NULL. */
static char *word(CUdeviceptr address, int bytes)
{
    pthread_mutex_lock(&memory_lock);
    struct range *range = fake_range_find(address);
    bool fits = range && range->kind != RANGE_RESERVED && range->live &&
                address + (unsigned)bytes <= range->address + range->bytes;
    char *at = fits ? range->alias + (address - range->address) : NULL;
    pthread_mutex_unlock(&memory_lock);
    return at;
}

static bool is_managed(CUdeviceptr address)
{
    struct range range;
    return fake_is_known((const void *)(uintptr_t)address, &range) && range.kind == RANGE_MANAGED;
}

static bool holds(uint64_t now, uint64_t value, unsigned flags, bool wide)
{
    switch (flags & 3) {
    case CU_STREAM_WAIT_VALUE_EQ:
        return now == value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (now & value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
        return wide ? ~(now | value) != 0 : (uint32_t) ~(now | value) != 0;
    default: /* cyclic */
        return wide ? (int64_t)(now - value) >= 0 : (int32_t)((uint32_t)now - (uint32_t)value) >= 0;
    }
}

static bool memop_ready(const struct op *op)
{
    const struct memop_op *memop = (const struct memop_op *)op;
    if (!memop->waits)
        return true;
    char *at = word(memop->address, memop->wide ? 8 : 4);
    if (!at)
        return true; /* run() says so */
    uint64_t now =
        memop->wide ? atomic_load((_Atomic uint64_t *)at) : atomic_load((_Atomic uint32_t *)at);
    return holds(now, memop->value, memop->flags, memop->wide);
}

static void memop_run(struct op *op, struct CUstream_st *stream)
{
    const struct memop_op *memop = (const struct memop_op *)op;
    void *at = fake_access(stream->context, op, stream, memop->address, memop->wide ? 8 : 4,
                           MODE_ATOMIC | (memop->waits ? MODE_ACQUIRE : MODE_RELEASE),
                           "a memory operation");
    if (at && memop->waits) {
        uint64_t now =
            memop->wide ? atomic_load((_Atomic uint64_t *)at) : atomic_load((_Atomic uint32_t *)at);
        fake_race_wait(stream, memop->address, now);
    }
    if (!at || memop->waits)
        return;
    fake_observe(stream, op->seq - 1); /* the host may look at the word at any time */
    if (memop->wide)
        atomic_store((_Atomic uint64_t *)at, memop->value);
    else
        atomic_store((_Atomic uint32_t *)at, (uint32_t)memop->value);
    fake_race_write(memop->address, memop->value);
}

static const struct op_class memop_class = {"memory operation", CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
                                            memop_run, memop_ready, NULL};

static CUresult submit(CUstream handle, bool waits, bool wide, CUdeviceptr address, uint64_t value,
                       unsigned flags)
{
    CUcontext context;
    TRY(fake_usable(&context));
    struct CUstream_st *stream;
    TRY(fake_stream_of(handle, context, &stream));
    if (!fake_attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, context->device))
        DONE(CUDA_ERROR_NOT_SUPPORTED);
    if (!address || address % (wide ? 8 : 4) || !word(address, wide ? 8 : 4) ||
        flags & ~(waits ? 3u | CU_STREAM_WAIT_VALUE_FLUSH : 1u))
        DONE(CUDA_ERROR_INVALID_VALUE);
    if (is_managed(address) && fake_fault(FAULT_WORD))
        DONE(CUDA_ERROR_INVALID_VALUE);
    struct memop_op *op = fake_op_new(&memop_class, sizeof(*op));
    if (!op)
        DONE(CUDA_ERROR_OUT_OF_MEMORY);
    op->waits = waits;
    op->wide = wide;
    op->address = address;
    op->value = value;
    op->flags = flags;
    DONE(fake_enqueue(stream, &op->op));
}

API cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    return submit(stream, true, false, address, value, flags);
}

API cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags)
{
    return submit(stream, true, true, address, value, flags);
}

API cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    return submit(stream, false, false, address, value, flags);
}

API cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags)
{
    return submit(stream, false, true, address, value, flags);
}

API cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams *operations,
                          unsigned flags)
{
    if (flags || count > 256 || (count && !operations))
        DONE(CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < count; i++) {
        const CUstreamBatchMemOpParams *o = &operations[i];
        bool waits = o->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
                     o->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
        bool wide = o->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                    o->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
        if (o->operation == CU_STREAM_MEM_OP_BARRIER ||
            o->operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES)
            continue; /* operations of a stream are in order here anyway */
        if (!waits && !wide && o->operation != CU_STREAM_MEM_OP_WRITE_VALUE_32)
            DONE(CUDA_ERROR_INVALID_VALUE);
        uint64_t value = wide ? o->waitValue.value64 : o->waitValue.value;
        TRY(submit(stream, waits, wide, o->waitValue.address, value, o->waitValue.flags));
    }
    return CUDA_SUCCESS;
}
