/* The sampler: a thread that asks libc what its allocator has given out, where the next allocator is
 * libc's, for the summary.
 *
 * The answer takes the locks of that allocator, one after the other. Whoever has one may be waiting for a
 * page, in a signal handler or on a stack that is a block. So no thread that the page may need can ask,
 * and this one does nothing else. */
#include "shim.h"

#include "base/tuning.h"

#include <malloc.h>
#include <time.h>

static void *sample(void *argument)
{
    struct ebb_counters *counters = argument;
    /* Walks its free lists: ever more rarely. */
    for (uint64_t pause_ns = ebb__tuning()->unmanaged_sample_ns;;
         pause_ns += pause_ns < ebb__tuning_unmanaged_most_ns() ? pause_ns : 0) {
        struct mallinfo2 info = mallinfo2();
        ebb__ledger_raise(&counters->unmanaged_bytes, info.uordblks + info.hblkhd);
        struct timespec pause = {.tv_sec = (time_t)(pause_ns / 1000000000),
                                 .tv_nsec = (long)(pause_ns % 1000000000)};
        nanosleep(&pause, NULL);
    }
    return NULL;
}

bool ebb__shim_start_sampler(struct ebb_ring *ring)
{
    return ebb__shim_start_thread(sample, &ring->counters);
}
