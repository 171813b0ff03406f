/* Calls that place managed memory, or ask where it is. The driver refuses them for other memory,
 * and to the program, blocks are not managed. So it cannot move or discard them itself. */
#include "door.h"
#include "engines.h"

static bool is_block(CUdeviceptr address)
{
    return ebb__engines_owner(address) >= 0;
}

static bool any_block(const CUdeviceptr *addresses, size_t count)
{
    for (size_t i = 0; addresses && i < count; i++)
        if (is_block(addresses[i]))
            return true;
    return false;
}

CUresult ebb__door_advise(__typeof__(cuMemAdvise) *next, CUstream stream, CUdeviceptr a, size_t b,
                          CUmem_advise c, CUdevice d)
{
    (void)stream;
    return is_block(a) ? CUDA_ERROR_INVALID_VALUE : next(a, b, c, d);
}

CUresult ebb__door_advise_at(__typeof__(cuMemAdvise_v2) *next, CUstream stream, CUdeviceptr a,
                             size_t b, CUmem_advise c, CUmemLocation d)
{
    (void)stream;
    return is_block(a) ? CUDA_ERROR_INVALID_VALUE : next(a, b, c, d);
}

CUresult ebb__door_prefetch(__typeof__(cuMemPrefetchAsync) *next, CUstream stream, CUdeviceptr a,
                            size_t b, CUdevice c, CUstream d)
{
    (void)stream;
    return is_block(a) ? CUDA_ERROR_INVALID_VALUE : next(a, b, c, d);
}

CUresult ebb__door_prefetch_to(__typeof__(cuMemPrefetchAsync_v2) *next, CUstream stream,
                               CUdeviceptr a, size_t b, CUmemLocation c, unsigned d, CUstream e)
{
    (void)stream;
    return is_block(a) ? CUDA_ERROR_INVALID_VALUE : next(a, b, c, d, e);
}

/* One block among the ranges refuses them all, as the driver does. */
CUresult ebb__door_prefetch_batch(__typeof__(cuMemPrefetchBatchAsync) *next, CUstream stream,
                                  CUdeviceptr *a, size_t *b, size_t c, CUmemLocation *d, size_t *e,
                                  size_t f, unsigned long long g, CUstream h)
{
    (void)stream;
    return any_block(a, c) ? CUDA_ERROR_INVALID_VALUE : next(a, b, c, d, e, f, g, h);
}

CUresult ebb__door_discard_batch(__typeof__(cuMemDiscardBatchAsync) *next, CUstream stream,
                                 CUdeviceptr *a, size_t *b, size_t c, unsigned long long d,
                                 CUstream e)
{
    (void)stream;
    return any_block(a, c) ? CUDA_ERROR_INVALID_VALUE : next(a, b, c, d, e);
}

CUresult ebb__door_attach(__typeof__(cuStreamAttachMemAsync) *next, CUstream stream, CUstream a,
                          CUdeviceptr b, size_t c, unsigned d)
{
    (void)stream;
    return is_block(b) ? CUDA_ERROR_INVALID_VALUE : next(a, b, c, d);
}

CUresult ebb__door_range_attribute(__typeof__(cuMemRangeGetAttribute) *next, CUstream stream,
                                   void *a, size_t b, CUmem_range_attribute c, CUdeviceptr d,
                                   size_t e)
{
    (void)stream;
    return is_block(d) ? CUDA_ERROR_INVALID_VALUE : next(a, b, c, d, e);
}

CUresult ebb__door_range_attributes(__typeof__(cuMemRangeGetAttributes) *next, CUstream stream,
                                    void **a, size_t *b, CUmem_range_attribute *c, size_t d,
                                    CUdeviceptr e, size_t f)
{
    (void)stream;
    return is_block(e) ? CUDA_ERROR_INVALID_VALUE : next(a, b, c, d, e, f);
}
