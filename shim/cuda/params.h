/* Which blocks the parameters of a kernel point to. */
#ifndef EBB_SHIM_CUDA_PARAMS_H
#define EBB_SHIM_CUDA_PARAMS_H

#include "job.h"

/* Adds a use to `job` for each value among the parameters that lies in a block. Returns the name of
 * the kernel: the same for the same kernel in every run. `parameters` or `extra`, as in a launch;
 * one of them is NULL. `function` may be a CUkernel. Takes no lock; the first launch of a function
 * asks the driver for its layout, and allocates. */
uint64_t ebb__params_scan(struct door_job *job, CUfunction function, void *const *parameters,
                          void *const *extra);
/* This handle is a CUkernel: its layout is asked as such. */
void ebb__params_know_kernel(CUkernel kernel);
/* Functions are unloaded: handles may come to mean others. */
void ebb__params_forget(void);

#endif
