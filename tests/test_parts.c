/* Large blocks in parts, on a device of plain memory, with budgets far below one block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/tuning.h"
#include "model/recurrence.h"
#include "model/watch.h"
#include "runtime_rig.h"
#include "runtime_script.h"

#define PART_FROM ((uint64_t)4 << 20)
#define MIB ((uint64_t)1 << 20)
/* It does not divide a page, so that slices and parts overlap in every way. */
#define SLICE_BYTES ((size_t)704008)
#define MOST_SLICES 64
/* In the tests whose clock is accesses, a pause ends an operation. Two successive faults take less
 * time. */
#if defined(__SANITIZE_THREAD__)
#define PAUSE_US 40000
#else
#define PAUSE_US 2000
#endif

/* A large block that is used slice by slice. */
struct large {
    unsigned char *bytes;
    size_t size, slice_count;
    struct item slices[MOST_SLICES];
};

static struct rig *open_rig(uint64_t budget_bytes, bool trace, bool verify)
{
    return rig_make_with(budget_bytes, trace, verify, PART_FROM, UINT64_MAX);
}

static struct large make_large(struct rig *rig, size_t size)
{
    struct large large = {.bytes = ebb__runtime_alloc(rig->runtime, size, 64, false), .size = size};
    assert_non_null(large.bytes);
    for (size_t at = 0; at < size; at += SLICE_BYTES, large.slice_count++) {
        size_t rest = size - at < SLICE_BYTES ? size - at : SLICE_BYTES;
        large.slices[large.slice_count] = (struct item){large.bytes + at, rest, UINT64_MAX};
    }
    return large;
}

/* Verifies a slice that has been written, and writes it anew. */
static void use_slice(struct rig *rig, struct item *slice, uint64_t seed)
{
    if (slice->seed != UINT64_MAX)
        check(rig, slice);
    if (seed != UINT64_MAX)
        put(rig, slice, seed);
}

static void drop_large(struct rig *rig, struct large *large)
{
    assert_true(ebb__runtime_free(rig->runtime, large->bytes));
    large->bytes = NULL;
}

static uint32_t parts_of(struct rig *rig, const struct large *large)
{
    pthread_mutex_lock(&rig->runtime->core.lock);
    struct block *head = ebb__space_find(&rig->runtime->addresses, (uintptr_t)large->bytes);
    uint32_t parts = head->run.parts, count = 0;
    uint64_t bytes = 0;
    for (uint32_t i = ebb__block_index(&rig->runtime->table, head); i != NO_BLOCK;
         i = ebb__part_next(&rig->runtime->table, i)) {
        struct block *part = &rig->runtime->table.blocks[i];
        assert_int_equal(part->address, (uintptr_t)large->bytes + bytes);
        assert_int_equal(part->serial, head->serial);
        bytes += part->page_bytes;
        count++;
        for (uint64_t at = 0; at < part->page_bytes; at += EBB_HUGE_BYTES)
            assert_ptr_equal(ebb__space_find(&rig->runtime->addresses, part->address + at), part);
    }
    pthread_mutex_unlock(&rig->runtime->core.lock);
    assert_int_equal(count, parts);
    assert_int_equal(bytes, (large->size + 4095) / 4096 * 4096);
    return parts;
}

static void assert_all_gone(struct rig *rig)
{
    ebb__runtime_settle(rig->runtime);
    assert_int_equal(atomic_load(&rig->counters->live_bytes), 0);
    assert_int_equal(atomic_load(&rig->counters->store_bytes), 0);
    assert_int_equal(atomic_load(&rig->lost), 0);
}

static void one_piece_where_there_is_room(void **state)
{
    (void)state;
    struct rig *rig = open_rig(NO_BUDGET, false, false);
    struct large large = make_large(rig, 21 * MIB + 5000);
    assert_int_equal(parts_of(rig, &large), 1);
    for (size_t i = 0; i < large.slice_count; i++)
        use_slice(rig, &large.slices[i], i);
    unsigned char *bytes = large.bytes;
    uint64_t before = held(rig);
    drop_large(rig, &large);
    large = make_large(rig, 21 * MIB + 5000); /* with the same address and pages */
    assert_ptr_equal(large.bytes, bytes);
    assert_int_equal(held(rig), before);
    for (size_t i = 0; i < large.slice_count; i++)
        use_slice(rig, &large.slices[i], i);
    ebb__runtime_set_trace(rig->runtime, EBB_OBSERVE_ALWAYS, 0);
    assert_int_equal(parts_of(rig, &large), 11);
    assert_false(ebb__runtime_free(rig->runtime, large.bytes + EBB_HUGE_BYTES));
    assert_int_equal(ebb__runtime_usable_bytes(rig->runtime, large.bytes + EBB_HUGE_BYTES), 0);
    assert_int_equal(ebb__runtime_usable_bytes(rig->runtime, large.bytes), large.size);
    for (size_t i = 0; i < large.slice_count; i++)
        use_slice(rig, &large.slices[i], i + 7);
    ebb__runtime_set_trace(rig->runtime, EBB_OBSERVE_NEVER, 0);
    assert_int_equal(parts_of(rig, &large), 1);
    for (size_t i = 0; i < large.slice_count; i++)
        use_slice(rig, &large.slices[i], UINT64_MAX);
    assert_int_equal(held(rig), before);
    drop_large(rig, &large);
    assert_all_gone(rig);
    rig_close(rig);
}

/* Some parts of a block are evicted when it is freed. No entry remains that could be mistaken for a
 * block of a part's size. */
static void freed_parts_are_no_blocks(void **state)
{
    (void)state;
    enum { UNITS = 20, COUNT = 6 };
    struct rig *rig = open_rig(20 * MIB, false, false);
    struct item items[COUNT];
    for (uint64_t round = 0; round < 4; round++) {
        struct large large = make_large(rig, UNITS * EBB_HUGE_BYTES);
        assert_in_range(parts_of(rig, &large), 2, UNITS);
        for (uint64_t i = 0; i < 2 * UNITS; i++) { /* every other one stays */
            uint64_t unit = i < UNITS ? i : i / 2 * 2 + round % 2 - UNITS;
            struct item item = {large.bytes + unit * EBB_HUGE_BYTES, EBB_HUGE_BYTES, 0};
            put(rig, &item, i);
        }
        ebb__runtime_settle(rig->runtime);
        drop_large(rig, &large);
        for (uint64_t i = 0; i < COUNT; i++)
            items[i] = make(rig, EBB_HUGE_BYTES, round * COUNT + i);
        for (uint64_t i = 0; i < COUNT; i++) {
            assert_int_equal(ebb__runtime_usable_bytes(rig->runtime, items[i].bytes),
                             EBB_HUGE_BYTES);
            drop(rig, &items[i]);
            for (uint64_t other = i + 1; other < COUNT; other++)
                check(rig, &items[other]);
        }
        assert_all_gone(rig);
    }
    rig_close(rig);
}

/* A block that got all its pages at once counts as touched once. Its parts are not all in use since
 * then. */
static void touched_as_a_whole(void **state)
{
    (void)state;
    struct rig *rig = open_rig(20 * MIB, false, false);
    struct large bare = make_large(rig, 24 * MIB); /* over the budget: no pages yet */
    struct large whole = make_large(rig, 20 * MIB);
    assert_int_equal(parts_of(rig, &whole), 1);
    assert_int_equal(held(rig), 20 * MIB);
    for (size_t i = 0; i < bare.slice_count; i++) {
        use_slice(rig, &bare.slices[i], i);
        assert_within_budget(rig);
    }
    drop_large(rig, &bare);
    drop_large(rig, &whole);
    assert_all_gone(rig);
    rig_close(rig);
}

/* The trace of accesses to some units names each unit once an operation, by its end. */
static void trace_names_units(void **state)
{
    (void)state;
    struct rig *rig = open_rig(NO_BUDGET, true, false);
    struct ebb_event events[256];
    struct large large = make_large(rig, 9 * MIB);
    for (unsigned round = 0; round < 4; round++) {
        (void)ebb__ring_read(rig->ring, events, 256);
        for (unsigned again = 0; again < 2; again++)
            for (size_t i = round; i < large.slice_count; i += 6)
                use_slice(rig, &large.slices[i], round);
        bool expected[5] = {false}, seen[5] = {false};
        for (size_t i = round; i < large.slice_count; i += 6)
            for (size_t at = i * SLICE_BYTES; at < i * SLICE_BYTES + large.slices[i].size; at += 8)
                expected[at / EBB_HUGE_BYTES] = true;
        size_t count = ebb__ring_read(rig->ring, events, 256);
        for (size_t i = 0; i < count; i++) {
            if (events[i].kind == EBB_EVENT_MARK && events[i].mark == EBB_MARK_OBSERVED)
                continue; /* told if the machine is slow */
            assert_int_equal(events[i].kind, EBB_EVENT_ACCESS);
            assert_int_equal(events[i].flags, EBB_EVENT_PART);
            size_t unit = (size_t)((events[i].size_bytes - 1) / EBB_HUGE_BYTES);
            assert_true(unit < 5 && !seen[unit]);
            assert_int_equal(events[i].size_bytes, unit < 4 ? (unit + 1) * 2 * MIB : 9 * MIB);
            seen[unit] = true;
        }
        assert_memory_equal(seen, expected, sizeof seen);
        struct item other = make(rig, 5000, 1); /* two events: uses are observed again */
        drop(rig, &other);
    }
    drop_large(rig, &large);
    assert_all_gone(rig);
    rig_close(rig);
}

static void far_below_one_block(void **state)
{
    (void)state;
    for (unsigned mode = 0; mode < 4; mode++) {
        struct rig *rig = open_rig(10 * MIB, mode & 1, mode & 2);
        struct large large = make_large(rig, 31 * MIB);
        for (uint64_t lap = 0; lap < 3; lap++)
            for (size_t i = 0; i < large.slice_count; i++) {
                size_t slice = lap & 1 ? large.slice_count - 1 - i : i;
                use_slice(rig, &large.slices[slice], lap * 100 + i);
                struct item other = make(rig, 5000, lap);
                drop(rig, &other);
                assert_within_budget(rig);
                if (i == 20)
                    ebb__runtime_set_trace(rig->runtime, (enum ebb_observe)((mode & 1) ^ (lap & 1)),
                                           0);
            }
        assert_true(atomic_load(&rig->counters->moved_in_bytes) > 0);
        drop_large(rig, &large);
        assert_all_gone(rig);
        assert_within_budget(rig);
        rig_close(rig);
    }
}

/* A plan has made most of the block one part, then ends. That part need not fit in the budget. */
static void what_was_one_part_need_not_fit(void **state)
{
    (void)state;
    for (unsigned used = 0; used < 2; used++) {
        struct rig *rig = open_rig(10 * MIB, false, false);
        struct large large = make_large(rig, 31 * MIB);
        pthread_mutex_lock(&rig->runtime->core.lock);
        struct block *head =
            ebb__space_find(&rig->runtime->addresses, (uintptr_t)large.slices[0].bytes);
        assert_int_not_equal(ebb__part_shape(&rig->runtime->table, head, 2, 13), NO_BLOCK);
        assert_true(head->run.parts <= 4);
        pthread_mutex_unlock(&rig->runtime->core.lock);
        for (size_t i = 0; i < large.slice_count; i++)
            use_slice(rig, &large.slices[used ? large.slice_count - 1 - i : i], i + 1);
        assert_within_budget(rig);
        drop_large(rig, &large);
        assert_all_gone(rig);
        rig_close(rig);
    }
}

static void callocs_are_zero(void **state)
{
    (void)state;
    struct rig *rig = open_rig(60 * MIB, false, false);
    for (unsigned round = 0; round < 2; round++) {
        struct large dirty = make_large(rig, 17 * MIB);
        for (size_t i = 0; i < dirty.slice_count; i++)
            use_slice(rig, &dirty.slices[i], i + 1);
        drop_large(rig, &dirty);
        ebb__runtime_set_trace(rig->runtime, EBB_OBSERVE_NEVER, 0);
        unsigned char *clean = ebb__runtime_alloc(rig->runtime, 17 * MIB, 64, true);
        assert_non_null(clean);
        for (size_t i = 0; i < 17 * MIB; i += 4)
            assert_int_equal(*(uint32_t *)(void *)(clean + i), 0);
        assert_true(ebb__runtime_free(rig->runtime, clean));
    }
    assert_all_gone(rig);
    rig_close(rig);
}

/* A random sequence of allocations of all sizes, uses, and frees during transfers. Tracing is
 * switched on and off, and copies are kept. */
static void random_program(uint64_t seed, bool verify)
{
    struct rig *rig = open_rig(24 * MIB, seed & 1, verify);
    struct large larges[2] = {{0}};
    struct item items[20] = {{0}};
    static const size_t sizes[] = {5 * MIB + 8, 13 * MIB - 8, 22 * MIB}; /* the arena is small */
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (unsigned step = 0; step < 600; step++) {
        struct large *large = &larges[chance(&state) % 2];
        struct item *item = &items[chance(&state) % 20];
        uint64_t what = chance(&state) % 100;
        if (what < 1) {
            ebb__runtime_set_trace(rig->runtime, (enum ebb_observe)(chance(&state) % 3), 0);
        } else if (what < 4 && large->bytes) {
            drop_large(rig, large);
        } else if (what < 60) {
            if (!large->bytes)
                *large = make_large(rig, sizes[chance(&state) % 3]);
            uint64_t wanted = chance(&state);
            use_slice(rig, &large->slices[wanted % large->slice_count],
                      wanted & 256 ? wanted : UINT64_MAX);
        } else if (item->bytes) {
            check(rig, item);
            drop(rig, item);
        } else {
            *item = make(rig, 1 + chance(&state) % 400000, chance(&state));
        }
        assert_within_budget(rig);
    }
    for (size_t i = 0; i < 2; i++) {
        for (size_t k = 0; larges[i].bytes && k < larges[i].slice_count; k++)
            use_slice(rig, &larges[i].slices[k], UINT64_MAX);
        if (larges[i].bytes)
            drop_large(rig, &larges[i]);
    }
    for (size_t i = 0; i < 20; i++)
        if (items[i].bytes)
            drop(rig, &items[i]);
    assert_all_gone(rig);
    rig_close(rig);
}

static void random_programs(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++)
        random_program(seed, seed % 3 == 0);
}

/* Without any event, long operations end after a time. So the budget holds all the same. */
static void no_events_at_all(void **state)
{
    (void)state;
    struct rig *rig = rig_make_with(16 * MIB, false, false, PART_FROM, 1000000);
    struct large large = make_large(rig, 31 * MIB);
    for (uint64_t lap = 0; lap < 4; lap++)
        for (size_t i = 0; i < large.slice_count; i++) {
            use_slice(rig, &large.slices[i], lap * 100 + i);
            assert_within_budget(rig);
        }
    drop_large(rig, &large);
    assert_all_gone(rig);
    rig_close(rig);
}

/* --- a plan --- */

#define STEPS 8

/* One iteration. It makes the block, uses its slices forward and backward, and allocates scratch
 * memory in between. */
static void lap(struct rig *rig, uint64_t seed)
{
    struct large large = make_large(rig, 32 * MIB);
    size_t share = large.slice_count / STEPS;
    for (unsigned step = 0; step < 2 * STEPS; step++) {
        unsigned k = step < STEPS ? step : 2 * STEPS - 1 - step;
        struct item scratch = make(rig, 20000 + 64 * (size_t)k, step);
        for (size_t i = k * share; i < (k + 1) * share; i++)
            use_slice(rig, &large.slices[i], seed + step * 1000 + i);
        check(rig, &scratch);
        drop(rig, &scratch);
        nap_us(2000);
    }
    drop_large(rig, &large);
}

static void watch_laps(struct rig *rig, struct ebb_watch *watch)
{
    static struct ebb_event events[4096];
    size_t count;
    while ((count = ebb__ring_read(rig->ring, events, 4096)) > 0)
        for (size_t i = 0; i < count; i++)
            assert_int_equal(ebb__watch_push(watch, &events[i]), EBB_OK);
}

static struct ebb_script *plan_for(const struct ebb_model *model, uint64_t budget_bytes)
{
    const struct ebb_machine machine = {"test", {8, 0}, {8, 0}, true, EBB_NO_COSTS};
    struct ebb_plan_request request = request_for(model, &machine, budget_bytes, 50000000);
    request.newest_only = true;
    return script_from(&request, false);
}

static struct ebb_script *learn(struct rig *rig)
{
    struct ebb_watch *watch;
    struct ebb_model model;
    struct ebb_error error;
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &watch), EBB_OK);
    for (unsigned i = 0; i < 4; i++) {
        lap(rig, i);
        watch_laps(rig, watch);
    }
    assert_true(ebb__watch_found(watch));
    assert_int_equal(ebb__watch_model(watch, &model, NULL, &error), EBB_OK);
    ebb__watch_destroy(watch);
    uint32_t parts = 0;
    for (uint32_t i = 0; i < model.block_count; i++)
        parts += model.blocks[i].part_count > 0;
    assert_true(parts >= STEPS);
    struct ebb_script *script = plan_for(&model, 20 * MIB);
    ebb__model_fini(&model);
    return script;
}

static void script_moves_parts(void **state)
{
    (void)state;
    struct rig *rig = open_rig(NO_BUDGET, true, false);
    struct ebb_script *script = learn(rig);
    assert_int_equal(ebb__runtime_set_script(rig->runtime, script, script->bytes), EBB_OK);
    ebb__runtime_set_trace(rig->runtime, EBB_OBSERVE_NEVER, 0);
    for (uint64_t i = 0; i < 2; i++)
        lap(rig, i);
    assert_int_equal(atomic_load(&rig->counters->resyncs), 1);
    atomic_store(&rig->ledger.budget_bytes, 24 * MIB);
    ebb__runtime_trim(rig->runtime);
    uint64_t in = atomic_load(&rig->counters->moved_in_bytes);
    for (uint64_t i = 0; i < 6; i++)
        lap(rig, i);
    assert_int_equal(atomic_load(&rig->counters->mismatches), 0);
    assert_true(atomic_load(&rig->counters->moved_in_bytes) > in);
    assert_within_budget(rig);
    assert_all_gone(rig);
    /* The parts are invalid. */
    struct ebb_script_block *blocks =
        (struct ebb_script_block *)((char *)script + script->blocks_offset);
    uint32_t head = 0;
    while (blocks[head].parts <= 1)
        head++;
    uint32_t *fields[] = {&blocks[head].parts,          &blocks[head].part_first,
                          &blocks[head].part_count,     &blocks[head + 1].part_first,
                          &blocks[head + 1].part_count, &blocks[head + 1].parts};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        static const uint32_t bad[] = {0, 3, 1000, UINT32_MAX};
        uint32_t good = *fields[i];
        for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
            *fields[i] = bad[k];
            bool may_be = (i == 1 || i == 5) && bad[k] == 0; /* unchanged */
            may_be |= (i == 2 || i == 4) && bad[k] == 3;     /* fewer units */
            may_be |= i == 0 && good == 3 && bad[k] == 3;
            if (!may_be)
                assert_false(ebb__script_valid(script, script->bytes));
            *fields[i] = good;
        }
    }
    assert_true(ebb__script_valid(script, script->bytes));
    rig_close(rig);
    free(script);
}

/* Evicts the block as a whole, and fetches its parts. */
static void return_in_parts(struct rig *rig, const struct item *whole)
{
    evict_now(rig, whole);
    pthread_mutex_lock(&rig->runtime->core.lock);
    struct block *head = block_of(rig, whole);
    ebb__part_split(&rig->runtime->table, head);
    assert_int_equal(head->run.parts, whole->size / EBB_HUGE_BYTES);
    pthread_mutex_unlock(&rig->runtime->core.lock);
    for (size_t at = 0; at < whole->size; at += EBB_HUGE_BYTES) {
        struct item part = {whole->bytes + at, EBB_HUGE_BYTES, 0};
        call_in(rig, &part, false, true);
        wait_for_state(rig, &part, BLOCK_RESIDENT);
    }
}

/* The store holds compressed frames, and reads only where one begins. */
static void pieces_of_any_size_are_read_again(void **state)
{
    (void)state;
    static const char *const sizes[] = {
        "transfer_chunk_bytes=3145728", "transfer_chunk_bytes=1500000",
        "transfer_chunk_bytes=65536", "transfer_chunk_bytes=5000000"};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct ebb_error error;
        assert_int_equal(ebb__tuning_set(sizes[i], &error), EBB_OK);
        struct rig *rig = open_rig(NO_BUDGET, false, false);
        rig->compresses = true;
        struct item whole = make(rig, 12 * MIB, 1);
        uint64_t *words = (uint64_t *)(void *)whole.bytes;
        memset(words, 0, whole.size);
        for (size_t at = 0; at < whole.size / 8; at += 64)
            words[at] = word_of(7, at);
        return_in_parts(rig, &whole);
        for (size_t at = 0; at < whole.size / 8; at++)
            assert_int_equal(words[at], at % 64 ? 0 : word_of(7, at));
        assert_true(rig->saved_bytes > 0);
        drop(rig, &whole);
        assert_all_gone(rig);
        rig_close(rig);
    }
    ebb__tuning_reset();
}

struct waiting {
    struct rig *rig;
    struct large large;
};

static void *allocate(void *argument)
{
    struct waiting *waiting = argument;
    waiting->large = make_large(waiting->rig, 12 * MIB);
    return NULL;
}

/* Allocates the block that the script knows. Begins to observe while it waits for memory. */
static void split_while_it_waits(struct waiting *waiting)
{
    struct rig *rig = waiting->rig;
    pthread_t thread;
    rig->faulty.delay_us = 100000;
    assert_int_equal(pthread_create(&thread, NULL, allocate, waiting), 0);
    for (unsigned waits = 0, i = 0; waits == 0; i++) {
        assert_true(i < PATIENCE_MS);
        nap_us(1000);
        pthread_mutex_lock(&rig->runtime->core.lock);
        waits = rig->runtime->transfer.room_waits;
        pthread_mutex_unlock(&rig->runtime->core.lock);
    }
    ebb__runtime_set_trace(rig->runtime, EBB_OBSERVE_ALWAYS, 0);
    pthread_join(thread, NULL);
    rig->faulty.delay_us = 0;
}

/* A block that the script knows waits for memory, and is split meanwhile. Its parts then have pages
 * only if their state says so. */
static void split_while_it_waits_for_memory(void **state)
{
    (void)state;
    struct rig *rig = open_rig(NO_BUDGET, false, false);
    struct waiting waiting = {.rig = rig};
    struct item other = make(rig, 3 * MIB, 1), another = make(rig, 3 * MIB, 2);
    struct maker maker = {0};
    static const size_t sizes[] = {100000, 200000, 300000, 12 * MIB};
    for (uint64_t i = 0; i < 4; i++) {
        uint32_t block = make_block(&maker, sizes[i]);
        make_event(&maker, 2 * i * 1000, EBB_EVENT_ALLOC, block, 0);
        make_event(&maker, (2 * i + 1) * 1000, EBB_EVENT_FREE, block, 0);
    }
    struct ebb_model model = make_model(&maker, 10000);
    struct ebb_script *script = plan_for(&model, 64 * MIB);
    assert_int_equal(ebb__runtime_set_script(rig->runtime, script, script->bytes), EBB_OK);
    for (unsigned i = 0; i < 4 * 3; i++) {
        struct item item = make(rig, sizes[i % 4], i);
        drop(rig, &item);
    }
    assert_non_null(rig->runtime->replay.current);
    atomic_store(&rig->ledger.budget_bytes, 14 * MIB);
    for (unsigned i = 0; i < 3; i++) {
        struct item item = make(rig, sizes[i], i);
        drop(rig, &item);
        check(rig, &other);
        check(rig, &another);
    }
    split_while_it_waits(&waiting);
    assert_int_equal(parts_of(rig, &waiting.large), 6);
    pthread_mutex_lock(&rig->runtime->core.lock);
    struct block *head = ebb__space_find(&rig->runtime->addresses, (uintptr_t)waiting.large.bytes);
    for (unsigned i = 0; i < 6; i++)
        if (head[i].state == BLOCK_BARE)
            assert_false(ebb__fake_present(&rig->device, head[i].address));
    pthread_mutex_unlock(&rig->runtime->core.lock);
    for (size_t i = 0; i < waiting.large.slice_count; i++)
        use_slice(rig, &waiting.large.slices[i], i);
    for (size_t i = 0; i < waiting.large.slice_count; i++)
        use_slice(rig, &waiting.large.slices[i], UINT64_MAX);
    assert_true(held(rig) <= 14 * MIB);
    drop_large(rig, &waiting.large);
    check(rig, &other);
    check(rig, &another);
    drop(rig, &other);
    drop(rig, &another);
    assert_all_gone(rig);
    ebb__model_fini(&model);
    rig_close(rig);
    free(script);
}

/* --- accesses as the clock --- */

/* One iteration over an older block: forward and backward. */
static void lap_once(struct rig *rig, struct large *large, uint64_t seed)
{
    for (size_t i = 0; i < 2 * large->slice_count; i++) {
        size_t k = i < large->slice_count ? i : 2 * large->slice_count - 1 - i;
        use_slice(rig, &large->slices[k], seed + i);
        nap_us(PAUSE_US * 3 / 2);
    }
}

/* Like src/parent/parent.c. Returns the number of iterations that the runtime has counted
 * meanwhile. */
static size_t watch_uses(struct rig *rig, struct ebb_watch *watch,
                         struct ebb_recurrence *recurrence)
{
    static struct ebb_event events[4096];
    size_t count, laps = 0;
    while ((count = ebb__ring_read(rig->ring, events, 4096)) > 0)
        for (size_t i = 0; i < count; i++) {
            bool begins = false;
            laps += events[i].kind == EBB_EVENT_MARK && events[i].mark == EBB_MARK_LAP;
            assert_int_equal(ebb__recurrence_push(recurrence, &events[i], &begins), EBB_OK);
            if (begins)
                assert_int_equal(
                    ebb__watch_push(watch,
                                    &(struct ebb_event){.time_ns = events[i].time_ns,
                                                        .size_bytes = EBB_ITERATION_BY_ACCESSES,
                                                        .kind = EBB_EVENT_MARK,
                                                        .mark = EBB_MARK_ITERATION}),
                    EBB_OK);
            assert_int_equal(ebb__watch_push(watch, &events[i]), EBB_OK);
        }
    return laps;
}

static void accesses_are_a_clock(void **state)
{
    (void)state;
    struct rig *rig = rig_make_with(NO_BUDGET, true, false, PART_FROM, PAUSE_US * 1000u);
    struct large large = make_large(rig, 20 * MIB);
    struct ebb_watch *watch;
    struct ebb_recurrence *recurrence;
    struct ebb_model model;
    struct ebb_error error;
    assert_int_equal(ebb__watch_create(EBB_WATCH_SHAPES, &watch), EBB_OK);
    assert_int_equal(ebb__recurrence_create(&recurrence), EBB_OK);
    uint64_t seed = 0;
    bool known = false;
    for (; !known && seed < 12; seed++) {
        lap_once(rig, &large, seed * 1000);
        (void)watch_uses(rig, watch, recurrence);
        if (!ebb__watch_found(watch) || ebb__watch_model(watch, &model, NULL, &error) != EBB_OK)
            continue;
        known = model.clock_count >= 8; /* else it is a short repetition within an iteration */
        if (!known)
            ebb__model_fini(&model);
    }
    assert_true(known);
    for (uint32_t i = 0; i < model.tick_count; i++)
        assert_true(!model.events[i].clock || model.events[i].kind == EBB_EVENT_ACCESS);
    struct ebb_script *script = plan_for(&model, 14 * MIB);
    assert_int_equal(script->alloc_count, 0);
    assert_int_equal(ebb__runtime_set_script(rig->runtime, script, script->bytes), EBB_OK);
    ebb__runtime_set_trace(rig->runtime, EBB_OBSERVE_NEVER, 0);
    atomic_store(&rig->ledger.budget_bytes, 16 * MIB);
    ebb__runtime_trim(rig->runtime);
    lap_once(rig, &large, 500000); /* the budget is approached, and replay begins */
    (void)watch_uses(rig, watch, recurrence);
    for (uint64_t i = 0; i < 5; i++)
        lap_once(rig, &large, 600000 + i * 1000);
    size_t laps = watch_uses(rig, watch, recurrence);
    assert_true(laps >= 2 && laps <= 6); /* two passes may have been taken for one iteration */
    assert_true(atomic_load(&rig->counters->moved_in_bytes) > 0);
    assert_within_budget(rig);
    /* If the blocks of the clock are freed, nothing is replayed any more. */
    drop_large(rig, &large);
    assert_null(rig->runtime->replay.current);
    assert_all_gone(rig);
    ebb__watch_destroy(watch);
    ebb__recurrence_destroy(recurrence);
    ebb__model_fini(&model);
    rig_close(rig);
    free(script);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_piece_where_there_is_room),
        cmocka_unit_test(freed_parts_are_no_blocks),
        cmocka_unit_test(touched_as_a_whole),
        cmocka_unit_test(trace_names_units),
        cmocka_unit_test(far_below_one_block),
        cmocka_unit_test(what_was_one_part_need_not_fit),
        cmocka_unit_test(callocs_are_zero),
        cmocka_unit_test(random_programs),
        cmocka_unit_test(no_events_at_all),
        cmocka_unit_test(script_moves_parts),
        cmocka_unit_test(pieces_of_any_size_are_read_again),
        cmocka_unit_test(split_while_it_waits_for_memory),
        cmocka_unit_test(accesses_are_a_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
