/* A store in a directory: a file without a name, which is deleted when the process ends. */
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_NAMES 8 /* 128 random bits are never taken, unless the directory lies */

/* The file has a random name for a moment. Anybody who could guess it could put another file
 * there. */
static int open_and_unlink(const char *directory)
{
    char path[4096];
    for (int tries = 0; tries < MOST_NAMES; tries++) {
        uint64_t random[2];
        if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
            return -1;
        if ((size_t)snprintf(path, sizeof path, "%s/.ebb-%016llx%016llx", directory,
                             (unsigned long long)random[0],
                             (unsigned long long)random[1]) >= sizeof path) {
            errno = ENAMETOOLONG;
            return -1;
        }
        int descriptor = open(path, O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC, 0600);
        if (descriptor >= 0)
            unlink(path);
        if (descriptor >= 0 || errno != EEXIST)
            return descriptor;
    }
    return -1;
}

int ebb__store_open_nameless(const char *directory)
{
    int descriptor = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return descriptor;
    return open_and_unlink(directory);
}

/* True if the file's pages are the medium itself: the file system reports DAX. */
static bool is_on_persistent_memory(int descriptor)
{
    struct statx status;
    return statx(descriptor, "", AT_EMPTY_PATH, STATX_TYPE, &status) == 0 &&
           (status.stx_attributes & STATX_ATTR_DAX);
}

enum ebb_status ebb__store_file_open(const char *directory, uint64_t limit_bytes,
                                     struct ebb_store *store, struct ebb_error *error)
{
    int descriptor = ebb__store_open_nameless(directory);
    if (descriptor < 0)
        return ebb__fail(error, EBB_ERR_IO, directory, "%s", strerror(errno));
    return is_on_persistent_memory(descriptor)
               ? ebb__store_mapped_open(descriptor, directory, limit_bytes, store, error)
               : ebb__store_descriptor_open(descriptor, directory, limit_bytes, store, error);
}
