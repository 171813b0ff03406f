/* The budget of a run: given in bytes, or as a share of the program's peak.
 *
 * The peak is known once the iterations are: from a profile, or after they were detected. Until
 * then no budget is in force (enum budget_state). If the peak grows a little, the budget grows. If
 * it grows much, the iterations were detected wrongly, unless the planned one goes on. */
#include "parent/internal.h"

#include "base/size.h"
#include "base/tuning.h"

#define SMALL_BYTES (16 * EBB_MIB) /* small programs vary by so much */

uint64_t ebb__budget_peak(const struct process *process)
{
    const struct ebb_counters *counters = &process->stream.ring->counters;
    return atomic_load(&counters->peak_live_bytes) + atomic_load(&counters->unmanaged_bytes);
}

/* A scaled profile is planned before this run has reached its peak. Its model has it. */
static uint64_t expected_peak(const struct process *process)
{
    const struct recall *recall = &process->recall;
    uint64_t seen = ebb__budget_peak(process);
    if (!recall->is_scaled || recall->profile.iteration_count == 0)
        return seen;
    uint64_t scaled = recall->profile.iterations[0].model.peak_bytes;
    return scaled > seen ? scaled : seen;
}

static uint64_t share_of_peak(const struct ebb_parent *parent, uint64_t peak_bytes)
{
    return (uint64_t)(parent->options.budget_fraction * (double)peak_bytes);
}

uint64_t ebb__budget_of(const struct ebb_parent *parent, const struct process *process)
{
    return process->memory->budget.state == BUDGET_OPEN
               ? share_of_peak(parent, expected_peak(process))
               : atomic_load(&process->memory->ledger->budget_bytes);
}

uint64_t ebb__budget_share(const struct process *process, uint64_t budget)
{
    if (budget == UINT64_MAX)
        return budget;
    uint64_t own = atomic_load(&process->stream.ring->counters.held_bytes);
    uint64_t small = atomic_load(&process->stream.ring->counters.small_bytes);
    if (small < process->recall.profile.small_bytes)
        small = process->recall.profile.small_bytes;
    return ebb__ledger_share(process->memory->ledger, budget, own, small);
}

bool ebb__budget_is_near(const struct process *process, double share)
{
    const struct ebb_ledger *ledger = process->memory->ledger;
    uint64_t budget = atomic_load(&ledger->budget_bytes);
    if (process->memory->budget.state != BUDGET_GIVEN || budget == UINT64_MAX)
        return true;
    uint64_t most = ebb__budget_peak(process), held = atomic_load(&ledger->peak_bytes);
    return (double)(held > most ? held : most) >= share * (double)budget;
}

static void enter(struct budget *budget, enum budget_state state, const struct process *of,
                  uint64_t of_bytes)
{
    ebb__budget_set(&budget->state, state);
    budget->of = of;
    budget->of_bytes = of_bytes;
}

void ebb__budget_presume(struct ebb_parent *parent, struct process *process)
{
    struct ebb_ledger *ledger = process->memory->ledger;
    if (process->memory->budget.state != BUDGET_OPEN)
        return;
    uint64_t budget = share_of_peak(parent, process->recall.profile.unmanaged_peak_bytes);
    enter(&process->memory->budget, BUDGET_PRESUMED, process, 0);
    process->budget_from = 0;
    atomic_store(&ledger->budget_bytes, budget);
    atomic_store(&ledger->in_force, atomic_load(&ledger->held_bytes) <= budget);
}

void ebb__budget_confirm(const struct process *process)
{
    if (process->memory->budget.state == BUDGET_PRESUMED && process->memory->budget.of == process)
        enter(&process->memory->budget, BUDGET_FIXED, NULL, 0);
}

static void reopen(struct process *process)
{
    enter(&process->memory->budget, BUDGET_OPEN, NULL, 0);
    process->budget_from = -1;
    atomic_store(&process->memory->ledger->budget_bytes, UINT64_MAX);
    atomic_store(&process->memory->ledger->in_force, 0);
}

void ebb__budget_withdraw(struct process *process)
{
    if (process->memory->budget.state == BUDGET_PRESUMED && process->memory->budget.of == process)
        reopen(process);
}

void ebb__budget_enforce(struct ebb_parent *parent, struct process *process, uint64_t budget)
{
    if (process->memory->budget.state != BUDGET_OPEN)
        return;
    /* The peak may have grown while the plan was made. Then the budget follows it. */
    uint64_t of_bytes = (uint64_t)((double)budget / parent->options.budget_fraction);
    enter(&process->memory->budget, BUDGET_SHARED, process, of_bytes);
    atomic_store(&process->memory->ledger->budget_bytes, budget);
    process->budget_from = (int64_t)ebb__watch_iterations(process->stream.watch);
    process->budget_event = process->stream.steps.events;
    ebb__parent_tell_all(parent, EBB_MESSAGE_TRIM, 0);
}

bool ebb__budget_follow(struct ebb_parent *parent, struct process *process)
{
    uint64_t peak = ebb__budget_peak(process), known = process->memory->budget.of_bytes;
    /* An optimizer makes its state at the end of the first step, behind a few micro-batches. */
    bool goes_on = process->phase == PHASE_PLANNED && ebb__watch_is_held(process->stream.watch);
    if (process->memory->budget.state != BUDGET_SHARED || process->memory->budget.of != process ||
        peak <= known)
        return false;
    if (goes_on)
        process->memory->budget.of_bytes = peak;
    if (goes_on || peak <= known + known / ebb__tuning()->other_peak_divisor + SMALL_BYTES) {
        uint64_t budget = share_of_peak(parent, peak);
        if (budget > atomic_load(&process->memory->ledger->budget_bytes))
            atomic_store(&process->memory->ledger->budget_bytes, budget);
        return false;
    }
    reopen(process);
    atomic_store(&process->memory->ledger->over_bytes, 0);
    process->memory->budget.told_infeasible = false;
    parent->figures.smallest_feasible_bytes = 0;
    return true;
}

void ebb__budget_forget(const struct process *process)
{
    if (process->memory->budget.of == process)
        enter(&process->memory->budget, BUDGET_FIXED, NULL, 0);
}
