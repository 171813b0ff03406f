/* The pool: sections, fits, the exact search against brute force and planted optima, circles, the
 * CSV parser's refusals, and a checker that finds what is wrong with a packing. */
#include "base/size.h"
#include "check/packing.h"
#include "plan/pool/csv.h"
#include "plan/pool/exact.h"
#include "plan/pool/pool.h"
#include "plan/pool/sections.h"
#include "synthetic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>

#define SECOND_NS 1000000000u
#define SMALL 7

static struct ebb_pool_problem problem_of(const struct ebb_pool_buffer *buffers, uint32_t count,
                                          uint64_t period, uint64_t capacity)
{
    return (struct ebb_pool_problem){buffers, count, period, capacity, 2 * (uint64_t)SECOND_NS};
}

/* Solve, and let the checker have a look. */
static struct ebb_pool_solution solve(const char *pool, const struct ebb_pool_problem *problem)
{
    struct ebb_pool_solution solution;
    struct ebb_error error = {0};
    if (ebb__pool_solve(pool, problem, &solution, &error))
        fail_msg("%s: %s: %s", pool, error.what, error.why);
    if (ebb__check_packing(problem, &solution, &error))
        fail_msg("%s: %s", pool, error.why);
    assert_string_equal(solution.pool, pool);
    assert_int_equal(solution.count, problem->count);
    return solution;
}

static bool meet(const struct ebb_pool_buffer *a, const struct ebb_pool_buffer *b, uint64_t period)
{
    for (int turn = period ? -1 : 0; turn <= (period ? 1 : 0); turn++) {
        int64_t shift = turn * (int64_t)period;
        if ((int64_t)a->lower + shift < (int64_t)b->upper &&
            (int64_t)b->lower < (int64_t)a->upper + shift)
            return true;
    }
    return false;
}

/* The lowest height by trying all orders, each buffer at the lowest place that is free above all
 * that it meets: some order of offsets is among them. */
static uint64_t brute_force(const struct ebb_pool_problem *problem, uint32_t placed,
                            uint64_t *floors, uint64_t height, uint64_t best)
{
    if (placed == (1u << problem->count) - 1)
        return height < best ? height : best;
    for (uint32_t i = 0; i < problem->count; i++) {
        uint64_t before[SMALL], top = floors[i] + problem->buffers[i].size_bytes;
        if (placed & 1u << i || top >= best)
            continue;
        memcpy(before, floors, sizeof before);
        for (uint32_t k = 0; k < problem->count; k++)
            if (k != i && floors[k] < top &&
                meet(&problem->buffers[i], &problem->buffers[k], problem->period))
                floors[k] = top;
        best = brute_force(problem, placed | 1u << i, floors, top > height ? top : height, best);
        memcpy(floors, before, sizeof before);
    }
    return best;
}

static void random_buffers(struct ebb_pool_buffer *buffers, uint32_t count, uint64_t period,
                           uint64_t *seed)
{
    uint64_t times = period ? period : 12;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t lower = chance(seed) % times;
        uint64_t most = period ? period : times - lower;
        buffers[i] =
            (struct ebb_pool_buffer){lower, lower + 1 + chance(seed) % most, 1 + chance(seed) % 9};
    }
}

static void brute_force_agrees(void **state)
{
    (void)state;
    uint64_t seed = 4711;
    uint32_t over_load = 0;
    for (int round = 0; round < 1500; round++) {
        struct ebb_pool_buffer buffers[SMALL];
        uint64_t period = round % 2 ? 3 + chance(&seed) % 9 : 0;
        uint32_t count = 1 + (uint32_t)(chance(&seed) % SMALL);
        random_buffers(buffers, count, period, &seed);
        struct ebb_pool_problem problem = problem_of(buffers, count, period, EBB_POOL_NO_CAPACITY);
        uint64_t floors[SMALL] = {0};
        uint64_t best = brute_force(&problem, 0, floors, 0, UINT64_MAX);
        for (size_t i = 0; ebb__pool_name(i); i++) {
            struct ebb_pool_solution solution = solve(ebb__pool_name(i), &problem);
            assert_true(solution.height_bytes >= best);
            assert_true(solution.lower_bound_bytes <= best);
            if (i == 0 || strcmp(solution.pool, "exact") == 0) {
                assert_int_equal(solution.height_bytes, best);
                assert_true(solution.optimal);
                over_load += best > solution.load_bytes;
            }
            ebb__pool_solution_fini(&solution);
        }
        problem.capacity_bytes = best - 1;
        struct ebb_pool_solution refused = solve("ebb", &problem);
        assert_true(refused.infeasible && !refused.feasible);
        ebb__pool_solution_fini(&refused);
        problem.capacity_bytes = best;
        struct ebb_pool_solution granted = solve("exact", &problem);
        assert_true(granted.feasible && !granted.infeasible);
        ebb__pool_solution_fini(&granted);
    }
    assert_true(over_load > 20); /* else nothing beyond the load was asked of the search */
}

/* A rectangle, 200 by `height`, cut into `count` pieces that fill it. */
static void cut_pieces(struct ebb_pool_buffer *pieces, uint32_t count, uint64_t height,
                       uint64_t *seed)
{
    uint32_t made = 1;
    pieces[0] = (struct ebb_pool_buffer){0, 200, height};
    while (made < count) {
        struct ebb_pool_buffer *piece = &pieces[chance(seed) % made];
        for (int again = 0; again < 2; again++) { /* the larger of three: harder if all are alike */
            struct ebb_pool_buffer *other = &pieces[chance(seed) % made];
            if ((other->upper - other->lower) * other->size_bytes >
                (piece->upper - piece->lower) * piece->size_bytes)
                piece = other;
        }
        struct ebb_pool_buffer rest = *piece;
        uint64_t width = piece->upper - piece->lower;
        if (chance(seed) % 2 && width > 1) {
            rest.lower = piece->upper = piece->lower + 1 + chance(seed) % (width - 1);
            pieces[made++] = rest;
        } else if (piece->size_bytes > 1) {
            uint64_t cut = 1 + chance(seed) % (piece->size_bytes - 1);
            rest.size_bytes -= cut;
            piece->size_bytes = cut;
            pieces[made++] = rest;
        }
    }
}

/* The load is the optimum, and the exact search finds it. */
static void planted_optimum(void **state)
{
    (void)state;
    uint64_t seed = 99;
    for (int round = 0; round < 20; round++) {
        struct ebb_pool_buffer pieces[40];
        cut_pieces(pieces, 40, 1000, &seed);
        struct ebb_pool_problem problem = problem_of(pieces, 40, 0, 1000);
        struct ebb_pool_solution solution = solve("ebb", &problem);
        assert_int_equal(solution.load_bytes, 1000);
        assert_int_equal(solution.height_bytes, 1000);
        assert_true(solution.feasible && solution.optimal);
        ebb__pool_solution_fini(&solution);
        problem.capacity_bytes = 999;
        solution = solve("ebb", &problem);
        assert_true(solution.infeasible);
        ebb__pool_solution_fini(&solution);
    }
}

/* Too little time for some of these: what is claimed of a bound must be true all the same. */
static void out_of_time_claims_nothing(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int round = 0; round < 8; round++) {
        static struct ebb_pool_buffer pieces[300];
        cut_pieces(pieces, 300, 1 << 20, &seed);
        struct ebb_pool_problem problem = problem_of(pieces, 300, 0, EBB_POOL_NO_CAPACITY);
        problem.time_limit_ns = SECOND_NS / 4;
        struct ebb_pool_solution solution = solve("ebb", &problem);
        assert_int_equal(solution.lower_bound_bytes, 1 << 20);
        assert_true(solution.height_bytes < 2 << 20);
        ebb__pool_solution_fini(&solution);
    }
}

static void sections_are_maximal(void **state)
{
    (void)state;
    /* a lives in all, b and c meet, d follows: {a,b,c} and {a,d}. */
    static const struct ebb_pool_buffer buffers[] = {{0, 9, 1}, {1, 5, 2}, {3, 6, 4}, {6, 8, 8}};
    struct ebb_pool_problem problem = problem_of(buffers, 4, 0, EBB_POOL_NO_CAPACITY);
    struct ebb_pool_sections sections;
    assert_int_equal(ebb__pool_sections_init(&sections, &problem), EBB_OK);
    assert_int_equal(sections.count, 2);
    assert_int_equal(sections.load_bytes[0], 7);
    assert_int_equal(sections.load_bytes[1], 9);
    assert_int_equal(sections.load_bound_bytes, 9);
    assert_int_equal(sections.runs[0].last - sections.runs[0].first, 2);
    ebb__pool_sections_fini(&sections);
    uint64_t seed = 7;
    for (int round = 0; round < 3000; round++) {
        struct ebb_pool_buffer some[10];
        uint64_t period = round % 3 ? 2 + chance(&seed) % 12 : 0;
        random_buffers(some, 10, period, &seed);
        problem = problem_of(some, 10, period, EBB_POOL_NO_CAPACITY);
        assert_int_equal(ebb__pool_sections_init(&sections, &problem), EBB_OK);
        for (uint32_t a = 0; a < 10; a++)
            for (uint32_t b = 0; b < 10; b++)
                assert_int_equal(
                    ebb__pool_runs_meet(sections.runs[a], sections.runs[b], sections.count),
                    meet(&some[a], &some[b], period));
        ebb__pool_sections_fini(&sections);
    }
}

/* Three arcs around a circle, each meeting the next: no two may share, a line would let them. */
static void circles_close(void **state)
{
    (void)state;
    static const struct ebb_pool_buffer arcs[] = {{0, 5, 4}, {4, 9, 4}, {8, 13, 4}};
    struct ebb_pool_problem problem = problem_of(arcs, 3, 12, EBB_POOL_NO_CAPACITY);
    struct ebb_pool_solution solution = solve("ebb", &problem);
    assert_int_equal(solution.load_bytes, 8);
    assert_int_equal(solution.height_bytes, 12);
    assert_true(solution.optimal);
    assert_int_equal(solution.lower_bound_bytes, 12);
    ebb__pool_solution_fini(&solution);
    problem.period = 0;
    solution = solve("ebb", &problem);
    assert_int_equal(solution.height_bytes, 8);
    ebb__pool_solution_fini(&solution);
}

static void smartpool_doubles_what_crosses(void **state)
{
    (void)state;
    static const struct ebb_pool_buffer arcs[] = {{0, 10, 8}, {7, 12, 4}, {3, 5, 4}};
    struct ebb_pool_problem problem = problem_of(arcs, 3, 10, EBB_POOL_NO_CAPACITY);
    struct ebb_pool_solution solution = solve("smartpool", &problem);
    assert_int_equal(solution.height_bytes, 8 + 2 * 4 + 4);
    ebb__pool_solution_fini(&solution);
    solution = solve("ebb", &problem);
    assert_int_equal(solution.height_bytes, 12);
    ebb__pool_solution_fini(&solution);
}

/* A block that is allocated before its predecessor of the last iteration is freed: two at once for a
 * moment. Two iterations on the circle, and the pool still needs the load only. */
static void instances_take_turns(void **state)
{
    (void)state;
    struct maker maker = {0};
    uint32_t weight = make_persistent(&maker, 100);
    uint32_t gradient = make_block(&maker, 10), work = make_block(&maker, 10);
    make_event(&maker, 0, EBB_EVENT_ALLOC, gradient, 0);
    make_event(&maker, 1, EBB_EVENT_FREE, gradient, 0); /* of the iteration before */
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
    struct ebb_pool_solution solution = solve("ebb", &problem);
    assert_int_equal(solution.load_bytes, 120);
    assert_int_equal(solution.height_bytes, 120);
    ebb__pool_solution_fini(&solution);
    ebb__pool_blocks_fini(&blocks);
    source.unroll = false;
    assert_int_equal(ebb__pool_from_model(&source, &blocks, &error), EBB_OK);
    problem = problem_of(blocks.buffers, blocks.count, blocks.period, EBB_POOL_NO_CAPACITY);
    solution = solve("smartpool", &problem);
    assert_int_equal(solution.height_bytes, 130);
    ebb__pool_solution_fini(&solution);
    ebb__pool_blocks_fini(&blocks);
    ebb__model_fini(&model);
}

static void mutated_packings_are_rejected(void **state)
{
    (void)state;
    static const struct ebb_pool_buffer buffers[] = {{0, 6, 4}, {2, 9, 4}, {5, 13, 2}, {8, 11, 3}};
    struct ebb_pool_problem problem = problem_of(buffers, 4, 12, 20);
    struct ebb_pool_solution good = solve("ebb", &problem);
    struct ebb_error error;
    uint64_t offsets[4];
    uint32_t rejected = 0, cases = 0;
    for (uint32_t i = 0; i < 4; i++)
        for (uint64_t offset = 0; offset < 24; offset++) {
            bool wrong = offset + buffers[i].size_bytes > good.height_bytes;
            memcpy(offsets, good.offsets, sizeof offsets);
            offsets[i] = offset;
            for (uint32_t k = 0; k < 4; k++)
                wrong = wrong || (k != i && meet(&buffers[i], &buffers[k], 12) &&
                                  offset < offsets[k] + buffers[k].size_bytes &&
                                  offsets[k] < offset + buffers[i].size_bytes);
            struct ebb_pool_solution mutated = good;
            mutated.offsets = offsets;
            enum ebb_status status = ebb__check_packing(&problem, &mutated, &error);
            assert_int_equal(status, wrong ? EBB_ERR_FORMAT : EBB_OK);
            rejected += wrong;
            cases++;
        }
    assert_true(rejected > 40 && rejected < cases);
#define REJECTS(change)                                                                            \
    do {                                                                                           \
        struct ebb_pool_solution mutated = good;                                                   \
        mutated.change;                                                                            \
        assert_int_equal(ebb__check_packing(&problem, &mutated, &error), EBB_ERR_FORMAT);          \
    } while (0)
    REJECTS(height_bytes--);
    REJECTS(lower_bound_bytes--);
    REJECTS(lower_bound_bytes = good.height_bytes + 1);
    REJECTS(load_bytes--);
    REJECTS(feasible = false);
    REJECTS(infeasible = true);
    REJECTS(optimal = !good.optimal);
    REJECTS(count--);
    ebb__pool_solution_fini(&good);
}

static void bad_arguments(void **state)
{
    (void)state;
    static const struct ebb_pool_buffer huge[] = {{0, 1, (uint64_t)1 << 61}, {0, 1, 1ull << 61}};
    static const struct ebb_pool_buffer none[] = {{5, 5, 1}}, late[] = {{12, 13, 1}};
    struct ebb_pool_solution solution;
    struct ebb_error error;
    struct ebb_pool_problem problem = problem_of(huge, 2, 0, EBB_POOL_NO_CAPACITY);
    assert_int_equal(ebb__pool_solve("ebb", &problem, &solution, &error), EBB_ERR_LIMIT);
    problem = problem_of(none, 1, 0, EBB_POOL_NO_CAPACITY);
    assert_int_equal(ebb__pool_solve("ebb", &problem, &solution, &error), EBB_ERR_ARGUMENT);
    problem = problem_of(late, 1, 12, EBB_POOL_NO_CAPACITY);
    assert_int_equal(ebb__pool_solve("ebb", &problem, &solution, &error), EBB_ERR_ARGUMENT);
    assert_int_equal(ebb__pool_solve("oracle", &problem, &solution, &error), EBB_ERR_ARGUMENT);
    problem = problem_of(NULL, 0, 0, 0);
    solution = solve("ebb", &problem);
    assert_int_equal(solution.height_bytes, 0);
    assert_true(solution.optimal);
    ebb__pool_solution_fini(&solution);
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
        cmocka_unit_test(sections_are_maximal), cmocka_unit_test(brute_force_agrees),
        cmocka_unit_test(planted_optimum),      cmocka_unit_test(out_of_time_claims_nothing),
        cmocka_unit_test(circles_close),        cmocka_unit_test(smartpool_doubles_what_crosses),
        cmocka_unit_test(instances_take_turns), cmocka_unit_test(mutated_packings_are_rejected),
        cmocka_unit_test(bad_arguments),        cmocka_unit_test(csv_is_read),
        cmocka_unit_test(csv_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
