/* Faults as SIGSEGV, for the device without userfaultfd: a thread that touches an absent page
 * fetches it itself, in the signal handler.
 *
 * The program may also handle SIGSEGV. Its handler, whichever libc function sets it, is recorded
 * but not installed. The shim calls it for all other faults. Handlers of other signals must not
 * block SIGSEGV either (masks.c). */
#include "guard.h"
#include "shim.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int sigaction(int number, const struct sigaction *restrict action,
                     struct sigaction *restrict before);
EXPORT __sighandler_t signal(int number, __sighandler_t handler);
EXPORT __sighandler_t bsd_signal(int number, __sighandler_t handler);
EXPORT __sighandler_t ssignal(int number, __sighandler_t handler);
EXPORT __sighandler_t sysv_signal(int number, __sighandler_t handler);
EXPORT __sighandler_t __sysv_signal(int number, __sighandler_t handler);
EXPORT __sighandler_t sigset(int number, __sighandler_t handler);
EXPORT int sigignore(int number);

static _Atomic bool taken; /* the shim handles SIGSEGV */
static struct sigaction theirs;

static int next_sigaction(int number, const struct sigaction *action, struct sigaction *before)
{
    int (*next)(int, const struct sigaction *, struct sigaction *);
    EBB_BEHIND(next, sigaction);
    return next(number, action, before);
}

int sigaction(int number, const struct sigaction *restrict action,
              struct sigaction *restrict before)
{
    if (number == SIGSEGV && atomic_load(&taken)) {
        if (before)
            *before = theirs;
        if (action)
            theirs = *action;
        return 0;
    }
    struct sigaction copy;
    if (action && ebb__shim_keeps_signal()) {
        copy = *action;
        sigdelset(&copy.sa_mask, SIGSEGV);
        action = &copy;
    }
    return next_sigaction(number, action, before);
}

/* libc functions that set a handler without a call of sigaction() that the shim could see. */
#define HANDLER(name, its_flags)                                                                   \
    __sighandler_t name(int number, __sighandler_t handler)                                        \
    {                                                                                              \
        __sighandler_t (*next)(int, __sighandler_t);                                               \
        EBB_BEHIND(next, name);                                                                    \
        if (number != SIGSEGV || !atomic_load(&taken) || handler == SIG_ERR)                       \
            return next(number, handler);                                                          \
        struct sigaction action = {.sa_handler = handler, .sa_flags = its_flags}, before;          \
        sigemptyset(&action.sa_mask);                                                              \
        return sigaction(number, &action, &before) == 0 ? before.sa_handler : SIG_ERR;             \
    }

/* clang-format off */
HANDLER(signal, SA_RESTART)
HANDLER(bsd_signal, SA_RESTART)
HANDLER(ssignal, SA_RESTART)
HANDLER(sysv_signal, (int)SA_RESETHAND | SA_NODEFER)
HANDLER(__sysv_signal, (int)SA_RESETHAND | SA_NODEFER)
/* clang-format on */

__sighandler_t sigset(int number, __sighandler_t handler)
{
    __sighandler_t (*next)(int, __sighandler_t);
    EBB_BEHIND(next, sigset);
    if (number != SIGSEGV || !ebb__shim_keeps_signal() ||
        (handler != SIG_HOLD && !atomic_load(&taken)))
        return next(number, handler);
    struct sigaction action = {.sa_handler = handler}, before;
    sigemptyset(&action.sa_mask);
    bool holds = handler == SIG_HOLD; /* SIGSEGV is not blocked; its handler is unchanged */
    return sigaction(number, holds ? NULL : &action, &before) == 0 ? before.sa_handler : SIG_ERR;
}

int sigignore(int number)
{
    struct sigaction action = {.sa_handler = SIG_IGN};
    sigemptyset(&action.sa_mask);
    return sigaction(number, &action, NULL);
}

static void hand_on(int number, siginfo_t *info, void *context)
{
    struct sigaction action = theirs;
    if ((unsigned)action.sa_flags & SA_RESETHAND)
        theirs = (struct sigaction){.sa_handler = SIG_DFL};
    /* As the kernel does for a handler. The mask is restored when the shim's handler returns. */
    pthread_sigmask(SIG_BLOCK, &action.sa_mask, NULL);
    if (action.sa_flags & SA_SIGINFO) {
        action.sa_sigaction(number, info, context);
    } else if (action.sa_handler == SIG_IGN && info->si_code <= 0) {
        /* sent by a process, and ignored */
    } else if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) {
        struct sigaction usual = {.sa_handler = SIG_DFL};
        next_sigaction(number, &usual, NULL);
        if (info->si_code <= 0) /* sent by a process: it does not recur by itself */
            syscall(SYS_tgkill, getpid(), (pid_t)syscall(SYS_gettid), number);
    } else {
        action.sa_handler(number);
    }
}

/* Decodes the processor's description of the access. x86: bit 1 is a write, bit 4 an instruction
 * fetch. */
static void describe(const void *context, bool *write, bool *fetch)
{
#ifdef __x86_64__
    const ucontext_t *state = context;
    unsigned long code = (unsigned long)state->uc_mcontext.gregs[REG_ERR];
    *write = code & 2;
    *fetch = code & 16;
#else
    (void)context;
    *write = true;
    *fetch = false;
#endif
}

/* True if the page is now present, or the access must be retried. A block that the program has
 * protected is present, too. But it may have been fetched and kept since the access failed. So if
 * the same address fails twice, the fault is the program's own. */
static bool is_served(struct ebb_runtime *runtime, uintptr_t address, bool write)
{
    static _Thread_local uintptr_t tried;
    struct ebb_guard guard;
    ebb__guard_enter(&guard);
    bool came = ebb__runtime_await(runtime, address, write);
    ebb__guard_leave(&guard);
    if (came)
        return true;
    bool is_first = tried != address;
    tried = is_first ? address : 0;
    return is_first;
}

static void handle(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    struct ebb_runtime *runtime = ebb__shim_runtime_now();
    bool write, fetch;
    describe(context, &write, &fetch);
    if (info->si_code != SEGV_ACCERR || fetch || !runtime ||
        !ebb__runtime_owns(runtime, info->si_addr) ||
        !is_served(runtime, (uintptr_t)info->si_addr, write))
        hand_on(number, info, context);
    errno = saved;
}

bool ebb__shim_take_faults(void)
{
    if (atomic_load(&taken))
        return true; /* in the child of a fork */
    /* Earlier handlers of other signals may block SIGSEGV while they run. */
    for (int number = 1; number < NSIG; number++) {
        struct sigaction action;
        if (number != SIGSEGV && next_sigaction(number, NULL, &action) == 0 &&
            sigismember(&action.sa_mask, SIGSEGV) == 1) {
            sigdelset(&action.sa_mask, SIGSEGV);
            next_sigaction(number, &action, NULL);
        }
    }
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK | SA_RESTART};
    action.sa_sigaction = handle;
    sigemptyset(&action.sa_mask);
    if (next_sigaction(SIGSEGV, &action, &theirs) != 0)
        return false;
    atomic_store(&taken, true);
    return true;
}
