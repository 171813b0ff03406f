#include "interrupt.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>

static atomic_bool seen; /* a signal handler has no other way to say something; lock-free */

static void note(int number)
{
    (void)number;
    atomic_store(&seen, true);
}

void ebb__interrupt_expect(void)
{
    struct sigaction before,
        noted = {.sa_handler = note, .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
    sigemptyset(&noted.sa_mask);
    if (sigaction(SIGINT, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(SIGINT, &noted, NULL);
}

bool ebb__interrupt_seen(void)
{
    return atomic_load(&seen);
}

const atomic_bool *ebb__interrupt_flag(void)
{
    return &seen;
}

void ebb__interrupt_die(void)
{
    if (!atomic_load(&seen))
        return;
    fflush(NULL);
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
}
