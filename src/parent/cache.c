#include "parent/cache.h"

#include "base/tuning.h"

#include "base/file.h"
#include "base/vec.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define SUFFIX ".profile"
#define PROGRAM_NAME 34    /* 32 digits, a dash and the end */
#define UNFINISHED ".ebb-" /* prefix of a file that is being written */
/* Older files belong to writers that were killed. No write takes a second, so the exact value does
 * not matter. */
#define UNFINISHED_SECONDS 3600

static bool add_link(XXH3_state_t *hash, int process_id, const char *name)
{
    char path[64], target[PATH_MAX];
    snprintf(path, sizeof path, "/proc/%d/%s", process_id, name);
    ssize_t length = readlink(path, target, sizeof target);
    return length > 0 && XXH3_128bits_update(hash, target, (size_t)length) == XXH_OK &&
           XXH3_128bits_update(hash, "", 1) == XXH_OK;
}

enum { ARGUMENTS_MOST = 1 << 16 }; /* longer ones count with their first bytes */

/* The arguments of the process, each ended by a zero. Returns their bytes; 0: /proc does not
 * tell. */
static size_t read_arguments(int process_id, char arguments[ARGUMENTS_MOST])
{
    char path[64];
    size_t bytes = 0;
    snprintf(path, sizeof path, "/proc/%d/cmdline", process_id);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t got;
    while ((got = read(file, arguments + bytes, ARGUMENTS_MOST - 1 - bytes)) > 0)
        bytes += (size_t)got;
    close(file);
    arguments[bytes] = 0;
    return got < 0 ? 0 : bytes;
}

static bool is_file_of(int process_id, const char *name)
{
    char path[PATH_MAX];
    struct stat found;
    int length = *name == '/' ? snprintf(path, sizeof path, "%s", name)
                              : snprintf(path, sizeof path, "/proc/%d/cwd/%s", process_id, name);
    return length > 0 && length < (int)sizeof path && stat(path, &found) == 0 &&
           S_ISREG(found.st_mode);
}

/* The first bytes of the arguments, those that say which program it is: an interpreter does what a
 * file says, a module or a text. */
static size_t naming_bytes(int process_id, const char *arguments, size_t bytes)
{
    size_t own = strlen(arguments) + 1;
    for (size_t at = own; at < bytes; at += strlen(arguments + at) + 1) {
        const char *word = arguments + at;
        size_t end = at + strlen(word) + 1;
        if ((strcmp(word, "-c") == 0 || strcmp(word, "-m") == 0) && end < bytes)
            return end + strlen(arguments + end) + 1;
        if (is_file_of(process_id, word))
            return end;
    }
    return own;
}

/* The hash of `about`, the executable, the working directory, and the arguments. */
static bool hash_of(int process_id, const char *about, const char *arguments, size_t bytes,
                    uint64_t words[2])
{
    XXH3_state_t *hash = XXH3_createState();
    if (!hash)
        return false;
    bool good = XXH3_128bits_reset(hash) == XXH_OK &&
                XXH3_128bits_update(hash, about, strlen(about) + 1) == XXH_OK &&
                add_link(hash, process_id, "exe") && add_link(hash, process_id, "cwd") &&
                XXH3_128bits_update(hash, arguments, bytes) == XXH_OK;
    XXH128_hash_t value = XXH3_128bits_digest(hash);
    XXH3_freeState(hash);
    words[0] = value.low64;
    words[1] = value.high64;
    return good;
}

bool ebb__cache_key(int process_id, uint64_t threshold_bytes, struct ebb_profile_key *key)
{
    /* Another tuning makes other plans, so the tuning is part of the key. */
    char about[600], tuning[400], arguments[ARGUMENTS_MOST];
    if (!ebb__tuning_write(tuning, sizeof tuning))
        tuning[0] = 0;
    snprintf(about, sizeof about, EBB_VERSION " %llu %llx %s", (unsigned long long)threshold_bytes,
             (unsigned long long)ebb__tuning_table(), tuning);
    size_t bytes = read_arguments(process_id, arguments);
    return bytes && hash_of(process_id, about, arguments, bytes, key->words) &&
           hash_of(process_id, about, arguments, naming_bytes(process_id, arguments, bytes),
                   key->program);
}

/* The part of a file's name that all profiles of the program share. */
static void name_of_program(struct ebb_profile_key key, char name[PROGRAM_NAME])
{
    snprintf(name, PROGRAM_NAME, "%016llx%016llx-", (unsigned long long)key.program[0],
             (unsigned long long)key.program[1]);
}

static bool path_of(const char *directory, struct ebb_profile_key key, char path[PATH_MAX])
{
    char program[PROGRAM_NAME];
    name_of_program(key, program);
    int length = snprintf(path, PATH_MAX, "%s/%s%016llx%016llx" SUFFIX, directory, program,
                          (unsigned long long)key.words[0], (unsigned long long)key.words[1]);
    return length > 0 && length < PATH_MAX;
}

enum ebb_status ebb__cache_load(const char *directory, struct ebb_profile_key key,
                                struct ebb_profile *profile, struct ebb_error *error)
{
    char path[PATH_MAX];
    struct stat found;
    memset(profile, 0, sizeof *profile);
    if (!path_of(directory, key, path))
        return ebb__fail(error, EBB_ERR_IO, directory, "the path is too long");
    if (lstat(path, &found) != 0)
        return ebb__fail(error, EBB_ERR_IO, path, "%s", strerror(errno));
    if (!S_ISREG(found.st_mode) || found.st_uid != geteuid() ||
        (uint64_t)found.st_size > ebb__tuning()->cache_most_bytes)
        return ebb__fail(error, EBB_ERR_FORMAT, path, "not a file of this user's cache");
    struct ebb_file_content content;
    enum ebb_status status = ebb__file_read(path, "a profile", 0, NULL, &content, error);
    if (status)
        return status;
    status = ebb__profile_decode(content.bytes, content.size, key, path, profile, error);
    free(content.bytes);
    if (status == EBB_OK)
        utimensat(AT_FDCWD, path, NULL,
                  AT_SYMLINK_NOFOLLOW); /* marks it as used; errors are ignored */
    return status;
}

static bool is_newer(struct timespec one, struct timespec other)
{
    return one.tv_sec != other.tv_sec ? one.tv_sec > other.tv_sec : one.tv_nsec > other.tv_nsec;
}

/* The key in the name of a profile of the program; false: it is none, or is the one of `key`. */
static bool other_key(const char *name, struct ebb_profile_key key, struct ebb_profile_key *other)
{
    char program[PROGRAM_NAME];
    unsigned long long low, high;
    int end = 0;
    name_of_program(key, program);
    size_t length = strlen(program);
    if (strncmp(name, program, length) != 0 ||
        sscanf(name + length, "%16llx%16llx" SUFFIX "%n", &low, &high, &end) != 2 ||
        end != 32 + (int)strlen(SUFFIX) || name[length + (size_t)end])
        return false;
    *other = key;
    other->words[0] = low;
    other->words[1] = high;
    return low != key.words[0] || high != key.words[1];
}

enum ebb_status ebb__cache_load_other(const char *directory, struct ebb_profile_key key,
                                      struct ebb_profile *profile, struct ebb_error *error)
{
    struct ebb_profile_key best, other;
    struct timespec best_used = {0};
    bool any = false;
    memset(profile, 0, sizeof *profile);
    DIR *folder = opendir(directory);
    if (!folder)
        return ebb__fail(error, EBB_ERR_IO, directory, "%s", strerror(errno));
    for (struct dirent *found; (found = readdir(folder));) {
        struct stat status;
        if (!other_key(found->d_name, key, &other) ||
            fstatat(dirfd(folder), found->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 ||
            (any && !is_newer(status.st_mtim, best_used)))
            continue;
        any = true;
        best = other;
        best_used = status.st_mtim;
    }
    closedir(folder);
    return any ? ebb__cache_load(directory, best, profile, error)
               : ebb__fail(error, EBB_ERR_IO, directory, "no profile of this program");
}

void ebb__cache_remove(const char *directory, struct ebb_profile_key key)
{
    char path[PATH_MAX];
    if (path_of(directory, key, path))
        unlink(path);
}

/* Creates the folder and its parent, which may be ~/.cache. */
static bool make_directory(const char *directory)
{
    if (mkdir(directory, 0700) == 0 || errno == EEXIST)
        return true;
    char parent[PATH_MAX];
    const char *slash = strrchr(directory, '/');
    if (errno != ENOENT || !slash || slash == directory ||
        (size_t)(slash - directory) >= sizeof parent)
        return false;
    memcpy(parent, directory, (size_t)(slash - directory));
    parent[slash - directory] = 0;
    return (mkdir(parent, 0700) == 0 || errno == EEXIST) &&
           (mkdir(directory, 0700) == 0 || errno == EEXIST);
}

static bool write_all(int file, const uint8_t *bytes, size_t size)
{
    while (size > 0) {
        ssize_t wrote = write(file, bytes, size);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return false;
        bytes += wrote;
        size -= (size_t)wrote;
    }
    return true;
}

struct entry {
    char name[NAME_MAX + 1];
    uint64_t bytes;
    struct timespec used;
};

static int by_use(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    if (a->used.tv_sec != b->used.tv_sec)
        return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
    return a->used.tv_nsec < b->used.tv_nsec ? -1 : a->used.tv_nsec > b->used.tv_nsec ? 1 : 0;
}

static bool has_suffix(const char *name)
{
    size_t length = strlen(name);
    return length > strlen(SUFFIX) && strcmp(name + length - strlen(SUFFIX), SUFFIX) == 0;
}

/* Removes the least recently used files until the rest fits, and the files of killed writers. Never
 * removes `kept`. */
static void keep_to(const char *directory, uint64_t most_bytes, const char *kept)
{
    DIR *folder = opendir(directory);
    if (!folder)
        return;
    EBB_VEC(struct entry) entries = {0};
    uint64_t all = 0;
    for (struct dirent *found; (found = readdir(folder));) {
        struct entry entry = {0};
        struct stat status;
        if (fstatat(dirfd(folder), found->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(status.st_mode))
            continue;
        if (strncmp(found->d_name, UNFINISHED, strlen(UNFINISHED)) == 0 &&
            status.st_mtim.tv_sec + UNFINISHED_SECONDS < time(NULL))
            unlinkat(dirfd(folder), found->d_name, 0);
        if (!has_suffix(found->d_name))
            continue;
        entry.bytes = (uint64_t)status.st_size;
        entry.used = status.st_mtim;
        all += entry.bytes;
        memcpy(entry.name, found->d_name, strlen(found->d_name) + 1);
        if (strcmp(entry.name, kept) != 0 && !ebb_vec_push(&entries, entry))
            break;
    }
    if (entries.count)
        qsort(entries.items, entries.count, sizeof *entries.items, by_use);
    for (size_t i = 0; i < entries.count && all > most_bytes; i++)
        if (unlinkat(dirfd(folder), entries.items[i].name, 0) == 0)
            all -= entries.items[i].bytes;
    ebb_vec_free(&entries);
    closedir(folder);
}

enum ebb_status ebb__cache_store(const char *directory, struct ebb_profile_key key,
                                 const struct ebb_profile *profile, uint64_t most_bytes,
                                 struct ebb_error *error)
{
    char path[PATH_MAX], unfinished[PATH_MAX];
    uint8_t *bytes;
    size_t size;
    if (!path_of(directory, key, path) ||
        snprintf(unfinished, sizeof unfinished, "%s/" UNFINISHED "XXXXXX", directory) >=
            (int)sizeof unfinished)
        return ebb__fail(error, EBB_ERR_IO, directory, "the path is too long");
    if (ebb__profile_encode(profile, key, &bytes, &size) != EBB_OK)
        return ebb__fail(error, EBB_ERR_MEMORY, path, "no memory for a profile");
    if (size > most_bytes) {
        free(bytes);
        return ebb__fail(error, EBB_ERR_LIMIT, path, "larger than the whole cache may be");
    }
    int file = make_directory(directory) ? mkostemp(unfinished, O_CLOEXEC) : -1;
    int why = file < 0 ? errno : 0;
    if (file >= 0) {
        if (!write_all(file, bytes, size))
            why = errno ? errno : EIO;
        if (close(file) != 0 && !why)
            why = errno;
        if (!why && rename(unfinished, path) != 0)
            why = errno;
        if (why)
            unlink(unfinished);
    }
    free(bytes);
    if (why)
        return ebb__fail(error, EBB_ERR_IO, path, "%s", strerror(why));
    keep_to(directory, most_bytes, strrchr(path, '/') + 1);
    return EBB_OK;
}
