#ifndef PROGRAM_HIDDEN_H
#define PROGRAM_HIDDEN_H

/* Memory that a kernel uses without naming it. A pointer to it is in a cell of device memory. The
 * module's global "cell" has the address of that cell. */

#include "../fakecuda.h"

/* A kernel that stores a pointer where only the next one finds it: pointer, cell. */
static inline void hidden_store(struct fakecuda_kernel *k)
{
    CUdeviceptr pointer = fakecuda_pointer(k, 0), cell = fakecuda_pointer(k, 8);
    memcpy(fakecuda_write(k, cell, 8), &pointer, 8);
    memcpy(fakecuda_write(k, fakecuda_global(k, "cell"), 8), &cell, 8);
}

static inline CUdeviceptr hidden_pointer(struct fakecuda_kernel *k)
{
    CUdeviceptr cell, pointer;
    memcpy(&cell, fakecuda_read(k, fakecuda_global(k, "cell"), 8), 8);
    memcpy(&pointer, fakecuda_read(k, cell, 8), 8);
    return pointer;
}

static const struct fakecuda_global hidden_globals[] = {{"cell", 8, NULL}};

#endif
