/* The shim's own threads, which the program must not notice.
 *
 * They take no signal of the program. They do not keep the process alive: the C library calls
 * exit(0) when the last thread ends, if main() has left by pthread_exit(). It counts the threads
 * for that, and the shim subtracts its own. If a C library does not export the count, such a
 * program does not end. */
#include "shim.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

#define STACK_BYTES ((size_t)256 << 10)

bool ebb__shim_start_thread(void *(*function)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    int why = pthread_create(&thread, &attributes, function, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    errno = why;
    return why == 0;
}

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
