/* The rules of a plan: may the program obey them, and are they obeyed?
 *
 * Ticks are compared by their distance from the event at which an absence is ready: within a gap
 * that is less than an iteration. O(absences log barriers + shares + ticks). */
#include "check/internal.h"

#include "model/stages.h"

#include <stdlib.h>

#define NO_SHARE UINT32_MAX

static void lives_find(struct check *check)
{
    const struct ebb_model *model = check->model;
    for (uint32_t b = 0; b < model->block_count; b++) {
        const struct ebb_model_block *block = &model->blocks[b];
        check->lives[b] = (struct life){ebb__check_bytes(check, b), block->span_ticks,
                                        block->alloc_tick, block->free_tick};
        if (!check->plan->rules.keeps_all || block->alloc_tick == EBB_TICK_NONE)
            continue;
        uint64_t at_once = block->span_ticks / model->tick_count;
        if (block->span_ticks % model->tick_count)
            at_once++;
        check->lives[b].bytes *= at_once;
        check->lives[b].alloc_tick = EBB_TICK_NONE;
    }
}

static uint32_t ticks_between(const struct check *check, uint32_t from, uint32_t to)
{
    return to >= from ? to - from : to + check->model->tick_count - from;
}

static uint64_t ns_between(const struct check *check, uint32_t from, uint32_t to)
{
    const uint64_t *time_ns = check->model->time_ns;
    return ebb__check_unroll(check, time_ns[to], time_ns[from]) - time_ns[from];
}

/* ---- barriers -------------------------------------------------------------------------------- */

/* The first barrier at or after `tick`; cyclic. There is one at least. */
static uint32_t barrier_index(const struct ebb_plan_rules *rules, uint32_t tick)
{
    uint32_t low = 0, high = rules->barrier_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (rules->barriers[middle] < tick)
            low = middle + 1;
        else
            high = middle;
    }
    return low % rules->barrier_count;
}

static enum ebb_status barriers_check(struct check *check)
{
    const struct ebb_plan_rules *rules = &check->plan->rules;
    for (uint32_t i = 0; i < rules->barrier_count; i++)
        if (rules->barriers[i] >= check->model->tick_count ||
            (i && rules->barriers[i] <= rules->barriers[i - 1]))
            return VIOLATION(check, "barrier %u: behind the last tick, or out of order", i);
    for (uint32_t i = 0; rules->barrier_count && i < check->plan->absence_count; i++) {
        const struct ebb_absence *absence = &check->plan->absences[i];
        const struct span *span = &check->spans[i];
        uint32_t ready = ebb__check_ready_tick(check, absence), to = absence->to_tick;
        uint32_t length = ticks_between(check, ready, to);
        uint32_t index = barrier_index(rules, ready), next = rules->barriers[index];
        if (ticks_between(check, ready, next) > length)
            continue;
        if (span->out_end - span->ready > ns_between(check, ready, next))
            return VIOLATION(check, "absence %u: its copy out runs on behind the barrier at %u", i,
                             next);
        index = barrier_index(rules, to);
        uint32_t last = rules->barriers[index];
        if (last != to)
            last = rules->barriers[index ? index - 1 : rules->barrier_count - 1];
        if (!absence->drops && span->in_end - span->ready > ns_between(check, ready, last))
            return VIOLATION(check, "absence %u: block %u is not back at the barrier at %u", i,
                             absence->block, last);
    }
    return EBB_OK;
}

/* ---- shares ---------------------------------------------------------------------------------- */

static enum ebb_status share_check(struct check *check, uint32_t i, const struct ebb_stages *stages,
                                   uint32_t *share_of)
{
    const struct ebb_model *model = check->model;
    const struct ebb_share *share = &check->plan->rules.shares[i];
    if (share->block >= model->block_count || share->host >= model->block_count ||
        share->block == share->host)
        return VIOLATION(check, "share %u: not two blocks", i);
    if (share_of[share->block] != NO_SHARE || share_of[share->host] != NO_SHARE)
        return VIOLATION(check, "share %u: one of its blocks is in another share", i);
    share_of[share->block] = share_of[share->host] = i;
    const struct ebb_model_block *block = &model->blocks[share->block];
    const struct ebb_model_block *host = &model->blocks[share->host];
    if (block->alloc_tick == EBB_TICK_NONE || host->alloc_tick == EBB_TICK_NONE ||
        block->part_count || host->part_count)
        return VIOLATION(check, "share %u: one of its blocks is not allocated as a whole", i);
    if (ebb__check_bytes(check, share->block) > ebb__check_bytes(check, share->host))
        return VIOLATION(check, "share %u: block %u is larger than block %u", i, share->block,
                         share->host);
    uint64_t born = ticks_between(check, host->alloc_tick, block->alloc_tick);
    if (born >= host->span_ticks || host->span_ticks >= model->tick_count ||
        born + block->span_ticks >= model->tick_count)
        return VIOLATION(check, "share %u: block %u is not allocated while block %u is", i,
                         share->block, share->host);
    uint32_t stage = stages->at[block->alloc_tick];
    if (host->access_count == 0 || stages->items[stage].phase != EBB_PHASE_BACKWARD ||
        stages->items[stage].layer == 0 ||
        stages->at[model->accesses[host->first_access + host->access_count - 1].tick] != stage)
        return VIOLATION(check, "share %u: block %u is not used last in the layer that makes %u", i,
                         share->host, share->block);
    check->lives[share->block].bytes = 0;
    if (born + block->span_ticks > host->span_ticks) {
        check->lives[share->host].span_ticks = born + block->span_ticks;
        check->lives[share->host].free_tick = block->free_tick;
    }
    return EBB_OK;
}

/* A host is present while another block lies in it. That block is never evicted. */
static enum ebb_status hosts_check(struct check *check, const uint32_t *share_of)
{
    const struct ebb_model *model = check->model;
    for (uint32_t i = 0; i < check->plan->absence_count; i++) {
        const struct ebb_absence *absence = &check->plan->absences[i];
        const struct span *span = &check->spans[i];
        if (share_of[absence->block] == NO_SHARE)
            continue;
        const struct ebb_share *share = &check->plan->rules.shares[share_of[absence->block]];
        uint32_t ready = ebb__check_ready_tick(check, absence);
        uint32_t born = model->blocks[share->block].alloc_tick;
        if (absence->block == share->block || absence->drops ||
            ticks_between(check, ready, born) == 0 ||
            span->in_end - span->ready > ns_between(check, ready, born))
            return VIOLATION(check, "absence %u: block %u is absent while memory is shared", i,
                             absence->block);
    }
    return EBB_OK;
}

static enum ebb_status shares_check(struct check *check)
{
    struct ebb_stages stages;
    if (!ebb__model_has_layers(check->model))
        return VIOLATION(check, "blocks share memory, but the model has no layers");
    uint32_t *share_of = malloc((check->model->block_count + 1u) * sizeof *share_of);
    if (!share_of)
        return EBB_ERR_MEMORY;
    for (uint32_t b = 0; b < check->model->block_count; b++)
        share_of[b] = NO_SHARE;
    enum ebb_status status = ebb__stages_init(check->model, &stages, check->error);
    for (uint32_t i = 0; i < check->plan->rules.share_count && !status; i++)
        status = share_check(check, i, &stages, share_of);
    if (!status)
        status = hosts_check(check, share_of);
    ebb__stages_fini(&stages);
    free(share_of);
    return status;
}

enum ebb_status ebb__check_rules(struct check *check)
{
    const struct ebb_plan_rules *rules = &check->plan->rules;
    lives_find(check);
    if (rules->keeps_all && (check->plan->absence_count || rules->share_count))
        return VIOLATION(check, "each block keeps its memory, but one is absent or shares");
    enum ebb_status status = barriers_check(check);
    return status || !rules->share_count ? status : shares_check(check);
}
