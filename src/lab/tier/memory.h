/* The two memories of a plan for two tiers, made here. Fast memory is anonymous. The slow tier is a
 * file without a name, mapped and used in place. It is in a folder (tmpfs, DAX, a disk), or in
 * memory, on a NUMA node if one is named.
 *
 *     status = ebb__tier_memory_open(&memory, &operations, &plan, 4096, "/dev/shm", &error);
 *     status = ebb__tier_memory_take(&memory, block, EBB_TIER_SLOW, &error);
 *     memset(ebb__tier_place(&memory, block, EBB_TIER_SLOW), 1, bytes);
 *     ebb__tier_memory_release(&memory, block, EBB_TIER_SLOW);
 *
 * Each block has an address of its own in both, and pages only where it was taken. New pages are
 * zero. Bytes of the slow tier are allocated when a block is taken. So a disk that is full is an
 * error then, and no signal later. Not thread-safe. */
#ifndef EBB_LAB_TIER_MEMORY_H
#define EBB_LAB_TIER_MEMORY_H

#include "machine/tiers.h"
#include "plan/tiers.h"

#include <stddef.h>
#include <stdint.h>

struct ebb_tier_memory {
    unsigned char *base[EBB_TIER_COUNT];
    size_t *offset, *bytes; /* by block; 0 bytes: it lies in pages of another one */
    size_t size;
    int file;
    uint64_t slack_bytes;   /* that the file system may take beside the data */
    unsigned char *present; /* of mincore(2) */
};

/* `place` is a folder, `memory` or `memory:NODE`. Blocks of a group are adjacent, and aligned to
 * 64 bytes if their sizes are. EBB_ERR_IO if there is no such place, EBB_ERR_MEMORY. Close it in
 * any case. */
EBB_NODISCARD enum ebb_status ebb__tier_memory_open(struct ebb_tier_memory *memory,
                                                    const struct ebb_operations *operations,
                                                    const struct ebb_tier_plan *plan,
                                                    uint32_t page_bytes, const char *place,
                                                    struct ebb_error *error);
void ebb__tier_memory_close(struct ebb_tier_memory *memory);

static inline unsigned char *ebb__tier_place(const struct ebb_tier_memory *memory, uint32_t block,
                                             int tier)
{
    return memory->base[tier] + memory->offset[block];
}

/* Gives pages to a block. EBB_ERR_IO: the slow tier is full, or its file system cannot allocate. */
EBB_NODISCARD enum ebb_status ebb__tier_memory_take(struct ebb_tier_memory *memory, uint32_t block,
                                                    int tier, struct ebb_error *error);
void ebb__tier_memory_release(struct ebb_tier_memory *memory, uint32_t block, int tier);

/* Bytes that the kernel says are there: pages of fast memory, blocks of the file. Returns false if
 * it does not say. */
bool ebb__tier_memory_resident(const struct ebb_tier_memory *memory,
                               uint64_t bytes[EBB_TIER_COUNT]);

#endif
