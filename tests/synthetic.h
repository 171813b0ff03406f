/* Makes models by hand or at random, for the tests of planner, checker and simulator.
 *
 *     struct maker maker = {0};
 *     uint32_t weight = make_persistent(&maker, 4 * EBB_MIB);
 *     uint32_t output = make_block(&maker, EBB_MIB);
 *     make_event(&maker, 1000, EBB_EVENT_ALLOC, output, 0);    // at 1,000 ns
 *     make_event(&maker, 1500, EBB_EVENT_ACCESS, weight, EBB_ACCESS_READ);
 *     ...
 *     struct ebb_model model = make_model(&maker, 100000);     // the iteration's duration
 */
#ifndef EBB_TESTS_SYNTHETIC_H
#define EBB_TESTS_SYNTHETIC_H

#include "base/size.h"
#include "base/vec.h"
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

struct maker {
    EBB_VEC(struct ebb_model_event) events;
    EBB_VEC(uint64_t) times;
    EBB_VEC(struct ebb_model_block) blocks;
    EBB_VEC(struct ebb_model_mark) marks;
};

/* xorshift: gives the same numbers on every machine. */
static inline uint64_t chance(uint64_t *state)
{
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static inline void *must(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

/* Adds a block that events allocate and free. */
static inline uint32_t make_block(struct maker *maker, uint64_t size_bytes)
{
    struct ebb_model_block block = {.serial = maker->blocks.count + 1,
                                    .size_bytes = size_bytes,
                                    .alloc_tick = EBB_TICK_NONE,
                                    .free_tick = EBB_TICK_NONE};
    if (!ebb_vec_push(&maker->blocks, block))
        abort();
    return (uint32_t)maker->blocks.count - 1;
}

static inline uint32_t make_persistent(struct maker *maker, uint64_t size_bytes)
{
    return make_block(maker, size_bytes);
}

static inline void make_event(struct maker *maker, uint64_t time_ns, enum ebb_event_kind kind,
                              uint32_t block, enum ebb_access_kind access)
{
    struct ebb_model_event event = {.block = block,
                                    .kind = (uint8_t)kind,
                                    .access = (uint8_t)access,
                                    .clock = kind == EBB_EVENT_ALLOC || kind == EBB_EVENT_FREE};
    uint32_t tick = (uint32_t)maker->events.count;
    if (!ebb_vec_push(&maker->events, event) || !ebb_vec_push(&maker->times, time_ns))
        abort();
    if (kind == EBB_EVENT_ALLOC)
        maker->blocks.items[block].alloc_tick = tick;
    if (kind == EBB_EVENT_FREE)
        maker->blocks.items[block].free_tick = tick;
}

/* The program marks that a layer or phase begins. */
static inline void make_mark(struct maker *maker, uint64_t time_ns, enum ebb_mark kind,
                             uint32_t value)
{
    struct ebb_model_event event = {
        .block = EBB_TICK_NONE, .kind = EBB_EVENT_MARK, .mark = (uint8_t)kind};
    struct ebb_model_mark mark = {(uint32_t)maker->events.count, value};
    if (!ebb_vec_push(&maker->events, event) || !ebb_vec_push(&maker->times, time_ns) ||
        !ebb_vec_push(&maker->marks, mark))
        abort();
}

/* Makes the model and empties the maker. Release the model with ebb__model_fini(). */
static inline struct ebb_model make_model(struct maker *maker, uint64_t iteration_ns)
{
    struct ebb_model model = {.tick_count = (uint32_t)maker->events.count,
                              .block_count = (uint32_t)maker->blocks.count,
                              .events = maker->events.items,
                              .blocks = maker->blocks.items,
                              .marks = maker->marks.items,
                              .mark_count = (uint32_t)maker->marks.count,
                              .has_accesses = true};
    uint32_t ticks = model.tick_count;
    if (!ebb_vec_push(&maker->times, iteration_ns))
        abort();
    model.time_ns = maker->times.items;
    model.load_bytes = must(calloc(ticks, sizeof *model.load_bytes));
    model.accesses = must(calloc(ticks + 1u, sizeof *model.accesses));
    for (uint32_t b = 0; b < model.block_count; b++) {
        struct ebb_model_block *block = &model.blocks[b];
        bool persistent = block->alloc_tick == EBB_TICK_NONE;
        uint32_t origin = persistent ? 0 : block->alloc_tick;
        block->span_ticks =
            persistent ? ticks : (block->free_tick + ticks - block->alloc_tick) % ticks;
        block->first_access = model.access_count;
        for (uint32_t i = 0; i < ticks; i++) {
            uint32_t tick = (origin + i) % ticks;
            const struct ebb_model_event *event = &model.events[tick];
            if (event->kind == EBB_EVENT_ACCESS && event->block == b) {
                model.accesses[model.access_count++] =
                    (struct ebb_model_access){.tick = tick, .access = event->access};
                block->access_count++;
            }
        }
    }
    for (uint32_t t = 0; t < ticks; t++)
        model.clock_count += model.events[t].clock;
    struct ebb_error error;
    if (ebb__model_derive(&model, &error) != EBB_OK)
        abort();
    memset(maker, 0, sizeof *maker);
    return model;
}

/* A training iteration like that of ResNet-50 at batch 16. Each of `layers` forward operations
 * allocates a scratch block and an output that is kept for the backward pass. As many backward
 * operations read and free the outputs. An optimizer touches weights, gradients and momentum. The
 * peak is about `peak_bytes`, a quarter of it persistent. There are 20 events for each layer. */
static inline struct ebb_model make_training(uint32_t layers, uint64_t peak_bytes,
                                             uint64_t iteration_ns, uint64_t seed)
{
    struct maker maker = {0};
    uint64_t persistent_bytes = peak_bytes / 4 / 3, state = seed | 1;
    uint32_t *weight = must(calloc(layers, sizeof *weight));
    uint32_t *gradient = must(calloc(layers, sizeof *gradient));
    uint32_t *momentum = must(calloc(layers, sizeof *momentum));
    uint32_t *output = must(calloc(layers, sizeof *output));
    uint32_t *mask = must(calloc(layers, sizeof *mask));
    uint64_t total = 0, weights = 0;
    /* Outputs shrink and weights grow with depth, both irregularly. */
    for (uint32_t l = 0; l < layers; l++) {
        total += layers - l + 2;
        weights += l + 1;
    }
    for (uint32_t l = 0; l < layers; l++) {
        uint64_t bytes = persistent_bytes * (l + 1) / weights + 4096;
        weight[l] = make_persistent(&maker, bytes);
        gradient[l] = make_persistent(&maker, bytes);
        momentum[l] = make_persistent(&maker, bytes);
        uint64_t kept = peak_bytes * 7 / 10 * (layers - l + 2) / total;
        kept = kept * (75 + chance(&state) % 50) / 100;
        output[l] = make_block(&maker, kept * 3 / 4);
        mask[l] = make_block(&maker, kept / 4);
    }
    uint64_t step = iteration_ns / (20 * layers + 10), now = step;
    for (uint32_t l = 0; l < layers; l++) {
        uint32_t scratch = make_block(&maker, peak_bytes / 100);
        make_event(&maker, now += step, EBB_EVENT_ALLOC, output[l], 0);
        if (l > 0)
            make_event(&maker, now, EBB_EVENT_ACCESS, output[l - 1], EBB_ACCESS_READ);
        make_event(&maker, now, EBB_EVENT_ACCESS, weight[l], EBB_ACCESS_READ);
        make_event(&maker, now += step, EBB_EVENT_ALLOC, scratch, 0);
        make_event(&maker, now += step, EBB_EVENT_ACCESS, scratch, EBB_ACCESS_WRITE);
        make_event(&maker, now, EBB_EVENT_ACCESS, output[l], EBB_ACCESS_WRITE);
        make_event(&maker, now += 2 * step, EBB_EVENT_FREE, scratch, 0);
        make_event(&maker, now += step, EBB_EVENT_ALLOC, mask[l], 0);
        make_event(&maker, now += step, EBB_EVENT_ACCESS, mask[l], EBB_ACCESS_WRITE);
    }
    for (uint32_t l = layers; l-- > 0;) {
        uint32_t scratch = make_block(&maker, peak_bytes / 100);
        uint32_t inner = make_block(&maker, peak_bytes / 200);
        make_event(&maker, now += step, EBB_EVENT_ALLOC, scratch, 0);
        make_event(&maker, now += step, EBB_EVENT_ACCESS, output[l], EBB_ACCESS_READ);
        make_event(&maker, now, EBB_EVENT_ACCESS, mask[l], EBB_ACCESS_READ);
        make_event(&maker, now, EBB_EVENT_ACCESS, scratch, EBB_ACCESS_WRITE);
        make_event(&maker, now += 2 * step, EBB_EVENT_ALLOC, inner, 0);
        make_event(&maker, now, EBB_EVENT_ACCESS, weight[l], EBB_ACCESS_READ);
        make_event(&maker, now, EBB_EVENT_ACCESS, gradient[l], EBB_ACCESS_WRITE);
        if (l > 0)
            make_event(&maker, now, EBB_EVENT_ACCESS, output[l - 1], EBB_ACCESS_READ);
        make_event(&maker, now += 4 * step, EBB_EVENT_ACCESS, inner, EBB_ACCESS_WRITE);
        make_event(&maker, now += step, EBB_EVENT_FREE, inner, 0);
        make_event(&maker, now += step, EBB_EVENT_FREE, scratch, 0);
        make_event(&maker, now += step, EBB_EVENT_FREE, mask[l], 0);
        make_event(&maker, now += step, EBB_EVENT_FREE, output[l], 0);
    }
    uint64_t short_step = step * layers / (2 * layers);
    for (uint32_t l = 0; l < layers; l++) {
        uint32_t scratch = make_block(&maker, 4096);
        make_event(&maker, now += short_step, EBB_EVENT_ALLOC, scratch, 0);
        make_event(&maker, now, EBB_EVENT_ACCESS, gradient[l], EBB_ACCESS_READ);
        make_event(&maker, now, EBB_EVENT_ACCESS, momentum[l], EBB_ACCESS_WRITE);
        make_event(&maker, now, EBB_EVENT_ACCESS, weight[l], EBB_ACCESS_WRITE);
        make_event(&maker, now += short_step, EBB_EVENT_FREE, scratch, 0);
    }
    free(weight);
    free(gradient);
    free(momentum);
    free(output);
    free(mask);
    return make_model(&maker, iteration_ns > now ? iteration_ns : now + step);
}

/* A random model of `steps` allocations, frees and accesses of blocks of up to `block_bytes`. Some
 * blocks are persistent, some live across the iteration's end, some longer than an iteration. As in
 * a trace, a block has at most one access between two clock events. */
static inline struct ebb_model make_random(uint64_t seed, uint32_t steps, uint64_t block_bytes,
                                           uint64_t step_ns)
{
    struct maker maker = {0};
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    EBB_VEC(uint32_t) live = {0};
    EBB_VEC(uint32_t) wrapping = {0};
    EBB_VEC(uint32_t) touched = {0};
    for (uint64_t i = 1 + chance(&state) % 4; i > 0; i--)
        ebb_vec_push(&live, make_persistent(&maker, 1 + chance(&state) % block_bytes));
    uint32_t persistent_count = (uint32_t)live.count;
    for (uint64_t i = chance(&state) % 4; i > 0; i--) {
        uint32_t block = make_block(&maker, 1 + chance(&state) % block_bytes);
        ebb_vec_push(&live, block);
        ebb_vec_push(&wrapping, block);
    }
    uint64_t now = 0;
    for (uint32_t step = 0; step < steps; step++) {
        uint64_t what = chance(&state) % 8;
        now += chance(&state) % (2 * step_ns);
        size_t pick = live.count ? chance(&state) % live.count : 0;
        if (what < 2) {
            uint32_t block = make_block(&maker, 1 + chance(&state) % block_bytes);
            make_event(&maker, now, EBB_EVENT_ALLOC, block, 0);
            ebb_vec_push(&live, block);
            touched.count = 0;
        } else if (what < 4 && pick >= persistent_count) {
            make_event(&maker, now, EBB_EVENT_FREE, live.items[pick], 0);
            live.items[pick] = live.items[--live.count];
            touched.count = 0;
        } else if (live.count) {
            bool again = false;
            for (size_t i = 0; i < touched.count; i++)
                again |= touched.items[i] == live.items[pick];
            if (again)
                continue;
            ebb_vec_push(&touched, live.items[pick]);
            make_event(&maker, now, EBB_EVENT_ACCESS, live.items[pick],
                       chance(&state) % 3 ? EBB_ACCESS_READ : EBB_ACCESS_WRITE);
        }
    }
    /* Close the cycle. Free the blocks made here, and make those that were freed or lived at the
     * start. */
    for (size_t i = persistent_count; i < live.count; i++) {
        bool wraps = false;
        for (size_t w = 0; w < wrapping.count; w++)
            wraps |= wrapping.items[w] == live.items[i];
        if (!wraps)
            make_event(&maker, now += step_ns / 2, EBB_EVENT_FREE, live.items[i], 0);
    }
    for (size_t w = 0; w < wrapping.count; w++) {
        struct ebb_model_block *block = &maker.blocks.items[wrapping.items[w]];
        if (block->free_tick != EBB_TICK_NONE)
            make_event(&maker, now += step_ns / 2, EBB_EVENT_ALLOC, wrapping.items[w], 0);
    }
    make_event(&maker, now += step_ns, EBB_EVENT_MARK, EBB_TICK_NONE, 0);
    ebb_vec_free(&live);
    ebb_vec_free(&wrapping);
    ebb_vec_free(&touched);
    return make_model(&maker, now + step_ns);
}

/* Sizes of a network's blocks: outputs depend on the batch, gradients do not. */
static inline uint64_t output_of(unsigned layer, unsigned batch)
{
    return (uint64_t)(100 + 7 * layer) * batch << 10;
}

static inline uint64_t gradient_of(unsigned layer)
{
    return (uint64_t)(300 + 64 * (layer % 5)) << 10;
}

#endif
