#include "progress.h"

#include "base/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define QUIET_NS 500000000  /* work that is done by then shows nothing */
#define REDRAW_NS 250000000 /* arbitrary: a person sees that it goes on */

/* There is one terminal, so there is one line. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t ending;
    pthread_t printer;
    bool active, ends, shown;
    const char *command;
    char stage[160];
    uint64_t began_ns;
} line = {.lock = PTHREAD_MUTEX_INITIALIZER, .ending = PTHREAD_COND_INITIALIZER};

static bool has_terminal(void)
{
    const char *terminal = getenv("TERM");
    return isatty(STDERR_FILENO) && terminal && *terminal && strcmp(terminal, "dumb") != 0;
}

static int columns(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

/* Holds the lock. */
static void draw(void)
{
    char text[256];
    snprintf(text, sizeof text, "ebb: %s: %llu s: %s", line.command,
             (unsigned long long)((ebb__now_ns() - line.began_ns) / 1000000000), line.stage);
    for (char *at = text; *at; at++)
        *at = (unsigned char)*at < 32 || *at == 127 ? '?' : *at;
    fprintf(stderr, "\r%.*s\033[K", columns() - 1, text);
    fflush(stderr);
    line.shown = true;
}

static void *print_always(void *nothing)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    long wait_ns = QUIET_NS;
    pthread_mutex_lock(&line.lock);
    while (!line.ends) {
        until.tv_nsec += wait_ns;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        wait_ns = REDRAW_NS;
        while (!line.ends && pthread_cond_timedwait(&line.ending, &line.lock, &until) == 0)
            ;
        if (!line.ends)
            draw();
    }
    pthread_mutex_unlock(&line.lock);
    return nothing;
}

void ebb__progress_begin(const char *command)
{
    if (line.active || !has_terminal())
        return;
    line.command = command;
    line.began_ns = ebb__now_ns();
    line.ends = line.shown = false;
    snprintf(line.stage, sizeof line.stage, "begins");
    /* Signals are for the main thread, which may be in a system call that they end. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    line.active = pthread_create(&line.printer, NULL, print_always, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void ebb__progress_say(const char *format, ...)
{
    if (!line.active)
        return;
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&line.lock);
    vsnprintf(line.stage, sizeof line.stage, format, arguments);
    pthread_mutex_unlock(&line.lock);
    va_end(arguments);
}

void ebb__progress_end(void)
{
    if (!line.active)
        return;
    pthread_mutex_lock(&line.lock);
    line.ends = true;
    pthread_cond_signal(&line.ending);
    pthread_mutex_unlock(&line.lock);
    pthread_join(line.printer, NULL);
    line.active = false;
    if (line.shown)
        fputs("\r\033[K", stderr);
    fflush(stderr);
}
