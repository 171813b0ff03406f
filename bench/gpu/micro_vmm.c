/* Virtual memory management: costs, mappings of host memory, flips beside kernels; allocations. */
#include "micro.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

CUmemAllocationProp prop_of(CUmemLocationType type)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = type;
    return prop;
}

static const char *type_name(CUmemLocationType type)
{
    return type == CU_MEM_LOCATION_TYPE_DEVICE      ? "device"
           : type == CU_MEM_LOCATION_TYPE_HOST      ? "host"
           : type == CU_MEM_LOCATION_TYPE_HOST_NUMA ? "host numa"
                                                    : "host numa current";
}

CUresult set_access(CUdeviceptr base, size_t bytes, bool with_host)
{
    CUmemAccessDesc access[2] = {{ON_DEVICE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                 {ON_HOST, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    return cu.cuMemSetAccess(base, bytes, access, with_host ? 2 : 1);
}

CUdeviceptr reserve(size_t bytes)
{
    CUdeviceptr base;
    T(cu.cuMemAddressReserve(&base, bytes, 0, 0, 0));
    return base;
}

static const CUmemLocationType types[] = {CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_HOST,
                                          CU_MEM_LOCATION_TYPE_HOST_NUMA,
                                          CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT};

/* create, map, set access, unmap and release: the first time of each, and the median. */
static void costs(CUmemLocationType type, size_t bytes)
{
    enum { ROUNDS = 8 };
    double us[6][ROUNDS];
    CUmemAllocationProp prop = prop_of(type);
    CUdeviceptr base = reserve(bytes);
    int rounds = bytes > 64 * MIB ? 4 : ROUNDS;
    CUresult with_host = CUDA_SUCCESS;
    for (int i = 0; i < rounds; i++) {
        CUmemGenericAllocationHandle handle;
        double t[7];
        t[0] = now_us();
        CUresult r = cu.cuMemCreate(&handle, bytes, &prop, 0);
        t[1] = now_us();
        if (r != CUDA_SUCCESS) {
            emit("\"type\": \"%s\", \"mib\": %zu, \"create\": \"%s\"", type_name(type), bytes >> 20,
                 error_text(r));
            return;
        }
        T(cu.cuMemMap(base, bytes, 0, handle, 0));
        t[2] = now_us();
        CUresult access = set_access(base, bytes, false);
        t[3] = now_us();
        if (access != CUDA_SUCCESS) {
            emit("\"type\": \"%s\", \"mib\": %zu, \"set_access\": \"%s\"", type_name(type),
                 bytes >> 20, error_text(access));
            return;
        }
        with_host = set_access(base, bytes, true);
        t[4] = now_us();
        T(cu.cuMemUnmap(base, bytes));
        t[5] = now_us();
        T(cu.cuMemRelease(handle));
        t[6] = now_us();
        for (int k = 0; k < 6; k++)
            us[k][i] = t[k + 1] - t[k];
    }
    double first = us[0][0];
    emit("\"type\": \"%s\", \"mib\": %zu, \"first_create_us\": %.0f, \"create_us\": %.1f, "
         "\"map_us\": %.1f, \"access_us\": %.1f, \"host_access\": \"%s\", \"host_access_us\": "
         "%.1f, \"unmap_us\": %.1f, \"release_us\": %.1f",
         type_name(type), bytes >> 20, first, median_of(us[0], rounds), median_of(us[1], rounds),
         median_of(us[2], rounds), error_text(with_host), median_of(us[3], rounds),
         median_of(us[4], rounds), median_of(us[5], rounds));
    T(cu.cuMemAddressFree(base, bytes));
}

/* Sixteen handles of 2 MiB: one call of set access for all against one for each. */
static void batch_access(void)
{
    CUmemAllocationProp prop = prop_of(CU_MEM_LOCATION_TYPE_DEVICE);
    CUmemGenericAllocationHandle handles[16];
    CUdeviceptr base = reserve(32 * MIB);
    for (int i = 0; i < 16; i++)
        T(cu.cuMemCreate(&handles[i], 2 * MIB, &prop, 0));
    for (int each = 0; each < 4; each++) {
        double a = now_us();
        for (size_t i = 0; i < 16; i++)
            T(cu.cuMemMap(base + i * 2 * MIB, 2 * MIB, 0, handles[i], 0));
        double b = now_us();
        for (size_t i = 0; i < 16 && each % 2; i++)
            T(set_access(base + i * 2 * MIB, 2 * MIB, false));
        if (each % 2 == 0)
            T(set_access(base, 32 * MIB, false));
        double c = now_us();
        T(cu.cuMemUnmap(base, 32 * MIB));
        emit("\"handles\": 16, \"one_call\": %d, \"map_us\": %.1f, \"access_us\": %.1f, "
             "\"unmap_us\": %.1f",
             each % 2 == 0, b - a, c - b, now_us() - c);
    }
}

void m_vmm_costs(void)
{
    if (!cu.cuMemCreate)
        return;
    for (unsigned i = 0; i < sizeof types / sizeof *types; i++) {
        CUmemAllocationProp prop = prop_of(types[i]);
        size_t least = 0, better = 0;
        CUresult r = cu.cuMemGetAllocationGranularity(&least, &prop, 0);
        if (r == CUDA_SUCCESS)
            r = cu.cuMemGetAllocationGranularity(&better, &prop, 1);
        emit("\"type\": \"%s\", \"granularity\": \"%s\", \"least_kib\": %zu, \"better_kib\": %zu",
             type_name(types[i]), error_text(r), least >> 10, better >> 10);
        costs(types[i], 2 * MIB);
        costs(types[i], 32 * MIB);
        costs(types[i], 256 * MIB);
    }
    batch_access();
}

CUdeviceptr host_backed(size_t bytes, bool *by_host, const char **name)
{
    for (unsigned i = 1; i < sizeof types / sizeof *types; i++) {
        CUmemAllocationProp prop = prop_of(types[i]);
        CUmemGenericAllocationHandle handle;
        if (cu.cuMemCreate(&handle, bytes, &prop, 0) != CUDA_SUCCESS)
            continue;
        CUdeviceptr base = reserve(bytes);
        T(cu.cuMemMap(base, bytes, 0, handle, 0));
        *by_host = set_access(base, bytes, true) == CUDA_SUCCESS;
        *name = type_name(types[i]);
        if (*by_host || set_access(base, bytes, false) == CUDA_SUCCESS)
            return base;
    }
    return 0;
}

static void copies(const char *name, CUdeviceptr a, CUdeviceptr b, size_t bytes, CUstream s)
{
    double us[4], call[4];
    for (int i = 0; i < 4; i++) {
        struct timing t = copy(a, b, bytes, s);
        us[i] = t.all_us, call[i] = t.call_us;
    }
    double first = us[0];
    emit("\"copy\": \"%s\", \"mib\": %zu, \"first_gbps\": %.1f, \"gbps\": %.1f, \"call_us\": %.1f",
         name, bytes >> 20, gbps(bytes, first), gbps(bytes, median_of(us, 4)), median_of(call, 4));
}

static void both_ways(const char *name, CUdeviceptr host_a, CUdeviceptr host_b, CUdeviceptr device,
                      CUstream s, CUstream t)
{
    double first = now_us(), out = 0, in = 0;
    for (size_t at = 0; at < 256 * MIB; at += 32 * MIB) {
        T(cu.cuMemcpyAsync(host_a + at, device + at, 32 * MIB, s));
        T(cu.cuMemcpyAsync(device + 256 * MIB + at, host_b + at, 32 * MIB, t));
    }
    while (out == 0 || in == 0) {
        if (out == 0 && cu.cuStreamQuery(s) == CUDA_SUCCESS)
            out = now_us() - first;
        if (in == 0 && cu.cuStreamQuery(t) == CUDA_SUCCESS)
            in = now_us() - first;
    }
    emit("\"both_ways\": \"%s\", \"out_gbps\": %.1f, \"in_gbps\": %.1f", name, gbps(256 * MIB, out),
         gbps(256 * MIB, in));
}

void m_vmm_host(void)
{
    bool by_host = false;
    const char *name = "none";
    size_t bytes = 256 * MIB;
    double first = now_us();
    CUdeviceptr host = host_backed(2 * bytes, &by_host, &name);
    emit("\"host_backed\": \"%s\", \"host_access\": %d, \"us_512_mib\": %.0f", name, by_host,
         now_us() - first);
    if (!host)
        return;
    CUstream s = stream_new(), t = stream_new();
    CUdeviceptr device = device_alloc(2 * bytes);
    CUdeviceptr pinned = (CUdeviceptr)(uintptr_t)pinned_alloc(2 * bytes);
    copies("device to host-backed", host, device, bytes, s);
    copies("host-backed to device", device, host, bytes, s);
    copies("device to host-backed", host, device, 2 * MIB, s);
    copies("host-backed to device", device, host, 2 * MIB, s);
    copies("device to pinned", pinned, device, bytes, s);
    copies("pinned to device", device, pinned, bytes, s);
    for (int i = 0; i < 2; i++) {
        both_ways("host-backed", host, host + bytes, device, s, t);
        both_ways("pinned", pinned, pinned + bytes, device, s, t);
    }
    for (int i = 0; i < 2; i++) {
        double r = kernel_gbps(k_read, device, host, bytes, bytes, s);
        double w = kernel_gbps(k_fill, host, 0x01010101, bytes, bytes, s);
        double g = kernel_gbps(k_gather, device, host, bytes, (size_t)2112 * 256 * 256 * 4, s);
        double p = kernel_gbps(k_read, device, pinned, bytes, bytes, s);
        double q = kernel_gbps(k_fill, pinned, 0x01010101, bytes, bytes, s);
        emit("\"kernel_on\": \"host-backed\", \"read_gbps\": %.1f, \"write_gbps\": %.1f, "
             "\"gather_gbps\": %.2f, \"pinned_read_gbps\": %.1f, \"pinned_write_gbps\": %.1f",
             r, w, g, p, q);
    }
    if (by_host) {
        uint64_t sum = 0;
        double begin = now_us();
        for (size_t at = 0; at < bytes; at += 8)
            sum += *(volatile uint64_t *)(uintptr_t)(host + at);
        emit("\"host_reads\": \"host-backed\", \"gbps\": %.1f, \"right\": %d",
             gbps(bytes, now_us() - begin), sum == 0x0101010101010101u * (bytes / 8));
    }
}

/* Away and back: unmap device, map host, set access; and the other way. */
static void flip(const char *name, CUdeviceptr base, size_t bytes,
                 const CUmemGenericAllocationHandle *handles, int rounds, CUstream busy)
{
    double us[3][32], whole[32];
    for (int i = 0; i < rounds; i++) {
        double a = now_us();
        T(cu.cuMemUnmap(base, bytes));
        double b = now_us();
        T(cu.cuMemMap(base, bytes, 0, handles[i % 2 == 0], 0));
        double c = now_us();
        T(set_access(base, bytes, false));
        double d = now_us();
        us[0][i] = b - a, us[1][i] = c - b, us[2][i] = d - c, whole[i] = d - a;
    }
    bool is_busy = cu.cuStreamQuery(busy) == CUDA_ERROR_NOT_READY;
    emit("\"flip\": \"%s\", \"mib\": %zu, \"still_busy\": %d, \"unmap_us\": %.1f, \"map_us\": "
         "%.1f, \"access_us\": %.1f, \"whole_us\": %.1f",
         name, bytes >> 20, is_busy, median_of(us[0], rounds), median_of(us[1], rounds),
         median_of(us[2], rounds), median_of(whole, rounds));
}

static void flips(size_t bytes, CUmemLocationType away, CUdeviceptr plain)
{
    CUmemGenericAllocationHandle handles[2];
    CUmemAllocationProp device = prop_of(CU_MEM_LOCATION_TYPE_DEVICE), host = prop_of(away);
    CUstream busy = stream_new();
    T(cu.cuMemCreate(&handles[0], bytes, &device, 0));
    if (cu.cuMemCreate(&handles[1], bytes, &host, 0) != CUDA_SUCCESS)
        return;
    CUdeviceptr base = reserve(bytes);
    T(cu.cuMemMap(base, bytes, 0, handles[0], 0));
    T(set_access(base, bytes, false));
    flip("idle", base, bytes, handles, 16, busy);
    launch(k_spin, 1, busy, 300000000, 0, 0);
    flip("beside a spin", base, bytes, handles, 16, busy);
    T(cu.cuStreamSynchronize(busy));
    /* Copies within other memory, with and without flips. */
    for (int with = 0; with < 2; with++) {
        CUevent first = event_new(), last = event_new();
        float ms = 0;
        T(cu.cuEventRecord(first, busy));
        for (int i = 0; i < 200; i++)
            launch(k_copy, 2112, busy, plain, plain + 256 * MIB, 256 * MIB);
        T(cu.cuEventRecord(last, busy));
        if (with)
            flip("beside copies", base, bytes, handles, 16, busy);
        T(cu.cuStreamSynchronize(busy));
        T(cu.cuEventElapsedTime(&ms, first, last));
        emit("\"copies_beside_flips\": %d, \"mib\": %zu, \"gbps\": %.0f", with, bytes >> 20,
             gbps(200 * 512 * MIB, (double)ms * 1e3));
    }
}

void m_vmm_busy(void)
{
    if (!cu.cuMemCreate)
        return;
    CUdeviceptr plain = device_alloc(512 * MIB);
    CUmemLocationType away = CU_MEM_LOCATION_TYPE_INVALID;
    for (unsigned i = 1; i < sizeof types / sizeof *types && away == 0; i++) {
        CUmemAllocationProp prop = prop_of(types[i]);
        CUmemGenericAllocationHandle handle;
        if (cu.cuMemCreate(&handle, 2 * MIB, &prop, 0) == CUDA_SUCCESS)
            away = types[i];
    }
    emit("\"away\": \"%s\"", away ? type_name(away) : "device");
    if (away == CU_MEM_LOCATION_TYPE_INVALID)
        away = CU_MEM_LOCATION_TYPE_DEVICE;
    flips(2 * MIB, away, plain);
    flips(32 * MIB, away, plain);
    flips(256 * MIB, away, plain);
}

void m_pinned(void)
{
    static const size_t sizes[] = {2 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        double a = now_us();
        void *memory = pinned_alloc(sizes[i]);
        double b = now_us();
        T(cu.cuMemFreeHost(memory));
        double c = now_us();
        emit("\"pinned_mib\": %zu, \"alloc_us\": %.0f, \"free_us\": %.0f, \"alloc_ms_per_gib\": "
             "%.0f",
             sizes[i] >> 20, b - a, c - b, (b - a) / 1e3 * (double)GIB / (double)sizes[i]);
        void *mapped =
            mmap(NULL, sizes[i], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped == MAP_FAILED || !cu.cuMemHostRegister_v2)
            continue;
        a = now_us();
        memset(mapped, 1, sizes[i]);
        b = now_us();
        CUresult r = cu.cuMemHostRegister_v2(mapped, sizes[i], 0);
        c = now_us();
        if (r == CUDA_SUCCESS)
            T(cu.cuMemHostUnregister(mapped));
        emit("\"registered_mib\": %zu, \"touch_us\": %.0f, \"register_us\": %.0f, \"result\": "
             "\"%s\", \"unregister_us\": %.0f",
             sizes[i] >> 20, b - a, c - b, error_text(r), now_us() - c);
        munmap(mapped, sizes[i]);
    }
}

static void alloc_row(const char *name, size_t bytes, CUstream s, int kind)
{
    double alloc[16], release[16];
    for (int i = 0; i < 16; i++) {
        CUdeviceptr p;
        double a = now_us();
        T(kind == 0   ? cu.cuMemAlloc_v2(&p, bytes)
          : kind == 1 ? cu.cuMemAllocAsync(&p, bytes, s)
                      : cu.cuMemAllocManaged(&p, bytes, CU_MEM_ATTACH_GLOBAL));
        double b = now_us();
        T(kind == 1 ? cu.cuMemFreeAsync(p, s) : cu.cuMemFree_v2(p));
        release[i] = now_us() - b;
        alloc[i] = b - a;
    }
    struct spread x = spread_of(alloc, 16), y = spread_of(release, 16);
    emit("\"alloc\": \"%s\", \"kib\": %zu, \"us\": %.1f, \"most_us\": %.1f, \"free_us\": %.1f, "
         "\"free_most_us\": %.1f",
         name, bytes >> 10, x.median, x.most, y.median, y.most);
}

void m_allocs(void)
{
    static const size_t sizes[] = {4096, 2 * MIB, 32 * MIB, 256 * MIB};
    CUstream s = stream_new();
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        alloc_row("cuMemAlloc", sizes[i], s, 0);
        if (cu.cuMemAllocAsync)
            alloc_row("cuMemAllocAsync", sizes[i], s, 1);
        alloc_row("cuMemAllocManaged, untouched", sizes[i], s, 2);
    }
    alloc_row("cuMemAllocManaged, untouched", 4 * GIB, s, 2);
}
