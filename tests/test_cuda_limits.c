/* An engine where something runs out or ends: events, addresses, room of others, a stream in the
 * middle of its capture. On the fake driver. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cuda_known.h"

static void start_with(struct rig *rig, enum ebb_cuda_backing_kind backing, uint64_t budget_bytes)
{
    rig_init(rig, budget_bytes);
    rig->config.backing = backing;
    rig_start(rig);
    RIG_OK(rig->call.cuModuleLoadData(&rig->module, &program_image));
}

static void stream_ends(struct rig *rig, CUstream stream)
{
    ebb__cuda_stream_ends(rig->engine, stream);
    RIG_OK(rig->driver.cuStreamDestroy_v2(stream));
}

/* As the library does it. */
static void capture_begins(struct rig *rig, CUstream stream)
{
    ebb__cuda_capture_begins(rig->engine, stream);
    RIG_OK(rig->call.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
}

/* ---- streams --------------------------------------------------------------------------------- */

enum { COUNTS = 20000 };
static CUdeviceptr counted;
static _Atomic int count_is_over;

static void kernel_count(struct fakecuda_kernel *k)
{
    for (unsigned i = 0; i < COUNTS; i++) {
        unsigned *at = fakecuda_update(k, counted, 4);
        ++*at;
        fakecuda_yield(k);
    }
    atomic_store(&count_is_over, 1);
}
static const struct fakecuda_entry counting[] = {{"count", kernel_count, 0, NULL}};
static const struct fakecuda_image counting_image = {FAKECUDA_MAGIC, 1, counting, 0, NULL};

/* A kernel that names nothing counts in a block. Its stream is captured, and destroyed. Meanwhile
 * the block should leave. */
static void count_body(void *is_captured)
{
    struct rig rig;
    struct known hidden, others[3];
    CUmodule module;
    CUfunction function;
    unsigned found = 0;
    start_with(&rig, EBB_CUDA_VMM_HOST, 8 * MIB);
    RIG_OK(rig.call.cuModuleLoadData(&module, &counting_image));
    RIG_OK(rig.call.cuModuleGetFunction(&function, module, "count"));
    CUstream stream = new_stream(&rig), other = new_stream(&rig);
    RIG_OK(known_alloc(&rig, &hidden, 4 * MIB));
    RIG_OK(rig.call.cuMemcpyHtoD_v2(hidden.address, &found, 4));
    RIG_OK(rig.call.cuCtxSynchronize());
    ebb__cuda_synchronized(rig.engine, NULL, true);
    counted = hidden.address;
    RIG_OK(rig_launch(&rig, function, stream, NULL, NULL, 0, false));
    if (is_captured) {
        capture_begins(&rig, stream);
        stream_ends(&rig, stream);
    }
    for (unsigned i = 0; i < 3; i++) {
        RIG_OK(known_alloc(&rig, &others[i], 4 * MIB));
        known_fill(&rig, &others[i], other, i);
    }
    while (!atomic_load(&count_is_over))
        usleep(1000);
    struct ebb_cuda_use use = {hidden.address, 4, EBB_ACCESS_READ};
    struct ebb_cuda_work work = {
        .kind = EBB_CUDA_COPY, .stream = other, .uses = &use, .use_count = 1};
    ebb__cuda_begin(rig.engine, &work);
    RIG_OK(rig.call.cuMemcpyDtoHAsync_v2(&found, hidden.address, 4, other));
    ebb__cuda_end(rig.engine, &work, true);
    RIG_OK(rig.driver.cuStreamSynchronize(other));
    RIG_MUST(found == COUNTS);
    for (unsigned i = 0; i < 3; i++)
        known_check(&rig, &others[i], other);
    rig_stop(&rig);
}

static void test_a_captured_stream_still_runs(void **state)
{
    (void)state;
    static int is_captured;
    assert_int_equal(rig_child(NULL, count_body, NULL, 60), 0);
    assert_int_equal(rig_child(NULL, count_body, &is_captured, 60), 0);
}

/* Nothing is waited for that is over: the patience is longer than the test may take. */
static void owed_body(void *backing)
{
    struct rig rig;
    struct known first, next;
    set_patience("60s");
    start_with(&rig, *(enum ebb_cuda_backing_kind *)backing, 64 * MIB);
    CUstream stream = new_stream(&rig);
    RIG_OK(known_alloc(&rig, &first, 4 * MIB));
    known_fill(&rig, &first, stream, 1);
    capture_begins(&rig, stream);
    stream_ends(&rig, stream);
    CUstream other = new_stream(&rig);
    RIG_MUST(ebb__cuda_free(rig.engine, first.address, EBB_CUDA_NO_STREAM));
    for (unsigned i = 0; i < 5; i++) {
        RIG_OK(known_alloc(&rig, &next, 4 * MIB));
        known_fill(&rig, &next, other, i);
        known_check(&rig, &next, other);
    }
    rig_stop(&rig);
}

static void test_a_captured_stream_ends(void **state)
{
    (void)state;
    enum ebb_cuda_backing_kind managed = EBB_CUDA_MANAGED, mapped = EBB_CUDA_VMM_TRUSTING;
    assert_int_equal(rig_child(NULL, owed_body, &managed, 30), 0);
    assert_int_equal(rig_child(NULL, owed_body, &mapped, 30), 0);
}

static void streams_body(void *unused)
{
    struct rig rig;
    struct known known;
    (void)unused;
    start(&rig, 64 * MIB);
    RIG_OK(known_alloc(&rig, &known, 2 * MIB));
    for (unsigned i = 0; i < 3 * CUDA_MOST_STREAMS; i++) {
        CUstream stream = new_stream(&rig);
        known_fill(&rig, &known, stream, i);
        RIG_OK(rig.driver.cuStreamSynchronize(stream));
        ebb__cuda_synchronized(rig.engine, stream, false);
        stream_ends(&rig, stream);
    }
    RIG_MUST(!rig.warned[0]);
    rig_stop(&rig);
}

static void test_one_stream_at_a_time(void **state)
{
    (void)state;
    assert_int_equal(rig_child(NULL, streams_body, NULL, 60), 0);
}

/* ---- the parent's messages ------------------------------------------------------------------- */

static void *trim(void *rig)
{
    ebb__cuda_trim(((struct rig *)rig)->engine);
    return NULL;
}

static void *shrink(void *rig)
{
    ebb__cuda_shrink(((struct rig *)rig)->engine, 16 * MIB);
    return NULL;
}

/* Sixteen MiB leave by a message that comes on a thread without a context. */
static void leave_by(bool is_trim, bool has_own_stream)
{
    struct rig rig;
    struct known known[8];
    pthread_t thread;
    start(&rig, 64 * MIB);
    CUstream stream = has_own_stream ? new_stream(&rig) : NULL;
    for (unsigned i = 0; i < 8; i++) {
        RIG_OK(known_alloc(&rig, &known[i], 4 * MIB));
        known_fill(&rig, &known[i], stream, i);
    }
    RIG_OK(rig.call.cuCtxSynchronize());
    if (is_trim)
        atomic_store(&rig.ledger->budget_bytes, 16 * MIB);
    RIG_MUST(pthread_create(&thread, NULL, is_trim ? trim : shrink, &rig) == 0);
    pthread_join(thread, NULL);
    while (atomic_load(&rig.ledger->held_bytes) > 16 * MIB)
        usleep(1000);
    for (unsigned i = 0; i < 8; i++)
        known_check(&rig, &known[i], stream);
    rig_stop(&rig);
}

static void messages_body(void *cases)
{
    unsigned number = *(unsigned *)cases;
    leave_by(number & 1, number & 2);
}

static void test_messages_need_no_context(void **state)
{
    (void)state;
    for (unsigned number = 0; number < 4; number++)
        assert_int_equal(rig_child(NULL, messages_body, &number, 60), 0);
}

/* ---- other processes ------------------------------------------------------------------------- */

static void others_body(void *unused)
{
    struct rig rig;
    struct known known;
    size_t available, total;
    (void)unused;
    set_patience("100ms");
    start(&rig, 40 * MIB);
    atomic_store(&rig.ring->parent_gone, 0);
    RIG_MUST(ebb__ledger_reserve(rig.ledger, &rig.ledger->slots[2], 30 * MIB));
    ebb__cuda_memory(rig.engine, &available, &total);
    RIG_MUST(available == 10 * MIB && total == 40 * MIB);
    RIG_OK(known_alloc(&rig, &known, 16 * MIB)); /* in host memory: others hold its place */
    RIG_MUST(atomic_load(&rig.ledger->starving_bytes) >= 6 * MIB);
    RIG_MUST(!strstr(rig.warned, "more than"));
    ebb__ledger_release(rig.ledger, &rig.ledger->slots[2], 30 * MIB);
    RIG_OK(known_alloc(&rig, &known, 8 * MIB)); /* now there is room, and nobody is asked */
    RIG_MUST(atomic_load(&rig.ledger->starving_bytes) == 0);
    rig_stop(&rig);
}

static void test_others_are_asked(void **state)
{
    (void)state;
    assert_int_equal(rig_child(NULL, others_body, NULL, 60), 0);
}

/* A message that comes again, while what it asks for is on its way, asks for no more. */
static void again_body(void *unused)
{
    struct rig rig;
    struct known known[8];
    (void)unused;
    set_patience("60s");
    start(&rig, 64 * MIB);
    CUstream stream = new_stream(&rig);
    RIG_OK(rig_launch(&rig, waiting(&rig, "gate"), stream, NULL, NULL, 0, false));
    for (unsigned i = 0; i < 8; i++) {
        RIG_OK(known_alloc(&rig, &known[i], 4 * MIB));
        known_fill(&rig, &known[i], stream, i);
    }
    for (unsigned i = 0; i < 5; i++)
        ebb__cuda_shrink(rig.engine, 8 * MIB);
    atomic_store(&gate_is_open, 1);
    while (atomic_load(&rig.ledger->held_bytes) > 24 * MIB)
        usleep(1000);
    RIG_OK(rig.call.cuCtxSynchronize());
    usleep(50000);
    RIG_MUST(atomic_load(&rig.ledger->held_bytes) == 24 * MIB);
    for (unsigned i = 0; i < 8; i++)
        known_check(&rig, &known[i], stream);
    rig_stop(&rig);
}

static void test_a_message_that_comes_again(void **state)
{
    (void)state;
    assert_int_equal(rig_child(NULL, again_body, NULL, 60), 0);
}

/* ---- addresses ------------------------------------------------------------------------------- */

struct blob {
    struct ebb_script script;
    struct ebb_script_event events[9];
    struct ebb_script_block blocks[3];
    struct ebb_script_use uses[3];
    uint32_t allocs[4];
};

/* Three blocks, one after another, at the begin of a static placement. */
static struct blob *placed(uint64_t bytes, uint64_t placement_bytes)
{
    struct blob *blob = rig_share(sizeof *blob);
    blob->script = (struct ebb_script){.magic = EBB_SCRIPT_MAGIC,
                                       .bytes = sizeof *blob,
                                       .iteration_ns = 1000000,
                                       .placement_bytes = placement_bytes,
                                       .clock_count = 9,
                                       .block_count = 3,
                                       .use_count = 3,
                                       .alloc_count = 3,
                                       .flags = EBB_SCRIPT_ANNOUNCED,
                                       .events_offset = offsetof(struct blob, events),
                                       .blocks_offset = offsetof(struct blob, blocks),
                                       .uses_offset = offsetof(struct blob, uses),
                                       .absences_offset = offsetof(struct blob, allocs),
                                       .allocs_offset = offsetof(struct blob, allocs)};
    for (uint32_t i = 0; i < 3; i++, bytes += 2 * MIB) {
        blob->events[3 * i] = (struct ebb_script_event){bytes, 3 * i, i, EBB_EVENT_ALLOC};
        blob->events[3 * i + 1] = (struct ebb_script_event){bytes, 3 * i + 1, i, EBB_EVENT_ACCESS};
        blob->events[3 * i + 2] = (struct ebb_script_event){bytes, 3 * i + 2, i, EBB_EVENT_FREE};
        blob->blocks[i] = (struct ebb_script_block){
            .size_bytes = bytes, .first_use = i, .use_count = 1, .parts = 1};
        blob->uses[i].clock = 3 * i + 1;
        blob->allocs[i] = 3 * i;
    }
    return blob;
}

static void placements_body(void *unused)
{
    enum { PLANS = 14, ITERATIONS = 20 };
    struct rig rig;
    struct known known;
    (void)unused;
    start_with(&rig, EBB_CUDA_VMM_TRUSTING, UINT64_MAX);
    CUstream stream = new_stream(&rig);
    for (unsigned plan = 0; plan < PLANS; plan++) {
        struct blob *blob = placed((32 + 16 * plan) * MIB, (64 + 64 * plan) * MIB);
        RIG_MUST(ebb__cuda_set_script(rig.engine, &blob->script, sizeof *blob) == EBB_OK);
        for (unsigned i = 0; i < 3 * ITERATIONS; i++) {
            RIG_OK(known_alloc(&rig, &known, blob->blocks[i % 3].size_bytes));
            known_fill(&rig, &known, stream, i);
            RIG_MUST(ebb__cuda_free(rig.engine, known.address, EBB_CUDA_NO_STREAM));
        }
        RIG_OK(rig.call.cuCtxSynchronize());
    }
    RIG_MUST(rig.engine->table.region_count <= 2 * PLANS);
    RIG_OK(known_alloc(&rig, &known, 5120 * MIB)); /* of the card's 8 GiB */
    known_fill(&rig, &known, stream, 1);
    known_check(&rig, &known, stream);
    rig_stop(&rig);
}

static void test_many_placements(void **state)
{
    (void)state;
    assert_int_equal(rig_child(NULL, placements_body, NULL, 60), 0);
}

/* A buffer above what a region usually has, made a little larger again and again. */
static void growing_body(void *unused)
{
    enum { STEPS = 40 };
    struct rig rig;
    struct known known;
    (void)unused;
    set_patience("20ms");
    start_with(&rig, EBB_CUDA_VMM_TRUSTING, UINT64_MAX);
    CUstream stream = new_stream(&rig);
    for (unsigned i = 0; i < STEPS; i++) {
        RIG_OK(known_alloc(&rig, &known, (4100 + 2 * i) * MIB));
        known_fill(&rig, &known, stream, i);
        RIG_OK(rig.call.cuCtxSynchronize());
        RIG_MUST(ebb__cuda_free(rig.engine, known.address, EBB_CUDA_NO_STREAM));
    }
    RIG_MUST(rig.engine->table.region_count <= 3);
    rig_stop(&rig);
}

static void test_a_growing_buffer(void **state)
{
    (void)state;
    static const char *settings[] = {"FAKECUDA_FAST=1", NULL};
    assert_int_equal(rig_child(settings, growing_body, NULL, 60), 0);
}

/* ---- many blocks ----------------------------------------------------------------------------- */

/* So many blocks that stay for life, and then one that may leave. */
static void kept_body(void *unused)
{
    enum { KEPT = 4200 };
    struct rig rig;
    struct known first, second;
    (void)unused;
    start(&rig, (KEPT + 1) * 2 * MIB);
    CUstream stream = new_stream(&rig);
    for (unsigned i = 0; i < KEPT; i++) {
        CUdeviceptr address;
        RIG_OK(ebb__cuda_alloc(rig.engine, 2 * MIB, EBB_CUDA_NO_STREAM, &address));
        ebb__cuda_reach(rig.engine, address);
    }
    RIG_OK(known_alloc(&rig, &first, 2 * MIB));
    known_fill(&rig, &first, stream, 1);
    RIG_OK(rig.call.cuCtxSynchronize());
    RIG_OK(known_alloc(&rig, &second, 2 * MIB));
    RIG_MUST(atomic_load(&rig.ring->counters.away_allocations) == 0);
    known_fill(&rig, &second, stream, 2);
    known_check(&rig, &first, stream);
    known_check(&rig, &second, stream);
    rig_stop(&rig);
}

static void test_many_blocks_stay(void **state)
{
    (void)state;
    static const char *settings[] = {"FAKECUDA_MEMORY=16G", "FAKECUDA_FAST=1", NULL};
    assert_int_equal(rig_child(settings, kept_body, NULL, 60), 0);
}

static void shared_body(void *unused)
{
    struct rig rig;
    struct ebb_error error;
    (void)unused;
    RIG_MUST(ebb__tuning_set("cuda_shared_bytes=2097152", &error) == EBB_OK);
    start(&rig, 4096 * MIB);
    for (unsigned i = 0; i < 1000; i++) {
        CUdeviceptr address;
        RIG_OK(ebb__cuda_alloc_shared(rig.engine, 2 * MIB, &address));
    }
    rig_stop(&rig);
}

static void test_many_shared_blocks(void **state)
{
    (void)state;
    assert_int_equal(rig_child(NULL, shared_body, NULL, 60), 0);
}

/* With an argument: the tests of that name, with * and ?. */
int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_captured_stream_still_runs),
        cmocka_unit_test(test_a_captured_stream_ends),
        cmocka_unit_test(test_one_stream_at_a_time),
        cmocka_unit_test(test_messages_need_no_context),
        cmocka_unit_test(test_others_are_asked),
        cmocka_unit_test(test_a_message_that_comes_again),
        cmocka_unit_test(test_many_placements),
        cmocka_unit_test(test_a_growing_buffer),
        cmocka_unit_test(test_many_blocks_stay),
        cmocka_unit_test(test_many_shared_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
