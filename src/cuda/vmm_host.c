/* Virtual memory management: a block that leaves the device keeps its address. Its pages are
 * unmapped there, and its bytes are in a part of host memory.
 *
 * A block leaves by a copy to the part, at the part's alias. When that is over, its pages are
 * unmapped. A block comes the other way round: pages are mapped first, then copied to. Copies run
 * on both lanes at once, at the full rate of the bus.
 *
 * An access by a kernel during a move may find no page, or write what is then lost. There are two
 * kinds of this backing. EBB_CUDA_VMM_HOST moves only while the device is quiet (gate.h), and maps
 * the part in place of the pages. So an access that nobody announced goes over the bus.
 * EBB_CUDA_VMM_TRUSTING relies on kernels to use what they name, and nothing else. It maps the part
 * only where `serve` asks for that: to map and unmap it takes as long as the copies.
 *
 * A handle must be mapped whole, and unmapped whole. So parts and pages move whole. A piece of up
 * to 16 units has one page, or a few of those that are there, since each mapping costs the same.
 * The pool reuses ranges as they were (`moves_whole`). */
#include "cuda/vmm_maps.h"

#include "cuda/core.h"
#include "cuda/memory.h"

/* Of copies to the host so many are queued at a time, since a mapping waits for them: 0.16 ms on an
 * H200. */
#define OUT_BYTES ((uint64_t)8 << 20)

#define LEAST_CHUNKS 64u /* that a budget has; arbitrary */

static size_t units_bytes(uint64_t bytes)
{
    return ebb__vmm_count(bytes) * sizeof(struct vmm_unit);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static CUresult vmm_reserve(struct ebb_cuda_backing *backing, uint64_t bytes, CUdeviceptr *first)
{
    struct vmm *vmm = (struct vmm *)backing;
    uint32_t count = atomic_load(&vmm->region_count);
    if (count == VMM_MOST_REGIONS)
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

/* The mover has stopped. With the last region all physical memory goes. */
static void vmm_release(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes)
{
    struct vmm *vmm = (struct vmm *)backing;
    struct vmm_unit *units = ebb__vmm_units_at(vmm, first);
    for (uint32_t i = 0; i < ebb__vmm_count(bytes); i++) {
        CUdeviceptr address = first + i * EBB_CUDA_UNIT_BYTES;
        if (units[i].page)
            ebb__vmm_unmap(vmm, address, &units[i], vmm->pages.pages[units[i].page].unit_count);
        struct vmm_part *part = &vmm->pages.parts[units[i].part];
        if (units[i].part && part->address == address)
            ebb__vmm_leave_part(vmm, units[i].part);
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

/* ---- to the device --------------------------------------------------------------------------- */

/* How much from `first` on moves at once: whole pages, what a part has, or where nothing is. */
static uint64_t vmm_piece(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes)
{
    struct vmm *vmm = (struct vmm *)backing;
    const struct vmm_unit *units = ebb__vmm_units_at(vmm, first);
    uint32_t count = ebb__vmm_count(bytes), same;
    if (!units[0].page && !units[0].part && count > backing->chunk_units)
        count = backing->chunk_units;
    for (same = 1; same < count && same < VMM_MOST_PART_UNITS; same++)
        if (!units[same].page != !units[0].page ||
            (!units[0].page && units[same].part != units[0].part))
            break;
    while (units[0].page && same < count && same > 1 && units[same].page == units[same - 1].page)
        same--;
    return same * EBB_CUDA_UNIT_BYTES;
}

/* May the whole part go if these units of it come to the device? */
static bool is_movable(struct vmm *vmm, CUdeviceptr first, uint32_t count, uint32_t number)
{
    const struct vmm_part *part = &vmm->pages.parts[number];
    const struct vmm_unit *units = ebb__vmm_units_at(vmm, part->address);
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

/* Undefined contents, where nothing is mapped. */
static CUresult bring_pages(struct vmm *vmm, CUdeviceptr first, struct vmm_unit *units,
                            uint32_t count)
{
    uint32_t numbers[VMM_MOST_PART_UNITS];
    uint32_t found = ebb__vmm_pages_take(&vmm->pages, count, numbers);
    if (!found)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = ebb__vmm_map(vmm, first, units, numbers, found);
    for (uint32_t i = 0; i < found && result != CUDA_SUCCESS; i++)
        ebb__vmm_page_give(&vmm->pages, numbers[i]);
    return result;
}

/* From host memory. An access in between finds no page, or one without its contents. */
static CUresult bring(struct vmm *vmm, CUdeviceptr first, struct vmm_unit *units, uint32_t count,
                      CUstream lane)
{
    uint32_t number = units[0].part;
    struct vmm_part *part = &vmm->pages.parts[number];
    CUdeviceptr address = part->address;
    bool was_mapped = part->is_mapped;
    if (!is_movable(vmm, first, count, number))
        return CUDA_ERROR_NOT_PERMITTED; /* other units of the part are in use */
    CUresult result = ebb__vmm_hide_part(vmm, part);
    if (result == CUDA_SUCCESS)
        result = bring_pages(vmm, first, units, count);
    if (result == CUDA_SUCCESS) {
        result = copy_back(vmm, first, count, part, address, lane);
        if (result != CUDA_SUCCESS)
            ebb__vmm_unmap(vmm, first, units, count);
    }
    if (result == CUDA_SUCCESS)
        ebb__vmm_leave_part(vmm, number);
    else if (was_mapped)
        ebb__vmm_restore_part(vmm, number);
    return result;
}

/* A range as vmm_piece() gives it. */
static CUresult vmm_populate(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                             CUstream lane)
{
    struct vmm *vmm = (struct vmm *)backing;
    struct vmm_unit *units = ebb__vmm_units_at(vmm, first);
    if (units[0].page)
        return CUDA_SUCCESS;
    return units[0].part ? bring(vmm, first, units, ebb__vmm_count(bytes), lane)
                         : bring_pages(vmm, first, units, ebb__vmm_count(bytes));
}

static CUresult vmm_fetch(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                          CUstream lane)
{
    return vmm_populate(backing, first, bytes, lane);
}

/* The part that has the bytes, or a new one. That one goes again if it cannot be mapped. */
static CUresult serve_piece(struct vmm *vmm, CUdeviceptr first, struct vmm_unit *units,
                            uint32_t count, bool is_urgent)
{
    uint32_t number = units[0].part;
    bool is_new = number == VMM_NO_PART;
    if (is_new) {
        number = ebb__vmm_part_take(&vmm->pages, count, is_urgent);
        if (!number)
            return CUDA_ERROR_OUT_OF_MEMORY;
        ebb__vmm_assign_part(vmm, first, units, number);
    }
    struct vmm_part *part = &vmm->pages.parts[number];
    CUresult result =
        part->is_mapped ? CUDA_SUCCESS : ebb__vmm_show_part(vmm, part->address, number);
    if (result != CUDA_SUCCESS && is_new)
        ebb__vmm_leave_part(vmm, number);
    return result;
}

/* Host memory with undefined contents, where nothing is. Where a part has the bytes, it is mapped.
 * One that could not be mapped has the bytes all the same, and the next call tries again. A range
 * as vmm_piece() gives it. */
static CUresult vmm_serve(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                          bool is_urgent)
{
    struct vmm *vmm = (struct vmm *)backing;
    struct vmm_unit *units = ebb__vmm_units_at(vmm, first);
    uint32_t count = ebb__vmm_count(bytes);
    for (uint32_t i = 0; units[0].part && i < count; i++)
        units[i].is_released = false;
    if (units[0].page)
        return CUDA_SUCCESS;
    CUresult result = serve_piece(vmm, first, units, count, is_urgent);
    for (unsigned tries = 1; tries < VMM_MOST_TRIES && result != CUDA_SUCCESS; tries++)
        result = serve_piece(vmm, first, units, count, is_urgent);
    return result;
}

/* ---- from the device ------------------------------------------------------------------------- */

static CUresult vmm_evict_to(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                             CUdeviceptr *to)
{
    struct vmm *vmm = (struct vmm *)backing;
    uint32_t part = ebb__vmm_part_take(&vmm->pages, ebb__vmm_count(bytes), false);
    if (!part)
        return CUDA_ERROR_OUT_OF_MEMORY;
    ebb__vmm_units_at(vmm, first)[0].part = part;
    *to = vmm->pages.parts[part].alias;
    return CUDA_SUCCESS;
}

/* The copy is over: the part takes the place of the pages. */
static CUresult vmm_evicted(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                            bool is_copied)
{
    struct vmm *vmm = (struct vmm *)backing;
    struct vmm_unit *units = ebb__vmm_units_at(vmm, first);
    uint32_t numbers[VMM_MOST_PART_UNITS],
        found = ebb__vmm_pages_of(units, ebb__vmm_count(bytes), numbers);
    uint32_t number = units[0].part;
    units[0].part = VMM_NO_PART;
    CUresult result =
        is_copied ? backing->driver->cuMemUnmap(first, bytes) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && backing->ops->needs_quiet) {
        result = ebb__vmm_show_part(vmm, first, number);
        for (unsigned i = 0; i < VMM_MOST_TRIES && result != CUDA_SUCCESS; i++)
            if (ebb__vmm_map(vmm, first, units, numbers, found) == CUDA_SUCCESS)
                break;
    }
    if (result != CUDA_SUCCESS) {
        ebb__vmm_part_give(&vmm->pages, number);
        return result;
    }
    ebb__vmm_assign_part(vmm, first, units, number);
    ebb__vmm_leave_pages(vmm, units, ebb__vmm_count(bytes));
    return CUDA_SUCCESS;
}

/* As vmm_piece() gives it. */
static CUresult vmm_drop(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                         CUstream lane)
{
    struct vmm *vmm = (struct vmm *)backing;
    (void)lane;
    return ebb__vmm_unmap(vmm, first, ebb__vmm_units_at(vmm, first), ebb__vmm_count(bytes));
}

/* A part goes when all of its bytes are dead. */
static CUresult vmm_forget(struct ebb_cuda_backing *backing, CUdeviceptr first, uint64_t bytes,
                           CUstream lane)
{
    struct vmm *vmm = (struct vmm *)backing;
    struct vmm_unit *units = ebb__vmm_units_at(vmm, first);
    (void)lane;
    for (uint32_t i = 0; i < ebb__vmm_count(bytes); i++)
        units[i].is_released = units[i].part != VMM_NO_PART;
    for (uint32_t i = 0; i < ebb__vmm_count(bytes); i++)
        if (units[i].part && is_movable(vmm, first, 0, units[i].part))
            ebb__vmm_leave_part(vmm, units[i].part);
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
    .can_evict = true, .drops_at_once = true, .populates_at_once = true, .moves_whole = true,      \
    .takes_parts = true, .most_flights = 4, .out_bytes = OUT_BYTES, .reserve = vmm_reserve,        \
    .release = vmm_release, .piece = vmm_piece, .populate = vmm_populate,                          \
    .evict_to = vmm_evict_to, .evicted = vmm_evicted, .fetch = vmm_fetch, .drop = vmm_drop,        \
    .forget = vmm_forget, .serve = vmm_serve, .trim = vmm_trim, .destroy = vmm_destroy

static const struct ebb_cuda_backing_ops quiet_ops = {
    .name = "vmm-host", .needs_quiet = true, VMM_OPS};
static const struct ebb_cuda_backing_ops trusting_ops = {
    .name = "vmm-trusting", .hides_absent = true, VMM_OPS};

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

/* To map a page costs the same for 2 MiB as for 32. A budget of few pages would be kept badly. */
static uint32_t chunk_units(const struct ebb_cuda_config *config)
{
    uint64_t budget = atomic_load(&config->ledger->budget_bytes);
    uint32_t count = VMM_MOST_PART_UNITS;
    while (count > 1 && budget / LEAST_CHUNKS < count * EBB_CUDA_UNIT_BYTES)
        count /= 2;
    return count;
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
    ebb__backing_init(
        &vmm->base, config->backing == EBB_CUDA_VMM_TRUSTING ? &trusting_ops : &quiet_ops, config);
    vmm->base.chunk_units = chunk_units(config);
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
