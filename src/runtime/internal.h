/* What the files of the runtime share: the state, and who does what to it.
 *
 * Every function here expects runtime->core.lock to be held unless it says otherwise. */
#ifndef EBB_RUNTIME_INTERNAL_H
#define EBB_RUNTIME_INTERNAL_H

#include "base/clock.h"
#include "runtime/runtime.h"
#include "store/extents.h"

#include <pthread.h>

#define NO_BLOCK 0u /* index of no block; block 0 of the table is never used */

/* Pieces in which a block is written and read: large enough for full bandwidth beside a program that
 * computes (4 MiB reach 95 % of it there, 1 MiB 85 %), small enough that a cancel waits a ms. */
#define CHUNK_BYTES ((uint64_t)2 << 20)

enum block_state {
    BLOCK_ASLEEP = 0, /* within another part */
    BLOCK_EMPTY = 1,  /* address space without pages, to be given out again */
    BLOCK_SPARE,      /* freed, its pages still in the arena: the next of this size takes both */
    BLOCK_BARE,
    BLOCK_RESIDENT,
    BLOCK_PARKED,
    BLOCK_LEAVING,
    BLOCK_AWAY,
    BLOCK_COMING,
    BLOCK_DYING, /* freed while a transfer was in flight */
};

enum block_kind {
    BLOCK_HEAP = 0, /* an allocation with units of its own, or a part of one */
    BLOCK_PLACED,   /* lies in the pool (placed.c): its pages are not its own, it never moves */
    BLOCK_SLAB,     /* holds small objects (cold.c): no event and no plan knows it */
};

enum block_queue {
    QUEUE_NONE = 0,
    QUEUE_OUT, /* resident or parked */
    QUEUE_IN,  /* away or bare */
};

struct link {
    uint32_t next, previous; /* block indices; NO_BLOCK at the ends */
};

/* A wait for pages that other processes hold. */
struct asking {
    uint64_t since_ns;  /* 0: none */
    uint64_t passed_on; /* the ledger's, at first */
    bool is_heard;      /* by the parent, since_ns ago */
};

/* When a block was used. */
struct block_use {
    uint64_t last;       /* event number of the last known use */
    uint64_t touch;      /* number of the touch that was its last one */
    uint64_t left_at;    /* event number, + 1, when it was sent away by plan last */
    uint64_t evicted_at; /* event number, + 1, of its last eviction without a plan */
    uint64_t needed_at;  /* event number, + 1, in which it was evicted and needed again at once */
    bool open;           /* touched since the last event; on the open list */
};

/* What the store has of a block. */
struct block_copy {
    uint64_t offset;
    uint64_t generation; /* of forks, that had begun when it was written */
    uint64_t hash[2];    /* of the bytes in the store, if is_there and is_hashed */
    uint8_t store;       /* index into stores */
    bool is_there;       /* `offset` holds the block's bytes as of the last write out */
    bool is_hashed;
    bool stays; /* do not give it up when the block comes back */
};

/* Who waits for a block. */
struct block_wait {
    uint64_t fault_ns;     /* when a thread of the program began to wait for it; 0: none */
    struct ebb_wait *told; /* what says so to the parent; NULL: nothing */
    struct asking asking;  /* of other processes, for its room */
};

/* Its way through a lane. */
struct block_transfer {
    uint64_t queued_ns;   /* when it was put on the in queue last */
    uint64_t chunk_bytes; /* transferred or in flight, of page_bytes */
    uint32_t chunks_in_flight;
    int error;
    enum block_queue queue;
    bool urgent;      /* somebody waits for it */
    bool cancelled;   /* leaving, but wanted again; or its transfer is to end for another reason */
    bool given_up;    /* coming, but what it has taken is needed first for something else */
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
    struct link list;      /* empty list, or spare bucket */
    struct link age;       /* spare blocks by age */
    struct link queue;     /* out or in queue */
    enum block_state state;
    enum block_kind kind;
    bool unborn;    /* head: its allocation is under way, and alone may give it pages */
    bool inherited; /* its pages came with a fork: not in the ledger */
    bool strays;    /* its address space may hold pages that are not the block's */
    bool kept;      /* stays where it is until it is freed (keep.c) */
};

struct list {
    uint32_t first, last;
};

/* Where the program is in a template whose events come in varying order; see weave.c. The tables are
 * NULL where the order is fixed. */
struct woven {
    uint32_t *passed;  /* [clock position] 1: has been seen in this lap, or given up */
    uint32_t *free_at; /* [script block] position of its FREE, EBB_SCRIPT_NONE: none */
    uint32_t *cursors; /* [index into allocs of the first of a size]: the first that may be open */
    uint32_t passed_count;
    uint32_t first_open; /* the least position that has not passed; clock_count: none */
    uint32_t strays;     /* allocations of this lap that the template does not know */
    bool confirmed; /* a whole lap has been seen, and what began with the landmark since was one */
};

/* An action that waits for its time. */
struct timer {
    uint64_t at_ns; /* on the clock of ebb__runtime_progress_ns() */
    uint32_t absence;
    bool in; /* to return, not to leave */
};

/* A script with what the runtime knows about it. */
struct performance {
    const struct ebb_script *script;
    void *tables; /* what the pointers below point into */
    size_t table_bytes;
    uint32_t *live; /* block index for each script block, NO_BLOCK: none alive */
    /* Absences that begin to leave, begin to return, are due at each clock position: heads of
     * chains (clock_count each) and what follows in the chain (absence_count each). */
    uint32_t *out_first, *out_next;
    uint32_t *in_first, *in_next;
    uint32_t *due_first, *due_next;
    uint32_t *in_clock;           /* of each absence; moved earlier when it came late */
    uint64_t *in_delay_ns;        /* likewise */
    uint64_t *out_delay_ns;       /* moved later when it left too early */
    uint8_t *changes;             /* of each script block: was thought to be only read, was not */
    uint64_t *stretch_ns;         /* by clock position: how long it took from there to the next */
    uint64_t took_ns, planned_ns; /* all stretches passed so far */
    struct timer *timers;         /* a heap, room for two of each absence */
    uint32_t timer_count;
    struct woven woven;
    /* Positions of the allocations that cover each unit of the pool, ascending: those of unit u are
     * unit_covers[unit_first[u] … unit_first[u + 1]). 0 units: the script plans no addresses. */
    uint32_t *unit_first, *unit_covers;
    uint32_t unit_count;
};

/* The pool: the part of the arena for blocks at planned addresses. */
struct pool {
    uintptr_t base;
    uint32_t units_total;
    uint32_t units_used;  /* none from here on has ever been used */
    uint32_t *first_page; /* page of the pool -> the block that starts there */
    uint64_t *taken;      /* a bit a page: a block covers it */
    uint32_t *users;      /* unit -> blocks in it */
    uint8_t *states;      /* unit -> flags of placed.c */
    uint64_t held_bytes;  /* pages, with the spare ones; none that came with a fork */
    uint64_t spare_bytes; /* the part of it in units without blocks */
    uint64_t load_bytes;  /* of blocks as asked for */
    uint32_t clocks;      /* clock events of the iteration that was planned last */
    struct list records;  /* of the block table, to be used again */
};

/* What is known of a slab beside its block. */
struct slab_record {
    uint32_t block;
    uint32_t doublings; /* of the time that it is left alone, having been used again so often */
    uint64_t arrival;   /* number of it, when it came to be there last */
    uint64_t since_ns;  /* when it was parked, or while it is not, when it was had or came back */
};

/* cold.c */
struct cold {
    uintptr_t base;
    struct slab_record *slabs;
    uint32_t total;
    uint32_t used;      /* none from here on has ever been used */
    struct list empty;  /* blocks without pages, to be used again */
    uint32_t hand;      /* slab to be looked at next */
    uint32_t lap_slabs; /* the lap ends in front of this one */
    uint32_t next_victim;
    uint32_t taken; /* slabs in use, wherever they are */
    uint64_t arrivals;
    uint64_t lap_ns;    /* when the lap began */
    bool all_here;      /* around fork: none is parked, none leaves */
    bool strays_beyond; /* pages may be where no slab has been yet */
};

/* Neighbouring units of the pool with spare pages; 0 units: none. */
struct spare_run {
    uint32_t unit, units;
    uint32_t distance; /* clock positions until one is wanted at the latest; UINT32_MAX: never */
};

/* Spare units [first, behind) of staging. */
struct frame_run {
    uint64_t first, behind;
    bool is_pieced; /* all of them, or none */
};

/* What a block that ends in small pages has left behind: kept for the next one of its size. */
struct frame_shape {
    uintptr_t address;
    uint64_t bytes;
};

/* frames.c */
struct frames {
    uint8_t *states; /* of each unit of staging */
    uint64_t units_total;
    uint64_t window; /* no unit from here on is in use */
    uint64_t cursor;
    struct frame_run *runs; /* all spare ones; no two of a kind touch. In no order */
    uint32_t run_count;
    uint64_t spare_bytes;
    uint64_t pieced_bytes;      /* of those */
    struct frame_shape *shapes; /* oldest first */
    uint32_t shape_count;
    uint64_t shape_bytes;
};

/* Space of our store that a living generation may read. */
struct deferred {
    uint64_t offset, bytes;
    uint64_t after,
        until; /* generations that had begun when it was written, and when it was dropped */
};

/* relatives.c */
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
#define MAX_SCRIPTS 4
#define HISTORY 16384u /* remembered allocations: several iterations */
#define SPARE_BUCKETS 1024u

struct history {
    uint64_t size_bytes;
    uint64_t serial;
    uint32_t block;
};

/* What all parts share. */
struct core {
    pthread_mutex_t lock;   /* for the state of all blocks, and everything below */
    pthread_cond_t changed; /* some block changed state, or pages came free */
    struct ebb_runtime_config config;
    struct ebb_device device;
    struct ebb_ledger *ledger;
    struct ebb_ledger_slot *slot; /* ours */
    struct ebb_ring *ring;
    struct ebb_counters *counters;
    bool forked; /* pages may be shared with a child */
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

/* The block table. */
struct table {
    struct block *blocks;
    uint32_t count; /* indices ever used, from 1 */
};

/* space.c */
struct space {
    uint32_t *unit_block; /* arena unit -> block */
    uint64_t units_used, units_total;
    bool strays_beyond;          /* pages may be where no block has been yet */
    struct list *empty_by_units; /* SPARE_BUCKETS lists, the last for everything larger */
};

/* pages.c */
struct memory {
    struct frames frames;
    uint64_t depot_bytes;
    uint8_t *pieced; /* by unit of the arena, and of staging: */
    uint8_t *pieced_frames;
    int64_t exchange_ns; /* time that may be spent on exchanging pages with the system */
    uint64_t exchange_since_ns;
    struct list spare_buckets[SPARE_BUCKETS];
    struct list spare_ages; /* oldest first */
    uint64_t spare_bytes;
    uint64_t owed_bytes; /* to be given back for another process */
};

/* Where the copies of absent blocks are. */
struct copies {
    /* Our own, at `current`, and those of ancestors where copies of our blocks are: how many, and
     * the lines that tell so. In the last place is never one. */
    struct ebb_store stores[MAX_STORES + 1];
    uint64_t copies[MAX_STORES + 1];
    int lines[MAX_STORES + 1];
    unsigned current;
    struct relatives relatives;
    bool nested_too_deep; /* no place for a store of our own */
    struct ebb_extents extents;
    struct ebb_extent *extent_table;
};

/* How the store does. */
struct store_health {
    bool open, opening;
    bool failed;       /* nothing leaves */
    bool doubtful;     /* it has failed, and nothing has been written since */
    bool recovered;    /* has been said */
    uint64_t retry_ns; /* when it is tried again; 0: never */
    uint64_t pause_ns; /* from the last failure to then; 0: it has never failed */
};

/* moves.c, mover.c */
struct transfer {
    pthread_cond_t out_work, in_work;
    struct list out_queue, in_queue;
    uint32_t out_current, in_current; /* block being transferred with chunks left */
    uint64_t out_pending_bytes;       /* queued, leaving or given up: pages that will come free */
    uint64_t no_room_ns;              /* when there was no room last for what comes back */
    unsigned room_waits;              /* threads of the program that wait for room */
    pthread_t workers[16];
    unsigned worker_count;
    bool stopping;
    bool frozen;                /* around fork: workers take nothing new */
    unsigned transfers;         /* chunks in flight */
    unsigned lane_transfers[2]; /* likewise, only in the lanes: in, out */
    uint64_t lanes_since_ns;    /* when that changed last */
};

/* clock.c, woven.c, timers.c, feedback.c, guards.c */
struct replay {
    struct history *history; /* ring of HISTORY */
    uint64_t allocations;
    struct performance scripts[MAX_SCRIPTS];
    uint32_t script_count;
    uint64_t script_sets;        /* times that `scripts` has changed */
    struct performance *playing; /* NULL: reactive */
    struct performance awaited;  /* takes over from `playing` at awaited_at; no script: none */
    uint32_t awaited_at;
    bool awaited_due;
    uint32_t position;         /* next clock event expected */
    uint64_t position_ns;      /* when the last one was seen, on the program's own clock */
    uint64_t position_touches; /* uses seen by then */
    uint64_t position_event;   /* its event number */
    int64_t lead_ns;           /* how much farther it has come since than the time says */
    uint64_t stalled_ns;       /* that the program has waited for the runtime in all */
    uint32_t held;             /* waits at a clock event or for an absent block, now */
    uint64_t held_since_ns;    /* when the first of them began */
    uint64_t missed;           /* faults on absent parts since, where accesses are the clock */
    uint64_t guards_began_ns;  /* when the first event was seen last, likewise */
    uint64_t laps;
};

struct ebb_runtime {
    struct core core;
    struct uses uses;
    struct table table;
    struct space space;
    struct pool pool; /* placed.c */
    struct cold cold;
    struct memory memory;
    struct copies copies;
    struct store_health store;
    struct transfer transfer;
    struct replay replay;
    uint64_t next_serial;
    uint64_t alone_until_ns; /* other processes gave nothing: do not ask before */
    bool beyond;             /* the budget may be exceeded: nothing could leave */
    bool full_said;          /* that the device has no room for further blocks */
};

/* runtime.c */
void *ebb__runtime_memory(size_t bytes);                  /* zeroed, from the system; NULL: none */
void ebb__runtime_unmap(void *memory, size_t bytes);      /* back to it; NULL is fine */
void ebb__runtime_announce(struct ebb_runtime *runtime);  /* it is at work: for the parent */
void ebb__runtime_init_sync(struct ebb_runtime *runtime); /* no lock needed */
void ebb__runtime_event(struct ebb_runtime *runtime, const struct ebb_event *event);
void ebb__runtime_mark(struct ebb_runtime *runtime, enum ebb_mark mark, uint64_t value);
/* Tells it to the person who runs the program, where there is a way. */
void ebb__runtime_warn(struct ebb_runtime *runtime, const char *message);
/* Accesses have begun to be observed: say so once nothing lies in the pool any more, where none is seen. */
void ebb__runtime_note_trace(struct ebb_runtime *runtime);
/* The awaited script is put in force, in the place of what plays. */
void ebb__runtime_take_over(struct ebb_runtime *runtime);
static inline struct block *ebb__block(struct ebb_runtime *runtime, uint32_t index)
{
    return &runtime->table.blocks[index];
}
static inline uint64_t ebb__whole_pages(uint64_t bytes)
{
    return (bytes + EBB_PAGE_BYTES - 1) & ~(EBB_PAGE_BYTES - 1);
}
static inline uint64_t ebb__whole_units(uint64_t bytes)
{
    return (bytes + EBB_HUGE_BYTES - 1) & ~(EBB_HUGE_BYTES - 1);
}
/* Between its allocation and its free. */
static inline bool ebb__block_is_live(const struct block *block)
{
    return block->state >= BLOCK_BARE && block->state <= BLOCK_COMING;
}
/* In memory, and nothing speaks against sending it away now. */
static inline bool ebb__block_may_leave(const struct ebb_runtime *runtime,
                                        const struct block *block)
{
    return (block->state == BLOCK_RESIDENT || block->state == BLOCK_PARKED) &&
           block->transfer.queue != QUEUE_OUT && !block->transfer.urgent && !block->kept &&
           block->pinned_until <= runtime->uses.event_number;
}
static inline uint32_t ebb__block_index(const struct ebb_runtime *runtime,
                                        const struct block *block)
{
    return (uint32_t)(block - runtime->table.blocks);
}

/* lists.c: intrusive lists over the block table; `member` is the offset of the struct link. */
#define LINK_LIST offsetof(struct block, list)
#define LINK_AGE offsetof(struct block, age)
#define LINK_QUEUE offsetof(struct block, queue)
void ebb__list_push_front(struct ebb_runtime *runtime, struct list *list, uint32_t index,
                          size_t member);
void ebb__list_push_back(struct ebb_runtime *runtime, struct list *list, uint32_t index,
                         size_t member);
void ebb__list_remove(struct ebb_runtime *runtime, struct list *list, uint32_t index,
                      size_t member);

/* pages.c, what space.c needs of it */
EBB_NODISCARD bool ebb__pages_init(struct ebb_runtime *runtime);
void ebb__pages_fini(struct ebb_runtime *runtime);

/* space.c: address space and the block table */
EBB_NODISCARD bool ebb__space_init(struct ebb_runtime *runtime);
void ebb__space_fini(struct ebb_runtime *runtime);
/* The last `units` of the arena that are left become a part of their own; its address. */
uintptr_t ebb__space_cut(struct ebb_runtime *runtime, uint64_t units);
/* A block with address space for `page_bytes`, in state EMPTY and on no list; NULL: none left. */
struct block *ebb__space_take(struct ebb_runtime *runtime, uint64_t page_bytes);
void ebb__space_give(struct ebb_runtime *runtime, struct block *block);
/* A block of the table, off `list` where one is there, without address space; NULL: it is full. */
struct block *ebb__space_record(struct ebb_runtime *runtime, struct list *list);
/* A zero page at `address`, where a block is resident or the program has no business: behind the end
 * of a block, in a freed one, or because the fault was reported before the block came back and is
 * looked at after it was freed. */
void ebb__space_fill(struct ebb_runtime *runtime, struct block *block, uintptr_t address);
/* The block whose address space holds `address`, in any state; in the pool only the live block that
 * starts in that page. NULL: none. */
struct block *ebb__space_find(struct ebb_runtime *runtime, uintptr_t address);

/* parts.c: the parts of large blocks */
/* Has a block of so many bytes parts? */
bool ebb__part_is_large(const struct ebb_runtime *runtime, uint64_t page_bytes);
/* The part behind part `index` of the same block; NO_BLOCK: it was the last. */
uint32_t ebb__part_next(const struct ebb_runtime *runtime, uint32_t index);
/* Is it all of a block, not a part of one, nor what is left of one? */
bool ebb__part_is_whole(const struct ebb_runtime *runtime, const struct block *block);
/* Can the block with that head be split? */
bool ebb__part_has_units(const struct ebb_runtime *runtime, const struct block *head);
/* Into parts of one unit, as far as they are at rest. No effect on a block that has no units. */
void ebb__part_split(struct ebb_runtime *runtime, struct block *head);
/* What can be one becomes one; true: the block is in one part. */
bool ebb__part_join(struct ebb_runtime *runtime, struct block *head);
/* Units [first, + count) become one part, as far as they can; returns the first part that begins
 * there, NO_BLOCK: none. */
uint32_t ebb__part_shape(struct ebb_runtime *runtime, struct block *head, uint32_t first,
                         uint32_t count);
/* A part has lost its pages and its owner; true: it was the last, the head has all units again. */
bool ebb__part_bury(struct ebb_runtime *runtime, struct block *block);

/* frames.c: the units of staging. Addresses are those of whole units, `bytes` are rounded up to them
 * unless stated. */
EBB_NODISCARD bool ebb__frames_init(struct ebb_runtime *runtime);
void ebb__frames_fini(struct ebb_runtime *runtime);
/* Nothing is in use: in the child of a fork. */
void ebb__frames_reset(struct ebb_runtime *runtime);
/* Frames without pages, one behind the other; 0: none left. */
uintptr_t ebb__frames_take(struct ebb_runtime *runtime, uint64_t bytes);
/* Frames that have been taken, now without pages, are free. */
void ebb__frames_give(struct ebb_runtime *runtime, uintptr_t address, uint64_t bytes);
/* Frames that have been taken are spare, with their pages; whole units. */
void ebb__frames_keep(struct ebb_runtime *runtime, uintptr_t address, uint64_t bytes);
/* Spare frames with pages for the whole units of `bytes`, and one without for the rest, are taken; 0:
 * no such run. Pieced ones only where there are not enough others. */
uintptr_t ebb__frames_claim(struct ebb_runtime *runtime, uint64_t bytes);
/* Frames that have been taken are kept with all their pages, small ones, too, for a block of exactly
 * this size; false: there is no room to remember them. */
EBB_NODISCARD bool ebb__frames_keep_shape(struct ebb_runtime *runtime, uintptr_t address,
                                          uint64_t bytes);
/* What has been kept for a block of `bytes`, the newest, is taken; 0: nothing. */
uintptr_t ebb__frames_claim_shape(struct ebb_runtime *runtime, uint64_t bytes);
/* The oldest of all that is kept for a size is taken; 0 bytes: there is none. */
struct frame_shape ebb__frames_break_shape(struct ebb_runtime *runtime);
/* Spare frames, `most_bytes` (whole units) or as many as lie together, are free, the pages to be taken
 * away by the caller. There must be some. pieced: the kind to take where there is any of it. */
uintptr_t ebb__frames_spend(struct ebb_runtime *runtime, uint64_t most_bytes, bool pieced,
                            uint64_t *bytes);

/* placed.c: the pool */
EBB_NODISCARD bool ebb__placed_init(struct ebb_runtime *runtime);
void ebb__placed_fini(struct ebb_runtime *runtime);
/* True where `address` lies in the pool. No lock needed. */
bool ebb__placed_owns(const struct ebb_runtime *runtime, uintptr_t address);
struct block *ebb__placed_find(struct ebb_runtime *runtime, uintptr_t address);
/* The block that has the page of `address`; O(pages of the block). */
struct block *ebb__placed_covering(struct ebb_runtime *runtime, uintptr_t address);
/* How many words of tables a script's placements take, and filling so many, zeroed. No lock. */
size_t ebb__placed_table_words(const struct ebb_runtime *runtime, const struct ebb_script *script);
void ebb__placed_prepare(struct performance *performance, uint32_t *words);
/* The position in front of which the least lies at the addresses of `script`. */
uint32_t ebb__placed_least(const struct ebb_script *script);
/* The block that an allocation of `bytes`, now, is planned to be, at its planned address, in state
 * EMPTY, its pages still to be had; NULL: no plan, or the address is taken. */
struct block *ebb__placed_take(struct ebb_runtime *runtime, size_t bytes, size_t alignment);
/* Bytes of pages that its units lack. */
uint64_t ebb__placed_lacking(const struct ebb_runtime *runtime, const struct block *block);
/* Pages for what they lack; false: no room without evicting (force: memory is out). What could be
 * had stays. */
bool ebb__placed_back(struct ebb_runtime *runtime, struct block *block, bool force);
void ebb__placed_give(struct ebb_runtime *runtime, struct block *block);
/* A zero page at `address`, which the program has given back itself or has no business at. */
void ebb__placed_fill(struct ebb_runtime *runtime, uintptr_t address);
/* Spare pages that are wanted latest, about `most_bytes` of them, and their way to the depot. */
struct spare_run ebb__placed_spare(const struct ebb_runtime *runtime, uint64_t most_bytes);
void ebb__placed_strip(struct ebb_runtime *runtime, struct spare_run run);
void ebb__placed_after_fork_child(struct ebb_runtime *runtime);

/* cold.c: slabs */
EBB_NODISCARD bool ebb__cold_init(struct ebb_runtime *runtime);
void ebb__cold_fini(struct ebb_runtime *runtime);
/* True where `address` lies in a slab, or where one may come to be. No lock needed. */
bool ebb__cold_owns(const struct ebb_runtime *runtime, uintptr_t address);
/* The slab that holds `address`, in any state; NULL: none has been there. */
struct block *ebb__cold_find(struct ebb_runtime *runtime, uintptr_t address);
/* A slab in state EMPTY, its pages still to be had; NULL: none left. And back, without pages. */
struct block *ebb__cold_take(struct ebb_runtime *runtime);
void ebb__cold_give(struct ebb_runtime *runtime, struct block *block);
/* Its pages are in use from now on (or not any more): what plans have to leave room for. */
void ebb__cold_count(struct ebb_runtime *runtime, const struct block *block, bool here);
/* It has been parked and is back. */
void ebb__cold_back(struct ebb_runtime *runtime, struct block *block);
/* Park up to `most` of those that have not been looked at in this lap; nothing where it is too early
 * for another one. */
void ebb__cold_look(struct ebb_runtime *runtime, uint32_t most);
/* A slab that has not been used for some time; NULL: none. */
struct block *ebb__cold_victim(struct ebb_runtime *runtime);
/* The one that has been there, or has not been used, for longest; NULL: none that may leave. O(slabs) */
struct block *ebb__cold_oldest(struct ebb_runtime *runtime);
/* A thread of the program waits for `address` in it. */
void ebb__cold_fault(struct ebb_runtime *runtime, struct block *block, uintptr_t address);
/* All come back, and stay until all_here is taken back. Releases the lock while it waits. */
void ebb__cold_recall(struct ebb_runtime *runtime);

/* pages.c: pages without a block, and giving them to blocks */
/* Pages for `bytes` at `target` (2 MiB aligned); false: none without evicting. */
bool ebb__pages_take(struct ebb_runtime *runtime, uintptr_t target, uint64_t bytes);
/* As ebb__pages_take(), over the budget if need be; false only where memory is out. */
bool ebb__pages_force(struct ebb_runtime *runtime, uintptr_t target, uint64_t bytes);
/* Frames with pages for `bytes`; 0: none without evicting. */
uintptr_t ebb__pages_take_frame(struct ebb_runtime *runtime, uint64_t bytes);
/* Likewise, over the budget if need be; 0 only where memory is out. */
uintptr_t ebb__pages_force_frame(struct ebb_runtime *runtime, uint64_t bytes);
/* Pages at [source, + bytes) in the arena become spare. */
void ebb__pages_give(struct ebb_runtime *runtime, uintptr_t source, uint64_t bytes);
/* Likewise of a block in frames, which are the caller's no more. */
void ebb__pages_leave(struct ebb_runtime *runtime, uintptr_t frame, uint64_t bytes);
/* Is the unit at `address`, in the arena or in staging, pieced? A hint: pages may come to be small
 * otherwise, too. */
uint8_t *ebb__pages_pieced(const struct ebb_runtime *runtime, uintptr_t address);
/* The device's move; what a child of fork() still shares is made ours first. *moved: how far it got. */
enum ebb_device_result ebb__pages_move(struct ebb_runtime *runtime, uintptr_t target,
                                       uintptr_t source, uint64_t bytes, uint64_t *moved);
/* A spare block of exactly this size, off its lists, pages in place; NULL: none. */
struct block *ebb__pages_spare(struct ebb_runtime *runtime, uint64_t page_bytes);
void ebb__pages_keep_spare(struct ebb_runtime *runtime, struct block *block);
/* The oldest spare block, whose pages came with a fork, is emptied. */
void ebb__pages_drop_spare(struct ebb_runtime *runtime);
/* So many bytes of pages have gone back to the system. */
void ebb__pages_gone(struct ebb_runtime *runtime, uint64_t bytes);

/* keep.c: a kept block is freed: its mapping as at first, its pages gone. */
void ebb__keep_end(struct ebb_runtime *runtime, struct block *block);
/* The block or part, wherever it lies, that has `address`; NULL: none that is alive. */
struct block *ebb__keep_live_at(struct ebb_runtime *runtime, uintptr_t address);
/* The pages of the oldest spare block go to the depot, its address space is free; false: none. */
bool ebb__pages_strip_spare(struct ebb_runtime *runtime);
/* Bytes that can be had without evicting. */
uint64_t ebb__pages_available(const struct ebb_runtime *runtime);
/* Give spare pages back to the system until the ledger is within the budget. */
void ebb__pages_trim(struct ebb_runtime *runtime);

/* moves.c: the transitions of a block */
bool ebb__move_park(struct ebb_runtime *runtime, struct block *block);   /* RESIDENT -> PARKED */
void ebb__move_unpark(struct ebb_runtime *runtime, struct block *block); /* -> RESIDENT, wakes */
/* A block leaves for want of room, not by plan. */
void ebb__move_evict(struct ebb_runtime *runtime, struct block *block);
void ebb__move_queue_out(struct ebb_runtime *runtime, struct block *block, bool urgent);
void ebb__move_unqueue_out(struct ebb_runtime *runtime, struct block *block);
void ebb__move_queue_in(struct ebb_runtime *runtime, struct block *block, bool urgent);
/* Somebody waits for what is leaving or away: it stays, or is sent for. */
void ebb__move_call_back(struct ebb_runtime *runtime, struct block *block);
bool ebb__move_start_out(struct ebb_runtime *runtime, struct block *block); /* -> LEAVING */
/* A store that has failed is tried again where it is time. */
void ebb__move_retry_store(struct ebb_runtime *runtime, uint64_t now_ns);
void ebb__move_finish_out(struct ebb_runtime *runtime, struct block *block);
bool ebb__move_start_in(struct ebb_runtime *runtime, struct block *block); /* -> COMING */
void ebb__move_finish_in(struct ebb_runtime *runtime, struct block *block);
/* COMING, nobody waits for it: its pages will come free, it goes back to where it came from. */
void ebb__move_give_up(struct ebb_runtime *runtime, struct block *block);
void ebb__move_discard(struct ebb_runtime *runtime, struct block *block); /* freed by the program */
void ebb__move_touch(struct ebb_runtime *runtime, struct block *block);   /* used now */
void ebb__move_drop_copy(struct ebb_runtime *runtime, struct block *block);

/* relatives.c: forked processes that read the same store */
EBB_NODISCARD bool ebb__relatives_init(struct ebb_runtime *runtime);
void ebb__relatives_fini(struct ebb_runtime *runtime);
/* A fork follows; is_read: some block's only copy is in our store. */
void ebb__relatives_before_fork(struct ebb_runtime *runtime, bool is_read);
void ebb__relatives_after_fork_parent(struct ebb_runtime *runtime);
/* Our parent's store becomes an ancestor's, what is ours is yet to be opened. */
void ebb__relatives_after_fork_child(struct ebb_runtime *runtime);
/* Is the store's copy of `block` in our own store? */
static inline bool ebb__relatives_wrote(const struct ebb_runtime *runtime,
                                        const struct block *block)
{
    return block->copy.store == runtime->copies.current;
}
/* There is one block more whose copy is where that of `block` is. */
void ebb__relatives_count(struct ebb_runtime *runtime, const struct block *block);
/* The store's copy of `block` is given up. */
void ebb__relatives_drop(struct ebb_runtime *runtime, const struct block *block);
/* So much is to be written: see whether space has come free, if the store would have to grow. */
void ebb__relatives_look(struct ebb_runtime *runtime, uint64_t bytes);

/* mover.c: the lanes */
/* False, with errno, where threads cannot be started: none is left then. */
EBB_NODISCARD bool ebb__mover_start(struct ebb_runtime *runtime);
void ebb__mover_stop(struct ebb_runtime *runtime);
/* No block of this process can leave: ask for what other processes of the run hold, wait a little;
 * false: it is of no use to wait longer. Releases the lock. *asking: zero before the first call. */
bool ebb__mover_ask_others(struct ebb_runtime *runtime, uint64_t bytes, struct asking *asking);
/* Let victims leave until `bytes` will be available; false: nothing is on its way out, waiting is of no use
 * (there may be enough, but not as it is wanted: then it can be forced). */
bool ebb__mover_make_room(struct ebb_runtime *runtime, uint64_t bytes);

/* timers.c */
/* CLOCK_MONOTONIC less what the program has waited for the runtime. */
uint64_t ebb__runtime_progress_ns(const struct ebb_runtime *runtime);
/* The program has waited so long. */
void ebb__runtime_stalled(struct ebb_runtime *runtime, uint64_t ns);
/* The clock passes `position` now. */
void ebb__timers_pace(struct ebb_runtime *runtime, struct performance *playing, uint32_t position);
/* How long after the last position passed the program is now, in the script's time. */
uint64_t ebb__timers_since_ns(const struct ebb_runtime *runtime);
/* It is `ns` of the script's time after that position now, whatever the time says: what was done too
 * early will be done again. */
void ebb__timers_set_since(struct ebb_runtime *runtime, uint64_t ns);
/* How long the stretch behind `position` is planned to take. */
uint64_t ebb__timers_stretch_ns(const struct performance *playing, uint32_t position);
/* How much earlier or later than planned something may come to hang after `position`, or happen. */
uint64_t ebb__timers_most_shift_ns(const struct performance *playing, uint32_t position);
/* Begin the absence, or with `in` end it, its delay after `position`, just passed; false: now. */
bool ebb__timers_set(struct ebb_runtime *runtime, struct performance *playing, uint32_t position,
                     uint32_t absence, bool in);
/* Do what is due. Returns when to look again (CLOCK_MONOTONIC), 0: when woken. */
uint64_t ebb__timers_fire(struct ebb_runtime *runtime);
/* The program is held, or goes on: what it has waited counts. */
void ebb__timers_hold(struct ebb_runtime *runtime, bool hold);
/* It waits for `block` from now on. */
void ebb__timers_fault(struct ebb_runtime *runtime, struct block *block);
/* If it has waited for `block` it goes on; how long it waited. */
uint64_t ebb__timers_fault_over(struct ebb_runtime *runtime, struct block *block);

/* feedback.c */
/* Learn from whether an absence's block was late, beyond what the plan expects: what had to be waited
 * for starts that much earlier and half as much again. What was there in time starts a little later
 * again, down to the plan, since the machine may just have been busy for a moment, and early returns
 * take the room of others; so does what was late for want of room: an earlier start does not help. */
void ebb__feedback_learn(struct performance *playing, uint32_t absence, uint64_t late_ns);
/* The program uses `block`, which is not there: what left too early within a stretch leaves later in
 * the next iteration. */
void ebb__feedback_missed(struct ebb_runtime *runtime, const struct block *block);
/* It has waited so long for `block`: what came back too late within a stretch comes earlier. */
void ebb__feedback_late(struct ebb_runtime *runtime, const struct block *block, uint64_t late_ns);
/* The room of `block` is needed first for something else: if it is coming back, or back and not yet due,
 * it comes later in the next iteration, not later than the script says. How late it is now says nothing
 * then. */
void ebb__feedback_early(struct ebb_runtime *runtime, struct block *block);

/* waits.c: for the parent's eyes */
/* A fault is about to be looked at; until ebb__wait_end(). No lock needed. */
struct ebb_wait *ebb__waits_enter(struct ebb_runtime *runtime, uintptr_t address);
/* The program waits for `block`; until ebb__wait_end(), which needs no lock. Several may wait for one. */
struct ebb_wait *ebb__waits_block(struct ebb_runtime *runtime, const struct block *block);
/* A transfer of `block`, the opening of the store; until ebb__wait_end(), which needs no lock. */
struct ebb_wait *ebb__waits_transfer(struct ebb_runtime *runtime, const struct block *block,
                                     bool out);
struct ebb_wait *ebb__waits_open(struct ebb_runtime *runtime);

/* victim.c */
struct block *ebb__victim_choose(struct ebb_runtime *runtime);

/* clock.c */
/* The last position passed. Only while a script is played. */
static inline uint32_t ebb__clock_now(const struct ebb_runtime *runtime)
{
    uint32_t clocks = runtime->replay.playing->script->clock_count;
    return (runtime->replay.position + clocks - 1) % clocks;
}
/* What was touched since the last event is watched again. */
void ebb__clock_close_operation(struct ebb_runtime *runtime);
/* A fault has happened: where the operation in progress has become long, another begins (true). */
bool ebb__clock_pause(struct ebb_runtime *runtime);
/* What is due since a step: at `count` positions from `first` on, of `playing`. */
struct due {
    struct performance *playing;
    uint64_t script_sets;
    uint32_t first, count;
};
/* An ALLOC or FREE has happened: match it and queue the actions that hang on it. */
struct due ebb__clock_step(struct ebb_runtime *runtime, enum ebb_event_kind kind,
                           struct block *block);
/* The step's end, once the pages of what was freed are free: wait for what is due. Releases the lock
 * while it waits. */
void ebb__clock_end_step(struct ebb_runtime *runtime, enum ebb_event_kind kind, struct due due);
/* The script in force is no longer followed. */
void ebb__clock_stop(struct ebb_runtime *runtime);
/* The next event of the script in force has happened: queue what hangs on it. */
void ebb__clock_pass(struct ebb_runtime *runtime);
/* From now on `playing` is followed; the last event seen is its `position`. */
void ebb__clock_start(struct ebb_runtime *runtime, struct performance *playing, uint32_t position);
/* Make the tables of a script; false where memory is lacking. No lock needed. */
EBB_NODISCARD bool ebb__clock_prepare(const struct ebb_runtime *runtime,
                                      struct performance *performance,
                                      const struct ebb_script *script);
/* Pages for the next allocation, if the program follows the script: whole units where it is wide. */
uint64_t ebb__clock_page_bytes(const struct ebb_runtime *runtime, uint64_t bytes);
/* Will the next allocation, if the program follows the script, have parts? */
bool ebb__clock_expects_parts(const struct ebb_runtime *runtime, uint64_t size_bytes);
/* What hangs on `position` is queued. */
void ebb__clock_act(struct ebb_runtime *runtime, struct performance *playing, uint32_t position);
/* `block` is what the script calls `script_block`. */
void ebb__clock_bind(struct ebb_runtime *runtime, struct performance *playing, struct block *block,
                     uint32_t script_block);
/* The store's copy of `block`, kept because it was to be only read, is not its bytes any more. */
void ebb__clock_changed(struct ebb_runtime *runtime, const struct block *block);
/* `block` ends: it is not meant any more. Its script_block must be known. */
void ebb__clock_unbind(const struct ebb_runtime *runtime, struct performance *playing,
                       const struct block *block);
/* The index into the allocs of `script` of the first one of at least `size_bytes`. */
uint32_t ebb__clock_first_alloc(const struct ebb_script *script, uint64_t size_bytes);
/* The script's block that an allocation of `size_bytes`, were it the next event, would be taken
 * for; EBB_SCRIPT_NONE: none. Only while a script is played. */
uint32_t ebb__clock_foresee(const struct ebb_runtime *runtime, uint64_t size_bytes);
/* Let an absence begin, or with `in` end, unless the program is past it. */
void ebb__clock_fire(struct ebb_runtime *runtime, uint32_t absence, bool in);
/* Clock positions until the template next allocates `size_bytes`; UINT32_MAX: never. Only while a
 * script is played. O(log allocations). */
uint32_t ebb__clock_next_alloc(const struct ebb_runtime *runtime, uint64_t size_bytes);
/* How far away the next use of `block` is: clock positions * 2^32 + us, from then or within the present
 * stretch; 0: now. UINT64_MAX: unknown. *done: it is used in the present stretch, and not any more. */
uint64_t ebb__clock_distance(const struct ebb_runtime *runtime, const struct block *block,
                             bool *done);
/* The program uses `block` now: within a long stretch that tells how far in it the program is. */
void ebb__clock_seen(struct ebb_runtime *runtime, const struct block *block);

/* weave.c: templates whose events come in varying order */
/* Words of memory that struct woven needs, and what is made of them. */
size_t ebb__woven_words(const struct ebb_script *script);
void ebb__woven_prepare(struct performance *performance, uint32_t *memory);
/* Match one event; *position: of the template, EBB_SCRIPT_NONE: it is not in it. False: the program
 * does something else. */
bool ebb__woven_match(struct ebb_runtime *runtime, enum ebb_event_kind kind, struct block *block,
                      uint32_t *position);
/* The template's position of an allocation of this size, should it come next; EBB_SCRIPT_NONE: none. */
uint32_t ebb__woven_next_alloc(const struct performance *playing, uint64_t size_bytes);
/* Does a lap of the script begin with the newest allocation? Nothing is changed. */
bool ebb__woven_begins(const struct ebb_runtime *runtime, struct performance *performance);
/* Name the blocks of the lap before it, and begin. */
void ebb__woven_begin(struct ebb_runtime *runtime, struct performance *performance);

/* guards.c: accesses as the clock */
/* Is a script in force whose events are accesses? */
static inline bool ebb__guards_play(const struct ebb_runtime *runtime)
{
    return runtime->replay.playing && runtime->replay.playing->script->alloc_count == 0;
}
/* See to it that the accesses of the next events will be seen. */
void ebb__guards_arm(struct ebb_runtime *runtime);
/* Is the next use of `block` to be seen? */
bool ebb__guards_await(const struct ebb_runtime *runtime, const struct block *block);
/* `block` is used, and that was seen; missed: it was absent. */
void ebb__guards_touched(struct ebb_runtime *runtime, const struct block *block, bool missed);

#endif
