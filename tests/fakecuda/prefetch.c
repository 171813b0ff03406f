/* The calls on managed memory: allocation, prefetch, discard, advice. */
#include "fake.h"
#include <stdlib.h>

enum { GARBAGE = 0xDB };

API cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags)
{
    CUcontext context;
    TRY(fake_usable(&context));
    TRY(fake_capture_unsafe());
    if (!address || !bytes || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        DONE(CUDA_ERROR_INVALID_VALUE);
    if (!fake_attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, context->device))
        DONE(CUDA_ERROR_NOT_SUPPORTED);
    if (fake_fault(FAULT_MANAGED))
        DONE(CUDA_ERROR_OUT_OF_MEMORY);
    size_t pages = (bytes + fake_set.page_bytes - 1) / fake_set.page_bytes;
    pthread_mutex_lock(&memory_lock);
    CUdeviceptr at = fake_arena_take(pages * fake_set.page_bytes, fake_set.page_bytes);
    struct range *range = at ? fake_range_add(at, bytes, RANGE_MANAGED) : NULL;
    if (range) {
        range->device = context->device;
        range->context = context;
        range->flags = flags;
        range->pages = calloc(pages, sizeof(*range->pages));
        if (!range->pages)
            abort();
        for (size_t i = 0; i < pages; i++)
            range->pages[i].preferred = CU_DEVICE_INVALID;
        if (!fake_set.host_faults)
            fake_arena_open(at, bytes, 3);
        *address = at;
    }
    pthread_mutex_unlock(&memory_lock);
    DONE(range ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

/* True if every byte is managed. memory_lock held. */
static bool all_managed(CUdeviceptr address, size_t bytes)
{
    while (bytes) {
        struct range *range = fake_range_find(address);
        if (!range || range->kind != RANGE_MANAGED)
            return false;
        size_t inside = (size_t)(range->address + range->bytes - address);
        if (inside >= bytes)
            return true;
        inside = (inside + fake_set.page_bytes - 1) / fake_set.page_bytes * fake_set.page_bytes;
        address += inside;
        bytes = bytes > inside ? bytes - inside : 0;
    }
    return true;
}

static CUresult check(CUdeviceptr address, size_t bytes)
{
    if (!address || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory_lock);
    bool managed = all_managed(address, bytes);
    pthread_mutex_unlock(&memory_lock);
    return managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult device_of(CUmemLocation location, int *device)
{
    switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        *device = location.id;
        if (location.id == CU_DEVICE_CPU)
            return CUDA_ERROR_INVALID_DEVICE;
        if (fake_device_valid(location.id) ||
            !fake_attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, location.id))
            return CUDA_ERROR_INVALID_DEVICE;
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        *device = CU_DEVICE_CPU;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* --- prefetch and discard in streams ---------------------------------------------------------- */

struct part {
    CUdeviceptr address;
    size_t bytes;
    int to; /* a device, CU_DEVICE_CPU, or CU_DEVICE_INVALID: no move */
    bool discards;
};

struct move_op {
    struct op op;
    size_t count;
    struct part parts[];
};

/* What was never written holds nothing that a program could miss. */
static void destroy(const struct range *range, size_t offset, size_t bytes)
{
    size_t hole, data;
    while (fake_arena_next(range->place + offset, bytes, &hole, &data)) {
        memset(range->alias + offset + hole, GARBAGE, data);
        offset += hole + data;
        bytes -= hole + data;
    }
}

/* A piece of a part, within one range. Returns its bytes. */
static size_t move_piece(const struct part *part, size_t done, struct op *op,
                         struct CUstream_st *stream)
{
    CUdeviceptr address = part->address + done;
    size_t left = part->bytes - done;
    struct range *range = fake_range_find(address);
    if (!range || range->kind != RANGE_MANAGED) {
        fake_violation("late-prefetch", "a prefetch or discard of %#llx runs: %s", address,
                       fake_range_history(address));
        return left;
    }
    size_t offset = (size_t)(address - range->address);
    size_t most = 16 * fake_set.page_bytes, inside = range->bytes - offset;
    size_t bytes = left < most ? left : most;
    size_t padding = 0;
    if (bytes >= inside) {
        padding = (fake_set.page_bytes - range->bytes % fake_set.page_bytes) % fake_set.page_bytes;
        bytes = inside;
    }
    fake_race_check(range, op, stream, offset, bytes, part->discards ? MODE_DISCARD : MODE_PREFETCH,
                    op->class->name);
    size_t first = offset / fake_set.page_bytes;
    size_t count = (offset + bytes - 1) / fake_set.page_bytes + 1 - first;
    if (part->discards) {
        destroy(range, offset, bytes);
        fake_count(COUNT_DISCARDED, bytes);
        for (size_t i = first; i < first + count; i++)
            if (i * fake_set.page_bytes >= offset &&
                ((i + 1) * fake_set.page_bytes <= offset + bytes || bytes == inside))
                fake_managed_discard(range, i);
    }
    if (part->to != CU_DEVICE_INVALID)
        fake_managed_move(range, first, count, part->to,
                          part->to == CU_DEVICE_CPU ? COUNT_PREFETCHED_OUT : COUNT_PREFETCHED);
    return bytes + padding < left ? bytes + padding : left;
}

static void move_run(struct op *op, struct CUstream_st *stream)
{
    struct move_op *move = (struct move_op *)op;
    for (size_t i = 0; i < move->count; i++) {
        if (move->parts[i].to != CU_DEVICE_INVALID)
            fake_take(move->parts[i].bytes * fake_set.move_us >> 20);
        for (size_t done = 0; done < move->parts[i].bytes;) {
            pthread_mutex_lock(&memory_lock);
            done += move_piece(&move->parts[i], done, op, stream);
            pthread_mutex_unlock(&memory_lock);
            if (!fake_set.fast && fake_random(2))
                fake_yield(stream);
        }
        fake_clock_pass(2000 + move->parts[i].bytes / 32);
    }
}

/* No kind of node: a capture refuses it. */
static const struct op_class move_class = {"prefetch", (CUgraphNodeType)-1, move_run, NULL, NULL};

static CUresult enqueue(struct move_op *op, CUstream handle, CUcontext context)
{
    struct CUstream_st *stream;
    CUresult result = fake_stream_of(handle, context, &stream);
    if (!result && fake_fault(FAULT_PREFETCH))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; !result && i < op->count; i++)
        result = check(op->parts[i].address, op->parts[i].bytes);
    if (result) {
        fake_op_free(&op->op);
        return result;
    }
    bool to_host = false;
    for (size_t i = 0; i < op->count; i++)
        to_host |= op->parts[i].to == CU_DEVICE_CPU;
    uint64_t seq = 0;
    op->op.seq_to = &seq;
    fake_count(COUNT_PREFETCHES, 1);
    result = fake_enqueue(stream, &op->op);
    if (!result && to_host && fake_set.host_waits)
        fake_wait(stream, seq);
    return result;
}

static struct move_op *move_new(size_t count)
{
    struct move_op *op = fake_op_new(&move_class, sizeof(*op) + count * sizeof(op->parts[0]));
    if (op)
        op->count = count;
    return op;
}

static CUresult prefetch(CUdeviceptr address, size_t bytes, CUmemLocation location, CUstream stream)
{
    CUcontext context;
    int device;
    TRY(fake_usable(&context));
    TRY(device_of(location, &device));
    struct move_op *op = move_new(1);
    if (!op)
        DONE(CUDA_ERROR_OUT_OF_MEMORY);
    op->parts[0] = (struct part){address, bytes, device, false};
    DONE(enqueue(op, stream, context));
}

static CUmemLocation of_device(CUdevice device)
{
    if (device == CU_DEVICE_CPU)
        return (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0};
    return (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
}

API cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream)
{
    return prefetch(address, bytes, of_device(device), stream);
}

API cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned flags,
                          CUstream stream)
{
    if (flags)
        DONE(CUDA_ERROR_INVALID_VALUE);
    return prefetch(address, bytes, location, stream);
}

struct batch {
    CUdeviceptr *addresses;
    size_t *bytes, count;
    CUmemLocation *locations;
    size_t *indices, location_count;
    bool discards;
};

static CUresult batch_locations(const struct batch *batch, struct move_op *op)
{
    size_t at = 0;
    for (size_t i = 0; i < batch->count; i++) {
        int to = CU_DEVICE_INVALID;
        while (at + 1 < batch->location_count && batch->indices[at + 1] <= i)
            at++;
        CUresult result =
            batch->location_count ? device_of(batch->locations[at], &to) : CUDA_SUCCESS;
        if (result)
            return result;
        op->parts[i] = (struct part){batch->addresses[i], batch->bytes[i], to, batch->discards};
    }
    return CUDA_SUCCESS;
}

static CUresult run_batch(const struct batch *batch, unsigned long long flags, CUstream stream)
{
    CUcontext context;
    TRY(fake_usable(&context));
    for (int i = 0; i < fake_set.device_count; i++)
        if (!fake_attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, i))
            DONE(CUDA_ERROR_NOT_SUPPORTED);
    if (flags || !batch->count || !stream || stream == CU_STREAM_LEGACY ||
        batch->location_count > batch->count || (batch->location_count && batch->indices[0]))
        DONE(CUDA_ERROR_INVALID_VALUE);
    struct move_op *op = move_new(batch->count);
    if (!op)
        DONE(CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result = batch_locations(batch, op);
    if (result) {
        fake_op_free(&op->op);
        DONE(result);
    }
    DONE(enqueue(op, stream, context));
}

API cuMemPrefetchBatchAsync(CUdeviceptr *addresses, size_t *bytes, size_t count,
                            CUmemLocation *locations, size_t *indices, size_t location_count,
                            unsigned long long flags, CUstream stream)
{
    struct batch batch = {addresses, bytes, count, locations, indices, location_count, false};
    return location_count ? run_batch(&batch, flags, stream)
                          : fake_result(CUDA_ERROR_INVALID_VALUE);
}

API cuMemDiscardBatchAsync(CUdeviceptr *addresses, size_t *bytes, size_t count,
                           unsigned long long flags, CUstream stream)
{
    struct batch batch = {addresses, bytes, count, NULL, NULL, 0, true};
    return run_batch(&batch, flags, stream);
}

API cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *addresses, size_t *bytes, size_t count,
                                      CUmemLocation *locations, size_t *indices,
                                      size_t location_count, unsigned long long flags,
                                      CUstream stream)
{
    struct batch batch = {addresses, bytes, count, locations, indices, location_count, true};
    return location_count ? run_batch(&batch, flags, stream)
                          : fake_result(CUDA_ERROR_INVALID_VALUE);
}

/* --- advice ----------------------------------------------------------------------------------- */

static void set_advice(struct page *page, CUmem_advise advice, int device)
{
    uint8_t bit = (uint8_t)(device >= 0 ? 1u << device : 0);
    switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
        page->read_mostly = true;
        break;
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        page->read_mostly = false;
        break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        page->preferred = (int8_t)device;
        break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        page->preferred = CU_DEVICE_INVALID;
        break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        page->accessed_by |= bit;
        break;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        page->accessed_by &= (uint8_t)~bit;
        break;
    default:
        break;
    }
}

static CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice,
                       CUmemLocation location)
{
    CUcontext context;
    int device = CU_DEVICE_INVALID;
    TRY(fake_usable(&context));
    if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
        DONE(CUDA_ERROR_INVALID_VALUE);
    bool places = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
                  advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                  advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
    if (places)
        TRY(device_of(location, &device));
    TRY(check(address, bytes));
    pthread_mutex_lock(&memory_lock);
    for (size_t i = 0; fake_range_at(i); i++) {
        struct range *range = fake_range_at(i);
        if (range->kind == RANGE_MANAGED && range->address < address + bytes &&
            address < range->address + range->bytes) {
            CUdeviceptr end = range->address + range->bytes;
            CUdeviceptr from = address > range->address ? address : range->address;
            end = end < address + bytes ? end : address + bytes;
            for (CUdeviceptr at = from; at < end; at += fake_set.page_bytes)
                set_advice(&range->pages[(at - range->address) / fake_set.page_bytes], advice,
                           device);
        }
    }
    pthread_mutex_unlock(&memory_lock);
    return CUDA_SUCCESS;
}

API cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device)
{
    return advise(address, bytes, advice, of_device(device));
}

API cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location)
{
    return advise(address, bytes, advice, location);
}
