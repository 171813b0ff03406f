/* The table: all blocks, which addresses are whose, and the order of last uses.
 *
 * Addresses are in *regions*, each reserved at once from the backing, and are counted in units of 2
 * MiB over all regions. A unit belongs to nobody, to a block, or to a slab of small blocks. */
#ifndef EBB_CUDA_TABLE_H
#define EBB_CUDA_TABLE_H

#include "cuda/backing.h"
#include "cuda/core.h"

#include <stdatomic.h>

#define CUDA_NO_UNIT UINT32_MAX
#define CUDA_MOST_REGIONS 1024u
#define CUDA_PLACE_SHIFT 32 /* an address has 48 bits */
#define CUDA_PLACES ((uint64_t)1 << 16)
#define CUDA_SLAB_OWNER 0x80000000u /* bit: the owner of the unit is the slab of that number */

struct cuda_region {
    CUdeviceptr first;
    uint64_t bytes;
    uint32_t first_unit;
};

struct cuda_table {
    struct cuda_block *blocks;
    uint32_t used, unused_head; /* entries ever used, and the head of those that are free again */
    _Atomic uint32_t *owners;   /* of each unit: 0, a block, or a slab */
    struct cuda_region regions[CUDA_MOST_REGIONS];
    _Atomic uint32_t region_count; /* those before it are complete, and do not change */
    uint32_t unit_count;
    /* For each 4 GiB of the address space, the two regions there: their numbers from 1. */
    _Atomic uint32_t *places;
    uint32_t newest, oldest; /* resident blocks by last use */
};

/* False: memory is exhausted. */
bool ebb__table_init(struct cuda_table *table);
void ebb__table_fini(struct cuda_table *table);

/* A new region. Its first unit, or CUDA_NO_UNIT: too many. */
uint32_t ebb__table_add(struct cuda_table *table, CUdeviceptr first, uint64_t bytes);
/* The unit of an address, CUDA_NO_UNIT: of no region. Lock-free, may run beside
 * ebb__table_add(). */
static inline uint32_t ebb__table_unit(const struct cuda_table *table, CUdeviceptr address)
{
    if (address >> CUDA_PLACE_SHIFT >= CUDA_PLACES)
        return CUDA_NO_UNIT;
    uint32_t both =
        atomic_load_explicit(&table->places[address >> CUDA_PLACE_SHIFT], memory_order_acquire);
    for (; both; both >>= 16) {
        const struct cuda_region *region = &table->regions[(both & 0xffff) - 1];
        if (address - region->first < region->bytes)
            return region->first_unit + (uint32_t)((address - region->first) / EBB_CUDA_UNIT_BYTES);
    }
    return CUDA_NO_UNIT;
}
/* Lock-free, too. */
CUdeviceptr ebb__table_address(const struct cuda_table *table, uint32_t unit);
/* The lowest start of a region above the address. UINT64_MAX: there is none. */
CUdeviceptr ebb__table_next(const struct cuda_table *table, CUdeviceptr address);

/* An unused entry, all zeros. CUDA_NO_BLOCK: too many blocks. */
uint32_t ebb__table_take(struct cuda_table *table);
/* The entry is unused from now on. No work may hold it: it would hold the next block. */
void ebb__table_give(struct cuda_table *table, uint32_t block);
void ebb__table_own(struct cuda_table *table, uint32_t first_unit, uint32_t count, uint32_t owner);

/* The list of last uses. A block is in it while it is resident and not small. */
void ebb__table_renew(struct cuda_table *table, uint32_t block); /* adds it, or makes it newest */
static inline void ebb__table_use(struct cuda_table *table, uint32_t block)
{
    if (table->newest != block)
        ebb__table_renew(table, block);
}
void ebb__table_leave(struct cuda_table *table, uint32_t block);

#endif
