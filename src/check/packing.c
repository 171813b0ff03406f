#include "check/packing.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define VIOLATION(check, ...) ebb__fail((check)->error, EBB_ERR_FORMAT, "packing", __VA_ARGS__)

/* At one instant, ends are processed before begins. */
struct change {
    uint64_t time;
    uint32_t buffer;
    bool begins;
};

struct check {
    const struct ebb_pool_problem *problem;
    const struct ebb_pool_solution *solution;
    struct ebb_error *error;
    struct change *changes;
    size_t change_count;
    uint32_t *live; /* Sorted by offset. They do not overlap, so they are sorted by their ends,
                       too. */
    uint32_t live_count;
    uint64_t load, peak;
};

static int change_compare(const void *left, const void *right)
{
    const struct change *a = left, *b = right;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    if (a->begins != b->begins)
        return a->begins ? 1 : -1;
    return (a->buffer > b->buffer) - (a->buffer < b->buffer);
}

static void lives(struct check *check, uint32_t buffer, uint64_t from, uint64_t to)
{
    if (from == to)
        return;
    check->changes[check->change_count++] = (struct change){from, buffer, true};
    check->changes[check->change_count++] = (struct change){to, buffer, false};
}

/* A circle is cut at 0: a buffer that is live across the cut is listed twice. */
static void changes_list(struct check *check)
{
    uint64_t period = check->problem->period;
    for (uint32_t i = 0; i < check->problem->count; i++) {
        const struct ebb_pool_buffer *item = &check->problem->buffers[i];
        if (period == 0 || item->upper <= period) {
            lives(check, i, item->lower, item->upper);
        } else {
            lives(check, i, item->lower, period);
            lives(check, i, 0, item->upper - period);
        }
    }
    qsort(check->changes, check->change_count, sizeof *check->changes, change_compare);
}

static uint64_t offset_of(const struct check *check, uint32_t buffer)
{
    return check->solution->offsets[buffer];
}

static uint64_t end_of(const struct check *check, uint32_t buffer)
{
    return offset_of(check, buffer) + check->problem->buffers[buffer].size_bytes;
}

/* Finds the first live buffer at or above this offset. */
static uint32_t live_find(const struct check *check, uint64_t offset)
{
    uint32_t low = 0, high = check->live_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (offset_of(check, check->live[middle]) < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static enum ebb_status begin(struct check *check, uint32_t buffer, uint64_t time)
{
    uint32_t at = live_find(check, offset_of(check, buffer));
    uint32_t other = UINT32_MAX;
    if (at > 0 && end_of(check, check->live[at - 1]) > offset_of(check, buffer))
        other = check->live[at - 1];
    else if (at < check->live_count && end_of(check, buffer) > offset_of(check, check->live[at]))
        other = check->live[at];
    if (other != UINT32_MAX)
        return VIOLATION(check, "buffers %" PRIu32 " and %" PRIu32 " overlap at time %" PRIu64,
                         other < buffer ? other : buffer, other < buffer ? buffer : other, time);
    memmove(check->live + at + 1, check->live + at, (check->live_count - at) * sizeof *check->live);
    check->live[at] = buffer;
    check->live_count++;
    check->load += check->problem->buffers[buffer].size_bytes;
    check->peak = check->load > check->peak ? check->load : check->peak;
    return EBB_OK;
}

static void end(struct check *check, uint32_t buffer)
{
    uint32_t at = live_find(check, offset_of(check, buffer));
    check->live_count--;
    memmove(check->live + at, check->live + at + 1, (check->live_count - at) * sizeof *check->live);
    check->load -= check->problem->buffers[buffer].size_bytes;
}

static enum ebb_status sweep(struct check *check)
{
    enum ebb_status status = EBB_OK;
    for (size_t i = 0; i < check->change_count && !status; i++) {
        const struct change *change = &check->changes[i];
        if (change->begins)
            status = begin(check, change->buffer, change->time);
        else
            end(check, change->buffer);
    }
    return status;
}

static enum ebb_status heights_check(const struct check *check)
{
    const struct ebb_pool_solution *solution = check->solution;
    if (solution->count != check->problem->count)
        return VIOLATION(check, "%" PRIu32 " offsets for %" PRIu32 " buffers", solution->count,
                         check->problem->count);
    for (uint32_t i = 0; i < solution->count; i++) {
        uint64_t size = check->problem->buffers[i].size_bytes;
        if (size > solution->height_bytes || solution->offsets[i] > solution->height_bytes - size)
            return VIOLATION(check, "buffer %" PRIu32 " ends above the height", i);
    }
    return EBB_OK;
}

static enum ebb_status figures_check(const struct check *check)
{
    const struct ebb_pool_solution *solution = check->solution;
    uint64_t capacity = check->problem->capacity_bytes;
    if (solution->load_bytes != check->peak)
        return VIOLATION(check, "the load is %" PRIu64, check->peak);
    if (solution->lower_bound_bytes < check->peak)
        return VIOLATION(check, "its bound is below the load of %" PRIu64, check->peak);
    if (solution->lower_bound_bytes > solution->height_bytes)
        return VIOLATION(check, "its height is below its bound");
    bool met = solution->capacity == EBB_POOL_CAPACITY_MET;
    bool impossible = solution->capacity == EBB_POOL_CAPACITY_IMPOSSIBLE;
    if (met != (solution->height_bytes <= capacity))
        return VIOLATION(check, "the capacity is not what its height says");
    if (impossible != (solution->lower_bound_bytes > capacity))
        return VIOLATION(check, "the capacity is not what its bound says");
    if (solution->optimal != (solution->height_bytes == solution->lower_bound_bytes))
        return VIOLATION(check, "optimal is not what its bound says");
    return EBB_OK;
}

enum ebb_status ebb__check_packing(const struct ebb_pool_problem *problem,
                                   const struct ebb_pool_solution *solution,
                                   struct ebb_error *error)
{
    struct check check = {.problem = problem, .solution = solution, .error = error};
    enum ebb_status status = heights_check(&check);
    if (status)
        return status;
    check.changes = malloc((4 * (size_t)problem->count + 1) * sizeof *check.changes);
    check.live = malloc((problem->count + 1u) * sizeof *check.live);
    if (!check.changes || !check.live) {
        status = ebb__fail(error, EBB_ERR_MEMORY, "packing", "out of memory");
    } else {
        changes_list(&check);
        status = sweep(&check);
    }
    if (!status)
        status = figures_check(&check);
    free(check.changes);
    free(check.live);
    return status;
}
