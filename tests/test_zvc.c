/* Zero-value compression and the compressing store: every byte is read as it was written, even if a
 * block is divided later. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "store/store.h"
#include "store/zvc.h"
#include "synthetic.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNIT ((size_t)2 << 20)
#define PAGE ((size_t)4096)

/* On average `zeros` of 16 words are zero, in runs of up to `run`. */
static void fill(void *memory, size_t bytes, unsigned zeros, unsigned run, uint64_t *state)
{
    uint32_t *words = memory;
    for (size_t i = 0; i < bytes / 4;) {
        uint32_t value = chance(state) % 16 < zeros ? 0 : (uint32_t)chance(state) | 1;
        for (size_t length = 1 + chance(state) % run; length > 0 && i < bytes / 4; length--)
            words[i++] = value;
    }
}

static void *pages_of(size_t bytes)
{
    void *memory = NULL;
    assert_int_equal(posix_memalign(&memory, PAGE, bytes), 0);
    return memory;
}

static void what_is_compressed_is_restored(void **state)
{
    (void)state;
    static unsigned char from[64 << 10], to[(64 << 10) + 512], back[64 << 10];
    uint64_t random = 5;
    for (int i = 0; i < 600; i++) {
        size_t bytes = EBB_ZVC_RUN_BYTES * (1 + chance(&random) % (sizeof from / 256));
        unsigned zeros = (unsigned)(chance(&random) % 17);
        fill(from, bytes, zeros, i % 3 ? 1 : 200, &random);
        memset(to, 0xaa, sizeof to);
        size_t most = bytes - bytes / 8;
        size_t size = ebb__zvc_compress(from, bytes, to, most);
        for (size_t at = most + EBB_ZVC_RUN_BYTES + 8; at < sizeof to; at++)
            assert_int_equal(to[at], 0xaa);
        if (zeros == 16)
            assert_int_equal(size, bytes / 32);
        if (zeros == 0)
            assert_int_equal(size, 0);
        if (size == 0)
            continue;
        assert_true(size <= most);
        memset(back, 0x55, sizeof back);
        assert_true(ebb__zvc_restore(to, size + chance(&random) % 100, back, bytes));
        assert_memory_equal(from, back, bytes);
        assert_false(ebb__zvc_restore(to, size - 1, back, bytes));
    }
    assert_int_equal(ebb__zvc_compress(from, 0, to, 100), 0);
    assert_false(ebb__zvc_restore(from, sizeof from, back, 100));
}

/* Under a sanitizer, no byte outside is read or written. */
static void anything_is_restored_or_refused(void **state)
{
    (void)state;
    uint64_t random = 9;
    for (int i = 0; i < 2000; i++) {
        size_t size = chance(&random) % 3000, bytes = 256 * (chance(&random) % 12);
        unsigned char *from = malloc(size + 1), *to = malloc(bytes + 1);
        fill(from, size & ~(size_t)3, (unsigned)(chance(&random) % 16), 3, &random);
        memset(from + (size & ~(size_t)3), 7, size % 4);
        to[bytes] = 0x77;
        bool restored = ebb__zvc_restore(from, size, to, bytes);
        assert_true(!restored || size >= bytes / 32);
        assert_int_equal(to[bytes], 0x77);
        free(from);
        free(to);
    }
}

/* Blocks are written, cut at units, read in pieces and dropped, in all slots of one store. */
static void divided_blocks_are_read_again(void **state)
{
    (void)state;
    enum { SLOTS = 6, MOST = 9 };
    const size_t slot_bytes = MOST * UNIT;
    struct ebb_store store;
    struct ebb_error error;
    atomic_bool wanted = true;
    _Atomic uint64_t saved = 0;
    assert_int_equal(ebb__store_open("memory", UINT64_MAX, &store, &error), EBB_OK);
    int inner = -1, descriptor = -2;
    assert_int_equal(store.ops->descriptors(store.state, &inner, 1), 1);
    assert_int_equal(ebb__store_compress(&store, &wanted, &saved), EBB_OK);
    assert_int_equal(store.ops->descriptors(store.state, &descriptor, 1), 1);
    assert_int_equal(inner, descriptor);
    unsigned char *mirror = pages_of(SLOTS * slot_bytes), *back = pages_of(slot_bytes);
    uint64_t random = 3;
    for (int i = 0; i < 60; i++) {
        atomic_store(&wanted, i % 5 != 4);
        size_t slot = chance(&random) % SLOTS;
        /* The position need not be at a unit, since slots are whole pages. */
        size_t at = slot * slot_bytes + PAGE * (chance(&random) % 300);
        size_t pages = 1 + chance(&random) % (MOST * 512 - 300);
        fill(mirror + at, pages * PAGE, (unsigned)(chance(&random) % 17), 2, &random);
        for (size_t done = 0; done < pages * PAGE; done += 2 * UNIT) {
            size_t piece = pages * PAGE - done < 2 * UNIT ? pages * PAGE - done : 2 * UNIT;
            assert_int_equal(store.ops->write(store.state, mirror + at + done, piece, at + done),
                             0);
        }
        for (size_t done = 0; done < pages * PAGE;) {
            size_t piece = UNIT * (1 + chance(&random) % 3);
            if (piece > pages * PAGE - done)
                piece = pages * PAGE - done;
            memset(back, 1, piece);
            assert_int_equal(store.ops->read(store.state, back, piece, at + done), 0);
            assert_memory_equal(back, mirror + at + done, piece);
            done += piece;
        }
    }
    assert_true(saved > 20 * UNIT);
    free(mirror);
    free(back);
    store.ops->close(store.state);
}

/* A child reads what its parent wrote before the fork, even if the parent writes elsewhere
 * later. */
static void a_child_reads_what_was_written(void **state)
{
    (void)state;
    struct ebb_store store;
    struct ebb_error error;
    atomic_bool wanted = true;
    _Atomic uint64_t saved = 0;
    assert_int_equal(ebb__store_open("memory", UINT64_MAX, &store, &error), EBB_OK);
    assert_int_equal(ebb__store_compress(&store, &wanted, &saved), EBB_OK);
    unsigned char *from = pages_of(UNIT), *back = pages_of(UNIT);
    uint64_t random = 3;
    fill(from, UNIT, 8, 1, &random);
    assert_int_equal(store.ops->write(store.state, from, UNIT, 0), 0);
    pid_t child = fork();
    if (child == 0)
        _exit(store.ops->read(store.state, back, UNIT, 0) != 0 || memcmp(from, back, UNIT) != 0);
    memset(back, 0, UNIT);
    assert_int_equal(store.ops->write(store.state, back, UNIT, UNIT), 0);
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    free(from);
    free(back);
    store.ops->close(store.state);
}

static void failures_of_the_store_are_told(void **state)
{
    (void)state;
    unsigned char *memory = pages_of(2 * UNIT), *from = pages_of(UNIT), *back = pages_of(UNIT);
    struct ebb_faulty_store faulty = {.memory = memory,
                                      .bytes = 2 * UNIT,
                                      .write_errno = ENOSPC,
                                      .good_writes = 1,
                                      .read_errno = EIO,
                                      .good_reads = 2};
    struct ebb_store store;
    atomic_bool wanted = true;
    _Atomic uint64_t saved = 0;
    ebb__store_faulty_open(&faulty, 2 * UNIT, &store);
    assert_int_equal(ebb__store_compress(&store, &wanted, &saved), EBB_OK);
    assert_int_equal(store.limit_bytes, 2 * UNIT);
    uint64_t random = 3;
    fill(from, UNIT, 8, 1, &random);
    assert_int_equal(store.ops->write(store.state, from, UNIT, 0), 0);
    assert_int_equal(store.ops->write(store.state, from, UNIT, UNIT), ENOSPC);
    assert_int_equal(store.ops->read(store.state, back, UNIT, 0), 0);
    assert_memory_equal(from, back, UNIT);
    memset(memory, 0xff, 2 * UNIT); /* not compressed bytes: all masks say 64 words */
    assert_int_equal(store.ops->read(store.state, back, UNIT, 0), EILSEQ);
    assert_int_equal(store.ops->read(store.state, back, UNIT, 0), EIO);
    free(memory);
    free(from);
    free(back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_compressed_is_restored),
        cmocka_unit_test(anything_is_restored_or_refused),
        cmocka_unit_test(divided_blocks_are_read_again),
        cmocka_unit_test(a_child_reads_what_was_written),
        cmocka_unit_test(failures_of_the_store_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
