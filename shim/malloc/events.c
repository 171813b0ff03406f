/* Functions of the program that libc calls in its own threads (SIGEV_THREAD of timers and message
 * queues). These threads block all signals. A blocked SIGSEGV would kill them on the device that
 * uses it for faults (masks.c). So libc calls a function of the shim first, which unblocks it. */
#include "shim.h"

#include <mqueue.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int timer_create(clockid_t clock, struct sigevent *restrict event, timer_t *restrict timer);
EXPORT int mq_notify(mqd_t queue, const struct sigevent *event);

/* The program's function and its value, one entry per pair. Entries are never freed: it is unknown
 * which call is the last. */
struct callee {
    void (*function)(union sigval value);
    union sigval value;
    struct callee *next;
};
static _Atomic(struct callee *) callees;

static void call(union sigval given)
{
    const struct callee *callee = given.sival_ptr;
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGSEGV);
    pthread_sigmask(SIG_UNBLOCK, &ours, NULL);
    callee->function(callee->value);
}

static struct callee *callee_of(const struct sigevent *event)
{
    struct callee *first = atomic_load(&callees);
    for (struct callee *callee = first; callee; callee = callee->next)
        if (callee->function == event->sigev_notify_function &&
            callee->value.sival_ptr == event->sigev_value.sival_ptr)
            return callee;
    const struct ebb_next *next = ebb__shim_next();
    struct callee *callee = next ? next->malloc(sizeof *callee) : NULL;
    if (!callee)
        return NULL;
    *callee = (struct callee){event->sigev_notify_function, event->sigev_value, first};
    while (!atomic_compare_exchange_weak(&callees, &callee->next, callee))
        ;
    return callee;
}

/* Returns `event`, or `copy`, which calls the shim's function. */
static const struct sigevent *with_ours(const struct sigevent *event, struct sigevent *copy)
{
    if (!event || event->sigev_notify != SIGEV_THREAD || !ebb__shim_keeps_signal())
        return event;
    struct callee *callee = callee_of(event);
    if (!callee)
        return event;
    *copy = *event;
    copy->sigev_notify_function = call;
    copy->sigev_value.sival_ptr = callee;
    return copy;
}

int timer_create(clockid_t clock, struct sigevent *restrict event, timer_t *restrict timer)
{
    int (*next)(clockid_t, const struct sigevent *, timer_t *);
    EBB_BEHIND(next, timer_create);
    struct sigevent copy;
    return next(clock, with_ours(event, &copy), timer);
}

int mq_notify(mqd_t queue, const struct sigevent *event)
{
    int (*next)(mqd_t, const struct sigevent *);
    EBB_BEHIND(next, mq_notify);
    struct sigevent copy;
    return next(queue, with_ours(event, &copy));
}
