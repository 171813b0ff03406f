/* Ways for managed pages to leave the device, and copies beside prefetches. */
#include "micro.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BYTES (512 * MIB)

static CUdeviceptr resident(size_t bytes, CUstream stream)
{
    CUdeviceptr base = managed_alloc(bytes);
    prefetch(base, bytes, ON_DEVICE, stream);
    launch(k_fill, 2112, stream, base, 7, bytes);
    T(cu.cuStreamSynchronize(stream));
    prefetch(base, bytes, ON_HOST, stream); /* host pages exist from now on */
    prefetch(base, bytes, ON_DEVICE, stream);
    return base;
}

/* Moves BYTES in pieces, which go to `streams` streams in turn. */
static void pieces(const char *name, CUdeviceptr base, size_t piece, int streams, CUmemLocation to,
                   CUstream *lanes)
{
    double all[3], call[3], back[3];
    CUresult r = CUDA_SUCCESS, s = CUDA_SUCCESS;
    for (int i = 0; i < 3 && r == CUDA_SUCCESS; i++) {
        double first = now_us();
        int next = 0;
        for (size_t at = 0; at < BYTES && r == CUDA_SUCCESS; at += piece)
            r = cu.cuMemPrefetchAsync_v2(base + at, piece, to, 0, lanes[next++ % streams]);
        call[i] = now_us() - first;
        for (int k = 0; k < streams; k++)
            s = cu.cuStreamSynchronize(lanes[k]);
        all[i] = now_us() - first;
        first = now_us();
        next = 0;
        for (size_t at = 0; at < BYTES; at += piece)
            T(cu.cuMemPrefetchAsync_v2(base + at, piece, ON_DEVICE, 0, lanes[next++ % streams]));
        for (int k = 0; k < streams; k++)
            T(cu.cuStreamSynchronize(lanes[k]));
        back[i] = now_us() - first;
    }
    if (r != CUDA_SUCCESS) {
        emit("\"way\": \"%s\", \"result\": \"%s\"", name, error_text(r));
        return;
    }
    emit("\"way\": \"%s\", \"piece_mib\": %.4f, \"streams\": %d, \"sync\": \"%s\", \"out_gbps\": "
         "[%.1f, %.1f, %.1f], \"out_call_share\": %.2f, \"in_gbps\": [%.1f, %.1f, %.1f]",
         name, (double)piece / (double)MIB, streams, error_text(s), gbps(BYTES, all[0]),
         gbps(BYTES, all[1]), gbps(BYTES, all[2]), call[2] / all[2], gbps(BYTES, back[0]),
         gbps(BYTES, back[1]), gbps(BYTES, back[2]));
}

static void batch(CUdeviceptr base, size_t count, CUmemLocation to, CUstream stream)
{
    CUdeviceptr bases[256];
    size_t sizes[256], first_location = 0;
    for (size_t i = 0; i < count; i++) {
        bases[i] = base + i * (BYTES / count);
        sizes[i] = BYTES / count;
    }
    for (int i = 0; i < 2; i++) {
        double first = now_us();
        CUresult r =
            cu.cuMemPrefetchBatchAsync(bases, sizes, count, &to, &first_location, 1, 0, stream);
        double called = now_us();
        CUresult s = cu.cuStreamSynchronize(stream);
        double last = now_us();
        emit("\"way\": \"batch\", \"count\": %zu, \"result\": \"%s\", \"sync\": \"%s\", "
             "\"call_us\": %.0f, \"out_gbps\": %.1f",
             count, error_text(r), error_text(s), called - first, gbps(BYTES, last - first));
        prefetch(base, BYTES, ON_DEVICE, stream);
    }
}

void m_evict(void)
{
    CUstream lanes[8];
    for (int i = 0; i < 8; i++)
        lanes[i] = stream_new();
    CUdeviceptr base = resident(BYTES, lanes[0]);
    const CUmemLocation numa = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0},
                        here = {CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0};
    pieces("host", base, 512 * MIB, 1, ON_HOST, lanes);
    pieces("host", base, 64 * MIB, 1, ON_HOST, lanes);
    pieces("host", base, 8 * MIB, 1, ON_HOST, lanes);
    pieces("host", base, 2 * MIB, 1, ON_HOST, lanes);
    pieces("host", base, MIB / 4, 1, ON_HOST, lanes);
    pieces("host", base, 32 * MIB, 4, ON_HOST, lanes);
    pieces("host", base, 2 * MIB, 8, ON_HOST, lanes);
    pieces("numa 0", base, 64 * MIB, 1, numa, lanes);
    pieces("numa current", base, 64 * MIB, 1, here, lanes);
    if (cu.cuMemPrefetchBatchAsync) {
        batch(base, 16, ON_HOST, lanes[0]);
        batch(base, 256, ON_HOST, lanes[0]);
    }
    T(cu.cuMemAdvise_v2(base, BYTES, CU_MEM_ADVISE_SET_READ_MOSTLY, ON_DEVICE));
    pieces("read mostly", base, 64 * MIB, 1, ON_HOST, lanes);
    T(cu.cuMemAdvise_v2(base, BYTES, CU_MEM_ADVISE_UNSET_READ_MOSTLY, ON_DEVICE));
    T(cu.cuMemAdvise_v2(base, BYTES, CU_MEM_ADVISE_SET_ACCESSED_BY, ON_DEVICE));
    pieces("accessed by device", base, 64 * MIB, 1, ON_HOST, lanes);
    /* Pages that the host has locked. */
    CUresult r = cu.cuMemHostRegister_v2
                     ? cu.cuMemHostRegister_v2((void *)(uintptr_t)base, BYTES, 0)
                     : CUDA_ERROR_NOT_FOUND;
    emit("\"way\": \"register\", \"result\": \"%s\"", error_text(r));
}

struct worker {
    CUdeviceptr base;
    size_t bytes, piece;
    CUmemLocation to;
    CUstream stream;
    pthread_barrier_t *start;
    double us, call_us;
};

static void *work(void *argument)
{
    struct worker *w = argument;
    T(cu.cuCtxSetCurrent(micro_context));
    pthread_barrier_wait(w->start);
    double first = now_us();
    for (size_t at = 0; at < w->bytes; at += w->piece)
        T(cu.cuMemPrefetchAsync_v2(w->base + at, w->piece, w->to, 0, w->stream));
    w->call_us = now_us() - first;
    T(cu.cuStreamSynchronize(w->stream));
    w->us = now_us() - first;
    return NULL;
}

static void run(struct worker *workers, int count)
{
    pthread_t threads[8];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)count);
    for (int i = 0; i < count; i++) {
        workers[i].start = &start;
        if (pthread_create(&threads[i], NULL, work, &workers[i]) != 0)
            exit(6);
    }
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

/* Several threads that all evict; and one that evicts while this one launches kernels. */
void m_evict_threads(void)
{
    CUstream stream = stream_new();
    CUdeviceptr base = resident(BYTES, stream);
    struct worker workers[8];
    for (int count = 1; count <= 8; count *= 2)
        for (int same = 0; same < 2; same++) {
            CUdeviceptr other[8];
            for (int i = 0; i < count; i++) {
                size_t part = BYTES / (size_t)count;
                other[i] = same ? base + (size_t)i * part : 0;
                if (!same)
                    other[i] = resident(part, stream);
                workers[i] = (struct worker){.base = other[i],
                                             .bytes = part,
                                             .piece = part < 32 * MIB ? part : 32 * MIB,
                                             .to = ON_HOST,
                                             .stream = stream_new()};
            }
            double first = now_us();
            run(workers, count);
            double us = now_us() - first;
            emit("\"threads\": %d, \"one_allocation\": %d, \"out_gbps\": %.1f", count, same,
                 gbps(BYTES, us));
            prefetch(base, BYTES, ON_DEVICE, stream);
            for (int i = 0; i < count && !same; i++)
                T(cu.cuMemFree_v2(other[i]));
        }
    /* What a thread that launches feels of a thread that evicts. */
    static double launches[200000];
    for (int to_device = 0; to_device < 2; to_device++) {
        pthread_barrier_t start;
        pthread_barrier_init(&start, NULL, 2);
        workers[0] = (struct worker){.base = base,
                                     .bytes = BYTES,
                                     .piece = 32 * MIB,
                                     .to = to_device ? ON_DEVICE : ON_HOST,
                                     .stream = stream_new(),
                                     .start = &start};
        pthread_t thread;
        pthread_create(&thread, NULL, work, &workers[0]);
        CUstream mine = stream_new();
        pthread_barrier_wait(&start);
        double end = now_us() + (to_device ? 9000 : 25000), most = 0;
        int count = 0;
        for (double now = now_us(); now < end && count < 200000; count++) {
            launch(k_empty, 1, mine, 0, 0, 0);
            double after = now_us();
            launches[count] = after - now;
            most = after - now > most ? after - now : most;
            now = after;
        }
        pthread_join(thread, NULL);
        T(cu.cuStreamSynchronize(mine));
        struct spread s = spread_of(launches, count);
        emit("\"launches_beside\": \"%s\", \"count\": %d, \"median_us\": %.2f, \"p99_us\": %.2f, "
             "\"most_us\": %.1f, \"transfer_us\": %.0f",
             to_device ? "fetch" : "evict", count, s.median, launches[count * 99 / 100], s.most,
             workers[0].us);
    }
}

static void copy_row(const char *name, CUdeviceptr to, CUdeviceptr from, size_t piece, CUstream s)
{
    double us[3], call[3];
    size_t before = free_mib();
    for (int i = 0; i < 3; i++) {
        double first = now_us();
        for (size_t at = 0; at < BYTES; at += piece)
            T(cu.cuMemcpyAsync(to + at, from + at, piece, s));
        call[i] = now_us() - first;
        T(cu.cuStreamSynchronize(s));
        us[i] = now_us() - first;
    }
    emit("\"copy\": \"%s\", \"piece_mib\": %zu, \"gbps\": [%.1f, %.1f, %.1f], \"call_share\": "
         "%.2f, \"device_mib\": %ld",
         name, piece >> 20, gbps(BYTES, us[0]), gbps(BYTES, us[1]), gbps(BYTES, us[2]),
         call[2] / us[2], (long)before - (long)free_mib());
}

static uint32_t word(CUdeviceptr at)
{
    return *(volatile uint32_t *)(uintptr_t)at;
}

/* Managed memory and the copy engines. The last rows evict through a staging buffer. */
void m_evict_copies(void)
{
    CUstream s = stream_new();
    CUdeviceptr managed = resident(BYTES, s), plain = device_alloc(BYTES);
    CUdeviceptr pinned = (CUdeviceptr)(uintptr_t)pinned_alloc(BYTES);
    memset((void *)(uintptr_t)pinned, 1, BYTES);
    copy_row("managed on device to pinned", pinned, managed, 32 * MIB, s);
    copy_row("managed on device to pinned", pinned, managed, BYTES, s);
    copy_row("pinned to managed on device", managed, pinned, 32 * MIB, s);
    copy_row("plain to pinned", pinned, plain, 32 * MIB, s);
    copy_row("pinned to plain", plain, pinned, 32 * MIB, s);
    copy_row("managed on device to plain", plain, managed, 32 * MIB, s);

    /* The pages go to the host without contents, then a copy engine writes the contents there. */
    T(cu.cuMemAdvise_v2(managed, BYTES, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, ON_HOST));
    T(cu.cuMemAdvise_v2(managed, BYTES, CU_MEM_ADVISE_SET_ACCESSED_BY, ON_DEVICE));
    size_t before = free_mib(), sizes[1] = {BYTES}, zero = 0;
    CUdeviceptr bases[1] = {managed};
    CUmemLocation host = ON_HOST;
    double first = now_us();
    CUresult r = cu.cuMemDiscardAndPrefetchBatchAsync
                     ? cu.cuMemDiscardAndPrefetchBatchAsync(bases, sizes, 1, &host, &zero, 1, 0, s)
                     : CUDA_ERROR_NOT_FOUND;
    T(cu.cuStreamSynchronize(s));
    emit("\"copy\": \"discard and prefetch to host, with advice\", \"result\": \"%s\", \"us\": "
         "%.0f, \"device_mib\": %ld",
         error_text(r), now_us() - first, (long)before - (long)free_mib());
    if (r != CUDA_SUCCESS)
        prefetch(managed, BYTES, ON_HOST, s);
    T(cu.cuMemsetD8Async(plain, 0x5a, BYTES, s));
    T(cu.cuStreamSynchronize(s));
    copy_row("plain to managed on host", managed, plain, 32 * MIB, s);
    copy_row("managed on host to plain", plain, managed, 32 * MIB, s);
    uint32_t w = word(managed + 77 * MIB);
    double memory_us = now_us();
    for (size_t at = 0; at < BYTES; at += 4096)
        w += word(managed + at) - 0x5a5a5a5a;
    memory_us = now_us() - memory_us;
    emit("\"copy\": \"contents\", \"right\": %d, \"host_reads_us\": %.0f", w == 0x5a5a5a5a,
         memory_us);
    copy_row("plain to managed on host, after host reads", managed, plain, 32 * MIB, s);
    CUstream t = stream_new();
    CUdeviceptr plain2 = device_alloc(BYTES);
    first = now_us();
    for (size_t at = 0; at < BYTES; at += 32 * MIB) {
        T(cu.cuMemcpyAsync(managed + at, plain + at, 32 * MIB, s));
        T(cu.cuMemcpyAsync(plain2 + at, pinned + at, 32 * MIB, t));
    }
    T(cu.cuStreamSynchronize(s));
    double out = now_us() - first;
    T(cu.cuStreamSynchronize(t));
    emit("\"copy\": \"plain to managed on host beside pinned to plain\", \"out_gbps\": %.1f, "
         "\"in_gbps\": %.1f",
         gbps(BYTES, out), gbps(BYTES, now_us() - first));
}

/* Prefetches in one direction, pinned copies in the other. */
void m_mixed(void)
{
    CUstream a = stream_new(), b = stream_new();
    CUdeviceptr managed = resident(BYTES, a), plain = device_alloc(BYTES);
    CUdeviceptr pinned = (CUdeviceptr)(uintptr_t)pinned_alloc(BYTES);
    memset((void *)(uintptr_t)pinned, 1, BYTES);
    for (int i = 0; i < 2; i++)
        for (int out = 1; out >= 0; out--) { /* the prefetch's direction */
            double first = now_us();
            for (int k = 0; k < 4; k++)
                T(cu.cuMemcpyAsync(out ? plain : pinned, out ? pinned : plain, BYTES, b));
            struct timing t = prefetch(managed, BYTES, out ? ON_HOST : ON_DEVICE, a);
            T(cu.cuStreamSynchronize(b));
            emit("\"prefetch_to_host\": %d, \"beside\": \"4 pinned copies the other way\", "
                 "\"prefetch_gbps\": %.1f, \"copies_gbps\": %.1f",
                 out, gbps(BYTES, t.all_us), gbps(4 * BYTES, now_us() - first));
        }
    for (int i = 0; i < 2; i++)
        for (int out = 1; out >= 0; out--) { /* copies the same way */
            double first = now_us();
            for (int k = 0; k < 4; k++)
                T(cu.cuMemcpyAsync(out ? pinned : plain, out ? plain : pinned, BYTES, b));
            struct timing t = prefetch(managed, BYTES, out ? ON_HOST : ON_DEVICE, a);
            T(cu.cuStreamSynchronize(b));
            emit("\"prefetch_to_host\": %d, \"beside\": \"4 pinned copies the same way\", "
                 "\"prefetch_gbps\": %.1f, \"copies_gbps\": %.1f",
                 out, gbps(BYTES, t.all_us), gbps(4 * BYTES, now_us() - first));
        }
}
