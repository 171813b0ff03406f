/* How long the program waits under a plan: the iteration is carried out once more, step by step.
 *
 * This is the simulator's task, done again without its code, by the rules in src/sim/simulate.h. A
 * waiting program has one reason: its event needs memory, or a block. Everything else follows from
 * two lanes, each with one copy at most. The state is kept by absence, in chains instead of queues.
 * O((ticks + absences) log absences) an iteration. */
#include "check/internal.h"

#include <inttypes.h>
#include <stdlib.h>

#define NOBODY UINT32_MAX
#define TURNS_MOST 8 /* an iteration that still changes then is taken as it is */

enum phase { HERE, ASKED, LEAVING, AWAY, COMING };

/* Where an absence is in its course. */
struct course {
    uint32_t ready_tick;
    uint32_t next_out, next_in; /* chains of those that wait for a lane */
    uint8_t phase;
    bool is_due; /* its copy in may start */
};

struct chain {
    uint32_t head, tail;
};

struct lane_state {
    uint32_t absence;
    uint64_t half_ns; /* left; halves, since two copies may share the bandwidth */
};

/* The absences in the order of one key. */
struct place {
    uint64_t key, then;
    uint32_t absence;
};

struct replay {
    const struct check *check;
    uint64_t budget;
    struct course *courses;
    uint32_t *ends_at;      /* by tick: the absence that ends there */
    struct place *by_ready; /* ready tick, then time to the planned start */
    struct place *by_in;    /* planned start of the copy in */
    uint32_t in_count;
    struct chain outs, ins;
    struct lane_state out, in;
    uint64_t resident, now_ns, clock_ns;
    uint32_t tick, ready_at, in_at;
    uint32_t awaited; /* the absence that the program waits for */
    uint64_t lacks;   /* the bytes that it waits for */
    bool waits;
};

static const struct ebb_absence *absence_of(const struct replay *replay, uint32_t i)
{
    return &replay->check->plan->absences[i];
}

static uint64_t bytes_of(const struct replay *replay, uint32_t i)
{
    return ebb__check_bytes(replay->check, absence_of(replay, i)->block);
}

static uint64_t copy_halves(const struct ebb_lane *lane, uint64_t bytes)
{
    return 2 * ebb__lane_ns(lane, bytes);
}

static void chain_add(struct replay *replay, struct chain *chain, uint32_t i, bool in)
{
    struct course *courses = replay->courses;
    *(in ? &courses[i].next_in : &courses[i].next_out) = NOBODY;
    if (chain->tail == NOBODY)
        chain->head = i;
    else
        *(in ? &courses[chain->tail].next_in : &courses[chain->tail].next_out) = i;
    chain->tail = i;
}

/* Takes the absence out of the chain. */
static void chain_drop(struct replay *replay, struct chain *chain, uint32_t i, bool in)
{
    struct course *courses = replay->courses;
    uint32_t before = NOBODY, at = chain->head;
    while (at != NOBODY && at != i) {
        before = at;
        at = in ? courses[at].next_in : courses[at].next_out;
    }
    if (at == NOBODY)
        return;
    uint32_t next = in ? courses[i].next_in : courses[i].next_out;
    if (before == NOBODY)
        chain->head = next;
    else
        *(in ? &courses[before].next_in : &courses[before].next_out) = next;
    if (chain->tail == i)
        chain->tail = before;
    *(in ? &courses[i].next_in : &courses[i].next_out) = NOBODY;
}

/* The absence is over: its block is here, or freed. */
static void settle(struct replay *replay, uint32_t i)
{
    struct course *course = &replay->courses[i];
    if (course->phase == ASKED)
        chain_drop(replay, &replay->outs, i, false);
    if (course->is_due)
        chain_drop(replay, &replay->ins, i, true);
    if (replay->out.absence == i)
        replay->out.absence = NOBODY;
    if (replay->in.absence == i)
        replay->in.absence = NOBODY;
    course->phase = HERE;
    course->is_due = false;
}

static void fetch(struct replay *replay, uint32_t i)
{
    replay->courses[i].phase = COMING;
    replay->in = (struct lane_state){
        i, copy_halves(&replay->check->request->machine->in, bytes_of(replay, i))};
    replay->resident += bytes_of(replay, i);
}

/* ---- one instant: copies end, events happen, copies become due and start --------------------- */

static bool copies_end(struct replay *replay)
{
    bool any = false;
    if (replay->out.absence != NOBODY && replay->out.half_ns == 0) {
        uint32_t i = replay->out.absence;
        replay->courses[i].phase = AWAY;
        replay->resident -= bytes_of(replay, i);
        replay->out.absence = NOBODY;
        any = true;
    }
    if (replay->in.absence != NOBODY && replay->in.half_ns == 0) {
        settle(replay, replay->in.absence);
        any = true;
    }
    return any;
}

/* What the event needs; false: it waits. `force`: nothing will ever bring what it needs. */
static bool event_can(struct replay *replay, bool force)
{
    const struct check *check = replay->check;
    const struct ebb_model_event *event = &check->model->events[replay->tick];
    uint32_t i = replay->ends_at[replay->tick];
    if (event->block == EBB_TICK_NONE)
        return true;
    bool concerned = i != NOBODY && replay->courses[i].phase != HERE;
    uint64_t bytes = check->lives[event->block].bytes;
    if (event->kind == EBB_EVENT_ALLOC) {
        if (!force && replay->resident + bytes > replay->budget) {
            replay->lacks = bytes;
            return false;
        }
        replay->resident += bytes;
    } else if (event->kind == EBB_EVENT_FREE) {
        if (!concerned || replay->courses[i].phase != AWAY)
            replay->resident -= bytes;
        if (concerned)
            settle(replay, i);
    } else if (concerned && replay->courses[i].phase < AWAY) {
        settle(replay, i);
    } else if (concerned) {
        if (force && replay->in.absence == NOBODY)
            fetch(replay, i);
        replay->awaited = i;
        return false;
    }
    return true;
}

/* Absences that are ready at this event ask for the lane. */
static void absences_ask(struct replay *replay)
{
    for (; replay->ready_at < replay->check->plan->absence_count &&
           replay->by_ready[replay->ready_at].key <= replay->tick;
         replay->ready_at++) {
        uint32_t i = replay->by_ready[replay->ready_at].absence;
        if (replay->courses[i].phase != HERE)
            continue;
        replay->courses[i].phase = ASKED;
        chain_add(replay, &replay->outs, i, false);
    }
}

static bool events_happen(struct replay *replay, bool force)
{
    const struct ebb_model *model = replay->check->model;
    bool any = false;
    while (replay->tick < model->tick_count && model->time_ns[replay->tick] <= replay->clock_ns) {
        if (!replay->waits)
            absences_ask(replay);
        replay->waits = !event_can(replay, force);
        if (replay->waits)
            return any;
        replay->awaited = NOBODY;
        replay->lacks = 0;
        replay->tick++;
        any = true;
        force = false;
    }
    return any;
}

static bool copies_begin(struct replay *replay)
{
    const struct ebb_machine *machine = replay->check->request->machine;
    bool any = false;
    for (; replay->in_at < replay->in_count && replay->by_in[replay->in_at].key <= replay->clock_ns;
         replay->in_at++) {
        uint32_t i = replay->by_in[replay->in_at].absence;
        struct course *course = &replay->courses[i];
        if (course->phase == HERE || course->phase == COMING || course->is_due)
            continue;
        course->is_due = true;
        chain_add(replay, &replay->ins, i, true);
        any = true;
    }
    if (replay->out.absence == NOBODY && replay->outs.head != NOBODY) {
        uint32_t i = replay->outs.head;
        chain_drop(replay, &replay->outs, i, false);
        replay->courses[i].phase = LEAVING;
        replay->out = (struct lane_state){i, copy_halves(&machine->out, bytes_of(replay, i))};
        any = true;
    }
    if (replay->in.absence != NOBODY)
        return any;
    uint32_t i = replay->awaited;
    if (i == NOBODY || replay->courses[i].phase != AWAY) {
        i = replay->ins.head;
        while (i != NOBODY && replay->courses[i].phase != AWAY)
            i = replay->courses[i].next_in;
    }
    if (i == NOBODY || replay->resident + bytes_of(replay, i) + replay->lacks > replay->budget)
        return any;
    fetch(replay, i);
    return true;
}

/* The time to the next end of a copy, event or start. False: there is none. */
static bool time_goes_on(struct replay *replay)
{
    const struct ebb_model *model = replay->check->model;
    bool both = replay->out.absence != NOBODY && replay->in.absence != NOBODY;
    uint64_t halves = both && !replay->check->request->machine->duplex ? 1 : 2;
    uint64_t step = UINT64_MAX;
    if (!replay->waits) {
        uint64_t next = model->time_ns[replay->tick];
        if (replay->in_at < replay->in_count && replay->by_in[replay->in_at].key < next)
            next = replay->by_in[replay->in_at].key;
        step = next - replay->clock_ns;
    }
    struct lane_state *lanes[] = {&replay->out, &replay->in};
    for (int l = 0; l < 2; l++)
        if (lanes[l]->absence != NOBODY && (lanes[l]->half_ns + halves - 1) / halves < step)
            step = (lanes[l]->half_ns + halves - 1) / halves;
    if (step == UINT64_MAX)
        return false;
    for (int l = 0; l < 2; l++)
        lanes[l]->half_ns -= lanes[l]->half_ns < step * halves ? lanes[l]->half_ns : step * halves;
    replay->now_ns += step;
    replay->clock_ns += replay->waits ? 0 : step;
    return true;
}

/* One iteration; returns its duration. */
static uint64_t turn(struct replay *replay)
{
    uint64_t began_ns = replay->now_ns;
    replay->tick = replay->ready_at = replay->in_at = 0;
    replay->clock_ns = 0;
    for (;;) {
        bool any = copies_end(replay);
        any |= events_happen(replay, false);
        any |= copies_begin(replay);
        if (any)
            continue;
        if (replay->tick == replay->check->model->tick_count &&
            replay->clock_ns >= replay->check->turn_ns)
            return replay->now_ns - began_ns;
        if (!time_goes_on(replay))
            events_happen(replay, true);
    }
}

/* What one iteration passes on to the next. */
struct border {
    struct course *courses;
    struct chain outs, ins;
    struct lane_state out, in;
    uint64_t resident;
};

static bool lane_is(const struct lane_state *lane, const struct lane_state *was)
{
    return lane->absence == was->absence &&
           (lane->absence == NOBODY || lane->half_ns == was->half_ns);
}

/* True if the iteration has ended where it began: all that follow are the same. Sets *border. */
static bool border_is_same(const struct replay *replay, struct border *border)
{
    uint32_t count = replay->check->plan->absence_count;
    bool same = replay->resident == border->resident && lane_is(&replay->out, &border->out) &&
                lane_is(&replay->in, &border->in) && replay->outs.head == border->outs.head &&
                replay->ins.head == border->ins.head;
    for (uint32_t i = 0; i < count; i++) {
        const struct course *now = &replay->courses[i], *was = &border->courses[i];
        same &= now->phase == was->phase && now->is_due == was->is_due &&
                now->next_out == was->next_out && now->next_in == was->next_in;
        border->courses[i] = *now;
    }
    border->outs = replay->outs;
    border->ins = replay->ins;
    border->out = replay->out;
    border->in = replay->in;
    border->resident = replay->resident;
    return same;
}

/* ---- before the first iteration -------------------------------------------------------------- */

static int place_compare(const void *left, const void *right)
{
    const struct place *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    if (a->then != b->then)
        return a->then < b->then ? -1 : 1;
    return (a->absence > b->absence) - (a->absence < b->absence);
}

static void begin(struct replay *replay)
{
    const struct check *check = replay->check;
    const struct ebb_model *model = check->model;
    for (uint32_t b = 0; b < model->block_count; b++) {
        const struct life *life = &check->lives[b];
        uint64_t times = 1;
        if (life->alloc_tick != EBB_TICK_NONE)
            times = (life->alloc_tick + life->span_ticks) / model->tick_count;
        replay->resident += times * life->bytes;
    }
    for (uint32_t t = 0; t < model->tick_count; t++)
        replay->ends_at[t] = NOBODY;
    for (uint32_t i = 0; i < check->plan->absence_count; i++) {
        const struct ebb_absence *absence = absence_of(replay, i);
        uint32_t after = (absence->from_tick + absence->margin_ticks) % model->tick_count;
        uint32_t ready = absence->out_within ? after : check->next_clock[after];
        uint64_t ready_ns = model->time_ns[ready] % check->turn_ns;
        uint64_t start_ns = absence->out_start_ns % check->turn_ns;
        replay->courses[i] =
            (struct course){.ready_tick = ready, .next_out = NOBODY, .next_in = NOBODY};
        replay->ends_at[absence->to_tick] = i;
        replay->by_ready[i] =
            (struct place){ready, (start_ns + check->turn_ns - ready_ns) % check->turn_ns, i};
        if (!absence->drops)
            replay->by_in[replay->in_count++] =
                (struct place){absence->in_start_ns % check->turn_ns, 0, i};
        if (absence->to_tick <= ready && (absence->drops || absence->in_start_ns % check->turn_ns <=
                                                                model->time_ns[absence->to_tick])) {
            replay->courses[i].phase = AWAY;
            replay->resident -= bytes_of(replay, i);
        }
    }
    qsort(replay->by_ready, check->plan->absence_count, sizeof *replay->by_ready, place_compare);
    qsort(replay->by_in, replay->in_count, sizeof *replay->by_in, place_compare);
}

enum ebb_status ebb__check_replay(struct check *check, uint64_t *stall_ns)
{
    uint32_t count = check->plan->absence_count;
    struct replay replay = {.check = check,
                            .budget = check->plan->searched_bytes ? check->plan->searched_bytes
                                                                  : check->plan->budget_bytes,
                            .outs = {NOBODY, NOBODY},
                            .ins = {NOBODY, NOBODY},
                            .out.absence = NOBODY,
                            .in.absence = NOBODY,
                            .awaited = NOBODY};
    struct border border = {.courses = calloc(count + 1u, sizeof *border.courses)};
    replay.courses = calloc(count + 1u, sizeof *replay.courses);
    replay.by_ready = calloc(count + 1u, sizeof *replay.by_ready);
    replay.by_in = calloc(count + 1u, sizeof *replay.by_in);
    replay.ends_at = malloc(check->model->tick_count * sizeof *replay.ends_at);
    bool known =
        border.courses && replay.courses && replay.by_ready && replay.by_in && replay.ends_at;
    uint64_t turn_ns = 0;
    if (known) {
        begin(&replay);
        border_is_same(&replay, &border);
    }
    for (int i = 0; known && i < TURNS_MOST; i++) {
        turn_ns = turn(&replay);
        if (border_is_same(&replay, &border))
            break;
    }
    *stall_ns = known ? turn_ns - check->turn_ns : 0;
    free(border.courses);
    free(replay.courses);
    free(replay.by_ready);
    free(replay.by_in);
    free(replay.ends_at);
    return known ? EBB_OK : EBB_ERR_MEMORY;
}
