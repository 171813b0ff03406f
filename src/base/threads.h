/* Threads of Ebb's own in a program. */
#ifndef EBB_BASE_THREADS_H
#define EBB_BASE_THREADS_H

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>

#define EBB_STACK_MOST_BYTES ((size_t)64 << 20)

/* As pthread_create(). The thread takes none of the program's signals. Sets the size of the stack
 * in *attributes: to `bytes`, or to twice as much again and again. The program's thread-local
 * storage must fit there, else libc answers EINVAL. */
static inline int ebb__thread_create(pthread_t *thread, pthread_attr_t *attributes, size_t bytes,
                                     void *(*function)(void *), void *argument)
{
    int why = EINVAL;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (bytes < (size_t)PTHREAD_STACK_MIN)
        bytes = (size_t)PTHREAD_STACK_MIN;
    for (; why == EINVAL && bytes <= EBB_STACK_MOST_BYTES; bytes *= 2) {
        pthread_attr_setstacksize(attributes, bytes);
        why = pthread_create(thread, attributes, function, argument);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return why;
}

/* The same with attributes of its own. */
static inline int ebb__thread_start(pthread_t *thread, size_t bytes, void *(*function)(void *),
                                    void *argument)
{
    pthread_attr_t attributes;
    int why = pthread_attr_init(&attributes);
    if (why)
        return why;
    why = ebb__thread_create(thread, &attributes, bytes, function, argument);
    pthread_attr_destroy(&attributes);
    return why;
}

#endif
