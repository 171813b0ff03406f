#include "sim/tiers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_LAPS 16

struct transfer {
    uint32_t start, first, run, block;
    uint8_t to;
    uint64_t bytes;
    double end_ns;
};

struct simulation {
    const struct ebb_operations *operations;
    const struct ebb_tier_machine *machine;
    const struct ebb_tier_plan *plan;
    struct transfer *transfers; /* by start, as they are queued */
    uint32_t transfer_count;
    uint32_t *first_of; /* count + 1: the first transfer that starts in an operation */
    uint32_t *due;      /* transfer_count: indices by `first` */
    uint32_t *due_of;   /* count + 1: into due */
    double *operation_ns;
    double lane_ns[2]; /* when each lane is free */
    double now_ns;
};

uint8_t *ebb__tiers_of_uses(const struct ebb_operations *operations,
                            const struct ebb_tier_plan *plan)
{
    uint8_t *tiers = calloc(operations->use_count + 1, sizeof *tiers);
    for (uint32_t b = 0; tiers && b < operations->block_count; b++) {
        const struct ebb_operation_block *block = &operations->blocks[b];
        uint32_t at = plan->first_stay[b], end = plan->first_stay[b + 1];
        uint32_t birth = ebb__tier_birth(operations, b);
        uint8_t tier = plan->stays.items[block->persistent ? end - 1 : at].tier;
        for (uint32_t i = 0; i < block->use_count; i++) {
            uint32_t index = operations->order[block->first_use + i];
            uint32_t age =
                ebb__operations_between(operations, birth, operations->uses[index].operation);
            while (at < end &&
                   ebb__operations_between(operations, birth, plan->stays.items[at].first) <= age)
                tier = plan->stays.items[at++].tier;
            tiers[index] = tier;
        }
    }
    return tiers;
}

double ebb__tiers_fast_ns(const struct ebb_operations *operations,
                          const struct ebb_tier_machine *machine)
{
    double sum = 0;
    for (uint32_t i = 0; i < operations->count; i++) {
        const struct ebb_operation *operation = &operations->items[i];
        double bytes_ns = 0;
        for (uint32_t u = 0; u < operation->use_count; u++)
            bytes_ns += ebb__use_ns(machine, &operations->uses[operation->first_use + u], 0);
        sum += fmax((double)operation->ns, bytes_ns);
    }
    return sum;
}

static bool operations_time(struct simulation *sim)
{
    const struct ebb_operations *operations = sim->operations;
    uint8_t *tiers = ebb__tiers_of_uses(operations, sim->plan);
    sim->operation_ns = malloc((operations->count + 1) * sizeof *sim->operation_ns);
    for (uint32_t i = 0; tiers && sim->operation_ns && i < operations->count; i++) {
        const struct ebb_operation *operation = &operations->items[i];
        double bytes_ns = 0, latency_ns = 0;
        for (uint32_t u = operation->first_use; u < operation->first_use + operation->use_count;
             u++) {
            bytes_ns += ebb__use_ns(sim->machine, &operations->uses[u], tiers[u]);
            latency_ns += ebb__use_latency_ns(sim->machine, tiers[u]);
        }
        sim->operation_ns[i] = fmax((double)operation->ns, bytes_ns) + latency_ns;
    }
    bool ok = tiers && sim->operation_ns;
    free(tiers);
    return ok;
}

/* Bytes that a block counts for: those that share pages count together, at the first of them. */
static uint64_t counted_bytes(const struct ebb_operations *operations,
                              const struct ebb_tier_machine *machine,
                              const struct ebb_tier_plan *plan, const uint64_t *shared, uint32_t b)
{
    if (!plan || plan->pages[b] == EBB_NO_GROUP)
        return ebb__tier_bytes(machine, operations->blocks[b].size_bytes);
    return plan->pages[b] == b ? ebb__tier_bytes(machine, shared[b]) : 0;
}

static uint64_t *shared_bytes(const struct ebb_operations *operations,
                              const struct ebb_tier_plan *plan)
{
    uint64_t *shared = calloc(operations->block_count + 1, sizeof *shared);
    for (uint32_t b = 0; shared && b < operations->block_count; b++)
        if (plan->pages[b] != EBB_NO_GROUP)
            shared[plan->pages[b]] += operations->blocks[b].size_bytes;
    return shared;
}

/* Adds bytes to a circle of differences: operations [first, first + span). */
static void range_add(uint64_t *change, uint32_t count, uint32_t first, uint32_t span,
                      uint64_t bytes)
{
    uint32_t end = first + span;
    change[first] += bytes;
    if (end >= count) {
        change[count] -= bytes;
        change[0] += bytes;
        end -= count;
    }
    change[end] -= bytes;
}

static uint64_t change_peak(const uint64_t *change, uint32_t count)
{
    uint64_t level = 0, peak = 0;
    for (uint32_t i = 0; i < count; i++) {
        level += change[i]; /* unsigned: differences wrap, levels do not */
        peak = level > peak ? level : peak;
    }
    return peak;
}

static void block_occupies(const struct simulation *sim, uint64_t *change[2], uint32_t b,
                           uint64_t bytes)
{
    const struct ebb_operation_block *block = &sim->operations->blocks[b];
    const struct ebb_stay *stays = sim->plan->stays.items + sim->plan->first_stay[b];
    uint32_t stay_count = sim->plan->first_stay[b + 1] - sim->plan->first_stay[b];
    uint32_t count = sim->operations->count, birth = ebb__tier_birth(sim->operations, b);
    if (stay_count == 1) {
        range_add(change[stays[0].tier], count, birth, block->span, bytes);
        return;
    }
    for (uint32_t i = 0; i < stay_count; i++) {
        const struct ebb_stay *stay = &stays[i], *next = &stays[(i + 1) % stay_count];
        bool last = i + 1 == stay_count, copied = block->persistent || i > 0;
        uint32_t end = last && !block->persistent ? (birth + block->span) % count : next->first;
        uint32_t span = ebb__operations_between(sim->operations, stay->first, end);
        if (span == 0 && last && !block->persistent)
            span = count;
        range_add(change[stay->tier], count, stay->first, span, bytes);
        if (copied && !stay->drops)
            range_add(change[stay->tier], count, stay->start,
                      ebb__operations_between(sim->operations, stay->start, stay->first), bytes);
        if (stay->tier == 0 && (!last || block->persistent) && next->drops)
            range_add(change[1], count, stay->first, span, bytes); /* the copy is kept */
    }
}

/* Changes of the bytes in each tier, by operation. */
static void occupancy_find(const struct simulation *sim, const uint64_t *shared,
                           uint64_t *change[2])
{
    for (uint32_t b = 0; b < sim->operations->block_count; b++) {
        uint64_t bytes = counted_bytes(sim->operations, sim->machine, sim->plan, shared, b);
        if (bytes)
            block_occupies(sim, change, b, bytes);
    }
}

static bool peaks_find(const struct simulation *sim, const uint64_t *shared,
                       struct ebb_tier_result *result)
{
    size_t entries = (size_t)sim->operations->count + 2;
    uint64_t *change[2] = {calloc(entries, sizeof(uint64_t)), calloc(entries, sizeof(uint64_t))};
    bool ok = change[0] && change[1];
    if (ok) {
        occupancy_find(sim, shared, change);
        result->fast_peak_bytes = change_peak(change[0], sim->operations->count);
        result->slow_peak_bytes = change_peak(change[1], sim->operations->count);
    }
    free(change[0]);
    free(change[1]);
    return ok;
}

static int by_number(uint32_t a, uint32_t b)
{
    return (a > b) - (a < b);
}

/* The order in which transfers are queued: synchronous ones first, and of them the copies out;
 * then by the time until they are due. */
static int by_queue(const void *left, const void *right)
{
    const struct transfer *a = left, *b = right;
    bool a_waits = a->start != a->first, b_waits = b->start != b->first;
    int order = by_number(a->start, b->start);
    if (!order)
        order = a_waits - b_waits;
    if (!order && !a_waits)
        order = by_number(a->to == 0, b->to == 0);
    if (!order)
        order = by_number(a->first < a->start, b->first < b->start);
    if (!order)
        order = by_number(a->first, b->first);
    if (!order)
        order = by_number(a->to, b->to);
    if (!order)
        order = by_number(a->run, b->run);
    return order ? order : by_number(a->block, b->block);
}

static bool is_one_transfer(const struct transfer *a, const struct transfer *b)
{
    return a->run && a->run == b->run && a->start == b->start && a->first == b->first &&
           a->to == b->to;
}

static bool transfers_make(struct simulation *sim, const uint64_t *shared)
{
    const struct ebb_tier_plan *plan = sim->plan;
    struct transfer *all = calloc(plan->stays.count + 1, sizeof *all);
    uint32_t count = 0, kept = 0;
    if (!all)
        return false;
    for (uint32_t b = 0; b < plan->block_count; b++) {
        uint32_t from = plan->first_stay[b], to = plan->first_stay[b + 1];
        uint64_t bytes = counted_bytes(sim->operations, sim->machine, plan, shared, b);
        bool cyclic = sim->operations->blocks[b].persistent && to - from > 1;
        for (uint32_t i = from + !cyclic; i < to; i++) {
            const struct ebb_stay *stay = &plan->stays.items[i];
            if (!stay->drops && bytes)
                all[count++] = (struct transfer){.start = stay->start,
                                                 .first = stay->first,
                                                 .run = stay->run,
                                                 .block = b,
                                                 .to = stay->tier,
                                                 .bytes = bytes};
        }
    }
    qsort(all, count, sizeof *all, by_queue);
    for (uint32_t i = 0; i < count; i++) {
        if (kept && is_one_transfer(&all[kept - 1], &all[i]))
            all[kept - 1].bytes += all[i].bytes;
        else
            all[kept++] = all[i];
    }
    sim->transfers = all;
    sim->transfer_count = kept;
    return true;
}

static bool transfers_index(struct simulation *sim)
{
    uint32_t count = sim->operations->count, at = 0;
    sim->first_of = calloc(count + 2, sizeof *sim->first_of);
    sim->due_of = calloc(count + 2, sizeof *sim->due_of);
    sim->due = calloc(sim->transfer_count + 1, sizeof *sim->due);
    if (!sim->first_of || !sim->due_of || !sim->due)
        return false;
    for (uint32_t i = 0; i <= count; i++) {
        while (at < sim->transfer_count && sim->transfers[at].start < i)
            at++;
        sim->first_of[i] = at;
    }
    for (uint32_t t = 0; t < sim->transfer_count; t++)
        sim->due_of[sim->transfers[t].first + 1]++;
    for (uint32_t i = 0; i < count; i++)
        sim->due_of[i + 1] += sim->due_of[i];
    for (uint32_t t = sim->transfer_count; t-- > 0;) {
        uint32_t first = sim->transfers[t].first;
        sim->due[--sim->due_of[first + 1]] = t;
    }
    /* Counting down has moved each start by one place. */
    memmove(sim->due_of, sim->due_of + 1, count * sizeof *sim->due_of);
    sim->due_of[count] = sim->transfer_count;
    return true;
}

static void transfer_queue(struct simulation *sim, struct transfer *transfer)
{
    const struct ebb_lane *rate = transfer->to ? &sim->machine->out : &sim->machine->in;
    double *lane = &sim->lane_ns[sim->machine->duplex && transfer->to == 0];
    if (*lane < sim->now_ns)
        *lane = sim->now_ns;
    *lane += (double)ebb__lane_ns(rate, transfer->bytes);
    transfer->end_ns = *lane;
}

static void operation_run(struct simulation *sim, uint32_t index, struct ebb_tier_result *result)
{
    double before_ns = sim->now_ns;
    for (uint32_t i = sim->due_of[index]; i < sim->due_of[index + 1]; i++) {
        const struct transfer *transfer = &sim->transfers[sim->due[i]];
        if (transfer->start != transfer->first)
            sim->now_ns = fmax(sim->now_ns, transfer->end_ns);
    }
    result->wait_ns += sim->now_ns - before_ns;
    before_ns = sim->now_ns;
    double end_ns = sim->now_ns;
    for (uint32_t t = sim->first_of[index]; t < sim->first_of[index + 1]; t++) {
        struct transfer *transfer = &sim->transfers[t];
        bool waits = transfer->start == transfer->first;
        if (!waits || transfer->to == 0)
            sim->now_ns = end_ns; /* the copies out are over */
        transfer_queue(sim, transfer);
        if (waits)
            end_ns = fmax(end_ns, transfer->end_ns);
    }
    sim->now_ns = end_ns;
    result->synchronous_ns += end_ns - before_ns;
    result->compute_ns += sim->operation_ns[index];
    sim->now_ns += sim->operation_ns[index];
}

static void laps_run(struct simulation *sim, struct ebb_tier_result *result)
{
    double before_ns = -1;
    for (int lap = 0; lap < MOST_LAPS && !result->steady; lap++) {
        double started_ns = sim->now_ns;
        result->compute_ns = result->synchronous_ns = result->wait_ns = 0;
        for (uint32_t i = 0; i < sim->operations->count; i++)
            operation_run(sim, i, result);
        result->iteration_ns = sim->now_ns - started_ns;
        result->steady = lap > 0 && fabs(result->iteration_ns - before_ns) < 0.5;
        before_ns = result->iteration_ns;
    }
}

static enum ebb_status plan_valid(const struct ebb_operations *operations,
                                  const struct ebb_tier_plan *plan, struct ebb_error *error)
{
    bool ok = plan->block_count == operations->block_count;
    for (size_t i = 0; ok && i < plan->stays.count; i++) {
        const struct ebb_stay *stay = &plan->stays.items[i];
        ok = stay->block < operations->block_count && stay->first < operations->count &&
             stay->start < operations->count && stay->tier < EBB_TIER_COUNT;
    }
    return ok ? EBB_OK
              : ebb__fail(error, EBB_ERR_ARGUMENT, "tiers", "the plan is for another iteration");
}

enum ebb_status ebb__tiers_simulate(const struct ebb_tier_request *request,
                                    const struct ebb_tier_plan *plan,
                                    struct ebb_tier_result *result, struct ebb_error *error)
{
    struct simulation sim = {
        .operations = request->operations, .machine = request->machine, .plan = plan};
    enum ebb_status status = plan_valid(request->operations, plan, error);
    if (status)
        return status;
    *result = (struct ebb_tier_result){.fast_ns = ebb__tiers_fast_ns(sim.operations, sim.machine)};
    uint64_t *shared = shared_bytes(sim.operations, plan);
    if (shared && operations_time(&sim) && transfers_make(&sim, shared) && transfers_index(&sim) &&
        peaks_find(&sim, shared, result)) {
        laps_run(&sim, result);
        result->transfers = sim.transfer_count;
        for (uint32_t t = 0; t < sim.transfer_count; t++)
            *(sim.transfers[t].to ? &result->moved_out_bytes : &result->moved_in_bytes) +=
                sim.transfers[t].bytes;
    } else {
        status = ebb__fail(error, EBB_ERR_MEMORY, "tiers", "no memory to simulate");
    }
    free(shared);
    free(sim.transfers);
    free(sim.first_of);
    free(sim.due);
    free(sim.due_of);
    free(sim.operation_ns);
    return status;
}

enum ebb_status ebb__tiers_levels(const struct ebb_tier_request *request,
                                  const struct ebb_tier_plan *plan,
                                  uint64_t *levels[EBB_TIER_COUNT], struct ebb_error *error)
{
    const struct simulation sim = {
        .operations = request->operations, .machine = request->machine, .plan = plan};
    size_t count = sim.operations->count;
    uint64_t *change[2] = {calloc(count + 2, sizeof(uint64_t)),
                           calloc(count + 2, sizeof(uint64_t))};
    enum ebb_status status = plan_valid(sim.operations, plan, error);
    uint64_t *shared = status ? NULL : shared_bytes(sim.operations, plan);
    if (!status && (!shared || !change[0] || !change[1]))
        status = ebb__fail(error, EBB_ERR_MEMORY, "tiers", "no memory for the levels");
    if (!status)
        occupancy_find(&sim, shared, change);
    for (int tier = 0; !status && tier < EBB_TIER_COUNT; tier++)
        for (size_t i = 0; i < count; i++)
            levels[tier][i] = change[tier][i] + (i ? levels[tier][i - 1] : 0);
    free(shared);
    free(change[0]);
    free(change[1]);
    return status;
}

enum ebb_status ebb__tiers_peak(const struct ebb_operations *operations,
                                const struct ebb_tier_machine *machine, uint64_t *bytes,
                                struct ebb_error *error)
{
    uint64_t *change = calloc((size_t)operations->count + 2, sizeof *change);
    if (!change)
        return ebb__fail(error, EBB_ERR_MEMORY, "tiers", "no memory for the load");
    for (uint32_t b = 0; b < operations->block_count; b++)
        range_add(change, operations->count, ebb__tier_birth(operations, b),
                  operations->blocks[b].span, counted_bytes(operations, machine, NULL, NULL, b));
    *bytes = change_peak(change, operations->count);
    free(change);
    return EBB_OK;
}
