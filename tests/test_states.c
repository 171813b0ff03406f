/* The states of a run. The test lists the legal transitions a second time, by their purpose, and
 * the transitions that must be legal in every state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "parent/states.h"

#include <stdint.h>

struct pair {
    unsigned from, to;
};

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static bool listed(const struct pair *pairs, size_t count, unsigned from, unsigned to)
{
    for (size_t i = 0; i < count; i++)
        if (pairs[i].from == from && pairs[i].to == to)
            return true;
    return false;
}

/* `may` says yes to those in the list and to no others. */
#define ASSERT_ONLY(states, type, may, pairs)                                                      \
    for (unsigned from = 0; from < (states); from++)                                               \
        for (unsigned to = 0; to < (states); to++)                                                 \
            if (may((type)from, (type)to) != listed(pairs, COUNT(pairs), from, to))                \
    fail_msg(#may ": from %u to %u", from, to)

static void phases(void **state)
{
    (void)state;
    static const struct pair pairs[] = {
        {PHASE_OBSERVING, PHASE_RECALLED},    /* a profile is found at its first message */
        {PHASE_OBSERVING, PHASE_PLANNED},     /* its iteration is known */
        {PHASE_OBSERVING, PHASE_FOLLOWED},    /* its iteration is known, and nothing needs a plan */
        {PHASE_OBSERVING, PHASE_RELEARNING},  /* it holds much more than its supposed peak */
        {PHASE_OBSERVING, PHASE_RESTING},     /* each step is another one */
        {PHASE_RECALLED, PHASE_PLANNED},      /* it behaves as the profile says */
        {PHASE_RECALLED, PHASE_RELEARNING},   /* it does not */
        {PHASE_PLANNED, PHASE_RELEARNING},    /* it does something else */
        {PHASE_FOLLOWED, PHASE_RELEARNING},   /* its iteration is longer than assumed */
        {PHASE_RELEARNING, PHASE_PLANNED},    /* as from OBSERVING */
        {PHASE_RELEARNING, PHASE_FOLLOWED},   /* as from OBSERVING */
        {PHASE_RELEARNING, PHASE_RELEARNING}, /* as from OBSERVING */
        {PHASE_RELEARNING, PHASE_RESTING},    /* as from OBSERVING */
        {PHASE_RESTING, PHASE_RELEARNING},    /* something repeats, or it is time to look again */
    };
    ASSERT_ONLY(PHASE_COUNT, enum phase, ebb__phase_may, pairs);
    /* No phase is final. */
    for (unsigned phase = 0; phase < PHASE_COUNT; phase++)
        assert_true(ebb__phase_may((enum phase)phase, PHASE_RELEARNING));
}

static void trials(void **state)
{
    (void)state;
    static const struct pair pairs[] = {
        {TRIAL_NONE, TRIAL_BEGUN},      /* the first plan is sent */
        {TRIAL_BEGUN, TRIAL_BEGUN},     /* another plan is sent, or its iterations were wrong */
        {TRIAL_BEGUN, TRIAL_RUNNING},   /* the first whole iteration is over */
        {TRIAL_RUNNING, TRIAL_BEGUN},   /* judged, or another plan is sent */
        {TRIAL_RUNNING, TRIAL_SETTLED}, /* the last time is known */
    };
    ASSERT_ONLY(TRIAL_COUNT, enum trial_state, ebb__trial_may, pairs);
}

static void lanes(void **state)
{
    (void)state;
    static const struct pair pairs[] = {
        {LANES_UNKNOWN, LANES_PROBING}, /* there is enough to transfer */
        {LANES_UNKNOWN, LANES_KNOWN},   /* from a profile, or measured while a plan waits */
        {LANES_PROBING, LANES_KNOWN},   /* measured */
    };
    ASSERT_ONLY(LANES_COUNT, enum lanes_state, ebb__lanes_may, pairs);
}

static void budgets(void **state)
{
    (void)state;
    static const struct pair pairs[] = {
        {BUDGET_OPEN, BUDGET_PRESUMED},  /* a profile gives the peak */
        {BUDGET_OPEN, BUDGET_SHARED},    /* iterations give it */
        {BUDGET_PRESUMED, BUDGET_FIXED}, /* the profile was right, or its process has ended */
        {BUDGET_PRESUMED, BUDGET_OPEN},  /* the profile was wrong */
        {BUDGET_SHARED, BUDGET_OPEN},    /* the iterations were wrong, or another program runs */
        {BUDGET_FIXED, BUDGET_OPEN},     /* another program runs */
    };
    ASSERT_ONLY(BUDGET_COUNT, enum budget_state, ebb__budget_may, pairs);
}

static void caches(void **state)
{
    (void)state;
    static const struct pair pairs[] = {
        {EBB_CACHE_OFF, EBB_CACHE_NONE},
        {EBB_CACHE_NONE, EBB_CACHE_UNCONFIRMED},
        {EBB_CACHE_UNCONFIRMED, EBB_CACHE_USED},
        {EBB_CACHE_UNCONFIRMED, EBB_CACHE_DROPPED},
    };
    ASSERT_ONLY(EBB_CACHE_DROPPED + 1, enum ebb_cache_use, ebb__cache_may, pairs);
}

static void alarms(void **state)
{
    (void)state;
    static const struct pair pairs[] = {
        {ALARM_QUIET, ALARM_QUIET},
        {ALARM_QUIET, ALARM_TOLD},
        {ALARM_TOLD, ALARM_TOLD},
        {ALARM_TOLD, ALARM_QUIET},
    };
    ASSERT_ONLY(ALARM_COUNT, enum alarm_state, ebb__alarm_may, pairs);
}

static void a_state_is_set(void **state)
{
    (void)state;
    enum phase phase = PHASE_OBSERVING;
    ebb__phase_set(&phase, PHASE_PLANNED);
    assert_int_equal(phase, PHASE_PLANNED);
    enum budget_state budget = BUDGET_OPEN;
    ebb__budget_set(&budget, BUDGET_SHARED);
    assert_int_equal(budget, BUDGET_SHARED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(phases),         cmocka_unit_test(trials), cmocka_unit_test(lanes),
        cmocka_unit_test(budgets),        cmocka_unit_test(caches), cmocka_unit_test(alarms),
        cmocka_unit_test(a_state_is_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
