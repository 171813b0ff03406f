/* When copies run: the lanes, the resulting resident curve, and the starts of copies in. */
#include "plan/swap/swap.h"

#include <string.h>

void ebb__swap_range_add(uint64_t *curve, uint32_t cell_count, uint32_t first, uint32_t count,
                         uint64_t bytes)
{
    for (uint32_t i = 0, cell = first; i < count; i++) {
        curve[cell] += bytes;
        if (++cell == cell_count)
            cell = 0;
    }
}

/* The first tick at or after `ns`, 0 <= ns <= lap_ns; cell_count if there is none. */
static uint32_t tick_at(const struct ebb_swap *swap, uint64_t ns)
{
    const uint64_t *time_ns = swap->model->time_ns;
    uint32_t guess = (uint32_t)((double)ns / (double)swap->lap_ns * swap->cell_count);
    uint32_t tick = swap->bucket[guess > swap->cell_count ? swap->cell_count : guess];
    while (tick > 0 && time_ns[tick - 1] >= ns)
        tick--;
    while (tick < swap->cell_count && time_ns[tick] < ns)
        tick++;
    return tick;
}

void ebb__swap_cells(const struct ebb_swap *swap, const struct ebb_swap_gap *gap, uint32_t *first,
                     uint32_t *last)
{
    uint32_t cells = swap->cell_count;
    uint64_t lap = swap->lap_ns;
    uint32_t end = gap->ready_tick + ebb__swap_ticks_between(swap, gap->ready_tick, gap->to_tick);
    *first = *last = 0;
    if (gap->out_end_ns >= gap->in_start_ns)
        return;
    uint64_t out_end = (uint64_t)gap->out_end_ns, in_start = (uint64_t)gap->in_start_ns;
    *first = out_end <= lap ? tick_at(swap, out_end) : cells + tick_at(swap, out_end - lap);
    if (*first < gap->ready_tick)
        *first = gap->ready_tick;
    /* The last tick at or before in_start: a copy in begins after the events of its instant. */
    uint64_t within = in_start < lap ? in_start : in_start - lap;
    uint32_t after = tick_at(swap, within + 1 <= lap ? within + 1 : lap);
    *last = (in_start < lap ? 0 : cells) + after;
    *last = *last > 0 ? *last - 1 : 0;
    if (gap->drops || *last > end)
        *last = end;
}

/* Computes the curve if the taken gaps are absences as scheduled, or with instant copies from ready
 * to need. Returns its maximum. Differences first, then their sums: O(gaps + cells). */
static uint64_t curve_compute(struct ebb_swap *swap, bool instant)
{
    uint32_t cells = swap->cell_count;
    uint64_t absent = 0, peak = 0;
    memset(swap->curve, 0, cells * sizeof *swap->curve);
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        const struct ebb_swap_gap *gap = &swap->gaps[i];
        uint32_t first = gap->ready_tick, last = gap->to_tick;
        if (!gap->taken)
            continue;
        if (!instant) {
            ebb__swap_cells(swap, gap, &first, &last);
            if (first >= last)
                continue;
            first %= cells;
            last %= cells;
        }
        swap->curve[first] += gap->bytes;
        swap->curve[last] -= gap->bytes;
        if (last <= first)
            absent += gap->bytes;
    }
    for (uint32_t t = 0; t < cells; t++) {
        absent += swap->curve[t];
        swap->curve[t] = swap->load[t] - absent;
        peak = swap->curve[t] > peak ? swap->curve[t] : peak;
    }
    return peak;
}

uint64_t ebb__swap_curve_ideal(struct ebb_swap *swap)
{
    return curve_compute(swap, true);
}

uint64_t ebb__swap_schedule(struct ebb_swap *swap, uint64_t margin_ns)
{
    int64_t lap = (int64_t)swap->lap_ns;
    ebb__effort_spend(&swap->effort, swap->cell_count + 8 * (uint64_t)swap->gap_count);
    /* Two iterations: the second starts with the remainder of the first across the iteration's
     * end. */
    int64_t free_ns = INT64_MIN / 2;
    for (int turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < swap->gap_count; i++) {
            struct ebb_swap_gap *gap = &swap->gaps[swap->by_ready[i]];
            int64_t start = (int64_t)gap->ready_ns > free_ns ? (int64_t)gap->ready_ns : free_ns;
            gap->out_end_ns = start + (int64_t)((double)gap->out_ns / swap->lane_scale);
            if (gap->taken)
                free_ns = gap->out_end_ns;
        }
        free_ns -= lap;
    }
    int64_t next_ns = INT64_MAX / 2;
    for (int turn = 0; turn < 2; turn++) {
        for (uint32_t i = swap->gap_count; i-- > 0;) {
            struct ebb_swap_gap *gap = &swap->gaps[swap->by_due[i]];
            if (gap->drops) {
                gap->in_start_ns = (int64_t)gap->need_ns;
                continue;
            }
            int64_t unrolled = gap->due_ns >= swap->lap_ns ? lap : 0;
            int64_t due = (int64_t)gap->due_ns - unrolled - (int64_t)margin_ns;
            int64_t end = due < next_ns ? due : next_ns;
            int64_t start = end - (int64_t)((double)gap->in_ns / swap->lane_scale);
            gap->in_start_ns = start + unrolled;
            if (gap->taken)
                next_ns = start;
        }
        next_ns += lap;
    }
    return curve_compute(swap, false);
}

void ebb__swap_trigger_late(struct ebb_swap *swap)
{
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        struct ebb_swap_gap *gap = &swap->gaps[i];
        int64_t start = gap->in_start_ns;
        if (start < (int64_t)gap->ready_ns)
            start = (int64_t)gap->ready_ns;
        gap->trigger_ns = (uint64_t)start % swap->lap_ns;
    }
}

void ebb__swap_trigger_early(struct ebb_swap *swap, uint64_t budget_bytes)
{
    ebb__swap_curve_ideal(swap);
    uint32_t cells = swap->cell_count, peak_tick = 0, begin = 0;
    for (uint32_t t = 1; t < cells; t++)
        if (swap->load[t] > swap->load[peak_tick])
            peak_tick = t;
    uint64_t peak_ns = swap->model->time_ns[peak_tick];
    while (begin < swap->gap_count &&
           swap->gaps[swap->by_due[begin]].due_ns % swap->lap_ns <= peak_ns)
        begin++;
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        struct ebb_swap_gap *gap = &swap->gaps[swap->by_due[(begin + i) % swap->gap_count]];
        if (!gap->taken || gap->drops)
            continue;
        uint32_t count = ebb__swap_ticks_between(swap, gap->ready_tick, gap->to_tick);
        uint32_t tick = gap->to_tick, back = 0;
        for (; back < count; back++) {
            uint32_t cell = tick == 0 ? cells - 1 : tick - 1;
            if (swap->curve[cell] + gap->bytes > budget_bytes)
                break;
            tick = cell;
        }
        ebb__swap_range_add(swap->curve, cells, tick, back, gap->bytes);
        gap->trigger_ns = swap->model->time_ns[tick] % swap->lap_ns;
    }
}

void ebb__swap_trigger_limit(struct ebb_swap *swap, uint64_t budget_bytes)
{
    ebb__swap_schedule(swap, 0);
    ebb__swap_trigger_early(swap, budget_bytes);
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        struct ebb_swap_gap *gap = &swap->gaps[i];
        if (!gap->taken || gap->drops)
            continue;
        uint64_t early = gap->trigger_ns + (gap->trigger_ns < gap->ready_ns ? swap->lap_ns : 0);
        if (gap->in_start_ns > (int64_t)early)
            early = (uint64_t)gap->in_start_ns;
        gap->trigger_ns = early % swap->lap_ns;
    }
}
