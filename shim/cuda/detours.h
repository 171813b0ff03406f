/* Copies of a block by another device than its own: between two devices, or in a stream of another
 * device.
 *
 * The driver would let one device reach into the memory of the other. Managed pages could then move
 * to the device that copies, beyond its budget, and mapped ones are closed to it. So each device
 * copies its own blocks only. Between two devices, the bytes go through page-locked memory. The
 * driver does the same for devices that cannot reach each other, and Ebb says that none can. */
#ifndef EBB_SHIM_CUDA_DETOURS_H
#define EBB_SHIM_CUDA_DETOURS_H

#include "job.h"

/* One side of a copy of a box. */
struct door_side {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    size_t x, y, z, pitch, height; /* pitch, height 0: as packed as the box */
};

struct door_box {
    struct door_side from, to;
    size_t width, height, depth;
};

/* Addresses are unified, so each may be one of the host. */
static inline struct door_box ebb__box_line(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return (struct door_box){.from = {.type = CU_MEMORYTYPE_UNIFIED, .device = from},
                             .to = {.type = CU_MEMORYTYPE_UNIFIED, .device = to},
                             .width = bytes,
                             .height = 1,
                             .depth = 1};
}

/* Where the first byte of a side is, and how far rows and slices are apart. */
CUdeviceptr ebb__side_start(const struct door_side *side, size_t width, size_t height,
                            uint64_t *pitch, uint64_t *slice);
/* The job uses that side. */
void ebb__side_use(struct door_job *job, const struct door_side *side, const struct door_box *box,
                   unsigned access);

/* copies.c: the operands of a box, and pointers in its payload. is_node: only if the source is
 * page-locked. */
void ebb__copies_use_box(struct door_job *job, const struct door_box *box, bool is_node);

/* Is it a copy of a block that is not for the device of the stream alone? Copies of arrays never
 * are. Cheap in a process with one device. */
bool ebb__detour_is_needed(const struct door_box *box, CUstream stream, bool is_synchronous);
/* Carries out a copy, needed or not, in the order of the stream. Ends the job, which has not begun.
 * In a capture it is refused. */
CUresult ebb__detour_copy(struct door_job *job, const struct door_box *box, CUstream stream,
                          bool is_synchronous);

#endif
