#include "lab/tier/deeptm.h"
#include "lab/tier/occupancy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEED 0x9e3779b97f4a7c15ull /* arbitrary, not 0 */

bool ebb__deeptm_init(struct ebb_deeptm *it, const struct ebb_tier_request *request,
                      struct ebb_deeptm_options options)
{
    const struct ebb_operations *operations = request->operations;
    size_t count = (size_t)operations->count + 2, uses = (size_t)operations->use_count + 1;
    *it = (struct ebb_deeptm){.request = request,
                              .operations = operations,
                              .options = options,
                              .random = SEED,
                              .slack = 1};
    it->uses = calloc(uses, sizeof *it->uses);
    it->placed = calloc((size_t)operations->block_count + 1, sizeof *it->placed);
    it->heat = calloc((size_t)operations->block_count + 1, sizeof *it->heat);
    it->used_bytes = calloc(count, sizeof *it->used_bytes);
    it->operand_ns = calloc(count, sizeof *it->operand_ns);
    it->fast_ns = calloc(uses, sizeof *it->fast_ns);
    it->slow_ns = calloc(uses, sizeof *it->slow_ns);
    it->lane_ns[0] = calloc(count, sizeof(double));
    it->lane_ns[1] = calloc(count, sizeof(double));
    it->price = calloc(count, sizeof *it->price);
    it->price_sum = calloc(count, sizeof *it->price_sum);
    for (int i = 0; i < EBB_HEAT_COUNT; i++)
        it->heat_weight[i] = 1.0 / EBB_HEAT_COUNT;
    if (!it->uses || !it->placed || !it->heat || !it->used_bytes || !it->operand_ns ||
        !it->fast_ns || !it->slow_ns || !it->lane_ns[0] || !it->lane_ns[1] || !it->price ||
        !it->price_sum)
        return false;
    for (uint32_t i = 0; i < operations->use_count; i++) {
        const struct ebb_use *use = &operations->uses[operations->order[i]];
        it->fast_ns[i] = ebb__use_ns(request->machine, use, 0);
        it->slow_ns[i] = ebb__use_ns(request->machine, use, 1);
    }
    return true;
}

void ebb__deeptm_fini(struct ebb_deeptm *it)
{
    free(it->uses);
    free(it->placed);
    free(it->heat);
    free(it->used_bytes);
    free(it->operand_ns);
    free(it->fast_ns);
    free(it->slow_ns);
    free(it->lane_ns[0]);
    free(it->lane_ns[1]);
    free(it->price);
    free(it->price_sum);
    free(it->table);
    *it = (struct ebb_deeptm){0};
}

/* A copy loads its lane in its window, each operation as long as it takes. */
static void lane_add(struct ebb_deeptm *it, const struct ebb_deeptm_copy *copy, bool in,
                     double copy_ns)
{
    const struct ebb_operations *operations = it->operations;
    double window_ns = 0,
           hidden_ns = copy_ns > 0 ? copy_ns - copy->wait_ns : copy_ns + copy->wait_ns;
    for (uint32_t at = copy->start; at != copy->first;
         at = at + 1 == operations->count ? 0 : at + 1)
        window_ns += (double)operations->items[at].ns;
    if (window_ns <= 0)
        return;
    double *lane = it->lane_ns[in && it->request->machine->duplex];
    for (uint32_t at = copy->start; at != copy->first;
         at = at + 1 == operations->count ? 0 : at + 1)
        lane[at] += hidden_ns * (double)operations->items[at].ns / window_ns;
}

static void copy_change(struct ebb_deeptm *it, uint32_t block, const struct ebb_deeptm_copy *copy,
                        bool in, int sign)
{
    const struct ebb_tier_machine *machine = it->request->machine;
    uint64_t bytes = ebb__deeptm_bytes(it, block);
    double copy_ns = (double)ebb__lane_ns(in ? &machine->in : &machine->out, bytes);
    uint32_t span = ebb__operations_between(it->operations, copy->start, copy->first);
    if (!copy->made)
        return;
    it->wait_ns += sign * copy->wait_ns;
    lane_add(it, copy, in, sign * copy_ns);
    ebb__occupancy_add(it->used_bytes, it->operations->count, copy->start, span,
                       sign * (int64_t)bytes);
}

static void block_change(struct ebb_deeptm *it, uint32_t b, int sign)
{
    const struct ebb_operations *operations = it->operations;
    const struct ebb_operation_block *block = &operations->blocks[b];
    int64_t bytes = sign * (int64_t)ebb__deeptm_bytes(it, b);
    uint32_t count = operations->count, birth = ebb__tier_birth(operations, b);
    for (uint32_t i = 0; i < block->use_count; i++) {
        const struct ebb_deeptm_use *use = &it->uses[block->first_use + i];
        uint32_t at = ebb__block_use(operations, b, i)->operation;
        bool last = i + 1 == block->use_count;
        uint32_t next = last ? block->persistent ? ebb__block_use(operations, b, 0)->operation
                                                 : (birth + block->span) % count
                             : ebb__block_use(operations, b, i + 1)->operation;
        uint32_t gap = at + 1 == count ? 0 : at + 1;
        uint32_t span = ebb__operations_between(operations, gap, next);
        if (last && !block->persistent)
            span = block->span - 1 - ebb__operations_between(operations, birth, at);
        it->operand_ns[at] += sign * (use->fast ? it->fast_ns : it->slow_ns)[block->first_use + i];
        it->latency_ns += sign * (use->fast ? 0 : ebb__use_latency_ns(it->request->machine, 1));
        if (use->fast)
            ebb__occupancy_add(it->used_bytes, count, at, 1, bytes);
        if (use->fast && i == 0 && !block->persistent)
            ebb__occupancy_add(it->used_bytes, count, birth,
                               ebb__operations_between(operations, birth, at), bytes);
        if (use->stays)
            ebb__occupancy_add(it->used_bytes, count, gap, span, bytes);
        copy_change(it, b, &use->out, false, sign);
        copy_change(it, b, &use->in, true, sign);
        if (use->in.made) /* fast from the end of the copy to the use */
            ebb__occupancy_add(it->used_bytes, count, use->in.first,
                               ebb__operations_between(operations, use->in.first, next), bytes);
    }
    it->placed[b] = sign > 0;
}

void ebb__deeptm_place(struct ebb_deeptm *it, uint32_t block)
{
    block_change(it, block, 1);
}

void ebb__deeptm_remove(struct ebb_deeptm *it, uint32_t block)
{
    block_change(it, block, -1);
}

static int by_first(const void *left, const void *right)
{
    const struct ebb_stay *a = left, *b = right;
    return (a->first > b->first) - (a->first < b->first);
}

static bool block_stays(const struct ebb_deeptm *it, uint32_t b, struct ebb_tier_plan *plan)
{
    const struct ebb_operation_block *block = &it->operations->blocks[b];
    const struct ebb_deeptm_use *uses = &it->uses[block->first_use];
    uint32_t birth = ebb__tier_birth(it->operations, b);
    size_t before = plan->stays.count;
    bool ok = true;
    if (block->use_count == 0)
        return true;
    if (!block->persistent)
        ok = ebb__tier_plan_add(
            plan,
            (struct ebb_stay){.block = b, .first = birth, .start = birth, .tier = !uses[0].fast});
    for (uint32_t i = 0; ok && i < block->use_count; i++) {
        const struct ebb_deeptm_use *use = &uses[i];
        if (use->out.made || use->drops)
            ok = ebb__tier_plan_add(plan, (struct ebb_stay){.block = b,
                                                            .first = use->out.first,
                                                            .start = use->out.start,
                                                            .tier = EBB_TIER_SLOW});
        if (ok && use->in.made)
            ok = ebb__tier_plan_add(plan, (struct ebb_stay){.block = b,
                                                            .first = use->in.first,
                                                            .start = use->in.start,
                                                            .tier = EBB_TIER_FAST});
    }
    if (ok && block->persistent && plan->stays.count == before)
        ok = ebb__tier_plan_add(plan, (struct ebb_stay){.block = b, .tier = !uses[0].fast});
    if (ok && block->persistent)
        qsort(plan->stays.items + before, plan->stays.count - before, sizeof *plan->stays.items,
              by_first);
    return ok;
}

enum ebb_status ebb__deeptm_plan(const struct ebb_deeptm *it, struct ebb_tier_plan *plan,
                                 struct ebb_error *error)
{
    bool ok = true;
    plan->stays.count = 0;
    for (uint32_t b = 0; ok && b < it->operations->block_count; b++)
        ok = block_stays(it, b, plan);
    return ok ? ebb__tier_plan_close(plan, it->operations, error)
              : ebb__fail(error, EBB_ERR_MEMORY, "deeptm", "no memory for the plan");
}
