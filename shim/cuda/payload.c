/* The scan happens when the copy is queued. Page-locked memory may change before the copy runs, and
 * a copy that belongs to a graph reads it anew at each launch. What is missed that way costs time,
 * never correctness: the driver serves accesses that nobody announced. */
#include "payload.h"

#include <string.h>

/* Tables of pointers are short. 64 KiB, 8,192 pointers, take about 4 us; the copy itself takes more
 * (bench/cuda_launch.c). */
#define MOST_BYTES ((size_t)64 << 10)

static void reach(CUdeviceptr to, CUdeviceptr pointer)
{
    int owner = ebb__engines_owner(pointer);
    struct ebb_cuda *engine = ebb__engines_at(owner);
    CUdeviceptr base;
    size_t bytes;
    if (!engine || !ebb__cuda_range(engine, pointer, &base, &bytes) ||
        to - base < bytes) /* it points into the block that holds the table */
        return;
    ebb__cuda_reach(engine, pointer);
}

/* The driver knows page-locked memory and memory of devices. Other memory, of which it says that it
 * does not, is the program's own. */
static bool is_host(CUdeviceptr address, bool must_be_locked)
{
    unsigned type = 0;
    CUresult result =
        ebb__real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    if (result != CUDA_SUCCESS)
        return result == CUDA_ERROR_INVALID_VALUE && !must_be_locked;
    return type == CU_MEMORYTYPE_HOST;
}

static void scan_row(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    const char *at = (const char *)(uintptr_t)from;
    for (size_t i = (0 - (uintptr_t)from) & 7; i + sizeof(CUdeviceptr) <= bytes; i += 8) {
        CUdeviceptr value;
        memcpy(&value, at + i, sizeof value);
        if (ebb__engines_may_own(value))
            reach(to, value);
    }
}

void ebb__payload_scan_box(const struct door_payload *payload, bool must_be_locked)
{
    size_t rows, bytes;
    if (!payload->from || payload->width < sizeof(CUdeviceptr) ||
        __builtin_mul_overflow(payload->height, payload->depth, &rows) ||
        __builtin_mul_overflow(payload->width, rows, &bytes) || bytes > MOST_BYTES ||
        ebb__engines_may_own(payload->from) || !is_host(payload->from, must_be_locked))
        return;
    for (size_t z = 0; z < payload->depth; z++)
        for (size_t y = 0; y < payload->height; y++)
            scan_row(payload->to, payload->from + z * payload->slice + y * payload->pitch,
                     payload->width);
}

void ebb__payload_scan_unified(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    ebb__payload_scan_box(&(struct door_payload){to, from, bytes, 1, 1, 0, 0}, false);
}

void ebb__payload_scan_within(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    ebb__payload_scan_box(&(struct door_payload){to, from, bytes, 1, 1, 0, 0}, true);
}

/* Programs may pass a device's address as the host's: the driver takes the real kind of memory. */
void ebb__payload_scan(CUdeviceptr to, const void *from, size_t bytes)
{
    ebb__payload_scan_unified(to, (CUdeviceptr)(uintptr_t)from, bytes);
}

/* All of a batch together are as long as one copy that is looked at. */
void ebb__payload_scan_batch(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *bytes,
                             size_t count)
{
    size_t left = MOST_BYTES;
    for (size_t i = 0; to && from && bytes && i < count; i++)
        if (bytes[i] <= left) {
            ebb__payload_scan_unified(to[i], from[i], bytes[i]);
            left -= bytes[i];
        }
}
