/* Forks without the handlers of pthread_atfork(): _Fork(), clone() without CLONE_VM, and fork and
 * clone by syscall(). Their children have a copy of the memory, with its absent blocks, as after
 * any fork. So this file does what atfork.c does around a fork.
 *
 * Two kinds of children are not covered, and absent blocks read as zeros in them. One shares the
 * descriptors but not the memory (CLONE_FILES without CLONE_VM); then the user is told. The other
 * is made by the program's own instruction, which is not seen. Children that share the memory
 * (threads, vfork(), posix_spawn()) need nothing. */
#include "guard.h"
#include "shim.h"

#include <errno.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
/* Stack that a child needs before its runtime exists: far more than it uses. */
#define STACK_BYTES ((size_t)64 << 10)

EXPORT pid_t _Fork(void);
EXPORT int clone(int (*entry)(void *), void *stack, int flags, void *argument, ...);
EXPORT long syscall(long number, ...);

/* True if the child of a clone with `flags` needs the same as the child of a fork. */
static bool is_fork(uint64_t flags)
{
    if (flags & CLONE_VM || ebb__fork_is_under_way())
        return false;
    ebb__shim_hold_start(); /* one that is under way ends */
    ebb__shim_let_start(false);
    if (!ebb__shim_runtime_now())
        return false;
    if (!(flags & CLONE_FILES))
        return true;
    ebb__shim_warn("a process that shares descriptors but not memory was cloned: absent blocks "
                   "read as zeros there");
    return false;
}

/* Call after the system call that made the child. Returns `result`. */
static long after(long result)
{
    int saved = errno;
    if (result == 0) {
        ebb__shim_spare_next(true); /* the loader allocates for each new thread */
        ebb__fork_after_child();
        ebb__shim_spare_next(false);
    } else

        ebb__fork_after_parent();
    errno = saved;
    return result;
}

pid_t _Fork(void)
{
    pid_t (*next)(void);
    EBB_BEHIND(next, _Fork);
    if (!next) { /* glibc before 2.34 */
        errno = ENOSYS;
        return -1;
    }
    if (!is_fork(0))
        return next();
    ebb__fork_before();
    return (pid_t)after(next());
}

struct start {
    int (*entry)(void *);
    void *argument;
};

static int start_child(void *argument)
{
    struct start start = *(const struct start *)argument;
    after(0);
    _exit(start.entry(
        start.argument)); /* exits the whole process: other threads of the child may run */
}

int clone(int (*entry)(void *), void *stack, int flags, void *argument, ...)
{
    va_list more;
    va_start(more, argument);
    void *parent_tid = va_arg(more, void *), *tls = va_arg(more, void *);
    void *child_tid = va_arg(more, void *);
    va_end(more);
    int (*next)(int (*)(void *), void *, int, void *, ...);
    EBB_BEHIND(next, clone);
    /* The stack may lie in a block, which must be resident: a fault by signal would need this
     * stack. */
    if (stack && !ebb__fork_is_under_way())
        ebb__shim_lend(&(struct iovec){(char *)stack - STACK_BYTES, STACK_BYTES}, 1);
    if (!entry || !stack || !is_fork((unsigned)flags))
        return next(entry, stack, flags, argument, parent_tid, tls, child_tid);
    struct start start = {entry, argument};
    ebb__fork_before();
    int child = next(start_child, stack, flags, &start, parent_tid, tls, child_tid);
    after(child ? child : -1); /* only the parent returns */
    return child;
}

/* True if it is a fork whose child returns from syscall(). A child with its own stack cannot. */
static bool forks(long number, const long arguments[6])
{
    struct clone_args of_three;
    switch (number) {
#ifdef SYS_fork
    case SYS_fork:
        return is_fork(0);
#endif
    case SYS_clone:
        return arguments[1] == 0 && is_fork((uint64_t)arguments[0]);
    case SYS_clone3:
        if (arguments[0] == 0 || (size_t)arguments[1] < CLONE_ARGS_SIZE_VER0)
            return false;
        memcpy(&of_three, (const void *)arguments[0], CLONE_ARGS_SIZE_VER0);
        return of_three.stack == 0 && is_fork(of_three.flags);
    default:
        return false;
    }
}

/* Of some operations the kernel itself writes the words, and cannot wait for their pages. */
static void wait_for_futex(const long arguments[6])
{
    const void *word = (const void *)arguments[0], *other = (const void *)arguments[4];
    switch (arguments[1] & FUTEX_CMD_MASK) {
    case FUTEX_WAKE_OP:
    case FUTEX_WAIT_REQUEUE_PI:
    case FUTEX_CMP_REQUEUE_PI:
        ebb__shim_keep_for_kernel(other, sizeof(uint32_t));
        ebb__shim_keep_for_kernel(word, sizeof(uint32_t));
        break;
    case FUTEX_LOCK_PI:
    case FUTEX_LOCK_PI2:
    case FUTEX_TRYLOCK_PI:
    case FUTEX_UNLOCK_PI:
        ebb__shim_keep_for_kernel(word, sizeof(uint32_t));
        break;
    default:
        ebb__shim_wait_in(word, sizeof(uint32_t));
    }
}

long syscall(long number, ...)
{
    long arguments[6];
    va_list list;
    va_start(list, number);
    for (size_t i = 0; i < 6; i++)
        arguments[i] = va_arg(list, long);
    va_end(list);
    long (*next)(long, ...);
    EBB_BEHIND(next, syscall);
    if (number == SYS_vmsplice)
        ebb__shim_lend((const struct iovec *)arguments[1], (size_t)arguments[2]);
    if ((number == SYS_io_uring_setup || number == SYS_io_setup) && ebb__shim_refuses_async()) {
        errno = ENOSYS;
        return -1;
    }
    if (number == SYS_exit && ebb__shim_is_last_thread())
        number = SYS_exit_group; /* the shim's threads would continue otherwise */
    long result;
    if (ebb__shim_maps(number, arguments, &result) ||
        ebb__shim_describes(number, arguments, &result) ||
        ebb__shim_masks(number, arguments, &result))
        return result;
    if (number == SYS_futex)
        wait_for_futex(arguments);
    if (!forks(number, arguments))
        return next(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                    arguments[5]);
    ebb__fork_before();
    return after(next(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                      arguments[5]));
}
