/* Units for a block or a slab: where they come from, in this order.
 *
 * - the planned address of the allocation
 * - cached units: free, and on the device
 * - bare units, for which others leave the device
 * - bare units that stay absent: the block is used over the bus (`ebb__take_absent`)
 *
 * Units whose contents the mover will still destroy are not taken. If there are no others, new
 * addresses are reserved. Many addresses for little memory mean that the mover is far behind: then
 * the caller waits for it, and new addresses are the last resort. */
#ifndef EBB_CUDA_TAKE_H
#define EBB_CUDA_TAKE_H

#include "cuda/internal.h"

struct cuda_taken {
    uint32_t first, count;
    uint32_t arrival; /* of their pages; 0: over */
    uint64_t move;    /* request that populates them; 0: none */
    bool is_placed;   /* at the planned address */
    bool is_absent;
    struct cuda_passages before; /* what must be over before they are used */
};

/* All functions return false if it is impossible now. `count` is set by the caller. */
bool ebb__take_planned(struct ebb_cuda *engine, uint64_t bytes, struct cuda_taken *taken);
bool ebb__take_units(struct ebb_cuda *engine, uint32_t stream, struct cuda_taken *taken);
bool ebb__take_absent(struct ebb_cuda *engine, uint32_t stream, struct cuda_taken *taken);
/* Where ranges are reused as they were: prepares one for the next allocation that finds none. */
void ebb__take_ahead(struct ebb_cuda *engine);
/* A request that brings pages for these units. */
bool ebb__take_populate(struct ebb_cuda *engine, uint32_t first, uint32_t count, uint64_t *number,
                        uint32_t *arrival);

#endif
