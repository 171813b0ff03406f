#include "plan/pool/sections.h"

#include "base/order.h"

#include <stdlib.h>
#include <string.h>

static bool lives_always(const struct ebb_pool_problem *problem, const struct ebb_pool_buffer *item)
{
    return problem->period && item->upper - item->lower == problem->period;
}

static uint64_t on_circle(const struct ebb_pool_problem *problem, uint64_t time)
{
    return problem->period && time >= problem->period ? time - problem->period : time;
}

/* The index of `time`, which must be present. */
static uint32_t time_find(const uint64_t *times, uint32_t count, uint64_t time)
{
    uint32_t low = 0, high = count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (times[middle] <= time)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static uint32_t times_collect(const struct ebb_pool_problem *problem, uint64_t *times)
{
    uint32_t count = 0, kept = 0;
    for (uint32_t i = 0; i < problem->count; i++) {
        if (lives_always(problem, &problem->buffers[i]))
            continue;
        times[count++] = problem->buffers[i].lower;
        times[count++] = on_circle(problem, problem->buffers[i].upper);
    }
    ebb__sort_u64(times, count);
    for (uint32_t i = 0; i < count; i++)
        if (!kept || times[kept - 1] != times[i])
            times[kept++] = times[i];
    return kept;
}

/* Span i is between times i and i + 1; on a circle the last one is between the last and the first.
 * It is a section if a lifetime ends behind it and one has begun since the last section. On a
 * circle, a first pass finds the state with which the second starts. Returns the number of sections
 * and, for each span, how many precede it. */
static uint32_t spans_choose(const bool *begins, const bool *ends, uint32_t spans, bool circle,
                             uint32_t *before)
{
    bool begun = false;
    uint32_t count = 0;
    for (int lap = circle ? 0 : 1; lap < 2; lap++) {
        count = 0;
        for (uint32_t i = 0; i < spans; i++) {
            before[i] = count;
            begun = begun || begins[i];
            bool ended = ends[circle && i + 1 == spans ? 0 : i + 1];
            if (begun && ended) {
                count++;
                begun = false;
            }
        }
    }
    return count;
}

static void runs_find(struct ebb_pool_sections *sections, const struct ebb_pool_problem *problem,
                      const uint64_t *times, uint32_t time_count, const uint32_t *before)
{
    uint32_t count = sections->count;
    for (uint32_t i = 0; i < problem->count; i++) {
        const struct ebb_pool_buffer *item = &problem->buffers[i];
        struct ebb_pool_run *run = &sections->runs[i];
        *run = (struct ebb_pool_run){0, count};
        if (lives_always(problem, item))
            continue;
        uint64_t upper = on_circle(problem, item->upper);
        uint32_t first = before[time_find(times, time_count, item->lower)];
        uint32_t last = before[time_find(times, time_count, upper)];
        bool wraps = upper <= item->lower;
        *run = (struct ebb_pool_run){first % count, wraps ? last + count : last};
        if (first == count)
            run->last -= count; /* no section between it and the end of the circle */
    }
}

static bool loads_add(struct ebb_pool_sections *sections, const struct ebb_pool_problem *problem)
{
    uint32_t count = sections->count;
    uint64_t *change = calloc(2 * (size_t)count + 1, sizeof *change);
    if (!change)
        return false;
    for (uint32_t i = 0; i < problem->count; i++) {
        change[sections->runs[i].first] += problem->buffers[i].size_bytes;
        change[sections->runs[i].last] -= problem->buffers[i].size_bytes;
    }
    uint64_t load = 0;
    for (uint32_t s = 0; s < 2 * count; s++) {
        load += change[s];
        sections->load_bytes[s % count] += load;
    }
    for (uint32_t s = 0; s < count; s++)
        if (sections->load_bytes[s] > sections->load_bound_bytes)
            sections->load_bound_bytes = sections->load_bytes[s];
    free(change);
    return true;
}

enum ebb_status ebb__pool_sections_init(struct ebb_pool_sections *sections,
                                        const struct ebb_pool_problem *problem)
{
    uint32_t n = problem->count;
    bool circle = problem->period != 0;
    enum ebb_status status = EBB_ERR_MEMORY;
    *sections = (struct ebb_pool_sections){0};
    uint64_t *times = malloc((2 * (size_t)n + 1) * sizeof *times);
    bool *begins = calloc(2 * (size_t)n + 1, sizeof *begins);
    bool *ends = calloc(2 * (size_t)n + 1, sizeof *ends);
    uint32_t *before = calloc(2 * (size_t)n + 2, sizeof *before);
    if (!times || !begins || !ends || !before)
        goto done;
    uint32_t time_count = times_collect(problem, times);
    for (uint32_t i = 0; i < n; i++) {
        const struct ebb_pool_buffer *item = &problem->buffers[i];
        if (lives_always(problem, item))
            continue;
        begins[time_find(times, time_count, item->lower)] = true;
        ends[time_find(times, time_count, on_circle(problem, item->upper))] = true;
    }
    uint32_t spans = circle ? time_count : time_count ? time_count - 1 : 0;
    sections->count = spans_choose(begins, ends, spans, circle, before);
    if (!circle && time_count)
        before[time_count - 1] = sections->count;
    if (sections->count == 0)
        sections->count = 1; /* all buffers are always live */
    sections->runs = malloc((n + 1u) * sizeof *sections->runs);
    sections->load_bytes = calloc(sections->count, sizeof *sections->load_bytes);
    if (!sections->runs || !sections->load_bytes)
        goto done;
    runs_find(sections, problem, times, time_count, before);
    status = loads_add(sections, problem) ? EBB_OK : EBB_ERR_MEMORY;
done:
    free(times);
    free(begins);
    free(ends);
    free(before);
    if (status)
        ebb__pool_sections_fini(sections);
    return status;
}

void ebb__pool_sections_fini(struct ebb_pool_sections *sections)
{
    free(sections->runs);
    free(sections->load_bytes);
    *sections = (struct ebb_pool_sections){0};
}
