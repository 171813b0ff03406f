/* Measures the two lanes of a machine with an NVIDIA GPU: copies from and to pinned host memory,
 * and prefetches of managed memory. Prints a table.
 *
 *     bench_gpu_lanes [-o FILE] [--machine FILE] [--name NAME]
 *
 * -o writes everything as JSON. --machine writes a machine file (docs/formats/machine.md) from the
 * pinned copies. Exits with 77 if there is no driver or no device.
 *
 * Each size is a median. `wall` is the time from the call to the end of the transfer, as the host
 * sees it. `device` is the time between two events around it, `call` the time until the call
 * returns. The fit bytes * ns_per_byte + fixed_ns is of `wall`; it minimises relative errors.
 *
 * Both lanes run at once in two ways. `busy`: one thread per lane transfers pieces, and only the
 * time during which both are busy counts. `turns`: one thread queues a piece for each lane in turn
 * and waits at the end.
 *
 * The driver is opened at run time, so that the program builds without CUDA. */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB ((size_t)1 << 20)
#define LEAST_BYTES ((size_t)4 << 10)
#define MOST_BYTES (256 * MIB)
#define MOST_SIZES 17
#define MOST_ROUNDS 41
#define BUSY_BYTES (512 * MIB)
#define PIECE_BYTES (32 * MIB)
#define PIECES (BUSY_BYTES / PIECE_BYTES)
#define DUPLEX_ROUNDS 6
#define SKIPPED 77

typedef unsigned long long address;

/* CUmemLocation. A type of 1 is a device, of 2 the host. */
struct location {
    int type, id;
};

/* The part of the driver interface that is used. The second name is the one in the library. */
#define DRIVER(X)                                                                                  \
    X(init, "cuInit", (unsigned))                                                                  \
    X(version, "cuDriverGetVersion", (int *))                                                      \
    X(error_name, "cuGetErrorName", (int, const char **))                                          \
    X(device_count, "cuDeviceGetCount", (int *))                                                   \
    X(device_name, "cuDeviceGetName", (char *, int, int))                                          \
    X(attribute, "cuDeviceGetAttribute", (int *, int, int))                                        \
    X(retain, "cuDevicePrimaryCtxRetain", (void **, int))                                          \
    X(set_context, "cuCtxSetCurrent", (void *))                                                    \
    X(memory_info, "cuMemGetInfo_v2", (size_t *, size_t *))                                        \
    X(alloc, "cuMemAlloc_v2", (address *, size_t))                                                 \
    X(alloc_host, "cuMemHostAlloc", (void **, size_t, unsigned))                                   \
    X(alloc_managed, "cuMemAllocManaged", (address *, size_t, unsigned))                           \
    X(free, "cuMemFree_v2", (address))                                                             \
    X(copy, "cuMemcpyAsync", (address, address, size_t, void *))                                   \
    X(prefetch_v1, "cuMemPrefetchAsync", (address, size_t, int, void *))                           \
    X(stream_create, "cuStreamCreate", (void **, unsigned))                                        \
    X(stream_wait, "cuStreamSynchronize", (void *))                                                \
    X(event_create, "cuEventCreate", (void **, unsigned))                                          \
    X(event_record, "cuEventRecord", (void *, void *))                                             \
    X(event_elapsed, "cuEventElapsedTime", (float *, void *, void *))                              \
    X(module_load, "cuModuleLoadData", (void **, const void *))                                    \
    X(function, "cuModuleGetFunction", (void **, void *, const char *))                            \
    X(launch, "cuLaunchKernel",                                                                    \
      (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,       \
       void **, void **))

#define MEMBER(name, symbol, parameters) int(*name) parameters;
static struct {
    DRIVER(MEMBER)
    int (*prefetch_v2)(address, size_t, struct location, unsigned, void *); /* NULL before 12.2 */
} cu;

/* Adds 1 to each 32-bit word of `bytes` bytes, so that every page is needed on the device. */
static const char touch_ptx[] =
    ".version 6.0\n.target sm_60\n.address_size 64\n"
    ".visible .entry touch(.param .u64 base, .param .u64 bytes)\n{\n"
    ".reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<8>;\n"
    "ld.param.u64 %rd1, [base]; ld.param.u64 %rd2, [bytes];\n"
    "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mov.u32 %r4, %nctaid.x;\n"
    "mad.lo.u32 %r5, %r1, %r2, %r3; mul.lo.u32 %r6, %r4, %r2;\n"
    "mul.wide.u32 %rd3, %r5, 4; mul.wide.u32 %rd4, %r6, 4;\n"
    "again: setp.ge.u64 %p1, %rd3, %rd2; @%p1 bra done;\n"
    "add.u64 %rd5, %rd1, %rd3; ld.global.u32 %r7, [%rd5]; add.u32 %r7, %r7, 1;\n"
    "st.global.u32 [%rd5], %r7; add.u64 %rd3, %rd3, %rd4; bra again;\n"
    "done: ret;\n}\n";

/* In the order of the JSON. IN and OUT are the planner's lanes: to the device and to the host. */
enum operation { COPY_IN, COPY_OUT, PREFETCH_IN, PREFETCH_OUT, OPERATIONS };

static const char *const operation_names[] = {"copy_in", "copy_out", "prefetch_in", "prefetch_out"};

struct sample {
    size_t bytes;
    double wall_ns, device_ns, call_ns;
};

struct lane {
    struct sample samples[MOST_SIZES];
    int size_count;
    double ns_per_byte, fixed_ns, worst_error; /* of the fit; the error is a share of the time */
    double alone_bps, busy_bps, turns_bps;
};

struct gpu {
    char name[96], driver[32];
    int version, major, minor, engines, concurrent_managed;
    size_t free_bytes, total_bytes;
    void *context;
};

struct report {
    struct gpu gpu;
    struct lane lanes[OPERATIONS];
    double fault_in_bps, fault_out_bps, kernel_bps; /* kernel: the same kernel without faults */
};

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void check(int result, const char *what)
{
    if (result == 0)
        return;
    const char *name = NULL;
    cu.error_name(result, &name);
    fprintf(stderr, "bench_gpu_lanes: %s: %s\n", what, name ? name : "unknown error");
    exit(1);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare_doubles);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static bool open_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        return false;
#define LOAD(name, symbol, parameters)                                                             \
    if (!(*(void **)&cu.name = dlsym(library, symbol)))                                            \
        return false;
    DRIVER(LOAD)
    *(void **)&cu.prefetch_v2 = dlsym(library, "cuMemPrefetchAsync_v2");
    int count = 0;
    return cu.init(0) == 0 && cu.device_count(&count) == 0 && count > 0;
}

static void describe(struct gpu *gpu)
{
    check(cu.device_name(gpu->name, sizeof gpu->name, 0), "cuDeviceGetName");
    check(cu.version(&gpu->version), "cuDriverGetVersion");
    check(cu.attribute(&gpu->major, 75, 0), "compute capability");
    check(cu.attribute(&gpu->minor, 76, 0), "compute capability");
    check(cu.attribute(&gpu->engines, 40, 0), "copy engines");
    check(cu.attribute(&gpu->concurrent_managed, 89, 0), "concurrent managed access");
    check(cu.retain(&gpu->context, 0), "cuDevicePrimaryCtxRetain");
    check(cu.set_context(gpu->context), "cuCtxSetCurrent");
    check(cu.memory_info(&gpu->free_bytes, &gpu->total_bytes), "cuMemGetInfo");
    FILE *file = fopen("/proc/driver/nvidia/version", "r");
    char word[sizeof gpu->driver];
    while (file && !gpu->driver[0] && fscanf(file, "%31s", word) == 1)
        if (strspn(word, "0123456789.") == strlen(word)) /* the first word that is a version */
            strcpy(gpu->driver, word);
    if (file)
        fclose(file);
}

/* Starts one transfer between `host` and `device`; a prefetch moves `device`, which is managed. */
static void submit(enum operation operation, address device, address host, size_t bytes,
                   void *stream)
{
    bool in = operation == COPY_IN || operation == PREFETCH_IN;
    if (operation == COPY_IN)
        check(cu.copy(device, host, bytes, stream), "copy to the device");
    else if (operation == COPY_OUT)
        check(cu.copy(host, device, bytes, stream), "copy to the host");
    else if (cu.prefetch_v2)
        check(cu.prefetch_v2(device, bytes, (struct location){in ? 1 : 2, 0}, 0, stream),
              "cuMemPrefetchAsync_v2");
    else
        check(cu.prefetch_v1(device, bytes, in ? 0 : -1, stream), "cuMemPrefetchAsync");
}

/* Times one transfer by the host's clock and by events around it. */
static struct sample transfer(enum operation operation, address device, address host, size_t bytes,
                              void *stream, void *const *events)
{
    double first = now_ns();
    submit(operation, device, host, bytes, stream);
    double called = now_ns();
    check(cu.stream_wait(stream), "transfer");
    double last = now_ns();
    struct sample sample = {bytes, last - first, 0, called - first};
    if (!events)
        return sample;
    /* The events get a transfer of their own, because they would add to the host's time. A prefetch
     * has none: its second one would have nothing left to move. */
    float ms = 0;
    check(cu.event_record(events[0], stream), "event");
    submit(operation, device, host, bytes, stream);
    check(cu.event_record(events[1], stream), "event");
    check(cu.stream_wait(stream), "transfer");
    check(cu.event_elapsed(&ms, events[0], events[1]), "event");
    sample.device_ns = (double)ms * 1e6;
    return sample;
}

/* Both lanes of one kind in turn, so that prefetches always have something to move. */
static void measure_size(struct lane *lanes, enum operation in, size_t bytes, address device,
                         address host, void *stream, void *const *events)
{
    int rounds = bytes <= 4 * MIB ? MOST_ROUNDS : 15;
    double wall[2][MOST_ROUNDS], on_device[2][MOST_ROUNDS], call[2][MOST_ROUNDS];
    for (int round = -2; round < rounds; round++)
        for (unsigned way = 0; way < 2; way++) {
            struct sample sample = transfer((enum operation)(in + way), device, host, bytes, stream,
                                            in == COPY_IN ? events : NULL);
            if (round < 0) /* the first ones allocate */
                continue;
            wall[way][round] = sample.wall_ns;
            on_device[way][round] = sample.device_ns;
            call[way][round] = sample.call_ns;
        }
    for (unsigned way = 0; way < 2; way++) {
        struct lane *lane = &lanes[in + way];
        lane->samples[lane->size_count++] =
            (struct sample){bytes, median(wall[way], rounds), median(on_device[way], rounds),
                            median(call[way], rounds)};
    }
}

/* Least squares of the relative errors. Without the weights, the large sizes alone would decide
 * fixed_ns. A negative fixed_ns becomes 0. */
static void fit(struct lane *lane)
{
    double a = 0, b = 0, c = 0, d = 0, e = 0;
    for (int i = 0; i < lane->size_count; i++) {
        double x = (double)lane->samples[i].bytes, y = lane->samples[i].wall_ns, w = 1 / (y * y);
        a += w;
        b += w * x;
        c += w * x * x;
        d += w * y;
        e += w * x * y;
    }
    lane->ns_per_byte = (a * e - b * d) / (a * c - b * b);
    lane->fixed_ns = (d - lane->ns_per_byte * b) / a;
    if (lane->fixed_ns < 0) {
        lane->fixed_ns = 0;
        lane->ns_per_byte = e / c;
    }
    for (int i = 0; i < lane->size_count; i++) {
        const struct sample *s = &lane->samples[i];
        double guess = (double)s->bytes * lane->ns_per_byte + lane->fixed_ns;
        lane->worst_error = fmax(lane->worst_error, fabs(guess - s->wall_ns) / s->wall_ns);
    }
}

/* One lane that transfers BUSY_BYTES in pieces. */
struct worker {
    void *context, *stream;
    pthread_barrier_t *start;
    enum operation operation;
    address device, host;
    double first_ns, done_ns[PIECES];
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    check(cu.set_context(worker->context), "cuCtxSetCurrent");
    pthread_barrier_wait(worker->start);
    worker->first_ns = now_ns();
    for (size_t i = 0; i < PIECES; i++) {
        submit(worker->operation, worker->device + i * PIECE_BYTES, worker->host + i * PIECE_BYTES,
               PIECE_BYTES, worker->stream);
        check(cu.stream_wait(worker->stream), "transfer");
        worker->done_ns[i] = now_ns();
    }
    return NULL;
}

/* Runs `count` workers. bps[i] is the rate of worker i until the first of them ends. */
static void run(struct worker *workers, int count, double *bps)
{
    pthread_t threads[2];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)count);
    for (int i = 0; i < count; i++) {
        workers[i].start = &start;
        if (pthread_create(&threads[i], NULL, work, &workers[i]) != 0)
            exit(1);
    }
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
    double end = workers[0].done_ns[PIECES - 1];
    for (int i = 1; i < count; i++)
        end = fmin(end, workers[i].done_ns[PIECES - 1]);
    for (int i = 0; i < count; i++) {
        double before = workers[i].first_ns, done = 0;
        for (size_t k = 0; k < PIECES && before < end; before = workers[i].done_ns[k++]) {
            double after = workers[i].done_ns[k];
            done += after <= end ? 1 : (end - before) / (after - before);
        }
        bps[i] = done * (double)PIECE_BYTES * 1e9 / (end - workers[i].first_ns);
    }
}

/* The rate of each lane if one thread serves both of them in turn. */
static double run_in_turns(const struct worker *workers)
{
    double first = now_ns();
    for (size_t at = 0; at < BUSY_BYTES; at += PIECE_BYTES)
        for (int i = 0; i < 2; i++)
            submit(workers[i].operation, workers[i].device + at, workers[i].host + at, PIECE_BYTES,
                   workers[i].stream);
    for (int i = 0; i < 2; i++)
        check(cu.stream_wait(workers[i].stream), "transfer");
    return (double)BUSY_BYTES * 1e9 / (now_ns() - first);
}

/* Each round moves one buffer in and the other out at once, and both back, one after the other.
 * Buffer 0 is on the host and buffer 1 on the device before each round, which prefetches need. */
static void measure_duplex(struct report *report, enum operation in, const address *device,
                           const address *host, void *const *streams)
{
    double alone[2][2 * DUPLEX_ROUNDS], busy[2][DUPLEX_ROUNDS], turns[DUPLEX_ROUNDS], bps[2];
    for (int round = -1; round < 2 * DUPLEX_ROUNDS; round++) {
        struct worker workers[2];
        for (unsigned i = 0; i < 2; i++)
            workers[i] = (struct worker){.context = report->gpu.context,
                                         .stream = streams[i],
                                         .operation = (enum operation)(in + i),
                                         .device = device[i],
                                         .host = host[i]};
        if (round >= DUPLEX_ROUNDS) {
            turns[round - DUPLEX_ROUNDS] = run_in_turns(workers);
        } else {
            run(workers, 2, bps);
            for (int way = 0; way < 2 && round >= 0; way++)
                busy[way][round] = bps[way];
        }
        for (unsigned i = 0; i < 2; i++) { /* back to where they were, one after the other */
            workers[i].operation = (enum operation)(in + 1 - i);
            run(&workers[i], 1, bps);
            if (round >= 0)
                alone[1 - i][round] = bps[0];
        }
    }
    for (unsigned way = 0; way < 2; way++) {
        report->lanes[in + way].alone_bps = median(alone[way], 2 * DUPLEX_ROUNDS);
        report->lanes[in + way].busy_bps = median(busy[way], DUPLEX_ROUNDS);
        report->lanes[in + way].turns_bps = median(turns, DUPLEX_ROUNDS);
    }
}

static void measure_copies(struct report *report, void *const *streams, void *const *events)
{
    address device[2], host[2];
    for (int i = 0; i < 2; i++) {
        void *memory;
        check(cu.alloc(&device[i], BUSY_BYTES), "cuMemAlloc");
        check(cu.alloc_host(&memory, BUSY_BYTES, 0), "cuMemHostAlloc");
        memset(memory, i + 1, BUSY_BYTES);
        host[i] = (address)(uintptr_t)memory;
    }
    for (size_t bytes = LEAST_BYTES; bytes <= MOST_BYTES; bytes *= 2)
        measure_size(report->lanes, COPY_IN, bytes, device[0], host[0], streams[0], events);
    measure_duplex(report, COPY_IN, device, host, streams);
    for (int i = 0; i < 2; i++)
        check(cu.free(device[i]), "cuMemFree");
}

static double kernel_bps(void *function, address base, uint64_t bytes, void *stream)
{
    void *parameters[] = {&base, &bytes};
    double before = now_ns();
    check(cu.launch(function, 2048, 1, 1, 256, 1, 1, 0, stream, parameters, NULL), "launch");
    check(cu.stream_wait(stream), "kernel");
    return (double)bytes * 1e9 / (now_ns() - before);
}

/* Migration by page faults: of a kernel that uses each word, then of one thread of the host. */
static void measure_faults(struct report *report, address managed, void *stream)
{
    void *module, *function;
    check(cu.module_load(&module, touch_ptx), "cuModuleLoadData");
    check(cu.function(&function, module, "touch"), "cuModuleGetFunction");
    double in[5], out[5], kernel[5];
    volatile char *memory = (volatile char *)(uintptr_t)managed;
    for (int round = -1; round < 5; round++) {
        double with_faults = kernel_bps(function, managed, MOST_BYTES, stream);
        double without = kernel_bps(function, managed, MOST_BYTES, stream);
        double before = now_ns();
        for (size_t i = 0; i < MOST_BYTES; i += LEAST_BYTES)
            memory[i]++;
        if (round >= 0) {
            out[round] = (double)MOST_BYTES * 1e9 / (now_ns() - before);
            in[round] = with_faults;
            kernel[round] = without;
        }
    }
    report->fault_in_bps = median(in, 5);
    report->fault_out_bps = median(out, 5);
    report->kernel_bps = median(kernel, 5);
}

static void measure_managed(struct report *report, void *const *streams)
{
    if (!report->gpu.concurrent_managed)
        return;
    address managed[2];
    for (int i = 0; i < 2; i++) {
        check(cu.alloc_managed(&managed[i], BUSY_BYTES, 1), "cuMemAllocManaged");
        memset((void *)(uintptr_t)managed[i], i + 1, BUSY_BYTES);
    }
    for (size_t bytes = LEAST_BYTES; bytes <= MOST_BYTES; bytes *= 2)
        measure_size(report->lanes, PREFETCH_IN, bytes, managed[0], 0, streams[0], NULL);
    submit(PREFETCH_IN, managed[1], 0, BUSY_BYTES, streams[0]);
    check(cu.stream_wait(streams[0]), "prefetch");
    measure_duplex(report, PREFETCH_IN, managed, managed, streams);
    measure_faults(report, managed[0], streams[0]);
    for (int i = 0; i < 2; i++)
        check(cu.free(managed[i]), "cuMemFree");
}

/* True if the lanes of this kind are nearer to full rate than to half rate while both are busy. */
static bool duplex(const struct lane *in, const struct lane *out)
{
    return in->busy_bps / in->alone_bps + out->busy_bps / out->alone_bps > 1.5;
}

static void print_table(const struct report *report)
{
    const struct gpu *gpu = &report->gpu;
    printf("%s, compute capability %d.%d, driver %s, CUDA %d.%d, %d copy engines\n"
           "memory: %.1f GiB, %.1f GiB free\n\n%-10s",
           gpu->name, gpu->major, gpu->minor, gpu->driver, gpu->version / 1000,
           gpu->version % 1000 / 10, gpu->engines, (double)gpu->total_bytes / 0x1p30,
           (double)gpu->free_bytes / 0x1p30, "KiB");
    for (int i = 0; i < OPERATIONS; i++)
        printf(" %13s us   GB/s", operation_names[i]);
    for (int k = 0; k < report->lanes[0].size_count; k++) {
        printf("\n%-10zu", report->lanes[0].samples[k].bytes >> 10);
        for (int i = 0; i < OPERATIONS; i++) {
            const struct sample *s = &report->lanes[i].samples[k];
            if (k < report->lanes[i].size_count)
                printf(" %16.1f %6.2f", s->wall_ns / 1e3, (double)s->bytes / s->wall_ns);
        }
    }
    printf("\n\n%-13s %12s %9s %12s %11s %10s %10s\n", "lane", "ns per byte", "fixed us",
           "worst error", "alone GB/s", "busy GB/s", "turns GB/s");
    for (int i = 0; i < OPERATIONS; i++) {
        const struct lane *lane = &report->lanes[i];
        if (lane->size_count > 0)
            printf("%-13s %12.5f %9.1f %11.1f%% %11.2f %10.2f %10.2f\n", operation_names[i],
                   lane->ns_per_byte, lane->fixed_ns / 1e3, lane->worst_error * 100,
                   lane->alone_bps / 1e9, lane->busy_bps / 1e9, lane->turns_bps / 1e9);
    }
    if (report->fault_in_bps > 0)
        printf("faults: %.2f GB/s to the device (the kernel alone: %.0f), %.2f GB/s to the host\n",
               report->fault_in_bps / 1e9, report->kernel_bps / 1e9, report->fault_out_bps / 1e9);
}

static FILE *create(const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file) {
        fprintf(stderr, "bench_gpu_lanes: cannot write %s\n", path);
        exit(1);
    }
    return file;
}

static void write_lane(FILE *file, const char *name, const struct lane *lane, bool last)
{
    fprintf(file,
            "  \"%s\": {\"ns_per_byte\": %.6g, \"fixed_ns\": %.0f, \"worst_error\": %.4f,\n"
            "    \"alone_bytes_per_second\": %.0f, \"busy_bytes_per_second\": %.0f, "
            "\"turns_bytes_per_second\": %.0f, \"sizes\": [",
            name, lane->ns_per_byte, lane->fixed_ns, lane->worst_error, lane->alone_bps,
            lane->busy_bps, lane->turns_bps);
    for (int i = 0; i < lane->size_count; i++) {
        const struct sample *s = &lane->samples[i];
        fprintf(file, "%s\n      {\"bytes\": %zu, \"wall_ns\": %.0f, ", i ? "," : "", s->bytes,
                s->wall_ns);
        if (s->device_ns > 0)
            fprintf(file, "\"device_ns\": %.0f, ", s->device_ns);
        fprintf(file, "\"call_ns\": %.0f}", s->call_ns);
    }
    fprintf(file, "]}%s\n", last ? "" : ",");
}

static void write_report(const struct report *report, const char *path)
{
    const struct gpu *gpu = &report->gpu;
    char date[32];
    time_t now = time(NULL);
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    FILE *file = create(path);
    fprintf(file,
            "{\n  \"schema\": \"ebb.bench-gpu-lanes/1\",\n"
            "  \"command\": \"bench_gpu_lanes -o FILE --machine FILE\",\n  \"date\": \"%s\",\n"
            "  \"gpu\": {\"name\": \"%s\", \"compute_capability\": \"%d.%d\", "
            "\"cuda_version\": %d,\n    \"driver\": \"%s\",\n    \"copy_engines\": %d, "
            "\"concurrent_managed_access\": %s, \"free_bytes\": %zu, \"total_bytes\": %zu},\n",
            date, gpu->name, gpu->major, gpu->minor, gpu->version, gpu->driver, gpu->engines,
            gpu->concurrent_managed ? "true" : "false", gpu->free_bytes, gpu->total_bytes);
    bool managed = report->lanes[PREFETCH_IN].size_count > 0;
    if (managed)
        fprintf(file,
                "  \"faults\": {\"in_bytes_per_second\": %.0f, \"out_bytes_per_second\": %.0f, "
                "\"kernel_bytes_per_second\": %.0f},\n",
                report->fault_in_bps, report->fault_out_bps, report->kernel_bps);
    int count = managed ? OPERATIONS : PREFETCH_IN;
    for (int i = 0; i < count; i++)
        write_lane(file, operation_names[i], &report->lanes[i], i == count - 1);
    fprintf(file, "}\n");
    fclose(file);
}

static void write_machine(const struct report *report, const char *name, const char *path)
{
    const struct lane *in = &report->lanes[COPY_IN], *out = &report->lanes[COPY_OUT];
    FILE *file = create(path);
    fprintf(file,
            "{\n  \"schema\": \"ebb.machine/1\",\n  \"name\": \"%.31s\",\n"
            "  \"out\": { \"ns_per_byte\": %.6g, \"fixed_ns\": %.0f },\n"
            "  \"in\": { \"ns_per_byte\": %.6g, \"fixed_ns\": %.0f },\n"
            "  \"duplex\": %s\n}\n",
            name, out->ns_per_byte, out->fixed_ns, in->ns_per_byte, in->fixed_ns,
            duplex(in, out) ? "true" : "false");
    fclose(file);
}

int main(int argc, char **argv)
{
    const char *json = NULL, *machine = NULL, *name = NULL;
    for (int i = 1; i < argc; i += 2) {
        const char **value = strcmp(argv[i], "-o") == 0          ? &json
                             : strcmp(argv[i], "--machine") == 0 ? &machine
                             : strcmp(argv[i], "--name") == 0    ? &name
                                                                 : NULL;
        if (!value || i + 1 == argc) {
            fputs("usage: bench_gpu_lanes [-o FILE] [--machine FILE] [--name NAME]\n", stderr);
            return 2;
        }
        *value = argv[i + 1];
    }
    if (!open_driver()) {
        puts("no GPU");
        return SKIPPED;
    }
    static struct report report;
    describe(&report.gpu);
    void *streams[2], *events[2];
    for (int i = 0; i < 2; i++) {
        check(cu.stream_create(&streams[i], 1), "cuStreamCreate"); /* 1: apart from stream 0 */
        check(cu.event_create(&events[i], 0), "cuEventCreate");
    }
    measure_copies(&report, streams, events);
    measure_managed(&report, streams);
    for (int i = 0; i < OPERATIONS; i++)
        if (report.lanes[i].size_count > 0)
            fit(&report.lanes[i]);
    print_table(&report);
    if (json)
        write_report(&report, json);
    if (machine)
        write_machine(&report, name ? name : report.gpu.name, machine);
    return 0;
}
