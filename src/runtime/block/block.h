/* Blocks: the table of all allocations that the runtime moves, their parts, and their copies in the
 * store. */
#ifndef EBB_RUNTIME_BLOCK_BLOCK_H
#define EBB_RUNTIME_BLOCK_BLOCK_H

#include "runtime/core/core.h"
#include "store/extents.h"

enum block_state {
    BLOCK_ASLEEP = 0, /* merged into another part */
    BLOCK_EMPTY = 1,  /* address space without pages, free for reuse */
    BLOCK_CACHED,     /* freed, with its pages still in the arena; the next block of this size
                         takes both */
    BLOCK_BARE,
    BLOCK_RESIDENT,
    BLOCK_PARKED,
    BLOCK_WRITING_BACK,
    BLOCK_EVICTED,
    BLOCK_FETCHING,
    BLOCK_DYING, /* freed during a transfer */
};

enum block_kind {
    BLOCK_HEAP = 0, /* an allocation with units of its own, or a part of one */
    /* In the static placement (address/placement.c). It does not own its pages, and never moves. */
    BLOCK_STATIC,
    /* Holds small objects (reclaim/slabs.c). It has no events and is in no plan. */
    BLOCK_SLAB,
};

enum block_queue {
    QUEUE_NONE = 0,
    QUEUE_OUT, /* waits to be written back; resident or parked */
    QUEUE_IN,  /* waits to be fetched; evicted or bare */
};

/* Does a transfer in progress end early, before the whole block has been transferred? */
enum transfer_end {
    TRANSFER_GOES_ON = 0,
    TRANSFER_CANCELLED, /* the block was being written back, but is needed again or was freed */
    TRANSFER_GIVEN_UP,  /* the block was being fetched, but its memory is needed first for
                           another use */
};

struct link {
    uint32_t next, previous; /* block indices; NO_BLOCK at the ends */
};

/* When a block was used. */
struct block_use {
    uint64_t last;             /* event number of the last known use */
    uint64_t touch;            /* number of its last touch */
    uint64_t planned_evict_at; /* event number + 1 of its last planned eviction */
    uint64_t evicted_at;       /* event number + 1 of its last unplanned eviction */
    /* Event number + 1 of the event in which it was evicted and needed again at once. */
    uint64_t needed_at;
    uint64_t opened_at; /* bytes opened before it was, and its own */
    bool open;          /* touched lately; on the open list, and not observed */
};

/* The copy of a block in the store. */
struct block_copy {
    uint64_t offset;
    uint64_t generation; /* newest fork generation when it was written */
    uint64_t hash[2];    /* of the bytes in the store, if is_there and is_hashed */
    uint8_t store;       /* index into stores */
    bool is_there;       /* the store has the block's bytes at `offset`, as last written back */
    bool is_hashed;
    bool stays; /* keep the copy when the block is fetched */
};

/* The threads and processes that wait for a block. */
struct block_wait {
    uint64_t fault_ns;     /* when the program began to wait for it; 0: no thread waits */
    struct ebb_wait *told; /* the record that shows the wait to the parent; NULL: none */
    struct asking asking;  /* for memory of other processes */
};

/* A block's state in a lane. */
struct block_transfer {
    uint64_t queued_ns;   /* when it was last queued for a fetch */
    uint64_t chunk_bytes; /* bytes of page_bytes that are transferred or in flight */
    uint32_t chunks_in_flight;
    int error;
    enum block_queue queue;
    enum transfer_end end;
    bool urgent;      /* a thread waits for it */
    bool lacked_room; /* its fetch was delayed by lack of memory */
    /* It was being fetched, or was resident before it was due, when its memory was needed. */
    bool gave_way;
    uint8_t walk; /* it was fetched ahead, and not used since: 1 + number of the walk; or 0 */
};

/* The position of a part in its allocation. */
struct block_run {
    uint32_t units;       /* its address space in units of 2 MiB */
    uint32_t head;        /* block index of the allocation's first part; of this block if it is
                             the first */
    uint32_t total_units; /* head: address space of all parts, in units */
    uint32_t parts;       /* head: number of parts that are not buried yet */
};

/* An allocation, or a part of a large one (parts.c). */
struct block {
    uintptr_t address;
    uintptr_t frame; /* its address in staging, while it is parked or transferred; else 0 */
    /* Size of the whole allocation as requested. 0 in parts other than the head. */
    uint64_t size_bytes;
    uint64_t page_bytes; /* bytes of pages held while resident; a multiple of 4 KiB */
    uint64_t serial;
    struct block_use use;
    struct block_copy copy;
    struct block_wait wait;
    struct block_transfer transfer;
    struct block_run run;
    uint64_t pinned_until; /* a move failed; do not retry before this event number */
    /* head: system calls that use its address. It is not parked meanwhile. */
    uint32_t pins;
    uint32_t script_block; /* index in the script in force; EBB_SCRIPT_NONE: unknown */
    struct link list;      /* empty list, or list of cached blocks by size */
    struct link age;       /* list of cached blocks by age */
    struct link queue;     /* queue for write back or fetch */
    enum block_state state;
    enum block_kind kind;
    /* head: its allocation is in progress, and only that may give it pages. */
    bool unborn;
    bool inherited;   /* its pages were inherited by fork and are not in the ledger */
    bool has_orphans; /* its address space may hold pages of no block */
    bool kept;        /* never moved until it is freed (keep.c) */
};

struct list {
    uint32_t first, last;
};

/* When blocks are used: the count of operations, and the observed accesses. */
struct uses {
    uint64_t event_number; /* number of operations so far: ALLOC and FREE events, and long pauses */
    uint64_t operation_ns; /* when the current operation began */
    uint64_t pause_faults; /* faults in the current operation, while accesses are observed */
    uint64_t touches;      /* number of uses seen so far */
    bool trace;            /* accesses are observed, */
    bool exactly;          /* also those that follow another one of the block closely */
    /* Accesses count as observed from this event on, at the latest. 0: they do. */
    uint64_t blind_until;
    uint32_t *open_blocks; /* indices of open blocks, in the order in which they were opened */
    uint32_t open_count, open_capacity;
    uint64_t opened_bytes; /* of all blocks opened so far */
};

/* A range of our store that a living generation may still read. */
struct deferred {
    uint64_t offset, bytes;
    uint64_t after, until; /* newest generations when it was written, and when it was dropped */
};

/* block/copies.c: generations of forked processes, each alive while its lock is held */
struct relatives {
    int base;        /* memory file whose bytes are locked; -1: none yet */
    int line;        /* during a fork: life line of the new generation; -1: none */
    uint64_t newest; /* newest generation; 0: no fork yet */
    uint64_t *living;
    uint32_t living_count;
    /* The newest generation whose end cannot be detected. 0: none. */
    uint64_t eternal;
    struct deferred *deferred;
    uint32_t deferred_count;
    uint64_t look_ns; /* do not check the locks before this time */
};

#define MAX_STORES (EBB_STORE_MOST - 2u) /* a block stores its store's index in a byte */

#define MOST_BLOCKS ((uint32_t)1 << 21) /* in the table; unused entries take no memory */

/* The stores that hold copies of absent blocks. */
struct store_copies {
    /* Our own store at `current`, and the stores of ancestors that hold copies of our blocks. With
     * each: the number of copies, and the open life line that tells the writer so. `current` is
     * MAX_STORES if ours has no place; that last place never holds a store. */
    struct ebb_store stores[MAX_STORES + 1];
    uint64_t copies[MAX_STORES + 1];
    int lines[MAX_STORES + 1];
    unsigned current;
    struct relatives relatives;
    struct ebb_extents extents;
    struct ebb_extent *extent_table;
};

/* The block table, and facts about all blocks together. */
struct table {
    struct core *core;
    struct block *blocks;
    uint32_t count;         /* highest index ever used; indices start at 1 */
    uint32_t *unit_block;   /* arena unit -> block index */
    uint64_t newest_serial; /* serial of the newest allocation */
    struct uses uses;
    struct store_copies copies;
};

static inline uint32_t ebb__block_index(const struct table *table, const struct block *block)
{
    return (uint32_t)(block - table->blocks);
}
/* Is the block allocated and not yet freed? */
static inline bool ebb__block_is_live(const struct block *block)
{
    return block->state >= BLOCK_BARE && block->state <= BLOCK_FETCHING;
}
/* Ends its transfer early. A given-up transfer stays given up. */
static inline void ebb__block_cancel(struct block *block)
{
    if (block->transfer.end == TRANSFER_GOES_ON)
        block->transfer.end = TRANSFER_CANCELLED;
}
/* Is the block in memory, and may it be evicted to free memory? A move of it may fail as the last
 * one did. Inherited pages are not in the ledger, so evicting them frees nothing there. */
static inline bool ebb__block_may_be_moved(const struct block *block)
{
    return (block->state == BLOCK_RESIDENT || block->state == BLOCK_PARKED) &&
           block->transfer.queue != QUEUE_OUT && !block->transfer.urgent && !block->kept &&
           !block->inherited && block->pins == 0;
}
/* As above, and no move has failed lately. */
static inline bool ebb__block_may_be_evicted(const struct uses *uses, const struct block *block)
{
    return ebb__block_may_be_moved(block) && block->pinned_until <= uses->event_number;
}
/* Is the store's copy of `block` in our own store? */
static inline bool ebb__relatives_wrote(const struct store_copies *copies,
                                        const struct block *block)
{
    return block->copy.store == copies->current;
}

/* table.c */
/* False if memory is exhausted. The caller must call ebb__block_fini() even then. */
EBB_NODISCARD bool ebb__block_init(struct table *table, struct core *core);
void ebb__block_fini(struct table *table);
/* Around fork(): before it, after it in the parent, and in the child. is_read: the only copy of
 * some block is in our store. In the child, all blocks become its own and past accesses are
 * unknown. parent_wrote: the parent's store is open. */
void ebb__block_before_fork(struct table *table, bool is_read);
void ebb__block_after_fork(struct table *table);
void ebb__block_forked(struct table *table, bool parent_wrote);

/* states.c */
/* The only function that changes a block's state. EBB_CHECK builds assert that the transition is
 * allowed. */
void ebb__block_become(struct block *block, enum block_state state);
bool ebb__block_may_become(enum block_state from, enum block_state to);

/* lists.c: intrusive lists over the block table; `member` is the offset of the struct link. */
#define LINK_LIST offsetof(struct block, list)
#define LINK_AGE offsetof(struct block, age)
#define LINK_QUEUE offsetof(struct block, queue)
void ebb__list_push_front(struct table *table, struct list *list, uint32_t index, size_t member);
void ebb__list_push_back(struct table *table, struct list *list, uint32_t index, size_t member);
void ebb__list_remove(struct table *table, struct list *list, uint32_t index, size_t member);

/* parts.c: the parts of large blocks */
/* Is a block of `page_bytes` large enough to have parts? */
bool ebb__part_is_large(const struct table *table, uint64_t page_bytes);
/* The part behind part `index` of the same block. NO_BLOCK: that was the last. */
uint32_t ebb__part_next(const struct table *table, uint32_t index);
/* Is `block` a whole allocation: not a part, nor the rest of a partly buried one? */
bool ebb__part_is_whole(const struct table *table, const struct block *block);
/* Can the block with this head be split? */
bool ebb__part_has_units(const struct table *table, const struct block *head);
/* Splits the block into parts of one unit, except those that are kept, pinned, awaited or in
 * transfer. No effect on a block without units. */
void ebb__part_split(struct table *table, struct block *head);
/* Joins adjacent parts if possible. True: the whole block is one part. */
bool ebb__part_join(struct table *table, struct block *head);
/* Makes units [first, + count) one part, as far as possible. Returns the first part that begins
 * there; NO_BLOCK: none. */
uint32_t ebb__part_shape(struct table *table, struct block *head, uint32_t first, uint32_t count);
/* The part's block was freed, and its pages are gone. True: it was the last part, and the head has
 * all units again. */
bool ebb__part_bury(struct table *table, struct block *block);

/* copies.c: forked processes that read the same store */
EBB_NODISCARD bool ebb__relatives_init(struct table *table);
void ebb__relatives_fini(struct table *table);
/* Before a fork. is_read: the only copy of some block is in our store. */
void ebb__relatives_before_fork(struct table *table, bool is_read);
void ebb__relatives_after_fork_parent(struct table *table);
/* In the child: the parent's store becomes an ancestor's, and our own is not open yet. */
void ebb__relatives_forked(struct table *table, bool parent_wrote);
/* One more block has its copy where `block` has its own. */
void ebb__relatives_count(struct table *table, const struct block *block);
/* Gives up the store's copy of `block`. */
void ebb__relatives_drop(struct table *table, const struct block *block);
/* Before `bytes` are written: frees space that ended generations held, if the store would have to
 * grow otherwise. */
void ebb__relatives_look(struct table *table, uint64_t bytes);

void ebb__copy_drop(struct table *table, struct block *block);

/* waits.c: records of waits, which the parent reads */
/* A fault is about to be handled. The record lasts until ebb__wait_end(). No lock needed. */
struct ebb_wait *ebb__waits_enter(struct table *table, uintptr_t address);
/* The program waits for `block` until ebb__wait_end(), which needs no lock. Several threads may
 * wait for one block. */
struct ebb_wait *ebb__waits_block(struct table *table, const struct block *block);
/* A transfer of `block`, or the opening of the store, until ebb__wait_end(), which needs no
 * lock. */
struct ebb_wait *ebb__waits_transfer(struct table *table, const struct block *block, bool out);
struct ebb_wait *ebb__waits_open(struct table *table);
/* A thread of the program begins to wait for `block`. */
void ebb__waits_fault(struct table *table, struct block *block);
/* Ends the program's wait for `block`, if there is one. Returns how long it waited. */
uint64_t ebb__waits_fault_over(struct table *table, struct block *block);

#endif
