/* What a run measures itself: the lanes from transfers, the cost of page moves, and the pace from
 * iterations without observation. */
#include "parent/measured.h"

#include "base/tuning.h"
#include "parent/internal.h"

#include <stdlib.h>

/* Pages whose moves tell what a move costs: arbitrary, so that single slow ones do not count. */
enum { LEAST_HUGE_PAGES = 64, LEAST_SMALL_PAGES = 4096 };

struct lane_counts ebb__measured_counts(const struct process *process)
{
    const struct ebb_counters *counters = &process->stream.ring->counters;
    return (struct lane_counts){
        .out_bytes = atomic_load(&counters->out_lane_bytes),
        .in_bytes = atomic_load(&counters->in_lane_bytes),
        .out_busy_ns = atomic_load(&counters->out_busy_ns),
        .in_busy_ns = atomic_load(&counters->in_busy_ns),
        .both_busy_ns = atomic_load(&counters->both_busy_ns),
    };
}

/* Nanoseconds per byte of a lane that was `busy_ns` busy. If lanes share their bandwidth, time in
 * which both were busy counts half for each. Returns the assumed rate if too few bytes were
 * moved. */
static double measured_rate(uint64_t bytes, uint64_t busy_ns, uint64_t both_ns, bool duplex,
                            double assumed)
{
    if (bytes < ebb__tuning()->replan_lane_bytes)
        return assumed;
    double ns = (double)busy_ns - (duplex ? 0 : (double)both_ns / 2);
    return ns > 0 ? ns / (double)bytes : assumed;
}

void ebb__measured_lanes(const struct ebb_machine *assumed, const struct lane_counts *from,
                         const struct lane_counts *to, struct ebb_machine *measured)
{
    uint64_t both_ns = to->both_busy_ns - from->both_busy_ns;
    *measured = *assumed;
    measured->out.ns_per_byte =
        measured_rate(to->out_bytes - from->out_bytes, to->out_busy_ns - from->out_busy_ns, both_ns,
                      assumed->duplex, assumed->out.ns_per_byte);
    measured->in.ns_per_byte =
        measured_rate(to->in_bytes - from->in_bytes, to->in_busy_ns - from->in_busy_ns, both_ns,
                      assumed->duplex, assumed->in.ns_per_byte);
}

/* Nanoseconds of a page for a transfer, which moves it there and back. */
static double page_ns(uint64_t pages, uint64_t ns, uint64_t least, double assumed)
{
    return pages < least ? assumed : 2 * (double)ns / (double)pages;
}

struct ebb_transfer_costs ebb__measured_costs(const struct process *process,
                                              const struct ebb_machine *machine)
{
    const struct ebb_counters *counters = &process->stream.ring->counters;
    struct ebb_transfer_costs costs = machine->costs;
    costs.huge_page_ns =
        page_ns(atomic_load(&counters->moved_huge_pages), atomic_load(&counters->moved_huge_ns),
                LEAST_HUGE_PAGES, costs.huge_page_ns);
    costs.small_page_ns =
        page_ns(atomic_load(&counters->moved_small_pages), atomic_load(&counters->moved_small_ns),
                LEAST_SMALL_PAGES, costs.small_page_ns);
    return costs;
}

static bool differs(double assumed, double measured, double tolerance)
{
    return measured > assumed * (1 + tolerance) || measured < assumed / (1 + tolerance);
}

bool ebb__measured_differ(const struct ebb_machine *one, const struct ebb_machine *other,
                          double tolerance)
{
    return differs(one->out.ns_per_byte, other->out.ns_per_byte, tolerance) ||
           differs(one->in.ns_per_byte, other->in.ns_per_byte, tolerance);
}

/* The first tick from `tick` on with a clock event, or tick_count if there is none. */
static uint32_t clock_from(const struct ebb_model *model, uint32_t tick)
{
    while (tick < model->tick_count && !model->events[tick].clock)
        tick++;
    return tick;
}

/* Compares only clock events: accesses vary between observed iterations, and so do the parts that a
 * large block is modelled as. */
static bool same_clock(const struct ebb_model *model, const struct ebb_model *other)
{
    uint32_t own = clock_from(model, 0), others = clock_from(other, 0);
    while (own < model->tick_count && others < other->tick_count) {
        const struct ebb_model_event *left = &model->events[own], *right = &other->events[others];
        if (left->kind != right->kind || ebb__model_whole_bytes(&model->blocks[left->block]) !=
                                             ebb__model_whole_bytes(&other->blocks[right->block]))
            return false;
        own = clock_from(model, own + 1);
        others = clock_from(other, others + 1);
    }
    return own == model->tick_count && others == other->tick_count;
}

/* What an iteration takes whose intervals' minima have the sum `least_ns`. Each interval varies by
 * itself, so no iteration takes as little. */
static uint64_t whole_of(uint64_t least_ns, uint64_t own_ns, uint64_t other_ns, uint64_t work_ns)
{
    uint64_t shorter = own_ns < other_ns ? own_ns : other_ns, longer = own_ns + other_ns - shorter;
    if (work_ns == 0)
        return shorter;
    return work_ns < least_ns ? least_ns : work_ns > longer ? longer : work_ns;
}

bool ebb__measured_shorten(struct ebb_model *model, const struct ebb_model *other, uint64_t work_ns)
{
    if (model->clock_count != other->clock_count || !same_clock(model, other))
        return false;
    uint64_t *clock_ns = malloc(((size_t)model->clock_count + 1) * sizeof *clock_ns);
    if (!clock_ns)
        return false;
    uint64_t now_ns = 0, last_ns = 0, other_last_ns = 0;
    uint32_t tick = 0, other_tick = 0;
    for (uint32_t clock = 0; clock <= model->clock_count; clock++) {
        tick = clock_from(model, tick);
        other_tick = clock_from(other, other_tick);
        uint64_t own = model->time_ns[tick] - last_ns,
                 others = other->time_ns[other_tick] - other_last_ns;
        now_ns += own < others ? own : others;
        last_ns = model->time_ns[tick++];
        other_last_ns = other->time_ns[other_tick++];
        clock_ns[clock] = now_ns;
    }
    uint64_t whole_ns = whole_of(now_ns, last_ns, other_last_ns, work_ns);
    for (uint32_t clock = 0; now_ns && clock <= model->clock_count; clock++)
        clock_ns[clock] = (uint64_t)((double)clock_ns[clock] / (double)now_ns * (double)whole_ns);
    ebb__model_retime(model, clock_ns);
    free(clock_ns);
    return true;
}

/* Does the interval that ends with this tick pass while the device works? The ends of its works are
 * uses that nobody has announced (cuda/clock.h). */
static bool is_busy(const struct ebb_model_event *event)
{
    return event->kind == EBB_EVENT_ACCESS && !event->clock;
}

enum ebb_status ebb__measured_fit(struct ebb_model *model, uint64_t work_ns)
{
    uint64_t whole_ns = ebb__model_iteration_ns(model), busy_ns = 0, last_ns = 0;
    for (uint32_t tick = 0; tick < model->tick_count; last_ns = model->time_ns[tick++])
        if (is_busy(&model->events[tick]))
            busy_ns += model->time_ns[tick] - last_ns;
    if (work_ns == 0 || work_ns >= whole_ns)
        return EBB_OK;
    bool fits = busy_ns <= work_ns;
    double busy_factor = fits ? 1 : (double)work_ns / (double)busy_ns;
    double idle_factor = fits ? (double)(work_ns - busy_ns) / (double)(whole_ns - busy_ns) : 0;
    double now_ns = 0;
    last_ns = 0;
    for (uint32_t tick = 0; tick <= model->tick_count; tick++) {
        bool busy = tick < model->tick_count && is_busy(&model->events[tick]);
        uint64_t interval_ns = model->time_ns[tick] - last_ns;
        last_ns = model->time_ns[tick];
        now_ns += (double)interval_ns * (busy ? busy_factor : idle_factor);
        model->time_ns[tick] = (uint64_t)now_ns;
    }
    return ebb__model_derive(model, NULL);
}
