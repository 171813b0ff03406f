/* Ends the process if the only copy of a block is lost and the program needs it.
 *
 * The process dies by SIGBUS, as for a mapped file that cannot be read. Direct system calls make
 * that certain: the program may handle, ignore or block the signal, or a tracer may swallow it. The
 * first process of a pid namespace does not get the signal. It then exits with the status that a
 * shell reports for that signal. May be called from any thread, with any lock held. */
#include "shim.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The argument of rt_sigaction(), which differs from libc's sigaction(). All zero: SIG_DFL. */
struct kernel_action {
    void *handler;
    unsigned long flags;
    void *restorer;
    uint64_t mask;
};

static void change_mask(int how, int number)
{
    uint64_t set = (uint64_t)1 << (number - 1);
    syscall(SYS_rt_sigprocmask, how, &set, NULL, sizeof set);
}

void ebb__shim_lost(void *context, const char *message)
{
    (void)context;
    char line[300];
    int length = snprintf(line, sizeof line, "ebb: process %ld: %s\n", (long)getpid(), message);
    size_t bytes = length < (int)sizeof line ? (size_t)length : sizeof line - 1;
    change_mask(SIG_BLOCK, SIGPIPE); /* of stderr: the process must not die by that signal */
    if (length > 0 && syscall(SYS_write, STDERR_FILENO, line, bytes) < 0) {
        /* nobody reads it */
    }
    const struct kernel_action usual = {0};
    syscall(SYS_rt_sigaction, SIGBUS, &usual, NULL, sizeof usual.mask);
    change_mask(SIG_UNBLOCK, SIGBUS);
    syscall(SYS_tgkill, getpid(), (pid_t)syscall(SYS_gettid), SIGBUS);
    for (;;)
        syscall(SYS_exit_group, 128 + SIGBUS);
}
