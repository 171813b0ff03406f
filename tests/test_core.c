/* The core alone: default values of a configuration, the program's own clock, what observation
 * costs, and a fork. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/tuning.h"
#include "part_rig.h"

#include <unistd.h>

#define NAP_NS 3000000u

static void nap(void)
{
    usleep(NAP_NS / 1000);
}

static void count_resumed(void *context)
{
    ++*(unsigned *)context;
}

static const struct policy policy = {.resumed = count_resumed};

static void what_is_left_open_is_as_usual(void **state)
{
    (void)state;
    struct ground ground;
    ground_open(&ground, UINT64_MAX, &policy, NULL);
    assert_int_equal(ground.core.config.part_from_bytes, ebb__tuning()->part_from_bytes);
    assert_int_equal(ground.core.config.pause_ns, ebb__tuning()->pause_ns);
    assert_int_equal(ground.core.config.exchange_share, ebb__tuning()->exchange_divisor);
    assert_int_equal(ground.core.config.store_pause_ns, UINT64_MAX / 128);
    assert_ptr_equal(ground.core.slot, &ground.ledger.slots[0]);
    struct ebb_runtime_config config = ground_config(&ground);
    config.slot = &ground.ledger.slots[3];
    config.pause_ns = 7;
    ebb__core_init(&ground.core, &config, &policy, NULL);
    assert_ptr_equal(ground.core.slot, &ground.ledger.slots[3]);
    assert_int_equal(ground.core.config.pause_ns, 7);
    ground_close(&ground);
}

/* The clock stops while at least one thread waits. */
static void progress_stands_while_the_program_waits(void **state)
{
    (void)state;
    struct ground ground;
    unsigned resumed = 0;
    ground_open(&ground, UINT64_MAX, &policy, &resumed);
    struct core *core = &ground.core;
    uint64_t before = ebb__progress_ns(core);
    nap();
    assert_true(ebb__progress_ns(core) >= before + NAP_NS);
    ebb__progress_hold(core, true);
    uint64_t held = ebb__progress_ns(core);
    ebb__progress_hold(core, true);
    nap();
    assert_int_equal(ebb__progress_ns(core), held);
    ebb__progress_hold(core, false);
    assert_int_equal(resumed, 0);
    assert_int_equal(ebb__progress_ns(core), held);
    ebb__progress_hold(core, false);
    assert_int_equal(resumed, 1);
    uint64_t stalled = atomic_load(&core->counters->stall_ns);
    assert_true(stalled >= NAP_NS);
    assert_int_equal(core->stalled_ns, stalled);
    uint64_t goes_on = ebb__progress_ns(core);
    assert_true(goes_on >= held);
    nap();
    assert_true(ebb__progress_ns(core) >= goes_on + NAP_NS);
    ground_close(&ground);
}

static void a_wait_ends_in_time(void **state)
{
    (void)state;
    struct ground ground;
    ground_open(&ground, UINT64_MAX, &policy, NULL);
    pthread_mutex_lock(&ground.core.lock);
    uint64_t until = ebb__now_ns() + NAP_NS;
    while (ebb__core_wait_until(&ground.core, &ground.core.changed, until))
        ;
    assert_true(ebb__now_ns() >= until);
    pthread_mutex_unlock(&ground.core.lock);
    ebb__core_warn(&ground.core, "said");
    assert_int_equal(ground.warned, 1);
    ground.core.config.warn = NULL;
    ebb__core_warn(&ground.core, "nowhere to be said");
    assert_int_equal(ground.warned, 1);
    ground_close(&ground);
}

/* The cost is told before the next event, once it is worth an event. */
static void observation_is_told_with_the_next_event(void **state)
{
    (void)state;
    struct ground ground;
    ground_open(&ground, UINT64_MAX, &policy, NULL);
    struct core *core = &ground.core;
    const struct ebb_event use = {.kind = EBB_EVENT_ACCESS, .block = 1};
    const uint64_t least = ebb__tuning()->stall_event_ns;
    const uint64_t fault = ebb__tuning()->observed_fault_ns;
    struct ebb_event read[8];
    ebb__progress_observed(core, least - 1, 0);
    ebb__core_event(core, &use);
    assert_int_equal(ebb__ring_read(core->ring, read, 8), 1);
    ebb__progress_observed(core, 1, 2);
    ebb__core_event(core, &use);
    ebb__core_event(core, &use);
    assert_int_equal(ebb__ring_read(core->ring, read, 8), 3);
    assert_int_equal(read[0].kind, EBB_EVENT_MARK);
    assert_int_equal(read[0].mark, EBB_MARK_OBSERVED);
    assert_int_equal(read[0].size_bytes, least + 2 * fault);
    assert_int_equal(read[1].kind, EBB_EVENT_ACCESS);
    assert_int_equal(read[2].kind, EBB_EVENT_ACCESS);
    assert_int_equal(atomic_load(&core->counters->observed_faults), 2);
    assert_int_equal(atomic_load(&core->counters->observed_ns), least + 2 * fault);
    ground_close(&ground);
}

/* In the child nobody holds the lock, nobody waits, and the counters are its own. */
static void a_child_begins_anew(void **state)
{
    (void)state;
    struct ground ground;
    ground_open(&ground, UINT64_MAX, &policy, NULL);
    struct core *core = &ground.core;
    struct ebb_ring *parents = core->ring, *own = ground_ring();
    struct ebb_ledger ledger = {.magic = EBB_LEDGER_MAGIC};
    atomic_store(&parents->counters.held_bytes, 5 * EBB_PAGE_BYTES);
    ebb__progress_hold(core, true);
    pthread_mutex_lock(&core->lock);
    ebb__core_forked(core, &ledger, own);
    assert_int_equal(pthread_mutex_trylock(&core->lock), 0);
    pthread_mutex_unlock(&core->lock);
    assert_int_equal(core->held, 0);
    assert_true(core->forked);
    assert_ptr_equal(core->ledger, &ledger);
    assert_int_equal(core->config.process_id, getpid());
    assert_int_equal(atomic_load(&core->counters->held_bytes), 0);
    assert_int_equal(atomic_load(&parents->counters.held_bytes), 5 * EBB_PAGE_BYTES);
    ebb__core_mark(core, EBB_MARK_TRACE_OFF, 0);
    free(own);
    ground_close(&ground);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_left_open_is_as_usual),
        cmocka_unit_test(progress_stands_while_the_program_waits),
        cmocka_unit_test(a_wait_ends_in_time),
        cmocka_unit_test(observation_is_told_with_the_next_event),
        cmocka_unit_test(a_child_begins_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
