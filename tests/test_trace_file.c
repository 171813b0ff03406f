/* The trace file: written events are read again, from whole, extreme, unfinished and old files.
 *
 * EBB_BLESS=1 rewrites the files of tests/corpus/trace instead of reading them. They pin the
 * format, since old files must stay readable, and are the seeds of fuzz_trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trace_rig.h"

#include <signal.h>
#include <sys/wait.h>

static void test_round_trip(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 1, 2, 1000, 65535, 65536, 65537, 200000};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct ebb_event *events = make_events(counts[i], i);
        char *path = in_folder("round.ebbt");
        write_trace(path, events, counts[i], i % 2 ? 0 : 777);
        struct ebb_trace trace;
        struct ebb_error error = {0};
        assert_int_equal(ebb__trace_read(path, &trace, &error), EBB_OK);
        expect_events(&trace, events, counts[i]);
        assert_true(trace.complete);
        assert_int_equal(trace.damaged_bytes, 0);
        assert_memory_equal(&trace.info, &sample_info, sizeof sample_info);
        ebb__trace_fini(&trace);
        ebb__trace_fini(&trace);
        free(events);
        unlink(path);
    }
}

static void test_extreme_values(void **state)
{
    (void)state;
    static const uint64_t values[] = {0,         1, 127, 128, UINT32_MAX, INT64_MAX, UINT64_MAX - 1,
                                      UINT64_MAX};
    enum { VALUES = sizeof values / sizeof values[0] };
    struct ebb_event events[VALUES * VALUES * 2];
    memset(events, 0, sizeof events);
    size_t count = 0;
    for (size_t t = 0; t < VALUES; t++)
        for (size_t i = 0; i < VALUES * 2; i++) {
            struct ebb_event *event = &events[count++];
            event->time_ns = values[t];
            event->block = values[(i * 5 + 3) % VALUES];
            event->size_bytes = values[i % VALUES];
            event->thread = (uint32_t)values[(i * 3) % VALUES];
            event->kind = (uint8_t)(1 + i % (EBB_EVENT_KIND_COUNT - 1));
            event->access = (uint8_t)(i % 3);
            event->mark = (uint8_t)(i % EBB_MARK_COUNT);
            event->flags = (uint8_t)values[i % VALUES];
        }
    struct bytes sample = sample_bytes(events, count, 13);
    struct ebb_trace trace;
    assert_int_equal(ebb__trace_read_memory(sample.data, sample.size, "", &trace, NULL), EBB_OK);
    expect_events(&trace, events, count);
    ebb__trace_fini(&trace);
    free(sample.data);
}

static void test_long_command_is_cut(void **state)
{
    (void)state;
    struct ebb_trace_info info = sample_info;
    memset(info.command, 'x', sizeof info.command);
    char *path = in_folder("long.ebbt");
    struct ebb_trace_writer *writer;
    assert_int_equal(ebb__trace_writer_open(path, &info, &writer, NULL), EBB_OK);
    assert_int_equal(ebb__trace_writer_close(writer, NULL), EBB_OK);
    struct ebb_trace trace;
    assert_int_equal(ebb__trace_read(path, &trace, NULL), EBB_OK);
    assert_int_equal(strlen(trace.info.command), 255);
    assert_int_equal(trace.count, 0);
    assert_null(trace.events);
    assert_true(trace.complete);
    ebb__trace_fini(&trace);
    unlink(path);
}

static void test_writer_clamps_time(void **state)
{
    (void)state;
    static const uint64_t given[] = {5, 9, 3, 9, 10, 0}, expected[] = {5, 9, 9, 9, 10, 10};
    struct ebb_event events[6];
    memset(events, 0, sizeof events);
    for (size_t i = 0; i < 6; i++) {
        events[i].time_ns = given[i];
        events[i].kind = EBB_EVENT_LAUNCH;
    }
    for (size_t step = 0; step < 3; step++) {
        struct bytes sample = sample_bytes(events, 6, step);
        struct ebb_trace trace;
        assert_int_equal(ebb__trace_read_memory(sample.data, sample.size, "", &trace, NULL),
                         EBB_OK);
        assert_int_equal(trace.count, 6);
        for (size_t i = 0; i < 6; i++)
            assert_int_equal(trace.events[i].time_ns, expected[i]);
        ebb__trace_fini(&trace);
        free(sample.data);
    }
}

static void test_writer_refuses_what_no_event_is(void **state)
{
    (void)state;
    char *path = in_folder("refuse.ebbt");
    struct ebb_trace_writer *writer;
    struct ebb_error error;
    assert_int_equal(ebb__trace_writer_open(path, &sample_info, &writer, &error), EBB_OK);
    static const uint8_t bad[][3] = {{EBB_EVENT_NONE, 0, 0},
                                     {EBB_EVENT_KIND_COUNT, 0, 0},
                                     {EBB_EVENT_ACCESS, EBB_ACCESS_WRITE + 1, 0},
                                     {EBB_EVENT_MARK, 0, EBB_MARK_COUNT}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ebb_event *events = make_events(3, i);
        events[2].kind = bad[i][0];
        events[2].access = bad[i][1];
        events[2].mark = bad[i][2];
        assert_int_equal(ebb__trace_writer_append(writer, events, 3, &error), EBB_ERR_ARGUMENT);
        assert_non_null(strstr(error.why, "event 2 of 3"));
        free(events);
    }
    struct ebb_event *good = make_events(3, 1);
    assert_int_equal(ebb__trace_writer_append(writer, good, 3, &error), EBB_OK);
    assert_int_equal(ebb__trace_writer_close(writer, &error), EBB_OK);
    struct ebb_trace trace;
    assert_int_equal(ebb__trace_read(path, &trace, NULL), EBB_OK);
    expect_events(&trace, good, 3);
    ebb__trace_fini(&trace);
    free(good);
    unlink(path);
}

/* Flushed events are in the file although the writer is still open, or was killed. */
static void test_flushed_survives_a_kill(void **state)
{
    (void)state;
    struct ebb_event *events = make_events(70000, 3);
    char *path = in_folder("killed.ebbt");
    pid_t child = fork();
    if (!child) {
        struct ebb_trace_writer *writer;
        if (ebb__trace_writer_open(path, &sample_info, &writer, NULL) != EBB_OK ||
            ebb__trace_writer_append(writer, events, 100, NULL) != EBB_OK ||
            ebb__trace_writer_flush(writer, NULL) != EBB_OK ||
            ebb__trace_writer_flush(writer, NULL) != EBB_OK ||
            ebb__trace_writer_append(writer, events + 100, 69900, NULL) != EBB_OK)
            _exit(1);
        kill(getpid(), SIGKILL);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
    struct ebb_trace trace;
    assert_int_equal(ebb__trace_read(path, &trace, NULL), EBB_OK);
    expect_events(&trace, events, 100 + EBB_TRACE_BLOCK_EVENTS);
    assert_false(trace.complete);
    assert_int_equal(trace.damaged_bytes, 0);
    ebb__trace_fini(&trace);
    free(events);
    unlink(path);
}

static void test_corpus(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t count, step, cut_bytes, expected;
    } files[] = {{"empty.ebbt", 0, 0, 0, 0},
                 {"one.ebbt", 1, 0, 0, 1},
                 {"blocks.ebbt", 60, 20, 0, 60},
                 {"large.ebbt", 300, 0, 0, 300},
                 {"open.ebbt", 60, 20, EBB_TRACE_FOOTER_BYTES, 60},
                 {"torn.ebbt", 60, 20, EBB_TRACE_FOOTER_BYTES + 50, 40}};
    const char *source = getenv("EBB_SOURCE_DIR");
    if (!source)
        source = ".";
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/tests/corpus/trace/%s", source, files[i].name);
        struct ebb_event *events = make_events(files[i].count, i);
        if (getenv("EBB_BLESS")) {
            struct bytes sample = sample_bytes(events, files[i].count, files[i].step);
            save(path, sample.data, sample.size - files[i].cut_bytes);
            free(sample.data);
        }
        struct ebb_trace trace;
        struct ebb_error error = {0};
        if (ebb__trace_read(path, &trace, &error) != EBB_OK)
            fail_msg("%s: %s", error.what, error.why);
        expect_events(&trace, events, files[i].expected);
        assert_int_equal(trace.complete, !files[i].cut_bytes);
        assert_memory_equal(&trace.info, &sample_info, sizeof sample_info);
        ebb__trace_fini(&trace);
        free(events);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_extreme_values),
        cmocka_unit_test(test_long_command_is_cut),
        cmocka_unit_test(test_writer_clamps_time),
        cmocka_unit_test(test_writer_refuses_what_no_event_is),
        cmocka_unit_test(test_flushed_survives_a_kill),
        cmocka_unit_test(test_corpus),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
