#include "sim/simulate.h"

#include <stdlib.h>
#include <string.h>

#define LAPS_MAX 8
#define NONE UINT32_MAX

enum state { RESIDENT, QUEUED, WRITING_BACK, EVICTED, FETCHING };

/* Absences in the order in which they asked for a lane. Entries of cancelled ones go stale and are
 * dropped when they are met; each absence enters at most once a lap. */
struct queue {
    uint32_t *items;
    uint32_t first, end;
};

struct in_key {
    uint64_t in_start_ns;
    uint32_t absence;
};

struct lane {
    uint32_t absence;      /* NONE: idle */
    uint64_t half_ns_left; /* in half nanoseconds, so that sharing stays exact */
};

struct sim {
    const struct ebb_sim_request *request;
    const struct ebb_sim_detail *detail;
    const struct ebb_model *model;
    uint64_t lap_ns;
    uint64_t *block_bytes;
    uint32_t *ending;      /* by tick: the absence that ends there, NONE */
    uint8_t *state;        /* by absence */
    bool *wanted_in;       /* its in_start has come */
    uint32_t *ready_first; /* tick_count + 1: absences by ready tick */
    uint32_t *ready_list;
    struct in_key *by_in_start; /* absences that come back */
    uint32_t in_count;
    struct queue out_queue, in_queue;
    struct lane out, in;

    uint64_t resident_bytes;
    uint64_t now_ns, model_ns; /* real and model clock; model_ns is within the lap */
    uint32_t tick;             /* next event */
    uint32_t trigger;          /* next entry of by_in_start */
    bool blocked;              /* the event at `tick` cannot happen yet */
    uint32_t demanded;         /* absence that the program waits for, or NONE */
    uint64_t blocked_since_ns;
    uint64_t wait_bytes; /* room that a blocked allocation needs */
    bool alloc_blocked;
    struct ebb_sim_result lap; /* figures of the lap under way */
};

static void queue_push(struct queue *queue, uint32_t item)
{
    queue->items[queue->end++] = item;
}

static uint64_t absence_bytes(const struct sim *sim, uint32_t absence)
{
    return sim->block_bytes[sim->request->absences[absence].block];
}

static void take(struct sim *sim, uint64_t bytes)
{
    sim->resident_bytes += bytes;
    if (sim->resident_bytes > sim->lap.peak_bytes)
        sim->lap.peak_bytes = sim->resident_bytes;
    if (sim->resident_bytes > sim->request->budget_bytes)
        sim->lap.feasible = false;
}

static bool fits(const struct sim *sim, uint64_t bytes)
{
    return sim->resident_bytes + bytes <= sim->request->budget_bytes;
}

static struct ebb_sim_times *times_of(const struct sim *sim, uint32_t absence)
{
    return sim->detail && sim->detail->times ? &sim->detail->times[absence] : NULL;
}

static void absence_end(struct sim *sim, uint32_t absence)
{
    sim->state[absence] = RESIDENT;
    sim->wanted_in[absence] = false;
}

/* The block is needed or freed while its copy out waits or runs. */
static void absence_cancel(struct sim *sim, uint32_t absence)
{
    struct ebb_sim_times *times = times_of(sim, absence);
    if (times)
        times->cancelled = true;
    if (sim->out.absence == absence)
        sim->out.absence = NONE;
    sim->lap.cancelled_count++;
    absence_end(sim, absence);
}

/* Of several absences that end at one use, which no checked plan has, the first counts. */
static bool is_first_of_gap(const struct sim *sim, uint32_t absence)
{
    return sim->ending[sim->request->absences[absence].to_tick] == absence;
}

static void absence_ready(struct sim *sim, uint32_t absence)
{
    if (sim->state[absence] != RESIDENT || !is_first_of_gap(sim, absence))
        return;
    sim->state[absence] = QUEUED;
    queue_push(&sim->out_queue, absence);
}

/* The first absence that asks to come back and has left; NONE where there is none. One that has
 * not left yet does not hold up those behind it. */
static uint32_t in_queue_head(struct sim *sim)
{
    struct queue *queue = &sim->in_queue;
    while (queue->first < queue->end && (!sim->wanted_in[queue->items[queue->first]] ||
                                         sim->state[queue->items[queue->first]] == FETCHING))
        queue->first++;
    for (uint32_t i = queue->first; i < queue->end; i++)
        if (sim->wanted_in[queue->items[i]] && sim->state[queue->items[i]] == EVICTED)
            return queue->items[i];
    return NONE;
}

static void in_begin(struct sim *sim, uint32_t absence)
{
    uint64_t bytes = absence_bytes(sim, absence);
    sim->state[absence] = FETCHING;
    sim->in.absence = absence;
    sim->in.half_ns_left = 2 * ebb__lane_ns(&sim->request->machine->in, bytes);
    take(sim, bytes);
    struct ebb_sim_times *times = times_of(sim, absence);
    if (times)
        times->in_start_ns = sim->model_ns;
}

/* Start what the lanes can take now. True where something started. */
static bool lanes_start(struct sim *sim)
{
    bool started = false;
    while (sim->out.absence == NONE && sim->out_queue.first < sim->out_queue.end) {
        uint32_t absence = sim->out_queue.items[sim->out_queue.first++];
        if (sim->state[absence] != QUEUED)
            continue;
        sim->state[absence] = WRITING_BACK;
        sim->out.absence = absence;
        sim->out.half_ns_left =
            2 * ebb__lane_ns(&sim->request->machine->out, absence_bytes(sim, absence));
        struct ebb_sim_times *times = times_of(sim, absence);
        if (times)
            times->out_start_ns = sim->model_ns;
        started = true;
    }
    if (sim->in.absence != NONE)
        return started;
    uint32_t absence = sim->demanded != NONE && sim->state[sim->demanded] == EVICTED
                           ? sim->demanded
                           : in_queue_head(sim);
    if (absence == NONE)
        return started;
    uint64_t bytes = absence_bytes(sim, absence) + (sim->alloc_blocked ? sim->wait_bytes : 0);
    if (!fits(sim, bytes))
        return started;
    in_begin(sim, absence);
    return true;
}

static bool lanes_finish(struct sim *sim)
{
    bool finished = false;
    if (sim->out.absence != NONE && sim->out.half_ns_left == 0) {
        uint32_t absence = sim->out.absence;
        sim->out.absence = NONE;
        sim->state[absence] = EVICTED;
        sim->resident_bytes -= absence_bytes(sim, absence);
        sim->lap.moved_out_bytes += absence_bytes(sim, absence);
        struct ebb_sim_times *times = times_of(sim, absence);
        if (times)
            times->out_end_ns = sim->model_ns;
        finished = true;
    }
    if (sim->in.absence != NONE && sim->in.half_ns_left == 0) {
        uint32_t absence = sim->in.absence;
        sim->in.absence = NONE;
        sim->lap.moved_in_bytes += absence_bytes(sim, absence);
        struct ebb_sim_times *times = times_of(sim, absence);
        if (times) {
            times->in_end_ns = sim->model_ns;
            times->stall_ns = 0;
            times->cancelled = false;
        }
        absence_end(sim, absence);
        finished = true;
    }
    return finished;
}

/* False where there is no room. */
static bool block_begin(struct sim *sim, uint64_t bytes, bool forced, uint64_t waited_ns)
{
    if (!forced && !fits(sim, bytes)) {
        sim->alloc_blocked = true;
        sim->wait_bytes = bytes;
        return false;
    }
    take(sim, bytes);
    sim->lap.room_stall_ns += waited_ns;
    return true;
}

/* `absence`: what keeps the block away or tries to, NONE. */
static void block_end(struct sim *sim, uint64_t bytes, uint32_t absence)
{
    bool held = absence == NONE || sim->state[absence] != EVICTED;
    if (held)
        sim->resident_bytes -= bytes;
    if (absence == NONE)
        return;
    if (sim->in.absence == absence)
        sim->in.absence = NONE;
    if (held) {
        absence_cancel(sim, absence);
        return;
    }
    absence_end(sim, absence);
    struct ebb_sim_times *times = times_of(sim, absence);
    if (times)
        times->cancelled = false;
}

/* False where the block is not there. */
static bool block_use(struct sim *sim, uint32_t absence, bool forced)
{
    if (absence == NONE)
        return true;
    if (sim->state[absence] == QUEUED || sim->state[absence] == WRITING_BACK) {
        absence_cancel(sim, absence);
        return true;
    }
    if (forced && sim->in.absence == NONE && sim->state[absence] == EVICTED)
        in_begin(sim, absence);
    sim->demanded = absence;
    return false;
}

/* What the event at sim->tick does to its block; false where it must wait. */
static bool event_apply(struct sim *sim, bool forced, uint64_t waited_ns)
{
    const struct ebb_model_event *event = &sim->model->events[sim->tick];
    if (event->block == EBB_TICK_NONE)
        return true;
    uint64_t bytes = sim->block_bytes[event->block];
    uint32_t absence = sim->ending[sim->tick];
    if (absence != NONE &&
        (sim->state[absence] == RESIDENT || sim->request->absences[absence].block != event->block))
        absence = NONE;
    switch (event->kind) {
    case EBB_EVENT_ALLOC:
        return block_begin(sim, bytes, forced, waited_ns);
    case EBB_EVENT_FREE:
        block_end(sim, bytes, absence);
        return true;
    case EBB_EVENT_ACCESS:
    case EBB_EVENT_LAUNCH:
        return block_use(sim, absence, forced);
    default:
        return true;
    }
}

/* Let the event at sim->tick happen; false where it must wait. `forced` breaks the budget. */
static bool event_happen(struct sim *sim, bool forced)
{
    if (!sim->blocked)
        for (uint32_t i = sim->ready_first[sim->tick]; i < sim->ready_first[sim->tick + 1]; i++)
            absence_ready(sim, sim->ready_list[i]);
    uint64_t waited_ns = sim->blocked ? sim->now_ns - sim->blocked_since_ns : 0;
    if (!event_apply(sim, forced, waited_ns)) {
        if (!sim->blocked)
            sim->blocked_since_ns = sim->now_ns;
        sim->blocked = true;
        return false;
    }
    struct ebb_sim_times *times = sim->demanded != NONE ? times_of(sim, sim->demanded) : NULL;
    if (times)
        times->stall_ns = waited_ns;
    if (sim->detail && sim->detail->tick_stall_ns)
        sim->detail->tick_stall_ns[sim->tick] = waited_ns;
    sim->blocked = sim->alloc_blocked = false;
    sim->demanded = NONE;
    sim->tick++;
    return true;
}

static bool triggers_fire(struct sim *sim)
{
    bool fired = false;
    while (sim->trigger < sim->in_count) {
        uint32_t absence = sim->by_in_start[sim->trigger].absence;
        if (sim->by_in_start[sim->trigger].in_start_ns > sim->model_ns)
            break;
        sim->trigger++;
        if (sim->state[absence] == RESIDENT || sim->state[absence] == FETCHING ||
            sim->wanted_in[absence])
            continue;
        sim->wanted_in[absence] = true;
        queue_push(&sim->in_queue, absence);
        fired = true;
    }
    return fired;
}

/* Let time pass until the next thing happens. False where nothing ever would. */
static bool time_pass(struct sim *sim)
{
    bool both = sim->out.absence != NONE && sim->in.absence != NONE;
    uint64_t rate = both && !sim->request->machine->duplex ? 1 : 2; /* half ns a ns */
    uint64_t step = UINT64_MAX;
    if (!sim->blocked) {
        uint64_t next_ns =
            sim->tick < sim->model->tick_count ? sim->model->time_ns[sim->tick] : sim->lap_ns;
        if (sim->trigger < sim->in_count) {
            uint64_t in_ns = sim->by_in_start[sim->trigger].in_start_ns;
            next_ns = in_ns < next_ns ? in_ns : next_ns;
        }
        step = next_ns > sim->model_ns ? next_ns - sim->model_ns : 0;
    }
    struct lane *lanes[] = {&sim->out, &sim->in};
    for (int i = 0; i < 2; i++) {
        uint64_t needs_ns = (lanes[i]->half_ns_left + rate - 1) / rate;
        if (lanes[i]->absence != NONE && needs_ns < step)
            step = needs_ns;
    }
    if (step == UINT64_MAX)
        return false;
    sim->now_ns += step;
    if (!sim->blocked)
        sim->model_ns += step;
    for (int i = 0; i < 2; i++) {
        uint64_t done = step * rate;
        lanes[i]->half_ns_left -= done < lanes[i]->half_ns_left ? done : lanes[i]->half_ns_left;
    }
    return true;
}

static void lap_run(struct sim *sim)
{
    uint64_t began_ns = sim->now_ns;
    sim->lap =
        (struct ebb_sim_result){.feasible = sim->resident_bytes <= sim->request->budget_bytes,
                                .peak_bytes = sim->resident_bytes};
    sim->tick = sim->trigger = 0;
    sim->model_ns = 0;
    for (;;) {
        /* At one instant: what ends first, then events, then what begins. */
        bool moved = lanes_finish(sim);
        while (sim->tick < sim->model->tick_count &&
               sim->model->time_ns[sim->tick] <= sim->model_ns && event_happen(sim, false))
            moved = true;
        moved |= triggers_fire(sim);
        moved |= lanes_start(sim);
        if (moved)
            continue;
        if (sim->tick == sim->model->tick_count && sim->model_ns >= sim->lap_ns)
            break;
        if (!time_pass(sim)) {
            sim->lap.feasible = false;
            event_happen(sim, true);
        }
    }
    sim->lap.iteration_ns = sim->now_ns - began_ns;
    sim->lap.stall_ns = sim->lap.iteration_ns - sim->lap_ns;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static int in_key_compare(const void *left, const void *right)
{
    const struct in_key *a = left, *b = right;
    if (a->in_start_ns != b->in_start_ns)
        return a->in_start_ns < b->in_start_ns ? -1 : 1;
    return (a->absence > b->absence) - (a->absence < b->absence);
}

static bool sim_allocate(struct sim *sim)
{
    size_t blocks = sim->model->block_count, absences = sim->request->absence_count;
    size_t entries = absences * LAPS_MAX + 1;
    sim->block_bytes = calloc(blocks + 1, sizeof *sim->block_bytes);
    sim->ending = malloc(sim->model->tick_count * sizeof *sim->ending);
    sim->state = calloc(absences + 1, sizeof *sim->state);
    sim->wanted_in = calloc(absences + 1, sizeof *sim->wanted_in);
    sim->ready_first = calloc((size_t)sim->model->tick_count + 2, sizeof *sim->ready_first);
    sim->ready_list = malloc((absences + 1) * sizeof *sim->ready_list);
    sim->by_in_start = malloc((absences + 1) * sizeof *sim->by_in_start);
    sim->out_queue.items = malloc(entries * sizeof *sim->out_queue.items);
    sim->in_queue.items = malloc(entries * sizeof *sim->in_queue.items);
    return sim->block_bytes && sim->ending && sim->state && sim->wanted_in && sim->ready_first &&
           sim->ready_list && sim->by_in_start && sim->out_queue.items && sim->in_queue.items;
}

static void sim_release(struct sim *sim)
{
    free(sim->block_bytes);
    free(sim->ending);
    free(sim->state);
    free(sim->wanted_in);
    free(sim->ready_first);
    free(sim->ready_list);
    free(sim->by_in_start);
    free(sim->out_queue.items);
    free(sim->in_queue.items);
}

struct ready_key {
    uint32_t tick;
    uint32_t absence;
    uint64_t wait_ns; /* from ready to the planned start of the copy out */
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

/* The tick at which each absence becomes ready, into ready[]; sorted lists into the sim. `keys` is
 * room for as many. */
static void sim_index(struct sim *sim, uint32_t *ready, struct ready_key *keys)
{
    const struct ebb_sim_request *request = sim->request;
    uint32_t ticks = sim->model->tick_count, count = request->absence_count;
    for (uint32_t i = 0; i < count; i++) {
        const struct ebb_absence *absence = &request->absences[i];
        uint32_t after_margin = (absence->from_tick + absence->margin_ticks) % ticks;
        ready[i] =
            absence->out_within ? after_margin : ebb__model_clock_after(sim->model, after_margin);
        if (ready[i] == EBB_TICK_NONE)
            ready[i] = (after_margin + 1) % ticks;
        uint64_t ready_ns = sim->model->time_ns[ready[i]] % sim->lap_ns;
        uint64_t start_ns = absence->out_start_ns % sim->lap_ns;
        keys[i] =
            (struct ready_key){ready[i], i, (start_ns + sim->lap_ns - ready_ns) % sim->lap_ns};
        if (!absence->drops)
            sim->by_in_start[sim->in_count++] =
                (struct in_key){absence->in_start_ns % sim->lap_ns, i};
    }
    qsort(keys, count, sizeof *keys, ready_key_compare);
    for (uint32_t t = 0, place = 0; t <= ticks; t++) {
        while (place < count && keys[place].tick < t)
            place++;
        sim->ready_first[t] = place;
    }
    for (uint32_t i = 0; i < count; i++)
        sim->ready_list[i] = keys[i].absence;
    qsort(sim->by_in_start, sim->in_count, sizeof *sim->by_in_start, in_key_compare);
}

/* Blocks live across the iteration's end are there at the start, but for those that an absence of
 * the iteration before still keeps away. */
static void sim_begin(struct sim *sim, const uint32_t *ready)
{
    const struct ebb_model *model = sim->model;
    uint64_t page = sim->request->page_bytes ? sim->request->page_bytes : 1;
    for (uint32_t i = 0; i < model->block_count; i++) {
        const struct ebb_model_block *block = &model->blocks[i];
        sim->block_bytes[i] = (block->size_bytes + page - 1) / page * page;
        uint64_t instances = 1;
        if (block->alloc_tick != EBB_TICK_NONE)
            instances = ((uint64_t)block->alloc_tick + block->span_ticks) / model->tick_count;
        sim->resident_bytes += instances * sim->block_bytes[i];
    }
    for (uint32_t t = 0; t < model->tick_count; t++)
        sim->ending[t] = NONE;
    for (uint32_t i = 0; i < sim->request->absence_count; i++) {
        const struct ebb_absence *absence = &sim->request->absences[i];
        if (sim->ending[absence->to_tick] == NONE)
            sim->ending[absence->to_tick] = i;
        bool wraps = absence->to_tick <= ready[i];
        bool in_later = absence->drops ||
                        absence->in_start_ns % sim->lap_ns <= model->time_ns[absence->to_tick];
        if (!wraps || !in_later || !is_first_of_gap(sim, i))
            continue;
        sim->state[i] = EVICTED;
        sim->resident_bytes -= sim->block_bytes[absence->block];
    }
}

static enum ebb_status absences_valid(const struct ebb_sim_request *request,
                                      struct ebb_error *error)
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
    return EBB_OK;
}

enum ebb_status ebb__simulate(const struct ebb_sim_request *request,
                              const struct ebb_sim_detail *detail, struct ebb_sim_result *result,
                              struct ebb_error *error)
{
    enum ebb_status status = absences_valid(request, error);
    if (status)
        return status;
    struct sim sim = {.request = request,
                      .detail = detail,
                      .model = request->model,
                      .lap_ns = ebb__model_iteration_ns(request->model),
                      .out.absence = NONE,
                      .in.absence = NONE,
                      .demanded = NONE};
    if (sim.lap_ns == 0)
        return ebb__fail(error, EBB_ERR_ARGUMENT, "simulate",
                         "the model's iteration takes no time");
    uint32_t *ready = malloc((request->absence_count + 1) * sizeof *ready);
    struct ready_key *keys = malloc((request->absence_count + 1) * sizeof *keys);
    if (!sim_allocate(&sim) || !ready || !keys) {
        status = ebb__fail(error, EBB_ERR_MEMORY, "simulate", "out of memory");
        goto out;
    }
    if (detail && detail->times)
        memset(detail->times, 0, request->absence_count * sizeof *detail->times);
    sim_index(&sim, ready, keys);
    sim_begin(&sim, ready);

    struct ebb_sim_result before = {0};
    for (uint32_t lap = 1; lap <= LAPS_MAX; lap++) {
        lap_run(&sim);
        *result = sim.lap;
        result->laps = lap;
        result->steady = lap > 1 && before.iteration_ns == sim.lap.iteration_ns &&
                         before.peak_bytes == sim.lap.peak_bytes &&
                         before.moved_in_bytes == sim.lap.moved_in_bytes;
        if (result->steady)
            break;
        before = sim.lap;
    }
out:
    sim_release(&sim);
    free(ready);
    free(keys);
    return status;
}
