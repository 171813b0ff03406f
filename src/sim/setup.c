/* Before the first iteration: the absences in the orders of their requests, and the blocks that are
 * resident. */
#include "sim/state.h"

#include <stdlib.h>
#include <string.h>

static int in_key_compare(const void *left, const void *right)
{
    const struct in_key *a = left, *b = right;
    if (a->in_start_ns != b->in_start_ns)
        return a->in_start_ns < b->in_start_ns ? -1 : 1;
    return (a->absence > b->absence) - (a->absence < b->absence);
}

bool ebb__sim_allocate(struct sim *sim)
{
    size_t blocks = sim->model->block_count, absences = sim->request->absence_count;
    size_t entries = absences * ebb__sim_laps_most(sim) + 1, states = absences + 1;
    if (sim->passive)
        states += blocks;
    sim->block_bytes = calloc(blocks + 1, sizeof *sim->block_bytes);
    sim->freed_bytes = calloc(blocks + 1, sizeof *sim->freed_bytes);
    sim->ending = malloc(sim->model->tick_count * sizeof *sim->ending);
    sim->state = calloc(states, sizeof *sim->state);
    sim->wanted_in = calloc(states, sizeof *sim->wanted_in);
    sim->ready_first = calloc((size_t)sim->model->tick_count + 2, sizeof *sim->ready_first);
    sim->ready_list = malloc((absences + 1) * sizeof *sim->ready_list);
    sim->triggers.items = malloc((absences + 1) * sizeof *sim->triggers.items);
    sim->out_queue.items = malloc(entries * sizeof *sim->out_queue.items);
    sim->in_queue.items = malloc(entries * sizeof *sim->in_queue.items);
    return sim->block_bytes && sim->freed_bytes && sim->ending && sim->state && sim->wanted_in &&
           sim->ready_first && sim->ready_list && sim->triggers.items && sim->out_queue.items &&
           sim->in_queue.items;
}

void ebb__sim_release(struct sim *sim)
{
    free(sim->block_bytes);
    free(sim->freed_bytes);
    free(sim->ending);
    free(sim->state);
    free(sim->wanted_in);
    free(sim->ready_first);
    free(sim->ready_list);
    free(sim->triggers.items);
    free(sim->out_queue.items);
    free(sim->in_queue.items);
}

struct ready_key {
    uint32_t tick;
    uint32_t absence;
    uint64_t wait_ns; /* time from ready to the planned start of the copy out */
};

static int ready_key_compare(const void *left, const void *right)
{
    const struct ready_key *a = left, *b = right;
    if (a->tick != b->tick)
        return a->tick < b->tick ? -1 : 1;
    if (a->wait_ns != b->wait_ns)
        return a->wait_ns < b->wait_ns ? -1 : 1;
    return (a->absence > b->absence) - (a->absence < b->absence);
}

enum ebb_status ebb__sim_index(struct sim *sim, uint32_t *ready)
{
    const struct ebb_sim_request *request = sim->request;
    uint32_t ticks = sim->model->tick_count, count = request->absence_count;
    struct ready_key *keys = malloc((count + 1) * sizeof *keys);
    if (!keys)
        return EBB_ERR_MEMORY;
    uint32_t planned = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct ebb_absence *absence = &request->absences[i];
        uint32_t after_margin = (absence->from_tick + absence->margin_ticks) % ticks;
        ready[i] =
            absence->out_within ? after_margin : ebb__model_clock_after(sim->model, after_margin);
        if (ready[i] == EBB_TICK_NONE)
            ready[i] = (after_margin + 1) % ticks;
        uint64_t ready_ns = sim->model->time_ns[ready[i]] % sim->lap_ns;
        uint64_t start_ns = absence->out_start_ns % sim->lap_ns;
        if (absence->passive)
            continue;
        keys[planned++] =
            (struct ready_key){ready[i], i, (start_ns + sim->lap_ns - ready_ns) % sim->lap_ns};
        if (!absence->drops)
            sim->triggers.items[sim->triggers.count++] =
                (struct in_key){absence->in_start_ns % sim->lap_ns, i};
    }
    qsort(keys, planned, sizeof *keys, ready_key_compare);
    for (uint32_t t = 0, place = 0; t <= ticks; t++) {
        while (place < planned && keys[place].tick < t)
            place++;
        sim->ready_first[t] = place;
    }
    for (uint32_t i = 0; i < planned; i++)
        sim->ready_list[i] = keys[i].absence;
    qsort(sim->triggers.items, sim->triggers.count, sizeof *sim->triggers.items, in_key_compare);
    free(keys);
    return EBB_OK;
}

/* Instances of a block that live at the start, if it is free `span` ticks after its allocation. */
static uint64_t instances_at_start(const struct ebb_model *model,
                                   const struct ebb_model_block *block, uint64_t span)
{
    if (block->alloc_tick == EBB_TICK_NONE)
        return 1;
    return (block->alloc_tick + span) / model->tick_count;
}

/* Each block has its bytes for the whole iteration, and as often as it lives at once. */
static void keep_all(struct sim *sim)
{
    uint32_t ticks = sim->model->tick_count;
    for (uint32_t i = 0; i < sim->model->block_count; i++) {
        uint64_t instances = ((uint64_t)sim->model->blocks[i].span_ticks + ticks - 1) / ticks;
        sim->resident_bytes += instances * sim->block_bytes[i];
        sim->block_bytes[i] = sim->freed_bytes[i] = 0;
    }
}

/* The block takes nothing. If it is free after its host, it then releases the host's bytes. */
static void share(struct sim *sim, const struct ebb_share *share)
{
    const struct ebb_model *model = sim->model;
    const struct ebb_model_block *block = &model->blocks[share->block];
    const struct ebb_model_block *host = &model->blocks[share->host];
    uint64_t own = instances_at_start(model, block, block->span_ticks);
    sim->resident_bytes -= own * sim->block_bytes[share->block];
    sim->block_bytes[share->block] = sim->freed_bytes[share->block] = 0;
    uint32_t born = (block->alloc_tick + model->tick_count - host->alloc_tick) % model->tick_count;
    uint64_t end = (uint64_t)born + block->span_ticks;
    if (end <= host->span_ticks)
        return;
    uint64_t more =
        instances_at_start(model, host, end) - instances_at_start(model, host, host->span_ticks);
    sim->resident_bytes += more * sim->block_bytes[share->host];
    sim->freed_bytes[share->block] = sim->block_bytes[share->host];
    sim->freed_bytes[share->host] = 0;
}

/* Blocks live across the iteration's end are resident at the start, unless an absence of the
 * previous iteration continues. */
void ebb__sim_begin(struct sim *sim, const uint32_t *ready)
{
    const struct ebb_model *model = sim->model;
    const struct ebb_plan_rules *rules = sim->request->rules;
    uint64_t page = sim->request->page_bytes ? sim->request->page_bytes : 1;
    bool keeps_all = rules && rules->keeps_all;
    for (uint32_t i = 0; i < model->block_count; i++) {
        const struct ebb_model_block *block = &model->blocks[i];
        sim->block_bytes[i] = (block->size_bytes + page - 1) / page * page;
        sim->freed_bytes[i] = sim->block_bytes[i];
        if (!keeps_all)
            sim->resident_bytes +=
                instances_at_start(model, block, block->span_ticks) * sim->block_bytes[i];
    }
    if (keeps_all)
        keep_all(sim);
    for (uint32_t i = 0; rules && !keeps_all && i < rules->share_count; i++)
        share(sim, &rules->shares[i]);
    for (uint32_t t = 0; t < model->tick_count; t++)
        sim->ending[t] = NONE;
    for (uint32_t i = 0; i < sim->request->absence_count; i++) {
        const struct ebb_absence *absence = &sim->request->absences[i];
        if (absence->passive)
            continue;
        if (sim->ending[absence->to_tick] == NONE)
            sim->ending[absence->to_tick] = i;
        bool wraps = absence->to_tick <= ready[i];
        bool in_later = absence->drops ||
                        absence->in_start_ns % sim->lap_ns <= model->time_ns[absence->to_tick];
        if (!wraps || !in_later || !ebb__sim_is_first_of_gap(sim, i))
            continue;
        sim->state[i] = EVICTED;
        ebb__passive_begin(sim, i);
        sim->resident_bytes -= sim->block_bytes[absence->block];
    }
}

static bool is_share(const struct ebb_model *model, const struct ebb_share *share)
{
    return share->block < model->block_count && share->host < model->block_count &&
           share->block != share->host && model->blocks[share->block].alloc_tick != EBB_TICK_NONE &&
           model->blocks[share->host].alloc_tick != EBB_TICK_NONE;
}

enum ebb_status ebb__sim_check(const struct ebb_sim_request *request, struct ebb_error *error)
{
    const struct ebb_model *model = request->model;
    if (model->tick_count == 0)
        return ebb__fail(error, EBB_ERR_ARGUMENT, "simulate", "the model has no events");
    for (uint32_t i = 0; i < request->absence_count; i++) {
        const struct ebb_absence *absence = &request->absences[i];
        if (absence->block >= model->block_count || absence->from_tick >= model->tick_count ||
            absence->to_tick >= model->tick_count || absence->margin_ticks >= model->tick_count)
            return ebb__fail(error, EBB_ERR_ARGUMENT, "simulate",
                             "absence %u names no block or tick of the model", i);
    }
    const struct ebb_plan_rules *rules = request->rules;
    bool good = !rules || !rules->keeps_all || request->absence_count == 0;
    for (uint32_t i = 0; rules && good && i < rules->barrier_count; i++)
        good = rules->barriers[i] < model->tick_count &&
               (i == 0 || rules->barriers[i] > rules->barriers[i - 1]);
    for (uint32_t i = 0; rules && good && i < rules->share_count; i++)
        good = is_share(model, &rules->shares[i]);
    if (!good)
        return ebb__fail(error, EBB_ERR_ARGUMENT, "simulate", "its rules are not for the model");
    return EBB_OK;
}
