/* Observation: what was used since the last event is parked at each event, so that its next use is a
 * fault, which tells of it. */
#include "runtime/internal.h"

#include "base/tuning.h"

void ebb__observe_close(struct ebb_runtime *runtime)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < runtime->uses.open_count; i++) {
        struct block *block = &runtime->table.blocks[runtime->uses.open_blocks[i]];
        block->use.open = false;
        if (block->state == BLOCK_RESIDENT && !ebb__move_park(runtime, block)) {
            block->use.open =
                true; /* pinned: its next use is not seen, try again at the next event */
            runtime->uses.open_blocks[kept++] = runtime->uses.open_blocks[i];
        }
    }
    runtime->uses.open_count = kept;
}

void ebb__observe_begin(struct ebb_runtime *runtime, uint64_t now_ns)
{
    runtime->uses.event_number++;
    runtime->uses.operation_ns = now_ns;
    runtime->uses.pause_faults = 0;
    if (runtime->uses.blind_until)
        ebb__observe_note(runtime);
    if (runtime->store.failed)
        ebb__store_retry(runtime, now_ns);
}

bool ebb__observe_pause(struct ebb_runtime *runtime)
{
    uint64_t now = ebb__now_ns(), since = now - runtime->uses.operation_ns;
    runtime->uses.pause_faults += runtime->uses.trace;
    if (since < runtime->core.config.pause_ns ||
        since - runtime->core.config.pause_ns <
            runtime->uses.pause_faults * ebb__tuning()->pause_a_fault_ns)
        return false;
    ebb__observe_begin(runtime, now);
    if (runtime->uses.trace)
        ebb__observe_close(runtime);
    return true;
}

void ebb__observe_note(struct ebb_runtime *runtime)
{
    if (runtime->placement.load_bytes && runtime->uses.event_number < runtime->uses.blind_until)
        return;
    runtime->uses.blind_until = 0;
    ebb__core_mark(runtime, EBB_MARK_TRACE_ON, 0);
}
