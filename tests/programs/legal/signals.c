/* Signals: expected faults, a timer whose handler uses the heap, long jumps out of handlers, and an
 * alternate stack in a block. */
#include "legal.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static _Thread_local sigjmp_buf back;
static _Thread_local unsigned char *volatile expected; /* this address may fault */
static struct actor lost = {.number = 999};            /* reports unexpected faults */

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (expected && info->si_addr == (void *)expected) {
        expected = NULL;
        siglongjmp(back, 1);
    }
    struct actor *actor = current_actor ? current_actor : &lost;
    for (size_t i = 0; i < actor->block_count; i++) {
        const struct block *block = actor->blocks[i];
        size_t offset = (size_t)((unsigned char *)info->si_addr - block->start);
        if (offset < block->bytes)
            fail(actor, "unexpected signal %d, code %d, at offset %zu of block %llu (flags %#x)",
                 number, info->si_code, offset, (unsigned long long)block->id,
                 block->page[((uintptr_t)block->start % PAGE + offset) / PAGE].flags);
    }
    fail(actor, "unexpected signal %d (%s), code %d, at %p", number,
         number == SIGSEGV ? "SIGSEGV" : "SIGBUS", info->si_code, info->si_addr);
}

void faults_init(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

bool access_faults(unsigned char *address, bool write)
{
    volatile unsigned char *at = address;
    expected = address;
    if (sigsetjmp(back, 1))
        return true;
    if (write)
        *at = 0xEE;
    else
        (void)*at;
    expected = NULL;
    return false;
}

/* The timer's handler has its own blocks, and an actor that nobody else uses. */
static struct actor *handler_actor;
static atomic_flag handler_busy = ATOMIC_FLAG_INIT;
static _Atomic bool timer_runs;
static pid_t timer_process;

static void on_timer(int number)
{
    (void)number;
    int saved = errno;
    struct actor *actor = handler_actor;
    struct run run;
    if (!atomic_flag_test_and_set(&handler_busy)) {
        if (run_pick(actor, &run, 0, 8 * PAGE)) {
            run_check(actor, &run, "a handler's block");
            run_fill(actor, &run);
            run_check(actor, &run, "a handler's block, written");
        }
        atomic_flag_clear(&handler_busy);
    }
    errno = saved;
}

static void set_timer(long us)
{
    struct itimerval each = {.it_interval = {0, us}, .it_value = {0, us}};
    setitimer(ITIMER_REAL, &each, NULL);
}

static void do_timer(struct actor *actor)
{
    if (atomic_load(&timer_runs)) {
        timer_stop();
        return;
    }
    if (!handler_actor) {
        handler_actor = actor_create(settings.seed, 50);
        for (size_t i = 0; i < 6; i++) {
            size_t bytes = (64 + 200 * i) * KIB;
            void *start = malloc(bytes);
            if (!start)
                fail(actor, "no memory for a handler's block");
            struct block *block = block_adopt(handler_actor, start, bytes);
            run_fill(handler_actor, &(struct run){block, 0, block->pages});
        }
    }
    timer_process = getpid();
    struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGUSR1); /* its handler jumps out of any code */
    sigaction(SIGALRM, &action, NULL);
    atomic_store(&timer_runs, true);
    set_timer(200 + (long)chance(actor, 5000));
}

void timer_stop(void)
{
    if (atomic_load(&timer_runs) && timer_process == getpid()) {
        set_timer(0);
        atomic_store(&timer_runs, false);
    }
}

void signals_end(struct actor *actor)
{
    (void)actor;
    timer_stop();
    if (handler_actor) {
        actor_check(handler_actor);
        actor_destroy(handler_actor);
        handler_actor = NULL;
    }
}

/* A handler that jumps away while memory is read. */
static sigjmp_buf away;
static volatile sig_atomic_t may_jump;

static void on_jump(int number)
{
    (void)number;
    if (may_jump) {
        may_jump = 0;
        siglongjmp(away, 1);
    }
}

static void do_jump(struct actor *actor)
{
    struct sigaction action = {.sa_handler = on_jump}, before;
    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR1, &action, &before);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0)
        return;
    if (sigsetjmp(away, 1) == 0) {
        struct itimerspec soon = {.it_value = {0, 1 + (long)chance(actor, 2000000)}};
        may_jump = 1;
        timer_settime(timer, 0, &soon, NULL);
        while (may_jump) /* it only reads memory, so it may be left at any point */
            actor_check(actor);
    }
    timer_delete(timer);
    sigaction(SIGUSR1, &before, NULL);
    actor_check(actor);
}

/* The alternate stack is a block. On it, the handler verifies other blocks, which may be absent. */
static struct actor *stack_actor;

static void on_alternate(int number)
{
    (void)number;
    volatile unsigned char local[2048];
    memset((void *)local, 7, sizeof local);
    pressure(stack_actor);
    for (size_t i = 0; i < sizeof local; i++)
        if (local[i] != 7)
            fail(stack_actor, "byte %zu of a local variable in a handler is %u", i, local[i]);
}

static void do_alternate(struct actor *actor)
{
    size_t bytes = 64 * KIB + (size_t)chance(actor, 512 * KIB);
    stack_t stack = {.ss_size = bytes, .ss_sp = malloc(bytes)}, before;
    if (!stack.ss_sp)
        fail(actor, "no memory for an alternate stack");
    if (sigaltstack(&stack, &before) != 0)
        fail(actor, "sigaltstack: %s", strerror(errno));
    struct sigaction action = {.sa_handler = on_alternate, .sa_flags = SA_ONSTACK}, old;
    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR2, &action, &old);
    stack_actor = actor;
    for (int i = 0; i < 3; i++) {
        pressure(actor);
        raise(SIGUSR2);
    }
    sigaction(SIGUSR2, &old, NULL);
    if (before.ss_flags & SS_DISABLE)
        before.ss_size = MINSIGSTKSZ;
    sigaltstack(&before, NULL);
    free(stack.ss_sp);
}

const struct operation signal_operations[] = {
    {"timer", "signal", do_timer, 2, ALONE | PARENT},
    {"jump", "signal", do_jump, 1, ALONE},
    {"alternate", "signal", do_alternate, 1, ALONE},
    {0},
};
