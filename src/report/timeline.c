#include "report/timeline.h"

#include "base/vec.h"
#include "sim/simulate.h"

#include <string.h>

/* The sum of the stalls at model times below `model_ns`, or up to it. O(log stalls). */
static uint64_t stalls_until(const struct ebb_timeline *timeline, uint64_t model_ns, bool included)
{
    uint32_t low = 0, high = timeline->stall_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        uint64_t at = timeline->stalls[middle].model_ns;
        if (at < model_ns || (included && at == model_ns))
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return 0;
    const struct ebb_timeline_stall *last = &timeline->stalls[low - 1];
    return last->start_ns - last->model_ns + last->ns;
}

uint64_t ebb__timeline_before(const struct ebb_timeline *timeline, uint64_t model_ns)
{
    return model_ns + stalls_until(timeline, model_ns, false);
}

uint64_t ebb__timeline_after(const struct ebb_timeline *timeline, uint64_t model_ns)
{
    return model_ns + stalls_until(timeline, model_ns, true);
}

/* Stalls at one instant are one. */
static bool collect_stalls(const struct ebb_model *model, const uint64_t *tick_stall_ns,
                           struct ebb_timeline *timeline)
{
    EBB_VEC(struct ebb_timeline_stall) stalls = {0};
    uint64_t sum_ns = 0;
    bool ok = true;
    for (uint32_t tick = 0; ok && tick < model->tick_count; tick++) {
        uint64_t ns = tick_stall_ns[tick], at = model->time_ns[tick];
        if (!ns)
            continue;
        if (stalls.count && stalls.items[stalls.count - 1].model_ns == at)
            stalls.items[stalls.count - 1].ns += ns;
        else
            ok = ebb_vec_push(&stalls, ((struct ebb_timeline_stall){at, at + sum_ns, ns}));
        sum_ns += ns;
    }
    timeline->stalls = stalls.items;
    timeline->stall_count = (uint32_t)stalls.count;
    timeline->iteration_ns = ebb__model_iteration_ns(model) + sum_ns;
    return ok;
}

/* A model instant at which the program stalls is a span of real time. */
struct span {
    uint64_t first_ns, last_ns;
};

static struct span span_of(const struct ebb_timeline *timeline, uint64_t model_ns)
{
    return (struct span){ebb__timeline_before(timeline, model_ns),
                         ebb__timeline_after(timeline, model_ns)};
}

static uint64_t within(struct span span, uint64_t ns)
{
    return ns < span.first_ns ? span.first_ns : ns > span.last_ns ? span.last_ns : ns;
}

/* Places a copy of `lane_ns` between two model times. During a stall these are spans only. A copy
 * out is then as early as possible, and a copy in as late: the stall was for its memory. */
static void place_copy(const struct ebb_timeline *timeline, uint64_t from_ns, uint64_t to_ns,
                       uint64_t lane_ns, bool is_late, uint64_t *start_ns, uint64_t *end_ns)
{
    struct span from = span_of(timeline, from_ns), to = span_of(timeline, to_ns);
    if (to_ns < from_ns) { /* across the iteration's end */
        to.first_ns += timeline->iteration_ns;
        to.last_ns += timeline->iteration_ns;
    }
    uint64_t latest_ns = to.last_ns > lane_ns ? to.last_ns - lane_ns : 0;
    *start_ns = is_late ? within(from, latest_ns) : from.first_ns;
    *end_ns = within(to, *start_ns + lane_ns);
}

static bool collect_copies(const struct ebb_planned *planned, struct ebb_timeline *timeline)
{
    const struct ebb_plan *plan = &planned->plan;
    const struct ebb_machine *machine = planned->request.machine;
    timeline->copies = calloc(plan->absence_count + 1, sizeof *timeline->copies);
    if (!timeline->copies)
        return false;
    timeline->copy_count = plan->absence_count;
    for (uint32_t i = 0; i < plan->absence_count; i++) {
        const struct ebb_absence *absence = &plan->absences[i];
        struct ebb_timeline_copy *copy = &timeline->copies[i];
        uint64_t bytes = ebb__plan_block_bytes(&planned->request,
                                               &planned->request.model->blocks[absence->block]);
        place_copy(timeline, absence->out_start_ns, absence->out_end_ns,
                   ebb__lane_ns(&machine->out, bytes), false, &copy->out_start_ns,
                   &copy->out_end_ns);
        if (!absence->drops)
            place_copy(timeline, absence->in_start_ns, absence->in_end_ns,
                       ebb__lane_ns(&machine->in, bytes), true, &copy->in_start_ns,
                       &copy->in_end_ns);
    }
    return true;
}

static enum ebb_status simulate(const struct ebb_planned *planned, uint64_t *tick_stall_ns,
                                struct ebb_error *error)
{
    const struct ebb_plan *plan = &planned->plan;
    struct ebb_sim_request request = {.model = planned->request.model,
                                      .machine = planned->request.machine,
                                      .absences = plan->absences,
                                      .absence_count = plan->absence_count,
                                      .budget_bytes = planned->request.budget_bytes,
                                      .page_bytes = planned->request.page_bytes,
                                      .rules = &plan->rules};
    struct ebb_sim_detail detail = {.tick_stall_ns = tick_stall_ns};
    struct ebb_sim_result result;
    return ebb__simulate(&request, &detail, &result, error);
}

enum ebb_status ebb__timeline_init(const struct ebb_model *model, const struct ebb_planned *planned,
                                   struct ebb_timeline *timeline, struct ebb_error *error)
{
    *timeline = (struct ebb_timeline){.iteration_ns = ebb__model_iteration_ns(model)};
    if (!planned)
        return EBB_OK;
    uint64_t *tick_stall_ns = calloc(model->tick_count, sizeof *tick_stall_ns);
    enum ebb_status status = tick_stall_ns ? simulate(planned, tick_stall_ns, error) : EBB_OK;
    if (!tick_stall_ns ||
        (!status && (!collect_stalls(planned->request.model, tick_stall_ns, timeline) ||
                     !collect_copies(planned, timeline))))
        status = ebb__fail(error, EBB_ERR_MEMORY, "the timeline", "out of memory");
    free(tick_stall_ns);
    if (status)
        ebb__timeline_fini(timeline);
    return status;
}

void ebb__timeline_fini(struct ebb_timeline *timeline)
{
    free(timeline->stalls);
    free(timeline->copies);
    memset(timeline, 0, sizeof *timeline);
}
