#include "model/operations.h"

#include <stdlib.h>
#include <string.h>

/* The operation that is being read. */
struct reader {
    const struct ebb_model *model;
    struct ebb_operations *made;
    uint32_t *operation_of; /* by tick */
    uint32_t *use_of;       /* by block: its newest use + 1 */
    uint32_t operands;
    bool accessed, held; /* it has an access, a release */
};

static void operation_open(struct reader *reader, uint32_t tick)
{
    struct ebb_operations *made = reader->made;
    made->items[made->count++] =
        (struct ebb_operation){.first_tick = tick, .first_use = made->use_count};
    reader->operands = 0;
    reader->accessed = reader->held = false;
}

static bool is_new_operand(const struct reader *reader, uint32_t block)
{
    uint32_t first = reader->made->items[reader->made->count - 1].first_use;
    return reader->use_of[block] <= first;
}

static bool begins(const struct reader *reader, const struct ebb_model_event *event, bool held)
{
    if (reader->made->count == 0)
        return true;
    if (event->kind == EBB_EVENT_ALLOC || event->kind == EBB_EVENT_FREE)
        return reader->accessed;
    if (event->kind != EBB_EVENT_ACCESS || held)
        return false;
    return reader->held ||
           (reader->operands >= EBB_OPERANDS_MOST && is_new_operand(reader, event->block));
}

static void use_add(struct reader *reader, const struct ebb_model_event *event)
{
    struct ebb_operations *made = reader->made;
    struct ebb_operation *operation = &made->items[made->count - 1];
    uint64_t bytes = reader->model->blocks[event->block].size_bytes;
    if (is_new_operand(reader, event->block)) {
        made->uses[made->use_count] =
            (struct ebb_use){.operation = made->count - 1, .block = event->block};
        reader->use_of[event->block] = ++made->use_count;
        operation->use_count++;
        reader->operands++;
    }
    struct ebb_use *use = &made->uses[reader->use_of[event->block] - 1];
    if (event->access != EBB_ACCESS_WRITE)
        use->read_bytes = bytes;
    if (event->access != EBB_ACCESS_READ)
        use->write_bytes = bytes;
}

static bool *held_ticks(const struct ebb_model *model)
{
    bool *held = calloc(model->tick_count + 1, sizeof *held);
    for (uint32_t i = 0; held && i < model->access_count; i++)
        if (model->accesses[i].held)
            held[model->accesses[i].tick] = true;
    return held;
}

static bool operations_read(struct reader *reader)
{
    const struct ebb_model *model = reader->model;
    struct ebb_operations *made = reader->made;
    bool *held = held_ticks(model);
    if (!held)
        return false;
    for (uint32_t tick = 0; tick < model->tick_count; tick++) {
        const struct ebb_model_event *event = &model->events[tick];
        if (begins(reader, event, held[tick]))
            operation_open(reader, tick);
        reader->operation_of[tick] = made->count - 1;
        if (event->kind != EBB_EVENT_ACCESS)
            continue;
        reader->accessed = true;
        if (held[tick])
            reader->held = true;
        use_add(reader, event);
    }
    free(held);
    for (uint32_t i = 0; i < made->count; i++) {
        uint32_t end = i + 1 < made->count ? made->items[i + 1].first_tick : model->tick_count;
        made->items[i].ns = model->time_ns[end] - model->time_ns[made->items[i].first_tick];
    }
    made->items[0].ns += model->time_ns[made->items[0].first_tick] - model->time_ns[0];
    return true;
}

/* True if an access or an allocation is before `tick` in its operation. A block that is freed at
 * `tick` is then live in this operation, too. */
static bool is_late(const struct reader *reader, uint32_t tick)
{
    const struct ebb_operation *operation = &reader->made->items[reader->operation_of[tick]];
    for (uint32_t at = operation->first_tick; at < tick; at++)
        if (reader->model->events[at].kind == EBB_EVENT_ACCESS ||
            reader->model->events[at].kind == EBB_EVENT_ALLOC)
            return true;
    return false;
}

static void lifetime_set(const struct reader *reader, uint32_t index)
{
    const struct ebb_model_block *block = &reader->model->blocks[index];
    const struct ebb_operations *made = reader->made;
    struct ebb_operation_block *out = &made->blocks[index];
    uint32_t ticks = reader->model->tick_count;
    *out = (struct ebb_operation_block){.size_bytes = block->size_bytes, .span = made->count};
    out->persistent = block->alloc_tick == EBB_TICK_NONE || block->span_ticks >= ticks;
    if (block->alloc_tick != EBB_TICK_NONE && block->span_ticks >= ticks)
        out->size_bytes *= (block->span_ticks + ticks - 1) / ticks;
    if (out->persistent)
        return;
    out->first = reader->operation_of[block->alloc_tick];
    uint32_t last = reader->operation_of[block->free_tick];
    out->span = ebb__operations_between(made, out->first, last);
    if (block->free_tick < block->alloc_tick && last == out->first)
        out->span = made->count; /* around the whole circle */
    if (out->span == 0 || (is_late(reader, block->free_tick) && out->span < made->count))
        out->span++;
}

void ebb__operations_order(struct ebb_operations *made)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < made->use_count; i++)
        made->blocks[made->uses[i].block].use_count++;
    for (uint32_t b = 0; b < made->block_count; b++) {
        made->blocks[b].first_use = at;
        at += made->blocks[b].use_count;
        made->blocks[b].use_count = 0;
    }
    /* First the uses at or after the allocation, then those beyond the iteration's end. */
    for (int wrapped = 0; wrapped < 2; wrapped++) {
        for (uint32_t i = 0; i < made->use_count; i++) {
            struct ebb_operation_block *block = &made->blocks[made->uses[i].block];
            bool is_wrapped = !block->persistent && made->uses[i].operation < block->first;
            if (is_wrapped == (wrapped == 1))
                made->order[block->first_use + block->use_count++] = i;
        }
    }
}

enum ebb_status ebb__operations_make(const struct ebb_model *model,
                                     struct ebb_operations *operations, struct ebb_error *error)
{
    struct ebb_operations made = {.block_count = model->block_count,
                                  .ns = ebb__model_iteration_ns(model)};
    if (!model->has_accesses || model->access_count == 0)
        return ebb__fail(error, EBB_ERR_FORMAT, "operations", "the iteration has no accesses");
    made.items = calloc(model->tick_count + 1, sizeof *made.items);
    made.uses = calloc(model->access_count + 1, sizeof *made.uses);
    made.order = calloc(model->access_count + 1, sizeof *made.order);
    made.blocks = calloc(model->block_count + 1, sizeof *made.blocks);
    struct reader reader = {.model = model, .made = &made};
    reader.operation_of = calloc(model->tick_count + 1, sizeof *reader.operation_of);
    reader.use_of = calloc(model->block_count + 1, sizeof *reader.use_of);
    bool ok = made.items && made.uses && made.order && made.blocks && reader.operation_of &&
              reader.use_of && operations_read(&reader);
    for (uint32_t b = 0; ok && b < made.block_count; b++)
        lifetime_set(&reader, b);
    if (ok)
        ebb__operations_order(&made);
    free(reader.operation_of);
    free(reader.use_of);
    if (!ok) {
        ebb__operations_fini(&made);
        return ebb__fail(error, EBB_ERR_MEMORY, "operations", "no memory for them");
    }
    *operations = made;
    return EBB_OK;
}

void ebb__operations_fini(struct ebb_operations *operations)
{
    free(operations->items);
    free(operations->uses);
    free(operations->order);
    free(operations->blocks);
    *operations = (struct ebb_operations){0};
}
