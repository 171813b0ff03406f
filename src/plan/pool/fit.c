#include "plan/pool/fit.h"

#include <stdlib.h>
#include <string.h>

enum ebb_status ebb__pool_fit_init(struct ebb_pool_fit *fit, const struct ebb_pool_problem *problem,
                                   const struct ebb_pool_sections *sections)
{
    size_t room = problem->count + 1u;
    *fit = (struct ebb_pool_fit){.problem = problem, .sections = sections};
    fit->first = malloc(room * sizeof *fit->first);
    fit->last = malloc(room * sizeof *fit->last);
    fit->more = malloc(room * sizeof *fit->more);
    fit->offset = malloc(room * sizeof *fit->offset);
    fit->top = malloc(room * sizeof *fit->top);
    if (fit->first && fit->last && fit->more && fit->offset && fit->top)
        return EBB_OK;
    ebb__pool_fit_fini(fit);
    return EBB_ERR_MEMORY;
}

void ebb__pool_fit_fini(struct ebb_pool_fit *fit)
{
    free(fit->first);
    free(fit->last);
    free(fit->more);
    free(fit->offset);
    free(fit->top);
    *fit = (struct ebb_pool_fit){0};
}

/* Finds the offset for a buffer of this size; *position is its index in the arrays. The placed
 * buffers are scanned linearly. Nearly all of them are live at other times and are skipped in a
 * nanosecond each. Lists of neighbours are faster only for many thousands. */
static uint64_t gap_find(const struct ebb_pool_fit *fit, uint32_t first, uint32_t last,
                         uint32_t more, uint64_t size, enum ebb_pool_rule rule, uint32_t *position)
{
    uint64_t top = 0, best = 0, best_gap = UINT64_MAX;
    const uint32_t count = fit->count;
    for (uint32_t i = 0; i < count; i++) {
        if (!((fit->first[i] < last && first < fit->last[i]) || fit->first[i] < more ||
              first < fit->more[i]))
            continue;
        if (fit->offset[i] >= top + size) {
            uint64_t gap = fit->offset[i] - top;
            if (gap < best_gap) {
                best_gap = gap;
                best = top;
                if (rule == EBB_POOL_FIRST_FIT || gap == size)
                    break;
            }
        }
        if (fit->top[i] > top)
            top = fit->top[i];
    }
    if (best_gap == UINT64_MAX)
        best = top;
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (fit->offset[middle] < best)
            low = middle + 1;
        else
            high = middle;
    }
    *position = low;
    return best;
}

#define INSERT(array, position, count, value)                                                      \
    (memmove((array) + (position) + 1, (array) + (position),                                       \
             ((count) - (position)) * sizeof *(array)),                                            \
     (array)[position] = (value))

uint64_t ebb__pool_fit_pack(struct ebb_pool_fit *fit, const uint32_t *order,
                            enum ebb_pool_rule rule, uint64_t below, uint64_t *offsets)
{
    uint64_t height = 0;
    fit->count = 0;
    for (uint32_t i = 0; i < fit->problem->count; i++) {
        uint32_t b = order[i], position;
        struct ebb_pool_run run = fit->sections->runs[b];
        uint32_t more = run.last > fit->sections->count ? run.last - fit->sections->count : 0;
        uint32_t last = run.last - more;
        uint64_t size = fit->problem->buffers[b].size_bytes;
        uint64_t offset = gap_find(fit, run.first, last, more, size, rule, &position);
        if (offset + size > height)
            height = offset + size;
        if (height >= below)
            return UINT64_MAX;
        INSERT(fit->first, position, fit->count, run.first);
        INSERT(fit->last, position, fit->count, last);
        INSERT(fit->more, position, fit->count, more);
        INSERT(fit->offset, position, fit->count, offset);
        INSERT(fit->top, position, fit->count, offset + size);
        fit->count++;
        offsets[b] = offset;
    }
    return height;
}
