/* entries: threads, signals, cancellation and program ends together with the allocator. Half of the
 * blocks must be absent. argv[1] selects the test. Prints "good" and exits with 0. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define COUNT 16
#define BYTES ((size_t)512 << 10)
#define NS_A_MS 1000000L

static unsigned char *blocks[COUNT]; /* 8 MiB, twice the budget */
static atomic_uint seed = 1;

static void die(const char *what)
{
    printf("bad: %s\n", what);
    fflush(stdout);
    _exit(1);
}

static void nap_ms(long ms)
{
    struct timespec nap = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * NS_A_MS};
    while (nanosleep(&nap, &nap) != 0) {
    }
}

static long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / NS_A_MS;
}

static void fill_all(void)
{
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc(BYTES);
        if (!blocks[i])
            die("malloc");
        memset(blocks[i], i + 1, BYTES);
    }
}

static void check(int i)
{
    for (size_t at = 0; at < BYTES; at += 1021)
        if (blocks[i][at] != i + 1)
            die("byte");
}

/* Allocates, uses and frees memory, and uses blocks that may be absent. */
static void churn(void)
{
    unsigned number = atomic_fetch_add(&seed, 7);
    size_t bytes = ((size_t)200 << 10) + number % 9 * 65536;
    unsigned char *scratch = malloc(bytes);
    if (!scratch)
        die("malloc");
    memset(scratch, 1, bytes);
    check((int)(number % COUNT));
    scratch = realloc(scratch, bytes + 100000);
    scratch[bytes] = 1;
    free(scratch);
    void *small[40];
    for (int i = 0; i < 40; i++)
        small[i] = malloc(9000);
    for (int i = 0; i < 40; i++)
        free(small[i]);
}

/* Threads that are ended by pthread_cancel() at any point. */
static void *churn_for_ever(void *unused)
{
    for (;;) {
        churn();
        pthread_testcancel();
    }
    return unused;
}

static void cancel(void)
{
    for (int round = 0; round < 30; round++) {
        pthread_t threads[2];
        for (int i = 0; i < 2; i++)
            pthread_create(&threads[i], NULL, churn_for_ever, NULL);
        nap_ms(1 + round % 7);
        for (int i = 0; i < 2; i++)
            pthread_cancel(threads[i]);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        churn();
    }
}

/* Threads that are cancelled at any point, while they only read. */
static void *look_for_ever(void *unused)
{
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (;;) /* usually it waits for the next block */
        for (int i = 0; i < COUNT; i++)
            if (((volatile unsigned char *)blocks[i])[BYTES / 2] != i + 1)
                die("byte");
    return unused;
}

static void cancel_at_once(void)
{
    for (int round = 0; round < 200; round++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, look_for_ever, NULL);
        nap_ms(round % 5);
        for (int i = 0; round % 2 && i < COUNT; i++)
            check(i);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        if (result != PTHREAD_CANCELED)
            die("cancelled, but not said");
    }
}

/* Threads that are cancelled in a call that uses a block. */
static int pair[2];

static void *read_for_ever(void *block)
{
    for (;;)
        if (read(pair[0], block, BYTES) < 0)
            die("read");
    return NULL;
}

static void cancel_calls(void)
{
    if (pipe(pair) != 0)
        die("pipe");
    for (int round = 0; round < COUNT; round++) {
        pthread_t thread;
        pthread_create(&thread, NULL, read_for_ever, blocks[round]);
        nap_ms(2);
        pthread_cancel(thread);
        pthread_join(thread, NULL);
    }
    for (int i = 0; i < 4 * COUNT; i++) /* a block that stayed pinned could not be evicted */
        churn();
}

/* Threads that a signal takes out of a call that uses a block, and that end afterwards. */
static _Thread_local sigjmp_buf out;
static atomic_int can_leave;

static void leave_call(int number)
{
    (void)number;
    siglongjmp(out, 1);
}

__attribute__((noinline)) static void use_stack(void)
{
    volatile char below[8192];
    memset((void *)(uintptr_t)below, 0x5a, sizeof below);
}

static void *read_once(void *block)
{
    if (sigsetjmp(out, 1) == 0) {
        atomic_store(&can_leave, 1);
        read_for_ever(block);
    }
    use_stack(); /* where the call was */
    pthread_exit(block);
}

static void jump_out_of_calls(void)
{
    struct sigaction action = {.sa_handler = leave_call};
    if (pipe(pair) != 0 || sigaction(SIGUSR1, &action, NULL) != 0)
        die("pipe");
    for (int round = 0; round < COUNT; round++) {
        pthread_t thread;
        void *result;
        atomic_store(&can_leave, 0);
        pthread_create(&thread, NULL, read_once, blocks[round]);
        while (!atomic_load(&can_leave))
            nap_ms(1);
        nap_ms(5);
        pthread_kill(thread, SIGUSR1);
        pthread_join(thread, &result);
        if (result != blocks[round])
            die("result");
    }
    for (int i = 0; i < 4 * COUNT; i++) /* a block that stayed pinned could not be evicted */
        churn();
}

/* A handler that uses the heap while its thread is at any point. The next alarm comes 1 ms after
 * its end. Alarms at fixed times would leave the program no time if a handler waits longer than
 * that for its block. */
static atomic_int taken, jumps;
static volatile sig_atomic_t may_jump, rings;
static sigjmp_buf back;

static void ring_in_ms(long ms)
{
    struct itimerval once = {.it_value = {.tv_usec = ms * 1000}};
    setitimer(ITIMER_REAL, &once, NULL);
}

static void on_alarm(int number)
{
    (void)number;
    static unsigned turn;
    unsigned i = turn++ % COUNT;
    for (size_t at = 0; at < BYTES; at += 65536)
        if (blocks[i][at] != i + 1)
            die("byte in a handler");
    taken++;
    if (rings)
        ring_in_ms(1);
    if (may_jump) {
        jumps++;
        siglongjmp(back, 1);
    }
}

static void start_alarm(int more_flags)
{
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART | more_flags};
    sigaction(SIGALRM, &action, NULL);
    rings = 1;
    ring_in_ms(1);
}

static void stop_alarm(void)
{
    rings = 0; /* first: a handler may come between these two */
    ring_in_ms(0);
}

static void handler(void)
{
    start_alarm(0);
    for (long end = now_ms() + 400; now_ms() < end || taken < 10;)
        churn();
    stop_alarm();
}

/* A handler that jumps out of a memory access and never returns to it. */
static void jump(void)
{
    start_alarm(0);
    volatile unsigned i = 0;
    for (long end = now_ms() + 400; now_ms() < end || jumps < 10; i++) {
        if (sigsetjmp(back, 1) == 0) {
            may_jump = 1;
            for (size_t at = 0; at < BYTES; at += 4096)
                if (((volatile unsigned char *)blocks[i % COUNT])[at] != i % COUNT + 1)
                    die("byte");
        }
        may_jump = 0;
        if (i % 4 == 0)
            churn();
    }
    stop_alarm();
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    if (state != PTHREAD_CANCEL_ENABLE)
        die("cancellation is disabled");
}

/* The state that a call must not change. */
static void keeps(void)
{
    sigset_t before, after;
    sigemptyset(&before);
    sigaddset(&before, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    int state;
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL);
    for (int i = 0; i < 100; i++) {
        errno = 1000 + i;
        churn();
        if (errno != 1000 + i)
            die("errno");
    }
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int number = 1; number < NSIG; number++)
        if (sigismember(&before, number) != sigismember(&after, number))
            die("mask");
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    if (state != PTHREAD_CANCEL_ENABLE)
        die("cancellation");
}

/* The process goes on after the end of main(). */
static void *outlive(void *unused)
{
    nap_ms(200);
    for (int i = 0; i < 20; i++)
        churn();
    return unused;
}

static void say_good(void)
{
    for (int i = 0; i < COUNT; i++) {
        check(i);
        free(blocks[i]);
    }
    printf("good\n");
}

static void leave_main(void)
{
    atexit(say_good);
    pthread_t thread;
    pthread_create(&thread, NULL, outlive, NULL);
    pthread_detach(thread);
    pthread_create(&thread, NULL, outlive, NULL);
    pthread_exit(NULL);
}

/* The same in a child whose only thread is not the first one. */
static void *fork_and_leave(void *unused)
{
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < COUNT; i++)
            check(i);
        pthread_exit(NULL);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        die("child");
    return unused;
}

static void leave_child(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, fork_and_leave, NULL);
    pthread_join(thread, NULL);
}

/* The last thread ends by the bare system call, which ends only this thread. */
static void leave_bare(void)
{
    say_good();
    fflush(stdout);
    syscall(SYS_exit, 0);
}

static void free_own(void)
{
    unsigned char *own = malloc(4 * BYTES);
    memset(own, 1, 4 * BYTES);
    free(own);
    for (int i = 0; i < COUNT; i++)
        check(i);
    printf("good\n");
}

/* exit() while other threads allocate. An exit handler uses the heap. */
static void exit_meanwhile(void)
{
    atexit(free_own);
    pthread_t thread;
    for (int i = 0; i < 3; i++)
        pthread_create(&thread, NULL, churn_for_ever, NULL);
    nap_ms(100);
    exit(0);
}

/* Threads whose stacks and thread-local data lie in blocks that are mostly absent. */
#define STACKS 6 /* 1.5 MiB, which stay resident */
#define STACK_BYTES ((size_t)256 << 10)

static atomic_uint steps;

static void *run_on_block(void *argument)
{
    unsigned char own[20000];
    memset(own, (int)(size_t)argument, sizeof own);
    for (int i = 0; i < 8; i++) {
        churn();
        nap_ms(1);
        for (size_t at = 0; at < sizeof own; at += 97)
            if (own[at] != (unsigned char)(size_t)argument)
                die("stack");
        errno = i;
    }
    atomic_fetch_add(&steps, 1);
    return NULL;
}

static void stacks(void)
{
    pthread_t threads[STACKS];
    void *memory[STACKS];
    for (size_t i = 0; i < STACKS; i++) {
        if (posix_memalign(&memory[i], 4096, STACK_BYTES) != 0)
            die("posix_memalign");
        churn();
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        if (pthread_attr_setstack(&attributes, memory[i], STACK_BYTES) != 0 ||
            pthread_create(&threads[i], &attributes, run_on_block, (void *)(i + 1)) != 0)
            die("thread");
    }
    for (size_t i = 0; i < STACKS; i++) {
        pthread_join(threads[i], NULL);
        free(memory[i]);
    }
    if (steps != STACKS)
        die("steps");
}

/* Processes that share the memory and have their stacks in a block. */
static int use_blocks(void *unused)
{
    (void)unused;
    for (int i = 0; i < COUNT; i++)
        check(i);
    return 0;
}

static void clones(void)
{
    for (int i = 0; i < 8; i++) {
        unsigned char *stack = malloc(STACK_BYTES);
        memset(stack, 1, STACK_BYTES);
        churn();
        for (int k = 0; k < COUNT; k++)
            check(k);
        pid_t child = clone(use_blocks, stack + STACK_BYTES,
                            CLONE_VM | (i % 2 ? CLONE_VFORK : 0) | SIGCHLD, NULL);
        int status;
        if (i % 2 == 0)
            for (int k = 0; k < COUNT; k++)
                check(k);
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            die("clone");
        free(stack);
    }
}

/* Contexts that run one after the other. */
static ucontext_t contexts[STACKS], main_context;
static unsigned current;

static void run_context(void)
{
    unsigned mine = current;
    unsigned char own[20000];
    memset(own, (int)mine, sizeof own);
    for (int i = 0; i < 5; i++) {
        churn();
        for (size_t at = 0; at < sizeof own; at += 97)
            if (own[at] != mine)
                die("stack");
        current = (mine + 1) % STACKS;
        if (swapcontext(&contexts[mine], &contexts[current]) != 0)
            die("swapcontext");
    }
    setcontext(&main_context);
}

static void switch_contexts(void)
{
    start_alarm(0);
    for (unsigned i = 0; i < STACKS; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = malloc(STACK_BYTES);
        contexts[i].uc_stack.ss_size = STACK_BYTES;
        makecontext(&contexts[i], run_context, 0);
        for (int k = 0; k < 4; k++)
            churn();
    }
    if (swapcontext(&main_context, &contexts[0]) != 0)
        die("swapcontext");
    stop_alarm();
}

/* Signals that are handled on alternate stacks in a large and in a small block. */
static void alternate(void)
{
    const size_t sizes[] = {STACK_BYTES, 16384};
    for (int turn = 0; turn < 2; turn++) {
        stack_t stack = {.ss_sp = malloc(sizes[turn]), .ss_size = sizes[turn]};
        for (int k = 0; k < 4; k++)
            churn();
        if (sigaltstack(&stack, NULL) != 0)
            die("sigaltstack");
        start_alarm(SA_ONSTACK);
        int before = taken;
        for (long end = now_ms() + 200; now_ms() < end || taken < before + 10;)
            churn();
        stop_alarm();
    }
}

/* Stacks that are switched without any call that a library could intercept. */
static void run_raw(void)
{
    unsigned char own[20000];
    memset(own, 9, sizeof own);
    for (int i = 0; i < 5; i++)
        churn();
    for (size_t at = 0; at < sizeof own; at++)
        if (own[at] != 9)
            die("stack");
}

static void *run_raw_stacks(void *unused)
{
    unsigned char *memory[STACKS];
    for (int i = 0; i < STACKS; i++)
        memory[i] = malloc(STACK_BYTES);
    for (int i = 0; i < STACKS; i++) {
        memset(memory[i], 0, STACK_BYTES);
        churn();
    }
    for (int i = 0; i < STACKS; i++) {
#ifdef __x86_64__
        void *top = memory[i] + STACK_BYTES - 64;
        __asm__ volatile("mov %%rsp, %%rbx\n mov %0, %%rsp\n call *%1\n mov %%rbx, %%rsp"
                         :
                         : "r"(top), "r"(run_raw)
                         : "rbx", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11",
                           "memory", "cc");
#endif
    }
    for (int i = 0; i < STACKS; i++)
        free(memory[i]);
    return unused;
}

static void raw_stacks(void)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, run_raw_stacks, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } cases[] = {
        {"cancel", cancel},
        {"cancel-at-once", cancel_at_once},
        {"cancel-calls", cancel_calls},
        {"jump-out-of-calls", jump_out_of_calls},
        {"handler", handler},
        {"jump", jump},
        {"keeps", keeps},
        {"leave-main", leave_main},
        {"leave-child", leave_child},
        {"leave-bare", leave_bare},
        {"exit", exit_meanwhile},
        {"stacks", stacks},
        {"clones", clones},
        {"contexts", switch_contexts},
        {"alternate", alternate},
        {"raw-stacks", raw_stacks},
    };
    fill_all();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (argc > 1 && strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].function();
            say_good();
            return 0;
        }
    return 2;
}
