/* Blocks: the table of all allocations that the runtime moves, their parts, and what the store has of each. */
#ifndef EBB_RUNTIME_BLOCK_BLOCK_H
#define EBB_RUNTIME_BLOCK_BLOCK_H

#include "runtime/core/core.h"
#include "store/extents.h"

enum block_state {
    BLOCK_ASLEEP = 0, /* within another part */
    BLOCK_EMPTY = 1,  /* address space without pages, to be given out again */
    BLOCK_CACHED,     /* freed, its pages still in the arena: the next of this size takes both */
    BLOCK_BARE,
    BLOCK_RESIDENT,
    BLOCK_PARKED,
    BLOCK_WRITING_BACK,
    BLOCK_EVICTED,
    BLOCK_FETCHING,
    BLOCK_DYING, /* freed while a transfer was in flight */
};

enum block_kind {
    BLOCK_HEAP = 0, /* an allocation with units of its own, or a part of one */
    BLOCK_STATIC, /* lies in the static placement (address/placement.c): its pages are not its own,
                     it never moves */
    BLOCK_SLAB,   /* holds small objects (reclaim/slabs.c): no event and no plan knows it */
};

enum block_queue {
    QUEUE_NONE = 0,
    QUEUE_OUT, /* resident or parked */
    QUEUE_IN,  /* evicted or bare */
};

/* Does a transfer that is under way end before all of the block has been transferred? */
enum transfer_end {
    TRANSFER_GOES_ON = 0,
    TRANSFER_CANCELLED, /* written back, but wanted again; or freed */
    TRANSFER_GIVEN_UP,  /* fetched, but what it has taken is needed first for something else */
};

struct link {
    uint32_t next, previous; /* block indices; NO_BLOCK at the ends */
};

/* When a block was used. */
struct block_use {
    uint64_t last;             /* event number of the last known use */
    uint64_t touch;            /* number of the touch that was its last one */
    uint64_t planned_evict_at; /* event number, + 1, of its last eviction by plan */
    uint64_t evicted_at;       /* event number, + 1, of its last eviction without a plan */
    uint64_t needed_at; /* event number, + 1, in which it was evicted and needed again at once */
    bool open;          /* touched since the last event; on the open list */
};

/* What the store has of a block. */
struct block_copy {
    uint64_t offset;
    uint64_t generation; /* of forks, that had begun when it was written */
    uint64_t hash[2];    /* of the bytes in the store, if is_there and is_hashed */
    uint8_t store;       /* index into stores */
    bool is_there;       /* `offset` holds the block's bytes as of the last write out */
    bool is_hashed;
    bool stays; /* keep it when the block is fetched */
};

/* Who waits for a block. */
struct block_wait {
    uint64_t fault_ns;     /* when a thread of the program began to wait for it; 0: none */
    struct ebb_wait *told; /* what says so to the parent; NULL: nothing */
    struct asking asking;  /* of other processes, for its memory */
};

/* Its way through a lane. */
struct block_transfer {
    uint64_t queued_ns;   /* when it was put on the in queue last */
    uint64_t chunk_bytes; /* transferred or in flight, of page_bytes */
    uint32_t chunks_in_flight;
    int error;
    enum block_queue queue;
    enum transfer_end end;
    bool urgent;      /* somebody waits for it */
    bool lacked_room; /* it came back later than it should for want of room */
    bool gave_way; /* it was coming back, or was back before it was due, when its room was needed */
};

/* Where a part lies in its allocation. */
struct block_run {
    uint32_t units;       /* of 2 MiB of address space */
    uint32_t head;        /* of the allocation: this block itself, but in parts behind the first */
    uint32_t total_units; /* head: address space of all parts */
    uint32_t parts;       /* head: parts that are not buried yet */
};

/* An allocation, or a part of a large one (parts.c). */
struct block {
    uintptr_t address;
    uintptr_t frame;     /* its address in staging, while it is parked or transferred; else 0 */
    uint64_t size_bytes; /* as asked for, of the whole allocation; 0 in parts behind the head */
    uint64_t page_bytes; /* pages held when resident: a multiple of 4 KiB */
    uint64_t serial;
    struct block_use use;
    struct block_copy copy;
    struct block_wait wait;
    struct block_transfer transfer;
    struct block_run run;
    uint64_t pinned_until; /* event number: could not be moved, do not try before */
    uint32_t pins; /* head: system calls that have its address; it is not parked meanwhile */
    uint32_t script_block; /* in the script in force, EBB_SCRIPT_NONE: unknown */
    struct link list;      /* empty list, or list of cached blocks */
    struct link age;       /* cached blocks by age */
    struct link queue;     /* out or in queue */
    enum block_state state;
    enum block_kind kind;
    bool unborn;      /* head: its allocation is under way, and alone may give it pages */
    bool inherited;   /* its pages came with a fork: not in the ledger */
    bool has_orphans; /* its address space may hold pages that are not the block's */
    bool kept;        /* stays where it is until it is freed (keep.c) */
};

struct list {
    uint32_t first, last;
};

/* When blocks are used: the clock of operations, and what accesses are observed. */
struct uses {
    uint64_t event_number; /* operations so far: ALLOC and FREE events, and long pauses */
    uint64_t operation_ns; /* when the one in progress began */
    uint64_t pause_faults; /* faults in it, while accesses are observed */
    uint64_t touches;      /* uses seen so far */
    bool trace;            /* accesses are observed */
    uint64_t blind_until; /* event at which accesses count as observed, at the latest; 0: they do */
    uint32_t *open_blocks; /* touched since the last event */
    uint32_t open_count, open_capacity;
};

/* Space of our store that a living generation may read. */
struct deferred {
    uint64_t offset, bytes;
    uint64_t after,
        until; /* generations that had begun when it was written, and when it was dropped */
};

/* block/copies.c */
struct relatives {
    int base;        /* file in memory whose bytes are locked, -1: none yet */
    int line;        /* during a fork: the new generation's, -1: none */
    uint64_t newest; /* generation; 0: none has begun */
    uint64_t *living;
    uint32_t living_count;
    uint64_t eternal; /* the newest of which nobody can tell whether it lives; 0: none */
    struct deferred *deferred;
    uint32_t deferred_count;
    uint64_t look_ns; /* do not look at the locks before */
};

#define MAX_STORES (EBB_STORE_MOST - 2u) /* a block names one by a byte */

#define MOST_BLOCKS ((uint32_t)1 << 21) /* in the table: address space until they are used */

/* Where the copies of absent blocks are. */
struct store_copies {
    /* Our own, at `current` (MAX_STORES: there is no place for one), and those of ancestors where copies of our blocks are: how many, and
     * the lines that tell so. In the last place is never one. */
    struct ebb_store stores[MAX_STORES + 1];
    uint64_t copies[MAX_STORES + 1];
    int lines[MAX_STORES + 1];
    unsigned current;
    struct relatives relatives;
    struct ebb_extents extents;
    struct ebb_extent *extent_table;
};

/* The block table, and what is known of all blocks together. */
struct table {
    struct core *core;
    struct block *blocks;
    uint32_t count;         /* indices ever used, from 1 */
    uint32_t *unit_block;   /* unit of the arena -> block */
    uint64_t newest_serial; /* of an allocation */
    struct uses uses;
    struct store_copies copies;
};

static inline uint32_t ebb__block_index(const struct table *table, const struct block *block)
{
    return (uint32_t)(block - table->blocks);
}
/* Between its allocation and its free. */
static inline bool ebb__block_is_live(const struct block *block)
{
    return block->state >= BLOCK_BARE && block->state <= BLOCK_FETCHING;
}
/* Its transfer is to end; what has been given up stays so. */
static inline void ebb__block_cancel(struct block *block)
{
    if (block->transfer.end == TRANSFER_GOES_ON)
        block->transfer.end = TRANSFER_CANCELLED;
}
/* In memory, and nothing speaks against sending it away now. */
static inline bool ebb__block_may_be_evicted(const struct uses *uses, const struct block *block)
{
    return (block->state == BLOCK_RESIDENT || block->state == BLOCK_PARKED) &&
           block->transfer.queue != QUEUE_OUT && !block->transfer.urgent && !block->kept &&
           block->pinned_until <= uses->event_number;
}
/* Is the store's copy of `block` in our own store? */
static inline bool ebb__relatives_wrote(const struct store_copies *copies,
                                        const struct block *block)
{
    return block->copy.store == copies->current;
}

/* table.c */
/* False where memory is lacking; ebb__block_fini() is due all the same. */
EBB_NODISCARD bool ebb__block_init(struct table *table, struct core *core);
void ebb__block_fini(struct table *table);
/* A fork follows; is_read: some block's only copy is in our store. Then in the parent. In the child: its
 * blocks are its own, what accesses are is not known; parent_wrote: the parent's store is open. */
void ebb__block_before_fork(struct table *table, bool is_read);
void ebb__block_after_fork(struct table *table);
void ebb__block_forked(struct table *table, bool parent_wrote);

/* states.c */
/* The one way to another state: asserts in EBB_CHECK builds that it may follow. */
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
/* Has a block of so many bytes parts? */
bool ebb__part_is_large(const struct table *table, uint64_t page_bytes);
/* The part behind part `index` of the same block; NO_BLOCK: it was the last. */
uint32_t ebb__part_next(const struct table *table, uint32_t index);
/* Is it all of a block, not a part of one, nor what is left of one? */
bool ebb__part_is_whole(const struct table *table, const struct block *block);
/* Can the block with that head be split? */
bool ebb__part_has_units(const struct table *table, const struct block *head);
/* Into parts of one unit, as far as they are at rest. No effect on a block that has no units. */
void ebb__part_split(struct table *table, struct block *head);
/* What can be one becomes one; true: the block is in one part. */
bool ebb__part_join(struct table *table, struct block *head);
/* Units [first, + count) become one part, as far as they can; returns the first part that begins
 * there, NO_BLOCK: none. */
uint32_t ebb__part_shape(struct table *table, struct block *head, uint32_t first, uint32_t count);
/* A part has lost its pages and its owner; true: it was the last, the head has all units again. */
bool ebb__part_bury(struct table *table, struct block *block);

/* copies.c: forked processes that read the same store */
EBB_NODISCARD bool ebb__relatives_init(struct table *table);
void ebb__relatives_fini(struct table *table);
/* A fork follows; is_read: some block's only copy is in our store. */
void ebb__relatives_before_fork(struct table *table, bool is_read);
void ebb__relatives_after_fork_parent(struct table *table);
/* Our parent's store becomes an ancestor's, what is ours is yet to be opened. */
void ebb__relatives_forked(struct table *table, bool parent_wrote);
/* There is one block more whose copy is where that of `block` is. */
void ebb__relatives_count(struct table *table, const struct block *block);
/* The store's copy of `block` is given up. */
void ebb__relatives_drop(struct table *table, const struct block *block);
/* So much is to be written: see whether space has come free, if the store would have to grow. */
void ebb__relatives_look(struct table *table, uint64_t bytes);

void ebb__copy_drop(struct table *table, struct block *block);

/* waits.c: for the parent's eyes */
/* A fault is about to be looked at; until ebb__wait_end(). No lock needed. */
struct ebb_wait *ebb__waits_enter(struct table *table, uintptr_t address);
/* The program waits for `block`; until ebb__wait_end(), which needs no lock. Several may wait for one. */
struct ebb_wait *ebb__waits_block(struct table *table, const struct block *block);
/* A transfer of `block`, the opening of the store; until ebb__wait_end(), which needs no lock. */
struct ebb_wait *ebb__waits_transfer(struct table *table, const struct block *block, bool out);
struct ebb_wait *ebb__waits_open(struct table *table);
/* It waits for `block` from now on. */
void ebb__waits_fault(struct table *table, struct block *block);
/* If it has waited for `block` it goes on; how long it waited. */
uint64_t ebb__waits_fault_over(struct table *table, struct block *block);

#endif
