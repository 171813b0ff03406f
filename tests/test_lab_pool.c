/* The pools of src/lab: SmartPool as published, packing problems from models, and the CSV parser
 * with its errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "lab/lab.h"
#include "lab/pool/csv.h"
#include "lab/pool/model.h"
#include "pool_rig.h"
#include "synthetic.h"

static const struct ebb_pool *smartpool(void)
{
    size_t count;
    const struct ebb_pool *pools = ebb__lab_pools(&count);
    assert_int_equal(count, 1);
    assert_string_equal(pools[0].name, "smartpool");
    return pools;
}

static const struct ebb_pool *ebbs(void)
{
    size_t count;
    return ebb__pools(&count);
}

/* Random linear and cyclic problems. The checker accepts the packing. */
static void smartpool_packs(void **state)
{
    (void)state;
    uint64_t seed = 4711;
    for (int round = 0; round < 1500; round++) {
        struct ebb_pool_buffer buffers[7];
        uint64_t period = round % 2 ? 3 + chance(&seed) % 9 : 0;
        uint32_t count = 1 + (uint32_t)(chance(&seed) % 7);
        random_buffers(buffers, count, period, &seed);
        struct ebb_pool_problem problem = problem_of(buffers, count, period, EBB_POOL_NO_CAPACITY);
        struct ebb_pool_solution published = solve_by(smartpool(), &problem);
        struct ebb_pool_solution lowest = solve_by(ebbs(), &problem);
        assert_true(lowest.optimal && published.height_bytes >= lowest.height_bytes);
        assert_true(published.lower_bound_bytes <= lowest.height_bytes);
        ebb__pool_solution_fini(&published);
        ebb__pool_solution_fini(&lowest);
    }
}

static void smartpool_doubles_what_crosses(void **state)
{
    (void)state;
    static const struct ebb_pool_buffer arcs[] = {{0, 10, 8}, {7, 12, 4}, {3, 5, 4}};
    struct ebb_pool_problem problem = problem_of(arcs, 3, 10, EBB_POOL_NO_CAPACITY);
    struct ebb_pool_solution solution = solve_by(smartpool(), &problem);
    assert_int_equal(solution.height_bytes, 8 + 2 * 4 + 4);
    ebb__pool_solution_fini(&solution);
    solution = solve_by(ebbs(), &problem);
    assert_int_equal(solution.height_bytes, 12);
    ebb__pool_solution_fini(&solution);
}

/* A block is allocated before its predecessor of the previous iteration is freed, so two live for a
 * moment. The circle then holds two iterations, and the pool still needs no more than the load. */
static void instances_take_turns(void **state)
{
    (void)state;
    struct maker maker = {0};
    uint32_t weight = make_persistent(&maker, 100);
    uint32_t gradient = make_block(&maker, 10), work = make_block(&maker, 10);
    make_event(&maker, 0, EBB_EVENT_ALLOC, gradient, 0);
    make_event(&maker, 1, EBB_EVENT_FREE, gradient, 0); /* the block of the previous iteration */
    make_event(&maker, 2, EBB_EVENT_ACCESS, weight, EBB_ACCESS_READ);
    make_event(&maker, 3, EBB_EVENT_ALLOC, work, 0);
    make_event(&maker, 4, EBB_EVENT_FREE, work, 0);
    struct ebb_model model = make_model(&maker, 10);
    model.blocks[gradient].span_ticks = model.tick_count + 1;
    struct ebb_pool_blocks blocks;
    struct ebb_error error;
    struct ebb_pool_source source = {.model = &model, .unroll = true};
    assert_int_equal(ebb__pool_from_model(&source, &blocks, &error), EBB_OK);
    assert_int_equal(blocks.iterations, 2);
    assert_int_equal(blocks.period, 2 * model.tick_count);
    assert_int_equal(blocks.count, 5);
    struct ebb_pool_problem problem =
        problem_of(blocks.buffers, blocks.count, blocks.period, EBB_POOL_NO_CAPACITY);
    struct ebb_pool_solution solution = solve_by(ebbs(), &problem);
    assert_int_equal(solution.load_bytes, 120);
    assert_int_equal(solution.height_bytes, 120);
    ebb__pool_solution_fini(&solution);
    ebb__pool_blocks_fini(&blocks);
    source.unroll = false;
    assert_int_equal(ebb__pool_from_model(&source, &blocks, &error), EBB_OK);
    problem = problem_of(blocks.buffers, blocks.count, blocks.period, EBB_POOL_NO_CAPACITY);
    solution = solve_by(smartpool(), &problem);
    assert_int_equal(solution.height_bytes, 130);
    ebb__pool_solution_fini(&solution);
    ebb__pool_blocks_fini(&blocks);
    ebb__model_fini(&model);
}

/* ---- CSV ------------------------------------------------------------------------------------- */

static void expect_refused(const char *text, uint64_t period, const char *why)
{
    struct ebb_pool_csv csv;
    struct ebb_error error = {0};
    enum ebb_status status =
        ebb__pool_csv_parse((const uint8_t *)text, strlen(text), "x.csv", period, &csv, &error);
    assert_int_equal(status, EBB_ERR_FORMAT);
    assert_string_equal(error.why, why);
    assert_string_equal(error.what, "x.csv");
    assert_null(csv.buffers);
}

static void csv_is_read(void **state)
{
    (void)state;
    static const char text[] = "size, id ,lower,upper,offset\r\n7,b one,2,0x10,3\n\n1,c,0,1,0\n";
    struct ebb_pool_csv csv;
    struct ebb_error error;
    assert_true(ebb__pool_csv_recognises((const uint8_t *)text, sizeof text - 1));
    assert_false(ebb__pool_csv_recognises((const uint8_t *)"Malloc 0x1 5 6\n", 15));
    assert_int_equal(
        ebb__pool_csv_parse((const uint8_t *)text, sizeof text - 1, "x", 0, &csv, &error), EBB_OK);
    assert_int_equal(csv.count, 2);
    assert_true(ebb__text_is(csv.ids[0], "b one"));
    assert_int_equal(csv.buffers[0].lower, 2);
    assert_int_equal(csv.buffers[0].upper, 16);
    assert_int_equal(csv.buffers[0].size_bytes, 7);
    assert_int_equal(csv.offsets[0], 3);
    assert_int_equal(csv.lines[1], 4);
    ebb__pool_csv_fini(&csv);
}

static void csv_is_refused(void **state)
{
    (void)state;
#define HEADER "id,lower,upper,size\n"
    expect_refused("", 0, "is empty, no packing problem");
    expect_refused("\n \n", 0, "is empty, no packing problem");
    expect_refused(HEADER, 0, "line 1: no buffer follows the header");
    expect_refused("id,lower,size\n", 0, "line 1: the header has no column 'upper'");
    expect_refused("id,lower,upper,size,alignment\n", 0, "line 1: no column is called 'alignment'");
    expect_refused("id,id,lower,upper,size\n", 0, "line 1: column 'id' is there twice");
    expect_refused(HEADER "a,0,5,-3\n", 0, "line 2: size '-3' is negative");
    expect_refused(HEADER "a,0,5,nan\n", 0, "line 2: size 'nan' is not a whole number");
    expect_refused(HEADER "a,0,5,1.5\n", 0, "line 2: size '1.5' is not a whole number");
    expect_refused(HEADER "a,0,5,\n", 0, "line 2: size '' is empty");
    expect_refused(HEADER "a,0,5,0\n", 0, "line 2: size is 0");
    expect_refused(HEADER "a,0,5,99999999999999999999\n", 0,
                   "line 2: size '99999999999999999999' is too large");
    expect_refused(HEADER "a,0,5,4611686018427387904\n", 0,
                   "line 2: size is too large: all together are 2^62 bytes or more");
    expect_refused(HEADER "a,5,5,1\n", 0, "line 2: upper 5 is not above lower 5");
    expect_refused(HEADER "a,0,5\n", 0, "line 2: 3 columns, the header has 4");
    expect_refused(HEADER "a,0,5,1,7\n", 0, "line 2: more than the 4 columns of the header");
    expect_refused(HEADER ",0,5,1\n", 0, "line 2: id is empty");
    expect_refused(HEADER "a,0,5,1\nb,1,2,1\na,4,6,1\nb,7,8,1\n", 0,
                   "line 4: id 'a' again, with a lifetime that overlaps that of line 2");
    expect_refused(HEADER "a,0,5,1\na,5,6,1\n", 0, "line 3: id 'a' again, after line 2");
    expect_refused(HEADER "a,9,12,1\n", 9, "line 2: lower 9 is not below the period of 9");
    expect_refused(HEADER "a,1,12,1\n", 9, "line 2: lives for longer than the period of 9");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smartpool_packs),      cmocka_unit_test(smartpool_doubles_what_crosses),
        cmocka_unit_test(instances_take_turns), cmocka_unit_test(csv_is_read),
        cmocka_unit_test(csv_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
