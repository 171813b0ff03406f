/* Physical memory for vmm_host.c: pages of the device, one handle for each unit, and parts of host
 * memory of 1 to 16 units.
 *
 * Both are recycled. On an H200, a host part costs 150 to 210 us a MiB to create, and 11 to 28 us a
 * MiB to map. A page of the device costs 7 us to create, 22 us to map (docs/results/README.md).
 *
 * A part also has an address of its own, its *alias*, for copies. So it can be copied to and from
 * while it is not mapped where the program sees it.
 *
 * For the mover's thread, with the context current. Not thread-safe. */
#ifndef EBB_CUDA_VMM_PAGES_H
#define EBB_CUDA_VMM_PAGES_H

#include "cuda/backing.h"

#define VMM_MOST_PART_UNITS 16u
#define VMM_NO_PART 0u

struct vmm_part {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr alias;
    CUdeviceptr address; /* where the program sees it; 0: nowhere */
    CUevent event;       /* behind the newest copy from it */
    uint32_t unit_count;
    uint32_t next; /* free parts of its size */
    bool is_read;  /* a copy from it may be on its way */
};

struct vmm_pages {
    struct ebb_cuda_backing *backing; /* counts the pinned bytes */
    uint64_t pinned_budget_bytes;
    CUmemLocation host;
    CUmemGenericAllocationHandle *cached; /* pages of the device that are mapped nowhere */
    uint32_t cached_count;
    struct vmm_part *parts; /* from 1 */
    uint32_t part_count, unused;
    uint32_t free[VMM_MOST_PART_UNITS + 1];
};

/* False: memory is exhausted, or the driver has no host memory for mappings. */
bool ebb__vmm_pages_init(struct vmm_pages *pages, struct ebb_cuda_backing *backing,
                         uint64_t pinned_budget_bytes);
/* Without driver calls: ebb__vmm_pages_clear() comes before. */
void ebb__vmm_pages_fini(struct vmm_pages *pages);
/* Returns to the driver what is mapped nowhere: pages, and parts. */
void ebb__vmm_pages_clear(struct vmm_pages *pages);

/* `count` pages of the device, all or none. */
CUresult ebb__vmm_pages_take(struct vmm_pages *pages, CUmemGenericAllocationHandle *handles,
                             uint32_t count);
void ebb__vmm_pages_give(struct vmm_pages *pages, CUmemGenericAllocationHandle handle);
/* Returns all cached pages to the driver. */
void ebb__vmm_pages_trim(struct vmm_pages *pages);

/* A part from which no copy is on its way. VMM_NO_PART: the budget of pinned memory is full, or the
 * driver refuses. */
uint32_t ebb__vmm_part_take(struct vmm_pages *pages, uint32_t unit_count);
void ebb__vmm_part_give(struct vmm_pages *pages, uint32_t part);

/* Maps a handle at an address. The device may read and write there afterwards: ebb__vmm_open(). */
CUresult ebb__vmm_open(const struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes);

#endif
