/* The result of a run: counters of all processes, and the iterations of the busiest one. */
#include "base/order.h"
#include "base/size.h"
#include "parent/internal.h"

#include <stdio.h>
#include <stdlib.h>

enum { SWINGS = 64 }; /* iterations whose median swing is taken: any number does */

/* Medians and extremes cover the iterations that are kept; counts cover all. If the newest pattern
 * was planned, they cover only that: a loop that was planned before it has many more. */
static void iteration_figures(const struct process *process, struct ebb_parent_result *result)
{
    const struct ebb_watch_iteration *iterations;
    const struct ebb_watch_forgotten forgotten = ebb__watch_forgotten(process->stream.watch);
    size_t kept = ebb__watch_kept(process->stream.watch, &iterations), taken = 0;
    size_t planned = forgotten.planned, newest = ebb__watch_pattern(process->stream.watch);
    bool newest_only = false;
    uint64_t *durations = calloc(kept + 1, sizeof *durations);
    uint64_t *faults = calloc(kept + 1, sizeof *faults);
    result->iterations.count = ebb__watch_iterations(process->stream.watch);
    if (planned)
        result->iterations.planned_from = (int64_t)forgotten.first_planned;
    for (size_t i = 0; i < kept && durations && faults; i++) {
        int64_t number = (int64_t)(forgotten.iterations + i);
        bool reactive = process->learning.reactive_from >= 0 &&
                        number >= process->learning.reactive_from && !iterations[i].traced;
        if (iterations[i].planned && planned++ == 0)
            result->iterations.planned_from = number;
        bool counts = iterations[i].planned || reactive;
        bool is_newest = iterations[i].pattern + (size_t)1 == newest;
        if (counts && is_newest && !newest_only) {
            newest_only = true;
            taken = 0;
        }
        if (counts && (is_newest || !newest_only)) {
            durations[taken] = iterations[i].duration_ns;
            faults[taken++] = iterations[i].demand_faults;
        }
    }
    result->iterations.planned = planned;
    result->iterations.median_ns = ebb__median_u64(durations, taken);
    result->iterations.demand_faults_median = planned ? ebb__median_u64(faults, taken) : 0;
    if (taken) {
        result->iterations.min_ns = durations[0];
        result->iterations.max_ns = durations[taken - 1];
    }
    free(durations);
    free(faults);
}

/* The swing of live bytes that tells a step: the median of the planned iterations that are kept. If
 * their sizes differ, the shortest counts as a step, too. 0: not known. */
static uint64_t planned_swing(const struct process *process)
{
    const struct ebb_watch_iteration *iterations;
    size_t kept = ebb__watch_kept(process->stream.watch, &iterations), taken = 0;
    size_t first = kept > SWINGS ? kept - SWINGS : 0;
    uint64_t swings[SWINGS];
    for (size_t i = first; i < kept; i++)
        if (iterations[i].planned)
            swings[taken++] = ebb__steps_swing(&process->stream.steps, iterations[i].start_ns,
                                               iterations[i].start_ns + iterations[i].duration_ns);
    uint64_t usual = ebb__median_u64(swings, taken); /* now they are in order */
    uint64_t shortest = taken ? swings[0] + swings[0] / 2 : 0;
    return ebb__watch_varies(process->stream.watch) && shortest < usual ? shortest : usual;
}

/* How many swings of live bytes a planned iteration has, if these are its micro-batches; else 1. */
static unsigned planned_batches(const struct process *process, uint64_t telling_bytes)
{
    const struct ebb_watch *watch = process->stream.watch;
    const struct ebb_watch_iteration *all;
    size_t kept = ebb__watch_kept(watch, &all), taken = 0;
    size_t first = kept > SWINGS ? kept - SWINGS : 0;
    struct ebb_steps_rule rule = {.telling_bytes = telling_bytes};
    uint64_t counts[SWINGS];
    if (!ebb__watch_accumulates(watch))
        return 1;
    for (size_t i = first; i < kept; i++)
        if (all[i].pattern + (size_t)1 == ebb__watch_pattern(watch))
            counts[taken++] = ebb__steps_within(&process->stream.steps, rule, all[i].start_ns,
                                                all[i].start_ns + all[i].duration_ns);
    uint64_t count = ebb__median_u64(counts, taken);
    return count > 1 ? (unsigned)count : 1;
}

/* People count steps. They take the place of what the watch has recorded, unless the iterations are
 * told by accesses, or live bytes do not show them. */
static void step_figures(const struct process *process, struct ebb_parent_result *result)
{
    struct ebb_iteration_figures *figures = &result->iterations;
    const struct ebb_steps *steps = &process->stream.steps;
    bool by_allocs = ebb__watch_is_by_allocs(process->stream.watch);
    struct ebb_steps_found found;
    uint64_t budget_from;
    struct ebb_steps_rule rule = {.telling_bytes = planned_swing(process)};
    rule.batches = planned_batches(process, rule.telling_bytes);
    if (!by_allocs || ebb__steps_find(steps, rule, &found) != EBB_OK ||
        found.count < EBB_STEPS_RECUR ||
        ebb__steps_at(steps, rule, process->budget_event, &budget_from) != EBB_OK)
        return;
    figures->count = found.count;
    figures->planned = found.planned;
    figures->planned_from = found.planned ? (int64_t)found.planned_from : -1;
    figures->lost = found.lost;
    if (!figures->median_ns) {
        figures->median_ns = found.median_ns;
        figures->min_ns = found.min_ns;
        figures->max_ns = found.max_ns;
    }
    if (process->budget_from > 0) /* 0 means from the first allocation on */
        result->budget.from_iteration = budget_from ? (int64_t)budget_from : 1;
}

static uint64_t peak_of(const struct ebb_ledger *ledger)
{
    return atomic_load(atomic_load(&ledger->in_force) ? &ledger->peak_bytes
                                                      : &ledger->learning_peak_bytes);
}

static void ledger_figures(const struct ebb_ledger *ledger, struct ebb_parent_result *result)
{
    result->budget.bytes = atomic_load(&ledger->budget_bytes);
    result->budget.over_bytes = atomic_load(&ledger->over_bytes);
    result->peak.learning_bytes = atomic_load(&ledger->learning_peak_bytes);
    result->peak.resident_bytes = peak_of(ledger);
}

/* Bytes per second; 0: nothing was moved. */
static double measured_bps(uint64_t bytes, uint64_t busy_ns)
{
    return busy_ns ? (double)bytes * 1e9 / (double)busy_ns : 0;
}

static void busiest_figures(const struct process *main, struct ebb_parent_result *result)
{
    const struct ebb_counters *counters = &main->stream.ring->counters;
    result->peak.managed_bytes = atomic_load(&counters->peak_live_bytes);
    result->peak.unmanaged_bytes = ebb__budget_peak(main);
    result->lanes.measured_out_bps =
        measured_bps(atomic_load(&counters->out_lane_bytes), atomic_load(&counters->out_busy_ns));
    result->lanes.measured_in_bps =
        measured_bps(atomic_load(&counters->in_lane_bytes), atomic_load(&counters->in_busy_ns));
    result->small.unmanaged_bytes = atomic_load(&counters->unmanaged_bytes);
    result->small.slab_peak_bytes = atomic_load(&counters->slab_peak_bytes);
    result->small.slab_used_bytes = main->sent.slab_bytes;
    result->budget.from_iteration = main->budget_from;
    result->processes.device_kind = atomic_load(&counters->mechanism);
    if (main->stream.watch) {
        iteration_figures(main, result);
        step_figures(main, result);
    }
}

static void host_figures(const struct ebb_ledger *ledger, struct ebb_parent_result *result)
{
    struct ebb_host_figures *host = &result->host;
    host->budget_bytes = atomic_load(&ledger->budget_bytes);
    host->peak_bytes = peak_of(ledger);
    host->over_bytes = atomic_load(&ledger->over_bytes);
    if (host->over_bytes > result->budget.over_bytes)
        result->budget.over_bytes = host->over_bytes;
}

static void device_figures(const struct ebb_parent *parent, struct ebb_parent_result *result)
{
    for (size_t i = 0; i < parent->devices.count; i++) {
        const struct fast_memory *memory = parent->devices.items[i];
        struct ebb_device_figures *figures = &result->devices.items[result->devices.count++];
        *figures = (struct ebb_device_figures){
            .bytes = memory->bytes,
            .budget_bytes = atomic_load(&memory->ledger->budget_bytes),
            .peak_bytes = peak_of(memory->ledger),
            .over_bytes = atomic_load(&memory->ledger->over_bytes),
        };
        if (figures->over_bytes > result->budget.over_bytes)
            result->budget.over_bytes = figures->over_bytes;
        snprintf(figures->name, sizeof figures->name, "%s", memory->name);
        snprintf(figures->bus, sizeof figures->bus, "%s", memory->bus);
    }
}

/* The parent's own counts. */
static void parent_figures(const struct ebb_parent *parent, const struct fast_memory *memory,
                           struct ebb_parent_result *result)
{
    const struct ebb_machine *machine = &memory->lanes.machine;
    result->plan = parent->figures.plan;
    result->iterations.period_events = parent->figures.period_events;
    result->budget.smallest_feasible_bytes = parent->figures.smallest_feasible_bytes;
    result->events.taken = parent->figures.events;
    result->processes.count = parent->hello_count;
    result->processes.main_said_hello = parent->main_said_hello;
    if (memory->lanes.state == LANES_KNOWN) {
        result->lanes.out_bps = 1e9 / machine->out.ns_per_byte;
        result->lanes.in_bps = 1e9 / machine->in.ns_per_byte;
    }
}

/* Processes that come one after the other have the store's space in turn. Where all of it is
 * counted, that count is the most. */
static void store_figures(const struct ebb_parent *parent, struct ebb_parent_result *result)
{
    const struct ebb_ledger *ledger = parent->host_store.ledger;
    uint64_t most = ledger ? peak_of(ledger) : UINT64_MAX, on_host = result->host.store_peak_bytes;
    if (on_host <= most)
        return;
    result->store.peak_bytes -= on_host - most;
    result->host.store_peak_bytes = most;
}

/* Closes the trace, if there is one. The first failure is reported. */
static enum ebb_status end_recording(struct recording *recording, struct ebb_error *error)
{
    enum ebb_status status = recording->status;
    if (status != EBB_OK && error)
        *error = recording->error;
    if (recording->writer) {
        enum ebb_status closed =
            ebb__trace_writer_close(recording->writer, status == EBB_OK ? error : NULL);
        recording->writer = NULL;
        if (status == EBB_OK)
            status = closed;
    }
    return status;
}

/* The first process with blocks may only have started the one that trains. */
static void look_at_recorded(struct ebb_parent *parent, const struct process *busiest)
{
    const struct recording *recording = &parent->recording;
    uint64_t most = busiest ? atomic_load(&busiest->stream.ring->counters.peak_live_bytes) : 0;
    uint64_t recorded = 0;
    for (size_t i = 0; i < parent->processes.count; i++)
        if (parent->processes.items[i]->number == recording->process)
            recorded =
                atomic_load(&parent->processes.items[i]->stream.ring->counters.peak_live_bytes);
    if (recording->process && !recording->is_of_device && most > 2 * recorded)
        ebb__parent_warn(parent,
                         "the trace is of the first process with blocks; process %d held %.1f MiB, "
                         "more than twice as much: record that program alone",
                         busiest->process_id, (double)most / (double)EBB_MIB);
}

enum ebb_status ebb__parent_finish(struct ebb_parent *parent, struct ebb_parent_result *result,
                                   struct ebb_error *error)
{
    /* A process may still live, and write. What its ring holds now is read in four steps. */
    for (int i = 0; i < 4 && ebb__parent_step(parent) == 0; i++)
        ;
    if (parent->host.lanes.state == LANES_PROBING)
        ebb__lanes_await(parent, &parent->host);
    ebb__plans_tell_last(parent, &parent->host);
    for (size_t i = 0; i < parent->devices.count; i++)
        ebb__plans_tell_last(parent, parent->devices.items[i]);
    *result = parent->gone;
    result->iterations.planned_from = result->budget.from_iteration = -1;
    const struct process *main = ebb__gone_busiest(parent);
    const struct fast_memory *memory = main ? main->memory : &parent->host;
    ledger_figures(memory->ledger, result);
    host_figures(parent->host.ledger, result);
    device_figures(parent, result);
    for (size_t i = 0; i < parent->processes.count; i++)
        ebb__gone_add(parent->processes.items[i], result);
    if (main)
        busiest_figures(main, result);
    for (size_t i = 0; i < parent->processes.count; i++)
        ebb__leave_last(parent, parent->processes.items[i]);
    if (main) {
        result->cache = main->recall.use;
        result->cache_dropped = main->recall.why_dropped;
    }
    parent_figures(parent, memory, result);
    store_figures(parent, result);
    look_at_recorded(parent, main);
    return end_recording(&parent->recording, error);
}
