/* Blocks at planned addresses: the runtime replays a script with static placement, on a device of
 * plain memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "runtime_program.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#define PEAK ((uint64_t)24 << 20)

struct stage {
    struct rig *rig;
    struct program program;
    struct ebb_script *script;
};

/* A training. Its script, made for `percent` of its peak, is already replayed. */
static struct stage stage_open(unsigned percent)
{
    struct stage stage = {.rig = rig_open(NO_BUDGET, false)};
    program_init(&stage.program, stage.rig, make_training(8, PEAK, 60000000, 3));
    stage.script = script_for(&stage.program.model,
                              stage.program.model.peak_bytes * percent / 100 + (1 << 20));
    assert_int_equal(ebb__runtime_set_script(stage.rig->runtime, stage.script, stage.script->bytes),
                     EBB_OK);
    program_lap(&stage.program, stage.rig, false, UINT32_MAX);
    assert_non_null(stage.rig->runtime->replay.current);
    assert_true(stage.script->placement_bytes > 0);
    return stage;
}

static void stage_close(struct stage *stage)
{
    program_fini(&stage->program);
    assert_int_equal(atomic_load(&stage->rig->lost), 0);
    rig_close(stage->rig);
    free(stage->script);
}

/* The plan's address for the block that is allocated at `tick`, or 0. */
static uintptr_t planned_address(const struct stage *stage, uint32_t tick)
{
    const struct ebb_model *model = &stage->program.model;
    uint32_t position = 0;
    for (uint32_t t = 0; t < tick; t++)
        position += model->events[t].clock;
    uint32_t block = ebb__script_events(stage->script)[position].block;
    uint64_t place = ebb__script_blocks(stage->script)[block].place;
    return place == EBB_SCRIPT_NO_PLACE ? 0 : stage->rig->runtime->addresses.placement.base + place;
}

/* One iteration. Every block with a planned address is allocated zeroed. Returns how many have
 * their planned address. */
static unsigned lap_of_zeroes(struct stage *stage)
{
    const struct ebb_model *model = &stage->program.model;
    unsigned there = 0;
    for (uint32_t tick = 0; tick < model->tick_count; tick++) {
        const struct ebb_model_event *event = &model->events[tick];
        if (!event->clock)
            continue;
        struct item *item = &stage->program.items[event->block];
        if (event->kind == EBB_EVENT_FREE) {
            check(stage->rig, item);
            drop(stage->rig, item);
            continue;
        }
        item->size = model->blocks[event->block].size_bytes;
        item->bytes = ebb__runtime_alloc(stage->rig->runtime, item->size, 64, true);
        uintptr_t planned = planned_address(stage, tick);
        assert_true(!planned || planned == (uintptr_t)item->bytes);
        there += planned != 0;
        for (size_t i = 0; planned && i < item->size; i++)
            assert_int_equal(item->bytes[i], 0);
        put(stage->rig, item, tick + 1);
        assert_int_equal(ebb__runtime_usable_bytes(stage->rig->runtime, item->bytes), item->size);
        assert_int_equal(ebb__runtime_usable_bytes(stage->rig->runtime, item->bytes + 4096), 0);
        assert_false(ebb__runtime_free(stage->rig->runtime, item->bytes + 4096));
    }
    return there;
}

static void addresses_are_the_planned_ones(void **state)
{
    (void)state;
    struct stage stage = stage_open(100);
    for (unsigned lap = 0; lap < 3; lap++)
        assert_in_range(lap_of_zeroes(&stage), 30, 1000);
    const struct ebb_counters *counters = stage.rig->counters;
    assert_int_equal(atomic_load(&counters->placement_misses), 0);
    assert_int_equal(atomic_load(&counters->mismatches), 0);
    uint64_t load = atomic_load(&counters->placement_load_bytes);
    uint64_t peak = atomic_load(&counters->placement_peak_bytes);
    assert_true(load > PEAK / 3);
    assert_true(peak >= load && peak < load + EBB_HUGE_BYTES + load / 50);
    stage_close(&stage);
}

/* If every block is at its address, nothing moves, and no page is made. */
static void steady_laps_move_nothing(void **state)
{
    (void)state;
    struct stage stage = stage_open(100);
    program_lap(&stage.program, stage.rig, false, UINT32_MAX);
    uint64_t moves = atomic_load(&stage.rig->counters->page_moves), pages = held(stage.rig);
    for (unsigned lap = 0; lap < 3; lap++)
        program_lap(&stage.program, stage.rig, false, UINT32_MAX);
    assert_int_equal(atomic_load(&stage.rig->counters->page_moves), moves);
    assert_int_equal(held(stage.rig), pages);
    stage_close(&stage);
}

static uint32_t first_placed_tick(const struct stage *stage)
{
    uint32_t tick = 0;
    const struct ebb_model *model = &stage->program.model;
    while (model->events[tick].kind != EBB_EVENT_ALLOC || !planned_address(stage, tick))
        tick++;
    return tick;
}

/* A block lives for one more iteration. Its successor gets another address, and all contents are
 * right. */
static void late_free_takes_no_address(void **state)
{
    (void)state;
    struct stage stage = stage_open(100);
    const struct ebb_model *model = &stage.program.model;
    uint32_t tick = first_placed_tick(&stage), block = model->events[tick].block;
    struct item kept = {0};
    unsigned fallen = 0;
    for (unsigned lap = 0; lap < 3; lap++) {
        for (uint32_t t = 0; t < model->tick_count; t++) {
            const struct ebb_model_event *event = &model->events[t];
            struct item *item = &stage.program.items[event->block];
            if (event->kind == EBB_EVENT_ALLOC) {
                *item = make(stage.rig, model->blocks[event->block].size_bytes, lap * 1000 + t);
                uintptr_t planned = planned_address(&stage, t);
                bool there = planned == (uintptr_t)item->bytes;
                assert_true(!planned || there || lap < 2);
                fallen += planned && !there;
            } else if (event->kind == EBB_EVENT_FREE && event->block == block && lap == 0) {
                kept = *item;
            } else if (event->kind == EBB_EVENT_FREE) {
                check(stage.rig, item);
                drop(stage.rig, item);
            }
        }
        if (lap == 1) {
            check(stage.rig, &kept);
            drop(stage.rig, &kept);
        }
    }
    assert_true(fallen > 0);
    assert_int_equal(atomic_load(&stage.rig->counters->placement_misses), fallen);
    assert_int_equal(atomic_load(&stage.rig->counters->mismatches), 0);
    stage_close(&stage);
}

static void alignments_are_kept(void **state)
{
    (void)state;
    struct stage stage = stage_open(100);
    const struct ebb_model *model = &stage.program.model;
    for (uint32_t t = 0; t < model->tick_count; t++) {
        const struct ebb_model_event *event = &model->events[t];
        struct item *item = &stage.program.items[event->block];
        if (event->kind == EBB_EVENT_ALLOC) {
            item->size = model->blocks[event->block].size_bytes;
            item->bytes = ebb__runtime_alloc(stage.rig->runtime, item->size, EBB_HUGE_BYTES, false);
            assert_int_equal((uintptr_t)item->bytes % EBB_HUGE_BYTES, 0);
            put(stage.rig, item, t);
        } else if (event->kind == EBB_EVENT_FREE) {
            check(stage.rig, item);
            drop(stage.rig, item);
        }
    }
    assert_true(atomic_load(&stage.rig->counters->placement_misses) > 0);
    stage_close(&stage);
}

/* In the middle of an iteration, the program departs from the plan. Blocks in the static placement
 * stay, all others can be evicted, and the budget holds. Cached pages of the static placement are
 * used elsewhere. */
static void divergence_keeps_the_budget(void **state)
{
    (void)state;
    for (unsigned percent = 70; percent <= 100; percent += 30) {
        struct stage stage = stage_open(percent);
        struct rig *rig = stage.rig;
        const struct ebb_model *model = &stage.program.model;
        uint64_t budget = model->peak_bytes * (percent + 10) / 100 + ((uint64_t)2 << 20);
        program_lap(&stage.program, rig, false, UINT32_MAX);
        atomic_store(&rig->ledger.budget_bytes, budget);
        while (!atomic_load(&rig->ledger.in_force)) {
            program_lap(&stage.program, rig, true, UINT32_MAX);
            ebb__runtime_settle(rig->runtime);
        }
        program_lap(&stage.program, rig, true, UINT32_MAX);
        assert_within_budget(rig);
        uint32_t alive = 0, half = model->tick_count / 2;
        for (uint32_t t = 0; t < half; t++) {
            const struct ebb_model_event *event = &model->events[t];
            if (event->kind == EBB_EVENT_ALLOC)
                stage.program.items[event->block] =
                    make(rig, model->blocks[event->block].size_bytes, t);
            else if (event->kind == EBB_EVENT_FREE)
                drop(rig, &stage.program.items[event->block]);
        }
        uintptr_t base = rig->runtime->addresses.placement.base;
        for (uint32_t b = 0; b < model->block_count; b++)
            alive += (uintptr_t)stage.program.items[b].bytes >= base;
        assert_true(alive > 0);
        struct item others[12];
        for (uint64_t i = 0; i < 12; i++) {
            others[i] = make(rig, 12345 + (1 << 20), i); /* the template has no such size */
            assert_true((uintptr_t)others[i].bytes < base);
            assert_within_budget(rig);
        }
        assert_null(rig->runtime->replay.current);
        for (uint32_t b = 0; b < model->block_count; b++)
            if (stage.program.items[b].bytes) {
                if ((uintptr_t)stage.program.items[b].bytes >= base)
                    assert_int_equal(state_of(rig, &stage.program.items[b]), BLOCK_RESIDENT);
                check(rig, &stage.program.items[b]);
            }
        for (uint32_t t = half; t < model->tick_count; t++) {
            const struct ebb_model_event *event = &model->events[t];
            if (event->kind == EBB_EVENT_FREE && stage.program.items[event->block].bytes)
                drop(rig, &stage.program.items[event->block]);
        }
        for (size_t i = 0; i < 12; i++) {
            check(rig, &others[i]);
            drop(rig, &others[i]);
        }
        assert_int_equal(rig->runtime->addresses.placement.load_bytes, 0);
        ebb__runtime_settle(rig->runtime);
        uint64_t evicted = atomic_load(&rig->counters->reactive_evictions);
        uint64_t pages = held(rig), cached = rig->runtime->addresses.placement.cached_bytes;
        if (cached) {
            struct item from_cached = make(rig, cached, 4);
            check(rig, &from_cached);
            drop(rig, &from_cached);
            assert_int_equal(atomic_load(&rig->counters->reactive_evictions), evicted);
            assert_int_equal(held(rig), pages);
        }
        struct item large = make(rig, budget - ((uint64_t)4 << 20), 5);
        check(rig, &large);
        assert_true(rig->runtime->addresses.placement.held_bytes <= (uint64_t)4 << 20);
        assert_within_budget(rig);
        drop(rig, &large);
        stage_close(&stage);
    }
}

/* Small blocks hold as much as the plan uses. Blocks allocated from then on can be evicted, and the
 * budget holds. When memory is free again, blocks get planned addresses again. */
static void less_memory_stops_the_static_placement(void **state)
{
    (void)state;
    struct stage stage = stage_open(70);
    struct rig *rig = stage.rig;
    enum { SLABS = 96 }; /* 6 MiB */
    uintptr_t slabs[SLABS];
    uint64_t placed[4];
    rig->runtime->core.config.slab_reclaim_ns = UINT64_MAX; /* they are in use */
    atomic_store(&rig->ledger.budget_bytes, stage.script->peak_bytes + ((uint64_t)2 << 20));
    while (!atomic_load(&rig->ledger.in_force)) {
        program_lap(&stage.program, rig, true, UINT32_MAX);
        ebb__runtime_settle(rig->runtime);
    }
    for (unsigned i = 0; i < 4; i++) {
        for (unsigned slab = 0; i == 1 && slab < SLABS; slab++)
            assert_true(slabs[slab] = ebb__runtime_take_slab(rig->runtime));
        for (unsigned slab = 0; i == 3 && slab < SLABS; slab++)
            ebb__runtime_give_slab(rig->runtime, slabs[slab]);
        uint64_t before = atomic_load(&rig->counters->placement_blocks);
        for (unsigned lap = 0; lap < 2; lap++)
            program_lap(&stage.program, rig, true, UINT32_MAX);
        placed[i] = atomic_load(&rig->counters->placement_blocks) - before;
        assert_within_budget(rig);
    }
    assert_true(placed[0] > 0);
    assert_int_equal(placed[1], 0);
    assert_int_equal(placed[2], 0);
    assert_int_equal(placed[3], placed[0]);
    stage_close(&stage);
}

/* A next plan, here one without addresses, comes while many bytes lie at the addresses of the old
 * one. The old placement stays in force until few bytes are left there. */
static void the_next_plan_waits(void **state)
{
    (void)state;
    struct stage stage = stage_open(70);
    struct rig *rig = stage.rig;
    struct ebb_runtime *runtime = rig->runtime;
    struct ebb_script *next = must(malloc(stage.script->bytes));
    memcpy(next, stage.script, stage.script->bytes);
    struct ebb_script_block *blocks =
        (struct ebb_script_block *)(void *)((char *)next + next->blocks_offset);
    for (uint32_t i = 0; i < next->block_count; i++)
        blocks[i].place = EBB_SCRIPT_NO_PLACE;
    next->placement_bytes = 0;
    const struct ebb_model *model = &stage.program.model;
    uint64_t placed = 0, most = 0;
    for (uint32_t tick = 0; tick < model->tick_count; tick++) {
        const struct ebb_model_event *event = &model->events[tick];
        if (!event->clock)
            continue;
        struct item *item = &stage.program.items[event->block];
        uintptr_t planned = planned_address(&stage, tick);
        if (event->kind == EBB_EVENT_FREE) {
            check(rig, item);
            drop(rig, item);
            continue;
        }
        *item = make(rig, model->blocks[event->block].size_bytes, tick);
        most = runtime->addresses.placement.load_bytes > most
                   ? runtime->addresses.placement.load_bytes
                   : most;
        placed += planned && planned == (uintptr_t)item->bytes;
        if (placed == 3 && planned)
            assert_int_equal(ebb__runtime_set_script(runtime, next, next->bytes), EBB_OK);
        if (placed < 3 || runtime->addresses.placement.load_bytes * 2 > most) {
            assert_non_null(runtime->replay.current);
            assert_true(!planned || planned == (uintptr_t)item->bytes);
        }
    }
    assert_true(placed > 3);
    uint64_t before = atomic_load(&rig->counters->placement_blocks);
    uint64_t resyncs = atomic_load(&rig->counters->resyncs);
    for (unsigned lap = 0; lap < 2; lap++)
        program_lap(&stage.program, rig, false, UINT32_MAX);
    assert_ptr_equal(runtime->replay.current->script, next);
    assert_true(atomic_load(&rig->counters->resyncs) <= resyncs + 1);
    assert_true(atomic_load(&rig->counters->placement_blocks) <= before + 1);
    assert_int_equal(atomic_load(&rig->counters->mismatches), 0);
    stage_close(&stage);
    free(next);
}

/* The number of TRACE_ON marks since the last call. */
static unsigned traces_begun(struct rig *rig)
{
    struct ebb_event events[64];
    unsigned begun = 0;
    for (size_t count; (count = ebb__ring_read(rig->ring, events, 64)) > 0;)
        for (size_t i = 0; i < count; i++)
            begun += events[i].kind == EBB_EVENT_MARK && events[i].mark == EBB_MARK_TRACE_ON;
    return begun;
}

/* Accesses are observed again while blocks lie in the static placement. Those blocks stay, and new
 * ones are observed. Accesses to the former are not seen. So no iteration counts as observed until
 * they are freed. */
static void tracing_keeps_the_static_placement(void **state)
{
    (void)state;
    struct stage stage = stage_open(100);
    struct rig *rig = stage.rig;
    const struct ebb_model *model = &stage.program.model;
    uint32_t tick = first_placed_tick(&stage);
    for (uint32_t t = 0; t <= tick; t++)
        if (model->events[t].kind == EBB_EVENT_ALLOC)
            stage.program.items[model->events[t].block] =
                make(rig, model->blocks[model->events[t].block].size_bytes, t);
    struct item *placed = &stage.program.items[model->events[tick].block];
    assert_int_equal((uintptr_t)placed->bytes, planned_address(&stage, tick));
    ebb__runtime_set_trace(rig->runtime, EBB_OBSERVE_ALWAYS, 0);
    assert_int_equal(state_of(rig, placed), BLOCK_RESIDENT);
    check(rig, placed);
    struct item other = make(rig, model->blocks[model->events[tick].block].size_bytes, 7);
    assert_true((uintptr_t)other.bytes < rig->runtime->addresses.placement.base);
    put(rig, placed, 9);
    check(rig, &other);
    assert_int_equal(traces_begun(rig), 0);
    ebb__runtime_set_trace(rig->runtime, EBB_OBSERVE_NEVER, 0);
    check(rig, placed);
    check(rig, &other);
    ebb__runtime_set_trace(rig->runtime, EBB_OBSERVE_ALWAYS, 0);
    for (uint32_t i = 0; i < stage.script->clock_count; i += 2) {
        assert_int_equal(traces_begun(rig), 0);
        drop(rig, &other);
        other = make(rig, 1 << 20, i);
    }
    assert_int_equal(traces_begun(rig), 1);
    ebb__runtime_set_trace(rig->runtime, EBB_OBSERVE_NEVER, 0);
    /* A departure from the plan is observed at once. What it lacks is no iteration. */
    ebb__runtime_set_trace(rig->runtime, EBB_OBSERVE_DEPARTURES, 0);
    struct item departure = make(rig, 3 << 20, 5);
    assert_int_equal(traces_begun(rig), 1);
    ebb__runtime_set_trace(rig->runtime, EBB_OBSERVE_ALWAYS, 0);
    drop(rig, &departure);
    drop(rig, placed);
    assert_int_equal(traces_begun(rig), 0);
    drop(rig, &other);
    assert_int_equal(traces_begun(rig), 1);
    ebb__runtime_set_trace(rig->runtime, EBB_OBSERVE_NEVER, 0);
    stage_close(&stage);
}

static struct ebb_script_block *blocks_of(struct ebb_script *script)
{
    return (struct ebb_script_block *)(void *)((char *)script + script->blocks_offset);
}

static void malformed_places(void **state)
{
    (void)state;
    struct stage stage = stage_open(70);
    struct ebb_script *script = stage.script, *copy = must(malloc(script->bytes));
    const struct ebb_script_block *blocks = blocks_of(script);
    assert_true(script->absence_count > 0);
    uint32_t absent = ebb__script_absences(script)[0].block, placed = script->persistent_count;
    while (blocks[placed].place == EBB_SCRIPT_NO_PLACE)
        placed++;
    const struct {
        uint32_t block;
        uint64_t place;
        bool good;
    } cases[] = {
        {placed, blocks[placed].place, true},
        {placed, 0, true},
        {placed, EBB_SCRIPT_NO_PLACE, true},
        {placed, 64, false},
        {placed, script->placement_bytes, false},
        {placed, UINT64_MAX - 4095, false},
        {0, 0, false},
        {absent, 0, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memcpy(copy, script, script->bytes);
        blocks_of(copy)[cases[i].block].place = cases[i].place;
        assert_int_equal(ebb__script_valid(copy, copy->bytes), cases[i].good);
    }
    memcpy(copy, script, script->bytes);
    blocks_of(copy)[placed].size_bytes = UINT64_MAX;
    assert_false(ebb__script_valid(copy, copy->bytes));
    free(copy);
    stage_close(&stage);
}

/* A touch of a placement address without a block does no harm. */
static void orphan_pages_make_way(void **state)
{
    (void)state;
    struct rig *rig = rig_open(NO_BUDGET, false);
    uintptr_t base = rig->runtime->addresses.placement.base;
    for (unsigned unit = 0; unit < 12; unit++) {
        ebb__runtime_fault(rig->runtime, base + unit * EBB_HUGE_BYTES + 5 * EBB_PAGE_BYTES, true);
        assert_true(
            ebb__fake_present(&rig->device, base + unit * EBB_HUGE_BYTES + 5 * EBB_PAGE_BYTES));
    }
    assert_false(ebb__runtime_free(rig->runtime, (void *)base));
    assert_int_equal(ebb__runtime_usable_bytes(rig->runtime, (void *)base), 0);
    struct program program;
    program_init(&program, rig, make_training(8, PEAK, 60000000, 3));
    struct ebb_script *script = script_for(&program.model, 2 * PEAK);
    assert_int_equal(ebb__runtime_set_script(rig->runtime, script, script->bytes), EBB_OK);
    for (unsigned lap = 0; lap < 3; lap++)
        program_lap(&program, rig, false, UINT32_MAX);
    assert_true(atomic_load(&rig->counters->placement_blocks) > 30);
    assert_int_equal(held(rig), atomic_load(&rig->counters->held_bytes));
    program_fini(&program);
    rig_close(rig);
    free(script);
}

/* --- processes and threads --- */

/* In the child, blocks in the static placement can be read, written and freed, and new blocks can
 * be made. */
static bool child_goes_on(struct stage *stage, struct ebb_ledger *ledger, struct ebb_ring *ring)
{
    struct rig *rig = stage->rig;
    const struct ebb_device_layout *layout = &rig->device.layout;
    const struct ebb_device_range stayed[] = {layout->staging, layout->page_stack};
    for (size_t i = 0; i < 2; i++)
        rig->device.ops->release(rig->device.state, stayed[i].base, stayed[i].bytes);
    if (ebb__runtime_after_fork_child(rig->runtime, ledger, ring) != EBB_OK)
        return false;
    for (uint32_t b = 0; b < stage->program.model.block_count; b++) {
        struct item *item = &stage->program.items[b];
        if (!item->bytes)
            continue;
        if (take_turn(rig, item, false, PATIENCE_MS) != TURN_RIGHT)
            return false;
        item->seed += 77;
        if (take_turn(rig, item, true, PATIENCE_MS) != TURN_RIGHT)
            return false;
        struct item more = {ebb__runtime_alloc(rig->runtime, item->size, 64, false), item->size, b};
        if (!more.bytes || take_turn(rig, &more, true, PATIENCE_MS) != TURN_RIGHT ||
            take_turn(rig, item, false, PATIENCE_MS) != TURN_RIGHT ||
            !ebb__runtime_free(rig->runtime, item->bytes) ||
            take_turn(rig, &more, false, PATIENCE_MS) != TURN_RIGHT)
            return false;
        *item = more;
    }
    return rig->runtime->addresses.placement.load_bytes == 0 &&
           rig->runtime->addresses.placement.held_bytes == 0;
}

static void forks_share_the_static_placement(void **state)
{
    (void)state;
    if (!has_threads_after_fork())
        skip();
    struct stage stage = stage_open(100);
    struct rig *rig = stage.rig;
    const struct ebb_model *model = &stage.program.model;
    uint32_t half = model->tick_count / 2;
    for (uint32_t t = 0; t < half; t++) {
        const struct ebb_model_event *event = &model->events[t];
        if (event->kind == EBB_EVENT_ALLOC)
            stage.program.items[event->block] =
                make(rig, model->blocks[event->block].size_bytes, t);
        else if (event->kind == EBB_EVENT_FREE)
            drop(rig, &stage.program.items[event->block]);
    }
    assert_true(rig->runtime->addresses.placement.load_bytes > 0);
    static struct ebb_ledger ledger = {.magic = EBB_LEDGER_MAGIC, .budget_bytes = NO_BUDGET};
    struct ebb_ring *ring = must(ebb__core_memory(ebb__ring_bytes(EBB_RING_EVENTS)));
    ebb__ring_init(ring, EBB_RING_EVENTS, ebb__now_ns());
    atomic_store(&ring->parent_gone, 1);
    ebb__runtime_before_fork(rig->runtime);
    pid_t child = fork();
    if (child == 0)
        _exit(child_goes_on(&stage, &ledger, ring) ? 0 : 1);
    ebb__runtime_after_fork_parent(rig->runtime);
    assert_true(child > 0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (uint32_t t = half; t < model->tick_count; t++) {
        const struct ebb_model_event *event = &model->events[t];
        struct item *item = &stage.program.items[event->block];
        if (event->kind == EBB_EVENT_ALLOC) {
            *item = make(rig, model->blocks[event->block].size_bytes, t);
        } else if (event->kind == EBB_EVENT_FREE) {
            check(rig, item);
            drop(rig, item);
        }
    }
    for (unsigned lap = 0; lap < 2; lap++)
        program_lap(&stage.program, rig, false, UINT32_MAX);
    assert_int_equal(atomic_load(&rig->counters->mismatches), 0);
    munmap(ring, ebb__ring_bytes(EBB_RING_EVENTS));
    stage_close(&stage);
}

struct guest {
    struct stage *stage;
    uint64_t seed;
    unsigned wrong;
    _Atomic bool *stop;
};

/* Another thread allocates sizes of the template, so it takes addresses that were meant for others.
 * It frees them at random. */
static void *visit(void *argument)
{
    struct guest *guest = argument;
    struct rig *rig = guest->stage->rig;
    const struct ebb_model *model = &guest->stage->program.model;
    struct item items[4] = {{0}};
    uint64_t state = guest->seed * 0x9e3779b97f4a7c15u + 1;
    while (!atomic_load(guest->stop)) {
        struct item *item = &items[chance(&state) % 4];
        if (item->bytes) {
            guest->wrong += take_turn(rig, item, false, PATIENCE_MS) != TURN_RIGHT;
            guest->wrong += !ebb__runtime_free(rig->runtime, item->bytes);
            item->bytes = NULL;
            nap_us(20);
            continue;
        }
        item->size = model->blocks[chance(&state) % model->block_count].size_bytes;
        item->seed = chance(&state);
        item->bytes = ebb__runtime_alloc(rig->runtime, item->size, 64, false);
        guest->wrong += !item->bytes;
        if (item->bytes)
            guest->wrong += take_turn(rig, item, true, PATIENCE_MS) != TURN_RIGHT;
        nap_us(200);
    }
    for (size_t i = 0; i < 4; i++)
        if (items[i].bytes) {
            guest->wrong += take_turn(rig, &items[i], false, PATIENCE_MS) != TURN_RIGHT;
            guest->wrong += !ebb__runtime_free(rig->runtime, items[i].bytes);
        }
    return NULL;
}

static void threads_meet_in_the_static_placement(void **state)
{
    (void)state;
    struct stage stage = stage_open(70);
    struct rig *rig = stage.rig;
    uint64_t blocks = atomic_load(&rig->counters->placement_blocks);
    atomic_store(&rig->ledger.budget_bytes, stage.program.model.peak_bytes);
    _Atomic bool stop = false;
    struct guest guests[2];
    pthread_t threads[2];
    for (uint64_t i = 0; i < 2; i++) {
        guests[i] = (struct guest){&stage, i + 1, 0, &stop};
        assert_int_equal(pthread_create(&threads[i], NULL, visit, &guests[i]), 0);
    }
    for (unsigned lap = 0; lap < 6; lap++)
        program_lap(&stage.program, rig, lap % 2, UINT32_MAX);
    atomic_store(&stop, true);
    for (size_t i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(guests[i].wrong, 0);
    }
    for (unsigned lap = 0; lap < 2; lap++)
        program_lap(&stage.program, rig, false, UINT32_MAX);
    assert_true(atomic_load(&rig->counters->placement_blocks) > blocks);
    assert_int_equal(rig->runtime->addresses.placement.load_bytes, 0);
    stage_close(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_the_planned_ones),
        cmocka_unit_test(steady_laps_move_nothing),
        cmocka_unit_test(late_free_takes_no_address),
        cmocka_unit_test(alignments_are_kept),
        cmocka_unit_test(divergence_keeps_the_budget),
        cmocka_unit_test(less_memory_stops_the_static_placement),
        cmocka_unit_test(the_next_plan_waits),
        cmocka_unit_test(tracing_keeps_the_static_placement),
        cmocka_unit_test(malformed_places),
        cmocka_unit_test(orphan_pages_make_way),
        cmocka_unit_test(forks_share_the_static_placement),
        cmocka_unit_test(threads_meet_in_the_static_placement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
