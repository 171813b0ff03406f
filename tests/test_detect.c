/* Iteration detection: when a repetition is announced, when it must not be, and what it costs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/detect.h"

#include "base/vec.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static uint64_t random_state = 1;

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static struct ebb_detector *made(void)
{
    struct ebb_detector *detector;
    assert_int_equal(ebb__detector_create(&detector), EBB_OK);
    return detector;
}

static bool push(struct ebb_detector *detector, uint64_t symbol, uint64_t live)
{
    assert_int_equal(ebb__detector_push(detector, symbol, false, live), EBB_OK);
    return ebb__detector_current(detector).found;
}

/* Random words of every small length follow a random prefix. Each is found at the first possible
 * symbol. */
static void test_found_at_once(void **state)
{
    (void)state;
    for (size_t period = 1; period <= 200; period++) {
        struct ebb_detector *detector = made();
        size_t head = random_next() % 50, n = 0;
        uint64_t word[200], live[200];
        for (size_t i = 0; i < period; i++) {
            word[i] = 1000 + i * 7 + random_next() % 7; /* no symbol twice: primitive */
            live[i] = (1 + random_next() % 1000) << 20;
        }
        for (; n < head; n++)
            assert_false(push(detector, 5000 + n, (2000 + n * 50) << 20));
        for (size_t i = 0; i < 2 * period; i++, n++) {
            bool found = push(detector, word[i % period], live[i % period]);
            assert_int_equal(found, i + 1 == 2 * period);
        }
        struct ebb_detection at = ebb__detector_current(detector);
        assert_int_equal(at.period_symbols, period);
        assert_int_equal(at.first_symbol, head);
        assert_int_equal(at.found_at_symbol, n - 1);
        assert_int_equal(ebb__detector_run(detector), period);
        for (size_t i = 0; i < 3 * period; i++)
            assert_true(push(detector, word[i % period], live[i % period]));
        assert_int_equal(ebb__detector_run(detector), 4 * period);
        assert_int_equal(ebb__detector_current(detector).period_symbols, period);
        ebb__detector_destroy(detector);
    }
}

/* A deep network: the same layer block `depth` times. Memory grows, then is freed. */
static size_t push_deep_iteration(struct ebb_detector *detector, size_t depth, bool *found_inside)
{
    uint64_t weights = UINT64_C(400) << 20, live = weights;
    size_t pushed = 0;
    *found_inside = false;
    for (size_t i = 0; i < depth; i++)
        for (size_t k = 0; k < 5; k++, pushed++) {
            live += (k + 1) << 16;
            *found_inside |= push(detector, 100 + k, live);
        }
    for (size_t i = 0; i < depth; i++)
        for (size_t k = 0; k < 5; k++, pushed++) {
            *found_inside |= push(detector, 100 + k, live + (1 << 16));
            live -= (k + 1) << 16;
        }
    *found_inside |= push(detector, 900, weights + 4096);
    return pushed + 1;
}

static void test_inner_repetition_is_not_announced(void **state)
{
    (void)state;
    size_t depths[] = {3, 16, 50, 152, 500};
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
        struct ebb_detector *detector = made();
        bool inside;
        size_t period = push_deep_iteration(detector, depths[i], &inside);
        assert_false(inside);
        push_deep_iteration(detector, depths[i], &inside);
        struct ebb_detection at = ebb__detector_current(detector);
        assert_true(at.found);
        assert_int_equal(at.period_symbols, period);
        assert_true(at.found_at_symbol <= 2 * period - 1);
        for (size_t k = 0; k < 3; k++) {
            push_deep_iteration(detector, depths[i], &inside);
            assert_int_equal(ebb__detector_current(detector).period_symbols, period);
        }
        ebb__detector_destroy(detector);
    }
}

/* A queue that fills in the first iterations does not delay detection. A leak of the same size
 * does, if the period allocates little more. */
static void test_queue_that_fills(void **state)
{
    (void)state;
    for (size_t leak = 0; leak < 2; leak++) {
        struct ebb_detector *detector = made();
        uint64_t weights = UINT64_C(32) << 20, queue = 0, layer = leak ? 1 : 4;
        size_t found_at = 0, pushed = 0;
        for (size_t iteration = 0; iteration < 4; iteration++) {
            queue += UINT64_C(2) << 20;
            for (size_t i = 0; i < 48; i++, pushed++) {
                uint64_t height = (i < 24 ? i + 1 : 48 - i) * layer, bytes = (layer << 20) + i * 64;
                uint64_t live = weights + queue + (height << 20);
                assert_int_equal(ebb__detector_push(detector, bytes, true, live), EBB_OK);
                if (!found_at && ebb__detector_current(detector).found)
                    found_at = pushed + 1;
            }
        }
        assert_int_equal(found_at, leak ? 0 : 2 * 48);
        ebb__detector_destroy(detector);
    }
}

/* The current repetition is not entered into a table. A longer period around it is still found,
 * with its true length, however often the inner one has repeated. */
static void test_period_around_long_stretches(void **state)
{
    (void)state;
    for (size_t batches = 2; batches < 40; batches += 3) {
        struct ebb_detector *detector = made();
        size_t period = batches * 30 + 25, seen = 0;
        for (size_t step = 0; step < 3; step++) {
            for (size_t i = 0; i < batches * 30; i++, seen++)
                push(detector, 1 + i % 30, (100 + i % 30) << 20);
            for (size_t i = 0; i < 25; i++, seen++) {
                bool found = push(detector, 100 + i * i, (90 + i * 3) << 20);
                if (seen + 1 == 2 * period)
                    assert_true(found);
                if (seen + 1 >= 2 * period)
                    assert_int_equal(ebb__detector_current(detector).period_symbols, period);
            }
        }
        ebb__detector_destroy(detector);
    }
}

/* Micro-batches that keep no memory are taken for iterations at first. Later the whole step is. */
static void test_longer_repetition_takes_over(void **state)
{
    (void)state;
    struct ebb_detector *detector = made();
    size_t seen = 0;
    for (size_t step = 0; step < 4; step++) {
        for (size_t batch = 0; batch < 4; batch++)
            for (size_t i = 0; i < 40; i++, seen++) {
                push(detector, i, (100 + (i < 20 ? i : 40 - i)) << 20);
                if (seen == 79)
                    assert_int_equal(ebb__detector_current(detector).period_symbols, 40);
            }
        for (size_t i = 0; i < 30; i++, seen++) {
            bool found = push(detector, 500, (uint64_t)90 << 20);
            if (seen + 1 == 2 * 190) {
                assert_true(found);
                assert_int_equal(ebb__detector_current(detector).period_symbols, 190);
                assert_int_equal(ebb__detector_current(detector).first_symbol, 0);
            }
            if (seen >= 2 * 190)
                assert_int_equal(ebb__detector_current(detector).period_symbols, 190);
        }
    }
    ebb__detector_destroy(detector);
}

static void test_equal_symbols(void **state)
{
    (void)state;
    struct ebb_detector *detector = made();
    assert_false(push(detector, 7, 4096));
    for (size_t i = 0; i < 1000; i++)
        assert_true(push(detector, 7, 4096));
    assert_int_equal(ebb__detector_current(detector).period_symbols, 1);
    ebb__detector_destroy(detector);

    /* If all sizes are equal, the load determines the iteration. */
    detector = made();
    for (size_t i = 0; i < 400; i++) {
        bool found = push(detector, 7, (1 + i % 20) << 22);
        assert_int_equal(found, i >= 39);
    }
    assert_int_equal(ebb__detector_current(detector).period_symbols, 20);
    ebb__detector_destroy(detector);

    /* Within an iteration, the load rises, stays level, and falls. */
    detector = made();
    for (size_t i = 0; i < 600; i++) {
        size_t at = i % 60;
        push(detector, 7, (uint64_t)(at < 20 ? at + 1 : at < 40 ? 20 : 60 - at) << 22);
    }
    assert_true(ebb__detector_current(detector).found);
    assert_int_equal(ebb__detector_current(detector).period_symbols, 60);
    ebb__detector_destroy(detector);

    detector = made(); /* a leak never repeats */
    for (size_t i = 0; i < 4000; i++)
        assert_false(push(detector, 7, i << 20));
    ebb__detector_destroy(detector);
}

static void test_jitter_of_frees(void **state)
{
    (void)state;
    struct ebb_detector *detector = made();
    size_t broken = 0;
    for (size_t i = 0; i < 5000; i++) {
        size_t at = i % 500;
        uint64_t live = ((at < 250 ? at : 500 - at) + 100) << 20;
        if (random_next() % 50 == 0)
            live += UINT64_C(20) << 20;
        bool found = push(detector, at * 3, live);
        broken += i >= 1100 && !found;
    }
    assert_int_equal(broken, 0);
    assert_int_equal(ebb__detector_current(detector).period_symbols, 500);
    ebb__detector_destroy(detector);
}

static void test_break_and_return(void **state)
{
    (void)state;
    struct ebb_detector *detector = made();
    for (size_t i = 0; i < 400; i++)
        push(detector, i % 100, (i % 100) << 20);
    assert_int_equal(ebb__detector_current(detector).period_symbols, 100);
    assert_false(push(detector, 12345, 0)); /* one different symbol in between */
    assert_int_equal(ebb__detector_run(detector), 0);
    size_t again = 0;
    for (size_t i = 0; i < 400; i++)
        if (push(detector, i % 100, (i % 100) << 20) && !again)
            again = i + 1;
    assert_int_equal(again, 200);
    ebb__detector_destroy(detector);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* For any input, time and memory stay linear. The bound is loose because of busy machines and
 * sanitizers. */
static void test_pathological(void **state)
{
    (void)state;
    size_t count = 300000;
    for (size_t kind = 0; kind < 6; kind++) {
        struct ebb_detector *detector = made();
        double begin = seconds();
        for (size_t i = 0; i < count; i++) {
            uint64_t symbol = 0, live = i % 97;
            switch (kind) {
            case 0:
                symbol = random_next();
                break;
            case 1:
                symbol = random_next() & 1;
                break;
            case 2:
                symbol = 0;
                live = i;
                break;
            case 3:
                symbol = (uint64_t)__builtin_popcountll(i) & 1;
                break; /* the Thue-Morse sequence */
            case 4:
                symbol = (uint64_t)__builtin_ctzll(i + 1);
                break; /* the ruler sequence */
            default:
                symbol = i % 865;
                live = i % 865;
                break;
            }
            live <<= 20;
            push(detector, symbol, live);
        }
        double each = (seconds() - begin) / (double)count;
        print_message("kind %zu: %.0f ns a symbol\n", kind, each * 1e9);
        assert_true(each < 20e-6);
        if (kind == 5) {
            assert_true(ebb__detector_current(detector).found);
            assert_int_equal(ebb__detector_current(detector).period_symbols, 865);
        }
        ebb__detector_destroy(detector);
    }
}

/* Random words over a small alphabet, with inner repeats. The load is a function of the
 * position. */
static void test_random_programs(void **state)
{
    (void)state;
    for (size_t round = 0; round < 300; round++) {
        size_t period = 20 + random_next() % 400;
        uint64_t word[420], live[420], level = 1 << 10;
        for (size_t i = 0; i < period;) {
            size_t inner = 1 + random_next() % 6, times = 1 + random_next() % 8, base = i;
            for (size_t k = 0; k < inner * times && i < period; k++, i++) {
                word[i] = k < inner ? random_next() % 6 : word[base + k % inner];
                level = i < period / 2 ? level + 300 + random_next() % 300 : level * 9 / 10;
                live[i] = level << 12;
            }
        }
        word[period - 1] = 999;
        struct ebb_detector *detector = made();
        size_t head = random_next() % 100, n = 0;
        for (; n < head; n++)
            push(detector, random_next() % 6, random_next() % 6 << 20);
        for (size_t i = 0; i < 4 * period; i++, n++)
            push(detector, word[i % period], live[i % period]);
        struct ebb_detection at = ebb__detector_current(detector);
        assert_true(at.found);
        assert_int_equal(at.period_symbols, period);
        assert_true(ebb__detector_run(detector) >= 3 * period);
        ebb__detector_destroy(detector);
    }
}

enum { STEP = 80, HEAD = 5 }; /* allocations of a step */

static struct ebb_detector *made_early(void)
{
    struct ebb_detector *detector = made();
    ebb__detector_announce_early(detector, 64, 4);
    return detector;
}

/* The first `symbols` of a step of this length, of symbols that no other length has. Close to its
 * end it makes `states`, which stay. Is a repetition in force then? */
static bool push_part(struct ebb_detector *detector, size_t length, size_t symbols, size_t states,
                      uint64_t *lasting)
{
    bool found = false;
    for (size_t i = 0; i < symbols; i++) {
        size_t held = i < length / 2 ? i : length - i;
        found = push(detector, 1000 * length + i, *lasting + (held << 20));
        for (size_t k = 0; k < states && i == length - HEAD; k++)
            found = push(detector, k, *lasting += UINT64_C(1) << 17);
    }
    return found;
}

/* The second step begins as the first, longer one, which has left states. The third one is known
 * after a quarter. */
static void test_early(void **state)
{
    (void)state;
    struct ebb_detector *detector = made_early();
    uint64_t lasting = UINT64_C(1) << 30;
    assert_false(push_part(detector, STEP, STEP, 7, &lasting));
    assert_false(push_part(detector, STEP, STEP, 0, &lasting));
    assert_true(push_part(detector, STEP, STEP / 4, 0, &lasting));
    struct ebb_detection at = ebb__detector_current(detector);
    assert_int_equal(at.period_symbols, STEP);
    assert_true(at.first_symbol >= STEP && at.first_symbol <= STEP + 7);
    ebb__detector_destroy(detector);
}

/* Of sequences of several lengths, two equal ones begin a repetition that there is not. */
static void test_not_early_by_chance(void **state)
{
    (void)state;
    static const size_t lengths[] = {80, 120, 160, 120, 200, 80, 160, 80, 80, 200, 120, 80};
    struct ebb_detector *detector = made_early();
    uint64_t lasting = UINT64_C(1) << 30;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        bool twice = i && lengths[i] == lengths[i - 1];
        assert_int_equal(push_part(detector, lengths[i], lengths[i], 0, &lasting), twice);
    }
    ebb__detector_destroy(detector);
}

/* Hashes of ranges against the polynomial, added up symbol by symbol: also of lengths around those
 * at which a table of powers ends. */
static void test_hash_of_any_range(void **state)
{
    (void)state;
    enum { SYMBOLS = 3 * EBB_ROLLING_STEP + 5 };
    struct ebb_rolling rolling = {0};
    static uint64_t symbols[SYMBOLS];
    for (size_t i = 0; i < SYMBOLS; i++) {
        symbols[i] = random_next();
        assert_true(ebb__rolling_push(&rolling, symbols[i]));
    }
    static const size_t lengths[] = {1,
                                     2,
                                     EBB_ROLLING_STEP - 1,
                                     EBB_ROLLING_STEP,
                                     EBB_ROLLING_STEP + 1,
                                     2 * EBB_ROLLING_STEP,
                                     3 * EBB_ROLLING_STEP + 4};
    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++)
        for (size_t first = 0; first + lengths[l] <= SYMBOLS; first += 97) {
            uint64_t hash = 0;
            for (size_t i = first; i < first + lengths[l]; i++)
                hash = (ebb__rolling_multiply(hash, EBB_ROLLING_BASE) +
                        ebb__hash_mix(symbols[i]) % EBB_ROLLING_PRIME) %
                       EBB_ROLLING_PRIME;
            assert_int_equal(ebb__rolling_range(&rolling, first, first + lengths[l]), hash);
        }
    ebb__rolling_fini(&rolling);
}

/* The hash of what repeats, begun anywhere in it, is known from one period. */
static void test_hash_at_another_phase(void **state)
{
    (void)state;
    enum { PERIOD = EBB_ROLLING_STEP + 9, BEFORE = 3 };
    struct ebb_rolling once = {0}, twice = {0};
    for (size_t i = 0; i < BEFORE + 2 * PERIOD; i++) {
        uint64_t symbol = i < BEFORE ? i : 100 + (i - BEFORE) % PERIOD;
        assert_true(i >= BEFORE + PERIOD || ebb__rolling_push(&once, symbol));
        assert_true(ebb__rolling_push(&twice, symbol));
    }
    for (size_t at = BEFORE; at < BEFORE + PERIOD; at++)
        assert_int_equal(ebb__rolling_turned(&once, BEFORE, at, BEFORE + PERIOD),
                         ebb__rolling_range(&twice, at, at + PERIOD));
    ebb__rolling_fini(&once);
    ebb__rolling_fini(&twice);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found_at_once),
        cmocka_unit_test(test_hash_of_any_range),
        cmocka_unit_test(test_hash_at_another_phase),
        cmocka_unit_test(test_early),
        cmocka_unit_test(test_not_early_by_chance),
        cmocka_unit_test(test_inner_repetition_is_not_announced),
        cmocka_unit_test(test_queue_that_fills),
        cmocka_unit_test(test_period_around_long_stretches),
        cmocka_unit_test(test_longer_repetition_takes_over),
        cmocka_unit_test(test_equal_symbols),
        cmocka_unit_test(test_jitter_of_frees),
        cmocka_unit_test(test_break_and_return),
        cmocka_unit_test(test_pathological),
        cmocka_unit_test(test_random_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
