/* The shim's own threads, which the program must not notice.
 *
 * They take no signal of the program. They do not keep the process alive: the C library calls
 * exit(0) when the last thread ends, if main() has left by pthread_exit(). It counts the threads
 * for that, and the shim subtracts its own. If a C library does not export the count, such a
 * program does not end. */
#include "shim.h"

#include <pthread.h>

bool ebb__shim_is_last_thread(void)
{
    unsigned *threads;
    EBB_BEHIND(threads, __nptl_nthreads);
    return threads && ebb__shim_runtime_now() && __atomic_load_n(threads, __ATOMIC_RELAXED) <= 1;
}

void ebb__shim_hide_threads(unsigned count)
{
    unsigned *threads;
    EBB_BEHIND(threads, __nptl_nthreads);
    if (threads && __atomic_load_n(threads, __ATOMIC_RELAXED) > count)
        __atomic_fetch_sub(threads, count, __ATOMIC_RELAXED);
}
