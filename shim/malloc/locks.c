/* Locks in blocks. If a thread sleeps on a lock, the kernel reads its word. If system calls cannot
 * wait for absent pages, that fails with EFAULT, and libc ends the program. So before a thread
 * sleeps on a lock in a block, the block is kept resident until it is freed (src/runtime/keep.c). A
 * free lock is taken as usual, without that. Threads that wake others need nothing, since a sleeper
 * has made the block resident.
 *
 * The kernel itself takes and releases locks that inherit priorities, and those that are held when
 * their thread ends (robust). It can wait for their pages on no device, so their blocks are always
 * kept.
 *
 * Not covered: futexes by the program's own instructions (libgomp retries until the page is
 * present). */
#include "shim.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <threads.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

/* Defines a function that takes `lock` by `try` if it can, and otherwise may sleep on it. */
#define TAKE(name, try, type, parameters, arguments)                                               \
    EXPORT int name parameters;                                                                    \
    int name parameters                                                                            \
    {                                                                                              \
        int(*next) parameters;                                                                     \
        EBB_BEHIND(next, name);                                                                    \
        if (__builtin_expect(ebb__shim_may_wait_in(lock), 0)) {                                    \
            int (*tried)(type *);                                                                  \
            EBB_BEHIND(tried, try);                                                                \
            int got = tried(lock);                                                                 \
            if (!is_taken(got))                                                                    \
                return got;                                                                        \
            ebb__shim_wait_in(lock, sizeof *lock);                                                 \
        }                                                                                          \
        return next arguments;                                                                     \
    }

/* Defines a function that sleeps on `lock`, and on `also` if that is given. */
#define SLEEP(name, parameters, arguments, also)                                                   \
    EXPORT int name parameters;                                                                    \
    int name parameters                                                                            \
    {                                                                                              \
        int(*next) parameters;                                                                     \
        EBB_BEHIND(next, name);                                                                    \
        ebb__shim_wait_in(lock, sizeof *lock);                                                     \
        ebb__shim_wait_in(also, sizeof *(also));                                                   \
        return next arguments;                                                                     \
    }

/* If they would sleep, sem_trywait() returns -1 with EAGAIN, and the others return EBUSY. */
static bool is_taken(int got)
{
    return got == EBUSY || (got == -1 && errno == EAGAIN);
}

EXPORT int pthread_mutex_init(pthread_mutex_t *lock, const pthread_mutexattr_t *attributes);

int pthread_mutex_init(pthread_mutex_t *lock, const pthread_mutexattr_t *attributes)
{
    int (*next)(pthread_mutex_t *, const pthread_mutexattr_t *);
    EBB_BEHIND(next, pthread_mutex_init);
    int protocol = PTHREAD_PRIO_NONE, robust = PTHREAD_MUTEX_STALLED;
    if (attributes) {
        pthread_mutexattr_getprotocol(attributes, &protocol);
        pthread_mutexattr_getrobust(attributes, &robust);
    }
    if (protocol == PTHREAD_PRIO_INHERIT || robust == PTHREAD_MUTEX_ROBUST)
        ebb__shim_keep_for_kernel(lock, sizeof *lock);
    return next(lock, attributes);
}

TAKE(pthread_mutex_lock, pthread_mutex_trylock, pthread_mutex_t, (pthread_mutex_t * lock), (lock))
TAKE(pthread_mutex_timedlock, pthread_mutex_trylock, pthread_mutex_t,
     (pthread_mutex_t *restrict lock, const struct timespec *restrict until), (lock, until))
TAKE(pthread_mutex_clocklock, pthread_mutex_trylock, pthread_mutex_t,
     (pthread_mutex_t *restrict lock, clockid_t clock, const struct timespec *restrict until),
     (lock, clock, until))
TAKE(pthread_rwlock_rdlock, pthread_rwlock_tryrdlock, pthread_rwlock_t, (pthread_rwlock_t * lock),
     (lock))
TAKE(pthread_rwlock_timedrdlock, pthread_rwlock_tryrdlock, pthread_rwlock_t,
     (pthread_rwlock_t *restrict lock, const struct timespec *restrict until), (lock, until))
TAKE(pthread_rwlock_clockrdlock, pthread_rwlock_tryrdlock, pthread_rwlock_t,
     (pthread_rwlock_t *restrict lock, clockid_t clock, const struct timespec *restrict until),
     (lock, clock, until))
TAKE(pthread_rwlock_wrlock, pthread_rwlock_trywrlock, pthread_rwlock_t, (pthread_rwlock_t * lock),
     (lock))
TAKE(pthread_rwlock_timedwrlock, pthread_rwlock_trywrlock, pthread_rwlock_t,
     (pthread_rwlock_t *restrict lock, const struct timespec *restrict until), (lock, until))
TAKE(pthread_rwlock_clockwrlock, pthread_rwlock_trywrlock, pthread_rwlock_t,
     (pthread_rwlock_t *restrict lock, clockid_t clock, const struct timespec *restrict until),
     (lock, clock, until))
TAKE(sem_wait, sem_trywait, sem_t, (sem_t * lock), (lock))
TAKE(sem_timedwait, sem_trywait, sem_t,
     (sem_t *restrict lock, const struct timespec *restrict until), (lock, until))
TAKE(sem_clockwait, sem_trywait, sem_t,
     (sem_t *restrict lock, clockid_t clock, const struct timespec *restrict until),
     (lock, clock, until))

SLEEP(pthread_cond_wait, (pthread_cond_t *restrict lock, pthread_mutex_t *restrict mutex),
      (lock, mutex), mutex)
SLEEP(pthread_cond_timedwait,
      (pthread_cond_t *restrict lock, pthread_mutex_t *restrict mutex,
       const struct timespec *restrict until),
      (lock, mutex, until), mutex)
SLEEP(pthread_cond_clockwait,
      (pthread_cond_t *restrict lock, pthread_mutex_t *restrict mutex, clockid_t clock,
       const struct timespec *restrict until),
      (lock, mutex, clock, until), mutex)
SLEEP(pthread_cond_destroy, (pthread_cond_t * lock), (lock), lock)
SLEEP(pthread_barrier_wait, (pthread_barrier_t * lock), (lock), lock)
SLEEP(pthread_barrier_destroy, (pthread_barrier_t * lock), (lock), lock)
SLEEP(mtx_lock, (mtx_t * lock), (lock), lock)
SLEEP(mtx_timedlock, (mtx_t *restrict lock, const struct timespec *restrict until), (lock, until),
      lock)
SLEEP(cnd_wait, (cnd_t * lock, mtx_t *mutex), (lock, mutex), mutex)
SLEEP(cnd_timedwait,
      (cnd_t *restrict lock, mtx_t *restrict mutex, const struct timespec *restrict until),
      (lock, mutex, until), mutex)
