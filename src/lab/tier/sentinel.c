/* Sentinel (docs/papers.md): one profiled step, then copies at intervals.
 *
 * Blocks that live within one interval are short-lived: they lie in a reserved region of fast
 * memory and never move. The iteration is divided into intervals of equal numbers of operations.
 * For each interval, other blocks that it accesses are chosen for fast memory, as far as they
 * fit. Those with the most accessed bytes a byte come first. They are copied during the interval
 * before, and leave behind their last access, unless there is room for them. What does not fit is
 * used in the slow tier. Each interval length is tried, each with both answers to a copy that
 * would be late: wait, or leave the block in the slow tier. The best of the trials remains.
 * Departure: a trial is a simulated step instead of a real one. */
#include "lab/tier/occupancy.h"
#include "lab/tier/policies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAPS 2       /* the second begins where the first ended */
#define MOST_TRIES 6 /* with less memory each, if copies overlap with what is chosen later */

struct trial {
    const struct ebb_tier_request *request;
    uint32_t length, count; /* operations of an interval, intervals */
    bool waits;
    uint64_t budget_bytes;
    uint64_t *used;  /* by operation */
    uint8_t *fast;   /* block_count * count */
    uint32_t *start; /* block_count * count: where the copy into an interval starts */
    double *heat;    /* block_count: of the interval at hand */
    uint32_t *order;
    uint64_t *time_ns; /* by operation: from the begin */
};

static uint32_t begin_of(const struct trial *trial, uint32_t interval)
{
    return interval * trial->length;
}

static uint32_t end_of(const struct trial *trial, uint32_t interval)
{
    uint32_t end = begin_of(trial, interval + 1), count = trial->request->operations->count;
    return end < count ? end : count;
}

static bool is_live(const struct ebb_operations *operations, uint32_t b, uint32_t at)
{
    const struct ebb_operation_block *block = &operations->blocks[b];
    return block->persistent || ebb__operations_between(operations, block->first, at) < block->span;
}

static bool is_short(const struct trial *trial, uint32_t b)
{
    const struct ebb_operation_block *block = &trial->request->operations->blocks[b];
    return !block->persistent &&
           block->first / trial->length == (block->first + block->span - 1) / trial->length;
}

/* Adds a block to each operation of [first, end) in which it is live. */
static void occupy(const struct trial *trial, uint32_t b, uint32_t first, uint32_t end)
{
    const struct ebb_operations *operations = trial->request->operations;
    uint64_t bytes = ebb__tier_bytes(trial->request->machine, operations->blocks[b].size_bytes);
    for (uint32_t at = first; at < end; at++)
        if (is_live(operations, b, at))
            trial->used[at] += bytes;
}

static bool fits(const struct trial *trial, uint32_t b, uint32_t first, uint32_t end)
{
    const struct ebb_operations *operations = trial->request->operations;
    uint64_t bytes = ebb__tier_bytes(trial->request->machine, operations->blocks[b].size_bytes);
    for (uint32_t at = first; at < end; at++)
        if (is_live(operations, b, at) && trial->used[at] + bytes > trial->budget_bytes)
            return false;
    return true;
}

/* The latest operation of the interval before from which the copy is hidden; *hidden: it is. */
static uint32_t copy_start(const struct trial *trial, uint32_t b, uint32_t interval, bool *hidden)
{
    const struct ebb_operations *operations = trial->request->operations;
    uint64_t bytes = ebb__tier_bytes(trial->request->machine, operations->blocks[b].size_bytes);
    uint64_t need_ns = ebb__lane_ns(&trial->request->machine->in, bytes), have_ns = 0;
    uint32_t before = interval ? interval - 1 : trial->count - 1, at = end_of(trial, before);
    const struct ebb_operation_block *block = &operations->blocks[b];
    uint32_t last_write = UINT32_MAX;
    for (uint32_t i = 0; i < block->use_count; i++) {
        const struct ebb_use *use = ebb__block_use(operations, b, i);
        if (use->write_bytes && use->operation < at && use->operation >= begin_of(trial, before) &&
            (last_write == UINT32_MAX || use->operation > last_write))
            last_write = use->operation;
    }
    while (at > begin_of(trial, before) && have_ns < need_ns && at - 1 != last_write &&
           is_live(operations, b, at - 1) && fits(trial, b, at - 1, at))
        have_ns += operations->items[--at].ns;
    *hidden = have_ns >= need_ns;
    return at == operations->count ? 0 : at;
}

static double accessed(const struct trial *trial, uint32_t b, uint32_t interval)
{
    const struct ebb_operations *operations = trial->request->operations;
    double bytes = 0;
    for (uint32_t i = 0; i < operations->blocks[b].use_count; i++) {
        const struct ebb_use *use = ebb__block_use(operations, b, i);
        if (use->operation / trial->length == interval)
            bytes += (double)(use->read_bytes + use->write_bytes);
    }
    return bytes / (double)(operations->blocks[b].size_bytes + 1);
}

static void sort_by_heat(const struct trial *trial, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) { /* few blocks an interval */
        uint32_t b = trial->order[i], at = i;
        for (; at && trial->heat[trial->order[at - 1]] < trial->heat[b]; at--)
            trial->order[at] = trial->order[at - 1];
        trial->order[at] = b;
    }
}

/* Chooses a block for an interval, if it fits and its copy is in time. */
static void choose(const struct trial *trial, uint32_t b, uint32_t interval)
{
    uint32_t before = interval ? interval - 1 : trial->count - 1;
    uint32_t begin = begin_of(trial, interval), end = end_of(trial, interval);
    const struct ebb_operation_block *block = &trial->request->operations->blocks[b];
    bool born = !block->persistent && block->first >= begin && block->first < end;
    bool was = trial->fast[(size_t)b * trial->count + before], hidden = true;
    uint32_t start = begin;
    if (!fits(trial, b, begin, end))
        return;
    if (!was && !born) {
        start = copy_start(trial, b, interval, &hidden);
        if (!hidden && !trial->waits)
            return;
        uint32_t from = start ? start : trial->request->operations->count;
        if (start != begin)
            occupy(trial, b, from, end_of(trial, before));
    }
    trial->fast[(size_t)b * trial->count + interval] = 1;
    trial->start[(size_t)b * trial->count + interval] = start;
    occupy(trial, b, begin, end);
}

static void interval_choose(const struct trial *trial, uint32_t interval)
{
    const struct ebb_operations *operations = trial->request->operations;
    uint32_t before = interval ? interval - 1 : trial->count - 1, count = 0;
    for (uint32_t b = 0; b < operations->block_count; b++) {
        trial->fast[(size_t)b * trial->count + interval] = 0;
        trial->heat[b] = is_short(trial, b) ? 0 : accessed(trial, b, interval);
        if (trial->heat[b] > 0)
            trial->order[count++] = b;
    }
    sort_by_heat(trial, count);
    for (uint32_t i = 0; i < count; i++)
        choose(trial, trial->order[i], interval);
    /* What is in fast memory and is not accessed stays if there is room. */
    for (uint32_t b = 0; b < operations->block_count; b++)
        if (trial->heat[b] <= 0 && !is_short(trial, b) &&
            trial->fast[(size_t)b * trial->count + before])
            choose(trial, b, interval);
}

/* The operation at which a block leaves between two intervals: behind its last access. */
static uint32_t leave_start(const struct trial *trial, uint32_t b, uint32_t interval)
{
    uint32_t before = interval ? interval - 1 : trial->count - 1;
    uint32_t last = begin_of(trial, before), end = end_of(trial, before);
    const struct ebb_operations *operations = trial->request->operations;
    for (uint32_t i = 0; i < operations->blocks[b].use_count; i++) {
        uint32_t at = ebb__block_use(operations, b, i)->operation;
        if (at >= last && at < end)
            last = at + 1;
    }
    if (!operations->blocks[b].persistent && operations->blocks[b].first >= last &&
        operations->blocks[b].first < end)
        last = operations->blocks[b].first;
    return last == operations->count ? 0 : last;
}

static bool block_stays(const struct trial *trial, uint32_t b, struct ebb_tier_plan *plan)
{
    const struct ebb_operations *operations = trial->request->operations;
    const struct ebb_operation_block *block = &operations->blocks[b];
    const uint8_t *fast = trial->fast + (size_t)b * trial->count;
    uint32_t birth = ebb__tier_birth(operations, b), at = birth / trial->length;
    if (is_short(trial, b))
        return ebb__tier_plan_add(
            plan,
            (struct ebb_stay){.block = b, .first = birth, .start = birth, .tier = !trial->heat[b]});
    bool changes = false, ok = true;
    if (!block->persistent)
        ok = ebb__tier_plan_add(
            plan, (struct ebb_stay){.block = b, .first = birth, .start = birth, .tier = !fast[at]});
    for (uint32_t i = block->persistent ? 0 : 1; ok && i < trial->count; i++) {
        uint32_t now = (at + i) % trial->count, before = (now + trial->count - 1) % trial->count;
        uint32_t begin = begin_of(trial, now);
        if (!is_live(operations, b, begin))
            break;
        if (fast[now] == fast[before])
            continue;
        changes = true;
        struct ebb_stay stay = {.block = b, .first = begin, .tier = !fast[now]};
        stay.start =
            fast[now] ? trial->start[(size_t)b * trial->count + now] : leave_start(trial, b, now);
        ok = ebb__tier_plan_add(plan, stay);
    }
    if (ok && block->persistent && !changes)
        ok = ebb__tier_plan_add(plan, (struct ebb_stay){.block = b, .tier = !fast[0]});
    return ok;
}

/* Short-lived blocks go first. `heat` of one is 1 if it fits into fast memory. */
static void reserve(const struct trial *trial)
{
    const struct ebb_operations *operations = trial->request->operations;
    for (uint32_t b = 0; b < operations->block_count; b++) {
        const struct ebb_operation_block *block = &operations->blocks[b];
        uint64_t bytes = ebb__tier_bytes(trial->request->machine, block->size_bytes);
        trial->heat[b] = 0;
        if (!is_short(trial, b) ||
            !ebb__occupancy_fits(trial->used, operations->count, block->first, block->span, bytes,
                                 trial->budget_bytes))
            continue;
        trial->heat[b] = 1;
        ebb__occupancy_add(trial->used, operations->count, block->first, block->span,
                           (int64_t)bytes);
    }
}

static bool trial_plan(const struct trial *trial, struct ebb_tier_plan *plan)
{
    const struct ebb_operations *operations = trial->request->operations;
    bool ok = true;
    memset(trial->fast, 0, (size_t)operations->block_count * trial->count);
    for (int lap = 0; lap < LAPS; lap++) {
        memset(trial->used, 0, operations->count * sizeof *trial->used);
        reserve(trial);
        for (uint32_t i = 0; i < trial->count; i++)
            interval_choose(trial, i);
    }
    memset(trial->used, 0, operations->count * sizeof *trial->used);
    reserve(trial); /* notes again which of them fit */
    plan->stays.count = 0;
    for (uint32_t b = 0; ok && b < operations->block_count; b++)
        ok = block_stays(trial, b, plan);
    return ok;
}

/* Plans with one length and answer, with less memory until the plan fits. */
static enum ebb_status trial_run(struct trial *trial, struct ebb_tier_plan *plan,
                                 struct ebb_tier_result *result, struct ebb_error *error)
{
    const struct ebb_tier_request *request = trial->request;
    trial->budget_bytes = request->budget_bytes;
    for (int i = 0; i < MOST_TRIES; i++) {
        if (!trial_plan(trial, plan))
            return ebb__fail(error, EBB_ERR_MEMORY, "sentinel", "no memory to plan");
        enum ebb_status status = ebb__tier_plan_close(plan, request->operations, error);
        if (!status)
            status = ebb__tiers_simulate(request, plan, result, error);
        if (status || result->fast_peak_bytes <= request->budget_bytes)
            return status;
        uint64_t excess = result->fast_peak_bytes - request->budget_bytes;
        trial->budget_bytes = trial->budget_bytes > excess ? trial->budget_bytes - excess : 0;
    }
    return EBB_OK;
}

static bool trial_init(struct trial *trial, const struct ebb_tier_request *request, uint32_t length)
{
    size_t blocks = request->operations->block_count, count = request->operations->count;
    *trial = (struct trial){.request = request, .length = length};
    trial->count = (uint32_t)((count + length - 1) / length);
    trial->used = calloc(count + 1, sizeof *trial->used);
    trial->fast = calloc(blocks * trial->count + 1, 1);
    trial->start = calloc(blocks * trial->count + 1, sizeof *trial->start);
    trial->heat = calloc(blocks + 1, sizeof *trial->heat);
    trial->order = calloc(blocks + 1, sizeof *trial->order);
    return trial->used && trial->fast && trial->start && trial->heat && trial->order;
}

static void trial_fini(struct trial *trial)
{
    free(trial->used);
    free(trial->fast);
    free(trial->start);
    free(trial->heat);
    free(trial->order);
}

enum ebb_status ebb__tier_sentinel(const struct ebb_tier_request *request, const char *variant,
                                   struct ebb_tier_plan *plan, struct ebb_error *error)
{
    double best_ns = 0, spent_ns = ebb__tiers_fast_ns(request->operations, request->machine);
    enum ebb_status status = EBB_OK;
    uint32_t count = request->operations->count;
    (void)variant;
    for (uint32_t length = count / 4 ? count / 4 : 1; !status; length /= 2) {
        struct trial trial;
        bool ok = trial_init(&trial, request, length);
        for (int waits = 0; ok && !status && waits < 2; waits++) {
            struct ebb_tier_plan tried;
            struct ebb_tier_result result;
            trial.waits = waits;
            if (!ebb__tier_plan_init(&tried, request->operations)) {
                ok = false;
                break;
            }
            status = trial_run(&trial, &tried, &result, error);
            spent_ns += status ? 0 : result.iteration_ns;
            bool better = !status && result.fast_peak_bytes <= request->budget_bytes &&
                          (best_ns == 0 || result.iteration_ns < best_ns);
            if (better) {
                ebb__tier_plan_fini(plan);
                *plan = tried;
                best_ns = result.iteration_ns;
                snprintf(plan->note, sizeof plan->note, "intervals of %u operations%s", length,
                         waits ? ", waits" : "");
            } else {
                ebb__tier_plan_fini(&tried);
            }
        }
        trial_fini(&trial);
        if (!ok)
            status = ebb__fail(error, EBB_ERR_MEMORY, "sentinel", "no memory to plan");
        if (length < 4)
            break;
    }
    if (!status && best_ns == 0) { /* nothing fits: all in the slow tier */
        plan->stays.count = 0;
        plan->fell_back = true;
        status = ebb__tier_plan_close(plan, request->operations, error);
    }
    plan->profile_ns = (uint64_t)spent_ns;
    return status;
}
