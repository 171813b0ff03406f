#include "sim/reactive.h"

#include "base/vec.h"
#include "sim/uses.h"

#include <stdlib.h>
#include <string.h>

#define LAPS_MAX 64 /* three or four are usually enough */
#define NONE UINT32_MAX

/* The state of a block: not live, unused since its allocation, in use, in the list of evictable
 * blocks, or evicted. */
enum place { DEAD, UNTOUCHED, IN_USE, LISTED, EVICTED };

struct block {
    uint64_t bytes;
    uint8_t place;
    bool movable;
    uint32_t newer, older; /* neighbours in the list */
    uint32_t used_tick;    /* tick of the last access */
    uint32_t evicted_tick; /* the event for which it was evicted */
};

struct reactive {
    const struct ebb_reactive_request *request;
    const struct ebb_model *model;
    struct block *blocks;
    uint32_t newest, oldest; /* of the list */
    struct ebb_sim_uses uses;
    EBB_VEC(uint32_t) in_use;
    EBB_VEC(struct ebb_absence) absences;
    uint64_t resident_bytes;
    uint64_t listed_bytes;
    uint32_t tick;
    struct ebb_reactive_result lap;
    bool out_of_memory;
};

static void list_remove(struct reactive *sim, uint32_t index)
{
    struct block *block = &sim->blocks[index];
    if (block->newer == NONE)
        sim->newest = block->older;
    else
        sim->blocks[block->newer].older = block->older;
    if (block->older == NONE)
        sim->oldest = block->newer;
    else
        sim->blocks[block->older].newer = block->newer;
    sim->listed_bytes -= block->bytes;
}

static void list_push(struct reactive *sim, uint32_t index)
{
    struct block *block = &sim->blocks[index];
    block->newer = NONE;
    block->older = sim->newest;
    if (sim->newest == NONE)
        sim->oldest = index;
    else
        sim->blocks[sim->newest].newer = index;
    sim->newest = index;
    block->place = LISTED;
    sim->listed_bytes += block->bytes;
}

/* Blocks whose use is over become evictable, in order of use. At a clock event all uses are. */
static void uses_end(struct reactive *sim, bool all)
{
    size_t kept = 0;
    for (size_t i = 0; i < sim->in_use.count; i++) {
        uint32_t index = sim->in_use.items[i];
        struct block *block = &sim->blocks[index];
        if (block->place != IN_USE)
            continue;
        if (all || sim->uses.over[block->used_tick] == sim->tick)
            list_push(sim, index);
        else
            sim->in_use.items[kept++] = index;
    }
    sim->in_use.count = kept;
}

/* Events until the block is used again; UINT32_MAX if it is freed before. */
static uint32_t distance(const struct reactive *sim, uint32_t index)
{
    uint32_t next = sim->uses.next[sim->blocks[index].used_tick], ticks = sim->model->tick_count;
    if (next == NONE)
        return UINT32_MAX;
    return next >= sim->tick ? next - sim->tick : next + ticks - sim->tick;
}

static uint32_t victim_choose(const struct reactive *sim)
{
    uint32_t victim = sim->oldest, farthest = 0;
    if (sim->request->order == EBB_REACTIVE_OLDEST)
        return victim;
    for (uint32_t index = sim->oldest; index != NONE; index = sim->blocks[index].newer) {
        uint32_t away = distance(sim, index);
        if (away > farthest) {
            farthest = away;
            victim = index;
        }
    }
    return victim;
}

/* Evicts blocks until `bytes` more fit, as long as there are any. */
static void room_make(struct reactive *sim, uint64_t bytes)
{
    while (sim->resident_bytes + bytes > sim->request->budget_bytes && sim->oldest != NONE) {
        uint32_t victim = victim_choose(sim);
        struct block *block = &sim->blocks[victim];
        list_remove(sim, victim);
        block->place = EVICTED;
        block->evicted_tick = sim->tick;
        sim->resident_bytes -= block->bytes;
        sim->lap.stall_ns += ebb__lane_ns(&sim->request->machine->out, block->bytes);
        sim->lap.moved_out_bytes += block->bytes;
    }
}

static void take(struct reactive *sim, uint64_t bytes)
{
    sim->resident_bytes += bytes;
    if (sim->resident_bytes > sim->lap.peak_bytes)
        sim->lap.peak_bytes = sim->resident_bytes;
}

/* Records the absence of a block that is used, or freed, now. */
static void absence_note(struct reactive *sim, uint32_t index, bool drops)
{
    const struct block *block = &sim->blocks[index];
    uint64_t lap_ns = ebb__model_iteration_ns(sim->model);
    uint64_t out_ns = sim->model->time_ns[block->evicted_tick] % lap_ns;
    uint64_t in_ns = sim->model->time_ns[sim->tick] % lap_ns;
    struct ebb_absence absence = {.block = index,
                                  .from_tick = block->used_tick,
                                  .to_tick = sim->tick,
                                  .drops = drops,
                                  .out_start_ns = out_ns,
                                  .out_end_ns = out_ns,
                                  .in_start_ns = drops ? 0 : in_ns,
                                  .in_end_ns = drops ? 0 : in_ns};
    ebb__sim_uses_margin(&sim->uses, &absence);
    if (!ebb_vec_push(&sim->absences, absence))
        sim->out_of_memory = true;
}

static void access_happen(struct reactive *sim, uint32_t index)
{
    struct block *block = &sim->blocks[index];
    if (!block->movable)
        return;
    if (block->place == EVICTED) {
        room_make(sim, block->bytes);
        take(sim, block->bytes);
        sim->lap.stall_ns += ebb__lane_ns(&sim->request->machine->in, block->bytes);
        sim->lap.moved_in_bytes += block->bytes;
        absence_note(sim, index, false);
    } else if (block->place == LISTED) {
        list_remove(sim, index);
    }
    if (block->place != IN_USE && !ebb_vec_push(&sim->in_use, index))
        sim->out_of_memory = true;
    block->place = IN_USE;
    block->used_tick = sim->tick;
}

static void event_happen(struct reactive *sim)
{
    const struct ebb_model_event *event = &sim->model->events[sim->tick];
    uses_end(sim, event->clock || sim->model->clock_count == 0);
    if (event->block == EBB_TICK_NONE)
        return;
    struct block *block = &sim->blocks[event->block];
    if (event->kind == EBB_EVENT_ALLOC) {
        room_make(sim, block->bytes);
        take(sim, block->bytes);
        if (block->movable)
            block->place = UNTOUCHED;
    } else if (event->kind == EBB_EVENT_FREE) {
        if (block->place == EVICTED)
            absence_note(sim, event->block, true);
        else
            sim->resident_bytes -= block->bytes;
        if (block->place == LISTED)
            list_remove(sim, event->block);
        if (block->movable)
            block->place = DEAD;
    } else if (event->kind == EBB_EVENT_ACCESS || event->kind == EBB_EVENT_LAUNCH) {
        access_happen(sim, event->block);
    }
}

static void lap_run(struct reactive *sim)
{
    uint64_t lap_ns = ebb__model_iteration_ns(sim->model);
    sim->lap = (struct ebb_reactive_result){.peak_bytes = sim->resident_bytes};
    sim->absences.count = 0;
    for (sim->tick = 0; sim->tick < sim->model->tick_count; sim->tick++) {
        event_happen(sim);
        room_make(sim, 0);
        uint64_t needed = sim->resident_bytes - sim->listed_bytes;
        if (needed > sim->lap.smallest_feasible_bytes)
            sim->lap.smallest_feasible_bytes = needed;
    }
    sim->lap.iteration_ns = lap_ns + sim->lap.stall_ns;
}

/* All blocks that live across the iteration's end are resident at first. */
static void begin(struct reactive *sim)
{
    const struct ebb_model *model = sim->model;
    uint64_t page = sim->request->page_bytes ? sim->request->page_bytes : 1;
    for (uint32_t i = 0; i < model->block_count; i++) {
        const struct ebb_model_block *source = &model->blocks[i];
        bool persistent = source->alloc_tick == EBB_TICK_NONE;
        uint64_t instances = 1;
        if (!persistent)
            instances = ((uint64_t)source->alloc_tick + source->span_ticks) / model->tick_count;
        struct block *block = &sim->blocks[i];
        block->bytes = (source->size_bytes + page - 1) / page * page;
        block->movable = source->access_count > 0 && source->span_ticks <= model->tick_count &&
                         source->size_bytes > 0 &&
                         source->size_bytes >= sim->request->smallest_block_bytes;
        block->place = instances ? UNTOUCHED : DEAD;
        block->newer = block->older = NONE;
        sim->resident_bytes += instances * block->bytes;
    }
}

static void places_keep(const struct reactive *sim, uint8_t *places)
{
    for (uint32_t i = 0; i < sim->model->block_count; i++)
        places[i] = sim->blocks[i].place;
}

static bool places_same(const struct reactive *sim, const uint8_t *places)
{
    for (uint32_t i = 0; i < sim->model->block_count; i++)
        if (places[i] != sim->blocks[i].place)
            return false;
    return true;
}

static int absence_compare(const void *left, const void *right)
{
    const struct ebb_absence *a = left, *b = right;
    if (a->out_start_ns != b->out_start_ns)
        return a->out_start_ns < b->out_start_ns ? -1 : 1;
    return (a->block > b->block) - (a->block < b->block);
}

enum ebb_reactive_order ebb__reactive_order(const char *policy)
{
    return strcmp(policy, "belady") == 0 ? EBB_REACTIVE_FARTHEST : EBB_REACTIVE_OLDEST;
}

enum ebb_status ebb__simulate_reactive(const struct ebb_reactive_request *request,
                                       struct ebb_reactive_result *result, struct ebb_error *error)
{
    const struct ebb_model *model = request->model;
    if (model->tick_count == 0 || ebb__model_iteration_ns(model) == 0)
        return ebb__fail(error, EBB_ERR_ARGUMENT, "simulate",
                         "the model has no events or takes no time");
    struct reactive sim = {.request = request, .model = model, .newest = NONE, .oldest = NONE};
    uint8_t *places = malloc(model->block_count + 1u);
    sim.blocks = calloc(model->block_count + 1u, sizeof *sim.blocks);
    sim.out_of_memory = !places || !sim.blocks || !ebb__sim_uses_init(&sim.uses, model);
    if (!sim.out_of_memory)
        begin(&sim);
    /* Two in a row: an absence that ends in the second then began in an iteration like it. */
    uint32_t alike = 0;
    for (uint32_t lap = 1; lap <= LAPS_MAX && alike < 2 && !sim.out_of_memory; lap++) {
        places_keep(&sim, places);
        lap_run(&sim);
        alike = places_same(&sim, places) ? alike + 1 : 0;
        sim.lap.laps = lap;
        sim.lap.steady = alike == 2;
    }
    free(places);
    free(sim.blocks);
    ebb__sim_uses_fini(&sim.uses);
    ebb_vec_free(&sim.in_use);
    if (sim.out_of_memory) {
        ebb_vec_free(&sim.absences);
        return ebb__fail(error, EBB_ERR_MEMORY, "simulate", "out of memory");
    }
    if (sim.absences.count)
        qsort(sim.absences.items, sim.absences.count, sizeof *sim.absences.items, absence_compare);
    *result = sim.lap;
    result->absences = sim.absences.items;
    result->absence_count = (uint32_t)sim.absences.count;
    return EBB_OK;
}
