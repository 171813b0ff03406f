/* From a choice of gaps to the simulator's result, and to a finished plan. */
#include "plan/swap/swap.h"

#include "base/tuning.h"

#include <stdlib.h>

#define SETTLE_ROUNDS 8 /* afterwards, a plan that alternates is accepted as it is */

static uint32_t absences_build(struct ebb_swap *swap)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        uint32_t index = swap->by_ready[i];
        const struct ebb_swap_gap *gap = &swap->gaps[index];
        if (!gap->taken)
            continue;
        swap->absence_gap[count] = index;
        swap->absences[count++] =
            (struct ebb_absence){.block = gap->block,
                                 .from_tick = gap->from_tick,
                                 .to_tick = gap->to_tick,
                                 .drops = gap->drops,
                                 .margin_ticks = gap->margin_ticks,
                                 .out_within = gap->out_within,
                                 .in_start_ns = gap->drops ? 0 : gap->trigger_ns};
    }
    return count;
}

enum ebb_status ebb__swap_evaluate(struct ebb_swap *swap, struct ebb_swap_outcome *outcome,
                                   struct ebb_error *error)
{
    for (;;) {
        struct ebb_sim_request request = {.model = swap->model,
                                          .machine = swap->request->machine,
                                          .absences = swap->absences,
                                          .absence_count = absences_build(swap),
                                          .budget_bytes = swap->request->budget_bytes,
                                          .page_bytes = swap->request->page_bytes,
                                          .rules = swap->rules};
        struct ebb_sim_detail detail = {.times = swap->times, .tick_stall_ns = swap->tick_stall_ns};
        struct ebb_sim_result result;
        ebb__effort_spend(&swap->effort,
                          16 * (uint64_t)swap->cell_count + 64 * (uint64_t)request.absence_count);
        enum ebb_status status = ebb__simulate(&request, &detail, &result, error);
        if (status)
            return status;
        bool removed = false;
        for (uint32_t i = 0; i < request.absence_count; i++) {
            struct ebb_swap_gap *gap = &swap->gaps[swap->absence_gap[i]];
            uint64_t need_ns = gap->need_ns % swap->lap_ns;
            bool is_fetched_on_access = gap->trigger_ns == need_ns;
            if (swap->times[i].cancelled || (swap->times[i].wasted && is_fetched_on_access)) {
                gap->taken = false; /* wasted: see times_take() */
                removed = true;
            } else if (swap->times[i].wasted) {
                gap->trigger_ns = need_ns; /* fetched on access instead */
                removed = true;
            }
        }
        *outcome =
            (struct ebb_swap_outcome){.feasible = result.feasible,
                                      .iteration_ns = result.iteration_ns,
                                      .moved_bytes = result.moved_out_bytes + result.moved_in_bytes,
                                      .peak_bytes = result.peak_bytes};
        if (!removed)
            return EBB_OK;
    }
}

bool ebb__swap_better(const struct ebb_swap *swap, const struct ebb_swap_outcome *left,
                      const struct ebb_swap_outcome *right)
{
    uint64_t none_ns = swap->lap_ns / 1000;
    if (left->feasible != right->feasible)
        return left->feasible;
    if (left->iteration_ns + none_ns < right->iteration_ns)
        return true;
    if (right->iteration_ns + none_ns < left->iteration_ns)
        return false;
    return left->moved_bytes < right->moved_bytes;
}

static int absence_compare(const void *left, const void *right)
{
    const struct ebb_absence *a = left, *b = right;
    if (a->out_start_ns != b->out_start_ns)
        return a->out_start_ns < b->out_start_ns ? -1 : 1;
    bool a_wraps = a->out_end_ns < a->out_start_ns, b_wraps = b->out_end_ns < b->out_start_ns;
    if (a_wraps != b_wraps)
        return a_wraps ? 1 : -1;
    if (a->out_end_ns != b->out_end_ns)
        return a->out_end_ns < b->out_end_ns ? -1 : 1;
    return (a->block > b->block) - (a->block < b->block);
}

/* True if the block is only read from the absence's end until its next absence begins. `evicts`, by
 * tick: an absence begins there. */
static bool only_read_until_next(const struct ebb_model *model, const struct ebb_absence *absence,
                                 const bool *evicts)
{
    const struct ebb_model_block *block = &model->blocks[absence->block];
    const struct ebb_model_access *accesses = &model->accesses[block->first_access];
    bool persistent = block->alloc_tick == EBB_TICK_NONE;
    uint32_t at = 0;
    while (at < block->access_count && accesses[at].tick != absence->to_tick)
        at++;
    for (uint32_t i = 0; i < block->access_count; i++, at++) {
        if (at >= block->access_count && !persistent)
            return false;
        const struct ebb_model_access *access = &accesses[at % block->access_count];
        if (access->access != EBB_ACCESS_READ)
            return false;
        if (evicts[access->tick])
            return true;
    }
    return false;
}

static enum ebb_status copies_keep(const struct ebb_swap *swap, struct ebb_plan *plan,
                                   struct ebb_error *error)
{
    bool *evicts = calloc(swap->cell_count, sizeof *evicts);
    if (!evicts)
        return ebb__fail(error, EBB_ERR_MEMORY, "plan", "out of memory");
    for (uint32_t i = 0; i < plan->absence_count; i++)
        evicts[plan->absences[i].from_tick] = true;
    for (uint32_t i = 0; i < plan->absence_count; i++)
        if (!plan->absences[i].drops)
            plan->absences[i].keep_copy =
                only_read_until_next(swap->model, &plan->absences[i], evicts);
    free(evicts);
    return EBB_OK;
}

/* The plan's times as simulated. */
static struct ebb_absence timed(const struct ebb_swap *swap, struct ebb_absence absence,
                                const struct ebb_sim_times *times)
{
    absence.out_start_ns = times->out_start_ns % swap->lap_ns;
    absence.out_end_ns = times->out_end_ns % swap->lap_ns;
    absence.in_start_ns = absence.drops ? 0 : times->in_start_ns % swap->lap_ns;
    absence.in_end_ns = absence.drops ? 0 : times->in_end_ns % swap->lap_ns;
    absence.stall_ns = absence.drops ? 0 : times->stall_ns;
    if (times->wasted)
        absence.in_start_ns = swap->model->time_ns[absence.to_tick] % swap->lap_ns;
    return absence;
}

/* Writes the simulated times into the absences, and removes those that were not executed. It also
 * removes one whose fetch is wasted although it waits for the use. If an iteration ends with that
 * use, the fetch seems to be due when one begins. Returns true if nothing but stalls changes. */
static bool times_take(const struct ebb_swap *swap, struct ebb_plan *plan)
{
    uint32_t kept = 0;
    bool same = true;
    for (uint32_t i = 0; i < plan->absence_count; i++) {
        const struct ebb_absence was = plan->absences[i];
        struct ebb_absence now = timed(swap, was, &swap->times[i]);
        same &= !swap->times[i].cancelled && !swap->times[i].wasted &&
                now.out_start_ns == was.out_start_ns && now.out_end_ns == was.out_end_ns &&
                now.in_start_ns == was.in_start_ns && now.in_end_ns == was.in_end_ns;
        bool waited = was.in_start_ns == swap->model->time_ns[was.to_tick] % swap->lap_ns;
        if (!swap->times[i].cancelled && !(swap->times[i].wasted && waited))
            plan->absences[kept++] = now;
    }
    plan->absence_count = kept;
    return same;
}

/* Sorts the plan's absences and simulates them. The simulated start of a copy becomes its planned
 * one, and the order at one event may change with it. So this is repeated until the plan as written
 * is simulated with its own times: its figures are then its own, too. */
static enum ebb_status plan_settle(struct ebb_swap *swap, struct ebb_plan *plan,
                                   struct ebb_absence *passive, uint32_t *passive_count,
                                   struct ebb_sim_result *result, struct ebb_error *error)
{
    for (int round = 0;; round++) {
        uint32_t count = plan->absence_count;
        qsort(plan->absences, count, sizeof *plan->absences, absence_compare);
        struct ebb_sim_request request = {
            swap->model,         swap->request->machine,      plan->absences,
            plan->absence_count, swap->request->budget_bytes, swap->request->page_bytes,
            swap->rules};
        struct ebb_sim_detail detail = {
            .times = swap->times, .passive = passive, .passive_count = passive_count};
        enum ebb_status status = ebb__simulate(&request, &detail, result, error);
        if (status)
            return status;
        bool same = times_take(swap, plan);
        if ((same && result->steady) || (plan->absence_count == count && round >= SETTLE_ROUNDS))
            break;
    }
    qsort(plan->absences, plan->absence_count, sizeof *plan->absences, absence_compare);
    return EBB_OK;
}

/* If a fetch ends only after the last clock event before the use, the program must not wait for it
 * there. */
static void returns_mark(const struct ebb_swap *swap, struct ebb_plan *plan)
{
    const struct ebb_model *model = swap->model;
    uint64_t lap = swap->lap_ns;
    if (!swap->within)
        return;
    for (uint32_t i = 0; i < plan->absence_count; i++) {
        struct ebb_absence *absence = &plan->absences[i];
        uint64_t need_ns = model->time_ns[absence->to_tick];
        uint64_t clock_ns = model->time_ns[ebb__model_clock_before(model, absence->to_tick)];
        uint64_t left_ns = (need_ns + lap - absence->in_end_ns) % lap;
        uint64_t since_ns = (need_ns + lap - clock_ns) % lap;
        absence->in_within = !absence->drops && left_ns + ebb__tuning()->within_ns < since_ns;
    }
}

/* Adds the absences that were not planned. */
static void passive_add(struct ebb_plan *plan, const struct ebb_absence *passive, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        plan->absences[plan->absence_count++] = passive[i];
    qsort(plan->absences, plan->absence_count, sizeof *plan->absences, absence_compare);
}

enum ebb_status ebb__swap_finish(struct ebb_swap *swap, struct ebb_plan *plan,
                                 struct ebb_error *error)
{
    struct ebb_swap_outcome outcome;
    struct ebb_sim_result result;
    bool is_passive = swap->rules && swap->rules->passive;
    uint32_t passive_count = 0, passive_most = is_passive ? swap->model->gap_count : 0;
    enum ebb_status status = ebb__swap_evaluate(swap, &outcome, error);
    if (status)
        return status;
    plan->absence_count = absences_build(swap);
    plan->absences = malloc((plan->absence_count + passive_most + 1u) * sizeof *plan->absences);
    struct ebb_absence *passive = malloc((passive_most + 1u) * sizeof *passive);
    if (!plan->absences || !passive) {
        free(passive);
        return ebb__fail(error, EBB_ERR_MEMORY, "plan", "out of memory");
    }
    for (uint32_t i = 0; i < plan->absence_count; i++) {
        plan->absences[i] = swap->absences[i];
        plan->absences[i].out_start_ns = swap->times[i].out_start_ns % swap->lap_ns;
        plan->absences[i].out_end_ns = swap->times[i].out_end_ns % swap->lap_ns;
    }
    status = plan_settle(swap, plan, passive, &passive_count, &result, error);
    if (!status)
        returns_mark(swap, plan);
    if (!status)
        status = copies_keep(swap, plan, error);
    if (!status && is_passive) {
        plan->rules = *swap->rules;
        passive_add(plan, passive, passive_count);
    }
    free(passive);
    if (status)
        return status;
    plan->budget_bytes = swap->request->budget_bytes;
    plan->smallest_feasible_bytes = swap->smallest_feasible_bytes;
    plan->peak_bytes = result.peak_bytes;
    plan->feasible = result.feasible && result.peak_bytes <= plan->budget_bytes;
    plan->stall_ns = result.stall_ns;
    plan->iteration_ns = result.iteration_ns;
    plan->moved_out_bytes = result.moved_out_bytes;
    plan->moved_in_bytes = result.moved_in_bytes;
    plan->plan_ns = ebb__now_ns() - swap->started_ns;
    plan->timed_out = swap->effort.timed_out;
    return EBB_OK;
}
