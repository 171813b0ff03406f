/* Functions of the program that libc calls in threads that it makes itself (SIGEV_THREAD of timers and message
 * queues). These block all signals, SIGSEGV as well, which would be deadly where faults are signals (masks.c): so
 * they begin with a function of ours, which lets it in. */
#include "shim.h"

#include <mqueue.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int timer_create(clockid_t clock, struct sigevent *restrict event, timer_t *restrict timer);
EXPORT int mq_notify(mqd_t queue, const struct sigevent *event);

/* What is called for whom; one a pair of function and value, for the life of the process: nobody says when the
 * last call is over. */
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

/* `event`, or `copy`, which calls ours. */
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
