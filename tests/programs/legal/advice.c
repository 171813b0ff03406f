/* Requests to the kernel for pages of the program's own blocks: advice, protection, locks, NUMA. */
#include "legal.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#define MEMORY_POLICY_DEFAULT 0 /* linux/mempolicy.h */
#define MEMORY_POLICY_PREFERRED 1
#define MOVE_MISPLACED 2u

/* True if this kernel has the advice. It is tried once, on memory that nobody manages. */
static bool has_advice(int advice)
{
    static signed char known[256];
    if (advice < 256 && known[advice])
        return known[advice] > 0;
    void *try = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool good = try != MAP_FAILED && madvise(try, 4 * PAGE, advice) == 0;
    if (try != MAP_FAILED)
        munmap(try, 4 * PAGE);
    if (advice < 256)
        known[advice] = good ? 1 : -1;
    return good;
}

static bool advise(struct actor *actor, struct run *run, int advice, unsigned without)
{
    if (!has_advice(advice) || !run_pick_inner(actor, run, without, MAX_BLOCK_BYTES))
        return false;
    errno = 4711;
    if (madvise(run_start(run), run_bytes(run), advice) != 0)
        fail(actor, "madvise(%p, %zu, %d): %s (block %llu at %p)", (void *)run_start(run),
             run_bytes(run), advice, strerror(errno), (unsigned long long)run->block->id,
             (void *)run->block->start);
    return true;
}

/* Gives advice that does not change content. */
static void hint(struct actor *actor, int advice, unsigned without)
{
    struct run run;
    if (advise(actor, &run, advice, without) && one_in(actor, 2))
        run_check(actor, &run, "after advice");
}

static void do_huge(struct actor *actor)
{
    hint(actor, MADV_HUGEPAGE, GONE | NOT_ANONYMOUS);
}

static void do_no_huge(struct actor *actor)
{
    hint(actor, MADV_NOHUGEPAGE, GONE | NOT_ANONYMOUS);
}

static void do_dontdump(struct actor *actor)
{
    hint(actor, one_in(actor, 2) ? MADV_DONTDUMP : MADV_DODUMP, GONE);
}

static void do_willneed(struct actor *actor)
{
    static const int advices[] = {MADV_WILLNEED, MADV_NORMAL, MADV_SEQUENTIAL, MADV_RANDOM};
    hint(actor, advices[chance(actor, 4)], GONE | NOT_ANONYMOUS);
}

static void do_cold(struct actor *actor)
{
    hint(actor, one_in(actor, 2) ? MADV_COLD : MADV_PAGEOUT, GONE | LOCKED);
}

static void do_populate(struct actor *actor)
{
    if (one_in(actor, 2))
        hint(actor, MADV_POPULATE_READ, UNREADABLE);
    else
        hint(actor, MADV_POPULATE_WRITE, UNWRITABLE);
}

static void do_mergeable(struct actor *actor)
{
    hint(actor, one_in(actor, 2) ? MADV_MERGEABLE : MADV_UNMERGEABLE, GONE | NOT_ANONYMOUS);
}

/* May fail for lack of huge pages, or because the memory is special. Content does not change. */
static void do_collapse(struct actor *actor)
{
    struct run run;
    if (run_pick_inner(actor, &run, GONE | NOT_ANONYMOUS | NO_ACCESS, MAX_BLOCK_BYTES)) {
        (void)madvise(run_start(&run), run_bytes(&run), MADV_COLLAPSE);
        run_check(actor, &run, "after MADV_COLLAPSE");
    }
}

static void do_dontneed(struct actor *actor)
{
    struct run run;
    if (!advise(actor, &run, MADV_DONTNEED, GONE | NOT_ANONYMOUS | LOCKED))
        return;
    run_set(&run, 0);
    if (one_in(actor, 2))
        run_check(actor, &run, "after MADV_DONTNEED");
}

static void do_lazy(struct actor *actor)
{
    struct run run;
    if (!advise(actor, &run, MADV_FREE, UNWRITABLE | NOT_ANONYMOUS | LOCKED))
        return;
    run_flag(&run, LAZY, 0);
    if (one_in(actor, 4)) {
        run_check(actor, &run, "after MADV_FREE");
    } else if (one_in(actor, 3)) {
        run_fill(actor, &run);
        run_check(actor, &run, "written after MADV_FREE");
    }
}

static void do_dontfork(struct actor *actor)
{
    struct run run;
    if (advise(actor, &run, MADV_DONTFORK, GONE))
        run_flag(&run, NOT_IN_CHILD, 0);
}

static void do_dofork(struct actor *actor)
{
    struct run run;
    if (one_in(actor, 2)) {
        if (advise(actor, &run, MADV_DOFORK, GONE))
            run_flag(&run, 0, NOT_IN_CHILD);
    } else if (advise(actor, &run, MADV_KEEPONFORK, GONE | NOT_ANONYMOUS)) {
        run_flag(&run, 0, ZERO_IN_CHILD);
    }
}

static void do_wipeonfork(struct actor *actor)
{
    struct run run;
    if (advise(actor, &run, MADV_WIPEONFORK, GONE | NOT_ANONYMOUS))
        run_flag(&run, ZERO_IN_CHILD, 0);
}

static void protect(struct actor *actor, const struct run *run, int protection)
{
    if (mprotect(run_start(run), run_bytes(run), protection) != 0)
        fail(actor, "mprotect(%p, %zu, %d): %s", (void *)run_start(run), run_bytes(run), protection,
             strerror(errno));
}

/* A call that writes to a read-only page must fail with EFAULT and not change the page. */
static void expect_efault(struct actor *actor, unsigned char *at)
{
    int ends[2];
    if (pipe(ends) != 0)
        return;
    if (write(ends[1], "wrong", 5) != 5)
        fail(actor, "write to a pipe: %s", strerror(errno));
    ssize_t got = read(ends[0], at, 5);
    if (got != -1 || errno != EFAULT)
        fail(actor, "read into a protected page gave %zd (%s), not EFAULT", got, strerror(errno));
    close(ends[0]);
    close(ends[1]);
}

static void do_protect(struct actor *actor)
{
    struct run run;
    if (!run_pick_inner(actor, &run, GONE | PARENTS | NO_ACCESS, MAX_BLOCK_BYTES))
        return;
    protect(actor, &run, PROT_READ);
    run_flag(&run, READ_ONLY, 0);
    unsigned char *at = run_start(&run) + chance(actor, run_bytes(&run) - 8);
    if (one_in(actor, 2))
        run_check(actor, &run, "read-only pages");
    if (!access_faults(at, true))
        fail(actor, "a write to a read-only page at %p did not fault", (void *)at);
    if (one_in(actor, 2))
        expect_efault(actor, at);
    run_check(actor, &run, "read-only pages after a refused write");
    if (one_in(actor, 3)) {
        protect(actor, &run, PROT_READ | PROT_WRITE);
        run_flag(&run, 0, READ_ONLY);
        run_fill(actor, &run);
    }
}

static void do_no_access(struct actor *actor)
{
    struct run run;
    if (!run_pick_inner(actor, &run, GONE | PARENTS | LOCKED, MAX_BLOCK_BYTES))
        return;
    protect(actor, &run, PROT_NONE);
    run_flag(&run, NO_ACCESS, READ_ONLY);
    unsigned char *at = run_start(&run) + chance(actor, run_bytes(&run) - 8);
    if (!access_faults(at, false))
        fail(actor, "a read of a page without access at %p did not fault", (void *)at);
    if (one_in(actor, 2))
        expect_efault(actor, at);
    if (one_in(actor, 2))
        pressure(actor);
    if (one_in(actor, 2)) {
        protect(actor, &run, PROT_READ | PROT_WRITE);
        run_flag(&run, 0, NO_ACCESS);
        run_check(actor, &run, "after PROT_NONE");
    }
}

static void do_allow(struct actor *actor)
{
    struct run run;
    if (!run_pick_inner(actor, &run, GONE | PARENTS, MAX_BLOCK_BYTES))
        return;
    protect(actor, &run, PROT_READ | PROT_WRITE);
    run_flag(&run, 0, READ_ONLY | NO_ACCESS);
    run_check(actor, &run, "pages made ordinary");
}

/* Executes code in a block, like a small just-in-time compiler. */
static void do_execute(struct actor *actor)
{
#ifdef __x86_64__
    struct run run;
    if (!run_pick_inner(actor, &run, UNWRITABLE | NOT_ANONYMOUS, PAGE))
        return;
    uint32_t number = (uint32_t)chance(actor, UINT32_MAX);
    unsigned char code[] = {0xB8, 0, 0, 0, 0, 0xC3}; /* mov eax, number; ret */
    memcpy(code + 1, &number, 4);
    memcpy(run_start(&run), code, sizeof code);
    protect(actor, &run, PROT_READ | PROT_EXEC);
    if (one_in(actor, 2))
        pressure_beside(actor, run.block);
    uint32_t (*function)(void);
    void *start = run_start(&run);
    memcpy(&function, &start, sizeof function);
    uint32_t got = function();
    if (got != number)
        fail(actor, "code in a block gave %u, not %u", got, number);
    protect(actor, &run, PROT_READ | PROT_WRITE);
    run_fill(actor, &run);
#else
    (void)actor;
#endif
}

static void do_lock(struct actor *actor)
{
    struct run run;
    if (one_in(actor, 2)) {
        if (!run_pick_inner(actor, &run, UNWRITABLE | NOT_ANONYMOUS | LAZY, MIB))
            return;
        bool on_fault = one_in(actor, 3);
        int got = on_fault ? mlock2(run_start(&run), run_bytes(&run), MLOCK_ONFAULT)
                           : mlock(run_start(&run), run_bytes(&run));
        run_flag(&run, LOCKED, 0); /* maybe, even if memory lacked */
        if (got != 0 && errno != ENOMEM && errno != EPERM && errno != EAGAIN)
            fail(actor, "mlock(%p, %zu): %s", (void *)run_start(&run), run_bytes(&run),
                 strerror(errno));
    } else {
        if (!run_pick_inner(actor, &run, GONE, MIB))
            return;
        if (munlock(run_start(&run), run_bytes(&run)) != 0)
            fail(actor, "munlock: %s", strerror(errno));
        run_flag(&run, 0, LOCKED);
    }
    run_check(actor, &run, "after mlock or munlock");
}

static void do_bind(struct actor *actor)
{
    struct run run;
    if (!run_pick_inner(actor, &run, GONE | NOT_ANONYMOUS, MAX_BLOCK_BYTES))
        return;
    unsigned long node = 1;
    int policy = one_in(actor, 2) ? MEMORY_POLICY_PREFERRED : MEMORY_POLICY_DEFAULT;
    long got = syscall(SYS_mbind, run_start(&run), run_bytes(&run), policy,
                       policy == MEMORY_POLICY_DEFAULT ? NULL : &node,
                       policy == MEMORY_POLICY_DEFAULT ? 0ul : 64ul,
                       one_in(actor, 2) ? MOVE_MISPLACED : 0u);
    if (got != 0 && errno != ENOSYS && errno != EPERM)
        fail(actor, "mbind(%p, %zu): %s", (void *)run_start(&run), run_bytes(&run),
             strerror(errno));
    run_check(actor, &run, "after mbind");
}

static void do_mincore(struct actor *actor)
{
    struct run run;
    if (!run_pick_inner(actor, &run, GONE, MAX_BLOCK_BYTES))
        return;
    if (mincore(run_start(&run), run_bytes(&run), actor->scratch) != 0)
        fail(actor, "mincore(%p, %zu): %s", (void *)run_start(&run), run_bytes(&run),
             strerror(errno));
    if (!one_in(actor, 3) || run.block->page[run.first].flags & (NOT_ANONYMOUS | UNREADABLE))
        return;
    if (msync(run_start(&run), run_bytes(&run), MS_ASYNC) != 0)
        fail(actor, "msync(%p, %zu): %s", (void *)run_start(&run), run_bytes(&run),
             strerror(errno));
}

/* Bare system calls, like those of a runtime without libc. No library can intercept them. They
 * change mappings, but not content. */
/* Uses an instruction of the program's own. */
static long bare_call(long number, unsigned char *address, size_t bytes, long third)
{
#ifdef __x86_64__
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(address), "S"(bytes), "d"(third)
                     : "rcx", "r11", "memory");
    return result;
#else
    return syscall(number, address, bytes, third);
#endif
}

static long call_by_number(long number, unsigned char *address, size_t bytes, long third)
{
    return syscall(number, address, bytes, third);
}

typedef long (*call_fn)(long number, unsigned char *address, size_t bytes, long third);

static void do_raw_advice(struct actor *actor)
{
    static const long advices[] = {MADV_NOHUGEPAGE, MADV_HUGEPAGE, MADV_DONTDUMP, MADV_DODUMP};
    struct run run;
    if (!run_pick_inner(actor, &run, GONE | NOT_ANONYMOUS, MAX_BLOCK_BYTES))
        return;
    call_fn call = one_in(actor, 2) ? bare_call : call_by_number;
    if (call(SYS_madvise, run_start(&run), run_bytes(&run), advices[chance(actor, 4)]) != 0)
        fail(actor, "bare madvise: refused");
    run_check(actor, &run, "after bare madvise");
}

static void protect_for_a_while(struct actor *actor, call_fn call, const char *what)
{
    struct run run;
    if (!run_pick_inner(actor, &run, UNWRITABLE, MAX_BLOCK_BYTES))
        return;
    if (call(SYS_mprotect, run_start(&run), run_bytes(&run), PROT_READ) != 0)
        fail(actor, "%s: refused", what);
    run_check(actor, &run, what);
    if (one_in(actor, 2))
        pressure(actor);
    if (call(SYS_mprotect, run_start(&run), run_bytes(&run), PROT_READ | PROT_WRITE) != 0)
        fail(actor, "%s: refused", what);
    run_fill(actor, &run);
}

static void do_raw_protect(struct actor *actor)
{
    protect_for_a_while(actor, call_by_number, "mprotect by its number");
}

static void do_bare_protect(struct actor *actor)
{
    protect_for_a_while(actor, bare_call, "bare mprotect");
}

const struct operation advice_operations[] = {
    {"hugepage", "advice", do_huge, 3, 0},
    {"nohugepage", "advice", do_no_huge, 3, 0},
    {"dontdump", "advice", do_dontdump, 2, 0},
    {"willneed", "advice", do_willneed, 2, 0},
    {"cold", "advice", do_cold, 3, 0},
    {"populate", "advice", do_populate, 3, 0},
    {"mergeable", "advice", do_mergeable, 2, 0},
    {"collapse", "advice", do_collapse, 2, 0},
    {"dontneed", "advice", do_dontneed, 6, 0},
    {"lazy", "advice", do_lazy, 4, 0},
    {"dontfork", "advice", do_dontfork, 2, 0},
    {"dofork", "advice", do_dofork, 3, 0},
    {"wipeonfork", "advice", do_wipeonfork, 2, 0},
    {"protect", "advice", do_protect, 5, 0},
    {"noaccess", "advice", do_no_access, 3, 0},
    {"allow", "advice", do_allow, 4, 0},
    {"execute", "advice", do_execute, 2, 0},
    {"lock", "advice", do_lock, 4, 0},
    {"bind", "advice", do_bind, 2, RAW},
    {"mincore", "advice", do_mincore, 2, 0},
    {"rawadvice", "advice", do_raw_advice, 2, RAW},
    {"rawprotect", "advice", do_raw_protect, 2, RAW},
    {"bareprotect", "advice", do_bare_protect, 2, RAW},
    {0},
};
