/* Mappings beside copies to the host, by what makes the copies: the driver's calls, or a kernel. A
 * second thread keeps a few copies queued, and a third one launches kernels. */
#include "micro.h"

#include <pthread.h>
#include <stdatomic.h>

enum { ROUNDS = 40, MOST_QUEUED = 8, MOST_HANDLES = 4, MOST_LAUNCHES = 1 << 16 };
#define AREA (256 * MIB)
#define HANDLE (32 * MIB)

enum way { TO_HOST, AS_2D, AS_PEER, TO_DEVICE, KERNEL, NOTHING };
static const char *const way_names[] = {"cuMemcpyAsync", "cuMemcpy2DAsync", "cuMemcpyPeerAsync",
                                        "to the device", "kernel",          "nothing"};

struct feeder {
    enum way way;
    unsigned blocks, queued, chunk_mib, handles;
    int priority; /* 0: none, 1: the greatest */
    CUdeviceptr host, device;
    CUstream stream;
    _Atomic bool must_stop, has_begun;
    double gbps;
};

static void queue_chunk(struct feeder *feeder, unsigned number)
{
    size_t bytes = feeder->chunk_mib * MIB, at = number * bytes % AREA;
    CUdeviceptr host = feeder->host + at, device = feeder->device + at;
    CUDA_MEMCPY2D shape = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = device,
                           .srcPitch = MIB,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = host,
                           .dstPitch = MIB,
                           .WidthInBytes = MIB,
                           .Height = feeder->chunk_mib};
    switch (feeder->way) {
    case TO_HOST:
        T(cu.cuMemcpyAsync(host, device, bytes, feeder->stream));
        break;
    case AS_2D:
        T(cu.cuMemcpy2DAsync_v2(&shape, feeder->stream));
        break;
    case AS_PEER:
        T(cu.cuMemcpyPeerAsync(host, micro_context, device, micro_context, bytes, feeder->stream));
        break;
    case TO_DEVICE:
        T(cu.cuMemcpyAsync(device, host, bytes, feeder->stream));
        break;
    case KERNEL:
        launch(k_copy, feeder->blocks, feeder->stream, host, device, bytes);
        break;
    case NOTHING:
        break;
    }
}

static void *feed(void *context)
{
    struct feeder *feeder = context;
    CUevent events[MOST_QUEUED];
    unsigned number = 0;
    T(cu.cuCtxSetCurrent(micro_context));
    for (unsigned i = 0; i < feeder->queued; i++)
        events[i] = event_new();
    double first = now_us();
    while (!atomic_load(&feeder->must_stop)) {
        CUevent event = events[number % feeder->queued];
        if (number >= feeder->queued)
            while (cu.cuEventQuery(event) == CUDA_ERROR_NOT_READY)
                ;
        queue_chunk(feeder, number);
        T(cu.cuEventRecord(event, feeder->stream));
        number++;
        atomic_store(&feeder->has_begun, number > 2 * feeder->queued);
    }
    T(cu.cuStreamSynchronize(feeder->stream));
    feeder->gbps = gbps(number * feeder->chunk_mib * MIB, now_us() - first);
    return NULL;
}

struct launcher {
    CUstream stream;
    _Atomic bool must_stop;
    struct spread us;
};

/* How long calls take that launch a kernel, one each 10 us. */
static void *launch_on(void *context)
{
    static double us[MOST_LAUNCHES];
    struct launcher *launcher = context;
    int count = 0;
    T(cu.cuCtxSetCurrent(micro_context));
    while (!atomic_load(&launcher->must_stop) && count < MOST_LAUNCHES) {
        double first = now_us();
        launch(k_empty, 1, launcher->stream, 0, 0, 0);
        us[count] = now_us() - first;
        while (now_us() < first + 10)
            ;
        count++;
    }
    T(cu.cuStreamSynchronize(launcher->stream));
    launcher->us = spread_of(us, count);
    launcher->us.least = us[count * 99 / 100]; /* of 100, the second slowest */
    return NULL;
}

static void begin(struct feeder *feeder, pthread_t *thread)
{
    atomic_store(&feeder->must_stop, false);
    atomic_store(&feeder->has_begun, false);
    pthread_create(thread, NULL, feed, feeder);
    while (!atomic_load(&feeder->has_begun))
        ;
}

static void map_beside(struct feeder *feeder, CUdeviceptr base,
                       const CUmemGenericAllocationHandle *handles, CUstream stream)
{
    double us[3][ROUNDS];
    size_t bytes = feeder->handles * HANDLE;
    struct launcher launcher = {.stream = stream};
    pthread_t thread, other;
    begin(feeder, &thread);
    pthread_create(&other, NULL, launch_on, &launcher);
    double first = now_us();
    for (int i = 0; i < ROUNDS; i++) {
        double a = now_us();
        for (size_t k = 0; k < feeder->handles; k++)
            T(cu.cuMemMap(base + k * HANDLE, HANDLE, 0, handles[k], 0));
        double b = now_us();
        T(set_access(base, bytes, false));
        double c = now_us();
        T(cu.cuMemUnmap(base, bytes));
        us[0][i] = b - a, us[1][i] = c - b, us[2][i] = now_us() - c;
    }
    double whole = now_us() - first;
    atomic_store(&feeder->must_stop, true);
    atomic_store(&launcher.must_stop, true);
    pthread_join(thread, NULL);
    pthread_join(other, NULL);
    struct spread map = spread_of(us[0], ROUNDS), access = spread_of(us[1], ROUNDS),
                  unmap = spread_of(us[2], ROUNDS);
    emit("\"beside\": \"%s\", \"blocks\": %u, \"queued\": %u, \"chunk_mib\": %u, \"priority\": %d, "
         "\"handles\": %u, \"map_us\": %.1f, \"access_us\": %.1f, \"access_most_us\": %.1f, "
         "\"unmap_us\": %.1f, \"unmap_most_us\": %.1f, \"whole_us\": %.1f, \"gbps\": %.1f, "
         "\"launch_us\": %.1f, \"launch_99_us\": %.1f, \"launch_most_us\": %.1f",
         way_names[feeder->way], feeder->blocks, feeder->queued, feeder->chunk_mib,
         feeder->priority, feeder->handles, map.median, access.median, access.most, unmap.median,
         unmap.most, whole / ROUNDS, feeder->gbps, launcher.us.median, launcher.us.least,
         launcher.us.most);
}

/* A page that is made, beside the copies. */
static void make_beside(struct feeder *feeder, const CUmemAllocationProp *prop)
{
    double us[2][ROUNDS];
    pthread_t thread;
    begin(feeder, &thread);
    for (int i = 0; i < ROUNDS; i++) {
        CUmemGenericAllocationHandle handle;
        double a = now_us();
        T(cu.cuMemCreate(&handle, HANDLE, prop, 0));
        double b = now_us();
        T(cu.cuMemRelease(handle));
        us[0][i] = b - a, us[1][i] = now_us() - b;
    }
    atomic_store(&feeder->must_stop, true);
    pthread_join(thread, NULL);
    struct spread create = spread_of(us[0], ROUNDS), release = spread_of(us[1], ROUNDS);
    emit("\"make_beside\": \"%s\", \"queued\": %u, \"create_us\": %.1f, \"create_most_us\": %.1f, "
         "\"release_us\": %.1f, \"release_most_us\": %.1f",
         way_names[feeder->way], feeder->queued, create.median, create.most, release.median,
         release.most);
}

/* A kernel that uses all of the device's memory bandwidth, beside the copies. */
static void compute_beside(struct feeder *feeder, CUdeviceptr plain, CUstream stream)
{
    pthread_t thread;
    CUevent first = event_new(), last = event_new();
    float ms = 0;
    begin(feeder, &thread);
    T(cu.cuEventRecord(first, stream));
    for (int i = 0; i < 100; i++)
        launch(k_copy, 2112, stream, plain, plain + 256 * MIB, 256 * MIB);
    T(cu.cuEventRecord(last, stream));
    T(cu.cuStreamSynchronize(stream));
    T(cu.cuEventElapsedTime(&ms, first, last));
    atomic_store(&feeder->must_stop, true);
    pthread_join(thread, NULL);
    emit("\"compute_beside\": \"%s\", \"blocks\": %u, \"copies_gbps\": %.1f, \"compute_gbps\": "
         "%.0f",
         way_names[feeder->way], feeder->blocks, feeder->gbps,
         gbps(100 * 512 * MIB, (double)ms * 1e3));
}

void m_vmm_beside(void)
{
    if (!cu.cuMemCreate || !cu.cuStreamCreateWithPriority || !cu.cuMemcpy2DAsync_v2 ||
        !cu.cuMemcpyPeerAsync)
        return;
    static const struct feeder cases[] = {
        {.way = NOTHING, .queued = 1, .chunk_mib = 8, .priority = 1, .handles = 1},
        {.way = NOTHING, .queued = 1, .chunk_mib = 8, .priority = 1, .handles = 4},
        {.way = TO_HOST, .queued = 1, .chunk_mib = 2, .priority = 1, .handles = 1},
        {.way = TO_HOST, .queued = 1, .chunk_mib = 4, .priority = 1, .handles = 1},
        {.way = TO_HOST, .queued = 1, .chunk_mib = 8, .priority = 1, .handles = 1},
        {.way = TO_HOST, .queued = 1, .chunk_mib = 8, .priority = 1, .handles = 4},
        {.way = TO_HOST, .queued = 1, .chunk_mib = 16, .priority = 1, .handles = 1},
        {.way = TO_HOST, .queued = 1, .chunk_mib = 8, .priority = 0, .handles = 1},
        {.way = TO_HOST, .queued = 2, .chunk_mib = 8, .priority = 1, .handles = 1},
        {.way = TO_HOST, .queued = 2, .chunk_mib = 8, .priority = 1, .handles = 4},
        {.way = TO_HOST, .queued = 2, .chunk_mib = 8, .priority = 0, .handles = 1},
        {.way = TO_DEVICE, .queued = 4, .chunk_mib = 8, .priority = 1, .handles = 1},
        {.way = KERNEL, .blocks = 8, .queued = 4, .chunk_mib = 8, .priority = 1, .handles = 1},
        {.way = KERNEL, .blocks = 16, .queued = 4, .chunk_mib = 8, .priority = 1, .handles = 1},
        {.way = KERNEL, .blocks = 8, .queued = 4, .chunk_mib = 8, .priority = 0, .handles = 1},
        {.way = AS_2D, .queued = 2, .chunk_mib = 8, .priority = 1, .handles = 1},
        {.way = AS_PEER, .queued = 2, .chunk_mib = 8, .priority = 1, .handles = 1},
    };
    const char *name;
    bool by_host;
    int least = 0, greatest = 0;
    CUdeviceptr host = host_backed(AREA, &by_host, &name);
    CUdeviceptr device = device_alloc(AREA), plain = device_alloc(512 * MIB);
    if (!host)
        return;
    CUstream lanes[2], stream = stream_new();
    T(cu.cuCtxGetStreamPriorityRange(&least, &greatest));
    T(cu.cuStreamCreateWithPriority(&lanes[0], 1, least));
    T(cu.cuStreamCreateWithPriority(&lanes[1], 1, greatest));
    CUmemAllocationProp prop = prop_of(CU_MEM_LOCATION_TYPE_DEVICE);
    CUmemGenericAllocationHandle handles[MOST_HANDLES];
    for (unsigned i = 0; i < MOST_HANDLES; i++)
        T(cu.cuMemCreate(&handles[i], HANDLE, &prop, 0));
    CUdeviceptr base = reserve(MOST_HANDLES * HANDLE);
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct feeder feeder = cases[i];
        feeder.host = host, feeder.device = device, feeder.stream = lanes[feeder.priority];
        map_beside(&feeder, base, handles, stream);
        if (feeder.handles == 1)
            make_beside(&feeder, &prop);
        if (feeder.way == KERNEL)
            compute_beside(&feeder, plain, stream);
    }
}
