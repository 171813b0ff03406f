/* Around fork(): the runtime is held still from the last handler before it to the first after it.
 *
 * pthread_atfork() runs what is to be done before a fork in the reverse order of registration, and
 * what is to be done after it in that order. So ours are registered before all others: what the
 * handlers of other libraries allocate, free or touch, they do while the runtime is at work. A library that
 * the program is linked with starts before us; hence its registration, which comes through here in any
 * case, makes ours first. */
#include "guard.h"
#include "shim.h"

#include <stdatomic.h>

#define EXPORT __attribute__((visibility("default")))

/* What pthread_atfork(), which is a part of each program and library, calls. */
EXPORT int __register_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void),
                             void *library);

extern void *__dso_handle __attribute__((visibility("hidden")));

static atomic_flag registered = ATOMIC_FLAG_INIT;
/* Of the thread that forks. */
static _Thread_local struct ebb_guard guard;
static _Thread_local bool under_way;

bool ebb__fork_is_under_way(void)
{
    return under_way;
}

void ebb__fork_before(void)
{
    ebb__guard_enter(&guard);
    ebb__shim_before_fork();
    under_way = true;
}

void ebb__fork_after_parent(void)
{
    struct ebb_guard entered = guard;
    ebb__shim_after_fork_parent();
    under_way = false;
    ebb__guard_leave(&entered);
}

void ebb__fork_after_child(void)
{
    struct ebb_guard entered = guard;
    ebb__shim_after_fork_child();
    under_way = false;
    ebb__guard_leave(&entered);
}

static int next_register(void (*before)(void), void (*in_parent)(void), void (*in_child)(void),
                         void *library)
{
    int (*next)(void (*)(void), void (*)(void), void (*)(void), void *);
    EBB_BEHIND(next, __register_atfork);
    return next(before, in_parent, in_child, library);
}

void ebb__shim_register_fork(void)
{
    if (!atomic_flag_test_and_set(&registered))
        next_register(ebb__fork_before, ebb__fork_after_parent, ebb__fork_after_child,
                      &__dso_handle);
}

int __register_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void),
                      void *library)
{
    ebb__shim_register_fork();
    return next_register(before, in_parent, in_child, library);
}
