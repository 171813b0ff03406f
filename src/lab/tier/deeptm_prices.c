/* The performance model as an integer program, decomposed.
 *
 * Problem: which block is in fast memory when, so that the iteration is shortest. All that
 * couples the blocks of AutoTM's program is memory, operation by operation. Method: memory has a
 * price in each operation. Given prices, each block chooses its own best path (deeptm_path.c),
 * which is a program of its own and small. Where the blocks together want more memory than there
 * is, the price rises; where less, it falls (subgradients, steps that shrink). Operations that
 * several blocks make longer couple them, too: blocks choose one after another, each knowing the
 * others' paths. Source: Lagrangian relaxation, Held and Karp 1971; its use here is original to
 * Ebb. */
#include "lab/tier/deeptm.h"

#include <math.h>

#define STEP_HALVES 8.0 /* rounds until a step is half as long; 4 and 16 give the same plans */

static void sums_make(struct ebb_deeptm *it)
{
    it->price_sum[0] = 0;
    for (uint32_t i = 0; i < it->operations->count; i++)
        it->price_sum[i + 1] = it->price_sum[i] + it->price[i];
}

/* The time that is lost if everything is in the slow tier. */
static double at_stake_ns(const struct ebb_deeptm *it)
{
    const struct ebb_operations *operations = it->operations;
    double lost = 0;
    for (uint32_t i = 0; i < operations->count; i++) {
        const struct ebb_operation *operation = &operations->items[i];
        double fast = 0, slow = 0;
        for (uint32_t u = 0; u < operation->use_count; u++) {
            const struct ebb_use *use = &operations->uses[operation->first_use + u];
            fast += ebb__use_ns(it->request->machine, use, 0);
            slow += ebb__use_ns(it->request->machine, use, 1);
        }
        lost += ebb__deeptm_operation_ns(it, i, slow) - ebb__deeptm_operation_ns(it, i, fast);
    }
    return lost;
}

void ebb__deeptm_prices(struct ebb_deeptm *it, uint32_t rounds)
{
    const struct ebb_operations *operations = it->operations;
    double budget = (double)it->request->budget_bytes;
    double unit = at_stake_ns(it) / ((double)operations->count * (budget + 1));
    it->price_factor = 1;
    sums_make(it);
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t b = 0; b < operations->block_count; b++) {
            if (it->placed[b])
                ebb__deeptm_remove(it, b);
            ebb__deeptm_path(it, b, true);
            ebb__deeptm_place(it, b);
        }
        double step = unit / (1 + round / STEP_HALVES);
        for (uint32_t i = 0; i < operations->count; i++) {
            double excess = ((double)it->used_bytes[i] - budget) / (budget + 1);
            it->price[i] = fmax(0, it->price[i] + step * fmin(4, excess));
        }
        sums_make(it);
    }
    for (uint32_t b = 0; b < operations->block_count; b++)
        if (it->placed[b])
            ebb__deeptm_remove(it, b);
}
