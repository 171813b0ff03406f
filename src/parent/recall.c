/* Starts a run with what an earlier run of the same program has learnt.
 *
 * The program's identity selects a profile, and the live stream confirms or refutes it. Its plans
 * are sent before the program's first allocation. The runtime replays one only if live allocations
 * match its template. A plan that follows accesses is sent once its blocks are there.
 *
 * An iteration that is replayed to its end confirms the profile, if the blocks are where the plan
 * says. If they have other names than in the earlier run, the process gets those of this one as
 * soon as they are there. What comes between the iterations does not count against the profile. It
 * is dropped if replays only break off, if nothing matches, or if the program exceeds a peak that
 * its budget is a share of. The program is then learnt as if there had been no profile. */
#include "parent/internal.h"

#include "base/clock.h"
#include "base/size.h"
#include "base/tuning.h"
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* A program that begins may pause so long between two allocations: it reads a file. A limit. */
#define PAUSE_NS ((uint64_t)1000000000)
#define UNMANAGED_BYTES (4 * EBB_MIB) /* what is not managed is only sampled, and varies */

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

/* Each device that a program uses has profiles of its own: by its name, and by its place among
 * those of this process. So has each way in which blocks leave it. */
static uint64_t device_word(const struct ebb_parent *parent, const struct process *process)
{
    uint64_t word = (uint64_t)parent->options.gpu_backing;
    if (!process->memory->is_device)
        return 0;
    for (const char *letter = process->memory->name; *letter; letter++)
        word = (word ^ (unsigned char)*letter) * 0x100000001b3u;
    for (size_t i = 0; i < parent->processes.count; i++)
        word += parent->processes.items[i]->memory->is_device &&
                parent->processes.items[i]->process_id == process->process_id;
    return word << 32;
}

void ebb__recall_find(struct ebb_parent *parent, struct process *process, int parent_process_id)
{
    const struct ebb_parent_options *options = &parent->options;
    if (!options->cache || options->record)
        return;
    ebb__cache_set(&process->recall.use, EBB_CACHE_NONE);
    process->recall.has_key =
        ebb__cache_key(process->process_id, options->threshold_bytes ^ device_word(parent, process),
                       &process->recall.key);
    if (!process->recall.has_key)
        return;
    if (is_fork(parent, process, parent_process_id)) {
        process->recall.has_key = false;
        return;
    }
    struct ebb_profile *profile = &process->recall.profile;
    if (ebb__cache_load(options->cache, process->recall.key, profile, NULL) != EBB_OK) {
        if (ebb__cache_load_other(options->cache, process->recall.key, profile, NULL) != EBB_OK)
            return;
        process->recall.is_other = true;
    }
    ebb__cache_set(&process->recall.use, EBB_CACHE_UNCONFIRMED);
    ebb__budget_presume(parent, process);
    if (process->recall.profile.iteration_count && !options->policy->reactive)
        ebb__phase_set(&process->phase, PHASE_RECALLED);
}

/* The lanes are known if they were measured on this store, with the same compression. */
static void recall_lanes(struct ebb_parent *parent, const struct process *process)
{
    if (process->memory->lanes.state != LANES_UNKNOWN)
        return;
    const struct ebb_profile *recalled = &process->recall.profile;
    if (recalled->store_id != ebb__profile_store_id(parent->options.store) ||
        parent->options.compress == (recalled->compressed ? EBB_COMPRESS_OFF : EBB_COMPRESS_ON))
        return;
    process->memory->lanes.machine = recalled->machine;
    ebb__lanes_know(parent, process->memory, recalled->compressed);
}

static void drop(struct ebb_parent *parent, struct process *process, const char *why)
{
    process->recall.why_dropped = why;
    ebb__budget_withdraw(parent, process);
    ebb__cache_set(&process->recall.use, EBB_CACHE_DROPPED);
    ebb__profile_fini(&process->recall.profile);
    ebb__batch_end(process);
    ebb__cache_remove(parent->options.cache, process->recall.key);
    ebb__parent_tell(process, EBB_MESSAGE_SCRIPT, 0);
    ebb__parent_trace(process);
}

/* The profile is one of this program. The repetition that was found is its iteration, or a longer
 * one. Only a longer one than that is a reason to learn again. */
static void confirm(struct ebb_parent *parent, struct process *process)
{
    ebb__budget_confirm(process);
    ebb__plans_tell(parent, process);
    ebb__cache_set(&process->recall.use, EBB_CACHE_USED);
    process->learnt = process->recall.profile;
    memset(&process->recall.profile, 0, sizeof process->recall.profile);
    ebb__batch_end(process);
    process->learnt_anew =
        process->recall.is_other || process->recall.is_scaled || process->recall.renamed;
    if (process->recall.renamed && process->learnt.iteration_count)
        ebb__names_changed(process,
                           &process->learnt.iterations[process->learnt.iteration_count - 1].model);
    ebb__parent_settle(process);
    ebb__phase_set(&process->phase, PHASE_PLANNED);
    size_t period = ebb__watch_period_allocs(process->stream.watch);
    for (uint32_t i = 0; i < process->learnt.iteration_count; i++)
        if (ebb__model_count_allocs(&process->learnt.iterations[i].model) == period)
            ebb__watch_hold(process->stream.watch);
    if (process->recall.is_scaled) /* the same plan, and now blocks may be placed */
        ebb__parent_plan(parent, process, &process->learnt.iterations[0].model, 0);
}

static bool follows_accesses(const struct ebb_profile *profile)
{
    return profile->iteration_count &&
           ebb__model_announced(&profile->iterations[profile->iteration_count - 1].model);
}

/* The allocations of a replay that count as an iteration: most of the shortest one. The begin of a
 * replay is found only after some allocations. */
static uint64_t whole_allocs(const struct ebb_profile *profile)
{
    uint64_t least = UINT64_MAX, sync = (uint64_t)ebb__tuning()->sync_allocations;
    for (uint32_t i = 0; i < profile->iteration_count; i++) {
        uint64_t allocs = ebb__model_count_allocs(&profile->iterations[i].model);
        uint64_t most = allocs - allocs / 10;
        uint64_t whole = most > sync ? most - sync : 0;
        whole = whole < allocs / 2 ? allocs / 2 : whole;
        least = whole < least ? whole : least;
    }
    return least;
}

/* A lap of accesses is one of accesses that came as planned, whatever else was missed. */
static uint64_t most_faults(const struct ebb_profile *profile)
{
    uint64_t most = 0;
    if (follows_accesses(profile))
        return UINT64_MAX;
    for (uint32_t i = 0; i < profile->iteration_count; i++) {
        uint64_t uses = profile->iterations[i].model.access_count;
        most = uses > most ? uses : most;
    }
    return ebb__tuning()->recall_faults + most / ebb__tuning()->recall_faults_divisor;
}

/* The first step is followed, too, until an optimizer makes its states in it. It has up to twice as
 * many allocations as a step. What comes before it is not followed. */
static uint64_t followed_from(const struct ebb_profile_iteration *iteration)
{
    uint64_t before = 2 * (uint64_t)ebb__model_count_allocs(&iteration->model);
    return iteration->first_serial > before ? iteration->first_serial - before : 1;
}

static bool send_plans(struct ebb_parent *parent, struct process *process)
{
    bool sent = false;
    for (uint32_t i = 0; i < process->recall.profile.iteration_count; i++) {
        const struct ebb_profile_iteration *iteration = &process->recall.profile.iterations[i];
        sent |= ebb__parent_plan(parent, process, &iteration->model, followed_from(iteration));
    }
    return sent;
}

void ebb__recall_plan(struct ebb_parent *parent, struct process *process)
{
    struct recall *recall = &process->recall;
    if (process->phase != PHASE_RECALLED)
        return;
    recall_lanes(parent, process);
    ebb__lanes_await(parent, process->memory);
    recall->whole_allocs = whole_allocs(&recall->profile);
    recall->most_faults = most_faults(&recall->profile);
    recall->awaits_blocks = follows_accesses(&recall->profile);
    bool fits = recall->awaits_blocks || send_plans(parent, process);
    recall->at_allocs = atomic_load(&process->stream.ring->counters.allocations);
    if (!fits)
        drop(parent, process, "no plan fits");
}

/* True if the blocks of all iterations are there, under their names or after they were renamed.
 * Then *renamed tells which. `tell`: the process has their plans, and gets the names. */
static bool blocks_are_there(struct process *process, bool tell, bool *renamed)
{
    struct ebb_profile *profile = &process->recall.profile;
    *renamed = false;
    for (uint32_t i = 0; i < profile->iteration_count; i++) {
        struct ebb_model *model = &profile->iterations[i].model;
        if (ebb__names_hold(process, model))
            continue;
        struct ebb_renaming *renamings = NULL;
        size_t count;
        if (!ebb__names_find(process, model, tell ? &renamings : NULL, &count))
            return false;
        if (tell)
            ebb__parent_send_names(process, renamings, count);
        free(renamings);
        *renamed = true;
    }
    return true;
}

/* Looks for the blocks that the plans name, once after some allocations, and for a small part of
 * the time. Tells the process if they have other names here. Returns true if the names hold. */
static bool find_names(struct ebb_parent *parent, struct process *process)
{
    struct recall *recall = &process->recall;
    bool renamed;
    uint64_t now = ebb__now_ns();
    if (recall->is_named || now < process->learning.names_ns ||
        (recall->named_ns && recall->named_at == process->stream.allocs))
        return recall->is_named;
    recall->named_at = process->stream.allocs;
    recall->named_ns = now;
    bool found = blocks_are_there(process, !recall->awaits_blocks, &renamed);
    process->learning.names_ns = now + 64 * (ebb__now_ns() - now);
    if (!found)
        return false;
    recall->renamed |= renamed;
    if (recall->awaits_blocks && !send_plans(parent, process))
        return false;
    recall->awaits_blocks = false;
    recall->is_named = true;
    return true;
}

/* The batch may be another one than that of the profile. Returns true if the profile has been
 * scaled, and its plan sent. */
static bool try_to_scale(struct ebb_parent *parent, struct process *process)
{
    struct recall *recall = &process->recall;
    bool renamed;
    if (!ebb__batch_scale(process))
        return false;
    recall->followed = recall->disappointments = 0;
    if (recall->scalings == 1) /* later ones gain no more patience */
        recall->broken = 0;
    recall->whole_allocs = whole_allocs(&recall->profile);
    recall->most_faults = most_faults(&recall->profile);
    recall->is_named = blocks_are_there(process, false, &renamed);
    ebb__parent_tell(process, EBB_MESSAGE_SCRIPT, 0);
    ebb__budget_withdraw(parent, process); /* the peak is that of this run */
    bool sent = send_plans(parent, process);
    recall->at_allocs = atomic_load(&process->stream.ring->counters.allocations);
    process->stream.allocs_lost = 0;
    return sent;
}

/* The peak matters if the budget is a share of it. */
static bool exceeds_peak(const struct process *process)
{
    uint64_t known = process->recall.profile.unmanaged_peak_bytes;
    return process->memory->budget.state == BUDGET_PRESUMED &&
           process->memory->budget.of == process &&
           ebb__budget_peak(process) >
               known + known / ebb__tuning()->presumed_peak_divisor + UNMANAGED_BYTES;
}

/* For a plan that follows accesses. Either its blocks have not come, though the program has
 * allocated nothing for two iterations. Or it was left, and is not found again without a start. */
static bool has_missed_accesses(const struct process *process)
{
    const struct recall *recall = &process->recall;
    const struct ebb_profile *profile = &recall->profile;
    uint64_t iteration_ns =
        ebb__model_iteration_ns(&profile->iterations[profile->iteration_count - 1].model);
    return recall->awaits_blocks ? ebb__now_ns() > recall->named_ns + 2 * iteration_ns + PAUSE_NS
                                 : recall->broken > 0;
}

/* Plans that begin with this allocation cannot be followed before they are sent. */
static uint64_t followed_since(const struct recall *recall, uint64_t first_serial)
{
    return first_serial > recall->at_allocs ? first_serial : recall->at_allocs;
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
    begin = followed_since(&process->recall, begin);
    return !process->stream.replaying && process->recall.followed == 0 &&
           process->stream.allocs > begin + patience && process->stream.allocs_lost > patience;
}

/* A run with other arguments gets an iteration and a quarter, from the first step or from when its
 * plans were sent. True if it has been neither followed nor scaled until then. To learn it costs
 * less than to wait for more. */
static bool differs_for_good(const struct process *process)
{
    const struct recall *recall = &process->recall;
    const struct ebb_profile_iteration *newest =
        &recall->profile.iterations[recall->profile.iteration_count - 1];
    uint64_t allocs = ebb__model_count_allocs(&newest->model);
    uint64_t begin = followed_since(recall, newest->first_serial);
    bool follows = process->stream.replaying && process->stream.followed_allocs >= allocs / 4;
    return recall->is_other && !recall->is_scaled && !recall->followed && !follows &&
           process->stream.allocs > begin + allocs + allocs / 4 + 64;
}

/* True if the watch has found a repetition that is as long as an iteration of the profile. A
 * shorter one is a loop within it: with a longer one to come, the plan would be taken for that
 * of a part. */
static bool is_found(const struct process *process)
{
    const struct ebb_profile *profile = &process->recall.profile;
    size_t period = ebb__watch_period_clock_events(process->stream.watch);
    for (uint32_t i = 0; i < profile->iteration_count; i++)
        if (period + period / 10 >= profile->iterations[i].model.clock_count)
            return true;
    return follows_accesses(profile);
}

void ebb__recall_judge(struct ebb_parent *parent, struct process *process)
{
    struct recall *recall = &process->recall;
    unsigned patience = (unsigned)ebb__tuning()->recall_patience;
    if (recall->awaits_blocks || process->stream.replaying)
        find_names(parent, process);
    if (try_to_scale(parent, process))
        return;
    if (recall->is_other && !recall->followed && exceeds_peak(process))
        ebb__budget_withdraw(parent, process); /* its peak was a guess */
    unsigned good = recall->followed - recall->disappointments;
    /* After several iterations blocks that were not found do not matter. */
    if (good && !ebb__batch_settles(process) && is_found(process) &&
        (find_names(parent, process) || good >= patience)) {
        confirm(parent, process);
        return;
    }
    bool broken = recall->broken >= patience && recall->followed == 0;
    bool missed = follows_accesses(&recall->profile)
                      ? has_missed_accesses(process)
                      : has_missed(process) || differs_for_good(process);
    if (recall->disappointments >= patience)
        drop(parent, process, "planned iterations had many faults");
    else if (broken)
        drop(parent, process, "replays broke off");
    else if (missed)
        drop(parent, process, "nothing was replayed");
    else if (exceeds_peak(process))
        drop(parent, process, "the program takes more memory");
}
