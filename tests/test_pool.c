/* The pool: sections, fits, cyclic problems, and a checker that finds errors of a packing. The
 * exact search is compared with brute force and with planted optima. */
#include "plan/pool/sections.h"
#include "synthetic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "pool_rig.h"

#define SMALL 7

/* Solves with a pool of the table in pool.c. */
static struct ebb_pool_solution solve(const char *name, const struct ebb_pool_problem *problem)
{
    size_t count;
    const struct ebb_pool *pools = ebb__pools(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(pools[i].name, name) == 0)
            return solve_by(&pools[i], problem);
    fail_msg("no pool is called %s", name);
    return (struct ebb_pool_solution){0};
}

/* Finds the lowest height by trying all orders. Each buffer is put at the lowest free place above
 * all that overlap it in time. Some order gives the optimum. */
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
        size_t pool_count;
        const struct ebb_pool *pools = ebb__pools(&pool_count);
        for (size_t i = 0; i < pool_count; i++) {
            struct ebb_pool_solution solution = solve_by(&pools[i], &problem);
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
        assert_int_equal(refused.capacity, EBB_POOL_CAPACITY_IMPOSSIBLE);
        ebb__pool_solution_fini(&refused);
        problem.capacity_bytes = best;
        struct ebb_pool_solution granted = solve("exact", &problem);
        assert_int_equal(granted.capacity, EBB_POOL_CAPACITY_MET);
        ebb__pool_solution_fini(&granted);
    }
    assert_true(over_load > 20); /* else the search never had to exceed the load */
}

/* A rectangle, 200 by `height`, cut into `count` pieces. */
static void cut_pieces(struct ebb_pool_buffer *pieces, uint32_t count, uint64_t height,
                       uint64_t *seed)
{
    uint32_t made = 1;
    pieces[0] = (struct ebb_pool_buffer){0, 200, height};
    while (made < count) {
        struct ebb_pool_buffer *piece = &pieces[chance(seed) % made];
        for (int again = 0; again < 2; again++) { /* the largest of three, which is harder */
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
        assert_true(solution.capacity == EBB_POOL_CAPACITY_MET && solution.optimal);
        ebb__pool_solution_fini(&solution);
        problem.capacity_bytes = 999;
        solution = solve("ebb", &problem);
        assert_int_equal(solution.capacity, EBB_POOL_CAPACITY_IMPOSSIBLE);
        ebb__pool_solution_fini(&solution);
    }
}

/* Some problems run out of time. A claimed bound must be true all the same. */
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
    /* a overlaps all others, b overlaps c, d comes later: the sections are {a,b,c} and {a,d}. */
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

/* Three arcs around a circle, each overlapping the next. No two may share a place, though on a line
 * they could. */
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
    REJECTS(capacity = EBB_POOL_CAPACITY_OPEN);
    REJECTS(capacity = EBB_POOL_CAPACITY_IMPOSSIBLE);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections_are_maximal), cmocka_unit_test(brute_force_agrees),
        cmocka_unit_test(planted_optimum),      cmocka_unit_test(out_of_time_claims_nothing),
        cmocka_unit_test(circles_close),        cmocka_unit_test(mutated_packings_are_rejected),
        cmocka_unit_test(bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
