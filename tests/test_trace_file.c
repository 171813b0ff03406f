/* The trace file: what is written is read; what is torn is cut; what is damaged is refused.
 *
 * EBB_BLESS=1 writes the files of tests/corpus/trace anew instead of reading them. They pin the
 * format (an old file must stay readable) and are the seeds of fuzz_trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trace/codec.h"
#include "trace/file.h"
#include "trace_repair.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

static char folder[64];

static char *in_folder(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 29;
}

/* Events as a training loop makes them: `count` of them, the same for the same seed for ever, since
 * the corpus is made of them. */
static struct ebb_event *make_events(size_t count, uint64_t seed)
{
    struct ebb_event *events = calloc(count + 1, sizeof *events);
    assert_non_null(events);
    uint64_t time_ns = 5000, serial = 0;
    for (size_t i = 0; i < count; i++) {
        struct ebb_event *event = &events[i];
        uint64_t random = next_random(&seed);
        event->time_ns = time_ns += random % 3 ? random % 4000 : 0;
        event->thread = 4242 + (random % 16 == 0);
        event->kind = (uint8_t)(1 + random % 5);
        if (event->kind == EBB_EVENT_MARK) {
            event->mark = (uint8_t)(random / 8 % 10);
            event->size_bytes = random % 100;
            continue;
        }
        event->block = event->kind == EBB_EVENT_ALLOC ? ++serial : serial - random % (serial + 1);
        event->size_bytes = (random % 64 + 1) << 20;
        if (event->kind == EBB_EVENT_ACCESS) {
            event->access = (uint8_t)(random % 3);
            event->flags = (uint8_t)(random % 7 ? 0 : EBB_EVENT_DEMAND);
        }
    }
    return events;
}

static const struct ebb_trace_info sample_info = {.command = "./train --epochs 3",
                                                  .threshold_bytes = 65536,
                                                  .page_bytes = 4096,
                                                  .start_unix_ns = 1767225600000000000u,
                                                  .process_id = 4711};

struct bytes {
    uint8_t *data;
    size_t size;
};

static struct bytes load(const char *path)
{
    struct bytes content = {0};
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s: %s", path, strerror(errno));
    struct stat found;
    assert_int_equal(fstat(fileno(file), &found), 0);
    content.size = (size_t)found.st_size;
    content.data = malloc(content.size + 1);
    assert_non_null(content.data);
    assert_int_equal(fread(content.data, 1, content.size, file), content.size);
    fclose(file);
    return content;
}

static void save(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    if (!file)
        fail_msg("%s: %s", path, strerror(errno));
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* A writer that flushes after every `step` events (0: never), to the end. */
static void write_trace(const char *path, const struct ebb_event *events, size_t count, size_t step)
{
    struct ebb_trace_writer *writer;
    struct ebb_error error;
    assert_int_equal(ebb__trace_writer_open(path, &sample_info, &writer, &error), EBB_OK);
    if (!step)
        assert_int_equal(ebb__trace_writer_append(writer, events, count, &error), EBB_OK);
    for (size_t i = 0; step && i < count; i += step) {
        size_t some = count - i < step ? count - i : step;
        assert_int_equal(ebb__trace_writer_append(writer, events + i, some, &error), EBB_OK);
        assert_int_equal(ebb__trace_writer_flush(writer, &error), EBB_OK);
    }
    assert_int_equal(ebb__trace_writer_close(writer, &error), EBB_OK);
}

static struct bytes sample_bytes(const struct ebb_event *events, size_t count, size_t step)
{
    char *path = in_folder("sample.ebbt");
    write_trace(path, events, count, step);
    struct bytes sample = load(path);
    unlink(path);
    return sample;
}

static bool is_prefix(const struct ebb_trace *trace, const struct ebb_event *events, size_t count)
{
    return trace->count <= count &&
           (!trace->count || !memcmp(trace->events, events, trace->count * sizeof *events));
}

static void expect_events(const struct ebb_trace *trace, const struct ebb_event *events,
                          size_t count)
{
    assert_int_equal(trace->count, count);
    assert_true(is_prefix(trace, events, count));
}

/* Reads `bytes` and expects a failure whose `why` contains `why`. */
static struct ebb_error expect_failure(const void *bytes, size_t size, enum ebb_status status,
                                       const char *why)
{
    struct ebb_trace trace;
    struct ebb_error error = {0};
    enum ebb_status got = ebb__trace_read_memory(bytes, size, "it.ebbt", &trace, &error);
    if (got != status || error.status != status || !strstr(error.why, why))
        fail_msg("expected %d \"%s\", got %d \"%s\"", status, why, got, error.why);
    assert_string_equal(error.what, "it.ebbt");
    assert_null(trace.events);
    ebb__trace_fini(&trace);
    return error;
}

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

/* What was flushed is there although the writer is still open, or was killed. */
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

static void test_every_flipped_byte(void **state)
{
    (void)state;
    enum { COUNT = 60 };
    struct ebb_event *events = make_events(COUNT, 9);
    struct bytes sample = sample_bytes(events, COUNT, 20);
    size_t refused = 0, shortened = 0;
    static const uint8_t patterns[] = {1, 2, 4, 8, 16, 32, 64, 128, 255};
    enum { PATTERNS = sizeof patterns };
    for (size_t at = 0; at < sample.size; at++)
        for (size_t i = 0; i < PATTERNS; i++) {
            unsigned bits = patterns[i];
            sample.data[at] ^= (uint8_t)bits;
            struct ebb_trace trace;
            struct ebb_error error = {0};
            enum ebb_status status =
                ebb__trace_read_memory(sample.data, sample.size, "it", &trace, &error);
            if (status == EBB_OK) {
                if (!is_prefix(&trace, events, COUNT) || trace.complete || !trace.damaged_bytes ||
                    memcmp(&trace.info, &sample_info, sizeof sample_info))
                    fail_msg("byte %zu, bits %x: wrong result", at, bits);
                shortened++;
            } else if (status != EBB_ERR_FORMAT) {
                fail_msg("byte %zu, bits %x: status %d, %s", at, bits, status, error.why);
            } else {
                refused++;
            }
            ebb__trace_fini(&trace);
            sample.data[at] ^= (uint8_t)bits;
        }
    /* All but a damaged footer, which holds no events, is refused. */
    assert_int_equal(shortened, EBB_TRACE_FOOTER_BYTES * PATTERNS);
    assert_int_equal(refused, (sample.size - EBB_TRACE_FOOTER_BYTES) * PATTERNS);
    free(sample.data);
    free(events);
}

/* The same for a file without footer: damage in its last block cuts it, elsewhere refuses it. */
static void test_every_flipped_byte_without_footer(void **state)
{
    (void)state;
    enum { COUNT = 60 };
    struct ebb_event *events = make_events(COUNT, 11);
    struct bytes sample = sample_bytes(events, COUNT, 20);
    sample.size -= EBB_TRACE_FOOTER_BYTES;
    size_t shortened = 0;
    for (size_t at = 0; at < sample.size; at++) {
        sample.data[at] ^= 0x40;
        struct ebb_trace trace;
        enum ebb_status status = ebb__trace_read_memory(sample.data, sample.size, "", &trace, NULL);
        assert_true(status == EBB_OK || status == EBB_ERR_FORMAT);
        if (status == EBB_OK) {
            expect_events(&trace, events, 40);
            assert_false(trace.complete);
            shortened++;
        }
        ebb__trace_fini(&trace);
        sample.data[at] ^= 0x40;
    }
    assert_true(shortened > 0);
    free(sample.data);
    free(events);
}

static void test_only_block_torn(void **state)
{
    (void)state;
    struct ebb_event *events = make_events(20, 41);
    struct bytes sample = sample_bytes(events, 20, 0);
    sample.size -= EBB_TRACE_FOOTER_BYTES;
    sample.data[sample.size - 1] ^= 1;
    struct ebb_trace trace;
    assert_int_equal(ebb__trace_read_memory(sample.data, sample.size, "", &trace, NULL), EBB_OK);
    assert_int_equal(trace.count, 0);
    assert_null(trace.events);
    assert_false(trace.complete);
    assert_int_equal(trace.damaged_bytes, sample.size - ebb__get_le32(sample.data + 12));
    ebb__trace_fini(&trace);
    free(sample.data);
    free(events);
}

static void test_every_truncation(void **state)
{
    (void)state;
    enum { COUNT = 60 };
    struct ebb_event *events = make_events(COUNT, 13);
    struct bytes sample = sample_bytes(events, COUNT, 20);
    size_t header_bytes = EBB_TRACE_HEADER_MIN_BYTES + strlen(sample_info.command);
    size_t last_count = 0;
    for (size_t size = 0; size < sample.size; size++) {
        /* A copy of exactly that size, so that a sanitizer sees a byte too far. */
        uint8_t *cut = malloc(size + !size);
        assert_non_null(cut);
        memcpy(cut, sample.data, size);
        if (size < header_bytes) {
            expect_failure(cut, size, EBB_ERR_FORMAT, size ? "ends within its header" : "is empty");
        } else {
            struct ebb_trace trace;
            assert_int_equal(ebb__trace_read_memory(cut, size, "", &trace, NULL), EBB_OK);
            assert_true(is_prefix(&trace, events, COUNT));
            assert_int_equal(trace.count % 20, 0);
            assert_true(trace.count >= last_count);
            assert_false(trace.complete);
            assert_memory_equal(&trace.info, &sample_info, sizeof sample_info);
            last_count = trace.count;
            ebb__trace_fini(&trace);
        }
        free(cut);
    }
    assert_int_equal(last_count, COUNT);
    free(sample.data);
    free(events);
}

/* Where the block with index `index` of `sample` begins. */
static size_t block_offset(struct bytes sample, size_t index)
{
    size_t at = ebb__get_le32(sample.data + 12);
    while (index--)
        at += EBB_TRACE_BLOCK_HEADER_BYTES + ebb__get_le32(sample.data + at + 4);
    assert_true(at < sample.size);
    return at;
}

static void test_damage_names_the_byte(void **state)
{
    (void)state;
    struct ebb_event *events = make_events(60, 17);
    struct bytes sample = sample_bytes(events, 60, 20);
    char expected[96];
    for (size_t i = 0; i < 3; i++) {
        size_t at = block_offset(sample, i);
        sample.data[at + EBB_TRACE_BLOCK_HEADER_BYTES + 3] ^= 1;
        snprintf(expected, sizeof expected, "at byte %zu: the block's checksum", at);
        struct ebb_error error = expect_failure(sample.data, sample.size, EBB_ERR_FORMAT, expected);
        assert_true(error.remedy[0]);
        sample.data[at + EBB_TRACE_BLOCK_HEADER_BYTES + 3] ^= 1;
    }
    free(sample.data);
    free(events);
}

static void test_zeros_at_the_end_are_a_tail(void **state)
{
    (void)state;
    struct ebb_event *events = make_events(40, 19);
    struct bytes sample = sample_bytes(events, 40, 20);
    size_t whole = sample.size - EBB_TRACE_FOOTER_BYTES;
    uint8_t *longer = calloc(1, whole + 5000);
    assert_non_null(longer);
    memcpy(longer, sample.data, whole);
    struct ebb_trace trace;
    assert_int_equal(ebb__trace_read_memory(longer, whole + 5000, "", &trace, NULL), EBB_OK);
    expect_events(&trace, events, 40);
    assert_false(trace.complete);
    assert_int_equal(trace.damaged_bytes, 5000);
    ebb__trace_fini(&trace);
    longer[whole + 4999] = 1;
    expect_failure(longer, whole + 5000, EBB_ERR_FORMAT, "neither a block nor the footer");
    free(longer);
    free(sample.data);
    free(events);
}

static void test_blocks_lost_or_moved(void **state)
{
    (void)state;
    struct ebb_event *events = make_events(60, 23);
    struct bytes sample = sample_bytes(events, 60, 20);
    size_t first = block_offset(sample, 0), second = block_offset(sample, 1);
    size_t third = block_offset(sample, 2), footer = sample.size - EBB_TRACE_FOOTER_BYTES;
    uint8_t *other = malloc(sample.size * 2);
    assert_non_null(other);

    memcpy(other, sample.data, second);
    memcpy(other + second, sample.data + third, sample.size - third);
    expect_failure(other, sample.size - (third - second), EBB_ERR_FORMAT, "missing or moved");

    memcpy(other, sample.data, first);
    memcpy(other + first, sample.data + second, third - second);
    memcpy(other + first + third - second, sample.data + first, second - first);
    memcpy(other + third, sample.data + third, sample.size - third);
    expect_failure(other, sample.size, EBB_ERR_FORMAT, "missing or moved");

    memcpy(other, sample.data, third);
    memcpy(other + third, sample.data + footer, EBB_TRACE_FOOTER_BYTES);
    expect_failure(other, third + EBB_TRACE_FOOTER_BYTES, EBB_ERR_FORMAT, "footer counts other");

    memcpy(other, sample.data, sample.size);
    memcpy(other + sample.size, sample.data, sample.size);
    expect_failure(other, sample.size * 2, EBB_ERR_FORMAT, "more behind the footer");
    free(other);
    free(sample.data);
    free(events);
}

static void test_versions(void **state)
{
    (void)state;
    struct ebb_event *events = make_events(5, 29);
    struct bytes sample = sample_bytes(events, 5, 0);

    ebb__put_le16(sample.data + 8, EBB_TRACE_MAJOR + 1);
    expect_failure(sample.data, sample.size, EBB_ERR_FORMAT, "the header's checksum");
    trace_repair(sample.data, sample.size);
    struct ebb_error error =
        expect_failure(sample.data, sample.size, EBB_ERR_VERSION, "has trace format 2.0");
    assert_non_null(strstr(error.remedy, "newer"));
    ebb__put_le16(sample.data + 8, 0);
    trace_repair(sample.data, sample.size);
    expect_failure(sample.data, sample.size, EBB_ERR_FORMAT, "impossible version");

    /* A newer minor version: a longer header is fine ... */
    size_t header_bytes = ebb__get_le32(sample.data + 12), more = 24;
    uint8_t *minor = calloc(1, sample.size + more);
    assert_non_null(minor);
    memcpy(minor, sample.data, header_bytes - 8);
    memcpy(minor + header_bytes + more, sample.data + header_bytes, sample.size - header_bytes);
    ebb__put_le16(minor + 8, EBB_TRACE_MAJOR);
    ebb__put_le16(minor + 10, EBB_TRACE_MINOR + 1);
    ebb__put_le32(minor + 12, (uint32_t)(header_bytes + more));
    trace_repair(minor, sample.size + more);
    struct ebb_trace trace;
    assert_int_equal(ebb__trace_read_memory(minor, sample.size + more, "", &trace, NULL), EBB_OK);
    expect_events(&trace, events, 5);
    assert_string_equal(trace.info.command, sample_info.command);
    ebb__trace_fini(&trace);
    free(minor);
    free(sample.data);
    free(events);
}

/* What the header of a forged block says; payload_bytes 0 stands for the truth. */
struct claim {
    uint32_t payload_bytes, event_count, columns_bytes;
    uint64_t first_event;
};

/* A trace of one block with these columns and true checksums, unfinished; returns its size. */
static size_t forge(uint8_t *out, size_t capacity, uint16_t minor, const uint8_t *columns,
                    size_t columns_bytes, const struct claim *claim)
{
    memset(out, 0, EBB_TRACE_HEADER_MIN_BYTES);
    memcpy(out, EBB_TRACE_MAGIC, EBB_TRACE_MAGIC_BYTES);
    ebb__put_le16(out + 8, EBB_TRACE_MAJOR);
    ebb__put_le16(out + 10, minor);
    ebb__put_le32(out + 12, EBB_TRACE_HEADER_MIN_BYTES);
    uint8_t *block = out + EBB_TRACE_HEADER_MIN_BYTES;
    uint8_t *payload = block + EBB_TRACE_BLOCK_HEADER_BYTES;
    size_t used = (size_t)(payload - out);
    size_t packed = ZSTD_compress(payload, capacity - used, columns, columns_bytes, 1);
    assert_false(ZSTD_isError(packed));
    ebb__put_le32(block, EBB_TRACE_BLOCK_MAGIC);
    ebb__put_le32(block + 4, claim->payload_bytes ? claim->payload_bytes : (uint32_t)packed);
    ebb__put_le32(block + 8, claim->event_count);
    ebb__put_le32(block + 12, claim->columns_bytes);
    ebb__put_le64(block + 16, claim->first_event);
    trace_repair(out, used + packed);
    return used + packed;
}

/* Columns of one event: kind, access, mark, flags, time, block, size, thread. */
static void test_hostile_blocks(void **state)
{
    (void)state;
    static uint8_t file[65536];
    static const struct {
        struct claim claim;   /* what the header says */
        size_t columns_bytes; /* how many of these there are */
        uint8_t columns[32];
        const char *why;
    } cases[] = {
        {{0, 0, 8, 0}, 8, {1}, "impossible block size"},
        {{0, 65537, 65537 * 8, 0}, 8, {1}, "impossible block size"},
        {{0, UINT32_MAX, UINT32_MAX, 0}, 8, {1}, "impossible block size"},
        {{0, 1, 7, 0}, 8, {1}, "impossible block size"},
        {{0, 1, 40, 0}, 8, {1}, "impossible block size"},
        {{0, 1, UINT32_MAX, 0}, 8, {1}, "impossible block size"},
        {{0, 1, 8, 1}, 8, {1}, "missing or moved"},
        {{0, 1, 8, UINT64_MAX}, 8, {1}, "missing or moved"},
        {{0, 1, 9, 0}, 8, {1}, "does not decompress"},
        {{0, 1, 8, 0}, 9, {1}, "does not decompress"},
        {{0, 2, 16, 0}, 8, {1, 1}, "does not decompress"},
        {{0, 1, 8, 0}, 8, {EBB_EVENT_NONE}, "unknown event"},
        {{0, 1, 8, 0}, 8, {EBB_EVENT_KIND_COUNT}, "unknown event"},
        {{0, 1, 8, 0}, 8, {255}, "unknown event"},
        {{0, 1, 8, 0}, 8, {EBB_EVENT_ACCESS, EBB_ACCESS_WRITE + 1}, "unknown event"},
        {{0, 1, 8, 0}, 8, {EBB_EVENT_MARK, 0, EBB_MARK_COUNT}, "unknown event"},
        /* A byte too many; the last number does not end; it is longer than it need be. */
        {{0, 1, 9, 0}, 9, {1}, "does not decode"},
        {{0, 1, 8, 0}, 8, {1, 0, 0, 0, 0, 0, 0, 0x80}, "does not decode"},
        {{0, 1, 9, 0}, 9, {1, 0, 0, 0, 0, 0, 0, 0x80, 0}, "does not decode"},
        /* A thread over 32 bits; a time over 64, and one of eleven bytes. */
        {{0, 1, 12, 0}, 12, {1, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 0x10}, "does not decode"},
        {{0, 1, 17, 0},
         17,
         {1, 0, 0, 0, 128, 128, 128, 128, 128, 128, 128, 128, 128, 2},
         "does not decode"},
        {{0, 1, 18, 0},
         18,
         {1, 0, 0, 0, 128, 128, 128, 128, 128, 128, 128, 128, 128, 129, 1},
         "does not decode"},
        /* Two times, each of 64 bits, that together have more. */
        {{0, 2, 25, 0},
         25,
         {1, 1, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 1},
         "overflows"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t size = forge(file, sizeof file, EBB_TRACE_MINOR, cases[i].columns,
                            cases[i].columns_bytes, &cases[i].claim);
        expect_failure(file, size, EBB_ERR_FORMAT, cases[i].why);
    }
    /* The same bytes told truly: it is the claims that were refused above. */
    static const uint8_t columns[8] = {EBB_EVENT_ALLOC, 0, 0, 0, 7, 2, 99, 0};
    struct claim claim = {.event_count = 1, .columns_bytes = 8};
    size_t size = forge(file, sizeof file, EBB_TRACE_MINOR, columns, 8, &claim);
    struct ebb_trace trace;
    assert_int_equal(ebb__trace_read_memory(file, size, "", &trace, NULL), EBB_OK);
    assert_int_equal(trace.count, 1);
    assert_int_equal(trace.events[0].time_ns, 7);
    assert_int_equal(trace.events[0].block, 1);
    assert_int_equal(trace.events[0].size_bytes, 99);
    ebb__trace_fini(&trace);
}

static void test_unknown_event_of_a_newer_minor_version(void **state)
{
    (void)state;
    uint8_t file[256];
    static const uint8_t columns[8] = {EBB_EVENT_KIND_COUNT};
    struct claim claim = {.event_count = 1, .columns_bytes = 8};
    size_t size = forge(file, sizeof file, EBB_TRACE_MINOR + 1, columns, 8, &claim);
    expect_failure(file, size, EBB_ERR_VERSION, "has trace format 1.");
}

/* A small payload that expands to far more than the block may hold stops at what it declared. */
static void test_bomb(void **state)
{
    (void)state;
    static uint8_t file[65536];
    size_t bomb_bytes = 64u << 20;
    uint8_t *bomb = calloc(1, bomb_bytes);
    assert_non_null(bomb);
    struct claim claim = {.event_count = 65536, .columns_bytes = 65536 * 39};
    size_t size = forge(file, sizeof file, EBB_TRACE_MINOR, bomb, bomb_bytes, &claim);
    expect_failure(file, size, EBB_ERR_FORMAT, "does not decompress");
    free(bomb);
}

static void test_time_falls_between_blocks(void **state)
{
    (void)state;
    struct ebb_event events[2];
    memset(events, 0, sizeof events);
    events[0].kind = events[1].kind = EBB_EVENT_LAUNCH;
    events[0].time_ns = 100;
    events[1].time_ns = 100;
    struct bytes sample = sample_bytes(events, 2, 1);
    struct ebb_trace trace;
    assert_int_equal(ebb__trace_read_memory(sample.data, sample.size, "", &trace, NULL), EBB_OK);
    ebb__trace_fini(&trace);
    /* Blocks this small are stored as they are: the time is the fifth byte of the columns. */
    uint8_t *payload = sample.data + block_offset(sample, 1) + EBB_TRACE_BLOCK_HEADER_BYTES;
    uint8_t *time = memchr(payload, 100, ebb__get_le32(payload - EBB_TRACE_BLOCK_HEADER_BYTES + 4));
    assert_non_null(time);
    *time = 99;
    trace_repair(sample.data, sample.size);
    expect_failure(sample.data, sample.size, EBB_ERR_FORMAT, "time falls");
    free(sample.data);
}

/* Blocks that claim more events than the machine has memory for. Their payloads are never read. */
static void test_more_than_memory(void **state)
{
    (void)state;
    uint64_t memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    size_t block_count = (size_t)(memory_bytes / (65536 * 32)) + 1, block_bytes = 41;
    size_t size = EBB_TRACE_HEADER_MIN_BYTES + block_count * block_bytes;
    uint8_t *file = calloc(1, size);
    assert_non_null(file);
    memcpy(file, EBB_TRACE_MAGIC, EBB_TRACE_MAGIC_BYTES);
    ebb__put_le16(file + 8, EBB_TRACE_MAJOR);
    ebb__put_le32(file + 12, EBB_TRACE_HEADER_MIN_BYTES);
    for (size_t i = 0; i < block_count; i++) {
        uint8_t *block = file + EBB_TRACE_HEADER_MIN_BYTES + i * block_bytes;
        ebb__put_le32(block, EBB_TRACE_BLOCK_MAGIC);
        ebb__put_le32(block + 4, 1);
        ebb__put_le32(block + 8, 65536);
        ebb__put_le32(block + 12, 65536 * 8);
        ebb__put_le64(block + 16, i * 65536);
    }
    trace_repair(file, size);
    expect_failure(file, size, EBB_ERR_MEMORY, "of memory");
    free(file);
}

static void test_what_is_no_trace(void **state)
{
    (void)state;
    expect_failure("", 0, EBB_ERR_FORMAT, "is empty, not an Ebb trace");
    expect_failure("hello", 5, EBB_ERR_FORMAT, "not an Ebb trace");
    expect_failure("\x7f"
                   "ELF.................................................",
                   60, EBB_ERR_FORMAT, "not an Ebb trace");
    expect_failure(EBB_TRACE_MAGIC, 8, EBB_ERR_FORMAT, "ends within its header");
}

static void expect_read_failure(const char *path, enum ebb_status status, const char *why)
{
    struct ebb_trace trace;
    struct ebb_error error = {0};
    assert_int_equal(ebb__trace_read(path, &trace, &error), status);
    assert_string_equal(error.what, path);
    if (!strstr(error.why, why))
        fail_msg("expected \"%s\", got \"%s\"", why, error.why);
    assert_null(trace.events);
}

static void test_paths_that_cannot_be_read(void **state)
{
    (void)state;
    expect_read_failure(in_folder("missing.ebbt"), EBB_ERR_IO, "No such file");
    expect_read_failure(folder, EBB_ERR_IO, "is a directory");
    expect_read_failure("/dev/zero", EBB_ERR_IO, "neither a file nor a pipe");
    char *path = in_folder("other");
    save(path, "", 0);
    expect_read_failure(path, EBB_ERR_FORMAT, "is empty");
    char text[10000];
    memset(text, 'x', sizeof text);
    save(path, text, sizeof text);
    expect_read_failure(path, EBB_ERR_FORMAT, "not an Ebb trace");
    assert_int_equal(chmod(path, 0), 0);
    bool root = !geteuid();
    if (root)
        assert_int_equal(seteuid(65534), 0);
    expect_read_failure(path, EBB_ERR_IO, "Permission denied");
    if (root)
        assert_int_equal(seteuid(0), 0);
    unlink(path);
}

/* 100 GiB of nothing, and 100 GiB that begin as a trace does: neither is read into memory. */
static void test_sparse_giants(void **state)
{
    (void)state;
    char *path = in_folder("giant");
    save(path, "no trace", 8);
    off_t giant = (off_t)100 << 30;
    if (truncate(path, giant))
        skip();
    expect_read_failure(path, EBB_ERR_FORMAT, "not an Ebb trace");
    uint64_t memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    save(path, EBB_TRACE_MAGIC, 8);
    if (memory_bytes < (uint64_t)giant) {
        assert_int_equal(truncate(path, giant), 0);
        expect_read_failure(path, EBB_ERR_MEMORY, "of memory");
    }
    unlink(path);
}

static void test_read_from_a_pipe(void **state)
{
    (void)state;
    struct ebb_event *events = make_events(20000, 31);
    struct bytes sample = sample_bytes(events, 20000, 0);
    char *path = in_folder("pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    pid_t child = fork();
    if (!child) {
        int file = open(path, O_WRONLY);
        for (size_t done = 0; done < sample.size;) {
            ssize_t wrote = write(file, sample.data + done, sample.size - done);
            if (wrote <= 0)
                _exit(1);
            done += (size_t)wrote;
        }
        _exit(0);
    }
    struct ebb_trace trace;
    assert_int_equal(ebb__trace_read(path, &trace, NULL), EBB_OK);
    expect_events(&trace, events, 20000);
    assert_true(trace.complete);
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    ebb__trace_fini(&trace);
    unlink(path);
    free(sample.data);
    free(events);
}

static void test_writer_where_it_cannot_write(void **state)
{
    (void)state;
    struct ebb_trace_writer *writer;
    struct ebb_error error = {0};
    char *path = in_folder("no/such/folder.ebbt");
    assert_int_equal(ebb__trace_writer_open(path, &sample_info, &writer, &error), EBB_ERR_IO);
    assert_null(writer);
    assert_string_equal(error.what, path);
    assert_int_equal(ebb__trace_writer_open(folder, &sample_info, &writer, &error), EBB_ERR_IO);
    assert_non_null(strstr(error.why, "Is a directory"));
    assert_int_equal(ebb__trace_writer_open("/dev/full", &sample_info, &writer, &error),
                     EBB_ERR_IO);
    assert_string_equal(error.what, "/dev/full");
    assert_non_null(strstr(error.why, "No space left"));
    assert_true(error.remedy[0]);
    assert_int_equal(access("/dev/full", F_OK), 0);
    assert_int_equal(ebb__trace_writer_close(NULL, &error), EBB_OK);
}

/* The file may grow to `limit_bytes` only: the write that would cross it is cut short, as on a full
 * disk, and the next one fails. */
static void fill_up(const char *path, const struct ebb_event *events, size_t count, rlim_t limit)
{
    struct rlimit unlimited, limited;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &unlimited), 0);
    limited = unlimited;
    limited.rlim_cur = limit;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limited), 0);
    struct ebb_trace_writer *writer = NULL;
    struct ebb_error error = {0};
    enum ebb_status status = ebb__trace_writer_open(path, &sample_info, &writer, &error);
    for (size_t i = 0; i < count && status == EBB_OK; i += 20) {
        status = ebb__trace_writer_append(writer, events + i, 20, &error);
        if (status == EBB_OK)
            status = ebb__trace_writer_flush(writer, &error);
    }
    struct ebb_error again = {0}, last = {0};
    enum ebb_status later = EBB_ERR_IO, end = EBB_ERR_IO;
    /* Room that comes back does not bring back the writer: its file would have a hole. */
    if (status == EBB_ERR_IO)
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
    if (writer) {
        later = ebb__trace_writer_append(writer, events, 1, &again);
        end = ebb__trace_writer_close(writer, &last);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
    signal(SIGXFSZ, SIG_DFL);
    /* Either a block did not fit, or all did and the footer did not: that shows at the close. */
    assert_true(status == EBB_ERR_IO || (status == EBB_OK && later == EBB_OK));
    assert_int_equal(end, EBB_ERR_IO);
    if (status == EBB_ERR_IO) {
        assert_string_equal(error.what, path);
        assert_non_null(strstr(error.why, "cannot be written"));
    }
    if (writer && status == EBB_ERR_IO) {
        assert_int_equal(later, EBB_ERR_IO);
        assert_memory_equal(&again, &error, sizeof error);
    }
}

static void test_full_disk_keeps_what_was_written(void **state)
{
    (void)state;
    enum { COUNT = 60 };
    struct ebb_event *events = make_events(COUNT, 37);
    struct bytes sample = sample_bytes(events, COUNT, 20);
    size_t header_bytes = EBB_TRACE_HEADER_MIN_BYTES + strlen(sample_info.command);
    char *path = in_folder("full.ebbt");
    for (size_t limit = 0; limit < sample.size; limit += 3) {
        fill_up(path, events, COUNT, limit);
        struct ebb_trace trace;
        struct ebb_error error = {0};
        if (limit < header_bytes) {
            assert_int_equal(access(path, F_OK), -1);
            continue;
        }
        size_t expected = 0;
        while (expected < 3) {
            size_t at = block_offset(sample, expected);
            if (at + EBB_TRACE_BLOCK_HEADER_BYTES + ebb__get_le32(sample.data + at + 4) > limit)
                break;
            expected++;
        }
        assert_int_equal(ebb__trace_read(path, &trace, &error), EBB_OK);
        expect_events(&trace, events, expected * 20);
        assert_false(trace.complete);
        assert_int_equal(trace.damaged_bytes, 0);
        ebb__trace_fini(&trace);
    }
    unlink(path);
    free(sample.data);
    free(events);
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

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/ebb-test-trace-XXXXXX");
    return mkdtemp(folder) && !chmod(folder, 0755) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder); /* fails where a test left something behind */
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
        cmocka_unit_test(test_every_flipped_byte),
        cmocka_unit_test(test_every_flipped_byte_without_footer),
        cmocka_unit_test(test_only_block_torn),
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_damage_names_the_byte),
        cmocka_unit_test(test_zeros_at_the_end_are_a_tail),
        cmocka_unit_test(test_blocks_lost_or_moved),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_hostile_blocks),
        cmocka_unit_test(test_unknown_event_of_a_newer_minor_version),
        cmocka_unit_test(test_bomb),
        cmocka_unit_test(test_time_falls_between_blocks),
        cmocka_unit_test(test_more_than_memory),
        cmocka_unit_test(test_what_is_no_trace),
        cmocka_unit_test(test_paths_that_cannot_be_read),
        cmocka_unit_test(test_sparse_giants),
        cmocka_unit_test(test_read_from_a_pipe),
        cmocka_unit_test(test_writer_where_it_cannot_write),
        cmocka_unit_test(test_full_disk_keeps_what_was_written),
        cmocka_unit_test(test_corpus),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
