#include "store_dir.h"

#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

bool ebb__directory_in_memory(const char *path)
{
    struct statfs status;
    if (statfs(path, &status) != 0)
        return false;
    return status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC;
}

/* Tries what the store will do: opens a file without a name. */
static int try_directory(const char *path)
{
    int descriptor = ebb__store_open_nameless(path);
    if (descriptor < 0)
        return errno;
    close(descriptor);
    return 0;
}

static bool make_absolute(const char *path, char *absolute, size_t bytes)
{
    char *resolved = realpath(path, NULL);
    if (!resolved)
        return false;
    bool fits = (size_t)snprintf(absolute, bytes, "%s", resolved) < bytes;
    free(resolved);
    return fits;
}

enum ebb_status ebb__store_dir_find(const char *given, char *path, size_t bytes,
                                    struct ebb_error *error)
{
    if (given) {
        int why = make_absolute(given, path, bytes) ? try_directory(path) : errno;
        if (why == 0)
            return EBB_OK;
        enum ebb_status status = ebb__fail(error, EBB_ERR_IO, given, "%s", strerror(why));
        ebb__error_set_remedy(error, "--store takes a directory that you may write to, on a disk "
                                     "with room for what does not fit into the budget");
        return status;
    }
    const char *const candidates[] = {getenv("TMPDIR"), "/var/tmp", ".", getenv("HOME")};
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++)
        if (candidates[i] && *candidates[i] && !ebb__directory_in_memory(candidates[i]) &&
            make_absolute(candidates[i], path, bytes) && try_directory(path) == 0)
            return EBB_OK;
    enum ebb_status status =
        ebb__fail(error, EBB_ERR_IO, "--store", "no writable directory on a disk found");
    ebb__error_set_remedy(error, "name one: ebb run --store DIR ...");
    return status;
}

/* True for "memory" and "memory:NODE", even if a directory of that name exists. */
static bool is_memory(const char *given)
{
    size_t digits = strspn(given + (strncmp(given, "memory:", 7) == 0 ? 7 : 0), "0123456789");
    return strcmp(given, "memory") == 0 ||
           (strncmp(given, "memory:", 7) == 0 && digits > 0 && given[7 + digits] == 0);
}

enum ebb_status ebb__store_places_find(const char *const *given, size_t count, char *places,
                                       size_t bytes, struct ebb_error *error)
{
    if (count == 0)
        return ebb__store_dir_find(NULL, places, bytes, error);
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        char place[PATH_MAX];
        if (is_memory(given[i])) {
            snprintf(place, sizeof place, "/sys/devices/system/node/node%s",
                     given[i][6] ? given[i] + 7 : "0");
            if (given[i][6] && access(place, F_OK) != 0)
                return ebb__fail(error, EBB_ERR_IO, given[i], "there is no such NUMA node");
            snprintf(place, sizeof place, "%s", given[i]);
        } else {
            enum ebb_status status = ebb__store_dir_find(given[i], place, sizeof place, error);
            if (status != EBB_OK)
                return status;
        }
        int length = snprintf(places + used, bytes - used, "%s%s", i ? "\n" : "", place);
        if (strchr(place, '\n') || (size_t)length >= bytes - used)
            return ebb__fail(error, EBB_ERR_ARGUMENT, given[i], "path too long, or of two lines");
        used += (size_t)length;
    }
    return EBB_OK;
}

bool ebb__cache_dir_find(char *path, size_t bytes)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = -1;
    if (cache && cache[0] == '/') /* relative paths are invalid: XDG Base Directory Specification */
        length = snprintf(path, bytes, "%s/ebb", cache);
    else if (home && home[0] == '/')
        length = snprintf(path, bytes, "%s/.cache/ebb", home);
    return length > 0 && (size_t)length < bytes;
}
