#include "cuda/vmm_maps.h"

#include "cuda/core.h"

struct vmm_unit *ebb__vmm_units_at(struct vmm *vmm, CUdeviceptr address)
{
    uint32_t count = atomic_load_explicit(&vmm->region_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        struct vmm_region *region = &vmm->regions[i];
        if (region->units && address - region->first < region->bytes)
            return &region->units[ebb__vmm_count(address - region->first)];
    }
    return NULL;
}

CUresult ebb__vmm_hide_part(struct vmm *vmm, struct vmm_part *part)
{
    CUresult result = CUDA_SUCCESS;
    if (part->is_mapped)
        result = vmm->base.driver->cuMemUnmap(part->address, ebb__vmm_part_bytes(part));
    part->is_mapped = part->is_mapped && result != CUDA_SUCCESS;
    return result;
}

void ebb__vmm_leave_part(struct vmm *vmm, uint32_t number)
{
    struct vmm_part *part = &vmm->pages.parts[number];
    struct vmm_unit *units = ebb__vmm_units_at(vmm, part->address);
    ebb__vmm_hide_part(vmm, part);
    for (uint32_t i = 0; i < part->unit_count; i++)
        units[i].part = VMM_NO_PART;
    ebb__vmm_part_give(&vmm->pages, number);
}

uint32_t ebb__vmm_pages_of(const struct vmm_unit *units, uint32_t count,
                           uint32_t numbers[VMM_MOST_PART_UNITS])
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++)
        if (i == 0 || units[i].page != units[i - 1].page)
            numbers[found++] = units[i].page;
    return found;
}

void ebb__vmm_leave_pages(struct vmm *vmm, struct vmm_unit *units, uint32_t count)
{
    uint32_t numbers[VMM_MOST_PART_UNITS], found = ebb__vmm_pages_of(units, count, numbers);
    for (uint32_t i = 0; i < found; i++)
        ebb__vmm_page_give(&vmm->pages, numbers[i]);
    for (uint32_t i = 0; i < count; i++)
        units[i].page = VMM_NO_PAGE;
}

CUresult ebb__vmm_unmap(struct vmm *vmm, CUdeviceptr first, struct vmm_unit *units, uint32_t count)
{
    CUresult result = vmm->base.driver->cuMemUnmap(first, count * EBB_CUDA_UNIT_BYTES);
    if (result == CUDA_SUCCESS)
        ebb__vmm_leave_pages(vmm, units, count);
    return result;
}

CUresult ebb__vmm_map(struct vmm *vmm, CUdeviceptr first, struct vmm_unit *units,
                      const uint32_t *numbers, uint32_t count)
{
    const struct ebb_cuda_driver *driver = vmm->base.driver;
    CUresult result = CUDA_SUCCESS;
    uint32_t mapped = 0;
    for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        const struct vmm_page *page = &vmm->pages.pages[numbers[i]];
        result = driver->cuMemMap(first + mapped * EBB_CUDA_UNIT_BYTES,
                                  page->unit_count * EBB_CUDA_UNIT_BYTES, 0, page->handle, 0);
        mapped += result == CUDA_SUCCESS ? page->unit_count : 0;
    }
    if (result == CUDA_SUCCESS)
        result = ebb__vmm_open(&vmm->base, first, mapped * EBB_CUDA_UNIT_BYTES);
    if (result != CUDA_SUCCESS && mapped)
        driver->cuMemUnmap(first, mapped * EBB_CUDA_UNIT_BYTES);
    for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        for (uint32_t j = vmm->pages.pages[numbers[i]].unit_count; j > 0; j--)
            (units++)->page = numbers[i];
    return result;
}

void ebb__vmm_assign_part(struct vmm *vmm, CUdeviceptr first, struct vmm_unit *units,
                          uint32_t number)
{
    struct vmm_part *part = &vmm->pages.parts[number];
    part->address = first;
    for (uint32_t i = 0; i < part->unit_count; i++) {
        units[i].part = number;
        units[i].is_released = false;
    }
}

CUresult ebb__vmm_show_part(struct vmm *vmm, CUdeviceptr first, uint32_t number)
{
    const struct ebb_cuda_driver *driver = vmm->base.driver;
    struct vmm_part *part = &vmm->pages.parts[number];
    uint64_t bytes = ebb__vmm_part_bytes(part);
    CUresult result = driver->cuMemMap(first, bytes, 0, part->handle, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = ebb__vmm_open(&vmm->base, first, bytes);
    if (result != CUDA_SUCCESS)
        driver->cuMemUnmap(first, bytes);
    part->is_mapped = result == CUDA_SUCCESS;
    return result;
}

void ebb__vmm_restore_part(struct vmm *vmm, uint32_t number)
{
    struct vmm_part *part = &vmm->pages.parts[number];
    for (unsigned i = 0; i < VMM_MOST_TRIES && !part->is_mapped; i++)
        ebb__vmm_show_part(vmm, part->address, number);
}
