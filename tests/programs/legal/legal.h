/* The common declarations of `legal`: actors, blocks, the expected bytes and the operations.
 *
 * An actor is a thread of the program with its own blocks, random sequence and scratch memory. The
 * expected state of each page is kept outside the heap under test. It has a version and flags for
 * requests made to the kernel. Seed, block, offset and version determine each byte; version 0 is
 * zeros. All operations are legal and have defined results on Linux with glibc. So a failure
 * without Ebb is a defect of this program. */
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
#define MOST_AT_ONCE (32 * KIB) /* fits into any pipe or socket, so a write never blocks */

enum page_flags {
    LAZY = 1,         /* MADV_FREE: the old bytes or zeros */
    READ_ONLY = 2,    /* mprotect(PROT_READ) */
    NO_ACCESS = 4,    /* mprotect(PROT_NONE) */
    NOT_IN_CHILD = 8, /* MADV_DONTFORK */
    ZERO_IN_CHILD = 16,
    SHARED = 32,  /* the page is in a shared mapping */
    OF_FILE = 64, /* the page is in a private mapping of a file */
    LOCKED = 128,
    GONE = 256,    /* in a child: not mapped, the parent had NOT_IN_CHILD */
    PARENTS = 512, /* in a child: shared with the parent, which writes to it */
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
    unsigned depth; /* nesting of operations */
    bool threaded;  /* other threads of this process run */
    bool child;     /* forked: pages shared with the parent must not be touched */
    size_t block_count;
    struct block *blocks[MAX_BLOCKS];
    size_t spare_count;
    struct block *spare[MAX_BLOCKS];
    unsigned char *scratch, *second; /* SCRATCH_BYTES each, outside the heap under test */
    int file, direct;                /* two descriptors of one unlinked file; -1: not opened yet */
    unsigned long done;
    const char *last[16];
};

/* A range of a block's pages. Its first and last page may be only partly in the block. */
struct run {
    struct block *block;
    size_t first, count;
};

enum operation_kind {
    BASE = 1,  /* runs whatever --only says */
    ALONE = 2, /* no other thread may run */
    KERNEL =
        4,   /* the kernel touches memory in a call other than libc's read, write, send or recv */
    RAW = 8, /* changes a mapping by a raw system call, which no library can intercept */
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
extern _Thread_local struct actor *current_actor; /* of this thread; NULL: none runs */
struct actor *actor_create(uint64_t seed, uint64_t number);
void actor_destroy(struct actor *actor);
void actor_operate(struct actor *actor, unsigned long count);
/* Call it in a child after fork. It updates the pages, and drops what the child does not own. */
void actor_enter_child(struct actor *actor);
int actor_file(struct actor *actor, bool direct); /* -1: not available */
_Noreturn void fail(struct actor *actor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
uint64_t chance(struct actor *actor, uint64_t below);
static inline bool one_in(struct actor *actor, uint64_t times)
{
    return chance(actor, times) == 0;
}
/* Reads many of the actor's pages, so that a tight budget evicts other blocks. */
void pressure(struct actor *actor);
void pressure_beside(struct actor *actor, const struct block *block); /* not pages of `block` */

/* pattern.c */
void pattern_make(const struct block *block, size_t offset, size_t bytes, uint32_t version,
                  unsigned char *to);
/* Compares the bytes at `from` with the expected bytes of the block from `offset` on. */
void pattern_check(struct actor *actor, const struct block *block, size_t offset, size_t bytes,
                   const unsigned char *from, const char *what);
void block_check(struct actor *actor, struct block *block);
void actor_check(struct actor *actor);
void run_check(struct actor *actor, const struct run *run, const char *what);
void run_fill(struct actor *actor, const struct run *run); /* with a new version */
void run_set(const struct run *run, uint32_t version);
bool run_pick(struct actor *actor, struct run *run, unsigned without, size_t most_bytes);
/* Picks only whole pages. */
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
struct block *block_adopt(struct actor *actor, void *start, size_t bytes); /* does not fill it */
struct block *block_make(struct actor *actor, size_t bytes);               /* NULL: no free entry */
void block_restore(struct actor *actor,
                   struct block *block);        /* as malloc gave it, but not the bytes */
bool block_is_whole(const struct block *block); /* no page is GONE or PARENTS */
void block_forget(struct actor *actor, struct block *block); /* the actor no longer owns it */
void block_drop(struct actor *actor, struct block *block);   /* frees it */
size_t random_bytes(struct actor *actor);
struct block *random_block(struct actor *actor, size_t at_least);

/* signals.c */
void faults_init(void);
/* True if a read or write of that byte faults. */
bool access_faults(unsigned char *address, bool write);
void timer_stop(void);
void signals_end(struct actor *actor);

/* threads.c */
void mailbox_empty(struct actor *actor);

#endif
