/* Begins the trial of a plan when it is sent: records where it begins, so that replan.c can compare
 * what happens with what was predicted. */
#include "parent/internal.h"

void ebb__trial_begin(struct process *process)
{
    struct trial *trial = &process->trial;
    trial->counts = ebb__measured_counts(process);
    trial->stalled_ns = atomic_load(&process->stream.ring->counters.stall_ns);
    trial->stall_count = 0;
    trial->machine = process->memory->lanes.machine;
    trial->first_iteration = trial->looked_at =
        process->stream.watch ? ebb__watch_iterations(process->stream.watch) : 0;
    if (trial->state != TRIAL_SETTLED)
        ebb__trial_set(&trial->state, TRIAL_BEGUN);
}
