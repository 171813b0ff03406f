#include "twins.h"

#include <stdlib.h>

/* What the model becomes, and where its parts come from. */
struct adding {
    const struct ebb_model *model;
    const struct ebb_model_twin *twins;
    uint32_t *first; /* [block_count + 1]: twins of the blocks before each block */
    uint32_t *added; /* [block_count + 1]: twins of each block that are in `made` already */
    uint32_t *place; /* [tick_count + 1]: the new tick of each tick */
    struct ebb_model made;
};

static uint32_t twins_of(const struct adding *adding, uint32_t block)
{
    return block < adding->model->block_count ? adding->first[block + 1] - adding->first[block] : 0;
}

static bool find_places(struct adding *adding, size_t count)
{
    const struct ebb_model *model = adding->model;
    adding->first = calloc(model->block_count + 1u, sizeof *adding->first);
    adding->added = calloc(model->block_count + 1u, sizeof *adding->added);
    adding->place = calloc(model->tick_count + 1u, sizeof *adding->place);
    if (!adding->first || !adding->added || !adding->place)
        return false;
    for (size_t i = 0; i < count; i++)
        adding->first[adding->twins[i].of + 1]++;
    for (uint32_t i = 0; i < model->block_count; i++)
        adding->first[i + 1] += adding->first[i];
    for (uint32_t i = 0; i < model->tick_count; i++)
        adding->place[i + 1] = adding->place[i] + 1 + twins_of(adding, model->events[i].block);
    return true;
}

static bool reserve(struct adding *adding, size_t count)
{
    const struct ebb_model *model = adding->model;
    struct ebb_model *made = &adding->made;
    size_t accesses = model->access_count;
    for (size_t i = 0; i < count; i++)
        accesses += model->blocks[adding->twins[i].of].access_count;
    made->tick_count = adding->place[model->tick_count];
    made->events = calloc(made->tick_count + 1u, sizeof *made->events);
    made->time_ns = calloc(made->tick_count + 1u, sizeof *made->time_ns);
    made->blocks = calloc(model->block_count + count + 1, sizeof *made->blocks);
    made->accesses = calloc(accesses + 1, sizeof *made->accesses);
    if (model->mark_count)
        made->marks = calloc(model->mark_count, sizeof *made->marks);
    return made->events && made->time_ns && made->blocks && made->accesses &&
           (made->marks || !model->mark_count);
}

/* A block at index `at`, with its lifetime on the new ticks. It is the `nth` of those with one
 * life. */
static void add_block(struct adding *adding, uint32_t at, struct ebb_model_block block,
                      uint32_t nth)
{
    const struct ebb_model *model = adding->model;
    struct ebb_model *made = &adding->made;
    uint32_t first = made->access_count;
    for (uint32_t i = 0; i < block.access_count; i++) {
        struct ebb_model_access access = model->accesses[block.first_access + i];
        access.tick = adding->place[access.tick] + nth;
        made->accesses[made->access_count++] = access;
    }
    block.first_access = first;
    if (block.alloc_tick == EBB_TICK_NONE) {
        block.span_ticks = made->tick_count;
    } else {
        uint32_t turns = block.span_ticks / model->tick_count;
        block.alloc_tick = adding->place[block.alloc_tick] + nth;
        block.free_tick = adding->place[block.free_tick] + nth;
        block.span_ticks =
            turns * made->tick_count +
            (block.free_tick + made->tick_count - block.alloc_tick) % made->tick_count;
    }
    made->blocks[at] = block;
    made->block_count++;
}

/* Blocks keep their indexes. Twins come behind them, by the block that they belong to. */
static void add_blocks(struct adding *adding, size_t count)
{
    const struct ebb_model *model = adding->model;
    for (uint32_t i = 0; i < model->block_count; i++)
        add_block(adding, i, model->blocks[i], 0);
    for (uint32_t i = 0; i < count; i++) {
        const struct ebb_model_twin *twin = &adding->twins[i];
        struct ebb_model_block block = model->blocks[twin->of];
        uint32_t nth = ++adding->added[twin->of];
        block.size_bytes = twin->size_bytes;
        add_block(adding, model->block_count + adding->first[twin->of] + nth - 1, block, nth);
    }
}

static void add_events(struct adding *adding)
{
    const struct ebb_model *model = adding->model;
    struct ebb_model *made = &adding->made;
    for (uint32_t i = 0; i < model->tick_count; i++) {
        struct ebb_model_event event = model->events[i];
        uint32_t block = event.block, twins = twins_of(adding, block);
        for (uint32_t k = 0; k <= twins; k++) {
            if (k)
                event.block = model->block_count + adding->first[block] + k - 1;
            made->events[adding->place[i] + k] = event;
            made->time_ns[adding->place[i] + k] = model->time_ns[i];
        }
    }
    made->time_ns[made->tick_count] = model->time_ns[model->tick_count];
    for (uint32_t i = 0; i < model->mark_count; i++) {
        made->marks[i] = model->marks[i];
        made->marks[i].tick = adding->place[model->marks[i].tick];
    }
}

enum ebb_status ebb__model_add_twins(struct ebb_model *model, const struct ebb_model_twin *twins,
                                     size_t count)
{
    struct adding adding = {.model = model, .twins = twins};
    adding.made = (struct ebb_model){.has_accesses = model->has_accesses,
                                     .unordered = model->unordered,
                                     .slack_bytes = model->slack_bytes,
                                     .mark_count = model->mark_count};
    enum ebb_status status = EBB_ERR_MEMORY;
    if (find_places(&adding, count) && reserve(&adding, count)) {
        add_blocks(&adding, count);
        add_events(&adding);
        status = ebb__model_derive(&adding.made, NULL);
    }
    free(adding.first);
    free(adding.added);
    free(adding.place);
    if (status) {
        ebb__model_fini(&adding.made);
        return status;
    }
    ebb__model_fini(model);
    *model = adding.made;
    return EBB_OK;
}
