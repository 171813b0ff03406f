/* ebb: the plan of Ebb's own planner, which knows no use in place. A block that it evicts lies in
 * the slow tier, and is copied back before its use. Its absences are rounded to operations. If
 * that exceeds the budget, the planner is asked again for as much less. If one operation alone
 * needs more than the budget, everything stays in the slow tier, and the plan says so. */
#include "lab/tier/policies.h"
#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROUNDS 6

static uint32_t operation_of(const struct ebb_operations *operations, uint32_t tick)
{
    uint32_t low = 0, high = operations->count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (operations->items[middle].first_tick <= tick)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static uint32_t operation_at(const struct ebb_tier_request *request, uint64_t ns)
{
    const struct ebb_operations *operations = request->operations;
    uint64_t at = ns % (ebb__model_iteration_ns(request->model) + 1);
    uint32_t low = 0, high = operations->count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (request->model->time_ns[operations->items[middle].first_tick] <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The stays of an absence: out behind the use, in before the next one. */
static bool absence_add(const struct ebb_tier_request *request, const struct ebb_absence *absence,
                        struct ebb_tier_plan *plan)
{
    const struct ebb_operations *operations = request->operations;
    uint32_t count = operations->count;
    uint32_t first = (operation_of(operations, absence->from_tick) + 1) % count;
    uint32_t end = operation_of(operations, absence->to_tick);
    uint32_t span = ebb__operations_between(operations, first, end);
    uint32_t gone = ebb__operations_between(
        operations, first, (operation_at(request, absence->out_end_ns) + 1) % count);
    uint32_t back =
        ebb__operations_between(operations, first, operation_at(request, absence->in_start_ns));
    gone = least(gone, span);
    back = least(back, span);
    if (gone == span || span == 0)
        return true; /* too short to be worth it in whole operations */
    if (back < gone)
        back = gone;
    struct ebb_stay out = {.block = absence->block,
                           .first = (first + gone) % count,
                           .start = first,
                           .tier = EBB_TIER_SLOW};
    struct ebb_stay in = {.block = absence->block,
                          .first = end,
                          .start = (first + back) % count,
                          .tier = EBB_TIER_FAST};
    return ebb__tier_plan_add(plan, out) && (absence->drops || ebb__tier_plan_add(plan, in));
}

/* An absence, and how old its block is when it begins. */
struct aged {
    const struct ebb_absence *absence;
    uint32_t age;
};

static int by_age(const void *left, const void *right)
{
    const struct aged *a = left, *b = right;
    if (a->absence->block != b->absence->block)
        return a->absence->block < b->absence->block ? -1 : 1;
    return (a->age > b->age) - (a->age < b->age);
}

static int by_first(const void *left, const void *right)
{
    const struct ebb_stay *a = left, *b = right;
    return (a->first > b->first) - (a->first < b->first);
}

/* Everything is in fast memory, apart from the absences. */
static bool convert(const struct ebb_tier_request *request, const struct ebb_plan *from,
                    struct ebb_tier_plan *plan)
{
    const struct ebb_operations *operations = request->operations;
    struct aged *aged = calloc((size_t)from->absence_count + 1, sizeof *aged);
    bool ok = aged != NULL;
    uint32_t at = 0;
    plan->stays.count = 0;
    for (uint32_t i = 0; ok && i < from->absence_count; i++) {
        const struct ebb_absence *absence = &from->absences[i];
        aged[i] = (struct aged){
            absence,
            ebb__operations_between(operations, ebb__tier_birth(operations, absence->block),
                                    operation_of(operations, absence->from_tick))};
    }
    if (ok)
        qsort(aged, from->absence_count, sizeof *aged, by_age);
    for (uint32_t b = 0; ok && b < operations->block_count; b++) {
        uint32_t birth = ebb__tier_birth(operations, b);
        size_t before = plan->stays.count;
        if (!operations->blocks[b].persistent)
            ok = ebb__tier_plan_add(plan,
                                    (struct ebb_stay){.block = b, .first = birth, .start = birth});
        for (; ok && at < from->absence_count && aged[at].absence->block == b; at++)
            ok = absence_add(request, aged[at].absence, plan);
        if (ok && plan->stays.count == before)
            ok = ebb__tier_plan_add(plan, (struct ebb_stay){.block = b});
        if (ok && operations->blocks[b].persistent)
            qsort(plan->stays.items + before, plan->stays.count - before, sizeof *plan->stays.items,
                  by_first);
    }
    free(aged);
    return ok;
}

enum ebb_status ebb__tier_ebb(const struct ebb_tier_request *request, const char *variant,
                              struct ebb_tier_plan *plan, struct ebb_error *error)
{
    const struct ebb_tier_machine *tiers = request->machine;
    struct ebb_machine machine = {
        .name = "tiers", .out = tiers->out, .in = tiers->in, .duplex = tiers->duplex};
    struct ebb_plan_request asked = {.model = request->model,
                                     .machine = &machine,
                                     .budget_bytes = request->budget_bytes,
                                     .page_bytes = tiers->page_bytes,
                                     .time_limit_ns = request->time_limit_ns};
    bool fits = false;
    enum ebb_status status = EBB_OK;
    (void)variant;
    if (!request->model)
        return ebb__fail(error, EBB_ERR_UNSUPPORTED, "ebb", "needs the events of the iteration");
    for (int round = 0; !status && !fits && asked.budget_bytes && round < MOST_ROUNDS; round++) {
        struct ebb_plan made;
        struct ebb_tier_result result = {0};
        status = ebb__plan_make(ebb__plan_policy("ebb"), &asked, &made, error);
        if (status)
            return status;
        bool ok = convert(request, &made, plan);
        ebb__plan_fini(&made);
        if (!ok)
            return ebb__fail(error, EBB_ERR_MEMORY, "ebb", "no memory for the plan");
        status = ebb__tier_plan_close(plan, request->operations, error);
        if (!status)
            status = ebb__tiers_simulate(request, plan, &result, error);
        fits = !status && result.fast_peak_bytes <= request->budget_bytes;
        uint64_t excess = fits ? 0 : result.fast_peak_bytes - request->budget_bytes;
        asked.budget_bytes = asked.budget_bytes > excess ? asked.budget_bytes - excess : 0;
    }
    if (status || fits)
        return status;
    plan->stays.count = 0;
    plan->fell_back = true;
    snprintf(plan->note, sizeof plan->note, "an operation needs more: all in the slow tier");
    return ebb__tier_plan_close(plan, request->operations, error);
}
