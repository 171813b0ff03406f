/* Managed memory: prefetches, advice, discards, remote access, faults, kernels. */
#include "micro.h"

#include <string.h>

static void advise(CUdeviceptr base, size_t bytes, CUmem_advise advice, CUmemLocation where)
{
    T(cu.cuMemAdvise_v2(base, bytes, advice, where));
}

/* 0: none. 1: preferred location follows the pages; accessed-by while they are on the host. */
static double advise_before(int variant, CUdeviceptr base, size_t bytes, bool to_device)
{
    if (variant == 0)
        return 0;
    double first = now_us();
    advise(base, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, to_device ? ON_DEVICE : ON_HOST);
    if (!to_device)
        advise(base, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, ON_DEVICE);
    return now_us() - first;
}

/* In, out, in, out, ... of a range that nothing has touched; the n-th time of each is its own. */
static void cycle(CUdeviceptr base, size_t bytes, int variant, CUstream stream)
{
    enum { ROUNDS = 4 };
    double in[ROUNDS], out[ROUNDS], in_call[ROUNDS], out_call[ROUNDS], advice[2] = {0, 0};
    for (int i = 0; i < ROUNDS; i++) {
        double cost = advise_before(variant, base, bytes, true);
        struct timing t = prefetch(base, bytes, ON_DEVICE, stream);
        in[i] = t.all_us;
        in_call[i] = t.call_us;
        if (i == 0) /* contents that must move */
            launch(k_fill, 2112, stream, base, 7, bytes);
        T(cu.cuStreamSynchronize(stream));
        double back = advise_before(variant, base, bytes, false);
        t = prefetch(base, bytes, ON_HOST, stream);
        out[i] = t.all_us;
        out_call[i] = t.call_us;
        advice[0] = cost;
        advice[1] = back;
    }
    emit("\"mib\": %zu, \"advice\": %d, \"in_us\": [%.0f, %.0f, %.0f, %.0f], \"out_us\": [%.0f, "
         "%.0f, %.0f, %.0f], \"in_call_us\": [%.0f, %.0f, %.0f], \"out_call_us\": [%.0f, %.0f, "
         "%.0f], \"advice_us\": [%.1f, %.1f], \"in_gbps\": [%.1f, %.1f], \"out_gbps\": [%.1f, "
         "%.1f]",
         bytes >> 20, variant, in[0], in[1], in[2], in[3], out[0], out[1], out[2], out[3],
         in_call[0], in_call[1], in_call[3], out_call[0], out_call[1], out_call[3], advice[0],
         advice[1], gbps(bytes, in[0]), gbps(bytes, in[3]), gbps(bytes, out[0]),
         gbps(bytes, out[3]));
}

void m_prefetch(void)
{
    static const size_t sizes[] = {2 * MIB, 8 * MIB, 32 * MIB, 128 * MIB, 512 * MIB, 1024 * MIB};
    CUstream stream = stream_new();
    for (int variant = 0; variant < 2; variant++) {
        CUdeviceptr base = managed_alloc(2 * GIB);
        size_t at = 0;
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            if (sizes[i] <= 32 * MIB) { /* a second, because the first pays for the stream */
                cycle(base + at, sizes[i], variant, stream);
                at += sizes[i];
            }
            cycle(base + at, sizes[i], variant, stream);
            at += sizes[i];
        }
        T(cu.cuMemFree_v2(base));
    }
}

static double spin_beside(CUstream work, double ms)
{
    launch(k_spin, 1, work, (uint64_t)(ms * 1e6), 0, 0);
    return now_us();
}

/* Copies within plain memory until `until` is queued; the rate of the last ones. */
static double copy_rate_beside(CUstream work, CUdeviceptr plain, size_t bytes, int count,
                               CUdeviceptr moved, CUmemLocation to, CUstream lane, struct timing *t)
{
    CUevent first = event_new(), last = event_new();
    float ms = 0;
    T(cu.cuEventRecord(first, work));
    for (int i = 0; i < count; i++)
        launch(k_copy, 2112, work, plain, plain + bytes, bytes);
    T(cu.cuEventRecord(last, work));
    if (moved)
        *t = prefetch(moved, 512 * MIB, to, lane);
    T(cu.cuStreamSynchronize(work));
    T(cu.cuEventElapsedTime(&ms, first, last));
    return gbps(2 * bytes * (size_t)count, (double)ms * 1e3);
}

/* Beside a kernel that computes, beside one that uses the memory, and from that one's side. */
void m_prefetch_busy(void)
{
    CUstream work = stream_new(), lane = stream_new();
    CUdeviceptr base = managed_alloc(512 * MIB), plain = device_alloc(512 * MIB);
    for (int i = 0; i < 2; i++) {
        prefetch(base, 512 * MIB, ON_DEVICE, lane);
        launch(k_fill, 2112, lane, base, 7, 512 * MIB);
        prefetch(base, 512 * MIB, ON_HOST, lane);
    }
    for (int to_device = 1; to_device >= 0; to_device--) {
        double first = spin_beside(work, 200);
        struct timing t = prefetch(base, 512 * MIB, to_device ? ON_DEVICE : ON_HOST, lane);
        T(cu.cuStreamSynchronize(work));
        emit("\"beside\": \"spin of 200 ms\", \"to_device\": %d, \"call_us\": %.0f, \"us\": %.0f, "
             "\"gbps\": %.1f, \"spin_us\": %.0f",
             to_device, t.call_us, t.all_us, gbps(512 * MIB, t.all_us), now_us() - first);
    }
    struct timing t = {0, 0};
    double alone = copy_rate_beside(work, plain, 256 * MIB, 200, 0, ON_HOST, lane, &t);
    for (int to_device = 1; to_device >= 0; to_device--) {
        double rate = copy_rate_beside(work, plain, 256 * MIB, to_device ? 100 : 250, base,
                                       to_device ? ON_DEVICE : ON_HOST, lane, &t);
        emit("\"beside\": \"copies\", \"to_device\": %d, \"call_us\": %.0f, \"us\": %.0f, "
             "\"gbps\": %.1f, \"copies_gbps\": %.0f, \"copies_alone_gbps\": %.0f",
             to_device, t.call_us, t.all_us, gbps(512 * MIB, t.all_us), rate, alone);
    }
    /* How long does the lane hold other calls of the driver from another thread? One thread here
     * can only say what a launch costs directly after the call. */
    double launches[64];
    prefetch(base, 512 * MIB, ON_DEVICE, lane);
    for (int i = 0; i < 64; i++) {
        double first = now_us();
        launch(k_empty, 1, work, 0, 0, 0);
        launches[i] = now_us() - first;
    }
    T(cu.cuStreamSynchronize(work));
    emit("\"launch_us\": %.2f", median_of(launches, 64));
}

/* A kernel on pages that are on the host. Do they stay there? */
static void remote(const char *name, bool prefer_host, bool accessed_by, bool prefer_device)
{
    size_t bytes = 256 * MIB;
    CUstream stream = stream_new();
    CUdeviceptr base = managed_alloc(bytes), plain = device_alloc(bytes);
    memset((void *)(uintptr_t)base, 1, bytes);
    if (prefer_host)
        advise(base, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, ON_HOST);
    if (prefer_device)
        advise(base, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, ON_DEVICE);
    if (accessed_by)
        advise(base, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, ON_DEVICE);
    size_t before = free_mib();
    double r[5], w[5];
    for (int i = 0; i < 5; i++)
        r[i] = kernel_gbps(k_read, plain, base, bytes, bytes, stream);
    size_t after_read = free_mib();
    for (int i = 0; i < 5; i++)
        w[i] = kernel_gbps(k_fill, base, 5, bytes, bytes, stream);
    size_t after_write = free_mib();
    double g = kernel_gbps(k_gather, plain, base, bytes, (size_t)2112 * 256 * 256 * 4, stream);
    emit("\"case\": \"%s\", \"read_gbps\": [%.1f, %.1f, %.1f, %.1f], \"write_gbps\": [%.1f, %.1f, "
         "%.1f], \"gather_gbps\": %.2f, \"device_mib_after_read\": %ld, \"after_write\": %ld",
         name, r[0], r[1], r[2], r[4], w[0], w[1], w[4], g, (long)(before - after_read),
         (long)(before - after_write));
    struct timing in = copy(plain, base, bytes, stream), back = copy(base, plain, bytes, stream);
    emit("\"case\": \"%s\", \"copy_to_plain_gbps\": %.1f, \"copy_from_plain_gbps\": %.1f, "
         "\"device_mib_after\": %ld",
         name, gbps(bytes, in.all_us), gbps(bytes, back.all_us), (long)(before - free_mib()));
    T(cu.cuMemFree_v2(base));
    T(cu.cuMemFree_v2(plain));
}

void m_remote(void)
{
    remote("prefer host, accessed by device", true, true, false);
    remote("prefer host", true, false, false);
    remote("accessed by device", false, true, false);
    remote("prefer device", false, false, true);
    remote("no advice", false, false, false);
}

/* What one fault costs: one thread, one word in each of some blocks of 2 MiB. */
void m_faults(void)
{
    CUstream stream = stream_new();
    size_t bytes = 256 * MIB;
    CUdeviceptr base = managed_alloc(bytes), plain = device_alloc(64 * MIB);
    memset((void *)(uintptr_t)base, 1, bytes);
    double plain_us[32], fault[32], far[32], wide[32];
    for (int i = 0; i < 32; i++) {
        double first = now_us();
        launch(k_read, 1, stream, plain, plain + 4096, 16);
        T(cu.cuStreamSynchronize(stream));
        plain_us[i] = now_us() - first;
        first = now_us();
        launch(k_read, 1, stream, plain, base + (size_t)i * 2 * MIB, 16);
        T(cu.cuStreamSynchronize(stream));
        fault[i] = now_us() - first;
    }
    for (int i = 0; i < 32; i++) {
        double first = now_us();
        launch(k_read, 2112, stream, plain, base + 64 * MIB + (size_t)i * 2 * MIB, 2 * MIB);
        T(cu.cuStreamSynchronize(stream));
        wide[i] = now_us() - first;
    }
    CUdeviceptr away = base + 128 * MIB;
    advise(away, 64 * MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, ON_HOST);
    advise(away, 64 * MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, ON_DEVICE);
    for (int i = 0; i < 32; i++) {
        double first = now_us();
        launch(k_read, 1, stream, plain, away + (size_t)i * 2 * MIB, 16);
        T(cu.cuStreamSynchronize(stream));
        far[i] = now_us() - first;
    }
    struct spread a = spread_of(plain_us, 32), b = spread_of(fault, 32), c = spread_of(far, 32),
                  d = spread_of(wide, 32);
    emit("\"launch_and_wait_us\": %.1f, \"with_fault_us\": [%.1f, %.1f], \"remote_us\": [%.1f, "
         "%.1f], \"whole_2_mib_faults_us\": [%.1f, %.1f]",
         a.median, b.median, b.most, c.median, c.most, d.median, d.most);
}

static void discard_case(const char *name, CUdeviceptr base, size_t bytes, size_t pieces,
                         CUresult (*call)(CUdeviceptr, size_t, size_t, CUmemLocation, CUstream),
                         CUmemLocation to, CUstream stream)
{
    size_t before = free_mib();
    double first = now_us();
    CUresult r = call(base, bytes, pieces, to, stream);
    double called = now_us();
    CUresult s = cu.cuStreamSynchronize(stream);
    double last = now_us();
    emit("\"case\": \"%s\", \"mib\": %zu, \"pieces\": %zu, \"result\": \"%s\", \"sync\": \"%s\", "
         "\"call_us\": %.1f, \"us\": %.1f, \"gbps\": %.1f, \"device_mib\": %ld",
         name, bytes >> 20, pieces, error_text(r), error_text(s), called - first, last - first,
         gbps(bytes, last - first), (long)before - (long)free_mib());
}

#define MOST_PIECES 64

static void split(CUdeviceptr base, size_t bytes, size_t pieces, CUdeviceptr *bases, size_t *sizes)
{
    for (size_t i = 0; i < pieces; i++) {
        bases[i] = base + i * (bytes / pieces);
        sizes[i] = bytes / pieces;
    }
}

static CUresult call_discard(CUdeviceptr base, size_t bytes, size_t pieces, CUmemLocation to,
                             CUstream stream)
{
    CUdeviceptr bases[MOST_PIECES];
    size_t sizes[MOST_PIECES];
    (void)to;
    split(base, bytes, pieces, bases, sizes);
    return cu.cuMemDiscardBatchAsync(bases, sizes, pieces, 0, stream);
}

static CUresult call_both(CUdeviceptr base, size_t bytes, size_t pieces, CUmemLocation to,
                          CUstream stream)
{
    CUdeviceptr bases[MOST_PIECES];
    size_t sizes[MOST_PIECES], first = 0;
    split(base, bytes, pieces, bases, sizes);
    return cu.cuMemDiscardAndPrefetchBatchAsync(bases, sizes, pieces, &to, &first, 1, 0, stream);
}

static CUresult call_prefetch(CUdeviceptr base, size_t bytes, size_t pieces, CUmemLocation to,
                              CUstream stream)
{
    CUdeviceptr bases[MOST_PIECES];
    size_t sizes[MOST_PIECES], first = 0;
    if (pieces == 1)
        return cu.cuMemPrefetchAsync_v2(base, bytes, to, 0, stream);
    split(base, bytes, pieces, bases, sizes);
    return cu.cuMemPrefetchBatchAsync(bases, sizes, pieces, &to, &first, 1, 0, stream);
}

static void discard_round(CUdeviceptr base, size_t bytes, size_t pieces, bool advice,
                          CUstream stream)
{
    const struct step {
        const char *name;
        CUresult (*call)(CUdeviceptr, size_t, size_t, CUmemLocation, CUstream);
        bool to_device, fill;
    } steps[] = {
        {"populate untouched: prefetch to device", call_prefetch, true, true},
        {"discard on device", call_discard, true, false},
        {"prefetch to host of discarded", call_prefetch, false, false},
        {"prefetch to device of discarded", call_prefetch, true, true},
        {"prefetch to host", call_prefetch, false, false},
        {"discard and prefetch to device, of host pages", call_both, true, true},
        {"discard and prefetch to host, of device pages", call_both, false, false},
        {"discard and prefetch to device, of discarded", call_both, true, true},
        {"discard and prefetch to device, of device pages", call_both, true, true},
        {"prefetch to host", call_prefetch, false, false},
        {"discard on host", call_discard, false, false},
        {"prefetch to device of discarded on host", call_prefetch, true, true},
    };
    for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++) {
        const struct step *step = &steps[i];
        CUmemLocation to = step->to_device ? ON_DEVICE : ON_HOST;
        if (advice)
            advise(base, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, to);
        discard_case(step->name, base, bytes, pieces, step->call, to, stream);
        if (step->fill)
            launch(k_fill, 2112, stream, base, 7, bytes);
        T(cu.cuStreamSynchronize(stream));
    }
}

void m_discard(void)
{
    if (!cu.cuMemDiscardBatchAsync || !cu.cuMemDiscardAndPrefetchBatchAsync) {
        emit("\"error\": \"no discard in this driver\"");
        return;
    }
    CUstream stream = stream_new();
    prefetch(managed_alloc(2 * MIB), 2 * MIB, ON_DEVICE, stream); /* the first one pays */
    discard_round(managed_alloc(2 * MIB), 2 * MIB, 1, false, stream);
    discard_round(managed_alloc(32 * MIB), 32 * MIB, 1, false, stream);
    discard_round(managed_alloc(32 * MIB), 32 * MIB, 1, true, stream);
    discard_round(managed_alloc(512 * MIB), 512 * MIB, 1, true, stream);
    discard_round(managed_alloc(512 * MIB), 512 * MIB, 16, true, stream);
    /* Does discard wait for work in its stream, and for none in others? */
    CUstream other = stream_new();
    CUdeviceptr base = managed_alloc(32 * MIB);
    prefetch(base, 32 * MIB, ON_DEVICE, stream);
    launch(k_spin, 1, other, 50000000, 0, 0);
    discard_case("discard while another stream spins 50 ms", base, 32 * MIB, 1, call_discard,
                 ON_HOST, stream);
    discard_case("prefetch to host then", base, 32 * MIB, 1, call_prefetch, ON_HOST, stream);
    T(cu.cuStreamSynchronize(other));
    launch(k_spin, 1, stream, 50000000, 0, 0);
    discard_case("prefetch to device behind 50 ms of its stream", base, 32 * MIB, 1, call_prefetch,
                 ON_DEVICE, stream);
    launch(k_spin, 1, stream, 50000000, 0, 0);
    discard_case("prefetch to host behind 50 ms of its stream", base, 32 * MIB, 1, call_prefetch,
                 ON_HOST, stream);
}

/* The same kernels on plain, managed and mapped memory. */
static void kernels_on(const char *name, CUdeviceptr base, size_t bytes, CUstream stream)
{
    double c[9], r[9], w[9], g[9];
    CUdeviceptr sink = device_alloc(4096);
    for (int i = -1; i < 9; i++) {
        double x[4] = {
            kernel_gbps(k_copy, base, base + bytes, bytes, 2 * bytes, stream),
            kernel_gbps(k_read, sink, base, 2 * bytes, 2 * bytes, stream),
            kernel_gbps(k_fill, base, 3, 2 * bytes, 2 * bytes, stream),
            kernel_gbps(k_gather, sink, base, 2 * bytes, (size_t)2112 * 256 * 256 * 4, stream)};
        if (i >= 0)
            c[i] = x[0], r[i] = x[1], w[i] = x[2], g[i] = x[3];
    }
    emit("\"memory\": \"%s\", \"copy_gbps\": %.0f, \"read_gbps\": %.0f, \"write_gbps\": %.0f, "
         "\"gather_gbps\": %.1f",
         name, median_of(c, 9), median_of(r, 9), median_of(w, 9), median_of(g, 9));
}

void m_kernels(void)
{
    CUstream stream = stream_new();
    size_t bytes = 512 * MIB;
    kernels_on("plain", device_alloc(2 * bytes), bytes, stream);
    CUdeviceptr managed = managed_alloc(2 * bytes);
    prefetch(managed, 2 * bytes, ON_DEVICE, stream);
    kernels_on("managed, prefetched", managed, bytes, stream);
    advise(managed, 2 * bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, ON_DEVICE);
    kernels_on("managed, preferred", managed, bytes, stream);
    for (size_t at = 0; at < 2 * bytes; at += 2 * MIB) /* comes back in pieces */
        T(cu.cuMemPrefetchAsync_v2(managed + at, 2 * MIB, ON_HOST, 0, stream));
    for (size_t at = 0; at < 2 * bytes; at += 2 * MIB)
        T(cu.cuMemPrefetchAsync_v2(managed + at, 2 * MIB, ON_DEVICE, 0, stream));
    T(cu.cuStreamSynchronize(stream));
    kernels_on("managed, back in pieces of 2 MiB", managed, bytes, stream);
}
