/* What is mapped at the addresses of the backings of vmm_host.c.
 *
 * Each unit has a page of the device, or a part of host memory has its bytes, or nothing. For the
 * mover's thread, except ebb__vmm_units_at(). */
#ifndef EBB_CUDA_VMM_MAPS_H
#define EBB_CUDA_VMM_MAPS_H

#include "cuda/vmm_pages.h"

#define VMM_MOST_REGIONS 1024u
#define VMM_MOST_TRIES 8u /* to map again what was there: without it, an access would fail */

struct vmm_unit {
    uint32_t page;    /* of the device, mapped here; 0: none */
    uint32_t part;    /* that has the bytes; during an eviction, its target, in the first unit */
    bool is_released; /* its bytes in the part are dead */
};

struct vmm_region {
    CUdeviceptr first;
    uint64_t bytes;
    struct vmm_unit *units;
};

struct vmm {
    struct ebb_cuda_backing base;
    struct vmm_pages pages;
    struct vmm_region regions[VMM_MOST_REGIONS];
    _Atomic uint32_t region_count; /* grows only; released ones have no units */
    uint32_t live_regions;
};

static inline uint32_t ebb__vmm_count(uint64_t bytes)
{
    return (uint32_t)(bytes / EBB_CUDA_UNIT_BYTES);
}
/* Thread-safe. NULL: the address is in no region. */
struct vmm_unit *ebb__vmm_units_at(struct vmm *vmm, CUdeviceptr address);

/* The pages of a piece of a block. Returns their number. */
uint32_t ebb__vmm_pages_of(const struct vmm_unit *units, uint32_t count,
                           uint32_t numbers[VMM_MOST_PART_UNITS]);
/* Maps pages of the device one behind the other. After a failure none is mapped. */
CUresult ebb__vmm_map(struct vmm *vmm, CUdeviceptr first, struct vmm_unit *units,
                      const uint32_t *numbers, uint32_t count);
CUresult ebb__vmm_unmap(struct vmm *vmm, CUdeviceptr first, struct vmm_unit *units, uint32_t count);
/* The pages of these units have been unmapped: they are cached. */
void ebb__vmm_leave_pages(struct vmm *vmm, struct vmm_unit *units, uint32_t count);

/* The part has the bytes of this range from now on. */
void ebb__vmm_assign_part(struct vmm *vmm, CUdeviceptr first, struct vmm_unit *units,
                          uint32_t number);
/* Maps it where its bytes belong, and unmaps it there. */
CUresult ebb__vmm_show_part(struct vmm *vmm, CUdeviceptr first, uint32_t number);
CUresult ebb__vmm_hide_part(struct vmm *vmm, struct vmm_part *part);
/* What was there before a move that failed. */
void ebb__vmm_restore_part(struct vmm *vmm, uint32_t number);
/* Nobody needs its bytes any more. */
void ebb__vmm_leave_part(struct vmm *vmm, uint32_t number);

#endif
