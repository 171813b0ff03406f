/* Small blocks, below 1 MiB, in slabs of one unit.
 *
 * A slab has slots of one size class: multiples of 512 bytes up to 4 KiB, then four for each
 * doubling. A free slot keeps its entry in the table: `uses` tells what must be over before the
 * slot is used again. Taking and giving a slot is O(1). */
#ifndef EBB_CUDA_SLABS_H
#define EBB_CUDA_SLABS_H

#include "cuda/streams.h"
#include "cuda/table.h"

#define CUDA_SMALL_BYTES ((uint64_t)1 << 20) /* blocks from here on take whole units */
#define CUDA_SLAB_CLASSES 40u
#define CUDA_MOST_SLABS 65536u
#define CUDA_NO_SLAB UINT32_MAX
#define CUDA_SLOT_STEP 512u /* bytes of the smallest slot */
#define CUDA_SLOTS_MOST ((uint32_t)(EBB_CUDA_UNIT_BYTES / CUDA_SLOT_STEP))

struct cuda_slab {
    uint32_t unit;
    struct cuda_passages before; /* work that used the unit earlier */
    uint32_t class;
    CUdeviceptr address;
    uint64_t inverse; /* of a slot's bytes, times 2^42: exact for offsets below 2 MiB */
    uint32_t used_slots, live_count;
    uint32_t free_head;      /* entries of free slots, linked by `older` */
    uint32_t next, previous; /* slabs of the class with a free slot; CUDA_NO_SLAB ends the list */
    uint32_t arrival;        /* of its pages; 0: over */
    bool is_listed;
};

struct cuda_slabs {
    struct cuda_table *table;
    struct cuda_streams *streams;
    struct cuda_slab *slabs;
    uint32_t *slots; /* CUDA_SLOTS_MOST for each slab: the entries */
    uint32_t slab_count, unused_slab;
    uint32_t open[CUDA_SLAB_CLASSES]; /* heads of the lists */
    uint64_t live_bytes;              /* by size class */
};

bool ebb__slabs_init(struct cuda_slabs *slabs, struct cuda_table *table,
                     struct cuda_streams *streams);
void ebb__slabs_fini(struct cuda_slabs *slabs);

/* A block of `bytes` for the stream (CUDA_NO_STREAM: unknown). CUDA_NO_BLOCK: a slab is missing, or
 * the table is full. Its `before` is set. */
uint32_t ebb__slabs_take(struct cuda_slabs *slabs, uint64_t bytes, uint32_t stream);
/* Makes `unit`, whose pages have that arrival, a slab for blocks of `bytes`. False: too many. */
bool ebb__slabs_add(struct cuda_slabs *slabs, uint64_t bytes, uint32_t unit, uint32_t arrival,
                    const struct cuda_passages *before);
/* The block becomes a free slot. What is in its `uses` must be over before others use it. If the
 * slab is empty, it may be a slab no more: *unit is then its unit, and *before what must be over.
 * Otherwise *unit is CUDA_NO_UNIT. */
void ebb__slabs_give(struct cuda_slabs *slabs, uint32_t block, uint32_t *unit,
                     struct cuda_passages *before);
/* The live block at an address in slab `number`. CUDA_NO_BLOCK: none. */
static inline uint32_t ebb__slabs_find(const struct cuda_slabs *slabs, uint32_t number,
                                       CUdeviceptr address)
{
    const struct cuda_slab *slab = &slabs->slabs[number];
    uint32_t slot = (uint32_t)((address - slab->address) * slab->inverse >> 42);
    if (slot >= slab->used_slots)
        return CUDA_NO_BLOCK;
    uint32_t block = slabs->slots[(size_t)number * CUDA_SLOTS_MOST + slot];
    return slabs->table->blocks[block].state == CUDA_BLOCK_FREE ? CUDA_NO_BLOCK : block;
}
/* What a block of `bytes` takes. */
uint64_t ebb__slabs_slot_bytes(uint64_t bytes);

#endif
