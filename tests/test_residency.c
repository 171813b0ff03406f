/* Packing problems from plans: the instants and buffers of cases by hand and of random ones. The
 * checker finds planted errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "check/packing.h"
#include "lab/check/residency.h"
#include "plan_rig.h"
#include "synthetic.h"

/* A case worked by hand. The comments use its names. */
struct worked {
    struct ebb_model model;
    struct ebb_absence absences[2];
    struct ebb_pool_source source;
};

/* A weight is used once an iteration. It is absent from before the iteration's end until after its
 * beginning. An output is absent between its two uses, while a scratch block lives. */
static void work_out(struct worked *worked)
{
    struct maker maker = {0};
    uint32_t output = make_block(&maker, 10), scratch = make_block(&maker, 6);
    uint32_t weight = make_persistent(&maker, 4);
    make_event(&maker, 0, EBB_EVENT_ALLOC, output, 0);
    make_event(&maker, 10, EBB_EVENT_ACCESS, output, EBB_ACCESS_WRITE);
    make_event(&maker, 20, EBB_EVENT_ALLOC, scratch, 0);
    make_event(&maker, 30, EBB_EVENT_ACCESS, scratch, EBB_ACCESS_WRITE);
    make_event(&maker, 45, EBB_EVENT_ACCESS, weight, EBB_ACCESS_READ);
    make_event(&maker, 60, EBB_EVENT_FREE, scratch, 0);
    make_event(&maker, 80, EBB_EVENT_ACCESS, output, EBB_ACCESS_READ);
    make_event(&maker, 90, EBB_EVENT_FREE, output, 0);
    *worked = (struct worked){
        .model = make_model(&maker, 100),
        .absences = {{.block = output,
                      .from_tick = 1,
                      .to_tick = 6,
                      .out_start_ns = 20,
                      .out_end_ns = 25,
                      .in_start_ns = 70,
                      .in_end_ns = 80},
                     {.block = weight,
                      .from_tick = 4,
                      .to_tick = 4,
                      .out_start_ns = 60,
                      .out_end_ns = 65,
                      .in_start_ns = 30, /* at the time of tick 3, which comes first */
                      .in_end_ns = 45}}};
    worked->source = (struct ebb_pool_source){&worked->model, worked->absences, 2, 1, true};
}

static struct ebb_pool_blocks blocks_of(const struct ebb_pool_source *source)
{
    struct ebb_pool_blocks blocks;
    struct ebb_error error = {0};
    if (ebb__pool_from_model(source, &blocks, &error))
        fail_msg("%s: %s", error.what, error.why);
    if (ebb__check_residencies(source, &blocks, &error))
        fail_msg("%s", error.why);
    return blocks;
}

static void worked_out_by_hand(void **state)
{
    (void)state;
    struct worked worked;
    work_out(&worked);
    struct ebb_pool_blocks blocks = blocks_of(&worked.source);
    static const struct ebb_pool_instant instants[] = {
        {EBB_POOL_TICK, 0},    {EBB_POOL_TICK, 1},  {EBB_POOL_TICK, 2}, {EBB_POOL_EVICTED, 0},
        {EBB_POOL_TICK, 3},    {EBB_POOL_FETCH, 1}, {EBB_POOL_TICK, 4}, {EBB_POOL_TICK, 5},
        {EBB_POOL_EVICTED, 1}, {EBB_POOL_FETCH, 0}, {EBB_POOL_TICK, 6}, {EBB_POOL_TICK, 7}};
    static const struct ebb_pool_buffer buffers[] = {{0, 3, 10}, {9, 11, 10}, {2, 7, 6}, {5, 8, 4}};
    static const struct ebb_pool_name names[] = {{0, 0}, {0, 1}, {1, 0}, {2, 0}};
    assert_int_equal(blocks.instant_count, 12);
    assert_memory_equal(blocks.instants, instants, sizeof instants);
    assert_int_equal(blocks.count, 4);
    assert_memory_equal(blocks.buffers, buffers, sizeof buffers);
    assert_memory_equal(blocks.names, names, sizeof names);
    assert_int_equal(blocks.period, 12);
    assert_int_equal(blocks.load_bytes, 16); /* output and scratch, until the output is evicted */
    ebb__pool_blocks_fini(&blocks);
    /* Without the plan, the weight is always resident, and the output until its end. */
    worked.source.absence_count = 0;
    blocks = blocks_of(&worked.source);
    assert_int_equal(blocks.count, 3);
    assert_int_equal(blocks.period, 8);
    assert_int_equal(blocks.load_bytes, worked.model.peak_bytes);
    ebb__pool_blocks_fini(&blocks);
    ebb__model_fini(&worked.model);
}

/* The output is dropped. It is never fetched, and its residency ends with the copy out. */
static void dropped_blocks_end_early(void **state)
{
    (void)state;
    struct worked worked;
    work_out(&worked);
    worked.absences[0].from_tick = 6;
    worked.absences[0].to_tick = 7;
    worked.absences[0].drops = true;
    worked.absences[0].out_start_ns = worked.absences[0].out_end_ns = 90;
    struct ebb_pool_blocks blocks = blocks_of(&worked.source);
    assert_int_equal(blocks.instant_count, 11);
    assert_int_equal(blocks.count, 3);
    assert_int_equal(blocks.buffers[0].lower, 0);
    assert_int_equal(blocks.instants[blocks.buffers[0].upper].kind, EBB_POOL_EVICTED);
    ebb__pool_blocks_fini(&blocks);
    ebb__model_fini(&worked.model);
}

static void mutations_are_rejected(void **state)
{
    (void)state;
    struct worked worked;
    work_out(&worked);
    struct ebb_pool_blocks blocks = blocks_of(&worked.source);
    struct ebb_error error;
#define REJECTS(field, value)                                                                      \
    do {                                                                                           \
        __typeof__(field) kept = field;                                                            \
        field = (value);                                                                           \
        assert_int_equal(ebb__check_residencies(&worked.source, &blocks, &error), EBB_ERR_FORMAT); \
        field = kept;                                                                              \
    } while (0)
    for (uint32_t i = 0; i < blocks.count; i++) {
        REJECTS(blocks.buffers[i].lower, blocks.buffers[i].lower + 1);
        REJECTS(blocks.buffers[i].upper, blocks.buffers[i].upper + 1);
        REJECTS(blocks.buffers[i].upper, blocks.buffers[i].upper - 1);
        REJECTS(blocks.buffers[i].upper, blocks.buffers[i].lower + blocks.period);
        REJECTS(blocks.buffers[i].size_bytes, blocks.buffers[i].size_bytes - 1);
        REJECTS(blocks.names[i].block, (blocks.names[i].block + 1) % 3);
        REJECTS(blocks.buffers[i], blocks.buffers[(i + 1) % blocks.count]);
    }
    for (uint32_t i = 0; i < blocks.instant_count; i++) {
        REJECTS(blocks.instants[i], blocks.instants[(i + 1) % blocks.instant_count]);
        REJECTS(blocks.instants[i].index, blocks.instants[i].index + 1);
        REJECTS(blocks.instants[i].kind, 3);
    }
    REJECTS(blocks.count, blocks.count - 1); /* a residency without a buffer */
    REJECTS(blocks.load_bytes, blocks.load_bytes - 1);
    REJECTS(blocks.iterations, 2);
    /* The packing belongs to another plan: its copy out ends after tick 3, or before the output is
     * used. */
    REJECTS(worked.absences[0].out_end_ns, 31);
    REJECTS(worked.absences[0].out_end_ns, 5);
    REJECTS(worked.absences[1].in_start_ns, 46);
    REJECTS(worked.absences[1].drops, true);
    REJECTS(worked.source.absence_count, 1);
#undef REJECTS
    ebb__pool_blocks_fini(&blocks);
    ebb__model_fini(&worked.model);
}

/* Some blocks are freed one or more iterations later. Other instances are allocated in between. */
static void outlive(struct ebb_model *model, uint64_t seed)
{
    uint64_t state = seed;
    for (uint32_t b = 0; b < model->block_count; b++)
        if (model->blocks[b].alloc_tick != EBB_TICK_NONE && chance(&state) % 4 == 0)
            model->blocks[b].span_ticks += model->tick_count * (uint32_t)(1 + chance(&state) % 5);
    assert_int_equal(ebb__model_derive(model, NULL), EBB_OK);
}

struct seen {
    uint32_t absences, drops, stalls, unrolled, long_lived, parted;
};

static void pack_under(const struct ebb_plan_request *request, const char *policy, bool unroll,
                       struct seen *seen)
{
    const struct ebb_model *model = request->model;
    struct ebb_plan plan = make(policy, request);
    assert_holds(request, &plan);
    struct ebb_pool_source source = {model, plan.absences, plan.absence_count, request->page_bytes,
                                     unroll};
    struct ebb_pool_blocks blocks = blocks_of(&source);
    struct ebb_pool_problem problem = {.buffers = blocks.buffers,
                                       .count = blocks.count,
                                       .period = blocks.period,
                                       .capacity_bytes = EBB_POOL_NO_CAPACITY,
                                       .time_limit_ns = 1};
    struct ebb_pool_solution solution;
    struct ebb_error error;
    assert_int_equal(ebb__pool_solve("bestfit", &problem, &solution, &error), EBB_OK);
    if (ebb__check_packing(&problem, &solution, &error))
        fail_msg("%s", error.why);
    /* If the program waits, events of one time are taken in the order that needs the least
     * memory. */
    if (!plan.reactive && blocks.load_bytes > plan.peak_bytes)
        fail_msg("%s: load %llu over the peak %llu", policy, (unsigned long long)blocks.load_bytes,
                 (unsigned long long)plan.peak_bytes);
    if (!plan.reactive && plan.stall_ns == 0)
        assert_int_equal(blocks.load_bytes, plan.peak_bytes);
    assert_true(solution.load_bytes >= blocks.load_bytes);
    uint32_t always = 0;
    for (uint32_t i = 0; i < blocks.count; i++)
        always += blocks.buffers[i].upper - blocks.buffers[i].lower == blocks.period &&
                  model->blocks[blocks.names[i].block].alloc_tick != EBB_TICK_NONE;
    if (!always)
        assert_int_equal(solution.load_bytes, blocks.load_bytes);
    seen->absences += plan.absence_count;
    for (uint32_t i = 0; i < plan.absence_count; i++) {
        seen->drops += plan.absences[i].drops;
        seen->parted += model->blocks[plan.absences[i].block].span_ticks > model->tick_count;
    }
    seen->stalls += plan.stall_ns > 0;
    seen->unrolled += blocks.iterations > 1;
    seen->long_lived += always > 0;
    ebb__pool_solution_fini(&solution);
    ebb__pool_blocks_fini(&blocks);
    ebb__plan_fini(&plan);
}

static void random_plans(void **state)
{
    (void)state;
    static const char *const policies[] = {"none", "vdnn:all", "autoswap:swdoa", "appobmem", "lru"};
    struct seen seen = {0};
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct ebb_model model =
            make_random(seed, 20 + (uint32_t)(seed % 7) * 30, 4 * EBB_MIB, 300000);
        struct ebb_machine machine = machine_of(seed % 4 ? 6 : 40, 10, seed % 2);
        if (seed % 2)
            outlive(&model, seed);
        for (uint64_t percent = 100; percent >= 40; percent -= 20)
            for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
                struct ebb_plan_request request = {.model = &model,
                                                   .machine = &machine,
                                                   .budget_bytes = model.peak_bytes * percent / 100,
                                                   .page_bytes = seed % 3 ? 1 : 4096,
                                                   .time_limit_ns = 1000000};
                pack_under(&request, policies[p], seed % 5 != 0, &seen);
                if (p == 0 && percent < 100)
                    pack_under(&request, "ebb", true, &seen);
            }
        ebb__model_fini(&model);
    }
    print_message(
        "%u absences, %u drop, %u of blocks that outlive; %u plans stall, %u unrolled, %u "
        "with blocks that outlive the circle\n",
        seen.absences, seen.drops, seen.parted, seen.stalls, seen.unrolled, seen.long_lived);
    assert_true(seen.absences > 1000 && seen.drops > 20 && seen.parted > 20);
    assert_true(seen.stalls > 50 && seen.unrolled > 20 && seen.long_lived > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worked_out_by_hand),
        cmocka_unit_test(dropped_blocks_end_early),
        cmocka_unit_test(mutations_are_rejected),
        cmocka_unit_test(random_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
