#include "base/limits.h"

#include <fcntl.h>
#include <unistd.h>

/* A table of descriptors grows to the highest one, and a fork copies it. A program whose limit is
 * above this will hardly use that many. */
#define MOST_NUMBER ((rlim_t)4096)
#define USUAL_NUMBER 700
#define ROOM 256 /* numbers reserved above the program's descriptors */

bool ebb__limit_raise(int resource, uint64_t least, struct rlimit *before)
{
    if (getrlimit(resource, before) != 0) {
        *before = (struct rlimit){RLIM_INFINITY, RLIM_INFINITY};
        return false;
    }
    if (before->rlim_cur >= least)
        return true;
    struct rlimit raised = {.rlim_cur = least, .rlim_max = before->rlim_max};
    if (raised.rlim_max < least)
        raised.rlim_max = least; /* only a privileged process may do this */
    return setrlimit(resource, &raised) == 0;
}

void ebb__limit_restore(int resource, const struct rlimit *before)
{
    struct rlimit now;
    if (getrlimit(resource, &now) == 0 &&
        (now.rlim_cur != before->rlim_cur || now.rlim_max != before->rlim_max))
        setrlimit(resource, before);
}

bool ebb__memory_file_size(int descriptor, uint64_t bytes)
{
    struct rlimit before;
    bool good =
        ebb__limit_raise(RLIMIT_FSIZE, bytes, &before) && ftruncate(descriptor, (off_t)bytes) == 0;
    ebb__limit_restore(RLIMIT_FSIZE, &before);
    return good;
}

/* Duplicates the descriptor to the highest free number below the limit. */
static int below(int descriptor, rlim_t limit)
{
    int high = -1;
    for (int at = (int)limit - 1; high < 0 && at > descriptor && at + ROOM >= (int)limit; at--)
        high = fcntl(descriptor, F_DUPFD_CLOEXEC, at);
    return high;
}

/* Duplicates the descriptor to a free number from `limit` on, whatever the program's limit is. */
static int above(int descriptor, rlim_t limit)
{
    struct rlimit before;
    int high = -1;
    if (ebb__limit_raise(RLIMIT_NOFILE, limit + ROOM, &before))
        high = fcntl(descriptor, F_DUPFD_CLOEXEC, (int)limit);
    ebb__limit_restore(RLIMIT_NOFILE, &before);
    return high;
}

int ebb__descriptor_high(int descriptor)
{
    static _Atomic rlim_t highest; /* limit seen: a program that lowers it may raise it again */
    struct rlimit limit;
    int high = -1;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > MOST_NUMBER) {
        high = fcntl(descriptor, F_DUPFD_CLOEXEC, USUAL_NUMBER);
    } else {
        if (highest < limit.rlim_cur)
            highest = limit.rlim_cur;
        high = above(descriptor, highest);
        if (high < 0)
            high = above(descriptor, limit.rlim_cur);
        if (high < 0)
            high = below(descriptor, limit.rlim_cur);
    }
    if (high < 0)
        return descriptor;
    close(descriptor);
    return high;
}

bool ebb__file_may_have(uint64_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= bytes;
}
