/* Ballast: mappings that are good for nothing, and are given up when the system has no more to
 * give.
 *
 * A process may have some 65,000 mappings (vm.max_map_count). Where a block can only be fetched by
 * a new mapping, a program that has taken all of them could not go on, though without Ebb it could.
 * So the device holds some in reserve, and nothing is evicted while the reserve is not full. One
 * state a process; calls are serialised by the runtime's lock. */
#ifndef EBB_DEVICE_BALLAST_H
#define EBB_DEVICE_BALLAST_H

#include <stdbool.h>

/* Fill the reserve. False: it is not full, and nothing should be evicted. */
bool ebb__ballast_fill(void);
/* Give up a few mappings, enough for one call; false: there are none left. */
bool ebb__ballast_give(void);

#endif
