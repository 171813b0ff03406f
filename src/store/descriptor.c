/* A store in an open file. System calls read and write it, and bypass the page cache if the file
 * system can. */
#include "store/store.h"

#include "base/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Static, since the shim must not allocate. A process has one store of its own, perhaps on several
 * disks, and may read those of its ancestors. -1: closed. */
#define MOST_STORES (EBB_STORE_MOST * EBB_STORE_MOST_PLACES)
static int descriptors[MOST_STORES];
static unsigned descriptor_count; /* entries ever used */

static int file_write(void *state, const void *from, uint64_t bytes, uint64_t offset)
{
    int descriptor = *(int *)state;
    if (!ebb__file_may_have(offset + bytes))
        return ENOSPC;
    for (uint64_t done = 0; done < bytes;) {
        ssize_t wrote =
            pwrite(descriptor, (const char *)from + done, bytes - done, (off_t)(offset + done));
        if (wrote > 0)
            done += (uint64_t)wrote;
        else if (wrote == 0)
            return ENOSPC;
        else if (errno != EINTR && errno != EAGAIN)
            return errno;
    }
    return 0;
}

static int file_read(void *state, void *to, uint64_t bytes, uint64_t offset)
{
    int descriptor = *(int *)state;
    for (uint64_t done = 0; done < bytes;) {
        ssize_t got = pread(descriptor, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (got > 0)
            done += (uint64_t)got;
        else if (got == 0)
            return EIO; /* the file is shorter than the bytes written to it */
        else if (errno != EINTR && errno != EAGAIN)
            return errno;
    }
    return 0;
}

static void file_close(void *state)
{
    int *descriptor = state;
    if (*descriptor >= 0)
        close(*descriptor);
    *descriptor = -1;
}

static size_t file_descriptors(void *state, int *found, size_t most)
{
    if (most > 0)
        found[0] = *(const int *)state;
    return most > 0;
}

static const struct ebb_store_ops file_ops = {file_write, file_read, file_close, file_descriptors};

enum ebb_status ebb__store_descriptor_open(int descriptor, const char *place, uint64_t limit_bytes,
                                           struct ebb_store *store, struct ebb_error *error)
{
    unsigned at = 0;
    while (at < descriptor_count && descriptors[at] >= 0)
        at++;
    if (at == MOST_STORES) {
        close(descriptor);
        return ebb__fail(error, EBB_ERR_LIMIT, place, "too many stores in one process");
    }
    descriptor = ebb__descriptor_high(descriptor);
    /* Bypass the page cache if the file system can. Others (tmpfs) use it. */
    int flags = fcntl(descriptor, F_GETFL);
    if (flags >= 0)
        fcntl(descriptor, F_SETFL, flags | O_DIRECT);
    int *kept = &descriptors[at];
    *kept = descriptor;
    descriptor_count += at == descriptor_count;
    *store = (struct ebb_store){&file_ops, kept, limit_bytes};
    return EBB_OK;
}
