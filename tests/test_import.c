/* Importers: hand-made samples become the events that their formats say, and each way to contradict
 * oneself is refused with its line. The public traces, where they are, are read whole. */
#include "model/analyse.h"
#include "trace/import/import.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect_events(const char *kind, const char *text, const struct ebb_event *expected,
                          size_t count)
{
    struct ebb_trace trace;
    struct ebb_error error = {0};
    const struct ebb_importer *importer = ebb__importer_find(kind);
    assert_non_null(importer);
    assert_true(importer->recognises((const uint8_t *)text, strlen(text)));
    enum ebb_status status = ebb__import_memory(importer, (const uint8_t *)text, strlen(text),
                                                "dir/sample", &trace, &error);
    if (status)
        fail_msg("%s: %s", error.what, error.why);
    assert_true(trace.complete);
    assert_int_equal(trace.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(trace.events[i].time_ns, expected[i].time_ns);
        assert_int_equal(trace.events[i].block, expected[i].block);
        assert_int_equal(trace.events[i].size_bytes, expected[i].size_bytes);
        assert_int_equal(trace.events[i].kind, expected[i].kind);
        assert_int_equal(trace.events[i].access, expected[i].access);
    }
    ebb__trace_fini(&trace);
}

static void expect_refused(const char *kind, const char *text, const char *why)
{
    struct ebb_trace trace;
    struct ebb_error error = {0};
    enum ebb_status status = ebb__import_memory(ebb__importer_find(kind), (const uint8_t *)text,
                                                strlen(text), "sample", &trace, &error);
    assert_int_equal(status, EBB_ERR_FORMAT);
    assert_int_equal(ebb_status_exit_code(status), 1);
    assert_string_equal(error.what, "sample");
    assert_string_equal(error.why, why);
    assert_null(trace.events);
    ebb__trace_fini(&trace);
}

static void test_singa_blocks(void **state)
{
    (void)state;
    static const struct ebb_event expected[] = {
        {0, 1, 256, EBB_EVENT_ALLOC, 0, 0, 0, 0},
        {10, 1, 256, EBB_EVENT_ACCESS, EBB_ACCESS_WRITE, 0, 0, 0},
        {20, 2, 64, EBB_EVENT_ACCESS, EBB_ACCESS_READ, 0, 0, 0}, /* existed before */
        {30, 1, 256, EBB_EVENT_ACCESS, EBB_ACCESS_UNKNOWN, 0, 0, 0},
        {40, 1, 256, EBB_EVENT_FREE, 0, 0, 0, 0},
        {40, 3, 512, EBB_EVENT_ALLOC, 0, 0, 0, 0}, /* its time fell: raised; the address again */
        {50, 4, 8, EBB_EVENT_FREE, 0, 0, 0, 0},    /* existed before, never used */
    };
    expect_events("singa",
                  "Malloc 0x10 256 1000\nMutable 0x10 256 1010\r\n\nRead 0x20 64 1020\n"
                  "Layer 0x10 256 1030\nFree 0x10 256 1040\nMalloc 0x10 512 1039\n"
                  "Free 0x30 8 1050\n",
                  expected, 7);
    expect_events("singa", "0 Malloc 0x10 256 1000\n1 Mutable 0x10 256 1010", expected, 2);
}

static void test_singa_pool(void **state)
{
    (void)state;
    static const struct ebb_event expected[] = {
        {0, 1, 256, EBB_EVENT_ALLOC, 0, 0, 0, 0},
        {3000000, 1, 256, EBB_EVENT_FREE, 0, 0, 0, 0},
        {4000000, 2, 16, EBB_EVENT_ALLOC, 0, 0, 0, 0},
    };
    expect_events("singa", "Malloc 0x10 256 7\nFree 0x10 10\nFree 0x20 10\nMalloc 0x10 16 11\n",
                  expected, 3);
}

static void test_singa_refused(void **state)
{
    (void)state;
    expect_refused("singa", "", "is empty, no trace");
    expect_refused("singa", "\n\n", "holds no events");
    expect_refused("singa", "Malloc 0x1 8 1\nMalloc 0x1 8 2\n",
                   "line 2: block 0x1 is allocated again while it is live (line 1)");
    expect_refused("singa", "Malloc 0x1 8 1\nFree 0x1 8 2\n\nFree 0x1 8 3\n",
                   "line 4: block 0x1 is freed after its end (line 2)");
    expect_refused("singa", "Malloc 0x1 8 1\nFree 0x1 8 2\nRead 0x1 8 3\n",
                   "line 3: block 0x1 is used after its end (line 2)");
    expect_refused("singa", "Malloc 0x1 8 1\nRead 0x1 9 3\n",
                   "line 2: block 0x1 has 9 bytes here and 8 before (line 1)");
    expect_refused("singa", "Malloc 0x1 -8 1\n", "line 1: size '-8' is negative");
    expect_refused("singa", "Malloc 0x1 nan 1\n", "line 1: size 'nan' is not a whole number");
    expect_refused("singa", "Malloc 0x1 8 NaN\n", "line 1: time 'NaN' is not a whole number");
    expect_refused("singa", "Malloc 0x1 8.5 1\n", "line 1: size '8.5' is not a whole number");
    expect_refused("singa", "Malloc 0x1 18446744073709551616 1\n",
                   "line 1: size '18446744073709551616' is too large");
    expect_refused("singa", "Malloc 0x1 281474976710657 1\n",
                   "line 1: a block of 281474976710657 bytes is impossibly large");
    expect_refused("singa", "Malloc 0xffffffffffffffff 1 1\n",
                   "line 1: 0xffffffffffffffff is no address");
    expect_refused("singa", "Malloc 0x1 8 1\nGrow 0x1 8 2\n",
                   "line 2: operation 'Grow' is not known");
    expect_refused("singa", "Malloc 0x1 8\n", "line 1: ends before its time");
    expect_refused("singa", "Malloc 0x1 8 1 1\n", "line 1: has 1 fields too many");
    expect_refused("singa", "0 Malloc 0x1 8 1\nFree 0x1 8 2\n",
                   "line 2: index 'Free' is not a whole number");
    expect_refused("singa", "Malloc 0x1 8 1\nFree 0x1 2\nRead 0x1 8 2\n",
                   "line 3: 'Read' with a size, where frees had none before");
    expect_refused("singa", "Read 0x1 8 1\nFree 0x1 2\n",
                   "line 2: 'Free' without a size, where there was one before");
}

static void test_open_by_content(void **state)
{
    (void)state;
    char path[] = "/tmp/ebb-import-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    FILE *out = fdopen(file, "w");
    fputs("Malloc 0x10 256 7\nFree 0x10 10\n", out);
    assert_int_equal(fclose(out), 0);
    struct ebb_trace trace, again;
    struct ebb_error error;
    assert_int_equal(ebb__trace_open(path, &trace, &error), EBB_OK);
    assert_int_equal(trace.count, 2);
    assert_int_equal(trace.info.page_bytes, 1);
    assert_non_null(strstr(trace.info.command, "singa trace ebb-import-"));
    struct ebb_trace_writer *writer;
    assert_int_equal(ebb__trace_writer_open(path, &trace.info, &writer, &error), EBB_OK);
    assert_int_equal(ebb__trace_writer_append(writer, trace.events, trace.count, &error), EBB_OK);
    assert_int_equal(ebb__trace_writer_close(writer, &error), EBB_OK);
    assert_int_equal(ebb__trace_open(path, &again, &error), EBB_OK);
    assert_int_equal(again.count, 2);
    assert_memory_equal(again.events, trace.events, 2 * sizeof *again.events);
    ebb__trace_fini(&trace);
    ebb__trace_fini(&again);
    out = fopen(path, "w");
    assert_non_null(out);
    fputs("nothing of the kind\n", out);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(ebb__trace_open(path, &trace, &error), EBB_ERR_FORMAT);
    assert_string_equal(error.why, "not an Ebb trace, nor one that Ebb imports");
    assert_true(error.remedy[0]);
    out = fopen(path, "w");
    assert_int_equal(fclose(out), 0);
    assert_int_equal(ebb__trace_open(path, &trace, &error), EBB_ERR_FORMAT);
    assert_string_equal(error.why, "is empty, no trace");
    remove(path);
    assert_int_equal(ebb__trace_open(path, &trace, &error), EBB_ERR_IO);
}

static bool open_public(const char *name, struct ebb_trace *trace)
{
    const char *folder = getenv("EBB_DATA"), *source = getenv("EBB_SOURCE_DIR");
    char path[1024];
    if (folder)
        snprintf(path, sizeof path, "%s/singa/%s", folder, name);
    else
        snprintf(path, sizeof path, "%s/../shared/data/singa/%s", source ? source : ".", name);
    FILE *there = fopen(path, "r");
    if (!there)
        return false;
    fclose(there);
    struct ebb_error error;
    if (ebb__trace_open(path, trace, &error))
        fail_msg("%s: %s", error.what, error.why);
    return true;
}

/* found_at_event: the allocation that completes the second period in which all sizes repeat. */
static void check_public(const char *name, size_t period, size_t iterations, uint64_t peak_bytes,
                         size_t found_at_event, size_t existing, uint64_t existing_bytes)
{
    struct ebb_trace trace;
    if (!open_public(name, &trace)) {
        print_message("skipped: needs EBB_DATA\n");
        skip();
    }
    struct ebb_analysis analysis;
    struct ebb_error error;
    struct ebb_event_span span = {trace.events, trace.count};
    assert_int_equal(ebb__analyse(span, &analysis, &error), EBB_OK);
    assert_int_equal(analysis.period_events, period);
    assert_int_equal(analysis.iterations, iterations);
    assert_int_equal(analysis.found_at_event, found_at_event);
    assert_int_equal(analysis.model.peak_bytes, peak_bytes);
    assert_int_equal(analysis.peak_bytes, peak_bytes);
    assert_int_equal(analysis.existing_blocks, existing);
    assert_int_equal(analysis.existing_bytes, existing_bytes);
    ebb__analysis_fini(&analysis);
    ebb__trace_fini(&trace);
}

static void test_public_vgg(void **state)
{
    (void)state;
    check_public("vec_block_fresh_vgg.csv", 3172, 3, 665434164, 5815, 255, 287842108);
}

static void test_public_alexnet(void **state)
{
    (void)state;
    check_public("vec_run_5_alex.csv", 612, 4, 187565804, 1739, 0, 0);
}

static void test_public_pools(void **state)
{
    (void)state;
    check_public("memInfo_vgg_20itr_100size.text", 1020, 19, 671823924, 3252, 0, 0);
    check_public("memInfo_alex_20itr_100size.text", 188, 19, 187565804, 546, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_singa_blocks),  cmocka_unit_test(test_singa_pool),
        cmocka_unit_test(test_singa_refused), cmocka_unit_test(test_open_by_content),
        cmocka_unit_test(test_public_vgg),    cmocka_unit_test(test_public_alexnet),
        cmocka_unit_test(test_public_pools),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
