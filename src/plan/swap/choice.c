/* The best choice so far: taken gaps are judged by the simulator, and kept if they are better. */
#include "plan/swap/choice.h"

#include "base/tuning.h"

#include <stdlib.h>
#include <string.h>

/* Gaps times ticks up to which each gap is tried; half and twice give the same plan. */
#define SMALL_WORK 10000000

const double ebb__lane_scales[EBB_LANE_SCALES] = {1, 0.85, 0.7, 0.6, 0.5};

bool ebb__choice_is_over(const struct search *search)
{
    return ebb__effort_is_over(&search->swap.effort, search->swap.limit_steps);
}

void ebb__choice_restore(struct search *search)
{
    for (uint32_t i = 0; i < search->swap.gap_count; i++) {
        search->swap.gaps[i].taken = search->best.taken[i];
        search->swap.gaps[i].trigger_ns = search->best.trigger_ns[i];
    }
}

void ebb__choice_note(struct search *search, const struct ebb_swap_outcome *outcome)
{
    const struct ebb_swap *swap = &search->swap;
    search->best.any = true;
    search->best.outcome = *outcome;
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        search->best.taken[i] = swap->gaps[i].taken;
        search->best.trigger_ns[i] = swap->gaps[i].trigger_ns;
    }
    memcpy(search->best_stall_ns, search->tick_stall_ns,
           swap->cell_count * sizeof *search->best_stall_ns);
}

enum ebb_status ebb__choice_judge(struct search *search, bool *better)
{
    struct ebb_swap *swap = &search->swap;
    struct ebb_swap_outcome outcome;
    enum ebb_status status = ebb__swap_evaluate(swap, &outcome, search->error);
    if (status)
        return status;
    bool won = !search->best.any || ebb__swap_better(swap, &outcome, &search->best.outcome);
    if (better)
        *better = won;
    if (won)
        ebb__choice_note(search, &outcome);
    return EBB_OK;
}

bool ebb__choice_is_large(const struct ebb_swap *swap)
{
    return (uint64_t)swap->gap_count * swap->cell_count > SMALL_WORK;
}

void ebb__choice_take_none(struct ebb_swap *swap)
{
    for (uint32_t i = 0; i < swap->gap_count; i++)
        swap->gaps[i].taken = false;
}

bool ebb__choice_is_free_of_stalls(const struct search *search)
{
    return search->best.any && search->best.outcome.feasible &&
           search->best.outcome.iteration_ns == search->swap.lap_ns;
}

uint32_t ebb__choice_scales(const struct ebb_swap *swap)
{
    return swap->request->machine->duplex ? 1 : EBB_LANE_SCALES;
}

enum ebb_status ebb__choice_init(struct search *search, const struct ebb_plan_request *request,
                                 bool within)
{
    struct ebb_swap *swap = &search->swap;
    enum ebb_status status = within ? ebb__swap_init_within(swap, request, search->error)
                                    : ebb__swap_init(swap, request, search->error);
    if (status)
        return status;
    status = ebb__greedy_init(&search->greedy, swap, search->error);
    if (status) {
        ebb__swap_fini(swap);
        return status;
    }
    if (request->time_limit_ns == 0 && request->effort_steps == 0 && ebb__choice_is_large(swap))
        swap->effort.limit = swap->limit_steps = ebb__tuning()->plan_steps_large;
    size_t gaps = swap->gap_count + 1u, ticks = swap->cell_count + 1u;
    search->best.taken = calloc(gaps, sizeof *search->best.taken);
    search->best.trigger_ns = calloc(gaps, sizeof *search->best.trigger_ns);
    search->uses = malloc(gaps * sizeof *search->uses);
    search->tick_stall_ns = calloc(ticks, sizeof *search->tick_stall_ns);
    search->best_stall_ns = calloc(ticks, sizeof *search->best_stall_ns);
    search->stretched_ns = calloc(ticks, sizeof *search->stretched_ns);
    swap->tick_stall_ns = search->tick_stall_ns;
    if (search->best.taken && search->best.trigger_ns && search->uses && search->tick_stall_ns &&
        search->best_stall_ns && search->stretched_ns)
        return EBB_OK;
    return ebb__fail(search->error, EBB_ERR_MEMORY, "plan", "out of memory");
}

void ebb__choice_fini(struct search *search)
{
    free(search->best.taken);
    free(search->best.trigger_ns);
    free(search->uses);
    free(search->tick_stall_ns);
    free(search->best_stall_ns);
    free(search->stretched_ns);
    ebb__greedy_fini(&search->greedy);
    ebb__swap_fini(&search->swap);
}
