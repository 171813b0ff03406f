#include "lab/swap/shares.h"

#include "lab/swap/layers.h"

#include <stdlib.h>

struct candidate {
    uint32_t stage;
    uint32_t block;
    uint64_t bytes;
};

/* By stage; in a stage the largest first. */
static int candidate_compare(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    if (a->stage != b->stage)
        return a->stage < b->stage ? -1 : 1;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return (a->block > b->block) - (a->block < b->block);
}

static uint32_t last_stage(const struct ebb_model *model, const struct ebb_stages *stages,
                           const struct ebb_model_block *block)
{
    return stages->at[model->accesses[block->first_access + block->access_count - 1].tick];
}

static bool is_backward_layer(const struct ebb_stages *stages, uint32_t stage)
{
    return stages->items[stage].phase == EBB_PHASE_BACKWARD && stages->items[stage].layer > 0;
}

/* The gradient of data: made by a backward layer, for later ones. */
static bool is_gradient(const struct ebb_model *model, const struct ebb_stages *stages,
                        const struct ebb_model_block *block)
{
    uint32_t born = stages->at[block->alloc_tick];
    bool backward = is_backward_layer(stages, born) && last_stage(model, stages, block) != born;
    for (uint32_t i = 0; backward && i < block->access_count; i++) {
        uint32_t tick = model->accesses[block->first_access + i].tick;
        backward = stages->items[stages->at[tick]].phase == EBB_PHASE_BACKWARD;
    }
    return backward;
}

/* Lists the gradients, by the layer that makes them, or the data, by the layer that uses it
 * last. */
static uint32_t list(const struct ebb_plan_request *request, const struct ebb_stages *stages,
                     bool gradients, struct candidate *items)
{
    const struct ebb_model *model = request->model;
    uint32_t count = 0;
    for (uint32_t i = 0; i < model->block_count; i++) {
        const struct ebb_model_block *block = &model->blocks[i];
        if (block->alloc_tick == EBB_TICK_NONE || block->part_count || block->access_count == 0 ||
            block->span_ticks >= model->tick_count)
            continue;
        uint32_t stage =
            gradients ? stages->at[block->alloc_tick] : last_stage(model, stages, block);
        bool listed =
            gradients ? is_gradient(model, stages, block)
                      : is_backward_layer(stages, stage) && ebb__layers_is_output(model, stages, i);
        if (listed)
            items[count++] = (struct candidate){stage, i, ebb__plan_block_bytes(request, block)};
    }
    qsort(items, count, sizeof *items, candidate_compare);
    return count;
}

/* The gradient is allocated while the data is, and both are free within an iteration. */
static bool meet(const struct ebb_model *model, uint32_t gradient, uint32_t data)
{
    const struct ebb_model_block *block = &model->blocks[gradient], *host = &model->blocks[data];
    uint32_t ticks = model->tick_count;
    uint32_t born = (block->alloc_tick + ticks - host->alloc_tick) % ticks;
    return born < host->span_ticks && (uint64_t)born + block->span_ticks < ticks;
}

enum ebb_status ebb__shares_choose(const struct ebb_plan_request *request,
                                   const struct ebb_stages *stages, struct ebb_plan_rules *rules,
                                   struct ebb_error *error)
{
    const struct ebb_model *model = request->model;
    size_t most = model->block_count + (size_t)1;
    struct candidate *gradients = malloc(most * sizeof *gradients);
    struct candidate *data = malloc(most * sizeof *data);
    struct candidate *open = malloc(most * sizeof *open); /* large enough, the smallest last */
    rules->shares = malloc(most * sizeof *rules->shares);
    enum ebb_status status = EBB_OK;
    if (!gradients || !data || !open || !rules->shares) {
        status = ebb__fail(error, EBB_ERR_MEMORY, "plan", "out of memory");
        goto out;
    }
    uint32_t count = list(request, stages, true, gradients);
    uint32_t data_count = list(request, stages, false, data), next = 0, open_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct candidate *gradient = &gradients[i];
        if (i == 0 || gradients[i - 1].stage != gradient->stage)
            open_count = 0;
        while (next < data_count && data[next].stage < gradient->stage)
            next++;
        for (; next < data_count && data[next].stage == gradient->stage &&
               data[next].bytes >= gradient->bytes;
             next++)
            open[open_count++] = data[next];
        uint32_t at = open_count;
        while (at > 0 && !meet(model, gradient->block, open[at - 1].block))
            at--;
        if (at == 0)
            continue;
        rules->shares[rules->share_count++] =
            (struct ebb_share){gradient->block, open[at - 1].block};
        for (open_count--; at <= open_count; at++)
            open[at - 1] = open[at];
    }
out:
    free(gradients);
    free(data);
    free(open);
    return status;
}
