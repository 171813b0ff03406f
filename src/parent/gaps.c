/* What comes between planned iterations: an evaluation, a smaller batch, samples.
 *
 * The process observes what it does outside of its scripts. Once such a phrase has come again, and
 * an iteration has followed it, both together get a plan. So does a phrase that has become a part
 * of each iteration, since the program has changed. The runtime follows that one where the phrase
 * comes once more, and the plan of the iteration everywhere else. Phrases that never come again are
 * not observed for ever. */
#include "base/tuning.h"
#include "parent/internal.h"

#define NEAR_SHARE 0.875 /* of the budget */

/* allocations: of a phrase that is to be observed to its end, though it looks like the iteration in
 * part. */
static void observe(struct process *process, bool on, size_t allocations)
{
    struct gaps *gaps = &process->learning.gaps;
    gaps->observed = on;
    gaps->allocations = allocations;
    ebb__parent_tell(
        process, EBB_MESSAGE_TRACE,
        ebb__observe_value(on ? EBB_OBSERVE_DEPARTURES : EBB_OBSERVE_NEVER, allocations));
}

/* What does not come near the budget needs no plan. */
static void begin(struct process *process)
{
    struct gaps *gaps = &process->learning.gaps;
    gaps->is_far = !ebb__budget_is_near(process, NEAR_SHARE);
    observe(process, !process->sent.has_access_clock && !gaps->is_far,
            ebb__watch_period_allocs(process->stream.watch) / 2);
}

void ebb__gaps_begin(struct process *process)
{
    process->learning.gaps = (struct gaps){0};
    begin(process);
}

static void plan(struct ebb_parent *parent, struct process *process,
                 const struct ebb_watch_gap *gap)
{
    struct ebb_watch *watch = process->stream.watch;
    struct ebb_model model;
    if (ebb__watch_gap_model(watch, gap, &model, NULL) != EBB_OK)
        return;
    if (ebb__parent_plan_beside(parent, process, &model)) {
        process->learning.gaps.planned++;
        ebb__watch_know_gap(watch, gap);
    }
    ebb__model_fini(&model);
}

/* Has such a phrase come before? A plan for one that comes once would stand in others' way. */
static bool has_come(struct gaps *gaps, uint64_t hash)
{
    for (size_t i = 0; i < GAPS_SEEN && i < gaps->fresh; i++)
        if (gaps->hashes[i] == hash)
            return true;
    gaps->hashes[gaps->fresh % GAPS_SEEN] = hash;
    return false;
}

void ebb__gaps_consider(struct ebb_parent *parent, struct process *process)
{
    struct gaps *gaps = &process->learning.gaps;
    struct ebb_watch_gap gap;
    size_t longest =
        (size_t)ebb__tuning()->held_iterations * ebb__watch_period_allocs(process->stream.watch);
    if (gaps->is_far && ebb__budget_is_near(process, NEAR_SHARE))
        begin(process);
    while (ebb__watch_next_gap(process->stream.watch, &gap)) {
        bool again = gap.known || gap.repeats || has_come(gaps, gap.hash);
        gaps->known += gap.known;
        gaps->fresh += !gap.known;
        if (gap.known || gap.allocs > longest)
            continue;
        if (gap.traced && again)
            plan(parent, process, &gap);
        else if (!gap.traced && gaps->observed && gap.allocs > gaps->allocations)
            observe(process, true, gap.allocs);
    }
    if (gaps->observed && gaps->fresh > (unsigned)ebb__tuning()->fresh_gaps + 2 * gaps->known)
        observe(process, false, 0);
}
