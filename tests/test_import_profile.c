/* Importers of profiles: PyTorch's Chrome traces, and what all of them share. Blocks older than the
 * window, mixed devices and threads, lost events and clocks that go back give the events and the
 * notes that docs/formats/import.md defines. Damaged files are refused with the place. */
#include "lab/import/gzip.h"
#include "lab/import/import.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define TRACE(events) "{\"schemaVersion\": 1, \"traceEvents\": [" events "], \"traceName\": \"a\"}"
#define MEMORY(ts, tid, address, bytes, type, id, total)                                           \
    "{\"ph\": \"i\", \"name\": \"[memory]\", \"pid\": 9, \"tid\": " #tid ", \"ts\": " #ts          \
    ", \"args\": {\"Addr\": " #address ", \"Bytes\": " #bytes ", \"Device Type\": " #type          \
    ", \"Device Id\": " #id ", \"Total Allocated\": " #total "}}"
#define CPU(ts, address, bytes, total) MEMORY(ts, 7, address, bytes, 0, -1, total)

/* Imports `text`, and expects these events and notes. */
static void expect(const char *text, const char *device, const struct ebb_event *expected,
                   size_t count, const char *const *notes, size_t note_count)
{
    struct ebb_trace trace;
    struct ebb_error error = {0};
    struct ebb_import_request request = {.name = "sample", .device = device};
    const struct ebb_importer *importer = ebb__importer_find("torch-profile");
    const uint8_t *bytes = (const uint8_t *)text;
    assert_true(importer->recognises(bytes, strlen(text)));
    if (ebb__import_memory(importer, bytes, strlen(text), &request, &trace, &error))
        fail_msg("%s: %s", error.what, error.why);
    assert_int_equal(trace.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(trace.events[i].time_ns, expected[i].time_ns);
        assert_int_equal(trace.events[i].block, expected[i].block);
        assert_int_equal(trace.events[i].size_bytes, expected[i].size_bytes);
        assert_int_equal(trace.events[i].kind, expected[i].kind);
        assert_int_equal(trace.events[i].mark, expected[i].mark);
    }
    assert_int_equal(request.note_count, note_count);
    for (size_t i = 0; i < note_count; i++)
        assert_string_equal(request.notes[i], notes[i]);
    ebb__trace_fini(&trace);
}

static void expect_refused_as(const void *bytes, size_t size, const char *device,
                              enum ebb_status status, const char *why)
{
    struct ebb_trace trace;
    struct ebb_error error = {0};
    struct ebb_import_request request = {.name = "sample", .device = device};
    assert_int_equal(ebb__import_memory(ebb__importer_find("torch-profile"), bytes, size, &request,
                                        &trace, &error),
                     status);
    assert_string_equal(error.why, why);
    assert_null(trace.events);
}

static void expect_refused(const char *text, const char *why)
{
    expect_refused_as(text, strlen(text), NULL, EBB_ERR_FORMAT, why);
}

static void test_window(void **state)
{
    (void)state;
    static const struct ebb_event expected[] = {
        {0, 0, 0, EBB_EVENT_MARK, 0, EBB_MARK_ITERATION, 0, 0},
        {500, 1, 100, EBB_EVENT_ALLOC, 0, 0, 0, 0},
        {1250, 2, 30, EBB_EVENT_FREE, 0, 0, 0, 0}, /* older than the window */
        {2000, 1, 100, EBB_EVENT_FREE, 0, 0, 0, 0},
        {3000, 3, 64, EBB_EVENT_ALLOC, 0, 0, 0, 0}, /* the address again */
    };
    static const char *const notes[] = {
        "older than the window, counted from its start: 1 blocks, 30 B",
        "left out, allocated throughout the window and in no event: 1.00 KiB"};
    expect(TRACE("{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::add\", \"ts\": 9, "
                 "\"dur\": 1},"
                 "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#4\", "
                 "\"ts\": 10, \"pid\": 9, \"tid\": 7}," CPU(10.5, 16, 100, 1154) "," CPU(
                     11.25, 32, -30, 1124) "," CPU(12, 16, -100, 1024) "," CPU(13, 16, 64, 1088)),
           NULL, expected, 5, notes, 2);
}

static void test_threads_and_devices(void **state)
{
    (void)state;
    static const struct ebb_event expected[] = {
        {0, 1, 8, EBB_EVENT_ALLOC, 0, 0, 0, 0},
        {2000, 2, 16, EBB_EVENT_ALLOC, 0, 0, 0, 0}, /* of another thread, later in the file */
        {4000, 1, 8, EBB_EVENT_FREE, 0, 0, 0, 0},
    };
    static const char two[] = TRACE(MEMORY(1, 7, 16, 8, 1, 0, 8) "," MEMORY(
        5, 7, 16, -8, 1, 0, 16) "," MEMORY(3, 8, 32, 16, 1, 0, 24) "," CPU(2, 16, 99, 99));
    expect(two, "cuda:0", expected, 3, NULL, 0);
    expect_refused_as(two, sizeof two - 1, NULL, EBB_ERR_UNSUPPORTED,
                      "has several devices: cuda:0 (3 events), cpu (1 events)");
    expect_refused_as(two, sizeof two - 1, "cuda:1", EBB_ERR_ARGUMENT,
                      "has no device 'cuda:1'; it has cuda:0 (3 events), cpu (1 events)");
    static const struct ebb_event one[] = {{0, 1, 99, EBB_EVENT_ALLOC, 0, 0, 0, 0}};
    expect(two, "cpu", one, 1, NULL, 0);
    /* Traces of several ranks in one file: the processes are named. */
    static const char ranks[] = TRACE(
        CPU(1, 16, 99, 99) ",{\"name\": \"[memory]\", \"pid\": \"rank 1\", \"ts\": 1, \"args\": "
                           "{\"Addr\": 16, \"Bytes\": 8, \"Device Type\": 0, \"Device Id\": -1}}");
    expect_refused_as(ranks, sizeof ranks - 1, NULL, EBB_ERR_UNSUPPORTED,
                      "has several devices: 9/cpu (1 events), rank 1/cpu (1 events)");
    expect(ranks, "9/cpu", one, 1, NULL, 0);
}

static void test_lost_events(void **state)
{
    (void)state;
    static const struct ebb_event expected[] = {
        {0, 1, 100, EBB_EVENT_ALLOC, 0, 0, 0, 0},
        {1000, 1, 100, EBB_EVENT_FREE, 0, 0, 0, 0},
        {3000, 2, 40, EBB_EVENT_ALLOC, 0, 0, 0, 0},
        {4000, 2, 40, EBB_EVENT_FREE, 0, 0, 0, 0}, /* its free is lost */
        {4000, 3, 50, EBB_EVENT_ALLOC, 0, 0, 0, 0},
        {5000, 3, 50, EBB_EVENT_FREE, 0, 0, 0, 0},
    };
    static const char *const notes[] = {
        "left out, frees of blocks that are already freed: 1, the first at event 3, address 0x10",
        "blocks that end where their address is allocated again: 1, the first at event 5, address "
        "0x10",
        "frees of another size than their block, which counts: 1, the first at event 6, address 0x10",
        "the events add up to a peak of 100 B, but the profiler's totals to 150 B"};
    expect(TRACE(CPU(1, 16, 100, 100) "," CPU(2, 16, -100, 0) "," CPU(3, 16, -100, 0) "," CPU(
               4, 16, 40, 40) "," CPU(5, 16, 50, 150) "," CPU(6, 16, -51, 99)),
           NULL, expected, 6, notes, 4);
}

static void test_clock(void **state)
{
    (void)state;
    static const struct ebb_event by_time[] = {
        {0, 1, 8, EBB_EVENT_ALLOC, 0, 0, 0, 0},
        {2000, 2, 16, EBB_EVENT_ALLOC, 0, 0, 0, 0},
        {4000, 1, 8, EBB_EVENT_FREE, 0, 0, 0, 0},
    };
    static const char *const sorted[] = {
        "times at which the clock goes back: 1, the first at event 3; the order is that of the times"};
    expect(TRACE(CPU(1, 16, 8, 8) "," CPU(5, 16, -8, 16) "," CPU(3, 32, 16, 24)), NULL, by_time, 3,
           sorted, 1);
    static const struct ebb_event by_file[] = {
        {0, 1, 8, EBB_EVENT_ALLOC, 0, 0, 0, 0},
        {4000, 1, 8, EBB_EVENT_FREE, 0, 0, 0, 0},
        {4000, 2, 16, EBB_EVENT_ALLOC, 0, 0, 0, 0}, /* raised */
    };
    static const char *const kept[] = {
        "times at which the clock goes back: 1, the first at event 3; the order "
        "is that of the file, by the profiler's totals"};
    expect(TRACE(CPU(1, 16, 8, 8) "," CPU(5, 16, -8, 0) "," CPU(3, 32, 16, 16)), NULL, by_file, 3,
           kept, 1);
}

static void test_refused(void **state)
{
    (void)state;
    expect_refused(TRACE(""), "has no memory events: PyTorch writes them with profile_memory=True");
    expect_refused("{\"schemaVersion\": 1}", "has no traceEvents, so it is no Chrome trace");
    expect_refused("[]", "has no memory events: PyTorch writes them with profile_memory=True");
    expect_refused("{\"traceEvents\": [", "byte 17: the file ends within its JSON");
    expect_refused("{\"traceEvents\": [{\"name\": \"a", "byte 28: the file ends within its JSON");
    expect_refused("{\"traceEvents\": [{\"name\": \"a\"}",
                   "byte 30: the file ends within its events");
    expect_refused("{\"traceEvents\": [{\"name\": nul}]}",
                   "byte 29: no valid JSON: invalid token near 'nul'");
    expect_refused("{\"traceEvents\": [{} {}]}",
                   "byte 20: an event is followed by neither comma nor bracket");
    expect_refused(TRACE(CPU(-1, 16, 8, 8)), "event 1: ts is no time in microseconds");
    expect_refused(TRACE(CPU(1, 16, 8.5, 8)), "event 1: Bytes is not a whole number");
    expect_refused(TRACE(CPU(1, 16, 281474976710657, 8)),
                   "event 1: a block of 281474976710657 bytes is impossibly large");
    expect_refused(TRACE(MEMORY(1, 7, 16, 8, 99, 0, 8)), "event 1: Device Type is not known");
    expect_refused(TRACE("{}, {\"name\": \"[memory]\", \"ts\": 1, \"args\": {\"Addr\": 1}}"),
                   "event 2: Bytes is missing");
    expect_refused(TRACE("{\"name\": \"[memory]\", \"ts\": 1}"), "event 1: [memory] has no args");
}

/* Compresses `text` as one gzip member. */
static size_t compress_text(const char *text, uint8_t *out, size_t size)
{
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = (Bytef *)(uintptr_t)text;
    stream.avail_in = (uInt)strlen(text);
    stream.next_out = out;
    stream.avail_out = (uInt)size;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    size_t used = size - stream.avail_out;
    deflateEnd(&stream);
    return used;
}

static void test_gzip(void **state)
{
    (void)state;
    static const char half[] = "{\"traceEvents\": [" CPU(1, 16, 8, 8) ",";
    static const char rest[] = CPU(2, 16, -8, 0) "]}";
    uint8_t packed[2048];
    size_t first = compress_text(half, packed, sizeof packed);
    size_t size = first + compress_text(rest, packed + first, sizeof packed - first);
    struct ebb_file_content plain;
    struct ebb_error error = {0};
    assert_int_equal(ebb__gzip_read(packed, size, "sample", &plain, &error), EBB_OK);
    assert_int_equal(plain.size, strlen(half) + strlen(rest));
    assert_memory_equal(plain.bytes, half, strlen(half));
    assert_memory_equal(plain.bytes + strlen(half), rest, strlen(rest));
    free(plain.bytes);
    struct ebb_trace trace;
    struct ebb_import_request request = {.name = "sample"};
    assert_int_equal(ebb__import_memory(ebb__importer_find("torch-profile"), packed, size, &request,
                                        &trace, &error),
                     EBB_OK);
    assert_int_equal(trace.count, 2);
    ebb__trace_fini(&trace);
    char why[100];
    for (size_t cut = 3; cut < size; cut++) {
        if (cut == first) /* the first member alone is whole */
            continue;
        bool short_head = cut > first && cut < first + 3;
        snprintf(why, sizeof why,
                 short_head ? "byte %zu: its compressed data (gzip) is followed by other data"
                            : "byte %zu: the file ends within its compressed data (gzip)",
                 short_head ? first : cut);
        expect_refused_as(packed, cut, NULL, EBB_ERR_FORMAT, why);
    }
    packed[first - 5] ^= 1; /* the checksum */
    snprintf(why, sizeof why, "byte %zu: its compressed data (gzip) is damaged", first - 4);
    expect_refused_as(packed, size, NULL, EBB_ERR_FORMAT, why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_window),      cmocka_unit_test(test_threads_and_devices),
        cmocka_unit_test(test_lost_events), cmocka_unit_test(test_clock),
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_gzip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
