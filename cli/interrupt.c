#include "interrupt.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t seen; /* a signal handler has no other way to say something */

static void note(int number)
{
    (void)number;
    seen = 1;
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
    return seen;
}

void ebb__interrupt_die(void)
{
    if (!seen)
        return;
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
}
