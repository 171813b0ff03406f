/* Iterations with a varying order of events: they are found by a landmark and merged into one
 * model. A program with a fixed order is never treated so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/iteration.h"
#include "model/landmark.h"
#include "model/unordered.h"
#include "model/watch.h"

#include "synthetic.h"

#define WEIGHTS 6u
#define BLOCKS 40u
#define BATCH_BYTES (9 * EBB_MIB)

/* An artificial program. Each iteration makes a batch, then allocates, writes, reads and frees
 * blocks. The progress of each block is random. */
struct program {
    struct ebb_watch *watch;
    struct ebb_stream stream; /* the same events */
    uint64_t state, now_ns, serials, weights[WEIGHTS];
    uint64_t batch;
    uint64_t blocks[BLOCKS];
    unsigned skew;    /* a block's work may be so many steps early */
    bool shares_size; /* each size belongs to two blocks */
    bool untraced;    /* accesses are not observed, and it is ten times as fast */
};

static void push(struct program *p, const struct ebb_event *made)
{
    assert_int_equal(ebb__watch_push(p->watch, made), EBB_OK);
    assert_int_equal(ebb__stream_push(&p->stream, made), EBB_OK);
}

static void event(struct program *p, enum ebb_event_kind kind, uint64_t block, uint64_t size_bytes)
{
    if (p->untraced && kind == EBB_EVENT_ACCESS)
        return;
    struct ebb_event made = {.time_ns = p->now_ns += p->untraced ? 100 : 1000,
                             .block = block,
                             .size_bytes = size_bytes,
                             .kind = (uint8_t)kind,
                             .access = kind == EBB_EVENT_ACCESS ? EBB_ACCESS_READ : 0};
    push(p, &made);
}

static uint64_t block_bytes(const struct program *p, size_t i)
{
    return EBB_MIB + (p->shares_size ? i / 2 : i) * 4096;
}

/* Step `step` of the life of block i, with one use of the weights. */
static void do_step(struct program *p, size_t i, size_t step)
{
    uint64_t bytes = block_bytes(p, i);
    switch (step) {
    case 0:
        p->blocks[i] = ++p->serials;
        event(p, EBB_EVENT_ALLOC, p->blocks[i], bytes);
        event(p, EBB_EVENT_ACCESS, p->weights[i % WEIGHTS], EBB_MIB);
        event(p, EBB_EVENT_ACCESS, p->blocks[i], bytes);
        break;
    case 1:
        event(p, EBB_EVENT_ACCESS, p->blocks[i], bytes);
        event(p, EBB_EVENT_FREE, p->blocks[i], bytes);
        break;
    }
}

/* The steps have a fixed order, forward then backward, but each may come early. */
static void iterate(struct program *p)
{
    bool done[2 * BLOCKS] = {0};
    p->batch = ++p->serials;
    event(p, EBB_EVENT_ALLOC, p->batch, BATCH_BYTES);
    event(p, EBB_EVENT_ACCESS, p->batch, BATCH_BYTES);
    for (size_t count = 0, first = 0; count < 2 * BLOCKS; count++) {
        while (done[first])
            first++;
        size_t at = first + (size_t)(chance(&p->state) % (p->skew + 1));
        if (at >= 2 * BLOCKS || done[at] || (at >= BLOCKS && !done[2 * BLOCKS - 1 - at]))
            at = first;
        do_step(p, at < BLOCKS ? at : 2 * BLOCKS - 1 - at, at < BLOCKS ? 0 : 1);
        done[at] = true;
    }
    event(p, EBB_EVENT_FREE, p->batch, BATCH_BYTES);
}

static void begin(struct program *p, unsigned skew, bool shares_size)
{
    *p = (struct program){.state = 88172645463325252u, .skew = skew, .shares_size = shares_size};
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &p->watch), EBB_OK);
    assert_int_equal(ebb__stream_init(&p->stream), EBB_OK);
    for (size_t i = 0; i < WEIGHTS; i++) {
        p->weights[i] = ++p->serials;
        event(p, EBB_EVENT_ALLOC, p->weights[i], EBB_MIB + 777 * i);
    }
}

static void end(struct program *p)
{
    ebb__watch_destroy(p->watch);
    ebb__stream_fini(&p->stream);
}

static void test_found_and_modelled(void **state)
{
    (void)state;
    for (unsigned skew = 2; skew <= 12; skew += 5) {
        struct program p;
        begin(&p, skew, skew == 7);
        for (size_t i = 0; i < 5; i++)
            iterate(&p);
        assert_true(ebb__watch_found(p.watch));
        struct ebb_model model;
        struct ebb_error error;
        assert_int_equal(ebb__watch_model(p.watch, &model, NULL, &error), EBB_OK);
        assert_true(model.unordered);
        assert_int_equal(model.block_count, WEIGHTS + BLOCKS + 1);
        assert_int_equal(model.clock_count, 2 * (BLOCKS + 1));
        assert_int_equal(model.events[0].kind, EBB_EVENT_ALLOC);
        assert_int_equal(model.blocks[model.events[0].block].size_bytes, BATCH_BYTES);
        uint64_t all = BATCH_BYTES;
        for (size_t i = 0; i < BLOCKS; i++)
            all += block_bytes(&p, i);
        for (size_t i = 0; i < WEIGHTS; i++)
            all += EBB_MIB + 777 * i;
        assert_true(model.peak_bytes <= all);
        assert_true(model.peak_bytes >= all - (skew + 1) * 2 * EBB_MIB);
        const struct ebb_watch_iteration *iterations;
        assert_true(ebb__watch_kept(p.watch, &iterations) >= 3);
        ebb__model_fini(&model);
        end(&p);
    }
}

/* While a block of `outer_bytes` lives, `count` others are made and freed. Their sizes begin at
 * `bytes` and come in random order. */
static void around(struct program *p, uint64_t outer_bytes, uint64_t bytes, size_t count)
{
    uint64_t sizes[BLOCKS], outer = ++p->serials;
    event(p, EBB_EVENT_ALLOC, outer, outer_bytes);
    for (size_t i = 0; i < count; i++)
        sizes[i] = bytes + i * 4096;
    for (size_t i = count; i-- > 0;) {
        size_t other = (size_t)(chance(&p->state) % (i + 1));
        uint64_t size_bytes = sizes[other], block = ++p->serials;
        sizes[other] = sizes[i];
        event(p, EBB_EVENT_ALLOC, block, size_bytes);
        event(p, EBB_EVENT_ACCESS, block, size_bytes);
        event(p, EBB_EVENT_ACCESS, p->weights[i % WEIGHTS], EBB_MIB);
        event(p, EBB_EVENT_FREE, block, size_bytes);
    }
    event(p, EBB_EVENT_FREE, outer, outer_bytes);
}

/* True if the newest `newest` iterations allocate `allocs` blocks each. */
static bool newest_have(const struct program *p, uint32_t allocs, size_t newest)
{
    const struct ebb_watch_iteration *iterations;
    size_t count = ebb__watch_kept(p->watch, &iterations);
    bool all = count >= newest;
    for (size_t i = 1; all && i <= newest; i++)
        all = iterations[count - i].alloc_count == allocs;
    return all;
}

/* Each iteration has four equal layers in a row. Once the iteration is known, the layers are never
 * taken for it, whenever detection looks. */
static void test_layers_are_no_iterations(void **state)
{
    (void)state;
    enum { LAYERS = 4, OF_A_LAYER = 24, AROUND = 30, ITERATIONS = 12 };
    const uint32_t of_all = 1 + 2 * (1 + AROUND) + LAYERS * (1 + OF_A_LAYER);
    size_t pattern = 0;
    struct program p;
    begin(&p, 0, false);
    for (size_t i = 0; i < ITERATIONS; i++) {
        uint64_t batch = ++p.serials;
        event(&p, EBB_EVENT_ALLOC, batch, BATCH_BYTES);
        around(&p, 7 * EBB_MIB, EBB_MIB, AROUND);
        for (size_t layer = 0; layer < LAYERS; layer++) {
            around(&p, 5 * EBB_MIB, 2 * EBB_MIB, OF_A_LAYER);
            assert_true(!pattern || ebb__watch_pattern(p.watch) == pattern);
        }
        around(&p, 8 * EBB_MIB, 3 * EBB_MIB, AROUND);
        event(&p, EBB_EVENT_FREE, batch, BATCH_BYTES);
        if (newest_have(&p, of_all, 1))
            pattern = ebb__watch_pattern(p.watch);
    }
    assert_true(pattern > 0);
    assert_true(newest_have(&p, of_all, ITERATIONS / 2));
    end(&p);
}

/* Layers are further apart in the backward pass than in the forward pass. No iteration begins where
 * the distance is as in the forward pass. */
static void test_forward_and_backward(void **state)
{
    (void)state;
    enum { LAYERS = 4, FORWARD = 18, BACKWARD = BLOCKS, AROUND = 6, ITERATIONS = 40 };
    const uint32_t of_all = 1 + (1 + AROUND) + LAYERS * (1 + FORWARD) + LAYERS * (1 + BACKWARD);
    size_t pattern = 0;
    struct program p;
    begin(&p, 0, false);
    for (size_t i = 0; i < ITERATIONS; i++) {
        uint64_t batch = ++p.serials;
        event(&p, EBB_EVENT_ALLOC, batch, 20 * BATCH_BYTES);
        around(&p, 7 * EBB_MIB, EBB_MIB, AROUND);
        for (size_t layer = 0; layer < 2 * LAYERS; layer++) {
            around(&p, 5 * EBB_MIB, 2 * EBB_MIB, layer < LAYERS ? FORWARD : BACKWARD);
            assert_true(!pattern || ebb__watch_pattern(p.watch) == pattern);
        }
        event(&p, EBB_EVENT_FREE, batch, 20 * BATCH_BYTES);
        if (newest_have(&p, of_all, 1))
            pattern = ebb__watch_pattern(p.watch);
    }
    assert_true(pattern > 0);
    assert_true(newest_have(&p, of_all, ITERATIONS / 2));
    end(&p);
}

static void mark(struct program *p, enum ebb_mark mark)
{
    struct ebb_event made = {.time_ns = p->now_ns, .kind = EBB_EVENT_MARK, .mark = (uint8_t)mark};
    push(p, &made);
}

/* The duration of an iteration is taken from untraced iterations, even if their order varies. */
static void test_times_of_untraced_iterations(void **state)
{
    (void)state;
    struct program p;
    begin(&p, 5, false);
    mark(&p, EBB_MARK_TRACE_ON);
    for (size_t i = 0; i < 4; i++)
        iterate(&p);
    mark(&p, EBB_MARK_TRACE_OFF);
    p.untraced = true;
    for (size_t i = 0; i < 4; i++)
        iterate(&p);
    struct ebb_model model;
    assert_int_equal(ebb__watch_model(p.watch, &model, NULL, NULL), EBB_OK);
    assert_true(model.unordered && model.has_accesses);
    assert_int_equal(model.clock_count, 2 * (BLOCKS + 1));
    assert_int_equal(ebb__model_iteration_ns(&model), model.clock_count * 100);
    uint64_t clock = 0;
    for (uint32_t tick = 0; tick < model.tick_count; tick++) {
        assert_true(model.time_ns[tick] <= model.time_ns[tick + 1]);
        if (!model.events[tick].clock)
            continue;
        /* An event may occur up to ten events earlier or later. */
        uint64_t about = clock++ * 100;
        assert_in_range(model.time_ns[tick] + 1000, about, about + 2000);
    }
    ebb__model_fini(&model);
    end(&p);
}

/* If the order never varies, only exact detection is used, even after an interruption. */
static void test_fixed_order_has_no_landmark(void **state)
{
    (void)state;
    struct program p;
    begin(&p, 0, false);
    for (size_t i = 0; i < 12; i++)
        iterate(&p);
    struct ebb_model model;
    assert_int_equal(ebb__watch_model(p.watch, &model, NULL, NULL), EBB_OK);
    assert_false(model.unordered);
    assert_int_equal(ebb__watch_patterns(p.watch), 1);
    ebb__model_fini(&model);
    /* Something else happens once. Then the same program continues. */
    for (size_t i = 0; i < 30; i++) {
        uint64_t serial = ++p.serials;
        event(&p, EBB_EVENT_ALLOC, serial, (200 + chance(&p.state) % 100) * 4096);
        event(&p, EBB_EVENT_FREE, serial, 0);
    }
    for (size_t i = 0; i < 6; i++)
        iterate(&p);
    assert_int_equal(ebb__watch_model(p.watch, &model, NULL, NULL), EBB_OK);
    assert_false(model.unordered);
    assert_int_equal(ebb__watch_patterns(p.watch), 1);
    ebb__model_fini(&model);
    end(&p);
}

static void test_nothing_in_noise(void **state)
{
    (void)state;
    struct program p;
    begin(&p, 0, false);
    for (size_t i = 0; i < 3000; i++) {
        uint64_t serial = ++p.serials;
        event(&p, EBB_EVENT_ALLOC, serial, (64 + chance(&p.state) % 200) * 4096);
        event(&p, EBB_EVENT_FREE, serial - chance(&p.state) % 3, 0);
    }
    struct ebb_landmark landmark;
    bool found;
    const struct ebb_detector *detector = p.stream.symbols[EBB_SYMBOL_ALLOC].detector;
    assert_int_equal(ebb__landmark_find(detector, &landmark, &found), EBB_OK);
    assert_false(found);
    end(&p);
}

/* The event of window w that corresponds to `knot` of the pattern. All sizes are different here, so
 * size and kind identify an event. */
static size_t counterpart(const struct ebb_stream *stream, const struct ebb_window *window,
                          const struct ebb_event *knot)
{
    for (size_t i = window->first; i < window->last; i++) {
        const struct ebb_event *one = &stream->events.items[i];
        if (one->kind == knot->kind && one->size_bytes == knot->size_bytes)
            return i;
    }
    return SIZE_MAX;
}

/* A gap of the pattern lies between the first event after an access of a block and the last event
 * before its next access. In no observed iteration is the block accessed in that gap. */
static void test_gaps_held_in_all(void **state)
{
    (void)state;
    struct program p;
    begin(&p, 2, false);
    size_t bounds[5];
    for (size_t i = 0; i < 5; i++) {
        bounds[i] = p.stream.events.count;
        if (i < 4)
            iterate(&p);
    }
    struct ebb_window windows[4];
    for (size_t i = 0; i < 4; i++)
        windows[i] = (struct ebb_window){0, bounds[i], bounds[i + 1]};
    struct ebb_unordered unordered;
    assert_int_equal(ebb__unordered_make(&p.stream, windows, 4, 3, 3, &unordered), EBB_OK);
    struct ebb_event_span trace = {unordered.events.items, unordered.events.count};
    struct ebb_model model;
    struct ebb_error error = {0};
    if (ebb__model_build(trace, unordered.first, unordered.period, &model, &error) != EBB_OK)
        fail_msg("%s: %s", error.what, error.why);
    size_t checked = 0;
    for (uint32_t g = 0; g < model.gap_count; g++) {
        const struct ebb_gap *gap = &model.gaps[g];
        const struct ebb_model_block *block = &model.blocks[gap->block];
        uint32_t out = ebb__model_clock_after(&model, gap->from_tick);
        uint32_t due = ebb__model_clock_before(&model, gap->to_tick);
        if (gap->to_tick <= gap->from_tick || out >= due)
            continue;
        const struct ebb_event *from = &unordered.events.items[unordered.first + out];
        const struct ebb_event *to = &unordered.events.items[unordered.first + due];
        for (size_t w = 0; w < 4; w++) {
            size_t begins = counterpart(&p.stream, &windows[w], from);
            size_t ends = counterpart(&p.stream, &windows[w], to);
            assert_true(begins != SIZE_MAX && ends != SIZE_MAX);
            for (size_t i = begins; i < ends; i++) {
                const struct ebb_event *one = &p.stream.events.items[i];
                bool same = block->alloc_tick == EBB_TICK_NONE
                                ? one->block == block->serial
                                : one->size_bytes == block->size_bytes && one->block > WEIGHTS;
                if (one->kind == EBB_EVENT_ACCESS && same)
                    fail_msg("gap %u of block %u, window %zu", g, gap->block, w);
            }
        }
        checked++;
    }
    assert_true(checked > BLOCKS / 2);
    ebb__model_fini(&model);
    ebb__unordered_fini(&unordered);
    end(&p);
}

/* An iteration may lack an allocation, or have an additional one. */
static void test_some_differ(void **state)
{
    (void)state;
    struct program p;
    begin(&p, 3, false);
    for (size_t i = 0; i < 6; i++) {
        iterate(&p);
        if (i % 2) {
            uint64_t serial = ++p.serials;
            event(&p, EBB_EVENT_ALLOC, serial, EBB_MIB + 99 + i * 1000);
            event(&p, EBB_EVENT_ACCESS, serial, 0);
            if (i == 3) /* the others are never freed */
                event(&p, EBB_EVENT_FREE, serial, 0);
        }
    }
    struct ebb_model model;
    struct ebb_error error = {0};
    if (ebb__watch_model(p.watch, &model, NULL, &error) != EBB_OK)
        fail_msg("%s: %s", error.what, error.why);
    assert_true(model.unordered);
    for (uint32_t i = 0; i < model.block_count; i++)
        assert_true(model.blocks[i].alloc_tick == EBB_TICK_NONE ||
                    model.blocks[i].span_ticks <= model.tick_count);
    ebb__model_fini(&model);
    end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found_and_modelled),
        cmocka_unit_test(test_layers_are_no_iterations),
        cmocka_unit_test(test_forward_and_backward),
        cmocka_unit_test(test_times_of_untraced_iterations),
        cmocka_unit_test(test_fixed_order_has_no_landmark),
        cmocka_unit_test(test_nothing_in_noise),
        cmocka_unit_test(test_gaps_held_in_all),
        cmocka_unit_test(test_some_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
