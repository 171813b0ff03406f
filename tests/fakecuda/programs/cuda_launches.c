/* The cost of a launch call. The kernel is empty and has 256 bytes of parameters. Each thread has a
 * stream of its own. Prints nanoseconds for each launch. It needs
 * FAKECUDA_FAST=1 to mean anything.
 *
 * Options: --threads=N --launches=N.
 */
#include "driver.h"
#include <pthread.h>
#include <time.h>

static void nothing(struct fakecuda_kernel *k)
{
    (void)k;
}

static const unsigned short sizes[32] = {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8,
                                         8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8};
static const struct fakecuda_entry kernels[] = {{"nothing", nothing, 32, sizes}};
static const struct fakecuda_image image = {FAKECUDA_MAGIC, 1, kernels, 0, NULL};
static CUfunction function;
static CUcontext context;
static long launches;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *launch_all(void *unused)
{
    CUstream stream;
    uint64_t values[32] = {0};
    void *parameters[32];
    (void)unused;
    for (int i = 0; i < 32; i++)
        parameters[i] = &values[i];
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (long i = 0; i < launches; i++)
        CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
    CHECK(cuStreamSynchronize(stream));
    return NULL;
}

int main(int count, char **arguments)
{
    long threads = option(count, arguments, "threads", 1);
    pthread_t ids[16];
    CUmodule module;
    launches = option(count, arguments, "launches", 200000);
    if (threads > 16)
        return 2;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, &image));
    CHECK(cuModuleGetFunction(&function, module, "nothing"));
    double start = seconds();
    for (long i = 0; i < threads; i++)
        pthread_create(&ids[i], NULL, launch_all, NULL);
    for (long i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    printf("%.1f ns\n", (seconds() - start) * 1e9 / (double)(launches * threads));
    return 0;
}
