/* Importers: samples made by hand give the events that their formats define. Each kind of
 * contradiction is refused with its line. The public traces are read whole, if they are
 * available. */
#include "lab/import/import.h"
#include "model/analyse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect_events_of(const char *kind, const void *text, size_t size,
                             const struct ebb_event *expected, size_t count)
{
    struct ebb_trace trace;
    struct ebb_error error = {0};
    const struct ebb_importer *importer = ebb__importer_find(kind);
    assert_non_null(importer);
    assert_true(importer->recognises(text, size));
    struct ebb_import_request request = {.name = "dir/sample"};
    enum ebb_status status = ebb__import_memory(importer, text, size, &request, &trace, &error);
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
        assert_int_equal(trace.events[i].mark, expected[i].mark);
        assert_int_equal(trace.events[i].thread, expected[i].thread);
    }
    ebb__trace_fini(&trace);
}

static void expect_events(const char *kind, const char *text, const struct ebb_event *expected,
                          size_t count)
{
    expect_events_of(kind, text, strlen(text), expected, count);
}

static void expect_refused_bytes(const char *kind, const void *text, size_t size, const char *why)
{
    struct ebb_trace trace;
    struct ebb_error error = {0};
    struct ebb_import_request request = {.name = "sample"};
    enum ebb_status status =
        ebb__import_memory(ebb__importer_find(kind), text, size, &request, &trace, &error);
    assert_int_equal(status, EBB_ERR_FORMAT);
    assert_int_equal(ebb_status_exit_code(status), 1);
    assert_string_equal(error.what, "sample");
    assert_string_equal(error.why, why);
    assert_null(trace.events);
    ebb__trace_fini(&trace);
}

static void expect_refused(const char *kind, const char *text, const char *why)
{
    expect_refused_bytes(kind, text, strlen(text), why);
}

static void test_singa_blocks(void **state)
{
    (void)state;
    static const struct ebb_event expected[] = {
        {0, 1, 256, EBB_EVENT_ALLOC, 0, 0, 0, 0},
        {10, 1, 256, EBB_EVENT_ACCESS, EBB_ACCESS_WRITE, 0, 0, 0},
        {20, 2, 64, EBB_EVENT_ACCESS, EBB_ACCESS_READ, 0, 0, 0}, /* allocated before the trace */
        {30, 1, 256, EBB_EVENT_ACCESS, EBB_ACCESS_UNKNOWN, 0, 0, 0},
        {40, 1, 256, EBB_EVENT_FREE, 0, 0, 0, 0},
        {40, 3, 512, EBB_EVENT_ALLOC, 0, 0, 0, 0}, /* time fell: raised; reused address */
        {50, 4, 8, EBB_EVENT_FREE, 0, 0, 0, 0},    /* allocated before the trace, never used */
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

#define RMM "Thread,Time,Action,Pointer,Size,Stream\n"

static void test_rmm(void **state)
{
    (void)state;
    static const struct ebb_event expected[] = {
        {0, 1, 1024, EBB_EVENT_ALLOC, 0, 0, 0, 7},
        {1000, 2, 64, EBB_EVENT_ALLOC, 0, 0, 0, 8},
        {2000001000, 1, 1024, EBB_EVENT_FREE, 0, 0, 0, 7}, /* after midnight */
        {86400000000999, 2, 64, EBB_EVENT_FREE, 0, 0, 0, 8},
        {86400000001000, 3, 32, EBB_EVENT_FREE, 0, 0, 0, 8}, /* allocated before the trace */
    };
    expect_events("rmm",
                  RMM "7,23:59:59.999999,allocate,0x7f00,1024,0x0\n"
                      "8,00:00:00:000000, allocate ,0x7e00,64,0x1\n"
                      "9,00:00:01.5,allocate failure,(nil),99999,0x1\n"
                      "9,00:00:01.6,allocate,(nil),0,0x1\r\n"
                      "\n"
                      "7,00:00:02.000000,free,0x7f00,1024,0x0\n"
                      "8,23:59:59.999999999,free,0x7e00,64,0x1\n"
                      "8,00:00:00.0,free,0x7d00,32,0x1",
                  expected, 5);
}

static void test_rmm_refused(void **state)
{
    (void)state;
    expect_refused("rmm", "Thread,Time\n",
                   "line 1: is not the header Thread,Time,Action,Pointer,"
                   "Size,Stream");
    expect_refused("rmm", RMM, "holds no events");
    expect_refused("rmm", RMM "1,10:00:00.0,allocate\n", "line 2: ends before its pointer");
    expect_refused("rmm", RMM "1,10:00:00.0,allocate,0x1,8,0x0,1\n",
                   "line 2: has more than 6 fields");
    expect_refused("rmm", RMM "1,25:00:00.0,allocate,0x1,8,0x0\n",
                   "line 2: time '25:00:00.0' is no time of day");
    expect_refused("rmm", RMM "1,nan,allocate,0x1,8,0x0\n", "line 2: time 'nan' is no time of day");
    expect_refused("rmm", RMM "1,10:00:00.0,grow,0x1,8,0x0\n",
                   "line 2: action 'grow' is not known");
    expect_refused("rmm", RMM "1,10:00:00.0,allocate,0x1,-8,0x0\n",
                   "line 2: size '-8' is negative");
    expect_refused("rmm", RMM "1,10:00:00.0,allocate,0x1,99999999999999999999,0x0\n",
                   "line 2: size '99999999999999999999' is too large");
    expect_refused("rmm", RMM "1,10:00:00.0,allocate,0x1,8,0x0\n1,10:00:00.0,allocate,0x1,8,0x0\n",
                   "line 3: block 0x1 is allocated again while it is live (line 2)");
    expect_refused("rmm", RMM "1,10:00:00.0,free,0x1,8,0x0\n1,10:00:00.0,free,0x1,8,0x0\n",
                   "line 3: block 0x1 is freed after its end (line 2)");
}

static void test_stalloc(void **state)
{
    (void)state;
    static const struct ebb_event expected[] = {
        {0, 1, 512, EBB_EVENT_ALLOC, 0, 0, 0, 0},
        {1000, 0, 0, EBB_EVENT_MARK, 0, EBB_MARK_ITERATION, 0, 0},
        {2000, 0, EBB_PHASE_FORWARD, EBB_EVENT_MARK, 0, EBB_MARK_PHASE, 0, 0},
        {3000, 0, 13, EBB_EVENT_MARK, 0, EBB_MARK_LAYER, 0, 0},
        {4000, 2, 1024, EBB_EVENT_ALLOC, 0, 0, 0, 0},
        {7000, 0, EBB_PHASE_BACKWARD, EBB_EVENT_MARK, 0, EBB_MARK_PHASE, 0, 0},
        {8000, 2, 1024, EBB_EVENT_FREE, 0, 0, 0, 0},
        {10000, 0, UINT64_MAX, EBB_EVENT_MARK, 0, EBB_MARK_ITERATION, 0, 0},
        {11000, 1, 512, EBB_EVENT_FREE, 0, 0, 0, 0},
    };
    expect_events("stalloc",
                  "1 0x7f00 512 0\nIteration Index : 0\nmicro-batch : F\n"
                  "module.layers.12.mlp->MoELayer Layer : F-start\n1 0x7f10 1024 0x55d0\n"
                  "module.layers.12.mlp->MoELayer Layer : F-end\ntoken_permutation : F-start\n"
                  "micro-batch : B\n0 0x7f10 1024 0x55d0\n1 0 0 0\nIteration Index : end\n"
                  "0 0x7f00 512 0\n",
                  expected, 9);
    expect_refused("stalloc", "Iteration Index : -1\n", "line 1: is no iteration's number");
    expect_refused("stalloc", "micro-batch : Q\n", "line 1: is neither pass F, B nor W");
    expect_refused("stalloc", "1 0x1 8 0\n2 0x2 8 0\n", "line 2: begins with neither 0 nor 1");
    expect_refused("stalloc", "1 0x1 8 0\nwhatever\n", "line 2: is neither an event nor a mark");
    expect_refused("stalloc", "1 0x1 8\n", "line 1: ends before its stream");
    expect_refused("stalloc", "1 0x1 8 0 0\n", "line 1: has more than 4 fields");
    expect_refused("stalloc", "1 0x1 8 0\n1 0x1 8 0\n",
                   "line 2: block 0x1 is allocated again while it is live (line 1)");
    expect_refused("stalloc", "1 0x1 NaN 0\n", "line 1: size 'NaN' is not a whole number");
}

/* Pickles made by hand. test_import_cli.py has Python make whole snapshots. */
#define ENTRY(action, addr, size)                                                                  \
    "}(\x8c\x06"                                                                                   \
    "action" action "\x8c\x04"                                                                     \
    "addr" addr "\x8c\x04"                                                                         \
    "size" size "u"
#define ALLOC                                                                                      \
    "\x8c\x05"                                                                                     \
    "alloc"
#define DONE                                                                                       \
    "\x8c\x0e"                                                                                     \
    "free_completed"

static void test_torch_snapshot(void **state)
{
    (void)state;
    static const struct ebb_event expected[] = {
        {0, 1, 5, EBB_EVENT_ALLOC, 0, 0, 0, 0},
        {1000, 1, 5, EBB_EVENT_FREE, 0, 0, 0, 0},
        {2000, 2, 65536, EBB_EVENT_FREE, 0, 0, 0, 0}, /* allocated before the trace */
    };
    static const char good[] =
        "\x80\x04}X\x0d\x00\x00\x00"
        "device_traces](](" ENTRY(ALLOC, "K\x01", "K\x05") ENTRY(DONE, "K\x01", "J\x05\x00\x00\x00")
            ENTRY(DONE, "M\x02\x00", "\x8a\x03\x00\x00\x01") "ees.";
    expect_events_of("torch-snapshot", good, sizeof good - 1, expected, 3);
#define REFUSED(bytes, why) expect_refused_bytes("torch-snapshot", bytes, sizeof(bytes) - 1, why)
    REFUSED("\x80\x04}.", "no memory snapshot with a history (device_traces)");
    REFUSED("\x80\x04N", "byte 3: ends before its end mark");
    REFUSED("\x80\x04(.", "byte 3: ends with other than one value");
    REFUSED("\x80\x04NN.", "byte 4: ends with other than one value");
    REFUSED("\x80\x04"
            "cos\nsystem\n(S'true'\ntR.",
            "byte 2: it wants something imported: only plain data is read");
    REFUSED("\x80\x04)\x81.", "byte 3: it wants an object made: only plain data is read");
    REFUSED("\x80\x04\x82\x01.", "byte 2: it refers to something outside: only plain data is read");
    REFUSED("\x80\x04\xff.", "byte 2: its opcode is not known");
    REFUSED("\x80\x04h\x00.", "byte 2: refers to what was not remembered");
    REFUSED("\x80\x04\x94.", "byte 2: there is nothing to remember");
    REFUSED("\x80\x04}K\x01s.", "byte 5: the stack is too short");
    REFUSED("\x80\x04]e.", "byte 3: there is no mark");
    REFUSED("\x80\x04](K\x01u.", "byte 6: a key lacks its value");
    REFUSED("\x80\x04\x8c\x05"
            "ab.",
            "byte 2: ends within a string");
#undef REFUSED
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

/* found_at_event is the allocation that completes the second period in which all sizes repeat. */
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
        cmocka_unit_test(test_singa_blocks),   cmocka_unit_test(test_singa_pool),
        cmocka_unit_test(test_singa_refused),  cmocka_unit_test(test_rmm),
        cmocka_unit_test(test_rmm_refused),    cmocka_unit_test(test_stalloc),
        cmocka_unit_test(test_torch_snapshot), cmocka_unit_test(test_open_by_content),
        cmocka_unit_test(test_public_vgg),     cmocka_unit_test(test_public_alexnet),
        cmocka_unit_test(test_public_pools),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
