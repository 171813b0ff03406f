/* What a launch costs more through the library in front of the CUDA driver, on a driver whose
 * launches do nothing.
 *
 *   LD_PRELOAD=libebb_cuda.so EBB_CUDA_DRIVER=libfakecuda.so FAKECUDA_FAST=1 bench_cuda_launch
 *
 * The program takes its functions from libcuda.so.1, which is the preloaded library, and the
 * driver's own from EBB_CUDA_DRIVER. Rounds of launches by the one and by the other alternate. Each
 * thread has a stream of its own, and blocks that all threads use, or its own. A round lasts from
 * the first thread that begins to the last one that ends. So threads that take turns gain nothing.
 *
 * The table has medians in ns for a launch of each thread. The last column is how many launches all
 * threads make through the library while one thread alone makes one. It tells nothing if the
 * threads have no CPU each: see whether the driver's own time grows. The last line is one JSON
 * object. Exit code 77: no such driver. */
#include "../tests/fakecuda/fakecuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 15, LAUNCHES = 10000, MOST_THREADS = 4, POINTERS = 32, BLOCK = 4096 };

static void nothing(struct fakecuda_kernel *k)
{
    (void)k;
}

static const unsigned short pointer_sizes[POINTERS] = {
    8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8};
static const unsigned short struct_sizes[] = {256}, word_sizes[] = {4};
static const struct fakecuda_entry kernels[] = {
    {"pointers", nothing, POINTERS, pointer_sizes},
    {"struct", nothing, 1, struct_sizes},
    {"word", nothing, 1, word_sizes},
};
static const struct fakecuda_image image = {FAKECUDA_MAGIC, 3, kernels, 0, NULL};

static const struct kind {
    const char *name, *kernel;
    unsigned blocks; /* different ones to which the parameters point */
    bool is_own;     /* each thread has others */
} kinds[] = {
    {"256 bytes: 32 pointers, 32 blocks", "pointers", 32, false},
    {"256 bytes: 32 pointers, 32 own blocks", "pointers", 32, true},
    {"256 bytes: 32 pointers, 4 blocks", "pointers", 4, false},
    {"256 bytes: a struct with 3 pointers", "struct", 3, false},
    {"4 bytes: no pointer", "word", 0, false},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static __typeof__(cuLaunchKernel) *launches[2]; /* the driver's, the library's */
static __typeof__(cuCtxSetCurrent) *set_current;
static __typeof__(cuStreamSynchronize) *synchronize;
static CUcontext context;
static CUfunction functions[KINDS];
static CUdeviceptr blocks[MOST_THREADS * POINTERS];

static void need(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "cuda_launch: %s: error %d\n", what, (int)result);
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}

struct thread {
    const struct kind *kind;
    const CUdeviceptr *blocks;
    CUfunction function;
    CUstream stream;
    pthread_barrier_t *barrier;
    uint64_t began[2][ROUNDS], ended[2][ROUNDS];
};

static void *run(void *argument)
{
    struct thread *self = argument;
    CUdeviceptr values[POINTERS];
    char packed[256] = {0};
    int word = 7;
    void *parameters[POINTERS];
    for (unsigned i = 0; i < POINTERS; i++) {
        values[i] = self->blocks[self->kind->blocks ? i % self->kind->blocks : 0];
        parameters[i] = &values[i];
    }
    for (unsigned i = 0; i < self->kind->blocks && i < 3; i++)
        memcpy(packed + 80 * i + 8, &self->blocks[i], sizeof self->blocks[i]);
    if (strcmp(self->kind->kernel, "struct") == 0)
        parameters[0] = packed;
    if (strcmp(self->kind->kernel, "word") == 0)
        parameters[0] = &word;
    need(set_current(context), "cuCtxSetCurrent");
    for (int round = 0; round < 2 * ROUNDS; round++) {
        pthread_barrier_wait(self->barrier);
        uint64_t began = now_ns();
        for (int i = 0; i < LAUNCHES; i++)
            need(launches[round & 1](self->function, 1, 1, 1, 1, 1, 1, 0, self->stream, parameters,
                                     NULL),
                 "cuLaunchKernel");
        self->began[round & 1][round / 2] = began;
        self->ended[round & 1][round / 2] = now_ns();
        need(synchronize(self->stream), "cuStreamSynchronize");
    }
    return NULL;
}

static double ns_of(const struct thread *threads, unsigned count, int way, int round)
{
    uint64_t began = UINT64_MAX, ended = 0;
    for (unsigned i = 0; i < count; i++) {
        if (threads[i].began[way][round] < began)
            began = threads[i].began[way][round];
        if (threads[i].ended[way][round] > ended)
            ended = threads[i].ended[way][round];
    }
    return (double)(ended - began) / LAUNCHES;
}

/* The medians over rounds of the time for a launch of each thread, and of the differences. */
static void measure(int kind, unsigned count, const CUstream *streams, double result[3])
{
    static struct thread threads[MOST_THREADS];
    pthread_t ids[MOST_THREADS];
    pthread_barrier_t barrier;
    double of[3][ROUNDS];
    pthread_barrier_init(&barrier, NULL, count);
    for (unsigned i = 0; i < count; i++) {
        threads[i] = (struct thread){
            .kind = &kinds[kind],
            .blocks = &blocks[kinds[kind].is_own ? i * POINTERS : 0],
            .function = functions[kind],
            .stream = streams[i],
            .barrier = &barrier,
        };
        pthread_create(&ids[i], NULL, run, &threads[i]);
    }
    for (unsigned i = 0; i < count; i++)
        pthread_join(ids[i], NULL);
    pthread_barrier_destroy(&barrier);
    for (int round = 0; round < ROUNDS; round++) {
        for (int way = 0; way < 2; way++)
            of[way][round] = ns_of(threads, count, way, round);
        of[2][round] = of[1][round] - of[0][round];
    }
    for (int i = 0; i < 3; i++)
        result[i] = median(of[i], ROUNDS);
}

#define TAKE(library, name) take(library, #name)
static void *take(void *library, const char *name)
{
    void *function = dlsym(library, name);
    if (!function) {
        fprintf(stderr, "cuda_launch: no %s\n", name);
        exit(1);
    }
    return function;
}

/* Contexts, blocks and kernels, all by the library. */
static void prepare(void *library, CUstream *streams)
{
    __typeof__(cuInit) *init = TAKE(library, cuInit);
    __typeof__(cuDevicePrimaryCtxRetain) *retain = TAKE(library, cuDevicePrimaryCtxRetain);
    __typeof__(cuModuleLoadData) *load = TAKE(library, cuModuleLoadData);
    __typeof__(cuModuleGetFunction) *get = TAKE(library, cuModuleGetFunction);
    __typeof__(cuMemAlloc_v2) *alloc = TAKE(library, cuMemAlloc_v2);
    __typeof__(cuStreamCreate) *create = TAKE(library, cuStreamCreate);
    CUmodule module;
    set_current = TAKE(library, cuCtxSetCurrent);
    synchronize = TAKE(library, cuStreamSynchronize);
    need(init(0), "cuInit");
    need(retain(&context, 0), "cuDevicePrimaryCtxRetain");
    need(set_current(context), "cuCtxSetCurrent");
    need(load(&module, &image), "cuModuleLoadData");
    for (int i = 0; i < KINDS; i++)
        need(get(&functions[i], module, kinds[i].kernel), "cuModuleGetFunction");
    for (int i = 0; i < MOST_THREADS * POINTERS; i++)
        need(alloc(&blocks[i], BLOCK), "cuMemAlloc");
    for (int i = 0; i < MOST_THREADS; i++)
        need(create(&streams[i], 1), "cuStreamCreate");
}

int main(void)
{
    const char *path = getenv("EBB_CUDA_DRIVER");
    void *library = dlopen("libcuda.so.1", RTLD_NOW),
         *driver = path ? dlopen(path, RTLD_NOW) : NULL;
    CUstream streams[MOST_THREADS];
    struct utsname machine;
    if (!library || !driver) {
        fprintf(stderr, "cuda_launch: skipped: no library preloaded, or no EBB_CUDA_DRIVER\n");
        return 77;
    }
    prepare(library, streams);
    launches[0] = TAKE(driver, cuLaunchKernel);
    launches[1] = TAKE(library, cuLaunchKernel);
    uname(&machine);
    printf("%ld CPUs, %s %s; medians of %d rounds of %d launches, in ns for a launch\n",
           sysconf(_SC_NPROCESSORS_ONLN), machine.sysname, machine.release, ROUNDS, LAUNCHES);
    printf("%-38s %8s %8s %8s %8s %8s\n", "parameters", "threads", "driver", "library", "more",
           "times");
    char json[4000];
    size_t used = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        double alone = 0;
        for (unsigned count = 1; count <= MOST_THREADS; count *= 2) {
            double result[3];
            measure(kind, count, streams, result);
            alone = count == 1 ? result[1] : alone;
            double times = count * alone / result[1];
            printf("%-38s %8u %8.0f %8.0f %8.0f %8.2f\n", kinds[kind].name, count, result[0],
                   result[1], result[2], times);
            used += (size_t)snprintf(
                json + used, sizeof json - used,
                "%s{\"parameters\": \"%s\", \"threads\": %u, \"driver_ns\": %.1f, "
                "\"library_ns\": %.1f, \"more_ns\": %.1f, \"times\": %.2f}",
                used ? ", " : "", kinds[kind].name, count, result[0], result[1], result[2], times);
        }
    }
    printf("{\"rows\": [%s]}\n", json);
    return 0;
}
