/* The states of a living run, and which may follow which. Each is an enum; the table in states.c is the
 * only rule, and every change of a state goes through it:
 *
 *     ebb__phase_set(&process->phase, PHASE_PLANNED);
 *
 * A transition that the table does not have is a defect of the caller. In a build with EBB_CHECK it ends
 * the program with a message. Otherwise it is made all the same: a wrong plan costs time, not bytes. */
#ifndef EBB_PARENT_STATES_H
#define EBB_PARENT_STATES_H

#include "parent/parent.h"

/* How far a process has come. */
enum phase {
    PHASE_OBSERVING,  /* its accesses are observed, no plan has been sent yet */
    PHASE_RECALLED,   /* plans from a profile have been sent, the live stream decides */
    PHASE_PLANNED,    /* a plan has been sent */
    PHASE_RELEARNING, /* it does something else: its accesses are observed again */
    PHASE_FOLLOWED,   /* recording, or a policy without a script: untraced iterations follow */
    PHASE_COUNT
};

/* The newest plan of a process, on trial: replan.c. */
enum trial_state {
    TRIAL_NONE,    /* no plan has been sent */
    TRIAL_BEGUN,   /* sent; the first whole iteration under it is not over */
    TRIAL_RUNNING, /* iterations are judged */
    TRIAL_SETTLED, /* it stays, whatever comes */
    TRIAL_COUNT
};

/* What is known of the transfers: lanes.c. */
enum lanes_state {
    LANES_UNKNOWN,
    LANES_PROBING, /* a thread measures, or has ended and was not joined yet */
    LANES_KNOWN,
    LANES_COUNT
};

/* Where the budget comes from: budget.c. */
enum budget_state {
    BUDGET_GIVEN,    /* in bytes, or there is none */
    BUDGET_OPEN,     /* a share of a peak that is not known yet: none is in force */
    BUDGET_PRESUMED, /* a share of the peak that a profile tells, while that is not confirmed */
    BUDGET_SHARED,   /* a share of the peak of a process, which it follows */
    BUDGET_FIXED,    /* a share of a peak that is not followed any more */
    BUDGET_COUNT
};

/* One kind of wait: alarm.c. */
enum alarm_state {
    ALARM_QUIET,
    ALARM_TOLD, /* it has taken too long, that was told, and it has not ended */
    ALARM_COUNT
};

/* Why a plan gives way: replan.c. No state, each is decided anew. */
enum replan_reason {
    REPLAN_NONE,
    REPLAN_CRAMPED, /* less memory is left than the plan needs */
    REPLAN_ROOMY,   /* there is much more memory than it was made for */
    REPLAN_PACE,    /* the program waits, and works faster than was assumed */
    REPLAN_LANES,   /* the lanes are others than was assumed */
    REPLAN_BACK,    /* the plan before was faster: that one again, for good */
    REPLAN_ENOUGH,  /* there have been many: this one stays */
};

/* Is the transition in the table? A state that is set again is a transition, too. */
bool ebb__phase_may(enum phase from, enum phase to);
bool ebb__trial_may(enum trial_state from, enum trial_state to);
bool ebb__lanes_may(enum lanes_state from, enum lanes_state to);
bool ebb__budget_may(enum budget_state from, enum budget_state to);
bool ebb__cache_may(enum ebb_cache_use from, enum ebb_cache_use to);
bool ebb__alarm_may(enum alarm_state from, enum alarm_state to);

void ebb__phase_set(enum phase *state, enum phase to);
void ebb__trial_set(enum trial_state *state, enum trial_state to);
void ebb__lanes_set(enum lanes_state *state, enum lanes_state to);
void ebb__budget_set(enum budget_state *state, enum budget_state to);
void ebb__cache_set(enum ebb_cache_use *state, enum ebb_cache_use to);
void ebb__alarm_set(enum alarm_state *state, enum alarm_state to);

#endif
