#include "check/internal.h"

#include "base/tuning.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NEVER UINT32_MAX

struct interval {
    uint64_t first, last;
    uint32_t absence;
};

uint64_t ebb__check_bytes(const struct check *check, uint32_t block)
{
    uint64_t page = check->request->page_bytes > 1 ? check->request->page_bytes : 1;
    uint64_t size = check->model->blocks[block].size_bytes;
    return size % page ? size - size % page + page : size;
}

uint64_t ebb__check_unroll(const struct check *check, uint64_t time_ns, uint64_t after_ns)
{
    while (time_ns < after_ns)
        time_ns += check->turn_ns;
    return time_ns;
}

/* The margin is ignored if that is a clock event. */
uint32_t ebb__check_ready_tick(const struct check *check, const struct ebb_absence *absence)
{
    if (!absence->out_within)
        return check->next_clock[absence->from_tick];
    return (uint32_t)(((uint64_t)absence->from_tick + absence->margin_ticks) %
                      check->model->tick_count);
}

static double lane_time(const struct ebb_lane *lane, uint64_t bytes)
{
    return (double)lane->fixed_ns + (double)bytes * lane->ns_per_byte;
}

/* Two passes backwards, so that the ticks after the iteration's end are known at its end. */
static void next_clock_find(struct check *check)
{
    const struct ebb_model *model = check->model;
    uint32_t ticks = model->tick_count, clock = NEVER;
    for (uint32_t step = 2 * ticks; step-- > 0;) {
        uint32_t tick = step % ticks;
        check->next_clock[tick] = model->clock_count ? clock : (tick + 1) % ticks;
        if (model->events[tick].clock)
            clock = tick;
    }
}

/* Follows each block from its allocation through its uses to its end. A block that outlives an
 * iteration has several instances at once, but each use belongs to one of them. A gap of a whole
 * iteration or more would need two absences at once, so it is not used. */
static void next_use_find(struct check *check)
{
    const struct ebb_model *model = check->model;
    uint32_t ticks = model->tick_count;
    memset(check->next_use, 0xff, ticks * sizeof *check->next_use);
    for (uint32_t b = 0; b < model->block_count; b++) {
        const struct ebb_model_block *block = &model->blocks[b];
        const struct ebb_model_access *uses = &model->accesses[block->first_access];
        bool persistent = block->alloc_tick == EBB_TICK_NONE;
        uint64_t age = 0;
        for (uint32_t i = 0; i < block->access_count; i++) {
            uint32_t tick = uses[i].tick;
            uint32_t before = i ? uses[i - 1].tick : persistent ? 0 : block->alloc_tick;
            age += (tick + (uint64_t)ticks - before) % ticks;
            if (i + 1 < block->access_count)
                check->next_use[tick] = uses[i + 1].tick;
            else if (persistent)
                check->next_use[tick] = uses[0].tick;
            else if (age < block->span_ticks && block->span_ticks - age < ticks)
                check->next_use[tick] = block->free_tick;
        }
    }
}

static enum ebb_status gap_check(struct check *check, uint32_t i)
{
    const struct ebb_model *model = check->model;
    const struct ebb_absence *absence = &check->plan->absences[i];
    if (absence->block >= model->block_count)
        return VIOLATION(check, "absence %u: there is no block %u", i, absence->block);
    if (absence->from_tick >= model->tick_count || absence->to_tick >= model->tick_count)
        return VIOLATION(check, "absence %u: a tick behind the last", i);
    const struct ebb_model_event *from = &model->events[absence->from_tick];
    const struct ebb_model_event *to = &model->events[absence->to_tick];
    if (from->block != absence->block || to->block != absence->block)
        return VIOLATION(check, "absence %u: its ticks do not use block %u", i, absence->block);
    if (from->kind == EBB_EVENT_FREE || from->kind == EBB_EVENT_ALLOC ||
        to->kind == EBB_EVENT_ALLOC)
        return VIOLATION(check, "absence %u: not between accesses", i);
    uint32_t next = check->next_use[absence->from_tick];
    if (next == NEVER)
        return VIOLATION(check, "absence %u: outlasts an iteration", i);
    if (next != absence->to_tick)
        return VIOLATION(check, "absence %u: block %u is used in between, at tick %u", i,
                         absence->block, next);
    if (absence->drops != (to->kind == EBB_EVENT_FREE))
        return VIOLATION(check, "absence %u: drops is %s, but block %u is %s at its end", i,
                         absence->drops ? "true" : "false", absence->block,
                         absence->drops ? "used" : "freed");
    if (check->taken[absence->from_tick])
        return VIOLATION(check, "absence %u of block %u overlaps another", i, absence->block);
    check->taken[absence->from_tick] = true;
    return EBB_OK;
}

static enum ebb_status copy_check(struct check *check, uint32_t i, const char *direction,
                                  const struct ebb_lane *lane, uint64_t taken_ns)
{
    double needs = lane_time(lane, ebb__check_bytes(check, check->plan->absences[i].block));
    if ((double)taken_ns + (double)check->plan->stall_ns + 2 < needs)
        return VIOLATION(check, "absence %u: copy %s takes %" PRIu64 " ns, the lane needs %.0f", i,
                         direction, taken_ns, needs);
    return EBB_OK;
}

/* Without a clock event, the use must be over by the number of later events and by the time since
 * it began. */
static enum ebb_status within_check(struct check *check, uint32_t i)
{
    const struct ebb_model *model = check->model;
    const struct ebb_absence *absence = &check->plan->absences[i];
    uint32_t ready = ebb__check_ready_tick(check, absence), ticks = model->tick_count;
    uint32_t length = (absence->to_tick + ticks - absence->from_tick - 1) % ticks + 1;
    uint64_t after_ns =
        ebb__check_unroll(check, model->time_ns[ready], model->time_ns[absence->from_tick]);
    uint32_t clock = check->next_clock[absence->from_tick];
    uint32_t to_clock = (clock + ticks - absence->from_tick - 1) % ticks + 1;
    /* Plans are carried out at clock events. A predicted reaction needs none in its gap. */
    bool planned = !check->plan->reactive && !absence->passive;
    if (absence->margin_ticks == 0 || absence->margin_ticks >= length ||
        (planned && to_clock >= length))
        return VIOLATION(check, "absence %u: block %u is evicted outside its gap, while in use", i,
                         absence->block);
    uint32_t back = 0;
    while (back < ticks && !model->events[(absence->from_tick + ticks - back) % ticks].clock)
        back++;
    uint64_t began_ns = model->time_ns[(absence->from_tick + ticks - back) % ticks];
    uint64_t lasts_ns =
        ebb__check_unroll(check, model->time_ns[absence->from_tick], began_ns) - began_ns;
    uint64_t over_ns = lasts_ns / ebb__tuning()->within_drift_divisor;
    if (over_ns < ebb__tuning()->within_ns)
        over_ns = ebb__tuning()->within_ns;
    if (absence->margin_ticks < ebb__tuning()->within_ticks ||
        after_ns - model->time_ns[absence->from_tick] < over_ns)
        return VIOLATION(check, "absence %u: block %u is evicted while it may be in use", i,
                         absence->block);
    return EBB_OK;
}

static enum ebb_status times_check(struct check *check, uint32_t i)
{
    const struct ebb_model *model = check->model;
    const struct ebb_absence *absence = &check->plan->absences[i];
    struct span *span = &check->spans[i];
    uint32_t ready = ebb__check_ready_tick(check, absence);
    uint64_t ready_ns = model->time_ns[ready];
    span->ready = ready_ns;
    if (absence->out_start_ns > check->turn_ns || absence->out_end_ns > check->turn_ns ||
        absence->in_start_ns > check->turn_ns || absence->in_end_ns > check->turn_ns)
        return VIOLATION(check, "absence %u: a time outside the iteration", i);
    span->need = model->time_ns[absence->to_tick];
    if (absence->to_tick <= ready)
        span->need += check->turn_ns;
    if (absence->margin_ticks >= model->tick_count)
        return VIOLATION(check, "absence %u: a margin of more than an iteration", i);
    if (absence->out_within && within_check(check, i) != EBB_OK)
        return EBB_ERR_FORMAT;
    uint32_t after_margin = (absence->from_tick + absence->margin_ticks) % model->tick_count;
    uint64_t after_margin_ns = ready_ns;
    if (!absence->out_within)
        after_margin_ns =
            ebb__check_unroll(check, model->time_ns[check->next_clock[after_margin]], ready_ns);
    span->out_start = ebb__check_unroll(check, absence->out_start_ns, after_margin_ns);
    if (span->out_start > span->need)
        return VIOLATION(check, "absence %u: block %u is evicted outside its gap, while in use", i,
                         absence->block);
    span->out_end = ebb__check_unroll(check, absence->out_end_ns, span->out_start);
    if (span->out_end > span->need)
        return VIOLATION(check, "absence %u: the copy out ends after its gap", i);
    if (!absence->drops) {
        span->in_start = ebb__check_unroll(check, absence->in_start_ns, span->out_end);
        /* In a gap longer than an iteration that instant may occur twice: the copy must not be too
         * early. */
        uint64_t later_ns = span->in_start + check->turn_ns;
        if (later_ns <= span->need &&
            ebb__check_unroll(check, absence->in_end_ns, later_ns) <= span->need)
            span->in_start = later_ns;
        if (span->in_start > span->need)
            return VIOLATION(check, "absence %u: the copy in starts before the copy out ends", i);
        span->in_end = ebb__check_unroll(check, absence->in_end_ns, span->in_start);
        if (span->in_end > span->need)
            return VIOLATION(check, "absence %u: block %u is back late", i, absence->block);
    }
    enum ebb_status status =
        copy_check(check, i, "out", &check->request->machine->out, span->out_end - span->out_start);
    if (!status && !absence->drops)
        status =
            copy_check(check, i, "in", &check->request->machine->in, span->in_end - span->in_start);
    return status;
}

static int interval_compare(const void *left, const void *right)
{
    const struct interval *a = left, *b = right;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return (a->last > b->last) - (a->last < b->last);
}

static enum ebb_status lane_check(struct check *check, bool in)
{
    uint32_t count = 0;
    enum ebb_status status = EBB_OK;
    struct interval *copies = malloc((check->plan->absence_count + 1u) * sizeof *copies);
    if (!copies)
        return EBB_ERR_MEMORY;
    for (uint32_t i = 0; i < check->plan->absence_count; i++) {
        if (in && check->plan->absences[i].drops)
            continue;
        uint64_t first = in ? check->spans[i].in_start : check->spans[i].out_start;
        uint64_t last = in ? check->spans[i].in_end : check->spans[i].out_end;
        copies[count++] =
            (struct interval){first % check->turn_ns, first % check->turn_ns + (last - first), i};
    }
    qsort(copies, count, sizeof *copies, interval_compare);
    for (uint32_t i = 0; i < count && !status; i++) {
        const struct interval *next = &copies[(i + 1) % count];
        uint64_t next_first = next->first + (i + 1 == count ? check->turn_ns : 0);
        if (copies[i].last > next_first)
            status = VIOLATION(check, "absences %u and %u copy %s at the same time",
                               copies[i].absence, next->absence, in ? "in" : "out");
    }
    free(copies);
    return status;
}

static enum ebb_status figures_check(struct check *check)
{
    const struct ebb_plan *plan = check->plan;
    uint64_t out_bytes = 0, in_bytes = 0;
    for (uint32_t i = 0; i < plan->absence_count; i++) {
        uint64_t bytes = ebb__check_bytes(check, plan->absences[i].block);
        out_bytes += bytes;
        in_bytes += plan->absences[i].drops ? 0 : bytes;
    }
    if (plan->budget_bytes != check->request->budget_bytes)
        return VIOLATION(check, "made for another budget");
    if (plan->feasible != (plan->peak_bytes <= plan->budget_bytes))
        return VIOLATION(check, "feasible is %s, but its peak says otherwise",
                         plan->feasible ? "true" : "false");
    if (plan->moved_out_bytes != out_bytes || plan->moved_in_bytes != in_bytes)
        return VIOLATION(check, "its sums of moved bytes are not those of its absences");
    if (plan->iteration_ns != check->turn_ns + plan->stall_ns)
        return VIOLATION(check, "its iteration is not the model's plus its stalls");
    return EBB_OK;
}

/* The declared stall is that of the plan. If nothing is planned in advance, the program waits for
 * each copy. */
static enum ebb_status stalls_check(struct check *check)
{
    const struct ebb_plan *plan = check->plan;
    const struct ebb_plan_rules *rules = &plan->rules;
    if (!plan->feasible || rules->barrier_count || rules->share_count || rules->keeps_all)
        return EBB_OK;
    double waits_ns = 0, copies = 0;
    for (uint32_t i = 0; i < plan->absence_count; i++) {
        const struct ebb_absence *absence = &plan->absences[i];
        uint64_t bytes = ebb__check_bytes(check, absence->block);
        if (!plan->reactive && !absence->passive)
            continue;
        waits_ns += lane_time(&check->request->machine->out, bytes);
        if (!absence->drops)
            waits_ns += lane_time(&check->request->machine->in, bytes);
        copies += 2;
    }
    double more_ns = (double)plan->stall_ns - waits_ns;
    if (more_ns < -copies || (plan->reactive && more_ns > copies))
        return VIOLATION(check, "it stalls %" PRIu64 " ns; its copies on demand take %.0f",
                         plan->stall_ns, waits_ns);
    if (plan->reactive || rules->passive)
        return EBB_OK;
    uint64_t stall_ns;
    enum ebb_status status = ebb__check_replay(check, &stall_ns);
    if (!status && stall_ns != plan->stall_ns)
        status =
            VIOLATION(check, "it stalls %" PRIu64 " ns, not %" PRIu64, stall_ns, plan->stall_ns);
    return status;
}

enum ebb_status ebb__check_plan(const struct ebb_check_request *request,
                                const struct ebb_plan *plan, struct ebb_error *error)
{
    const struct ebb_model *model = request->model;
    struct check check = {.request = request, .model = model, .plan = plan, .error = error};
    if (model->tick_count == 0 || model->time_ns[model->tick_count] == 0)
        return VIOLATION(&check, "the model has no events or no time");
    check.turn_ns = model->time_ns[model->tick_count];
    check.next_use = malloc(model->tick_count * sizeof *check.next_use);
    check.next_clock = malloc(model->tick_count * sizeof *check.next_clock);
    check.spans = calloc(plan->absence_count + 1u, sizeof *check.spans);
    check.lives = calloc(model->block_count + 1u, sizeof *check.lives);
    check.taken = calloc(model->tick_count, sizeof *check.taken);
    check.dropped = calloc(model->tick_count, sizeof *check.dropped);
    enum ebb_status status = EBB_ERR_MEMORY;
    if (check.next_use && check.next_clock && check.spans && check.lives && check.taken &&
        check.dropped) {
        next_clock_find(&check);
        next_use_find(&check);
        status = EBB_OK;
    }
    for (uint32_t i = 0; i < plan->absence_count && !status; i++) {
        status = gap_check(&check, i);
        if (!status)
            status = times_check(&check, i);
    }
    if (!status)
        status = ebb__check_rules(&check);
    if (!status)
        status = lane_check(&check, false);
    if (!status)
        status = lane_check(&check, true);
    if (!status)
        status = figures_check(&check);
    if (!status)
        status = ebb__check_curve(&check);
    if (!status)
        status = stalls_check(&check);
    if (status == EBB_ERR_MEMORY)
        ebb__fail(error, status, "plan", "out of memory");
    free(check.next_use);
    free(check.next_clock);
    free(check.spans);
    free(check.lives);
    free(check.taken);
    free(check.dropped);
    return status;
}
