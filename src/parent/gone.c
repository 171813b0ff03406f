/* Processes that have ended: keeps what the summary needs of them, and frees their memory.
 *
 * For a process the parent holds its ring, the window of its events, and its scripts: megabytes.
 * Programs may start thousands of short processes. So when a process ends, its counts are added up,
 * its profile is saved, and the rest is released. The one with the largest blocks so far is kept
 * whole, since the summary shows the iterations of the busiest process. The release waits one step
 * after the end: the hello of a child that was forked just before may be read later. */
#include "parent/internal.h"

#include <stdlib.h>
#include <sys/mman.h>

void ebb__gone_add(const struct process *process, struct ebb_parent_result *result)
{
    const struct ebb_counters *counters = &process->stream.ring->counters;
    result->transfers.out_bytes += atomic_load(&counters->moved_out_bytes);
    result->transfers.in_bytes += atomic_load(&counters->moved_in_bytes);
    result->transfers.saved_bytes += atomic_load(&counters->saved_bytes);
    result->transfers.evicted_clean_bytes += atomic_load(&counters->evicted_clean_bytes);
    result->transfers.out_busy_ns += atomic_load(&counters->out_busy_ns);
    result->transfers.in_busy_ns += atomic_load(&counters->in_busy_ns);
    result->transfers.stall_ns += atomic_load(&counters->stall_ns);
    result->faults.demand += atomic_load(&counters->demand_faults);
    result->faults.mismatches += atomic_load(&counters->mismatches);
    result->faults.observed += atomic_load(&counters->observed_faults);
    result->faults.observed_ns += atomic_load(&counters->observed_ns);
    result->transfers.reactive_evictions += atomic_load(&counters->reactive_evictions);
    result->transfers.busy_blocks += atomic_load(&counters->busy_blocks);
    result->transfers.away_allocations += atomic_load(&counters->away_allocations);
    result->placement.load_bytes += atomic_load(&counters->placement_load_bytes);
    result->placement.peak_bytes += atomic_load(&counters->placement_peak_bytes);
    result->placement.blocks += atomic_load(&counters->placement_blocks);
    result->placement.misses += atomic_load(&counters->placement_misses);
    result->transfers.page_moves += atomic_load(&counters->page_moves);
    result->store.peak_bytes += atomic_load(&counters->store_peak_bytes);
    result->events.lost += atomic_load(&process->stream.ring->lost);
    result->processes.managing |= atomic_load(&counters->managing) != 0;
    result->processes.retired |= atomic_load(&counters->retired) != 0;
    if (!process->memory->is_device) {
        result->host.store_peak_bytes += atomic_load(&counters->store_peak_bytes);
        result->host.managing |= atomic_load(&counters->managing) || result->host.store_peak_bytes;
    }
    if (atomic_load(&counters->store_error))
        result->store.error = (int)atomic_load(&counters->store_error);
}

void ebb__gone_release(struct process *process)
{
    if (process->stream.ring)
        munmap(process->stream.ring, process->stream.ring_bytes);
    ebb__watch_destroy(process->stream.watch);
    ebb__recurrence_destroy(process->stream.recurrence);
    ebb__steps_fini(&process->stream.steps);
    ebb__profile_fini(&process->recall.profile);
    ebb__model_fini(&process->recall.original.model);
    ebb__profile_fini(&process->learnt);
    free(process->sent.script);
    free(process->sent.script_before);
    free(process);
}

/* A process that uses a device stands behind all others. The device, which counts as one, has its
 * blocks. What a fork has made counts by what it has added. It counts twice if it has iterations:
 * it may train on data that its parent only holds. */
static uint64_t rank(const struct process *process)
{
    const struct ebb_counters *counters = &process->stream.ring->counters;
    uint64_t peak = atomic_load(&counters->peak_live_bytes);
    uint64_t inherited = atomic_load(&counters->inherited_bytes);
    uint64_t added = peak > inherited ? peak - inherited : 0;
    bool repeats = process->stream.watch && ebb__watch_iterations(process->stream.watch) > 0;
    return atomic_load(&counters->retired) ? 0 : 1 + (repeats ? 2 * added : added);
}

const struct process *ebb__gone_busiest(const struct ebb_parent *parent)
{
    const struct process *best = NULL;
    for (size_t i = 0; i < parent->processes.count; i++)
        if (!best || rank(parent->processes.items[i]) > rank(best))
            best = parent->processes.items[i];
    return best;
}

void ebb__gone_collect(struct ebb_parent *parent)
{
    const struct process *kept = NULL;
    for (size_t i = 0; i < parent->processes.count; i++) {
        const struct process *process = parent->processes.items[i];
        if (process->channel < 0 && (!kept || rank(process) > rank(kept)))
            kept = process;
    }
    size_t count = 0;
    for (size_t i = 0; i < parent->processes.count; i++) {
        struct process *process = parent->processes.items[i];
        if (process->channel >= 0 || process == kept) {
            parent->processes.items[count++] = process;
            continue;
        }
        ebb__gone_add(process, &parent->gone);
        ebb__leave_last(parent, process);
        ebb__budget_forget(process);
        ebb__gone_release(process);
    }
    parent->processes.count = count;
}
