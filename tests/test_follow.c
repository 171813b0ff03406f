/* Following a script in launch order: what is planned for a training is carried out, whatever else
 * the program does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cuda_device.h"
#include "runtime_script.h"

#include "runtime/template.h"

enum { ENOUGH = 4 }; /* iterations of a run */

/* Plays the events [first, last) of the training. */
static void play(struct device *device, const struct training *training, size_t first, size_t last)
{
    for (size_t i = first; i < last; i++)
        device_feed(device, training->of[i], &training->events[i]);
}

static void play_on(struct device *device, const struct training *training, size_t *played)
{
    play(device, training, *played, training->count);
    *played = training->count;
}

/* The script of the iteration that begins at event `first`, within a share of its peak. */
static struct ebb_script *script_within(const struct training *training, size_t first,
                                        unsigned percent, bool placed, uint64_t *budget_bytes)
{
    struct ebb_model model;
    struct ebb_machine machine;
    assert_int_equal(ebb__machine_named("pcie4", &machine, NULL), EBB_OK);
    training_model(training, first, &model);
    *budget_bytes = model.peak_bytes / 100 * percent;
    struct ebb_plan_request request = request_for(&model, &machine, *budget_bytes, 0);
    request.page_bytes = 2 * TRAINING_MIB;
    request.effort_steps = 3000000;
    struct ebb_script *script = script_from(&request, placed);
    assert_true(script->flags & EBB_SCRIPT_ANNOUNCED);
    ebb__model_fini(&model);
    return script;
}

struct run {
    struct training training;
    struct device device;
    struct ebb_script *script;
    size_t played, period; /* events played, and those of an iteration */
    uint64_t budget_bytes;
};

/* Two iterations, and the script of the second one. */
static struct run *begin(unsigned percent, bool placed)
{
    struct run *run = calloc(1, sizeof *run);
    assert_non_null(run);
    training_init(&run->training, TRAINING_LAYERS);
    training_iterate(&run->training);
    size_t first = run->training.count;
    training_iterate(&run->training);
    run->period = run->training.count - first;
    run->script = script_within(&run->training, first, percent, placed, &run->budget_bytes);
    device_init(&run->device);
    play_on(&run->device, &run->training, &run->played);
    return run;
}

static void finish(struct run *run)
{
    ebb__follow_destroy(run->device.follow);
    free(run->script);
    free(run);
}

static void set_script(struct run *run)
{
    assert_int_equal(ebb__follow_set_script(run->device.follow, run->script, run->script->bytes),
                     EBB_OK);
}

static void iterate(struct run *run, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        training_iterate(&run->training);
        play_on(&run->device, &run->training, &run->played);
    }
}

static struct cuda_follow_counts counts(const struct run *run)
{
    return ebb__follow_counts(run->device.follow);
}

/* The script comes between two iterations, and is followed from the first layers on. All that is
 * planned happens: what is used is there, and the budget is kept. */
static void a_plan_is_carried_out(void **state)
{
    (void)state;
    static const unsigned percents[] = {90, 70, 50};
    for (size_t i = 0; i < 3; i++) {
        struct run *run = begin(percents[i], false);
        set_script(run);
        assert_false(ebb__follow_is_planned(run->device.follow));
        iterate(run, 2);
        assert_true(ebb__follow_is_planned(run->device.follow));
        run->device.missed = 0;
        run->device.evicted = run->device.fetched = 0;
        run->device.peak_bytes = run->device.resident_bytes;
        iterate(run, ENOUGH);
        assert_int_equal(run->device.missed, 0);
        assert_true(run->device.evicted > 0 && run->device.fetched > 0);
        assert_int_equal(counts(run).mismatches, 0);
        assert_int_equal(counts(run).resyncs, 1);
        assert_true(counts(run).laps >= ENOUGH);
        finish(run);
    }
}

/* The script comes within an iteration: what it has evicted there leaves at once. */
static void a_plan_begins_anywhere(void **state)
{
    (void)state;
    for (size_t cut = 1; cut < 100; cut += 7) {
        struct run *run = begin(50, false);
        training_iterate(&run->training);
        size_t at = run->played + cut;
        play(&run->device, &run->training, run->played, at);
        set_script(run);
        run->played = at;
        play_on(&run->device, &run->training, &run->played);
        iterate(run, 1);
        run->device.missed = 0;
        run->device.peak_bytes = run->device.resident_bytes;
        iterate(run, 2);
        assert_int_equal(run->device.missed, 0);
        assert_true(run->device.peak_bytes <= run->budget_bytes);
        finish(run);
    }
}

/* The blocks that the plan has evicted where it begins leave there, and later ones return first. */
static void the_border_is_crossed(void **state)
{
    (void)state;
    struct run *run = begin(50, false);
    set_script(run);
    training_iterate(&run->training);
    size_t at = run->played;
    uint32_t before = run->device.evicted;
    while (!ebb__follow_is_planned(run->device.follow)) {
        play(&run->device, &run->training, at, at + 1);
        at++;
    }
    assert_true(run->device.evicted > before); /* moments and weights, at the begin of forward */
    assert_true(run->device.resident_bytes <= run->budget_bytes);
    finish(run);
}

/* Layers are alike in sizes. Only their weights tell which one it is. */
static void weights_tell_layers_apart(void **state)
{
    (void)state;
    struct run *run = begin(70, false);
    set_script(run);
    training_iterate(&run->training);
    size_t middle = run->played + 4 * 6; /* within forward */
    play(&run->device, &run->training, run->played, middle);
    assert_true(ebb__follow_is_planned(run->device.follow));
    const struct cuda_event strange = {
        .kind = EBB_EVENT_ALLOC, .block = 250, .serial = 1000000, .bytes = 5};
    const struct cuda_action *actions;
    ebb__follow_step(run->device.follow, &strange, &actions);
    assert_false(ebb__follow_is_planned(run->device.follow));
    play(&run->device, &run->training, middle, middle + 15);
    assert_true(ebb__follow_is_planned(run->device.follow));
    run->played = middle + 15;
    play_on(&run->device, &run->training, &run->played);
    iterate(run, 1);
    assert_int_equal(counts(run).mismatches, 1);
    assert_int_equal(counts(run).resyncs, 2);
    finish(run);
}

/* Frees come late, by up to ten events, in another order, or before others. */
static void frees_may_jitter(void **state)
{
    (void)state;
    struct run *run = begin(60, false);
    uint32_t random = 7;
    set_script(run);
    iterate(run, 1);
    for (unsigned lap = 0; lap < 20; lap++) {
        size_t first = run->training.count, late_count = 0, late[64];
        if (run->training.count + 1000 > TRAINING_EVENTS)
            break;
        training_iterate(&run->training);
        for (size_t i = first; i < run->training.count; i++) {
            random = random * 1664525 + 1013904223;
            bool is_free = run->training.events[i].kind == EBB_EVENT_FREE;
            if (is_free && late_count < 64 && random >> 30)
                late[late_count++] = i;
            else
                device_feed(&run->device, run->training.of[i], &run->training.events[i]);
            /* The table's entry must not be in use again. */
            for (size_t k = 0; k < late_count; k++) {
                bool is_reused = i + 1 < run->training.count &&
                                 run->training.events[i + 1].kind == EBB_EVENT_ALLOC &&
                                 run->training.of[i + 1] == run->training.of[late[k]];
                if (is_reused || random >> 20 & 1 || i + 1 == run->training.count) {
                    device_feed(&run->device, run->training.of[late[k]],
                                &run->training.events[late[k]]);
                    late[k--] = late[--late_count];
                }
            }
        }
        run->played = run->training.count;
    }
    assert_int_equal(counts(run).mismatches, 0);
    assert_true(counts(run).laps >= 10);
    finish(run);
}

/* Two works change places, as those of two threads do. */
static void neighbours_may_change_places(void **state)
{
    (void)state;
    struct run *run = begin(60, false);
    set_script(run);
    iterate(run, 2);
    struct cuda_follow_counts before = counts(run);
    training_iterate(&run->training);
    for (size_t i = run->played; i < run->training.count; i++) {
        const struct ebb_event *one = &run->training.events[i], *other = one + 1;
        bool changes = i % 5 == 0 && i + 1 < run->training.count && one->kind == EBB_EVENT_ACCESS &&
                       other->kind == EBB_EVENT_ACCESS && one->block != other->block;
        if (changes)
            device_feed(&run->device, run->training.of[i + 1], other);
        device_feed(&run->device, run->training.of[i], one);
        i += changes;
    }
    run->played = run->training.count;
    assert_int_equal(counts(run).mismatches, before.mismatches);
    assert_int_equal(counts(run).laps, before.laps + 1);
    iterate(run, 1);
    assert_int_equal(counts(run).mismatches, before.mismatches);
    finish(run);
}

/* Plays the iteration that comes next without `count` of its events of a kind, from its 21st on. */
static void play_without(struct run *run, uint8_t kind, unsigned count)
{
    training_iterate(&run->training);
    for (size_t i = run->played, first = i + 20; i < run->training.count; i++) {
        bool is_left_out = i >= first && run->training.events[i].kind == kind && count > 0;
        if (is_left_out)
            count--;
        else
            device_feed(&run->device, run->training.of[i], &run->training.events[i]);
    }
    run->played = run->training.count;
}

/* Uses that never come are passed: some are none, but bytes that looked like addresses. */
static void missing_uses_are_passed(void **state)
{
    (void)state;
    struct run *run = begin(60, false);
    set_script(run);
    iterate(run, 2);
    for (unsigned count = 1; count <= 40; count += 1 + count / 4) {
        struct cuda_follow_counts before = counts(run);
        play_without(run, EBB_EVENT_ACCESS, count);
        assert_int_equal(counts(run).mismatches, before.mismatches);
        assert_int_equal(counts(run).laps, before.laps + 1);
        assert_true(ebb__follow_is_planned(run->device.follow));
    }
    finish(run);
}

/* An allocation of another size is a departure. */
static void another_allocation_is_a_departure(void **state)
{
    (void)state;
    struct run *run = begin(60, false);
    set_script(run);
    iterate(run, 2);
    training_iterate(&run->training);
    size_t changed = run->played + 20;
    while (run->training.events[changed].kind != EBB_EVENT_ALLOC)
        changed++;
    struct ebb_event other = run->training.events[changed];
    other.size_bytes += 7 * TRAINING_MIB;
    play(&run->device, &run->training, run->played, changed);
    device_feed(&run->device, run->training.of[changed], &other);
    assert_int_equal(counts(run).mismatches, 1);
    run->played = changed + 1;
    play_on(&run->device, &run->training, &run->played);
    iterate(run, 2);
    assert_true(ebb__follow_is_planned(run->device.follow)); /* found again */
    finish(run);
}

/* Feeds uses that the script does not have here. */
static void feed_strays(struct run *run, uint32_t block, uint64_t serial, unsigned count)
{
    const struct ebb_event use = {.kind = EBB_EVENT_ACCESS, .block = serial};
    for (unsigned i = 0; i < count; i++)
        device_feed(&run->device, block, &use);
}

/* A few uses that the script does not have do not disturb it. Some are of blocks that it does not
 * know, some of others. */
static void strays_are_ignored(void **state)
{
    (void)state;
    struct run *run = begin(60, false);
    set_script(run);
    const struct ebb_event seen = {
        .kind = EBB_EVENT_ALLOC, .block = 900000, .size_bytes = 3 * TRAINING_MIB};
    device_feed(&run->device, 200, &seen); /* before the iteration */
    iterate(run, 2);
    uint64_t laps = counts(run).laps;
    training_iterate(&run->training);
    for (size_t i = run->played; i < run->training.count; i++) {
        device_feed(&run->device, run->training.of[i], &run->training.events[i]);
        if (i % 10 == 0)
            feed_strays(run, 200, 900000, 20);
        if (i % 10 == 5) /* a weight, which is used twice in an iteration */
            feed_strays(run, 1, run->device.serials[1], 1);
    }
    run->played = run->training.count;
    assert_int_equal(counts(run).mismatches, 0);
    assert_int_equal(counts(run).laps, laps + 1);
    feed_strays(run, 200, 900000, 64);
    assert_int_equal(counts(run).mismatches, 0);
    feed_strays(run, 200, 900000, 1);
    assert_int_equal(counts(run).mismatches, 1);
    assert_false(ebb__follow_is_planned(run->device.follow));
    finish(run);
}

/* An evaluation between iterations has a script of its own, which takes over at once. */
static void scripts_take_turns(void **state)
{
    (void)state;
    struct run *run = begin(60, false);
    size_t first = run->training.count;
    training_evaluate(&run->training);
    training_iterate(&run->training);
    uint64_t budget;
    struct ebb_script *beside = script_within(&run->training, first, 60, false, &budget);
    play_on(&run->device, &run->training, &run->played);
    set_script(run);
    assert_int_equal(ebb__follow_set_script(run->device.follow, beside, beside->bytes), EBB_OK);
    iterate(run, 2);
    for (unsigned i = 0; i < 3; i++) {
        training_evaluate(&run->training);
        play_on(&run->device, &run->training, &run->played);
        assert_true(ebb__follow_is_planned(run->device.follow));
        iterate(run, 2);
        assert_true(ebb__follow_is_planned(run->device.follow));
    }
    ebb__follow_forget(run->device.follow);
    assert_false(ebb__follow_is_planned(run->device.follow));
    iterate(run, 1);
    assert_false(ebb__follow_is_planned(run->device.follow));
    free(beside);
    finish(run);
}

/* Without a script of its own an evaluation is a departure, at its first free space. */
static void an_unknown_phase_is_a_departure(void **state)
{
    (void)state;
    struct run *run = begin(60, false);
    set_script(run);
    iterate(run, 2);
    training_evaluate(&run->training);
    training_evaluate(&run->training);
    play_on(&run->device, &run->training, &run->played);
    assert_true(counts(run).mismatches >= 1);
    iterate(run, 1);
    assert_true(ebb__follow_is_planned(run->device.follow));
    uint64_t mismatches = counts(run).mismatches;
    run->device.missed = 0;
    iterate(run, 2);
    assert_int_equal(counts(run).mismatches, mismatches);
    assert_int_equal(run->device.missed, 0);
    finish(run);
}

/* The program makes its model anew: other serials, the same plan. */
static void blocks_are_renamed(void **state)
{
    (void)state;
    struct run *run = begin(50, false);
    set_script(run);
    iterate(run, 2);
    struct ebb_renaming renamings[2 * TRAINING_LAYERS];
    size_t count = 0;
    struct training *training = &run->training;
    for (uint32_t i = 0; i < training->layers; i++) {
        uint32_t *made[] = {&training->weights[i], &training->moments[i]};
        for (size_t k = 0; k < 2; k++) {
            uint64_t serial = training->blocks[*made[k]].serial;
            training_free(training, *made[k]);
            *made[k] = training_alloc(training, 24 * TRAINING_MIB);
            renamings[count++] = (struct ebb_renaming){serial, training->blocks[*made[k]].serial};
        }
    }
    play_on(&run->device, &run->training, &run->played);
    assert_false(ebb__follow_is_planned(run->device.follow));
    iterate(run, 1);
    assert_false(ebb__follow_is_planned(run->device.follow)); /* no weight is that of the plan */
    ebb__follow_rename(run->device.follow, renamings, count);
    iterate(run, 2);
    assert_true(ebb__follow_is_planned(run->device.follow));
    run->device.missed = run->device.evicted = 0;
    run->device.peak_bytes = run->device.resident_bytes;
    iterate(run, 2);
    assert_int_equal(run->device.missed, 0);
    assert_true(run->device.evicted > 0);
    assert_true(run->device.peak_bytes <= run->budget_bytes);
    finish(run);
}

/* A better plan of the same iteration takes over while the old one is followed. */
static void a_plan_replaces_another(void **state)
{
    (void)state;
    for (int placed = 0; placed < 2; placed++) {
        struct run *run = begin(80, placed);
        set_script(run);
        iterate(run, 2);
        struct ebb_script *old = run->script;
        uint64_t old_budget = run->budget_bytes;
        run->script = script_within(&run->training, run->training.count - run->period, 50, placed,
                                    &run->budget_bytes);
        assert_true(ebb__template_same(old, run->script));
        assert_true(run->budget_bytes < old_budget);
        set_script(run);
        iterate(run, 2);
        assert_true(ebb__follow_is_planned(run->device.follow));
        assert_int_equal(counts(run).mismatches, 0);
        run->device.missed = 0;
        run->device.peak_bytes = run->device.resident_bytes;
        iterate(run, 1);
        assert_int_equal(run->device.missed, 0);
        assert_true(run->device.peak_bytes <= run->budget_bytes);
        free(old);
        finish(run);
    }
}

/* Next uses and places, by the events that really come. */
static void next_uses_are_known(void **state)
{
    (void)state;
    struct run *run = begin(70, true);
    const struct training *training = &run->training;
    uint64_t placement_bytes;
    assert_int_equal(ebb__follow_next_use(run->device.follow, training->weights[0]),
                     CUDA_UNKNOWN_USE);
    assert_true(ebb__follow_place(run->device.follow, 32 * TRAINING_MIB, &placement_bytes) ==
                EBB_SCRIPT_NO_PLACE);
    set_script(run);
    iterate(run, 1);
    training_iterate(&run->training);
    training_iterate(&run->training);
    size_t last = training->count - (training->count - run->played) / 2;
    unsigned placed = 0;
    for (size_t i = run->played; i < last; i++) {
        for (uint32_t block = 1; block < TRAINING_BLOCKS; block++) {
            if (!run->device.serials[block])
                continue;
            bool is_in_use = false; /* by the work that has just begun */
            for (size_t k = i; k-- > 0 && training->works[k] == training->works[i - 1];)
                is_in_use |= training->of[k] == block;
            if (is_in_use)
                continue;
            uint64_t expected = 0, told = ebb__follow_next_use(run->device.follow, block);
            size_t at = i;
            while (at < training->count && training->events[at].block != run->device.serials[block])
                at++;
            assert_true(at < training->count);
            expected = training->events[at].kind == EBB_EVENT_FREE ? CUDA_FREED_BEFORE : at - i;
            if (told != expected)
                fail_msg("event %zu, block %u: %llu, not %llu", i, block, (unsigned long long)told,
                         (unsigned long long)expected);
        }
        if (training->events[i].kind == EBB_EVENT_ALLOC) {
            uint64_t bytes = training->events[i].size_bytes;
            uint64_t place = ebb__follow_place(run->device.follow, bytes, &placement_bytes);
            if (place != EBB_SCRIPT_NO_PLACE) {
                placed++;
                assert_true(place + bytes <= placement_bytes);
            }
            assert_true(ebb__follow_place(run->device.follow, 7, &placement_bytes) ==
                        EBB_SCRIPT_NO_PLACE);
        }
        play(&run->device, &run->training, i, i + 1);
    }
    assert_true(placed > 0);
    finish(run);
}

static void bad_scripts_are_refused(void **state)
{
    (void)state;
    struct run *run = begin(70, false);
    struct ebb_cuda_follow *follow = run->device.follow;
    assert_int_equal(ebb__follow_set_script(follow, run->script, 40), EBB_ERR_FORMAT);
    struct ebb_script *bad = malloc(run->script->bytes);
    memcpy(bad, run->script, run->script->bytes);
    bad->flags = EBB_SCRIPT_UNORDERED;
    struct ebb_script_event *events = (struct ebb_script_event *)((char *)bad + bad->events_offset);
    for (uint32_t i = 0; i < bad->clock_count; i++)
        if (events[i].kind == EBB_EVENT_ACCESS)
            events[i].kind = EBB_EVENT_FREE;
    assert_int_equal(ebb__follow_set_script(follow, bad, bad->bytes), EBB_ERR_UNSUPPORTED);
    bad->flags = 0; /* ordered, but without uses */
    assert_int_equal(ebb__follow_set_script(follow, bad, bad->bytes), EBB_ERR_UNSUPPORTED);
    free(bad);
    iterate(run, 1);
    assert_false(ebb__follow_is_planned(follow));
    finish(run);
}

/* Any events, with a script or without: blocks that are freed twice, or never seen. */
static void any_events_are_survived(void **state)
{
    (void)state;
    struct run *run = begin(50, true);
    uint64_t random = 1;
    for (unsigned i = 0; i < 300000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint32_t choice = (uint32_t)(random >> 33);
        const struct ebb_event *event = &run->training.events[choice % run->training.count];
        struct cuda_event happened = {event->kind, run->training.of[choice % run->training.count],
                                      event->block, event->size_bytes};
        if (choice >> 20 & 1)
            happened.block = choice >> 8 & (TRAINING_BLOCKS - 1);
        if (i % 1000 == 0)
            set_script(run);
        if (i % 7777 == 0)
            ebb__follow_forget(run->device.follow);
        const struct cuda_action *actions;
        size_t count = ebb__follow_step(run->device.follow, &happened, &actions);
        for (size_t k = 0; k < count; k++)
            assert_true(actions[k].block < TRAINING_BLOCKS);
        if (i % 64 == 0) /* a stretch of the program, so that it is followed at times */
            for (size_t k = 0; k < choice % 64; k++) {
                size_t at = (choice % 300 + k) % run->training.count;
                const struct ebb_event *next = &run->training.events[at];
                happened = (struct cuda_event){next->kind, run->training.of[at], next->block,
                                               next->size_bytes};
                ebb__follow_step(run->device.follow, &happened, &actions);
            }
    }
    assert_true(counts(run).resyncs > 10 && counts(run).mismatches > 10);
    finish(run);
}

static uint32_t units_of(const struct ebb_event *event)
{
    return (uint32_t)((event->size_bytes + 2 * TRAINING_MIB - 1) / (2 * TRAINING_MIB));
}

/* When the last of `left` ranges of a size is taken, counted in ALLOCs and FREEs of the next
 * iteration. UINT32_MAX: never. *lacks: an ALLOC finds none. */
static uint32_t needed_at(const struct run *run, uint32_t units, uint32_t left, bool *lacks)
{
    uint32_t turn = 0, needed = UINT32_MAX;
    *lacks = false;
    for (size_t i = run->played - run->period; i < run->played; i++) {
        const struct ebb_event *event = &run->training.events[i];
        if (event->kind == EBB_EVENT_ACCESS)
            continue;
        if (units_of(event) == units && event->kind == EBB_EVENT_FREE)
            left++;
        else if (units_of(event) == units && left == 0)
            *lacks = true;
        else if (units_of(event) == units && --left == 0 && needed == UINT32_MAX)
            needed = turn;
        turn++;
    }
    return needed;
}

/* What the next allocations find free, for each size and several numbers of free ranges. */
static void free_ranges_are_followed(void **state)
{
    (void)state;
    static uint32_t free_runs[CUDA_RUN_SIZES];
    static struct cuda_ahead ahead;
    struct run *run = begin(50, false);
    ebb__follow_ahead(run->device.follow, free_runs, 1, UINT32_MAX, &ahead);
    assert_int_equal(ahead.lacking, 0); /* nothing is known without a script */
    set_script(run);
    iterate(run, 2);
    assert_true(ebb__follow_is_planned(run->device.follow));
    unsigned lacking = 0, kept = 0;
    for (uint32_t left = 0; left < 8; left++) {
        for (uint32_t units = 1; units < 64; units++) {
            bool lacks;
            for (uint32_t i = 1; i < CUDA_RUN_SIZES; i++)
                free_runs[i] = i == units ? left : 1000000;
            ebb__follow_ahead(run->device.follow, free_runs, 1, UINT32_MAX, &ahead);
            assert_int_equal(ahead.needed[units], needed_at(run, units, left, &lacks));
            assert_int_equal(ahead.lacking, lacks ? units : 0);
            lacking += lacks;
            kept += left && ahead.needed[units] != UINT32_MAX;
        }
    }
    assert_true(lacking > 0 && kept > 0);
    finish(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_is_carried_out),
        cmocka_unit_test(a_plan_begins_anywhere),
        cmocka_unit_test(the_border_is_crossed),
        cmocka_unit_test(weights_tell_layers_apart),
        cmocka_unit_test(frees_may_jitter),
        cmocka_unit_test(neighbours_may_change_places),
        cmocka_unit_test(missing_uses_are_passed),
        cmocka_unit_test(another_allocation_is_a_departure),
        cmocka_unit_test(strays_are_ignored),
        cmocka_unit_test(scripts_take_turns),
        cmocka_unit_test(an_unknown_phase_is_a_departure),
        cmocka_unit_test(blocks_are_renamed),
        cmocka_unit_test(a_plan_replaces_another),
        cmocka_unit_test(next_uses_are_known),
        cmocka_unit_test(free_ranges_are_followed),
        cmocka_unit_test(bad_scripts_are_refused),
        cmocka_unit_test(any_events_are_survived),
    };
    return cmocka_run_group_tests_name("follow", tests, NULL, NULL);
}
