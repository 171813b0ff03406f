/* Lanes: what copies between devices run on besides the program's streams. A lane has a stream of
 * each device, and slots of page-locked memory that such copies share. There are few of them, so
 * that they take little memory: copies that share one wait for each other. */
#ifndef EBB_SHIM_CUDA_LANES_H
#define EBB_SHIM_CUDA_LANES_H

#include "engines.h"
#include "ways.h"

#include <pthread.h>

#define LANE_SLOTS 2u
#define LANE_SLOT_BYTES ((size_t)2 << 20) /* arbitrary: 0.1 ms of a bus */
#define LANE_NOWHERE (-1)

struct lane {
    pthread_mutex_t lock;               /* of what follows, and of the order of its copies */
    CUstream streams[EBB_DOOR_DEVICES]; /* made at the first use */
    unsigned char *memory;              /* LANE_SLOTS of them */
    CUdevice home;                      /* with its context the memory would go; or LANE_NOWHERE */
    CUevent emptied[LANE_SLOTS];        /* the last write from a slot; NULL: none */
    unsigned next;
};

/* That of the copies in a stream of the program, for the calling thread. */
struct lane *ebb__lane_of(CUstream stream);
/* The lane's stream of way->device goes into way->stream. Made in way->context if necessary. Takes
 * the lock. */
CUresult ebb__lane_stream(struct lane *lane, struct way *way);
/* Makes the memory if necessary, page-locked if possible: otherwise calls wait for their copies.
 * Expects the lock. False: memory is exhausted. */
bool ebb__lane_has_memory(struct lane *lane, CUdevice device);
/* The primary context of a device is about to be destroyed, or another one: -1. Waits for all
 * lanes. */
void ebb__lanes_drop(CUdevice device);

#endif
