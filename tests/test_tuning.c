#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/effort.h"
#include "base/tuning.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int again(void **state)
{
    (void)state;
    ebb__tuning_reset();
    return 0;
}

static const struct ebb_tuning_row *row_named(const char *name)
{
    size_t count;
    const struct ebb_tuning_row *rows = ebb__tuning_rows(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    fail_msg("no row %s", name);
    return NULL;
}

static void table_is_sane(void **state)
{
    (void)state;
    size_t count;
    const struct ebb_tuning_row *rows = ebb__tuning_rows(&count);
    assert_true(count > 80);
    for (size_t i = 0; i < count; i++) {
        const struct ebb_tuning_row *row = &rows[i];
        size_t length = strlen(row->name), unit = strlen(row->unit);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(row->name, rows[k].name);
        assert_in_range(length, 3, 40);
        assert_int_equal(strspn(row->name, "abcdefghijklmnopqrstuvwxyz_"), length);
        assert_true(unit > 0 && strlen(row->reason) > 8);
        assert_null(strstr(row->reason, "rbitrary"));
        if (!(row->least < row->most && row->value >= row->least && row->value <= row->most))
            fail_msg("%s: %g is not within %g and %g", row->name, row->value, row->least,
                     row->most);
        /* Half or twice the value must be in range, or the row cannot be ablated. */
        assert_true(row->value / 2 >= row->least || row->value * 2 <= row->most);
        assert_true(row->most < 0x1p53);
        if (!row->real)
            assert_true(row->value == floor(row->value) && row->least == floor(row->least));
        /* Names contain units. */
        if (strcmp(row->unit, "ns") == 0)
            assert_string_equal(row->name + length - 3, "_ns");
        if (strcmp(row->unit, "bytes") == 0)
            assert_string_equal(row->name + length - 6, "_bytes");
        if (strcmp(row->unit, "divisor") == 0)
            assert_string_equal(row->name + length - 8, "_divisor");
        if (strcmp(row->unit, "divisor") == 0)
            assert_true(row->least >= 1);
        assert_true(ebb__tuning_value(row) == row->value);
    }
}

static void rows_are_set(void **state)
{
    (void)state;
    struct ebb_error error;
    uint64_t table = ebb__tuning_table();
    assert_int_equal(ebb__tuning_set("pause_ns=40ms", &error), EBB_OK);
    assert_int_equal(ebb__tuning()->pause_ns, 40000000);
    assert_int_equal(ebb__tuning_set("pause_ns=250us", &error), EBB_OK);
    assert_int_equal(ebb__tuning()->pause_ns, 250000);
    assert_int_equal(ebb__tuning_set("pause_ns=1.5s", &error), EBB_OK);
    assert_int_equal(ebb__tuning()->pause_ns, 1500000000);
    assert_int_equal(ebb__tuning_set("probe_bytes=64MiB", &error), EBB_OK);
    assert_int_equal(ebb__tuning()->probe_bytes, 64 << 20);
    assert_int_equal(ebb__tuning_set("replan_worth=0.125", &error), EBB_OK);
    assert_true(ebb__tuning()->replan_worth == 0.125);
    /* The bounds are part of the range. */
    assert_int_equal(ebb__tuning_set("slabs_in_use=2", &error), EBB_OK);
    assert_int_equal(ebb__tuning_set("slabs_in_use=65536", &error), EBB_OK);
    assert_int_equal(ebb__tuning_table(), table);
    ebb__tuning_reset();
    assert_int_equal(ebb__tuning()->pause_ns, (uint64_t)row_named("pause_ns")->value);
    assert_true(ebb__tuning()->replan_worth == row_named("replan_worth")->value);
}

/* The assignment is refused with a line that contains `said`. Nothing changes. */
static void refused(const char *assignment, const char *said)
{
    struct ebb_error error = {0};
    struct ebb_tuning before = *ebb__tuning();
    assert_int_equal(ebb__tuning_set(assignment, &error), EBB_ERR_ARGUMENT);
    if (!strstr(error.why, said))
        fail_msg("'%s': '%s' does not say '%s'", assignment, error.why, said);
    assert_null(strchr(error.why, '\n'));
    assert_memory_equal(&before, ebb__tuning(), sizeof before);
}

static void bad_input_is_refused(void **state)
{
    (void)state;
    refused("", "is no row");
    refused("=", "is no row");
    refused("paus_ns=3", "closest: pause_ns");
    refused("exchange=3", "closest: exchange_");
    refused("pause_nss=3", "closest: pause_ns");
    refused("PAUSE_NS=3000000", "pause_ns");
    refused("pause_ns", "wants a value: pause_ns=20000000");
    refused("pause_ns=", "not a number");
    refused("pause_ns=ms", "not a number");
    refused("pause_ns=-5", "not a number");
    refused("pause_ns=+5", "not a number");
    refused("pause_ns= 5000000", "not a number");
    refused("pause_ns=5000000 ", "not a number");
    refused("pause_ns=0x1000000", "not a number");
    refused("pause_ns=nan", "not a number");
    refused("pause_ns=inf", "not a number");
    refused("pause_ns=1e999", "not a number");
    refused("pause_ns=0.5", "not a number");
    refused("pause_ns=5MiB", "not a number");
    refused("probe_bytes=5ms", "not a number");
    refused("pause_ns=1", "not within 100000 and 60000000000 ns");
    refused("pause_ns=61s", "not within");
    refused("replan_worth=1.01", "not within 0 and 1");
    refused("slabs_in_use=1", "not within 2 and 65536");
    char longest[4000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    refused(longest, "is no row");
    memcpy(longest, "pause_ns=", 9);
    refused(longest, "not a number");
}

static void goes_over_the_wire(void **state)
{
    (void)state;
    struct ebb_error error;
    char text[400], small[12];
    assert_true(ebb__tuning_write(text, sizeof text));
    assert_string_equal(text, "");
    assert_int_equal(ebb__tuning_set("pause_ns=40ms", &error), EBB_OK);
    assert_int_equal(ebb__tuning_set("anneal_fall=0.1", &error), EBB_OK);
    assert_int_equal(ebb__tuning_set("replan_slower=1.0500000000000003", &error), EBB_OK);
    assert_true(ebb__tuning_write(text, sizeof text));
    assert_string_equal(text, "anneal_fall=0.1,replan_slower=1.0500000000000003,pause_ns=40000000");
    assert_false(ebb__tuning_write(small, sizeof small));
    struct ebb_tuning sent = *ebb__tuning();
    ebb__tuning_reset();
    assert_int_equal(ebb__tuning_read(text, &error), EBB_OK);
    assert_memory_equal(&sent, ebb__tuning(), sizeof sent);
    /* Either all assignments apply, or none. */
    ebb__tuning_reset();
    struct ebb_tuning table = *ebb__tuning();
    static const char *const bad[] = {"pause_ns=40000000,pause=3", "pause_ns=40000000,",
                                      "pause_ns=40000000,,", "pause_ns=40000000;drain_ns=1000000"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        enum ebb_status status = ebb__tuning_read(bad[i], &error);
        if (i == 1) { /* an empty assignment after a comma is ignored */
            assert_int_equal(status, EBB_OK);
            ebb__tuning_reset();
            continue;
        }
        assert_int_equal(status, EBB_ERR_ARGUMENT);
        assert_memory_equal(&table, ebb__tuning(), sizeof table);
    }
}

/* Derived numbers follow their rows. */
static void derived(void **state)
{
    (void)state;
    struct ebb_error error;
    assert_int_equal(ebb__tuning_drift_ns(), 5000000);
    assert_int_equal(ebb__tuning_access_clock_rest(), 4);
    assert_int_equal(ebb__tuning_unmanaged_most_ns(), 6400000000);
    assert_int_equal(ebb__tuning_set("pause_ns=80ms", &error), EBB_OK);
    assert_int_equal(ebb__tuning_set("access_clock_armed=6", &error), EBB_OK);
    assert_int_equal(ebb__tuning_set("unmanaged_sample_ns=50ms", &error), EBB_OK);
    assert_int_equal(ebb__tuning_set("plan_box_ns=2s", &error), EBB_OK);
    assert_int_equal(ebb__tuning_drift_ns(), 20000000);
    assert_int_equal(ebb__tuning_access_clock_rest(), 7);
    assert_int_equal(ebb__tuning_unmanaged_most_ns(), 3200000000);
    assert_int_equal(ebb__tuning_pack_box_ns(), 12000000000);
}

/* Effort is limited by steps. The time limit is the last resort, and is reported. */
static void effort(void **state)
{
    (void)state;
    struct ebb_effort counted = ebb__effort(1000, UINT64_MAX);
    assert_int_equal(ebb__effort_slice(&counted, counted.limit, 4), 250);
    ebb__effort_spend(&counted, 400);
    assert_int_equal(ebb__effort_slice(&counted, counted.limit, 3), 600);
    assert_false(ebb__effort_is_over(&counted, 401));
    assert_true(ebb__effort_is_over(&counted, 400));
    ebb__effort_spend(&counted, 600);
    assert_true(ebb__effort_is_over(&counted, counted.limit));
    assert_int_equal(ebb__effort_slice(&counted, counted.limit, 3), counted.limit);
    assert_false(counted.timed_out);
    struct ebb_effort boxed = ebb__effort(UINT64_MAX / 2, 0);
    ebb__effort_spend(&boxed, 2 * EBB_EFFORT_LOOK_STEPS);
    assert_true(boxed.timed_out);
    assert_true(ebb__effort_is_over(&boxed, boxed.limit));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(table_is_sane, again),
        cmocka_unit_test_teardown(rows_are_set, again),
        cmocka_unit_test_teardown(bad_input_is_refused, again),
        cmocka_unit_test_teardown(goes_over_the_wire, again),
        cmocka_unit_test_teardown(derived, again),
        cmocka_unit_test_teardown(effort, again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
