/* segv: a program that handles SIGSEGV itself, in blocks that are evicted and fetched. argv[1]:
 *   handler   its handler is set before and after the first block. It gets real faults only
 *   masked    a thread that blocks every signal uses absent blocks
 *   sleeps    it sleeps with every other signal blocked. Handlers use absent blocks meanwhile
 *   masks     all other ways to block all signals
 *   events    functions that libc calls in its own threads use absent blocks
 *   setters   handlers that are set by obsolete functions get real faults
 *   inside    the signals that its handler blocks are not delivered while it runs
 *   frames    its handlers need more stack than a small stack has
 *   die       a wild pointer without a handler: dies of SIGSEGV
 *   sent      SIGSEGV sent to itself without a handler: dies of it */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

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
            volatile char *scratch = malloc(BYTES / 4); /* what was used before may be evicted
                                                           now */
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

/* The alarm comes only while the program sleeps. */
static volatile int handled, handled_wrong;

static void on_alarm(int number)
{
    (void)number;
    handled++;
    handled_wrong += sum_all();
}

static int sleeps(void)
{
    fill_all();
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    sigset_t alarm_only, others;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarm_only, NULL);
    sigfillset(&others);
    sigdelset(&others, SIGALRM);
    struct epoll_event event;
    int file = epoll_create1(0);
    for (int way = 0; way < 4; way++) {
        struct itimerval soon = {.it_value = {0, 2000}};
        sum_all();
        setitimer(ITIMER_REAL, &soon, NULL);
        if (way == 0)
            sigsuspend(&others);
        else if (way == 1)
            ppoll(NULL, 0, NULL, &others);
        else if (way == 2)
            pselect(0, NULL, NULL, NULL, NULL, &others);
        else
            epoll_pwait(file, &event, 1, -1, &others);
    }
    return handled_wrong + (handled != 4 ? 1000 : 0);
}

static ucontext_t here, there;
static int seen_wrong;

static void look(void)
{
    seen_wrong += sum_all();
}

static void *look_in_thread(void *unused)
{
    look();
    return unused;
}

static int masks(void)
{
    static char stack[256 << 10];
    sigset_t all;
    sigfillset(&all);
    fill_all();
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = sizeof stack;
    there.uc_link = &here;
    there.uc_sigmask = all;
    makecontext(&there, look, 0);
    swapcontext(&here, &there);
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setsigmask_np(&attributes, &all);
    pthread_create(&thread, &attributes, look_in_thread, NULL);
    pthread_join(thread, NULL);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    sighold(SIGSEGV);
    look();
    sigrelse(SIGSEGV);
    sigset(SIGSEGV, SIG_HOLD);
    look();
    sigrelse(SIGSEGV);
    sigblock(-1);
    look();
    sigsetmask(-1);
    look();
    sigsetmask(0);
#pragma GCC diagnostic pop
    uint64_t every = UINT64_MAX;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &every, NULL, sizeof every);
    look();
    return seen_wrong;
}

static atomic_int calls;

static void on_event(union sigval value)
{
    for (int i = 0; i < COUNT; i++)
        if (value.sival_int != 7 || ((volatile unsigned char *)blocks[i])[BYTES / 3] != i + 1)
            _Exit(3);
    calls++;
}

static int events(void)
{
    fill_all();
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD,
                             .sigev_notify_function = on_event,
                             .sigev_value = {.sival_int = 7}};
    struct itimerspec soon = {.it_value = {0, 1000000}};
    for (int turn = 0; turn < 3; turn++) {
        int before = calls;
        if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
            timer_settime(timer, 0, &soon, NULL) != 0)
            return 1000;
        while (calls == before)
            seen_wrong += sum_all();
        timer_delete(timer);
    }
    return seen_wrong;
}

static void jump_back(int number)
{
    (void)number;
    seen++;
    siglongjmp(back, 1);
}

extern __sighandler_t __sysv_signal(int number, __sighandler_t handler);

static int setters(void)
{
    int wrong = 0;
    fill_all();
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    for (int way = 0; way < 4; way++) {
        __sighandler_t before = way == 0   ? signal(SIGSEGV, jump_back)
                                : way == 1 ? __sysv_signal(SIGSEGV, jump_back)
                                : way == 2 ? sigset(SIGSEGV, jump_back)
                                           : ssignal(SIGSEGV, jump_back);
        wrong += sum_all();
        fault();
        wrong += sum_all();
        /* A handler set in System V's way is used once. */
        if (before != (way == 0 || way == 2 ? SIG_DFL : jump_back))
            wrong += 1000;
    }
#pragma GCC diagnostic pop
    return wrong + (seen != 4 ? 10000 : 0);
}

static volatile int is_inside, nested;

static void note_nested(int number)
{
    (void)number;
    nested += is_inside;
}

static void take_time(int number)
{
    (void)number;
    struct timespec end, now;
    clock_gettime(CLOCK_MONOTONIC, &end);
    is_inside = 1;
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - end.tv_sec) * 1000000000L + now.tv_nsec - end.tv_nsec < 20000000);
    is_inside = 0;
    seen++;
    siglongjmp(back, 1);
}

static int inside(void)
{
    int wrong = 0;
    fill_all();
    struct sigaction slow = {.sa_handler = take_time};
    sigfillset(&slow.sa_mask);
    sigaction(SIGSEGV, &slow, NULL);
    struct sigaction action = {.sa_handler = note_nested, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &every, NULL);
    for (int turn = 0; turn < 4; turn++) {
        fault();
        wrong += sum_all();
    }
    setitimer(ITIMER_REAL, &never, NULL);
    return wrong + nested + (seen != 4 ? 10000 : 0);
}

static void need_room(int number)
{
    volatile char room[1 << 20];
    for (size_t at = 0; at < sizeof room; at += 4096)
        room[at] = 1;
    seen++;
    seen_wrong += sum_all();
    if (number == SIGSEGV)
        siglongjmp(back, 1);
}

static void *raise_in_thread(void *unused)
{
    raise(SIGUSR1);
    return unused;
}

static int frames(void)
{
    fill_all();
    struct sigaction action = {.sa_handler = need_room};
    sigaction(SIGSEGV, &action, NULL);
    fault();
    action.sa_flags = SA_ONSTACK; /* it has no alternate stack */
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    pthread_t thread;
    pthread_create(&thread, NULL, raise_in_thread, NULL);
    pthread_join(thread, NULL);
    return seen_wrong + sum_all() + (seen != 3 ? 10000 : 0);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int wrong = 0;
    if (strcmp(what, "handler") == 0) {
        wrong = handler();
    } else if (strcmp(what, "sleeps") == 0) {
        wrong = sleeps();
    } else if (strcmp(what, "masks") == 0) {
        wrong = masks();
    } else if (strcmp(what, "events") == 0) {
        wrong = events();
    } else if (strcmp(what, "setters") == 0) {
        wrong = setters();
    } else if (strcmp(what, "inside") == 0) {
        wrong = inside();
    } else if (strcmp(what, "frames") == 0) {
        wrong = frames();
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
