/* The C API in explicit use: a training of a chain of layers within a budget. Also dry runs,
 * forecasts, hints, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ebb/ebb.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define LAYERS 12u
#define WORDS(bytes) ((bytes) / sizeof(uint64_t))

static const uint64_t bytes_of_layer = 2 * MIB;

/* A chain of layers: each has parameters with momentum, and an output that its backward step
 * needs. */
struct net {
    struct ebb_context *context;
    ebb_tensor weights[LAYERS], momentum[LAYERS], outputs[LAYERS + 1], gradients[LAYERS + 1];
    uint64_t digest;
    bool dry;
};

static struct ebb_context *open_context(uint64_t budget_bytes, bool no_plan)
{
    struct ebb_options options = {
        .budget_bytes = budget_bytes, .store = "/var/tmp", .machine = "nvme", .no_plan = no_plan};
    struct ebb_context *context;
    struct ebb_error error;
    enum ebb_status status = ebb_context_create(&options, &context, &error);
    if (status)
        fail_msg("%s: %s", error.what, error.why);
    return context;
}

static ebb_tensor declare(struct ebb_context *context, uint64_t bytes, enum ebb_tensor_kind kind)
{
    ebb_tensor tensor;
    struct ebb_tensor_desc desc = {.bytes = bytes, .kind = kind};
    assert_int_equal(ebb_tensor_declare(context, &desc, &tensor, NULL), EBB_OK);
    return tensor;
}

static uint64_t *acquire(struct ebb_context *context, ebb_tensor tensor, enum ebb_use use)
{
    void *address;
    struct ebb_error error = {0};
    if (ebb_tensor_acquire(context, tensor, use, &address, &error) != EBB_OK)
        fail_msg("%s: %s", error.what, error.why);
    return address;
}

static void release(struct ebb_context *context, ebb_tensor tensor)
{
    assert_int_equal(ebb_tensor_release(context, tensor, NULL), EBB_OK);
}

/* *out: a mix of the words of `in` and `with`. */
static void mix(uint64_t *out, const uint64_t *in, const uint64_t *with, uint64_t bytes)
{
    for (uint64_t i = 0; i < WORDS(bytes); i++)
        out[i] = (in[i] ^ (with[i] + 0x9e3779b97f4a7c15u)) * 0xbf58476d1ce4e5b9u + i;
}

static void net_open(struct net *net, struct ebb_context *context)
{
    *net = (struct net){.context = context};
    for (unsigned i = 0; i <= LAYERS; i++) {
        net->outputs[i] = declare(context, bytes_of_layer, EBB_TENSOR_ACTIVATION);
        net->gradients[i] = declare(context, bytes_of_layer, EBB_TENSOR_GRADIENT);
    }
    for (unsigned i = 0; i < LAYERS; i++) {
        net->weights[i] = declare(context, bytes_of_layer, EBB_TENSOR_PARAMETER);
        net->momentum[i] = declare(context, bytes_of_layer, EBB_TENSOR_OPTIMIZER);
    }
}

static void net_init(struct net *net)
{
    for (unsigned i = 0; i < 2 * LAYERS; i++) {
        ebb_tensor tensor = i < LAYERS ? net->weights[i] : net->momentum[i - LAYERS];
        uint64_t *words = acquire(net->context, tensor, EBB_USE_OVERWRITE);
        for (uint64_t k = 0; k < WORDS(bytes_of_layer); k++)
            words[k] = k * (i + 1);
        release(net->context, tensor);
    }
}

/* out = in mixed with `with`. */
static void operate(struct net *net, ebb_tensor out, enum ebb_use use, ebb_tensor in,
                    ebb_tensor with)
{
    uint64_t *a = acquire(net->context, in, EBB_USE_READ);
    uint64_t *b = acquire(net->context, with, EBB_USE_READ);
    uint64_t *c = acquire(net->context, out, use);
    if (net->dry)
        assert_int_equal(ebb_dry_run_elapse(net->context, 3000000, NULL), EBB_OK);
    else
        mix(c, a, b, bytes_of_layer);
    release(net->context, in);
    release(net->context, with);
    release(net->context, out);
}

static void net_work(struct net *net, uint64_t seed)
{
    struct ebb_context *context = net->context;
    uint64_t *input = acquire(context, net->outputs[0], EBB_USE_OVERWRITE);
    for (uint64_t k = 0; !net->dry && k < WORDS(bytes_of_layer); k++)
        input[k] = seed + k;
    release(context, net->outputs[0]);
    assert_int_equal(ebb_phase_begin(context, EBB_PHASE_FORWARD, NULL), EBB_OK);
    for (unsigned i = 0; i < LAYERS; i++) {
        assert_int_equal(ebb_layer_begin(context, i + 1, NULL), EBB_OK);
        operate(net, net->outputs[i + 1], EBB_USE_OVERWRITE, net->outputs[i], net->weights[i]);
    }
    assert_int_equal(ebb_phase_begin(context, EBB_PHASE_BACKWARD, NULL), EBB_OK);
    operate(net, net->gradients[LAYERS], EBB_USE_OVERWRITE, net->outputs[LAYERS],
            net->outputs[LAYERS]);
    for (unsigned i = LAYERS; i-- > 0;) {
        assert_int_equal(ebb_layer_begin(context, i + 1, NULL), EBB_OK);
        operate(net, net->gradients[i], EBB_USE_OVERWRITE, net->gradients[i + 1], net->weights[i]);
        operate(net, net->momentum[i], EBB_USE_UPDATE, net->gradients[i + 1], net->outputs[i]);
        assert_int_equal(ebb_tensor_discard(context, net->outputs[i + 1], NULL), EBB_OK);
        assert_int_equal(ebb_tensor_discard(context, net->gradients[i + 1], NULL), EBB_OK);
    }
    assert_int_equal(ebb_tensor_discard(context, net->gradients[0], NULL), EBB_OK);
    assert_int_equal(ebb_tensor_discard(context, net->outputs[0], NULL), EBB_OK);
    assert_int_equal(ebb_phase_begin(context, EBB_PHASE_UPDATE, NULL), EBB_OK);
    for (unsigned i = 0; i < LAYERS; i++)
        operate(net, net->weights[i], EBB_USE_UPDATE, net->weights[i], net->momentum[i]);
}

static void net_iterate(struct net *net, uint64_t seed)
{
    assert_int_equal(ebb_iteration_begin(net->context, 0, NULL), EBB_OK);
    net_work(net, seed);
    struct ebb_error error;
    if (ebb_iteration_end(net->context, &error) != EBB_OK)
        fail_msg("%s: %s", error.what, error.why);
}

static void net_dry_run(struct net *net, enum ebb_status expected)
{
    net->dry = true;
    assert_int_equal(ebb_dry_run_begin(net->context, 0, NULL), EBB_OK);
    net_work(net, 0);
    assert_int_equal(ebb_dry_run_end(net->context, NULL), expected);
    net->dry = false;
}

static uint64_t net_digest(struct net *net)
{
    uint64_t digest = 0;
    for (unsigned i = 0; i < LAYERS; i++) {
        const uint64_t *words = acquire(net->context, net->weights[i], EBB_USE_READ);
        for (uint64_t k = 0; k < WORDS(bytes_of_layer); k++)
            digest = (digest ^ words[k]) * 0x100000001b3u;
        release(net->context, net->weights[i]);
    }
    return digest;
}

/* Runs iterations within a budget. Returns what the weights are then. */
static uint64_t train(uint64_t budget_bytes, bool no_plan, bool dry_run, unsigned iterations,
                      struct ebb_statistics *statistics)
{
    struct net net;
    net_open(&net, open_context(budget_bytes, no_plan));
    if (dry_run)
        net_dry_run(&net, EBB_OK);
    net_init(&net);
    for (unsigned i = 0; i < iterations; i++)
        net_iterate(&net, i);
    uint64_t digest = net_digest(&net);
    ebb_statistics(net.context, statistics);
    ebb_context_destroy(net.context);
    return digest;
}

static void test_training_is_the_same_within_a_budget(void **state)
{
    (void)state;
    struct ebb_statistics free_run, planned, reactive, early;
    uint64_t expected = train(0, false, false, 6, &free_run);
    assert_int_equal(free_run.moved_out_bytes, 0);
    assert_int_equal(free_run.iterations, 6);
    uint64_t budget = free_run.peak_live_bytes * 6 / 10;
    assert_int_equal(train(budget, false, false, 6, &planned), expected);
    assert_int_equal(train(budget, true, false, 6, &reactive), expected);
    assert_int_equal(train(budget, false, true, 6, &early), expected);
    assert_true(planned.peak_resident_bytes <= budget);
    assert_true(reactive.peak_resident_bytes <= budget);
    assert_true(early.peak_resident_bytes <= budget);
    assert_int_equal(planned.planned_iterations, 5);
    assert_int_equal(early.planned_iterations, 6);
    assert_int_equal(reactive.planned_iterations, 0);
    assert_int_equal(reactive.plans, 0);
    assert_true(planned.moved_out_bytes > 0 && reactive.moved_out_bytes > 0);
}

static void expect(enum ebb_status expected, enum ebb_status status, const struct ebb_error *error,
                   const char *why)
{
    assert_int_equal(status, expected);
    assert_int_equal(error->status, expected);
    if (!strstr(error->why, why))
        fail_msg("\"%s\" is not in \"%s\"", why, error->why);
}

static void test_misuse_is_refused(void **state)
{
    (void)state;
    struct ebb_context *context = open_context(16 * MIB, false), *second;
    struct ebb_options options = {0};
    struct ebb_error e = {0};
    ebb_tensor a = declare(context, MIB, EBB_TENSOR_ACTIVATION), none;
    void *address;
    expect(EBB_ERR_LIMIT, ebb_context_create(&options, &second, &e), &e, "one already");
    expect(EBB_ERR_ARGUMENT, ebb_tensor_release(context, a, &e), &e, "not acquired");
    expect(EBB_ERR_ARGUMENT, ebb_tensor_acquire(context, a, EBB_USE_READ, &address, &e), &e,
           "no contents");
    (void)acquire(context, a, EBB_USE_OVERWRITE);
    expect(EBB_ERR_ARGUMENT, ebb_tensor_acquire(context, a, EBB_USE_OVERWRITE, &address, &e), &e,
           "another use");
    expect(EBB_ERR_ARGUMENT, ebb_tensor_discard(context, a, &e), &e, "in use");
    release(context, a);
    expect(EBB_ERR_ARGUMENT, ebb_tensor_release(context, a, &e), &e, "not acquired");
    assert_int_equal(ebb_tensor_discard(context, a, NULL), EBB_OK);
    expect(EBB_ERR_ARGUMENT, ebb_tensor_acquire(context, a, EBB_USE_UPDATE, &address, &e), &e,
           "no contents");
    expect(EBB_ERR_ARGUMENT, ebb_tensor_acquire(context, a, EBB_USE_COUNT, &address, &e), &e,
           "no such use");
    expect(EBB_ERR_ARGUMENT, ebb_tensor_acquire(context, a, EBB_USE_OVERWRITE, NULL, &e), &e,
           "NULL");
    expect(EBB_ERR_ARGUMENT, ebb_tensor_release(context, 99, &e), &e, "no such tensor");
    struct ebb_tensor_desc bad[] = {{0, 0, EBB_TENSOR_WORKSPACE, "empty"},
                                    {UINT64_MAX, 0, EBB_TENSOR_WORKSPACE, "huge"},
                                    {1, 3, EBB_TENSOR_WORKSPACE, "uneven"},
                                    {1, 0, EBB_TENSOR_KIND_COUNT, "odd"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(ebb_tensor_declare(context, &bad[i], &none, &e), EBB_ERR_ARGUMENT);
        assert_string_equal(e.what, bad[i].name);
    }
    expect(EBB_ERR_ARGUMENT, ebb_iteration_end(context, &e), &e, "none has begun");
    expect(EBB_ERR_ARGUMENT, ebb_layer_begin(context, 1, &e), &e, "none has begun");
    expect(EBB_ERR_ARGUMENT, ebb_iteration_begin(context, EBB_ITERATION_KINDS, &e), &e, "kind");
    assert_int_equal(ebb_iteration_begin(context, 1, NULL), EBB_OK);
    expect(EBB_ERR_ARGUMENT, ebb_iteration_begin(context, 1, &e), &e, "begun already");
    expect(EBB_ERR_ARGUMENT, ebb_dry_run_begin(context, 0, &e), &e, "begun already");
    expect(EBB_ERR_ARGUMENT, ebb_phase_begin(context, EBB_PHASE_COUNT, &e), &e, "phase");
    assert_int_equal(ebb_iteration_end(context, NULL), EBB_OK);
    struct ebb_forecast forecast;
    expect(EBB_ERR_ARGUMENT, ebb_forecast(context, &forecast, &e), &e, "no whole iteration");
    assert_int_equal(ebb_tensor_remove(context, a, NULL), EBB_OK);
    expect(EBB_ERR_ARGUMENT, ebb_tensor_acquire(context, a, EBB_USE_OVERWRITE, &address, &e), &e,
           "no such tensor");
    ebb_context_destroy(context);
    ebb_context_destroy(NULL);
    options.store = "/nowhere/at/all";
    options.budget_bytes = 16 * MIB;
    assert_int_equal(ebb_context_create(&options, &context, &e), EBB_ERR_IO);
    options = (struct ebb_options){.budget_bytes = 16 * MIB, .machine = "abacus"};
    assert_int_not_equal(ebb_context_create(&options, &context, &e), EBB_OK);
    ebb_context_destroy(open_context(0, false)); /* a failure leaves nothing behind */
}

static void test_what_is_used_together_must_fit(void **state)
{
    (void)state;
    struct ebb_context *context = open_context(4 * MIB, false);
    struct ebb_error e = {0};
    ebb_tensor a = declare(context, 3 * MIB, EBB_TENSOR_ACTIVATION);
    ebb_tensor b = declare(context, 2 * MIB, EBB_TENSOR_ACTIVATION);
    void *address;
    memset(acquire(context, a, EBB_USE_OVERWRITE), 1, 3 * MIB);
    expect(EBB_INFEASIBLE, ebb_tensor_acquire(context, b, EBB_USE_OVERWRITE, &address, &e), &e,
           "5242880 bytes");
    assert_non_null(strstr(e.remedy, "5242880"));
    release(context, a);
    memset(acquire(context, b, EBB_USE_OVERWRITE), 2, 2 * MIB); /* now it fits */
    release(context, b);
    const unsigned char *bytes = (void *)acquire(context, a, EBB_USE_READ);
    assert_int_equal(bytes[0] + bytes[3 * MIB - 1], 2);
    release(context, a);
    struct ebb_statistics statistics;
    ebb_statistics(context, &statistics);
    assert_true(statistics.peak_resident_bytes <= 4 * MIB);
    ebb_context_destroy(context);
}

static void test_aliases_share_contents(void **state)
{
    (void)state;
    struct ebb_context *context = open_context(8 * MIB, false);
    struct ebb_error e = {0};
    ebb_tensor a = declare(context, 2 * MIB, EBB_TENSOR_ACTIVATION), b, c;
    assert_int_equal(ebb_tensor_alias(context, a, 3 * MIB, &b, &e), EBB_ERR_ARGUMENT);
    assert_int_equal(ebb_tensor_alias(context, a, MIB, &b, NULL), EBB_OK);
    assert_int_equal(ebb_tensor_alias(context, b, MIB / 2, &c, NULL), EBB_OK);
    uint64_t *words = acquire(context, a, EBB_USE_OVERWRITE);
    words[0] = 42;
    assert_ptr_equal(acquire(context, b, EBB_USE_UPDATE), words);
    release(context, a);
    assert_int_equal(ebb_tensor_discard(context, a, &e), EBB_ERR_ARGUMENT); /* b is in use */
    release(context, b);
    assert_int_equal(acquire(context, c, EBB_USE_READ)[0], 42);
    release(context, c);
    assert_int_equal(ebb_tensor_discard(context, c, NULL), EBB_OK);
    void *address;
    assert_int_equal(ebb_tensor_acquire(context, a, EBB_USE_READ, &address, &e), EBB_ERR_ARGUMENT);
    assert_int_equal(ebb_tensor_remove(context, a, NULL), EBB_OK);
    assert_int_equal(ebb_tensor_acquire(context, b, EBB_USE_OVERWRITE, &address, &e),
                     EBB_ERR_ARGUMENT);
    ebb_context_destroy(context);
}

static void test_hints_move_tensors(void **state)
{
    (void)state;
    struct ebb_context *context = open_context(64 * MIB, false);
    ebb_tensor a = declare(context, 4 * MIB, EBB_TENSOR_ACTIVATION);
    struct ebb_statistics before, after;
    memset(acquire(context, a, EBB_USE_OVERWRITE), 7, 4 * MIB);
    assert_int_equal(ebb_tensor_evict(context, a, NULL), EBB_OK); /* in use: no effect */
    release(context, a);
    ebb_statistics(context, &before);
    assert_int_equal(before.moved_out_bytes, 0);
    assert_int_equal(ebb_tensor_evict(context, a, NULL), EBB_OK);
    assert_int_equal(ebb_barrier(context, NULL), EBB_OK);
    ebb_statistics(context, &after);
    assert_int_equal(after.moved_out_bytes, 4 * MIB);
    assert_int_equal(ebb_tensor_prefetch(context, a, NULL), EBB_OK);
    assert_int_equal(ebb_barrier(context, NULL), EBB_OK);
    ebb_statistics(context, &after);
    assert_int_equal(after.moved_in_bytes, 4 * MIB);
    const unsigned char *bytes = (void *)acquire(context, a, EBB_USE_READ);
    assert_int_equal(bytes[4 * MIB - 1], 7);
    release(context, a);
    /* It was only read: its copy in the store is still valid. */
    assert_int_equal(ebb_tensor_evict(context, a, NULL), EBB_OK);
    assert_int_equal(ebb_barrier(context, NULL), EBB_OK);
    ebb_statistics(context, &after);
    assert_int_equal(after.moved_out_bytes, 4 * MIB);
    unsigned char *written = (void *)acquire(context, a, EBB_USE_UPDATE);
    written[5] = 9;
    release(context, a);
    assert_int_equal(ebb_tensor_evict(context, a, NULL), EBB_OK);
    assert_int_equal(ebb_barrier(context, NULL), EBB_OK);
    ebb_statistics(context, &after);
    assert_int_equal(after.moved_out_bytes, 8 * MIB);
    bytes = (void *)acquire(context, a, EBB_USE_READ);
    assert_int_equal(bytes[5] + bytes[6], 16);
    release(context, a);
    ebb_context_destroy(context);
}

static void test_forecast_of_a_dry_run(void **state)
{
    (void)state;
    struct net net;
    struct ebb_forecast f;
    struct ebb_statistics statistics;
    net_open(&net, open_context(20 * MIB, false));
    net_dry_run(&net, EBB_OK);
    ebb_statistics(net.context, &statistics);
    assert_int_equal(statistics.peak_live_bytes, 0); /* nothing was allocated */
    assert_int_equal(statistics.plans, 1);
    assert_int_equal(ebb_forecast(net.context, &f, NULL), EBB_OK);
    assert_int_equal(f.static_bytes, (2 * (LAYERS + 1) + 2 * LAYERS) * bytes_of_layer);
    /* All parameters, momenta and outputs live when the first gradients do. */
    assert_in_range(f.peak_bytes, (3 * LAYERS + 1) * bytes_of_layer,
                    (3 * LAYERS + 4) * bytes_of_layer);
    assert_int_equal(f.iteration_ns, (4 * LAYERS + 1) * 3000000);
    assert_true(f.least_bytes >= 3 * bytes_of_layer && f.least_bytes <= 20 * MIB);
    assert_true(f.least_bytes <= f.loss_20_bytes && f.loss_20_bytes <= f.loss_5_bytes &&
                f.loss_5_bytes <= f.no_loss_bytes && f.no_loss_bytes < f.peak_bytes);
    assert_true(f.planned_ns >= f.iteration_ns);
    ebb_context_destroy(net.context);

    /* A budget at the forecast's least suffices, and a smaller one is refused. */
    net_open(&net, open_context(f.least_bytes - MIB, false));
    net_dry_run(&net, EBB_INFEASIBLE);
    ebb_statistics(net.context, &statistics);
    assert_int_equal(statistics.smallest_feasible_bytes, f.least_bytes);
    ebb_context_destroy(net.context);
    struct ebb_statistics free_run, least;
    uint64_t expected = train(0, false, false, 3, &free_run);
    assert_int_equal(train(f.least_bytes + MIB, false, true, 3, &least), expected);
    assert_true(least.peak_resident_bytes <= f.least_bytes + MIB);
}

/* Iterations of two kinds take turns, and each has its plan. */
static void test_kinds_have_their_plans(void **state)
{
    (void)state;
    struct net net;
    struct ebb_statistics statistics;
    net_open(&net, open_context(48 * MIB, false));
    net_init(&net);
    for (unsigned i = 0; i < 12; i++) {
        if (i % 3 < 2) {
            net_iterate(&net, i);
            continue;
        }
        assert_int_equal(ebb_iteration_begin(net.context, 1, NULL), EBB_OK);
        (void)net_digest(&net);
        assert_int_equal(ebb_iteration_end(net.context, NULL), EBB_OK);
    }
    ebb_statistics(net.context, &statistics);
    assert_int_equal(statistics.iterations, 12);
    assert_int_equal(statistics.planned_iterations, 10);
    ebb_context_destroy(net.context);
}

/* A random program: uses of all kinds in any order, checked word by word. */
static void test_random_uses(void **state)
{
    (void)state;
    enum { TENSORS = 40u };
    struct ebb_context *context = open_context(12 * MIB, false);
    ebb_tensor tensors[TENSORS];
    uint64_t sizes[TENSORS], values[TENSORS] = {0}, random = 0x2545f4914f6cdd1d;
    for (unsigned i = 0; i < TENSORS; i++) {
        sizes[i] = 1000 + (uint64_t)i * i * 900;
        tensors[i] = declare(context, sizes[i], 1 + i % (EBB_TENSOR_KIND_COUNT - 1));
    }
    for (unsigned step = 0; step < 3000; step++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        unsigned i = (unsigned)(random % TENSORS), does = (unsigned)((random >> 32) % 10);
        if (step % 500 == 0)
            assert_int_equal(ebb_iteration_begin(context, 0, NULL), EBB_OK);
        if (does == 0) {
            assert_int_equal(ebb_tensor_discard(context, tensors[i], NULL), EBB_OK);
            values[i] = 0;
        } else if (does < 5 || !values[i]) {
            values[i] = random | 1;
            unsigned char *bytes = (void *)acquire(context, tensors[i], EBB_USE_OVERWRITE);
            memset(bytes, (int)(values[i] & 0xff), sizes[i]);
            release(context, tensors[i]);
        } else {
            bool write = does > 7;
            unsigned char *bytes =
                (void *)acquire(context, tensors[i], write ? EBB_USE_UPDATE : EBB_USE_READ);
            for (uint64_t k = 0; k < sizes[i]; k += 509)
                assert_int_equal(bytes[k], values[i] & 0xff);
            values[i] = write ? random | 1 : values[i];
            if (write)
                memset(bytes, (int)(values[i] & 0xff), sizes[i]);
            release(context, tensors[i]);
        }
        if (step % 500 == 499)
            assert_int_equal(ebb_iteration_end(context, NULL), EBB_OK);
    }
    struct ebb_statistics statistics;
    ebb_statistics(context, &statistics);
    assert_true(statistics.peak_resident_bytes <= 12 * MIB);
    assert_true(statistics.moved_in_bytes > 0);
    ebb_context_destroy(context);
}

struct worker {
    struct ebb_context *context;
    unsigned number;
    unsigned wrong;
};

/* Threads with tensors of their own, and one that all read. */
static void *work(void *given)
{
    struct worker *worker = given;
    ebb_tensor own[6];
    for (unsigned i = 0; i < 6; i++) {
        own[i] = declare(worker->context, MIB, EBB_TENSOR_ACTIVATION);
        memset(acquire(worker->context, own[i], EBB_USE_OVERWRITE), (int)(worker->number + i), MIB);
        release(worker->context, own[i]);
    }
    for (unsigned round = 0; round < 40; round++) {
        unsigned i = round % 6;
        const unsigned char *shared = (void *)acquire(worker->context, 1, EBB_USE_READ);
        const unsigned char *bytes = (void *)acquire(worker->context, own[i], EBB_USE_READ);
        worker->wrong += shared[round] != 77 || bytes[round * 1000] != worker->number + i;
        release(worker->context, 1);
        release(worker->context, own[i]);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct ebb_context *context = open_context(10 * MIB, false);
    pthread_t threads[4];
    struct worker workers[4];
    ebb_tensor shared = declare(context, MIB, EBB_TENSOR_PARAMETER);
    memset(acquire(context, shared, EBB_USE_OVERWRITE), 77, MIB);
    release(context, shared);
    for (unsigned i = 0; i < 4; i++) {
        workers[i] = (struct worker){context, 10 * i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].wrong, 0);
    }
    struct ebb_statistics statistics;
    ebb_statistics(context, &statistics);
    assert_true(statistics.peak_resident_bytes <= 10 * MIB);
    assert_true(statistics.moved_in_bytes > 0);
    ebb_context_destroy(context);
}

static void note(void *user, const char *message)
{
    if (strstr(message, "full"))
        (*(unsigned *)user)++;
}

/* The store takes 8 MiB. The training goes on in memory, and comes to the same result. */
static void test_a_full_store(void **state)
{
    (void)state;
    char path[] = "/tmp/ebb-store-XXXXXX";
    assert_non_null(mkdtemp(path));
    if (mount("none", path, "tmpfs", 0, "size=8m") != 0) {
        rmdir(path);
        print_message("skipped: needs mounts\n");
        return;
    }
    struct ebb_statistics free_run, full;
    uint64_t expected = train(0, false, false, 3, &free_run);
    unsigned told = 0;
    struct ebb_options options = {.budget_bytes = free_run.peak_live_bytes / 2,
                                  .store = path,
                                  .machine = "nvme",
                                  .warn = note,
                                  .user = &told};
    struct ebb_context *context;
    struct net net;
    assert_int_equal(ebb_context_create(&options, &context, NULL), EBB_OK);
    net_open(&net, context);
    net_init(&net);
    for (unsigned i = 0; i < 3; i++)
        net_iterate(&net, i);
    assert_int_equal(net_digest(&net), expected);
    ebb_statistics(context, &full);
    assert_int_equal(full.store_errno, ENOSPC);
    assert_true(full.over_budget_bytes > 0);
    assert_int_equal(told, 1);
    ebb_context_destroy(context);
    assert_int_equal(umount(path), 0);
    assert_int_equal(rmdir(path), 0);
}

/* What is recorded is a trace: tests/test_api_install.py reads it with the tool. */
static void test_record(void **state)
{
    (void)state;
    char path[] = "/tmp/ebb-api-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    struct net net;
    struct ebb_error e = {0};
    net_open(&net, open_context(0, false));
    net_init(&net);
    assert_int_equal(ebb_record(net.context, path, NULL), EBB_OK);
    expect(EBB_ERR_ARGUMENT, ebb_record(net.context, path, &e), &e, "being recorded");
    for (unsigned i = 0; i < 3; i++)
        net_iterate(&net, i);
    ebb_context_destroy(net.context);
    off_t bytes = lseek(file, 0, SEEK_END);
    assert_true(bytes > 1000);
    close(file);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training_is_the_same_within_a_budget),
        cmocka_unit_test(test_misuse_is_refused),
        cmocka_unit_test(test_what_is_used_together_must_fit),
        cmocka_unit_test(test_aliases_share_contents),
        cmocka_unit_test(test_hints_move_tensors),
        cmocka_unit_test(test_forecast_of_a_dry_run),
        cmocka_unit_test(test_kinds_have_their_plans),
        cmocka_unit_test(test_random_uses),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_a_full_store),
        cmocka_unit_test(test_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
