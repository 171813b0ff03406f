/* Waits of a stream for a word in memory, and writes of one. A wait looks at its word for as long
 * as it takes, and no kernel names it. So the word's block stays where it is from then on. The
 * engine does not hear of it: what it did for the work could wait for the word as well. */
#include "attach.h"
#include "door.h"
#include "job.h"
#include "unheard.h"

#include <stdatomic.h>

/* Is it in a block? */
static bool keep_word(CUdeviceptr address)
{
    struct ebb_cuda *engine = ebb__engines_at(ebb__engines_owner(address));
    CUdeviceptr base;
    size_t bytes;
    if (!engine || !ebb__cuda_range(engine, address, &base, &bytes))
        return false;
    ebb__cuda_keep(engine, base, bytes);
    return true;
}

/* The driver has refused it: was that for the backing? */
static void tell_refused(CUdeviceptr address)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    unsigned is_managed = 0;
    if (ebb__real.cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) ==
            CUDA_SUCCESS &&
        (is_managed & 1) && !atomic_flag_test_and_set(&told))
        ebb__attach_warn(NULL, "the driver refuses that a stream waits for a word in a block, or "
                               "writes one: --cuda-backing vmm-host allows it");
}

/* kept: where such a word is; 0: none is in a block. */
static CUresult ended(CUresult result, CUdeviceptr kept)
{
    if (kept && result == CUDA_SUCCESS)
        ebb__unheard_note();
    else if (kept && result == CUDA_ERROR_INVALID_VALUE)
        tell_refused(kept);
    return result;
}

#define WORD(bits)                                                                                 \
    CUresult ebb__door_word_##bits(__typeof__(cuStreamWriteValue##bits##_v2) *next,                \
                                   CUstream stream, CUstream a, CUdeviceptr b, cuuint##bits##_t c, \
                                   unsigned d)                                                     \
    {                                                                                              \
        (void)stream;                                                                              \
        CUdeviceptr kept = keep_word(b) ? b : 0;                                                   \
        return ended(next(a, b, c, d), kept);                                                      \
    }
WORD(32)
WORD(64)

static bool keep_words(const CUstreamBatchMemOpParams *operation)
{
    switch ((int)operation->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return keep_word(operation->waitValue.address); /* writes have it at the same place */
    default:                                            /* barriers have no address */
        return false;
    }
}

CUresult ebb__door_words(__typeof__(cuStreamBatchMemOp_v2) *next, CUstream stream, CUstream a,
                         unsigned b, CUstreamBatchMemOpParams *c, unsigned d)
{
    (void)stream;
    CUdeviceptr kept = 0;
    for (unsigned i = 0; c && i < b; i++)
        if (keep_words(&c[i]))
            kept = c[i].waitValue.address;
    return ended(next(a, b, c, d), kept);
}
