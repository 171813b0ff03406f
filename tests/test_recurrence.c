/* Finds iterations from accesses alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/geometry.h"
#include "model/recurrence.h"
#include "synthetic.h"

static bool use(struct ebb_recurrence *recurrence, uint64_t unit)
{
    bool begins;
    struct ebb_event event = {.block = 1 + unit % 3,
                              .size_bytes = (unit + 1) * EBB_HUGE_BYTES,
                              .kind = EBB_EVENT_ACCESS,
                              .access = EBB_ACCESS_WRITE,
                              .flags = EBB_EVENT_PART};
    assert_int_equal(ebb__recurrence_push(recurrence, &event, &begins), EBB_OK);
    return begins;
}

static void push_alloc(struct ebb_recurrence *recurrence)
{
    bool begins;
    struct ebb_event event = {.block = 99, .size_bytes = 1 << 20, .kind = EBB_EVENT_ALLOC};
    assert_int_equal(ebb__recurrence_push(recurrence, &event, &begins), EBB_OK);
    assert_false(begins);
}

enum { UNITS = 120 };

/* Sweeps over the same units: forward, backward, forward again. Two of the sweeps are alike. Some
 * uses are swapped with a neighbour, some are seen twice. Returns the position of an iteration's
 * begin, or -1 if there is none. */
static int sweep_thrice(struct ebb_recurrence *recurrence, uint64_t *random, unsigned noise)
{
    int begun = -1, place = 0;
    for (unsigned sweep = 0; sweep < 3; sweep++)
        for (unsigned i = 0; i < UNITS; i += 2) {
            unsigned at = sweep == 1 ? UNITS - 2 - i : i;
            bool swap = chance(random) % 100 < noise, twice = chance(random) % 100 < noise;
            /* Some units are used in the first sweep only. */
            unsigned extra = sweep == 0 && i % 10 == 0, uses = extra + (twice ? 3 : 2);
            for (unsigned k = 0; k < uses; k++, place++)
                if (use(recurrence, k < extra ? UNITS + i : at + ((k - extra + swap) & 1))) {
                    assert_int_equal(begun, -1); /* one in each iteration */
                    begun = place;
                }
        }
    return begun;
}

static void finds_the_whole_iteration(void **state)
{
    (void)state;
    static const unsigned noises[] = {0, 3, 8};
    for (unsigned n = 0; n < 3; n++) {
        struct ebb_recurrence *recurrence;
        uint64_t random = 7;
        assert_int_equal(ebb__recurrence_create(&recurrence), EBB_OK);
        unsigned found = 0;
        int before = -1;
        for (unsigned iteration = 0; iteration < 12; iteration++) {
            int begun = sweep_thrice(recurrence, &random, noises[n]);
            assert_true(iteration >= 2 || begun < 0);
            if (begun >= 0 && before >= 0)
                assert_in_range((unsigned)(begun + 3 * UNITS - before), 3 * UNITS - 60,
                                3 * UNITS + 60);
            if (begun >= 0)
                assert_int_equal(ebb__recurrence_is_anew(recurrence), found == 0 || before < 0);
            found += begun >= 0;
            before = begun;
        }
        assert_true(found >= 9);
        ebb__recurrence_destroy(recurrence);
    }
}

static void no_repetition_nothing_found(void **state)
{
    (void)state;
    struct ebb_recurrence *recurrence;
    uint64_t random = 3;
    assert_int_equal(ebb__recurrence_create(&recurrence), EBB_OK);
    for (unsigned i = 0; i < 20000; i++)
        assert_false(use(recurrence, chance(&random) % UNITS));
    ebb__recurrence_destroy(recurrence);
}

static void allocations_are_a_better_clock(void **state)
{
    (void)state;
    struct ebb_recurrence *recurrence;
    assert_int_equal(ebb__recurrence_create(&recurrence), EBB_OK);
    for (unsigned iteration = 0; iteration < 8; iteration++)
        for (unsigned i = 0; i < UNITS; i++) {
            assert_false(use(recurrence, i));
            if (i % 4 == 0)
                push_alloc(recurrence);
        }
    ebb__recurrence_destroy(recurrence);
}

static bool push_block(struct ebb_recurrence *recurrence, enum ebb_event_kind kind, uint64_t block)
{
    bool begins;
    struct ebb_event event = {.block = block, .size_bytes = 1 << 19, .kind = (uint8_t)kind};
    assert_int_equal(ebb__recurrence_push(recurrence, &event, &begins), EBB_OK);
    return begins;
}

/* Each iteration begins with a batch of its own blocks. At first they are too many for a program
 * that allocates once. */
static void batches_come_and_go(void **state)
{
    (void)state;
    enum { BATCH = 24, ITERATIONS = 16 };
    struct ebb_recurrence *recurrence;
    assert_int_equal(ebb__recurrence_create(&recurrence), EBB_OK);
    unsigned found = 0, early = 0;
    for (unsigned iteration = 0; iteration < ITERATIONS; iteration++) {
        uint64_t first = 100 + (uint64_t)iteration * BATCH;
        for (uint64_t i = 0; i < BATCH; i++) {
            if (iteration > 0)
                push_block(recurrence, EBB_EVENT_FREE, first - BATCH + i);
            push_block(recurrence, EBB_EVENT_ALLOC, first + i);
            found += push_block(recurrence, EBB_EVENT_ACCESS, first + i);
        }
        for (unsigned i = 0; i < UNITS; i++)
            found += use(recurrence, i);
        early += iteration < 3 ? found : 0;
    }
    assert_int_equal(early, 0);
    assert_in_range(found, 8, ITERATIONS);
    ebb__recurrence_destroy(recurrence);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_whole_iteration),
        cmocka_unit_test(no_repetition_nothing_found),
        cmocka_unit_test(allocations_are_a_better_clock),
        cmocka_unit_test(batches_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
