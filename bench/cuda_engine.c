/* What the CUDA engine costs per call, without a GPU: the driver's functions cost nothing here.
 *
 *     bench_cuda_engine
 *
 * Prints ns for a pair of calls. Begin and end of a work have 8 blocks, with nothing due.
 * Allocations and frees are of cached ranges. The median and the least of 9 runs.
 */
#include "base/clock.h"
#include "cuda/internal.h"
#include "no_driver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define RUNS 9u
#define CALLS 200000u
#define USES 8u
#define MOST_THREADS 4u

/* ---- the driver -------------------------------------------------------------- */

static CUresult alloc_managed(CUdeviceptr *address, size_t bytes, unsigned flags)
{
    static CUdeviceptr next = (CUdeviceptr)1 << 44;
    (void)flags;
    *address = next;
    next += (bytes + ((CUdeviceptr)1 << 33)) & ~(CUdeviceptr)(((CUdeviceptr)1 << 32) - 1);
    return CUDA_SUCCESS;
}

static CUresult write_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    (void)stream;
    (void)flags;
    atomic_store((_Atomic uint32_t *)(uintptr_t)address, value);
    return CUDA_SUCCESS;
}

static void *find(void *context, const char *symbol)
{
    static const struct no_driver_symbol own[] = {{"cuMemAllocManaged", (void *)alloc_managed},
                                                  {"cuStreamWriteValue32_v2", (void *)write_value},
                                                  {NULL, NULL}};
    (void)context;
    return no_driver_find(own, symbol);
}

/* ---- measurements ---------------------------------------------------------------------------- */

static struct ebb_cuda *engine;

struct task {
    pthread_t thread;
    uint64_t bytes; /* of an allocation; 0: works */
    CUstream stream;
    CUdeviceptr blocks[USES];
};

static void work(struct task *task)
{
    struct ebb_cuda_use uses[USES];
    struct ebb_cuda_work one = {.stream = task->stream, .uses = uses, .use_count = USES};
    for (unsigned i = 0; i < USES; i++)
        uses[i] = (struct ebb_cuda_use){task->blocks[i] + 64, 0, EBB_ACCESS_READ};
    for (unsigned i = 0; i < CALLS; i++) {
        ebb__cuda_begin(engine, &one);
        ebb__cuda_end(engine, &one, true);
    }
}

static void allocate(struct task *task)
{
    for (unsigned i = 0; i < CALLS; i++) {
        CUdeviceptr address;
        if (ebb__cuda_alloc(engine, task->bytes, task->stream, &address) != CUDA_SUCCESS)
            abort();
        ebb__cuda_free(engine, address, task->stream);
    }
}

static void *run(void *context)
{
    struct task *task = context;
    if (task->bytes)
        allocate(task);
    else
        work(task);
    return NULL;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ns per pair of calls and thread: the median, and the least. Other programs on the machine spoil
 * the median first. */
static void measure(const char *what, struct task *tasks, unsigned threads)
{
    double times[RUNS];
    for (unsigned run_number = 0; run_number < RUNS; run_number++) {
        uint64_t since_ns = ebb__now_ns();
        for (unsigned i = 0; i < threads; i++)
            if (pthread_create(&tasks[i].thread, NULL, run, &tasks[i]))
                abort();
        for (unsigned i = 0; i < threads; i++)
            pthread_join(tasks[i].thread, NULL);
        times[run_number] = (double)(ebb__now_ns() - since_ns) / CALLS;
    }
    qsort(times, RUNS, sizeof *times, compare);
    printf("%-32s %u thread%s %8.0f %8.0f\n", what, threads, threads > 1 ? "s" : " ",
           times[RUNS / 2], times[0]);
}

static void start(void)
{
    static struct ebb_cuda_driver driver;
    struct ebb_error error;
    struct ebb_ledger *ledger = calloc(1, sizeof *ledger + 64);
    struct ebb_ring *ring = calloc(1, ebb__ring_bytes(EBB_RING_EVENTS));
    if (!ledger || !ring || ebb__cuda_driver_load(&driver, find, NULL, &error) != EBB_OK)
        abort();
    ledger = (struct ebb_ledger *)(((uintptr_t)ledger + 63) & ~(uintptr_t)63);
    ebb__ring_init(ring, EBB_RING_EVENTS, 0);
    atomic_store(&ring->parent_gone, 1);
    atomic_store(&ledger->budget_bytes, (uint64_t)32 << 30);
    struct ebb_cuda_config config = {.driver = &driver,
                                     .ledger = ledger,
                                     .slot = &ledger->slots[1],
                                     .ring = ring,
                                     .host_budget_bytes = UINT64_MAX,
                                     .pinned_budget_bytes = UINT64_MAX};
    if (ebb__cuda_create(&config, &engine, &error) != EBB_OK) {
        fprintf(stderr, "%s: %s\n", error.what, error.why);
        exit(1);
    }
}

int main(void)
{
    struct task tasks[MOST_THREADS] = {0};
    start();
    for (unsigned i = 0; i < MOST_THREADS; i++) {
        tasks[i].stream = (CUstream)(uintptr_t)(0x1000 + i);
        for (unsigned j = 0; j < USES; j++)
            if (ebb__cuda_alloc(engine, (uint64_t)4 << 20, tasks[i].stream, &tasks[i].blocks[j]))
                abort();
    }
    printf("%-42s %8s %8s\n", "ns for a pair of calls", "median", "least");
    for (unsigned threads = 1; threads <= MOST_THREADS; threads *= 2)
        measure("begin + end, 8 blocks", tasks, threads);
    static const uint64_t sizes[] = {1000, 200000, (uint64_t)3 << 20, (uint64_t)64 << 20};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char what[64];
        snprintf(what, sizeof what, "alloc + free, %llu bytes", (unsigned long long)sizes[i]);
        for (unsigned j = 0; j < MOST_THREADS; j++)
            tasks[j].bytes = sizes[i];
        for (unsigned threads = 1; threads <= MOST_THREADS; threads *= 4)
            measure(what, tasks, threads);
    }
    return 0;
}
