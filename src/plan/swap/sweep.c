/* The simplest choice of gaps: one sweep over the load, from its lowest point. If the load exceeds
 * the budget, the best open gap becomes an absence.
 *
 * The order of two open gaps does not change while both are open, so they are kept in a heap. A
 * closed gap is dropped when it reaches the top. A gap that is open at the sweep's start begins
 * again before its end, and then stands for its next occurrence. */
#include "plan/swap/swap.h"

/* True if `left` is to be taken before `right`. */
static bool better(const struct ebb_swap_open *left, const struct ebb_swap_open *right)
{
    if (left->rank != right->rank)
        return left->rank > right->rank;
    return left->gap < right->gap;
}

static void exchange(struct ebb_swap_open *left, struct ebb_swap_open *right)
{
    struct ebb_swap_open kept = *left;
    *left = *right;
    *right = kept;
}

static void heap_push(struct ebb_swap_open *heap, uint32_t *count, struct ebb_swap_open open)
{
    uint32_t at = (*count)++;
    heap[at] = open;
    for (; at > 0 && better(&heap[at], &heap[(at - 1) / 2]); at = (at - 1) / 2)
        exchange(&heap[at], &heap[(at - 1) / 2]);
}

static void heap_pop(struct ebb_swap_open *heap, uint32_t *count)
{
    heap[0] = heap[--(*count)];
    for (uint32_t at = 0;;) {
        uint32_t best = at;
        for (uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < *count; child++)
            if (better(&heap[child], &heap[best]))
                best = child;
        if (best == at)
            return;
        exchange(&heap[at], &heap[best]);
        at = best;
    }
}

/* A gap that begins `begin` ticks after the sweep's start, or before it if negative. */
static struct ebb_swap_open open_make(const struct ebb_swap *swap, uint32_t index, int64_t begin,
                                      enum ebb_swap_order order)
{
    const struct ebb_swap_gap *gap = &swap->gaps[index];
    int64_t cells = swap->cell_count;
    int64_t end = begin + ebb__swap_ticks_between(swap, gap->ready_tick, gap->to_tick);
    uint64_t length_ns = gap->need_ns - gap->ready_ns, copies_ns = gap->out_ns + gap->in_ns;
    uint64_t rank = 0;
    switch (order) {
    case EBB_SWAP_FIRST_IN:
        rank = (uint64_t)(cells - begin);
        break;
    case EBB_SWAP_LATEST_NEED:
        rank = (uint64_t)(cells + end);
        break;
    case EBB_SWAP_CHEAPEST: { /* time covered per lane time */
        double worth = (double)length_ns * (double)gap->bytes / (double)(copies_ns + 1);
        rank = worth < 0x1p62 ? (uint64_t)worth : UINT64_C(1) << 62;
        break;
    }
    }
    /* If the copies take longer than the gap, it is taken only as a last resort. */
    if (length_ns > copies_ns)
        rank += UINT64_MAX >> 1;
    return (struct ebb_swap_open){.rank = rank, .gap = index, .end = end};
}

/* Lists the gaps open at `lowest`; returns the index in by_ready of the first gap that begins
 * later. */
static uint32_t sweep_begin(struct ebb_swap *swap, uint32_t lowest, enum ebb_swap_order order,
                            uint32_t *count)
{
    for (uint32_t i = 0; i < swap->gap_count; i++) {
        const struct ebb_swap_gap *gap = &swap->gaps[i];
        swap->gaps[i].taken = false;
        int64_t age =
            lowest == gap->ready_tick ? 0 : ebb__swap_ticks_between(swap, gap->ready_tick, lowest);
        if (age < ebb__swap_ticks_between(swap, gap->ready_tick, gap->to_tick))
            heap_push(swap->open, count, open_make(swap, i, -age, order));
    }
    uint32_t first = 0;
    while (first < swap->gap_count && swap->gaps[swap->by_ready[first]].ready_tick <= lowest)
        first++;
    return first;
}

bool ebb__swap_select(struct ebb_swap *swap, uint64_t budget_bytes, enum ebb_swap_order order)
{
    uint32_t cells = swap->cell_count, lowest = 0, count = 0, begun = 0;
    ebb__effort_spend(&swap->effort, 4 * (uint64_t)cells + 16 * (uint64_t)swap->gap_count);
    for (uint32_t t = 1; t < cells; t++)
        if (swap->load[t] < swap->load[lowest])
            lowest = t;
    uint32_t first = sweep_begin(swap, lowest, order, &count);
    uint64_t *back = swap->curve; /* bytes that are needed again at a tick */
    uint64_t absent = 0;
    bool met = true;
    for (uint32_t t = 0; t < cells; t++)
        back[t] = 0;
    for (uint32_t step = 0; step < cells; step++) {
        uint32_t tick = (lowest + step) % cells;
        absent -= back[tick];
        for (; begun < swap->gap_count; begun++) {
            uint32_t index = swap->by_ready[(first + begun) % swap->gap_count];
            uint32_t begin = ebb__swap_ticks_between(swap, lowest, swap->gaps[index].ready_tick);
            if (begin > step)
                break;
            if (swap->gaps[index].taken)
                absent += swap->gaps[index].bytes; /* absent in the previous iteration, so in this
                                                      one too */
            else
                heap_push(swap->open, &count, open_make(swap, index, begin, order));
        }
        while (swap->load[tick] - absent > budget_bytes) {
            if (count == 0) {
                met = false;
                break;
            }
            struct ebb_swap_open open = swap->open[0];
            struct ebb_swap_gap *gap = &swap->gaps[open.gap];
            heap_pop(swap->open, &count);
            if (gap->taken || open.end <= step)
                continue;
            gap->taken = true;
            absent += gap->bytes;
            if (open.end < cells)
                back[(lowest + (uint32_t)open.end) % cells] += gap->bytes;
        }
    }
    return met;
}
