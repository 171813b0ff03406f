/* Runs: mappings that a device makes by splitting its ranges. A process may have some 65,000
 * mappings (vm.max_map_count). The program needs some for threads, libraries and files. So Ebb
 * counts runs, and makes no more than a quarter of what the system permits.
 *
 * A run is identified by the 2 MiB unit in which it begins. Runs that begin in one unit count as
 * one. One state per process. The runtime's lock serialises the calls. */
#ifndef EBB_DEVICE_RUNS_H
#define EBB_DEVICE_RUNS_H

#include "device/device.h"

/* Allocates the table. Returns false and sets errno if there is no memory for it. In the child of a
 * fork it keeps the table. */
bool ebb__runs_open(const struct ebb_device_layout *layout);
/* Notes that a run begins at `address` in arena or staging, or that it has merged with its
 * neighbours. */
void ebb__runs_note(uintptr_t address, bool begins);
/* The ranges of the layout are no longer in use. */
void ebb__runs_close(void);
/* True if a run begins there. */
bool ebb__runs_begins(uintptr_t address);
/* The runs in the arena, or in staging, have reached their limit. */
bool ebb__runs_full_in_arena(void);
bool ebb__runs_full_in_staging(void);
/* Staging has half as many runs as its limit or more. */
bool ebb__runs_many_in_staging(void);

#endif
