#include "base/vec.h"
#include "lab/pool/instants.h"

#include <stdlib.h>

#define NEVER UINT32_MAX

/* One residency of each instance of a block: `length` positions from position `start` on. */
struct residency {
    uint32_t block;
    uint32_t start;
    uint64_t length;
};

struct making {
    const struct ebb_pool_source *source;
    const struct ebb_model *model;
    struct ebb_pool_instants instants;
    uint32_t *evicts; /* by tick: the absence that begins with the access at the tick, or NEVER */
    EBB_VEC(struct residency) residencies;
    EBB_VEC(struct ebb_pool_buffer) buffers;
    EBB_VEC(struct ebb_pool_name) names;
};

static uint64_t bytes_of(const struct making *making, uint32_t block)
{
    const struct ebb_plan_request request = {.page_bytes = making->source->page_bytes};
    return ebb__plan_block_bytes(&request, &making->model->blocks[block]);
}

/* Positions between `from` and `to`, in cyclic order; 0 if they are equal. */
static uint32_t distance(const struct making *making, uint32_t from, uint32_t to)
{
    return to >= from ? to - from : to + (making->instants.count - from);
}

static bool reside(struct making *making, uint32_t block, uint64_t from, uint64_t to)
{
    struct residency residency = {block, (uint32_t)(from % making->instants.count), to - from};
    return to <= from || ebb_vec_push(&making->residencies, residency);
}

/* Residencies of a persistent block. Each lasts from the end of one absence to the next absence. */
static bool persistent_follow(struct making *making, uint32_t b)
{
    const struct ebb_model_block *block = &making->model->blocks[b];
    const struct ebb_model_access *uses = &making->model->accesses[block->first_access];
    uint32_t last = NEVER;
    for (uint32_t i = 0; i < block->access_count; i++)
        if (making->evicts[uses[i].tick] != NEVER)
            last = making->evicts[uses[i].tick];
    if (last == NEVER)
        return reside(making, b, 0, making->instants.count);
    bool made = true;
    for (uint32_t i = 0; i < block->access_count && made; i++) {
        uint32_t absence = making->evicts[uses[i].tick];
        if (absence == NEVER)
            continue;
        uint32_t from = making->instants.comes[last];
        uint32_t length = distance(making, from, making->instants.left[absence]);
        made = reside(making, b, from, (uint64_t)from + length);
        last = absence;
    }
    return made;
}

/* Residencies of an allocated block, from its allocation to its free. Successive accesses are less
 * than one iteration apart. */
static bool life_follow(struct making *making, uint32_t b)
{
    const struct ebb_model_block *block = &making->model->blocks[b];
    const struct ebb_model_access *uses = &making->model->accesses[block->first_access];
    const struct ebb_pool_instants *instants = &making->instants;
    uint32_t turns = block->span_ticks / making->model->tick_count;
    uint64_t begin = instants->ticks[block->alloc_tick], at = begin;
    uint64_t end = begin + (uint64_t)turns * instants->count +
                   distance(making, (uint32_t)begin, instants->ticks[block->free_tick]);
    bool made = true;
    for (uint32_t i = 0; i < block->access_count && made; i++) {
        uint32_t use = instants->ticks[uses[i].tick], absence = making->evicts[uses[i].tick];
        at += distance(making, (uint32_t)(at % instants->count), use);
        if (absence == NEVER)
            continue;
        made = reside(making, b, begin, at + distance(making, use, instants->left[absence]));
        if (making->source->absences[absence].drops)
            return made;
        begin = at + distance(making, use, instants->comes[absence]);
    }
    return made && reside(making, b, begin, end);
}

static bool residencies_find(struct making *making)
{
    const struct ebb_model *model = making->model;
    making->evicts = malloc(model->tick_count * sizeof *making->evicts);
    bool made = making->evicts != NULL;
    for (uint32_t tick = 0; made && tick < model->tick_count; tick++)
        making->evicts[tick] = NEVER;
    for (uint32_t i = 0; made && i < making->source->absence_count; i++)
        making->evicts[making->source->absences[i].from_tick] = i;
    for (uint32_t b = 0; made && b < model->block_count; b++) {
        const struct ebb_model_block *block = &model->blocks[b];
        if (block->size_bytes == 0 || block->span_ticks == 0)
            continue;
        made = block->alloc_tick == EBB_TICK_NONE ? persistent_follow(making, b)
                                                  : life_follow(making, b);
    }
    return made;
}

/* How many instances of a residency exist at one time, at most. */
static uint64_t instances_of(const struct making *making, const struct residency *residency)
{
    return (residency->length + making->instants.count - 1) / making->instants.count;
}

static uint32_t iterations_of(const struct making *making)
{
    uint64_t most = 1;
    for (size_t i = 0; i < making->residencies.count && making->source->unroll; i++) {
        uint64_t instances = instances_of(making, &making->residencies.items[i]);
        if (instances > most && instances <= EBB_POOL_ITERATIONS_MAX)
            most = instances;
    }
    return (uint32_t)most;
}

static bool buffers_make(struct making *making, uint32_t iterations)
{
    const uint64_t turn = making->instants.count;
    uint32_t number = 0;
    for (size_t i = 0; i < making->residencies.count; i++) {
        const struct residency *residency = &making->residencies.items[i];
        uint64_t copies = iterations, step = turn;
        struct ebb_pool_buffer buffer = {residency->start, residency->start + residency->length,
                                         bytes_of(making, residency->block)};
        if (instances_of(making, residency) > iterations || residency->length == turn) {
            /* The instances use as many addresses in turn. No address is free for a whole turn. */
            buffer.lower = 0;
            buffer.upper = iterations * turn;
            copies = instances_of(making, residency);
            step = 0;
        }
        if (i == 0 || residency[-1].block != residency->block)
            number = 0;
        for (uint64_t k = 0; k < copies; k++) {
            struct ebb_pool_name name = {residency->block, number++};
            if (making->buffers.count >= UINT32_MAX / 4 ||
                !ebb_vec_push(&making->buffers, buffer) || !ebb_vec_push(&making->names, name))
                return false;
            buffer.lower += step;
            buffer.upper += step;
        }
    }
    return true;
}

/* Sums differences at the begins and ends of residencies. Unsigned wrap-around is harmless. */
static bool load_find(const struct making *making, uint64_t *load_bytes)
{
    uint32_t turn = making->instants.count;
    uint64_t *changes = calloc(turn, sizeof *changes), resident = 0;
    if (!changes)
        return false;
    for (size_t i = 0; i < making->residencies.count; i++) {
        const struct residency *residency = &making->residencies.items[i];
        uint64_t bytes = bytes_of(making, residency->block);
        uint64_t end = residency->start + residency->length % turn;
        resident += residency->length / turn * bytes + (end >= turn ? bytes : 0);
        changes[residency->start] += bytes;
        changes[end % turn] -= bytes;
    }
    *load_bytes = 0;
    for (uint32_t i = 0; i < turn; i++) {
        resident += changes[i];
        *load_bytes = resident > *load_bytes ? resident : *load_bytes;
    }
    free(changes);
    return true;
}

enum ebb_status ebb__pool_from_model(const struct ebb_pool_source *source,
                                     struct ebb_pool_blocks *blocks, struct ebb_error *error)
{
    struct making making = {.source = source, .model = source->model};
    *blocks = (struct ebb_pool_blocks){0};
    enum ebb_status status = ebb__pool_instants_init(&making.instants, source, error);
    if (status)
        return status;
    bool made = residencies_find(&making);
    uint32_t iterations = made ? iterations_of(&making) : 1;
    made = made && buffers_make(&making, iterations) && load_find(&making, &blocks->load_bytes);
    if (made) {
        blocks->buffers = making.buffers.items;
        blocks->names = making.names.items;
        blocks->count = (uint32_t)making.buffers.count;
        blocks->instants = making.instants.order;
        blocks->instant_count = making.instants.count;
        blocks->iterations = iterations;
        blocks->period = (uint64_t)iterations * making.instants.count;
        making.instants.order = NULL;
    } else {
        ebb_vec_free(&making.buffers);
        ebb_vec_free(&making.names);
        status = ebb__fail(error, EBB_ERR_MEMORY, "model", "too many blocks to pack");
    }
    ebb_vec_free(&making.residencies);
    free(making.evicts);
    ebb__pool_instants_fini(&making.instants);
    return status;
}

void ebb__pool_blocks_fini(struct ebb_pool_blocks *blocks)
{
    free(blocks->buffers);
    free(blocks->names);
    free(blocks->instants);
    *blocks = (struct ebb_pool_blocks){0};
}
