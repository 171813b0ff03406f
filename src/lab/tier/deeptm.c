/* DeepTM (docs/papers.md), as far as its text says, and Ebb's reading of the rest.
 *
 * 1. Small blocks of like heat become one (deeptm_aggregate.c).
 * 2. The decomposed performance model gives prices (deeptm_prices.c).
 * 3. All blocks are placed, the hottest first (deeptm_heat.c), each on its best path
 *    (deeptm_path.c). This is done with prices and without, with short windows of copies and long
 *    ones. The best of these remains.
 * 4. Placements are tried: the blocks of a few operations are taken out and placed again, by
 *    varied weights of heat. A trial that takes no more time remains, and moves the weights.
 * 5. Copies become runs (deeptm_runs.c).
 *
 * Whatever the simulator finds best remains. A trial costs as many steps as it looks at operations.
 * So the same plan comes out on every machine, unless the time limit is reached first. */
#include "lab/tier/deeptm.h"

#include "base/clock.h"
#include "base/effort.h"
#include "lab/tier/policies.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PRICE_ROUNDS 40
#define STEPS 1000000000u   /* of trials; arbitrary: some seconds */
#define BOX_NS 20000000000u /* a limit that only a slow machine reaches */
#define IDLE_TRIALS 4000    /* without a gain: the search is over */

/* The search, and the best plan so far. */
struct search {
    struct ebb_deeptm state;
    struct ebb_effort effort;
    struct ebb_tier_plan *best;
    double best_ns;
    uint32_t *blocks;                   /* scratch: block_count */
    struct ebb_deeptm_use *before;      /* scratch: use_count */
    struct ebb_deeptm_learner *learner; /* NULL: actions are drawn */
    uint64_t trials, gains;
    struct ebb_error *error;
};

static void prices_use(struct search *search, double factor)
{
    search->state.price_factor = search->state.options.prices ? factor : 0;
}

/* Simulates the state's plan, and keeps it if it is the best. *ns is its time; a plan that exceeds
 * the budget has none. */
static enum ebb_status judge(struct search *search, double *ns)
{
    struct ebb_tier_plan plan;
    struct ebb_tier_result result;
    const struct ebb_tier_request *request = search->state.request;
    if (!ebb__tier_plan_init(&plan, search->state.operations))
        return ebb__fail(search->error, EBB_ERR_MEMORY, "deeptm", "no memory for a plan");
    enum ebb_status status = ebb__deeptm_plan(&search->state, &plan, search->error);
    if (!status)
        status = ebb__tiers_simulate(request, &plan, &result, search->error);
    ebb__effort_spend(&search->effort, 20ull * (request->operations->count + plan.stays.count));
    bool fits = !status && result.fast_peak_bytes <= request->budget_bytes;
    *ns = fits ? result.iteration_ns : INFINITY;
    if (fits && (search->best_ns == 0 || *ns < search->best_ns)) {
        search->best_ns = *ns;
        ebb__tier_plan_fini(search->best);
        *search->best = plan;
    } else {
        ebb__tier_plan_fini(&plan);
    }
    return status;
}

static void place_all(struct search *search)
{
    struct ebb_deeptm *state = &search->state;
    uint32_t count = state->operations->block_count;
    for (uint32_t b = 0; b < count; b++)
        search->blocks[b] = b;
    ebb__deeptm_heat(state);
    ebb__deeptm_heat_sort(state, search->blocks, count);
    for (uint32_t i = 0; i < count; i++) {
        ebb__deeptm_path(state, search->blocks[i], false);
        ebb__deeptm_place(state, search->blocks[i]);
    }
}

static void remove_all(struct search *search)
{
    for (uint32_t b = 0; b < search->state.operations->block_count; b++)
        if (search->state.placed[b])
            ebb__deeptm_remove(&search->state, b);
}

/* Each block alone takes the best path that the others leave. */
static void polish(struct search *search)
{
    struct ebb_deeptm *state = &search->state;
    prices_use(search, 0);
    for (uint32_t b = 0; b < state->operations->block_count; b++) {
        if (!state->operations->blocks[b].use_count)
            continue;
        ebb__deeptm_remove(state, b);
        ebb__deeptm_path(state, b, false);
        ebb__deeptm_place(state, b);
        ebb__effort_spend(&search->effort, 4 * state->operations->count);
    }
}

static void uses_copy(const struct ebb_operation_block *block, struct ebb_deeptm_use *to,
                      const struct ebb_deeptm_use *from)
{
    memcpy(to + block->first_use, from + block->first_use, block->use_count * sizeof *to);
}

/* What the network sees: how far the search is, and how it goes. All about in [-1, 1]. */
static void inputs_fill(const struct search *search, double now_ns, float *inputs)
{
    const struct ebb_deeptm *state = &search->state;
    const struct ebb_operations *operations = state->operations;
    double fast_ns = ebb__tiers_fast_ns(operations, state->request->machine), used = 0;
    for (uint32_t i = 0; i < operations->count; i++)
        used += (double)state->used_bytes[i];
    inputs[0] = (float)search->effort.spent / (float)search->effort.limit;
    inputs[1] = (float)fmin(1, now_ns / fast_ns - 1);
    inputs[2] = (float)fmin(1, state->wait_ns / fast_ns);
    inputs[3] = (float)fmin(1, state->latency_ns / fast_ns);
    inputs[4] =
        (float)(used / ((double)operations->count * (double)(state->request->budget_bytes + 1)));
    inputs[5] = (float)search->gains / (float)(search->trials + 1);
    inputs[6] = state->request->machine->duplex ? 1 : 0;
    for (int i = 0; i < EBB_HEAT_COUNT; i++)
        inputs[7 + i] = (float)state->heat_weight[i];
}

static struct ebb_deeptm_action action_choose(struct search *search, double now_ns)
{
    double chance = (double)(ebb__deeptm_random(&search->state) >> 11) * 0x1p-53;
    float inputs[EBB_LEARN_INPUTS];
    if (!search->learner)
        return ebb__deeptm_action_of((uint32_t)(chance * EBB_LEARN_ACTIONS));
    inputs_fill(search, now_ns, inputs);
    return ebb__deeptm_learner_act(search->learner, inputs, chance);
}

/* Blocks to take out: some of those that are used near an operation. Returns their number. */
static uint32_t neighbours(struct search *search, const struct ebb_deeptm_action *action)
{
    struct ebb_deeptm *state = &search->state;
    const struct ebb_operations *operations = state->operations;
    uint32_t centre = (uint32_t)(ebb__deeptm_random(state) % operations->count), count = 0;
    uint32_t most_reach = operations->count / action->reach_divisor + 1;
    uint32_t reach = 1 + (uint32_t)(ebb__deeptm_random(state) % most_reach);
    uint32_t wanted = 2 + (uint32_t)(ebb__deeptm_random(state) % (action->most_taken - 2));
    uint32_t begin = (uint32_t)(ebb__deeptm_random(state) % operations->block_count);
    for (uint32_t i = 0; i < operations->block_count && count < wanted; i++) {
        uint32_t b = (begin + i) % operations->block_count;
        const struct ebb_operation_block *block = &operations->blocks[b];
        bool near = false;
        for (uint32_t u = 0; u < block->use_count && !near; u++) {
            uint32_t at = ebb__block_use(operations, b, u)->operation;
            near = ebb__operations_between(operations, centre, at) < reach;
        }
        if (near)
            search->blocks[count++] = b;
    }
    ebb__effort_spend(&search->effort, operations->block_count);
    return count;
}

/* Places the blocks of a trial again, with weights that are tried. */
static void trial_place(struct search *search, const struct ebb_deeptm_action *action,
                        uint32_t count, double *tried)
{
    struct ebb_deeptm *state = &search->state;
    double kept[EBB_HEAT_COUNT];
    memcpy(kept, state->heat_weight, sizeof kept);
    ebb__deeptm_heat_vary(state, tried);
    memcpy(state->heat_weight, tried, sizeof kept);
    ebb__deeptm_heat(state);
    memcpy(state->heat_weight, kept, sizeof kept);
    prices_use(search, action->price_factor);
    state->slack = action->slack;
    ebb__deeptm_heat_sort(state, search->blocks, count);
    for (uint32_t i = 0; i < count; i++) {
        ebb__deeptm_remove(state, search->blocks[i]);
        uses_copy(&state->operations->blocks[search->blocks[i]], search->before, state->uses);
    }
    for (uint32_t i = 0; i < count; i++) {
        ebb__deeptm_path(state, search->blocks[i], false);
        ebb__deeptm_place(state, search->blocks[i]);
    }
    state->slack = 1;
    ebb__effort_spend(&search->effort, 6ull * count * state->operations->count);
}

static void trial_undo(struct search *search, uint32_t count)
{
    struct ebb_deeptm *state = &search->state;
    for (uint32_t i = 0; i < count; i++)
        ebb__deeptm_remove(state, search->blocks[i]);
    for (uint32_t i = 0; i < count; i++) {
        uses_copy(&state->operations->blocks[search->blocks[i]], state->uses, search->before);
        ebb__deeptm_place(state, search->blocks[i]);
    }
}

static enum ebb_status trials(struct search *search, double now_ns)
{
    enum ebb_status status = EBB_OK;
    uint64_t last_gain = 0;
    while (!status && search->state.operations->block_count &&
           search->trials - last_gain < IDLE_TRIALS &&
           !ebb__effort_is_over(&search->effort, search->effort.limit)) {
        double tried[EBB_HEAT_COUNT], tried_ns;
        struct ebb_deeptm_action action = action_choose(search, now_ns);
        uint32_t count = neighbours(search, &action);
        trial_place(search, &action, count, tried);
        status = judge(search, &tried_ns);
        search->trials++;
        if (search->learner)
            ebb__deeptm_learner_reward(search->learner,
                                       tried_ns < now_ns ? (now_ns - tried_ns) / now_ns : 0);
        if (search->state.options.regret && tried_ns != now_ns)
            ebb__deeptm_heat_regret(&search->state, tried, now_ns - tried_ns);
        if (tried_ns < now_ns)
            last_gain = search->trials, search->gains++;
        if (tried_ns > now_ns)
            trial_undo(search, count);
        else
            now_ns = tried_ns;
    }
    return status;
}

static enum ebb_status search_run(struct search *search)
{
    static const struct {
        double factor, slack;
    } starts[] = {{1, 1}, {0.5, 1}, {0, 1}, {1, 3}, {0, 3}};
    enum { STARTS = sizeof starts / sizeof starts[0] };
    enum ebb_status status = EBB_OK;
    double least_ns = INFINITY, ns = INFINITY;
    int best = 0;
    if (search->state.options.prices)
        ebb__deeptm_prices(&search->state, PRICE_ROUNDS);
    for (int i = 0; !status && i <= STARTS; i++) {
        int start = i < STARTS ? i : best; /* the last round begins again from the best one */
        remove_all(search);
        prices_use(search, starts[start].factor);
        search->state.slack = starts[start].slack;
        place_all(search);
        polish(search);
        search->state.slack = 1;
        status = judge(search, &ns);
        if (ns < least_ns) {
            least_ns = ns;
            best = start;
        }
    }
    return status ? status : trials(search, ns);
}

static struct ebb_deeptm_options options_of(const char *variant)
{
    struct ebb_deeptm_options options = {.aggregation = !strchr(variant, 'a'),
                                         .runs = !strchr(variant, 'r'),
                                         .prices = !strchr(variant, 'p'),
                                         .heat = !strchr(variant, 'h'),
                                         .regret = !strchr(variant, 'w'),
                                         .asynchronous = !strchr(variant, 's'),
                                         .learning = strchr(variant, 'L')};
    return options;
}

/* Plans without aggregation and runs. `learner` may be NULL. */
static enum ebb_status plan_merged(const struct ebb_tier_request *request,
                                   struct ebb_deeptm_options options,
                                   struct ebb_deeptm_learner *learner, struct ebb_tier_plan *plan,
                                   struct ebb_error *error)
{
    const struct ebb_operations *operations = request->operations;
    struct search search = {.best = plan, .learner = learner, .error = error};
    search.effort = ebb__effort(STEPS, request->time_limit_ns ? request->time_limit_ns : BOX_NS);
    search.blocks = calloc((size_t)operations->block_count + 1, sizeof *search.blocks);
    search.before = calloc((size_t)operations->use_count + 1, sizeof *search.before);
    enum ebb_status status = EBB_OK;
    if (!ebb__deeptm_init(&search.state, request, options) || !search.blocks || !search.before)
        status = ebb__fail(error, EBB_ERR_MEMORY, "deeptm", "no memory to plan");
    if (!status)
        status = search_run(&search);
    ebb__deeptm_fini(&search.state);
    free(search.blocks);
    free(search.before);
    return status;
}

enum ebb_status ebb__deeptm_train(const struct ebb_tier_request *request,
                                  struct ebb_deeptm_learner *learner, double *ns,
                                  struct ebb_error *error)
{
    struct ebb_tier_plan plan;
    struct ebb_tier_result result;
    if (!ebb__tier_plan_init(&plan, request->operations))
        return ebb__fail(error, EBB_ERR_MEMORY, "deeptm", "no memory for a plan");
    enum ebb_status status = plan_merged(request, options_of(""), learner, &plan, error);
    if (!status)
        status = ebb__tiers_simulate(request, &plan, &result, error);
    if (!status)
        *ns = result.iteration_ns;
    ebb__tier_plan_fini(&plan);
    return status;
}

static enum ebb_status plan_learned(const struct ebb_tier_request *request,
                                    struct ebb_deeptm_options options, struct ebb_tier_plan *plan,
                                    struct ebb_error *error)
{
    if (!options.learning)
        return plan_merged(request, options, NULL, plan, error);
    struct ebb_deeptm_learner *learner = calloc(1, sizeof *learner);
    if (!learner)
        return ebb__fail(error, EBB_ERR_MEMORY, "deeptm", "no memory for the network");
    ebb__deeptm_learner_load(learner);
    enum ebb_status status = plan_merged(request, options, learner, plan, error);
    free(learner);
    return status;
}

enum ebb_status ebb__tier_deeptm(const struct ebb_tier_request *request, const char *variant,
                                 struct ebb_tier_plan *plan, struct ebb_error *error)
{
    struct ebb_deeptm_options options = options_of(variant);
    struct ebb_deeptm_merged merged;
    struct ebb_tier_request inner = *request;
    enum ebb_status status = EBB_OK;
    if (options.aggregation) {
        struct ebb_tier_plan small;
        status = ebb__deeptm_merge(request->operations, &merged, error);
        if (status)
            return status;
        inner.operations = &merged.operations;
        if (!ebb__tier_plan_init(&small, inner.operations))
            status = ebb__fail(error, EBB_ERR_MEMORY, "deeptm", "no memory for a plan");
        if (!status)
            status = plan_learned(&inner, options, &small, error);
        if (!status)
            status = ebb__deeptm_expand(request->operations, &merged, &small, plan, error);
        ebb__tier_plan_fini(&small);
        ebb__deeptm_merged_fini(&merged);
    } else {
        status = plan_learned(request, options, plan, error);
    }
    if (!status && options.runs)
        status = ebb__deeptm_runs(request->operations, plan, error);
    plan->profile_ns = (uint64_t)ebb__tiers_fast_ns(request->operations, request->machine);
    return status;
}
