/* Captures in progress: the streams whose work becomes nodes of a graph. All functions are
 * thread-safe. */
#ifndef EBB_SHIM_CUDA_CAPTURES_H
#define EBB_SHIM_CUDA_CAPTURES_H

#include "door.h"

/* Is any capture in progress? No lock. */
bool ebb__captures_any(void);
/* Does the driver refuse unsafe calls of this thread, as cuMemAlloc is one? The rule is that of
 * cuThreadExchangeStreamCaptureMode. */
bool ebb__captures_forbid(void);
/* The calling thread has set its own mode. It begins as global. */
void ebb__captures_exchange(CUstreamCaptureMode mode);

/* Before the real call that begins a capture, and after it. Returns `result`. */
void ebb__captures_enter(void);
CUresult ebb__captures_begin(CUresult result, CUstream stream, CUstreamCaptureMode mode);
/* Is the stream in a capture, also in an invalidated one? */
bool ebb__captures_has(CUstream stream);
/* The capture that began in `stream` is over. */
void ebb__captures_end(CUstream stream);
/* The context is destroyed, and its captures with it. False: it has none. */
bool ebb__captures_lose(CUcontext context);

/* A block is allocated or freed. If a capture is in progress, its graph may use the block. */
void ebb__captures_note(CUdeviceptr block);
/* Those since the first capture in progress began, which the caller frees; NULL: none. */
CUdeviceptr *ebb__captures_blocks(size_t *count);

#endif
