/* A template with unordered events: it is matched, left if the program departs from it, and matched
 * again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "runtime_rig.h"
#include "runtime_script.h"
#include "synthetic.h"

#define LAYERS 16u
#define STEP_NS 2000000u

struct program {
    struct item weights, batch, layers[LAYERS];
    uint64_t seeds, state;
};

static size_t layer_bytes(unsigned layer)
{
    return (size_t)EBB_MIB + layer / 2 * 8192; /* two of each size */
}

/* The iteration in its basic order: forward over the layers, backward in reverse. */
static struct ebb_model make_unordered(void)
{
    struct maker maker = {0};
    uint64_t now_ns = 0;
    uint32_t layers[LAYERS];
    uint32_t weights = make_persistent(&maker, 2 * EBB_MIB);
    maker.blocks.items[weights].serial = 1;
    uint32_t batch = make_block(&maker, 3 * EBB_MIB);
    make_event(&maker, now_ns, EBB_EVENT_ALLOC, batch, EBB_ACCESS_UNKNOWN);
    make_event(&maker, now_ns, EBB_EVENT_ACCESS, batch, EBB_ACCESS_WRITE);
    for (unsigned i = 0; i < 2 * LAYERS; i++) {
        unsigned layer = i < LAYERS ? i : 2 * LAYERS - 1 - i;
        now_ns += STEP_NS;
        if (i < LAYERS) {
            layers[layer] = make_block(&maker, layer_bytes(layer));
            make_event(&maker, now_ns, EBB_EVENT_ALLOC, layers[layer], EBB_ACCESS_UNKNOWN);
        }
        make_event(&maker, now_ns, EBB_EVENT_ACCESS, weights, EBB_ACCESS_READ);
        make_event(&maker, now_ns, EBB_EVENT_ACCESS, layers[layer],
                   i < LAYERS ? EBB_ACCESS_WRITE : EBB_ACCESS_READ);
        if (i >= LAYERS)
            make_event(&maker, now_ns, EBB_EVENT_FREE, layers[layer], EBB_ACCESS_UNKNOWN);
    }
    make_event(&maker, now_ns + STEP_NS, EBB_EVENT_FREE, batch, EBB_ACCESS_UNKNOWN);
    struct ebb_model model = make_model(&maker, now_ns + 2 * STEP_NS);
    model.unordered = true;
    return model;
}

static void step(struct program *p, struct rig *rig, unsigned i)
{
    unsigned layer = i < LAYERS ? i : 2 * LAYERS - 1 - i;
    nap_us(STEP_NS / 1000);
    check(rig, &p->weights);
    if (i < LAYERS) {
        p->layers[layer] = make(rig, layer_bytes(layer), p->seeds++);
    } else {
        check(rig, &p->layers[layer]);
        drop(rig, &p->layers[layer]);
    }
}

/* One iteration. Each step may come up to `skew` steps early. */
static void lap(struct program *p, struct rig *rig, unsigned skew)
{
    bool done[2 * LAYERS] = {0};
    p->batch = make(rig, 3 * EBB_MIB, p->seeds++);
    for (unsigned count = 0, first = 0; count < 2 * LAYERS; count++) {
        while (done[first])
            first++;
        unsigned at = first + (unsigned)(chance(&p->state) % (skew + 1));
        if (at >= 2 * LAYERS || done[at] || (at >= LAYERS && !done[2 * LAYERS - 1 - at]))
            at = first;
        step(p, rig, at);
        done[at] = true;
    }
    check(rig, &p->batch);
    drop(rig, &p->batch);
}

/* Another loop, with allocations of other sizes. */
static void other_lap(struct program *p, struct rig *rig)
{
    struct item items[LAYERS];
    for (unsigned i = 0; i < LAYERS; i++)
        items[i] = make(rig, EBB_MIB / 2 + i % 5 * 4096, p->seeds++);
    for (unsigned i = 0; i < LAYERS; i++) {
        check(rig, &items[i]);
        drop(rig, &items[i]);
    }
}

static struct ebb_script *script_for(const struct ebb_model *model, uint64_t budget_bytes)
{
    const struct ebb_machine machine = {"test", {0.5, 50000}, {0.5, 50000}, true, EBB_NO_COSTS};
    struct ebb_plan_request request = request_for(model, &machine, budget_bytes, 100000000);
    struct ebb_script *script = script_from(&request, false);
    assert_true(script->flags & EBB_SCRIPT_UNORDERED);
    return script;
}

static void replays_in_any_order(void **state)
{
    (void)state;
    for (unsigned skew = 0; skew <= 5; skew += 5) {
        struct rig *rig = rig_open(NO_BUDGET, false);
        struct program p = {.seeds = 1, .state = skew + 7};
        struct ebb_model model = make_unordered();
        struct ebb_script *script = script_for(&model, model.peak_bytes * 6 / 10);
        p.weights = make(rig, 2 * EBB_MIB, p.seeds++);
        assert_int_equal(ebb__runtime_set_script(rig->runtime, script, script->bytes), EBB_OK);
        lap(&p, rig, skew);
        assert_null(rig->runtime->replay.current); /* replay begins after one whole iteration */
        lap(&p, rig, skew);
        assert_non_null(rig->runtime->replay.current);
        assert_int_equal(atomic_load(&rig->counters->resyncs), 1);
        atomic_store(&rig->ledger.budget_bytes, model.peak_bytes * 8 / 10);
        for (unsigned i = 0; i < 6; i++)
            lap(&p, rig, skew);
        assert_non_null(rig->runtime->replay.current);
        assert_int_equal(rig->runtime->replay.laps, 6);
        assert_int_equal(atomic_load(&rig->counters->mismatches), 0);
        assert_int_equal(atomic_load(&rig->counters->resyncs), 1);
        assert_true(atomic_load(&rig->counters->moved_in_bytes) > 4 * EBB_MIB);
        assert_within_budget(rig);

        /* Replay ends, and begins again at the first landmark. */
        for (unsigned i = 0; i < 3; i++)
            other_lap(&p, rig);
        assert_null(rig->runtime->replay.current);
        assert_int_equal(atomic_load(&rig->counters->mismatches), 1);
        lap(&p, rig, skew);
        lap(&p, rig, skew);
        assert_non_null(rig->runtime->replay.current);
        assert_int_equal(atomic_load(&rig->counters->resyncs), 2);
        assert_int_equal(atomic_load(&rig->counters->mismatches), 1);
        ebb__runtime_settle(rig->runtime);
        drop(rig, &p.weights);
        ebb__model_fini(&model);
        rig_close(rig);
        free(script);
    }
}

/* Some allocations are not in the template, and some of the template are missing. */
static void unknown_allocations_are_let_pass(void **state)
{
    (void)state;
    struct rig *rig = rig_open(NO_BUDGET, false);
    struct program p = {.seeds = 1, .state = 3};
    struct ebb_model model = make_unordered();
    struct ebb_script *script = script_for(&model, model.peak_bytes * 6 / 10);
    p.weights = make(rig, 2 * EBB_MIB, p.seeds++);
    assert_int_equal(ebb__runtime_set_script(rig->runtime, script, script->bytes), EBB_OK);
    for (unsigned i = 0; i < 5; i++) {
        lap(&p, rig, 2);
        struct item unknown = make(rig, 12345, p.seeds++);
        struct item known =
            make(rig, layer_bytes(0), p.seeds++); /* one more of this size than in the template */
        check(rig, &known);
        drop(rig, &unknown);
        drop(rig, &known);
    }
    assert_non_null(rig->runtime->replay.current);
    assert_int_equal(atomic_load(&rig->counters->mismatches), 0);
    /* Half of an iteration, then the next one. The template is left, or the iteration is given
     * up. */
    p.batch = make(rig, 3 * EBB_MIB, p.seeds++);
    for (unsigned i = 0; i < LAYERS; i++)
        step(&p, rig, i);
    for (unsigned i = 0; i < LAYERS; i++)
        drop(rig, &p.layers[i]);
    drop(rig, &p.batch);
    lap(&p, rig, 2);
    lap(&p, rig, 2);
    lap(&p, rig, 2);
    assert_non_null(rig->runtime->replay.current);
    ebb__runtime_settle(rig->runtime);
    drop(rig, &p.weights);
    ebb__model_fini(&model);
    rig_close(rig);
    free(script);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replays_in_any_order),
        cmocka_unit_test(unknown_allocations_are_let_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
