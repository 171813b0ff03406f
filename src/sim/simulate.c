/* Method: one event loop on two clocks. The real clock always runs; the model clock stands still
 * while an event must wait. The next event is the end of a transfer, an event of the model or the
 * start of a copy in. Iterations are run until one ends in the state in which it began. */
#include "sim/state.h"

#include <stdlib.h>
#include <string.h>

static void queue_push(struct queue *queue, uint32_t item)
{
    queue->items[queue->end++] = item;
}

static uint64_t absence_bytes(const struct sim *sim, uint32_t absence)
{
    return sim->block_bytes[ebb__sim_block(sim, absence)];
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
    bool planned = absence < sim->request->absence_count;
    return sim->detail && sim->detail->times && planned ? &sim->detail->times[absence] : NULL;
}

static void absence_end(struct sim *sim, uint32_t absence)
{
    sim->state[absence] = RESIDENT;
    sim->wanted_in[absence] = false;
    ebb__passive_end(sim, absence);
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

static void absence_ready(struct sim *sim, uint32_t absence)
{
    if (sim->state[absence] != RESIDENT || !ebb__sim_is_first_of_gap(sim, absence))
        return;
    struct ebb_sim_times *times = times_of(sim, absence);
    bool allowed = ebb__passive_allows(sim, absence);
    if (times && !allowed)
        times->cancelled = true;
    if (!allowed)
        return;
    sim->state[absence] = QUEUED;
    ebb__passive_begin(sim, absence);
    queue_push(&sim->out_queue, absence);
}

/* The first absence that waits for its fetch and is evicted; NONE if there is none. One that is not
 * evicted yet does not delay those behind it. */
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

/* Starts the transfers that the lanes can take now. Returns true if something started. */
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
    uint32_t absence = sim->wait.demanded != NONE && sim->state[sim->wait.demanded] == EVICTED
                           ? sim->wait.demanded
                           : in_queue_head(sim);
    if (absence == NONE)
        return started;
    uint64_t bytes =
        absence_bytes(sim, absence) + (sim->wait.kind == WAIT_ROOM ? sim->wait.bytes : 0);
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

/* Returns false if there is no memory. */
static bool block_begin(struct sim *sim, uint64_t bytes, bool forced, uint64_t waited_ns)
{
    if (!forced && !fits(sim, bytes)) {
        sim->wait.kind = WAIT_ROOM;
        sim->wait.bytes = bytes;
        return false;
    }
    take(sim, bytes);
    if (sim->wait.kind == WAIT_ROOM)
        sim->lap.room_stall_ns += waited_ns;
    return true;
}

/* `absence`: the one that keeps the block evicted or tries to; or NONE. */
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

/* Returns false if the block is not resident. */
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
    sim->wait.kind = WAIT_BLOCK;
    sim->wait.demanded = absence;
    return false;
}

/* True if a copy out is running, or was requested and waits for the lane. */
static bool is_writing_back(const struct sim *sim)
{
    bool writing = sim->out.absence != NONE;
    for (uint32_t i = sim->out_queue.first; !writing && i < sim->out_queue.end; i++)
        writing = sim->state[sim->out_queue.items[i]] == QUEUED;
    return writing;
}

/* Returns false if the event at sim->tick waits at a barrier: for copies out, or for a block whose
 * absence ends before the next barrier. */
static bool barrier_pass(struct sim *sim, bool forced)
{
    const struct ebb_plan_rules *rules = sim->request->rules;
    uint32_t ticks = sim->model->tick_count;
    if (!rules || sim->barrier == rules->barrier_count ||
        rules->barriers[sim->barrier] != sim->tick)
        return true;
    if (sim->wait.kind != WAIT_BARRIER)
        sim->wait.passed = 0;
    sim->wait.kind = WAIT_BARRIER;
    sim->wait.demanded = NONE;
    if (is_writing_back(sim))
        return false;
    uint32_t next = rules->barriers[(sim->barrier + 1) % rules->barrier_count];
    uint32_t length = (next + ticks - sim->tick - 1) % ticks + 1;
    for (; sim->wait.passed < length; sim->wait.passed++) {
        uint32_t absence = sim->ending[(sim->tick + sim->wait.passed) % ticks];
        if (absence == NONE || sim->state[absence] == RESIDENT ||
            sim->request->absences[absence].drops)
            continue;
        if (forced && sim->in.absence == NONE && sim->state[absence] == EVICTED)
            in_begin(sim, absence);
        sim->wait.demanded = absence;
        return false;
    }
    sim->wait.kind = WAIT_NONE;
    sim->barrier++;
    return true;
}

/* Applies the event at sim->tick to its block; returns false if it must wait. */
static bool event_apply(struct sim *sim, bool forced, uint64_t waited_ns)
{
    const struct ebb_model_event *event = &sim->model->events[sim->tick];
    if (event->block == EBB_TICK_NONE)
        return true;
    uint64_t bytes = sim->block_bytes[event->block];
    uint32_t absence = ebb__passive_absence(sim, event, sim->ending[sim->tick]);
    if (absence != NONE &&
        (sim->state[absence] == RESIDENT || ebb__sim_block(sim, absence) != event->block))
        absence = NONE;
    switch (event->kind) {
    case EBB_EVENT_ALLOC:
        return block_begin(sim, bytes, forced, waited_ns);
    case EBB_EVENT_FREE:
        block_end(sim, sim->freed_bytes[event->block], absence);
        return true;
    case EBB_EVENT_ACCESS:
    case EBB_EVENT_LAUNCH:
        return block_use(sim, absence, forced);
    default:
        return true;
    }
}

/* Executes the event at sim->tick; returns false if it must wait. `forced` exceeds the budget. */
static bool event_happen(struct sim *sim, bool forced)
{
    bool waited = sim->wait.kind != WAIT_NONE;
    if (!waited)
        for (uint32_t i = sim->ready_first[sim->tick]; i < sim->ready_first[sim->tick + 1]; i++)
            absence_ready(sim, sim->ready_list[i]);
    uint64_t waited_ns = waited ? sim->now_ns - sim->wait.since_ns : 0;
    if (!barrier_pass(sim, forced) || !event_apply(sim, forced, waited_ns)) {
        if (!waited)
            sim->wait.since_ns = sim->now_ns;
        return false;
    }
    struct ebb_sim_times *times =
        sim->wait.demanded != NONE ? times_of(sim, sim->wait.demanded) : NULL;
    if (times)
        times->stall_ns = waited_ns;
    if (sim->detail && sim->detail->tick_stall_ns)
        sim->detail->tick_stall_ns[sim->tick] = waited_ns;
    ebb__passive_event(sim, &sim->model->events[sim->tick]);
    sim->wait.kind = WAIT_NONE;
    sim->wait.demanded = NONE;
    sim->tick++;
    return true;
}

static bool triggers_fire(struct sim *sim)
{
    bool fired = false;
    while (sim->triggers.next < sim->triggers.count && sim->wait.kind != WAIT_BARRIER) {
        uint32_t absence = sim->triggers.items[sim->triggers.next].absence;
        if (sim->triggers.items[sim->triggers.next].in_start_ns > sim->model_ns)
            break;
        sim->triggers.next++;
        if (sim->state[absence] == RESIDENT || sim->state[absence] == FETCHING ||
            sim->wanted_in[absence])
            continue;
        sim->wanted_in[absence] = true;
        queue_push(&sim->in_queue, absence);
        fired = true;
    }
    return fired;
}

/* Advances time to the next event. Returns false if there will never be one. */
static bool time_pass(struct sim *sim)
{
    bool both = sim->out.absence != NONE && sim->in.absence != NONE;
    uint64_t rate = both && !sim->request->machine->duplex ? 1 : 2; /* in half nanoseconds per
                                                                       nanosecond */
    uint64_t step = UINT64_MAX;
    if (sim->wait.kind == WAIT_NONE) {
        uint64_t next_ns =
            sim->tick < sim->model->tick_count ? sim->model->time_ns[sim->tick] : sim->lap_ns;
        if (sim->triggers.next < sim->triggers.count) {
            uint64_t in_ns = sim->triggers.items[sim->triggers.next].in_start_ns;
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
    if (sim->wait.kind == WAIT_NONE)
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
    sim->tick = sim->triggers.next = sim->barrier = 0;
    sim->model_ns = 0;
    ebb__passive_lap(sim);
    for (;;) {
        /* At one instant: ends first, then events, then starts. */
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
        if (!time_pass(sim) && !ebb__passive_evict(sim)) {
            sim->lap.feasible = false;
            event_happen(sim, true);
        }
    }
    sim->lap.iteration_ns = sim->now_ns - began_ns;
    sim->lap.stall_ns = sim->lap.iteration_ns - sim->lap_ns;
}

/* Whether the iteration is like all later ones. Of a passive plan, only the figures are compared.
 * `began`: the digest at its start, then that at its end. False: out of memory. */
static bool lap_is_steady(const struct sim *sim, const struct ebb_sim_result *before,
                          uint64_t *began, bool *steady)
{
    uint64_t first = *began;
    if (!sim->passive) {
        bool known = ebb__sim_digest(sim, began);
        *steady = known && *began == first;
        return known;
    }
    *steady = before->iteration_ns == sim->lap.iteration_ns &&
              before->peak_bytes == sim->lap.peak_bytes &&
              before->moved_out_bytes == sim->lap.moved_out_bytes &&
              before->moved_in_bytes == sim->lap.moved_in_bytes;
    return true;
}

enum ebb_status ebb__simulate(const struct ebb_sim_request *request,
                              const struct ebb_sim_detail *detail, struct ebb_sim_result *result,
                              struct ebb_error *error)
{
    enum ebb_status status = ebb__sim_check(request, error);
    if (status)
        return status;
    struct sim sim = {.request = request,
                      .detail = detail,
                      .model = request->model,
                      .lap_ns = ebb__model_iteration_ns(request->model),
                      .out.absence = NONE,
                      .in.absence = NONE,
                      .wait.demanded = NONE};
    if (sim.lap_ns == 0)
        return ebb__fail(error, EBB_ERR_ARGUMENT, "simulate",
                         "the model's iteration takes no time");
    uint32_t *ready = malloc((request->absence_count + 1) * sizeof *ready);
    if (!ready || !ebb__passive_init(&sim) || !ebb__sim_allocate(&sim) ||
        ebb__sim_index(&sim, ready) != EBB_OK) {
        status = ebb__fail(error, EBB_ERR_MEMORY, "simulate", "out of memory");
        goto out;
    }
    if (detail && detail->times)
        memset(detail->times, 0, request->absence_count * sizeof *detail->times);
    ebb__sim_begin(&sim, ready);

    struct ebb_sim_result before = {0};
    uint64_t began = 0;
    bool known = ebb__sim_digest(&sim, &began);
    for (uint32_t lap = 1; known && lap <= ebb__sim_laps_most(&sim); lap++) {
        lap_run(&sim);
        *result = sim.lap;
        result->laps = lap;
        known = lap_is_steady(&sim, &before, &began, &result->steady);
        if (!ebb__passive_go_on(&sim, lap, result) && result->steady)
            break;
        before = sim.lap;
    }
    if (!known)
        status = ebb__fail(error, EBB_ERR_MEMORY, "simulate", "out of memory");
out:
    ebb__sim_release(&sim);
    ebb__passive_fini(&sim);
    free(ready);
    return status;
}
