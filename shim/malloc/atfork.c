/* Around fork(): the runtime is locked from the last handler before it to the first after it.
 *
 * After the handlers, fork() takes libc's lock on the list of open files. Its holder may wait for a
 * file, and the file's user for a block. So that lock is taken before the runtime's.
 *
 * pthread_atfork() runs the handlers before a fork in reverse order of registration, and those
 * after it in that order. So Ebb's are registered before all others. Handlers of other libraries
 * may then allocate, free and touch memory while the runtime works. A library that the program is
 * linked with starts before Ebb. Its registration also calls this file, which registers Ebb's
 * handlers first. */
#include "guard.h"
#include "shim.h"

#include <stdatomic.h>

#define EXPORT __attribute__((visibility("default")))

/* pthread_atfork(), a part of each program and library, calls this function. */
EXPORT int __register_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void),
                             void *library);

extern void *__dso_handle __attribute__((visibility("hidden")));

static atomic_flag registered = ATOMIC_FLAG_INIT;
/* The guard of the thread that forks. */
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

/* Of glibc, with a count of how often its owner has it. After a fork the child has a new one. */
extern void _IO_list_lock(void) __attribute__((weak));
extern void _IO_list_unlock(void) __attribute__((weak));
extern void _IO_list_resetlock(void) __attribute__((weak));

static bool knows_list_lock(void)
{
    return _IO_list_lock && _IO_list_unlock && _IO_list_resetlock;
}

static void lib_before(void)
{
    ebb__shim_hold_start();
    if (knows_list_lock())
        _IO_list_lock();
    ebb__fork_before();
}

static void lib_after_parent(void)
{
    ebb__fork_after_parent();
    if (knows_list_lock())
        _IO_list_unlock();
    ebb__shim_let_start(false);
}

static void lib_after_child(void)
{
    if (knows_list_lock())
        _IO_list_resetlock(); /* fork() does so only if there were threads */
    ebb__fork_after_child();
    ebb__shim_let_start(true);
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
        next_register(lib_before, lib_after_parent, lib_after_child, &__dso_handle);
}

int __register_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void),
                      void *library)
{
    ebb__shim_register_fork();
    return next_register(before, in_parent, in_child, library);
}
