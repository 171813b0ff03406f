/* Work of which no engine has heard: kernels and graphs that name no block, and waits for words.
 *
 * They may use blocks all the same: by a variable of a module, or by a table in other memory. The
 * driver's cuMemFree waits for all work of the device; an engine's free waits for what that engine
 * has heard of. So frees wait for the rest here. All functions are thread-safe and take no lock. */
#ifndef EBB_SHIM_CUDA_UNHEARD_H
#define EBB_SHIM_CUDA_UNHEARD_H

#include "cuda/abi.h"

#include <stdbool.h>
#include <stdint.h>

/* Such work has been queued, on some device. */
void ebb__unheard_note(void);
/* How much has been noted so far. */
uint64_t ebb__unheard_count(void);
/* All that had been noted then is over on this device. */
void ebb__unheard_over(CUdevice device, uint64_t count);
/* May some of it not be over on this device? */
bool ebb__unheard_any(CUdevice device);
/* Waits for it, as for all other work of the device. False: a capture in progress forbids that. */
bool ebb__unheard_await(CUdevice device);

#endif
