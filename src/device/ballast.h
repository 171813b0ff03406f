/* Ballast: unused mappings that Ebb unmaps if the system permits no further mapping.
 *
 * A process may have some 65,000 mappings (vm.max_map_count). On some devices a fetch needs a new
 * mapping. If the program has used all of them, the fetch fails, though the program would run
 * without Ebb. So the device holds some mappings in reserve, and evicts nothing unless the reserve
 * is full. One state per process. The runtime's lock serialises the calls. */
#ifndef EBB_DEVICE_BALLAST_H
#define EBB_DEVICE_BALLAST_H

#include <stdbool.h>

/* Fills the reserve of mappings. If it returns false, the reserve is not full, and nothing should
 * be evicted. */
bool ebb__ballast_fill(void);
/* Unmaps a few reserved mappings, enough for one call. Returns false if none are left. */
bool ebb__ballast_give(void);

#endif
