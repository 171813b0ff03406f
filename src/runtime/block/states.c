/* The states of a block. Only this file assigns one. A table lists the allowed transitions.
 *
 *     empty -> bare -> resident <-> parked -> writing back -> evicted -> fetching -> resident
 *
 * A part that is split off begins in the state of the part it belonged to (parts.c). */
#include "base/check.h"
#include "runtime/block/block.h"

#define TO(state) (1u << BLOCK_##state)

/* By state: the allowed next states. */
static const uint16_t follow[] = {
    [BLOCK_ASLEEP] = TO(ASLEEP) | TO(EMPTY) | TO(BARE),
    [BLOCK_EMPTY] = TO(EMPTY) | TO(BARE) | TO(ASLEEP),
    [BLOCK_CACHED] = TO(RESIDENT) | TO(EMPTY),
    [BLOCK_BARE] = TO(RESIDENT) | TO(EMPTY) | TO(ASLEEP),
    [BLOCK_RESIDENT] = TO(PARKED) | TO(CACHED) | TO(EMPTY) | TO(ASLEEP),
    [BLOCK_PARKED] = TO(RESIDENT) | TO(WRITING_BACK) | TO(EMPTY) | TO(ASLEEP),
    [BLOCK_WRITING_BACK] = TO(RESIDENT) | TO(EVICTED) | TO(DYING),
    [BLOCK_EVICTED] = TO(FETCHING) | TO(EMPTY),
    [BLOCK_FETCHING] = TO(RESIDENT) | TO(PARKED) | TO(EVICTED) | TO(DYING),
    [BLOCK_DYING] = TO(EMPTY),
};

bool ebb__block_may_become(enum block_state from, enum block_state to)
{
    return (follow[from] >> to & 1u) != 0;
}

void ebb__block_become(struct block *block, enum block_state state)
{
    EBB_CHECK_THAT(ebb__block_may_become(block->state, state));
    block->state = state;
}
