/* The engine on the fake driver, one property at a time. Random programs: fuzz_cuda. */
#include "base/clock.h"
#include "base/tuning.h"
#include "cuda_known.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on

/* ---- nothing waits for the device, but for memory that the device still uses ----------------- */

static void still_body(void *unused)
{
    struct rig rig;
    struct known known[12];
    (void)unused;
    set_patience("60s");
    start(&rig, 64 * MIB);
    CUstream stream = new_stream(&rig), other = new_stream(&rig);
    RIG_OK(rig_launch(&rig, waiting(&rig, "gate"), stream, NULL, NULL, 0, false));
    uint64_t since_ns = ebb__now_ns();
    for (unsigned i = 0; i < 12; i++) { /* new pages */
        RIG_OK(known_alloc(&rig, &known[i], 4 * MIB));
        known_fill(&rig, &known[i], stream, i);
    }
    for (unsigned i = 0; i < 12; i++) { /* again */
        if (i % 2) {
            struct known again = known[i];
            known_fill(&rig, &again, stream, i);
        }
    }
    for (unsigned i = 0; i < 100; i++) {
        struct known brief;
        RIG_OK(known_alloc(&rig, &brief, (1 + i % 3) * MIB));
        known_fill(&rig, &brief, i % 2 ? stream : other, i);
        RIG_MUST(ebb__cuda_free(rig.engine, brief.address, EBB_CUDA_NO_STREAM));
    }
    RIG_MUST(ebb__now_ns() - since_ns < 5000000000u);
    RIG_MUST(rig.driver.cuStreamDestroy_v2 &&
             rig.call.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
    atomic_store(&gate_is_open, 1);
    for (unsigned i = 0; i < 12; i++)
        known_check(&rig, &known[i], stream);
    rig_stop(&rig);
}

static void test_calls_return_while_the_device_stands_still(void **state)
{
    (void)state;
    static const char *settings[] = {"FAKECUDA_BUDGET=64M", NULL};
    assert_int_equal(rig_child(settings, still_body, NULL, 60), 0);
}

/* ---- memory that was freed in the order of a stream ------------------------------------------ */

/* Another stream takes it, behind what came before the free. It does not wait for a later kernel:
 * that one may itself wait for the other stream. */
static void freed_body(void *unused)
{
    struct rig rig;
    struct known first, second;
    (void)unused;
    set_patience("60s");
    start(&rig, 4 * MIB);
    CUstream one = new_stream(&rig), two = new_stream(&rig);
    RIG_OK(known_alloc(&rig, &first, 4 * MIB));
    known_fill(&rig, &first, two, 1);
    RIG_OK(rig.call.cuCtxSynchronize());
    known_fill(&rig, &first, one, 2);
    RIG_MUST(ebb__cuda_free(rig.engine, first.address, one));
    RIG_OK(rig_launch(&rig, waiting(&rig, "gate"), one, NULL, NULL, 0, false));
    RIG_OK(known_alloc(&rig, &second, 4 * MIB));
    RIG_MUST(second.address == first.address);
    known_fill(&rig, &second, two, 3);
    known_check(&rig, &second, two);
    RIG_MUST(rig.call.cuStreamQuery(one) == CUDA_ERROR_NOT_READY);
    atomic_store(&gate_is_open, 1);
    rig_stop(&rig);
}

static void test_freed_memory_is_taken_behind_the_free(void **state)
{
    (void)state;
    static const char *settings[] = {"FAKECUDA_BUDGET=4M", NULL};
    assert_int_equal(rig_child(settings, freed_body, NULL, 20), 0);
}

static void *open_gate_late(void *unused)
{
    usleep(300000);
    atomic_store(&gate_is_open, 1);
    return unused;
}

/* As many streams as the engine lists are known. One more takes memory that a kernel still uses.
 * Its work comes after that, although nothing can be queued for it. */
static void unlisted_body(void *is_copied)
{
    struct rig rig;
    struct known first, second, small;
    CUstream one, other, extra;
    pthread_t opener;
    set_patience("20s");
    start(&rig, 6 * MIB);
    one = new_stream(&rig);
    RIG_OK(known_alloc(&rig, &small, 4096));
    known_fill(&rig, &small, one, 1);
    for (unsigned i = 1; i < CUDA_MOST_STREAMS; i++) {
        other = new_stream(&rig);
        known_fill(&rig, &small, other, i);
    }
    RIG_OK(rig.call.cuCtxSynchronize());
    extra = new_stream(&rig);
    RIG_OK(known_alloc(&rig, &first, 4 * MIB));
    RIG_OK(rig_launch(&rig, waiting(&rig, "gate"), one, NULL, NULL, 0, false));
    known_fill(&rig, &first, one, 2);
    RIG_MUST(ebb__cuda_free(rig.engine, first.address, one));
    RIG_OK(known_alloc(&rig, &second, 4 * MIB));
    RIG_MUST(second.address == first.address);
    RIG_MUST(!pthread_create(&opener, NULL, open_gate_late, NULL));
    if (is_copied) /* it waits for what used its blocks, the kernel for all that is owed */
        second.salt = 2;
    else
        known_fill(&rig, &second, extra, 3);
    RIG_MUST(is_copied || rig.call.cuStreamQuery(extra) == CUDA_SUCCESS);
    known_check(&rig, &second, extra);
    RIG_MUST(atomic_load(&gate_is_open));
    RIG_MUST(strstr(rig.warned, "too many streams"));
    RIG_OK(rig.call.cuCtxSynchronize());
    known_check(&rig, &second, extra);
    pthread_join(opener, NULL);
    rig_stop(&rig);
}

static void test_one_stream_too_many_is_ordered(void **state)
{
    (void)state;
    static const char *settings[] = {"FAKECUDA_BUDGET=6M", NULL};
    assert_int_equal(rig_child(settings, unlisted_body, NULL, 60), 0);
    assert_int_equal(rig_child(settings, unlisted_body, settings, 60), 0);
}

/* ---- kernels that wait for kernels ----------------------------------------------------------- */

static void peers_body(void *unused)
{
    struct rig rig;
    (void)unused;
    set_patience("50ms");
    start(&rig, 10 * MIB);
    CUstream one = new_stream(&rig), two = new_stream(&rig);
    known_peers(&rig, one, two);
    rig_stop(&rig);
}

static void test_peers_end_although_memory_is_short(void **state)
{
    (void)state;
    static const char *settings[] = {"FAKECUDA_BUDGET=10M", NULL};
    assert_int_equal(rig_child(settings, peers_body, NULL, 60), 0);
}

static bool is_stray(const struct rig *rig, const struct known *known)
{
    const struct cuda_block *block =
        &rig->engine->table.blocks[ebb__cuda_find(rig->engine, known->address)];
    return ebb__mover_is_stray(rig->engine->mover, block->first_unit, block->unit_count);
}

/* The only block that could leave is used by a kernel that waits for the one that needs room. */
static void tight_peers_body(void *unused)
{
    struct rig rig;
    struct known a, b;
    (void)unused;
    set_patience("50ms");
    start(&rig, 6 * MIB);
    CUstream one = new_stream(&rig), two = new_stream(&rig);
    RIG_OK(known_alloc(&rig, &b, 4 * MIB));
    known_fill(&rig, &b, two, 2);
    RIG_OK(known_alloc(&rig, &a, 4 * MIB)); /* b leaves */
    known_fill(&rig, &a, one, 1);
    known_use(&rig, &a, "await_peer", one);
    known_use(&rig, &b, "peer", two); /* a must leave, and cannot before this has run */
    RIG_OK(rig.call.cuCtxSynchronize());
    RIG_MUST(ebb__mover_has_strays(rig.engine->mover));
    known_check(&rig, &a, one);
    known_check(&rig, &b, two);
    known_check(&rig, &b, two);
    RIG_MUST(!is_stray(&rig, &b));
    rig_stop(&rig);
}

/* Much work is queued, and it goes on. What waits for it does not give up. Beside other tests, the
 * fake's threads may rest for much longer than a piece of the work lasts. */
static void busy_body(void *unused)
{
    struct rig rig;
    struct known a, b;
    (void)unused;
    set_patience("1s");
    start(&rig, 8 * MIB);
    CUstream one = new_stream(&rig), two = new_stream(&rig);
    RIG_OK(known_alloc(&rig, &a, 6 * MIB));
    known_fill(&rig, &a, two, 1);
    for (unsigned i = 0; i < 6; i++) {
        struct known brief; /* to free it asks how far the streams are */
        for (unsigned k = 0; k < 3; k++)
            RIG_OK(rig_launch(&rig, waiting(&rig, "pause"), one, NULL, NULL, 0, false));
        RIG_OK(known_alloc(&rig, &brief, 4096));
        RIG_MUST(ebb__cuda_free(rig.engine, brief.address, EBB_CUDA_NO_STREAM));
    }
    known_use(&rig, &a, "pause", one);
    RIG_OK(known_alloc(&rig, &b, 6 * MIB)); /* a leaves */
    known_fill(&rig, &b, two, 2);
    RIG_MUST(!ebb__mover_has_strays(rig.engine->mover));
    known_check(&rig, &b, two);
    RIG_MUST(!ebb__mover_has_strays(rig.engine->mover));
    known_check(&rig, &a, two);
    rig_stop(&rig);
}

static void test_patience_lasts_while_the_device_works(void **state)
{
    (void)state;
    static const char *settings[] = {"FAKECUDA_BUDGET=8M", NULL};
    assert_int_equal(rig_child(settings, busy_body, NULL, 60), 0);
}

static void test_patience_ends_and_strays_return(void **state)
{
    (void)state;
    static const char *settings[] = {"FAKECUDA_BUDGET=6M", NULL};
    assert_int_equal(rig_child(settings, tight_peers_body, NULL, 60), 0);
}

/* Requests beside the engine's: a block is to leave, and to come back twice. It cannot leave yet.
 * Neither FETCH brings it back before it has left, so it is used where it is. */
static void late_eviction_body(void *unused)
{
    struct rig rig;
    struct known a;
    (void)unused;
    set_patience("50ms");
    start(&rig, 8 * MIB);
    struct cuda_mover *mover = rig.engine->mover;
    CUstream stream = new_stream(&rig);
    RIG_OK(known_alloc(&rig, &a, 4 * MIB));
    known_fill(&rig, &a, stream, 1);
    struct ebb_cuda_use use = {a.address, 0, EBB_ACCESS_READ};
    RIG_OK(rig_launch(&rig, waiting(&rig, "gate"), stream, NULL, &use, 1, false));
    pthread_mutex_lock(&rig.engine->lock);
    uint32_t number = ebb__cuda_find(rig.engine, a.address), arrival;
    struct cuda_move fetch = {
        .kind = CUDA_MOVE_FETCH, .first = rig.engine->table.blocks[number].first_unit, .count = 2};
    RIG_MUST(ebb__room_evict(&rig.engine->room, number));
    for (unsigned i = 0; i < 2; i++) {
        ebb__mover_add(mover, &fetch, &arrival);
        while (!ebb__mover_is_over(mover, arrival))
            usleep(1000);
        RIG_MUST(is_stray(&rig, &a));
    }
    pthread_mutex_unlock(&rig.engine->lock);
    atomic_store(&gate_is_open, 1);
    while (ebb__mover_held_bytes(mover) > 0)
        usleep(1000); /* it leaves */
    known_check(&rig, &a, stream);
    RIG_MUST(!is_stray(&rig, &a) && ebb__mover_held_bytes(mover) == 4 * MIB);
    rig_stop(&rig);
}

static void test_late_evictions_come_first(void **state)
{
    (void)state;
    static const char *settings[] = {"FAKECUDA_BUDGET=8M", NULL};
    assert_int_equal(rig_child(settings, late_eviction_body, NULL, 60), 0);
}

/* ---- the ladder ------------------------------------------------------------------------------ */

static void ladder_body(void *unused)
{
    struct rig rig;
    struct known kept, other, absent[3];
    (void)unused;
    set_patience("200ms");
    start(&rig, 8 * MIB);
    CUstream stream = new_stream(&rig);
    RIG_OK(rig_launch(&rig, waiting(&rig, "gate"), stream, NULL, NULL, 0, false));
    RIG_OK(known_alloc(&rig, &kept, 6 * MIB));
    known_fill(&rig, &kept, stream, 1);
    ebb__cuda_reach(rig.engine, kept.address + 5);
    uint64_t since_ns = ebb__now_ns();
    for (unsigned i = 0; i < 3; i++) { /* they begin in host memory: there is no room */
        RIG_OK(known_alloc(&rig, &absent[i], i < 2 ? 4 * MIB : 400 * MIB));
        known_fill(&rig, &absent[i], stream, i + 2);
    }
    RIG_MUST(known_alloc(&rig, &other, 3000 * MIB) == CUDA_ERROR_OUT_OF_MEMORY); /* the card's */
    RIG_MUST(known_alloc(&rig, &other, SIZE_MAX / 2) == CUDA_ERROR_OUT_OF_MEMORY);
    RIG_MUST(ebb__cuda_alloc(rig.engine, 0, EBB_CUDA_NO_STREAM, &other.address) ==
             CUDA_ERROR_INVALID_VALUE);
    RIG_MUST(ebb__now_ns() - since_ns < 5000000000u);
    RIG_MUST(atomic_load(&rig.ring->counters.away_allocations) == 3);
    RIG_MUST(strstr(rig.warned, "begins in host memory"));
    RIG_OK(known_alloc(&rig, &other, 2 * MIB)); /* nothing has changed by the failures */
    atomic_store(&gate_is_open, 1);
    known_check(&rig, &kept, stream);
    for (unsigned i = 0; i < 3; i++)
        known_check(&rig, &absent[i], stream);
    size_t free_bytes, total_bytes;
    ebb__cuda_memory(rig.engine, &free_bytes, &total_bytes);
    RIG_MUST(total_bytes == 8 * MIB && free_bytes == 0);
    RIG_MUST(ebb__cuda_free(rig.engine, kept.address, EBB_CUDA_NO_STREAM));
    known_check(&rig, &absent[0], stream); /* now there is room */
    RIG_MUST(rig.engine->table.blocks[ebb__cuda_find(rig.engine, absent[0].address)].state ==
             CUDA_BLOCK_RESIDENT);
    rig_stop(&rig);
}

static void test_out_of_memory_is_an_answer(void **state)
{
    (void)state;
    static const char *settings[] = {"FAKECUDA_BUDGET=8M", "FAKECUDA_MEMORY=2G", NULL};
    assert_int_equal(rig_child(settings, ladder_body, NULL, 60), 0);
}

/* Pages that are dropped cannot be used before the device goes on. Other addresses of the same
 * region can. */
static void spread_body(void *unused)
{
    struct rig rig;
    struct known brief;
    (void)unused;
    set_patience("2s");
    start(&rig, 16 * MIB);
    CUstream stream = new_stream(&rig);
    RIG_OK(rig_launch(&rig, waiting(&rig, "gate"), stream, NULL, NULL, 0, false));
    uint64_t since_ns = ebb__now_ns();
    for (unsigned i = 0; i < 60; i++) {
        RIG_OK(known_alloc(&rig, &brief, (6 + i * 10 % 12) * MIB));
        known_fill(&rig, &brief, stream, i);
        RIG_MUST(ebb__cuda_free(rig.engine, brief.address, EBB_CUDA_NO_STREAM));
    }
    RIG_MUST(ebb__now_ns() - since_ns < 5000000000u);
    RIG_MUST(atomic_load(&rig.engine->table.region_count) == 1);
    atomic_store(&gate_is_open, 1);
    rig_stop(&rig);
}

static void test_addresses_beside_dropped_ones_are_used(void **state)
{
    (void)state;
    static const char *settings[] = {"FAKECUDA_BUDGET=16M", NULL};
    assert_int_equal(rig_child(settings, spread_body, NULL, 60), 0);
}

/* `is_shared`: 4 MiB are left by another process. */
static void host_full_body(void *is_shared)
{
    struct rig rig;
    struct known known[4];
    rig_init(&rig, 8 * MIB);
    struct ebb_ledger *store = rig.store_ledger;
    if (is_shared) {
        atomic_store(&store->budget_bytes, 9 * MIB);
        RIG_MUST(ebb__ledger_reserve(store, &store->slots[2], 5 * MIB));
    } else {
        rig.config.host_budget_bytes = 4 * MIB;
    }
    rig_start(&rig);
    RIG_OK(rig.call.cuModuleLoadData(&rig.module, &program_image));
    CUstream stream = new_stream(&rig);
    for (unsigned i = 0; i < 3; i++) {
        RIG_OK(known_alloc(&rig, &known[i], 4 * MIB));
        known_fill(&rig, &known[i], stream, i);
    }
    RIG_MUST(known_alloc(&rig, &known[3], 4 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
    RIG_MUST(strstr(rig.warned, "host memory is full"));
    for (unsigned i = 0; i < 3; i++)
        known_check(&rig, &known[i], stream);
    RIG_MUST(atomic_load(&rig.ring->counters.store_peak_bytes) <= 4 * MIB);
    if (is_shared) { /* the other one ends */
        RIG_MUST(atomic_load(&store->peak_bytes) <= 9 * MIB);
        ebb__ledger_release(store, &store->slots[2], 5 * MIB);
        RIG_OK(known_alloc(&rig, &known[3], 4 * MIB));
        RIG_MUST(atomic_load(&store->over_bytes) == 0);
    }
    rig_stop(&rig);
}

static void test_host_budget_ends_evictions(void **state)
{
    (void)state;
    static const char *settings[] = {"FAKECUDA_BUDGET=8M", NULL};
    assert_int_equal(rig_child(settings, host_full_body, NULL, 60), 0);
    assert_int_equal(rig_child(settings, host_full_body, settings, 60), 0);
}

static void large_body(void *unused)
{
    struct rig rig;
    struct known known[4];
    struct ebb_cuda_use uses[4];
    (void)unused;
    start(&rig, 8 * MIB);
    CUstream stream = new_stream(&rig);
    for (unsigned i = 0; i < 4; i++) {
        RIG_OK(known_alloc(&rig, &known[i], 4 * MIB));
        known_fill(&rig, &known[i], stream, i);
        uses[i] = (struct ebb_cuda_use){known[i].address, 0, EBB_ACCESS_READ};
    }
    struct ebb_cuda_work work = {
        .kind = EBB_CUDA_KERNEL, .stream = stream, .uses = uses, .use_count = 4};
    RIG_MUST(ebb__cuda_begin(rig.engine, &work) == CUDA_ERROR_OUT_OF_MEMORY);
    ebb__cuda_end(rig.engine, &work, true);
    RIG_MUST(strstr(rig.warned, "16.0 MiB"));
    for (unsigned i = 0; i < 4; i++)
        known_check(&rig, &known[i], stream);
    rig_stop(&rig);
}

static void test_work_beyond_the_budget_is_served(void **state)
{
    (void)state;
    static const char *settings[] = {"FAKECUDA_BUDGET=8M", NULL};
    assert_int_equal(rig_child(settings, large_body, NULL, 60), 0);
}

/* ---- what only the mover destroys ------------------------------------------------------------ */

/* A kernel that nobody announces writes to a new block while the mover has not yet discarded what
 * was there before. */
static void discard_body(void *unused)
{
    struct rig rig;
    struct known old[3], fresh;
    (void)unused;
    set_patience("60s");
    start(&rig, 8 * MIB);
    CUstream one = new_stream(&rig), two = new_stream(&rig);
    for (unsigned i = 0; i < 3; i++) {
        RIG_OK(known_alloc(&rig, &old[i], (i ? 2 : 4) * MIB));
        known_fill(&rig, &old[i], one, i);
    }
    ebb__cuda_reach(rig.engine, old[1].address);
    RIG_OK(rig.call.cuCtxSynchronize());
    RIG_OK(rig_launch(&rig, waiting(&rig, "gate"), one, NULL, NULL, 0, false));
    known_fill(&rig, &old[0], one, 0); /* behind the gate */
    known_fill(&rig, &old[2], one, 2);
    RIG_MUST(ebb__cuda_free(rig.engine, old[0].address, one));
    RIG_MUST(ebb__cuda_free(rig.engine, old[2].address, one));
    RIG_OK(known_alloc(&rig, &fresh, 6 * MIB)); /* no cached run is so large: they are dropped */
    uint32_t salt = 50;
    void *parameters[] = {&fresh.address, &fresh.bytes, &salt};
    fresh.salt = salt;
    RIG_OK(rig_launch(&rig, rig_function(&rig, "fill"), two, parameters, NULL, 0, false));
    atomic_store(&gate_is_open, 1);
    RIG_OK(rig.call.cuCtxSynchronize());
    for (unsigned round = 0; round < 3; round++) {
        usleep(2000);
        known_check(&rig, &fresh, two);
        known_check(&rig, &old[1], one);
    }
    rig_stop(&rig);
}

static void test_new_contents_are_not_discarded(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 10; seed++) {
        char text[32];
        const char *settings[] = {"FAKECUDA_BUDGET=8M", text, NULL};
        snprintf(text, sizeof text, "FAKECUDA_SEED=%u", seed);
        assert_int_equal(rig_child(settings, discard_body, NULL, 60), 0);
    }
}

/* ---- what is owed to all streams ------------------------------------------------------------- */

/* A block that `stream` has used becomes free and is given out again without a stream. */
static void owe(struct rig *rig, CUstream one, CUstream two)
{
    struct known known;
    RIG_OK(known_alloc(rig, &known, 4 * MIB));
    known_fill(rig, &known, one, 1);
    known_fill(rig, &known, two, 2);
    RIG_MUST(ebb__cuda_free(rig->engine, known.address, EBB_CUDA_NO_STREAM));
    RIG_OK(known_alloc(rig, &known, 4 * MIB));
    RIG_MUST(rig->engine->streams.owed.count > 0);
}

static void owed_body(void *unused)
{
    struct rig rig;
    struct known known;
    struct ebb_cuda_work open = {.kind = EBB_CUDA_KERNEL};
    (void)unused;
    set_patience("300ms");
    start(&rig, 64 * MIB);
    CUstream one = new_stream(&rig), two = new_stream(&rig), three = new_stream(&rig);
    RIG_OK(known_alloc(&rig, &known, 4 * MIB));
    known_fill(&rig, &known, three, 1);
    RIG_OK(rig_launch(&rig, waiting(&rig, "gate"), one, NULL, NULL, 0, false));
    open.stream = one; /* between begin and end, as if another thread had called */
    RIG_MUST(ebb__cuda_begin(rig.engine, &open) == CUDA_SUCCESS);
    owe(&rig, one, two);
    uint32_t taken = rig.engine->streams.event_cursor + rig.engine->streams.event_count;
    for (unsigned i = 0; i < 100; i++)
        known_fill(&rig, &known, three, i);
    RIG_MUST(rig.engine->streams.event_cursor + rig.engine->streams.event_count - taken < 20);
    ebb__cuda_end(rig.engine, &open, true);
    /* Of a stream that is being captured, no event can be had: the work waits. */
    CUgraph graph;
    owe(&rig, one, two);
    RIG_OK(known_alloc(&rig, &known, 64 * 1024));
    known_fill(&rig, &known, two, 1);
    RIG_OK(rig.call.cuStreamBeginCapture_v2(two, CU_STREAM_CAPTURE_MODE_RELAXED));
    RIG_MUST(ebb__cuda_free(rig.engine, known.address, EBB_CUDA_NO_STREAM));
    RIG_OK(known_alloc(&rig, &known, 64 * 1024));
    taken = rig.engine->streams.event_cursor + rig.engine->streams.event_count;
    known_fill(&rig, &known, three, 100);
    RIG_MUST(rig.engine->streams.event_cursor + rig.engine->streams.event_count - taken < 20);
    RIG_OK(rig.call.cuStreamEndCapture(two, &graph));
    atomic_store(&gate_is_open, 1);
    known_check(&rig, &known, three);
    rig_stop(&rig);
}

static void test_what_is_owed_is_waited_for_once(void **state)
{
    (void)state;
    static const char *settings[] = {"FAKECUDA_BUDGET=64M", NULL};
    assert_int_equal(rig_child(settings, owed_body, NULL, 60), 0);
}

/* ---- stalls ---------------------------------------------------------------------------------- */

/* Moves take 1 ms a MiB, and kernels 20 ms. */
static const char *const slow_settings[] = {"FAKECUDA_FAST=1", "FAKECUDA_KERNEL_US=20000",
                                            "FAKECUDA_MOVE_US=1000", "FAKECUDA_BUDGET=16M", NULL};

static uint64_t stalled_ms(struct rig *rig)
{
    RIG_OK(rig->call.cuCtxSynchronize());
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* it is seen */
    return atomic_load(&rig->ring->counters.stall_ns) / 1000000;
}

/* What the ring tells: the waits, and what all of it took without them, from the first use on. */
static void read_waits(struct rig *rig, unsigned *waits, uint64_t *waited_ms, uint64_t *rest_ms)
{
    static struct ebb_event events[1000];
    size_t count = ebb__ring_read(rig->ring, events, 1000), first = count, last = 0;
    uint64_t waited_ns = 0, before_ns = 0;
    *waits = 0;
    for (size_t i = 0; i < count; i++) {
        if (events[i].kind == EBB_EVENT_ACCESS && first == count)
            first = i;
        if (events[i].kind == EBB_EVENT_ACCESS)
            last = i;
        if (events[i].kind != EBB_EVENT_MARK || events[i].mark != EBB_MARK_WAIT)
            continue;
        RIG_MUST(events[i + 1].kind == EBB_EVENT_ACCESS &&
                 events[i + 1].time_ns == events[i].time_ns);
        waited_ns += events[i].size_bytes;
        before_ns += first == count ? events[i].size_bytes : 0;
        ++*waits;
    }
    RIG_MUST(last > first);
    *waited_ms = waited_ns / 1000000;
    *rest_ms = (events[last].time_ns - events[first].time_ns + before_ns - waited_ns) / 1000000;
}

/* Three blocks in turn, with room for two. Each use waits until one has left and one has come. */
static void stall_body(void *backing)
{
    struct rig rig;
    struct known known[3];
    unsigned waits;
    uint64_t waited_ms, rest_ms;
    rig_init(&rig, 16 * MIB);
    rig.config.backing = *(enum ebb_cuda_backing_kind *)backing;
    rig_start(&rig);
    RIG_OK(rig.call.cuModuleLoadData(&rig.module, &program_image));
    CUstream stream = new_stream(&rig);
    ebb__cuda_set_trace(rig.engine, EBB_OBSERVE_ALWAYS, 0);
    for (unsigned i = 0; i < 3; i++) {
        RIG_OK(known_alloc(&rig, &known[i], 6 * MIB));
        known_fill(&rig, &known[i], stream, i);
    }
    uint64_t before_ms = stalled_ms(&rig);
    read_waits(&rig, &waits, &waited_ms, &rest_ms);
    for (unsigned i = 0; i < 6; i++)
        known_fill(&rig, &known[i % 3], stream, i);
    uint64_t ms = stalled_ms(&rig) - before_ms;
    read_waits(&rig, &waits, &waited_ms, &rest_ms);
    RIG_MUST(waits == 6);
    RIG_MUST(ms >= 5 * 6 && ms < 1000); /* 6 to come, and 6 to leave if nothing ran meanwhile */
    RIG_MUST(waited_ms + 2 >= ms && waited_ms <= ms + 2);
    RIG_MUST(rest_ms >= 119 && rest_ms < 1000); /* a machine with other work is slow */
    /* The block comes while a kernel runs that does not need it. */
    before_ms = stalled_ms(&rig);
    RIG_OK(rig_launch(&rig, waiting(&rig, "pause"), stream, NULL, NULL, 0, false));
    known_fill(&rig, &known[0], stream, 7);
    ms = stalled_ms(&rig) - before_ms;
    read_waits(&rig, &waits, &waited_ms, &rest_ms);
    RIG_MUST(ms < 50 && waited_ms < 50);
    rig_stop(&rig);
}

static CUresult (*record_event)(CUevent, CUstream);
static CUstream captured;
static _Atomic unsigned recorded, records; /* the mover records, too */

static CUresult note_record(CUevent event, CUstream stream)
{
    records++;
    recorded += stream == captured;
    return record_event(event, stream);
}

/* A stream that is being captured gets no timing event, although the host waits for its block. */
static void captured_body(void *unused)
{
    struct rig rig;
    struct known known[3];
    CUgraph graph;
    (void)unused;
    rig_init(&rig, 16 * MIB);
    rig.config.backing = EBB_CUDA_VMM_TRUSTING;
    record_event = rig.driver.cuEventRecord;
    rig.driver.cuEventRecord = note_record;
    rig_start(&rig);
    RIG_OK(rig.call.cuModuleLoadData(&rig.module, &program_image));
    CUstream stream = new_stream(&rig);
    captured = new_stream(&rig);
    ebb__cuda_set_trace(rig.engine, EBB_OBSERVE_ALWAYS, 0);
    for (unsigned i = 0; i < 3; i++) {
        RIG_OK(known_alloc(&rig, &known[i], 6 * MIB));
        known_fill(&rig, &known[i], stream, i);
    }
    uint32_t salt = 5;
    void *parameters[] = {&known[0].address, &known[0].bytes, &salt};
    struct ebb_cuda_use use = {known[0].address, 0, EBB_ACCESS_WRITE};
    RIG_OK(rig.call.cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    RIG_OK(rig_launch(&rig, rig_function(&rig, "fill"), captured, parameters, &use, 1, true));
    RIG_OK(rig.call.cuStreamEndCapture(captured, &graph));
    RIG_MUST(records > 0 && recorded == 0);
    rig_stop(&rig);
}

static void test_stalls_are_those_of_the_device(void **state)
{
    (void)state;
    int backings[] = {EBB_CUDA_MANAGED, EBB_CUDA_VMM_TRUSTING};
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(rig_child(slow_settings, stall_body, &backings[i], 60), 0);
    assert_int_equal(rig_child(slow_settings, captured_body, NULL, 60), 0);
}

/* ---- the driver lacks or refuses something --------------------------------------------------- */

struct fault_case {
    const char *faults;
    bool lacks_memory_ops, lacks_optional, is_native;
};

static const struct shape small_shape = {.threads = 2,
                                         .streams = 2,
                                         .steps = 150,
                                         .live_bytes = 16 * MIB,
                                         .most_bytes = 4 * MIB,
                                         .hidden = true,
                                         .dies = true};

static void fault_body(void *context)
{
    const struct fault_case *fault = context;
    struct rig rig;
    set_patience("50ms");
    rig_init(&rig, (fault->is_native ? 80 : 32) * MIB);
    rig.config.chaos_seed = 7;
    if (fault->lacks_memory_ops) {
        rig.driver.cuStreamWaitValue32_v2 = NULL;
        rig.driver.cuStreamWriteValue32_v2 = NULL;
    }
    if (fault->lacks_optional) {
        rig.driver.cuMemDiscardBatchAsync = NULL;
        rig.driver.cuStreamCreateWithPriority = NULL;
        rig.driver.cuStreamGetCtx = NULL;
        rig.driver.cuThreadExchangeStreamCaptureMode = NULL;
    }
    if (fault->is_native)
        rig.config.backing = EBB_CUDA_NATIVE;
    rig_start(&rig);
    struct shape shape = small_shape;
    if (fault->is_native)
        shape.hidden = false;
    unsigned ooms = program_run(&rig, &shape, 11);
    if (fault->lacks_memory_ops)
        RIG_MUST(strstr(rig.warned, "wait for transfers"));
    (void)ooms;
    rig_stop(&rig);
}

static void run_fault(const struct fault_case *fault)
{
    char text[128];
    const char *settings[] = {fault->is_native ? "FAKECUDA_BUDGET=80M" : "FAKECUDA_BUDGET=32M",
                              "FAKECUDA_MEMORY=1G", text, NULL};
    snprintf(text, sizeof text, "FAKECUDA_FAULTS=%s", fault->faults ? fault->faults : "");
    assert_int_equal(rig_child(settings, fault_body, (void *)(uintptr_t)fault, 100), 0);
}

static void test_faults_of_the_driver(void **state)
{
    (void)state;
    static const struct fault_case cases[] = {
        {.faults = "prefetch:3"},   {.faults = "prefetch:5%"}, {.faults = "prefetch:2+"},
        {.faults = "event:9%"},     {.faults = "managed:2+"},  {.faults = "copy-late:7%"},
        {.lacks_memory_ops = true}, {.lacks_optional = true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_fault(&cases[i]);
}

static void test_native_memory_never_moves(void **state)
{
    (void)state;
    static const struct fault_case cases[] = {{.is_native = true},
                                              {.is_native = true, .faults = "create:9%"},
                                              {.is_native = true, .faults = "map:11%"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_fault(&cases[i]);
}

static void create_body(void *unused)
{
    struct rig rig;
    struct ebb_error error = {0};
    (void)unused;
    rig_init(&rig, 16 * MIB);
    enum ebb_status status = ebb__cuda_create(&rig.config, &rig.engine, &error);
    RIG_MUST(status != EBB_OK && error.why[0]);
}

static void test_creation_fails_cleanly(void **state)
{
    (void)state;
    static const char *const cases[] = {"FAKECUDA_FAULTS=host:1",   "FAKECUDA_FAULTS=stream:2",
                                        "FAKECUDA_FAULTS=stream:3", "FAKECUDA_FAULTS=event:1",
                                        "FAKECUDA_FAULTS=event:2",  "FAKECUDA_NO_CONCURRENT=1"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *settings[] = {cases[i], NULL};
        assert_int_equal(rig_child(settings, create_body, NULL, 20), 0);
    }
}

/* ---- the end of the context ------------------------------------------------------------------ */

static void abandon_body(void *unused)
{
    struct rig rig;
    struct known known[4];
    (void)unused;
    start(&rig, 8 * MIB);
    CUstream stream = new_stream(&rig);
    for (unsigned i = 0; i < 4; i++) {
        RIG_OK(known_alloc(&rig, &known[i], 4 * MIB));
        known_fill(&rig, &known[i], stream, i);
    }
    pid_t child = fork();
    if (child == 0) { /* must make no call of the driver, and not hang */
        struct ebb_cuda_work work = {.stream = stream};
        CUdeviceptr address;
        alarm(10);
        ebb__cuda_abandon(rig.engine);
        int bad = ebb__cuda_alloc(rig.engine, 100, EBB_CUDA_NO_STREAM, &address) == CUDA_SUCCESS;
        bad |= ebb__cuda_free(rig.engine, known[0].address, EBB_CUDA_NO_STREAM);
        ebb__cuda_begin(rig.engine, &work);
        ebb__cuda_end(rig.engine, &work, false);
        _exit(bad);
    }
    int status;
    RIG_MUST(waitpid(child, &status, 0) == child && status == 0);
    for (unsigned i = 0; i < 4; i++)
        known_check(&rig, &known[i], stream);
    ebb__cuda_abandon(rig.engine);
    RIG_MUST(ebb__cuda_alloc(rig.engine, 100, EBB_CUDA_NO_STREAM, &known[0].address) ==
             CUDA_ERROR_NOT_INITIALIZED);
    RIG_MUST(atomic_load(&rig.ledger->held_bytes) == 8 * MIB); /* the driver has it still */
    ebb__cuda_is_gone(rig.engine);
    rig_stop(&rig);
}

static void test_abandoned_engine_is_quiet(void **state)
{
    (void)state;
    assert_int_equal(rig_child(NULL, abandon_body, NULL, 60), 0);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void addresses_body(void *unused)
{
    struct rig rig;
    struct known small, large;
    CUdeviceptr base;
    size_t bytes;
    (void)unused;
    start(&rig, 64 * MIB);
    RIG_OK(known_alloc(&rig, &small, 1000));
    RIG_OK(known_alloc(&rig, &large, 3 * MIB + 5));
    RIG_MUST(ebb__cuda_owns(rig.engine, large.address + 4 * MIB));
    RIG_MUST(!ebb__cuda_owns(rig.engine, 0) && !ebb__cuda_owns(rig.engine, UINT64_MAX));
    RIG_MUST(ebb__cuda_range(rig.engine, large.address + 3 * MIB + 4, &base, &bytes));
    RIG_MUST(base == large.address && bytes == 3 * MIB + 5);
    RIG_MUST(!ebb__cuda_range(rig.engine, large.address + 3 * MIB + 5, &base, &bytes));
    RIG_MUST(ebb__cuda_range(rig.engine, small.address + 999, &base, &bytes) && bytes == 1000);
    RIG_MUST(!ebb__cuda_range(rig.engine, small.address + 1024, &base, &bytes));
    RIG_MUST(!ebb__cuda_free(rig.engine, large.address + 1, EBB_CUDA_NO_STREAM));
    RIG_MUST(ebb__cuda_free(rig.engine, large.address, EBB_CUDA_NO_STREAM));
    RIG_MUST(!ebb__cuda_free(rig.engine, large.address, EBB_CUDA_NO_STREAM));
    RIG_MUST(ebb__cuda_free(rig.engine, small.address, EBB_CUDA_NO_STREAM));
    RIG_MUST(!ebb__cuda_free(rig.engine, small.address, EBB_CUDA_NO_STREAM));
    struct known again;
    RIG_OK(known_alloc(&rig, &again, 4 * MIB)); /* the same units, cached */
    RIG_MUST(again.address == large.address);
    rig_stop(&rig);
}

static void test_addresses(void **state)
{
    (void)state;
    assert_int_equal(rig_child(NULL, addresses_body, NULL, 60), 0);
}

/* Everything is kept at once: the addresses between blocks cost no time. */
static void keep_body(void *unused)
{
    struct rig rig;
    struct known known[4];
    const uint64_t sizes[] = {1000, 3 * MIB, 300 * 1024, 9 * MIB};
    (void)unused;
    start(&rig, 64 * MIB);
    for (unsigned i = 0; i < 4; i++)
        RIG_OK(known_alloc(&rig, &known[i], sizes[i]));
    ebb__cuda_keep(rig.engine, 1, SIZE_MAX);
    for (unsigned i = 0; i < 4; i++)
        RIG_MUST(rig.engine->table.blocks[ebb__cuda_find(rig.engine, known[i].address)].is_kept);
    struct known later;
    RIG_OK(known_alloc(&rig, &later, 4 * MIB));
    RIG_MUST(!rig.engine->table.blocks[ebb__cuda_find(rig.engine, later.address)].is_kept);
    ebb__cuda_keep(rig.engine, 0, SIZE_MAX);
    RIG_MUST(rig.engine->table.blocks[ebb__cuda_find(rig.engine, later.address)].is_kept);
    rig_stop(&rig);
}

static void test_all_blocks_are_kept(void **state)
{
    (void)state;
    assert_int_equal(rig_child(NULL, keep_body, NULL, 20), 0);
}

/* A work with more blocks than it can note itself. */
static void many_body(void *unused)
{
    enum { COUNT = 100 };
    static struct known known[COUNT];
    static struct ebb_cuda_use uses[COUNT];
    struct rig rig;
    (void)unused;
    start(&rig, 128 * MIB);
    CUstream stream = new_stream(&rig);
    for (unsigned i = 0; i < COUNT; i++) {
        RIG_OK(known_alloc(&rig, &known[i], i % 2 ? 5000 : MIB));
        known_fill(&rig, &known[i], stream, i);
        uses[i] = (struct ebb_cuda_use){known[i].address, 0, EBB_ACCESS_READ};
    }
    for (unsigned round = 0; round < 3; round++) {
        struct ebb_cuda_work a = {.stream = stream, .uses = uses, .use_count = COUNT}, b = a;
        RIG_OK(ebb__cuda_begin(rig.engine, &a));
        b.use_count = 50;
        RIG_OK(ebb__cuda_begin(rig.engine, &b));
        for (unsigned i = 0; i < COUNT; i++) /* small ones never move, so nothing holds them */
            RIG_MUST(rig.engine->table.blocks[ebb__cuda_find(rig.engine, known[i].address)].holds ==
                     (i % 2 ? 0u : 1u + (i < 50)));
        ebb__cuda_end(rig.engine, &a, true);
        ebb__cuda_end(rig.engine, &b, true);
        for (unsigned i = 0; i < COUNT; i++)
            RIG_MUST(!rig.engine->table.blocks[ebb__cuda_find(rig.engine, known[i].address)].holds);
    }
    rig_stop(&rig);
}

static void test_a_work_with_many_blocks(void **state)
{
    (void)state;
    assert_int_equal(rig_child(NULL, many_body, NULL, 60), 0);
}

/* ---- a smaller budget ------------------------------------------------------------------------ */

static void trim_body(void *unused)
{
    struct rig rig;
    struct known known[4];
    (void)unused;
    start(&rig, 16 * MIB);
    CUstream stream = new_stream(&rig);
    for (unsigned i = 0; i < 4; i++) {
        RIG_OK(known_alloc(&rig, &known[i], 4 * MIB));
        known_fill(&rig, &known[i], stream, i);
    }
    atomic_store(&rig.ledger->budget_bytes, 8 * MIB);
    ebb__cuda_trim(rig.engine);
    for (unsigned i = 0; i < 2000 && atomic_load(&rig.ledger->held_bytes) > 8 * MIB; i++)
        usleep(1000);
    RIG_MUST(atomic_load(&rig.ledger->held_bytes) <= 8 * MIB);
    ebb__cuda_shrink(rig.engine, 8 * MIB);
    for (unsigned i = 0; i < 2000 && atomic_load(&rig.ledger->held_bytes) > 0; i++)
        usleep(1000);
    RIG_MUST(atomic_load(&rig.ledger->held_bytes) == 0);
    for (unsigned i = 0; i < 4; i++)
        known_check(&rig, &known[i], stream);
    rig_stop(&rig);
}

static void test_a_smaller_budget(void **state)
{
    (void)state;
    assert_int_equal(rig_child(NULL, trim_body, NULL, 60), 0);
}

/* ---- blocks that other processes may open ---------------------------------------------------- */

static void shared_body(void *unused)
{
    struct rig rig;
    struct known known[4];
    struct ebb_error error;
    CUdeviceptr shared = 0, other = 0;
    CUresult result = CUDA_SUCCESS;
    (void)unused;
    set_patience("400ms");
    RIG_MUST(ebb__tuning_set("cuda_shared_bytes=5000000", &error) == EBB_OK);
    RIG_MUST(ebb__cuda_is_shared(5000000) && !ebb__cuda_is_shared(5000001));
    start(&rig, 16 * MIB);
    CUstream stream = new_stream(&rig);
    for (unsigned i = 0; i < 4; i++) {
        RIG_OK(known_alloc(&rig, &known[i], 4 * MIB));
        known_fill(&rig, &known[i], stream, i);
    }
    for (unsigned round = 0; round < 2; round++) {
        RIG_OK(ebb__cuda_alloc_shared(rig.engine, 5000000, &shared)); /* two leave */
        RIG_MUST(!ebb__cuda_owns(rig.engine, shared));
        RIG_MUST(atomic_load(&rig.ledger->held_bytes) <= 16 * MIB);
        for (unsigned i = 0; i < 4; i++) /* in what is left */
            known_check(&rig, &known[i], stream);
        RIG_OK(ebb__cuda_alloc_shared(rig.engine, 8 * MIB, &other));
        RIG_MUST(ebb__cuda_alloc_shared(rig.engine, 4 * MIB, &other) ==
                 CUDA_ERROR_OUT_OF_MEMORY); /* 6 and 8 are taken */
        RIG_MUST(ebb__cuda_free_shared(rig.engine, other, &result) && result == CUDA_SUCCESS);
        RIG_MUST(!ebb__cuda_free_shared(rig.engine, other, &result));
        RIG_MUST(!ebb__cuda_free_shared(rig.engine, known[0].address, &result));
        RIG_MUST(ebb__cuda_free_shared(rig.engine, shared, &result) && result == CUDA_SUCCESS);
        RIG_MUST(rig.engine->room.shared.bytes == 0);
    }
    for (unsigned i = 0; i < 4; i++)
        known_check(&rig, &known[i], stream);
    RIG_OK(ebb__cuda_alloc_shared(rig.engine, 5000000, &shared)); /* it ends with the engine */
    rig_stop(&rig);
}

static void test_shared_blocks_have_room(void **state)
{
    (void)state;
    static const char *settings[] = {"FAKECUDA_BUDGET=16M", NULL};
    assert_int_equal(rig_child(settings, shared_body, NULL, 60), 0);
}

/* With an argument: the tests of that name, with * and ?. */
int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_a_work_with_many_blocks),
        cmocka_unit_test(test_all_blocks_are_kept),
        cmocka_unit_test(test_calls_return_while_the_device_stands_still),
        cmocka_unit_test(test_freed_memory_is_taken_behind_the_free),
        cmocka_unit_test(test_one_stream_too_many_is_ordered),
        cmocka_unit_test(test_peers_end_although_memory_is_short),
        cmocka_unit_test(test_patience_lasts_while_the_device_works),
        cmocka_unit_test(test_patience_ends_and_strays_return),
        cmocka_unit_test(test_late_evictions_come_first),
        cmocka_unit_test(test_out_of_memory_is_an_answer),
        cmocka_unit_test(test_addresses_beside_dropped_ones_are_used),
        cmocka_unit_test(test_what_is_owed_is_waited_for_once),
        cmocka_unit_test(test_stalls_are_those_of_the_device),
        cmocka_unit_test(test_host_budget_ends_evictions),
        cmocka_unit_test(test_work_beyond_the_budget_is_served),
        cmocka_unit_test(test_new_contents_are_not_discarded),
        cmocka_unit_test(test_a_smaller_budget),
        cmocka_unit_test(test_shared_blocks_have_room),
        cmocka_unit_test(test_creation_fails_cleanly),
        cmocka_unit_test(test_faults_of_the_driver),
        cmocka_unit_test(test_native_memory_never_moves),
        cmocka_unit_test(test_abandoned_engine_is_quiet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
