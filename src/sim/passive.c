/* Passive swap beside a plan: what the plan does not evict is evicted if memory is lacking.
 *
 * The program stands before an event that needs memory, and no copy is under way. Then the least
 * recently used block is copied out, and the program waits for it. The block is fetched on access.
 * A block in use is not evicted, nor one without contents. One that was prefetched for its next use
 * is evicted only if there is no other. Source: AppObMem's passive swap, docs/papers.md. O(blocks)
 * an eviction. */
#include "sim/state.h"

#include <stdlib.h>

bool ebb__passive_init(struct sim *sim)
{
    const struct ebb_plan_rules *rules = sim->request->rules;
    const struct ebb_model *model = sim->model;
    if (!rules || !rules->passive)
        return true;
    struct passive *passive = sim->passive = calloc(1, sizeof *sim->passive);
    if (!passive || !ebb__sim_uses_init(&passive->uses, model))
        return false;
    passive->blocks = calloc(model->block_count + 1u, sizeof *passive->blocks);
    for (uint32_t i = 0; passive->blocks && i < model->block_count; i++) {
        const struct ebb_model_block *block = &model->blocks[i];
        bool persistent = block->alloc_tick == EBB_TICK_NONE;
        passive->blocks[i] = (struct passive_block){
            .absence = NONE,
            .fetched_by = NONE,
            .used_tick = NONE,
            .single = block->span_ticks <= model->tick_count,
            .live = persistent || block->alloc_tick + block->span_ticks >= model->tick_count,
            .movable = block->access_count > 0 && block->span_ticks <= model->tick_count &&
                       block->size_bytes > 0 && block->size_bytes >= rules->passive_least_bytes};
    }
    return passive->blocks != NULL;
}

void ebb__passive_fini(struct sim *sim)
{
    if (!sim->passive)
        return;
    ebb__sim_uses_fini(&sim->passive->uses);
    free(sim->passive->blocks);
    free(sim->passive);
}

/* The plan alone comes into force first: its blocks are then where it expects them. Otherwise the
 * first iteration, in which all blocks are resident, could be swapped passively for ever. */
bool ebb__passive_go_on(struct sim *sim, uint32_t lap, const struct ebb_sim_result *result)
{
    struct passive *passive = sim->passive;
    if (!passive || passive->begun || (!result->steady && lap < LAPS_MAX) || result->feasible)
        return false;
    passive->begun = true;
    return true;
}

void ebb__passive_lap(struct sim *sim)
{
    if (!sim->passive)
        return;
    sim->passive->lap_first += sim->model->tick_count;
    sim->passive->count = 0;
    if (sim->detail && sim->detail->passive_count)
        *sim->detail->passive_count = 0;
    /* Of iterations that are not steady yet, nothing is held against the plan. */
    for (uint32_t i = 0; sim->detail && sim->detail->times && i < sim->request->absence_count; i++)
        sim->detail->times[i].cancelled = sim->detail->times[i].wasted = false;
}

uint32_t ebb__passive_absence(const struct sim *sim, const struct ebb_model_event *event,
                              uint32_t planned)
{
    if (!sim->passive || !sim->passive->blocks[event->block].single)
        return planned;
    return sim->passive->blocks[event->block].absence;
}

bool ebb__passive_allows(const struct sim *sim, uint32_t absence)
{
    if (!sim->passive)
        return true;
    const struct passive_block *block = &sim->passive->blocks[ebb__sim_block(sim, absence)];
    return !block->single || block->absence == NONE;
}

void ebb__passive_begin(struct sim *sim, uint32_t absence)
{
    if (sim->passive)
        sim->passive->blocks[ebb__sim_block(sim, absence)].absence = absence;
}

/* Lists the passive absence that ends at the event at sim->tick. */
static void note(struct sim *sim, uint32_t index, bool drops)
{
    const struct ebb_sim_detail *detail = sim->detail;
    const struct passive_block *block = &sim->passive->blocks[index];
    if (detail && detail->passive && sim->passive->count < sim->model->gap_count) {
        struct ebb_absence absence = {.block = index,
                                      .from_tick = block->used_tick,
                                      .to_tick = sim->tick,
                                      .drops = drops,
                                      .passive = true,
                                      .out_start_ns = block->evicted_ns,
                                      .out_end_ns = block->evicted_ns,
                                      .in_start_ns = drops ? 0 : sim->model_ns % sim->lap_ns,
                                      .in_end_ns = drops ? 0 : sim->model_ns % sim->lap_ns,
                                      .stall_ns = drops ? 0 : sim->now_ns - sim->wait.since_ns};
        ebb__sim_uses_margin(&sim->passive->uses, &absence);
        detail->passive[sim->passive->count++] = absence;
    }
    if (detail && detail->passive_count)
        *detail->passive_count = sim->passive->count;
}

void ebb__passive_end(struct sim *sim, uint32_t absence)
{
    if (!sim->passive)
        return;
    uint32_t index = ebb__sim_block(sim, absence);
    struct passive_block *block = &sim->passive->blocks[index];
    block->absence = NONE;
    const struct ebb_model_event *event =
        sim->tick < sim->model->tick_count ? &sim->model->events[sim->tick] : NULL;
    bool used = event && event->block == index && sim->wait.demanded == absence;
    if (absence >= sim->request->absence_count)
        note(sim, index, !used);
    else if (!used)
        block->fetched_by = absence;
}

void ebb__passive_event(struct sim *sim, const struct ebb_model_event *event)
{
    if (!sim->passive || event->block == EBB_TICK_NONE)
        return;
    struct passive_block *block = &sim->passive->blocks[event->block];
    if (event->kind == EBB_EVENT_ALLOC || event->kind == EBB_EVENT_FREE) {
        block->live = event->kind == EBB_EVENT_ALLOC;
        block->used_tick = NONE;
    } else if (event->kind == EBB_EVENT_ACCESS || event->kind == EBB_EVENT_LAUNCH) {
        block->used_tick = sim->tick;
        block->used_at = sim->passive->lap_first + sim->tick;
    }
    block->fetched_by = NONE;
}

static bool is_evictable(const struct sim *sim, const struct passive_block *block)
{
    if (!block->live || !block->movable || block->used_tick == NONE || block->absence != NONE)
        return false;
    uint32_t ticks = sim->model->tick_count, over = sim->passive->uses.over[block->used_tick];
    uint32_t length = (over + ticks - block->used_tick - 1) % ticks + 1;
    return sim->passive->lap_first + sim->tick - block->used_at >= length;
}

bool ebb__passive_evict(struct sim *sim)
{
    if (!sim->passive || !sim->passive->begun || sim->out.absence != NONE ||
        sim->wait.kind == WAIT_NONE)
        return false;
    uint32_t victim = NONE;
    for (uint32_t i = 0; i < sim->model->block_count; i++) {
        const struct passive_block *block = &sim->passive->blocks[i];
        if (!is_evictable(sim, block))
            continue;
        const struct passive_block *best = victim == NONE ? NULL : &sim->passive->blocks[victim];
        bool kept = block->fetched_by != NONE, best_kept = best && best->fetched_by != NONE;
        if (!best || (best_kept && !kept) || (best_kept == kept && block->used_at < best->used_at))
            victim = i;
    }
    if (victim == NONE)
        return false;
    struct passive_block *block = &sim->passive->blocks[victim];
    if (block->fetched_by != NONE && sim->detail && sim->detail->times)
        sim->detail->times[block->fetched_by].wasted = true;
    block->fetched_by = NONE;
    block->evicted_ns = sim->model_ns % sim->lap_ns;
    uint32_t absence = sim->request->absence_count + victim;
    block->absence = absence;
    sim->state[absence] = WRITING_BACK;
    sim->out.absence = absence;
    sim->out.half_ns_left = 2 * ebb__lane_ns(&sim->request->machine->out, sim->block_bytes[victim]);
    return true;
}
