/* What the C API costs: a use of a resident tensor, and a planned iteration of many tensors.
 *
 *     build/release/bench/bench_api
 *
 * The first figure is an acquire with its release, the second the part of an iteration's time that
 * is spent in Ebb. The iteration computes 100 us for each tensor, and all tensors fit. */
#include "ebb/ebb.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define USES 2000000u
#define TENSORS 10000u
#define WORK_NS 100000u
#define BYTES ((uint64_t)16384)

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void must(enum ebb_status status, const struct ebb_error *error)
{
    if (status == EBB_OK)
        return;
    fprintf(stderr, "api: %s: %s\n", error->what, error->why);
    exit(1);
}

static uint64_t use(struct ebb_context *context, ebb_tensor tensor, enum ebb_use how)
{
    struct ebb_error error;
    void *address;
    uint64_t began = now_ns();
    must(ebb_tensor_acquire(context, tensor, how, &address, &error), &error);
    uint64_t there = now_ns();
    for (uint64_t until = there + (how == EBB_USE_OVERWRITE ? 0 : WORK_NS); now_ns() < until;)
        ;
    uint64_t done = now_ns();
    must(ebb_tensor_release(context, tensor, &error), &error);
    return there - began + now_ns() - done;
}

static void resident_use(struct ebb_context *context, ebb_tensor tensor)
{
    struct ebb_error error;
    void *address;
    uint64_t began = now_ns();
    for (unsigned i = 0; i < USES; i++) {
        must(ebb_tensor_acquire(context, tensor, EBB_USE_READ, &address, &error), &error);
        must(ebb_tensor_release(context, tensor, &error), &error);
    }
    printf("acquire and release  %.0f ns\n", (double)(now_ns() - began) / USES);
}

static void iterations(struct ebb_context *context, const ebb_tensor *tensors)
{
    struct ebb_error error;
    for (unsigned i = 0; i < 4; i++) {
        uint64_t began = now_ns(), inside = 0;
        must(ebb_iteration_begin(context, 0, &error), &error);
        inside += now_ns() - began;
        for (unsigned k = 0; k < TENSORS; k++)
            inside += use(context, tensors[k], EBB_USE_READ);
        uint64_t ending = now_ns();
        must(ebb_iteration_end(context, &error), &error);
        inside += now_ns() - ending;
        printf("iteration %u  %.3f s, %.2f %% of it in Ebb\n", i, (double)(now_ns() - began) / 1e9,
               100.0 * (double)inside / (double)(now_ns() - began));
    }
}

int main(void)
{
    struct ebb_options options = {.budget_bytes = 2 * TENSORS * BYTES, .machine = "nvme"};
    struct ebb_error error;
    struct ebb_context *context;
    ebb_tensor *tensors = calloc(TENSORS, sizeof *tensors);
    must(tensors ? EBB_OK : EBB_ERR_MEMORY, &(struct ebb_error){.what = "api", .why = "no memory"});
    must(ebb_context_create(&options, &context, &error), &error);
    for (unsigned i = 0; i < TENSORS; i++) {
        struct ebb_tensor_desc desc = {BYTES, 0, EBB_TENSOR_PARAMETER, NULL};
        must(ebb_tensor_declare(context, &desc, &tensors[i], &error), &error);
        (void)use(context, tensors[i], EBB_USE_OVERWRITE);
    }
    resident_use(context, tensors[0]);
    iterations(context, tensors);
    ebb_context_destroy(context);
    free(tensors);
    return 0;
}
