/* Addresses, which use no memory: units of the arena, places in the static placement, slabs. */
#ifndef EBB_RUNTIME_ADDRESS_ADDRESS_H
#define EBB_RUNTIME_ADDRESS_ADDRESS_H

#include "runtime/block/block.h"

#define SIZE_BUCKETS 1024u

/* space.c */
struct space {
    uint64_t units_used, units_total;
    bool orphans_beyond;         /* pages may exist at addresses that no block has had */
    struct list *empty_by_units; /* SIZE_BUCKETS lists; the last is for all larger blocks */
};

/* Static placement: the part of the arena for blocks at planned addresses. */
struct placement {
    uintptr_t base;
    uint32_t units_total;
    uint32_t units_used;   /* units from this one on have never been used */
    uint32_t *first_page;  /* page of the static placement -> index of the block that starts
                              there */
    uint64_t *taken;       /* one bit per page: a block covers it */
    uint32_t *users;       /* unit -> number of blocks in it */
    uint8_t *states;       /* unit -> flags UNIT_... */
    uint64_t held_bytes;   /* bytes of pages, cached ones included, inherited ones excluded */
    uint64_t cached_bytes; /* the part of held_bytes in units without blocks */
    uint64_t load_bytes;   /* requested sizes of its blocks */
    struct list records;   /* records of the block table, free for reuse */
};

/* Facts about a slab that its block does not hold. */
struct slab_record {
    uint32_t block;
    uint32_t doublings; /* doublings of its idle time, one per use while parked */
    uint64_t arrival;   /* sequence number of its last arrival in the arena */
    /* When it was parked. If it is not parked: when it was allocated or last unparked. */
    uint64_t since_ns;
};

/* slabs.c */
struct slab_space {
    uintptr_t base;
    struct slab_record *slabs;
    uint32_t total;
    uint32_t used;     /* slabs from this one on have never been used */
    struct list empty; /* blocks without pages, free for reuse */
    uint32_t taken;    /* number of slabs in use, in any state */
    uint64_t arrivals;
    bool orphans_beyond; /* pages may exist at addresses that no slab has had */
};

/* Address space, divided into three kinds of ranges. */
struct addresses {
    struct core *core;
    struct table *table;
    struct space space;
    struct placement placement;
    struct slab_space slabs;
};

/* space.c: address space */
/* False if memory is exhausted. The caller must call ebb__address_fini() even then. */
EBB_NODISCARD bool ebb__address_init(struct addresses *addresses, struct table *table);
void ebb__address_fini(struct addresses *addresses);
/* Cuts the last `units` off the arena. Returns their address. */
uintptr_t ebb__space_cut(struct addresses *addresses, uint64_t units);
/* A block with address space for `page_bytes`, in state EMPTY and on no list. NULL: none left. */
struct block *ebb__space_take(struct addresses *addresses, uint64_t page_bytes);
void ebb__space_give(struct addresses *addresses, struct block *block);
/* A record of the block table without address space, from `list` if it has one. NULL: the table is
 * full. */
struct block *ebb__space_record(struct addresses *addresses, struct list *list);
/* Maps a zero page at `address` if a block is resident there, or the program has no valid use of
 * the address. That is behind the end of a block or in a freed one. It also happens if the block
 * was fetched and freed after the fault was reported. */
void ebb__space_fill(struct addresses *addresses, struct block *block, uintptr_t address);
/* The block whose address space holds `address`, in any state. In the static placement it finds
 * only the live block that starts in that page. NULL: none. */
struct block *ebb__space_find(const struct addresses *addresses, uintptr_t address);

/* placement.c: places in the static placement */
EBB_NODISCARD bool ebb__placement_init(struct addresses *addresses);
void ebb__placement_fini(struct addresses *addresses);
/* True if `address` lies in the static placement. No lock needed. */
bool ebb__placement_owns(const struct addresses *addresses, uintptr_t address);
struct block *ebb__placement_find(const struct addresses *addresses, uintptr_t address);
/* The block that covers the page of `address`. O(pages of the block). */
struct block *ebb__placement_covering(const struct addresses *addresses, uintptr_t address);
/* Flags of a unit of the static placement. BACKED: it has its page. INHERITED: that came with a
 * fork. ORPHANS: it may have pages of no block. */
enum { UNIT_BACKED = 1, UNIT_INHERITED = 2, UNIT_ORPHANS = 4 };
uintptr_t ebb__placement_unit_address(const struct addresses *addresses, uint32_t unit);
/* The first and last unit that a block in the static placement touches. */
uint32_t ebb__placement_first_unit(const struct addresses *addresses, const struct block *block);
uint32_t ebb__placement_last_unit(const struct addresses *addresses, const struct block *block);
/* A block of `bytes` at offset `place` in the static placement, in state EMPTY and without pages.
 * NULL: the place is taken or not aligned to `alignment`. */
struct block *ebb__placement_take(struct addresses *addresses, uint64_t place, size_t bytes,
                                  size_t alignment);
void ebb__placement_give(struct addresses *addresses, struct block *block);

/* slabs.c: addresses of slabs */
EBB_NODISCARD bool ebb__slab_init(struct addresses *addresses);
void ebb__slab_fini(struct addresses *addresses);
/* True if `address` lies in the range of all slabs. No lock needed. */
bool ebb__slab_owns(const struct addresses *addresses, uintptr_t address);
/* The slab that holds `address`, in any state. NULL: none has been there. */
struct block *ebb__slab_find(const struct addresses *addresses, uintptr_t address);
struct slab_record *ebb__slab_record_at(const struct addresses *addresses, uintptr_t address);
/* Takes a slab in state EMPTY, without pages. NULL: none left. Gives one back, without pages. */
struct block *ebb__slab_take(struct addresses *addresses);
void ebb__slab_give(struct addresses *addresses, struct block *block);

#endif
