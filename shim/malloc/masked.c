/* Calls that take a mask of signals (masks.c), most of them to wait with it. What these read, and
 * what they fill in when the wait is over, is small and seldom in a block. It is kept as long as
 * the block (pins.c). */
#include "shim.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

/* Defines a function that passes its mask `set` on as `mask`. It first does `keep`. */
#define MASKED(name, parameters, arguments, keep)                                                  \
    EXPORT int name parameters;                                                                    \
    int name parameters                                                                            \
    {                                                                                              \
        int(*next) parameters;                                                                     \
        EBB_BEHIND(next, name);                                                                    \
        sigset_t copy;                                                                             \
        const sigset_t *mask = ebb__shim_mask(set, &copy);                                         \
        keep;                                                                                      \
        return next arguments;                                                                     \
    }

static void keep_times(const struct timespec *until, const void *array, size_t bytes)
{
    ebb__shim_wait_in(until, sizeof *until);
    ebb__shim_wait_in(array, bytes);
}

MASKED(sigsuspend, (const sigset_t *set), (mask), (void)0)
MASKED(pthread_attr_setsigmask_np, (pthread_attr_t * attributes, const sigset_t *set),
       (attributes, mask), (void)0)
MASKED(ppoll,
       (struct pollfd * polled, nfds_t count, const struct timespec *until, const sigset_t *set),
       (polled, count, until, mask), keep_times(until, polled, count * sizeof *polled))
/* Programs compiled with _FORTIFY_SOURCE call these. */
MASKED(__ppoll_chk,
       (struct pollfd * polled, nfds_t count, const struct timespec *until, const sigset_t *set,
        size_t room),
       (polled, count, until, mask, room), keep_times(until, polled, count * sizeof *polled))
MASKED(pselect,
       (int count, fd_set *restrict in, fd_set *restrict out, fd_set *restrict other,
        const struct timespec *restrict until, const sigset_t *restrict set),
       (count, in, out, other, until, mask),
       (keep_times(until, in, sizeof *in), keep_times(until, out, sizeof *out),
        keep_times(until, other, sizeof *other)))
MASKED(epoll_pwait,
       (int file, struct epoll_event *events, int count, int until_ms, const sigset_t *set),
       (file, events, count, until_ms, mask),
       ebb__shim_wait_in(events, count > 0 ? (size_t)count * sizeof *events : 0))
MASKED(epoll_pwait2,
       (int file, struct epoll_event *events, int count, const struct timespec *until,
        const sigset_t *set),
       (file, events, count, until, mask),
       keep_times(until, events, count > 0 ? (size_t)count * sizeof *events : 0))
