/* Addresses, which cost nothing: units of the arena, places in the static placement, slabs. */
#ifndef EBB_RUNTIME_ADDRESS_ADDRESS_H
#define EBB_RUNTIME_ADDRESS_ADDRESS_H

#include "runtime/block/block.h"

#define SIZE_BUCKETS 1024u

/* space.c */
struct space {
    uint64_t units_used, units_total;
    bool orphans_beyond;         /* pages may be where no block has been yet */
    struct list *empty_by_units; /* SIZE_BUCKETS lists, the last for everything larger */
};

/* Static placement: the part of the arena for blocks at planned addresses. */
struct placement {
    uintptr_t base;
    uint32_t units_total;
    uint32_t units_used;   /* none from here on has ever been used */
    uint32_t *first_page;  /* page of the static placement -> the block that starts there */
    uint64_t *taken;       /* a bit a page: a block covers it */
    uint32_t *users;       /* unit -> blocks in it */
    uint8_t *states;       /* unit -> flags of address/placement.c */
    uint64_t held_bytes;   /* pages, with the cached ones; none that came with a fork */
    uint64_t cached_bytes; /* the part of it in units without blocks */
    uint64_t load_bytes;   /* of blocks as asked for */
    struct list records;   /* of the block table, to be used again */
};

/* What is known of a slab beside its block. */
struct slab_record {
    uint32_t block;
    uint32_t doublings; /* of the time that it is left alone, having been used again so often */
    uint64_t arrival;   /* number of its last arrival in the arena */
    uint64_t since_ns;  /* while parked: since when. Else: when it was allocated or unparked last */
};

/* slabs.c */
struct slab_space {
    uintptr_t base;
    struct slab_record *slabs;
    uint32_t total;
    uint32_t used;     /* none from here on has ever been used */
    struct list empty; /* blocks without pages, to be used again */
    uint32_t taken;    /* slabs in use, wherever they are */
    uint64_t arrivals;
    bool orphans_beyond; /* pages may be where no slab has been yet */
};

/* Address space, in three kinds of runs. */
struct addresses {
    struct core *core;
    struct table *table;
    struct space space;
    struct placement placement;
    struct slab_space slabs;
};

/* space.c: address space */
/* False where memory is lacking; ebb__address_fini() is due all the same. */
EBB_NODISCARD bool ebb__address_init(struct addresses *addresses, struct table *table);
void ebb__address_fini(struct addresses *addresses);
/* The last `units` of the arena that are left become a part of their own; its address. */
uintptr_t ebb__space_cut(struct addresses *addresses, uint64_t units);
/* A block with address space for `page_bytes`, in state EMPTY and on no list; NULL: none left. */
struct block *ebb__space_take(struct addresses *addresses, uint64_t page_bytes);
void ebb__space_give(struct addresses *addresses, struct block *block);
/* A block of the table, off `list` where one is there, without address space; NULL: it is full. */
struct block *ebb__space_record(struct addresses *addresses, struct list *list);
/* A zero page at `address`, where a block is resident or the program has no business: behind the end
 * of a block, in a freed one, or because the fault was reported before the block came back and is
 * looked at after it was freed. */
void ebb__space_fill(struct addresses *addresses, struct block *block, uintptr_t address);
/* The block whose address space holds `address`, in any state; in the pool only the live block that
 * starts in that page. NULL: none. */
struct block *ebb__space_find(const struct addresses *addresses, uintptr_t address);

/* placement.c: places in the pool */
EBB_NODISCARD bool ebb__placement_init(struct addresses *addresses);
void ebb__placement_fini(struct addresses *addresses);
/* True where `address` lies in the pool. No lock needed. */
bool ebb__placement_owns(const struct addresses *addresses, uintptr_t address);
struct block *ebb__placement_find(const struct addresses *addresses, uintptr_t address);
/* The block that has the page of `address`; O(pages of the block). */
struct block *ebb__placement_covering(const struct addresses *addresses, uintptr_t address);
/* Flags of a unit of the pool: it has its page, which came with a fork, or may have one that is nobody's. */
enum { UNIT_BACKED = 1, UNIT_INHERITED = 2, UNIT_ORPHANS = 4 };
uintptr_t ebb__placement_unit_address(const struct addresses *addresses, uint32_t unit);
/* The units that a block at a planned address touches: from the first to the last. */
uint32_t ebb__placement_first_unit(const struct addresses *addresses, const struct block *block);
uint32_t ebb__placement_last_unit(const struct addresses *addresses, const struct block *block);
/* A block of `bytes` at `place` bytes into the pool, in state EMPTY, its pages still to be had; NULL: the
 * place is taken, or not aligned so. */
struct block *ebb__placement_take(struct addresses *addresses, uint64_t place, size_t bytes,
                                  size_t alignment);
void ebb__placement_give(struct addresses *addresses, struct block *block);

/* slabs.c: addresses of slabs */
EBB_NODISCARD bool ebb__slab_init(struct addresses *addresses);
void ebb__slab_fini(struct addresses *addresses);
/* True where `address` lies in a slab, or where one may come to be. No lock needed. */
bool ebb__slab_owns(const struct addresses *addresses, uintptr_t address);
/* The slab that holds `address`, in any state; NULL: none has been there. */
struct block *ebb__slab_find(const struct addresses *addresses, uintptr_t address);
struct slab_record *ebb__slab_record_at(const struct addresses *addresses, uintptr_t address);
/* A slab in state EMPTY, its pages still to be had; NULL: none left. And back, without pages. */
struct block *ebb__slab_take(struct addresses *addresses);
void ebb__slab_give(struct addresses *addresses, struct block *block);

#endif
