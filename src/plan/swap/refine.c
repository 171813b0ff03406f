/* The remaining effort adds or removes one gap at a time, then two. Absences that are not needed
 * are dropped, since every copy costs the program at least processor time. */
#include "plan/swap/choice.h"

#include "base/tuning.h"

#include <stdlib.h>

/* Judges the taken gaps with early copies in; with late ones if that still stalls. */
static enum ebb_status judge_both(struct search *search, bool *better)
{
    struct ebb_swap *swap = &search->swap;
    bool early = false, late = false;
    ebb__swap_trigger_early(swap, swap->request->budget_bytes);
    enum ebb_status status = ebb__choice_judge(search, &early);
    if (!status && swap->gap_count <= ebb__tuning()->plan_small_gaps) {
        ebb__swap_schedule(swap, 0);
        ebb__swap_trigger_late(swap);
        status = ebb__choice_judge(search, &late);
    }
    *better = early || late;
    return status;
}

static int use_compare(const void *left, const void *right)
{
    const struct use *a = left, *b = right;
    if (a->key != b->key)
        return a->key > b->key ? -1 : 1;
    return (a->gap > b->gap) - (a->gap < b->gap);
}

/* Sorts the gaps by what adding or removing them promises: expensive absences to drop, then long
 * gaps to take. */
static void flips_order(const struct ebb_swap *swap, struct use *uses)
{
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        const struct ebb_swap_gap *gap = &swap->gaps[i];
        double cost_ns = (double)(gap->out_ns + gap->in_ns + 1);
        double length_ns = (double)(gap->need_ns - gap->ready_ns);
        double promise = (double)gap->bytes * (length_ns - cost_ns) / cost_ns;
        uses[i] = (struct use){gap->taken ? 1e30 + cost_ns : promise, i};
    }
    qsort(uses, swap->gap_count, sizeof *uses, use_compare);
}

enum ebb_status ebb__choice_refine(struct search *search)
{
    struct use *uses = search->uses;
    struct ebb_swap *swap = &search->swap;
    enum ebb_status status = EBB_OK;
    bool gained = true;
    while (gained && !ebb__choice_is_over(search)) {
        gained = false;
        ebb__choice_restore(search);
        flips_order(swap, uses);
        for (uint32_t i = 0; i < swap->gap_count && !ebb__choice_is_over(search); i++) {
            bool better;
            ebb__choice_restore(search);
            swap->gaps[uses[i].gap].taken = !swap->gaps[uses[i].gap].taken;
            status = judge_both(search, &better);
            if (status)
                return status;
            gained |= better;
        }
        for (uint32_t i = 0; !gained && i < swap->gap_count; i++) {
            for (uint32_t j = i + 1; !gained && j < swap->gap_count; j++) {
                if (ebb__choice_is_over(search))
                    return EBB_OK;
                ebb__choice_restore(search);
                swap->gaps[uses[i].gap].taken = !swap->gaps[uses[i].gap].taken;
                swap->gaps[uses[j].gap].taken = !swap->gaps[uses[j].gap].taken;
                status = judge_both(search, &gained);
                if (status)
                    return status;
            }
        }
    }
    return status;
}

/* Tries without the absences uses[0, count) of the best. They are dropped if that is better, as
 * long as the peak stays within the target. */
static enum ebb_status try_without(struct search *search, const struct use *uses, uint32_t count)
{
    struct ebb_swap *swap = &search->swap;
    struct ebb_swap_outcome outcome;
    for (uint32_t i = 0; i < count; i++)
        swap->gaps[uses[i].gap].taken = false;
    enum ebb_status status = ebb__swap_evaluate(swap, &outcome, search->error);
    if (!status && outcome.peak_bytes <= search->target_bytes &&
        ebb__swap_better(swap, &outcome, &search->best.outcome)) {
        ebb__choice_note(search, &outcome);
        return EBB_OK;
    }
    for (uint32_t i = 0; i < count; i++)
        swap->gaps[uses[i].gap].taken = true;
    return status;
}

enum ebb_status ebb__choice_prune(struct search *search)
{
    struct ebb_swap *swap = &search->swap;
    struct use *uses = search->uses;
    if (!search->best.any || !search->best.outcome.feasible ||
        (search->lean && ebb__choice_is_free_of_stalls(search)))
        return EBB_OK;
    if (search->best.outcome.peak_bytes > search->target_bytes)
        search->target_bytes = swap->request->budget_bytes;
    ebb__choice_take_none(swap);
    ebb__greedy_merits(&search->greedy, search->target_bytes);
    ebb__choice_restore(search);
    uint32_t count = 0;
    for (uint32_t i = 0; i < swap->gap_count; i++)
        if (swap->gaps[i].taken)
            uses[count++] = (struct use){-search->greedy.benefit[i], i};
    qsort(uses, count, sizeof *uses, use_compare);
    enum ebb_status status = EBB_OK;
    for (uint32_t chunk = count / 2 + 1; chunk > 0 && !status; chunk /= 2) {
        uint32_t left = 0;
        for (uint32_t i = 0; i < count && !status; i += chunk) {
            uint32_t some = count - i < chunk ? count - i : chunk;
            if (!ebb__choice_is_over(search))
                status = try_without(search, &uses[i], some);
            for (uint32_t k = i; k < i + some; k++)
                if (swap->gaps[uses[k].gap].taken)
                    uses[left++] = uses[k];
        }
        count = left;
    }
    return status;
}
