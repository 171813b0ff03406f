/* Maps other memory over pages of a block, and removes and restores pages. */
#include "legal.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

static void lay(struct actor *actor, const struct run *run, int flags, int file)
{
    void *start = run_start(run);
    void *there = mmap(start, run_bytes(run), PROT_READ | PROT_WRITE, flags | MAP_FIXED, file, 0);
    if (there != start)
        fail(actor, "mmap(%p, %zu, MAP_FIXED | %#x): %s", start, run_bytes(run), (unsigned)flags,
             strerror(errno));
    /* A new mapping has none of the settings of the old one. */
    run_flag(run, 0,
             LAZY | READ_ONLY | NO_ACCESS | NOT_IN_CHILD | ZERO_IN_CHILD | LOCKED | NOT_ANONYMOUS);
}

static void do_over_anonymous(struct actor *actor)
{
    struct run run;
    if (!run_pick_inner(actor, &run, GONE | PARENTS, MAX_BLOCK_BYTES))
        return;
    lay(actor, &run, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    run_set(&run, 0);
    if (one_in(actor, 2))
        run_check(actor, &run, "anonymous memory laid over a block");
    if (one_in(actor, 2))
        run_fill(actor, &run);
}

static void do_over_shared(struct actor *actor)
{
    struct run run;
    if (!run_pick_inner(actor, &run, GONE | PARENTS, MIB))
        return;
    lay(actor, &run, MAP_SHARED | MAP_ANONYMOUS, -1);
    run_flag(&run, SHARED, 0);
    run_set(&run, 0);
    run_fill(actor, &run);
    if (one_in(actor, 2))
        pressure(actor);
    run_check(actor, &run, "shared memory laid over a block");
}

/* A file in memory with the pages' next content, mapped as private or shared. */
static void do_over_file(struct actor *actor)
{
    struct run run;
    if (!run_pick_inner(actor, &run, GONE | PARENTS, SCRATCH_BYTES))
        return;
    int file = memfd_create("legal", MFD_CLOEXEC);
    if (file < 0)
        return;
    size_t bytes = run_bytes(&run);
    uint32_t version = ++actor->version;
    pattern_make(run.block, run_offset(&run), bytes, version, actor->scratch);
    if (write(file, actor->scratch, bytes) != (ssize_t)bytes)
        fail(actor, "write to a file in memory: %s", strerror(errno));
    bool shared = one_in(actor, 2);
    lay(actor, &run, shared ? MAP_SHARED : MAP_PRIVATE, file);
    run_flag(&run, shared ? SHARED : OF_FILE, 0);
    run_set(&run, version);
    close(file);
    if (one_in(actor, 2))
        pressure(actor);
    run_check(actor, &run, "a file laid over a block");
    if (one_in(actor, 2))
        run_fill(actor, &run);
}

static void do_ordinary(struct actor *actor)
{
    struct block *block = random_block(actor, PAGE);
    if (block && block_is_whole(block)) {
        block_restore(actor, block);
        block_check(actor, block);
    }
}

/* Unmaps pages and maps them again. It runs alone, since another thread could be given the
 * addresses. */
static void do_hole(struct actor *actor)
{
    struct run run;
    if (!run_pick_inner(actor, &run, GONE | PARENTS, MAX_BLOCK_BYTES))
        return;
    if (munmap(run_start(&run), run_bytes(&run)) != 0)
        fail(actor, "munmap: %s", strerror(errno));
    if (!access_faults(run_start(&run), one_in(actor, 2)))
        fail(actor, "an unmapped page at %p can be read", (void *)run_start(&run));
    lay(actor, &run, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    run_set(&run, 0);
    if (one_in(actor, 2))
        run_check(actor, &run, "mapped again");
    else
        run_fill(actor, &run);
}

/* Signals are blocked. If a signal comes while mremap moves several mappings, one of which is
 * mergeable (MADV_MERGEABLE), Linux starts again. It has then lost the first ones. */
static void *move(unsigned char *from, size_t bytes, int flags, void *to)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigprocmask(SIG_BLOCK, &all, &before);
    void *moved = mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | flags, to);
    int why = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    errno = why;
    return moved;
}

/* Moves pages out of the block with their content, and other pages into it. */
static void do_move_out(struct actor *actor)
{
    struct run run;
    if (!run_pick_inner(actor, &run, ANY_FLAG, MAX_BLOCK_BYTES))
        return;
    size_t bytes = run_bytes(&run);
    unsigned char *start = run_start(&run), *outside;
    bool stays = actor->threaded || one_in(actor, 2);
    void *target = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (target == MAP_FAILED)
        return;
    outside = move(start, bytes, stays ? MREMAP_DONTUNMAP : 0, target);
    if (outside == MAP_FAILED) {
        /* Pages with different advice are several mappings, which mremap may refuse. */
        if (errno != EFAULT && errno != EINVAL)
            fail(actor, "mremap(%p, %zu): %s", (void *)start, bytes, strerror(errno));
        munmap(target, bytes);
        run_check(actor, &run, "after a refused mremap");
        return;
    }
    pattern_check(actor, run.block, run_offset(&run), bytes, outside, "pages moved out");
    if (stays) {
        for (size_t i = 0; i < bytes; i++)
            if (start[i] != 0)
                fail(actor, "byte %zu of what MREMAP_DONTUNMAP left is %#x", i, start[i]);
    }
    if (one_in(actor, 2) && !actor->threaded) {
        uint32_t version = ++actor->version;
        pattern_make(run.block, run_offset(&run), bytes, version, outside);
        if (move(outside, bytes, 0, start) != start)
            fail(actor, "mremap back to %p: %s", (void *)start, strerror(errno));
        run_set(&run, version);
        run_check(actor, &run, "pages moved in");
    } else {
        lay(actor, &run, MAP_PRIVATE | MAP_ANONYMOUS, -1);
        run_set(&run, 0);
        munmap(outside, bytes);
        run_fill(actor, &run);
    }
}

const struct operation remap_operations[] = {
    {"overanonymous", "remap", do_over_anonymous, 3, 0},
    {"overshared", "remap", do_over_shared, 2, 0},
    {"overfile", "remap", do_over_file, 3, 0},
    {"ordinary", "remap", do_ordinary, 4, 0},
    {"hole", "remap", do_hole, 2, ALONE},
    {"moveout", "remap", do_move_out, 2, ALONE},
    {0},
};
