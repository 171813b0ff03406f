/* Pointers in the payload of copies to the device: tables from which kernels take addresses that no
 * parameter names. */
#ifndef EBB_SHIM_CUDA_PAYLOAD_H
#define EBB_SHIM_CUDA_PAYLOAD_H

#include "job.h"

/* `bytes` at the host's `from` are about to be copied to `to`. If both are few enough and `to` is
 * in a block, each aligned word that points into another block makes that block reachable. */
void ebb__payload_scan(CUdeviceptr to, const void *from, size_t bytes);
/* The same if `from` may be an address of the host or of a device. */
void ebb__payload_scan_unified(CUdeviceptr to, CUdeviceptr from, size_t bytes);

/* copies.c: the operands of a copy of a box, for copies that are nodes of graphs. */
void ebb__copies_use_3d(struct door_job *job, const CUDA_MEMCPY3D *copy);

#endif
