/* Pointers in the payload of copies to the device: tables from which kernels take addresses that no
 * parameter names. */
#ifndef EBB_SHIM_CUDA_PAYLOAD_H
#define EBB_SHIM_CUDA_PAYLOAD_H

#include "job.h"

/* `bytes` at the host's `from` are about to be copied to `to`: a block, or a variable of a module.
 * If they are few, each aligned word that points into another block makes that block reachable. */
void ebb__payload_scan(CUdeviceptr to, const void *from, size_t bytes);
/* The same if `from` may be an address of the host or of a device. */
void ebb__payload_scan_unified(CUdeviceptr to, CUdeviceptr from, size_t bytes);
/* The same for a copy within devices: a source that the driver does not know is not read. */
void ebb__payload_scan_within(CUdeviceptr to, CUdeviceptr from, size_t bytes);

/* A box: rows of `width` bytes, the starts of which are `pitch` or `slice` bytes apart in host
 * memory. `to` is the first byte of the destination. */
struct door_payload {
    CUdeviceptr to, from;
    size_t width, height, depth;
    size_t pitch, slice;
};
/* The same for a box of rows. must_be_locked: only if the source is page-locked memory. Other
 * memory may be gone, if the copy does not take place now. */
void ebb__payload_scan_box(const struct door_payload *payload, bool must_be_locked);
/* The same for each copy of a batch. NULL is allowed. */
void ebb__payload_scan_batch(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *bytes,
                             size_t count);

/* copies.c: the operands of a copy of a box, for copies that are nodes of graphs. Looks for
 * pointers in its payload, if the source is page-locked. */
void ebb__copies_use_3d(struct door_job *job, const CUDA_MEMCPY3D *copy);

#endif
