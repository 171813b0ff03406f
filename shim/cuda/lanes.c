/* Lanes: what copies between devices run on besides the program's streams. */
#include "lanes.h"

#include <stdlib.h>

#define LANES 4u /* arbitrary */
#define NOWHERE LANE_NOWHERE

static struct lane lanes[LANES] = {
    {.lock = PTHREAD_MUTEX_INITIALIZER},
    {.lock = PTHREAD_MUTEX_INITIALIZER},
    {.lock = PTHREAD_MUTEX_INITIALIZER},
    {.lock = PTHREAD_MUTEX_INITIALIZER},
};

struct lane *ebb__lane_of(CUstream stream)
{
    static _Thread_local char own_thread; /* special streams have the same name in all threads */
    uint64_t name =
        (uint64_t)(ebb__stream_is_special(stream) ? (uintptr_t)&own_thread : (uintptr_t)stream);
    return &lanes[(name * 0x9e3779b97f4a7c15u >> 32) % LANES];
}

static CUresult make_stream(const struct way *way, CUstream *stream)
{
    CUresult result = *stream ? CUDA_SUCCESS : ebb__way_enter(way);
    if (*stream || result != CUDA_SUCCESS)
        return result;
    result = ebb__real.cuStreamCreate(stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS)
        *stream = NULL;
    ebb__way_leave();
    return result;
}

CUresult ebb__lane_stream(struct lane *lane, struct way *way)
{
    pthread_mutex_lock(&lane->lock);
    CUresult result = make_stream(way, &lane->streams[way->device]);
    way->stream = lane->streams[way->device];
    pthread_mutex_unlock(&lane->lock);
    return result;
}

/* Page-locked memory belongs to a context, that of an engine. */
bool ebb__lane_has_memory(struct lane *lane, CUdevice device)
{
    const struct way way = {device, ebb__engines_context(device), NULL};
    void *memory = NULL;
    if (lane->memory)
        return true;
    if (way.context && ebb__way_enter(&way) == CUDA_SUCCESS) {
        if (ebb__real.cuMemHostAlloc(&memory, LANE_SLOTS * LANE_SLOT_BYTES,
                                     CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS)
            memory = NULL;
        ebb__way_leave();
    }
    lane->home = memory ? device : NOWHERE;
    lane->memory = memory ? memory : malloc(LANE_SLOTS * LANE_SLOT_BYTES);
    return lane->memory != NULL;
}

/* Nothing is under way any more. */
static void settle(struct lane *lane)
{
    for (int i = 0; i < EBB_DOOR_DEVICES; i++)
        if (lane->streams[i])
            ebb__way_synchronize(&(struct way){i, ebb__engines_context(i), lane->streams[i]});
    for (unsigned i = 0; i < LANE_SLOTS; i++) {
        if (!lane->emptied[i])
            continue;
        ebb__real.cuEventSynchronize(lane->emptied[i]);
        ebb__real.cuEventDestroy_v2(lane->emptied[i]);
        lane->emptied[i] = NULL;
    }
}

static void drop_device(struct lane *lane, CUdevice device)
{
    const struct way way = {device, ebb__engines_context(device), NULL};
    lane->streams[device] = NULL; /* it goes with its context */
    if (!lane->memory || lane->home != device)
        return;
    if (ebb__way_enter(&way) == CUDA_SUCCESS) {
        ebb__real.cuMemFreeHost(lane->memory);
        ebb__way_leave();
    }
    lane->memory = NULL;
}

void ebb__lanes_drop(CUdevice device)
{
    for (unsigned i = 0; i < LANES; i++) {
        pthread_mutex_lock(&lanes[i].lock);
        settle(&lanes[i]);
        if (device >= 0 && device < EBB_DOOR_DEVICES)
            drop_device(&lanes[i], device);
        pthread_mutex_unlock(&lanes[i].lock);
    }
}
