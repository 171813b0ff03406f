/* Copies to the host, queued one chunk at a time by a thread of their own.
 *
 * A mapping gets its turn when the lane to the host has nothing to do, or after a millisecond. That
 * holds for each page. On an H200 with chunks of 8 MiB, a mapping takes 0.14 ms, and the lane has
 * 95 % of its rate (docs/results/README.md). The thread that maps could not do both. */
#ifndef EBB_CUDA_FEEDER_H
#define EBB_CUDA_FEEDER_H

#include "cuda/driver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define CUDA_STACK_BYTES ((size_t)8 << 20) /* of threads that call the driver */

#define CUDA_MOST_FEEDS 4u

enum cuda_feed_state { CUDA_FEED_WAITS, CUDA_FEED_OVER, CUDA_FEED_FAILED };

struct cuda_feed { /* a piece */
    CUdeviceptr to, from;
    uint64_t bytes;
    _Atomic uint8_t state; /* enum cuda_feed_state */
};

struct cuda_feeder {
    const struct ebb_cuda_driver *driver;
    CUcontext context;
    CUstream lane;
    CUevent event;
    uint64_t chunk_bytes;
    uint64_t usual_ns;      /* that a chunk takes, of late */
    void (*tell)(void *of); /* a piece is over */
    void *of;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    struct cuda_feed *feeds[CUDA_MOST_FEEDS];
    uint32_t first, count;
    bool is_started;
    _Atomic bool must_stop;
};

/* Call it with the context current. The other members are 0. False: an event or a thread is
 * missing. */
bool ebb__feeder_start(struct cuda_feeder *feeder);
/* What is queued on the lane may not be over. Pieces that wait stay so. */
void ebb__feeder_stop(struct cuda_feeder *feeder);
/* With the context current, after the stop. */
void ebb__feeder_free(struct cuda_feeder *feeder);
/* At most CUDA_MOST_FEEDS that are not over. The piece is the feeder's until then. One thread calls
 * it. */
void ebb__feeder_add(struct cuda_feeder *feeder, struct cuda_feed *feed);

#endif
