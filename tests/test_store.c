/* Stores: free space against a map of bytes, the unnamed file, and a file system that fills up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "store/extents.h"
#include "store/store.h"
#include "synthetic.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define SPACE 512

static void extents_against_a_map(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct ebb_extent table[SPACE];
        struct ebb_extents extents;
        ebb__extents_init(&extents, table, SPACE, SPACE);
        bool used[SPACE] = {false};
        struct ebb_extent taken[SPACE];
        size_t count = 0;
        uint64_t used_bytes = 0, peak = 0, chances = seed * 0x9e3779b97f4a7c15u;
        for (unsigned step = 0; step < 2000; step++) {
            if (count && chance(&chances) % 2) {
                size_t pick = chance(&chances) % count;
                ebb__extents_give(&extents, taken[pick].offset, taken[pick].bytes);
                memset(used + taken[pick].offset, 0, taken[pick].bytes);
                used_bytes -= taken[pick].bytes;
                taken[pick] = taken[--count];
            } else {
                uint64_t bytes = 1 + chance(&chances) % 40, offset = 0;
                /* Finds the first fit in the map. */
                uint64_t wanted = 0, run = 0;
                for (; wanted + bytes <= SPACE; wanted++) {
                    for (run = 0; run < bytes && !used[wanted + run]; run++)
                        ;
                    if (run == bytes)
                        break;
                }
                bool fits = run == bytes && wanted + bytes <= SPACE;
                bool got = ebb__extents_take(&extents, bytes, &offset);
                /* A free run at the end of the file and the space after it are not joined. Such a
                 * request may be served further on, or refused. */
                if (got) {
                    assert_true(fits);
                    assert_true(offset >= wanted && offset + bytes <= SPACE);
                    for (uint64_t i = 0; i < bytes; i++)
                        assert_false(used[offset + i]);
                    memset(used + offset, 1, bytes);
                    taken[count++] = (struct ebb_extent){offset, bytes};
                    used_bytes += bytes;
                    peak = used_bytes > peak ? used_bytes : peak;
                } else if (fits) {
                    assert_true(wanted + bytes > extents.end_bytes);
                }
            }
            assert_int_equal(extents.used_bytes, used_bytes);
            assert_int_equal(extents.peak_bytes, peak);
            uint64_t end = 0; /* in order, merged, and exactly the free bytes */
            for (size_t i = 0; i < extents.count; i++) {
                assert_true(i == 0 || table[i].offset > end);
                assert_true(table[i].bytes > 0);
                for (uint64_t b = 0; b < table[i].bytes; b++)
                    assert_false(used[table[i].offset + b]);
                end = table[i].offset + table[i].bytes;
            }
            uint64_t free_bytes = 0;
            for (size_t i = 0; i < extents.count; i++)
                free_bytes += table[i].bytes;
            assert_int_equal(free_bytes + used_bytes, extents.end_bytes);
        }
        while (count) {
            count--;
            ebb__extents_give(&extents, taken[count].offset, taken[count].bytes);
        }
        assert_int_equal(extents.used_bytes, 0);
        assert_int_equal(extents.count, 1);
        assert_int_equal(table[0].bytes, extents.end_bytes);
    }
}

static void extents_limit_and_full_table(void **state)
{
    (void)state;
    struct ebb_extent table[4];
    struct ebb_extents extents;
    uint64_t offset = 77;
    ebb__extents_init(&extents, table, 4, 100);
    assert_false(ebb__extents_take(&extents, 101, &offset));
    assert_false(ebb__extents_take(&extents, UINT64_MAX, &offset));
    assert_int_equal(offset, 77);
    assert_true(ebb__extents_take(&extents, 100, &offset));
    assert_int_equal(offset, 0);
    assert_false(ebb__extents_take(&extents, 1, &offset));
    ebb__extents_give(&extents, 0, 100);
    for (uint64_t i = 0; i < 10; i++)
        assert_true(ebb__extents_take(&extents, 10, &offset));
    for (uint64_t i = 0; i < 10; i += 2) /* five holes, but four entries: the last is forgotten */
        ebb__extents_give(&extents, i * 10, 10);
    assert_int_equal(extents.count, 4);
    assert_int_equal(extents.used_bytes, 50);
    for (uint64_t i = 0; i < 4; i++) {
        assert_true(ebb__extents_take(&extents, 10, &offset));
        assert_int_equal(offset, 20 * i);
    }
    assert_false(ebb__extents_take(&extents, 10, &offset));
    /* Merging needs no entry in the table. */
    ebb__extents_give(&extents, 0, 10);
    ebb__extents_give(&extents, 20, 10);
    ebb__extents_give(&extents, 10, 10);
    assert_int_equal(extents.count, 1);
    assert_true(ebb__extents_take(&extents, 30, &offset));
    assert_int_equal(offset, 0);
    ebb__extents_init(&extents, table, 4, UINT64_MAX);
    assert_true(ebb__extents_take(&extents, UINT64_MAX / 2, &offset));
    assert_false(ebb__extents_take(&extents, UINT64_MAX / 2 + 2, &offset));
}

static size_t entries_in(const char *directory)
{
    DIR *folder = opendir(directory);
    assert_non_null(folder);
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(folder));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(folder);
    return count;
}

static void make_directory(char directory[64])
{
    snprintf(directory, 64, "/tmp/ebb-test-store-XXXXXX");
    assert_non_null(mkdtemp(directory));
}

static size_t descriptors_of(const struct ebb_store *store)
{
    int descriptors[2] = {-1, -1};
    size_t count = store->ops->descriptors(store->state, descriptors, 2);
    assert_int_equal(count > 0, descriptors[0] >= 0);
    assert_int_equal(store->ops->descriptors(store->state, descriptors, 0), 0);
    return count;
}

static unsigned char *buffer_of(size_t bytes)
{
    void *buffer = NULL;
    assert_int_equal(posix_memalign(&buffer, 4096, bytes), 0);
    return buffer;
}

static void file_keeps_bytes(void **state)
{
    (void)state;
    char directory[64];
    make_directory(directory);
    struct ebb_store store;
    struct ebb_error error;
    assert_int_equal(ebb__store_file_open(directory, 12345678, &store, &error), EBB_OK);
    assert_int_equal(store.limit_bytes, 12345678);
    assert_int_equal(descriptors_of(&store), 1);
    assert_int_equal(entries_in(directory), 0);
    size_t bytes = 3 << 20;
    unsigned char *from = buffer_of(bytes), *to = buffer_of(bytes);
    uint64_t chances = 5;
    for (size_t i = 0; i < bytes; i++)
        from[i] = (unsigned char)chance(&chances);
    /* Writes out of order, with a hole. */
    assert_int_equal(store.ops->write(store.state, from + (1 << 20), 2 << 20, 5 << 20), 0);
    assert_int_equal(store.ops->write(store.state, from, 1 << 20, 4096), 0);
    assert_int_equal(store.ops->read(store.state, to, 1 << 20, 4096), 0);
    assert_int_equal(store.ops->read(store.state, to + (1 << 20), 2 << 20, 5 << 20), 0);
    assert_memory_equal(from, to, bytes);
    assert_int_equal(store.ops->read(store.state, to, 4096, 7 << 20), EIO); /* past the end */
    assert_int_equal(entries_in(directory), 0);
    store.ops->close(store.state);
    store.ops->close(store.state); /* harmless */
    assert_int_not_equal(store.ops->write(store.state, from, 4096, 0), 0);
    assert_int_equal(rmdir(directory), 0);
    assert_int_equal(ebb__store_file_open(directory, 1, &store, &error), EBB_ERR_IO);
    assert_string_equal(ebb_status_text(error.status), ebb_status_text(EBB_ERR_IO));
    assert_string_equal(error.what, directory);
    free(from);
    free(to);
}

/* Like a file on persistent memory. */
static enum ebb_status open_mapped(const char *directory, uint64_t limit_bytes,
                                   struct ebb_store *store, struct ebb_error *error)
{
    int descriptor = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    assert_true(descriptor >= 0);
    return ebb__store_mapped_open(descriptor, directory, limit_bytes, store, error);
}

static void file_system_full(void **state)
{
    enum ebb_status (*open_store)(const char *, uint64_t, struct ebb_store *, struct ebb_error *) =
        *state ? open_mapped : ebb__store_file_open;
    char directory[64];
    make_directory(directory);
    if (mount("tmpfs", directory, "tmpfs", 0, "size=1m") != 0) {
        rmdir(directory);
        print_message("skipped: needs mounts\n");
        skip();
    }
    struct ebb_store store;
    struct ebb_error error;
    enum ebb_status opened = open_store(directory, UINT64_MAX, &store, &error);
    unsigned char *from = buffer_of(4 << 20), *to = buffer_of(1 << 19);
    memset(from, 0x5a, 4 << 20);
    int fits = -1, full = -1, back = -1;
    if (opened == EBB_OK) {
        fits = store.ops->write(store.state, from, 1 << 19, 0);
        full = store.ops->write(store.state, from, 4 << 20, 1 << 19);
        back = store.ops->read(store.state, to, 1 << 19, 0);
        store.ops->close(store.state);
    }
    size_t left = entries_in(directory);
    umount(directory);
    rmdir(directory);
    assert_int_equal(opened, EBB_OK);
    assert_int_equal(fits, 0);
    assert_int_equal(full, ENOSPC);
    assert_int_equal(back, 0);
    assert_memory_equal(from, to, 1 << 19);
    assert_int_equal(left, 0);
    free(from);
    free(to);
}

static void mapped_file(void **state)
{
    (void)state;
    struct ebb_store store;
    struct ebb_error error;
    uint64_t limit = (uint64_t)9 << 20;
    assert_int_equal(ebb__store_memory_open("memory", limit, &store, &error), EBB_OK);
    assert_int_equal(store.limit_bytes, limit);
    unsigned char *from = buffer_of(4 << 20), *to = buffer_of(4 << 20);
    memset(from, 0x5a, 4 << 20);
    assert_int_equal(store.ops->read(store.state, to, 4096, 0), EIO); /* nothing was written */
    assert_int_equal(store.ops->write(store.state, from, 4 << 20, 5 << 20), 0);
    assert_int_equal(store.ops->write(store.state, from, 4 << 20, (5 << 20) + 4096), ENOSPC);
    assert_int_equal(store.ops->read(store.state, to, 4 << 20, 5 << 20), 0);
    assert_memory_equal(from, to, 4 << 20);
    assert_int_equal(store.ops->read(store.state, to, 4 << 20, 6 << 20), EIO);
    int descriptor = -1;
    struct stat status;
    assert_int_equal(store.ops->descriptors(store.state, &descriptor, 1), 1);
    assert_int_equal(fstat(descriptor, &status), 0);
    assert_int_equal(status.st_size, limit);
    store.ops->close(store.state);
    store.ops->close(store.state); /* harmless */
    assert_int_not_equal(store.ops->write(store.state, from, 4096, 0), 0);
    assert_int_not_equal(store.ops->read(store.state, to, 4096, 0), 0);
    free(from);
    free(to);
}

static void faulty_store(void **state)
{
    (void)state;
    static unsigned char memory[16384], page[4096], back[4096];
    struct ebb_faulty_store faulty = {.memory = memory,
                                      .bytes = sizeof memory,
                                      .write_errno = EIO,
                                      .good_writes = 2,
                                      .read_errno = EIO,
                                      .good_reads = 1};
    struct ebb_store store;
    ebb__store_faulty_open(&faulty, 9, &store);
    assert_int_equal(store.limit_bytes, 9);
    memset(page, 3, sizeof page);
    assert_int_equal(store.ops->write(store.state, page, 4096, 0), 0);
    assert_int_equal(store.ops->write(store.state, page, 4096, 14000), ENOSPC);
    assert_int_equal(store.ops->write(store.state, page, 4096, 0), EIO);
    assert_int_equal(store.ops->read(store.state, back, 4096, 0), 0);
    assert_memory_equal(page, back, 4096);
    assert_int_equal(store.ops->read(store.state, back, 4096, 0), EIO);
    assert_int_equal(descriptors_of(&store), 0);
}

/* This test must be last: it uses up the slots for files. */
static void too_many_files(void **state)
{
    (void)state;
    enum { MOST = EBB_STORE_MOST * EBB_STORE_MOST_PLACES };
    static struct ebb_store stores[MOST + 1];
    struct ebb_error error;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < MOST + 64) {
        print_message("skipped: needs descriptors\n");
        skip();
    }
    size_t opened = 0;
    while (opened <= MOST && ebb__store_file_open("/tmp", 0, &stores[opened], &error) == EBB_OK)
        opened++;
    assert_true(opened > 8 && opened <= MOST);
    assert_int_equal(error.status, EBB_ERR_LIMIT);
    stores[3].ops->close(stores[3].state); /* its slot is free again */
    assert_int_equal(ebb__store_file_open("/tmp", 0, &stores[3], &error), EBB_OK);
    for (size_t i = 0; i < opened; i++)
        stores[i].ops->close(stores[i].state);
}

/* --- several places, and memory --- */

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Compares random writes and reads with a plain array. */
static void compare_with_memory(const struct ebb_store *store)
{
    enum { PAGES = 8192, MOST = 2560 };
    unsigned char *mirror = buffer_of((size_t)PAGES * 4096);
    memset(mirror, 0, (size_t)PAGES * 4096);
    unsigned char *buffer = buffer_of((size_t)MOST * 4096);
    uint64_t random = 7;
    assert_int_equal(store->ops->write(store->state, mirror, (uint64_t)PAGES * 4096, 0), 0);
    for (int i = 0; i < 60; i++) {
        uint64_t pages = 1 + next_random(&random) % MOST, at = next_random(&random) % PAGES;
        if (pages > PAGES - at)
            pages = PAGES - at;
        if (i % 2) {
            assert_int_equal(store->ops->read(store->state, buffer, pages * 4096, at * 4096), 0);
            assert_memory_equal(buffer, mirror + at * 4096, pages * 4096);
            continue;
        }
        memset(buffer, i + 1, pages * 4096);
        buffer[0] = (unsigned char)next_random(&random);
        memcpy(mirror + at * 4096, buffer, pages * 4096);
        assert_int_equal(store->ops->write(store->state, buffer, pages * 4096, at * 4096), 0);
    }
    free(buffer);
    free(mirror);
}

static void striped_over_directories(void **state)
{
    (void)state;
    char places[3 * 64 + 16] = "", directories[3][64];
    for (int i = 0; i < 3; i++) {
        make_directory(directories[i]);
        snprintf(places + strlen(places), sizeof places - strlen(places), "%s\n", directories[i]);
    }
    strcat(places, "memory");
    struct ebb_store store;
    struct ebb_error error;
    assert_int_equal(ebb__store_open(places, 123 << 20, &store, &error), EBB_OK);
    assert_int_equal(store.limit_bytes, 123 << 20);
    int descriptors[EBB_STORE_MOST_PLACES];
    assert_int_equal(store.ops->descriptors(store.state, descriptors, EBB_STORE_MOST_PLACES), 4);
    compare_with_memory(&store);
    for (int i = 0; i < 4; i++) { /* 32 MiB in stripes of 4 MiB */
        struct stat status;
        assert_int_equal(fstat(descriptors[i], &status), 0);
        assert_int_equal(status.st_size, 8 << 20);
    }
    store.ops->close(store.state);
    for (int i = 0; i < 3; i++)
        assert_int_equal(rmdir(directories[i]), 0);
}

static void one_place_is_no_stripe(void **state)
{
    (void)state;
    struct ebb_store store;
    struct ebb_error error;
    assert_int_equal(ebb__store_open("memory", UINT64_MAX, &store, &error), EBB_OK);
    assert_int_equal(descriptors_of(&store), 1);
    compare_with_memory(&store);
    store.ops->close(store.state);
    enum ebb_status bound = ebb__store_open("memory:0", UINT64_MAX, &store, &error);
    if (bound == EBB_OK) { /* a kernel with NUMA */
        compare_with_memory(&store);
        store.ops->close(store.state);
    }
    static const char *const bad[] = {"",
                                      "\n",
                                      "memory:",
                                      "memory:x",
                                      "memory:9999",
                                      "memory:1000",
                                      "memories",
                                      "/nowhere/at/all",
                                      "memory\n/nowhere/at/all",
                                      "memory\nmemory\nmemory\nmemory\nmemory\nmemory\nmemory"
                                      "\nmemory\nmemory"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_not_equal(ebb__store_open(bad[i], UINT64_MAX, &store, &error), EBB_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(extents_against_a_map),
        cmocka_unit_test(extents_limit_and_full_table),
        cmocka_unit_test(file_keeps_bytes),
        cmocka_unit_test(file_system_full),
        cmocka_unit_test_prestate(file_system_full, (void *)1),
        cmocka_unit_test(mapped_file),
        cmocka_unit_test(faulty_store),
        cmocka_unit_test(striped_over_directories),
        cmocka_unit_test(one_place_is_no_stripe),
        cmocka_unit_test(too_many_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
