/* Physical memory for vmm_host.c: pages of the device, and parts of host memory. Both have 1 to 16
 * units and one handle each.
 *
 * Both are recycled. On an H200, a host part costs 150 to 210 us a MiB to create, and 11 to 28 us a
 * MiB to map. A page of the device costs 7 to 13 us to create, and 22 to 33 us to map, whatever its
 * size (docs/results/README.md).
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
#define VMM_NO_PAGE 0u

struct vmm_page { /* of the device */
    CUmemGenericAllocationHandle handle;
    uint32_t unit_count;
    uint32_t next; /* cached pages of its size, or unused numbers */
};

struct vmm_part {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr alias;
    CUdeviceptr address; /* whose bytes it has; 0: nobody's */
    bool is_mapped;      /* at the address */
    CUevent event;       /* behind the newest copy from it */
    uint32_t unit_count;
    uint32_t next; /* free parts of its size */
    bool is_read;  /* a copy from it may be on its way */
};

static inline uint64_t ebb__vmm_part_bytes(const struct vmm_part *part)
{
    return part->unit_count * EBB_CUDA_UNIT_BYTES;
}

struct vmm_pages {
    struct ebb_cuda_backing *backing; /* counts the pinned bytes */
    uint64_t pinned_budget_bytes;
    CUmemLocation host;
    struct vmm_page *pages; /* from 1 */
    uint32_t page_count, unused_page;
    uint32_t cached[VMM_MOST_PART_UNITS + 1]; /* by size: pages that are mapped nowhere */
    struct vmm_part *parts;                   /* from 1 */
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

/* Pages of the device with `unit_count` units in all, 1 to 16. Returns their number, 0: the driver
 * has none. Cached ones come first: one of that size, or two or three. To make a page takes up to a
 * millisecond, since the driver clears it. To map another one takes 0.03. The cache shrinks by what
 * is taken at least, so that nothing is held beside what the caller counts. */
uint32_t ebb__vmm_pages_take(struct vmm_pages *pages, uint32_t unit_count,
                             uint32_t numbers[VMM_MOST_PART_UNITS]);
/* A page that is mapped nowhere any more. */
void ebb__vmm_page_give(struct vmm_pages *pages, uint32_t page);
/* Returns all cached pages to the driver. */
void ebb__vmm_pages_trim(struct vmm_pages *pages);

/* A part from which no copy is on its way. VMM_NO_PART: the budget of pinned memory is full, if it
 * is not urgent, or the driver refuses. */
uint32_t ebb__vmm_part_take(struct vmm_pages *pages, uint32_t unit_count, bool is_urgent);
void ebb__vmm_part_give(struct vmm_pages *pages, uint32_t part);

/* Maps a handle at an address. The device may read and write there afterwards: ebb__vmm_open(). */
CUresult ebb__vmm_open(const struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes);

#endif
