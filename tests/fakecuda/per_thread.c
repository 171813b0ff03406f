/* The entry points for per-thread default streams: a stream of 0 is the thread's own.
 */
#include "fake.h"

static CUstream own(CUstream stream)
{
    return stream ? stream : CU_STREAM_PER_THREAD;
}

#define WRAP(name, parameters, arguments)                                                          \
    API name##_ptsz parameters                                                                     \
    {                                                                                              \
        return name arguments;                                                                     \
    }

API cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **parameters,
                          void **extra)
{
    if (!config)
        DONE(CUDA_ERROR_INVALID_VALUE);
    CUlaunchConfig mine = *config;
    mine.hStream = own(mine.hStream);
    return cuLaunchKernelEx(&mine, function, parameters, extra);
}

WRAP(cuEventRecordWithFlags, (CUevent a, CUstream b, unsigned c), (a, own(b), c))
WRAP(cuEventRecord, (CUevent a, CUstream b), (a, own(b)))
WRAP(cuGraphLaunch, (CUgraphExec a, CUstream b), (a, own(b)))
WRAP(cuGraphUpload, (CUgraphExec a, CUstream b), (a, own(b)))
WRAP(cuLaunchCooperativeKernel,
     (CUfunction a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g,
      unsigned h, CUstream i, void **j),
     (a, b, c, d, e, f, g, h, own(i), j))
WRAP(cuLaunchHostFunc, (CUstream a, CUhostFn b, void *c), (own(a), b, c))
WRAP(cuLaunchKernel,
     (CUfunction a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g,
      unsigned h, CUstream i, void **j, void **k),
     (a, b, c, d, e, f, g, h, own(i), j, k))
WRAP(cuMemAllocAsync, (CUdeviceptr * a, size_t b, CUstream c), (a, b, own(c)))
WRAP(cuMemAllocFromPoolAsync, (CUdeviceptr * a, size_t b, CUmemoryPool c, CUstream d),
     (a, b, c, own(d)))
WRAP(cuMemDiscardAndPrefetchBatchAsync,
     (CUdeviceptr * a, size_t *b, size_t c, CUmemLocation *d, size_t *e, size_t f,
      unsigned long long g, CUstream h),
     (a, b, c, d, e, f, g, own(h)))
WRAP(cuMemDiscardBatchAsync,
     (CUdeviceptr * a, size_t *b, size_t c, unsigned long long d, CUstream e), (a, b, c, d, own(e)))
WRAP(cuMemFreeAsync, (CUdeviceptr a, CUstream b), (a, own(b)))
WRAP(cuMemPrefetchAsync, (CUdeviceptr a, size_t b, CUdevice c, CUstream d), (a, b, c, own(d)))
WRAP(cuMemPrefetchAsync_v2, (CUdeviceptr a, size_t b, CUmemLocation c, unsigned d, CUstream e),
     (a, b, c, d, own(e)))
WRAP(cuMemPrefetchBatchAsync,
     (CUdeviceptr * a, size_t *b, size_t c, CUmemLocation *d, size_t *e, size_t f,
      unsigned long long g, CUstream h),
     (a, b, c, d, e, f, g, own(h)))
WRAP(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *a, CUstream b), (a, own(b)))
WRAP(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *a, CUstream b), (a, own(b)))
WRAP(cuMemcpy3DBatchAsync,
     (size_t a, CUDA_MEMCPY3D_BATCH_OP *b, size_t *c, unsigned long long d, CUstream e),
     (a, b, c, d, own(e)))
WRAP(cuMemcpy3DBatchAsync_v2,
     (size_t a, CUDA_MEMCPY3D_BATCH_OP *b, unsigned long long c, CUstream d), (a, b, c, own(d)))
WRAP(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *a, CUstream b), (a, own(b)))
WRAP(cuMemcpyAsync, (CUdeviceptr a, CUdeviceptr b, size_t c, CUstream d), (a, b, c, own(d)))
WRAP(cuMemcpyBatchAsync,
     (CUdeviceptr * a, CUdeviceptr *b, size_t *c, size_t d, CUmemcpyAttributes *e, size_t *f,
      size_t g, size_t *h, CUstream i),
     (a, b, c, d, e, f, g, h, own(i)))
WRAP(cuMemcpyBatchAsync_v2,
     (CUdeviceptr * a, CUdeviceptr *b, size_t *c, size_t d, CUmemcpyAttributes *e, size_t *f,
      size_t g, CUstream h),
     (a, b, c, d, e, f, g, own(h)))
WRAP(cuMemcpyDtoDAsync_v2, (CUdeviceptr a, CUdeviceptr b, size_t c, CUstream d), (a, b, c, own(d)))
WRAP(cuMemcpyDtoHAsync_v2, (void *a, CUdeviceptr b, size_t c, CUstream d), (a, b, c, own(d)))
WRAP(cuMemcpyHtoDAsync_v2, (CUdeviceptr a, const void *b, size_t c, CUstream d), (a, b, c, own(d)))
WRAP(cuMemcpyPeerAsync,
     (CUdeviceptr a, CUcontext b, CUdeviceptr c, CUcontext d, size_t e, CUstream f),
     (a, b, c, d, e, own(f)))
WRAP(cuMemsetD16Async, (CUdeviceptr a, unsigned short b, size_t c, CUstream d), (a, b, c, own(d)))
WRAP(cuMemsetD2D16Async,
     (CUdeviceptr a, size_t b, unsigned short c, size_t d, size_t e, CUstream f),
     (a, b, c, d, e, own(f)))
WRAP(cuMemsetD2D32Async, (CUdeviceptr a, size_t b, unsigned c, size_t d, size_t e, CUstream f),
     (a, b, c, d, e, own(f)))
WRAP(cuMemsetD2D8Async, (CUdeviceptr a, size_t b, unsigned char c, size_t d, size_t e, CUstream f),
     (a, b, c, d, e, own(f)))
WRAP(cuMemsetD32Async, (CUdeviceptr a, unsigned b, size_t c, CUstream d), (a, b, c, own(d)))
WRAP(cuMemsetD8Async, (CUdeviceptr a, unsigned char b, size_t c, CUstream d), (a, b, c, own(d)))
WRAP(cuStreamAddCallback, (CUstream a, CUstreamCallback b, void *c, unsigned d), (own(a), b, c, d))
WRAP(cuStreamAttachMemAsync, (CUstream a, CUdeviceptr b, size_t c, unsigned d), (own(a), b, c, d))
WRAP(cuStreamBatchMemOp, (CUstream a, unsigned b, CUstreamBatchMemOpParams *c, unsigned d),
     (own(a), b, c, d))
WRAP(cuStreamBatchMemOp_v2, (CUstream a, unsigned b, CUstreamBatchMemOpParams *c, unsigned d),
     (own(a), b, c, d))
WRAP(cuStreamBeginCaptureToGraph,
     (CUstream a, CUgraph b, const CUgraphNode *c, const CUgraphEdgeData *d, size_t e,
      CUstreamCaptureMode f),
     (own(a), b, c, d, e, f))
WRAP(cuStreamBeginCapture, (CUstream a), (own(a)))
WRAP(cuStreamBeginCapture_v2, (CUstream a, CUstreamCaptureMode b), (own(a), b))
WRAP(cuStreamCopyAttributes, (CUstream a, CUstream b), (own(a), own(b)))
WRAP(cuStreamEndCapture, (CUstream a, CUgraph *b), (own(a), b))
WRAP(cuStreamGetAttribute, (CUstream a, CUstreamAttrID b, CUstreamAttrValue *c), (own(a), b, c))
WRAP(cuStreamGetCaptureInfo, (CUstream a, CUstreamCaptureStatus *b, cuuint64_t *c), (own(a), b, c))
WRAP(cuStreamGetCaptureInfo_v2,
     (CUstream a, CUstreamCaptureStatus *b, cuuint64_t *c, CUgraph *d, const CUgraphNode **e,
      size_t *f),
     (own(a), b, c, d, e, f))
WRAP(cuStreamGetCaptureInfo_v3,
     (CUstream a, CUstreamCaptureStatus *b, cuuint64_t *c, CUgraph *d, const CUgraphNode **e,
      const CUgraphEdgeData **f, size_t *g),
     (own(a), b, c, d, e, f, g))
WRAP(cuStreamGetCtx, (CUstream a, CUcontext *b), (own(a), b))
WRAP(cuStreamGetDevice, (CUstream a, CUdevice *b), (own(a), b))
WRAP(cuStreamGetFlags, (CUstream a, unsigned *b), (own(a), b))
WRAP(cuStreamGetId, (CUstream a, unsigned long long *b), (own(a), b))
WRAP(cuStreamGetPriority, (CUstream a, int *b), (own(a), b))
WRAP(cuStreamIsCapturing, (CUstream a, CUstreamCaptureStatus *b), (own(a), b))
WRAP(cuStreamQuery, (CUstream a), (own(a)))
WRAP(cuStreamSetAttribute, (CUstream a, CUstreamAttrID b, const CUstreamAttrValue *c),
     (own(a), b, c))
WRAP(cuStreamSynchronize, (CUstream a), (own(a)))
WRAP(cuStreamUpdateCaptureDependencies, (CUstream a, CUgraphNode *b, size_t c, unsigned d),
     (own(a), b, c, d))
WRAP(cuStreamUpdateCaptureDependencies_v2,
     (CUstream a, CUgraphNode *b, const CUgraphEdgeData *c, size_t d, unsigned e),
     (own(a), b, c, d, e))
WRAP(cuStreamWaitEvent, (CUstream a, CUevent b, unsigned c), (own(a), b, c))
WRAP(cuStreamWaitValue32, (CUstream a, CUdeviceptr b, cuuint32_t c, unsigned d), (own(a), b, c, d))
WRAP(cuStreamWaitValue32_v2, (CUstream a, CUdeviceptr b, cuuint32_t c, unsigned d),
     (own(a), b, c, d))
WRAP(cuStreamWaitValue64, (CUstream a, CUdeviceptr b, cuuint64_t c, unsigned d), (own(a), b, c, d))
WRAP(cuStreamWaitValue64_v2, (CUstream a, CUdeviceptr b, cuuint64_t c, unsigned d),
     (own(a), b, c, d))
WRAP(cuStreamWriteValue32, (CUstream a, CUdeviceptr b, cuuint32_t c, unsigned d), (own(a), b, c, d))
WRAP(cuStreamWriteValue32_v2, (CUstream a, CUdeviceptr b, cuuint32_t c, unsigned d),
     (own(a), b, c, d))
WRAP(cuStreamWriteValue64, (CUstream a, CUdeviceptr b, cuuint64_t c, unsigned d), (own(a), b, c, d))
WRAP(cuStreamWriteValue64_v2, (CUstream a, CUdeviceptr b, cuuint64_t c, unsigned d),
     (own(a), b, c, d))
