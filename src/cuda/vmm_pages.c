/* Pages of the device and parts of host memory, recycled. */
#include "cuda/vmm_pages.h"

#include "cuda/core.h"
#include "cuda/memory.h"

#define MOST_FILLERS 3u /* pages of a piece: each costs as much to map as a whole piece */

CUresult ebb__vmm_open(const struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes)
{
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = backing->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return backing->driver->cuMemSetAccess(first, bytes, &access, 1);
}

/* ---- pages of the device --------------------------------------------------------------------- */

static void release_page(struct vmm_pages *pages, uint32_t number)
{
    struct vmm_page *page = &pages->pages[number];
    pages->backing->driver->cuMemRelease(page->handle);
    page->next = pages->unused_page;
    pages->unused_page = number;
}

static uint32_t uncache(struct vmm_pages *pages, uint32_t unit_count)
{
    uint32_t number = pages->cached[unit_count];
    if (number)
        pages->cached[unit_count] = pages->pages[number].next;
    return number;
}

static uint32_t make_page(struct vmm_pages *pages, uint32_t unit_count)
{
    const struct ebb_cuda_backing *backing = pages->backing;
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = backing->device}};
    uint32_t number = pages->unused_page;
    if (number)
        pages->unused_page = pages->pages[number].next;
    else if (pages->page_count + 1 < CUDA_MOST_UNITS)
        number = ++pages->page_count;
    else
        return VMM_NO_PAGE;
    struct vmm_page *page = &pages->pages[number];
    *page = (struct vmm_page){.unit_count = unit_count};
    if (backing->driver->cuMemCreate(&page->handle, unit_count * EBB_CUDA_UNIT_BYTES, &properties,
                                     0) == CUDA_SUCCESS)
        return number;
    page->next = pages->unused_page;
    pages->unused_page = number;
    return VMM_NO_PAGE;
}

void ebb__vmm_page_give(struct vmm_pages *pages, uint32_t number)
{
    struct vmm_page *page = &pages->pages[number];
    page->next = pages->cached[page->unit_count];
    pages->cached[page->unit_count] = number;
}

/* Cached pages that fill the piece together, two or three of them. Nothing is cut for that: pages
 * would become ever smaller. */
static bool fill(struct vmm_pages *pages, uint32_t unit_count, unsigned most,
                 uint32_t numbers[VMM_MOST_PART_UNITS], uint32_t *count)
{
    uint32_t number = uncache(pages, unit_count);
    if (number)
        numbers[(*count)++] = number;
    for (uint32_t size = unit_count - 1; !number && most > 1 && 2 * size >= unit_count; size--) {
        uint32_t larger = uncache(pages, size);
        if (!larger)
            continue;
        numbers[(*count)++] = larger;
        if (fill(pages, unit_count - size, most - 1, numbers, count))
            return true;
        ebb__vmm_page_give(pages, numbers[--*count]);
    }
    return number != VMM_NO_PAGE;
}

/* Cached pages go, the smallest first, until `units` have gone. */
static void release_units(struct vmm_pages *pages, uint64_t units)
{
    uint64_t gone = 0;
    for (uint32_t size = 1; size <= VMM_MOST_PART_UNITS; size++)
        for (uint32_t number; gone < units && (number = uncache(pages, size)); gone += size)
            release_page(pages, number);
}

uint32_t ebb__vmm_pages_take(struct vmm_pages *pages, uint32_t unit_count,
                             uint32_t numbers[VMM_MOST_PART_UNITS])
{
    uint32_t count = 0;
    if (fill(pages, unit_count, MOST_FILLERS, numbers, &count))
        return count;
    release_units(pages, unit_count);
    numbers[0] = make_page(pages, unit_count);
    return numbers[0] ? 1 : 0;
}

void ebb__vmm_pages_trim(struct vmm_pages *pages)
{
    release_units(pages, UINT64_MAX);
}

/* ---- parts of host memory -------------------------------------------------------------------- */

static bool is_idle(struct vmm_pages *pages, struct vmm_part *part)
{
    if (part->is_read && pages->backing->driver->cuEventQuery(part->event) != CUDA_ERROR_NOT_READY)
        part->is_read = false;
    return !part->is_read;
}

/* Maps the part at its alias. Nothing remains after a failure. */
static CUresult map_alias(const struct ebb_cuda_driver *driver, struct vmm_pages *pages,
                          struct vmm_part *part)
{
    uint64_t bytes = ebb__vmm_part_bytes(part);
    CUresult result = driver->cuMemAddressReserve(&part->alias, bytes, EBB_CUDA_UNIT_BYTES, 0, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->cuMemMap(part->alias, bytes, 0, part->handle, 0);
    if (result == CUDA_SUCCESS) {
        result = ebb__vmm_open(pages->backing, part->alias, bytes);
        if (result != CUDA_SUCCESS)
            driver->cuMemUnmap(part->alias, bytes);
    }
    if (result != CUDA_SUCCESS)
        driver->cuMemAddressFree(part->alias, bytes);
    return result;
}

static CUresult create_part(struct vmm_pages *pages, struct vmm_part *part)
{
    const struct ebb_cuda_driver *driver = pages->backing->driver;
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = pages->host};
    CUresult result = driver->cuMemCreate(&part->handle, ebb__vmm_part_bytes(part), &properties, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = map_alias(driver, pages, part);
    if (result == CUDA_SUCCESS) {
        result = driver->cuEventCreate(&part->event, CU_EVENT_DISABLE_TIMING);
        if (result != CUDA_SUCCESS) {
            driver->cuMemUnmap(part->alias, ebb__vmm_part_bytes(part));
            driver->cuMemAddressFree(part->alias, ebb__vmm_part_bytes(part));
        }
    }
    if (result != CUDA_SUCCESS)
        driver->cuMemRelease(part->handle);
    return result;
}

static CUresult make_part(struct vmm_pages *pages, struct vmm_part *part, uint32_t unit_count,
                          bool is_urgent)
{
    struct cuda_away *away = &pages->backing->away;
    *part = (struct vmm_part){.unit_count = unit_count};
    if (is_urgent)
        ebb__away_force(away, ebb__vmm_part_bytes(part));
    else if (!ebb__away_take(away, ebb__vmm_part_bytes(part)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = create_part(pages, part);
    if (result != CUDA_SUCCESS)
        ebb__away_give(away, ebb__vmm_part_bytes(part));
    else
        atomic_fetch_add(&pages->backing->pinned_bytes, ebb__vmm_part_bytes(part));
    return result;
}

static void destroy_part(struct vmm_pages *pages, struct vmm_part *part)
{
    const struct ebb_cuda_driver *driver = pages->backing->driver;
    driver->cuMemUnmap(part->alias, ebb__vmm_part_bytes(part));
    driver->cuMemAddressFree(part->alias, ebb__vmm_part_bytes(part));
    driver->cuMemRelease(part->handle);
    driver->cuEventDestroy_v2(part->event);
    atomic_fetch_sub(&pages->backing->pinned_bytes, ebb__vmm_part_bytes(part));
    ebb__away_give(&pages->backing->away, ebb__vmm_part_bytes(part));
}

/* Destroys free parts of one size, `most` at most, from which no copy is on its way. */
static uint32_t destroy_free(struct vmm_pages *pages, uint32_t unit_count, uint32_t most)
{
    uint32_t *link = &pages->free[unit_count], count = 0;
    while (*link && count < most) {
        uint32_t number = *link;
        struct vmm_part *part = &pages->parts[number];
        if (!is_idle(pages, part)) {
            link = &part->next;
            continue;
        }
        *link = part->next;
        destroy_part(pages, part);
        part->next = pages->unused;
        pages->unused = number;
        count++;
    }
    return count;
}

static uint32_t new_number(struct vmm_pages *pages)
{
    uint32_t number = pages->unused;
    if (number)
        pages->unused = pages->parts[number].next;
    else if (pages->part_count + 1 < CUDA_MOST_UNITS)
        number = ++pages->part_count;
    return number;
}

static bool fits(const struct vmm_pages *pages, uint32_t unit_count)
{
    const struct cuda_away *away = &pages->backing->away;
    uint64_t pinned = atomic_load(&pages->backing->pinned_bytes), limit = ebb__away_limit(away);
    uint64_t bytes = unit_count * EBB_CUDA_UNIT_BYTES;
    return bytes <= pages->pinned_budget_bytes && pinned <= pages->pinned_budget_bytes - bytes &&
           bytes <= limit && atomic_load(&away->bytes) <= limit - bytes;
}

/* Free parts of other sizes go until a part of this size fits. */
static bool make_room(struct vmm_pages *pages, uint32_t unit_count)
{
    for (uint32_t size = VMM_MOST_PART_UNITS; size > 0; size--)
        while (!fits(pages, unit_count))
            if (size == unit_count || !destroy_free(pages, size, 1))
                break;
    return fits(pages, unit_count);
}

static uint32_t take_free(struct vmm_pages *pages, uint32_t unit_count)
{
    uint32_t *link = &pages->free[unit_count];
    for (; *link; link = &pages->parts[*link].next) {
        uint32_t number = *link;
        if (!is_idle(pages, &pages->parts[number]))
            continue;
        *link = pages->parts[number].next;
        return number;
    }
    return VMM_NO_PART;
}

uint32_t ebb__vmm_part_take(struct vmm_pages *pages, uint32_t unit_count, bool is_urgent)
{
    uint32_t number = take_free(pages, unit_count);
    if (number || (!make_room(pages, unit_count) && !is_urgent))
        return number;
    number = new_number(pages);
    if (number && make_part(pages, &pages->parts[number], unit_count, is_urgent) != CUDA_SUCCESS) {
        pages->parts[number].next = pages->unused;
        pages->unused = number;
        return VMM_NO_PART;
    }
    return number;
}

void ebb__vmm_part_give(struct vmm_pages *pages, uint32_t number)
{
    struct vmm_part *part = &pages->parts[number];
    part->address = 0;
    part->is_mapped = false;
    part->next = pages->free[part->unit_count];
    pages->free[part->unit_count] = number;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* The alias stays while the part is mapped elsewhere. */
static bool can_map_twice(struct vmm_pages *pages, const struct vmm_part *part)
{
    const struct ebb_cuda_driver *driver = pages->backing->driver;
    CUdeviceptr address;
    uint64_t bytes = ebb__vmm_part_bytes(part);
    if (driver->cuMemAddressReserve(&address, bytes, EBB_CUDA_UNIT_BYTES, 0, 0) != CUDA_SUCCESS)
        return false;
    bool is_mapped = driver->cuMemMap(address, bytes, 0, part->handle, 0) == CUDA_SUCCESS;
    bool can = is_mapped && ebb__vmm_open(pages->backing, address, bytes) == CUDA_SUCCESS;
    if (is_mapped)
        driver->cuMemUnmap(address, bytes);
    driver->cuMemAddressFree(address, bytes);
    return can;
}

/* Which kind of host memory does the driver give for mappings? */
static bool find_host(struct vmm_pages *pages)
{
    static const CUmemLocationType types[] = {CU_MEM_LOCATION_TYPE_HOST,
                                              CU_MEM_LOCATION_TYPE_HOST_NUMA};
    for (unsigned i = 0; i < sizeof types / sizeof *types; i++) {
        struct vmm_part part;
        pages->host = (CUmemLocation){.type = types[i], .id = 0};
        if (make_part(pages, &part, 1, true) != CUDA_SUCCESS)
            continue;
        bool can = can_map_twice(pages, &part);
        destroy_part(pages, &part);
        if (can)
            return true;
    }
    return false;
}

bool ebb__vmm_pages_init(struct vmm_pages *pages, struct ebb_cuda_backing *backing,
                         uint64_t pinned_budget_bytes)
{
    *pages = (struct vmm_pages){.backing = backing, .pinned_budget_bytes = pinned_budget_bytes};
    pages->pages = ebb__cuda_reserve(CUDA_MOST_UNITS * sizeof *pages->pages);
    pages->parts = ebb__cuda_reserve(CUDA_MOST_UNITS * sizeof *pages->parts);
    return pages->pages && pages->parts && find_host(pages);
}

void ebb__vmm_pages_clear(struct vmm_pages *pages)
{
    ebb__vmm_pages_trim(pages);
    for (uint32_t size = 1; size <= VMM_MOST_PART_UNITS; size++)
        destroy_free(pages, size, UINT32_MAX);
}

void ebb__vmm_pages_fini(struct vmm_pages *pages)
{
    ebb__cuda_unreserve(pages->pages, CUDA_MOST_UNITS * sizeof *pages->pages);
    ebb__cuda_unreserve(pages->parts, CUDA_MOST_UNITS * sizeof *pages->parts);
}
