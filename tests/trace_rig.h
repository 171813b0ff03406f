/* Writes, reads and damages traces like those of a training loop. They are in the test program's
 * temporary folder, which must be empty at the end. Include it after cmocka. */
#ifndef EBB_TESTS_TRACE_RIG_H
#define EBB_TESTS_TRACE_RIG_H

#include "trace/codec.h"
#include "trace/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static inline char *in_folder(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static inline uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 29;
}

/* `count` events like those of a training loop. A seed must always give the same events, since the
 * corpus depends on them. */
static inline struct ebb_event *make_events(size_t count, uint64_t seed)
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

static inline struct bytes load(const char *path)
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

static inline void save(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    if (!file)
        fail_msg("%s: %s", path, strerror(errno));
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Writes all events to `path`, with a flush after every `step` events; 0: no flush. */
static inline void write_trace(const char *path, const struct ebb_event *events, size_t count,
                               size_t step)
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

static inline struct bytes sample_bytes(const struct ebb_event *events, size_t count, size_t step)
{
    char *path = in_folder("sample.ebbt");
    write_trace(path, events, count, step);
    struct bytes sample = load(path);
    unlink(path);
    return sample;
}

static inline bool is_prefix(const struct ebb_trace *trace, const struct ebb_event *events,
                             size_t count)
{
    return trace->count <= count &&
           (!trace->count || !memcmp(trace->events, events, trace->count * sizeof *events));
}

static inline void expect_events(const struct ebb_trace *trace, const struct ebb_event *events,
                                 size_t count)
{
    assert_int_equal(trace->count, count);
    assert_true(is_prefix(trace, events, count));
}

/* Offset of the block with index `index` in `sample`. */
static inline size_t block_offset(struct bytes sample, size_t index)
{
    size_t at = ebb__get_le32(sample.data + 12);
    while (index--)
        at += EBB_TRACE_BLOCK_HEADER_BYTES + ebb__get_le32(sample.data + at + 4);
    assert_true(at < sample.size);
    return at;
}

/* Asserts that reading `bytes` fails with an error whose `why` contains `why`. */
static inline struct ebb_error expect_failure(const void *bytes, size_t size,
                                              enum ebb_status status, const char *why)
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

static inline int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/ebb-test-trace-XXXXXX");
    return mkdtemp(folder) && !chmod(folder, 0755) ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder); /* fails if a test has left a file */
}

#endif
