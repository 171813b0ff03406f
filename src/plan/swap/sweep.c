/* The simplest choice of gaps: one sweep over the load. */
#include "plan/swap/swap.h"

/* How much `gap` is to be taken at `tick`; 0 where it is not open there. */
static uint64_t gap_rank(const struct ebb_swap *swap, const struct ebb_swap_gap *gap, uint32_t tick,
                         enum ebb_swap_order order)
{
    uint32_t span = ebb__swap_ticks_between(swap, gap->ready_tick, gap->to_tick);
    uint32_t age = tick >= gap->ready_tick ? tick - gap->ready_tick
                                           : tick + swap->cell_count - gap->ready_tick;
    if (gap->taken || age >= span)
        return 0;
    uint64_t rank = 1;
    switch (order) {
    case EBB_SWAP_FIRST_IN:
        rank += age;
        break;
    case EBB_SWAP_LATEST_NEED:
        rank += span - age;
        break;
    case EBB_SWAP_CHEAPEST: /* time covered per lane time */
        rank += (uint64_t)((double)(gap->need_ns - gap->ready_ns) * (double)gap->bytes /
                           (double)(gap->out_ns + gap->in_ns + 1));
        break;
    }
    /* Where the copies take longer than the gap, only if nothing else is left. */
    bool pays = gap->need_ns - gap->ready_ns > gap->out_ns + gap->in_ns;
    return pays ? rank + (UINT64_MAX >> 1) : rank;
}

bool ebb__swap_select(struct ebb_swap *swap, uint64_t budget_bytes, enum ebb_swap_order order)
{
    uint32_t cells = swap->cell_count, lowest = 0;
    for (uint32_t i = 0; i < swap->gap_count; i++)
        swap->gaps[i].taken = false;
    ebb__swap_curve_ideal(swap);
    for (uint32_t t = 1; t < cells; t++)
        if (swap->load[t] < swap->load[lowest])
            lowest = t;
    bool met = true;
    for (uint32_t i = 0; i < cells; i++) {
        uint32_t tick = (lowest + i) % cells;
        while (swap->curve[tick] > budget_bytes) {
            struct ebb_swap_gap *best = NULL;
            uint64_t best_rank = 0;
            for (uint32_t g = 0; g < swap->gap_count; g++) {
                uint64_t rank = gap_rank(swap, &swap->gaps[g], tick, order);
                if (rank > best_rank) {
                    best_rank = rank;
                    best = &swap->gaps[g];
                }
            }
            if (!best) {
                met = false;
                break;
            }
            best->taken = true;
            ebb__swap_range_add(swap->curve, cells, best->ready_tick,
                                ebb__swap_ticks_between(swap, best->ready_tick, best->to_tick),
                                0 - best->bytes);
        }
    }
    return met;
}
