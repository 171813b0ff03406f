#include "reblock.h"

#include <stdlib.h>

/* What the model becomes, and where its parts come from. */
struct reblocking {
    const struct ebb_model *model;
    const uint64_t *sizes;
    uint32_t *stays; /* [block_count + 1]: blocks before each block that stay */
    uint32_t *twins; /* [block_count + 1]: twins of the blocks before each block */
    uint32_t *added; /* [block_count + 1]: twins of each block that are in `made` already */
    uint32_t *place; /* [tick_count + 1]: the new tick of each tick, or of the next that stays */
    struct ebb_model made;
};

/* How many events there are instead of one of the block. EBB_TICK_NONE: it concerns no block. */
static uint32_t copies_of(const struct reblocking *r, uint32_t block)
{
    if (block >= r->model->block_count)
        return 1;
    return r->sizes[block] ? 1 + r->twins[block + 1] - r->twins[block] : 0;
}

static bool find_places(struct reblocking *r, const struct ebb_model_twin *twins, size_t count)
{
    const struct ebb_model *model = r->model;
    r->stays = calloc(model->block_count + 1u, sizeof *r->stays);
    r->twins = calloc(model->block_count + 1u, sizeof *r->twins);
    r->added = calloc(model->block_count + 1u, sizeof *r->added);
    r->place = calloc(model->tick_count + 1u, sizeof *r->place);
    if (!r->stays || !r->twins || !r->added || !r->place)
        return false;
    for (size_t i = 0; i < count; i++)
        r->twins[twins[i].of + 1]++;
    for (uint32_t i = 0; i < model->block_count; i++) {
        r->twins[i + 1] += r->twins[i];
        r->stays[i + 1] = r->stays[i] + (r->sizes[i] != 0);
    }
    for (uint32_t i = 0; i < model->tick_count; i++)
        r->place[i + 1] = r->place[i] + copies_of(r, model->events[i].block);
    return true;
}

static bool reserve(struct reblocking *r)
{
    const struct ebb_model *model = r->model;
    struct ebb_model *made = &r->made;
    size_t accesses = 0, blocks = r->stays[model->block_count] + r->twins[model->block_count];
    for (uint32_t i = 0; i < model->block_count; i++)
        accesses += (size_t)model->blocks[i].access_count * copies_of(r, i);
    made->tick_count = r->place[model->tick_count];
    made->events = calloc(made->tick_count + 1u, sizeof *made->events);
    made->time_ns = calloc(made->tick_count + 1u, sizeof *made->time_ns);
    made->blocks = calloc(blocks + 1, sizeof *made->blocks);
    made->accesses = calloc(accesses + 1, sizeof *made->accesses);
    if (model->mark_count)
        made->marks = calloc(model->mark_count, sizeof *made->marks);
    return made->events && made->time_ns && made->blocks && made->accesses &&
           (made->marks || !model->mark_count);
}

/* A block at index `at`, with its lifetime on the new ticks. It is the `nth` of those with one
 * life. */
static void add_block(struct reblocking *r, uint32_t at, struct ebb_model_block block, uint32_t nth)
{
    const struct ebb_model *model = r->model;
    struct ebb_model *made = &r->made;
    uint32_t first = made->access_count;
    for (uint32_t i = 0; i < block.access_count; i++) {
        struct ebb_model_access access = model->accesses[block.first_access + i];
        access.tick = r->place[access.tick] + nth;
        made->accesses[made->access_count++] = access;
    }
    block.first_access = first;
    if (block.alloc_tick == EBB_TICK_NONE) {
        block.span_ticks = made->tick_count;
    } else {
        uint32_t turns = block.span_ticks / model->tick_count;
        block.alloc_tick = r->place[block.alloc_tick] + nth;
        block.free_tick = r->place[block.free_tick] + nth;
        block.span_ticks =
            turns * made->tick_count +
            (block.free_tick + made->tick_count - block.alloc_tick) % made->tick_count;
    }
    made->blocks[at] = block;
    made->block_count++;
}

static uint32_t index_of_twin(const struct reblocking *r, uint32_t block, uint32_t nth)
{
    return r->stays[r->model->block_count] + r->twins[block] + nth - 1;
}

static void add_blocks(struct reblocking *r, const struct ebb_model_twin *twins, size_t count)
{
    const struct ebb_model *model = r->model;
    for (uint32_t i = 0; i < model->block_count; i++) {
        struct ebb_model_block block = model->blocks[i];
        block.size_bytes = r->sizes[i];
        if (block.size_bytes)
            add_block(r, r->stays[i], block, 0);
    }
    for (size_t i = 0; i < count; i++) {
        struct ebb_model_block block = model->blocks[twins[i].of];
        uint32_t nth = ++r->added[twins[i].of];
        block.size_bytes = twins[i].size_bytes;
        add_block(r, index_of_twin(r, twins[i].of, nth), block, nth);
    }
}

static void add_events(struct reblocking *r)
{
    const struct ebb_model *model = r->model;
    struct ebb_model *made = &r->made;
    for (uint32_t i = 0; i < model->tick_count; i++) {
        struct ebb_model_event event = model->events[i];
        uint32_t block = event.block, copies = copies_of(r, block);
        for (uint32_t k = 0; k < copies; k++) {
            if (block < model->block_count)
                event.block = k ? index_of_twin(r, block, k) : r->stays[block];
            made->events[r->place[i] + k] = event;
            made->time_ns[r->place[i] + k] = model->time_ns[i];
        }
    }
    made->time_ns[made->tick_count] = model->time_ns[model->tick_count];
    for (uint32_t i = 0; i < model->mark_count; i++) {
        made->marks[i] = model->marks[i];
        made->marks[i].tick = r->place[model->marks[i].tick];
    }
}

enum ebb_status ebb__model_reblock(const struct ebb_model *model, const uint64_t *sizes,
                                   const struct ebb_model_twin *twins, size_t count,
                                   struct ebb_model *made)
{
    struct reblocking r = {.model = model, .sizes = sizes};
    r.made = (struct ebb_model){.has_accesses = model->has_accesses,
                                .varies = model->varies,
                                .unordered = model->unordered,
                                .slack_bytes = model->slack_bytes,
                                .mark_count = model->mark_count};
    bool is_made = find_places(&r, twins, count) && reserve(&r);
    if (is_made) {
        add_blocks(&r, twins, count);
        add_events(&r);
        *made = r.made;
    } else {
        ebb__model_fini(&r.made);
    }
    free(r.stays);
    free(r.twins);
    free(r.added);
    free(r.place);
    return is_made ? EBB_OK : EBB_ERR_MEMORY;
}
