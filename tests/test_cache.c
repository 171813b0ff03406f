/* Profiles and their folder: a written profile is read again, foreign files are ignored, and the
 * folder stays within its cap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/tuning.h"
#include "own_folder.h"
#include "parent/cache.h"
#include "parent/profile_format.h"
#include "same_model.h"
#include "synthetic.h"
#include "trace/codec.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static size_t files_in(const char *path)
{
    DIR *open_folder = opendir(path);
    size_t count = 0;
    if (!open_folder)
        return 0;
    for (struct dirent *entry; (entry = readdir(open_folder));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(open_folder);
    return count;
}

static struct ebb_profile make_profile(uint64_t seed, unsigned iterations)
{
    struct ebb_profile profile = {
        .unmanaged_peak_bytes = 1000 + seed,
        .small_bytes = 10,
        .store_id = ebb__profile_store_id("/var/tmp"),
        .machine = {"host", {0.5, 1000}, {0.75, 2000}, true, EBB_NO_COSTS},
        .compressed = seed % 2 == 0};
    for (unsigned i = 0; i < iterations; i++) {
        struct ebb_model model = i % 2 ? make_training(6, (uint64_t)64 << 20, 900000000, seed + i)
                                       : make_random(seed + i, 200, (uint64_t)1 << 20, 1000);
        ebb__profile_add(&profile, &model, seed + i);
        assert_null(model.events);
    }
    return profile;
}

static void is_read_as_written(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 40; seed++) {
        struct ebb_profile profile = make_profile(seed, (unsigned)(seed % 5)), read;
        if (seed % 3 == 0 && profile.iteration_count) {
            profile.iterations[0].model.unordered = true;
            profile.iterations[0].model.slack_bytes = seed << 20;
        }
        struct ebb_profile_key key = {.words = {seed, ~seed}};
        uint8_t *bytes;
        size_t size;
        assert_int_equal(ebb__profile_encode(&profile, key, &bytes, &size), EBB_OK);
        struct ebb_error error = {0};
        if (ebb__profile_decode(bytes, size, key, "x", &read, &error) != EBB_OK)
            fail_msg("seed %d: %s", (int)seed, error.why);
        assert_int_equal(read.unmanaged_peak_bytes, profile.unmanaged_peak_bytes);
        assert_int_equal(read.small_bytes, 10);
        assert_int_equal(read.store_id, profile.store_id);
        assert_string_equal(read.machine.name, "host");
        assert_memory_equal(&read.machine.out, &profile.machine.out, sizeof read.machine.out);
        assert_memory_equal(&read.machine.in, &profile.machine.in, sizeof read.machine.in);
        assert_true(read.machine.duplex);
        assert_int_equal(read.compressed, profile.compressed);
        assert_int_equal(read.iteration_count, profile.iteration_count);
        for (uint32_t i = 0; i < read.iteration_count; i++) {
            assert_int_equal(read.iterations[i].first_serial, profile.iterations[i].first_serial);
            assert_same_model(&read.iterations[i].model, &profile.iterations[i].model);
        }
        free(bytes);
        ebb__profile_fini(&read);
        ebb__profile_fini(&profile);
    }
}

/* Policies on layers need the values of marks in a later run, too. */
static void marks_keep_their_values(void **state)
{
    (void)state;
    struct maker maker = {0};
    make_mark(&maker, 0, EBB_MARK_PHASE, EBB_PHASE_FORWARD);
    make_mark(&maker, 0, EBB_MARK_LAYER, 7);
    uint32_t block = make_block(&maker, 1 << 20);
    make_event(&maker, 10, EBB_EVENT_ALLOC, block, EBB_ACCESS_UNKNOWN);
    make_mark(&maker, 20, EBB_MARK_PHASE, EBB_PHASE_BACKWARD);
    make_mark(&maker, 20, EBB_MARK_LAYER, UINT32_MAX);
    make_event(&maker, 30, EBB_EVENT_FREE, block, EBB_ACCESS_UNKNOWN);
    struct ebb_model model = make_model(&maker, 40);
    struct ebb_profile profile = make_profile(3, 0), read;
    ebb__profile_add(&profile, &model, 1);
    struct ebb_profile_key key = {.words = {1, 2}};
    uint8_t *bytes;
    size_t size;
    struct ebb_error error = {0};
    assert_int_equal(ebb__profile_encode(&profile, key, &bytes, &size), EBB_OK);
    if (ebb__profile_decode(bytes, size, key, "x", &read, &error) != EBB_OK)
        fail_msg("%s", error.why);
    assert_int_equal(read.iterations[0].model.mark_count, 4);
    assert_same_model(&read.iterations[0].model, &profile.iterations[0].model);
    free(bytes);
    ebb__profile_fini(&read);
    profile.iterations[0].model.marks[1].tick = 2; /* an allocation */
    assert_int_equal(ebb__profile_encode(&profile, key, &bytes, &size), EBB_OK);
    assert_int_equal(ebb__profile_decode(bytes, size, key, "x", &read, &error), EBB_ERR_FORMAT);
    assert_string_equal(error.why, "a mark that is no event");
    free(bytes);
    ebb__profile_fini(&profile);
}

static void newest_iterations_stay(void **state)
{
    (void)state;
    struct ebb_profile profile = {0};
    for (uint64_t i = 1; i <= 6; i++) {
        struct ebb_model model = make_training((uint32_t)i + 1, 1 << 20, 1000000, i);
        ebb__profile_add(&profile, &model, i);
    }
    assert_int_equal(profile.iteration_count, EBB_PROFILE_ITERATIONS);
    for (uint32_t i = 0; i < EBB_PROFILE_ITERATIONS; i++)
        assert_int_equal(profile.iterations[i].first_serial, i + 3);
    /* The same iteration, added again, replaces the old one. */
    struct ebb_model model = make_training(5, 1 << 20, 2000000, 9);
    ebb__profile_add(&profile, &model, 4);
    assert_int_equal(profile.iteration_count, EBB_PROFILE_ITERATIONS);
    assert_int_equal(profile.iterations[3].first_serial, 4);
    assert_int_equal(ebb__model_iteration_ns(&profile.iterations[3].model), 2000000);
    assert_int_equal(profile.iterations[1].first_serial, 5);
    ebb__profile_fini(&profile);
}

/* A profile that is truncated, changed anywhere, or of another key is refused. No memory leaks. */
static void damage_is_seen(void **state)
{
    (void)state;
    struct ebb_profile profile = make_profile(7, 2), read;
    struct ebb_profile_key key = {{1, 2}, {3, 4}}, other = {{1, 3}, {3, 4}};
    uint8_t *bytes;
    size_t size;
    assert_int_equal(ebb__profile_encode(&profile, key, &bytes, &size), EBB_OK);
    for (size_t cut = 0; cut < size; cut += cut < 100 ? 1 : 37) {
        uint8_t *copy = must(malloc(cut + !cut));
        memcpy(copy, bytes, cut);
        assert_int_not_equal(ebb__profile_decode(copy, cut, key, "x", &read, NULL), EBB_OK);
        assert_int_equal(read.iteration_count, 0);
        free(copy);
    }
    for (size_t at = 0; at < size; at += at < 100 ? 1 : 11) {
        bytes[at] ^= 0x10;
        assert_int_not_equal(ebb__profile_decode(bytes, size, key, "x", &read, NULL), EBB_OK);
        assert_int_equal(read.iteration_count, 0);
        bytes[at] ^= 0x10;
    }
    assert_int_equal(ebb__profile_decode(bytes, size, other, "x", &read, NULL), EBB_ERR_FORMAT);
    other = key;
    other.program[1]++;
    assert_int_equal(ebb__profile_decode(bytes, size, other, "x", &read, NULL), EBB_ERR_FORMAT);
    assert_int_equal(ebb__profile_decode(bytes, size, key, "x", &read, NULL), EBB_OK);
    ebb__profile_fini(&read);
    free(bytes);
    ebb__profile_fini(&profile);
}

/* The clock events of a model: its first use of a persistent block instead of allocations. */
static void follow_accesses(struct ebb_model *model)
{
    bool any = false;
    model->clock_count = 1;
    for (uint32_t i = 0; i < model->tick_count; i++) {
        struct ebb_model_event *event = &model->events[i];
        bool may = event->kind == EBB_EVENT_ACCESS &&
                   model->blocks[event->block].alloc_tick == EBB_TICK_NONE;
        event->clock = may && !any;
        any = any || may;
    }
    assert_true(any);
    assert_int_equal(ebb__model_derive(model, NULL), EBB_OK);
}

/* A plan that follows accesses is kept, too. Allocations are no clock beside them. */
static void accesses_may_be_the_clock(void **state)
{
    (void)state;
    struct ebb_profile_key key = {.words = {1, 2}};
    for (unsigned lie = 0; lie < 3; lie++) {
        struct ebb_profile profile = {.machine = {"host", {0.5, 1000}, {0.5, 1000}, true}}, read;
        struct ebb_model made = make_training(4, (uint64_t)8 << 20, 1000000, 3);
        follow_accesses(&made);
        ebb__profile_add(&profile, &made, 0);
        struct ebb_model *model = &profile.iterations[0].model;
        for (uint32_t i = 0; i < model->tick_count; i++) {
            struct ebb_model_event *event = &model->events[i];
            bool persistent = event->block < model->block_count &&
                              model->blocks[event->block].alloc_tick == EBB_TICK_NONE;
            if ((lie == 1 && event->kind == EBB_EVENT_ALLOC) ||
                (lie == 2 && event->kind == EBB_EVENT_ACCESS && !persistent))
                event->clock = true;
        }
        uint8_t *bytes;
        size_t size;
        assert_int_equal(ebb__profile_encode(&profile, key, &bytes, &size), EBB_OK);
        assert_int_equal(ebb__profile_decode(bytes, size, key, "x", &read, NULL),
                         lie ? EBB_ERR_FORMAT : EBB_OK);
        if (!lie) {
            assert_true(ebb__model_announced(&read.iterations[0].model));
            assert_same_model(model, &read.iterations[0].model);
        }
        ebb__profile_fini(&read);
        free(bytes);
        ebb__profile_fini(&profile);
    }
}

/* A profile of an older or newer version is refused because of its version alone. */
static void other_versions_are_refused(void **state)
{
    (void)state;
    struct ebb_profile profile = make_profile(7, 2), read;
    struct ebb_profile_key key = {.words = {1, 2}};
    uint8_t *bytes;
    size_t size;
    assert_int_equal(ebb__profile_encode(&profile, key, &bytes, &size), EBB_OK);
    for (uint32_t version = EBB_PROFILE_MAJOR - 1; version <= EBB_PROFILE_MAJOR + 1; version++) {
        bool is_own = version == EBB_PROFILE_MAJOR;
        ebb__put_le32(bytes + 8, version);
        ebb__put_le64(bytes + EBB_PROFILE_HEADER_BYTES - 8,
                      ebb__trace_checksum(bytes, EBB_PROFILE_HEADER_BYTES - 8));
        assert_int_equal(ebb__profile_decode(bytes, size, key, "x", &read, NULL),
                         is_own ? EBB_OK : EBB_ERR_VERSION);
        assert_int_equal(read.iteration_count, is_own ? 2 : 0);
        ebb__profile_fini(&read);
    }
    free(bytes);
    ebb__profile_fini(&profile);
}

/* A body whose model breaks one rule is refused. Each rule is broken once. */
static void lies_are_seen(void **state)
{
    (void)state;
    struct ebb_profile_key key = {.words = {1, 2}};
    for (unsigned lie = 0; lie < 20; lie++) {
        struct ebb_profile profile = {.machine = {"host", {0.5, 1000}, {0.5, 1000}, true}}, read;
        struct ebb_model made = make_training(4, (uint64_t)8 << 20, 1000000, 3);
        ebb__profile_add(&profile, &made, 1);
        struct ebb_model *model = &profile.iterations[0].model;
        uint32_t last = model->block_count - 1; /* not persistent */
        uint32_t alloc = model->blocks[last].alloc_tick, use = 0;
        while (model->events[use].kind != EBB_EVENT_ACCESS)
            use++;
        switch (lie) {
        case 1:
            model->events[alloc].block = model->block_count;
            break;
        case 2:
            model->events[alloc].block = last - 1;
            break;
        case 3:
            model->events[alloc].kind = EBB_EVENT_FREE;
            break;
        case 4:
            model->events[use].kind = EBB_EVENT_KIND_COUNT;
            break;
        case 5:
            model->events[use].block = EBB_TICK_NONE;
            break;
        case 6:
            model->time_ns[use] = UINT64_MAX / 2;
            break;
        case 7:
            model->blocks[last].alloc_tick = model->tick_count;
            break;
        case 8:
            model->blocks[last].span_ticks = 0;
            break;
        case 9:
            model->blocks[last].size_bytes = 0;
            break;
        case 10:
            model->blocks[last].size_bytes = UINT64_MAX - 4;
            break;
        case 11:
            model->accesses[0].tick = model->tick_count;
            break;
        case 12:
            model->accesses[0].tick = alloc;
            break;
        case 13:
            profile.machine.in.ns_per_byte = 0.0 / 1.0;
            break;
        case 14:
            profile.machine.out.ns_per_byte = (double)INFINITY;
            break;
        case 15:
            model->events[alloc].clock = false;
            break;
        case 16:
            model->blocks[0].free_tick = 0;
            break;
        case 17:
            profile.machine.costs.huge_page_ns = -1;
            break;
        case 18:
            profile.machine.costs.ns_per_byte = (double)NAN;
            break;
        case 19:
            model->accesses[0].access = EBB_ACCESS_WRITE + 1;
            break;
        default:
            break;
        }
        uint8_t *bytes;
        size_t size;
        assert_int_equal(ebb__profile_encode(&profile, key, &bytes, &size), EBB_OK);
        struct ebb_error error = {0};
        enum ebb_status status = ebb__profile_decode(bytes, size, key, "x", &read, &error);
        if ((status == EBB_OK) != (lie == 0))
            fail_msg("lie %u: status %d, %s", lie, (int)status, error.why);
        ebb__profile_fini(&read);
        ebb__profile_fini(&profile);
        free(bytes);
    }
}

static void write_file(const char *name, const void *bytes, size_t size)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

static void folder_holds_what_was_stored(void **state)
{
    (void)state;
    char inner[PATH_MAX + 32];
    snprintf(inner, sizeof inner, "%s/.cache/ebb", folder);
    struct ebb_profile profile = make_profile(3, 2), read;
    struct ebb_profile_key key = {.words = {5, 6}}, other = {.words = {5, 7}};
    assert_int_equal(ebb__cache_load(inner, key, &read, NULL), EBB_ERR_IO);
    assert_int_equal(ebb__cache_store(inner, key, &profile, ebb__tuning()->cache_most_bytes, NULL),
                     EBB_OK);
    assert_int_equal(files_in(inner), 1);
    assert_int_equal(ebb__cache_load(inner, other, &read, NULL), EBB_ERR_IO);
    assert_int_equal(ebb__cache_load(inner, key, &read, NULL), EBB_OK);
    assert_int_equal(read.iteration_count, 2);
    ebb__profile_fini(&read);
    /* Writes the profile again, over the first one. */
    profile.unmanaged_peak_bytes = 77;
    assert_int_equal(ebb__cache_store(inner, key, &profile, ebb__tuning()->cache_most_bytes, NULL),
                     EBB_OK);
    assert_int_equal(files_in(inner), 1);
    assert_int_equal(ebb__cache_load(inner, key, &read, NULL), EBB_OK);
    assert_int_equal(read.unmanaged_peak_bytes, 77);
    ebb__profile_fini(&read);
    struct stat found;
    assert_int_equal(stat(inner, &found), 0);
    assert_int_equal(found.st_mode & 0777, 0700);
    ebb__cache_remove(inner, key);
    assert_int_equal(files_in(inner), 0);
    ebb__cache_remove(inner, key);
    ebb__profile_fini(&profile);
}

/* Files of garbage, a folder or a link in place of a profile, and the profile of another
 * program. */
static void foreign_files(void **state)
{
    (void)state;
    struct ebb_profile_key key = {.words = {0x11, 0x22}}, other = {.words = {0x33, 0x44}};
    const char *name = "00000000000000000000000000000000-00000000000000110000000000000022.profile";
    const char *theirs =
        "00000000000000000000000000000000-00000000000000330000000000000044.profile";
    char path[PATH_MAX + 64], from[PATH_MAX + 64];
    struct ebb_profile profile = make_profile(3, 1), read;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(from, sizeof from, "%s/%s", folder, theirs);
    write_file(name, "", 0);
    assert_int_not_equal(ebb__cache_load(folder, key, &read, NULL), EBB_OK);
    write_file(name, "rubbish, and more of it than a header has bytes: ........................",
               70);
    assert_int_not_equal(ebb__cache_load(folder, key, &read, NULL), EBB_OK);
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_not_equal(ebb__cache_load(folder, key, &read, NULL), EBB_OK);
    assert_int_not_equal(
        ebb__cache_store(folder, key, &profile, ebb__tuning()->cache_most_bytes, NULL), EBB_OK);
    assert_int_equal(files_in(folder), 1); /* no temporary file is left */
    rmdir(path);
    assert_int_equal(
        ebb__cache_store(folder, other, &profile, ebb__tuning()->cache_most_bytes, NULL), EBB_OK);
    assert_int_equal(symlink(theirs, path), 0);
    assert_int_not_equal(ebb__cache_load(folder, key, &read, NULL), EBB_OK);
    unlink(path);
    assert_int_equal(link(from, path), 0);
    assert_int_not_equal(ebb__cache_load(folder, key, &read, NULL), EBB_OK);
    assert_int_equal(ebb__cache_load(folder, other, &read, NULL), EBB_OK);
    ebb__profile_fini(&read);
    ebb__profile_fini(&profile);
}

static void file_of_another_user(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: needs root\n");
        skip();
    }
    struct ebb_profile_key key = {.words = {0x33, 0x44}};
    char path[PATH_MAX + 64];
    struct ebb_profile profile = make_profile(3, 1), read;
    snprintf(path, sizeof path,
             "%s/00000000000000000000000000000000-00000000000000330000000000000044.profile",
             folder);
    assert_int_equal(ebb__cache_store(folder, key, &profile, ebb__tuning()->cache_most_bytes, NULL),
                     EBB_OK);
    assert_int_equal(ebb__cache_load(folder, key, &read, NULL), EBB_OK);
    ebb__profile_fini(&read);
    assert_int_equal(chown(path, 65534, 65534), 0);
    assert_int_not_equal(ebb__cache_load(folder, key, &read, NULL), EBB_OK);
    ebb__profile_fini(&profile);
}

static void unwritable_folder(void **state)
{
    (void)state;
    struct ebb_profile profile = make_profile(3, 1);
    struct ebb_profile_key key = {.words = {1, 1}};
    struct ebb_error error = {0};
    static const char *const places[] = {"/proc/ebb", "/proc/none/at/all", "/dev/null/ebb", ""};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        assert_int_equal(
            ebb__cache_store(places[i], key, &profile, ebb__tuning()->cache_most_bytes, &error),
            EBB_ERR_IO);
        assert_true(error.why[0] != 0);
    }
    ebb__profile_fini(&profile);
}

static void oldest_go_first(void **state)
{
    (void)state;
    struct ebb_profile profile = make_profile(3, 2), read;
    struct ebb_profile_key key = {.words = {0, 9}};
    uint8_t *bytes;
    size_t size;
    assert_int_equal(ebb__profile_encode(&profile, key, &bytes, &size), EBB_OK);
    free(bytes);
    uint64_t cap = size * 4 + size / 2; /* sizes differ only by the key's bytes */
    write_file("neighbour.txt", "not ours", 8);
    write_file(".ebb-fresh", "being written", 13);
    write_file(".ebb-stale", "of a dead writer", 16);
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/.ebb-stale", folder);
    struct timespec past[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, path, past, 0), 0);
    for (uint64_t i = 1; i <= 6; i++) {
        key.words[0] = i;
        assert_int_equal(ebb__cache_store(folder, key, &profile, cap, NULL), EBB_OK);
        key.words[0] = 1; /* the first one is used again and again */
        assert_int_equal(ebb__cache_load(folder, key, &read, NULL), EBB_OK);
        ebb__profile_fini(&read);
        usleep(20000);
    }
    for (uint64_t i = 1; i <= 6; i++) {
        key.words[0] = i;
        bool there = ebb__cache_load(folder, key, &read, NULL) == EBB_OK;
        ebb__profile_fini(&read);
        assert_int_equal(there, i == 1 || i > 3);
    }
    assert_int_equal(files_in(folder), 4 + 2); /* plus the neighbour and the temporary file */
    key.words[0] = 99;
    assert_int_equal(ebb__cache_store(folder, key, &profile, size / 2, NULL), EBB_ERR_LIMIT);
    ebb__profile_fini(&profile);
}

/* The newest profile of the same program with other arguments, and of no other program. */
static void other_arguments(void **state)
{
    (void)state;
    struct ebb_profile profile = make_profile(3, 1), read;
    struct ebb_profile_key key = {{9, 9}, {1, 1}};
    char none[PATH_MAX + 8];
    snprintf(none, sizeof none, "%s/none", folder);
    assert_int_equal(ebb__cache_load_other(none, key, &read, NULL), EBB_ERR_IO);
    assert_int_equal(ebb__cache_load_other(folder, key, &read, NULL), EBB_ERR_IO);
    for (uint64_t i = 1; i <= 4; i++) {
        struct ebb_profile_key one = {{i, 0}, {i == 4 ? 2 : 1, 1}};
        profile.unmanaged_peak_bytes = i;
        assert_int_equal(
            ebb__cache_store(folder, one, &profile, ebb__tuning()->cache_most_bytes, NULL), EBB_OK);
        usleep(20000);
    }
    assert_int_equal(ebb__cache_load_other(folder, key, &read, NULL), EBB_OK);
    assert_int_equal(read.unmanaged_peak_bytes, 3);
    ebb__profile_fini(&read);
    key.words[0] = 3; /* not its own */
    key.words[1] = 0;
    usleep(20000);
    struct ebb_profile_key first = {{1, 0}, {1, 1}};
    assert_int_equal(ebb__cache_load(folder, first, &read, NULL), EBB_OK); /* is used: the newest */
    ebb__profile_fini(&read);
    assert_int_equal(ebb__cache_load_other(folder, key, &read, NULL), EBB_OK);
    assert_int_equal(read.unmanaged_peak_bytes, 1);
    ebb__profile_fini(&read);
    ebb__profile_fini(&profile);
}

/* Writers and readers run at once. A reader gets either a whole profile or nothing. */
static void many_at_once(void **state)
{
    (void)state;
    struct ebb_profile_key key = {.words = {8, 8}};
    pid_t children[4];
    for (int c = 0; c < 4; c++) {
        children[c] = fork();
        assert_true(children[c] >= 0);
        if (children[c] == 0) {
            struct ebb_profile mine = make_profile((uint64_t)c + 1, 2), read;
            int wrong = 0;
            for (int i = 0; i < 150; i++) {
                wrong |= ebb__cache_store(folder, key, &mine, ebb__tuning()->cache_most_bytes,
                                          NULL) != EBB_OK;
                wrong |= ebb__cache_load(folder, key, &read, NULL) != EBB_OK;
                ebb__profile_fini(&read);
            }
            _exit(wrong);
        }
    }
    for (int c = 0; c < 4; c++) {
        int status;
        assert_int_equal(waitpid(children[c], &status, 0), children[c]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(files_in(folder), 1);
}

/* Starts `command`, and waits for its key to differ from this program's. */
static pid_t key_of(char *const *command, struct ebb_profile_key *key)
{
    struct ebb_profile_key own;
    assert_true(ebb__cache_key(getpid(), 4096, &own));
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        execvp(command[0], command);
        _exit(1);
    }
    *key = own;
    for (int i = 0; i < 500 && key->words[0] == own.words[0]; i++) {
        usleep(2000);
        if (!ebb__cache_key(child, 4096, key))
            *key = own;
    }
    assert_int_not_equal(key->words[0], own.words[0]);
    return child;
}

/* Ends what the command started, too: it would keep the output open, for which ctest waits. */
static void end(pid_t child)
{
    assert_int_equal(kill(-child, 9), 0);
    waitpid(child, NULL, 0);
}

static void keys_tell_programs_apart(void **state)
{
    (void)state;
    struct ebb_profile_key own, again, other, sleeper;
    assert_true(ebb__cache_key(getpid(), 4096, &own));
    assert_true(ebb__cache_key(getpid(), 4096, &again));
    assert_memory_equal(&own, &again, sizeof own);
    assert_true(ebb__cache_key(getpid(), 8192, &other));
    assert_memory_not_equal(own.words, other.words, sizeof own.words);
    assert_memory_not_equal(own.program, other.program, sizeof own.program);
    pid_t child = key_of((char *[]){"sleep", "30", NULL}, &sleeper);
    assert_memory_not_equal(own.program, sleeper.program, sizeof own.program);
    end(child);
    assert_false(ebb__cache_key(child, 4096, &sleeper));
}

/* Arguments behind the one that names a file, or behind a text or a module, are not the program. */
static void programs_have_arguments(void **state)
{
    (void)state;
    static const struct {
        char *one[6], *other[6];
        bool same;
    } pairs[] = {
        {{"sleep", "30"}, {"sleep", "31"}, true},
        {{"sh", "-c", "sleep 30; :"}, {"sh", "-c", "sleep 30; :", "x"}, true},
        {{"sh", "-c", "sleep 30; :"}, {"sh", "-c", "sleep 31; :"}, false},
        {{"tail", "-f", "/etc/passwd"}, {"tail", "-f", "/etc/group"}, false},
        {{"tail", "-f", "/etc/passwd", "-s", "2"}, {"tail", "-f", "/etc/passwd", "-s", "3"}, true},
    };
    int silent = open("/dev/null", O_WRONLY | O_CLOEXEC), out = dup(1);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct ebb_profile_key one, other;
        dup2(silent, 1);
        pid_t first = key_of(pairs[i].one, &one), second = key_of(pairs[i].other, &other);
        dup2(out, 1);
        end(first);
        end(second);
        assert_memory_not_equal(one.words, other.words, sizeof one.words);
        if ((memcmp(one.program, other.program, sizeof one.program) == 0) != pairs[i].same)
            fail_msg("pair %d", (int)i);
    }
    close(silent);
    close(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_read_as_written),
        cmocka_unit_test(marks_keep_their_values),
        cmocka_unit_test(newest_iterations_stay),
        cmocka_unit_test(damage_is_seen),
        cmocka_unit_test(other_versions_are_refused),
        cmocka_unit_test(lies_are_seen),
        cmocka_unit_test(accesses_may_be_the_clock),
        cmocka_unit_test_setup_teardown(folder_holds_what_was_stored, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(foreign_files, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(file_of_another_user, make_folder, remove_folder),
        cmocka_unit_test(unwritable_folder),
        cmocka_unit_test_setup_teardown(oldest_go_first, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(other_arguments, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(many_at_once, make_folder, remove_folder),
        cmocka_unit_test(keys_tell_programs_apart),
        cmocka_unit_test(programs_have_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
