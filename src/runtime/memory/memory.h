/* Memory: the pages that the budget counts, in blocks and without one. */
#ifndef EBB_RUNTIME_MEMORY_MEMORY_H
#define EBB_RUNTIME_MEMORY_MEMORY_H

#include "runtime/address/address.h"

/* Neighbouring units of the pool with spare pages; 0 units: none. */
struct cached_run {
    uint32_t unit, units;
    uint32_t distance; /* clock positions until one is wanted at the latest; UINT32_MAX: never */
};

/* Spare units [first, behind) of staging. */
struct frame_run {
    uint64_t first, behind;
    bool is_fragmented; /* all of them, or none */
};

/* What a block that ends in small pages has left behind: kept for the next one of its size. */
struct tail_cache_entry {
    uintptr_t address;
    uint64_t bytes;
};

/* frames.c */
struct frames {
    uintptr_t base;
    uint8_t *states;     /* of each unit of staging */
    uint8_t *fragmented; /* likewise: is it pieced together from small pages? */
    uint64_t units_total;
    uint64_t window; /* no unit from here on is in use */
    uint64_t cursor;
    struct frame_run *runs; /* all spare ones; no two of a kind touch. In no order */
    uint32_t run_count;
    uint64_t cached_bytes;
    uint64_t fragmented_bytes;           /* of those */
    struct tail_cache_entry *tail_cache; /* oldest first */
    uint32_t tail_cache_count;
    uint64_t tail_cache_bytes;
};

/* pages.c */
struct memory {
    struct frames frames;
    uint64_t page_stack_bytes;
    uint8_t *fragmented; /* by unit of the arena */
    int64_t exchange_ns; /* time that may be spent on exchanging pages with the system */
    uint64_t exchange_since_ns;
    struct list cached_by_size[SIZE_BUCKETS];
    struct list cached_by_age; /* oldest first */
    uint64_t cached_bytes;
    uint64_t owed_bytes; /* to be given back for another process */
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
/* Frames that have been taken are spare, with their pages; whole units. */
void ebb__frames_keep(struct frames *frames, uintptr_t address, uint64_t bytes);
/* Spare frames with pages for the whole units of `bytes`, and one without for the rest, are taken; 0:
 * no such run. Pieced ones only where there are not enough others. */
uintptr_t ebb__frames_claim(struct frames *frames, uint64_t bytes);
/* Frames that have been taken are kept with all their pages, small ones, too, for a block of exactly
 * this size; false: there is no room to remember them. */
EBB_NODISCARD bool ebb__tail_cache_keep(struct frames *frames, uintptr_t address, uint64_t bytes);
/* What has been kept for a block of `bytes`, the newest, is taken; 0: nothing. */
uintptr_t ebb__tail_cache_claim(struct frames *frames, uint64_t bytes);
/* The oldest of all that is kept for a size is taken; 0 bytes: there is none. */
struct tail_cache_entry ebb__tail_cache_take_oldest(struct frames *frames);
/* Spare frames, `most_bytes` (whole units) or as many as lie together, are free, the pages to be taken
 * away by the caller. There must be some. pieced: the kind to take where there is any of it. */
uintptr_t ebb__frames_spend(struct frames *frames, uint64_t most_bytes, bool fragmented,
                            uint64_t *bytes);

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
void ebb__pages_give_frame(struct ebb_runtime *runtime, uintptr_t frame, uint64_t bytes);
/* Is the unit at `address`, in the arena or in staging, pieced? A hint: pages may come to be small
 * otherwise, too. */
uint8_t *ebb__pages_fragmented(const struct ebb_runtime *runtime, uintptr_t address);
/* The device's move; what a child of fork() still shares is made ours first. *moved: how far it got. */
enum ebb_device_result ebb__pages_move(struct ebb_runtime *runtime, uintptr_t target,
                                       uintptr_t source, uint64_t bytes, uint64_t *moved);
/* So many bytes of pages have gone back to the system. */
void ebb__pages_gone(struct ebb_runtime *runtime, uint64_t bytes);
EBB_NODISCARD bool ebb__pages_init(struct ebb_runtime *runtime);
void ebb__pages_fini(struct ebb_runtime *runtime);

/* Bytes that can be had without evicting. */
uint64_t ebb__pages_available(const struct ebb_runtime *runtime);
/* Give spare pages back to the system until the ledger is within the budget. */
void ebb__pages_trim(struct ebb_runtime *runtime);

/* cached.c: spare blocks */
/* The one to take pages from; NO_BLOCK: there is none. */
uint32_t ebb__pages_choose_cached(const struct ebb_runtime *runtime);
/* Its pages become spare frames and small pages; false: NO_BLOCK. */
bool ebb__pages_strip_block(struct ebb_runtime *runtime, uint32_t index);
/* A spare block of exactly this size, off its lists, pages in place; NULL: none. */
struct block *ebb__pages_take_cached(struct ebb_runtime *runtime, uint64_t page_bytes);
void ebb__pages_keep_cached(struct ebb_runtime *runtime, struct block *block);
/* The oldest spare block, whose pages came with a fork, is emptied. */
void ebb__pages_drop_cached(struct ebb_runtime *runtime);
/* The pages of the oldest spare block go to the depot, its address space is free; false: none. */
bool ebb__pages_strip_cached(struct ebb_runtime *runtime);

/* backing.c: pages of the pool */
/* Bytes of pages that its units lack. */
uint64_t ebb__placement_lacking(const struct ebb_runtime *runtime, const struct block *block);
/* Pages for what they lack; false: no room without evicting (force: memory is out). What could be
 * had stays. */
bool ebb__placement_back(struct ebb_runtime *runtime, struct block *block, bool force);
/* A zero page at `address`, which the program has given back itself or has no business at. */
void ebb__placement_fill(struct ebb_runtime *runtime, uintptr_t address);
/* Spare pages that are wanted latest, about `most_bytes` of them, and their way to the depot. */
struct cached_run ebb__placement_cached(const struct ebb_runtime *runtime, uint64_t most_bytes);
void ebb__placement_strip(struct ebb_runtime *runtime, struct cached_run run);
void ebb__placement_after_fork_child(struct ebb_runtime *runtime);

/* kept.c */
/* keep.c: a kept block is freed: its mapping as at first, its pages gone. */
void ebb__keep_end(struct ebb_runtime *runtime, struct block *block);

#endif
