/* Heat: the order in which blocks ask for fast memory.
 *
 * The published method names a weighted sum of four characteristics without saying which. Ebb's
 * reading is size, shortness of life, access frequency and nearness of the next use. The share of
 * writes is a fifth one, since slow media are slower at writing. Each is in [0, 1]. The weights
 * follow regret: placements are tried with weights nearby. The weights move to those of a
 * placement that took less time, and away from those of one that took more. */
#include "lab/tier/deeptm.h"

#include <math.h>
#include <stdlib.h>

#define NOISE 0.5 /* of tried weights */
#define RATE 0.2  /* of moves */

static void characteristics(const struct ebb_deeptm *it, uint32_t b, double *of)
{
    const struct ebb_operations *operations = it->operations;
    const struct ebb_operation_block *block = &operations->blocks[b];
    double written = 0, all = 0, count = (double)operations->count;
    for (uint32_t i = 0; i < block->use_count; i++) {
        const struct ebb_use *use = ebb__block_use(operations, b, i);
        written += (double)use->write_bytes;
        all += (double)(use->read_bytes + use->write_bytes);
    }
    of[0] = log2((double)block->size_bytes + 1) / 48;
    of[1] = 1 - (double)block->span / count;
    of[2] = (double)block->use_count / (double)(block->span + 1);
    of[3] = 1 / (1 + (double)block->span / (double)(block->use_count + 1));
    of[4] = all > 0 ? written / all : 0;
}

void ebb__deeptm_heat(struct ebb_deeptm *it)
{
    for (uint32_t b = 0; b < it->operations->block_count; b++) {
        double of[EBB_HEAT_COUNT];
        characteristics(it, b, of);
        it->heat[b] = 0;
        for (int i = 0; i < EBB_HEAT_COUNT; i++)
            it->heat[b] += it->heat_weight[i] * of[i];
        if (!it->options.heat)
            it->heat[b] = of[0];
    }
}

void ebb__deeptm_heat_vary(struct ebb_deeptm *it, double *weights)
{
    for (int i = 0; i < EBB_HEAT_COUNT; i++) {
        double chance = (double)(ebb__deeptm_random(it) >> 11) * 0x1p-53;
        weights[i] = it->heat_weight[i] + NOISE * (2 * chance - 1);
    }
}

void ebb__deeptm_heat_regret(struct ebb_deeptm *it, const double *tried, double gain)
{
    double direction = gain > 0 ? RATE : -RATE / 10; /* most trials lose */
    for (int i = 0; i < EBB_HEAT_COUNT; i++) {
        it->heat_weight[i] += direction * (tried[i] - it->heat_weight[i]);
        it->heat_weight[i] = fmax(-2, fmin(2, it->heat_weight[i]));
    }
}

void ebb__deeptm_heat_sort(const struct ebb_deeptm *it, uint32_t *blocks, uint32_t count)
{
    for (uint32_t step = count / 2; step; step /= 2) { /* shell sort: stable enough, no context */
        for (uint32_t i = step; i < count; i++) {
            uint32_t b = blocks[i], at = i;
            for (; at >= step && it->heat[blocks[at - step]] < it->heat[b]; at -= step)
                blocks[at] = blocks[at - step];
            blocks[at] = b;
        }
    }
}
