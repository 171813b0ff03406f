/* What a run has come to: counters of all processes, and the iterations of the busiest one. */
#include "base/order.h"
#include "parent/internal.h"

#include <stdlib.h>

/* The process whose blocks were largest speaks for the run. */
static const struct process *busiest(const struct ebb_parent *parent)
{
    const struct process *best = NULL;
    uint64_t best_bytes = 0;
    for (size_t i = 0; i < parent->processes.count; i++) {
        const struct process *process = parent->processes.items[i];
        uint64_t bytes = atomic_load(&process->stream.ring->counters.peak_live_bytes);
        if (!best || bytes > best_bytes) {
            best = process;
            best_bytes = bytes;
        }
    }
    return best;
}

/* Of the iterations that are kept: medians and extremes; of all: their numbers. */
static void iteration_figures(const struct process *process, struct ebb_parent_result *result)
{
    const struct ebb_watch_iteration *iterations;
    const struct ebb_watch_forgotten forgotten = ebb__watch_forgotten(process->stream.watch);
    size_t kept = ebb__watch_kept(process->stream.watch, &iterations), taken = 0;
    size_t planned = forgotten.planned;
    uint64_t *durations = calloc(kept + 1, sizeof *durations);
    uint64_t *faults = calloc(kept + 1, sizeof *faults);
    result->iterations = ebb__watch_iterations(process->stream.watch);
    if (planned)
        result->planned_from_iteration = (int64_t)forgotten.first_planned;
    for (size_t i = 0; i < kept && durations && faults; i++) {
        int64_t number = (int64_t)(forgotten.iterations + i);
        bool reactive = process->learning.reactive_from >= 0 &&
                        number >= process->learning.reactive_from && !iterations[i].traced;
        if (iterations[i].planned && planned++ == 0)
            result->planned_from_iteration = number;
        if (iterations[i].planned || reactive) {
            durations[taken] = iterations[i].duration_ns;
            faults[taken++] = iterations[i].demand_faults;
        }
    }
    result->planned_iterations = planned;
    result->iteration_median_ns = ebb__median_u64(durations, taken);
    result->demand_faults_planned_median = planned ? ebb__median_u64(faults, taken) : 0;
    if (taken) {
        result->iteration_min_ns = durations[0];
        result->iteration_max_ns = durations[taken - 1];
    }
    free(durations);
    free(faults);
}

enum ebb_status ebb__parent_finish(struct ebb_parent *parent, struct ebb_parent_result *result,
                                   struct ebb_error *error)
{
    ebb__parent_step(parent);
    if (parent->lanes.state == LANES_PROBING)
        ebb__lanes_await(parent);
    *result = parent->gone;
    result->planned_from_iteration = result->budget_from_iteration = -1;
    const struct ebb_ledger *ledger = parent->ledger;
    result->budget_bytes = atomic_load(&ledger->budget_bytes);
    result->learning_peak_bytes = atomic_load(&ledger->learning_peak_bytes);
    result->over_budget_bytes = atomic_load(&ledger->over_bytes);
    result->peak_resident_bytes = atomic_load(&ledger->in_force) ? atomic_load(&ledger->peak_bytes)
                                                                 : result->learning_peak_bytes;
    for (size_t i = 0; i < parent->processes.count; i++)
        ebb__gone_add(parent->processes.items[i], result);
    const struct process *main = busiest(parent);
    if (main) {
        const struct ebb_counters *counters = &main->stream.ring->counters;
        result->managed_peak_bytes = atomic_load(&counters->peak_live_bytes);
        uint64_t out_ns = atomic_load(&counters->out_busy_ns);
        uint64_t in_ns = atomic_load(&counters->in_busy_ns);
        if (out_ns)
            result->measured_out_bps =
                (double)atomic_load(&counters->out_lane_bytes) * 1e9 / (double)out_ns;
        if (in_ns)
            result->measured_in_bps =
                (double)atomic_load(&counters->in_lane_bytes) * 1e9 / (double)in_ns;
        result->unmanaged_bytes = atomic_load(&counters->unmanaged_bytes);
        result->slab_peak_bytes = atomic_load(&counters->slab_peak_bytes);
        result->slab_used_bytes = main->sent.slab_bytes;
        result->unmanaged_peak_bytes = ebb__budget_peak(main);
        result->budget_from_iteration = main->budget_from;
        result->device_kind = atomic_load(&counters->mechanism);
        if (main->stream.watch)
            iteration_figures(main, result);
    }
    for (size_t i = 0; i < parent->processes.count; i++)
        ebb__recall_save(parent, parent->processes.items[i]);
    if (main)
        result->cache = main->recall.use;
    result->period_events = parent->figures.period_events;
    result->predicted_peak_bytes = parent->figures.predicted_peak_bytes;
    result->predicted_stall_ns = parent->figures.predicted_stall_ns;
    result->plan_timed_out = parent->figures.plan_timed_out;
    result->predicted_iteration_ns = parent->figures.predicted_iteration_ns;
    result->smallest_feasible_bytes = parent->figures.smallest_feasible_bytes;
    result->plans = parent->figures.plans;
    result->replans = parent->figures.replans;
    result->events = parent->figures.events;
    result->processes = parent->hello_count;
    result->main_said_hello = parent->main_said_hello;
    if (parent->lanes.state == LANES_KNOWN) {
        result->out_bps = 1e9 / parent->lanes.machine.out.ns_per_byte;
        result->in_bps = 1e9 / parent->lanes.machine.in.ns_per_byte;
    }
    enum ebb_status status = parent->recording.status;
    if (status != EBB_OK && error)
        *error = parent->recording.error;
    if (parent->recording.writer) {
        enum ebb_status closed =
            ebb__trace_writer_close(parent->recording.writer, status == EBB_OK ? error : NULL);
        parent->recording.writer = NULL;
        if (status == EBB_OK)
            status = closed;
    }
    return status;
}
