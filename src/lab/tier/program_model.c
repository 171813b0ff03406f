#include "lab/tier/program_model.h"

#include <stdlib.h>

enum ebb_status ebb__tier_program_lives(struct ebb_operations *operations, struct ebb_error *error)
{
    operations->order = calloc((size_t)operations->use_count + 1, sizeof *operations->order);
    if (!operations->order)
        return ebb__fail(error, EBB_ERR_MEMORY, "tiers", "no memory for the operations");
    for (uint32_t i = 0; i < operations->use_count; i++) {
        const struct ebb_use *use = &operations->uses[i];
        struct ebb_operation_block *block = &operations->blocks[use->block];
        if (block->span == 0)
            block->first = use->operation;
        block->span = use->operation - block->first + 1;
    }
    for (uint32_t b = 0; b < operations->block_count; b++) {
        struct ebb_operation_block *block = &operations->blocks[b];
        if (block->persistent) {
            block->first = 0;
            block->span = operations->count;
        } else if (block->span == 0) {
            return ebb__fail(error, EBB_ERR_FORMAT, "tiers", "a block is never used");
        }
    }
    ebb__operations_order(operations);
    return EBB_OK;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void event_add(struct ebb_model *model, uint64_t ns, enum ebb_event_kind kind,
                      uint32_t block, enum ebb_access_kind access)
{
    model->time_ns[model->tick_count] = ns;
    model->events[model->tick_count++] =
        (struct ebb_model_event){.block = block,
                                 .kind = (uint8_t)kind,
                                 .access = (uint8_t)access,
                                 .clock = kind != EBB_EVENT_ACCESS};
    model->clock_count += kind != EBB_EVENT_ACCESS;
}

/* A block is freed when the operation behind its last one begins. So what dies in the last one is
 * freed when the iteration begins, and lives across its end. */
static void operation_events(const struct ebb_operations *operations, uint32_t at, uint64_t ns,
                             struct ebb_model *model)
{
    for (uint32_t b = 0; b < operations->block_count; b++) {
        const struct ebb_operation_block *block = &operations->blocks[b];
        if (!block->persistent && (block->first + block->span) % operations->count == at) {
            model->blocks[b].free_tick = model->tick_count;
            event_add(model, ns, EBB_EVENT_FREE, b, EBB_ACCESS_UNKNOWN);
        }
    }
    for (uint32_t b = 0; b < operations->block_count; b++) {
        if (!operations->blocks[b].persistent && operations->blocks[b].first == at) {
            model->blocks[b].alloc_tick = model->tick_count;
            event_add(model, ns, EBB_EVENT_ALLOC, b, EBB_ACCESS_UNKNOWN);
        }
    }
    for (uint32_t u = 0; u < operations->items[at].use_count; u++) {
        const struct ebb_use *use = &operations->uses[operations->items[at].first_use + u];
        enum ebb_access_kind access = !use->write_bytes  ? EBB_ACCESS_READ
                                      : !use->read_bytes ? EBB_ACCESS_WRITE
                                                         : EBB_ACCESS_UNKNOWN;
        event_add(model, ns, EBB_EVENT_ACCESS, use->block, access);
    }
}

/* The accesses of each block, in order of occurrence since its allocation. */
static void accesses_set(struct ebb_model *model)
{
    for (uint32_t b = 0; b < model->block_count; b++) {
        struct ebb_model_block *block = &model->blocks[b];
        uint32_t ticks = model->tick_count;
        bool persistent = block->alloc_tick == EBB_TICK_NONE;
        uint32_t origin = persistent ? 0 : block->alloc_tick;
        block->span_ticks =
            persistent ? ticks : (block->free_tick + ticks - block->alloc_tick) % ticks;
        block->first_access = model->access_count;
        for (uint32_t i = 0; i < ticks; i++) {
            uint32_t tick = (origin + i) % ticks;
            if (model->events[tick].kind != EBB_EVENT_ACCESS || model->events[tick].block != b)
                continue;
            model->accesses[model->access_count++] =
                (struct ebb_model_access){.tick = tick, .access = model->events[tick].access};
            block->access_count++;
        }
    }
}

enum ebb_status ebb__tier_program_model(struct ebb_operations *operations, struct ebb_model *model,
                                        struct ebb_error *error)
{
    size_t events = operations->use_count + 2 * (size_t)operations->block_count + 1;
    uint64_t ns = 0;
    *model = (struct ebb_model){.block_count = operations->block_count, .has_accesses = true};
    model->events = calloc(events, sizeof *model->events);
    model->time_ns = calloc(events + 1, sizeof *model->time_ns);
    model->load_bytes = calloc(events, sizeof *model->load_bytes);
    model->accesses = calloc((size_t)operations->use_count + 1, sizeof *model->accesses);
    model->blocks = calloc((size_t)operations->block_count + 1, sizeof *model->blocks);
    if (!model->events || !model->time_ns || !model->load_bytes || !model->accesses ||
        !model->blocks)
        return ebb__fail(error, EBB_ERR_MEMORY, "tiers", "no memory for the events");
    for (uint32_t b = 0; b < operations->block_count; b++)
        model->blocks[b] = (struct ebb_model_block){.serial = b + 1,
                                                    .size_bytes = operations->blocks[b].size_bytes,
                                                    .alloc_tick = EBB_TICK_NONE,
                                                    .free_tick = EBB_TICK_NONE};
    for (uint32_t at = 0; at < operations->count; at++) {
        operations->items[at].first_tick = model->tick_count;
        operation_events(operations, at, ns, model);
        ns += operations->items[at].ns;
    }
    model->time_ns[model->tick_count] = operations->ns = ns;
    accesses_set(model);
    return ebb__model_derive(model, error);
}
