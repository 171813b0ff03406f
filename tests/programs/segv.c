/* segv: a program that has its own mind about SIGSEGV, in blocks that come and go. What is asked for
 * in argv[1]:
 *   handler   its handler, set before and after the first block, sees real faults and only those
 *   masked    a thread that blocks every signal uses absent blocks
 *   die       a wild pointer, without a handler: dies of SIGSEGV
 *   sent      SIGSEGV sent to itself, without a handler: dies of it */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 12
#define BYTES ((size_t)2 << 20)

static unsigned char *blocks[COUNT];
static sigjmp_buf back;
static volatile int seen;

static void fill_all(void)
{
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc(BYTES);
        memset(blocks[i], i + 1, BYTES);
    }
}

static int sum_all(void)
{
    int wrong = 0;
    for (int turn = 0; turn < 3; turn++)
        for (int i = 0; i < COUNT; i++) {
            volatile char *scratch = malloc(BYTES / 4); /* what was used before may leave now */
            *scratch = 1;
            for (size_t at = 0; at < BYTES; at += 509)
                wrong += blocks[i][at] != i + 1;
            free((void *)scratch);
        }
    return wrong;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    seen++;
    if (info->si_addr != (void *)8)
        _Exit(2);
    siglongjmp(back, 1);
}

static int fault(void)
{
    if (sigsetjmp(back, 1) == 0)
        return *(volatile int *)8;
    return 0;
}

static int handler(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, before;
    sigaction(SIGSEGV, &action, NULL);
    fill_all();
    fault();
    int wrong = sum_all();
    action.sa_flags |= SA_NODEFER;
    sigaction(SIGSEGV, &action, &before);
    fault();
    wrong += sum_all();
    if (before.sa_sigaction != on_fault || seen != 2)
        wrong += 1000;
    return wrong;
}

static void *masked_thread(void *unused)
{
    (void)unused;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    fill_all();
    return (void *)(size_t)sum_all();
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int wrong = 0;
    if (strcmp(what, "handler") == 0) {
        wrong = handler();
    } else if (strcmp(what, "masked") == 0) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, masked_thread, NULL);
        pthread_join(thread, &result);
        wrong = (int)(size_t)result;
    } else {
        fill_all();
        wrong = sum_all();
        if (strcmp(what, "die") == 0)
            wrong += *(volatile int *)8;
        else
            raise(SIGSEGV);
    }
    printf("wrong %d\n", wrong);
    return wrong != 0;
}
