#include "parent/states.h"

#include "base/check.h"

#include <stdint.h>

#define TO(state) ((uint32_t)1 << (state))

/* For each state, those that may follow. */
static const uint32_t phases[PHASE_COUNT] = {
    [PHASE_OBSERVING] = TO(PHASE_RECALLED) | TO(PHASE_PLANNED) | TO(PHASE_FOLLOWED) |
                        TO(PHASE_RELEARNING) | TO(PHASE_RESTING),
    [PHASE_RECALLED] = TO(PHASE_PLANNED) | TO(PHASE_RELEARNING),
    [PHASE_PLANNED] = TO(PHASE_RELEARNING),
    [PHASE_RELEARNING] =
        TO(PHASE_PLANNED) | TO(PHASE_FOLLOWED) | TO(PHASE_RELEARNING) | TO(PHASE_RESTING),
    [PHASE_RESTING] = TO(PHASE_RELEARNING),
    [PHASE_FOLLOWED] = TO(PHASE_RELEARNING),
};

static const uint32_t trials[TRIAL_COUNT] = {
    [TRIAL_NONE] = TO(TRIAL_BEGUN),
    [TRIAL_BEGUN] = TO(TRIAL_BEGUN) | TO(TRIAL_RUNNING),
    [TRIAL_RUNNING] = TO(TRIAL_BEGUN) | TO(TRIAL_SETTLED),
    [TRIAL_SETTLED] = 0, /* final */
};

static const uint32_t lanes[LANES_COUNT] = {
    [LANES_UNKNOWN] = TO(LANES_PROBING) | TO(LANES_KNOWN),
    [LANES_PROBING] = TO(LANES_KNOWN),
    [LANES_KNOWN] = 0,
};

static const uint32_t budgets[BUDGET_COUNT] = {
    [BUDGET_GIVEN] = 0,
    [BUDGET_OPEN] = TO(BUDGET_PRESUMED) | TO(BUDGET_SHARED),
    [BUDGET_PRESUMED] = TO(BUDGET_OPEN) | TO(BUDGET_FIXED),
    [BUDGET_SHARED] = TO(BUDGET_OPEN),
    [BUDGET_FIXED] = TO(BUDGET_OPEN),
};

static const uint32_t caches[EBB_CACHE_DROPPED + 1] = {
    [EBB_CACHE_OFF] = TO(EBB_CACHE_NONE),
    [EBB_CACHE_NONE] = TO(EBB_CACHE_UNCONFIRMED),
    [EBB_CACHE_UNCONFIRMED] = TO(EBB_CACHE_USED) | TO(EBB_CACHE_DROPPED),
    [EBB_CACHE_USED] = 0,
    [EBB_CACHE_DROPPED] = 0,
};

static const uint32_t alarms[ALARM_COUNT] = {
    [ALARM_QUIET] = TO(ALARM_QUIET) | TO(ALARM_TOLD),
    [ALARM_TOLD] = TO(ALARM_QUIET) | TO(ALARM_TOLD),
};

#define DEFINE(name, type, table)                                                                  \
    bool ebb__##name##_may(type from, type to)                                                     \
    {                                                                                              \
        return (table[from] & TO(to)) != 0;                                                        \
    }                                                                                              \
    void ebb__##name##_set(type *state, type to)                                                   \
    {                                                                                              \
        EBB_CHECK_THAT(ebb__##name##_may(*state, to));                                             \
        *state = to;                                                                               \
    }

DEFINE(phase, enum phase, phases)
DEFINE(trial, enum trial_state, trials)
DEFINE(lanes, enum lanes_state, lanes)
DEFINE(budget, enum budget_state, budgets)
DEFINE(cache, enum ebb_cache_use, caches)
DEFINE(alarm, enum alarm_state, alarms)
