/* What a plan may ask beyond absences: barriers, blocks in the memory of others, and blocks that
 * keep their memory. The simulator is compared with cases worked by hand. The checker finds each
 * kind of damage. A lane copies one byte per nanosecond. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "check/check.h"
#include "sim/simulate.h"
#include "synthetic.h"

static const struct ebb_machine one = {"one", {1, 0}, {1, 0}, true, EBB_NO_COSTS};

/* A plan with room for what the tests change. */
struct fixture {
    struct ebb_model model;
    struct ebb_absence absence;
    uint32_t barriers[2];
    struct ebb_share shares[2];
    struct ebb_plan plan;
};

static struct ebb_sim_result run(struct fixture *fixture, struct ebb_sim_times *times,
                                 uint64_t *stalls)
{
    struct ebb_plan *plan = &fixture->plan;
    struct ebb_sim_request request = {
        &fixture->model, &one, &fixture->absence, plan->absence_count, 1000, 1, &plan->rules};
    struct ebb_sim_detail detail = {.times = times, .tick_stall_ns = stalls};
    struct ebb_sim_result result;
    struct ebb_error error;
    if (ebb__simulate(&request, &detail, &result, &error) != EBB_OK)
        fail_msg("%s", error.why);
    assert_true(result.steady && result.feasible);
    return result;
}

/* Copies the simulator's figures into the plan. */
static void predict(struct fixture *fixture)
{
    struct ebb_plan *plan = &fixture->plan;
    struct ebb_absence *absence = &fixture->absence;
    struct ebb_sim_times times;
    struct ebb_sim_result result = run(fixture, &times, NULL);
    plan->budget_bytes = 1000;
    plan->feasible = true;
    plan->absences = absence;
    plan->peak_bytes = result.peak_bytes;
    plan->stall_ns = result.stall_ns;
    plan->iteration_ns = result.iteration_ns;
    plan->moved_out_bytes = result.moved_out_bytes;
    plan->moved_in_bytes = result.moved_in_bytes;
    if (plan->absence_count == 0)
        return;
    absence->out_start_ns = times.out_start_ns;
    absence->out_end_ns = times.out_end_ns;
    absence->in_start_ns = times.in_start_ns;
    absence->in_end_ns = times.in_end_ns;
}

static void expect(const struct fixture *fixture, const char *why)
{
    const struct ebb_check_request request = {&fixture->model, &one, 1000, 1};
    struct ebb_error error = {0};
    enum ebb_status status = ebb__check_plan(&request, &fixture->plan, &error);
    if (status == EBB_OK ? why != NULL : !why || !strstr(error.why, why))
        fail_msg("'%s' instead of '%s'", status ? error.why : "accepted", why ? why : "accepted");
}

/* A, of 100 bytes, can be evicted from 20 on and is needed at 310. Barriers at 50 and 300. */
static struct fixture with_barriers(void)
{
    struct maker maker = {0};
    uint32_t a = make_block(&maker, 100), tiny = make_block(&maker, 1);
    uint32_t weight = make_persistent(&maker, 1);
    make_event(&maker, 0, EBB_EVENT_ALLOC, a, 0);
    make_event(&maker, 10, EBB_EVENT_ACCESS, a, EBB_ACCESS_WRITE);
    make_event(&maker, 20, EBB_EVENT_ALLOC, tiny, 0);
    make_event(&maker, 50, EBB_EVENT_ACCESS, weight, EBB_ACCESS_READ);  /* 3 */
    make_event(&maker, 300, EBB_EVENT_ACCESS, weight, EBB_ACCESS_READ); /* 4 */
    make_event(&maker, 310, EBB_EVENT_ACCESS, a, EBB_ACCESS_READ);      /* 5 */
    make_event(&maker, 400, EBB_EVENT_FREE, a, 0);
    make_event(&maker, 410, EBB_EVENT_FREE, tiny, 0);
    return (struct fixture){
        .model = make_model(&maker, 1000),
        .absence = {.block = a, .from_tick = 1, .to_tick = 5, .in_start_ns = 250},
        .barriers = {3, 4},
        .plan = {.policy = "hand", .absence_count = 1},
    };
}

static void barriers_wait_for_copies(void **state)
{
    (void)state;
    struct fixture fixture = with_barriers();
    struct ebb_sim_times times;
    uint64_t stalls[8];
    struct ebb_sim_result result = run(&fixture, &times, stalls);
    assert_int_equal(result.stall_ns, 40); /* back at 350, needed at 310 */
    fixture.plan.rules.barriers = fixture.barriers;
    fixture.plan.rules.barrier_count = 2;
    result = run(&fixture, &times, stalls);
    assert_int_equal(stalls[3], 70); /* the copy out, of 100 ns, began at 20 */
    assert_int_equal(stalls[4], 50); /* the copy in began at 250 */
    assert_int_equal(stalls[5], 0);
    assert_int_equal(result.stall_ns, 120);
    assert_int_equal(result.room_stall_ns, 0);
    assert_int_equal(result.iteration_ns, 1120);
    assert_int_equal(result.peak_bytes, 102);
    assert_int_equal(times.out_end_ns, 50);
    assert_int_equal(times.in_end_ns, 300);
    /* The fetch is too late for its start to be reached before the barrier. */
    fixture.absence.in_start_ns = 305;
    result = run(&fixture, &times, stalls);
    assert_int_equal(stalls[4], 100);
    assert_int_equal(times.in_start_ns, 300);
    ebb__model_fini(&fixture.model);
}

static void barriers_are_checked(void **state)
{
    (void)state;
    struct fixture fixture = with_barriers();
    fixture.plan.rules.barriers = fixture.barriers;
    fixture.plan.rules.barrier_count = 2;
    predict(&fixture);
    expect(&fixture, NULL);
    struct fixture good = fixture;
    fixture.absence.out_end_ns++;
    expect(&fixture, "its copy out runs on behind the barrier at 3");
    fixture.absence = good.absence;
    fixture.absence.in_end_ns++;
    expect(&fixture, "block 0 is not back at the barrier at 4");
    fixture.absence = good.absence;
    fixture.barriers[1] = 3;
    expect(&fixture, "barrier 1: behind the last tick, or out of order");
    fixture.barriers[1] = 8;
    expect(&fixture, "barrier 1: behind the last tick, or out of order");
    struct ebb_sim_request request = {&fixture.model, &one, NULL, 0, 1000, 1, &fixture.plan.rules};
    struct ebb_sim_result result;
    assert_int_equal(ebb__simulate(&request, NULL, &result, NULL), EBB_ERR_ARGUMENT);
    ebb__model_fini(&fixture.model);
}

/* A second block, of 60 bytes, is to be fetched from 50 on. That is when the program reaches the
 * first barrier. It waits there for 70 ns for a copy out. The fetch starts behind the barrier. */
static void fetches_start_behind_barriers(void **state)
{
    (void)state;
    struct maker maker = {0};
    uint32_t a = make_block(&maker, 100), tiny = make_block(&maker, 1);
    uint32_t other = make_persistent(&maker, 60);
    make_event(&maker, 0, EBB_EVENT_ALLOC, a, 0);
    make_event(&maker, 10, EBB_EVENT_ACCESS, a, EBB_ACCESS_WRITE);
    make_event(&maker, 20, EBB_EVENT_ALLOC, tiny, 0);
    make_event(&maker, 50, EBB_EVENT_FREE, tiny, 0); /* 3 */
    make_event(&maker, 310, EBB_EVENT_ACCESS, a, EBB_ACCESS_READ);
    make_event(&maker, 350, EBB_EVENT_ACCESS, other, EBB_ACCESS_READ); /* 5 */
    make_event(&maker, 400, EBB_EVENT_FREE, a, 0);
    struct ebb_model model = make_model(&maker, 1000);
    const struct ebb_absence absences[] = {
        {.block = a, .from_tick = 1, .to_tick = 4, .in_start_ns = 150},
        {.block = other, .from_tick = 5, .to_tick = 5, .in_start_ns = 50}};
    uint32_t barriers[] = {3, 4};
    const struct ebb_plan_rules rules = {.barriers = barriers, .barrier_count = 2};
    struct ebb_sim_request request = {&model, &one, absences, 2, 1000, 1, &rules};
    struct ebb_sim_times times[2];
    const struct ebb_sim_detail detail = {.times = times};
    struct ebb_sim_result result;
    assert_int_equal(ebb__simulate(&request, &detail, &result, NULL), EBB_OK);
    assert_int_equal(result.stall_ns, 70);
    assert_int_equal(times[1].in_start_ns, 50);
    assert_int_equal(times[1].in_end_ns, 110);
    ebb__model_fini(&model);
}

/* Too little memory for the fetch: the barrier is passed, and the budget is broken. */
static void barriers_do_not_hang(void **state)
{
    (void)state;
    struct fixture fixture = with_barriers();
    fixture.plan.rules.barriers = fixture.barriers;
    fixture.plan.rules.barrier_count = 2;
    struct ebb_sim_request request = {&fixture.model,     &one, &fixture.absence, 1, 50, 1,
                                      &fixture.plan.rules};
    struct ebb_sim_result result;
    assert_int_equal(ebb__simulate(&request, NULL, &result, NULL), EBB_OK);
    assert_false(result.feasible);
    assert_true(result.peak_bytes > 50);
    assert_int_equal(result.moved_in_bytes, 100);
    ebb__model_fini(&fixture.model);
}

enum { WEIGHT, DATA, GRADIENT, LATER };

/* A layer makes 100 bytes of data. Its backward work reads it and makes a gradient of 80. The data
 * is freed first, or last. A later layer uses the gradient, beside 50 bytes. */
static struct fixture with_share(bool data_lasts)
{
    struct maker maker = {0};
    make_persistent(&maker, 10);
    make_block(&maker, 100);
    make_block(&maker, 80);
    make_block(&maker, 50);
    make_mark(&maker, 0, EBB_MARK_PHASE, EBB_PHASE_FORWARD);          /* 0 */
    make_mark(&maker, 0, EBB_MARK_LAYER, 1);                          /* 1 */
    make_event(&maker, 10, EBB_EVENT_ALLOC, DATA, 0);                 /* 2 */
    make_event(&maker, 20, EBB_EVENT_ACCESS, DATA, EBB_ACCESS_WRITE); /* 3 */
    make_mark(&maker, 30, EBB_MARK_PHASE, EBB_PHASE_BACKWARD);        /* 4 */
    make_mark(&maker, 30, EBB_MARK_LAYER, 2);                         /* 5 */
    make_event(&maker, 40, EBB_EVENT_ALLOC, GRADIENT, 0);             /* 6 */
    make_event(&maker, 50, EBB_EVENT_ACCESS, DATA, EBB_ACCESS_READ);  /* 7 */
    make_event(&maker, 60, EBB_EVENT_ACCESS, GRADIENT, EBB_ACCESS_WRITE);
    if (!data_lasts)
        make_event(&maker, 70, EBB_EVENT_FREE, DATA, 0); /* 9 */
    make_mark(&maker, 80, EBB_MARK_LAYER, 1);
    make_event(&maker, 90, EBB_EVENT_ALLOC, LATER, 0);
    make_event(&maker, 100, EBB_EVENT_ACCESS, GRADIENT, EBB_ACCESS_READ);
    make_event(&maker, 110, EBB_EVENT_FREE, GRADIENT, 0);
    if (data_lasts)
        make_event(&maker, 120, EBB_EVENT_FREE, DATA, 0);
    make_event(&maker, 130, EBB_EVENT_ACCESS, WEIGHT, EBB_ACCESS_READ);
    make_event(&maker, 140, EBB_EVENT_FREE, LATER, 0);
    return (struct fixture){
        .model = make_model(&maker, 1000),
        .shares = {{GRADIENT, DATA}, {LATER, DATA}},
        .plan = {.policy = "hand"},
    };
}

static void shares_take_no_bytes(void **state)
{
    (void)state;
    for (int data_lasts = 0; data_lasts < 2; data_lasts++) {
        struct fixture fixture = with_share(data_lasts);
        struct ebb_sim_result result = run(&fixture, NULL, NULL);
        assert_int_equal(result.peak_bytes, data_lasts ? 240 : 190);
        fixture.plan.rules.shares = fixture.shares;
        fixture.plan.rules.share_count = 1;
        /* The data's 100 bytes stay until both are freed: beside the weight and the other block. */
        predict(&fixture);
        assert_int_equal(fixture.plan.peak_bytes, 160);
        assert_int_equal(fixture.plan.stall_ns, 0);
        expect(&fixture, NULL);
        fixture.plan.peak_bytes--;
        expect(&fixture, "160 bytes resident at 90 ns, over the claimed peak of 159");
        ebb__model_fini(&fixture.model);
    }
}

/* Shares across the iteration's end: the host is freed in the next one. */
static void shares_on_the_circle(void **state)
{
    (void)state;
    struct fixture fixture = with_share(false);
    for (uint32_t cut = 1; cut < fixture.model.tick_count; cut++) {
        struct fixture turned = with_share(false);
        struct ebb_model *model = &turned.model;
        uint32_t ticks = model->tick_count;
        for (uint32_t t = 0; t < ticks; t++)
            model->events[t] = fixture.model.events[(t + cut) % ticks];
        for (uint32_t t = 0; t < ticks; t++)
            model->time_ns[t] = 10 * t;
        for (uint32_t i = 1; i < model->block_count; i++) {
            model->blocks[i].alloc_tick = (model->blocks[i].alloc_tick + ticks - cut) % ticks;
            model->blocks[i].free_tick = (model->blocks[i].free_tick + ticks - cut) % ticks;
        }
        for (uint32_t i = 0; i < model->access_count; i++)
            model->accesses[i].tick = (model->accesses[i].tick + ticks - cut) % ticks;
        uint32_t marks = 0;
        for (uint32_t t = 0; t < ticks; t++)
            for (uint32_t i = 0; i < fixture.model.mark_count; i++)
                if (fixture.model.marks[i].tick == (t + cut) % ticks)
                    model->marks[marks++] =
                        (struct ebb_model_mark){t, fixture.model.marks[i].value};
        assert_int_equal(ebb__model_derive(model, NULL), EBB_OK);
        turned.plan.rules.shares = turned.shares;
        turned.plan.rules.share_count = 1;
        predict(&turned);
        assert_int_equal(turned.plan.peak_bytes, 160);
        expect(&turned, NULL);
        ebb__model_fini(model);
    }
    ebb__model_fini(&fixture.model);
}

static void shares_are_checked(void **state)
{
    (void)state;
    struct fixture fixture = with_share(false);
    struct ebb_plan_rules *rules = &fixture.plan.rules;
    rules->shares = fixture.shares;
    rules->share_count = 1;
    predict(&fixture);
    expect(&fixture, NULL);
    struct fixture good = fixture;
    rules->share_count = 2;
    expect(&fixture, "share 1: one of its blocks is in another share");
    rules->share_count = 1;
    fixture.shares[0].host = DATA + 9;
    expect(&fixture, "share 0: not two blocks");
    fixture.shares[0].host = WEIGHT;
    expect(&fixture, "share 0: one of its blocks is not allocated as a whole");
    fixture.shares[0] = (struct ebb_share){DATA, GRADIENT};
    expect(&fixture, "share 0: block 1 is larger than block 2");
    fixture.shares[0] = (struct ebb_share){LATER, DATA};
    expect(&fixture, "share 0: block 3 is not allocated while block 1 is");
    fixture.shares[0] = (struct ebb_share){LATER, GRADIENT};
    fixture.plan.peak_bytes = 1000;
    expect(&fixture, NULL); /* the layer that uses the gradient last makes the other block */
    fixture.shares[0] = good.shares[0];
    fixture.model.accesses[fixture.model.blocks[DATA].first_access + 1].tick = 3;
    expect(&fixture, "share 0: block 1 is not used last in the layer that makes 2");
    fixture.model.mark_count = 0;
    expect(&fixture, "blocks share memory, but the model has no layers");
    ebb__model_fini(&fixture.model);
}

static void all_is_kept(void **state)
{
    (void)state;
    struct fixture fixture = with_share(false);
    fixture.plan.rules.keeps_all = true;
    predict(&fixture);
    assert_int_equal(fixture.plan.peak_bytes, 240);
    expect(&fixture, NULL);
    fixture.plan.peak_bytes = 239;
    expect(&fixture, "240 bytes resident at 0 ns, over the claimed peak of 239");
    fixture.plan.peak_bytes = 240;
    fixture.plan.rules.shares = fixture.shares;
    fixture.plan.rules.share_count = 1;
    expect(&fixture, "each block keeps its memory, but one is absent or shares");
    /* A block that outlives two iterations has three instances. */
    fixture.plan.rules.share_count = 0;
    fixture.model.blocks[LATER].span_ticks += 2 * fixture.model.tick_count;
    predict(&fixture);
    assert_int_equal(fixture.plan.peak_bytes, 10 + 100 + 80 + 3 * 50);
    expect(&fixture, NULL);
    ebb__model_fini(&fixture.model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(barriers_wait_for_copies),
        cmocka_unit_test(barriers_are_checked),
        cmocka_unit_test(barriers_do_not_hang),
        cmocka_unit_test(shares_take_no_bytes),
        cmocka_unit_test(shares_on_the_circle),
        cmocka_unit_test(shares_are_checked),
        cmocka_unit_test(all_is_kept),
        cmocka_unit_test(fetches_start_behind_barriers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
