/* Levels of detail, escaping, and conditions of reports. */
#include "report/curve.h"
#include "report/difference.h"
#include "report/escape.h"
#include "report/lost_json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)

/* Calls `write` for a file in memory and returns what it wrote; the caller frees it. */
static char *written(void (*write)(FILE *out, const char *text), const char *text)
{
    char *bytes = NULL;
    size_t size;
    FILE *out = open_memstream(&bytes, &size);
    assert_non_null(out);
    write(out, text);
    fclose(out);
    return bytes;
}

static void expect_text(void (*write)(FILE *out, const char *text), const char *text,
                        const char *expected)
{
    char *found = written(write, text);
    assert_string_equal(found, expected);
    free(found);
}

static void test_html_is_escaped(void **state)
{
    (void)state;
    expect_text(ebb__escape_html, "a <b> & \"c\" 'd'",
                "a &lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
    expect_text(ebb__escape_html, "1\n2\x1b[31m", "1?2?[31m");
    expect_text(ebb__escape_html, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
                "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    /* Not UTF-8: a lone byte, a cut sequence, an overlong `<`, a surrogate. */
    expect_text(ebb__escape_html, "\xff|\xe2\x82|\xc0\xbc|\xed\xa0\x80", "?|??|??|???");
}

static void test_csv_and_terminal(void **state)
{
    (void)state;
    expect_text(ebb__escape_csv, "plain", "plain");
    expect_text(ebb__escape_csv, "a,b \"c\"", "\"a,b \"\"c\"\"\"");
    expect_text(ebb__escape_terminal, "a\x1b[2J\tb\xc2\x9b\xc3\xa9", "a?[2J?b?\xc3\xa9");
}

static void write_json(FILE *out, const char *text)
{
    json_t *value = json_pack("{s:s}", "k", text);
    assert_true(ebb__escape_json(out, value));
    json_decref(value);
}

static void test_json_cannot_end_a_script(void **state)
{
    (void)state;
    expect_text(write_json, "</script><!-- & \xe2\x80\xa8",
                "{\"k\":\"\\u003c/script\\u003e\\u003c!-- \\u0026 \\u2028\"}");
}

/* A reproducible sequence. */
static uint64_t chance(uint64_t *state)
{
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static struct ebb_curve_change *random_changes(size_t count, uint64_t end_ns, uint64_t seed)
{
    struct ebb_curve_change *changes = calloc(count + 1, sizeof *changes);
    assert_non_null(changes);
    for (size_t i = 0; i < count; i += 2) {
        uint64_t from = chance(&seed) % end_ns, bytes = chance(&seed) % MIB;
        changes[i] = (struct ebb_curve_change){.ns = from,
                                               .load_bytes = (int64_t)bytes,
                                               .resident_bytes = (int64_t)(bytes / 2),
                                               .kind = (uint8_t)(i / 2 % EBB_KIND_COUNT)};
        changes[i + 1] = changes[i];
        changes[i + 1].ns = from + chance(&seed) % (end_ns - from);
        changes[i + 1].load_bytes *= -1;
        changes[i + 1].resident_bytes *= -1;
        changes[i + 1].order = 1; /* at equal times after the first */
    }
    return changes;
}

static uint64_t most_load(const struct ebb_curve_level *level)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < level->count; i++)
        if (level->cells[i].load_bytes > most)
            most = level->cells[i].load_bytes;
    return most;
}

static uint64_t most_resident(const struct ebb_curve_level *level)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < level->count; i++)
        if (level->cells[i].resident_bytes > most)
            most = level->cells[i].resident_bytes;
    return most;
}

/* No level hides a peak, and each stack adds up to what is resident. */
static void test_levels_keep_peaks(void **state)
{
    (void)state;
    static const uint32_t cells[] = {1, 7, 500};
    for (size_t c = 0; c < 3; c++) {
        struct ebb_curve_change *changes = random_changes(10000, 1000000, 7 + c);
        struct ebb_curve_cell begin = {0};
        struct ebb_curve curve;
        assert_int_equal(ebb__curve_reduce(changes, 10000, &begin, 1000000, cells[c], &curve),
                         EBB_OK);
        assert_int_equal(curve.level_count, 2);
        assert_int_equal(curve.levels[0].count, cells[c]);
        for (uint32_t l = 0; l < 2; l++) {
            const struct ebb_curve_level *level = &curve.levels[l];
            assert_int_equal(most_load(level), curve.peak_load_bytes);
            assert_int_equal(most_resident(level), curve.peak_resident_bytes);
            assert_int_equal(level->cells[0].start_ns, 0);
            for (uint32_t i = 0; i < level->count; i++) {
                uint64_t sum = 0;
                for (int k = 0; k < EBB_KIND_COUNT; k++)
                    sum += level->cells[i].kinds[k];
                assert_int_equal(sum, level->cells[i].resident_bytes);
            }
        }
        ebb__curve_fini(&curve);
        free(changes);
    }
}

static void test_a_short_curve_is_exact(void **state)
{
    (void)state;
    struct ebb_curve_change changes[] = {
        {.ns = 10, .load_bytes = 5, .resident_bytes = 5},
        {.ns = 10, .load_bytes = -5, .resident_bytes = -5, .order = 1}, /* for no time */
        {.ns = 20, .load_bytes = 3, .resident_bytes = 3},
        {.ns = 30, .resident_bytes = -3},
    };
    struct ebb_curve_cell begin = {.load_bytes = 2, .resident_bytes = 2, .kinds = {2}};
    struct ebb_curve curve;
    assert_int_equal(ebb__curve_reduce(changes, 4, &begin, 40, 2, &curve), EBB_OK);
    assert_int_equal(curve.level_count, 1);
    assert_int_equal(curve.levels[0].count, 4);
    assert_int_equal(curve.peak_load_bytes, 5);
    assert_int_equal(curve.peak_load_ns, 20);
    assert_int_equal(curve.levels[0].cells[3].load_bytes, 5);
    assert_int_equal(curve.levels[0].cells[3].resident_bytes, 2);
    ebb__curve_fini(&curve);
    assert_int_equal(ebb__curve_reduce(NULL, 0, &begin, 40, 2, &curve), EBB_OK);
    assert_int_equal(curve.levels[0].count, 1);
    ebb__curve_fini(&curve);
}

static struct ebb_event mark_at(uint64_t ns, enum ebb_mark mark, uint64_t value)
{
    return (struct ebb_event){
        .time_ns = ns, .kind = EBB_EVENT_MARK, .mark = (uint8_t)mark, .size_bytes = value};
}

static void test_lost_time_has_causes(void **state)
{
    (void)state;
    struct ebb_event events[] = {
        mark_at(0, EBB_MARK_WAIT, 1),   mark_at(10, EBB_MARK_TRACE_ON, 0),
        mark_at(20, EBB_MARK_WAIT, 2),  mark_at(30, EBB_MARK_TRACE_OFF, 0),
        mark_at(40, EBB_MARK_WAIT, 4),  mark_at(50, EBB_MARK_PLAN_ON, 0),
        mark_at(60, EBB_MARK_WAIT, 8),  mark_at(70, EBB_MARK_PLAN_OFF, 0),
        mark_at(80, EBB_MARK_WAIT, 16), mark_at(90, EBB_MARK_WAIT, 32),
    };
    static const size_t starts[] = {1, 5, 9};
    struct ebb_lost lost;
    ebb__lost_find((struct ebb_event_span){events, 10}, starts, 3, &lost);
    assert_true(lost.has_waits);
    assert_int_equal(lost.count, 2);
    assert_int_equal(lost.iterations[0].ns, 40);
    assert_int_equal(lost.iterations[0].cause_ns[EBB_LOST_OBSERVED], 2);
    assert_int_equal(lost.iterations[0].cause_ns[EBB_LOST_EVICTED], 4);
    assert_int_equal(lost.iterations[1].cause_ns[EBB_LOST_LATE], 8);
    assert_int_equal(lost.iterations[1].cause_ns[EBB_LOST_SWITCHED], 16);
    json_t *json = ebb__lost_to_json(&lost);
    struct ebb_lost read;
    assert_true(ebb__lost_from_json(json, &read));
    assert_memory_equal(&read, &lost, sizeof lost);
    json_object_set_new(json_array_get(json, 1), "late", json_integer(-1));
    assert_false(ebb__lost_from_json(json, &read));
    assert_int_equal(read.count, 0);
    assert_false(ebb__lost_from_json(NULL, &read));
    json_decref(json);
}

static void test_what_observing_costs_is_observed(void **state)
{
    (void)state;
    struct ebb_event events[] = {mark_at(0, EBB_MARK_TRACE_ON, 0), mark_at(1, EBB_MARK_OBSERVED, 7),
                                 mark_at(5, EBB_MARK_TRACE_OFF, 0)};
    static const size_t starts[] = {0, 2};
    struct ebb_lost lost;
    ebb__lost_find((struct ebb_event_span){events, 3}, starts, 2, &lost);
    assert_int_equal(lost.count, 1);
    assert_int_equal(lost.iterations[0].cause_ns[EBB_LOST_OBSERVED], 7);
    assert_false(lost.has_waits);
}

static struct ebb_difference sample(void)
{
    struct ebb_report_run first, last;
    struct ebb_difference difference;
    memset(&first, 0, sizeof first);
    memset(&last, 0, sizeof last);
    memset(&first.predicted, 0xff, sizeof first.predicted);
    memset(&last.predicted, 0xff, sizeof last.predicted);
    first.measured = first.predicted;
    last.measured = last.predicted;
    first.measured.peak_bytes = 100 * MIB;
    last.measured.peak_bytes = 103 * MIB;
    first.measured.iteration_ns = 1000000000;
    last.measured.iteration_ns = 900000000;
    ebb__difference_make(&first, &last, &difference);
    return difference;
}

static void expect_condition(const char *text, enum ebb_status expected, bool holds)
{
    struct ebb_difference difference = sample();
    struct ebb_error error;
    char reason[256];
    bool fails = false;
    enum ebb_status status =
        ebb__difference_fails(&difference, text, &fails, reason, sizeof reason, &error);
    if (status != expected || fails != holds)
        print_error("%s: status %d, holds %d\n", text, (int)status, fails);
    assert_int_equal(status, expected);
    assert_int_equal(fails, holds);
}

static void test_conditions(void **state)
{
    (void)state;
    expect_condition("peak>+2%", EBB_OK, true);
    expect_condition("peak>+3.5%", EBB_OK, false);
    expect_condition("peak>102MiB", EBB_OK, true);
    expect_condition("peak<102MiB", EBB_OK, false);
    expect_condition("time<-5%", EBB_OK, true);
    expect_condition("time>1.5s", EBB_OK, false);
    expect_condition("time>1.5s,peak>+1%", EBB_OK, true);
    expect_condition("stall>+1%", EBB_ERR_ARGUMENT, false); /* not known */
    expect_condition("peak", EBB_ERR_ARGUMENT, false);
    expect_condition("peak>", EBB_ERR_ARGUMENT, false);
    expect_condition("peak>2x%", EBB_ERR_ARGUMENT, false);
    expect_condition("size>1G", EBB_ERR_ARGUMENT, false);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_html_is_escaped),
        cmocka_unit_test(test_csv_and_terminal),
        cmocka_unit_test(test_json_cannot_end_a_script),
        cmocka_unit_test(test_levels_keep_peaks),
        cmocka_unit_test(test_a_short_curve_is_exact),
        cmocka_unit_test(test_lost_time_has_causes),
        cmocka_unit_test(test_what_observing_costs_is_observed),
        cmocka_unit_test(test_conditions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
