/* Models of random programs, compared with brute force on the unrolled timeline. Also small models
 * made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/model.h"

#include "base/vec.h"

#include <stdio.h>
#include <string.h>

static uint64_t random_state = 0x2545F4914F6CDD1D;

static uint64_t random_below(uint64_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % limit;
}

enum { MAX_BLOCKS = 24, MAX_ACCESSES = 6, MAX_TICKS = 256, ITERATIONS = 7 };

/* A block of the program. Places count ticks from its ALLOC, or from tick 0 if it is persistent. */
struct block {
    uint64_t size;
    bool persistent;
    size_t alloc, span;
    size_t places[MAX_ACCESSES];
    uint8_t kinds[MAX_ACCESSES];
    size_t access_count;
};

struct program {
    size_t ticks;
    uint64_t time[MAX_TICKS + 1]; /* within the iteration; [ticks] is its duration */
    struct block blocks[MAX_BLOCKS];
    size_t count;
};

typedef EBB_VEC(struct ebb_event) events_vec;

static int by_size(const void *a, const void *b)
{
    size_t left = *(const size_t *)a, right = *(const size_t *)b;
    return left < right ? -1 : left > right;
}

static void make_program(struct program *p)
{
    size_t pool[MAX_TICKS], next = 0, used_count = 0, used[MAX_TICKS];
    for (size_t i = 0; i < MAX_TICKS; i++) {
        size_t k = random_below(i + 1);
        pool[i] = pool[k];
        pool[k] = i;
    }
    memset(p, 0, sizeof *p);
    p->count = 1 + random_below(MAX_BLOCKS);
    size_t wide = 1 + random_below(3);
    struct {
        size_t alloc, free, wraps, ticks[MAX_ACCESSES], turns[MAX_ACCESSES], count;
    } raw[MAX_BLOCKS];
    for (size_t i = 0; i < p->count; i++) {
        struct block *block = &p->blocks[i];
        block->size = (1 + random_below(4)) << 20;
        block->persistent = i != 0 && random_below(4) == 0;
        raw[i].alloc = block->persistent ? 0 : pool[next++];
        raw[i].free = block->persistent ? 0 : pool[next++];
        raw[i].wraps = block->persistent ? 0 : random_below(wide);
        raw[i].count = random_below(MAX_ACCESSES + 1);
        if (!block->persistent) {
            used[used_count++] = raw[i].alloc;
            used[used_count++] = raw[i].free;
        }
        size_t span = (raw[i].free + MAX_TICKS - raw[i].alloc) % MAX_TICKS;
        size_t kept = 0;
        for (size_t k = 0; k < raw[i].count; k++) {
            size_t tick = pool[next++];
            size_t place = (tick + MAX_TICKS - raw[i].alloc) % MAX_TICKS;
            size_t turns = raw[i].wraps + (place < span);
            if (block->persistent)
                turns = 1;
            if (turns == 0)
                continue;
            raw[i].ticks[kept] = tick;
            raw[i].turns[kept++] = random_below(turns);
            used[used_count++] = tick;
        }
        raw[i].count = kept;
    }
    qsort(used, used_count, sizeof *used, by_size);
    p->ticks = used_count;
    size_t rank[MAX_TICKS] = {0};
    for (size_t i = 0; i < used_count; i++)
        rank[used[i]] = i;
    for (size_t i = 0; i < p->count; i++) {
        struct block *block = &p->blocks[i];
        block->alloc = block->persistent ? 0 : rank[raw[i].alloc];
        block->span = block->persistent ? p->ticks
                                        : (rank[raw[i].free] + p->ticks - block->alloc) % p->ticks +
                                              raw[i].wraps * p->ticks;
        for (size_t k = 0; k < raw[i].count; k++)
            block->places[block->access_count++] =
                (rank[raw[i].ticks[k]] + p->ticks - block->alloc) % p->ticks +
                raw[i].turns[k] * p->ticks;
        qsort(block->places, block->access_count, sizeof *block->places, by_size);
        /* The model's ticks cannot express more than one iteration between accesses, so none are
         * generated. */
        size_t before = 0;
        for (size_t k = 0; k < block->access_count; k++) {
            while (block->places[k] - before >= p->ticks)
                block->places[k] -= p->ticks;
            block->kinds[k] = (uint8_t)random_below(3);
            before = block->places[k];
        }
        for (size_t k = 0; k + 1 < block->access_count; k++)
            assert_true(block->places[k] < block->places[k + 1]);
    }
    uint64_t now = 0;
    for (size_t i = 0; i <= p->ticks; i++) {
        p->time[i] = now;
        now += random_below(3) == 0 ? 0 : random_below(1000);
    }
    p->time[p->ticks] += 1;
}

/* Runs the program. starts[i] is the event index of tick `rotation` of iteration i. */
static events_vec run_program(const struct program *p, size_t rotation, size_t *starts)
{
    events_vec events = {0};
    uint64_t serials[MAX_BLOCKS][ITERATIONS], serial = 0, begin = 1000;
    for (size_t b = 0; b < p->count; b++)
        if (p->blocks[b].persistent) {
            serials[b][0] = ++serial;
            struct ebb_event event = {.time_ns = serial,
                                      .block = serial,
                                      .size_bytes = p->blocks[b].size,
                                      .kind = EBB_EVENT_ALLOC};
            assert_true(ebb_vec_push(&events, event));
        }
    for (size_t at = 0; at < ITERATIONS * p->ticks; at++) {
        size_t iteration = at / p->ticks, tick = at % p->ticks;
        if (tick == rotation)
            starts[iteration] = events.count;
        struct ebb_event event = {.time_ns = begin + iteration * p->time[p->ticks] + p->time[tick]};
        for (size_t b = 0; b < p->count; b++) {
            const struct block *block = &p->blocks[b];
            event.size_bytes = block->size;
            if (!block->persistent && block->alloc == tick) {
                event.kind = EBB_EVENT_ALLOC;
                event.block = serials[b][iteration] = ++serial;
                assert_true(ebb_vec_push(&events, event));
            }
            size_t end = block->alloc + block->span;
            if (!block->persistent && end % p->ticks == tick && iteration >= end / p->ticks) {
                event.kind = EBB_EVENT_FREE;
                event.block = serials[b][iteration - end / p->ticks];
                assert_true(ebb_vec_push(&events, event));
            }
            for (size_t k = 0; k < block->access_count; k++) {
                size_t place = block->alloc + block->places[k];
                if (place % p->ticks != tick || iteration < place / p->ticks)
                    continue;
                event.kind = EBB_EVENT_ACCESS;
                event.access = block->kinds[k];
                event.size_bytes = 0;
                event.block = serials[b][block->persistent ? 0 : iteration - place / p->ticks];
                assert_true(ebb_vec_push(&events, event));
                event.access = 0;
            }
        }
    }
    return events;
}

static bool tick_is_clock(const struct program *p, size_t tick)
{
    for (size_t b = 0; b < p->count; b++)
        if (!p->blocks[b].persistent &&
            (p->blocks[b].alloc == tick ||
             (p->blocks[b].alloc + p->blocks[b].span) % p->ticks == tick))
            return true;
    return false;
}

/* The time of a place on the unrolled timeline. */
static uint64_t time_at(const struct program *p, size_t at)
{
    return at / p->ticks * p->time[p->ticks] + p->time[at % p->ticks];
}

static void check_gap(const struct program *p, const struct ebb_model *model, size_t rotation,
                      const struct ebb_gap *gap, size_t from, size_t to, bool ends)
{
    size_t over = from + 1;
    while (!tick_is_clock(p, over % p->ticks))
        over++;
    uint64_t from_ns = time_at(p, over), to_ns = time_at(p, to);
    assert_int_equal(gap->from_tick, (from + p->ticks - rotation) % p->ticks);
    assert_int_equal(gap->to_tick, (to + p->ticks - rotation) % p->ticks);
    assert_int_equal(gap->ends_in_free, ends);
    assert_int_equal(gap->length_ns, to_ns > from_ns ? to_ns - from_ns : 0);
    assert_int_equal(gap->from_ns, model->time_ns[(over + p->ticks - rotation) % p->ticks]);
}

static void check_against(const struct program *p, const struct ebb_model *model, size_t rotation)
{
    size_t ticks = p->ticks;
    assert_int_equal(model->tick_count, ticks);
    assert_int_equal(model->block_count, p->count);
    assert_int_equal(ebb__model_iteration_ns(model), p->time[ticks]);
    uint64_t peak = 0;
    size_t peak_tick = 0, clocks = 0;
    for (size_t tick = 0; tick < ticks; tick++) {
        size_t own = (tick + rotation) % ticks;
        assert_int_equal(model->time_ns[tick], time_at(p, tick + rotation) - p->time[rotation]);
        assert_int_equal(model->events[tick].clock, tick_is_clock(p, own));
        clocks += tick_is_clock(p, own);
        uint64_t load = 0; /* many iterations later, summed over all instances */
        size_t now = 100 * ticks + own;
        for (size_t b = 0; b < p->count; b++)
            for (size_t i = 80; i < 120; i++) {
                size_t begin = i * ticks + p->blocks[b].alloc;
                load += now >= begin && now < begin + p->blocks[b].span ? p->blocks[b].size : 0;
            }
        assert_int_equal(model->load_bytes[tick], load);
        if (load > peak) {
            peak = load;
            peak_tick = tick;
        }
    }
    assert_int_equal(model->peak_bytes, peak);
    assert_int_equal(model->peak_tick, peak_tick);
    assert_int_equal(model->clock_count, clocks);
    size_t seen = 0, gap_count = 0;
    for (uint32_t i = 0; i < model->block_count; i++) {
        const struct ebb_model_block *out = &model->blocks[i];
        const struct block *block = NULL;
        bool persistent = out->alloc_tick == EBB_TICK_NONE;
        size_t rank = 0; /* persistent blocks are in the order of their allocation */
        for (size_t b = 0; b < p->count; b++)
            if (!persistent ? !p->blocks[b].persistent &&
                                  (p->blocks[b].alloc + ticks - rotation) % ticks == out->alloc_tick
                            : p->blocks[b].persistent && ++rank == out->serial)
                block = &p->blocks[b];
        assert_non_null(block);
        seen++;
        assert_int_equal(out->size_bytes, block->size);
        assert_int_equal(out->span_ticks, block->span);
        if (!persistent) {
            assert_int_equal(out->free_tick, (out->alloc_tick + out->span_ticks) % ticks);
            assert_int_equal(model->events[out->alloc_tick].kind, EBB_EVENT_ALLOC);
            assert_int_equal(model->events[out->alloc_tick].block, i);
            assert_int_equal(model->events[out->free_tick].kind, EBB_EVENT_FREE);
            assert_int_equal(model->events[out->free_tick].block, i);
        }
        assert_int_equal(out->access_count, block->access_count);
        /* The accesses of a persistent block are in the order of the rotated iteration. */
        size_t shift = 0;
        while (persistent && shift < block->access_count && block->places[shift] < rotation)
            shift++;
        for (size_t k = 0; k < block->access_count; k++) {
            size_t own = (k + shift) % block->access_count;
            const struct ebb_model_access *access = &model->accesses[out->first_access + k];
            assert_int_equal(access->tick,
                             (block->alloc + block->places[own] + ticks - rotation) % ticks);
            assert_int_equal(access->access, block->kinds[own]);
            assert_int_equal(model->events[access->tick].block, i);
            const struct ebb_gap *gap = &model->gaps[gap_count++];
            assert_int_equal(gap->block, i);
            size_t from = block->alloc + block->places[own];
            bool last = k + 1 == block->access_count;
            size_t following = (own + 1) % block->access_count;
            size_t to = block->alloc + block->places[following];
            if (persistent && to <= from)
                to += ticks;
            if (!persistent && last)
                to = block->alloc + block->span;
            check_gap(p, model, rotation, gap, from, to, last && !persistent);
        }
        if (block->access_count == 0 && persistent && model->has_accesses) {
            const struct ebb_gap *gap = &model->gaps[gap_count++];
            assert_int_equal(gap->block, i);
            assert_int_equal(gap->from_tick, 0);
            assert_int_equal(gap->to_tick, 0);
            assert_int_equal(gap->length_ns, p->time[ticks]);
        }
    }
    assert_int_equal(seen, p->count);
    assert_int_equal(gap_count, model->gap_count);
    for (uint32_t tick = 0; tick < ticks; tick++) {
        uint32_t after = (tick + 1) % (uint32_t)ticks,
                 before = (tick + (uint32_t)ticks - 1) % (uint32_t)ticks;
        while (!model->events[after].clock)
            after = (after + 1) % (uint32_t)ticks;
        while (!model->events[before].clock)
            before = (before + (uint32_t)ticks - 1) % (uint32_t)ticks;
        assert_int_equal(ebb__model_clock_after(model, tick), after);
        assert_int_equal(ebb__model_clock_before(model, tick), before);
    }
}

/* Each block that is allocated in the iteration is freed once in it. */
static void check_well_formed(const struct ebb_model *model)
{
    for (uint32_t i = 0; i < model->block_count; i++) {
        size_t allocs = 0, frees = 0;
        for (uint32_t tick = 0; tick < model->tick_count; tick++)
            if (model->events[tick].block == i) {
                allocs += model->events[tick].kind == EBB_EVENT_ALLOC;
                frees += model->events[tick].kind == EBB_EVENT_FREE;
            }
        size_t expected = model->blocks[i].alloc_tick != EBB_TICK_NONE;
        assert_int_equal(allocs, expected);
        assert_int_equal(frees, expected);
    }
    for (uint32_t tick = 0; tick < model->tick_count; tick++)
        assert_true(model->time_ns[tick] <= model->time_ns[tick + 1]);
}

static void test_random_programs(void **state)
{
    (void)state;
    for (size_t round = 0; round < 1500; round++) {
        struct program program;
        make_program(&program);
        size_t starts[ITERATIONS], rotation = random_below(program.ticks);
        events_vec events = run_program(&program, rotation, starts);
        struct ebb_event_span trace = {events.items, events.count};
        struct ebb_error error = {0};
        for (size_t i = 0; i + 1 < ITERATIONS; i++) {
            struct ebb_model model;
            assert_int_equal(
                ebb__model_build(trace, starts[i], starts[i + 1] - starts[i], &model, &error),
                EBB_OK);
            check_well_formed(&model);
            if (i >= 3)
                check_against(&program, &model, rotation);
            ebb__model_fini(&model);
            if (i < 3)
                continue;
            /* The result is the same if the trace ends with the iteration. */
            struct ebb_event_span cut = {events.items, starts[i + 1]};
            assert_int_equal(
                ebb__model_build(cut, starts[i], starts[i + 1] - starts[i], &model, &error),
                EBB_OK);
            assert_int_equal(model.time_ns[model.tick_count], program.time[program.ticks]);
            check_against(&program, &model, rotation);
            ebb__model_fini(&model);
        }
        ebb_vec_free(&events);
    }
}

static struct ebb_event event_of(uint8_t kind, uint64_t time, uint64_t block, uint64_t size)
{
    return (struct ebb_event){.time_ns = time, .block = block, .size_bytes = size, .kind = kind};
}

static void test_contradictions(void **state)
{
    (void)state;
    struct ebb_event events[] = {
        event_of(EBB_EVENT_ALLOC, 0, 1, 10),
        event_of(EBB_EVENT_FREE, 1, 1, 10),
        event_of(EBB_EVENT_FREE, 2, 1, 10),
        event_of(EBB_EVENT_ALLOC, 3, 2, 10),
    };
    struct ebb_event_span trace = {events, 4};
    struct ebb_model model;
    struct ebb_error error;
    assert_int_equal(ebb__model_build(trace, 0, 4, &model, &error), EBB_ERR_FORMAT);
    assert_non_null(strstr(error.why, "freed twice"));
    events[2].kind = EBB_EVENT_ACCESS;
    assert_int_equal(ebb__model_build(trace, 0, 4, &model, &error), EBB_ERR_FORMAT);
    events[2].kind = EBB_EVENT_ALLOC;
    assert_int_equal(ebb__model_build(trace, 0, 4, &model, NULL), EBB_ERR_FORMAT);
    assert_int_equal(ebb__model_build(trace, 0, 0, &model, &error), EBB_ERR_ARGUMENT);
    assert_int_equal(ebb__model_build(trace, 2, 3, &model, &error), EBB_ERR_ARGUMENT);
    assert_int_equal(ebb__model_build(trace, SIZE_MAX, 2, &model, &error), EBB_ERR_ARGUMENT);
}

/* Frees jitter across the iteration's end, so a window has no FREE of the block, or two. */
static void test_free_at_the_border(void **state)
{
    (void)state;
    for (size_t early = 0; early < 2; early++) {
        events_vec events = {0};
        size_t starts[6], last = 0;
        for (size_t i = 0; i < 6; i++) {
            bool before_end = (i % 2 == 0) == (early == 0);
            if (i && !before_end) /* the late FREE of the previous iteration's block */
                assert_true(ebb_vec_push(&events, event_of(EBB_EVENT_FREE, i * 100 - 1, last, 64)));
            last = 2 * i + 1;
            starts[i] = events.count;
            if (i && !before_end)
                starts[i]--;
            assert_true(ebb_vec_push(&events, event_of(EBB_EVENT_ALLOC, i * 100, last, 64)));
            assert_true(
                ebb_vec_push(&events, event_of(EBB_EVENT_ALLOC, i * 100 + 10, last + 1, 32)));
            assert_true(ebb_vec_push(&events, event_of(EBB_EVENT_ACCESS, i * 100 + 20, last, 0)));
            assert_true(
                ebb_vec_push(&events, event_of(EBB_EVENT_FREE, i * 100 + 30, last + 1, 32)));
            bool next_early = ((i + 1) % 2 == 0) == (early == 0);
            if (next_early)
                assert_true(
                    ebb_vec_push(&events, event_of(EBB_EVENT_FREE, i * 100 + 99, last, 64)));
        }
        struct ebb_event_span trace = {events.items, events.count};
        for (size_t i = 1; i < 5; i++) {
            struct ebb_model model;
            assert_int_equal(
                ebb__model_build(trace, starts[i], starts[i + 1] - starts[i], &model, NULL),
                EBB_OK);
            check_well_formed(&model);
            assert_int_equal(model.block_count, 2);
            assert_int_equal(model.peak_bytes, 96);
            ebb__model_fini(&model);
        }
        ebb_vec_free(&events);
    }
}

/* Just before the first iteration, weights are allocated with the sizes that iterations use. They
 * are still weights in every iteration. */
static void test_weights_of_like_sizes(void **state)
{
    (void)state;
    events_vec events = {0};
    size_t starts[8], serial = 0, time = 0;
    for (size_t i = 0; i < 6; i++) /* as many as three iterations allocate */
        assert_true(
            ebb_vec_push(&events, event_of(EBB_EVENT_ALLOC, time++, ++serial, i % 2 ? 32 : 64)));
    for (size_t i = 0; i < 8; i++) {
        starts[i] = events.count;
        size_t kept = ++serial;
        assert_true(ebb_vec_push(&events, event_of(EBB_EVENT_ALLOC, time++, kept, 64)));
        if (i) /* the previous iteration's block */
            assert_true(ebb_vec_push(&events, event_of(EBB_EVENT_FREE, time++, kept - 2, 64)));
        assert_true(ebb_vec_push(&events, event_of(EBB_EVENT_ALLOC, time++, ++serial, 32)));
        for (size_t weight = 1; weight <= 6; weight++)
            assert_true(ebb_vec_push(&events, event_of(EBB_EVENT_ACCESS, time++, weight, 0)));
        assert_true(ebb_vec_push(&events, event_of(EBB_EVENT_FREE, time++, serial, 32)));
    }
    struct ebb_event_span trace = {events.items, events.count};
    for (size_t i = 0; i < 7; i++) {
        struct ebb_model model;
        assert_int_equal(
            ebb__model_build(trace, starts[i], starts[i + 1] - starts[i], &model, NULL), EBB_OK);
        check_well_formed(&model);
        assert_int_equal(model.block_count, 8);
        assert_int_equal(model.peak_bytes, 3 * 96 + 2 * 64);
        ebb__model_fini(&model);
    }
    ebb_vec_free(&events);
}

enum { LAYERS = 4 };

static void put(events_vec *events, enum ebb_event_kind kind, size_t serial, uint64_t size)
{
    size_t time = events->count;
    assert_true(ebb_vec_push(events, event_of(kind, time, serial, size)));
}

/* A step frees the gradients of the one before between forward and backward, having used them once
 * more. The first one also makes states, and leaves a block that only the second one frees. */
static void push_step(events_vec *events, size_t step, size_t *serial, size_t gradients[LAYERS])
{
    static const uint64_t sizes[LAYERS] = {640, 320, 640, 160}; /* of weights */
    size_t forward = *serial + 1;
    for (size_t i = 0; i < LAYERS; i++)
        put(events, EBB_EVENT_ALLOC, ++*serial, 1000 + i);
    for (size_t i = 0; step && i < LAYERS; i++) {
        put(events, EBB_EVENT_ACCESS, gradients[i], 0);
        put(events, EBB_EVENT_FREE, gradients[i], sizes[i]);
    }
    if (step == 1)
        put(events, EBB_EVENT_FREE, 1, 640);
    for (size_t i = LAYERS; i-- > 0;) {
        put(events, EBB_EVENT_ALLOC, gradients[i] = ++*serial, sizes[i]);
        put(events, EBB_EVENT_FREE, forward + i, 1000 + i);
    }
    for (size_t i = 0; i < LAYERS; i++) {
        put(events, EBB_EVENT_ACCESS, gradients[i], 0);
        if (step == 0)
            put(events, EBB_EVENT_ALLOC, ++*serial, sizes[i]);
    }
}

/* The second step is modelled, whose gradients the third one frees. The first one allocated more.
 * `until`: the third step is seen so far, in layers of its forward pass, or whole. */
static void model_second_step(size_t until)
{
    events_vec events = {0};
    size_t serial = 1, gradients[LAYERS];
    put(&events, EBB_EVENT_ALLOC, serial, 640);
    push_step(&events, 0, &serial, gradients);
    size_t first = events.count, before = serial;
    push_step(&events, 1, &serial, gradients);
    size_t last = events.count, behind = serial;
    if (until > LAYERS)
        push_step(&events, 2, &serial, gradients);
    else
        for (size_t i = 0; i < until; i++)
            put(&events, EBB_EVENT_ALLOC, ++serial, 1000 + i);
    struct ebb_event_span trace = {events.items, events.count};
    struct ebb_model model;
    assert_int_equal(ebb__model_build(trace, first, last - first, &model, NULL), EBB_OK);
    check_well_formed(&model);
    size_t periodic = 0;
    for (uint32_t i = 0; i < model.block_count; i++) {
        const struct ebb_model_block *block = &model.blocks[i];
        bool is_new = block->serial > before && block->serial <= behind;
        assert_int_equal(is_new, block->alloc_tick != EBB_TICK_NONE);
        assert_int_equal(is_new, block->free_tick != EBB_TICK_NONE);
        periodic += is_new;
        if (is_new && block->size_bytes < 1000) /* a gradient */
            assert_int_equal(block->access_count, 2);
    }
    assert_int_equal(periodic, 2 * LAYERS);
    assert_int_equal(model.block_count, 3 * LAYERS); /* and the states */
    ebb__model_fini(&model);
    ebb_vec_free(&events);
}

static void test_step_after_a_longer_one(void **state)
{
    (void)state;
    model_second_step(1);
    model_second_step(LAYERS);
    model_second_step(LAYERS + 1);
}

/* Marks of the runtime and demand accesses are ignored. Blocks that are older than the trace are
 * counted. */
static void test_what_counts(void **state)
{
    (void)state;
    struct ebb_event events[] = {
        event_of(EBB_EVENT_ALLOC, 0, 1, 100),    event_of(EBB_EVENT_ALLOC, 10, 2, 7),
        event_of(EBB_EVENT_MARK, 11, 0, 0),      event_of(EBB_EVENT_ACCESS, 12, 1, 0),
        event_of(EBB_EVENT_ACCESS, 13, 1, 0),    event_of(EBB_EVENT_MARK, 14, 0, 3),
        event_of(EBB_EVENT_ACCESS, 15, 99, 500), event_of(EBB_EVENT_FREE, 16, 2, 7),
        event_of(EBB_EVENT_ALLOC, 20, 3, 7),
    };
    events[2].mark = EBB_MARK_PLAN_ON;
    events[4].flags = EBB_EVENT_DEMAND;
    events[5].mark = EBB_MARK_LAYER;
    struct ebb_event_span trace = {events, 9};
    struct ebb_model model;
    assert_int_equal(ebb__model_build(trace, 1, 7, &model, NULL), EBB_OK);
    assert_int_equal(model.tick_count, 5);
    assert_int_equal(model.block_count, 3);
    assert_int_equal(model.access_count, 2);
    assert_int_equal(model.peak_bytes, 607);
    assert_int_equal(model.peak_tick, 0);
    assert_int_equal(model.load_bytes[4], 600);
    assert_int_equal(model.events[2].kind, EBB_EVENT_MARK);
    assert_int_equal(model.events[2].block, EBB_TICK_NONE);
    assert_int_equal(ebb__model_iteration_ns(&model), 10);

    /* Half the speed, with an earlier free. */
    uint64_t clock_ns[] = {0, 8, 20};
    ebb__model_retime(&model, clock_ns);
    uint64_t expected[] = {0, 2, 5, 6, 8, 20};
    for (size_t i = 0; i < 6; i++)
        assert_true(model.time_ns[i] + 1 >= expected[i] && model.time_ns[i] <= expected[i]);
    for (uint32_t i = 0; i < model.gap_count; i++) {
        assert_int_equal(model.gaps[i].from_ns, 8); /* persistent, both: since the FREE */
        assert_int_equal(model.gaps[i].length_ns, 12 + model.time_ns[model.gaps[i].to_tick]);
    }
    uint64_t crossing[] = {0, 30, 20}; /* medians may; times never fall */
    ebb__model_retime(&model, crossing);
    check_well_formed(&model);
    ebb__model_fini(&model);
}

/* derive() checks a model that is made by hand. */
static void test_derive_checks(void **state)
{
    (void)state;
    struct ebb_model_event events[2] = {{.block = 0, .kind = EBB_EVENT_ALLOC, .clock = true},
                                        {.block = 0, .kind = EBB_EVENT_FREE, .clock = true}};
    uint64_t times[3] = {0, 5, 9};
    struct ebb_model_block block = {
        .serial = 1, .size_bytes = 8, .alloc_tick = 0, .free_tick = 1, .span_ticks = 1};
    struct ebb_model_access access = {0};
    struct ebb_model model = {.tick_count = 2,
                              .events = events,
                              .time_ns = times,
                              .blocks = &block,
                              .block_count = 1,
                              .accesses = &access};
    assert_int_equal(ebb__model_derive(&model, NULL), EBB_OK);
    assert_int_equal(model.load_bytes[0], 8);
    assert_int_equal(model.load_bytes[1], 0);
    block.span_ticks = 5; /* two and a half iterations */
    assert_int_equal(ebb__model_derive(&model, NULL), EBB_OK);
    assert_int_equal(model.load_bytes[0], 24);
    assert_int_equal(model.load_bytes[1], 16);
    struct ebb_error error;
    block.span_ticks = 2;
    assert_int_equal(ebb__model_derive(&model, &error), EBB_ERR_ARGUMENT);
    block.span_ticks = 1;
    times[2] = 4;
    assert_int_equal(ebb__model_derive(&model, &error), EBB_ERR_ARGUMENT);
    times[2] = 9;
    events[1].block = 1;
    assert_int_equal(ebb__model_derive(&model, &error), EBB_ERR_ARGUMENT);
    free(model.load_bytes);
    free(model.gaps);
}

/* Two uses of a block, each with its end: there is a gap behind each end, and none within. */
static void test_a_held_block_has_no_gap(void **state)
{
    (void)state;
    EBB_VEC(struct ebb_event) events = {0};
    struct ebb_event begin = event_of(EBB_EVENT_ACCESS, 10, 1, 64);
    struct ebb_event end = event_of(EBB_EVENT_ACCESS, 20, 1, 64);
    begin.flags = EBB_EVENT_ANNOUNCED;
    end.flags = EBB_EVENT_ANNOUNCED | EBB_EVENT_HELD;
    assert_true(ebb_vec_push(&events, event_of(EBB_EVENT_ALLOC, 0, 1, 64)));
    for (uint64_t i = 0; i < 2; i++) {
        begin.time_ns += i * 100;
        end.time_ns += i * 100;
        assert_true(ebb_vec_push(&events, begin));
        assert_true(ebb_vec_push(&events, end));
    }
    struct ebb_model model;
    assert_int_equal(
        ebb__model_build((struct ebb_event_span){events.items, events.count}, 1, 4, &model, NULL),
        EBB_OK);
    assert_int_equal(model.access_count, 4);
    assert_int_equal(model.gap_count, 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_true(model.accesses[1].tick == model.gaps[i].from_tick ||
                    model.accesses[3].tick == model.gaps[i].from_tick);
    ebb__model_fini(&model);
    ebb_vec_free(&events);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_programs),
        cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_free_at_the_border),
        cmocka_unit_test(test_what_counts),
        cmocka_unit_test(test_derive_checks),
        cmocka_unit_test(test_weights_of_like_sizes),
        cmocka_unit_test(test_a_held_block_has_no_gap),
        cmocka_unit_test(test_step_after_a_longer_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
