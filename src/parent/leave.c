/* What a run leaves for the next one: the profile of a process.
 *
 * It is written as soon as a plan is confirmed: an iteration was replayed from its begin to its
 * end. So a program that is killed leaves it, too. It is written again if it changes. Each writing
 * replaces the file as a whole (cache.c). */
#include "parent/internal.h"

#include "base/tuning.h"

/* The serial behind the newest block that is there in each iteration; UINT64_MAX: there is none.
 * What is allocated before is no iteration that the plan could follow. */
static uint64_t behind_persistent(const struct ebb_model *model)
{
    uint64_t newest = 0;
    for (uint32_t i = 0; i < model->block_count; i++)
        if (model->blocks[i].alloc_tick == EBB_TICK_NONE && model->blocks[i].serial > newest)
            newest = model->blocks[i].serial;
    return newest ? newest + 1 : UINT64_MAX;
}

void ebb__leave_learn(struct process *process, struct ebb_model *model)
{
    const struct ebb_watch_iteration *iterations;
    size_t count = ebb__watch_kept(process->stream.watch, &iterations);
    size_t newest = ebb__watch_pattern(process->stream.watch);
    uint64_t first_serial = UINT64_MAX;
    for (size_t i = count; i-- > 0 && iterations[i].pattern + 1 == newest;)
        if (iterations[i].first_serial)
            first_serial = iterations[i].first_serial;
    /* No iteration was seen from its begin: use the modelled one. */
    for (uint32_t i = 0; first_serial == UINT64_MAX && i < model->block_count; i++)
        if (model->blocks[i].alloc_tick != EBB_TICK_NONE)
            first_serial = model->blocks[i].serial;
    uint64_t behind = behind_persistent(model);
    first_serial = behind < first_serial ? behind : first_serial;
    ebb__profile_add(&process->learnt, model, first_serial == UINT64_MAX ? 0 : first_serial);
    process->learnt_anew = true;
}

static bool was_planned(const struct process *process)
{
    if (!process->stream.watch)
        return false;
    const struct ebb_watch_iteration *iterations;
    if (ebb__watch_forgotten(process->stream.watch).planned > 0 || process->recall.followed > 0)
        return true;
    for (size_t i = ebb__watch_kept(process->stream.watch, &iterations); i-- > 0;)
        if (iterations[i].planned)
            return true;
    return false;
}

static void save(struct ebb_parent *parent, struct process *process)
{
    struct ebb_profile *learnt = &process->learnt;
    learnt->unmanaged_peak_bytes = ebb__budget_peak(process);
    if (process->sent.small_bytes)
        learnt->small_bytes = process->sent.small_bytes;
    learnt->store_id = ebb__profile_store_id(parent->options.store);
    learnt->machine = process->memory->lanes.machine;
    learnt->compressed = process->memory->lanes.compressed;
    process->learnt_anew = false;
    /* If it fails, the next run learns for itself. */
    (void)!ebb__cache_store(parent->options.cache, process->recall.key, learnt,
                            ebb__tuning()->cache_most_bytes, NULL);
}

static bool may_save(const struct process *process)
{
    return process->recall.has_key && process->learnt.iteration_count &&
           process->memory->lanes.state == LANES_KNOWN;
}

void ebb__leave_early(struct ebb_parent *parent, struct process *process)
{
    if (process->learnt_anew && process->phase == PHASE_PLANNED && may_save(process) &&
        was_planned(process))
        save(parent, process);
}

void ebb__leave_last(struct ebb_parent *parent, struct process *process)
{
    const struct ebb_profile *learnt = &process->learnt;
    if (process->phase == PHASE_RECALLED && process->stream.watch)
        ebb__recall_judge(parent, process);
    if (!may_save(process) || !was_planned(process))
        return;
    uint64_t peak = ebb__budget_peak(process), known = learnt->unmanaged_peak_bytes;
    bool same_peak = known && peak <= known + known / 100 && known <= peak + peak / 100;
    if (process->learnt_anew || !same_peak)
        save(parent, process);
}
