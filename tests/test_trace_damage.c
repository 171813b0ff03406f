/* Trace files that are truncated, damaged, forged or of a newer version. A truncated file is read
 * up to its last whole unit, a damaged one is refused. The file's size bounds the memory used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trace_repair.h"
#include "trace_rig.h"

#include <zstd.h>

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
    /* Everything is refused, except a damaged footer, which holds no events. */
    assert_int_equal(shortened, EBB_TRACE_FOOTER_BYTES * PATTERNS);
    assert_int_equal(refused, (sample.size - EBB_TRACE_FOOTER_BYTES) * PATTERNS);
    free(sample.data);
    free(events);
}

/* The same for a file without footer. Damage in the last block shortens the file. Damage elsewhere
 * is refused. */
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
        /* The copy has exactly that size, so that a sanitizer finds an access past its end. */
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
        expect_failure(sample.data, sample.size, EBB_ERR_VERSION, "has trace format 2.1");
    assert_non_null(strstr(error.remedy, "newer"));
    ebb__put_le16(sample.data + 8, 0);
    trace_repair(sample.data, sample.size);
    expect_failure(sample.data, sample.size, EBB_ERR_FORMAT, "impossible version");

    /* A newer minor version may have a longer header. */
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

/* The header of a forged block. 0 for payload_bytes means the true size. */
struct claim {
    uint32_t payload_bytes, event_count, columns_bytes;
    uint64_t first_event;
};

/* Writes an unfinished trace of one block with these columns and correct checksums. Returns its
 * size. */
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

/* The columns of an event are kind, access, mark, flags, time, block, size and thread. */
static void test_hostile_blocks(void **state)
{
    (void)state;
    static uint8_t file[65536];
    static const struct {
        struct claim claim;   /* the header's claim */
        size_t columns_bytes; /* the size of the columns */
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
        /* One byte too many; an unfinished last number; a number longer than necessary. */
        {{0, 1, 9, 0}, 9, {1}, "does not decode"},
        {{0, 1, 8, 0}, 8, {1, 0, 0, 0, 0, 0, 0, 0x80}, "does not decode"},
        {{0, 1, 9, 0}, 9, {1, 0, 0, 0, 0, 0, 0, 0x80, 0}, "does not decode"},
        /* A thread over 32 bits; a time over 64 bits; a time of eleven bytes. */
        {{0, 1, 12, 0}, 12, {1, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 0x10}, "does not decode"},
        {{0, 1, 17, 0},
         17,
         {1, 0, 0, 0, 128, 128, 128, 128, 128, 128, 128, 128, 128, 2},
         "does not decode"},
        {{0, 1, 18, 0},
         18,
         {1, 0, 0, 0, 128, 128, 128, 128, 128, 128, 128, 128, 128, 129, 1},
         "does not decode"},
        /* Two times of 64 bits each, with a larger sum. */
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
    /* The same bytes with a true header are accepted, so the claims were refused above. */
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

/* A small payload that expands far beyond the block's limit is stopped at its declared size. */
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
    /* Blocks this small are stored uncompressed. The time is the fifth byte of the columns. */
    uint8_t *payload = sample.data + block_offset(sample, 1) + EBB_TRACE_BLOCK_HEADER_BYTES;
    uint8_t *time = memchr(payload, 100, ebb__get_le32(payload - EBB_TRACE_BLOCK_HEADER_BYTES + 4));
    assert_non_null(time);
    *time = 99;
    trace_repair(sample.data, sample.size);
    expect_failure(sample.data, sample.size, EBB_ERR_FORMAT, "time falls");
    free(sample.data);
}

/* Blocks that claim more events than the machine has memory for. Their payloads are never read. */

int main(void)
{
    const struct CMUnitTest tests[] = {
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
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
