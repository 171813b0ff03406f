/* The end of a fork's child: counts the pages that it has copied, in case the parent has not.
 *
 * The parent counts copies in living processes (src/parent/copies.c). A child may end before that.
 * So a child with enough page faults counts its private pages once more itself, when it ends by
 * exit() or _exit(). A killed child does not. */
#include "base/smaps.h"
#include "base/tuning.h"
#include "shim.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT void _exit(int status);
EXPORT void _Exit(int status);

static struct ebb_counters *counters; /* NULL: not in the child of a fork */
static long faults_before;

static long faults(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_minflt : 0;
}

void ebb__shim_watch_ending(struct ebb_counters *own)
{
    counters = own;
    faults_before = faults();
}

__attribute__((destructor)) static void note_copies(void)
{
    int saved = errno;
    struct ebb_smaps smaps;
    if (counters && !atomic_load(&counters->retired) &&
        faults() - faults_before >= (long)ebb__tuning()->fork_least_faults &&
        ebb__smaps_read("/proc/self/smaps", atomic_load(&counters->arena_first),
                        atomic_load(&counters->arena_last), &smaps)) {
        uint64_t held = atomic_load(&counters->held_bytes);
        if (smaps.private_bytes > held)
            atomic_store(&counters->copied_bytes, smaps.private_bytes - held);
    }
    counters = NULL;
    errno = saved;
}

void _exit(int status)
{
    void (*next)(int);
    EBB_BEHIND(next, _exit);
    note_copies();
    next(status);
    __builtin_unreachable();
}

void _Exit(int status)
{
    _exit(status);
}
