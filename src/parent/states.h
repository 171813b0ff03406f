/* The states of a living run and their transitions. Each is an enum. The table in states.c is the
 * only rule, and every change of a state uses it:
 *
 *     ebb__phase_set(&process->phase, PHASE_PLANNED);
 *
 * A transition that is not in the table is a defect of the caller. An EBB_CHECK build then ends the
 * program with a message. Other builds make the transition: a wrong plan costs time, not bytes. */
#ifndef EBB_PARENT_STATES_H
#define EBB_PARENT_STATES_H

#include "parent/parent.h"

/* What the parent knows of a process. */
enum phase {
    PHASE_OBSERVING,  /* its accesses are observed, no plan was sent */
    PHASE_RECALLED,   /* plans from a profile were sent; the live stream confirms or refutes it */
    PHASE_PLANNED,    /* a plan has been sent */
    PHASE_RELEARNING, /* it has deviated from the plan: its accesses are observed again */
    PHASE_RESTING,    /* nothing came of observing them: accesses are not observed for a while */
    PHASE_FOLLOWED,   /* recording, or a policy without a script: no accesses are observed */
    PHASE_COUNT
};

/* The trial of a process's newest plan: replan.c. */
enum trial_state {
    TRIAL_NONE,    /* no plan was sent */
    TRIAL_BEGUN,   /* sent; its first whole iteration is not over */
    TRIAL_RUNNING, /* iterations are judged */
    TRIAL_SETTLED, /* the plan is final */
    TRIAL_COUNT
};

/* What is known of the lanes: lanes.c. */
enum lanes_state {
    LANES_UNKNOWN,
    LANES_PROBING, /* a thread measures, or has ended and was not joined */
    LANES_KNOWN,
    LANES_COUNT
};

/* The source of the budget: budget.c. */
enum budget_state {
    BUDGET_GIVEN,    /* given in bytes, or no budget */
    BUDGET_OPEN,     /* a share of an unknown peak: no budget is in force */
    BUDGET_PRESUMED, /* a share of the peak in a profile that is not confirmed */
    BUDGET_SHARED,   /* a share of the peak of a process, and changes with it */
    BUDGET_FIXED,    /* a share of a confirmed peak: becomes larger with it, and never smaller */
    BUDGET_COUNT
};

/* The alarm for one kind of wait: alarm.c. */
enum alarm_state {
    ALARM_QUIET,
    ALARM_TOLD, /* the wait is too long, the user was warned, and it has not ended */
    ALARM_COUNT
};

/* Why a plan is replaced: replan.c. It is not a state: it is decided again each time. */
enum replan_reason {
    REPLAN_NONE,
    REPLAN_CRAMPED, /* less memory is left than the plan needs */
    REPLAN_ROOMY,   /* much more memory is left than the plan needs */
    REPLAN_PACE,    /* the program waits, and works faster than assumed */
    REPLAN_LANES,   /* the lanes differ from those assumed */
    REPLAN_BACK,    /* the previous plan was faster: it becomes final */
    REPLAN_ENOUGH,  /* there were many plans: this one is final */
};

/* True if the table has the transition. Setting the same state again is a transition, too. */
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
