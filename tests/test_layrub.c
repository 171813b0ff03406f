/* Layrub, vDNN and static memory, on networks made by hand. Peaks, stalls and moved bytes are those
 * that were worked out on paper. Every plan passes the checker, and the simulator confirms it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "plan_rig.h"
#include "synthetic.h"

enum { LAYERS_MOST = 12, LAYER_NS = 1000 };

/* A chain of layers, which take 1,000 ns each. The work of a layer is over at 600 ns, when its
 * scratch is freed. */
struct chain {
    uint32_t layers;
    uint64_t weight, scratch;
    uint64_t output[LAYERS_MOST + 1]; /* also the size of its gradient; [0]: the network's input */
    bool marked;
    bool frees_late; /* each gradient is freed one layer later */
};

struct blocks {
    uint32_t weight[LAYERS_MOST + 1], output[LAYERS_MOST + 1], gradient[LAYERS_MOST + 1];
    uint32_t weight_gradient[LAYERS_MOST + 1];
};

static void mark(struct maker *maker, const struct chain *chain, uint64_t time_ns,
                 enum ebb_mark kind, uint32_t value)
{
    if (chain->marked)
        make_mark(maker, time_ns, kind, value);
}

static void forward(struct maker *maker, const struct chain *chain, const struct blocks *blocks,
                    uint32_t layer, uint64_t now)
{
    uint32_t scratch = make_block(maker, chain->scratch);
    mark(maker, chain, now, EBB_MARK_LAYER, layer);
    make_event(maker, now + 10, EBB_EVENT_ALLOC, blocks->output[layer], 0);
    make_event(maker, now + 20, EBB_EVENT_ALLOC, scratch, 0);
    make_event(maker, now + 30, EBB_EVENT_ACCESS, blocks->output[layer - 1], EBB_ACCESS_READ);
    make_event(maker, now + 30, EBB_EVENT_ACCESS, blocks->weight[layer], EBB_ACCESS_READ);
    make_event(maker, now + 30, EBB_EVENT_ACCESS, scratch, EBB_ACCESS_WRITE);
    make_event(maker, now + 30, EBB_EVENT_ACCESS, blocks->output[layer], EBB_ACCESS_WRITE);
    make_event(maker, now + 600, EBB_EVENT_FREE, scratch, 0);
}

/* A layer's backward work reads its input and the gradient of its output. It makes the gradients
 * of its input and its weights. The last layer makes the gradient of its own output first. */
static void backward(struct maker *maker, const struct chain *chain, const struct blocks *blocks,
                     uint32_t layer, uint64_t now)
{
    uint32_t scratch = make_block(maker, chain->scratch);
    bool last = layer == chain->layers;
    mark(maker, chain, now, EBB_MARK_LAYER, layer);
    if (last)
        make_event(maker, now + 10, EBB_EVENT_ALLOC, blocks->gradient[layer], 0);
    if (layer > 1)
        make_event(maker, now + 12, EBB_EVENT_ALLOC, blocks->gradient[layer - 1], 0);
    make_event(maker, now + 14, EBB_EVENT_ALLOC, blocks->weight_gradient[layer], 0);
    make_event(maker, now + 20, EBB_EVENT_ALLOC, scratch, 0);
    if (last) {
        make_event(maker, now + 30, EBB_EVENT_ACCESS, blocks->output[layer], EBB_ACCESS_READ);
        make_event(maker, now + 30, EBB_EVENT_ACCESS, blocks->gradient[layer], EBB_ACCESS_WRITE);
    } else {
        make_event(maker, now + 30, EBB_EVENT_ACCESS, blocks->gradient[layer], EBB_ACCESS_READ);
    }
    if (layer >
        1) /* the data gradient first: it may lie in the memory of the input, all the same */
        make_event(maker, now + 30, EBB_EVENT_ACCESS, blocks->gradient[layer - 1],
                   EBB_ACCESS_WRITE);
    make_event(maker, now + 30, EBB_EVENT_ACCESS, blocks->output[layer - 1], EBB_ACCESS_READ);
    make_event(maker, now + 30, EBB_EVENT_ACCESS, scratch, EBB_ACCESS_WRITE);
    make_event(maker, now + 30, EBB_EVENT_ACCESS, blocks->weight_gradient[layer], EBB_ACCESS_WRITE);
    make_event(maker, now + 600, EBB_EVENT_FREE, scratch, 0);
    if (layer > 1)
        make_event(maker, now + 610, EBB_EVENT_FREE, blocks->output[layer - 1], 0);
    if (last)
        make_event(maker, now + 620, EBB_EVENT_FREE, blocks->output[layer], 0);
    if (!chain->frees_late)
        make_event(maker, now + 630, EBB_EVENT_FREE, blocks->gradient[layer], 0);
    else if (!last)
        make_event(maker, now + 630, EBB_EVENT_FREE, blocks->gradient[layer + 1], 0);
}

static struct ebb_model chain_make(const struct chain *chain, struct blocks *blocks)
{
    struct maker maker = {0};
    uint64_t now = 0;
    blocks->output[0] = make_persistent(&maker, chain->output[0]);
    for (uint32_t layer = 1; layer <= chain->layers; layer++) {
        blocks->weight[layer] = make_persistent(&maker, chain->weight);
        blocks->output[layer] = make_block(&maker, chain->output[layer]);
        blocks->gradient[layer] = make_block(&maker, chain->output[layer]);
        blocks->weight_gradient[layer] = make_block(&maker, chain->weight);
    }
    mark(&maker, chain, now, EBB_MARK_PHASE, EBB_PHASE_FORWARD);
    for (uint32_t layer = 1; layer <= chain->layers; layer++, now += LAYER_NS)
        forward(&maker, chain, blocks, layer, now);
    mark(&maker, chain, now, EBB_MARK_PHASE, EBB_PHASE_BACKWARD);
    for (uint32_t layer = chain->layers; layer >= 1; layer--, now += LAYER_NS)
        backward(&maker, chain, blocks, layer, now);
    mark(&maker, chain, now, EBB_MARK_PHASE, EBB_PHASE_UPDATE);
    mark(&maker, chain, now, EBB_MARK_LAYER, 0);
    if (chain->frees_late)
        make_event(&maker, now += 10, EBB_EVENT_FREE, blocks->gradient[1], 0);
    for (uint32_t layer = 1; layer <= chain->layers; layer++) {
        uint32_t gradient = blocks->weight_gradient[layer];
        make_event(&maker, now += 10, EBB_EVENT_ACCESS, gradient, EBB_ACCESS_READ);
        make_event(&maker, now, EBB_EVENT_ACCESS, blocks->weight[layer], EBB_ACCESS_WRITE);
        make_event(&maker, now += 10, EBB_EVENT_FREE, gradient, 0);
    }
    return make_model(&maker, now + 500);
}

static const struct chain four = {
    .layers = 4, .weight = 10, .scratch = 5, .output = {100, 100, 100, 100, 100}, .marked = true};

/* Lanes that take `ns` for a byte. */
static struct ebb_machine lanes(double ns)
{
    return (struct ebb_machine){"lanes", {ns, 0}, {ns, 0}, true, EBB_NO_COSTS};
}

/* Plans by the policy, and checks the plan within its peak, where it is feasible. */
static struct ebb_plan plan_by(const char *policy, const struct ebb_model *model,
                               const struct ebb_machine *machine)
{
    struct ebb_plan_request request = {
        .model = model, .machine = machine, .budget_bytes = 1, .page_bytes = 1};
    struct ebb_plan small = make(policy, &request);
    struct ebb_error error;
    const struct ebb_check_request check = {model, machine, 1, 1};
    if (ebb__check_plan(&check, &small, &error) != EBB_OK)
        fail_msg("%s: %s", policy, error.why);
    assert_false(small.feasible);
    assert_int_equal(small.smallest_feasible_bytes, small.peak_bytes);
    request.budget_bytes = small.peak_bytes - 1;
    struct ebb_plan tight = make(policy, &request);
    assert_false(tight.feasible);
    ebb__plan_fini(&tight);
    request.budget_bytes = small.peak_bytes;
    struct ebb_plan plan = make(policy, &request);
    assert_true(plan.feasible);
    assert_holds(&request, &plan);
    /* The same moves, whatever the budget. */
    assert_int_equal(plan.moved_out_bytes, small.moved_out_bytes);
    assert_int_equal(plan.stall_ns, small.stall_ns);
    ebb__plan_fini(&small);
    assert_int_equal(ebb__plan_zero_stall(policy_named(policy), &request, &small, &error), EBB_OK);
    assert_holds(&request, &small);
    assert_int_equal(small.budget_bytes, plan.peak_bytes);
    ebb__plan_fini(&small);
    return plan;
}

static uint64_t peak_of(const char *policy, const struct ebb_model *model)
{
    const struct ebb_machine machine = lanes(1);
    struct ebb_plan plan = plan_by(policy, model, &machine);
    assert_int_equal(plan.stall_ns, 0);
    uint64_t peak = plan.peak_bytes;
    ebb__plan_fini(&plan);
    return peak;
}

/* Always there: 4 weights and the input, 140 bytes. When the last layer begins backward there are 4
 * outputs, 2 gradients, the gradient of its weight, and scratch: 615 bytes. */
static void peaks_by_hand(void **state)
{
    (void)state;
    struct blocks blocks;
    struct ebb_model model = chain_make(&four, &blocks);
    assert_int_equal(model.peak_bytes, 140 + 615);
    /* 4 outputs, 4 gradients, 4 gradients of weights, 8 times scratch. */
    assert_int_equal(peak_of("static", &model), 140 + 400 + 400 + 40 + 40);
    /* Outputs 1 and 2 are on the host; output 2 is already being fetched. */
    assert_int_equal(peak_of("layrub:inter", &model), 140 + 515);
    /* The gradient of output 3 lies where output 3 or 4 is. */
    assert_int_equal(peak_of("layrub:intra", &model), 140 + 515);
    assert_int_equal(peak_of("layrub:hybrid", &model), 140 + 415);
    ebb__model_fini(&model);
}

/* Output 3 is needed again in the next layer, and output 4 in its own: they stay. */
static void what_is_migrated(void **state)
{
    (void)state;
    struct blocks blocks;
    const struct ebb_machine machine = lanes(1);
    struct ebb_model model = chain_make(&four, &blocks);
    struct ebb_plan plan = plan_by("layrub:inter", &model, &machine);
    assert_int_equal(plan.absence_count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        const struct ebb_absence *absence = &plan.absences[i];
        assert_int_equal(absence->block, blocks.output[i + 1]);
        assert_int_equal(absence->out_start_ns, (i + 1) * LAYER_NS + 600);
        assert_int_equal(absence->out_end_ns, absence->out_start_ns + 100);
        /* Layer 4 begins backward at 4,000, layer 3 at 5,000, each with an event at 10 or 12. */
        assert_int_equal(absence->in_start_ns, i == 0 ? 5012 : 4010);
        assert_int_equal(absence->in_end_ns, absence->in_start_ns + 100);
    }
    assert_int_equal(plan.moved_out_bytes, 200);
    assert_int_equal(plan.moved_in_bytes, 200);
    ebb__plan_fini(&plan);
    ebb__model_fini(&model);
}

/* A copy of 1,200 ns. The copies out begin at 600 of a layer, and the next layer waits from its
 * first event, at 10, for 790. The copies in begin with a layer. The next one begins 1,002 later
 * after layer 4, and 1,000 later after layer 3. */
static void barriers_cost_time(void **state)
{
    (void)state;
    struct blocks blocks;
    struct ebb_model model = chain_make(&four, &blocks);
    const struct ebb_machine slow = lanes(12);
    for (int hybrid = 0; hybrid < 2; hybrid++) {
        struct ebb_plan plan = plan_by(hybrid ? "layrub:hybrid" : "layrub:inter", &model, &slow);
        assert_int_equal(plan.stall_ns, 2 * 790 + 198 + 200);
        assert_int_equal(plan.iteration_ns, ebb__model_iteration_ns(&model) + plan.stall_ns);
        ebb__plan_fini(&plan);
    }
    struct ebb_plan intra = plan_by("layrub:intra", &model, &slow);
    assert_int_equal(intra.stall_ns, 0);
    assert_int_equal(intra.moved_out_bytes, 0);
    ebb__plan_fini(&intra);
    /* Without a barrier, and with the same moves, nothing would wait for copies out. */
    struct ebb_plan_request request = {
        .model = &model, .machine = &slow, .budget_bytes = model.peak_bytes, .page_bytes = 1};
    struct ebb_plan plan = make("layrub:inter", &request);
    struct ebb_sim_request without = {&model,           &slow, plan.absences, plan.absence_count,
                                      model.peak_bytes, 1,     NULL};
    struct ebb_sim_result result;
    assert_int_equal(ebb__simulate(&without, NULL, &result, NULL), EBB_OK);
    assert_true(result.stall_ns < 2 * 200);
    ebb__plan_fini(&plan);
    ebb__model_fini(&model);
}

/* Gradients 1 to 3 lie in data. That of the last output is used by its own layer only, and those of
 * weights by the update. */
static void what_is_shared(void **state)
{
    (void)state;
    struct chain chain = four;
    const struct ebb_machine machine = lanes(1);
    struct blocks blocks;
    for (int larger = 0; larger < 2; larger++) {
        chain.output[4] = larger ? 120 : 90; /* more than output 3, or too small */
        struct ebb_model model = chain_make(&chain, &blocks);
        struct ebb_plan plan = plan_by("layrub:hybrid", &model, &machine);
        assert_int_equal(plan.rules.share_count, 3);
        for (uint32_t i = 0; i < 3; i++) {
            const struct ebb_share *share = &plan.rules.shares[i];
            assert_int_equal(share->block, blocks.gradient[3 - i]);
            assert_int_equal(share->host, blocks.output[3 - i]); /* the smallest that holds it */
        }
        ebb__plan_fini(&plan);
        ebb__model_fini(&model);
    }
    chain = four;
    chain.output[3] = 200; /* larger than every other one: only output 3 holds its gradient */
    chain.output[2] = 50;  /* output 2 holds its own gradient alone */
    struct ebb_model model = chain_make(&chain, &blocks);
    struct ebb_plan plan = plan_by("layrub:intra", &model, &machine);
    assert_int_equal(plan.rules.share_count, 3);
    assert_int_equal(plan.rules.shares[0].host, blocks.output[3]);
    ebb__plan_fini(&plan);
    ebb__model_fini(&model);
}

/* Networks whose sizes vary: the plans pass the checker. A policy that shares nothing never needs
 * more than the load. */
static void random_chains(void **state)
{
    (void)state;
    uint32_t moved = 0, stalled = 0, shared = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        uint64_t random = seed * 0x9e3779b97f4a7c15u;
        struct chain chain = {.layers = 2 + (uint32_t)(seed % 11),
                              .weight = 1 + chance(&random) % 50,
                              .scratch = 1 + chance(&random) % 50,
                              .marked = true,
                              .frees_late = seed % 2};
        for (uint32_t layer = 0; layer <= chain.layers; layer++)
            chain.output[layer] = 1 + chance(&random) % 400;
        struct blocks blocks;
        struct ebb_model model = chain_make(&chain, &blocks);
        const struct ebb_machine machine = lanes(1 + (double)(seed % 4));
        static const char *const names[] = {"layrub:inter", "layrub:intra", "layrub:hybrid"};
        for (size_t i = 0; i < 3; i++) {
            struct ebb_plan plan = plan_by(names[i], &model, &machine);
            assert_true(plan.peak_bytes <= model.peak_bytes || plan.rules.share_count);
            assert_int_equal(plan.stall_ns > 0 && plan.absence_count == 0, 0);
            moved += plan.absence_count;
            stalled += plan.stall_ns > 0;
            shared += plan.rules.share_count;
            ebb__plan_fini(&plan);
        }
        ebb__model_fini(&model);
    }
    assert_true(moved > 300 && stalled > 30 && shared > 300);
}

static void layers_must_be_marked(void **state)
{
    (void)state;
    struct chain chain = four;
    chain.marked = false;
    struct blocks blocks;
    struct ebb_model model = chain_make(&chain, &blocks);
    const struct ebb_machine machine = lanes(1);
    struct ebb_plan_request request = {
        .model = &model, .machine = &machine, .budget_bytes = 1000, .page_bytes = 1};
    static const char *const names[] = {"layrub:inter", "layrub:intra", "layrub:hybrid"};
    for (size_t i = 0; i < 3; i++) {
        struct ebb_plan plan;
        struct ebb_error error;
        const struct ebb_policy *policy = policy_named(names[i]);
        assert_int_equal(ebb__plan_make(policy, &request, &plan, &error), EBB_ERR_UNSUPPORTED);
        assert_string_equal(error.what, names[i]);
        assert_string_equal(error.why, "the trace has no layer marks");
        assert_int_equal(ebb__plan_zero_stall(policy, &request, &plan, &error),
                         EBB_ERR_UNSUPPORTED);
    }
    assert_int_equal(peak_of("static", &model), 1020); /* it needs no marks */
    ebb__model_fini(&model);
}

/* vDNN with the layers that are marked: the maps of Layrub, and no barrier. A map is fetched when
 * the layer begins that uses the one before. Output 3 is too small to move, so output 2 is fetched
 * two layers ahead. The largest maps stand for those of convolutions. */
static void vdnn_knows_layers(void **state)
{
    (void)state;
    struct chain chain = {.layers = 6,
                          .weight = 10,
                          .scratch = 5,
                          .output = {100, 200, 100, 20, 100, 100, 100},
                          .marked = true};
    struct blocks blocks;
    struct ebb_model model = chain_make(&chain, &blocks);
    const struct ebb_machine slow = lanes(5);
    struct ebb_plan_request request = {.model = &model,
                                       .machine = &slow,
                                       .budget_bytes = model.peak_bytes,
                                       .page_bytes = 1,
                                       .smallest_block_bytes = 50};
    struct ebb_plan plan = make("vdnn:all", &request);
    assert_holds(&request, &plan);
    assert_int_equal(plan.rules.barrier_count, 0);
    assert_int_equal(plan.absence_count, 3);
    static const uint32_t outputs[] = {1, 2, 4};
    static const uint64_t fetched_ns[] = {9012, 7012, 6010}; /* layers 3, 5 and 6 begin backward */
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(plan.absences[i].block, blocks.output[outputs[i]]);
        assert_int_equal(plan.absences[i].in_start_ns, fetched_ns[i]);
    }
    assert_int_equal(plan.stall_ns, 0); /* the longest copy, of 1,000 ns, has a whole layer */
    ebb__plan_fini(&plan);
    plan = make("vdnn:conv", &request);
    assert_holds(&request, &plan);
    assert_int_equal(plan.absence_count, 1);
    assert_int_equal(plan.absences[0].block, blocks.output[1]);
    ebb__plan_fini(&plan);
    ebb__model_fini(&model);
}

/* A framework that allocates once: outputs are what forward layers write. Weights stay. */
static void persistent_outputs(void **state)
{
    (void)state;
    struct maker maker = {0};
    uint32_t output[4], weight = make_persistent(&maker, 50);
    for (int layer = 0; layer < 4; layer++)
        output[layer] = make_persistent(&maker, 100);
    uint64_t now = 0;
    for (int step = 0; step < 8; step++, now += LAYER_NS) {
        uint32_t layer = step < 4 ? (uint32_t)step : 7 - (uint32_t)step;
        uint32_t scratch = make_block(&maker, 5);
        if (step % 4 == 0)
            make_mark(&maker, now, EBB_MARK_PHASE, step ? EBB_PHASE_BACKWARD : EBB_PHASE_FORWARD);
        make_mark(&maker, now, EBB_MARK_LAYER, layer + 1);
        make_event(&maker, now + 10, EBB_EVENT_ALLOC, scratch, 0);
        make_event(&maker, now + 20, EBB_EVENT_ACCESS, weight, EBB_ACCESS_READ);
        make_event(&maker, now + 20, EBB_EVENT_ACCESS, output[layer],
                   step < 4 ? EBB_ACCESS_WRITE : EBB_ACCESS_READ);
        make_event(&maker, now + 600, EBB_EVENT_FREE, scratch, 0);
    }
    struct ebb_model model = make_model(&maker, now);
    const struct ebb_machine machine = lanes(1);
    struct ebb_plan plan = plan_by("layrub:inter", &model, &machine);
    /* The output of layer 4 is used again at once. */
    assert_int_equal(plan.absence_count, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(plan.absences[i].block, output[i]);
    /* All outputs but the first are there when forward begins, and are overwritten. */
    assert_int_equal(plan.peak_bytes, 50 + 400 + 5);
    ebb__plan_fini(&plan);
    ebb__model_fini(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peaks_by_hand),      cmocka_unit_test(what_is_migrated),
        cmocka_unit_test(barriers_cost_time), cmocka_unit_test(what_is_shared),
        cmocka_unit_test(random_chains),      cmocka_unit_test(layers_must_be_marked),
        cmocka_unit_test(persistent_outputs), cmocka_unit_test(vdnn_knows_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
