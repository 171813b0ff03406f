/* Legal calls of the malloc family. */
#include "legal.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static _Atomic size_t held_bytes;
size_t held_peak_bytes;

static void count_held(size_t more, size_t less)
{
    size_t now = atomic_fetch_add(&held_bytes, more) + more;
    atomic_fetch_sub(&held_bytes, less);
    if (now > held_peak_bytes) /* only for the last line, so a race may make it inexact */
        held_peak_bytes = now;
}

size_t random_bytes(struct actor *actor)
{
    static const size_t limits[] = {256, 16 * KIB, 128 * KIB, MIB, MIB, MAX_BLOCK_BYTES};
    size_t below = limits[chance(actor, sizeof limits / sizeof *limits)];
    size_t share = settings.memory_bytes / 4;
    if (below > share)
        below = share;
    size_t bytes = 1 + (size_t)chance(actor, below);
    return one_in(actor, 3) ? (bytes + PAGE - 1) & ~(PAGE - 1) : bytes;
}

struct block *random_block(struct actor *actor, size_t at_least)
{
    for (int tries = 0; actor->block_count && tries < 8; tries++) {
        struct block *block = actor->blocks[chance(actor, actor->block_count)];
        if (block->bytes >= at_least)
            return block;
    }
    return NULL;
}

static size_t pages_of(const unsigned char *start, size_t bytes)
{
    return ((uintptr_t)start % PAGE + bytes + PAGE - 1) / PAGE;
}

struct block *block_adopt(struct actor *actor, void *start, size_t bytes)
{
    struct block *block;
    if (actor->spare_count) {
        block = actor->spare[--actor->spare_count];
    } else {
        block =
            mmap(NULL, sizeof *block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED)
            fail(actor, "mmap of a block's record: %s", strerror(errno));
    }
    block->start = start;
    block->bytes = bytes;
    block->id = actor->number << 32 | ++actor->made;
    block->pages = pages_of(start, bytes);
    memset(block->page, 0, block->pages * sizeof *block->page);
    actor->blocks[actor->block_count++] = block;
    count_held(bytes, 0);
    return block;
}

void block_forget(struct actor *actor, struct block *block)
{
    size_t i = 0;
    while (actor->blocks[i] != block)
        i++;
    actor->blocks[i] = actor->blocks[--actor->block_count];
}

bool block_is_whole(const struct block *block)
{
    for (size_t i = 0; i < block->pages; i++)
        if (block->page[i].flags & (GONE | PARENTS))
            return false;
    return true;
}

/* One call for each run of pages with one of `flags`. */
static void undo(struct actor *actor, struct block *block, unsigned flags,
                 int (*call)(void *, size_t))
{
    for (size_t i = 0; i < block->pages; i++) {
        struct run run = {block, i, 0};
        while (i < block->pages && block->page[i].flags & flags)
            run.count++, i++;
        if (run.count == 0)
            continue;
        if (call(run_start(&run), run_bytes(&run)) != 0)
            fail(actor, "pages cannot be made ordinary again (flags %#x): %s", flags,
                 strerror(errno));
        run_flag(&run, 0, flags);
        i--;
    }
}

static int do_fork(void *start, size_t bytes)
{
    return madvise(start, bytes, MADV_DOFORK);
}

static int keep_on_fork(void *start, size_t bytes)
{
    return madvise(start, bytes, MADV_KEEPONFORK);
}

static int allow(void *start, size_t bytes)
{
    return mprotect(start, bytes, PROT_READ | PROT_WRITE);
}

static int lay_anonymous(void *start, size_t bytes)
{
    void *there =
        mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return there == start ? 0 : -1;
}

static int unlock(void *start, size_t bytes)
{
    return munlock(start, bytes);
}

void block_restore(struct actor *actor, struct block *block)
{
    undo(actor, block, NO_ACCESS | READ_ONLY, allow);
    undo(actor, block, NOT_IN_CHILD, do_fork);
    undo(actor, block, ZERO_IN_CHILD, keep_on_fork);
    undo(actor, block, LOCKED, unlock);
    for (size_t i = 0; i < block->pages; i++)
        if (block->page[i].flags & NOT_ANONYMOUS)
            block->page[i].version = 0;
    undo(actor, block, NOT_ANONYMOUS, lay_anonymous);
}

void block_drop(struct actor *actor, struct block *block)
{
    block_restore(actor, block);
    block_forget(actor, block);
    count_held(0, block->bytes);
    errno = 4711;
    free(block->start);
    if (errno != 4711)
        fail(actor, "free changed errno to %d", errno);
    if (actor->spare_count < MAX_BLOCKS)
        actor->spare[actor->spare_count++] = block;
    else
        munmap(block, sizeof *block);
}

static bool has_room(struct actor *actor, size_t bytes)
{
    return actor->block_count < MAX_BLOCKS - 4 &&
           atomic_load(&held_bytes) + bytes <= settings.memory_bytes;
}

/* In a child, other memory may be mapped in a hole that MADV_DONTFORK left. */
static bool overlap(const struct block *block, const unsigned char *start, size_t bytes)
{
    const unsigned char *end = start + bytes;
    if (start >= block->start + block->bytes || block->start >= end)
        return false;
    for (size_t i = 0; i < block->pages; i++) {
        struct run run = {(struct block *)block, i, 1};
        if (!(block->page[i].flags & GONE) && start < run_start(&run) + run_bytes(&run) &&
            run_start(&run) < end)
            return true;
    }
    return false;
}

static struct block *take(struct actor *actor, void *start, size_t bytes, size_t alignment)
{
    if (!start)
        fail(actor, "no memory for %zu bytes", bytes);
    if ((uintptr_t)start % alignment)
        fail(actor, "%p is not aligned to %zu", start, alignment);
    if (malloc_usable_size(start) < bytes)
        fail(actor, "%zu bytes are usable of %zu", malloc_usable_size(start), bytes);
    for (size_t i = 0; i < actor->block_count; i++) {
        const struct block *other = actor->blocks[i];
        if (overlap(other, start, bytes))
            fail(actor, "%zu bytes at %p overlap %zu at %p", bytes, start, other->bytes,
                 (void *)other->start);
    }
    return block_adopt(actor, start, bytes);
}

static void fill(struct actor *actor, struct block *block)
{
    run_fill(actor, &(struct run){block, 0, block->pages});
}

struct block *block_make(struct actor *actor, size_t bytes)
{
    if (!has_room(actor, bytes))
        return NULL;
    struct block *block = take(actor, malloc(bytes), bytes, 16);
    fill(actor, block);
    return block;
}

static void free_one(struct actor *actor)
{
    struct block *block = random_block(actor, 1);
    if (!block || !block_is_whole(block))
        return;
    if (one_in(actor, 2))
        block_check(actor, block);
    block_drop(actor, block);
}

static bool make_room(struct actor *actor, size_t bytes)
{
    for (int tries = 0; !has_room(actor, bytes) && tries < 4; tries++)
        free_one(actor);
    return has_room(actor, bytes);
}

static void do_malloc(struct actor *actor)
{
    size_t bytes = random_bytes(actor);
    if (make_room(actor, bytes))
        block_make(actor, bytes);
}

static void do_calloc(struct actor *actor)
{
    size_t bytes = random_bytes(actor), count = 1 + (size_t)chance(actor, 7);
    size_t each = (bytes + count - 1) / count;
    if (!make_room(actor, count * each))
        return;
    struct block *block = take(actor, calloc(count, each), count * each, 16);
    if (one_in(actor, 2)) /* all pages have version 0 */
        block_check(actor, block);
    if (one_in(actor, 2))
        fill(actor, block);
}

static void do_align(struct actor *actor)
{
    size_t bytes = random_bytes(actor), alignment = (size_t)16 << chance(actor, 18);
    void *start = NULL;
    if (!make_room(actor, bytes))
        return;
    switch (chance(actor, 5)) {
    case 0:
        if (posix_memalign(&start, alignment, bytes) != 0)
            fail(actor, "posix_memalign of %zu bytes aligned to %zu failed", bytes, alignment);
        break;
    case 1:
        bytes = (bytes + alignment - 1) & ~(alignment - 1);
        if (bytes > MAX_BLOCK_BYTES)
            return;
        start = aligned_alloc(alignment, bytes);
        break;
    case 2:
        start = memalign(alignment, bytes);
        break;
    case 3:
        alignment = PAGE;
        start = valloc(bytes);
        break;
    default:
        alignment = PAGE;
        bytes = (bytes + PAGE - 1) & ~(PAGE - 1);
        start = pvalloc(bytes);
    }
    fill(actor, take(actor, start, bytes, alignment));
}

static void do_realloc(struct actor *actor)
{
    struct block *block = random_block(actor, 1);
    size_t bytes = random_bytes(actor);
    if (!block || !block_is_whole(block) || !make_room(actor, bytes))
        return;
    for (size_t i = 0; i < actor->block_count; i++)
        if (actor->blocks[i] == block)
            goto there;
    return; /* it was freed by make_room */
there:
    block_restore(actor, block);
    /* The content must keep its offsets, so the old versions are copied onto the new pages. If the
     * start has another offset in its page, only one version for all pages can be described. */
    fill(actor, block);
    uint32_t version = block->page[0].version;
    size_t had = block->bytes, kept = had < bytes ? had : bytes;
    unsigned char *start =
        one_in(actor, 2) ? realloc(block->start, bytes) : reallocarray(block->start, 1, bytes);
    if (!start)
        fail(actor, "realloc from %zu to %zu bytes failed", had, bytes);
    count_held(bytes, had);
    block->start = start;
    block->bytes = kept;
    block->pages = pages_of(start, kept);
    memset(block->page, 0, sizeof block->page);
    run_set(&(struct run){block, 0, block->pages}, version);
    block_check(actor, block);
    block->bytes = bytes;
    block->pages = pages_of(start, bytes);
    fill(actor, block);
}

static void do_write(struct actor *actor)
{
    struct run run;
    if (run_pick(actor, &run, UNWRITABLE, MAX_BLOCK_BYTES))
        run_fill(actor, &run);
}

static void do_check(struct actor *actor)
{
    struct block *block = random_block(actor, 1);
    if (block)
        block_check(actor, block);
}

/* Sizes that are too large are refused by each function, and nothing else changes. The compiler
 * must not know the numbers. */
static void do_too_large(struct actor *actor)
{
    static const size_t bases[] = {SIZE_MAX, PTRDIFF_MAX, (size_t)PTRDIFF_MAX + 1, SIZE_MAX / 2};
    volatile size_t bytes =
        bases[chance(actor, 4)] - (size_t)chance(actor, one_in(actor, 2) ? 64 : 4 * MIB);
    void *start = NULL;
    struct block *block = random_block(actor, 1);
    unsigned which = (unsigned)chance(actor, 8);
    errno = 0;
    switch (which) {
    case 0:
        start = malloc(bytes);
        break;
    case 1:
        start = calloc(1, bytes);
        break;
    case 2:
        start = calloc(bytes / 2, 3);
        break;
    case 3:
        start = aligned_alloc((size_t)1 << chance(actor, 22), bytes);
        break;
    case 4:
        start = memalign((size_t)16 << chance(actor, 18), bytes);
        break;
    case 5:
        if (posix_memalign(&start, PAGE, bytes) != ENOMEM)
            fail(actor, "posix_memalign of %zu bytes did not say ENOMEM", bytes);
        return;
    case 6:
        start = one_in(actor, 2) ? valloc(bytes) : pvalloc(bytes);
        break;
    default:
        if (!block || !block_is_whole(block))
            return;
        block_restore(actor, block);
        start = one_in(actor, 2) ? realloc(block->start, bytes)
                                 : reallocarray(block->start, bytes / 2, 2);
    }
    if (start || errno != ENOMEM)
        fail(actor, "%zu bytes by entry %u gave %p, errno %d", bytes, which, start, errno);
    if (block)
        block_check(actor, block);
}

static void do_introspect(struct actor *actor)
{
    switch (chance(actor, 3)) {
    case 0:
        (void)mallinfo2();
        break;
    case 1:
        malloc_trim(0);
        break;
    default: {
        char *text = NULL;
        size_t bytes = 0;
        FILE *file = open_memstream(&text, &bytes);
        if (!file || malloc_info(0, file) != 0 || fclose(file) != 0)
            fail(actor, "malloc_info failed");
        free(text);
    }
    }
}

const struct operation heap_operations[] = {
    {"malloc", "heap", do_malloc, 24, BASE},     {"calloc", "heap", do_calloc, 8, 0},
    {"align", "heap", do_align, 10, 0},          {"realloc", "heap", do_realloc, 8, 0},
    {"free", "heap", free_one, 16, BASE},        {"write", "heap", do_write, 16, BASE},
    {"check", "heap", do_check, 12, BASE},       {"toolarge", "heap", do_too_large, 2, 0},
    {"introspect", "heap", do_introspect, 1, 0}, {0},
};
