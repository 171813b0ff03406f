/* Memory: the pages that the budget counts, both of blocks and cached. */
#ifndef EBB_RUNTIME_MEMORY_MEMORY_H
#define EBB_RUNTIME_MEMORY_MEMORY_H

#include "runtime/address/address.h"

/* Adjacent units of the static placement with cached pages. 0 units: none. */
struct cached_run {
    uint32_t unit, units;
    /* Clock positions until the last of them is needed. UINT32_MAX: never. */
    uint32_t distance;
};

/* Cached units [first, behind) of staging. */
struct frame_run {
    uint64_t first, behind;
    bool is_fragmented; /* applies to all of them */
};

/* Frames of a block that ends in small pages, kept for the next block of its size. */
struct tail_cache_entry {
    uintptr_t address;
    uint64_t bytes;
};

/* frames.c */
struct frames {
    uintptr_t base;
    uint8_t *states;     /* of each unit of staging */
    uint8_t *fragmented; /* of each unit: does it consist of small pages? */
    uint64_t units_total;
    uint64_t window; /* units from this one on are not in use */
    uint64_t cursor;
    /* All cached units, unordered. Two runs of one kind are never adjacent. */
    struct frame_run *runs;
    uint32_t run_count;
    uint64_t cached_bytes;
    uint64_t fragmented_bytes;           /* part of cached_bytes */
    struct tail_cache_entry *tail_cache; /* oldest first */
    uint32_t tail_cache_count;
    uint64_t tail_cache_bytes;
};

/* pages.c */
struct memory {
    struct core *core;
    struct table *table;
    struct addresses *addresses;
    struct frames frames;
    uint64_t page_stack_bytes;
    uint8_t *fragmented; /* by unit of the arena: does it consist of small pages? */
    int64_t exchange_ns; /* time that may be spent on exchanging pages with the system */
    uint64_t exchange_since_ns;
    struct list cached_by_size[SIZE_BUCKETS];
    struct list cached_by_age; /* oldest first */
    uint64_t cached_bytes;
    uint64_t owed_bytes; /* bytes to be released for another process */
};

/* frames.c: the units of staging. All addresses are of whole units. `bytes` are rounded up to whole
 * units unless stated otherwise. */
EBB_NODISCARD bool ebb__frames_init(struct frames *frames, struct ebb_device_range staging);
void ebb__frames_fini(struct frames *frames);
/* In the child of a fork: no frame is in use. */
void ebb__frames_reset(struct frames *frames);
/* Takes adjacent frames without pages. 0: none left. */
uintptr_t ebb__frames_take(struct frames *frames, uint64_t bytes);
/* Frees taken frames, which have no pages any more. */
void ebb__frames_give(struct frames *frames, uintptr_t address, uint64_t bytes);
/* Makes taken frames cached, with their pages; whole units. */
void ebb__frames_keep(struct frames *frames, uintptr_t address, uint64_t bytes);
/* Takes cached frames with pages for the whole units of `bytes`, and a frame without pages for the
 * rest. 0: no such run. Prefers frames that are not fragmented. */
uintptr_t ebb__frames_claim(struct frames *frames, uint64_t bytes);
/* Moves taken frames with all their pages to the tail cache, for a block of exactly this size.
 * False: the tail cache is full. */
EBB_NODISCARD bool ebb__tail_cache_keep(struct frames *frames, uintptr_t address, uint64_t bytes);
/* Takes the newest entry of the tail cache for a block of `bytes`. 0: there is none. */
uintptr_t ebb__tail_cache_claim(struct frames *frames, uint64_t bytes);
/* Takes the oldest entry of the tail cache. 0 bytes: there is none. */
struct tail_cache_entry ebb__tail_cache_take_oldest(struct frames *frames);
/* Frees adjacent cached frames, at most `most_bytes` (whole units); the caller takes their pages.
 * There must be some. fragmented: the preferred kind. */
uintptr_t ebb__frames_spend(struct frames *frames, uint64_t most_bytes, bool fragmented,
                            uint64_t *bytes);

/* pages.c: pages without a block, and their way to and from blocks */
/* Gives `target` (2 MiB aligned) pages for `bytes`. False: eviction is necessary. */
bool ebb__pages_take(struct memory *memory, uintptr_t target, uint64_t bytes);
/* As ebb__pages_take(), but may exceed the budget. False only if memory is exhausted. */
bool ebb__pages_force(struct memory *memory, uintptr_t target, uint64_t bytes);
/* Takes frames with pages for `bytes`. 0: eviction is necessary. */
uintptr_t ebb__pages_take_frame(struct memory *memory, uint64_t bytes);
/* As ebb__pages_take_frame(), but may exceed the budget. 0 only if memory is exhausted. */
uintptr_t ebb__pages_force_frame(struct memory *memory, uint64_t bytes);
/* Makes the pages at [source, + bytes) in the arena cached. */
void ebb__pages_give(struct memory *memory, uintptr_t source, uint64_t bytes);
/* As ebb__pages_give(), for a block in frames, which are no longer the caller's. */
void ebb__pages_give_frame(struct memory *memory, uintptr_t frame, uint64_t bytes);
/* Is the unit at `address`, in the arena or in staging, fragmented? Only a hint: other causes may
 * split its page, too. */
uint8_t *ebb__pages_fragmented(const struct memory *memory, uintptr_t address);
/* Moves pages through the device. Pages still shared with a fork's child are first copied. *moved:
 * bytes moved, even on failure. */
enum ebb_device_result ebb__pages_move(struct memory *memory, uintptr_t target, uintptr_t source,
                                       uint64_t bytes, uint64_t *moved);
/* `bytes` of pages have been released to the system, or come from it without the budget. */
void ebb__pages_gone(struct memory *memory, uint64_t bytes);
void ebb__pages_came(struct memory *memory, uint64_t bytes);
/* False if memory is exhausted. The caller must call ebb__memory_fini() even then. */
EBB_NODISCARD bool ebb__memory_init(struct memory *memory, struct addresses *addresses);
void ebb__memory_fini(struct memory *memory);
/* Before a fork: moves all cached pages out of the arena, which the child inherits. */
void ebb__memory_before_fork(struct memory *memory);
/* In the child of a fork: the small-page stack and cached frames remain in the parent, the arena is
 * inherited. Call it after ebb__block_forked(). */
void ebb__memory_forked(struct memory *memory);

/* Bytes of pages that no block uses. */
uint64_t ebb__pages_idle(const struct memory *memory);
/* Bytes available without evicting. */
uint64_t ebb__pages_available(const struct memory *memory);
/* Within this part. `stack_top`: the end of the small-page stack. `move_empty`: moves pages without
 * content, or creates them at `target` instead. `strip_tail_cache`: empties the oldest entry of the
 * tail cache. False: there is none. */
static inline uintptr_t ebb__pages_stack_top(const struct memory *memory)
{
    return memory->core->device.layout.page_stack.base + memory->page_stack_bytes;
}
enum ebb_device_result ebb__pages_move_empty(struct memory *memory, uintptr_t target,
                                             uintptr_t source, uint64_t bytes);
bool ebb__pages_strip_tail_cache(struct memory *memory);

/* gather.c */
/* Within this part: collects cached frames and small pages for `bytes`. force: may exceed the
 * budget. */
bool ebb__pages_gather(struct memory *memory, uint64_t bytes, bool force);
/* Replaces fragmented units of a frame that is about to be filled, within the time allowed. */
bool ebb__pages_mend(struct memory *memory, uintptr_t frame, uint64_t bytes);
/* Bytes of pages that may still be created within the budget. */
uint64_t ebb__pages_unmade(const struct memory *memory);
/* Releases cached pages to the system until the ledger is within the budget. */
void ebb__pages_trim(struct memory *memory);

/* cached.c: cached blocks */
/* The cached block to take pages from. NO_BLOCK: none. */
uint32_t ebb__pages_choose_cached(const struct memory *memory);
/* Moves its pages to the cached frames and the small-page stack. False: `index` is NO_BLOCK. */
bool ebb__pages_strip_block(struct memory *memory, uint32_t index);
/* Takes a cached block of exactly this size off its lists, with its pages. NULL: none. */
struct block *ebb__pages_take_cached(struct memory *memory, uint64_t page_bytes);
void ebb__pages_keep_cached(struct memory *memory, struct block *block);
/* Empties the oldest cached block, whose pages were inherited by fork. */
void ebb__pages_drop_cached(struct memory *memory);
/* Moves the pages of the chosen cached block to frames and the small-page stack, and frees its
 * address space. False: none. */
bool ebb__pages_strip_cached(struct memory *memory);

/* backing.c: pages of the static placement */
/* Bytes of pages that the block's units lack. */
uint64_t ebb__placement_lacking(const struct memory *memory, const struct block *block);
/* Gives those units the pages that they lack. False: eviction is necessary; with force: memory is
 * exhausted. Units keep the pages that they got before a failure. */
bool ebb__placement_back(struct memory *memory, struct block *block, bool force);
/* Maps a zero page at `address`, which the program has released itself or has no valid use of. */
void ebb__placement_fill(struct memory *memory, uintptr_t address);
/* Finds the cached pages that are needed latest, about `most_bytes`, and moves them to the
 * small-page stack. */
struct cached_run ebb__placement_cached(const struct memory *memory, uint64_t most_bytes);
void ebb__placement_strip(struct memory *memory, struct cached_run run);
void ebb__placement_strip_all(struct memory *memory);
void ebb__placed_forked(struct memory *memory);

/* kept.c */
/* Ends keep.c's hold on a freed block: restores the original mapping and frees its pages. */
void ebb__keep_end(struct memory *memory, struct block *block);

#endif
