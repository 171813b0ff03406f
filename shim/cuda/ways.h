/* Streams with their contexts, and the order between them, by events of the driver. All functions
 * are thread-safe. */
#ifndef EBB_SHIM_CUDA_WAYS_H
#define EBB_SHIM_CUDA_WAYS_H

#include "door.h"

struct way {
    CUdevice device;
    CUcontext context;
    CUstream stream;
};

/* A default stream: its handle means another one in each context, or in each thread. */
bool ebb__stream_is_special(CUstream stream);
/* Is it one of another context than the primary one of this device? */
bool ebb__stream_is_elsewhere(CUstream stream, CUdevice device);
/* That of a stream of the program, for the calling thread. */
bool ebb__way_find(CUstream stream, struct way *way);

/* The way's context becomes the current one, and is so no longer. */
CUresult ebb__way_enter(const struct way *way);
void ebb__way_leave(void);

/* *event is new, and behind all that is queued. NULL after a failure. */
CUresult ebb__way_record(const struct way *way, CUevent *event);
CUresult ebb__way_await(const struct way *way, CUevent event);
/* What is queued in `way` from now on comes after what is queued in `other`. */
CUresult ebb__way_follow(const struct way *way, const struct way *other);
CUresult ebb__way_synchronize(const struct way *way);

#endif
