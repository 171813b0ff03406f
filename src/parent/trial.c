/* Begins the trial of a plan when it is sent: records what it assumed, so that replan.c can compare
 * it with what happens. */
#include "parent/internal.h"

void ebb__trial_begin(struct ebb_parent *parent, struct process *process)
{
    struct trial *trial = &process->trial;
    trial->counts = ebb__measured_counts(process);
    trial->stalled_ns = atomic_load(&process->stream.ring->counters.stall_ns);
    trial->stall_count = 0;
    trial->machine = process->memory->lanes.machine;
    trial->predicted_stall_ns = parent->figures.plan.stall_ns;
    trial->predicted_work_ns = parent->figures.plan.iteration_ns - parent->figures.plan.stall_ns -
                               parent->figures.plan.overhead_ns;
    trial->first_iteration = trial->looked_at =
        process->stream.watch ? ebb__watch_iterations(process->stream.watch) : 0;
    if (trial->state != TRIAL_SETTLED)
        ebb__trial_set(&trial->state, TRIAL_BEGUN);
}
