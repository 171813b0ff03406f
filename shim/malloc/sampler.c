/* The sampler: a thread that asks libc how much its allocator has allocated, for the summary, if
 * the next allocator is libc's.
 *
 * The query takes the locks of that allocator in turn. A thread that holds one may wait for a page,
 * in a signal handler or on a stack in a block. So no thread that may have to fetch this page can
 * ask. The sampler does nothing else. */
#include "shim.h"

#include "base/tuning.h"

#include <malloc.h>
#include <time.h>

static void *sample(void *argument)
{
    struct ebb_counters *counters = argument;
    /* The query walks the allocator's free lists, so it becomes ever less frequent. */
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
    return ebb__join_start_thread(sample, &ring->counters);
}
