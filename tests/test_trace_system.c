/* Trace files and errors of the system: a file that cannot be opened, read, written or held in
 * memory, and a full disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trace_repair.h"
#include "trace_rig.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

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

/* Two sparse files of 100 GiB or more, one of which begins like a trace. Neither is read into
 * memory. */
static void test_sparse_giants(void **state)
{
    (void)state;
    char *path = in_folder("giant");
    save(path, "no trace", 8);
    uint64_t memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    off_t giant = (off_t)100 << 30;
    if ((uint64_t)giant < 2 * memory_bytes)
        giant = (off_t)(2 * memory_bytes);
    if (truncate(path, giant)) {
        unlink(path);
        print_message("skipped: needs sparse files\n");
        skip();
    }
    expect_read_failure(path, EBB_ERR_FORMAT, "not an Ebb trace");
    save(path, EBB_TRACE_MAGIC, 8);
    assert_int_equal(truncate(path, giant), 0);
    expect_read_failure(path, EBB_ERR_MEMORY, "of memory");
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

/* The file may grow to `limit_bytes` only. The write past that is cut short, as on a full disk, and
 * the next write fails. */
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
    /* If space is free again, the writer still fails, since its file would have a hole. */
    if (status == EBB_ERR_IO)
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
    if (writer) {
        later = ebb__trace_writer_append(writer, events, 1, &again);
        end = ebb__trace_writer_close(writer, &last);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
    signal(SIGXFSZ, SIG_DFL);
    /* Either a block did not fit, or only the footer did not, which the close reports. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_more_than_memory),
        cmocka_unit_test(test_what_is_no_trace),
        cmocka_unit_test(test_paths_that_cannot_be_read),
        cmocka_unit_test(test_sparse_giants),
        cmocka_unit_test(test_read_from_a_pipe),
        cmocka_unit_test(test_writer_where_it_cannot_write),
        cmocka_unit_test(test_full_disk_keeps_what_was_written),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
