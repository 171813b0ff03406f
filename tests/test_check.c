/* The checker: good plans pass, and each kind of damage is found and named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "check/check.h"
#include "synthetic.h"

#include <stdint.h>

static const struct ebb_machine machine = {"one", {1, 0}, {1, 0}, true, EBB_NO_COSTS};

/* A plan made by hand, without a planner. Block a (100 bytes) is absent from 120 to 500. Block b
 * (60) is written back and never fetched. The weight (40) is absent across the iteration's end. */
struct fixture {
    struct ebb_model model;
    struct ebb_absence absences[3];
    struct ebb_plan plan;
    struct ebb_check_request request;
    struct ebb_error error;
};

enum { A, B, WEIGHT };

static void fixture_make(struct fixture *fixture)
{
    struct maker maker = {0};
    uint32_t a = make_block(&maker, 100), b = make_block(&maker, 60);
    uint32_t weight = make_persistent(&maker, 40), big = make_block(&maker, 140);
    make_event(&maker, 100, EBB_EVENT_ALLOC, a, 0);                      /* 0 */
    make_event(&maker, 110, EBB_EVENT_ACCESS, a, EBB_ACCESS_WRITE);      /* 1 */
    make_event(&maker, 120, EBB_EVENT_ALLOC, b, 0);                      /* 2 */
    make_event(&maker, 130, EBB_EVENT_ACCESS, b, EBB_ACCESS_WRITE);      /* 3 */
    make_event(&maker, 300, EBB_EVENT_ALLOC, big, 0);                    /* 4 */
    make_event(&maker, 310, EBB_EVENT_ACCESS, big, EBB_ACCESS_WRITE);    /* 5 */
    make_event(&maker, 480, EBB_EVENT_FREE, big, 0);                     /* 6 */
    make_event(&maker, 620, EBB_EVENT_ACCESS, a, EBB_ACCESS_READ);       /* 7 */
    make_event(&maker, 640, EBB_EVENT_FREE, a, 0);                       /* 8 */
    make_event(&maker, 700, EBB_EVENT_ACCESS, weight, EBB_ACCESS_WRITE); /* 9 */
    make_event(&maker, 900, EBB_EVENT_FREE, b, 0);                       /* 10 */
    *fixture = (struct fixture){.model = make_model(&maker, 1000)};
    fixture->absences[A] = (struct ebb_absence){.block = a,
                                                .from_tick = 1,
                                                .to_tick = 7,
                                                .out_start_ns = 120,
                                                .out_end_ns = 220,
                                                .in_start_ns = 500,
                                                .in_end_ns = 600};
    fixture->absences[B] = (struct ebb_absence){.block = b,
                                                .from_tick = 3,
                                                .to_tick = 10,
                                                .drops = true,
                                                .out_start_ns = 300,
                                                .out_end_ns = 360};
    fixture->absences[WEIGHT] = (struct ebb_absence){.block = weight,
                                                     .from_tick = 9,
                                                     .to_tick = 9,
                                                     .out_start_ns = 970,
                                                     .out_end_ns = 10,
                                                     .in_start_ns = 610,
                                                     .in_end_ns = 650};
    fixture->plan = (struct ebb_plan){.policy = "hand",
                                      .budget_bytes = 200,
                                      .feasible = true,
                                      .absences = fixture->absences,
                                      .absence_count = 3,
                                      .peak_bytes = 200, /* b and big */
                                      .iteration_ns = 1000,
                                      .moved_out_bytes = 200,
                                      .moved_in_bytes = 140};
    fixture->request = (struct ebb_check_request){&fixture->model, &machine, 200, 1};
}

static enum ebb_status verdict(struct fixture *fixture)
{
    return ebb__check_plan(&fixture->request, &fixture->plan, &fixture->error);
}

static void good_plan_passes(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture);
    if (verdict(&fixture) != EBB_OK)
        fail_msg("%s", fixture.error.why);
    ebb__model_fini(&fixture.model);
}

/* Each function damages one thing. The checker's message must contain `words`. */
static void damage_block(struct fixture *f)
{
    f->absences[A].block = 99;
}
static void damage_other_block(struct fixture *f)
{
    f->absences[A].block = 1;
}
static void damage_tick(struct fixture *f)
{
    f->absences[A].to_tick = 11;
}
static void damage_skips_a_use(struct fixture *f)
{
    f->absences[A].to_tick = 8, f->absences[A].drops = true;
}
static void damage_from_alloc(struct fixture *f)
{
    f->absences[A].from_tick = 0;
}
static void damage_drops(struct fixture *f)
{
    f->absences[A].drops = true;
}
static void damage_no_drop(struct fixture *f)
{
    f->absences[B].drops = false;
}
static void damage_twice(struct fixture *f)
{
    f->absences[B] = f->absences[A];
}
static void damage_early(struct fixture *f)
{
    f->absences[A].out_start_ns = 115;
}
static void damage_late_out(struct fixture *f)
{
    f->absences[A].out_start_ns = 630;
}
static void damage_out_too_long(struct fixture *f)
{
    f->absences[A].out_end_ns = 119;
}
static void damage_in_before_out(struct fixture *f)
{
    f->absences[A].in_start_ns = 210;
}
static void damage_back_late(struct fixture *f)
{
    f->absences[A].in_end_ns = 621;
}
static void damage_fast_out(struct fixture *f)
{
    f->absences[A].out_end_ns = 200;
}
static void damage_fast_in(struct fixture *f)
{
    f->absences[A].in_start_ns = 510;
}
static void damage_out_lane(struct fixture *f)
{
    f->absences[A].out_end_ns = 301;
}
static void damage_in_lane(struct fixture *f)
{
    f->absences[WEIGHT].in_start_ns = 599;
}
static void damage_room_out(struct fixture *f)
{
    /* The weight is evicted late, while b and big are allocated. */
    f->absences[WEIGHT].out_start_ns = 370, f->absences[WEIGHT].out_end_ns = 410;
}
static void damage_room_in(struct fixture *f)
{
    f->absences[A].in_start_ns = 450;
}
static void damage_budget(struct fixture *f)
{
    f->request.budget_bytes = f->plan.budget_bytes = 199;
}
static void damage_other_budget(struct fixture *f)
{
    f->request.budget_bytes = 300;
}
static void damage_peak(struct fixture *f)
{
    f->plan.peak_bytes = 199;
}
static void damage_feasible(struct fixture *f)
{
    f->plan.feasible = false;
}
static void damage_moved(struct fixture *f)
{
    f->plan.moved_in_bytes = 200;
}
static void damage_iteration(struct fixture *f)
{
    f->plan.iteration_ns = 999;
}
static void damage_time(struct fixture *f)
{
    f->absences[A].in_start_ns = 1500;
}
static void damage_pages(struct fixture *f)
{
    f->request.page_bytes = 64;
}

static void damage_is_named(void **state)
{
    (void)state;
    static const struct {
        void (*damage)(struct fixture *fixture);
        const char *words;
    } cases[] = {
        {damage_block, "there is no block 99"},
        {damage_other_block, "do not use block"},
        {damage_tick, "a tick behind the last"},
        {damage_skips_a_use, "used in between"},
        {damage_from_alloc, "not between accesses"},
        {damage_drops, "drops is true"},
        {damage_no_drop, "drops is false"},
        {damage_twice, "overlaps another"},
        {damage_early, "while in use"},
        {damage_late_out, "while in use"},
        {damage_out_too_long, "ends after its gap"},
        {damage_in_before_out, "before the copy out ends"},
        {damage_back_late, "is back late"},
        {damage_fast_out, "copy out takes 80 ns"},
        {damage_fast_in, "copy in takes 90 ns"},
        {damage_out_lane, "copy out at the same time"},
        {damage_in_lane, "copy in at the same time"},
        {damage_room_out, "over the claimed peak"},
        {damage_room_in, "over the claimed peak"},
        {damage_budget, "feasible is true"},
        {damage_other_budget, "another budget"},
        {damage_peak, "over the claimed peak"},
        {damage_feasible, "feasible is false"},
        {damage_moved, "sums of moved bytes"},
        {damage_iteration, "iteration is not"},
        {damage_time, "outside the iteration"},
        {damage_pages, "the lane needs"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture fixture;
        fixture_make(&fixture);
        cases[i].damage(&fixture);
        enum ebb_status status = verdict(&fixture);
        if (status != EBB_ERR_FORMAT || !strstr(fixture.error.why, cases[i].words))
            fail_msg("case %zu wants '%s', got '%s'", i, cases[i].words,
                     status ? fixture.error.why : "no objection");
        ebb__model_fini(&fixture.model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_plan_passes),
        cmocka_unit_test(damage_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
