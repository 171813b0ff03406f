/* Runs: mappings that a device makes by splitting its ranges. A process may have some 65,000 mappings
 * (vm.max_map_count), and the program needs some for itself: threads, libraries, files. So runs are
 * counted, and beyond a quarter of what the system permits there are no more.
 *
 * A run is known by the unit of 2 MiB in which it begins; those that lie in one unit count as one. One
 * state a process; calls are serialised by the runtime's lock. */
#ifndef EBB_DEVICE_RUNS_H
#define EBB_DEVICE_RUNS_H

#include "device/device.h"

/* False and errno: no memory for the table. Also in the child of a fork, where the table stays. */
bool ebb__runs_open(const struct ebb_device_layout *layout);
/* A run begins at `address`, of arena or staging; or what was there is one with its neighbours again. */
void ebb__runs_note(uintptr_t address, bool begins);
/* Does one begin there? */
bool ebb__runs_begins(uintptr_t address);
/* As many as there may be are there: in the arena; in staging. */
bool ebb__runs_full_in_arena(void);
bool ebb__runs_full_in_staging(void);
/* Half as many as there may be are in staging. */
bool ebb__runs_many_in_staging(void);

#endif
