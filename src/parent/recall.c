/* Beginning with what an earlier run of the same program has learnt.
 *
 * A profile is found by what the program is, but whether it holds is for the live stream to say: its
 * plans are sent before the program's first allocation, the runtime plays one only where the live
 * allocations are those of its template and the initialisation is over, and here the first planned
 * iterations are judged. Where blocks are not where the plan says, where the program does something
 * else or takes more than it did, the profile is dropped, its plans are forgotten, and the program is
 * learnt as if there had been none. */
#include "parent/internal.h"
#include "plan/plan.h"

#include <string.h>

/* Demand faults of a planned iteration that say nothing: one in so many uses, and these. A plan that
 * is right has none in steady state; its first lap may. */
#define TOLERATED_FAULTS 4u
#define TOLERATED_SHARE 50u
#define MOST_DISAPPOINTMENTS 3u
#define MOST_STRAYED 3u
/* A presumed peak may be exceeded by so much: what is not managed is only sampled, and varies. */
#define PEAK_SLACK_BYTES ((uint64_t)4 << 20)
#define PEAK_SLACK_SHARE 20u

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
        if (other != process && other->has_key && other->process_id == parent_process_id &&
            memcmp(&other->key, &process->key, sizeof other->key) == 0)
            return true;
    }
    return false;
}

/* A share of the peak that the program has had is in force before its first allocation. */
static void presume_budget(struct ebb_parent *parent, struct process *process)
{
    struct ebb_ledger *ledger = parent->ledger;
    if (parent->options.budget_fraction <= 0 || parent->budget_set)
        return;
    uint64_t budget = (uint64_t)(parent->options.budget_fraction *
                                 (double)process->recalled.unmanaged_peak_bytes);
    parent->budget_set = true;
    parent->budget_presumed = process;
    process->budget_from = 0;
    atomic_store(&ledger->budget_bytes, budget);
    atomic_store(&ledger->in_force, atomic_load(&ledger->held_bytes) <= budget);
}

void ebb__recall_find(struct ebb_parent *parent, struct process *process, int parent_process_id)
{
    const struct ebb_parent_options *options = &parent->options;
    if (!options->cache || options->record)
        return;
    process->cache = EBB_CACHE_NONE;
    process->has_key = ebb__cache_key(process->process_id, options->threshold_bytes, &process->key);
    if (!process->has_key)
        return;
    if (is_fork(parent, process, parent_process_id)) {
        process->has_key = false;
        return;
    }
    if (ebb__cache_load(options->cache, process->key, &process->recalled, NULL) != EBB_OK)
        return;
    process->cache = EBB_CACHE_UNCONFIRMED;
    presume_budget(parent, process);
    if (process->recalled.iteration_count && !options->policy->reactive)
        process->state = LEARNER_RECALLED;
}

/* The lanes are known if they are those of this store, used as they were. */
static void recall_lanes(struct ebb_parent *parent, const struct process *process)
{
    if (parent->probed || parent->probing)
        return;
    const struct ebb_profile *recalled = &process->recalled;
    if (recalled->store_id != ebb__profile_store_id(parent->options.store) ||
        parent->options.compress == (recalled->compressed ? EBB_COMPRESS_OFF : EBB_COMPRESS_ON))
        return;
    parent->machine = recalled->machine;
    ebb__parent_lanes_known(parent, recalled->compressed);
}

static void drop(struct ebb_parent *parent, struct process *process)
{
    if (parent->budget_presumed == process) {
        parent->budget_presumed = NULL;
        parent->budget_set = false;
        process->budget_from = -1;
        atomic_store(&parent->ledger->budget_bytes, UINT64_MAX);
        atomic_store(&parent->ledger->in_force, 0);
    }
    process->cache = EBB_CACHE_DROPPED;
    ebb__profile_fini(&process->recalled);
    ebb__cache_remove(parent->options.cache, process->key);
    ebb__parent_tell(process, EBB_MESSAGE_SCRIPT, 0);
    ebb__parent_trace(process);
}

static void confirm(struct ebb_parent *parent, struct process *process)
{
    if (parent->budget_presumed == process)
        parent->budget_presumed = NULL;
    process->cache = EBB_CACHE_USED;
    process->learnt = process->recalled;
    memset(&process->recalled, 0, sizeof process->recalled);
    ebb__parent_settle(process);
    process->state = LEARNER_PLANNED;
}

void ebb__recall_plan(struct ebb_parent *parent, struct process *process)
{
    if (process->state != LEARNER_RECALLED)
        return;
    recall_lanes(parent, process);
    ebb__parent_end_probe(parent);
    bool sent = false;
    for (uint32_t i = 0; i < process->recalled.iteration_count; i++) {
        const struct ebb_profile_iteration *iteration = &process->recalled.iterations[i];
        sent |= ebb__parent_plan(parent, process, &iteration->model, iteration->first_serial);
    }
    process->recalled_at = atomic_load(&process->ring->counters.allocations);
    if (!sent)
        drop(parent, process);
}

uint32_t ebb__parent_count_allocs(const struct ebb_model *model)
{
    uint32_t count = 0;
    for (uint32_t tick = 0; tick < model->tick_count; tick++)
        count += model->events[tick].kind == EBB_EVENT_ALLOC && model->events[tick].clock;
    return count;
}

/* The iteration of the profile that allocates as often as this one; NULL: none. (Frees vary: what
 * outlives iterations is not freed in the first ones.) */
static const struct ebb_model *matching_model(const struct process *process,
                                              const struct ebb_watch_iteration *iteration)
{
    for (uint32_t i = process->recalled.iteration_count; i-- > 0;)
        if (ebb__parent_count_allocs(&process->recalled.iterations[i].model) ==
            iteration->alloc_count)
            return &process->recalled.iterations[i].model;
    return NULL;
}

/* Are the persistent blocks that the plan names those of this process? The runtime leaves alone what
 * differs in size; many of these, and the plan is none. */
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
        if (!ebb__watch_is_live(process->watch, block->serial, &size_bytes) ||
            size_bytes != whole_bytes)
            wrong += block->size_bytes;
    }
    return wrong * 20 <= named;
}

static bool exceeds_peak(const struct process *process)
{
    uint64_t known = process->recalled.unmanaged_peak_bytes;
    return ebb__parent_unmanaged_peak(process) >
           known + known / PEAK_SLACK_SHARE + PEAK_SLACK_BYTES;
}

/* So many allocations, two iterations' and more, and it does not play: the program does something
 * else now. */
static bool has_missed(const struct process *process)
{
    const struct ebb_profile *profile = &process->recalled;
    uint64_t longest = 0, begin = UINT64_MAX;
    for (uint32_t i = 0; i < profile->iteration_count; i++) {
        const struct ebb_profile_iteration *iteration = &profile->iterations[i];
        uint64_t allocs = iteration->model.clock_count / 2 + 1;
        longest = allocs > longest ? allocs : longest;
        begin = iteration->first_serial < begin ? iteration->first_serial : begin;
    }
    uint64_t patience = 2 * longest + 64;
    begin = begin > process->recalled_at ? begin : process->recalled_at;
    return !process->playing && process->allocs > begin + patience &&
           process->allocs_lost > patience;
}

/* An iteration that is as long as one of the profile, behind the initialisation and the sending of the
 * plans, and was not played to its end. The first of them may be the one in which playing began. */
static bool is_strayed(const struct process *process, const struct ebb_watch_iteration *iteration)
{
    const struct ebb_profile *profile = &process->recalled;
    for (uint32_t i = 0; i < profile->iteration_count; i++) {
        const struct ebb_profile_iteration *known = &profile->iterations[i];
        if (!iteration->planned && iteration->first_serial > known->first_serial &&
            iteration->first_serial > process->recalled_at &&
            iteration->alloc_count * 2 > ebb__parent_count_allocs(&known->model))
            return true;
    }
    return false;
}

void ebb__recall_judge(struct ebb_parent *parent, struct process *process)
{
    const struct ebb_watch_iteration *iterations;
    size_t forgotten = ebb__watch_forgotten(process->watch).iterations;
    size_t count = forgotten + ebb__watch_kept(process->watch, &iterations);
    if (count < process->judged)
        process->judged = count; /* a longer repetition has taken their place */
    if (process->judged < forgotten)
        process->judged = forgotten;
    for (; process->judged < count; process->judged++) {
        const struct ebb_watch_iteration *iteration = &iterations[process->judged - forgotten];
        if (is_strayed(process, iteration) && ++process->strayed == MOST_STRAYED) {
            drop(parent, process);
            return;
        }
        const struct ebb_model *model =
            iteration->planned ? matching_model(process, iteration) : NULL;
        if (!model)
            continue;
        if (iteration->demand_faults <= TOLERATED_FAULTS + model->access_count / TOLERATED_SHARE &&
            names_hold(process, model)) {
            confirm(parent, process);
            return;
        }
        if (++process->disappointments == MOST_DISAPPOINTMENTS) {
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
    size_t count = ebb__watch_kept(process->watch, &iterations);
    size_t newest = ebb__watch_pattern(process->watch);
    uint64_t first_serial = UINT64_MAX;
    if (model->woven)
        return; /* profiles hold one order of events */
    for (size_t i = count; i-- > 0 && iterations[i].pattern + 1 == newest;)
        first_serial = iterations[i].first_serial;
    /* None has been seen whole from where it begins: then the one that is modelled. */
    for (uint32_t i = 0; first_serial == UINT64_MAX && i < model->block_count; i++)
        if (model->blocks[i].alloc_tick != EBB_TICK_NONE)
            first_serial = model->blocks[i].serial;
    ebb__profile_add(&process->learnt, model, first_serial == UINT64_MAX ? 0 : first_serial);
    process->learnt_anew = true;
}

static bool was_planned(const struct process *process)
{
    if (!process->watch)
        return false;
    const struct ebb_watch_iteration *iterations;
    if (ebb__watch_forgotten(process->watch).planned > 0)
        return true;
    for (size_t i = ebb__watch_kept(process->watch, &iterations); i-- > 0;)
        if (iterations[i].planned)
            return true;
    return false;
}

void ebb__recall_save(struct ebb_parent *parent, struct process *process)
{
    struct ebb_profile *learnt = &process->learnt;
    if (process->state == LEARNER_RECALLED && process->watch)
        ebb__recall_judge(parent, process);
    if (!process->has_key || !learnt->iteration_count || !parent->probed || !was_planned(process))
        return;
    uint64_t peak = ebb__parent_unmanaged_peak(process), known = learnt->unmanaged_peak_bytes;
    bool same_peak = known && peak <= known + known / 100 && known <= peak + peak / 100;
    if (!process->learnt_anew && same_peak)
        return;
    learnt->unmanaged_peak_bytes = peak;
    if (process->small_bytes)
        learnt->small_bytes = process->small_bytes;
    learnt->store_id = ebb__profile_store_id(parent->options.store);
    learnt->machine = parent->machine;
    learnt->compressed = parent->compressed;
    if (ebb__cache_store(parent->options.cache, process->key, learnt, EBB_CACHE_MOST_BYTES, NULL) !=
        EBB_OK)
        return; /* the next run learns for itself */
}
