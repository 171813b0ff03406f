#include "guard.h"

#include "stacks.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

/* libc reserves signals from this one: for cancellation, and for changes of user in all threads. */
#define FIRST_OF_LIBC 32
#define LAST_OF_LIBC 33

#define SIGNAL(number) ((uint64_t)1 << ((number)-1))
#define STAYS                                                                                      \
    (SIGNAL(SIGSEGV) | SIGNAL(SIGBUS) | SIGNAL(SIGFPE) | SIGNAL(SIGILL) | SIGNAL(SIGTRAP) |        \
     SIGNAL(SIGSYS) | SIGNAL(FIRST_OF_LIBC) | SIGNAL(LAST_OF_LIBC))

static const uint64_t held_back = ~(uint64_t)STAYS;
static _Thread_local unsigned depth;

bool ebb__guard_is_entered(void)
{
    return depth > 0;
}

/* libc 2.36 looks at a thread's state, and then signals to it that it is cancelled. The thread may
 * have disabled that meanwhile. It is cancelled all the same if it is in a cancellation point then,
 * where it would have the lock. Such a call ends only when the signal has come. So this is one,
 * without the lock. It does nothing else. */
static void await_cancellation(void)
{
    int saved = errno;
    (void)fdatasync(-1);
    errno = saved;
}

/* Signals are blocked first and unblocked last. A handler may interrupt an access to memory and
 * exit by longjmp. It does so before cancellation is changed or after it is restored. */
void ebb__guard_enter(struct ebb_guard *guard)
{
    const void *frame = __builtin_frame_address(0);
    bool stands_on_block =
        ebb__stacks_own((uintptr_t)frame) || ebb__stacks_own((uintptr_t)__builtin_thread_pointer());
    if (!stands_on_block || !ebb__stacks_keep(frame, &held_back, &guard->signals))
        syscall(SYS_rt_sigprocmask, SIG_BLOCK, &held_back, &guard->signals, sizeof guard->signals);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &guard->cancellation);
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &guard->kind);
    if (guard->kind == PTHREAD_CANCEL_ASYNCHRONOUS)
        await_cancellation();
    depth++;
}

void ebb__guard_leave(const struct ebb_guard *guard)
{
    /* The second of these cancels a thread that may be cancelled anywhere. Only then does
     * pthread_join() report the cancellation. */
    pthread_setcancelstate(guard->cancellation, NULL);
    depth--;
    if (guard->kind == PTHREAD_CANCEL_ASYNCHRONOUS)
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &guard->signals, NULL, sizeof guard->signals);
}
