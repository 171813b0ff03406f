/* Backings that map: vmm-host and vmm-trusting on the fake driver. Random programs on them:
 * fuzz_cuda --backing NAME. */
#include "cuda_known.h"

#include "cuda/mover_internal.h"

#include "cuda/vmm_maps.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on

struct vmm_case { /* of a child */
    enum ebb_cuda_backing_kind backing;
    uint64_t budget_bytes, pinned_bytes;
    const char *patience;
    bool is_shared; /* another process has so much of host memory that the pinned bytes are left */
};

static void start_vmm(struct rig *rig, const struct vmm_case *c)
{
    set_patience(c->patience ? c->patience : "2s");
    rig_init(rig, c->budget_bytes);
    rig->config.backing = c->backing;
    if (c->is_shared) {
        atomic_store(&rig->store_ledger->budget_bytes, 100 * MIB);
        RIG_MUST(ebb__ledger_reserve(rig->store_ledger, &rig->store_ledger->slots[2],
                                     100 * MIB - c->pinned_bytes));
    } else if (c->pinned_bytes) {
        rig->config.pinned_budget_bytes = c->pinned_bytes;
    }
    rig_start(rig);
    RIG_OK(rig->call.cuModuleLoadData(&rig->module, &program_image));
}

static void set_report(char *path, size_t bytes)
{
    snprintf(path, bytes, "/tmp/test_cuda_vmm.%d.json", getpid());
}

/* ---- a device that fails --------------------------------------------------------------------- */

/* It fails while a block comes. Who waits for the block goes on, as the device's calls do. */
static void failure_body(void *context)
{
    struct rig rig;
    struct known a, b;
    start_vmm(&rig, context);
    CUstream stream = new_stream(&rig), other = new_stream(&rig);
    RIG_OK(known_alloc(&rig, &a, 6 * MIB));
    known_fill(&rig, &a, stream, 1);
    RIG_OK(known_alloc(&rig, &b, 6 * MIB)); /* a leaves */
    known_fill(&rig, &b, stream, 2);
    known_fill(&rig, &a, stream, 3);
    uint32_t arrival = rig.engine->table.blocks[ebb__cuda_find(rig.engine, a.address)].arrival;
    while (!ebb__mover_is_issued(rig.engine->mover, arrival))
        usleep(1000);
    RIG_OK(rig_launch(&rig, waiting(&rig, "wild"), other, NULL, NULL, 0, false));
    ebb__cuda_wait_for_arrival(rig.engine, arrival);
    while (rig.driver.cuStreamQuery(other) == CUDA_ERROR_NOT_READY)
        usleep(1000);
    RIG_MUST(rig.driver.cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
    _exit(0); /* the fake counts the access as a violation */
}

static void test_a_device_that_fails(void **state)
{
    (void)state;
    static const char *settings[] = {"FAKECUDA_BUDGET=8M", "FAKECUDA_FAST=1",
                                     "FAKECUDA_MOVE_US=50000", NULL};
    for (unsigned i = 0; i < 3; i++) {
        enum ebb_cuda_backing_kind kinds[] = {EBB_CUDA_MANAGED, EBB_CUDA_VMM_HOST,
                                              EBB_CUDA_VMM_TRUSTING};
        struct vmm_case c = {.backing = kinds[i], .budget_bytes = 8 * MIB, .patience = "200ms"};
        assert_int_equal(rig_child(settings, failure_body, &c, 60), 0);
    }
}

/* ---- moves ----------------------------------------------------------------------------------- */

static void turns_body(void *context)
{
    struct rig rig;
    struct known known[8];
    start_vmm(&rig, context);
    CUstream stream = new_stream(&rig);
    for (unsigned i = 0; i < 8; i++) {
        RIG_OK(known_alloc(&rig, &known[i], 8 * MIB));
        known_fill(&rig, &known[i], stream, i);
    }
    for (unsigned turn = 0; turn < 5; turn++)
        for (unsigned i = 0; i < 8; i++)
            known_check(&rig, &known[i], stream);
    RIG_MUST(atomic_load(&rig.ring->counters.moved_out_bytes) >= 5 * 5 * 8 * MIB);
    RIG_MUST(atomic_load(&rig.ledger->peak_bytes) <= 32 * MIB);
    RIG_MUST(!ebb__mover_has_strays(rig.engine->mover));
    rig_stop(&rig);
}

/* Handles are recycled: as many are made as exist at a time, and none is left. The budget is 16
 * units, and so small that each may have a handle of its own. Four in host memory have one. Returns
 * how often one was mapped. */
static long turn(enum ebb_cuda_backing_kind backing)
{
    struct vmm_case c = {.backing = backing, .budget_bytes = 32 * MIB};
    char path[128], report[160];
    set_report(path, sizeof path);
    snprintf(report, sizeof report, "FAKECUDA_REPORT=%s", path);
    const char *settings[] = {"FAKECUDA_BUDGET=32M", report, NULL};
    assert_int_equal(rig_child(settings, turns_body, &c, 60), 0);
    long maps = (long)rig_reported(path, "maps");
    assert_true(rig_reported(path, "creates") <= 16 + 16);
    assert_int_equal(rig_reported(path, "vmm_bytes"), 0);
    assert_int_equal(rig_reported(path, "plain_bytes"), 0);
    unlink(path);
    return maps;
}

static void test_blocks_move_and_handles_are_recycled(void **state)
{
    (void)state;
    const long returns = 5 * 5; /* at least */
    long maps = turn(EBB_CUDA_VMM_HOST), fewer = turn(EBB_CUDA_VMM_TRUSTING);
    assert_true(maps >= 2 * returns); /* host memory, and what comes back in its place */
    assert_true(fewer >= returns && fewer < maps - returns / 2);
}

/* ---- a device that never becomes quiet ------------------------------------------------------- */

static void restless_body(void *context)
{
    struct rig rig;
    struct known known[4];
    start_vmm(&rig, context);
    CUstream stream = new_stream(&rig), other = new_stream(&rig);
    RIG_OK(rig_launch(&rig, waiting(&rig, "gate"), other, NULL, NULL, 0, false));
    uint64_t since_ns = ebb__now_ns();
    for (unsigned i = 0; i < 4; i++) { /* twice the budget, and nothing can leave */
        RIG_OK(known_alloc(&rig, &known[i], 4 * MIB));
        known_fill(&rig, &known[i], stream, i);
    }
    RIG_MUST(ebb__mover_has_strays(rig.engine->mover));
    for (unsigned i = 0; i < 4; i++)
        known_check(&rig, &known[i], stream);
    RIG_MUST(ebb__now_ns() - since_ns < 10000000000u);
    RIG_MUST(rig.call.cuStreamQuery(other) == CUDA_ERROR_NOT_READY);
    RIG_MUST(atomic_load(&rig.ring->counters.moved_out_bytes) == 0);
    atomic_store(&gate_is_open, 1);
    RIG_OK(rig.call.cuCtxSynchronize());
    for (unsigned turn = 0; turn < 20; turn++)
        for (unsigned i = 0; i < 4; i++)
            known_check(&rig, &known[i], stream);
    RIG_MUST(atomic_load(&rig.ring->counters.moved_out_bytes) > 0);
    rig_stop(&rig);
}

static void test_a_device_that_is_never_quiet(void **state)
{
    (void)state;
    struct vmm_case c = {
        .backing = EBB_CUDA_VMM_HOST, .budget_bytes = 8 * MIB, .patience = "100ms"};
    static const char *settings[] = {"FAKECUDA_BUDGET=8M", NULL};
    assert_int_equal(rig_child(settings, restless_body, &c, 60), 0);
}

/* ---- kernels that wait for kernels ----------------------------------------------------------- */

static void peers_body(void *context)
{
    struct rig rig;
    start_vmm(&rig, context);
    CUstream one = new_stream(&rig), two = new_stream(&rig);
    known_peers(&rig, one, two);
    rig_stop(&rig);
}

static void test_peers_end(void **state)
{
    (void)state;
    static const char *settings[] = {"FAKECUDA_BUDGET=10M", NULL};
    struct vmm_case c = {.budget_bytes = 10 * MIB, .patience = "50ms"};
    c.backing = EBB_CUDA_VMM_HOST;
    assert_int_equal(rig_child(settings, peers_body, &c, 60), 0);
    c.backing = EBB_CUDA_VMM_TRUSTING;
    assert_int_equal(rig_child(settings, peers_body, &c, 60), 0);
}

static enum cuda_block_state state_of(struct rig *rig, const struct known *known)
{
    return rig->engine->table.blocks[ebb__cuda_find(rig->engine, known->address)].state;
}

static void evict(struct rig *rig, const struct known *known)
{
    RIG_MUST(ebb__cuda_lock(rig->engine));
    RIG_MUST(ebb__room_evict(&rig->engine->room, ebb__cuda_find(rig->engine, known->address)));
    ebb__cuda_unlock(rig->engine);
}

/* A kernel uses the block, and waits for a later one that uses it, too. An eviction in between
 * would wait for the first one only, and lose what the second one writes. It has not begun, so the
 * second use calls it off, and nothing waits. */
static void calls_off_body(void *context)
{
    struct rig rig;
    struct known a;
    start_vmm(&rig, context);
    CUstream one = new_stream(&rig), two = new_stream(&rig);
    RIG_OK(known_alloc(&rig, &a, 4 * MIB));
    known_fill(&rig, &a, one, 1);
    known_use(&rig, &a, "await_peer", one);
    evict(&rig, &a);
    known_use(&rig, &a, "peer", two);
    RIG_OK(rig.call.cuCtxSynchronize());
    RIG_MUST(ebb__mover_give_ups(rig.engine->mover) == 0);
    RIG_MUST(ebb__mover_leaving_units(rig.engine->mover) == 0);
    known_check(&rig, &a, one);
    RIG_MUST(state_of(&rig, &a) == CUDA_BLOCK_RESIDENT);
    RIG_MUST(!ebb__mover_has_strays(rig.engine->mover));
    RIG_MUST(atomic_load(&rig.ring->counters.moved_out_bytes) == 0);
    RIG_MUST(ebb__mover_held_bytes(rig.engine->mover) == 4 * MIB);
    evict(&rig, &a); /* the next one is carried out */
    while (ebb__mover_held_bytes(rig.engine->mover) > 0)
        usleep(1000);
    RIG_MUST(atomic_load(&rig.ring->counters.moved_out_bytes) == 4 * MIB);
    known_check(&rig, &a, two);
    rig_stop(&rig);
}

/* The same if there is no room for the block any more: it counts as absent, but cannot leave. */
static void make_stuck(struct rig *rig, struct known *a, struct known kept[2], CUstream one)
{
    CUstream two = new_stream(rig);
    RIG_OK(known_alloc(rig, a, 4 * MIB));
    known_fill(rig, a, one, 1);
    RIG_OK(known_alloc(rig, &kept[0], 4 * MIB));
    ebb__cuda_reach(rig->engine, kept[0].address);
    known_use(rig, a, "await_peer", one);
    evict(rig, a);
    RIG_OK(known_alloc(rig, &kept[1], 4 * MIB));
    ebb__cuda_reach(rig->engine, kept[1].address);
    known_use(rig, a, "peer", two);
    RIG_OK(rig->call.cuCtxSynchronize());
    RIG_MUST(state_of(rig, a) == CUDA_BLOCK_ABSENT);
    RIG_MUST(ebb__mover_stuck_bytes(rig->engine->mover) == 4 * MIB);
}

static void stays_body(void *context)
{
    struct rig rig;
    struct known a, kept[2];
    start_vmm(&rig, context);
    CUstream one = new_stream(&rig);
    make_stuck(&rig, &a, kept, one);
    known_check(&rig, &a, one);
    for (unsigned i = 0; i < 2; i++)
        RIG_MUST(ebb__cuda_free(rig.engine, kept[i].address, EBB_CUDA_NO_STREAM));
    known_check(&rig, &a, one); /* now there is room */
    RIG_MUST(state_of(&rig, &a) == CUDA_BLOCK_RESIDENT);
    RIG_MUST(ebb__mover_stuck_bytes(rig.engine->mover) == 0);
    RIG_MUST(atomic_load(&rig.ledger->over_bytes) == 0);
    rig_stop(&rig);
}

/* When it is freed, its pages leave at once. */
static void stuck_is_freed_body(void *context)
{
    struct rig rig;
    struct known a, kept[2];
    start_vmm(&rig, context);
    make_stuck(&rig, &a, kept, new_stream(&rig));
    RIG_MUST(ebb__cuda_free(rig.engine, a.address, EBB_CUDA_NO_STREAM));
    while (!ebb__mover_is_settled(rig.engine->mover, UINT64_MAX))
        usleep(1000);
    RIG_MUST(ebb__mover_stuck_bytes(rig.engine->mover) == 0);
    rig_stop(&rig);
}

static void test_evictions_are_called_off(void **state)
{
    (void)state;
    static const char *settings[] = {"FAKECUDA_BUDGET=8M", NULL};
    struct vmm_case c = {
        .backing = EBB_CUDA_VMM_TRUSTING, .budget_bytes = 8 * MIB, .patience = "50ms"};
    assert_int_equal(rig_child(settings, calls_off_body, &c, 60), 0);
    assert_int_equal(rig_child(settings, stays_body, &c, 60), 0);
    assert_int_equal(rig_child(settings, stuck_is_freed_body, &c, 60), 0);
}

/* ---- the order of requests ------------------------------------------------------------------- */

static uint64_t add(struct rig *rig, uint8_t kind, uint32_t first, uint32_t count,
                    uint32_t *arrival)
{
    struct ebb_cuda *engine = rig->engine;
    struct cuda_move move = {.kind = kind, .first = first, .count = count};
    struct cuda_passages all = ebb__passages_of_all(&engine->streams, engine->order);
    if (kind == CUDA_MOVE_DROP)
        RIG_MUST(ebb__passages_cover(&engine->streams, &all, move.events, CUDA_MOVE_EVENTS,
                                     &move.event_count));
    RIG_MUST(ebb__mover_has_room(engine->mover, 1));
    return ebb__mover_add(engine->mover, &move, arrival);
}

static void await(struct rig *rig, uint32_t arrival)
{
    while (!ebb__mover_is_over(rig->engine->mover, arrival))
        usleep(1000);
}

/* Some units are about to lose their pages, and others have just got some. A request for pages of
 * all of them comes after both: the newest one alone says nothing about the other. */
static void order_body(void *context)
{
    struct rig rig;
    struct known a, b;
    uint32_t of_b, of_all;
    start_vmm(&rig, context);
    CUstream stream = new_stream(&rig);
    RIG_OK(known_alloc(&rig, &a, 4 * MIB));
    RIG_OK(known_alloc(&rig, &b, 4 * MIB));
    known_fill(&rig, &a, stream, 1);
    known_fill(&rig, &b, stream, 2);
    struct cuda_mover *mover = rig.engine->mover;
    uint32_t first = ebb__table_unit(&rig.engine->table, a.address);
    RIG_MUST(b.address == a.address + 4 * MIB);
    const struct ebb_cuda_use use = {a.address, 0, EBB_ACCESS_READ};
    RIG_OK(rig_launch(&rig, waiting(&rig, "gate"), stream, NULL, &use, 1, false));
    RIG_MUST(ebb__cuda_lock(rig.engine));
    add(&rig, CUDA_MOVE_DROP, first, 2, NULL);
    add(&rig, CUDA_MOVE_POPULATE, first + 2, 2, &of_b);
    add(&rig, CUDA_MOVE_POPULATE, first, 4, &of_all);
    ebb__cuda_unlock(rig.engine);
    await(&rig, of_b);
    usleep(20000);
    RIG_MUST(!ebb__mover_is_issued(mover, of_all));
    atomic_store(&gate_is_open, 1);
    await(&rig, of_all);
    for (uint32_t i = 0; i < 4; i++)
        RIG_MUST(mover->units[first + i].real == CUDA_REAL_DEVICE);
    known_fill(&rig, &a, stream, 3); /* the pages are new */
    known_check(&rig, &a, stream);
    known_check(&rig, &b, stream);
    rig_stop(&rig);
}

static void test_requests_come_after_all_that_concern_their_units(void **state)
{
    (void)state;
    struct vmm_case c = {.backing = EBB_CUDA_VMM_TRUSTING, .budget_bytes = 32 * MIB};
    assert_int_equal(rig_child(NULL, order_body, &c, 60), 0);
}

static struct {
    CUresult (*copy)(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
    CUstream lane;
    _Atomic unsigned count, failed;
} outs;

static CUresult copy_late(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    usleep(20000);
    return outs.copy(to, from, bytes, stream);
}

/* While nothing can leave, a block is evicted, used and evicted again. Its use has given up, and it
 * leaves once. */
static void twice_body(void *context)
{
    struct rig rig;
    struct known a;
    uint32_t of_a;
    start_vmm(&rig, context);
    CUstream stream = new_stream(&rig), other = new_stream(&rig);
    outs.copy = rig.driver.cuMemcpyAsync;
    rig.driver.cuMemcpyAsync = copy_late;
    RIG_OK(known_alloc(&rig, &a, 4 * MIB));
    known_fill(&rig, &a, stream, 1);
    uint32_t first = ebb__table_unit(&rig.engine->table, a.address);
    RIG_OK(rig_launch(&rig, waiting(&rig, "gate"), other, NULL, NULL, 0, false));
    RIG_MUST(ebb__cuda_lock(rig.engine));
    add(&rig, CUDA_MOVE_EVICT, first, 2, NULL);
    add(&rig, CUDA_MOVE_FETCH, first, 2, &of_a);
    ebb__cuda_unlock(rig.engine);
    await(&rig, of_a);
    RIG_MUST(ebb__mover_give_ups(rig.engine->mover) == 1);
    RIG_MUST(ebb__cuda_lock(rig.engine));
    add(&rig, CUDA_MOVE_EVICT, first, 2, NULL);
    ebb__cuda_unlock(rig.engine);
    atomic_store(&gate_is_open, 1);
    while (ebb__mover_leaving_units(rig.engine->mover) > 0)
        usleep(1000);
    RIG_MUST(atomic_load(&rig.ring->counters.moved_out_bytes) == 4 * MIB);
    RIG_MUST(ebb__cuda_lock(rig.engine));
    add(&rig, CUDA_MOVE_FETCH, first, 2, &of_a);
    ebb__cuda_unlock(rig.engine);
    await(&rig, of_a);
    known_check(&rig, &a, stream);
    rig_stop(&rig);
}

static void test_what_leaves_late_leaves_once(void **state)
{
    (void)state;
    struct vmm_case c = {
        .backing = EBB_CUDA_VMM_HOST, .budget_bytes = 8 * MIB, .patience = "100ms"};
    assert_int_equal(rig_child(NULL, twice_body, &c, 60), 0);
}

/* ---- several threads ------------------------------------------------------------------------- */

static struct ebb_cuda_work begin(struct rig *rig, const struct ebb_cuda_use *use, CUstream stream)
{
    struct ebb_cuda_work work = {
        .kind = EBB_CUDA_KERNEL, .stream = stream, .uses = use, .use_count = 1};
    ebb__cuda_begin(rig->engine, &work);
    return work;
}

static bool may_evict(struct rig *rig, const struct known *known)
{
    return ebb__room_may_evict(&rig->engine->room, ebb__cuda_find(rig->engine, known->address));
}

/* A parameter looks like an address of a block, which its owner frees meanwhile. Its entry's next
 * block stays until the works that use that one have been queued. */
static void freed_body(void *context)
{
    struct rig rig;
    struct known old, block;
    start_vmm(&rig, context);
    CUstream one = new_stream(&rig), two = new_stream(&rig);
    for (unsigned turn = 0; turn < 3; turn++) {
        RIG_OK(known_alloc(&rig, &old, 4 * MIB));
        const struct ebb_cuda_use of_old = {old.address, 0, EBB_ACCESS_READ};
        struct ebb_cuda_work first = begin(&rig, &of_old, one), again = begin(&rig, &of_old, one);
        RIG_MUST(ebb__cuda_free(rig.engine, old.address, EBB_CUDA_NO_STREAM));
        RIG_OK(known_alloc(&rig, &block, 4 * MIB));
        const struct ebb_cuda_use of_block = {block.address, 0, EBB_ACCESS_WRITE};
        struct ebb_cuda_work second = begin(&rig, &of_block, two);
        ebb__cuda_end(rig.engine, &first, true);
        RIG_MUST(!may_evict(&rig, &block));
        ebb__cuda_end(rig.engine, &again, true);
        RIG_MUST(!may_evict(&rig, &block));
        ebb__cuda_end(rig.engine, &second, true);
        RIG_MUST(may_evict(&rig, &block));
        known_fill(&rig, &block, two, turn);
        known_check(&rig, &block, two);
        RIG_MUST(ebb__cuda_free(rig.engine, block.address, EBB_CUDA_NO_STREAM));
    }
    RIG_MUST(rig.engine->table.used == 1 + 2); /* entries are used again */
    rig_stop(&rig);
}

/* A work is about to use an absent block over the bus. Until it has been queued, nobody fetches the
 * block, although there is room. */
static void shared_body(void *context)
{
    struct rig rig;
    struct known a, kept[2];
    start_vmm(&rig, context);
    CUstream one = new_stream(&rig), two = new_stream(&rig);
    RIG_OK(known_alloc(&rig, &a, 4 * MIB));
    known_fill(&rig, &a, one, 1);
    evict(&rig, &a);
    for (unsigned i = 0; i < 2; i++) {
        RIG_OK(known_alloc(&rig, &kept[i], 4 * MIB));
        ebb__cuda_reach(rig.engine, kept[i].address);
    }
    const struct ebb_cuda_use use = {a.address, 0, EBB_ACCESS_WRITE};
    struct ebb_cuda_work first = begin(&rig, &use, one);
    RIG_MUST(state_of(&rig, &a) == CUDA_BLOCK_ABSENT);
    RIG_MUST(ebb__cuda_free(rig.engine, kept[0].address, EBB_CUDA_NO_STREAM));
    known_check(&rig, &a, two);
    RIG_MUST(state_of(&rig, &a) == CUDA_BLOCK_ABSENT);
    uint32_t salt = a.salt = 2;
    void *parameters[] = {&a.address, &a.bytes, &salt};
    RIG_OK(rig.call.cuLaunchKernel(rig_function(&rig, "fill"), 1, 1, 1, 1, 1, 1, 0, one, parameters,
                                   NULL));
    ebb__cuda_end(rig.engine, &first, true);
    known_check(&rig, &a, one);
    RIG_MUST(state_of(&rig, &a) == CUDA_BLOCK_RESIDENT);
    rig_stop(&rig);
}

static void test_works_of_threads_overlap(void **state)
{
    (void)state;
    static const char *settings[] = {"FAKECUDA_BUDGET=8M", NULL};
    struct vmm_case c = {.backing = EBB_CUDA_VMM_TRUSTING, .budget_bytes = 8 * MIB};
    assert_int_equal(rig_child(settings, freed_body, &c, 60), 0);
    assert_int_equal(rig_child(settings, shared_body, &c, 60), 0);
}

/* ---- the driver refuses ---------------------------------------------------------------------- */

static void faults_body(void *context)
{
    struct rig rig;
    struct shape shape = {.threads = 1,
                          .streams = 3,
                          .steps = 200,
                          .live_bytes = 40 * MIB,
                          .most_bytes = 6 * MIB,
                          .async = true,
                          .hidden = true,
                          .is_seen = true};
    start_vmm(&rig, context);
    rig.config.chaos_seed = 5;
    program_run(&rig, &shape, 3);
    RIG_MUST(atomic_load(&rig.ledger->over_bytes) == 0);
    rig_stop(&rig);
}

static void test_faults_of_the_driver(void **state)
{
    (void)state;
    static const char *faults[] = {"map:20%", "create:5%", "map:7%,create:3%", "map:40"};
    char path[128], text[3][160];
    set_report(path, sizeof path);
    for (unsigned i = 0; i < 8; i++) {
        struct vmm_case c = {.backing = i % 2 ? EBB_CUDA_VMM_TRUSTING : EBB_CUDA_VMM_HOST,
                             .budget_bytes = 20 * MIB,
                             .patience = "100ms"};
        snprintf(text[0], sizeof text[0], "FAKECUDA_FAULTS=%s", faults[i / 2]);
        snprintf(text[1], sizeof text[1], "FAKECUDA_REPORT=%s", path);
        snprintf(text[2], sizeof text[2], "FAKECUDA_BUDGET=20M");
        const char *settings[] = {text[0], text[1], text[2], NULL};
        int status = rig_child(settings, faults_body, &c, 60);
        if (status)
            fprintf(stderr, "%s, %u\n", faults[i / 2], i % 2);
        assert_int_equal(status, 0);
        assert_int_equal(rig_reported(path, "vmm_bytes"), 0);
    }
    unlink(path);
}

static struct {
    __typeof__(cuMemMap) *map;
    _Atomic CUdeviceptr refused; /* nothing can be mapped there */
    _Atomic unsigned count;
} maps;

static CUresult map_elsewhere(CUdeviceptr address, size_t bytes, size_t offset,
                              CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    if (address == atomic_load(&maps.refused)) {
        atomic_fetch_add(&maps.count, 1);
        return CUDA_ERROR_UNKNOWN;
    }
    return maps.map(address, bytes, offset, handle, flags);
}

/* Is nothing of these units in host memory, once the mover has carried out all requests? */
static bool is_nowhere(struct rig *rig, CUdeviceptr address, uint32_t count)
{
    struct cuda_mover *mover = rig->engine->mover;
    uint32_t first = ebb__table_unit(&rig->engine->table, address);
    const struct vmm_unit *units = ebb__vmm_units_at((struct vmm *)rig->engine->backing, address);
    while (!ebb__mover_is_settled(mover, UINT64_MAX))
        usleep(1000);
    for (uint32_t i = 0; i < count; i++)
        if (units[i].part || mover->units[first + i].real != CUDA_REAL_NOWHERE)
            return false;
    return atomic_load(&rig->engine->backing->host_bytes) == 0;
}

/* A block begins in host memory, in three parts, and the second one cannot be mapped. Nothing of it
 * is left, since the next block there would have its bytes. */
static void served_in_part_body(void *context)
{
    struct rig rig;
    struct known kept, away;
    start_vmm(&rig, context);
    maps.map = rig.driver.cuMemMap;
    rig.driver.cuMemMap = map_elsewhere;
    CUstream stream = new_stream(&rig);
    RIG_OK(known_alloc(&rig, &kept, 8 * MIB));
    known_fill(&rig, &kept, stream, 1);
    ebb__cuda_reach(rig.engine, kept.address);
    atomic_store(&maps.refused, kept.address + 10 * MIB);
    RIG_MUST(known_alloc(&rig, &away, 6 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
    RIG_MUST(atomic_load(&maps.count) > 0);
    RIG_MUST(is_nowhere(&rig, kept.address + 8 * MIB, 3));
    atomic_store(&maps.refused, 0);
    RIG_OK(known_alloc(&rig, &away, 6 * MIB));
    RIG_MUST(state_of(&rig, &away) == CUDA_BLOCK_ABSENT);
    known_fill(&rig, &away, stream, 2);
    known_check(&rig, &away, stream);
    RIG_MUST(ebb__cuda_free(rig.engine, away.address, EBB_CUDA_NO_STREAM));
    RIG_MUST(is_nowhere(&rig, away.address, 3));
    rig_stop(&rig);
}

static void test_what_is_served_in_part_leaves(void **state)
{
    (void)state;
    static const char *settings[] = {"FAKECUDA_BUDGET=8M", NULL};
    struct vmm_case c = {.budget_bytes = 8 * MIB, .patience = "200ms"};
    c.backing = EBB_CUDA_VMM_HOST;
    assert_int_equal(rig_child(settings, served_in_part_body, &c, 60), 0);
    c.backing = EBB_CUDA_VMM_TRUSTING;
    assert_int_equal(rig_child(settings, served_in_part_body, &c, 60), 0);
}

/* Of eleven copies to the host four fail, one after the other. */
static CUresult copy_some(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    if (stream == outs.lane && atomic_fetch_add(&outs.count, 1) % 11 >= 7) {
        atomic_fetch_add(&outs.failed, 1);
        return CUDA_ERROR_UNKNOWN;
    }
    return outs.copy(to, from, bytes, stream);
}

static void failed_copies_body(void *context)
{
    struct rig rig;
    struct known known[6];
    start_vmm(&rig, context);
    outs.copy = rig.driver.cuMemcpyAsync;
    outs.lane = rig.engine->mover->lanes.out;
    rig.driver.cuMemcpyAsync = copy_some;
    CUstream stream = new_stream(&rig);
    for (unsigned i = 0; i < 6; i++) {
        RIG_OK(known_alloc(&rig, &known[i], 24 * MIB)); /* three chunks */
        known_fill(&rig, &known[i], stream, i);
    }
    for (unsigned turn = 0; turn < 4; turn++)
        for (unsigned i = 0; i < 6; i++)
            known_check(&rig, &known[i], stream);
    RIG_MUST(atomic_load(&outs.failed) >= 8);
    RIG_MUST(atomic_load(&rig.ledger->peak_bytes) <= 96 * MIB);
    rig_stop(&rig);
}

static void test_copies_to_the_host_fail(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct vmm_case c = {.backing = i ? EBB_CUDA_VMM_TRUSTING : EBB_CUDA_VMM_HOST,
                             .budget_bytes = 96 * MIB,
                             .patience = "100ms"};
        const char *settings[] = {"FAKECUDA_BUDGET=96M", NULL};
        assert_int_equal(rig_child(settings, failed_copies_body, &c, 60), 0);
    }
}

/* ---- arrivals -------------------------------------------------------------------------------- */

static struct {
    __typeof__(cuStreamWaitValue32_v2) *wait;
    _Atomic unsigned count;
} waits;

static CUresult count_wait(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    atomic_fetch_add(&waits.count, 1);
    return waits.wait(stream, address, value, flags);
}

static void new_memory_body(void *context)
{
    struct rig rig;
    struct known known[4];
    start_vmm(&rig, context);
    waits.wait = rig.driver.cuStreamWaitValue32_v2;
    rig.driver.cuStreamWaitValue32_v2 = count_wait;
    CUstream stream = new_stream(&rig);
    for (unsigned i = 0; i < 4; i++) {
        RIG_OK(known_alloc(&rig, &known[i], 24 * MIB));
        known_fill(&rig, &known[i], stream, i);
    }
    RIG_MUST(atomic_load(&rig.ring->counters.moved_out_bytes) > 0);
    RIG_MUST(atomic_load(&waits.count) == 0);
    for (unsigned i = 0; i < 4; i++)
        known_check(&rig, &known[i], stream);
    RIG_MUST(atomic_load(&waits.count) > 0);
    rig_stop(&rig);
}

/* No stream waits for new memory behind copies that have nothing to do with it. */
static void test_new_memory_waits_for_no_copy(void **state)
{
    (void)state;
    struct vmm_case c = {.backing = EBB_CUDA_VMM_TRUSTING, .budget_bytes = 64 * MIB};
    const char *settings[] = {"FAKECUDA_BUDGET=64M", NULL};
    assert_int_equal(rig_child(settings, new_memory_body, &c, 60), 0);
}

static void test_arrivals_are_joined(void **state)
{
    (void)state;
    assert_int_equal(ebb__arrival_both(0, 5), 5);
    assert_int_equal(ebb__arrival_both(4, 0), 4);
    assert_int_equal(ebb__arrival_both(3, 5), 5); /* both are over when they are issued */
    assert_int_equal(ebb__arrival_both(5, 8), 8);
    assert_int_equal(ebb__arrival_both(4, 7), 8); /* 4 is a copy: 7 alone would not wait for it */
    assert_int_equal(ebb__arrival_both(UINT32_MAX - 1, 3), 4);
}

/* ---- the ladder ------------------------------------------------------------------------------ */

/* A kernel uses the block by an address in a table, which nobody announces. */
static void hidden_use(struct rig *rig, struct known *table, const struct known *block,
                       CUstream stream)
{
    CUdeviceptr at[2 * MOST_USES] = {block->address, block->bytes};
    uint32_t count = 1, salt = 9;
    void *parameters[] = {&table->address, &count, &salt};
    struct ebb_cuda_use use = {table->address, 0, EBB_ACCESS_UNKNOWN};
    struct ebb_cuda_work work = {
        .kind = EBB_CUDA_COPY, .stream = stream, .uses = &use, .use_count = 1};
    rig_begin(rig, &work);
    RIG_OK(rig->call.cuMemcpyHtoDAsync_v2(table->address, at, sizeof at, stream));
    ebb__cuda_end(rig->engine, &work, true);
    ebb__cuda_reach(rig->engine, block->address);
    RIG_OK(rig_launch(rig, rig_function(rig, "hidden"), stream, parameters, &use, 1, false));
}

static void check_mixed(struct rig *rig, const struct known *known, CUstream stream)
{
    uint32_t words[WORDS];
    struct ebb_cuda_use use = {known->address, sizeof words, EBB_ACCESS_READ};
    struct ebb_cuda_work work = {
        .kind = EBB_CUDA_COPY, .stream = stream, .uses = &use, .use_count = 1};
    rig_begin(rig, &work);
    RIG_OK(rig->call.cuMemcpyDtoHAsync_v2(words, known->address, sizeof words, stream));
    ebb__cuda_end(rig->engine, &work, true);
    RIG_OK(rig->driver.cuStreamSynchronize(stream));
    for (unsigned i = 0; i < WORDS; i++) {
        uint32_t word = filled(known->salt, 0, i);
        RIG_MUST(words[i] == mixed(word, word, 9));
    }
}

/* The budget is full of blocks that must not move. Host memory has room for three more. */
static void ladder_body(void *context)
{
    const struct vmm_case *c = context;
    struct rig rig;
    struct known kept, table, away[4], none;
    start_vmm(&rig, c);
    CUstream stream = new_stream(&rig);
    RIG_OK(known_alloc(&rig, &kept, 6 * MIB));
    known_fill(&rig, &kept, stream, 1);
    ebb__cuda_reach(rig.engine, kept.address);
    RIG_OK(known_alloc(&rig, &table, 2 * MIB));
    known_fill(&rig, &table, stream, 2);
    ebb__cuda_reach(rig.engine, table.address);
    for (unsigned i = 0; i < 3; i++) {
        RIG_OK(known_alloc(&rig, &away[i], i ? 4 * MIB : 1000)); /* a small one has a unit, too */
        RIG_MUST(state_of(&rig, &away[i]) == CUDA_BLOCK_ABSENT);
        known_fill(&rig, &away[i], stream, i + 3);
    }
    RIG_MUST(atomic_load(&rig.ring->counters.away_allocations) == 3);
    RIG_MUST(strstr(rig.warned, "begins in host memory"));
    RIG_MUST(known_alloc(&rig, &none, 4 * MIB) == CUDA_ERROR_OUT_OF_MEMORY); /* pinned memory */
    for (unsigned i = 0; i < 3; i++)
        known_check(&rig, &away[i], stream);
    hidden_use(&rig, &table, &away[1], stream);
    check_mixed(&rig, &away[1], stream);
    RIG_MUST(ebb__cuda_free(rig.engine, kept.address, EBB_CUDA_NO_STREAM));
    known_check(&rig, &away[2], stream); /* now there is room */
    RIG_MUST(state_of(&rig, &away[2]) == CUDA_BLOCK_RESIDENT);
    check_mixed(&rig, &away[1], stream); /* but this one must not move, if kernels are trusted */
    RIG_MUST((state_of(&rig, &away[1]) == CUDA_BLOCK_ABSENT) ==
             (c->backing == EBB_CUDA_VMM_TRUSTING));
    RIG_OK(known_alloc(&rig, &none, 2 * MIB));
    RIG_MUST(atomic_load(&rig.ring->counters.away_allocations) == 3);
    rig_stop(&rig);
}

static void test_out_of_memory_is_an_answer(void **state)
{
    (void)state;
    static const char *settings[] = {"FAKECUDA_BUDGET=8M", NULL};
    struct vmm_case c = {.budget_bytes = 8 * MIB, .pinned_bytes = 12 * MIB, .patience = "200ms"};
    c.backing = EBB_CUDA_VMM_HOST;
    assert_int_equal(rig_child(settings, ladder_body, &c, 60), 0);
    c.backing = EBB_CUDA_VMM_TRUSTING;
    assert_int_equal(rig_child(settings, ladder_body, &c, 60), 0);
}

/* ---- budgets of the host --------------------------------------------------------------------- */

static void pinned_body(void *context)
{
    const struct vmm_case *c = context;
    struct rig rig;
    struct known known[8];
    unsigned count = 0;
    start_vmm(&rig, c);
    CUstream stream = new_stream(&rig);
    for (; count < 8; count++) { /* of different sizes: parts of one size become those of another */
        if (known_alloc(&rig, &known[count], (2 + 2 * (count % 3)) * MIB) != CUDA_SUCCESS)
            break;
        known_fill(&rig, &known[count], stream, count);
    }
    RIG_MUST(count > 2 && count < 8);
    for (unsigned turn = 0; turn < 5; turn++)
        for (unsigned i = 0; i < count; i++)
            known_check(&rig, &known[i], stream);
    /* The counter of arrivals is in no limit that is shared. */
    RIG_MUST(atomic_load(&rig.engine->backing->pinned_bytes) <=
             c->pinned_bytes + (c->is_shared ? CUDA_FLAG_BYTES : 0));
    RIG_MUST(atomic_load(&rig.store_ledger->over_bytes) == 0);
    rig_stop(&rig);
}

static void test_pinned_budget(void **state)
{
    (void)state;
    struct vmm_case c = {.budget_bytes = 8 * MIB, .pinned_bytes = 8 * MIB, .patience = "100ms"};
    for (int i = 0; i < 4; i++) {
        c.backing = i % 2 ? EBB_CUDA_VMM_TRUSTING : EBB_CUDA_VMM_HOST;
        c.is_shared = i >= 2;
        assert_int_equal(rig_child(NULL, pinned_body, &c, 60), 0);
    }
}

static void refused_body(void *unused)
{
    struct rig rig;
    struct ebb_error error = {0};
    (void)unused;
    rig_init(&rig, 8 * MIB);
    rig.config.backing = EBB_CUDA_VMM_HOST;
    RIG_MUST(ebb__cuda_create(&rig.config, &rig.engine, &error) == EBB_ERR_UNSUPPORTED);
    RIG_MUST(error.remedy[0]);
}

static void test_old_drivers_are_refused(void **state)
{
    (void)state;
    static const char *settings[] = {"FAKECUDA_DRIVER=12010", NULL};
    assert_int_equal(rig_child(settings, refused_body, NULL, 60), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_move_and_handles_are_recycled),
        cmocka_unit_test(test_a_device_that_is_never_quiet),
        cmocka_unit_test(test_a_device_that_fails),
        cmocka_unit_test(test_peers_end),
        cmocka_unit_test(test_evictions_are_called_off),
        cmocka_unit_test(test_requests_come_after_all_that_concern_their_units),
        cmocka_unit_test(test_what_leaves_late_leaves_once),
        cmocka_unit_test(test_works_of_threads_overlap),
        cmocka_unit_test(test_faults_of_the_driver),
        cmocka_unit_test(test_what_is_served_in_part_leaves),
        cmocka_unit_test(test_copies_to_the_host_fail),
        cmocka_unit_test(test_new_memory_waits_for_no_copy),
        cmocka_unit_test(test_arrivals_are_joined),
        cmocka_unit_test(test_out_of_memory_is_an_answer),
        cmocka_unit_test(test_pinned_budget),
        cmocka_unit_test(test_old_drivers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
