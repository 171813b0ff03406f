/* Waits of a stream for a word in memory, and writes of one. A wait looks at its word for as long
 * as it takes, and no kernel names it. So the word's block stays where it is from then on. */
#include "door.h"
#include "job.h"

static void use_word(struct door_job *job, CUdeviceptr address, size_t bytes)
{
    struct ebb_cuda *engine = ebb__engines_at(ebb__engines_owner(address));
    CUdeviceptr base;
    size_t block_bytes;
    if (!engine || !ebb__cuda_range(engine, address, &base, &block_bytes))
        return;
    ebb__cuda_keep(engine, base, block_bytes);
    ebb__job_use(job, address, bytes, DOOR_READ_WRITE);
}

#define WORD(bits)                                                                                 \
    CUresult ebb__door_word_##bits(__typeof__(cuStreamWriteValue##bits##_v2) *next,                \
                                   CUstream stream, CUstream a, CUdeviceptr b, cuuint##bits##_t c, \
                                   unsigned d)                                                     \
    {                                                                                              \
        struct door_job job;                                                                       \
        ebb__job_init(&job);                                                                       \
        use_word(&job, b, sizeof c);                                                               \
        ebb__job_begin(&job, EBB_CUDA_SET, ebb__job_stream(stream, a), false, 0);                  \
        return ebb__job_end(&job, next(a, b, c, d));                                               \
    }
WORD(32)
WORD(64)

static void use_operation(struct door_job *job, const CUstreamBatchMemOpParams *operation)
{
    switch ((int)operation->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        use_word(job, operation->waitValue.address, 4); /* both have it at the same place */
        break;
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        use_word(job, operation->waitValue.address, 8);
        break;
    default: /* barriers have no address */
        break;
    }
}

CUresult ebb__door_words(__typeof__(cuStreamBatchMemOp_v2) *next, CUstream stream, CUstream a,
                         unsigned b, CUstreamBatchMemOpParams *c, unsigned d)
{
    struct door_job job;
    ebb__job_init(&job);
    for (unsigned i = 0; c && i < b; i++)
        use_operation(&job, &c[i]);
    ebb__job_begin(&job, EBB_CUDA_SET, ebb__job_stream(stream, a), false, 0);
    return ebb__job_end(&job, next(a, b, c, d));
}
