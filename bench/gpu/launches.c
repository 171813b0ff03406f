/* What a launch costs more through `shim/cuda`, on a real driver.
 *
 *     ebb run --budget 1G -- launches
 *
 * The program takes its functions from libcuda.so.1, which is the preloaded library, and the
 * driver's own by its path. Rounds by the one and by the other alternate, with a stream for each
 * thread. Prints lines of JSON: medians in ns for a launch, as the caller sees it. Exit code 77: no
 * GPU, or the library is not preloaded. */
#include "cuda/abi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 21, LAUNCHES = 400, MOST_THREADS = 4, POINTERS = 32, MOST_TEXT = 8192 };

static const struct kind {
    const char *name;
    unsigned parameters, blocks;
} kinds[] = {
    {"32 pointers, 32 blocks", 32, 32},
    {"32 pointers, 4 blocks", 32, 4},
    {"4 pointers, 4 blocks", 4, 4},
    {"no parameter", 0, 0},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

#define FUNCTIONS(X)                                                                               \
    X(cuInit)                                                                                      \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuCtxSetCurrent)                                                                             \
    X(cuModuleLoadData)                                                                            \
    X(cuModuleGetFunction)                                                                         \
    X(cuMemAlloc_v2)                                                                               \
    X(cuStreamCreate)                                                                              \
    X(cuStreamSynchronize)                                                                         \
    X(cuLaunchKernel)
static struct {
#define FUNCTION(name) __typeof__(name) *name;
    FUNCTIONS(FUNCTION)
} cu;

static __typeof__(cuLaunchKernel) *launches[2]; /* the driver's, the library's */
static CUcontext context;
static CUfunction functions[KINDS];
static CUdeviceptr blocks[POINTERS];

static void need(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "launches: %s: error %d\n", what, (int)result);
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

/* The path of the driver that is mapped. False: none but the preloaded library. */
static int find_driver(char *path, size_t bytes)
{
    char line[1024];
    FILE *maps = fopen("/proc/self/maps", "r");
    int found = 0;
    while (maps && !found && fgets(line, sizeof line, maps)) {
        char *at = strchr(line, '/');
        found = at && strstr(at, "/libcuda.so") && !strstr(at, "libebb");
        if (found) {
            at[strcspn(at, "\n")] = 0;
            snprintf(path, bytes, "%s", at);
        }
    }
    if (maps)
        fclose(maps);
    return found;
}

/* Kernels that do nothing, with so many parameters of 8 bytes. */
static void load_kernels(void)
{
    static char text[MOST_TEXT];
    size_t at = (size_t)snprintf(text, sizeof text,
                                 ".version 7.0\n.target sm_60\n"
                                 ".address_size 64\n");
    CUmodule module;
    for (unsigned i = 0; i < KINDS; i++) {
        at += (size_t)snprintf(text + at, sizeof text - at, ".visible .entry k%u(", i);
        for (unsigned j = 0; j < kinds[i].parameters; j++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s.param .u64 p%u_%u",
                                   j ? "," : "", i, j);
        at += (size_t)snprintf(text + at, sizeof text - at, ") { ret; }\n");
    }
    need(cu.cuModuleLoadData(&module, text), "cuModuleLoadData");
    for (unsigned i = 0; i < KINDS; i++) {
        char name[8];
        snprintf(name, sizeof name, "k%u", i);
        need(cu.cuModuleGetFunction(&functions[i], module, name), "cuModuleGetFunction");
    }
}

struct thread {
    unsigned kind;
    CUstream stream;
    pthread_barrier_t *barrier;
    double ns[2][ROUNDS];
};

static void *run(void *argument)
{
    struct thread *self = argument;
    CUdeviceptr values[POINTERS];
    void *parameters[POINTERS];
    for (unsigned i = 0; i < POINTERS; i++) {
        values[i] = blocks[kinds[self->kind].blocks ? i % kinds[self->kind].blocks : 0];
        parameters[i] = &values[i];
    }
    need(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (int round = 0; round < 2 * ROUNDS; round++) {
        pthread_barrier_wait(self->barrier);
        uint64_t began = now_ns();
        for (int i = 0; i < LAUNCHES; i++)
            need(launches[round & 1](functions[self->kind], 1, 1, 1, 1, 1, 1, 0, self->stream,
                                     parameters, NULL),
                 "cuLaunchKernel");
        self->ns[round & 1][round / 2] = (double)(now_ns() - began) / LAUNCHES;
        need(cu.cuStreamSynchronize(self->stream), "cuStreamSynchronize");
    }
    return NULL;
}

/* Medians over rounds: the slowest thread's time for a launch by either way, and the difference. */
static void measure(unsigned kind, unsigned count, const CUstream *streams)
{
    static struct thread threads[MOST_THREADS];
    static double of[3][ROUNDS];
    pthread_t ids[MOST_THREADS];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, count);
    for (unsigned i = 0; i < count; i++) {
        threads[i] = (struct thread){kind, streams[i], &barrier, {{0}}};
        pthread_create(&ids[i], NULL, run, &threads[i]);
    }
    for (unsigned i = 0; i < count; i++)
        pthread_join(ids[i], NULL);
    pthread_barrier_destroy(&barrier);
    for (int round = 0; round < ROUNDS; round++) {
        for (int way = 0; way < 2; way++) {
            of[way][round] = 0;
            for (unsigned i = 0; i < count; i++)
                if (threads[i].ns[way][round] > of[way][round])
                    of[way][round] = threads[i].ns[way][round];
        }
        of[2][round] = of[1][round] - of[0][round];
    }
    for (int i = 0; i < 3; i++)
        qsort(of[i], ROUNDS, sizeof of[i][0], compare);
    printf("{\"m\": \"launch\", \"parameters\": \"%s\", \"threads\": %u, \"driver_ns\": %.0f, "
           "\"ebb_ns\": %.0f, \"more_ns\": %.0f}\n",
           kinds[kind].name, count, of[0][ROUNDS / 2], of[1][ROUNDS / 2], of[2][ROUNDS / 2]);
    fflush(stdout);
}

int main(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CUstream streams[MOST_THREADS];
    char path[1024];
    int ok = library != NULL;
#define FIND(name) ok = ok && (*(void **)&cu.name = dlsym(library, #name));
    FUNCTIONS(FIND)
    if (!ok || cu.cuInit(0) != CUDA_SUCCESS)
        return puts("no GPU"), 77;
    need(cu.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    need(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    launches[1] = cu.cuLaunchKernel;
    if (!find_driver(path, sizeof path) ||
        !(*(void **)&launches[0] = dlsym(dlopen(path, RTLD_NOW), "cuLaunchKernel")) ||
        launches[0] == launches[1])
        return puts("the library is not before the driver"), 77;
    load_kernels();
    for (unsigned i = 0; i < POINTERS; i++)
        need(cu.cuMemAlloc_v2(&blocks[i], 2 << 20), "cuMemAlloc");
    for (unsigned i = 0; i < MOST_THREADS; i++)
        need(cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    for (unsigned kind = 0; kind < KINDS; kind++)
        for (unsigned count = 1; count <= MOST_THREADS; count *= 4)
            measure(kind, count, streams);
    return 0;
}
