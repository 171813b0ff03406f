/* Virtual memory management: a block that leaves the device keeps its address, where host memory is
 * mapped instead.
 *
 * A block leaves by a copy to a part of host memory, at the part's alias. When that is over, the
 * part is mapped in place of the pages. An access that nobody announced then goes over the bus. A
 * block comes the other way round: its pages are mapped first, then copied to. Copies run on both
 * lanes at once, at the full rate of the bus.
 *
 * An access by a kernel during a move may find no page, or write what is then lost. There are two
 * kinds of this backing. EBB_CUDA_VMM_HOST moves only while the device is quiet (quiet.h).
 * EBB_CUDA_VMM_TRUSTING relies on kernels to use what they name, and nothing else.
 *
 * A handle must be mapped whole, and unmapped whole. So a part moves whole, and pages of the device
 * are one unit each: the pool cuts ranges anywhere. */
#include "cuda/vmm_pages.h"

#include "cuda/core.h"
#include "cuda/memory.h"

#define MOST_REGIONS 1024u
#define MOST_TRIES 8u /* to map again what was there: without it, an access would fail */

struct vmm_unit {
    CUmemGenericAllocationHandle page; /* 0: none of the device is mapped here */
    uint32_t part;                     /* that is mapped here; during an eviction, its target */
    bool is_released;                  /* its bytes in the part are dead */
};

struct vmm_region {
    CUdeviceptr first;
    uint64_t bytes;
    struct vmm_unit *units;
};

struct vmm {
    struct ebb_cuda_backing base;
    struct vmm_pages pages;
    struct vmm_region regions[MOST_REGIONS];
    _Atomic uint32_t region_count; /* grows only; released ones have no units */
    uint32_t live_regions;
};

static uint32_t count_of(uint64_t bytes)
{
    return (uint32_t)(bytes / EBB_CUDA_UNIT_BYTES);
}

static size_t units_bytes(uint64_t bytes)
{
    return count_of(bytes) * sizeof(struct vmm_unit);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static struct vmm_unit *units_at(struct vmm *vmm, CUdeviceptr address)
{
    uint32_t count = atomic_load_explicit(&vmm->region_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        struct vmm_region *region = &vmm->regions[i];
        if (region->units && address - region->first < region->bytes)
            return &region->units[count_of(address - region->first)];
    }
    return NULL;
}

static CUresult vmm_reserve(struct ebb_cuda_backing *backing, uint64_t bytes, CUdeviceptr *first)
{
    struct vmm *vmm = (struct vmm *)backing;
    uint32_t count = atomic_load(&vmm->region_count);
    if (count == MOST_REGIONS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct vmm_unit *units = ebb__cuda_reserve(units_bytes(bytes));
    if (!units)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = backing->driver->cuMemAddressReserve(first, bytes, EBB_CUDA_UNIT_BYTES, 0, 0);
    if (result != CUDA_SUCCESS) {
        ebb__cuda_unreserve(units, units_bytes(bytes));
        return result;
    }
    vmm->regions[count] = (struct vmm_region){*first, bytes, units};
    vmm->live_regions++;
    atomic_store_explicit(&vmm->region_count, count + 1, memory_order_release);
    return CUDA_SUCCESS;
}

static void unmap_part(struct vmm *vmm, uint32_t number)
{
    struct vmm_part *part = &vmm->pages.parts[number];
    struct vmm_unit *units = units_at(vmm, part->address);
    vmm->base.driver->cuMemUnmap(part->address, part->unit_count * EBB_CUDA_UNIT_BYTES);
    for (uint32_t i = 0; i < part->unit_count; i++)
        units[i].part = VMM_NO_PART;
    ebb__vmm_part_give(&vmm->pages, number);
}

static void unmap_pages(struct vmm *vmm, CUdeviceptr first, struct vmm_unit *units, uint32_t count)
{
    vmm->base.driver->cuMemUnmap(first, count * EBB_CUDA_UNIT_BYTES);
    for (uint32_t i = 0; i < count; i++) {
        ebb__vmm_pages_give(&vmm->pages, units[i].page);
        units[i].page = 0;
    }
}

/* The mover has stopped. With the last region all physical memory goes. */
static void vmm_release(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes)
{
    struct vmm *vmm = (struct vmm *)backing;
    struct vmm_unit *units = units_at(vmm, first);
    for (uint32_t i = 0; i < count_of(bytes); i++) {
        CUdeviceptr address = first + i * EBB_CUDA_UNIT_BYTES;
        if (units[i].page)
            unmap_pages(vmm, address, &units[i], 1);
        struct vmm_part *part = &vmm->pages.parts[units[i].part];
        if (units[i].part && part->address == address)
            unmap_part(vmm, units[i].part);
        else if (units[i].part && !part->address) /* of an eviction that has not ended */
            ebb__vmm_part_give(&vmm->pages, units[i].part);
    }
    backing->driver->cuMemAddressFree(first, bytes);
    for (uint32_t i = 0; i < atomic_load(&vmm->region_count); i++) {
        struct vmm_region *region = &vmm->regions[i];
        if (region->units == units) {
            ebb__cuda_unreserve(units, units_bytes(bytes));
            region->units = NULL;
        }
    }
    if (--vmm->live_regions == 0)
        ebb__vmm_pages_clear(&vmm->pages);
}

/* ---- mappings -------------------------------------------------------------------------------- */

/* Maps pages of the device. Nothing is mapped after a failure, and the pages are cached. */
static CUresult map_pages(struct vmm *vmm, CUdeviceptr first, struct vmm_unit *units,
                          const CUmemGenericAllocationHandle *pages, uint32_t count)
{
    const struct ebb_cuda_driver *driver = vmm->base.driver;
    CUresult result = CUDA_SUCCESS;
    uint32_t mapped = 0;
    for (; mapped < count && result == CUDA_SUCCESS; mapped += result == CUDA_SUCCESS)
        result = driver->cuMemMap(first + mapped * EBB_CUDA_UNIT_BYTES, EBB_CUDA_UNIT_BYTES, 0,
                                  pages[mapped], 0);
    if (result == CUDA_SUCCESS)
        result = ebb__vmm_open(&vmm->base, first, count * EBB_CUDA_UNIT_BYTES);
    if (result != CUDA_SUCCESS && mapped)
        driver->cuMemUnmap(first, mapped * EBB_CUDA_UNIT_BYTES);
    for (uint32_t i = 0; i < count; i++) {
        if (result == CUDA_SUCCESS)
            units[i].page = pages[i];
        else
            ebb__vmm_pages_give(&vmm->pages, pages[i]);
    }
    return result;
}

static CUresult map_part(struct vmm *vmm, CUdeviceptr first, struct vmm_unit *units,
                         uint32_t number)
{
    const struct ebb_cuda_driver *driver = vmm->base.driver;
    struct vmm_part *part = &vmm->pages.parts[number];
    uint64_t bytes = part->unit_count * EBB_CUDA_UNIT_BYTES;
    CUresult result = driver->cuMemMap(first, bytes, 0, part->handle, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = ebb__vmm_open(&vmm->base, first, bytes);
    if (result != CUDA_SUCCESS) {
        driver->cuMemUnmap(first, bytes);
        return result;
    }
    part->address = first;
    for (uint32_t i = 0; i < part->unit_count; i++) {
        units[i].part = number;
        units[i].is_released = false;
    }
    return CUDA_SUCCESS;
}

static void restore_part(struct vmm *vmm, CUdeviceptr first, struct vmm_unit *units,
                         uint32_t number)
{
    for (unsigned i = 0; i < MOST_TRIES; i++)
        if (map_part(vmm, first, units, number) == CUDA_SUCCESS)
            return;
}

/* ---- to the device --------------------------------------------------------------------------- */

/* How many units from `first` on move at once: as a part, or as units where nothing is mapped. */
static uint64_t vmm_piece(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes)
{
    struct vmm *vmm = (struct vmm *)backing;
    const struct vmm_unit *units = units_at(vmm, first);
    uint32_t count = count_of(bytes), same;
    for (same = 1; same < count && same < VMM_MOST_PART_UNITS; same++)
        if (!units[same].page != !units[0].page || units[same].part != units[0].part)
            break;
    return same * EBB_CUDA_UNIT_BYTES;
}

/* May the whole part go if these units of it come to the device? */
static bool is_movable(struct vmm *vmm, CUdeviceptr first, uint32_t count, uint32_t number)
{
    const struct vmm_part *part = &vmm->pages.parts[number];
    const struct vmm_unit *units = units_at(vmm, part->address);
    for (uint32_t i = 0; i < part->unit_count; i++) {
        CUdeviceptr address = part->address + i * EBB_CUDA_UNIT_BYTES;
        if (address - first >= count * EBB_CUDA_UNIT_BYTES && !units[i].is_released)
            return false;
    }
    return true;
}

static CUresult copy_back(struct vmm *vmm, CUdeviceptr first, uint32_t count, struct vmm_part *part,
                          CUdeviceptr address, CUstream lane)
{
    const struct ebb_cuda_driver *driver = vmm->base.driver;
    CUresult result = driver->cuMemcpyAsync(first, part->alias + (first - address),
                                            count * EBB_CUDA_UNIT_BYTES, lane);
    if (result == CUDA_SUCCESS) {
        part->is_read = true;
        result = driver->cuEventRecord(part->event, lane);
    }
    if (result != CUDA_SUCCESS)
        driver->cuStreamSynchronize(lane); /* the pages are not to be written to any more */
    return result;
}

/* From host memory. An access in between finds no page, or one without its contents. */
static CUresult bring(struct vmm *vmm, CUdeviceptr first, struct vmm_unit *units, uint32_t count,
                      CUstream lane)
{
    CUmemGenericAllocationHandle pages[VMM_MOST_PART_UNITS];
    uint32_t number = units[0].part;
    struct vmm_part *part = &vmm->pages.parts[number];
    CUdeviceptr address = part->address;
    if (!is_movable(vmm, first, count, number))
        return CUDA_ERROR_NOT_PERMITTED; /* other units of the part are in use */
    CUresult result = ebb__vmm_pages_take(&vmm->pages, pages, count);
    if (result != CUDA_SUCCESS)
        return result;
    struct vmm_unit *all = units_at(vmm, address);
    /* If this fails, so does the next step, and the part is still there. */
    vmm->base.driver->cuMemUnmap(address, part->unit_count * EBB_CUDA_UNIT_BYTES);
    result = map_pages(vmm, first, units, pages, count);
    if (result == CUDA_SUCCESS) {
        result = copy_back(vmm, first, count, part, address, lane);
        if (result != CUDA_SUCCESS)
            unmap_pages(vmm, first, units, count);
    }
    if (result != CUDA_SUCCESS) {
        restore_part(vmm, address, all, number);
        return result;
    }
    for (uint32_t i = 0; i < part->unit_count; i++)
        all[i].part = VMM_NO_PART;
    ebb__vmm_part_give(&vmm->pages, number);
    return CUDA_SUCCESS;
}

/* A range as vmm_piece() gives it. */
static CUresult vmm_populate(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                             CUstream lane)
{
    struct vmm *vmm = (struct vmm *)backing;
    struct vmm_unit *units = units_at(vmm, first);
    CUmemGenericAllocationHandle pages[VMM_MOST_PART_UNITS];
    uint32_t count = count_of(bytes);
    if (units[0].page)
        return CUDA_SUCCESS;
    if (units[0].part)
        return bring(vmm, first, units, count, lane);
    CUresult result = ebb__vmm_pages_take(&vmm->pages, pages, count);
    return result == CUDA_SUCCESS ? map_pages(vmm, first, units, pages, count) : result;
}

static CUresult vmm_fetch(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                          bool keep_copy, CUstream lane)
{
    (void)keep_copy;
    return vmm_populate(backing, first, bytes, lane);
}

static CUresult serve_piece(struct vmm *vmm, CUdeviceptr first, struct vmm_unit *units,
                            uint32_t count)
{
    uint32_t part = ebb__vmm_part_take(&vmm->pages, count);
    if (!part)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = map_part(vmm, first, units, part);
    if (result != CUDA_SUCCESS)
        ebb__vmm_part_give(&vmm->pages, part);
    return result;
}

/* Host memory with undefined contents, where nothing is mapped. */
static CUresult vmm_serve(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes)
{
    struct vmm *vmm = (struct vmm *)backing;
    struct vmm_unit *units = units_at(vmm, first);
    for (uint32_t i = 0, count; i < count_of(bytes); i += count) {
        CUdeviceptr at = first + i * EBB_CUDA_UNIT_BYTES;
        count = count_of(vmm_piece(backing, at, bytes - i * EBB_CUDA_UNIT_BYTES));
        for (uint32_t j = 0; units[i].part && j < count; j++)
            units[i + j].is_released = false;
        if (units[i].page || units[i].part)
            continue;
        CUresult result = serve_piece(vmm, at, &units[i], count);
        for (unsigned tries = 1; tries < MOST_TRIES && result != CUDA_SUCCESS; tries++)
            result = serve_piece(vmm, at, &units[i], count);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

/* ---- from the device ------------------------------------------------------------------------- */

static CUresult vmm_evict(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                          bool is_clean, CUstream lane)
{
    struct vmm *vmm = (struct vmm *)backing;
    (void)is_clean;
    uint32_t part = ebb__vmm_part_take(&vmm->pages, count_of(bytes));
    if (!part)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result =
        backing->driver->cuMemcpyAsync(vmm->pages.parts[part].alias, first, bytes, lane);
    if (result == CUDA_SUCCESS)
        units_at(vmm, first)[0].part = part;
    else
        ebb__vmm_part_give(&vmm->pages, part);
    return result;
}

/* The copy is over: the part takes the place of the pages. */
static CUresult vmm_evicted(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes)
{
    struct vmm *vmm = (struct vmm *)backing;
    struct vmm_unit *units = units_at(vmm, first);
    uint32_t count = count_of(bytes), part = units[0].part;
    CUmemGenericAllocationHandle pages[VMM_MOST_PART_UNITS];
    for (uint32_t i = 0; i < count; i++)
        pages[i] = units[i].page;
    units[0].part = VMM_NO_PART;
    CUresult result = backing->driver->cuMemUnmap(first, bytes);
    if (result == CUDA_SUCCESS) {
        result = map_part(vmm, first, units, part);
        if (result == CUDA_SUCCESS) {
            for (uint32_t i = 0; i < count; i++) {
                ebb__vmm_pages_give(&vmm->pages, pages[i]);
                units[i].page = 0;
            }
            return CUDA_SUCCESS;
        }
        for (unsigned tries = 0; tries < MOST_TRIES; tries++) {
            if (map_pages(vmm, first, units, pages, count) == CUDA_SUCCESS)
                break;
            vmm->pages.cached_count -= count; /* still these pages */
        }
    }
    ebb__vmm_part_give(&vmm->pages, part);
    return result;
}

static CUresult vmm_drop(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                         CUstream lane)
{
    struct vmm *vmm = (struct vmm *)backing;
    (void)lane;
    unmap_pages(vmm, first, units_at(vmm, first), count_of(bytes));
    return CUDA_SUCCESS;
}

/* A part goes when all of its bytes are dead. */
static CUresult vmm_forget(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                           CUstream lane)
{
    struct vmm *vmm = (struct vmm *)backing;
    struct vmm_unit *units = units_at(vmm, first);
    (void)lane;
    for (uint32_t i = 0; i < count_of(bytes); i++)
        units[i].is_released = units[i].part != VMM_NO_PART;
    for (uint32_t i = 0; i < count_of(bytes); i++)
        if (units[i].part && is_movable(vmm, first, 0, units[i].part))
            unmap_part(vmm, units[i].part);
    return CUDA_SUCCESS;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void vmm_trim(struct ebb_cuda_backing *backing)
{
    ebb__vmm_pages_trim(&((struct vmm *)backing)->pages);
}

static void vmm_destroy(struct ebb_cuda_backing *backing)
{
    ebb__vmm_pages_fini(&((struct vmm *)backing)->pages);
    ebb__cuda_unreserve(backing, sizeof(struct vmm));
}

#define VMM_OPS                                                                                    \
    .can_evict = true, .most_flights = 4, .reserve = vmm_reserve, .release = vmm_release,          \
    .piece = vmm_piece, .populate = vmm_populate, .evict = vmm_evict, .evicted = vmm_evicted,      \
    .fetch = vmm_fetch, .drop = vmm_drop, .forget = vmm_forget, .serve = vmm_serve,                \
    .trim = vmm_trim, .destroy = vmm_destroy

static const struct ebb_cuda_backing_ops quiet_ops = {
    .name = "vmm-host", .needs_quiet = true, VMM_OPS};
static const struct ebb_cuda_backing_ops trusting_ops = {.name = "vmm-trusting", VMM_OPS};

static bool can_map(const struct ebb_cuda_config *config)
{
    const struct ebb_cuda_driver *driver = config->driver;
    int can = 0;
    return driver->cuMemAddressReserve && driver->cuMemAddressFree && driver->cuMemCreate &&
           driver->cuMemMap && driver->cuMemUnmap && driver->cuMemRelease &&
           driver->cuMemSetAccess && driver->cuMemcpyAsync &&
           driver->cuDeviceGetAttribute(&can,
                                        CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                        config->device) == CUDA_SUCCESS &&
           can;
}

enum ebb_status ebb__vmm_host_create(const struct ebb_cuda_config *config,
                                     struct ebb_cuda_backing **backing, struct ebb_error *error)
{
    enum ebb_status status = EBB_OK;
    if (!can_map(config))
        return ebb__fail(error, EBB_ERR_UNSUPPORTED, "CUDA",
                         "the device has no virtual memory management");
    struct vmm *vmm = ebb__cuda_reserve(sizeof *vmm);
    if (!vmm)
        return ebb__fail(error, EBB_ERR_MEMORY, "CUDA", "memory is exhausted");
    vmm->base.ops = config->backing == EBB_CUDA_VMM_TRUSTING ? &trusting_ops : &quiet_ops;
    vmm->base.driver = config->driver;
    vmm->base.device = config->device;
    if (!ebb__vmm_pages_init(&vmm->pages, &vmm->base, config->pinned_budget_bytes)) {
        vmm_destroy(&vmm->base);
        status = ebb__fail(error, EBB_ERR_UNSUPPORTED, "CUDA",
                           "the driver maps no host memory at addresses of the device");
        ebb__error_set_remedy(error, "Drivers of CUDA 12.2 and later do. Or use managed memory.");
        return status;
    }
    *backing = &vmm->base;
    return EBB_OK;
}
