/* The driver as the engine sees it: a table of the functions that it calls (driver.def).
 *
 * The library that stands in front of the driver fills it with the real functions, a test with
 * those of the fake. No part of the engine calls the driver in any other way. */
#ifndef EBB_CUDA_DRIVER_H
#define EBB_CUDA_DRIVER_H

#include "base/status.h"
#include "cuda/abi.h"

#include <stdbool.h>
#include <stddef.h>

struct ebb_cuda_driver {
#define EBB_CUDA_REQUIRED(symbol) __typeof__(symbol) *symbol;
#define EBB_CUDA_OPTIONAL(symbol) __typeof__(symbol) *symbol;
#include "cuda/driver.def"
#undef EBB_CUDA_REQUIRED
#undef EBB_CUDA_OPTIONAL
};

/* `find` returns the real driver's function of that exact symbol, or NULL. EBB_ERR_UNSUPPORTED: a
 * required one is missing, which the error names. Allocates nothing. */
typedef void *ebb_cuda_find(void *context, const char *symbol);
EBB_NODISCARD enum ebb_status ebb__cuda_driver_load(struct ebb_cuda_driver *driver,
                                                    ebb_cuda_find *find, void *context,
                                                    struct ebb_error *error);
/* The name of a result, for messages: "CUDA_ERROR_OUT_OF_MEMORY". Never NULL. */
const char *ebb__cuda_result_name(CUresult result);

#endif
