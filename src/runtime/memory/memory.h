/* Memory: the pages that the budget counts, in blocks and without one. */
#ifndef EBB_RUNTIME_MEMORY_MEMORY_H
#define EBB_RUNTIME_MEMORY_MEMORY_H

#include "runtime/address/address.h"

/* Neighbouring units of the static placement with cached pages; 0 units: none. */
struct cached_run {
    uint32_t unit, units;
    uint32_t distance; /* clock positions until one is wanted at the latest; UINT32_MAX: never */
};

/* Cached units [first, behind) of staging. */
struct frame_run {
    uint64_t first, behind;
    bool is_fragmented; /* all of them, or none */
};

/* The frames of a block that ended in small pages: kept for the next block of its size. */
struct tail_cache_entry {
    uintptr_t address;
    uint64_t bytes;
};

/* frames.c */
struct frames {
    uintptr_t base;
    uint8_t *states;     /* of each unit of staging */
    uint8_t *fragmented; /* likewise: is it assembled from small pages? */
    uint64_t units_total;
    uint64_t window; /* no unit from here on is in use */
    uint64_t cursor;
    struct frame_run *runs; /* all cached ones; no two of a kind touch. In no order */
    uint32_t run_count;
    uint64_t cached_bytes;
    uint64_t fragmented_bytes;           /* of those */
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
    uint8_t *fragmented; /* by unit of the arena */
    int64_t exchange_ns; /* time that may be spent on exchanging pages with the system */
    uint64_t exchange_since_ns;
    struct list cached_by_size[SIZE_BUCKETS];
    struct list cached_by_age; /* oldest first */
    uint64_t cached_bytes;
    uint64_t owed_bytes; /* to be released for another process */
};

/* frames.c: the units of staging. Addresses are those of whole units, `bytes` are rounded up to them
 * unless stated. */
EBB_NODISCARD bool ebb__frames_init(struct frames *frames, struct ebb_device_range staging);
void ebb__frames_fini(struct frames *frames);
/* Nothing is in use: in the child of a fork. */
void ebb__frames_reset(struct frames *frames);
/* Frames without pages, one behind the other; 0: none left. */
uintptr_t ebb__frames_take(struct frames *frames, uint64_t bytes);
/* Frames that have been taken, now without pages, are free. */
void ebb__frames_give(struct frames *frames, uintptr_t address, uint64_t bytes);
/* Frames that have been taken are cached, with their pages; whole units. */
void ebb__frames_keep(struct frames *frames, uintptr_t address, uint64_t bytes);
/* Cached frames with pages for the whole units of `bytes`, and one without for the rest, are taken;
 * 0: no such run. Fragmented ones only if there are not enough others. */
uintptr_t ebb__frames_claim(struct frames *frames, uint64_t bytes);
/* Frames that have been taken go to the tail cache, with all their pages, for a block of exactly
 * this size; false: the tail cache is full. */
EBB_NODISCARD bool ebb__tail_cache_keep(struct frames *frames, uintptr_t address, uint64_t bytes);
/* The newest entry of the tail cache for a block of `bytes` is taken; 0: there is none. */
uintptr_t ebb__tail_cache_claim(struct frames *frames, uint64_t bytes);
/* The oldest entry of the tail cache is taken; 0 bytes: there is none. */
struct tail_cache_entry ebb__tail_cache_take_oldest(struct frames *frames);
/* Cached frames, `most_bytes` (whole units) or as many as lie together, become free; the caller
 * takes their pages. There must be some. fragmented: the kind to prefer. */
uintptr_t ebb__frames_spend(struct frames *frames, uint64_t most_bytes, bool fragmented,
                            uint64_t *bytes);

/* pages.c: pages without a block, and giving them to blocks */
/* Pages for `bytes` at `target` (2 MiB aligned); false: none without evicting. */
bool ebb__pages_take(struct memory *memory, uintptr_t target, uint64_t bytes);
/* As ebb__pages_take(), over the budget if need be; false only where memory is out. */
bool ebb__pages_force(struct memory *memory, uintptr_t target, uint64_t bytes);
/* Frames with pages for `bytes`; 0: none without evicting. */
uintptr_t ebb__pages_take_frame(struct memory *memory, uint64_t bytes);
/* Likewise, over the budget if need be; 0 only where memory is out. */
uintptr_t ebb__pages_force_frame(struct memory *memory, uint64_t bytes);
/* Pages at [source, + bytes) in the arena become spare. */
void ebb__pages_give(struct memory *memory, uintptr_t source, uint64_t bytes);
/* Likewise of a block in frames, which are the caller's no more. */
void ebb__pages_give_frame(struct memory *memory, uintptr_t frame, uint64_t bytes);
/* Is the unit at `address`, in the arena or in staging, pieced? A hint: pages may come to be small
 * otherwise, too. */
uint8_t *ebb__pages_fragmented(const struct memory *memory, uintptr_t address);
/* The device's move; what a child of fork() still shares is made ours first. *moved: how far it got. */
enum ebb_device_result ebb__pages_move(struct memory *memory, uintptr_t target, uintptr_t source,
                                       uint64_t bytes, uint64_t *moved);
/* So many bytes of pages have gone back to the system. */
void ebb__pages_gone(struct memory *memory, uint64_t bytes);
/* False where memory is lacking; ebb__memory_fini() is due all the same. */
EBB_NODISCARD bool ebb__memory_init(struct memory *memory, struct addresses *addresses);
void ebb__memory_fini(struct memory *memory);
/* In the child of a fork: depot and spare frames stayed with the parent, the arena came along. After
 * ebb__block_forked(). */
void ebb__memory_forked(struct memory *memory);

/* Bytes that can be had without evicting. */
uint64_t ebb__pages_available(const struct memory *memory);
/* Within this part: the end of the stack of small pages; a move of pages without value, which may be made
 * anew instead; the oldest of the tail cache is taken apart (false: there is none). */
static inline uintptr_t ebb__pages_stack_top(const struct memory *memory)
{
    return memory->core->device.layout.page_stack.base + memory->page_stack_bytes;
}
enum ebb_device_result ebb__pages_move_empty(struct memory *memory, uintptr_t target,
                                             uintptr_t source, uint64_t bytes);
bool ebb__pages_strip_tail_cache(struct memory *memory);

/* gather.c */
/* Within this part: cached frames and small pages for `bytes`; force: over the budget if need be. */
bool ebb__pages_gather(struct memory *memory, uint64_t bytes, bool force);
/* Fragmented units of a frame that is about to be filled become whole, as long as there is time. */
bool ebb__pages_mend(struct memory *memory, uintptr_t frame, uint64_t bytes);
/* Bytes of pages that may still be made within the budget. */
uint64_t ebb__pages_unmade(const struct memory *memory);
/* Give spare pages back to the system until the ledger is within the budget. */
void ebb__pages_trim(struct memory *memory);

/* cached.c: cached blocks */
/* The one to take pages from; NO_BLOCK: there is none. */
uint32_t ebb__pages_choose_cached(const struct memory *memory);
/* Its pages become spare frames and small pages; false: NO_BLOCK. */
bool ebb__pages_strip_block(struct memory *memory, uint32_t index);
/* A spare block of exactly this size, off its lists, pages in place; NULL: none. */
struct block *ebb__pages_take_cached(struct memory *memory, uint64_t page_bytes);
void ebb__pages_keep_cached(struct memory *memory, struct block *block);
/* The oldest spare block, whose pages came with a fork, is emptied. */
void ebb__pages_drop_cached(struct memory *memory);
/* The pages of the oldest spare block go to the depot, its address space is free; false: none. */
bool ebb__pages_strip_cached(struct memory *memory);

/* backing.c: pages of the static placement */
/* Bytes of pages that its units lack. */
uint64_t ebb__placement_lacking(const struct memory *memory, const struct block *block);
/* Pages for what they lack; false: no room without evicting (force: memory is out). What could be
 * had stays. */
bool ebb__placement_back(struct memory *memory, struct block *block, bool force);
/* A zero page at `address`, which the program has given back itself or has no business at. */
void ebb__placement_fill(struct memory *memory, uintptr_t address);
/* Spare pages that are wanted latest, about `most_bytes` of them, and their way to the depot. */
struct cached_run ebb__placement_cached(const struct memory *memory, uint64_t most_bytes);
void ebb__placement_strip(struct memory *memory, struct cached_run run);
void ebb__placed_forked(struct memory *memory);

/* kept.c */
/* keep.c: a kept block is freed: its mapping as at first, its pages gone. */
void ebb__keep_end(struct memory *memory, struct block *block);

#endif
