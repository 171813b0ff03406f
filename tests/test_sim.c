/* The simulator, compared with cases worked by hand. A lane copies one byte per nanosecond unless
 * the test sets its rate. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "sim/simulate.h"
#include "synthetic.h"

#include <stdint.h>

static const struct ebb_machine one = {"one", {1, 0}, {1, 0}, true, EBB_NO_COSTS};

/* A has 100 bytes. It is written at 10, in use until 20, and read at 600. B lives from `b_alloc_ns`
 * to `b_free_ns`. */
struct small {
    struct ebb_model model;
    struct ebb_absence absence;
};

static struct small small_make(uint64_t b_bytes, uint64_t b_alloc_ns, uint64_t b_free_ns)
{
    struct maker maker = {0};
    uint32_t a = make_block(&maker, 100), b = make_block(&maker, b_bytes);
    uint32_t tiny = make_block(&maker, 1);
    make_event(&maker, 0, EBB_EVENT_ALLOC, a, 0);                  /* 0 */
    make_event(&maker, 10, EBB_EVENT_ACCESS, a, EBB_ACCESS_WRITE); /* 1 */
    make_event(&maker, 20, EBB_EVENT_ALLOC, tiny, 0);              /* the use of a is over */
    make_event(&maker, b_alloc_ns, EBB_EVENT_ALLOC, b, 0);         /* 3 */
    make_event(&maker, b_free_ns, EBB_EVENT_FREE, b, 0);           /* 4 */
    make_event(&maker, 600, EBB_EVENT_ACCESS, a, EBB_ACCESS_READ); /* 5 */
    make_event(&maker, 700, EBB_EVENT_FREE, a, 0);                 /* 6 */
    make_event(&maker, 710, EBB_EVENT_FREE, tiny, 0);              /* 7 */
    return (struct small){make_model(&maker, 1000),
                          {.block = a, .from_tick = 1, .to_tick = 5, .in_start_ns = 500}};
}

static struct ebb_sim_result run(const struct small *small, const struct ebb_machine *machine,
                                 uint64_t budget, struct ebb_sim_times *times, uint64_t *stalls)
{
    struct ebb_sim_request request = {&small->model, machine, &small->absence, 1, budget, 1, NULL};
    struct ebb_sim_detail detail = {.times = times, .tick_stall_ns = stalls};
    struct ebb_sim_result result;
    struct ebb_error error;
    assert_int_equal(ebb__simulate(&request, &detail, &result, &error), EBB_OK);
    assert_true(result.steady);
    return result;
}

static void nothing_in_the_way(void **state)
{
    (void)state;
    struct small small = small_make(50, 150, 500);
    struct ebb_sim_times times;
    struct ebb_sim_result result = run(&small, &one, 151, &times, NULL);
    assert_int_equal(result.stall_ns, 0);
    assert_int_equal(result.iteration_ns, 1000);
    assert_int_equal(result.peak_bytes, 101); /* a and tiny; b is allocated after a is evicted */
    assert_true(result.feasible);
    assert_int_equal(times.out_start_ns, 20);
    assert_int_equal(times.out_end_ns, 120);
    assert_int_equal(times.in_start_ns, 500); /* b is freed at that instant, before */
    assert_int_equal(times.in_end_ns, 600);
    assert_int_equal(result.moved_out_bytes, 100);
    assert_int_equal(result.moved_in_bytes, 100);
    ebb__model_fini(&small.model);
}

static void allocation_waits_for_room(void **state)
{
    (void)state;
    struct small small = small_make(50, 50, 500);
    uint64_t stalls[8];
    struct ebb_sim_times times;
    /* a is written back from 20 to 120. b needs 50 bytes at 50 and gets them at 120, which is 70 ns
     * late. */
    struct ebb_sim_result result = run(&small, &one, 110, &times, stalls);
    assert_int_equal(result.stall_ns, 70);
    assert_int_equal(result.room_stall_ns, 70);
    assert_int_equal(stalls[3], 70);
    assert_int_equal(stalls[5], 0);
    assert_int_equal(times.out_end_ns, 50); /* the model's clock stands still */
    assert_int_equal(result.peak_bytes, 101);
    assert_true(result.feasible);
    ebb__model_fini(&small.model);
}

static void access_waits_for_the_copy(void **state)
{
    (void)state;
    struct small small = small_make(50, 150, 500);
    struct ebb_sim_times times;
    small.absence.in_start_ns = 530;
    struct ebb_sim_result result = run(&small, &one, 200, &times, NULL);
    assert_int_equal(result.stall_ns, 30);
    assert_int_equal(times.stall_ns, 30);
    assert_int_equal(times.in_end_ns, 600);
    assert_int_equal(result.room_stall_ns, 0);
    ebb__model_fini(&small.model);
}

static void copy_in_waits_for_room(void **state)
{
    (void)state;
    struct small small = small_make(50, 150, 550);
    struct ebb_sim_times times;
    /* Beside b there is no memory before 550, so the copy ends at 650, which is 50 too late. */
    struct ebb_sim_result result = run(&small, &one, 120, &times, NULL);
    assert_int_equal(times.in_start_ns, 550);
    assert_int_equal(result.stall_ns, 50);
    assert_true(result.feasible);
    ebb__model_fini(&small.model);
}

static void access_cancels_a_late_copy_out(void **state)
{
    (void)state;
    struct small small = small_make(50, 150, 500);
    struct ebb_machine slow = {"slow", {10, 0}, {1, 0}, true, EBB_NO_COSTS};
    struct ebb_sim_times times;
    struct ebb_sim_result result = run(&small, &slow, 1000, &times, NULL);
    assert_true(times.cancelled);
    assert_int_equal(result.cancelled_count, 1);
    assert_int_equal(result.stall_ns, 0);
    assert_int_equal(result.moved_in_bytes, 0);
    assert_int_equal(result.peak_bytes, 151);
    ebb__model_fini(&small.model);
}

static void standstill_breaks_the_budget(void **state)
{
    (void)state;
    struct maker maker = {0};
    uint32_t a = make_persistent(&maker, 100), b = make_block(&maker, 50);
    make_event(&maker, 10, EBB_EVENT_ACCESS, a, EBB_ACCESS_WRITE);
    make_event(&maker, 150, EBB_EVENT_ALLOC, b, 0);
    make_event(&maker, 600, EBB_EVENT_ACCESS, a, EBB_ACCESS_READ); /* b is still allocated */
    make_event(&maker, 650, EBB_EVENT_FREE, b, 0);
    struct small small = {make_model(&maker, 1000),
                          {.block = a, .from_tick = 0, .to_tick = 2, .in_start_ns = 500}};
    struct ebb_sim_result result = run(&small, &one, 120, NULL, NULL);
    assert_false(result.feasible);
    assert_int_equal(result.peak_bytes, 150);
    assert_int_equal(result.stall_ns, 200); /* b waits for the eviction of a, a is fetched on
                                               access */
    ebb__model_fini(&small.model);
}

static void a_drop_is_never_fetched(void **state)
{
    (void)state;
    struct maker maker = {0};
    uint32_t a = make_block(&maker, 100), b = make_block(&maker, 100);
    make_event(&maker, 0, EBB_EVENT_ALLOC, a, 0);
    make_event(&maker, 10, EBB_EVENT_ACCESS, a, EBB_ACCESS_WRITE);
    make_event(&maker, 150, EBB_EVENT_ALLOC, b, 0); /* from here a may be evicted: b waits 100 */
    make_event(&maker, 200, EBB_EVENT_FREE, b, 0);
    make_event(&maker, 300, EBB_EVENT_FREE, a, 0);
    struct small small = {make_model(&maker, 400),
                          {.block = a, .from_tick = 1, .to_tick = 4, .drops = true}};
    struct ebb_sim_result result = run(&small, &one, 100, NULL, NULL);
    assert_true(result.feasible);
    assert_int_equal(result.peak_bytes, 100);
    assert_int_equal(result.stall_ns, 100);
    assert_int_equal(result.moved_out_bytes, 100);
    assert_int_equal(result.moved_in_bytes, 0);
    ebb__model_fini(&small.model);
}

/* A persistent block is absent across the iteration's end. */
static void wraps_around(void **state)
{
    (void)state;
    struct maker maker = {0};
    uint32_t weight = make_persistent(&maker, 100), b = make_block(&maker, 80);
    make_event(&maker, 100, EBB_EVENT_ALLOC, b, 0);
    make_event(&maker, 200, EBB_EVENT_FREE, b, 0);
    make_event(&maker, 500, EBB_EVENT_ACCESS, weight, EBB_ACCESS_WRITE);
    make_event(&maker, 900, EBB_EVENT_ALLOC, b = make_block(&maker, 10), 0);
    make_event(&maker, 950, EBB_EVENT_FREE, b, 0);
    struct small small = {make_model(&maker, 1000),
                          {.block = weight, .from_tick = 2, .to_tick = 2, .in_start_ns = 350}};
    struct ebb_sim_times times;
    struct ebb_sim_result result = run(&small, &one, 110, &times, NULL);
    assert_int_equal(result.stall_ns, 0);
    assert_true(result.feasible);
    assert_int_equal(result.peak_bytes, 110);
    assert_int_equal(times.out_start_ns, 900);
    assert_int_equal(times.out_end_ns % 1000, 0);
    assert_int_equal(times.in_start_ns, 350);
    assert_int_equal(times.in_end_ns, 450);
    ebb__model_fini(&small.model);
}

/* A block that is freed by the first event of the next iteration counts across the end. */
static void freed_at_tick_0(void **state)
{
    (void)state;
    struct maker maker = {0};
    uint32_t a = make_block(&maker, 70), b = make_block(&maker, 30);
    make_event(&maker, 10, EBB_EVENT_FREE, a, 0);
    make_event(&maker, 20, EBB_EVENT_ALLOC, b, 0);
    make_event(&maker, 30, EBB_EVENT_FREE, b, 0);
    make_event(&maker, 40, EBB_EVENT_ALLOC, a, 0);
    make_event(&maker, 50, EBB_EVENT_ACCESS, a, EBB_ACCESS_WRITE);
    struct small small = {make_model(&maker, 100), {0}};
    struct ebb_sim_request request = {&small.model, &one, NULL, 0, 70, 1, NULL};
    struct ebb_sim_result result;
    assert_int_equal(ebb__simulate(&request, NULL, &result, NULL), EBB_OK);
    assert_int_equal(result.peak_bytes, 70);
    assert_true(result.feasible);
    assert_int_equal(result.stall_ns, 0);
    ebb__model_fini(&small.model);
}

/* Two copies out queue up. Without duplex, a copy in slows down both lanes. */
static void lanes_are_serial_and_share(void **state)
{
    (void)state;
    struct maker maker = {0};
    uint32_t a = make_persistent(&maker, 100), b = make_persistent(&maker, 200);
    uint32_t c = make_persistent(&maker, 300), t = make_block(&maker, 1);
    make_event(&maker, 0, EBB_EVENT_ACCESS, a, EBB_ACCESS_READ);
    make_event(&maker, 0, EBB_EVENT_ACCESS, b, EBB_ACCESS_READ);
    make_event(&maker, 100, EBB_EVENT_ALLOC, t, 0); /* a, then b are evicted */
    make_event(&maker, 1000, EBB_EVENT_FREE, t, 0);
    make_event(&maker, 1500, EBB_EVENT_ACCESS, c, EBB_ACCESS_READ);
    uint32_t u = make_block(&maker, 1);
    make_event(&maker, 2000, EBB_EVENT_ALLOC, u, 0); /* c is evicted */
    make_event(&maker, 2400, EBB_EVENT_FREE, u, 0);
    struct ebb_model model = make_model(&maker, 4000);
    struct ebb_absence absences[] = {
        {.block = a, .from_tick = 0, .to_tick = 0, .in_start_ns = 3000},
        {.block = b, .from_tick = 1, .to_tick = 1, .in_start_ns = 3050},
        {.block = c, .from_tick = 4, .to_tick = 4, .in_start_ns = 250},
    };
    struct ebb_sim_times times[3];
    struct ebb_sim_detail detail = {.times = times};
    struct ebb_sim_result result;
    struct ebb_machine machine = one;
    struct ebb_sim_request request = {&model, &machine, absences, 3, 1000, 1, NULL};
    assert_int_equal(ebb__simulate(&request, &detail, &result, NULL), EBB_OK);
    assert_int_equal(times[0].out_end_ns, 200);
    assert_int_equal(times[1].out_start_ns, 200);
    assert_int_equal(times[1].out_end_ns, 400);
    assert_int_equal(times[2].in_end_ns, 550);
    assert_int_equal(times[0].in_end_ns, 3100);
    assert_int_equal(times[1].in_start_ns, 3100);
    assert_int_equal(times[1].in_end_ns, 3300);

    machine.duplex = false;
    assert_int_equal(ebb__simulate(&request, &detail, &result, NULL), EBB_OK);
    /* At 250, b has 150 bytes left, at half rate until 550. Then c has copied 150 and continues
     * alone. */
    assert_int_equal(times[1].out_end_ns, 550);
    assert_int_equal(times[2].in_end_ns, 700);
    assert_int_equal(result.stall_ns, 0);
    ebb__model_fini(&model);
}

static void wrong_requests(void **state)
{
    (void)state;
    struct small small = small_make(50, 150, 500);
    struct ebb_sim_request request = {&small.model, &one, &small.absence, 1, 1000, 1, NULL};
    struct ebb_sim_result result;
    small.absence.block = 99;
    assert_int_equal(ebb__simulate(&request, NULL, &result, NULL), EBB_ERR_ARGUMENT);
    small.absence.block = 0;
    small.absence.to_tick = 99;
    assert_int_equal(ebb__simulate(&request, NULL, &result, NULL), EBB_ERR_ARGUMENT);
    ebb__model_fini(&small.model);
}

/* Two blocks of 100 bytes are used in turns, and there is memory for one. Without a plan each use
 * evicts the other block first. */
static void passive_evicts_what_lacks(void **state)
{
    (void)state;
    struct maker maker = {0};
    uint32_t a = make_persistent(&maker, 100), b = make_persistent(&maker, 100);
    uint32_t tiny = make_block(&maker, 1);
    make_event(&maker, 10, EBB_EVENT_ACCESS, a, EBB_ACCESS_READ); /* 0 */
    make_event(&maker, 20, EBB_EVENT_ALLOC, tiny, 0);
    make_event(&maker, 500, EBB_EVENT_ACCESS, b, EBB_ACCESS_READ); /* 2 */
    make_event(&maker, 600, EBB_EVENT_FREE, tiny, 0);
    struct ebb_model model = make_model(&maker, 1000);
    struct ebb_plan_rules rules = {.passive = true};
    struct ebb_absence passive[4];
    uint32_t passive_count = 99;
    struct ebb_sim_detail detail = {.passive = passive, .passive_count = &passive_count};
    struct ebb_sim_request request = {&model, &one, NULL, 0, 101, 1, &rules};
    struct ebb_sim_result result;
    assert_int_equal(ebb__simulate(&request, &detail, &result, NULL), EBB_OK);
    assert_true(result.feasible && result.steady);
    assert_int_equal(result.stall_ns, 4 * 100); /* two copies out and two copies in */
    assert_int_equal(result.moved_out_bytes, 200);
    assert_int_equal(result.moved_in_bytes, 200);
    assert_int_equal(passive_count, 2);
    assert_int_equal(passive[0].block, a);
    assert_int_equal(passive[0].from_tick, 0);
    assert_int_equal(passive[0].to_tick, 0);
    assert_int_equal(passive[0].out_start_ns, 500);
    assert_int_equal(passive[0].in_end_ns, 10);
    assert_int_equal(passive[1].block, b);
    assert_true(passive[1].passive && !passive[1].drops);
    /* One of the two is planned: its copies run while the program computes. */
    struct ebb_absence planned = {.block = a, .from_tick = 0, .to_tick = 0, .in_start_ns = 700};
    request.absences = &planned;
    request.absence_count = 1;
    assert_int_equal(ebb__simulate(&request, &detail, &result, NULL), EBB_OK);
    assert_true(result.feasible && result.steady);
    assert_int_equal(passive_count, 1);
    assert_int_equal(passive[0].block, b);
    /* b comes in at 500; it leaves when a is due, which can then start. */
    assert_int_equal(result.stall_ns, 3 * 100);
    ebb__model_fini(&model);
}

/* The plan was made for a program that uses the block at tick 5 only. Now it uses it before. */
static void passive_meets_other_accesses(void **state)
{
    (void)state;
    struct maker maker = {0};
    uint32_t a = make_persistent(&maker, 100), tiny = make_block(&maker, 1);
    make_event(&maker, 0, EBB_EVENT_ACCESS, a, EBB_ACCESS_READ); /* 0 */
    make_event(&maker, 10, EBB_EVENT_ALLOC, tiny, 0);
    make_event(&maker, 300, EBB_EVENT_ACCESS, a, EBB_ACCESS_READ); /* 2: unexpected */
    make_event(&maker, 310, EBB_EVENT_FREE, tiny, 0);
    make_event(&maker, 900, EBB_EVENT_ACCESS, a, EBB_ACCESS_READ); /* 4 */
    struct ebb_model model = make_model(&maker, 1000);
    struct ebb_plan_rules rules = {.passive = true};
    struct ebb_absence planned = {.block = a, .from_tick = 0, .to_tick = 4, .in_start_ns = 800};
    struct ebb_sim_request request = {&model, &one, &planned, 1, 1000, 1, &rules};
    uint64_t stalls[5] = {0};
    struct ebb_sim_detail detail = {.tick_stall_ns = stalls};
    struct ebb_sim_result result;
    assert_int_equal(ebb__simulate(&request, &detail, &result, NULL), EBB_OK);
    assert_int_equal(result.stall_ns, 100);
    assert_int_equal(stalls[2], 100);
    assert_int_equal(stalls[4], 0);
    ebb__model_fini(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_in_the_way),
        cmocka_unit_test(allocation_waits_for_room),
        cmocka_unit_test(access_waits_for_the_copy),
        cmocka_unit_test(copy_in_waits_for_room),
        cmocka_unit_test(access_cancels_a_late_copy_out),
        cmocka_unit_test(standstill_breaks_the_budget),
        cmocka_unit_test(a_drop_is_never_fetched),
        cmocka_unit_test(wraps_around),
        cmocka_unit_test(freed_at_tick_0),
        cmocka_unit_test(lanes_are_serial_and_share),
        cmocka_unit_test(wrong_requests),
        cmocka_unit_test(passive_evicts_what_lacks),
        cmocka_unit_test(passive_meets_other_accesses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
