/* Long stretches without clock events, for example an optimizer that touches each weight and
 * allocates nothing. Blocks are evicted and fetched within them: planned, checked, compiled and
 * replayed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "check/check.h"

#include "base/tuning.h"
#include "plan/plan.h"
#include "plan/request/compile.h"
#include "plan/swap/swap.h"
#include "runtime_rig.h"

#define WEIGHTS 24u
#define WEIGHT_BYTES (256 * EBB_KIB)
#define STEP_NS 3000000u
#define PAGE 4096u

static const struct ebb_machine machine = {"test", {0.5, 50000}, {0.5, 50000}, true, EBB_NO_COSTS};

/* The forward pass touches the first weight, the optimizer each of them. */
static struct ebb_model make_optimizer(void)
{
    struct maker maker = {0};
    uint32_t weights[WEIGHTS];
    uint64_t now = 5000000;
    for (uint32_t i = 0; i < WEIGHTS; i++)
        weights[i] = make_persistent(&maker, WEIGHT_BYTES);
    uint32_t output = make_block(&maker, 64 * EBB_KIB), loss = make_block(&maker, 32 * EBB_KIB);
    make_event(&maker, now, EBB_EVENT_ALLOC, output, 0);
    make_event(&maker, now += 1000000, EBB_EVENT_ACCESS, output, EBB_ACCESS_WRITE);
    make_event(&maker, now += 1000000, EBB_EVENT_ACCESS, weights[0], EBB_ACCESS_READ);
    make_event(&maker, now += 10000000, EBB_EVENT_FREE, output, 0);
    for (uint32_t i = 0; i < WEIGHTS; i++)
        make_event(&maker, now += STEP_NS, EBB_EVENT_ACCESS, weights[i],
                   i % 3 ? EBB_ACCESS_READ : EBB_ACCESS_WRITE);
    make_event(&maker, now += STEP_NS, EBB_EVENT_ALLOC, loss, 0);
    make_event(&maker, now += 1000000, EBB_EVENT_ACCESS, loss, EBB_ACCESS_WRITE);
    make_event(&maker, now += 1000000, EBB_EVENT_FREE, loss, 0);
    return make_model(&maker, now + 20000000);
}

static struct ebb_plan_request request_for(const struct ebb_model *model, unsigned percent)
{
    return (struct ebb_plan_request){.model = model,
                                     .machine = &machine,
                                     .budget_bytes = model->peak_bytes * percent / 100,
                                     .page_bytes = PAGE,
                                     .effort_steps = 18000000};
}

static struct ebb_plan plan_of(const struct ebb_model *model, const char *policy, unsigned percent)
{
    struct ebb_plan_request request = request_for(model, percent);
    struct ebb_check_request check = {model, &machine, request.budget_bytes, PAGE};
    struct ebb_plan plan;
    struct ebb_error error;
    assert_int_equal(ebb__plan_make(ebb__plan_policy(policy), &request, &plan, &error), EBB_OK);
    if (plan.feasible)
        assert_int_equal(ebb__check_plan(&check, &plan, &error), EBB_OK);
    return plan;
}

static uint32_t count_within(const struct ebb_plan *plan, bool out)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->absence_count; i++)
        count += out ? plan->absences[i].out_within : plan->absences[i].in_within;
    return count;
}

static void what_did_not_fit_together_does(void **state)
{
    (void)state;
    struct ebb_model model = make_optimizer();
    /* All policies have the same ground: `fifo` may use these gaps, too. */
    struct ebb_plan fifo = plan_of(&model, "fifo", 60);
    assert_true(fifo.feasible && count_within(&fifo, true) > 0);
    assert_true(fifo.smallest_feasible_bytes < WEIGHTS * WEIGHT_BYTES);
    for (unsigned percent = 80; percent >= 40; percent -= 10) {
        struct ebb_plan plan = plan_of(&model, "ebb", percent);
        assert_true(plan.feasible);
        assert_true(count_within(&plan, true) > 0);
        assert_true(count_within(&plan, false) > 0);
        ebb__plan_fini(&plan);
    }
    /* If clock events are enough, nothing is timed within a stretch. */
    struct ebb_plan roomy = plan_of(&model, "ebb", 100);
    assert_int_equal(count_within(&roomy, true) + count_within(&roomy, false), 0);
    ebb__plan_fini(&roomy);
    ebb__plan_fini(&fifo);
    ebb__model_fini(&model);
}

/* Every gap keeps its margins. A block is neither evicted nor due at the moment of its use. */
static void margins_are_kept(void **state)
{
    (void)state;
    struct ebb_model model = make_optimizer();
    struct ebb_plan_request request = request_for(&model, 50);
    struct ebb_swap swap;
    uint32_t seen = 0;
    assert_int_equal(ebb__swap_init_within(&swap, &request, NULL), EBB_OK);
    assert_true(swap.within_count > 0);
    for (uint32_t i = 0; i < swap.gap_count; i++) {
        const struct ebb_swap_gap *gap = &swap.gaps[i];
        uint64_t lap = swap.lap_ns, used_ns = model.time_ns[gap->from_tick];
        if (!gap->out_within)
            continue;
        seen++;
        assert_false(model.events[gap->ready_tick].clock);
        assert_int_equal(gap->ready_tick, (gap->from_tick + gap->margin_ticks) % model.tick_count);
        assert_true((gap->ready_ns + lap - used_ns) % lap >= ebb__tuning()->within_ns);
        assert_true(gap->need_ns - gap->due_ns >= ebb__tuning()->within_ns);
    }
    assert_true(seen > WEIGHTS / 2);
    ebb__swap_fini(&swap);
    ebb__model_fini(&model);
}

static void early_departures_are_rejected(void **state)
{
    (void)state;
    struct ebb_model model = make_optimizer();
    struct ebb_plan plan = plan_of(&model, "ebb", 50);
    struct ebb_check_request check = {&model, &machine, plan.budget_bytes, PAGE};
    uint32_t tried = 0;
    for (uint32_t i = 0; i < plan.absence_count; i++) {
        struct ebb_absence *absence = &plan.absences[i], good = *absence;
        if (!good.out_within)
            continue;
        tried++;
        absence->margin_ticks = 0;
        assert_int_equal(ebb__check_plan(&check, &plan, NULL), EBB_ERR_FORMAT);
        *absence = good;
        absence->margin_ticks = model.tick_count - 1; /* after the next use */
        assert_int_equal(ebb__check_plan(&check, &plan, NULL), EBB_ERR_FORMAT);
        *absence = good;
        absence->out_start_ns = model.time_ns[good.from_tick];
        assert_int_equal(ebb__check_plan(&check, &plan, NULL), EBB_ERR_FORMAT);
        *absence = good;
        /* The times are the same, but the eviction is tied to the next clock event. */
        absence->out_within = false;
        absence->margin_ticks = 0;
        assert_int_equal(ebb__check_plan(&check, &plan, NULL), EBB_ERR_FORMAT);
        *absence = good;
    }
    assert_true(tried > 0);
    /* A use that began less than ebb__tuning()->within_ns earlier may still go on. */
    for (uint32_t t = 0; t < model.tick_count; t++)
        model.time_ns[t] = model.time_ns[t] / 64;
    assert_int_equal(ebb__check_plan(&check, &plan, NULL), EBB_ERR_FORMAT);
    ebb__plan_fini(&plan);
    ebb__model_fini(&model);
}

static void delays_are_compiled(void **state)
{
    (void)state;
    struct ebb_model model = make_optimizer();
    struct ebb_plan plan = plan_of(&model, "ebb", 50);
    struct ebb_script *script;
    assert_int_equal(ebb__compile_script(&model, &plan, NULL, &script), EBB_OK);
    assert_true(ebb__script_valid(script, script->bytes));
    const struct ebb_script_absence *absences = ebb__script_absences(script);
    const struct ebb_script_event *events = ebb__script_events(script);
    for (uint32_t i = 0; i < plan.absence_count; i++) {
        const struct ebb_absence *absence = &plan.absences[i];
        uint64_t out_ns = events[absences[i].out_clock].time_ns + absences[i].out_delay_ns;
        assert_int_equal(absences[i].in_within, absence->in_within);
        if (absence->out_within)
            assert_int_equal(out_ns, model.time_ns[absence->from_tick + absence->margin_ticks]);
        else
            assert_int_equal(absences[i].out_delay_ns, 0);
        if (absence->in_within) {
            assert_int_equal((events[absences[i].in_clock].time_ns + absences[i].in_delay_ns) %
                                 ebb__model_iteration_ns(&model),
                             absence->in_start_ns);
            assert_true(absences[i].due_clock != EBB_SCRIPT_NONE);
        }
    }
    free(script);
    ebb__plan_fini(&plan);
    ebb__model_fini(&model);
}

/* One iteration at `pace` percent of the model's times, with a pause of `pause_ms` before the use
 * of the second weight. */
static void lap_with_pause(struct rig *rig, const struct ebb_model *model, struct item *items,
                           uint64_t *seeds, unsigned pace, unsigned pause_ms)
{
    uint64_t began = ebb__now_ns();
    for (uint32_t tick = 0; tick < model->tick_count; tick++) {
        const struct ebb_model_event *event = &model->events[tick];
        uint64_t wanted = began + model->time_ns[tick] * pace / 100, now = ebb__now_ns();
        struct item *item = &items[event->block];
        if (wanted > now)
            nap_us((long)((wanted - now) / 1000));
        if (pause_ms && event->kind == EBB_EVENT_ACCESS && event->block == 1)
            nap_us((long)pause_ms * 1000);
        if (event->kind == EBB_EVENT_ALLOC) {
            *item = make(rig, model->blocks[event->block].size_bytes, ++*seeds);
        } else if (event->kind == EBB_EVENT_FREE) {
            drop(rig, item);
        } else {
            check(rig, item);
            if (event->access == EBB_ACCESS_WRITE)
                put(rig, item, ++*seeds);
        }
    }
}

static void lap(struct rig *rig, const struct ebb_model *model, struct item *items, uint64_t *seeds,
                unsigned pace)
{
    lap_with_pause(rig, model, items, seeds, pace, 0);
}

/* At any pace, every byte is right and the budget holds. Once the runtime knows the pace, nearly
 * all transfers are in time in some iterations, even on a busy machine. */
static void stretches_are_replayed(void **state)
{
    (void)state;
    static const unsigned paces[] = {100, 50, 200};
    for (size_t p = 0; p < sizeof paces / sizeof paces[0]; p++) {
        struct ebb_model model = make_optimizer();
        struct ebb_plan plan = plan_of(&model, "ebb", 50);
        struct rig *rig = rig_open(NO_BUDGET, false);
        struct item items[WEIGHTS + 2];
        struct ebb_script *script;
        uint64_t seeds = 1;
        for (uint32_t i = 0; i < WEIGHTS; i++)
            items[i] = make(rig, WEIGHT_BYTES, ++seeds);
        assert_int_equal(ebb__compile_script(&model, &plan, NULL, &script), EBB_OK);
        assert_int_equal(ebb__runtime_set_script(rig->runtime, script, script->bytes), EBB_OK);
        lap(rig, &model, items, &seeds, paces[p]);
        lap(rig, &model, items, &seeds, paces[p]);
        assert_int_equal(atomic_load(&rig->counters->resyncs), 1);
        atomic_store(&rig->ledger.budget_bytes, plan.budget_bytes + 4 * WEIGHT_BYTES);
        bool good = false;
        for (unsigned i = 0; i < 60 && !good; i++) {
            uint64_t faults = atomic_load(&rig->counters->demand_faults);
            uint64_t moved = atomic_load(&rig->counters->moved_in_bytes);
            lap(rig, &model, items, &seeds, paces[p]);
            faults = atomic_load(&rig->counters->demand_faults) - faults;
            moved = atomic_load(&rig->counters->moved_in_bytes) - moved;
            good = i > 1 && faults <= WEIGHTS / 3 && moved >= WEIGHTS / 2 * WEIGHT_BYTES;
        }
        assert_true(good);
        assert_int_equal(atomic_load(&rig->counters->mismatches), 0);
        rig_close(rig);
        free(script);
        ebb__plan_fini(&plan);
        ebb__model_fini(&model);
    }
}

/* True if the absence ends in the stretch in which it began, one iteration later. */
static bool lasts_a_lap(const struct ebb_absence *absence)
{
    return absence->out_within && absence->in_within && absence->to_tick <= absence->from_tick;
}

/* Compiles the plan. Those absences start their fetch at the next iteration's first event, whatever
 * the plan says. */
static struct ebb_script *compile_lap_long(const struct ebb_model *model, struct ebb_plan *plan)
{
    struct ebb_script *script;
    for (uint32_t i = 0; i < plan->absence_count; i++)
        if (lasts_a_lap(&plan->absences[i]))
            plan->absences[i].in_start_ns = model->time_ns[0];
    assert_int_equal(ebb__compile_script(model, plan, NULL, &script), EBB_OK);
    assert_true(ebb__script_valid(script, script->bytes));
    return script;
}

/* A block that is evicted within a stretch and needed there in the next iteration is absent in
 * between. This holds also if the program pauses, so that the time of the eviction is before the
 * use. */
static void absences_last_a_lap(void **state)
{
    (void)state;
    struct ebb_model model = make_optimizer();
    struct ebb_plan plan = plan_of(&model, "ebb", 50);
    struct ebb_script *script = compile_lap_long(&model, &plan);
    const struct ebb_script_absence *absences = ebb__script_absences(script);
    struct rig *rig = rig_open(NO_BUDGET, false);
    struct item items[WEIGHTS + 2];
    uint64_t seeds = 1;
    for (uint32_t i = 0; i < WEIGHTS; i++)
        items[i] = make(rig, WEIGHT_BYTES, ++seeds);
    assert_int_equal(ebb__runtime_set_script(rig->runtime, script, script->bytes), EBB_OK);
    for (unsigned i = 0; i < 6; i++) {
        lap_with_pause(rig, &model, items, &seeds, 100, i == 4 ? 60 : 0);
        nap_us(100000);
        ebb__runtime_settle(rig->runtime);
        uint32_t lasting = 0, evicted = 0;
        for (uint32_t a = 0; a < plan.absence_count; a++) {
            if (!lasts_a_lap(&plan.absences[a]))
                continue;
            assert_int_equal(absences[a].in_clock, 0);
            if (i > 1 && rig->runtime->replay.current->in_clock[a] != 0)
                continue; /* it was late, so it starts earlier, perhaps already */
            lasting++;
            evicted += state_of(rig, &items[plan.absences[a].block]) == BLOCK_EVICTED;
        }
        assert_true(lasting > 4);
        if (i > 1)
            assert_int_equal(evicted, lasting);
    }
    assert_int_equal(atomic_load(&rig->counters->mismatches), 0);
    rig_close(rig);
    free(script);
    ebb__plan_fini(&plan);
    ebb__model_fini(&model);
}

/* Weights that were only read when observed are written in all iterations but the first
 * `read_laps`. Returns the number of blocks whose copies were found to be stale, and the bytes
 * evicted without a write. */
static uint32_t stale_copies(unsigned read_laps, uint64_t *evicted_clean_bytes)
{
    struct ebb_model model = make_optimizer(), real = make_optimizer();
    struct ebb_plan plan = plan_of(&model, "ebb", 50);
    struct rig *rig = rig_open(NO_BUDGET, false);
    struct item items[WEIGHTS + 2];
    struct ebb_script *script;
    uint64_t seeds = 1;
    uint32_t count = 0, kept = 0;
    for (uint32_t tick = 0; tick < real.tick_count; tick++)
        real.events[tick].access = EBB_ACCESS_WRITE;
    for (uint32_t i = 0; i < WEIGHTS; i++)
        items[i] = make(rig, WEIGHT_BYTES, ++seeds);
    assert_int_equal(ebb__compile_script(&model, &plan, NULL, &script), EBB_OK);
    assert_int_equal(ebb__runtime_set_script(rig->runtime, script, script->bytes), EBB_OK);
    for (unsigned i = 0; i < 6; i++)
        lap(rig, i < read_laps ? &model : &real, items, &seeds, 100);
    ebb__runtime_settle(rig->runtime);
    const struct prepared_script *current = rig->runtime->replay.current;
    for (uint32_t i = 0; i < plan.absence_count; i++) {
        uint32_t block = ebb__script_absences(script)[i].block;
        kept += plan.absences[i].keep_copy;
        count += current->changes[block];
        assert_true(plan.absences[i].keep_copy || !current->changes[block]);
    }
    assert_true(kept > 0);
    *evicted_clean_bytes = atomic_load(&rig->counters->evicted_clean_bytes);
    rig_close(rig);
    free(script);
    ebb__plan_fini(&plan);
    ebb__model_fini(&model);
    ebb__model_fini(&real);
    return count;
}

/* Copies are kept of unchanged blocks. If a block turns out to change, its copy is no longer kept.
 * Beside other tests a block may leave again before it is written to, without a write. */
static void stale_copies_are_not_kept(void **state)
{
    (void)state;
    uint64_t unchanged_bytes, changed_bytes;
    assert_int_equal(stale_copies(6, &unchanged_bytes), 0);
    assert_true(stale_copies(0, &changed_bytes) > 0);
    assert_true(changed_bytes < unchanged_bytes / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_did_not_fit_together_does), cmocka_unit_test(margins_are_kept),
        cmocka_unit_test(early_departures_are_rejected),  cmocka_unit_test(delays_are_compiled),
        cmocka_unit_test(stretches_are_replayed),         cmocka_unit_test(absences_last_a_lap),
        cmocka_unit_test(stale_copies_are_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
