/* What the files of `legal` share: actors, their blocks, what each byte must be, and the operations.
 *
 * An actor is a thread of the program with blocks, a random sequence and scratch memory of its own.
 * What each page of a block must hold is kept outside the heap that is under test: a version, from
 * which with seed, block and offset each byte follows, or zeros; and what has been asked of the
 * kernel for that page. Everything that an operation does is legal and defined on Linux with glibc:
 * a failure without Ebb is a defect of this program. */
#ifndef LEGAL_H
#define LEGAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PAGE ((size_t)4096)
#define KIB ((size_t)1024)
#define MIB ((size_t)1 << 20)
#define MAX_BLOCK_BYTES (8 * MIB)
#define MAX_PAGES (MAX_BLOCK_BYTES / PAGE + 2)
#define MAX_BLOCKS 48
#define SCRATCH_BYTES MIB
#define MOST_AT_ONCE (32 * KIB) /* fits into any pipe or socket: nobody waits for a reader */

enum page_flags {
    LAZY = 1,         /* MADV_FREE: as it was, or zeros */
    READ_ONLY = 2,    /* mprotect(PROT_READ) */
    NO_ACCESS = 4,    /* mprotect(PROT_NONE) */
    NOT_IN_CHILD = 8, /* MADV_DONTFORK */
    ZERO_IN_CHILD = 16,
    SHARED = 32,  /* a shared mapping lies there now */
    OF_FILE = 64, /* a private mapping of a file lies there now */
    LOCKED = 128,
    GONE = 256,    /* in a child: the parent's NOT_IN_CHILD */
    PARENTS = 512, /* in a child: shared with the parent, who writes to it */
};
#define UNREADABLE (NO_ACCESS | GONE | PARENTS)
#define UNWRITABLE (UNREADABLE | READ_ONLY)
#define NOT_ANONYMOUS (SHARED | OF_FILE)
#define ANY_FLAG 0xFFFFu

struct page {
    uint32_t version; /* 0: zeros */
    uint32_t flags;
};

struct block {
    unsigned char *start;
    size_t bytes;
    uint64_t id;
    size_t pages;
    struct page page[MAX_PAGES];
};

struct actor {
    uint64_t random, number, made;
    uint32_t version;
    unsigned depth; /* operations within operations */
    bool threaded;  /* other threads of this process run */
    bool child;     /* forked: what is shared with the parent is not touched */
    size_t block_count;
    struct block *blocks[MAX_BLOCKS];
    size_t spare_count;
    struct block *spare[MAX_BLOCKS];
    unsigned char *scratch, *second; /* of SCRATCH_BYTES, never of the heap under test */
    int file, direct;                /* an unlinked file, twice; -1: not opened yet */
    unsigned long done;
    const char *last[16];
};

/* Pages of a block; those at its ends count with what the block has of them. */
struct run {
    struct block *block;
    size_t first, count;
};

enum operation_kind {
    BASE = 1,  /* is done whatever --only says */
    ALONE = 2, /* needs that no other thread runs */
    KERNEL =
        4,   /* the kernel touches memory by a call that is no read, write, send or recv of libc */
    RAW = 8, /* changes a mapping by a bare system call, which no library can see */
    PARENT = 16 /* not in a child */
};

struct operation {
    const char *name, *group;
    void (*act)(struct actor *);
    unsigned weight, kind;
};

extern const struct operation heap_operations[], advice_operations[], remap_operations[],
    process_operations[], thread_operations[], signal_operations[], transfer_operations[],
    kernel_operations[], ring_operations[];

struct settings {
    uint64_t seed;
    unsigned long operations, iterations, corrupt;
    size_t memory_bytes;
    unsigned threads;
    bool verbose;
};
extern struct settings settings;

/* actor.c */
extern _Thread_local struct actor *current_actor; /* of this thread; NULL: none is at work */
struct actor *actor_create(uint64_t seed, uint64_t number);
void actor_destroy(struct actor *actor);
void actor_operate(struct actor *actor, unsigned long count);
/* In a child after fork: what has become of the pages, and what is not ours any more. */
void actor_enter_child(struct actor *actor);
int actor_file(struct actor *actor, bool direct); /* -1: cannot be had */
_Noreturn void fail(struct actor *actor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
uint64_t chance(struct actor *actor, uint64_t below);
static inline bool one_in(struct actor *actor, uint64_t times)
{
    return chance(actor, times) == 0;
}
/* Reads many of the actor's pages: under a tight budget other blocks are evicted. */
void pressure(struct actor *actor);
void pressure_beside(struct actor *actor, const struct block *block); /* not of that block */

/* pattern.c */
void pattern_make(const struct block *block, size_t offset, size_t bytes, uint32_t version,
                  unsigned char *to);
/* What lies at `from`, against what the block must hold from `offset` on. */
void pattern_check(struct actor *actor, const struct block *block, size_t offset, size_t bytes,
                   const unsigned char *from, const char *what);
void block_check(struct actor *actor, struct block *block);
void actor_check(struct actor *actor);
void run_check(struct actor *actor, const struct run *run, const char *what);
void run_fill(struct actor *actor, const struct run *run); /* a new version */
void run_set(const struct run *run, uint32_t version);
bool run_pick(struct actor *actor, struct run *run, unsigned without, size_t most_bytes);
/* Whole pages only. */
bool run_pick_inner(struct actor *actor, struct run *run, unsigned without, size_t most_bytes);
static inline size_t run_offset(const struct run *run)
{
    size_t before = (size_t)((uintptr_t)run->block->start % PAGE);
    return run->first ? run->first * PAGE - before : 0;
}
static inline unsigned char *run_start(const struct run *run)
{
    return run->block->start + run_offset(run);
}
static inline size_t run_bytes(const struct run *run)
{
    size_t end = (run->first + run->count) * PAGE - (size_t)((uintptr_t)run->block->start % PAGE);
    return (end < run->block->bytes ? end : run->block->bytes) - run_offset(run);
}
void run_flag(const struct run *run, unsigned set, unsigned clear);

/* heap.c */
struct block *block_adopt(struct actor *actor, void *start, size_t bytes); /* takes it, unfilled */
struct block *block_make(struct actor *actor, size_t bytes);               /* NULL: full */
void block_restore(struct actor *actor, struct block *block); /* as malloc gave it, bytes apart */
bool block_is_whole(const struct block *block);               /* no page GONE, or the parent's */
void block_forget(struct actor *actor, struct block *block);  /* no longer this actor's */
void block_drop(struct actor *actor, struct block *block);    /* frees it */
size_t random_bytes(struct actor *actor);
struct block *random_block(struct actor *actor, size_t at_least);

/* signals.c */
void faults_init(void);
/* Whether a read or write of that byte is a fault. */
bool access_faults(unsigned char *address, bool write);
void timer_stop(void);
void signals_end(struct actor *actor);

/* threads.c */
void mailbox_empty(struct actor *actor);

#endif
