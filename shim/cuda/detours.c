/* A copy runs in up to two ways, each a stream of one device. The first reads into a slot of a
 * lane, the second writes from there. Slots alternate, so that both run at once. The program's
 * stream comes before the first way, and after the last one. Events keep that order, on the device.
 */
#include "detours.h"

#include "attach.h"
#include "captures.h"
#include "lanes.h"

#define NOWHERE LANE_NOWHERE /* in host memory, which all devices reach */

struct detour {
    struct lane *lane;
    const struct door_box *box;
    CUstream stream;           /* of the program */
    struct way here, from, to; /* that stream; who reads, and who writes */
    CUdevice from_device, to_device;
    bool is_synchronous;
};

/* ---- sides ----------------------------------------------------------------------------------- */

CUdeviceptr ebb__side_start(const struct door_side *side, size_t width, size_t height,
                            uint64_t *pitch, uint64_t *slice)
{
    CUdeviceptr base =
        side->type == CU_MEMORYTYPE_HOST ? (CUdeviceptr)(uintptr_t)side->host : side->device;
    *pitch = side->pitch ? side->pitch : side->x + width;
    *slice = (side->height ? side->height : side->y + height) * *pitch;
    return base + side->z * *slice + side->y * *pitch + side->x;
}

void ebb__side_use(struct door_job *job, const struct door_side *side, const struct door_box *box,
                   unsigned access)
{
    uint64_t pitch, slice;
    if (side->type == CU_MEMORYTYPE_ARRAY || !box->width || !box->height || !box->depth)
        return;
    CUdeviceptr first = ebb__side_start(side, box->width, box->height, &pitch, &slice);
    ebb__job_use(job, first, (box->depth - 1) * slice + (box->height - 1) * pitch + box->width,
                 access);
}

/* The device that has a side. Managed memory of the program is as near as can be. */
static CUdevice device_of(const struct door_side *side, const struct door_box *box, CUdevice here,
                          bool *is_block)
{
    uint64_t pitch, slice;
    unsigned type = 0, is_managed = 0;
    int device = NOWHERE;
    CUdeviceptr first = ebb__side_start(side, box->width, box->height, &pitch, &slice);
    int owner = ebb__engines_may_own(first) ? ebb__engines_owner(first) : -1;
    *is_block |= owner >= 0;
    if (owner >= 0)
        return owner;
    if (side->type == CU_MEMORYTYPE_HOST ||
        ebb__real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, first) !=
            CUDA_SUCCESS ||
        type == CU_MEMORYTYPE_HOST)
        return NOWHERE;
    if (ebb__real.cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, first) ==
            CUDA_SUCCESS &&
        (is_managed & 1))
        return here;
    return ebb__real.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, first) ==
                   CUDA_SUCCESS
               ? device
               : here;
}

/* ---- ways ------------------------------------------------------------------------------------ */

/* Where a side is copied. A synchronous copy comes after the work of the default stream, on each of
 * its devices. */
static CUresult choose_way(struct detour *detour, CUdevice device, struct way *way)
{
    CUcontext context = device == NOWHERE ? NULL : ebb__engines_context(device);
    *way = detour->here;
    if (!context || device == detour->here.device)
        return CUDA_SUCCESS;
    way->device = device;
    way->context = context;
    if (detour->is_synchronous)
        return CUDA_SUCCESS;
    return ebb__lane_stream(detour->lane, way);
}

/* ---- one way --------------------------------------------------------------------------------- */

#define MEMORY_TYPE(side)                                                                          \
    ((side).type == CU_MEMORYTYPE_HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_UNIFIED)

static CUresult queue_box(const struct door_box *box, CUstream stream)
{
    uint64_t pitch, slice;
    CUdeviceptr from = ebb__side_start(&box->from, box->width, box->height, &pitch, &slice);
    CUdeviceptr to = ebb__side_start(&box->to, box->width, box->height, &pitch, &slice);
    if (box->height == 1 && box->depth == 1)
        return ebb__real.cuMemcpyAsync(to, from, box->width, stream);
    const CUDA_MEMCPY3D copy = {
        .srcXInBytes = box->from.x,
        .srcY = box->from.y,
        .srcZ = box->from.z,
        .srcMemoryType = MEMORY_TYPE(box->from),
        .srcHost = box->from.host,
        .srcDevice = box->from.device,
        .srcPitch = box->from.pitch,
        .srcHeight = box->from.height,
        .dstXInBytes = box->to.x,
        .dstY = box->to.y,
        .dstZ = box->to.z,
        .dstMemoryType = MEMORY_TYPE(box->to),
        .dstHost = (void *)(uintptr_t)box->to.host,
        .dstDevice = box->to.device,
        .dstPitch = box->to.pitch,
        .dstHeight = box->to.height,
        .WidthInBytes = box->width,
        .Height = box->height,
        .Depth = box->depth,
    };
    return ebb__real.cuMemcpy3DAsync_v2(&copy, stream);
}

/* One device has both sides, or one of them and the host the other. */
static CUresult copy_at_once(struct detour *detour, struct door_job *job)
{
    const struct way *way = &detour->from;
    job->is_own_way = true;
    ebb__job_begin(job, EBB_CUDA_COPY, way->stream, detour->is_synchronous, 0);
    CUresult result = ebb__way_follow(way, &detour->here);
    if (result == CUDA_SUCCESS)
        result = ebb__way_enter(way);
    if (result == CUDA_SUCCESS) {
        result = queue_box(detour->box, way->stream);
        ebb__way_leave();
    }
    if (result == CUDA_SUCCESS)
        result = ebb__way_follow(&detour->here, way);
    return ebb__job_end(job, result);
}

/* ---- two ways -------------------------------------------------------------------------------- */

/* Copies as many rows as the piece has. */
static CUresult queue_rows(const struct way *way, const struct door_box *piece,
                           struct door_side from, struct door_side to)
{
    const struct door_box rows = {from, to, piece->width, piece->height, 1};
    CUresult result = ebb__way_enter(way);
    if (result != CUDA_SUCCESS)
        return result;
    result = queue_box(&rows, way->stream);
    ebb__way_leave();
    return result;
}

/* Rows of both devices, through the next slot, when that is empty. They are packed there. */
static CUresult pass_piece(const struct detour *detour, const struct door_box *piece)
{
    struct lane *lane = detour->lane;
    unsigned slot = lane->next++ % LANE_SLOTS;
    const struct door_side between = {.type = CU_MEMORYTYPE_HOST,
                                      .host = lane->memory + slot * LANE_SLOT_BYTES,
                                      .pitch = piece->width,
                                      .height = piece->height};
    CUresult result = CUDA_SUCCESS;
    if (lane->emptied[slot]) {
        result = ebb__way_await(&detour->from, lane->emptied[slot]);
        if (result != CUDA_SUCCESS)
            return result;
        ebb__real.cuEventDestroy_v2(lane->emptied[slot]);
        lane->emptied[slot] = NULL;
    }
    result = queue_rows(&detour->from, piece, piece->from, between);
    if (result == CUDA_SUCCESS)
        result = ebb__way_follow(&detour->to, &detour->from);
    if (result == CUDA_SUCCESS)
        result = queue_rows(&detour->to, piece, between, piece->to);
    bool is_recorded = result == CUDA_SUCCESS &&
                       ebb__way_record(&detour->to, &lane->emptied[slot]) == CUDA_SUCCESS;
    if (!is_recorded) { /* whatever has been queued: the slot is empty after that */
        ebb__way_synchronize(&detour->from);
        ebb__way_synchronize(&detour->to);
    }
    return result;
}

/* Where rows of a side begin, without an offset. */
static struct door_side rows_at(CUdeviceptr first, uint64_t pitch, size_t rows)
{
    return (struct door_side){
        .type = CU_MEMORYTYPE_UNIFIED, .device = first, .pitch = pitch, .height = rows};
}

static CUresult pass_all(const struct detour *detour)
{
    const struct door_box *box = detour->box;
    struct door_box piece = {.depth = 1};
    uint64_t from_pitch, to_pitch, from_slice, to_slice;
    CUdeviceptr from =
        ebb__side_start(&box->from, box->width, box->height, &from_pitch, &from_slice);
    CUdeviceptr to = ebb__side_start(&box->to, box->width, box->height, &to_pitch, &to_slice);
    size_t rows = box->width < LANE_SLOT_BYTES ? LANE_SLOT_BYTES / box->width : 1;
    CUresult result = CUDA_SUCCESS;
    for (size_t z = 0; z < box->depth; z++)
        for (size_t y = 0; y < box->height; y += piece.height) {
            piece.height = box->height - y < rows ? box->height - y : rows;
            for (size_t x = 0; x < box->width && result == CUDA_SUCCESS; x += piece.width) {
                piece.width = box->width - x < LANE_SLOT_BYTES ? box->width - x : LANE_SLOT_BYTES;
                piece.from =
                    rows_at(from + z * from_slice + y * from_pitch + x, from_pitch, piece.height);
                piece.to = rows_at(to + z * to_slice + y * to_pitch + x, to_pitch, piece.height);
                result = pass_piece(detour, &piece);
            }
        }
    return result;
}

/* Engines are asked in the order of devices, so that two copies do not wait for each other. */
static void begin_both(struct detour *detour, struct door_job *reads, struct door_job *writes)
{
    bool is_read_first = detour->from_device < detour->to_device;
    ebb__job_init(reads);
    ebb__job_init(writes);
    ebb__side_use(reads, &detour->box->from, detour->box, EBB_ACCESS_READ);
    ebb__side_use(writes, &detour->box->to, detour->box, EBB_ACCESS_WRITE);
    reads->is_own_way = writes->is_own_way = true;
    if (is_read_first)
        ebb__job_begin(reads, EBB_CUDA_COPY, detour->from.stream, detour->is_synchronous, 0);
    ebb__job_begin(writes, EBB_CUDA_COPY, detour->to.stream, detour->is_synchronous, 0);
    if (!is_read_first)
        ebb__job_begin(reads, EBB_CUDA_COPY, detour->from.stream, detour->is_synchronous, 0);
}

static CUresult copy_through_host(struct detour *detour)
{
    struct door_job reads, writes;
    begin_both(detour, &reads, &writes);
    pthread_mutex_lock(&detour->lane->lock);
    CUdevice home =
        ebb__engines_context(detour->from_device) ? detour->from_device : detour->to_device;
    CUresult result = ebb__lane_has_memory(detour->lane, home)
                          ? ebb__way_follow(&detour->from, &detour->here)
                          : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = pass_all(detour);
    CUresult last = ebb__way_follow(&detour->here, &detour->to);
    pthread_mutex_unlock(&detour->lane->lock);
    result = result == CUDA_SUCCESS ? last : result;
    ebb__job_end(&reads, result);
    return ebb__job_end(&writes, result);
}

/* ---- the copy -------------------------------------------------------------------------------- */

static CUresult copy(struct detour *detour, struct door_job *job)
{
    CUdevice one = detour->from_device == NOWHERE ? detour->to_device : detour->from_device;
    CUdevice other = detour->to_device == NOWHERE ? one : detour->to_device;
    CUresult result = choose_way(detour, one, &detour->from);
    if (result == CUDA_SUCCESS)
        result = choose_way(detour, other, &detour->to);
    if (result != CUDA_SUCCESS)
        return ebb__job_end(job, result);
    if (one == other) {
        result = copy_at_once(detour, job);
    } else {
        ebb__job_end(job, result); /* it has not begun */
        result = copy_through_host(detour);
    }
    return result == CUDA_SUCCESS && detour->is_synchronous ? ebb__way_synchronize(&detour->to)
                                                            : result;
}

static CUresult refuse(void)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&told))
        ebb__attach_warn(NULL, "the program captures a copy between devices: not possible with "
                               "blocks that Ebb moves");
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static bool has_several_devices(void)
{
    static atomic_int devices;
    int count = atomic_load_explicit(&devices, memory_order_relaxed);
    if (!count && ebb__real.cuDeviceGetCount(&count) == CUDA_SUCCESS)
        atomic_store_explicit(&devices, count, memory_order_relaxed);
    return count > 1;
}

/* Where both sides are. False: an array, or a stream of which nothing is known. */
static bool look(struct detour *detour, bool *is_needed)
{
    const struct door_box *box = detour->box;
    bool has_block = false;
    if (box->from.type == CU_MEMORYTYPE_ARRAY || box->to.type == CU_MEMORYTYPE_ARRAY ||
        !ebb__way_find(detour->stream, &detour->here))
        return false;
    CUdevice here = detour->here.device;
    detour->from_device = device_of(&box->from, box, here, &has_block);
    detour->to_device = device_of(&box->to, box, here, &has_block);
    *is_needed = has_block && ((detour->from_device != NOWHERE && detour->from_device != here) ||
                               (detour->to_device != NOWHERE && detour->to_device != here));
    return true;
}

bool ebb__detour_is_needed(const struct door_box *box, CUstream stream, bool is_synchronous)
{
    struct detour detour = {.box = box, .stream = stream};
    bool is_needed = false;
    return box->width && box->height && box->depth && has_several_devices() &&
           look(&detour, &is_needed) && is_needed &&
           !(is_synchronous && ebb__captures_forbid()); /* the driver refuses that */
}

CUresult ebb__detour_copy(struct door_job *job, const struct door_box *box, CUstream stream,
                          bool is_synchronous)
{
    struct detour detour = {.lane = ebb__lane_of(stream),
                            .box = box,
                            .stream = stream,
                            .is_synchronous = is_synchronous};
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool is_needed;
    if (ebb__stream_is_captured(stream))
        return ebb__job_end(job, refuse());
    if (!box->width || !box->height || !box->depth)
        return ebb__job_end(job, CUDA_SUCCESS);
    if (!look(&detour, &is_needed))
        return ebb__job_end(job, CUDA_ERROR_NOT_SUPPORTED);
    bool is_relaxed = ebb__real.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    CUresult result = copy(&detour, job);
    if (is_relaxed)
        ebb__real.cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}
