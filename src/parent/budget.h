/* The budget of one fast memory, for all processes of the run. All in the parent's thread. */
#ifndef EBB_PARENT_BUDGET_H
#define EBB_PARENT_BUDGET_H

#include "parent/states.h"

#include <stdbool.h>
#include <stdint.h>

struct ebb_parent;
struct process;
struct fast_memory;

struct budget {
    enum budget_state state;
    /* While PRESUMED, the owner of the profile. While SHARED, of the peak. NULL: it has ended. */
    const struct process *of;
    uint64_t of_bytes;  /* the peak that the budget is a share of */
    uint64_t own_bytes; /* that of `of` in it */
    bool told_infeasible, told_open;
    uint64_t untold_bytes;           /* the smallest feasible one, to be told; 0: none */
    const struct process *untold_of; /* whose plan needs it. NULL: it has ended */
    uint64_t tell_ns;                /* not before this time, nor while PRESUMED, */
    size_t tell_after;               /* nor before the process has done so many iterations */
};

/* The most that the process would hold without Ebb, as far as seen. */
uint64_t ebb__budget_peak(const struct process *process);
/* The budget of the run: given in bytes, or a share of the peak so far, of this process and those
 * beside it. */
uint64_t ebb__budget_of(const struct ebb_parent *parent, const struct process *process);
/* Bytes of small blocks that plans for the process count as in use. */
uint64_t ebb__budget_small(const struct process *process);
/* The share of the budget for the process's blocks. It excludes memory of other processes and of
 * the process's own small blocks, which no plan evicts. If the budget is a share of the peak, it is
 * at least that share of the process's own. */
uint64_t ebb__budget_share(const struct ebb_parent *parent, const struct process *process,
                           uint64_t budget);
/* Has the run held such a share of its budget, at least once? True if the budget is a share of the
 * peak, or if there is none. */
bool ebb__budget_is_near(const struct process *process, double share);
/* Puts a share of the peak in the process's profile in force before its first allocation. */
void ebb__budget_presume(struct ebb_parent *parent, struct process *process);
/* Records whether the profile was right. */
void ebb__budget_confirm(const struct process *process);
void ebb__budget_withdraw(struct ebb_parent *parent, struct process *process);
/* Call when the process's iterations are known: fixes the peak that the budget is a share of. */
void ebb__budget_enforce(struct ebb_parent *parent, struct process *process, uint64_t budget);
/* Checks whether the processes hold more than at that time. Returns true if the one whose peak it
 * was holds much more. Then its iterations were detected wrongly, and the budget is no longer in
 * force. */
bool ebb__budget_follow(struct ebb_parent *parent, struct process *process);
/* Says once if a share of the peak is not in force although a large program has run for long. */
void ebb__budget_look(struct ebb_parent *parent, struct fast_memory *memory);
/* The process is being released. Removes the budget's reference to it. */
void ebb__budget_forget(const struct process *process);

#endif
