/* The profile is of a run with another batch size: its iteration gets the sizes of this run.
 *
 * Nothing of it matches until its sizes are changed. The first step shows them, but it has
 * allocations that no later one has: it makes states. So the iteration is scaled once more from
 * what the earlier run has left when the replay strays from it. Either this run makes other
 * allocations than it seemed, or something else came between two iterations: then nothing changes.
 */
#include "parent/internal.h"

#include "base/tuning.h"
#include "model/scale.h"

#include <stdlib.h>
#include <string.h>

/* The newest iteration of the earlier run. */
static struct ebb_profile_iteration *original_of(struct process *process)
{
    struct ebb_profile *profile = &process->recall.profile;
    return process->recall.is_scaled ? &process->recall.original
                                     : &profile->iterations[profile->iteration_count - 1];
}

/* Is there a reason to compare the sizes? If nothing is scaled, nothing has matched when the first
 * step is over. Otherwise the replay has strayed. */
static bool is_due(struct process *process)
{
    struct recall *recall = &process->recall;
    if (!recall->is_other || ebb__model_announced(&original_of(process)->model))
        return false;
    if (!recall->scale_at)
        recall->scale_at = original_of(process)->first_serial + 1;
    if (process->stream.allocs < recall->scale_at)
        return false;
    return recall->is_scaled
               ? recall->strayed && recall->scalings < (unsigned)ebb__tuning()->recall_patience
               : !recall->followed && !process->stream.replaying;
}

static enum ebb_status scale(const struct process *process, const struct ebb_model *model,
                             struct ebb_model *scaled)
{
    const struct ebb_watch *watch = process->stream.watch;
    size_t most = 2 * (size_t)ebb__model_count_allocs(model);
    size_t live = ebb__watch_live(watch, NULL, 0);
    struct ebb_watch_block *newest = calloc(most + live + 1, sizeof *newest);
    if (!newest)
        return EBB_ERR_MEMORY;
    struct ebb_scale_run run = {.newest = newest, .live = newest + most, .live_count = live};
    run.count = ebb__watch_newest(watch, newest, most);
    ebb__watch_live(watch, newest + most, live);
    enum ebb_status status = ebb__model_scale(model, &run, scaled);
    free(newest);
    return status;
}

/* Do both allocate the same sizes in the same order? */
static bool is_same(const struct ebb_model *one, const struct ebb_model *other)
{
    if (one->tick_count != other->tick_count)
        return false;
    for (uint32_t i = 0; i < one->tick_count; i++) {
        const struct ebb_model_event *a = &one->events[i], *b = &other->events[i];
        if (a->kind != b->kind ||
            (a->kind == EBB_EVENT_ALLOC &&
             one->blocks[a->block].size_bytes != other->blocks[b->block].size_bytes))
            return false;
    }
    return true;
}

/* Puts the scaled iteration in the place of all. */
static void replace(struct process *process, const struct ebb_model *scaled)
{
    struct recall *recall = &process->recall;
    struct ebb_profile *profile = &recall->profile;
    struct ebb_profile_iteration *newest = &profile->iterations[profile->iteration_count - 1];
    uint64_t first_serial = original_of(process)->first_serial;
    if (!recall->is_scaled) {
        recall->original = *newest;
        memset(newest, 0, sizeof *newest);
    }
    for (uint32_t i = 0; i < profile->iteration_count; i++)
        ebb__model_fini(&profile->iterations[i].model);
    profile->iterations[0] =
        (struct ebb_profile_iteration){.model = *scaled, .first_serial = first_serial};
    profile->iteration_count = 1;
    recall->is_scaled = true;
}

bool ebb__batch_scale(struct process *process)
{
    struct recall *recall = &process->recall;
    struct ebb_model scaled;
    if (!is_due(process))
        return false;
    const struct ebb_model *original = &original_of(process)->model;
    uint64_t allocs = ebb__model_count_allocs(original);
    recall->scale_at = process->stream.allocs + allocs / 8 + 1;
    if (scale(process, original, &scaled) != EBB_OK)
        return false;
    recall->strayed = false;
    if (recall->is_scaled && is_same(&scaled, &recall->profile.iterations[0].model)) {
        ebb__model_fini(&scaled);
        return false;
    }
    replace(process, &scaled);
    recall->scalings++;
    recall->scale_at = process->stream.allocs + allocs + allocs / 8 + 1;
    return true;
}

bool ebb__batch_settles(const struct process *process)
{
    const struct recall *recall = &process->recall;
    return recall->is_scaled && recall->strayed &&
           recall->scalings < (unsigned)ebb__tuning()->recall_patience;
}

void ebb__batch_end(struct process *process)
{
    ebb__model_fini(&process->recall.original.model);
    memset(&process->recall.original, 0, sizeof process->recall.original);
}
