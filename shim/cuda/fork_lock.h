/* A lock of one file that a child of a fork may take: the fork waits until it is free. */
#ifndef EBB_CUDA_FORK_LOCK_H
#define EBB_CUDA_FORK_LOCK_H

#include <pthread.h>

/* Defines the static mutex `lock`. Once in a file. `level`, from 101 on: who holds one lock takes
 * those of lower levels only. A fork takes them in that order, too. */
#define EBB_FORK_LOCK(level)                                                                       \
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;                                       \
    static void before_fork(void)                                                                  \
    {                                                                                              \
        pthread_mutex_lock(&lock);                                                                 \
    }                                                                                              \
    static void after_fork(void)                                                                   \
    {                                                                                              \
        pthread_mutex_unlock(&lock);                                                               \
    }                                                                                              \
    __attribute__((constructor(level))) static void hold_at_forks(void)                            \
    {                                                                                              \
        pthread_atfork(before_fork, after_fork, after_fork);                                       \
    }

#endif
