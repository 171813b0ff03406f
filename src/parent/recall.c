/* Starts a run with what an earlier run of the same program has learnt.
 *
 * The program's identity selects a profile, and the live stream confirms or refutes it. Its plans
 * are sent before the program's first allocation. The runtime replays one only if live allocations
 * match its template after the initialisation. This file then judges the first planned iterations.
 * The profile and its plans are dropped if blocks are not where the plan says. They are also
 * dropped if the program does something else or exceeds its peak. The program is then learnt as if
 * there had been no profile. */
#include "parent/internal.h"

#include "base/tuning.h"
#include "plan/plan.h"

#include <string.h>

const char *ebb__cache_use_name(enum ebb_cache_use use)
{
    static const char *const names[] = {"off", "none", "unconfirmed", "used", "dropped"};
    return names[use];
}

/* A fork of a process of this program is not a run of it. */
static bool is_fork(const struct ebb_parent *parent, const struct process *process,
                    int parent_process_id)
{
    for (size_t i = 0; i < parent->processes.count; i++) {
        const struct process *other = parent->processes.items[i];
        if (other != process && other->recall.has_key && other->process_id == parent_process_id &&
            memcmp(&other->recall.key, &process->recall.key, sizeof other->recall.key) == 0)
            return true;
    }
    return false;
}

void ebb__recall_find(struct ebb_parent *parent, struct process *process, int parent_process_id)
{
    const struct ebb_parent_options *options = &parent->options;
    if (!options->cache || options->record)
        return;
    ebb__cache_set(&process->recall.use, EBB_CACHE_NONE);
    process->recall.has_key =
        ebb__cache_key(process->process_id, options->threshold_bytes, &process->recall.key);
    if (!process->recall.has_key)
        return;
    if (is_fork(parent, process, parent_process_id)) {
        process->recall.has_key = false;
        return;
    }
    if (ebb__cache_load(options->cache, process->recall.key, &process->recall.profile, NULL) !=
        EBB_OK)
        return;
    ebb__cache_set(&process->recall.use, EBB_CACHE_UNCONFIRMED);
    ebb__budget_presume(parent, process);
    if (process->recall.profile.iteration_count && !options->policy->reactive)
        ebb__phase_set(&process->phase, PHASE_RECALLED);
}

/* The lanes are known if they were measured on this store, with the same compression. */
static void recall_lanes(struct ebb_parent *parent, const struct process *process)
{
    if (parent->lanes.state != LANES_UNKNOWN)
        return;
    const struct ebb_profile *recalled = &process->recall.profile;
    if (recalled->store_id != ebb__profile_store_id(parent->options.store) ||
        parent->options.compress == (recalled->compressed ? EBB_COMPRESS_OFF : EBB_COMPRESS_ON))
        return;
    parent->lanes.machine = recalled->machine;
    ebb__lanes_know(parent, recalled->compressed);
}

static void drop(struct ebb_parent *parent, struct process *process)
{
    ebb__budget_withdraw(parent, process);
    ebb__cache_set(&process->recall.use, EBB_CACHE_DROPPED);
    ebb__profile_fini(&process->recall.profile);
    ebb__cache_remove(parent->options.cache, process->recall.key);
    ebb__parent_tell(process, EBB_MESSAGE_SCRIPT, 0);
    ebb__parent_trace(process);
}

static void confirm(struct ebb_parent *parent, struct process *process)
{
    ebb__budget_confirm(parent, process);
    ebb__cache_set(&process->recall.use, EBB_CACHE_USED);
    process->learnt = process->recall.profile;
    memset(&process->recall.profile, 0, sizeof process->recall.profile);
    ebb__parent_settle(process);
    ebb__phase_set(&process->phase, PHASE_PLANNED);
}

void ebb__recall_plan(struct ebb_parent *parent, struct process *process)
{
    if (process->phase != PHASE_RECALLED)
        return;
    recall_lanes(parent, process);
    ebb__lanes_await(parent);
    bool sent = false;
    for (uint32_t i = 0; i < process->recall.profile.iteration_count; i++) {
        const struct ebb_profile_iteration *iteration = &process->recall.profile.iterations[i];
        sent |= ebb__parent_plan(parent, process, &iteration->model, iteration->first_serial);
    }
    process->recall.at_allocs = atomic_load(&process->stream.ring->counters.allocations);
    if (!sent)
        drop(parent, process);
}

/* Returns the iteration of the profile with as many allocations as this one, or NULL. Frees vary:
 * the first iterations do not free blocks that outlive iterations. */
static const struct ebb_model *matching_model(const struct process *process,
                                              const struct ebb_watch_iteration *iteration)
{
    for (uint32_t i = process->recall.profile.iteration_count; i-- > 0;)
        if (ebb__model_count_allocs(&process->recall.profile.iterations[i].model) ==
            iteration->alloc_count)
            return &process->recall.profile.iterations[i].model;
    return NULL;
}

/* True if the persistent blocks that the plan names are those of this process. The runtime ignores
 * blocks of other sizes. If there are many such blocks, the plan is useless. */
static bool names_hold(const struct process *process, const struct ebb_model *model)
{
    uint64_t named = 0, wrong = 0;
    for (uint32_t i = 0; i < model->block_count; i++) {
        const struct ebb_model_block *block = &model->blocks[i];
        uint64_t size_bytes = 0;
        uint64_t whole_bytes = block->part_count ? block->allocated_bytes : block->size_bytes;
        if (block->alloc_tick != EBB_TICK_NONE)
            continue;
        named += block->size_bytes;
        if (!ebb__watch_is_live(process->stream.watch, block->serial, &size_bytes) ||
            size_bytes != whole_bytes)
            wrong += block->size_bytes;
    }
    return wrong * 20 <= named;
}

static bool exceeds_peak(const struct process *process)
{
    uint64_t known = process->recall.profile.unmanaged_peak_bytes;
    return ebb__budget_peak(process) > known + known / ebb__tuning()->presumed_peak_divisor +
                                           ebb__tuning()->presumed_peak_bytes;
}

/* True if two iterations' allocations and more have passed without a replay. Then the program does
 * something else. */
static bool has_missed(const struct process *process)
{
    const struct ebb_profile *profile = &process->recall.profile;
    uint64_t longest = 0, begin = UINT64_MAX;
    for (uint32_t i = 0; i < profile->iteration_count; i++) {
        const struct ebb_profile_iteration *iteration = &profile->iterations[i];
        uint64_t allocs = iteration->model.clock_count / 2 + 1;
        longest = allocs > longest ? allocs : longest;
        begin = iteration->first_serial < begin ? iteration->first_serial : begin;
    }
    uint64_t patience = 2 * longest + 64;
    begin = begin > process->recall.at_allocs ? begin : process->recall.at_allocs;
    return !process->stream.replaying && process->stream.allocs > begin + patience &&
           process->stream.allocs_lost > patience;
}

/* True for an iteration that is at least half as long as one of the profile and was not replayed to
 * its end. It must begin after the initialisation and after the plans were sent. The replay may
 * have begun within the first one. */
static bool has_diverged(const struct process *process, const struct ebb_watch_iteration *iteration)
{
    const struct ebb_profile *profile = &process->recall.profile;
    for (uint32_t i = 0; i < profile->iteration_count; i++) {
        const struct ebb_profile_iteration *known = &profile->iterations[i];
        if (!iteration->planned && iteration->first_serial > known->first_serial &&
            iteration->first_serial > process->recall.at_allocs &&
            iteration->alloc_count * 2 > ebb__model_count_allocs(&known->model))
            return true;
    }
    return false;
}

void ebb__recall_judge(struct ebb_parent *parent, struct process *process)
{
    const struct ebb_watch_iteration *iterations;
    size_t forgotten = ebb__watch_forgotten(process->stream.watch).iterations;
    size_t count = forgotten + ebb__watch_kept(process->stream.watch, &iterations);
    if (count < process->recall.judged)
        process->recall.judged = count; /* a longer repetition has replaced them */
    if (process->recall.judged < forgotten)
        process->recall.judged = forgotten;
    for (; process->recall.judged < count; process->recall.judged++) {
        const struct ebb_watch_iteration *iteration =
            &iterations[process->recall.judged - forgotten];
        if (has_diverged(process, iteration) &&
            ++process->recall.diverged == ebb__tuning()->recall_patience) {
            drop(parent, process);
            return;
        }
        const struct ebb_model *model =
            iteration->planned ? matching_model(process, iteration) : NULL;
        if (!model)
            continue;
        if (iteration->demand_faults <=
                ebb__tuning()->recall_faults +
                    model->access_count / ebb__tuning()->recall_faults_divisor &&
            names_hold(process, model)) {
            confirm(parent, process);
            return;
        }
        if (++process->recall.disappointments == ebb__tuning()->recall_patience) {
            drop(parent, process);
            return;
        }
    }
    if (exceeds_peak(process) || has_missed(process))
        drop(parent, process);
}

void ebb__recall_learn(struct process *process, struct ebb_model *model)
{
    const struct ebb_watch_iteration *iterations;
    size_t count = ebb__watch_kept(process->stream.watch, &iterations);
    size_t newest = ebb__watch_pattern(process->stream.watch);
    uint64_t first_serial = UINT64_MAX;
    if (model->unordered)
        return; /* profiles hold one order of events */
    for (size_t i = count; i-- > 0 && iterations[i].pattern + 1 == newest;)
        first_serial = iterations[i].first_serial;
    /* No iteration was seen from its begin: use the modelled one. */
    for (uint32_t i = 0; first_serial == UINT64_MAX && i < model->block_count; i++)
        if (model->blocks[i].alloc_tick != EBB_TICK_NONE)
            first_serial = model->blocks[i].serial;
    ebb__profile_add(&process->learnt, model, first_serial == UINT64_MAX ? 0 : first_serial);
    process->learnt_anew = true;
}

static bool was_planned(const struct process *process)
{
    if (!process->stream.watch)
        return false;
    const struct ebb_watch_iteration *iterations;
    if (ebb__watch_forgotten(process->stream.watch).planned > 0)
        return true;
    for (size_t i = ebb__watch_kept(process->stream.watch, &iterations); i-- > 0;)
        if (iterations[i].planned)
            return true;
    return false;
}

void ebb__recall_save(struct ebb_parent *parent, struct process *process)
{
    struct ebb_profile *learnt = &process->learnt;
    if (process->phase == PHASE_RECALLED && process->stream.watch)
        ebb__recall_judge(parent, process);
    if (!process->recall.has_key || !learnt->iteration_count ||
        parent->lanes.state != LANES_KNOWN || !was_planned(process))
        return;
    uint64_t peak = ebb__budget_peak(process), known = learnt->unmanaged_peak_bytes;
    bool same_peak = known && peak <= known + known / 100 && known <= peak + peak / 100;
    if (!process->learnt_anew && same_peak)
        return;
    learnt->unmanaged_peak_bytes = peak;
    if (process->sent.small_bytes)
        learnt->small_bytes = process->sent.small_bytes;
    learnt->store_id = ebb__profile_store_id(parent->options.store);
    learnt->machine = parent->lanes.machine;
    learnt->compressed = parent->lanes.compressed;
    if (ebb__cache_store(parent->options.cache, process->recall.key, learnt,
                         ebb__tuning()->cache_most_bytes, NULL) != EBB_OK)
        return; /* the next run learns for itself */
}
