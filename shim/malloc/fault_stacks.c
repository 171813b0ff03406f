/* Signal stacks for the device that uses SIGSEGV: each thread of the program gets one.
 *
 * Without such a stack, a handler runs below the stack pointer. Code compiled at run time (XLA,
 * oneDNN) uses that register for other things. It may point into a buffer, with other data below
 * it. Devices with userfaultfd need no signal.
 *
 * A thread gets its stack before its function runs, and returns it afterwards. A stack that the
 * program sets itself is used if it is as large as the shim's. Otherwise the shim only reports it
 * as set. */
#include "device/os.h"
#include "shim.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

#define EXPORT __attribute__((visibility("default")))

/* The processor saves 3 to 12 KiB, and the runtime needs less. The program's handlers run there,
 * too: those of SIGSEGV, and those with SA_ONSTACK in a thread that has set no stack. They expect
 * an ordinary stack: usually 8 MiB of addresses, whose memory is allocated by use. If address space
 * is limited, the stacks are smaller. A program's own stack of at least this size is used. */
#define STACK_BYTES ((size_t)8 << 20)
#define LEAST_BYTES ((size_t)128 << 10)

EXPORT int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes,
                          void *(*run)(void *), void *restrict argument);

static _Atomic bool giving;
static _Thread_local stack_t ours = {.ss_flags = SS_DISABLE};
static _Thread_local stack_t theirs = {.ss_flags = SS_DISABLE};

/* The data of a new thread, at the start of its signal stack. */
struct beginning {
    void *(*run)(void *);
    void *argument;
    size_t stack_bytes;
};

/* Maps an inaccessible page below, so that an overflow ends the program. */
static struct beginning *map_stack_of(size_t bytes)
{
    char *memory = mmap(NULL, EBB_PAGE_BYTES + bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    ebb__os_protect((uintptr_t)memory, EBB_PAGE_BYTES, PROT_NONE);
    struct beginning *beginning = (struct beginning *)(void *)(memory + EBB_PAGE_BYTES);
    beginning->stack_bytes = bytes;
    return beginning;
}

static struct beginning *map_stack(void)
{
    struct rlimit limit;
    bool is_limited = getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
    struct beginning *beginning = is_limited ? NULL : map_stack_of(STACK_BYTES);
    return beginning ? beginning : map_stack_of(LEAST_BYTES);
}

static void unmap_stack(void *stack, size_t bytes)
{
    munmap((char *)stack - EBB_PAGE_BYTES, EBB_PAGE_BYTES + bytes);
}

/* The kernel's minimum. The C library's constant is larger. */
static size_t least_bytes(void)
{
    size_t bytes = getauxval(AT_MINSIGSTKSZ);
    return bytes ? bytes : 2048;
}

static long set_stack(const stack_t *stack, stack_t *before)
{
    return syscall(SYS_sigaltstack, stack, before);
}

static void use_stack(void *stack, size_t bytes)
{
    ours = (stack_t){.ss_sp = stack, .ss_size = bytes};
    if (set_stack(&ours, NULL) != 0)
        ours.ss_flags = SS_DISABLE;
}

static void give_stack_back(void *unused)
{
    (void)unused;
    stack_t now, none = {.ss_flags = SS_DISABLE};
    if (set_stack(NULL, &now) == 0 && now.ss_sp == ours.ss_sp)
        set_stack(&none, NULL);
    ours.ss_flags = SS_DISABLE;
    unmap_stack(ours.ss_sp, ours.ss_size);
}

static void *begin(void *stack)
{
    struct beginning beginning = *(struct beginning *)stack;
    void *result;
    use_stack(stack, beginning.stack_bytes);
    pthread_cleanup_push(give_stack_back, NULL); /* also if the thread exits or is cancelled */
    result = beginning.run(beginning.argument);
    pthread_cleanup_pop(1);
    return result;
}

int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes,
                   void *(*run)(void *), void *restrict argument)
{
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    EBB_BEHIND(next, pthread_create);
    struct beginning *beginning =
        atomic_load_explicit(&giving, memory_order_relaxed) ? map_stack() : NULL;
    if (!beginning)
        return next(thread, attributes, run, argument);
    beginning->run = run;
    beginning->argument = argument;
    int why = next(thread, attributes, begin, beginning);
    if (why)
        unmap_stack(beginning, beginning->stack_bytes);
    return why;
}

int ebb__shim_signal_stack(const stack_t *stack, stack_t *before)
{
    stack_t now;
    bool has_ours = !(ours.ss_flags & SS_DISABLE);
    if (!has_ours)
        return (int)set_stack(stack, before);
    if (set_stack(NULL, &now) != 0)
        return -1;
    stack_t answer = theirs;
    answer.ss_flags |= now.ss_flags & SS_ONSTACK;
    if (stack) {
        int flags = stack->ss_flags & (int)~SS_AUTODISARM;
        if (now.ss_flags & SS_ONSTACK ||
            (flags != 0 && flags != SS_DISABLE && flags != SS_ONSTACK)) {
            errno = now.ss_flags & SS_ONSTACK ? EPERM : EINVAL;
            return -1;
        }
        bool is_off = flags == SS_DISABLE;
        if (!is_off && stack->ss_size < least_bytes()) {
            errno = ENOMEM;
            return -1;
        }
        bool is_taken = !is_off && stack->ss_size >= LEAST_BYTES;
        if (set_stack(is_taken ? stack : &ours, NULL) != 0)
            return -1;
        theirs = is_off ? (stack_t){.ss_flags = SS_DISABLE} : *stack;
        theirs.ss_flags &= ~(int)SS_ONSTACK;
    }
    if (before)
        *before = answer;
    return 0;
}

void ebb__shim_give_signal_stacks(void)
{
    struct beginning *beginning = map_stack();
    if (beginning)
        use_stack(beginning, beginning->stack_bytes);
    atomic_store(&giving, true);
}
