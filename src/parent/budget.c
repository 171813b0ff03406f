/* The budget of a run: given in bytes, or as a share of the program's peak.
 *
 * The peak is known once the iterations are: from a profile, or after they were detected. Until
 * then no budget is in force (enum budget_state). If the peak grows a little, the budget grows. If
 * it grows much, the iterations were detected wrongly, unless the planned one goes on.
 *
 * Processes that live at the same time hold their peaks together. If another process comes when the
 * planned ones have ended, and holds more than they did, its peak is to be learnt. */
#include "parent/internal.h"

#include "base/size.h"
#include "base/tuning.h"

#define SMALL_BYTES (16 * EBB_MIB) /* small programs vary by so much */
#define LARGE_BYTES (64 * EBB_MIB) /* a program that needs a budget, perhaps */

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

static bool is_forked(const struct ebb_parent *parent, const struct process *process)
{
    for (size_t i = 0; i < parent->processes.count; i++) {
        const struct process *other = parent->processes.items[i];
        if (other->number < process->number && ebb__copies_related(process, other))
            return true;
    }
    return false;
}

/* What the process adds to the peak of the run. A forked one holds pages of its own, and shares the
 * others. */
static uint64_t added_peak(const struct ebb_parent *parent, const struct process *process)
{
    uint64_t seen = expected_peak(process), known = process->recall.profile.unmanaged_peak_bytes;
    if (is_forked(parent, process))
        return atomic_load(&process->stream.ring->counters.held_bytes);
    return process->phase == PHASE_RECALLED && known > seen ? known : seen;
}

/* The most that all living processes of this memory hold, if `process` holds `own_bytes`. */
static uint64_t together(const struct ebb_parent *parent, const struct process *process,
                         uint64_t own_bytes)
{
    for (size_t i = 0; i < parent->processes.count; i++) {
        const struct process *other = parent->processes.items[i];
        if (other != process && other->memory == process->memory && other->channel >= 0)
            own_bytes += added_peak(parent, other);
    }
    return own_bytes;
}

/* Is the budget a share of what this process holds, or has it a plan for it? */
static bool counts_on_budget(const struct process *process)
{
    return process == process->memory->budget.of || process->sent.script ||
           process->phase == PHASE_RECALLED || process->phase == PHASE_FOLLOWED;
}

/* True for a living process of this memory. */
static bool any_counts_on_budget(const struct ebb_parent *parent, const struct fast_memory *memory)
{
    for (size_t i = 0; i < parent->processes.count; i++) {
        const struct process *process = parent->processes.items[i];
        if (process->memory == memory && process->channel >= 0 && counts_on_budget(process))
            return true;
    }
    return false;
}

static uint64_t share_of_peak(const struct ebb_parent *parent, uint64_t peak_bytes)
{
    return (uint64_t)(parent->options.budget_fraction * (double)peak_bytes);
}

uint64_t ebb__budget_of(const struct ebb_parent *parent, const struct process *process)
{
    return process->memory->budget.state == BUDGET_OPEN
               ? share_of_peak(parent, together(parent, process, expected_peak(process)))
               : atomic_load(&process->memory->ledger->budget_bytes);
}

uint64_t ebb__budget_small(const struct process *process)
{
    uint64_t now = atomic_load(&process->stream.ring->counters.small_bytes);
    uint64_t known = process->recall.profile.small_bytes;
    return now > known ? now : known;
}

uint64_t ebb__budget_share(const struct ebb_parent *parent, const struct process *process,
                           uint64_t budget)
{
    if (budget == UINT64_MAX)
        return budget;
    uint64_t own = atomic_load(&process->stream.ring->counters.held_bytes);
    uint64_t small = ebb__budget_small(process);
    uint64_t left = ebb__ledger_share(process->memory->ledger, budget, own, small);
    /* Others may still hold all that they take without a budget, or what is this process's. */
    uint64_t part = share_of_peak(parent, expected_peak(process));
    part = part < budget ? part : budget;
    part = part > small ? part - small : 0;
    return left > part ? left : part;
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

static void enter(struct budget *budget, enum budget_state state, const struct process *of)
{
    ebb__budget_set(&budget->state, state);
    budget->of = of;
}

/* The budget never becomes smaller by this: plans count on it. */
static void widen(const struct ebb_parent *parent, struct fast_memory *memory, uint64_t peak_bytes)
{
    uint64_t budget = share_of_peak(parent, peak_bytes);
    uint64_t before = atomic_load(&memory->ledger->budget_bytes);
    uint64_t over = atomic_load(&memory->ledger->over_bytes);
    if (peak_bytes > memory->budget.of_bytes)
        memory->budget.of_bytes = peak_bytes;
    if (budget <= before)
        return;
    atomic_store(&memory->ledger->budget_bytes, budget);
    /* The share of a peak that was not the whole one was exceeded, which nobody asked for. */
    while (over &&
           !atomic_compare_exchange_weak(&memory->ledger->over_bytes, &over,
                                         over > budget - before ? over - (budget - before) : 0))
        ;
}

static bool is_in_force(const struct budget *budget)
{
    return budget->state != BUDGET_GIVEN && budget->state != BUDGET_OPEN;
}

/* A budget is in force from now on, for those that were there before, too. */
static void note_begin(struct ebb_parent *parent, const struct fast_memory *memory)
{
    for (size_t i = 0; i < parent->processes.count; i++) {
        struct process *process = parent->processes.items[i];
        if (process->memory != memory || process->budget_from >= 0)
            continue;
        process->budget_from =
            process->stream.watch ? (int64_t)ebb__watch_iterations(process->stream.watch) : 0;
        process->budget_event = process->stream.steps.events;
    }
}

void ebb__budget_presume(struct ebb_parent *parent, struct process *process)
{
    struct ebb_ledger *ledger = process->memory->ledger;
    uint64_t peak = together(parent, process, process->recall.profile.unmanaged_peak_bytes);
    if (is_in_force(&process->memory->budget))
        widen(parent, process->memory, peak);
    if (process->memory->budget.state != BUDGET_OPEN)
        return;
    uint64_t budget = share_of_peak(parent, peak);
    enter(&process->memory->budget, BUDGET_PRESUMED, process);
    process->memory->budget.of_bytes = peak;
    process->budget_from = 0;
    note_begin(parent, process->memory);
    atomic_store(&ledger->budget_bytes, budget);
    atomic_store(&ledger->in_force, atomic_load(&ledger->held_bytes) <= budget);
}

void ebb__budget_confirm(const struct process *process)
{
    if (process->memory->budget.state == BUDGET_PRESUMED && process->memory->budget.of == process)
        enter(&process->memory->budget, BUDGET_FIXED, process);
}

/* What the process held over the budget until now does not count: the budget was not its own. */
static void reopen(struct process *process)
{
    enter(&process->memory->budget, BUDGET_OPEN, NULL);
    process->budget_from = -1;
    atomic_store(&process->memory->ledger->over_bytes, process->over_before);
    atomic_store(&process->memory->ledger->budget_bytes, UINT64_MAX);
    atomic_store(&process->memory->ledger->in_force, 0);
}

/* The budget was a share of a wrong peak of this process. */
static void retract(struct ebb_parent *parent, struct process *process)
{
    reopen(process);
    process->memory->budget.told_infeasible = false;
    process->memory->budget.untold_bytes = 0;
    parent->figures.smallest_feasible_bytes = 0;
}

void ebb__budget_withdraw(struct ebb_parent *parent, struct process *process)
{
    if (process->memory->budget.state == BUDGET_PRESUMED && process->memory->budget.of == process)
        retract(parent, process);
}

void ebb__budget_enforce(struct ebb_parent *parent, struct process *process, uint64_t budget)
{
    if (process->memory->budget.state != BUDGET_OPEN)
        return;
    /* The peak may have grown while the plan was made. Then the budget follows it. */
    enter(&process->memory->budget, BUDGET_SHARED, process);
    uint64_t of_bytes = (uint64_t)((double)budget / parent->options.budget_fraction);
    uint64_t others = together(parent, process, 0);
    process->memory->budget.of_bytes = of_bytes;
    process->memory->budget.own_bytes = of_bytes > others ? of_bytes - others : 0;
    atomic_store(&process->memory->ledger->budget_bytes, budget);
    process->budget_from = -1; /* it may have had an earlier one */
    note_begin(parent, process->memory);
    ebb__parent_tell_all(parent, EBB_MESSAGE_TRIM, 0);
}

/* The process whose peak it is has grown. */
static bool follow_owner(struct ebb_parent *parent, struct process *process)
{
    struct budget *budget = &process->memory->budget;
    uint64_t peak = ebb__budget_peak(process), known = budget->own_bytes;
    /* An optimizer makes its state at the end of the first step, behind a few micro-batches. */
    bool goes_on = process->phase == PHASE_PLANNED && ebb__watch_is_held(process->stream.watch);
    if (peak <= known)
        return false;
    if (goes_on)
        budget->own_bytes = peak;
    if (goes_on || peak <= known + known / ebb__tuning()->other_peak_divisor + SMALL_BYTES) {
        widen(parent, process->memory, together(parent, process, peak));
        return false;
    }
    retract(parent, process);
    return true;
}

bool ebb__budget_follow(struct ebb_parent *parent, struct process *process)
{
    struct budget *budget = &process->memory->budget;
    if (!is_in_force(budget))
        return false;
    /* A confirmed peak may be that of a run that was interrupted: it grows as with others. */
    if (budget->of == process && budget->state != BUDGET_FIXED)
        return budget->state == BUDGET_SHARED && follow_owner(parent, process);
    uint64_t own = ebb__budget_peak(process);
    if (own <= process->peak_bytes)
        return false;
    process->peak_bytes = own;
    uint64_t peak = together(parent, process, added_peak(parent, process));
    if (peak <= budget->of_bytes)
        return false;
    if (!any_counts_on_budget(parent, process->memory))
        reopen(process);
    else
        widen(parent, process->memory, peak);
    return false;
}

void ebb__budget_look(struct ebb_parent *parent, struct fast_memory *memory)
{
    uint64_t patience_ns = (uint64_t)ebb__tuning()->budget_open_ns, now_ns = ebb__now_ns();
    if (memory->budget.state != BUDGET_OPEN || memory->budget.told_open)
        return;
    for (size_t i = 0; i < parent->processes.count; i++) {
        const struct process *process = parent->processes.items[i];
        if (process->memory != memory || process->channel < 0 ||
            atomic_load(&process->stream.ring->counters.retired) ||
            now_ns - process->since_ns < patience_ns || ebb__budget_peak(process) < LARGE_BYTES)
            continue;
        memory->budget.told_open = true;
        ebb__parent_warn(parent,
                         "no iteration has been found in process %d so far, and no budget is in "
                         "force until then: give --budget a size to have it from the start",
                         process->process_id);
        return;
    }
}

void ebb__budget_forget(const struct process *process)
{
    struct budget *budget = &process->memory->budget;
    if (budget->untold_of == process)
        budget->untold_of = NULL;
    if (budget->of != process)
        return;
    if (budget->state == BUDGET_PRESUMED)
        enter(budget, BUDGET_FIXED, NULL);
    budget->of = NULL;
}
