/* How long the program waits: simulator, checker and a brute force agree on 3,000 small models. The
 * brute force knows the rules of src/sim/simulate.h and steps through time nanosecond by
 * nanosecond. Some models are random. Others resemble a training: their lanes are never idle, so
 * iterations under a plan may differ for long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/tuning.h"
#include "check/check.h"
#include "plan/swap/swap.h"
#include "samples.h"
#include "synthetic.h"

#include <stdint.h>

#define MOST 256 /* absences of a small model */
#define NEVER UINT32_MAX

enum where { AT_HOME, IN_LINE, GOING, GONE, RETURNING };

struct brute {
    const struct ebb_model *model;
    const struct ebb_machine *machine;
    const struct ebb_plan *plan;
    uint64_t page_bytes;
    enum where where[MOST];
    uint64_t line_no[MOST]; /* place in the line of copies out */
    uint64_t due_no[MOST];  /* the same for copies in; 0: not due */
    uint32_t ready[MOST];
    uint64_t out_left, in_left; /* half nanoseconds */
    uint32_t out, in, demanded;
    uint64_t resident, next_no, lacking;
};

static uint64_t rounded(const struct brute *brute, uint32_t block)
{
    uint64_t size = brute->model->blocks[block].size_bytes, page = brute->page_bytes;
    return (size + page - 1) / page * page;
}

static uint64_t size_of(const struct brute *brute, uint32_t i)
{
    return rounded(brute, brute->plan->absences[i].block);
}

static uint32_t ending_at(const struct brute *brute, uint32_t tick)
{
    for (uint32_t i = 0; i < brute->plan->absence_count; i++)
        if (brute->plan->absences[i].to_tick == tick)
            return i;
    return NEVER;
}

static void go_home(struct brute *brute, uint32_t i)
{
    brute->out = brute->out == i ? NEVER : brute->out;
    brute->in = brute->in == i ? NEVER : brute->in;
    brute->where[i] = AT_HOME;
    brute->due_no[i] = 0;
}

static void come(struct brute *brute, uint32_t i)
{
    brute->where[i] = RETURNING;
    brute->in = i;
    brute->in_left = 2 * ebb__lane_ns(&brute->machine->in, size_of(brute, i));
    brute->resident += size_of(brute, i);
}

/* Absences that are ready at the tick get in line: those with the earlier planned start first. */
static void get_in_line(struct brute *brute, uint32_t tick)
{
    uint64_t lap = ebb__model_iteration_ns(brute->model);
    for (;;) {
        uint32_t first = NEVER;
        uint64_t first_ns = 0;
        for (uint32_t i = 0; i < brute->plan->absence_count; i++) {
            uint64_t ns =
                (brute->plan->absences[i].out_start_ns + 2 * lap - brute->model->time_ns[tick]) %
                lap;
            if (brute->ready[i] == tick && brute->where[i] == AT_HOME &&
                (first == NEVER || ns < first_ns)) {
                first = i;
                first_ns = ns;
            }
        }
        if (first == NEVER)
            return;
        brute->where[first] = IN_LINE;
        brute->line_no[first] = ++brute->next_no;
    }
}

/* False: the event waits. */
static bool happens(struct brute *brute, uint32_t tick, bool force)
{
    const struct ebb_model_event *event = &brute->model->events[tick];
    if (event->block == EBB_TICK_NONE)
        return true;
    uint64_t bytes = rounded(brute, event->block);
    uint32_t i = ending_at(brute, tick);
    if (event->kind == EBB_EVENT_ALLOC) {
        if (!force && brute->resident + bytes > brute->plan->budget_bytes) {
            brute->lacking = bytes;
            return false;
        }
        brute->resident += bytes;
    } else if (event->kind == EBB_EVENT_FREE) {
        if (i == NEVER || brute->where[i] != GONE)
            brute->resident -= bytes;
        if (i != NEVER)
            go_home(brute, i);
    } else if (i != NEVER && brute->where[i] >= GONE) {
        if (force && brute->in == NEVER)
            come(brute, i);
        brute->demanded = i;
        return false;
    } else if (i != NEVER) {
        go_home(brute, i);
    }
    brute->demanded = NEVER;
    brute->lacking = 0;
    return true;
}

static uint32_t lowest(const struct brute *brute, const uint64_t *number, enum where where)
{
    uint32_t best = NEVER;
    for (uint32_t i = 0; i < brute->plan->absence_count; i++)
        if (brute->where[i] == where && number[i] && (best == NEVER || number[i] < number[best]))
            best = i;
    return best;
}

static void become_due(struct brute *brute, uint64_t clock_ns)
{
    const struct ebb_plan *plan = brute->plan;
    uint64_t lap = ebb__model_iteration_ns(brute->model);
    for (uint32_t i = 0; i < plan->absence_count; i++)
        if (!plan->absences[i].drops && plan->absences[i].in_start_ns % lap == clock_ns &&
            brute->where[i] != AT_HOME && brute->where[i] != RETURNING && !brute->due_no[i])
            brute->due_no[i] = ++brute->next_no;
}

static bool lanes_move(struct brute *brute)
{
    bool moved = false;
    uint32_t i = lowest(brute, brute->line_no, IN_LINE);
    if (brute->out == NEVER && i != NEVER) {
        brute->where[i] = GOING;
        brute->out = i;
        brute->out_left = 2 * ebb__lane_ns(&brute->machine->out, size_of(brute, i));
        moved = true;
    }
    i = brute->demanded;
    if (i == NEVER || brute->where[i] != GONE)
        i = lowest(brute, brute->due_no, GONE);
    if (brute->in == NEVER && i != NEVER &&
        brute->resident + size_of(brute, i) + brute->lacking <= brute->plan->budget_bytes) {
        come(brute, i);
        moved = true;
    }
    return moved;
}

static bool lanes_end(struct brute *brute)
{
    bool ended = false;
    if (brute->out != NEVER && brute->out_left == 0) {
        brute->where[brute->out] = GONE;
        brute->resident -= size_of(brute, brute->out);
        brute->out = NEVER;
        ended = true;
    }
    if (brute->in != NEVER && brute->in_left == 0) {
        go_home(brute, brute->in);
        ended = true;
    }
    return ended;
}

static uint64_t lap_run(struct brute *brute)
{
    const struct ebb_model *model = brute->model;
    uint64_t lap = ebb__model_iteration_ns(model), clock = 0, stall = 0;
    uint32_t tick = 0;
    bool waits = false, due = true;
    for (;;) {
        bool moved = lanes_end(brute);
        while (tick < model->tick_count && model->time_ns[tick] <= clock) {
            if (!waits)
                get_in_line(brute, tick);
            waits = !happens(brute, tick, false);
            if (waits)
                break;
            tick++;
            moved = true;
        }
        if (due)
            become_due(brute, clock);
        due = false;
        moved |= lanes_move(brute);
        if (moved)
            continue;
        if (clock == lap && tick == model->tick_count)
            return stall;
        if (waits && brute->out == NEVER && brute->in == NEVER) {
            waits = !happens(brute, tick, true);
            tick += !waits;
            continue;
        }
        uint64_t rate = brute->machine->duplex || brute->out == NEVER || brute->in == NEVER ? 2 : 1;
        brute->out_left -= brute->out_left < rate ? brute->out_left : rate;
        brute->in_left -= brute->in_left < rate ? brute->in_left : rate;
        stall += waits;
        clock += !waits;
        due = !waits;
    }
}

/* The event at which the absence gets in line. */
static uint32_t ready_tick(const struct ebb_model *model, const struct ebb_absence *absence)
{
    uint32_t tick = absence->from_tick, left = absence->margin_ticks, ticks = model->tick_count;
    while (left-- > 0)
        tick = (tick + 1) % ticks;
    while (!absence->out_within) {
        tick = (tick + 1) % ticks;
        if (model->events[tick].clock || model->clock_count == 0)
            break;
    }
    return tick;
}

static uint64_t brute_stall(const struct ebb_plan_request *request, const struct ebb_plan *plan)
{
    const struct ebb_model *model = request->model;
    struct brute brute = {.model = model,
                          .machine = request->machine,
                          .plan = plan,
                          .page_bytes = request->page_bytes,
                          .out = NEVER,
                          .in = NEVER,
                          .demanded = NEVER};
    uint64_t lap = ebb__model_iteration_ns(model);
    assert_true(plan->absence_count < MOST);
    for (uint32_t b = 0; b < model->block_count; b++) {
        const struct ebb_model_block *block = &model->blocks[b];
        bool persistent = block->alloc_tick == EBB_TICK_NONE;
        uint64_t end = (uint64_t)block->alloc_tick + block->span_ticks;
        brute.resident += rounded(&brute, b) * (persistent ? 1 : end / model->tick_count);
    }
    for (uint32_t i = 0; i < plan->absence_count; i++) {
        const struct ebb_absence *absence = &plan->absences[i];
        brute.ready[i] = ready_tick(model, absence);
        if (absence->to_tick <= brute.ready[i] &&
            (absence->drops || absence->in_start_ns % lap <= model->time_ns[absence->to_tick])) {
            brute.where[i] = GONE;
            brute.resident -= size_of(&brute, i);
        }
    }
    uint64_t before = UINT64_MAX, stall = 0;
    for (int turn = 0; turn < 8; turn++) {
        before = stall;
        stall = lap_run(&brute);
    }
    return stall == before ? stall : UINT64_MAX; /* the last iterations differ */
}

/* A plan of gaps and copies in by chance. Some copies are planned for the use itself. */
static struct ebb_plan plan_by_chance(const struct ebb_plan_request *request, uint64_t *state)
{
    struct ebb_swap swap;
    struct ebb_plan plan = {.policy = "chance"};
    uint64_t most = 2 + chance(state) % 8;
    bool late = chance(state) % 3 == 0;
    bool within = chance(state) % 2;
    enum ebb_status status =
        within ? ebb__swap_init_within(&swap, request, NULL) : ebb__swap_init(&swap, request, NULL);
    assert_int_equal(status, EBB_OK);
    for (uint32_t i = 0; i < swap.gap_count; i++) {
        struct ebb_swap_gap *gap = &swap.gaps[i];
        uint64_t length = gap->need_ns - gap->ready_ns;
        gap->taken = chance(state) % 10 < most;
        gap->trigger_ns = gap->ready_ns + chance(state) % (length + 1);
        if (late && chance(state) % 2)
            gap->trigger_ns = gap->need_ns;
        gap->trigger_ns %= swap.lap_ns;
    }
    assert_int_equal(ebb__swap_finish(&swap, &plan, NULL), EBB_OK);
    ebb__swap_fini(&swap);
    return plan;
}

/* Some events are no clock events, like those of the later parts of a block. The stretches between
 * clock events are then long enough for absences within them. */
static void clocks_thin(struct ebb_model *model, uint64_t *state)
{
    uint64_t most = chance(state) % 8;
    model->clock_count = 0;
    for (uint32_t t = 0; t < model->tick_count; t++) {
        model->events[t].clock &= chance(state) % 8 >= most;
        model->clock_count += model->events[t].clock;
    }
    assert_int_equal(ebb__model_derive(model, NULL), EBB_OK);
}

/* What is seen over all models. */
struct seen {
    uint32_t models, trainings, stalled, shared, within, unsteady;
};

static void agree(const struct ebb_plan_request *request, struct ebb_plan *plan,
                  unsigned long long seed, struct seen *seen)
{
    struct ebb_check_request check = {request->model, request->machine, request->budget_bytes,
                                      request->page_bytes};
    struct ebb_error error;
    uint64_t stall = plan->feasible ? brute_stall(request, plan) : UINT64_MAX;
    if (plan->feasible && stall == UINT64_MAX)
        seen->unsteady++;
    if (stall == UINT64_MAX || plan->absence_count == 0)
        return;
    if (plan->stall_ns != stall)
        fail_msg("seed %llu: simulated %llu, by brute force %llu", seed,
                 (unsigned long long)plan->stall_ns, (unsigned long long)stall);
    if (ebb__check_plan(&check, plan, &error) != EBB_OK)
        fail_msg("seed %llu: %s", seed, error.why);
    bool within = false;
    for (uint32_t i = 0; i < plan->absence_count; i++)
        within |= plan->absences[i].out_within;
    /* The checker knows the stall by itself. */
    plan->stall_ns++;
    plan->iteration_ns++;
    assert_int_equal(ebb__check_plan(&check, plan, NULL), EBB_ERR_FORMAT);
    seen->models++;
    seen->stalled += stall > 0;
    seen->shared += stall > 0 && !request->machine->duplex;
    seen->within += within;
}

static void all_three_agree(void **state)
{
    (void)state;
    struct seen seen = {0};
    assert_int_equal(ebb__tuning_set("within_ns=1us", NULL), EBB_OK);
    assert_int_equal(ebb__tuning_set("within_ticks=2", NULL), EBB_OK);
    for (uint64_t seed = 1; seen.models < samples(3000); seed++) {
        uint64_t by = seed * 0x9e3779b97f4a7c15u | 1;
        bool trains = seed % 3 > 0;
        uint32_t layers = 2 + (uint32_t)(chance(&by) % 5);
        struct ebb_model model = trains
                                     ? make_training(layers, layers * 30000u, layers * 1000u, seed)
                                     : make_random(seed, 12 + (uint32_t)(seed % 4) * 6, 300, 2500);
        if (chance(&by) % 2)
            clocks_thin(&model, &by);
        double scale = trains ? 0.02 : 1;
        struct ebb_machine machine = {
            "small",
            {scale * (double)(1 + chance(&by) % 4), chance(&by) % 100},
            {scale * (double)(1 + chance(&by) % 4) / 2, chance(&by) % 100},
            chance(&by) % 2,
            EBB_NO_COSTS};
        uint64_t percent = 50 + chance(&by) % 50;
        struct ebb_plan_request request = {.model = &model,
                                           .machine = &machine,
                                           .budget_bytes = model.peak_bytes * percent / 100,
                                           .page_bytes = chance(&by) % 2 ? 1 : 64};
        struct ebb_plan plan = plan_by_chance(&request, &by);
        uint32_t before = seen.models;
        agree(&request, &plan, seed, &seen);
        seen.trainings += trains && seen.models > before;
        ebb__plan_fini(&plan);
        ebb__model_fini(&model);
    }
    print_message("%u models, %u like a training; %u stall, %u of them with a shared lane; %u "
                  "within stretches; %u not steady\n",
                  seen.models, seen.trainings, seen.stalled, seen.shared, seen.within,
                  seen.unsteady);
    assert_true(seen.stalled > samples(1000) && seen.shared > samples(300) &&
                seen.trainings > samples(1000) && seen.within > samples(100));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_three_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
