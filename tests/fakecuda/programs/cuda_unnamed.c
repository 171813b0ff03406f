/* A kernel that runs for long and names no memory. It finds its block by a pointer in device
 * memory, which a kernel has put there. Meanwhile other blocks are used, for which this one would
 * have to leave. The program prints how often the kernel has counted: always the same.
 *
 * Options: --graph: the kernel is a graph. --blocks=N others. --free: its block is freed while it
 * runs, and the program prints what the others have. The driver's cuMemFree waits for the kernel.
 * Another thread already waits in a free of its own.
 */
#include "driver.h"
#include "hidden.h"

#include <pthread.h>
#include <stdbool.h>

enum { BLOCK = 2 << 20, ROUNDS = 400, PAUSE_US = 100, MOST_BLOCKS = 64 };

/* Adds 1 to a word at a time, often. */
static void count_slowly(struct fakecuda_kernel *k)
{
    CUdeviceptr pointer = hidden_pointer(k);
    for (int i = 0; i < ROUNDS; i++) {
        ++*(unsigned *)fakecuda_update(k, pointer + 4 * (CUdeviceptr)(i % 100), 4);
        usleep(PAUSE_US);
        fakecuda_yield(k);
    }
}

static void use(struct fakecuda_kernel *k)
{
    ++*(unsigned *)fakecuda_update(k, fakecuda_pointer(k, 0), 4);
}

static const unsigned short eights[] = {8, 8};
enum { HIDE, COUNT, USE, KERNELS };
static const struct fakecuda_entry kernels[KERNELS] = {{"hide", hidden_store, 2, eights},
                                                       {"count_slowly", count_slowly, 0, NULL},
                                                       {"use", use, 1, eights}};
static const struct fakecuda_image image = {FAKECUDA_MAGIC, KERNELS, kernels, 1, hidden_globals};
static CUfunction functions[KERNELS];
static CUcontext context;

static void launch(int kernel, CUstream stream, void **parameters)
{
    CHECK(cuLaunchKernel(functions[kernel], 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

static void open_device(void)
{
    CUmodule module;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, program_image(&image)));
    for (int i = 0; i < KERNELS; i++)
        CHECK(cuModuleGetFunction(&functions[i], module, kernels[i].name));
}

static void launch_as_graph(int kernel, CUstream stream)
{
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch(kernel, stream, NULL);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cuGraphLaunch(exec, stream));
}

static void *free_spare(void *spare)
{
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemFree_v2(*(CUdeviceptr *)spare));
    return NULL;
}

static pthread_t free_beside(CUdeviceptr *spare, CUdeviceptr hidden)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, free_spare, spare))
        abort();
    usleep(1000);
    CHECK(cuMemFree_v2(hidden));
    return thread;
}

/* What the kernel adds to a block that it does not own would be here. */
static unsigned found_in(const CUdeviceptr *others, long blocks)
{
    unsigned words[100], sum = 0;
    for (long i = 0; i < blocks; i++) {
        CHECK(cuMemcpyDtoH_v2(words, others[i], sizeof(words)));
        for (int j = 0; j < 100; j++)
            sum += words[j];
    }
    return sum;
}

int main(int count, char **arguments)
{
    CUdeviceptr hidden, spare, cell, others[MOST_BLOCKS];
    CUstream stream, beside;
    pthread_t other = 0;
    unsigned counted[100], sum = 0;
    long blocks = option(count, arguments, "blocks", 6);
    if (blocks < 1 || blocks > MOST_BLOCKS)
        return 2;
    open_device();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc_v2(&hidden, BLOCK));
    CHECK(cuMemAlloc_v2(&cell, 8));
    CHECK(cuMemAlloc_v2(&spare, 8));
    CHECK(cuMemsetD32Async(hidden, 0, 100, stream));
    launch(HIDE, stream, (void *[]){&hidden, &cell});
    CHECK(cuStreamSynchronize(stream));
    if (option(count, arguments, "graph", 0))
        launch_as_graph(COUNT, stream);
    else
        launch(COUNT, stream, NULL);
    bool is_freed = option(count, arguments, "free", 0) != 0;
    if (is_freed)
        other = free_beside(&spare, hidden);
    for (long i = 0; i < blocks; i++) {
        CHECK(cuMemAlloc_v2(&others[i], BLOCK));
        CHECK(cuMemsetD32Async(others[i], 0, 100, beside));
        launch(USE, beside, (void *[]){&others[i]});
    }
    CHECK(cuStreamSynchronize(beside));
    CHECK(cuStreamSynchronize(stream));
    if (!is_freed)
        CHECK(cuMemcpyDtoH_v2(counted, hidden, sizeof(counted)));
    for (int i = 0; i < 100 && !is_freed; i++)
        sum += counted[i];
    printf("%u\n", is_freed ? found_in(others, blocks) : sum);
    for (long i = 0; i < blocks; i++)
        CHECK(cuMemFree_v2(others[i]));
    if (is_freed) {
        pthread_join(other, NULL);
    } else {
        CHECK(cuMemFree_v2(hidden));
        CHECK(cuMemFree_v2(spare));
    }
    CHECK(cuMemFree_v2(cell));
    return 0;
}
